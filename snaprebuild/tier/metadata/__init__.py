"""The records of ``__remote_log_metadata``, rebuilt from what remote storage proves about each copy of a segment."""
