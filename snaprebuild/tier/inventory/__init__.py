"""The content of remote storage: whose the bytes are, what proves it, and what will happen to them."""
