"""The plan of a rebuild: boundaries, where they may be written, the plan as a file."""
