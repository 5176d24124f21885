"""The lines of many rows at once: a template, filled in with columns of numbers and words.

All rows of a part are one array of bytes, each line as wide as the widest. What a narrower number leaves empty is zero, and all zeros are
removed at the end. So no row needs a step of its own. The tests compare with the plain way, ``template.format(**row)``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from snaprebuild.inspect.dump_items import Words

__all__ = ["RowText"]

ROWS_AT_ONCE = 2048
"""So that the array of a part stays in the processor's cache."""

_FOUR_DIGITS = np.frombuffer(b"".join(b"%04d" % number for number in range(10_000)), dtype=np.uint8).reshape(-1, 4)
_MINUS = ord("-")

Matrix = np.ndarray[tuple[int, int], np.dtype[np.uint8]]


class RowText(msgspec.Struct, frozen=True):
    """Lines of one form.

    Attributes:
        texts: what is before, between, and after the values of a row; ASCII, one more than there are names.
        names: of the columns, in the order of their values.
    """

    texts: tuple[bytes, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, template: str) -> RowText:
        """From a template with ``{name}`` for each value; other braces are text."""
        pieces = re.split(r"\{(\w+)\}", template)
        return cls(tuple(text.encode("ascii") for text in pieces[::2]), tuple(pieces[1::2]))

    def lines(self, columns: Mapping[str, Sequence[Any] | np.ndarray | Words]) -> str:
        """The text of all rows.

        Args:
            columns: of one length. Whole numbers as an array; words; or a list of values whose text (``str``) is ASCII without NUL.
        """
        length = len(columns[self.names[0]])
        parts = (slice(start, start + ROWS_AT_ONCE) for start in range(0, length, ROWS_AT_ONCE))
        return b"".join(self._part({name: columns[name][part] for name in self.names}) for part in parts).decode("ascii")

    def _part(self, columns: Mapping[str, Sequence[Any] | np.ndarray | Words]) -> bytes:
        line = bytearray(self.texts[0])
        fields = []
        for name, text in zip(self.names, self.texts[1:], strict=True):
            value = _same_in_all(columns[name])
            if value is None:
                field = _field(columns[name])
                fields.append((len(line), field))
                line += bytes(field.shape[1])
            else:
                line += value
            line += text
        rows = np.empty((len(columns[self.names[0]]), len(line)), dtype=np.uint8)
        rows[:] = np.frombuffer(line, dtype=np.uint8)
        for at, field in fields:
            rows[:, at : at + field.shape[1]] = field
        return rows.tobytes().replace(b"\0", b"")


def _same_in_all(column: Sequence[Any] | np.ndarray | Words) -> bytes | None:
    """The text of a column whose rows are all alike, or None."""
    if isinstance(column, Words):
        if bool((column.codes == column.codes[0]).all()):
            return column.word(0).encode("ascii")
        return None
    if isinstance(column, np.ndarray):
        alike = bool((column == column[0]).all())
    else:
        alike = column.count(column[0]) == len(column)
    return str(column[0]).encode("ascii") if alike else None


def _field(column: Sequence[Any] | np.ndarray | Words) -> Matrix:
    """The texts of a column, each as wide as the widest, with zeros in all places that it does not take."""
    if isinstance(column, Words):
        return _matrix(np.array(column.words, dtype=np.bytes_)[column.codes])
    if isinstance(column, np.ndarray):
        return _digits(column)
    return _matrix(np.array([str(value) for value in column], dtype=np.bytes_))


def _matrix(texts: np.ndarray) -> Matrix:
    return texts.view(np.uint8).reshape(len(texts), -1)


def _digits(numbers: np.ndarray) -> Matrix:
    """Whole numbers in decimal, to the right, after a column for the sign if there is one."""
    is_negative = numbers < 0
    sign = int(is_negative.any())
    rest = numbers.astype(np.int64).view(np.uint64)
    if sign:
        rest = np.where(is_negative, ~rest + np.uint64(1), rest)
    width = len(str(int(rest.max())))
    fewest = len(str(int(rest.min())))
    place = -(-width // 4) * 4
    digits = np.empty((len(numbers), place), dtype=np.uint8)
    amounts = rest
    for at in range(place - 4, -1, -4):
        higher = rest // np.uint64(10_000)
        digits[:, at : at + 4] = _FOUR_DIGITS[(rest - higher * np.uint64(10_000)).astype(np.intp)]
        rest = higher
    for power in range(fewest, width):
        digits[:, place - 1 - power] *= amounts >= np.uint64(10**power)
    if not sign:
        return digits[:, place - width :]
    return np.concatenate(((is_negative * np.uint8(_MINUS))[:, None], digits[:, place - width :]), axis=1)
