"""Record locks of the kernel, in the form that belongs to an open file rather than to a process.

Java's ``FileChannel.tryLock`` takes a POSIX record lock (``F_SETLK``) on the whole file. Such a lock belongs to the process. It is
dropped as soon as the process closes ANY descriptor of the file, and never conflicts with another one of the same process.

The open-file-description form (``F_OFD_SETLK``, Linux 3.15) conflicts with POSIX locks in both directions, so Java sees it and it
sees Java's. It has neither flaw: a file can be read back while it is locked, and two threads keep each other out. ``flock`` is a
different kind of lock, which neither of the two sees.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

__all__ = ["HOLDER_NOT_VISIBLE", "holder", "release", "take"]

HOLDER_NOT_VISIBLE = -1
"""The lock is held, and the kernel does not show its holder: another container, another host, or an open-file-description lock."""

_FLOCK = struct.Struct("@hhqqi0q")  # struct flock of 64-bit Linux: type, whence, start, length (0 = to the end), pid; padded


def _whole_file(lock_type: int) -> bytes:
    return _FLOCK.pack(lock_type, os.SEEK_SET, 0, 0, 0)


def take(fd: int) -> None:
    """Takes the exclusive lock of the whole file, at once or not at all.

    Args:
        fd: descriptor that is open for writing. The lock ends with `release`, or when its last duplicate is closed.

    Raises:
        BlockingIOError: another process holds a lock.
        OSError: the file system offers no locks.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_WRLCK))
    except PermissionError as error:  # POSIX allows EACCES as well as EAGAIN for "held"
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error


def release(fd: int) -> None:
    """Releases the lock at once, also where a forked process still shares the descriptor.

    Raises:
        OSError: the file system does not answer.
    """
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_UNLCK))


def holder(fd: int) -> int | None:
    """The process that keeps us from taking the lock.

    Args:
        fd: any open descriptor; reading is enough.

    Returns:
        None when it is free (or taken through this very descriptor), the process id of a visible holder,
        `HOLDER_NOT_VISIBLE` otherwise.

    Raises:
        OSError: the file system offers no locks.
    """
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _whole_file(fcntl.F_WRLCK))
    lock_type, _, _, _, process_id = _FLOCK.unpack(answer)
    if lock_type == fcntl.F_UNLCK:
        return None
    return process_id if process_id > 0 else HOLDER_NOT_VISIBLE
