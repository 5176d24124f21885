"""Requests that mostly wait, several at once: one bounded pool of threads for everything in this process.

A function that runs in a thread of the pool may itself map more items. The caller handles an item itself if it is due and no thread
has begun it, so that threads never wait for each other in a circle.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar

from snaprebuild.storage.threads import ThreadPool

__all__ = ["THREADS", "map_in_threads"]

THREADS = 16
"""Threads of this process."""

AHEAD_MAX = 2 * THREADS
"""Items that are begun at most before the first of them is taken."""

AHEAD_BYTES_MAX = 64 << 20
"""Bytes of all items that are begun before they are due, as far as sizes are known. Items that are due do not count."""

Item = TypeVar("Item")
MapResult = TypeVar("MapResult")


class _Pool:
    """The threads, and what they have begun ahead."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: ThreadPool | None = None
        self._ahead_bytes = 0

    def submit(self, function: Callable[[Item], MapResult], item: Item, size_bytes: int) -> Future[MapResult] | None:
        """Hands it to a thread; None if too much is begun already."""
        with self._lock:
            if self._ahead_bytes and self._ahead_bytes + size_bytes > AHEAD_BYTES_MAX:
                return None
            if self._threads is None:
                self._threads = ThreadPool(THREADS, thread_name_prefix="thread-pool")
            self._ahead_bytes += size_bytes
            return self._threads.submit(function, item)

    def leave(self, size_bytes: int) -> None:
        with self._lock:
            self._ahead_bytes -= size_bytes


_pool = _Pool()


def map_in_threads(
    function: Callable[[Item], MapResult], items: Sequence[Item], size_of: Callable[[Item], int] = lambda _: 0
) -> Iterator[MapResult]:
    """What the function returns for each item, in their order.

    Args:
        function: called in several threads. Its exceptions are raised where their item is due; items that are not begun by then
            never are.
        items: nothing is done before the first result is requested.
        size_of: bytes that the result of an item holds.
    """
    begun: deque[tuple[Future[MapResult], int]] = deque()
    following = 0
    try:
        for due, item in enumerate(items):
            following = max(following, due)
            while following < min(len(items), due + AHEAD_MAX):
                size = size_of(items[following])
                future = _pool.submit(function, items[following], size)
                if future is None:
                    break
                begun.append((future, size))
                following += 1
            if not begun:
                yield function(item)
                continue
            future, size = begun.popleft()
            _pool.leave(size)
            yield function(item) if future.cancel() else future.result()
    finally:
        for future, size in begun:
            future.cancel()
            _pool.leave(size)
