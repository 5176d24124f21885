"""A directory of our own, held by one run at a time: the lock is on the directory itself, no file is made, and nothing stays behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from snaprebuild.errors import LockUnknownError, RefusedError, WriteFailedError
from snaprebuild.storage.local.durable_directory import make_directories

__all__ = ["hold_directory"]


@contextlib.contextmanager
def hold_directory(directory: str, doing: str) -> Iterator[None]:
    """Holds a directory, which is made where it is missing. The kernel releases it when the process ends, however it does.

    ``flock`` is enough: nobody but runs of this machine asks, and a directory cannot be opened for writing, as record locks want.

    Args:
        directory: path.
        doing: what the other run does that holds it, for the message.

    Raises:
        RefusedError: another run holds it.
        LockUnknownError: the file system offers no locks.
        WriteFailedError: it cannot be made or opened.
    """
    try:
        make_directories(directory)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise WriteFailedError(f"cannot be opened: {error.strerror}", path=directory, errno=error.errno) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if isinstance(error, BlockingIOError):
            raise RefusedError(f"another run {doing}: wait until it is done, or name another directory", path=directory) from error
        raise LockUnknownError(f"the file system offers no locks: {error.strerror}", path=directory) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # said aloud, because a forked process may still share the descriptor
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)
