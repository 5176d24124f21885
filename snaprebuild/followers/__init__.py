"""Followers that start from remote storage: offsets, plan, build, check, repair."""
