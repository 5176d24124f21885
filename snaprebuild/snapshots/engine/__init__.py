"""Replays partitions: read tasks, worker processes, states at boundaries."""
