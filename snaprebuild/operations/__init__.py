"""One verb, one module."""
