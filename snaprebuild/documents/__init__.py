"""JSON documents and files of ours as values."""
