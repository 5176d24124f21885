"""Replaces wrong producer snapshots in remote storage, and takes that back."""
