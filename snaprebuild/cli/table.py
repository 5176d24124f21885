"""Tables of plain text that fit a terminal; no colours, none to switch off."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["ROWS_MAX", "WIDTH_MAX", "counts_text", "middle_cut", "paragraph", "printable", "range_text", "table_text"]

GAP = "   "

WIDTH_MAX = 100
"""Cells of a line, also where there is no terminal."""

ROWS_MAX = 20
"""Rows of a table without ``-v``."""

NAME_MIN = 24
"""Cells that a name keeps: enough for the largest number of a partition after its middle is cut out."""

PROSE_MIN = 24
"""Cells that sentences in the last column keep: they are wrapped."""

NOTE_MIN = 40
"""A sentence in the last column that is longer, and repeats, is printed once below the table."""

NAME_COLUMNS = frozenset(("partition", "topic", "directory", "file", "replica", "scan", "of", "name", "principal", "from"))
"""Columns of paths and names, which are cut in the middle."""

_DRY_RUN = {
    "would_write": "would be written",
    "would_remove": "would be removed",
    "set aside would_put_back": "set aside would be put back",
}
"""Actions of a dry run, in words."""

_LAST_PART = re.compile(r"/[^/]*$")
_TAIL = re.compile(r"-[0-9]{1,10}(?: \([A-Za-z0-9_-]{22}\))?$")


def printable(text: str) -> str:
    """Text in one line that does nothing to a terminal: what cannot be printed, as in names of files, is shown as its escape."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def middle_cut(text: str, width: int, end_min: int = 0) -> str:
    """The text, or its beginning and its end if it is longer than ``width``.

    What it ends with stays: the number of a partition, and the last part of a path if that fits.

    Args:
        text: to be cut.
        width: cells that it may take.
        end_min: characters of its end that stay if they fit.
    """
    if _cells(text) <= width:
        return text
    ends = [len(tail[0]) for tail in (_TAIL.search(text), _LAST_PART.search(text)) if tail]
    ends.append(end_min)
    end = max([(width - 1) // 2, *(each for each in ends if each < width)])
    start = width - 1 - end
    while start and _cells(text[:start]) + 1 + _cells(text[len(text) - end :]) > width:  # wide characters
        start = start - 1
        end = end - 1
    return f"{text[:start]}…{text[len(text) - end :]}"


def counts_text(counts: Mapping[str, int]) -> str:
    """``2 written, 1 would be written``; empty without any."""
    return ", ".join(f"{count} {_DRY_RUN.get(name) or name.replace('_', ' ')}" for name, count in counts.items() if count)


def range_text(offsets: Sequence[int]) -> str:
    """The first and the last of ascending offsets."""
    if not offsets:
        return "-"
    return f"{offsets[0]} .. {offsets[-1]}" if offsets[0] != offsets[-1] else str(offsets[0])


def paragraph(text: str, width: int, indent: str = "") -> str:
    """Lines of at most ``width`` cells, all but the first with ``indent``. A word that is longer, such as a path, is cut in its middle."""
    words = re.sub(r"\S+", lambda word: middle_cut(word[0], max(width - len(indent), 2)), printable(text))
    lines = textwrap.wrap(words, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def cell_text(cell: object) -> str:
    """A cell of a table as it is printed: ``-`` for None."""
    return "-" if cell is None else str(cell)


def table_text(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    drop: Sequence[str] = (),
    width: int = WIDTH_MAX,
    rows_max: int = ROWS_MAX,
    rule: str = "─",
) -> str:
    """A table with its title, each line without blanks at its end and of at most ``width`` cells.

    If it is too wide, names are cut in the middle and sentences in the last column are wrapped. If that is not enough, columns are
    dropped. Sentences of the last column that repeat become footnotes.

    Args:
        title: above the table, or None.
        columns: their names.
        rows: one cell for each column (``cell_text``).
        right: names of columns that are flush right.
        drop: columns that a narrow terminal does without, the least important first; after them the others from the right. The first
            and the last column stay.
        width: cells of a line.
        rows_max: rows that are printed; the last line counts the others.
        rule: the character below the names.
    """
    everything = list(rows)
    lines = [[printable(cell_text(cell)) for cell in row] for row in everything[:rows_max]]
    notes = _notes(columns, lines, right)
    shown = _shown_columns(columns, lines, drop, right, width)
    columns = [columns[at] for at in shown]
    lines = [[line[at] for at in shown] for line in lines]
    widths = _widths(columns, lines, right, width)
    cut = _cut_names(columns, lines, widths)
    folded = [part for line in cut for part in _folded(line, widths[-1])]
    flush_right = [name in right for name in columns]
    body = [_line(line, widths, flush_right) for line in (columns, *folded)]
    body.insert(1, " " + rule * (sum(widths) + len(GAP) * (len(columns) - 1)))
    if len(everything) > rows_max:
        body.append(f"and {len(everything) - rows_max:,} more: -v or --output json")
    if notes:
        body += ["", *(paragraph(f"[{number}] {text}", width, "    ") for text, number in notes.items())]
    return "\n".join([*([] if title is None else [paragraph(title, width), ""]), *body, "", ""])


def _notes(columns: Sequence[str], lines: list[list[str]], right: Sequence[str]) -> dict[str, int]:
    """Puts the numbers of footnotes in place of long texts that repeat in the last column; returns the footnotes."""
    if columns[-1] in right or columns[-1] in NAME_COLUMNS:
        return {}
    counts = Counter(line[-1] for line in lines if len(line[-1]) > NOTE_MIN)
    notes = {text: number for number, text in enumerate((text for text, count in counts.items() if count > 1), 1)}
    for line in lines:
        if line[-1] in notes:
            line[-1] = f"[{notes[line[-1]]}]"
    return notes


def _own_widths(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(_cells, column)) for column in zip(columns, *lines, strict=True)]


def _least_widths(columns: Sequence[str], lines: Sequence[Sequence[str]], right: Sequence[str]) -> list[int]:
    """Widths with all names cut and the last column wrapped."""
    least = _own_widths(columns, lines)
    for at, name in enumerate(columns):
        if name in NAME_COLUMNS:
            tails = (_TAIL.search(line[at]) for line in lines)
            shortest = max(NAME_MIN, len(name), 12 + max((len(tail[0]) for tail in tails if tail), default=0))
            least[at] = min(least[at], shortest)
    if columns[-1] not in right and columns[-1] not in NAME_COLUMNS:
        least[-1] = min(least[-1], max(PROSE_MIN, len(columns[-1])))
    return least


def _total(widths: Sequence[int]) -> int:
    return 1 + sum(widths) + len(GAP) * (len(widths) - 1)


def _shown_columns(
    columns: Sequence[str], lines: Sequence[Sequence[str]], drop: Sequence[str], right: Sequence[str], width: int
) -> list[int]:
    """Indexes of the columns that are printed."""
    least = _least_widths(columns, lines, right)
    shown = list(range(len(columns)))
    order = [columns.index(name) for name in drop]
    order += [at for at in reversed(range(1, len(columns) - 1)) if at not in order]
    for at in order:
        if _total([least[each] for each in shown]) <= width:
            break
        shown.remove(at)
    return shown


def _widths(columns: Sequence[str], lines: Sequence[Sequence[str]], right: Sequence[str], width: int) -> list[int]:
    """Widths that fit: the widest column that may be narrower is made so, one cell after the other."""
    widths = _own_widths(columns, lines)
    least = _least_widths(columns, lines, right)
    while (over := _total(widths) - width) > 0:
        wide = [at for at in range(len(widths)) if widths[at] > least[at]]
        if not wide:
            widths[-1] = max(widths[-1] - over, 1)
            break
        widths[max(wide, key=lambda at: widths[at])] -= 1
    return widths


def _cut_names(columns: Sequence[str], lines: Sequence[list[str]], widths: Sequence[int]) -> list[list[str]]:
    """The lines, with names cut to the widths of their columns."""
    cut = [list(line) for line in lines]
    for at, name in enumerate(columns):
        if name in NAME_COLUMNS:
            for line, cell in zip(cut, _cut_column([each[at] for each in lines], widths[at]), strict=True):
                line[at] = cell
    return cut


def _cut_column(names: Sequence[str], width: int) -> list[str]:
    """Names that are cut so that different ones stay different, if the width allows it."""
    cells: list[str] = []
    for common in (_common_directories(names), _common_characters(names)):
        cells = [_cut_path(each, width, common) for each in names]
        if len(set(cells)) == len(set(names)):
            break
    return cells


def _common_directories(paths: Sequence[str]) -> int:
    """How many characters all paths begin with, up to the first directory in which they differ; 0 for other names."""
    parents = {path.rpartition("/")[0] for path in paths}
    if not all(parents):
        return 0
    same = 0
    for parts in zip(*(parent.split("/") for parent in parents), strict=False):
        if len(set(parts)) > 1:
            break
        same += len(parts[0]) + 1
    return max(same - 1, 0)


def _common_characters(paths: Sequence[str]) -> int:
    """How many characters the directories of all paths begin with, also in the middle of a name; 0 for other names."""
    parents = [path.rpartition("/")[0] for path in paths]
    if not all(parents):
        return 0
    shortest = min(parents, key=len, default="")
    for at, character in enumerate(shortest):
        if any(parent[at] != character for parent in parents):
            return at
    return len(shortest)


def _cut_path(path: str, width: int, common: int) -> str:
    """A path that is cut in what all paths of its column begin with, so that two disks do not look alike.

    Args:
        path: or another name.
        width: cells that it may take.
        common: characters that the paths of the column have in common at their beginning.
    """
    if _cells(path) <= width:
        return path
    own = path[common:]
    if common and _cells(own) >= width:
        return f"…{middle_cut(own, width - 1)}"
    return middle_cut(path, width, len(own) if common else 0)


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
    first, *others = textwrap.wrap(line[-1], last_width, break_on_hyphens=False)
    blanks = [""] * (len(line) - 1)
    return [[*line[:-1], first], *([*blanks, other] for other in others)]


def _cells(text: str) -> int:
    """Cells of a terminal that a text takes: Chinese, Japanese and Korean characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    count = 0
    for char in text:
        if unicodedata.combining(char):
            continue
        count += 2 if unicodedata.east_asian_width(char) in "WF" else 1
    return count
