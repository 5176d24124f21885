"""The small files of a partition directory: indexes, snapshots, checkpoints, and their names."""
