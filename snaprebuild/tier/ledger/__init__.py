"""Audits of remote storage in turns: what was proven when, and what the next run need not read again."""
