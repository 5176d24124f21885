"""Tables of plain text: whole lines in a pipe or file, and readable in a terminal of any width; no colours, none to switch off."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["counts_text", "middle_cut", "printable", "range_text", "table_text"]

GAP = "   "
INDENT = "    "

TOGETHER_MAX = 30
"""A named cell of a paragraph that is no longer than this is not broken."""

LAST_COLUMN_MIN = 30
"""The last column holds sentences: it is folded in a terminal that leaves it this many cells. Other columns never are."""


def printable(text: str) -> str:
    """Text in one line that does nothing to a terminal: what cannot be printed, as in names of files, is shown as its escape."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def middle_cut(text: str, width: int) -> str:
    """The text, or its begin and its end where it is longer than ``width``: the number of a partition stays."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[-end:]}"


def counts_text(counts: Mapping[str, int]) -> str:
    """``2 written, 1 would write``; empty without any."""
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count)


def range_text(offsets: Sequence[int]) -> str:
    """The first and the last of ascending offsets."""
    if not offsets:
        return "-"
    return f"{offsets[0]} .. {offsets[-1]}" if offsets[0] != offsets[-1] else str(offsets[0])


def table_text(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    width: int | None = None,
    rule: str = "─",
) -> str:
    """A table with its title, each line without blanks at its end.

    Where it is wider than ``width``, sentences in the last column are folded; where that is not enough, each row becomes a
    paragraph that names its cells, without those that are empty.

    Args:
        title: above the table, or None.
        columns: their names.
        rows: one cell for each column.
        right: names of columns that are flush right.
        width: cells of a terminal, or None where lines may have any length.
        rule: the character below the names.
    """
    lines = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(map(_cells, column)) for column in zip(columns, *lines, strict=True)]
    before_last = 1 + sum(widths[:-1]) + len(GAP) * (len(columns) - 1)
    room = None if width is None else width - before_last
    if room is not None and room < widths[-1]:
        if room < LAST_COLUMN_MIN or columns[-1] in right:
            return "\n".join([title or "", "", *(_paragraph(columns, line, width or 0) for line in lines), "", ""])
        widths[-1] = room
    folded = [part for line in lines for part in _folded(line, widths[-1])]
    flush_right = [name in right for name in columns]
    body = [_line(line, widths, flush_right) for line in (columns, *folded)]
    body.insert(1, " " + rule * (sum(widths) + len(GAP) * (len(columns) - 1)))
    return "\n".join([*([] if title is None else [title, ""]), *body, "", ""])


def _line(cells: Sequence[str], widths: Sequence[int], flush_right: Sequence[bool]) -> str:
    padded = []
    for cell, width, is_right in zip(cells, widths, flush_right, strict=True):
        blanks = " " * (width - _cells(cell))
        padded.append(blanks + cell if is_right else cell + blanks)
    return (" " + GAP.join(padded)).rstrip()


def _folded(line: list[str], last_width: int) -> list[list[str]]:
    """The line, and below it what its last cell has more than fits."""
    if _cells(line[-1]) <= last_width:
        return [line]
    first, *others = textwrap.wrap(line[-1], last_width)
    return [[*line[:-1], first], *([*("" for _ in line[:-1]), other] for other in others)]


def _paragraph(columns: Sequence[str], line: Sequence[str], width: int) -> str:
    named = [f"{name}: {cell}" if name else cell for name, cell in zip(columns, line, strict=True) if cell not in ("", "-")]
    # A blank that is none holds short ones together; cells have none, it is not printable.
    text = "; ".join(each.replace(" ", "\xa0") if len(each) <= TOGETHER_MAX else each for each in named)
    filled = textwrap.fill(
        text, width, initial_indent=" ", subsequent_indent=INDENT, break_long_words=False, break_on_hyphens=False
    )
    return filled.replace("\xa0", " ")


def _cells(text: str) -> int:
    """Cells of a terminal that a text takes: Chinese, Japanese and Korean characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
