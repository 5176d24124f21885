"""Our journals outside of log directories: files of lines that only grow. Receipts are journals."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from snaprebuild.errors import WriteFailedError
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
        raise WriteFailedError(f"cannot be written: {error.strerror}", path=path, errno=error.errno) from error


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
    """A new file, open for appending. Several threads may append at once: one sync serves all lines that wait for it."""

    def __init__(self, path: str, first_line: str) -> None:
        """Creates the file, and the directories above it, with its first line; when this returns all of it is on the device.

        Raises:
            RefusedError: a document may not be created there (``check_new_place``).
            WriteFailedError: it cannot be created or written.
        """
        self.path = path
        self._writing, self._syncing = threading.Lock(), threading.Lock()
        self._written = self._synced = 0
        self._failure: WriteFailedError | None = None
        directory = os.path.dirname(os.path.abspath(path))
        try:
            make_directories(directory)
            check_new_place(path)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(path, flags, document_mode())
        except OSError as error:
            raise WriteFailedError(f"cannot be created: {error.strerror}", path=path, errno=error.errno) from error
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
        return WriteFailedError(f"cannot be written: {error.strerror}", path=self.path, errno=error.errno)

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
