"""A directory that is written to, and what every change in it needs: names looked at, removed under a lock, made durable."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from snaprebuild.errors import BusyError, OutcomeUnknownError, WriteFailedError
from snaprebuild.storage.local.file_calls import FileCalls

__all__ = ["Place", "check_names", "opened", "reason_of"]

_NO_DIRECTORY_SYNC = frozenset({errno.EINVAL, errno.EOPNOTSUPP})


@dataclass(frozen=True, slots=True)
class Place:
    """A directory that is open.

    Attributes:
        fd: its descriptor.
        shown: how to speak of it.
        calls: the way to the operating system.
    """

    fd: int
    shown: str
    calls: FileCalls

    def path(self, name: str) -> str:
        """Of a name in it, for messages."""
        return os.path.join(self.shown, name)

    def failed(self, name: str, doing: str, error: OSError) -> WriteFailedError:
        """The error to raise where nothing took effect."""
        return WriteFailedError(f"cannot {doing}: {reason_of(error)}", path=self.path(name), errno=error.errno)

    def unknown(self, name: str, what: str, error: OSError) -> OutcomeUnknownError:
        """The error to raise where something may have."""
        return OutcomeUnknownError(f"{what}: {reason_of(error)}", path=self.path(name), errno=error.errno)

    def busy(self, name: str) -> BusyError:
        """The error to raise where somebody else holds the file."""
        return BusyError("another run writes this file now", path=self.path(name), errno=errno.EAGAIN)

    def leads_to(self, name: str, fd: int) -> bool:
        """Tells whether the name stands for this very open file. Raises OSError where that cannot be told."""
        return self.leads_to_file(name, self.calls.fstat(fd))

    def leads_to_file(self, name: str, status: os.stat_result) -> bool:
        """The same for a file of which only this is known."""
        try:
            return os.path.samestat(self.calls.stat(name, dir_fd=self.fd), status)
        except FileNotFoundError:
            return False

    def exists(self, name: str) -> bool:
        """Tells whether the name is taken. Raises OSError where that cannot be told."""
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
        """Removes a name that no live run holds and that still leads to a file that is meant. Raises OSError."""
        # Write access is what the lock needs, and at the same time the proof that this file is ours to remove.
        fd = self.calls.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self.fd)
        try:
            self.calls.lock(fd)
            # Whoever held the lock a moment ago may have removed this very file, and the name may lead to a newer one. Asked last, because
            # somebody without locks may put another file there while this one is looked at.
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
            # Reading the entry back proves nothing about the device, unless the file system does not know the question at all.
            with contextlib.suppress(OSError):
                if error.errno in _NO_DIRECTORY_SYNC and self.exists(name):
                    return None
            failure = self.unknown(name, f"{risk}: the directory cannot be synced", error)
            failure.__cause__ = error
            return failure
        return None


@contextlib.contextmanager
def opened(directory: int | str | os.PathLike[str], calls: FileCalls) -> Iterator[Place]:
    """Opens a directory, unless it is open already.

    Args:
        directory: path of it, or a descriptor that is open for reading (not O_PATH).
        calls: the system calls.

    Raises:
        WriteFailedError: it cannot be opened.
    """
    if isinstance(directory, int):
        try:
            shown = os.readlink(f"/proc/self/fd/{directory}")
        except OSError:
            shown = f"directory {directory}"
        yield Place(directory, shown, calls)
        return
    path = os.fspath(directory)
    try:
        fd = calls.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise WriteFailedError(f"cannot open the directory: {reason_of(error)}", path=path, errno=error.errno) from error
    place = Place(fd, path, calls)
    try:
        yield place
    finally:
        place.close(fd)


def check_names(*names: str) -> None:
    """Names are made by this program; one that leads out of the directory is a mistake in it.

    Raises:
        ValueError: one does, or two are the same.
    """
    for name in names:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise ValueError(f"not the name of a file in a directory: {name!r}")
    if len(set(names)) != len(names):
        raise ValueError(f"the same name twice: {names[0]!r}")


def reason_of(error: OSError) -> str:
    """What the system says of an error."""
    return error.strerror or str(error) or type(error).__name__
