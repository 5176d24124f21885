"""Snapshots that are built while the broker runs, and get their names while it is stopped."""
