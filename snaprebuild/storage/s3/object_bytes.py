"""An object read like an open file: ranges of some MiB, several of them requested ahead of a reader that goes forward.

A reader that reads little, or jumps, gets a small range and nothing ahead of it. Memory is bounded by ``HELD_MAX`` ranges,
whatever the size of the object.

If one connection is quick, a reader that goes forward gets a stream instead of ranges: the bytes come over one connection, directly
into the reader's own memory. That takes half the work of parallel ranges: fewer requests, no second copy, no threads that wait for
each other. The system buffers some MiB while the reader is busy.
If one connection is slow (a cloud gives each some ten MB/s), several connections are needed. So the pace of connections is
measured, and decides.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Self

from snaprebuild.errors import DeadlinePassedError
from snaprebuild.storage.store import FileIdentity
from snaprebuild.storage.threads import ThreadPool

__all__ = [
    "PIECE_BYTES",
    "RANGE_BYTES",
    "SMALL_RANGE_BYTES",
    "STREAM_BYTES",
    "Attempted",
    "Body",
    "ObjectBytes",
    "ObjectStream",
    "Pace",
    "ReadInto",
]

STREAM_BYTES = 128 << 20
"""Attempts at one request. An answer that breaks off is requested again from where it broke off."""

PIECE_BYTES = 1 << 20
"""Read of a body at once."""

QUICK_BYTES_PER_SECOND = 150 << 20
"""Bytes per second of one connection: far more than a cloud gives to one."""

SKIPPED_BYTES_MAX = 1 << 20
"""A reader that skips no more than this gets the bytes after it from the same answer."""

ReadInto = Callable[[memoryview], int]
"""Fills memory with the next bytes, as far as they have arrived: at least one, or it raises."""

Body = Callable[[int, int], AbstractContextManager[ReadInto]]
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

_pool: ThreadPool | None = None
_pool_lock = threading.Lock()
_spare: deque[memoryview] = deque(maxlen=HELD_MAX)
"""Buffers of this process, for the object that is read next."""


def _fetchers() -> ThreadPool:
    """The threads of this process that fetch ranges, whatever the number of open objects."""
    global _pool  # noqa: PLW0603
    with _pool_lock:
        if _pool is None:
            _pool = ThreadPool(AHEAD, thread_name_prefix="range")
        return _pool


def _buffer(count: int) -> memoryview:
    """A buffer for ``count`` bytes of a range: fresh memory costs more than filling it."""
    if count <= SMALL_RANGE_BYTES:
        return memoryview(bytearray(count))
    with contextlib.suppress(IndexError):
        kept = _spare.pop()
        if len(kept) == RANGE_BYTES:
            return kept[:count]
    return memoryview(bytearray(RANGE_BYTES))[:count]


def _keep(buffer: memoryview) -> None:
    """Keeps a buffer for later use; it must not be read or written any more."""
    if isinstance(buffer.obj, bytearray) and len(buffer.obj) == RANGE_BYTES:
        _spare.append(memoryview(buffer.obj))


class Pace:
    """Bytes per second of one connection to a store, as far as is known. For any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rate = 0.0

    def note(self, count: int, seconds: float) -> None:
        """Notes ``count`` bytes of one connection in this time. The last times count most; small counts are ignored."""
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
        """Whether one connection is quick."""
        return self._rate >= QUICK_BYTES_PER_SECOND


class ObjectStream:
    """An object read forward, for one reader at a time."""

    def __init__(self, body: Body, attempted: Attempted, pace: Pace, request_bytes: int = STREAM_BYTES) -> None:
        """Sends nothing to the store yet; later it requests ``request_bytes`` at a time."""
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
            position: of the first byte; anywhere, but only the end of the last call, or a position little after it, costs no
                request.
            buffer: to fill.
            stop: nothing is requested after it, except bytes that the buffer takes.

        Raises:
            SnaprebuildError: any failure of the store.
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
        """Cancels what was requested. Reading may continue, with a new request."""
        self._read = None
        self._open.close()


@dataclass(frozen=True, slots=True)
class _Range:
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
        body: Body,
        attempted: Attempted,
        pace: Pace,
        deadline: float | None,
        *,
        is_limited: bool = False,
    ) -> None:
        """Sends nothing to the store yet.

        Args:
            location: for messages.
            identity: of the object; ``body`` enforces it.
            body: requests a range.
            attempted: repeats a request if that helps.
            pace: of connections to this store; arriving bytes are noted there.
            deadline: nothing is read once ``time.monotonic()`` is past it; None for none.
            is_limited: requested bytes count, so that a stream that breaks off may cost no more of them than a range.
        """
        self._location = location
        self._identity = identity
        self._body = body
        self._attempted = attempted
        self._pace = pace
        self._stream = ObjectStream(body, attempted, pace, RANGE_BYTES if is_limited else STREAM_BYTES)
        self._went_back = False
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
        """Its identity in the listing."""
        return self._identity

    @property
    def size_bytes(self) -> int:
        """Size of the object."""
        return self._identity.size_bytes

    def will_stop_at(self, position_bytes: int) -> None:
        """See ``OpenBytes``."""
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
            if self._streams(position, size):
                self._stream.read_into(position, buffer[position - position_bytes : end - position_bytes], max(self._stop, end))
                return end - position_bytes
            self._ask(position, end, size)
            current = next(each for each in self._ranges if each.start <= position < each.end)
            current.filled.result()
            count = min(current.end, end) - position
            start = position - current.start
            buffer[position - position_bytes : position - position_bytes + count] = current.buffer[start : start + count]
            position += count
        return max(end - position_bytes, 0)

    def _streams(self, position: int, size: int) -> bool:
        """Whether a stream should read at a position: for large reads that have never gone back, after the ranges in memory."""
        reached = self._stream.position_bytes
        if size != RANGE_BYTES or not self._pace.is_quick or (self._ranges and position < self._ranges[-1].end):
            return False
        self._went_back |= reached is not None and position < reached
        return not self._went_back

    def _fill(self, start: int, buffer: memoryview) -> None:
        """In a thread: one range, over a connection of its own."""
        done = 0

        def get() -> None:
            nonlocal done
            with self._body(start + done, len(buffer) - done) as read_into:
                while done < len(buffer) and not self._closed.is_set():
                    done += read_into(buffer[done : done + PIECE_BYTES])

        started = time.perf_counter()
        self._attempted(get, f"cannot be read at bytes {start} to {start + len(buffer) - 1}")
        self._pace.note(done, time.perf_counter() - started)

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
            _keep(first.buffer)

    def _ask(self, position: int, end: int, size: int) -> None:
        """Makes sure that the range at ``position`` is requested, and those ahead of it if the reader goes through the object."""
        while self._ranges and self._ranges[0].end <= position and len(self._ranges) >= HELD_MAX:
            self._let_go_of_first()
        reached = self._ranges[-1].end if self._ranges else position
        target = max(self._stop, end) if size == RANGE_BYTES else end
        most = self._ranges_at_once(size)
        while reached < target and (reached <= position or len(self._ranges) < most):
            until = min(reached + size, self.size_bytes if reached >= self._stop else self._stop)
            buffer = _buffer(until - reached)
            self._ranges.append(_Range(reached, until, buffer, _fetchers().submit(self._fill, reached, buffer)))
            reached = until

    def _ranges_at_once(self, size: int) -> int:
        if size != RANGE_BYTES or self._went_back:
            return HELD_MAX
        # The first range is requested alone, and shows how quick a connection is; a stream begins after the ranges in memory.
        return 0 if self._pace.is_quick else HELD_MAX if self._pace.is_known else 1

    def _cancel(self) -> None:
        for each in self._ranges:
            if each.filled.cancel() or each.filled.done():  # a range that is being filled is left to its thread
                _keep(each.buffer)
        self._ranges.clear()

    def check_unchanged(self) -> None:
        """See ``OpenBytes``: each range was requested under the condition that the ETag is the same."""

    def close(self) -> None:
        """Cancels what was requested."""
        self._closed.set()
        self._stream.close()
        self._cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
