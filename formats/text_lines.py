"""What Kafka's text files share: lines as Java reads them, and numbers as Java parses them.

Source: ``java.io.BufferedReader.readLine``, ``Integer.parseInt``, ``Long.parseLong``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from formats import limits
from formats.errors import BadValueError, LimitExceededError

__all__ = ["INT32", "INT64", "java_integer", "java_lines", "shown"]

INT32 = 32
INT64 = 64

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DIGITS_MAX = 64
"""Longer numbers are out of range unless they begin with zeros, which nobody writes; int() is quadratic in the digits."""


def java_lines(data: bytes | memoryview, what: str, *, file: str | None = None, encoding: str = "utf-8") -> Iterator[str]:
    r"""Splits a text file at ``\n``, ``\r`` and ``\r\n``; a terminator at the end begins no further line.

    One line is held at a time: a file of short lines would take many times its size as a list.

    Args:
        data: the whole file.
        what: name of the file's kind, for messages.
        file: name of the file, for messages.
        encoding: ``utf-8``, or ``latin-1`` for Java properties.

    Raises:
        LimitExceededError: more bytes or lines than ``formats.limits`` allows.
        BadValueError: the bytes are no text in that encoding.
    """
    if len(data) > limits.TEXT_FILE_BYTES_MAX:
        raise LimitExceededError(what, file=file, expected=f"at most {limits.TEXT_FILE_BYTES_MAX} bytes", found=len(data))
    raw = bytes(data)
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise BadValueError(what, file=file, position=line, expected=f"{encoding} text", found=error.reason, unit="line") from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    count = text.count("\n") + (text[-1:] not in ("", "\n"))
    if count > limits.TEXT_LINES_MAX:
        raise LimitExceededError(what, file=file, expected=f"at most {limits.TEXT_LINES_MAX} lines", found=count)
    return _lines(text)


def _lines(text: str) -> Iterator[str]:
    at = 0
    while (end := text.find("\n", at)) >= 0:
        yield text[at:end]
        at = end + 1
    if at < len(text):
        yield text[at:]


def java_integer(text: str, bits: int) -> int | None:
    """The number that ``parseInt`` (32 bits) or ``parseLong`` (64 bits) reads; None where they throw."""
    if len(text) > _DIGITS_MAX or _INTEGER.fullmatch(text) is None:
        return None
    value = int(text)
    bound = 1 << bits - 1
    return value if -bound <= value < bound else None


def shown(text: str) -> str:
    """Input text for an error message: quoted, and cut where it is long."""
    return repr(text if len(text) <= 80 else text[:80] + "...")
