"""Charts of timelines: one line for each broker, time from left to right, one character for a stretch of it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import msgspec

__all__ = ["BLOCKS", "LETTERS", "ChartLine", "Glyphs", "chart_text"]

State = TypeVar("State")

WIDTH_MIN = 8
"""Characters of a line, however narrow the terminal is."""
WIDTH_MAX = 100
WIDTH_PLAIN = 72
"""Where there is no terminal."""


class Glyphs(msgspec.Struct, frozen=True):
    """The characters of a chart: of a leader, a replica in sync, one that is eligible, one that is neither, and of nothing; and heights."""

    leader: str
    in_sync: str
    eligible: str
    neither: str
    none: str
    heights: str


BLOCKS = Glyphs("█", "▓", "▒", "░", " ", " ▁▂▃▄▅▆▇█")
"""In a terminal that knows them."""
LETTERS = Glyphs("L", "i", "e", ".", " ", " 12345678")
"""Everywhere else."""


class ChartLine(msgspec.Struct, Generic[State], frozen=True):
    """A line: its name, and what it shows of a state."""

    name: str
    glyph: Callable[[State], str]


def chart_text(changes: Sequence[tuple[int, State]], last_ms: int, lines: Iterable[ChartLine[State]], width: int | None) -> str:
    """A chart.

    Args:
        changes: moments, ms since 1970, not descending, and the state from each on.
        last_ms: where it ends.
        lines: from top to bottom.
        width: cells of the terminal, None where there is none.

    Returns:
        Lines without blanks at their ends. A stretch with several states has that of its end; the last line says how many changes
        lie in each.
    """
    shown = list(lines)
    label = max(len(name) for name in ("changes", *(each.name for each in shown))) + 2
    cells = WIDTH_PLAIN if width is None else max(WIDTH_MIN, min(WIDTH_MAX, width - label - 1))
    first_ms = changes[0][0]
    span = max(last_ms - first_ms, 1)
    at = [min((max(moment - first_ms, 0)) * cells // span, cells - 1) for moment, _ in changes]
    states: list[State | None] = [None] * cells
    counts = [0] * cells
    for cell, (_, state) in zip(at, changes, strict=True):
        states[cell] = state
        counts[cell] += 1
    for cell in range(1, cells):
        if counts[cell] == 0:
            states[cell] = states[cell - 1]
    rows = []
    for line in shown:
        glyphs = [" " if state is None else line.glyph(state) for state in states]
        rows.append(f" {line.name:<{label - 1}}" + "".join(glyphs))
    rows.append(f" {'changes':<{label - 1}}" + "".join(map(_digit, counts)))
    begin = _moment(first_ms)
    end = _moment(last_ms)
    if label + len(begin) + len(end) + 2 <= label + cells:
        rows.append(" " * label + begin + " " * (cells - len(begin) - len(end)) + end)
    else:
        rows += [f" {'from':<{label - 1}}{begin}", f" {'to':<{label - 1}}{end}"]
    return "\n".join(row.rstrip() for row in rows)


def _digit(count: int) -> str:
    """A count of changes in one cell."""
    if not count:
        return " "
    return str(count) if count < 10 else "+"


def _moment(ms: int) -> str:
    try:
        return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
