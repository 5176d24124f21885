"""Snapshots that are built while the broker runs, and linked after it stopped."""
