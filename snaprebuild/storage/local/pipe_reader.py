"""Reads what a function writes to a path, while it writes: the function gets one end of a pipe, and is never more than its size ahead."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

__all__ = ["piped"]


@contextlib.contextmanager
def piped(write: Callable[[str], None]) -> Iterator[Callable[[int], bytes]]:
    """Runs a function in a thread. It ends early (with EPIPE) where the block ends before everything was read.

    Args:
        write: opens the path that it is given, writes, and closes it.

    Yields:
        Reads so many bytes or fewer, none at the end. Raises what the function raised, where its bytes end.
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

    thread = threading.Thread(target=run, name="piped", daemon=True)
    thread.start()
    try:
        yield read
    finally:
        os.close(read_fd)
        thread.join()
