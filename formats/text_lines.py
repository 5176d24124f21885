"""Code that Kafka's text files share: lines as Java reads them, and numbers as Java parses them.

Source: ``java.io.BufferedReader.readLine``, ``Integer.parseInt``, ``Long.parseLong``.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import chain

from formats import limits
from formats.errors import BadValueError, LimitExceededError

__all__ = ["INT32", "INT64", "java_integer", "java_lines", "shown", "shown_json", "shown_number"]

INT32 = 32
INT64 = 64

PIECE_BYTES = 1 << 16

_LINE_END = re.compile(rb"\r\n?|\n")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DIGITS_MAX = 64
"""Longer numbers are out of range unless they begin with zeros, which do not occur; int() is quadratic in the digits."""


def java_lines(data: bytes | memoryview, what: str, *, file: str | None, encoding: str = "utf-8") -> Iterator[str]:
    r"""Splits a text file at ``\n``, ``\r`` and ``\r\n``; a terminator at the end begins no further line.

    One line is decoded and held at a time. A list of short lines would take many times the size of the file, and one character
    beyond U+FFFF makes every character of its text take four bytes.

    Args:
        data: the whole file.
        what: name of the file's kind, for messages.
        file: name of the file, for messages.
        encoding: ``utf-8``, or ``latin-1`` for Java properties.

    Raises:
        LimitExceededError: more bytes or lines than ``formats.limits`` allows, or a longer line.
        BadValueError: the bytes are no text in that encoding.
    """
    if len(data) > limits.TEXT_FILE_BYTES_MAX:
        raise LimitExceededError(what, file=file, expected=f"at most {limits.TEXT_FILE_BYTES_MAX} bytes", found=len(data))
    raw = bytes(data)
    _check_text(raw, what, file, encoding)
    count = raw.count(b"\n") + raw.count(b"\r") - raw.count(b"\r\n") + (raw[-1:] not in (b"", b"\n", b"\r"))
    if count > limits.TEXT_LINES_MAX:
        raise LimitExceededError(what, file=file, expected=f"at most {limits.TEXT_LINES_MAX} lines", found=count)
    return _lines(raw, what, file, encoding)


def _check_text(raw: bytes, what: str, file: str | None, encoding: str) -> None:
    """Decodes piece by piece and keeps none of them."""
    if encoding == "latin-1" or raw.isascii():
        return  # each byte is a character; and a decoder is a module, which a process without privileges may not be able to load
    decoder = codecs.getincrementaldecoder(encoding)()
    for at in range(0, len(raw), PIECE_BYTES):
        begun_bytes = len(decoder.getstate()[0])
        try:
            decoder.decode(raw[at : at + PIECE_BYTES], final=at + PIECE_BYTES >= len(raw))
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, at - begun_bytes + error.start) + 1
            raise BadValueError(
                what, file=file, position=line, expected=f"{encoding} text", found=error.reason, unit="line"
            ) from None


def _lines(raw: bytes, what: str, file: str | None, encoding: str) -> Iterator[str]:
    at = 0
    for number, ended in enumerate(chain(_LINE_END.finditer(raw), (None,)), start=1):
        end = len(raw) if ended is None else ended.start()
        if end - at > limits.TEXT_LINE_BYTES_MAX:
            expected = f"a line of at most {limits.TEXT_LINE_BYTES_MAX} bytes"
            raise LimitExceededError(what, file=file, position=number, expected=expected, found=end - at, unit="line")
        if ended is not None or at < end:
            yield raw[at:end].decode(encoding)
        at = end if ended is None else ended.end()


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


_NUMBERS = re.compile(r"[0-9+\-. ]{1,80}")


def shown_number(text: str) -> str:
    """Text where a broker writes numbers or ids, for an error message: quoted if it consists of numbers, else only its length.

    A name in a log directory may lead to any other file, whose text the reader of the message may not see.
    """
    return repr(text) if _NUMBERS.fullmatch(text) else f"a text of {len(text)} characters"


def shown_json(value: object) -> str:
    """A value of a JSON document for an error message: lists and objects may be nested deeper than ``repr`` goes."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a JSON object"
    return shown(value) if isinstance(value, str) else repr(value)[:80]
