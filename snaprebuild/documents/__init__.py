"""Our JSON documents and files as values."""
