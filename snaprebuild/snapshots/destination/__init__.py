"""Where snapshots go: next to their segments, next to those of a running broker, below another directory, or into a stage."""
