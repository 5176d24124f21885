"""Opening a file to read it: what stands in a directory is not trusted to be what its name says."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from formats import limits
from snaprebuild.errors import ChangedFileError, ReadFailedError, UsageError
from snaprebuild.storage.io_limits.policy import cautious_reader, wait_to_read
from snaprebuild.storage.local.file_changes import changed_error, has_changed

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["buffered", "open_named_file", "open_regular_file", "read_small_file"]


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
    """The bytes of a small regular file, or None when it is absent. One that changes while it is read is read once more.

    Raises:
        ReadFailedError: it cannot be read, is no regular file, or is larger than ``bytes_max``.
        ChangedFileError: it changed both times.
    """
    try:
        return _read_once(path, bytes_max)
    except ChangedFileError:
        return _read_once(path, bytes_max)


def _read_once(path: str, bytes_max: int) -> bytes | None:
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
        wait_to_read(size)
        cautious = cautious_reader(fd, size)
        if cautious is None:
            data = _all_bytes(lambda _: os.read(fd, max(size, 4096)), bytes_max, path)
        else:
            try:
                buffer = memoryview(bytearray(max(size, 4096)))
                data = _all_bytes(lambda position: bytes(buffer[: cautious.read(buffer, position)]), bytes_max, path)
            finally:
                cautious.close()
        now = os.fstat(fd)
    except OSError as error:
        raise ReadFailedError(f"cannot be read: {error.strerror}", path=path, errno=error.errno) from error
    finally:
        os.close(fd)
    if has_changed(status, now):
        raise changed_error(path)
    return data


def _all_bytes(read: Callable[[int], bytes], bytes_max: int, path: str) -> bytes:
    """What a function gives, called with the count of bytes so far, until it gives none."""
    parts: list[bytes] = []
    count = 0
    while part := read(count):
        parts.append(part)
        count += len(part)
        if count > bytes_max:
            raise ReadFailedError(f"has more than {bytes_max} bytes", path=path)
    return parts[0] if len(parts) == 1 else b"".join(parts)


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
    return buffered(fd)


class _Raising(io.FileIO):
    """What would have to be waited for is an error. A regular file has no such bytes, but what calls itself one may, as in ``/proc``."""

    def readinto(self, buffer: WriteableBuffer) -> int:
        count: int | None = super().readinto(buffer)
        if count is None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return count


def buffered(fd: int) -> BinaryIO:
    """Reads from an open file, and closes it."""
    return io.BufferedReader(_Raising(fd, "rb"))
