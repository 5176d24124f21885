"""Our journals outside of log directories: files of lines that only grow. Receipts are journals."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Self

from snaprebuild.errors import HeldError, ReadFailedError, RefusedError, WriteFailedError
from snaprebuild.storage.local import record_lock
from snaprebuild.storage.local.directories import make_directories, sync_entries
from snaprebuild.storage.local.document_file import check_new_place
from snaprebuild.storage.local.process_settings import document_mode

__all__ = ["JournalFile", "append_to_journal", "link_journal"]

_TAIL_BYTES = 1 << 16

_CLOSED = -1
"""In place of a descriptor; the kernel refuses it."""


def append_to_journal(path: str, text: str) -> None:
    """Appends lines to a journal of an earlier run, and syncs them. Half a line at its end is removed first.

    Args:
        path: of the file.
        text: lines, each with its end.

    Raises:
        WriteFailedError: they cannot be written.
    """
    try:
        with open(path, "rb") as file:
            size = end = file.seek(0, os.SEEK_END)
            while end:
                begin = max(end - _TAIL_BYTES, 0)
                file.seek(begin)
                newline = file.read(end - begin).rfind(b"\n")
                if newline >= 0:
                    end = begin + newline + 1
                    break
                end = begin
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if end < size:
                os.ftruncate(fd, end)
            left = memoryview(text.encode())
            while left:
                left = left[os.write(fd, left) :]
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise WriteFailedError.from_os_error(error, "cannot be written", path) from error


def link_journal(path: str, link: str) -> None:
    """Makes a symbolic link to a journal, and the directories above the link. When this returns it is on the device.

    Args:
        path: absolute path of the journal.
        link: path of the new link.

    Raises:
        OSError: it cannot be made; then there is none.
        RefusedError: it would be in the log directory of a broker.
    """
    directory = os.path.dirname(link)
    make_directories(directory)
    os.symlink(path, link)
    try:
        sync_entries(directory)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(link)
        raise


class JournalFile:
    """A file, open for appending. Several threads may append at once: one sync serves all lines that wait for it."""

    def __init__(self, path: str, first_line: str) -> None:
        """Creates the file, and the directories above it, with its first line; when this returns all of it is on the device.

        Raises:
            RefusedError: a document may not be created there (``check_new_place``).
            WriteFailedError: it cannot be created or written.
        """
        self._begin(path)
        directory = os.path.dirname(os.path.abspath(path))
        try:
            make_directories(directory)
            check_new_place(path)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(path, flags, document_mode())
        except OSError as error:
            raise WriteFailedError.from_os_error(error, "cannot be created", path) from error
        try:
            self.append(first_line)
            sync_entries(directory)
        except BaseException as error:
            self.close()
            with contextlib.suppress(OSError):
                os.unlink(path)  # nothing was announced yet
            if isinstance(error, OSError):
                raise self._failed(error) from error
            raise

    @classmethod
    def existing(cls, path: str) -> Self:
        """Opens the journal of an earlier run, and locks it for this one.

        Raises:
            HeldError: another run has locked it.
            RefusedError: the file system has no locks.
            WriteFailedError: it cannot be opened for writing.
        """
        journal = cls.__new__(cls)
        journal._begin(path)
        try:
            journal._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise WriteFailedError.from_os_error(error, "cannot be opened", path) from error
        try:
            journal.lock()
        except RefusedError:
            journal.close()
            raise
        return journal

    def _begin(self, path: str) -> None:
        self.path = path
        self._writing = threading.Lock()
        self._syncing = threading.Lock()
        self._written = self._synced = 0
        self._failure: WriteFailedError | None = None
        self._fd = _CLOSED

    def lock(self) -> None:
        """Locks the file until it is closed.

        Raises:
            HeldError: another run has locked it, or has replaced it meanwhile.
            RefusedError: the file system has no locks.
        """
        try:
            record_lock.take(self._fd)
        except BlockingIOError as error:
            raise HeldError("is in use by another run", path=self.path) from error
        except OSError as error:
            raise RefusedError(f"cannot be locked: {error.strerror}", path=self.path) from error
        if not self.has_its_name():
            raise HeldError("was replaced by another run: run again", path=self.path)

    def cut(self, size_bytes: int) -> None:
        """Removes everything from a position on: half a line, which a run that was killed leaves.

        Raises:
            WriteFailedError: it cannot be written.
        """
        with self._noting_failure():
            os.ftruncate(self._fd, size_bytes)

    def read_at(self, position: int, count: int) -> bytes:
        """Bytes of the file; fewer at its end. Only of a journal from ``existing``.

        Raises:
            ReadFailedError: they cannot be read.
        """
        data = bytearray()
        try:
            while len(data) < count:
                more = os.pread(self._fd, count - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise ReadFailedError.from_os_error(error, "cannot be read", self.path) from error
        return bytes(data)

    def append(self, line: str, *, sync: bool = True) -> None:
        """Appends a line, or several.

        Args:
            line: text without its end.
            sync: return when it is on the device; else it gets there with the next line that is synced.

        Raises:
            WriteFailedError: it cannot be written, or an earlier one could not: after half a line nothing more is written.
        """
        data = memoryview(line.encode() + b"\n")
        with self._writing, self._noting_failure():
            size = len(data)
            while data:
                data = data[os.write(self._fd, data) :]
            self._written += size
            position = self._written
        if sync:
            self._sync_up_to(position)

    def sync(self) -> None:
        """Returns when all lines so far are on the device.

        Raises:
            WriteFailedError: they cannot be written.
        """
        self._sync_up_to(self._written)

    def _sync_up_to(self, position: int) -> None:
        with self._syncing, self._noting_failure():
            if self._synced >= position:
                return  # the sync of another thread included this line
            covered = self._written
            os.fsync(self._fd)
            self._synced = covered

    @contextlib.contextmanager
    def _noting_failure(self) -> Iterator[None]:
        """After a failure all that follows fails. The kernel reports lost bytes once: a second sync would succeed without them."""
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except OSError as error:
            self._failure = self._failed(error)
            raise self._failure from error

    def _failed(self, error: OSError) -> WriteFailedError:
        return WriteFailedError.from_os_error(error, "cannot be written", self.path)

    def has_its_name(self) -> bool:
        """Whether the path still leads to this file: nobody has moved or removed it."""
        try:
            return os.path.samestat(os.stat(self.path, follow_symlinks=False), os.fstat(self._fd))
        except OSError:
            return False

    def remove(self) -> None:
        """Closes the file, and removes it: nothing was announced in it. A file that cannot be removed stays."""
        self.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def close(self) -> None:
        """Closes the file. A second call does nothing; what is appended later fails."""
        fd = self._fd
        self._fd = _CLOSED
        if fd != _CLOSED:
            os.close(fd)
