"""Reads what a function writes to a path, while it writes: the path is one end of a pipe, so its buffer bounds what is in memory."""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
from collections.abc import Callable, Iterator

from snaprebuild.storage.thread_pool import start_thread

__all__ = ["piped"]


@contextlib.contextmanager
def piped(write: Callable[[str], None]) -> Iterator[Callable[[int], bytes]]:
    """Runs a function in a thread. It ends early (with EPIPE) if the block ends before everything was read.

    Args:
        write: opens the path that it gets, writes, and closes it.

    Yields:
        A function that takes a number of bytes and returns at most that many, none at the end. After them it raises what ``write``
        raised.
    """
    read_fd, write_fd = os.pipe()
    failures: list[Exception] = []

    def run() -> None:
        try:
            write(f"/proc/self/fd/{write_fd}")
        except Exception as error:  # raised again by the reader
            failures.append(error)
        finally:
            os.close(write_fd)

    def read(count: int) -> bytes:
        data = os.read(read_fd, count)
        if not data and failures:
            raise failures[0]
        return data

    # What it reads has the limits of this thread.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="piped", daemon=True)
    try:
        start_thread(thread)
    except BaseException:
        os.close(write_fd)
        os.close(read_fd)
        raise
    try:
        yield read
    finally:
        os.close(read_fd)
        thread.join()
