"""Reading a file: it may be something else than its name suggests, and it may change meanwhile.

A follower that truncates its log writes other batches into the same file, often to the same size. Bytes read before and after that
belong to no state that ever existed. ``fstat`` before the first byte and after the last one shows it: Linux sets the change time at
each write, and no program can set it back.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from formats import limits
from snaprebuild.errors import ChangedFileError, ReadFailedError, UsageError
from snaprebuild.storage.io_limits.policy import current_limits
from snaprebuild.storage.store import FileIdentity
from snaprebuild.typed_paths import absent_text

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from snaprebuild.storage.io_limits.page_cache import PageReader

__all__ = [
    "buffered",
    "changed_error",
    "has_changed",
    "may_be_in_flux",
    "once_more",
    "open_named_file",
    "open_regular_file",
    "read_identified",
    "read_small_file",
]


def open_regular_file(path: str) -> tuple[int, os.stat_result]:
    """Opens a regular file; a link is not followed and a pipe does not block.

    Returns:
        The descriptor, and the status of the file when it was opened.

    Raises:
        ReadFailedError: it is absent (``errno`` is ENOENT), cannot be opened, or is no regular file.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ReadFailedError.from_os_error(error, "cannot be opened", path) from error
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise ReadFailedError("is no regular file", path=path)
    return fd, status


def read_small_file(path: str, bytes_max: int = limits.TEXT_FILE_BYTES_MAX) -> bytes | None:
    """The bytes of a small regular file; otherwise as ``read_identified``."""
    content = read_identified(path, bytes_max)
    return None if content is None else content[0]


def read_identified(path: str, bytes_max: int) -> tuple[bytes, FileIdentity] | None:
    """All bytes of a regular file and its identity, or None if it is absent. One that changes while it is read is read once more.

    Raises:
        ReadFailedError: it cannot be read, is no regular file, or is larger than ``bytes_max``.
        ChangedFileError: it changed both times.
    """
    return once_more(partial(_read_once, path, bytes_max))


Value = TypeVar("Value")


def once_more(read: Callable[[], Value]) -> Value:
    """The result of ``read``. If a file changes while it is read, it is read once more.

    Raises:
        ChangedFileError: it changed both times.
    """
    try:
        return read()
    except ChangedFileError:
        return read()


def _read_once(path: str, bytes_max: int) -> tuple[bytes, FileIdentity] | None:
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
        run_limits = current_limits()
        run_limits.wait_to_read(size)
        cautious = run_limits.cautious_reader(fd, size)
        try:
            data = _all_bytes(fd, cautious, size, bytes_max, path)
        finally:
            if cautious is not None:
                cautious.close()
        now = os.fstat(fd)
    except OSError as error:
        raise ReadFailedError.from_os_error(error, "cannot be read", path) from error
    finally:
        os.close(fd)
    if has_changed(status, now):
        raise changed_error(path)
    return data, FileIdentity.of(status)


def _all_bytes(fd: int, cautious: PageReader | None, size_bytes: int, bytes_max: int, path: str) -> bytes:
    """All bytes of an open file.

    A file of ``size_bytes`` has no more after these: if it grew, its status shows that. Only size 0 may be untrue (``/proc``).

    Args:
        fd: of the file.
        cautious: reads it, and leaves the page cache as it was; None for a plain read.
        size_bytes: by the status of the file.
        bytes_max: more is an error.
        path: of the file, for errors.
    """
    parts: list[bytes] = []
    count = 0
    while part := _next_bytes(fd, cautious, max(size_bytes, 4096), count):
        parts.append(part)
        count += len(part)
        if count > bytes_max:
            raise ReadFailedError(f"has more than {bytes_max} bytes", path=path)
        if count == size_bytes:
            break
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _next_bytes(fd: int, cautious: PageReader | None, bytes_max: int, position: int) -> bytes:
    if cautious is None:
        return os.read(fd, bytes_max)
    buffer = memoryview(bytearray(bytes_max))
    return bytes(buffer[: cautious.read(buffer, position)])


def open_named_file(path: str) -> BinaryIO:
    """Opens a regular file that the user named.

    Raises:
        UsageError: it does not exist, or is a directory.
        ReadFailedError: it cannot be opened, or is no regular file.
    """
    try:
        fd, _ = open_regular_file(path)
    except ReadFailedError as error:
        if error.errno == errno.ENOENT:
            raise UsageError(absent_text(path), path=path) from None
        if os.path.isdir(path):
            raise UsageError("is a directory: name a file", path=path) from None
        if error.errno == errno.ELOOP and os.path.islink(path):
            message = "is a symbolic link, which is not followed: name the file itself"
            raise ReadFailedError(message, path=path, errno=error.errno) from None
        raise
    return buffered(fd)


class _Raising(io.FileIO):
    """Bytes that would have to be waited for are an error. A regular file has none, but a file in ``/proc`` that looks regular may."""

    def readinto(self, buffer: WriteableBuffer) -> int:
        count: int | None = super().readinto(buffer)
        if count is None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return count


def buffered(fd: int) -> BinaryIO:
    """A reader of an open file; it closes the file, too."""
    return io.BufferedReader(_Raising(fd, "rb"))


FLUX_NS = 60 * 10**9
"""For this time after its last change a running broker may still be writing a file."""


def has_changed(before: os.stat_result, after: os.stat_result) -> bool:
    """Whether size, modification time or change time of one open file differ."""
    return (before.st_size, before.st_mtime_ns, before.st_ctime_ns) != (after.st_size, after.st_mtime_ns, after.st_ctime_ns)


def changed_error(path: str) -> ChangedFileError:
    """The error that ends the reading of a file."""
    return ChangedFileError("changed while it was read (a broker is running here): run again", path=path)


def may_be_in_flux(path: str, listed: FileIdentity, *, is_broker_running: bool) -> bool:
    """Whether a file that cannot be parsed may be one that a broker is writing: brokers up to 2.7 write snapshots in place.

    Args:
        path: of a file of this machine.
        listed: its identity in the listing.
        is_broker_running: a broker holds the log directory.

    Returns:
        True if it is not the file of the listing any more, or a running broker changed it within the last minute.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return True
    is_young = abs(time.time_ns() - status.st_mtime_ns) < FLUX_NS
    return FileIdentity.of(status) != listed or (is_broker_running and is_young)
