"""A segment on a file system, read at any position."""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Self

import numpy as np

from formats import limits
from formats.offset_index import positions_hint
from formats.time_index import TIME_INDEX_ENTRY_BYTES, last_timestamp_hint
from snaprebuild.errors import ReadFailedError, RefusedError
from snaprebuild.storage.log_dir import read_small_file
from snaprebuild.storage.partition_dir import FileIdentity
from snaprebuild.storage.regular_file import open_regular_file

__all__ = ["SegmentFile", "read_last_timestamp_hint", "read_positions_hint"]


TIME_INDEX_TAIL_ENTRIES = 64
"""More than one entry, so that a fault at the very end does not hide the entries before it."""


class SegmentFile:
    """A segment file; follows ``formats.batch_headers.SegmentBytes``. A context manager.

    Raises:
        ReadFailedError: the file cannot be opened or is no regular file.
    """

    def __init__(self, path: str, deadline: float | None = None) -> None:
        """Opens it.

        Args:
            path: of the file.
            deadline: nothing is read once ``time.monotonic()`` is past it; None for none.
        """
        self._path = path
        self._deadline = deadline
        self._fd, status = open_regular_file(path)
        self.identity = FileIdentity.of(status)
        """Size, modification time and inode when it was opened."""

    @property
    def name(self) -> str:
        """Its path."""
        return self._path

    @property
    def size_bytes(self) -> int:
        """Its size when it was opened."""
        return self.identity.size_bytes

    def read_into(self, position_bytes: int, buffer: memoryview) -> int:
        """Fills ``buffer`` from ``position_bytes``; returns the count of bytes, less than asked for only at the end.

        Raises:
            ReadFailedError: the device or file system fails.
            RefusedError: the deadline has passed.
        """
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise RefusedError("the deadline has passed", path=self._path)
        done = 0
        try:
            while done < len(buffer):
                count = os.preadv(self._fd, [buffer[done:]], position_bytes + done)
                if count == 0:
                    break
                done += count
        except OSError as error:
            message = f"cannot be read at byte {position_bytes + done}: {error.strerror}"
            raise ReadFailedError(message, path=self._path, errno=error.errno) from error
        return done

    def close(self) -> None:
        """Closes the file."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def read_positions_hint(index_path: str, segment_bytes: int) -> np.ndarray | None:
    """Positions of batches from an offset index, as a hint; None when it is absent or cannot be read."""
    try:
        data = read_small_file(index_path, limits.INDEX_BYTES_MAX)
    except ReadFailedError:
        return None  # a hint only: without it the segment is walked from its start
    return None if data is None else positions_hint(data, segment_bytes)


def read_last_timestamp_hint(time_index_path: str) -> int | None:
    """The timestamp of the last entry of a closed segment's time index, ms, as a hint; None when it is absent or tells nothing.

    Only the end of the file is read: a broker may have hundreds of thousands of these.
    """
    try:
        with SegmentFile(time_index_path) as source:
            whole = source.size_bytes - source.size_bytes % TIME_INDEX_ENTRY_BYTES
            start = max(whole - TIME_INDEX_TAIL_ENTRIES * TIME_INDEX_ENTRY_BYTES, 0)
            buffer = bytearray(whole - start)
            source.read_into(start, memoryview(buffer))
    except ReadFailedError:
        return None  # a hint only: the segment counts as young
    return last_timestamp_hint(bytes(buffer))
