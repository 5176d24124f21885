"""An object read like an open file: ranges of some MiB, several of them requested ahead of a reader that goes forward.

A reader that reads little, or jumps, gets a small range and nothing ahead of it. Memory is bounded by ``HELD_MAX`` ranges,
whatever the size of the object.

A cloud gives each connection some ten MB/s, so several are needed. A fast store could be read over one connection with less work.
That was measured on loopback: a rebuild of 512 MiB in batches of 16 KiB and of 1 MiB, each the minimum of four runs in turn.
Ranges took 1.5 to 1.6 s of processor time, one stream 1.6 to 1.8 s. Without checksums ranges took 1.8 s, a stream 1.3 to 1.4 s.
So there is no second reader.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Self

import msgspec

from snaprebuild.errors import DeadlinePassedError
from snaprebuild.storage.store import FileIdentity
from snaprebuild.storage.thread_pool import ThreadPool

__all__ = [
    "PIECE_BYTES",
    "RANGE_BYTES",
    "SMALL_RANGE_BYTES",
    "Attempted",
    "ObjectBytes",
    "OpenRange",
    "ReadInto",
]

PIECE_BYTES = 1 << 20
"""Bytes of a body that one call reads."""

ReadInto = Callable[[memoryview], int]
"""Fills memory with the next bytes, as far as they have arrived: at least one, or it raises."""

OpenRange = Callable[[int, int], AbstractContextManager[ReadInto]]
"""Requests a number of bytes of an object from a position on."""

Attempted = Callable[[Callable[[], None], str], None]
"""Calls a function until it succeeds; if it never does, raises an error that says what cannot be done."""

RANGE_BYTES = 8 << 20
"""One request. Below some MiB the time to its first byte is longer than the time for its bytes."""

SMALL_RANGE_BYTES = 256 << 10
"""One request of a reader that looks something up."""

AHEAD = 4
"""Ranges that are requested at once: as fast as 8 or 16 on loopback, and each with one connection's speed in a cloud."""

HELD_MAX = AHEAD + 1
"""Ranges in memory, including the one that is read."""


class _Fetchers:
    """The threads of this process that fetch ranges, whatever the number of open objects, and spare buffers for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: ThreadPool | None = None
        self._spare: deque[memoryview] = deque(maxlen=HELD_MAX)

    def threads(self) -> ThreadPool:
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPool(AHEAD, thread_name_prefix="range")
            return self._threads

    def buffer(self, count: int) -> memoryview:
        """A buffer for ``count`` bytes of a range: fresh memory costs more than filling it."""
        if count <= SMALL_RANGE_BYTES:
            return memoryview(bytearray(count))
        with contextlib.suppress(IndexError):
            spare = self._spare.pop()
            if len(spare) == RANGE_BYTES:
                return spare[:count]
        return memoryview(bytearray(RANGE_BYTES))[:count]

    def keep(self, buffer: memoryview) -> None:
        """Keeps a buffer for later use; it must not be read or written any more."""
        if isinstance(buffer.obj, bytearray) and len(buffer.obj) == RANGE_BYTES:
            self._spare.append(memoryview(buffer.obj))


_fetchers = _Fetchers()


class _Range(msgspec.Struct, frozen=True):
    start: int
    end: int
    buffer: memoryview
    filled: Future[None]


class ObjectBytes:
    """The bytes of one object; see ``store.OpenBytes``."""

    def __init__(
        self,
        location: str,
        identity: FileIdentity,
        open_range: OpenRange,
        attempted: Attempted,
        deadline: float | None,
    ) -> None:
        """Sends nothing to the store yet.

        Args:
            location: for messages.
            identity: of the object; ``open_range`` enforces it.
            open_range: requests a range.
            attempted: repeats a request if that helps.
            deadline: nothing is read once ``time.monotonic()`` is past it; None for none.
        """
        self._location = location
        self._identity = identity
        self._open_range = open_range
        self._attempted = attempted
        self._deadline = deadline
        self._ranges: deque[_Range] = deque()
        self._stop = identity.size_bytes
        self._closed = threading.Event()

    @property
    def name(self) -> str:
        """Location of the object, for messages."""
        return self._location

    @property
    def identity(self) -> FileIdentity:
        """The identity of the object in the listing."""
        return self._identity

    @property
    def size_bytes(self) -> int:
        """Size of the object."""
        return self._identity.size_bytes

    def will_stop_at(self, position_bytes: int) -> None:
        """Limits how far ranges are requested ahead (``OpenBytes.will_stop_at``)."""
        self._stop = min(position_bytes, self.size_bytes)

    def read_into(self, position_bytes: int, buffer: memoryview) -> int:
        """Fills ``buffer`` from ``position_bytes``; returns the count of bytes, less than requested only at the end.

        Raises:
            ReadFailedError: the store fails.
            RefusedError: the object has changed, a limit is used up, or the deadline has passed.
        """
        end = min(position_bytes + len(buffer), self.size_bytes)
        size = RANGE_BYTES if len(buffer) > SMALL_RANGE_BYTES else SMALL_RANGE_BYTES
        self._let_go(position_bytes)
        position = position_bytes
        while position < end:
            if self._deadline is not None and time.monotonic() > self._deadline:
                raise DeadlinePassedError("the deadline has passed", path=self._location)
            self._ask(position, end, size)
            current = next(each for each in self._ranges if each.start <= position < each.end)
            current.filled.result()
            count = min(current.end, end) - position
            start = position - current.start
            buffer[position - position_bytes : position - position_bytes + count] = current.buffer[start : start + count]
            position += count
        return max(end - position_bytes, 0)

    def _fill(self, start: int, buffer: memoryview) -> None:
        """In a thread: one range, over a connection of its own."""
        done = 0

        def get() -> None:
            nonlocal done
            with self._open_range(start + done, len(buffer) - done) as read_into:
                while done < len(buffer) and not self._closed.is_set():
                    done += read_into(buffer[done : done + PIECE_BYTES])

        self._attempted(get, f"cannot be read at bytes {start} to {start + len(buffer) - 1}")

    def _let_go(self, position: int) -> None:
        """Drops the ranges before the position, and all of them if the reader jumped."""
        if self._ranges and not self._ranges[0].start <= position <= self._ranges[-1].end:
            self._cancel()
        while self._ranges and self._ranges[0].end <= position:
            self._let_go_of_first()

    def _let_go_of_first(self) -> None:
        """Keeps its buffer for later use."""
        first = self._ranges.popleft()
        if first.filled.done():
            _fetchers.keep(first.buffer)

    def _ask(self, position: int, end: int, size: int) -> None:
        """Makes sure that the range at ``position`` is requested, and those ahead of it if the reader goes through the object."""
        while self._ranges and self._ranges[0].end <= position and len(self._ranges) >= HELD_MAX:
            self._let_go_of_first()
        reached = self._ranges[-1].end if self._ranges else position
        target = max(self._stop, end) if size == RANGE_BYTES else end
        while reached < target and (reached <= position or len(self._ranges) < HELD_MAX):
            until = min(reached + size, self.size_bytes if reached >= self._stop else self._stop)
            buffer = _fetchers.buffer(until - reached)
            self._ranges.append(_Range(reached, until, buffer, _fetchers.threads().submit(self._fill, reached, buffer)))
            reached = until

    def _cancel(self) -> None:
        for each in self._ranges:
            if each.filled.cancel() or each.filled.done():  # a range that is being filled is left to its thread
                _fetchers.keep(each.buffer)
        self._ranges.clear()

    def check_unchanged(self) -> None:
        """Nothing to check at the end: each range was requested under the condition that the ETag is the same."""

    def close(self) -> None:
        """Cancels what was requested."""
        self._closed.set()
        self._cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
