"""One HTML page from saved results."""
