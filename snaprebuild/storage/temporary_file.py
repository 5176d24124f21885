"""Files under a temporary name: made, locked, written and read back, before `atomic_file` and `replace_file` name them."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass
from typing import Self

from snaprebuild.errors import RefusedError, WriteFailedError
from snaprebuild.storage.file_calls import FileCalls
from snaprebuild.storage.place import Place, reason_of
from snaprebuild.storage.store import Status

__all__ = [
    "Ownership",
    "lock_temporary",
    "open_temporary",
    "read_back",
    "remove_leftover",
    "remove_own",
    "take_ownership",
    "write_all",
]

_READ_BLOCK_BYTES = 1 << 20

# Somebody else may clear the same leftover between two of our calls; a few rounds settle that, more would be an attack.
_LEFTOVER_ROUNDS_MAX = 8

# EINVAL: an owner that this user namespace has no number for.
_OWNER_REFUSED = frozenset({errno.EPERM, errno.EACCES, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS})


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who owns a file and who may use it.

    Attributes:
        uid: user id of the owner.
        gid: group id.
        mode: the nine permission bits.
    """

    uid: int
    gid: int
    mode: int

    @classmethod
    def of(cls, status: Status) -> Self:
        """Takes owner, group and permission bits of a file, usually of the segment that a snapshot belongs to."""
        return cls(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode) & 0o777)

    def __str__(self) -> str:
        return f"owner {self.uid}, group {self.gid}, mode {self.mode:04o}"


def remove_leftover(place: Place, temporary_name: str) -> None:
    """Removes the temporary file of a killed run. One that is locked belongs to a live run, and is not ours to touch."""
    for _ in range(_LEFTOVER_ROUNDS_MAX):
        try:
            if _is_leftover_removed(place, temporary_name):
                return
        except FileNotFoundError:
            return
        except BlockingIOError as error:
            raise place.busy(temporary_name) from error
        except OSError as error:
            raise place.failed(temporary_name, "remove the temporary file of an earlier run", error) from error
    raise WriteFailedError("keeps being replaced by somebody else", path=place.path(temporary_name))


def _is_leftover_removed(place: Place, temporary_name: str) -> bool:
    # Asked before opening: to open a device or a pipe may have effects of its own.
    if not stat.S_ISREG(place.calls.stat(temporary_name, dir_fd=place.fd).st_mode):
        raise WriteFailedError("is not a regular file and is not removed", path=place.path(temporary_name))
    return place.is_unlinked(temporary_name, lambda _fd: True)


def open_temporary(place: Place, temporary_name: str) -> int:
    """Creates it, open for writing, or raises BusyError where another run has it; WriteFailedError else."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        return place.calls.open(temporary_name, flags, 0o644, dir_fd=place.fd)
    except FileExistsError as error:
        raise place.busy(temporary_name) from error
    except OSError as error:
        raise place.failed(temporary_name, "create the temporary file", error) from error


def lock_temporary(place: Place, temporary_name: str, fd: int) -> None:
    """Locks it, so that other runs know that it is in use. Raises BusyError where one took it away, WriteFailedError else."""
    try:
        place.calls.lock(fd)
        is_ours = place.leads_to(temporary_name, fd)
    except BlockingIOError as error:
        # Another run takes it for a leftover, and is about to remove it and to use the name: not ours to remove any more.
        raise place.busy(temporary_name) from error
    except OSError as error:
        failure = place.failed(temporary_name, "lock the temporary file", error)
        if not remove_own(place, temporary_name, fd):
            failure.leftover = temporary_name
        raise failure from error
    if not is_ours:
        raise place.busy(temporary_name)


def remove_own(place: Place, temporary_name: str, fd: int) -> bool:
    """Removes the temporary file as far as it goes. Returns False where it may still be there."""
    try:
        if place.leads_to(temporary_name, fd):
            place.calls.unlink(temporary_name, dir_fd=place.fd)
    except OSError:
        return False
    return True


def take_ownership(place: Place, temporary_name: str, fd: int, owner: Ownership | None) -> None:
    """Gives the file its owner and mode; None leaves them. Raises RefusedError where they cannot be kept."""
    if owner is None:
        return
    calls = place.calls
    try:
        found = Ownership.of(calls.fstat(fd))
        if found != owner:
            _change_owner(place, temporary_name, fd, found, owner)
            # Some network file systems accept another owner and keep their own.
            found = Ownership.of(calls.fstat(fd))
    except OSError as error:
        raise place.failed(temporary_name, f"give the file the segment's {owner}", error) from error
    if found != owner:
        message = f"cannot be given the segment's {owner}: the file system keeps {found}"
        raise RefusedError(message, path=place.path(temporary_name))


def _change_owner(place: Place, temporary_name: str, fd: int, found: Ownership, owner: Ownership) -> None:
    try:
        if (found.uid, found.gid) != (owner.uid, owner.gid):
            place.calls.fchown(fd, owner.uid, owner.gid)
        if found.mode != owner.mode:
            place.calls.fchmod(fd, owner.mode)
    except OSError as error:
        if error.errno not in _OWNER_REFUSED:
            raise
        message = f"cannot be given the segment's {owner}: {reason_of(error)}"
        raise RefusedError(message, path=place.path(temporary_name)) from error


def write_all(place: Place, temporary_name: str, fd: int, data: bytes) -> None:
    """Writes and syncs. Raises WriteFailedError."""
    rest = memoryview(data)
    try:
        while rest:
            taken = place.calls.write(fd, rest)
            if taken <= 0:
                raise OSError(errno.EIO, "the file system takes no bytes")
            rest = rest[taken:]
        place.calls.fsync(fd)
    except OSError as error:
        raise place.failed(temporary_name, f"write {len(data)} bytes", error) from error


def read_back(place: Place, temporary_name: str, fd: int, data: bytes) -> None:
    """Compares what the device has with what was written. Raises WriteFailedError."""
    calls = place.calls
    with contextlib.suppress(OSError):  # a wish only: without it the bytes are compared as the kernel remembers them
        calls.forget_cached(fd)
    try:
        again = calls.open(temporary_name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place.fd)
    except OSError as error:
        raise place.failed(temporary_name, "read back what was written", error) from error
    try:
        if not os.path.samestat(calls.fstat(again), calls.fstat(fd)):
            raise WriteFailedError("was replaced while it was written", path=place.path(temporary_name))
        difference = _first_difference(calls, again, memoryview(data))
    except OSError as error:
        raise place.failed(temporary_name, "read back what was written", error) from error
    finally:
        place.close(again)
    if difference is not None:
        raise WriteFailedError(f"reads back other bytes than were written, from byte {difference}", path=place.path(temporary_name))


def _first_difference(calls: FileCalls, fd: int, data: memoryview) -> int | None:
    position = 0
    # One byte more than is wanted, to meet the end of the file, or what stands behind it.
    while block := calls.read(fd, min(len(data) - position + 1, _READ_BLOCK_BYTES)):
        wanted = data[position : position + len(block)]
        if block != wanted:
            common = zip(block, wanted, strict=False)
            return position + next((i for i, (found, sought) in enumerate(common) if found != sought), len(wanted))
        position += len(block)
    return None if position == len(data) else position
