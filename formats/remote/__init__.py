"""Files and records of remote storage."""
