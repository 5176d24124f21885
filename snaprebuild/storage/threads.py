"""Threads that a limit of the system may refuse: that is a lack of memory, not an unforeseen error.

Linux counts threads and processes of a user together (RLIMIT_NPROC, ``ulimit -u``, pids.max of a container). It refuses a new one with
EAGAIN, or ENOMEM. Python raises a plain RuntimeError for a thread, and OSError for a process.
"""

from __future__ import annotations

import contextvars
import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from snaprebuild.errors import OutOfMemoryError

__all__ = ["NO_ROOM_ERRNOS", "ThreadPool", "no_more_threads", "start_thread"]

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
