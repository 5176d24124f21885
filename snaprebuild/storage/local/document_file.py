"""Our files outside of log directories: plans, reports and tables that are published whole, journals that only grow."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import threading
from collections.abc import Iterable, Iterator
from typing import IO

from formats.partition.file_names import parse_file_name, parse_partition_dir_name
from snaprebuild.errors import AlreadyExistsError, ReadFailedError, RefusedError, StorageError, WriteFailedError
from snaprebuild.storage.local.directories import make_directories, opened, reason_of, sync_entries
from snaprebuild.storage.local.file_calls import OS
from snaprebuild.storage.local.process_settings import document_mode
from snaprebuild.storage.local.publish import temporary_file
from snaprebuild.storage.local.regular_file import buffered, open_regular_file
from snaprebuild.storage.partition_dir import BROKER_FILES

__all__ = ["JournalFile", "append_to_journal", "check_new_place", "check_place", "new_file", "write_text_file"]

OWN_DOCUMENT = b'"schema": "snaprebuild.'
"""Each of our plans and reports has this in its first bytes; only such a file is replaced."""

_TAIL_BYTES = 1 << 16


def check_place(path: str) -> None:
    """Makes sure that a plan or report may be written here: not among the files of a broker, and not over a file that is not ours.

    Raises:
        RefusedError: it may not.
    """
    directory, name = os.path.split(os.path.abspath(path))
    try:
        names = set(os.listdir(directory))
    except OSError:
        return  # to write there will fail by itself
    if parse_file_name(name) is not None or name in BROKER_FILES:
        raise RefusedError("has the name of a file of Kafka", path=path)
    is_partition = parse_partition_dir_name(os.path.basename(os.path.realpath(directory))) is not None
    if not names.isdisjoint(BROKER_FILES) or (is_partition and any(parse_file_name(each) is not None for each in names)):
        raise RefusedError("is in a directory of a broker, where only the broker may write files", path=path)
    if name in names and not _is_own(os.path.join(directory, name)):
        raise RefusedError("already exists and is no plan or report of this program", path=path)


def _is_own(path: str) -> bool:
    try:
        fd, _ = open_regular_file(path)
    except ReadFailedError:
        return False
    with buffered(fd) as file, contextlib.suppress(OSError):
        return OWN_DOCUMENT in file.read(200)
    return False


def check_new_place(path: str, *, needs_directory: bool = True) -> None:
    """Makes sure that a new file may be created here, and that its directory can be written to. Changes nothing.

    Args:
        path: of the file.
        needs_directory: check whether its directory can be written to.

    Raises:
        RefusedError: it would be among the files of a broker, or something has this name.
        WriteFailedError: its directory cannot be written to, or cannot be made.
    """
    if os.path.lexists(path):
        raise RefusedError("already exists and is not replaced", path=path)
    check_place(path)
    if not needs_directory:
        return
    above = os.path.dirname(os.path.abspath(path))
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        raise WriteFailedError("is no directory", path=above, errno=errno.ENOTDIR)
    if not os.access(above, os.W_OK | os.X_OK):
        raise WriteFailedError("may not be written to", path=above, errno=errno.EACCES)


@contextlib.contextmanager
def new_file(path: str) -> Iterator[IO[bytes]]:
    """Opens a file for writing, which gets its name when the block ends, unless the block raises.

    Raises:
        RefusedError: the name is taken, or the file would be among those of a broker.
        WriteFailedError: it cannot be written.
        OutcomeUnknownError: it is there, and something after that failed.
    """
    check_new_place(path)
    with _published(path, replaces=False) as file:
        yield file


def write_text_file(path: str, pieces: Iterable[str]) -> None:
    """Writes a file whole, piece after piece, replacing an older one of the same name.

    Raises:
        RefusedError: as ``check_place``.
        WriteFailedError: it cannot be written; an older one is as it was.
        OutcomeUnknownError: it was written; after a power failure the older file may be back.
    """
    check_place(path)
    with _published(path, replaces=True) as file:
        file.writelines(piece.encode() for piece in pieces)


@contextlib.contextmanager
def _published(path: str, *, replaces: bool) -> Iterator[IO[bytes]]:
    directory, name = os.path.split(os.path.abspath(path))
    temporary_name = f".{name}-{secrets.token_hex(4)}"  # no other run has it
    try:
        with opened(directory, OS) as place, temporary_file(place, temporary_name, document_mode(), is_locked=False) as temporary:
            with open(temporary.fd, "wb", closefd=False) as file:
                yield file
            temporary.sync()
            if replaces:
                temporary.rename_over(name)
            else:
                temporary.link_as(name)
    except AlreadyExistsError as error:
        raise RefusedError("already exists and is not replaced", path=path) from error
    except StorageError as error:
        if error.path == os.path.join(directory, temporary_name):
            error.path = path  # the temporary name means nothing to its reader
            if isinstance(error, WriteFailedError) and error.errno is not None:
                failure = WriteFailedError(f"cannot be written: {os.strerror(error.errno)}", path=path, errno=error.errno)
                failure.leftover = error.leftover
                raise failure from error
        raise
    except OSError as error:
        raise WriteFailedError(f"cannot be written: {reason_of(error)}", path=path, errno=error.errno) from error


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


class JournalFile:
    """A new file, open for appending. Several threads may append at once: one sync serves all lines that wait for it."""

    def __init__(self, path: str, first_line: str) -> None:
        """Creates the file, and the directories above it, with its first line; when this returns all of it is on the device.

        Raises:
            RefusedError: as ``check_new_place``.
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
        except (OSError, WriteFailedError) as error:
            os.close(self._fd)
            with contextlib.suppress(OSError):
                os.unlink(path)  # nothing was announced yet
            raise (self._failed(error) if isinstance(error, OSError) else error) from error

    def append(self, line: str, *, sync: bool = True) -> None:
        """Appends a line, or several.

        Args:
            line: text without its end.
            sync: return when it is on the device; else it gets there with the next line that is synced.

        Raises:
            WriteFailedError: it cannot be written, or an earlier one could not: after half a line nothing more is written.
        """
        data = memoryview(line.encode() + b"\n")
        try:
            with self._writing:
                if self._failure is not None:
                    raise self._failure
                size = len(data)
                while data:
                    data = data[os.write(self._fd, data) :]
                self._written += size
                wanted = self._written
            if sync:
                self._sync_up_to(wanted)
        except OSError as error:
            self._failure = self._failed(error)
            raise self._failure from error

    def sync(self) -> None:
        """Returns when all lines so far are on the device.

        Raises:
            WriteFailedError: they cannot be.
        """
        try:
            self._sync_up_to(self._written)
        except OSError as error:
            self._failure = self._failed(error)
            raise self._failure from error

    def _sync_up_to(self, wanted: int) -> None:
        with self._syncing:
            if self._synced >= wanted:
                return  # the sync of another thread included this line
            covered = self._written
            os.fsync(self._fd)
            self._synced = covered

    def _failed(self, error: OSError) -> WriteFailedError:
        return WriteFailedError(f"cannot be written: {error.strerror}", path=self.path, errno=error.errno)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._fd)
