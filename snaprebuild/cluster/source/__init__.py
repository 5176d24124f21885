"""Verdicts: whether a replica may be a source."""
