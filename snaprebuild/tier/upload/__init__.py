"""Uploads rolled segments to remote storage."""
