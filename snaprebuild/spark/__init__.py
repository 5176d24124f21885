"""The same rebuild on Apache Spark: segments are read by its tasks, the states at the boundaries found and written by others."""
