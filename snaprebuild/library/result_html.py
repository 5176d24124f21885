"""A result as HTML, which a notebook shows for the last value of a cell."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from itertools import islice
from typing import Any

from snaprebuild.library.tables import Row

__all__ = ["CELL_CHARACTERS_MAX", "ROWS_MAX", "html_of"]

ROWS_MAX = 20
"""Rows that are shown, the default of ``DataFrame.show`` of Spark."""

CELL_CHARACTERS_MAX = 80
TEXT_CHARACTERS_MAX = 2_000


def html_of(title: str, answer: str, next_command: str | None, columns: Iterable[str], rows: Iterable[Row]) -> str:
    """The answer, the next command and the first rows. All text is escaped, and its length is bounded.

    Args:
        title: what was run and how it ended.
        answer: its first lines.
        next_command: for a shell; None if there is nothing to do.
        columns: names of the columns.
        rows: read no further than is shown.
    """
    names = list(columns)
    first = list(islice(rows, ROWS_MAX + 1))
    parts = [f"<div><p><b>{escape(title)}</b></p>", f"<pre>{escape(_cut(answer, TEXT_CHARACTERS_MAX))}</pre>"]
    if next_command is not None:
        parts.append(f"<p>Next: <code>{escape(_cut(next_command, TEXT_CHARACTERS_MAX))}</code></p>")
    if first:
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>")
        for row in first[:ROWS_MAX]:
            cells = "".join(f"<td>{escape(_cut(_text(row[name]), CELL_CHARACTERS_MAX))}</td>" for name in names)
            parts.append(f"<tr>{cells}</tr>")
        parts.append("</tbody></table>")
    if len(first) > ROWS_MAX:
        parts.append(f"<p>only the first {ROWS_MAX} rows</p>")
    parts.append("</div>")
    return "".join(parts).encode(errors="backslashreplace").decode()  # names of files need not be UTF-8


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


def _cut(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else f"{text[: characters_max - 3]}..."
