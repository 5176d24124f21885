"""Free space of a file system, as `scan` reports it. Whether new files fit is asked in ``storage.local.write_checks``."""

from __future__ import annotations

import os

__all__ = ["free_bytes_of"]


def free_bytes_of(path: str) -> int | None:
    """Bytes that users without privileges can still write; None if the path is not on this machine, or cannot be looked at."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize
