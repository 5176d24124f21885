"""Charts of numbers over time, one line for each row, in any terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence

from snaprebuild.cli.printing import draws_blocks

__all__ = ["chart_line", "duration_text", "with_duration_texts"]

BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN = "_.-=+*%#"


def chart_line(values: Sequence[int], most: int) -> str:
    """Numbers from 0 to ``most``, one character each."""
    levels = BLOCKS if draws_blocks() else PLAIN
    if not most:
        return levels[0] * len(values)
    top = len(levels) - 1
    return "".join(levels[min(top, value * len(levels) // most)] for value in values)


def duration_text(ms: int) -> str:
    """A time for a person: its two largest units."""
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)):
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
        if parts and (len(parts) == 2 or not ms):
            break
    return " ".join(parts) or "0"


def with_duration_texts(reason: str) -> str:
    """A reason for a person: its milliseconds in larger units."""
    return re.sub(r"\b(\d+) ms\b", lambda found: duration_text(int(found[1])), reason)
