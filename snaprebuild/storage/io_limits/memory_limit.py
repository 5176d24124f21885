"""A limit on the memory that this process may hold beyond the files that it maps.

The kernel limits what a process may reserve (``RLIMIT_DATA``), and libraries reserve much that they never touch: so what is reserved now
does not count, and what is held now does. An allocation that goes too far fails, which ends one partition and leaves the others.
"""

from __future__ import annotations

import resource
import threading

__all__ = ["held_bytes", "lift_limit", "limit_memory"]

THREAD_STACK_BYTES = 1 << 20
"""Instead of 8 MiB, which would be reserved for each thread that starts under a limit."""

ROOM_BYTES_MIN = 16 << 20
"""What a process may take in any case: the begin of reading a segment."""


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))


def held_bytes() -> int:
    """Anonymous memory of this process."""
    return _status("RssAnon:")


def limit_memory(most_bytes: int) -> None:
    """From now on this process holds so many bytes at most."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    room = max(most_bytes - held_bytes(), ROOM_BYTES_MIN)
    wanted = _status("VmData:") + room
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    threading.stack_size(THREAD_STACK_BYTES)


def lift_limit(before: int) -> None:
    """Takes it back; ``before`` is the soft limit that the process had."""
    resource.setrlimit(resource.RLIMIT_DATA, (before, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    threading.stack_size(0)
