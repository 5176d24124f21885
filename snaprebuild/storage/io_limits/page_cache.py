"""Reading that leaves the page cache of the operating system as it was.

That cache contains what a broker wrote last, and what its consumers read. Usual reads of terabytes push these pages out. So pages
that were not cached before are dropped after the read, and pages that were cached are read from the cache and never dropped.

* The kernel does that itself if it knows ``RWF_DONTCACHE`` (Linux 6.14 on some file systems). It is used from 6.16 on, which fixed
  the first faults of that flag.
* Elsewhere ``mincore`` shows which pages of a stretch are cached before any of it is read. The others are requested one run at a
  time, because the kernel must not read ahead by itself: such pages would look as if they had been cached before. After the reader
  they are dropped (``POSIX_FADV_DONTNEED``). Since 5.2 Linux reports residency only to the owner of a file or to a user that may
  write it, and reports "all of it" to others. Then nothing is dropped.

Direct I/O is no alternative: it would read again what is in the cache, and makes the kernel write out what a broker has just
appended.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import mmap
import os
import re

__all__ = ["PageReader", "Residency", "page_reader"]

RWF_DONTCACHE = 0x80
"""Flag of ``preadv2``: pages that this call brings into the page cache leave it with the call."""

DONTCACHE_SINCE = (6, 16)
"""First version of Linux in which it is trusted."""

_NO_DONTCACHE = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM})
"""The last one where a filter of system calls does not know ``preadv2``."""

STRETCH_BYTES = 4 << 20
"""Size of a stretch: as large as the blocks in which segments are read (``formats.limits.HEADER_BLOCK_BYTES``)."""

READ_AHEAD_BYTES_MIN = 64 << 10
"""A smaller read is a lookup, and nothing is read ahead for it."""

_PROT_READ = 1
_MAP_SHARED = 1
_MAP_FAILED = ctypes.c_void_p(-1).value


def page_reader(fd: int, size_bytes: int) -> PageReader:
    """Reads an open file and leaves the page cache as it was.

    Args:
        fd: descriptor, open for reading.
        size_bytes: of the file; bytes appended later are read as usual.
    """
    if _dontcache_is_trusted():
        return DontCacheReader(fd, size_bytes)
    return DroppingReader(fd, size_bytes)


@functools.cache
def _dontcache_is_trusted() -> bool:
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return os.uname().sysname == "Linux" and version is not None and tuple(map(int, version.groups())) >= DONTCACHE_SINCE


class DontCacheReader:
    """An open file that is read by means of the kernel, as long as the file system supports them.

    Pages that the kernel reads ahead leave the cache when they are read; pages that are never read stay. So it may read ahead only
    while one large block follows another. A reader that stops in the middle of a file leaves one window of pages (``read_ahead_kb``
    of the device) at most.
    """

    def __init__(self, fd: int, size_bytes: int) -> None:
        self._fd = fd
        self._size_bytes = size_bytes
        self._other: DroppingReader | None = None
        self._next_bytes: int | None = None
        self._reads_ahead = False
        if size_bytes > mmap.PAGESIZE:  # nothing is read ahead of a single page
            _advise(fd, os.POSIX_FADV_RANDOM)

    def read(self, buffer: memoryview, position_bytes: int) -> int:
        """Reads into buffers (``os.preadv``). Returns how many bytes were read, 0 at the end."""
        if self._other is None:
            if not self._reads_ahead and position_bytes == self._next_bytes and len(buffer) >= READ_AHEAD_BYTES_MIN:
                self._reads_ahead = True
                _advise(self._fd, os.POSIX_FADV_NORMAL)
            try:
                count = os.preadv(self._fd, [buffer], position_bytes, RWF_DONTCACHE)
            except OSError as error:
                if error.errno not in _NO_DONTCACHE:
                    raise
            else:
                self._next_bytes = position_bytes + count
                return count
            self._other = DroppingReader(self._fd, self._size_bytes)
        return self._other.read(buffer, position_bytes)

    def close(self) -> None:
        """Drops the pages that it brought into the page cache. The caller owns the descriptor, which stays open."""
        if self._other is not None:
            self._other.close()


class DroppingReader:
    """An open file of which the pages are dropped that were not cached before."""

    def __init__(self, fd: int, size_bytes: int) -> None:
        self._fd = fd
        self._size_bytes = size_bytes
        self._residency = Residency.of(fd, size_bytes)
        self._brought: dict[int, list[tuple[int, int]]] = {}  # by number of the stretch: begins and lengths, in bytes
        self._next_bytes = 0
        _advise(fd, os.POSIX_FADV_NORMAL if self._residency is None else os.POSIX_FADV_RANDOM)

    def read(self, buffer: memoryview, position_bytes: int) -> int:
        """Reads into buffers (``os.preadv``). Returns how many bytes were read, 0 at the end."""
        if self._residency is None:
            return os.preadv(self._fd, [buffer], position_bytes)
        first = position_bytes // STRETCH_BYTES
        last = (position_bytes + max(len(buffer), 1) - 1) // STRETCH_BYTES
        goes_on = position_bytes == self._next_bytes
        for stretch in range(first, last + 1):
            self._ask(stretch)
        if goes_on and len(buffer) >= READ_AHEAD_BYTES_MIN:  # the device works while the caller uses the bytes
            self._ask(last + 1)
        count = os.preadv(self._fd, [buffer], position_bytes)
        self._next_bytes = position_bytes + count
        for stretch in [each for each in self._brought if not first <= each <= last + 1]:
            self._drop(stretch)
        return count

    def _ask(self, stretch: int) -> None:
        """Notes which pages of a stretch are not in the cache, and requests these, run by run."""
        begin = stretch * STRETCH_BYTES
        if stretch in self._brought or begin >= self._size_bytes or self._residency is None:
            return
        absent = self._residency.absent(begin, min(STRETCH_BYTES, self._size_bytes - begin))
        self._brought[stretch] = absent
        for start, length in absent:
            _advise(self._fd, os.POSIX_FADV_WILLNEED, start, length)

    def _drop(self, stretch: int) -> None:
        for start, length in self._brought.pop(stretch):
            with contextlib.suppress(OSError):
                os.pread(self._fd, 1, start + length - 1)  # pages that the device is still reading cannot be dropped
                os.posix_fadvise(self._fd, start, length, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Drops the pages that it brought into the page cache. The caller owns the descriptor, which stays open."""
        for stretch in list(self._brought):
            self._drop(stretch)
        if self._residency is not None:
            self._residency.close()
            self._residency = None


PageReader = DontCacheReader | DroppingReader
"""An open file that is read at any position, and leaves the page cache as it was."""


def _advise(fd: int, advice: int, start_bytes: int = 0, length_bytes: int = 0) -> None:
    """Gives the kernel a hint; whether the kernel uses it or not, the same bytes are read."""
    with contextlib.suppress(OSError):
        os.posix_fadvise(fd, start_bytes, length_bytes, advice)


class Residency:
    """Asks the kernel which pages of a file are in memory, through a mapping of it that is never touched."""

    def __init__(self, address: int, size_bytes: int) -> None:
        self._address = address
        self._size_bytes = size_bytes

    @classmethod
    def of(cls, fd: int, size_bytes: int) -> Residency | None:
        """None if residency is unknown: an empty file, a file system without mappings, no C library."""
        if size_bytes <= 0:
            return None
        try:
            address = libc().mmap(None, size_bytes, _PROT_READ, _MAP_SHARED, fd, 0)
        except (OSError, AttributeError):
            return None
        if address is None or address == _MAP_FAILED:
            return None
        return cls(address, size_bytes)

    def absent(self, begin_bytes: int, length_bytes: int) -> list[tuple[int, int]]:
        """The runs of pages that are not in memory: begin and length of each in bytes. ``begin_bytes`` is the begin of a page."""
        page = mmap.PAGESIZE
        length = min(length_bytes, self._size_bytes - begin_bytes)
        pages = ctypes.create_string_buffer(-(-length // page))
        if libc().mincore(self._address + begin_bytes, length, pages) != 0:
            return []
        is_there = pages.raw.translate(_LOWEST_BIT)
        return [
            (begin_bytes + run.start() * page, min(len(run[0]) * page, length - run.start() * page))
            for run in re.finditer(rb"\0+", is_there)
        ]

    def close(self) -> None:
        """Ends the mapping."""
        libc().munmap(self._address, self._size_bytes)


_LOWEST_BIT = bytes(each & 1 for each in range(256))


@functools.cache
def libc() -> ctypes.CDLL:
    """The C library of this process."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
    library.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library
