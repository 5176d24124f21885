"""Opening a file to read it: what stands in a directory is not trusted to be what its name says."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

from formats import limits
from snaprebuild.errors import ReadFailedError, UsageError

__all__ = ["open_named_file", "open_regular_file", "read_small_file"]


def open_regular_file(path: str) -> tuple[int, os.stat_result]:
    """Opens a regular file; a link is not followed and a pipe does not block.

    Returns:
        The descriptor, and what the file was when it was opened.

    Raises:
        ReadFailedError: it is absent (``errno`` is ENOENT), cannot be opened, or is no regular file.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ReadFailedError(f"cannot be opened: {error.strerror}", path=path, errno=error.errno) from error
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise ReadFailedError("is no regular file", path=path)
    return fd, status


def read_small_file(path: str, bytes_max: int = limits.TEXT_FILE_BYTES_MAX) -> bytes | None:
    """The bytes of a small regular file, or None when it is absent.

    Raises:
        ReadFailedError: it cannot be read, is no regular file, or is larger than ``bytes_max``.
    """
    try:
        fd, status = open_regular_file(path)
    except ReadFailedError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    try:
        size = status.st_size
        if size > bytes_max:
            raise ReadFailedError(f"has {size} bytes, more than the limit of {bytes_max}", path=path)
        parts = []
        while part := os.read(fd, max(size, 4096)):
            parts.append(part)
            if sum(map(len, parts)) > bytes_max:
                raise ReadFailedError(f"has more than {bytes_max} bytes", path=path)
        return b"".join(parts)
    except OSError as error:
        raise ReadFailedError(f"cannot be read: {error.strerror}", path=path, errno=error.errno) from error
    finally:
        os.close(fd)


def open_named_file(path: str) -> BinaryIO:
    """Opens a regular file that a person named.

    Raises:
        UsageError: there is none.
        ReadFailedError: it cannot be opened, or is no regular file.
    """
    try:
        fd, _ = open_regular_file(path)
    except ReadFailedError as error:
        if error.errno == errno.ENOENT:
            raise UsageError("does not exist", path=path) from None
        raise
    return os.fdopen(fd, "rb")
