"""Limits of a run on the machine: read rate, page cache, priority, memory."""
