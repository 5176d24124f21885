"""Threads, and one bounded pool of them in this process: for requests that mostly wait, several at once.

A limit of the system may refuse a thread: that is a lack of memory, not an unforeseen error. Linux counts threads and processes of a user
together (RLIMIT_NPROC, ``ulimit -u``, pids.max of a container). It refuses a new one with EAGAIN, or ENOMEM. Python raises a plain
RuntimeError for a thread, and OSError for a process.

A function that runs in a thread of the pool may itself map more items. The caller handles an item itself if it is due and no thread
has begun it, so that threads never wait for each other in a circle.
"""

from __future__ import annotations

import contextvars
import errno
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

from snaprebuild.errors import OutOfMemoryError
from snaprebuild.storage.store import ReadStore

__all__ = [
    "NO_ROOM_ERRNOS",
    "THREADS",
    "ParallelMap",
    "ThreadPool",
    "local_map",
    "map_in_threads",
    "no_more_threads",
    "serial_map",
    "start_thread",
]

P = ParamSpec("P")
T = TypeVar("T")

NO_ROOM_ERRNOS = (errno.EAGAIN, errno.ENOMEM)
"""Error numbers of a fork or clone for which a limit leaves no room."""


def no_more_threads() -> OutOfMemoryError:
    """The error of a thread or process that cannot be started."""
    return OutOfMemoryError(
        "out of memory: no more threads or processes can be started (see ulimit -u, or pids.max of the container)"
    )


def start_thread(thread: threading.Thread) -> None:
    """Starts a thread.

    Raises:
        OutOfMemoryError: the system allows no more.
    """
    try:
        thread.start()
    except RuntimeError as error:
        raise no_more_threads() from error


class ThreadPool(ThreadPoolExecutor):
    """Threads that are started as they are needed.

    A call has the context of the thread that hands it over, and with it the limits of that run.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Hands a call to a thread.

        Raises:
            OutOfMemoryError: the system allows no more threads.
        """
        try:
            return super().submit(partial(contextvars.copy_context().run, fn, *args, **kwargs))
        except RuntimeError as error:
            raise no_more_threads() from error


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
    """The results of the function for each item, in their order.

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


class ParallelMap(Protocol):
    """Calls a function of a module with each item, and returns the results in the order of the items."""

    def __call__(self, function: Callable[[Item], MapResult], items: Sequence[Item]) -> Iterable[MapResult]:
        """Raises what the function raises."""


def serial_map(function: Callable[[Item], MapResult], items: Sequence[Item]) -> Iterable[MapResult]:
    """Calls them one after the other."""
    return map(function, items)


def local_map(stores: Iterable[ReadStore]) -> ParallelMap:
    """The map of this process: several at once if one of the stores mostly waits."""
    return serial_map if all(store.is_local for store in stores) else map_in_threads
