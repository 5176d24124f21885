"""Directories that are written to: names are checked, removed under a lock and synced; directories are made, and locked by a run."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator

import msgspec

from snaprebuild.errors import BusyError, LockUnknownError, OutcomeUnknownError, RefusedError, WriteFailedError
from snaprebuild.storage.local.file_calls import FileCalls
from snaprebuild.storage.local.log_dir_guard import check_outside_log_dirs
from snaprebuild.storage.local.write_advice import with_advice
from snaprebuild.storage.store import Ownership

__all__ = [
    "OpenDirectory",
    "check_names",
    "check_not_held",
    "hold_directory",
    "make_directories",
    "make_directory",
    "missing_directories",
    "opened",
    "reason_of",
    "remove_empty_directories",
    "sync_entries",
]

_NO_DIRECTORY_SYNC = frozenset({errno.EINVAL, errno.EOPNOTSUPP})


class OpenDirectory(msgspec.Struct, frozen=True):
    """A directory that is open.

    Attributes:
        fd: its descriptor.
        shown: its name in messages.
    """

    fd: int
    shown: str
    calls: FileCalls

    def path(self, name: str) -> str:
        """The path of a name in it, for messages."""
        return os.path.join(self.shown, name)

    def failed(self, name: str, doing: str, error: OSError) -> WriteFailedError:
        """The error to raise if nothing took effect."""
        message = with_advice(f"cannot {doing}: {reason_of(error)}", error, self.path(name))
        return WriteFailedError(message, path=self.path(name), errno=error.errno)

    def unknown(self, name: str, what: str, error: OSError) -> OutcomeUnknownError:
        """The error to raise if something may have taken effect."""
        return OutcomeUnknownError(f"{what}: {reason_of(error)}", path=self.path(name), errno=error.errno)

    def busy(self, name: str) -> BusyError:
        """The error to raise if another run holds the file."""
        return BusyError("another run writes this file now", path=self.path(name), errno=errno.EAGAIN)

    def leads_to(self, name: str, fd: int) -> bool:
        """Whether the name leads to this very open file. Raises OSError if that is unknown."""
        return self.leads_to_file(name, self.calls.fstat(fd))

    def leads_to_file(self, name: str, status: os.stat_result) -> bool:
        """Whether the name leads to the file with this status."""
        try:
            return os.path.samestat(self.calls.stat(name, dir_fd=self.fd), status)
        except FileNotFoundError:
            return False

    def is_taken(self, name: str) -> bool:
        """Whether the name is taken.

        Raises:
            WriteFailedError: it cannot be checked.
        """
        try:
            return self._exists(name)
        except OSError as error:
            raise self.failed(name, "check whether the file exists", error) from error

    def _exists(self, name: str) -> bool:
        try:
            self.calls.stat(name, dir_fd=self.fd)
        except FileNotFoundError:
            return False
        return True

    def close(self, fd: int) -> None:
        """Closes a descriptor."""
        with contextlib.suppress(OSError):  # the descriptor is gone all the same, on Linux
            self.calls.close(fd)

    def is_unlinked(self, name: str, is_meant: Callable[[int], bool]) -> bool:
        """Removes a name if it still leads to a file for which ``is_meant`` is true and no live run holds it. Raises OSError."""
        # The lock needs write access, which at the same time proves that this file is ours to remove.
        fd = self.calls.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self.fd)
        try:
            self.calls.lock(fd)
            # The run that held the lock a moment ago may have removed this very file, and the name may lead to a newer one. Checked
            # last, because a program without locks may put another file there meanwhile.
            if not is_meant(fd) or not self.leads_to(name, fd):
                return False
            self.calls.unlink(name, dir_fd=self.fd)
            return True
        finally:
            self.close(fd)

    def sync_failure(self, name: str, risk: str) -> OutcomeUnknownError | None:
        """Makes the directory's entries survive a power failure, or returns the error to raise."""
        try:
            self.calls.fsync(self.fd)
        except OSError as error:
            # Reading the entry back proves nothing about the device, unless the file system does not know the operation at all.
            with contextlib.suppress(OSError):
                if error.errno in _NO_DIRECTORY_SYNC and self._exists(name):
                    return None
            failure = self.unknown(name, f"{risk}: the directory cannot be synced", error)
            failure.__cause__ = error
            return failure
        return None


@contextlib.contextmanager
def opened(directory: int | str | os.PathLike[str], calls: FileCalls, flags: int = 0) -> Iterator[OpenDirectory]:
    """Opens a directory, unless ``directory`` is a descriptor.

    Args:
        directory: path of it, or a descriptor that is open for reading (not O_PATH).
        calls: the system calls.
        flags: further ones for `open`.

    Raises:
        WriteFailedError: it cannot be opened.
    """
    if isinstance(directory, int):
        try:
            shown = os.readlink(f"/proc/self/fd/{directory}")
        except OSError:
            shown = f"directory {directory}"
        yield OpenDirectory(directory, shown, calls)
        return
    path = os.fspath(directory)
    try:
        fd = calls.open(path, os.O_RDONLY | os.O_DIRECTORY | flags)
    except OSError as error:
        message = with_advice(f"cannot open the directory: {reason_of(error)}", error, path)
        raise WriteFailedError(message, path=path, errno=error.errno) from error
    place = OpenDirectory(fd, path, calls)
    try:
        yield place
    finally:
        place.close(fd)


def check_names(*names: str) -> None:
    """Checks names: this program makes them, so a name that leads out of the directory is a programming error.

    Raises:
        ValueError: a name leads out of the directory, or two are the same.
    """
    for name in names:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise ValueError(f"not the name of a file in a directory: {name!r}")
    if len(set(names)) != len(names):
        raise ValueError(f"the same name twice: {names[0]!r}")


def reason_of(error: OSError) -> str:
    """The text of an error of the system."""
    return error.strerror or str(error) or type(error).__name__


def make_directories(directory: str, owner: Ownership | None = None) -> None:
    """Makes the missing directories of a path. Without the syncs a power failure removes a directory with all that was synced in it.

    Args:
        directory: path.
        owner: gets the new directories if this process is root's; None for the process.

    Raises:
        OSError: it cannot be made, or something else has its name.
        RefusedError: it would be in the log directory of a broker, which would not start with it.
    """
    if os.path.isdir(directory):
        return
    directory = os.path.abspath(directory)  # what is checked is what is made: after a link, `..` would lead elsewhere
    check_outside_log_dirs(directory)
    _make_missing(directory, owner)


def _make_missing(directory: str, owner: Ownership | None) -> None:
    if os.path.isdir(directory):
        return
    parent = os.path.dirname(directory)
    _make_missing(parent, owner)
    _make_one(directory, owner)


def make_directory(directory: str) -> None:
    """Makes a directory in one that is there, unless it is there itself. Its name survives a power failure.

    Args:
        directory: path.

    Raises:
        OSError: it cannot be made, or something else has its name; FileNotFoundError if the directory above it is missing.
        RefusedError: it would be in the log directory of a broker, which would not start with it.
    """
    if os.path.isdir(directory):
        return
    directory = os.path.abspath(directory)
    check_outside_log_dirs(directory)
    _make_one(directory, None)


def _make_one(directory: str, owner: Ownership | None) -> None:
    """Makes a directory whose parent is there. Raises OSError."""
    with contextlib.suppress(FileExistsError):  # by another run, or thread
        os.mkdir(directory)
        _give_to(directory, owner)
    if not os.path.isdir(directory):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory)
    parent = os.path.dirname(directory)
    sync_entries(parent)


def missing_directories(directory: str) -> list[str]:
    """The directories that ``make_directories`` would make, the lowest one first."""
    missing = []
    directory = os.path.abspath(directory)
    while not os.path.lexists(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    return missing


def remove_empty_directories(directories: Iterable[str]) -> None:
    """Removes directories that this run made, as far as they are empty.

    Args:
        directories: paths, each before the one above it.
    """
    for directory in directories:
        with contextlib.suppress(OSError):
            os.rmdir(directory)


def _give_to(directory: str, owner: Ownership | None) -> None:
    """Gives a directory that root has just made to another user. It stays root's where the file system does not allow that."""
    if owner is None or os.geteuid() != 0:
        return
    with contextlib.suppress(OSError):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_uid == 0:  # not one that somebody has put in its place
                os.fchown(fd, owner.uid, owner.gid)
        finally:
            os.close(fd)


def sync_entries(directory: str) -> None:
    """Makes the names in a directory survive a power failure.

    Args:
        directory: path.

    Raises:
        OSError: it cannot be synced.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_SYNC:
            raise
    finally:
        os.close(fd)


@contextlib.contextmanager
def hold_directory(directory: str) -> Iterator[None]:
    """Locks a directory, which is made if it is missing. The kernel releases the lock when the process ends, in whatever way.

    ``flock`` is enough: only runs of this machine check it. A directory cannot be opened for writing, which record locks need.

    Args:
        directory: path.

    Raises:
        RefusedError: another run stages into it, or it would be in the log directory of a broker.
        LockUnknownError: the file system offers no locks.
        WriteFailedError: it cannot be made or opened.
    """
    with _locked(directory, fcntl.LOCK_EX, is_made=True):
        yield


def check_not_held(directory: str) -> None:
    """Makes sure that no run holds a directory. Nothing is made or changed.

    A shared lock is taken for a moment, so that two checks at once do not refuse each other.

    Args:
        directory: path of a directory that is there.

    Raises:
        RefusedError, LockUnknownError, WriteFailedError: as ``hold_directory``.
    """
    with _locked(directory, fcntl.LOCK_SH, is_made=False):
        pass


@contextlib.contextmanager
def _locked(directory: str, operation: int, *, is_made: bool) -> Iterator[None]:
    try:
        if is_made:
            make_directories(directory)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        message = with_advice(f"cannot be opened: {error.strerror}", error, directory)
        raise WriteFailedError(message, path=directory, errno=error.errno) from error
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if isinstance(error, BlockingIOError):
            message = "another run stages into this directory: wait until it is done, or name another directory"
            raise RefusedError(message, path=directory) from error
        raise LockUnknownError(f"the file system offers no locks: {error.strerror}", path=directory) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # at once, because a forked process may still share the descriptor
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)
