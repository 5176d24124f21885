"""A file appears under its name whole or not at all, and an existing name is never replaced.

Kafka writes a snapshot in place and later syncs it (`ProducerStateManager.writeSnapshot`), so a power failure leaves torn files.
Here a file is written under a temporary name, synced, read back and only then given its name. The sequence, and why each step
stands where it does:

1. create the temporary file, readable for everyone: a plain file that the broker may not read keeps the whole log directory
   offline (`LogLoader.removeTempFilesAndCollectSwapFiles`), and a run may be killed after any step;
2. lock it, so that a second run can tell a file in use from one that a killed run left over;
3. owner, then mode (in this order the broker may read it at every moment), before there is a byte in it;
4. write, sync, read back from the device through a second descriptor, compare every byte;
5. link to the real name, which fails where the name is taken, instead of a rename, which replaces;
6. remove the temporary name, sync the directory.

A run that is killed before the link leaves a temporary file, which the next one that writes this name removes. One that is killed behind
the link leaves a whole file under both names; `whole_file.remove_second_name` takes the temporary one away.

The temporary name ``<20 digits>.snapshot.tmp`` is one that no version of Kafka looks at.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from snaprebuild.errors import AlreadyExistsError, RefusedError, StorageError, WriteFailedError
from snaprebuild.storage.local.file_calls import NO_RENAME_NOREPLACE, OS, FileCalls
from snaprebuild.storage.local.output_directory import Place, check_names, opened, reason_of
from snaprebuild.storage.store import Status

__all__ = ["Blocks", "Ownership", "create_file", "written_temporary"]

Blocks = Callable[[], Iterable[bytes | memoryview]]
"""Gives the bytes of a large file, block after block: once to be written, and once more to be compared with what was written."""

_READ_BLOCK_BYTES = 1 << 20

# Somebody else may clear the same leftover between two of our calls; a few rounds settle that, more would be an attack.
_LEFTOVER_ROUNDS_MAX = 8

# What `link` answers where the file system has no hard links (FAT, some FUSE and CIFS mounts), has used up those of this file,
# or the kernel forbids linking to files of other owners (fs.protected_hardlinks).
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
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


def create_file(
    directory: int | str | os.PathLike[str],
    name: str,
    data: bytes | Blocks,
    *,
    owner: Ownership | None,
    temporary_name: str,
    before_name: Callable[[os.stat_result], None] | None = None,
    calls: FileCalls = OS,
) -> None:
    """Creates a file that appears whole or not at all and survives a power failure once this returns.

    Args:
        directory: path of the directory, or a descriptor of it that is open for reading (not O_PATH).
        name: the file's name inside the directory.
        data: all of its bytes, or what gives them.
        owner: owner, group and mode that it must have, those of the segment. None leaves them to the process (0644).
        temporary_name: name to write under, ``<20 digits>.snapshot.tmp``. What a killed run left there is removed.
        before_name: told of the whole file, synced and read back, before it gets its name. What it raises leaves nothing behind.
        calls: the system calls.

    Raises:
        AlreadyExistsError: the name is taken. It was not touched, and its directory entry is made durable, so that a caller who
            finds the right bytes there may rely on them.
        RefusedError: the owner cannot be kept. Not a byte of the data was written.
        BusyError: another run writes the same file now.
        WriteFailedError: nothing took effect.
        OutcomeUnknownError: the file is there or may be there, and something after that failed.
    """
    check_names(name, temporary_name)
    blocks = (lambda: (data,)) if isinstance(data, bytes) else data
    with opened(directory, calls) as place:
        _remove_leftover(place, temporary_name)
        _refuse_existing(place, name)
        fd = _open_temporary(place, temporary_name)
        try:
            _lock_temporary(place, temporary_name, fd)
            try:
                _take_ownership(place, temporary_name, fd, owner)
                _write(place, temporary_name, fd, blocks)
                _read_back(place, temporary_name, fd, blocks)
                if before_name is not None:
                    before_name(_status_of(place, temporary_name, fd))
                is_linked = _give_name(place, temporary_name, name, fd)
            except BaseException as error:
                is_removed = _remove_own(place, temporary_name, fd)
                if isinstance(error, StorageError) and not is_removed:
                    error.leftover = temporary_name
                raise
            _finish(place, temporary_name if is_linked else None, name)
        finally:
            # Last, because the lock goes with it. Everything is synced or given up: an error here would tell nothing.
            place.close(fd)


def _remove_leftover(place: Place, temporary_name: str) -> None:
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


def _refuse_existing(place: Place, name: str) -> None:
    """Spares the writing where the name is taken already; that it is never replaced rests on `_give_name` alone."""
    try:
        if not place.exists(name):
            return
    except OSError as error:
        raise place.failed(name, "look whether the file exists", error) from error
    raise _already_exists(place, name)


def _already_exists(place: Place, name: str) -> StorageError:
    # A killed run may have linked the name and not synced the directory: whoever finds the right bytes here calls it done.
    failure = place.sync_failure(name, "exists and may not survive a power failure")
    return failure or AlreadyExistsError("exists and is not replaced", path=place.path(name), errno=errno.EEXIST, name=name)


def _open_temporary(place: Place, temporary_name: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        return place.calls.open(temporary_name, flags, 0o644, dir_fd=place.fd)
    except FileExistsError as error:
        raise place.busy(temporary_name) from error
    except OSError as error:
        raise place.failed(temporary_name, "create the temporary file", error) from error


def _lock_temporary(place: Place, temporary_name: str, fd: int) -> None:
    try:
        place.calls.lock(fd)
        is_ours = place.leads_to(temporary_name, fd)
    except BlockingIOError as error:
        # Another run takes it for a leftover, and is about to remove it and to use the name: not ours to remove any more.
        raise place.busy(temporary_name) from error
    except OSError as error:
        failure = place.failed(temporary_name, "lock the temporary file", error)
        if not _remove_own(place, temporary_name, fd):
            failure.leftover = temporary_name
        raise failure from error
    if not is_ours:
        raise place.busy(temporary_name)


def _remove_own(place: Place, temporary_name: str, fd: int) -> bool:
    """Removes the temporary file as far as it goes. Returns False where it may still be there."""
    try:
        if place.leads_to(temporary_name, fd):
            place.calls.unlink(temporary_name, dir_fd=place.fd)
    except OSError:
        return False
    return True


def _take_ownership(place: Place, temporary_name: str, fd: int, owner: Ownership | None) -> None:
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


def _write(place: Place, temporary_name: str, fd: int, blocks: Blocks) -> None:
    size = 0
    try:
        for block in blocks():
            rest = memoryview(block)
            size += len(rest)
            while rest:
                taken = place.calls.write(fd, rest)
                if taken <= 0:
                    raise OSError(errno.EIO, "the file system takes no bytes")
                rest = rest[taken:]
        place.calls.fsync(fd)
    except OSError as error:
        raise place.failed(temporary_name, f"write {size} bytes", error) from error


def _read_back(place: Place, temporary_name: str, fd: int, blocks: Blocks) -> None:
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
        difference = _first_difference(calls, again, blocks)
    except OSError as error:
        raise place.failed(temporary_name, "read back what was written", error) from error
    finally:
        with contextlib.suppress(OSError):  # the next reader is a broker that starts: until then others need the memory
            calls.forget_cached(again)
        place.close(again)
    if difference is not None:
        raise WriteFailedError(f"reads back other bytes than were written, from byte {difference}", path=place.path(temporary_name))


def _first_difference(calls: FileCalls, fd: int, blocks: Blocks) -> int | None:
    position = 0
    for block in blocks():
        rest = memoryview(block)
        while rest:
            found = calls.read(fd, min(len(rest), _READ_BLOCK_BYTES))
            wanted = rest[: len(found)]
            if not found or found != wanted:
                common = zip(found, wanted, strict=False)  # a device may answer anything
                return position + next((i for i, (one, other) in enumerate(common) if one != other), len(wanted))
            position += len(found)
            rest = rest[len(found) :]
    return position if calls.read(fd, 1) else None


def _status_of(place: Place, temporary_name: str, fd: int) -> os.stat_result:
    try:
        return place.calls.fstat(fd)
    except OSError as error:
        raise place.failed(temporary_name, "look at what was written", error) from error


def _give_name(place: Place, temporary_name: str, name: str, fd: int) -> bool:
    """Gives the written file its real name. Returns whether it may still have the temporary one too."""
    is_linked = True
    try:
        try:
            place.calls.link(temporary_name, name, dir_fd=place.fd)
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            is_linked = False
            place.calls.rename_noreplace(temporary_name, name, dir_fd=place.fd)
    except OSError as error:
        # An error does not prove that nothing happened: the reply of a network file system can be lost, and the repeated
        # request then finds our own file there.
        if _has_name(place, name, fd, error):
            return True
        if error.errno == errno.EEXIST:
            raise _already_exists(place, name) from error
        doing = "give the file its name"
        if not is_linked and error.errno in NO_RENAME_NOREPLACE:
            doing += " (the file system has neither hard links nor a rename that does not replace)"
        raise place.failed(name, doing, error) from error
    return is_linked


def _has_name(place: Place, name: str, fd: int, cause: OSError) -> bool:
    try:
        return place.leads_to(name, fd)
    except OSError as error:
        raise place.unknown(name, f"may exist (giving the name failed with: {reason_of(cause)})", error) from cause


def _finish(place: Place, temporary_name: str | None, name: str) -> None:
    """Removes the temporary name and makes both changes durable; the file itself is in place already."""
    failure: StorageError | None = None
    is_left = False
    if temporary_name is not None:
        try:
            place.calls.unlink(temporary_name, dir_fd=place.fd)
        except FileNotFoundError:
            pass
        except OSError as error:
            failure = place.unknown(name, "exists, whole, but has its temporary name too", error)
            is_left = True
    failure = place.sync_failure(name, "exists and may not survive a power failure") or failure
    if failure is not None:
        failure.leftover = temporary_name if is_left else None
        raise failure


@contextlib.contextmanager
def written_temporary(place: Place, temporary_name: str, data: bytes, owner: Ownership) -> Iterator[int]:
    """A whole file under a temporary name, locked, synced and read back, for a block that gives it its name; removed where that raises.

    Raises:
        RefusedError, BusyError, WriteFailedError: as ``create_file``.
    """
    _remove_leftover(place, temporary_name)
    fd = _open_temporary(place, temporary_name)
    try:
        _lock_temporary(place, temporary_name, fd)
        try:
            _take_ownership(place, temporary_name, fd, owner)
            _write(place, temporary_name, fd, lambda: (data,))
            _read_back(place, temporary_name, fd, lambda: (data,))
            yield fd
        except BaseException as error:
            is_removed = _remove_own(place, temporary_name, fd)
            if isinstance(error, StorageError) and not is_removed:
                error.leftover = temporary_name
            raise
    finally:
        place.close(fd)
