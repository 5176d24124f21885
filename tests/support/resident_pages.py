"""How much of a file is in the page cache, as the kernel reports it."""

from __future__ import annotations

import os

from snaprebuild.storage.io_limits.page_cache import Residency


def resident_bytes(path: str) -> tuple[int, int]:
    """Bytes of a file that are in the page cache, and its size; all of them if the kernel does not report it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        residency = Residency.of(fd, size)
        if residency is None:
            return size, size
        try:
            return size - sum(length for _, length in residency.absent(0, size)), size
        finally:
            residency.close()
    finally:
        os.close(fd)
