"""The bytes of one object in their order, over one connection, straight into the reader's own memory.

Where one connection is quick, this takes half the work of ranges that are fetched side by side: fewer requests, no second copy, and no
threads that wait for each other; the system keeps some MiB of what comes while its reader is busy. Where it is slow (a cloud gives each
connection some ten MB/s) several are needed. So the pace of connections is measured, and decides.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

__all__ = ["STREAM_BYTES", "Attempted", "Body", "ObjectStream", "Pace", "ReadInto"]

STREAM_BYTES = 128 << 20
"""Of one request. What breaks off is asked for again from where it broke."""

PIECE_BYTES = 1 << 20
"""Read of a body at once."""

QUICK_BYTES_PER_SECOND = 150 << 20
"""Of one connection: far more than a cloud gives to one."""

SKIPPED_BYTES_MAX = 1 << 20
"""A reader that passes over so much is given what lies behind it by the same answer."""

ReadInto = Callable[[memoryview], int]
"""Fills memory with what comes next, as far as it is there: at least a byte, or it raises."""

Body = Callable[[int, int], AbstractContextManager[ReadInto]]
"""Asks for so many bytes of an object from a position on."""

Attempted = Callable[[Callable[[], None], str], None]
"""Calls a function until it succeeds, and tells what cannot be done where it never does."""


class Pace:
    """What one connection to a store gives in a second, as far as is known. For any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rate = 0.0

    def note(self, count: int, seconds: float) -> None:
        """So many bytes came over one connection in this time; the last times count most, and little counts nothing: it mostly waits."""
        if count < PIECE_BYTES:
            return
        rate = count / max(seconds, 1e-6)
        with self._lock:
            self._rate = rate if not self._rate else (self._rate + rate) / 2

    @property
    def is_known(self) -> bool:
        """Whether anything was read so far."""
        return self._rate > 0

    @property
    def is_quick(self) -> bool:
        """Whether one connection does."""
        return self._rate >= QUICK_BYTES_PER_SECOND


class ObjectStream:
    """An object read forward, for one reader at a time."""

    def __init__(self, body: Body, attempted: Attempted, pace: Pace, request_bytes: int = STREAM_BYTES) -> None:
        """Takes what it needs; nothing is asked of the store yet, and then so many bytes at a time."""
        self._body = body
        self._request_bytes = request_bytes
        self._attempted = attempted
        self._pace = pace
        self._open = ExitStack()
        self._read: ReadInto | None = None
        self._position = self._end = 0

    @property
    def position_bytes(self) -> int | None:
        """Where the reader is; None before it begins."""
        return None if self._read is None else self._position

    def read_into(self, position: int, buffer: memoryview, stop: int) -> None:
        """Fills the buffer.

        Args:
            position: of the first byte; anywhere, but only one at which the last call ended, or little behind it, costs no request.
            buffer: to fill.
            stop: nothing is asked for behind it, but for what the buffer takes.

        Raises:
            SnaprebuildError: whatever the store fails with.
        """
        done = 0

        def get() -> None:
            nonlocal done
            try:
                while done < len(buffer):
                    done += self._some(position + done, buffer[done:], stop)
            except BaseException:
                self.close()
                raise

        started = time.perf_counter()
        self._attempted(get, f"cannot be read at bytes {position} to {position + len(buffer) - 1}")
        self._pace.note(len(buffer), time.perf_counter() - started)

    def _some(self, position: int, buffer: memoryview, stop: int) -> int:
        if self._read is None or not 0 <= position - self._position <= SKIPPED_BYTES_MAX or position >= self._end:
            self.close()
            self._end = position + min(self._request_bytes, max(len(buffer), stop - position))
            self._read = self._open.enter_context(self._body(position, self._end - position))
            self._position = position
        while self._position < position:
            self._position += self._read(memoryview(bytearray(position - self._position)))
        count = self._read(buffer[: min(self._end - position, PIECE_BYTES)])
        self._position += count
        return count

    def close(self) -> None:
        """Gives up what is on its way. It may be read on, by a new request."""
        self._read = None
        self._open.close()
