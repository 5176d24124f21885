"""The producer state that follows from a log: pure functions and values, no paths, no clock."""
