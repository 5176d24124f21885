"""Throttles reads: one budget of bytes a second for all processes and disks of a run.

Each read reserves its time before it begins: it may begin when all earlier reads would be complete at the rate. So there is no
counter to refill, a waiting process holds no lock, and reads of several processes take turns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, MutableSequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

__all__ = ["ReadRate", "SharedRate"]

SharedRate = Any
"""Shared memory: when the next read may begin."""

UNUSED_SECONDS_MAX = 0.1
"""The most time without reads that may be made up for at once."""

PIECES_PER_SECOND = 64
"""Reads are cut in pieces, so that a broker that needs the same disk waits for one of them at most."""

PIECE_BYTES = range(64 << 10, (1 << 20) + 1)

LOCK_SECONDS_MAX = 1.0
"""A worker that was killed may hold the lock for ever: after this time a process continues without it."""

LOCK_LOOK_SECONDS = 0.001
"""It is held for some microseconds."""


class ReadRate:
    """The budget."""

    def __init__(
        self,
        bytes_per_second: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Begins with nothing read.

        Args:
            bytes_per_second: for all processes that share it.
            clock: seconds, the same in all processes of this machine.
            sleep: takes seconds.
        """
        self.bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._next: MutableSequence[float] = [0.0]
        self._lock: Any = threading.Lock()
        self._shared: SharedRate = None

    @property
    def piece_bytes(self) -> int:
        """The most bytes that should be read at once."""
        return min(max(self.bytes_per_second // PIECES_PER_SECOND, PIECE_BYTES[0]), PIECE_BYTES[-1])

    def take(self, count: int) -> None:
        """Called before ``count`` bytes are read: returns when the rate allows it."""
        is_locked = self._is_locked()
        try:
            now = self._clock()
            begin = max(self._next[0], now - UNUSED_SECONDS_MAX)
            self._next[0] = begin + count / self.bytes_per_second
        finally:
            if is_locked:
                self._lock.release()
        if begin > now:
            self._sleep(begin - now)

    def _is_locked(self) -> bool:
        """Takes the lock, if it is available within ``LOCK_SECONDS_MAX``."""
        # The timed wait of a shared lock uses the wall clock: if that is set back, the wait is longer.
        last = time.monotonic() + LOCK_SECONDS_MAX
        while not self._lock.acquire(False):
            if time.monotonic() > last:
                return False
            time.sleep(LOCK_LOOK_SECONDS)
        return True

    def share(self, context: BaseContext) -> SharedRate:
        """Moves the budget to shared memory."""
        if self._shared is None:
            self.adopt(context.Array("d", list(self._next)))
        return self._shared

    def adopt(self, shared: SharedRate) -> None:
        """Uses the budget of another process from now on."""
        self._shared = self._next = shared
        self._lock = shared.get_lock()
