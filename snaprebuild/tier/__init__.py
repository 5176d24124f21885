"""Remote storage: copies of segments, and what the metadata log lists of them."""
