"""Errors about bytes that do not follow their format.

::

    FormatError                 root: file, position, expected, found
    ├── TruncatedError          the bytes end before the value does
    ├── BadMagicError           a record batch of a magic that Kafka never wrote
    ├── BadChecksumError        stored and computed checksum differ
    ├── BadLengthError          a length or count that contradicts the format
    ├── BadVersionError         a version that this library does not know
    ├── BadValueError           a well-formed field with an impossible value
    └── LimitExceededError      the value is larger than a limit of ``formats.limits``
"""

from __future__ import annotations

from typing import Self

__all__ = [
    "BadChecksumError",
    "BadLengthError",
    "BadMagicError",
    "BadValueError",
    "BadVersionError",
    "FormatError",
    "LimitExceededError",
    "TruncatedError",
]


class FormatError(Exception):
    """Bytes do not follow their format.

    Attributes:
        what: the field or structure at fault, in Kafka's words.
        file: name of the file or object, or None while it is not known.
        position: position of the fault, in bytes from the start of the file (in lines, from 1, for text files), or None.
        expected: what the format requires.
        found: what the bytes contain instead.
    """

    unit = "byte"

    def __init__(
        self,
        what: str,
        *,
        file: str | None = None,
        position: int | None = None,
        expected: object = None,
        found: object = None,
        unit: str = "byte",
    ) -> None:
        super().__init__(what)
        self.what = what
        self.file = file
        self.position = position
        self.expected = expected
        self.found = found
        self.unit = unit

    def in_file(self, file: str | None) -> Self:
        """Names the file, unless an inner caller already did or it is not known. Returns the error itself, to be raised again."""
        if self.file is None:
            self.file = file
        return self

    def shifted_by(self, position: int) -> Self:
        """Moves the position, for a structure that was parsed from a slice beginning at ``position``."""
        self.position = position + (self.position or 0)
        return self

    @property
    def message(self) -> str:
        """The message without the file name, for a caller that names the file itself."""
        return self._text("" if self.position is None else f"{self.unit} {self.position}: ")

    def __str__(self) -> str:
        place = self.file or "input"
        return self._text(f"{place}: " if self.position is None else f"{place}, {self.unit} {self.position}: ")

    def _text(self, place: str) -> str:
        text = f"{place}{self.what}"
        if self.expected is not None:
            text += f": expected {self.expected}"
        if self.found is not None:
            text += f", found {self.found}"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries; the default would pass `what` alone.
        state = {
            "file": self.file,
            "position": self.position,
            "expected": _plain(self.expected),
            "found": _plain(self.found),
        }
        return (_rebuild, (type(self), self.what, state, self.unit))


def _plain(value: object) -> object:
    if value is None or isinstance(value, int | str):
        return value
    return str(value)


def _rebuild(kind: type[FormatError], what: str, state: dict[str, object], unit: str) -> FormatError:
    return kind(what, unit=unit, **state)  # type: ignore[arg-type]


class TruncatedError(FormatError):
    """The bytes end before the value does."""


class BadMagicError(FormatError):
    """A record batch of a magic that Kafka never wrote."""


class BadChecksumError(FormatError):
    """Stored and computed checksum differ."""


class BadLengthError(FormatError):
    """A length or count that contradicts the format."""


class BadVersionError(FormatError):
    """A version that this library does not know."""


class BadValueError(FormatError):
    """A well-formed field with an impossible value."""


class LimitExceededError(FormatError):
    """The value is larger than a limit of ``formats.limits``."""
