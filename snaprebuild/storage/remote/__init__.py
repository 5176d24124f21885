"""The layouts of remote storage, and its metadata topic."""
