"""What the cluster says of a log, beside the log itself: pure functions of what was read."""
