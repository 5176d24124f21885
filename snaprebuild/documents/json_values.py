"""What stands in the JSON lines of plans and receipts, which anybody may have written: values are taken only as what they should be."""

from __future__ import annotations

import os

from formats.limits import INT64_MAX

__all__ = ["is_nameable", "whole"]


def whole(value: object, least: int = 0) -> int:
    """A whole number from ``least`` up to the largest offset.

    Raises:
        ValueError: it is none.
    """
    if type(value) is not int or not least <= value <= INT64_MAX:
        raise ValueError(f"{value!r} is no number from {least} to {INT64_MAX}")
    return value


def is_nameable(text: str) -> bool:
    """Whether a path or another name may be so: JSON has characters that no name has."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
