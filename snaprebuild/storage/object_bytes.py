"""An object read as if it were an open file: ranges of some MiB, several of them on their way ahead of a reader that goes forward.

A reader that asks for little, or jumps, gets a small range and nothing ahead of it. Memory is bounded by ``HELD_MAX`` ranges, whatever
the size of the object.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

from snaprebuild.errors import DeadlinePassedError
from snaprebuild.storage.store import FileIdentity

__all__ = ["Fetch", "ObjectBytes"]

RANGE_BYTES = 8 << 20
"""One request. Below some MiB the time to its first byte counts more than its bytes."""

SMALL_RANGE_BYTES = 256 << 10
"""One request of a reader that looks something up."""

AHEAD = 4
"""Ranges on their way at once: as fast as 8 or 16 on loopback, and of one connection's speed each in a cloud."""

HELD_MAX = AHEAD + 1
"""Ranges held, the one that is read among them."""

Fetch = Callable[[int, memoryview, threading.Event], None]
"""Fills the buffer from a position of the object on, whole, or raises; gives up when the event is set."""

_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()
_spare: deque[memoryview] = deque(maxlen=HELD_MAX)
"""Of this process, for whatever object is read next."""


def _fetchers() -> ThreadPoolExecutor:
    """The threads of this process that fetch ranges, whatever the count of objects that are open."""
    global _pool  # noqa: PLW0603
    with _pool_lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(AHEAD, thread_name_prefix="range")
        return _pool


def _buffer(count: int) -> memoryview:
    """Memory for so many bytes of a range: fresh memory costs more than to fill it."""
    if count > SMALL_RANGE_BYTES:
        with contextlib.suppress(IndexError):
            return _spare.pop()[:count]
        return memoryview(bytearray(RANGE_BYTES))[:count]
    return memoryview(bytearray(count))


def _keep(buffer: memoryview) -> None:
    """Of which nothing is wanted any more, and into which nobody writes."""
    if isinstance(buffer.obj, bytearray) and len(buffer.obj) == RANGE_BYTES:
        _spare.append(memoryview(buffer.obj))


@dataclass(frozen=True, slots=True)
class _Range:
    start: int
    end: int
    buffer: memoryview
    filled: Future[None]


class ObjectBytes:
    """The bytes of one object; see ``store.OpenBytes``."""

    def __init__(self, location: str, identity: FileIdentity, fetch: Fetch, deadline: float | None) -> None:
        """Takes what it needs; nothing is asked of the store yet.

        Args:
            location: for messages.
            identity: of the object, to which ``fetch`` holds it.
            fetch: fills a range.
            deadline: nothing is read once ``time.monotonic()`` is past it; None for none.
        """
        self._location = location
        self._identity = identity
        self._fetch = fetch
        self._deadline = deadline
        self._ranges: deque[_Range] = deque()
        self._stop = identity.size_bytes
        self._closed = threading.Event()

    @property
    def name(self) -> str:
        """Its location."""
        return self._location

    @property
    def identity(self) -> FileIdentity:
        """What it was when it was listed."""
        return self._identity

    @property
    def size_bytes(self) -> int:
        """Of the object."""
        return self._identity.size_bytes

    def will_stop_at(self, position_bytes: int) -> None:
        """See ``OpenBytes``."""
        self._stop = min(position_bytes, self.size_bytes)

    def read_into(self, position_bytes: int, buffer: memoryview) -> int:
        """Fills ``buffer`` from ``position_bytes``; returns the count of bytes, less than asked for only at the end.

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

    def _let_go(self, position: int) -> None:
        """Of what lies behind the reader, and of everything where it jumped."""
        if self._ranges and not self._ranges[0].start <= position <= self._ranges[-1].end:
            self._cancel()
        while self._ranges and self._ranges[0].end <= position:
            self._let_go_of_first()

    def _let_go_of_first(self) -> None:
        """Its buffer serves again."""
        first = self._ranges.popleft()
        if first.filled.done():
            _keep(first.buffer)

    def _ask(self, position: int, end: int, size: int) -> None:
        """Makes sure that the range at ``position`` is on its way, and those ahead of it where the reader goes through the object."""
        while self._ranges and self._ranges[0].end <= position and len(self._ranges) >= HELD_MAX:
            self._let_go_of_first()
        reached = self._ranges[-1].end if self._ranges else position
        target = max(self._stop, end) if size == RANGE_BYTES else end
        while len(self._ranges) < HELD_MAX and reached < target:
            until = min(reached + size, self.size_bytes if reached >= self._stop else self._stop)
            buffer = _buffer(until - reached)
            self._ranges.append(_Range(reached, until, buffer, _fetchers().submit(self._fetch, reached, buffer, self._closed)))
            reached = until

    def _cancel(self) -> None:
        for each in self._ranges:
            if each.filled.cancel() or each.filled.done():  # one that is being filled is left to its thread
                _keep(each.buffer)
        self._ranges.clear()

    def close(self) -> None:
        """Gives up what is on its way."""
        self._closed.set()
        self._cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
