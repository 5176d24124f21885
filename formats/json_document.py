"""JSON documents of any size: one member of the outermost object at a time, and of long lists one element at a time.

A document of this program is an object with small members, except for lists with an element for each partition.
So only one element, and the piece of text that contains it, is in memory, whatever the size of the document.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn

from formats.errors import BadValueError, FormatError, LimitExceededError, TruncatedError
from formats.text_lines import shown

__all__ = ["JsonMembers"]

CHUNK_BYTES = 1 << 20

VALUE_CHARS_MAX = 256 << 20
"""Characters of one member or element: a partition of 2,000,000 segments takes less."""

MEMBERS_MAX = 1_000
"""Members of the outermost object, whose names are kept: no document of this program has 30."""

WORD_CHARS_MAX = 16
"""More than any word or escape of JSON has."""

_BLANKS = " \t\n\r"


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)


class JsonMembers:
    """The members of the outermost object, in their order: an iterator over (name, value), and for streamed lists (name, element).

    Attributes:
        seen: names of the members that were read so far, also of lists without an element.
    """

    def __init__(self, read: Callable[[int], bytes], streamed: Collection[str] = (), *, file: str | None = None) -> None:
        """Reads nothing yet.

        Args:
            read: takes a number of bytes; returns at most that many of the following bytes, none at the end.
            streamed: names of members that are lists; their elements are yielded one by one.
            file: its name, for errors.
        """
        self.seen: set[str] = set()
        self._text = _Text(read, file)
        self._streamed = frozenset(streamed)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Reads on.

        Raises:
            TruncatedError: it ends early.
            BadValueError: it is no JSON, no object, or has a member twice; positions are bytes.
            LimitExceededError: a value is too long.
        """
        text = self._text
        text.take("{")
        if not text.comes("}"):
            while True:
                yield from self._member()
                if text.comes("}"):
                    break
                text.take(",")
        if text.peek():
            raise text.fault(BadValueError, "document", "nothing after the object", text.peek())

    def _member(self) -> Iterator[tuple[str, Any]]:
        text = self._text
        if text.peek() != '"':
            raise text.unexpected("a name")
        name = text.value()
        if name in self.seen:
            raise text.fault(BadValueError, "member", "each name once", shown(name))
        if len(self.seen) == MEMBERS_MAX:
            raise text.fault(LimitExceededError, "document", f"at most {MEMBERS_MAX} members", "more")
        self.seen.add(name)
        text.take(":")
        if name not in self._streamed:
            yield name, text.value()
            return
        text.take("[")
        if text.comes("]"):
            return
        while True:
            yield name, text.value()
            if text.comes("]"):
                return
            text.take(",")


class _Text:
    """A window that moves forward over the text."""

    def __init__(self, read: Callable[[int], bytes], file: str | None) -> None:
        self._read = read
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._window = ""
        self._at = 0
        self._window_at_bytes = 0
        self._is_end = False

    def peek(self) -> str:
        """The next character that is no blank; empty at the end."""
        while True:
            while self._at < len(self._window):
                if self._window[self._at] not in _BLANKS:
                    return self._window[self._at]
                self._at += 1
            if self._is_end:
                return ""
            self._more()

    def comes(self, char: str) -> bool:
        """Whether ``char`` is next; if so, it is consumed."""
        if self.peek() != char:
            return False
        self._at += 1
        return True

    def take(self, char: str) -> None:
        """Consumes ``char``, or raises."""
        if not self.comes(char):
            raise self.unexpected(char)

    def value(self) -> Any:
        """The value that comes next."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._window, self._at)
            except json.JSONDecodeError as error:
                # After a string without an end there may be one, and after half a word its other half.
                is_half = error.msg.startswith("Unterminated") or len(self._window) - error.pos < WORD_CHARS_MAX
                if self._is_end or not is_half:
                    kind = TruncatedError if self._is_end and error.pos >= len(self._window.rstrip()) else BadValueError
                    self._at = error.pos
                    raise self.fault(
                        kind, "document", "JSON", (error.msg[0].lower() + error.msg[1:]).removesuffix(" starting at")
                    ) from None
            except RecursionError:
                raise self.fault(LimitExceededError, "value", "values that are nested less", "too deep a nesting") from None
            except ValueError as error:
                raise self.fault(BadValueError, "value", "a number of JSON", shown(str(error))) from None
            else:
                # A number may continue after the window: with its fraction or exponent, of which this may be half.
                may_go_on = type(value) in (int, float) and len(self._window) - end < WORD_CHARS_MAX
                if self._is_end or not may_go_on:
                    self._at = end
                    return value
            if len(self._window) - self._at > VALUE_CHARS_MAX:
                raise self.fault(LimitExceededError, "value", f"at most {VALUE_CHARS_MAX} characters", "more")
            self._more()

    def unexpected(self, expected: str) -> FormatError:
        """An error: the text continues with something else."""
        found = self.peek()
        if not found:
            return self.fault(TruncatedError, "document", expected, "its end")
        return self.fault(BadValueError, "document", expected, shown(found))

    def fault(self, kind: type[FormatError], what: str, expected: str, found: str) -> FormatError:
        """An error at the current position."""
        position = self._window_at_bytes + len(self._window[: self._at].encode("utf-8", "surrogatepass"))
        return kind(what, file=self._file, position=position, expected=expected, found=found)

    def _more(self) -> None:
        """Drops what was consumed, and reads as much again as is left: so a long value is not parsed from its start too often."""
        text = self._window[: self._at]
        self._window_at_bytes += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        self._window = self._window[self._at :]
        self._at = 0
        data = self._read(max(CHUNK_BYTES, len(self._window)))
        self._is_end = not data
        try:
            self._window += self._decoder.decode(data, final=self._is_end)
        except UnicodeDecodeError as error:
            raise self.fault(BadValueError, "document", "UTF-8", f"a byte of {error.object[error.start]:#04x}") from None
