"""A disk that gives this many bytes a second, no matter who reads: a stand-in for several real ones on a machine with one.

It serves one request after the other, as a spinning disk does, and reads nothing ahead. Its data is in the page cache.
"""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass
from typing import Any

from snaprebuild.storage.local.segment_file import SegmentFile
from snaprebuild.storage.local.store import LocalStore
from snaprebuild.storage.store import FileIdentity


class ThrottledFile(SegmentFile):
    """A segment on such a disk."""

    def __init__(self, disk: ThrottledDisk, *opened: Any) -> None:
        """Opens it; the rest are the arguments of ``SegmentFile``."""
        super().__init__(*opened)
        self._disk = disk
        self._arm = os.open(disk.lock_path, os.O_RDWR | os.O_CREAT, 0o600)

    def read_into(self, position_bytes: int, buffer: memoryview) -> int:
        """Reads when the disk is free, and takes as long as the disk does."""
        with memoryview(buffer) as view:
            fcntl.flock(self._arm, fcntl.LOCK_EX)
            try:
                until = time.monotonic() + len(view) / self._disk.bytes_per_second
                count = super().read_into(position_bytes, view)
                time.sleep(max(until - time.monotonic(), 0))
            finally:
                fcntl.flock(self._arm, fcntl.LOCK_UN)
        return count

    def close(self) -> None:
        """Closes it."""
        os.close(self._arm)
        super().close()


@dataclass(frozen=True, slots=True)
class ThrottledDisk(LocalStore):
    """Files on such a disk.

    Attributes:
        bytes_per_second: that it gives.
        lock_path: of a file whose lock is its one arm.
    """

    bytes_per_second: int
    lock_path: str

    def open_bytes(
        self,
        location: str,
        identity: FileIdentity | None = None,
        deadline: float | None = None,
        may_grow: bool = False,
    ) -> ThrottledFile:
        """Opens a file; ``Store.open_bytes`` describes it."""
        return ThrottledFile(self, location, deadline, identity, may_grow)
