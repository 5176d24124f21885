"""A segment on a file system, read at any position."""

from __future__ import annotations

import errno
import os
import time
from typing import Self

from formats.errors import FormatError
from formats.partition.file_names import LEADER_EPOCH_CHECKPOINT, FileKind
from snaprebuild.errors import ChangedFileError, DeadlinePassedError, GoneFileError, ReadFailedError, RefusedError
from snaprebuild.storage.io_limits.policy import current_limits
from snaprebuild.storage.local.regular_file import changed_error, has_changed, open_regular_file
from snaprebuild.storage.store import FileIdentity

__all__ = ["SegmentFile", "check_parts"]

APPEND_CHECKS_MAX = 20
APPEND_PAUSE_S = 0.001
"""How often, and with which pause (seconds), the size is looked at again. It follows the times within microseconds."""


class SegmentFile:
    """A segment file; follows ``store.OpenBytes``. A context manager.

    Leaving it after its bytes were read costs one ``fstat``: see ``check_unchanged``.

    Raises:
        ReadFailedError: the file cannot be opened or is no regular file.
        ChangedFileError: it is not the file of the listing (``GoneFileError`` if that file is gone).
    """

    def __init__(
        self, path: str, deadline: float | None = None, listed: FileIdentity | None = None, may_grow: bool = False
    ) -> None:
        """Opens it.

        Args:
            path: of the file.
            deadline: nothing is read once ``time.monotonic()`` is past it; None for none.
            listed: its identity in a listing; None for the file that is there now.
            may_grow: a program may append to it meanwhile.
        """
        self._path = path
        self._deadline = deadline
        self._may_grow = may_grow
        self._leader_epochs = _leader_epochs(path) if self._may_grow else None
        try:
            self._fd, status = open_regular_file(path)
        except ReadFailedError as error:
            if listed is None or error.errno != errno.ENOENT:
                raise
            raise self._gone_error() from error
        self.identity = FileIdentity.of(status)
        """Size, modification time and inode when it was opened."""
        if listed is not None and not listed.is_still(self.identity, may_grow=self._may_grow):
            os.close(self._fd)
            kind = ChangedFileError if listed.inode == self.identity.inode else GoneFileError
            sizes = (listed.size_bytes, self.identity.size_bytes)
            detail = "" if sizes[0] == sizes[1] else f": expected {sizes[0]} bytes, found {sizes[1]}"
            raise kind(f"changed since it was listed{detail} (a broker is running here): run again", path=path)
        self._status = status
        self._has_read = False
        self._batches: list[tuple[int, bytes]] = []
        self._limits = current_limits()
        self._cautious = self._limits.cautious_reader(self._fd, status.st_size)

    @property
    def name(self) -> str:
        """Path of the file, for messages."""
        return self._path

    @property
    def size_bytes(self) -> int:
        """Size of the file when it was opened."""
        return self.identity.size_bytes

    def read_into(self, position_bytes: int, buffer: memoryview) -> int:
        """Fills ``buffer`` from ``position_bytes``; returns the count of bytes, less than requested only at the end.

        Raises:
            ReadFailedError: the device or file system fails.
            DeadlinePassedError: the deadline has passed.
        """
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise DeadlinePassedError("the deadline has passed", path=self._path)
        self._has_read = True
        done = 0
        try:
            while done < len(buffer):
                part = buffer[done : done + self._limits.piece_bytes(len(buffer) - done)]
                self._limits.wait_to_read(len(part))
                position = position_bytes + done
                if self._cautious is None:
                    count = os.preadv(self._fd, [part], position)
                else:
                    count = self._cautious.read(part, position)
                if count == 0:
                    break
                done += count
        except OSError as error:
            message = f"cannot be read at byte {position_bytes + done}: {error.strerror}"
            raise ReadFailedError(message, path=self._path, errno=error.errno) from error
        return done

    def will_stop_at(self, position_bytes: int) -> None:
        """Ignored: the operating system decides how far to read ahead."""

    def note_batch(self, position_bytes: int, header: bytes) -> None:
        """Remembers a batch that was found at a position: if the file may grow, its header must still be there at the end."""
        if self._may_grow:
            self._batches.append((position_bytes, header))

    def check_unchanged(self) -> None:
        """Makes sure that all bytes that were read are those of one file at one moment (``OpenBytes.check_unchanged``).

        A file that may grow must be longer than before, its noted batches must be where they were, and its leader epochs must be the
        same. A broker changes these before it appends to a log that it has truncated.
        """
        if not self._has_read:
            return
        try:
            now = self._settled() if self._may_grow else os.fstat(self._fd)
            is_same = not has_changed(self._status, now) or (self._may_grow and self._has_only_grown(now))
        except OSError as error:
            raise ReadFailedError.from_os_error(error, "cannot be read", self._path) from error
        if not is_same:
            # A broker renames a file that it deletes, which changes the file, too.
            raise self._gone_error() if self._has_lost_its_name() else changed_error(self._path)

    def _settled(self) -> os.stat_result:
        """The status of the file. An append changes the times before the size: then this waits for the size."""
        now = os.fstat(self._fd)
        for _ in range(APPEND_CHECKS_MAX):
            if now.st_size != self._status.st_size or not has_changed(self._status, now) or self._is_preallocated():
                break
            time.sleep(APPEND_PAUSE_S)
            now = os.fstat(self._fd)
        return now

    def _is_preallocated(self) -> bool:
        """Whether the segment may be preallocated: with ``log.preallocate`` it has its full size from the first byte on."""
        return self._status.st_blocks * 512 < self._status.st_size

    def _has_lost_its_name(self) -> bool:
        try:
            return not os.path.samestat(os.lstat(self._path), self._status)
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def _gone_error(self) -> GoneFileError:
        return GoneFileError("is gone since it was listed (a broker is running here): run again", path=self._path)

    def _has_only_grown(self, now: os.stat_result) -> bool:
        was = self._status
        if now.st_size < was.st_size or (now.st_size == was.st_size and not self._is_preallocated()):
            return False
        if not self._batches and was.st_size:
            return False
        are_there = all(os.pread(self._fd, len(header), position) == header for position, header in self._batches)
        return are_there and _leader_epochs(self._path) == self._leader_epochs

    def close(self) -> None:
        """Closes the file."""
        if self._cautious is not None:
            self._cautious.close()
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            # A reader that stops early is a generator that is closed; and bytes that follow no format may be those of two logs.
            if error[1] is None or isinstance(error[1], GeneratorExit | FormatError):
                self.check_unchanged()
        finally:
            self.close()


def _leader_epochs(path: str) -> FileIdentity | None:
    """The identity of the leader epoch checkpoint of a segment; None for any other file, and if there is none."""
    directory, name = os.path.split(path)
    if not name.endswith(FileKind.LOG.value):
        return None
    try:
        return FileIdentity.of(os.stat(os.path.join(directory, LEADER_EPOCH_CHECKPOINT)))
    except OSError:
        return None


def check_parts(path: str, listed: FileIdentity, present: FileIdentity) -> None:
    """Makes sure that a part of an active segment is of the same log as its other parts, which are opened at other moments.

    Args:
        path: of the segment.
        listed: its identity in the listing, which all parts have in common.
        present: its identity when this part was opened.

    Raises:
        RefusedError: it grew, and its leader epoch checkpoint is younger than the last append of the listing.
    """
    epochs = None if present == listed else _leader_epochs(path)
    if epochs is not None and epochs.modified_ns > listed.modified_ns:
        raise RefusedError("changed since it was listed (a broker is running here): run again", path=path)
