"""What the log says about its producers: pure functions and values, no paths, no clock."""
