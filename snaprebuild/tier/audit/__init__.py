"""Compares producer snapshots in remote storage with a replay."""
