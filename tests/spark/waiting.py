"""Waiting for a condition."""

import time
from collections.abc import Callable

__all__ = ["SECONDS_MAX", "wait_until"]

SECONDS_MAX = 600
"""Longest wait of a test."""


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Looks until the condition holds; ``what`` is said if it never does."""
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
