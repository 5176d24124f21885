"""An object read as if it were an open file: ranges of some MiB, several of them on their way ahead of a reader that goes forward.

A reader that asks for little, or jumps, gets a small range and nothing ahead of it. Memory is bounded by ``HELD_MAX`` ranges, whatever
the size of the object. A reader that goes forward through a store whose connections are quick gets a stream instead of ranges.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

from snaprebuild.errors import DeadlinePassedError
from snaprebuild.storage.s3.object_stream import PIECE_BYTES, STREAM_BYTES, Attempted, Body, ObjectStream, Pace
from snaprebuild.storage.store import FileIdentity

__all__ = ["RANGE_BYTES", "SMALL_RANGE_BYTES", "ObjectBytes"]

RANGE_BYTES = 8 << 20
"""One request. Below some MiB the time to its first byte counts more than its bytes."""

SMALL_RANGE_BYTES = 256 << 10
"""One request of a reader that looks something up."""

AHEAD = 4
"""Ranges on their way at once: as fast as 8 or 16 on loopback, and of one connection's speed each in a cloud."""

HELD_MAX = AHEAD + 1
"""Ranges held, the one that is read among them."""

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
    if count <= SMALL_RANGE_BYTES:
        return memoryview(bytearray(count))
    with contextlib.suppress(IndexError):
        kept = _spare.pop()
        if len(kept) == RANGE_BYTES:
            return kept[:count]
    return memoryview(bytearray(RANGE_BYTES))[:count]


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
        """Takes what it needs; nothing is asked of the store yet.

        Args:
            location: for messages.
            identity: of the object, to which ``body`` holds it.
            body: asks for a range.
            attempted: does it again where that helps.
            pace: of connections to this store; what comes is noted there.
            deadline: nothing is read once ``time.monotonic()`` is past it; None for none.
            is_limited: bytes that are asked for count, so that a stream that breaks may cost no more of them than a range.
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
        """Whether a stream is to give what stands at a position: to a reader of much that has never gone back, behind what is held."""
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
        most = self._ranges_at_once(size)
        while reached < target and (reached <= position or len(self._ranges) < most):
            until = min(reached + size, self.size_bytes if reached >= self._stop else self._stop)
            buffer = _buffer(until - reached)
            self._ranges.append(_Range(reached, until, buffer, _fetchers().submit(self._fill, reached, buffer)))
            reached = until

    def _ranges_at_once(self, size: int) -> int:
        if size != RANGE_BYTES or self._went_back:
            return HELD_MAX
        # The first range of all comes alone, and tells how quick a connection is; a stream begins behind what is held.
        return 0 if self._pace.is_quick else HELD_MAX if self._pace.is_known else 1

    def _cancel(self) -> None:
        for each in self._ranges:
            if each.filled.cancel() or each.filled.done():  # one that is being filled is left to its thread
                _keep(each.buffer)
        self._ranges.clear()

    def check_unchanged(self) -> None:
        """See ``OpenBytes``: each range was asked for under the condition that the ETag is the same."""

    def close(self) -> None:
        """Gives up what is on its way."""
        self._closed.set()
        self._stream.close()
        self._cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
