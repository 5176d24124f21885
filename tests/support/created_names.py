"""Names that appear in directories while something runs, also those that are gone again when it ends, whichever process makes them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path

IN_MOVED_TO, IN_CREATE, IN_Q_OVERFLOW = 0x80, 0x100, 0x4000
EVENT = struct.Struct("iIII")
BUFFER_BYTES = 1 << 16


@contextlib.contextmanager
def created_names(*roots: Path) -> Iterator[list[str]]:
    """The paths of what is created below some directories, by the kernel's own account (inotify); whole when the block has ended."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    created: list[str] = []
    try:
        watched = {}
        for root in roots:
            for directory, _, _ in os.walk(root):
                number = libc.inotify_add_watch(fd, os.fsencode(directory), IN_CREATE | IN_MOVED_TO)
                assert number >= 0, os.strerror(ctypes.get_errno())
                watched[number] = directory
        yield created
        created += _read(fd, watched)
    finally:
        os.close(fd)


def _read(fd: int, watched: dict[int, str]) -> Iterator[str]:
    with contextlib.suppress(BlockingIOError):
        while True:
            events = os.read(fd, BUFFER_BYTES)
            at = 0
            while at < len(events):
                number, mask, _, length = EVENT.unpack_from(events, at)
                assert not mask & IN_Q_OVERFLOW
                at += EVENT.size
                name = events[at : at + length].rstrip(b"\0")
                at += length
                yield os.path.join(watched[number], os.fsdecode(name))
