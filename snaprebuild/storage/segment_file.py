"""A segment on a file system, read at any position."""

from __future__ import annotations

import os
import time
from typing import Self

from snaprebuild.errors import DeadlinePassedError, ReadFailedError
from snaprebuild.storage.manners import cautious_reader, piece_bytes, wait_to_read
from snaprebuild.storage.regular_file import open_regular_file
from snaprebuild.storage.store import FileIdentity

__all__ = ["SegmentFile"]


class SegmentFile:
    """A segment file; follows ``store.OpenBytes``. A context manager.

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
        self._cautious = cautious_reader(self._fd, status.st_size)
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
            DeadlinePassedError: the deadline has passed.
        """
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise DeadlinePassedError("the deadline has passed", path=self._path)
        done = 0
        try:
            while done < len(buffer):
                part = buffer[done : done + piece_bytes(len(buffer) - done)]
                wait_to_read(len(part))
                position = position_bytes + done
                count = os.preadv(self._fd, [part], position) if self._cautious is None else self._cautious.read(part, position)
                if count == 0:
                    break
                done += count
        except OSError as error:
            message = f"cannot be read at byte {position_bytes + done}: {error.strerror}"
            raise ReadFailedError(message, path=self._path, errno=error.errno) from error
        return done

    def will_stop_at(self, position_bytes: int) -> None:
        """See ``OpenBytes``: the operating system reads ahead as it sees fit."""

    def close(self) -> None:
        """Closes the file."""
        if self._cautious is not None:
            self._cautious.close()
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
