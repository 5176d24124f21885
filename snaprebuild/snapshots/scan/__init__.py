"""The scan of log directories, and what blocks the upload."""
