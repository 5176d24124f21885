"""Looking at the bytes of a file in place, where that is safe and nothing has to be fetched for it.

A file that becomes shorter while its mapping is looked at ends the process (SIGBUS). So only workers map, which may die at any moment:
the process that started them reads the segment again, without a mapping. No lock that processes share is held meanwhile.

The page cache stays as it was. Only pages that are in it are mapped. With ``MADV_RANDOM`` the kernel reads nothing ahead, and a look
does not make a page younger.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import resource
from collections.abc import Iterator
from contextvars import ContextVar

from snaprebuild.storage.io_limits.page_cache import Residency, cached_pages, libc
from snaprebuild.storage.io_limits.policy import current_io_limits

__all__ = ["LOCAL_FILE_SYSTEMS", "MappedWindows", "mapped_reads", "mapped_windows", "may_map"]

LOCAL_FILE_SYSTEMS = {0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs", 0xF2F52010: "f2fs", 0x01021994: "tmpfs"}
"""Numbers of ``statfs(2)``. Elsewhere a look may wait or fail: the bytes come over a network, or from a user's process (FUSE)."""

WINDOW_BYTES_MIN = 4 << 20
"""A smaller window costs more in system calls than it saves."""

_may_map: ContextVar[bool] = ContextVar("may_map", default=False)


@contextlib.contextmanager
def mapped_reads(*, allowed: bool) -> Iterator[None]:
    """Inside the block this thread may map files. Only for a process that may die, and whose death costs no more than its work."""
    before = _may_map.set(allowed)
    try:
        yield
    finally:
        _may_map.reset(before)


def may_map() -> bool:
    """Whether this thread may map files now."""
    return _may_map.get()


class MappedWindows:
    """Windows of one open file."""

    def __init__(self, fd: int, size_bytes: int) -> None:
        self._fd = fd
        self._size_bytes = size_bytes
        self._residency: Residency | None = None  # made when it is asked: most segments need none
        self._faults = _major_faults()

    def window(self, position_bytes: int, count: int) -> memoryview | None:
        """As many of these bytes as are in memory, from the first one on; None if those are few, or an earlier look had to wait."""
        if _major_faults() != self._faults:
            return None
        begin = position_bytes - position_bytes % mmap.PAGESIZE
        length = self._resident_bytes(begin, position_bytes + count - begin)
        if length < min(position_bytes + count - begin, WINDOW_BYTES_MIN):
            return None
        try:
            mapped = mmap.mmap(self._fd, length, mmap.MAP_SHARED, mmap.PROT_READ, offset=begin)
            mapped.madvise(mmap.MADV_RANDOM)
        except (OSError, ValueError):  # no room for it, no such advice, or the file is shorter by now
            return None
        return memoryview(mapped)[position_bytes - begin :]

    def _resident_bytes(self, begin: int, count: int) -> int:
        """From a position on. Asked step by step: of a file that is not in memory, few pages are asked about."""
        if cached_pages(self._fd, begin, count) == -(-count // mmap.PAGESIZE):
            return count
        self._residency = self._residency or Residency.of(self._fd, self._size_bytes)
        if self._residency is None:
            return 0
        for start in range(begin, begin + count, WINDOW_BYTES_MIN):
            absent = self._residency.absent(start, min(WINDOW_BYTES_MIN, begin + count - start))
            if absent:
                return absent[0][0] - begin
        return count

    def close(self) -> None:
        """Windows that are still looked at stay until they are not."""
        if self._residency is not None:
            self._residency.close()


def mapped_windows(fd: int, status: os.stat_result) -> MappedWindows | None:
    """None where a file must not be mapped: see the module, and `_shows_residency`; and where a rate of bytes a second is kept.

    Args:
        fd: descriptor, open for reading.
        status: of the file.
    """
    if not may_map() or current_io_limits().bytes_per_second is not None:
        return None
    if _file_system(fd) not in LOCAL_FILE_SYSTEMS or not _shows_residency(fd, status):
        return None
    return MappedWindows(fd, status.st_size)


def _file_system(fd: int) -> int | None:
    """Its number in ``statfs``; None if there is no such call."""
    answer = (ctypes.c_long * 64)()
    try:
        done: int = libc().fstatfs(fd, answer)
    except (OSError, AttributeError):
        return None
    return None if done else answer[0] & 0xFFFFFFFF


def _shows_residency(fd: int, status: os.stat_result) -> bool:
    """Since Linux 5.2 only the owner, and who may write the file, get a true answer; others get "all of it" (``mm/mincore.c``)."""
    return os.geteuid() == status.st_uid or os.access(f"/proc/self/fd/{fd}", os.W_OK, effective_ids=True)


def _major_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
