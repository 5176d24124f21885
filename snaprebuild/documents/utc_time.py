"""Moments as text."""

from __future__ import annotations

import datetime

__all__ = ["utc_text"]


def utc_text(ms: int) -> str:
    """A moment, UTC; in milliseconds if it has no date."""
    try:
        return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
