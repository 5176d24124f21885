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
the link leaves a whole file under both names; `remove_second_name` takes the temporary one away.

The temporary name ``<20 digits>.snapshot.tmp`` is one that no version of Kafka looks at.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

from snaprebuild.errors import AlreadyExistsError, BusyError, OutcomeUnknownError, RefusedError, StorageError, WriteFailedError
from snaprebuild.storage.file_calls import OS, FileCalls

__all__ = [
    "OS",
    "FileCalls",
    "Ownership",
    "aside_name",
    "create_file",
    "remove_file",
    "remove_second_name",
    "set_aside",
    "sync_directory",
]

_READ_BLOCK_BYTES = 1 << 20

# Somebody else may clear the same leftover between two of our calls; a few rounds settle that, more would be an attack.
_LEFTOVER_ROUNDS_MAX = 8

# What `link` answers where the file system has no hard links (FAT, some FUSE and CIFS mounts), has used up those of this file,
# or the kernel forbids linking to files of other owners (fs.protected_hardlinks).
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_NO_RENAME_NOREPLACE = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})
_NO_DIRECTORY_SYNC = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
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
    def of(cls, status: os.stat_result) -> Self:
        """Takes owner, group and permission bits of a file, usually of the segment that a snapshot belongs to."""
        return cls(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode) & 0o777)

    def __str__(self) -> str:
        return f"owner {self.uid}, group {self.gid}, mode {self.mode:04o}"


@dataclass(frozen=True, slots=True)
class _Place:
    """The directory written to: its descriptor, how to speak of it, and the way to the operating system."""

    fd: int
    shown: str
    calls: FileCalls

    def path(self, name: str) -> str:
        return os.path.join(self.shown, name)

    def failed(self, name: str, doing: str, error: OSError) -> WriteFailedError:
        return WriteFailedError(f"cannot {doing}: {_reason(error)}", path=self.path(name), errno=error.errno)

    def unknown(self, name: str, what: str, error: OSError) -> OutcomeUnknownError:
        return OutcomeUnknownError(f"{what}: {_reason(error)}", path=self.path(name), errno=error.errno)

    def leads_to(self, name: str, fd: int) -> bool:
        """Tells whether the name stands for this very open file. Raises OSError where that cannot be told."""
        return self.leads_to_file(name, self.calls.fstat(fd))

    def leads_to_file(self, name: str, status: os.stat_result) -> bool:
        try:
            return os.path.samestat(self.calls.stat(name, dir_fd=self.fd), status)
        except FileNotFoundError:
            return False

    def exists(self, name: str) -> bool:
        try:
            self.calls.stat(name, dir_fd=self.fd)
        except FileNotFoundError:
            return False
        return True


def create_file(
    directory: int | str | os.PathLike[str],
    name: str,
    data: bytes,
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
        data: all of its bytes.
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
    _check_names(name, temporary_name)
    with _opened(directory, calls) as place:
        _remove_leftover(place, temporary_name)
        _refuse_existing(place, name)
        fd = _open_temporary(place, temporary_name)
        try:
            _lock_temporary(place, temporary_name, fd)
            try:
                _take_ownership(place, temporary_name, fd, owner)
                _write(place, temporary_name, fd, data)
                _read_back(place, temporary_name, fd, data)
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
            _close(place, fd)


def remove_second_name(directory: int | str | os.PathLike[str], name: str, temporary_name: str, *, calls: FileCalls = OS) -> bool:
    """Removes the temporary name of a file that has its real name already, as a run leaves it that is killed in between.

    Only where both names lead to one regular file that has no third name and that no live run holds: such a file was synced and read back
    before it was linked. Anything else is left alone.

    Args:
        directory: path of the directory, or a descriptor of it that is open for reading.
        name: the file's name.
        temporary_name: the name that it was written under.
        calls: the system calls.

    Returns:
        Whether there was such a name; it is gone, and the directory synced.

    Raises:
        WriteFailedError: it cannot be removed.
        OutcomeUnknownError: it was removed, and a power failure may bring it back.
    """
    _check_names(name, temporary_name)
    with _opened(directory, calls) as place:

        def is_second_name(status: os.stat_result) -> bool:
            return stat.S_ISREG(status.st_mode) and status.st_nlink == 2 and place.leads_to_file(name, status)

        try:
            # Asked before opening, so that nothing else is opened; and again behind the lock, because names change until then.
            is_there = is_second_name(calls.stat(temporary_name, dir_fd=place.fd))
            if not is_there or not _is_unlinked(place, temporary_name, lambda fd: is_second_name(calls.fstat(fd))):
                return False
        except (FileNotFoundError, BlockingIOError):
            return False
        except OSError as error:
            raise place.failed(temporary_name, "remove the temporary name of a whole file", error) from error
        if failure := _sync_directory(place, name, "exists, and a power failure may bring its temporary name back"):
            raise failure
    return True


def remove_file(
    directory: int | str | os.PathLike[str], name: str, is_meant: Callable[[int], bool], *, calls: FileCalls = OS
) -> bool:
    """Removes a regular file that no live run holds, if it is the one that is meant. A link is not followed.

    Args:
        directory: path of the directory, or a descriptor of it that is open for reading.
        name: the file's name inside the directory.
        is_meant: looks at the open file; that the name still leads to it is made sure of behind that.
        calls: the system calls.

    Returns:
        Whether it was meant; its name is gone then, for good after ``sync_directory``.

    Raises:
        FileNotFoundError: there is no such name.
        BusyError: another run writes the file now.
        WriteFailedError: it cannot be removed, or is no regular file.
        ReadFailedError: from ``is_meant``.
    """
    _check_names(name)
    with _opened(directory, calls) as place:
        try:
            # Asked before opening: to open a device or a pipe may have effects of its own.
            if not stat.S_ISREG(calls.stat(name, dir_fd=place.fd).st_mode):
                raise WriteFailedError("is no regular file and is not removed", path=place.path(name))
            if not _is_unlinked(place, name, is_meant):
                return False
        except FileNotFoundError:
            raise
        except BlockingIOError as error:
            raise _written_by_another_run(place, name) from error
        except OSError as error:
            raise place.failed(name, "remove the file", error) from error
    return True


def sync_directory(directory: int | str | os.PathLike[str], *, calls: FileCalls = OS) -> None:
    """Makes what was removed from a directory stay away: one sync for many files.

    Args:
        directory: path of the directory, or a descriptor of it that is open for reading.
        calls: the system calls.

    Raises:
        OutcomeUnknownError: a power failure may bring files back.
    """
    with _opened(directory, calls) as place:
        if failure := _sync_directory(place, ".", "a power failure may bring back what was removed"):
            raise failure


def set_aside(directory: int | str | os.PathLike[str], name: str, aside: str, *, calls: FileCalls = OS) -> None:
    """Moves a file to a name that Kafka ignores, without replacing anything.

    Args:
        directory: path of the directory, or a descriptor of it that is open for reading.
        name: the file to move.
        aside: its new name, from `aside_name`.
        calls: the system calls.

    Raises:
        AlreadyExistsError: the new name is taken: try the next number.
        WriteFailedError: nothing took effect.
        OutcomeUnknownError: it was moved, or has both names, and something after that failed.
    """
    _check_names(name, aside)
    with _opened(directory, calls) as place:
        try:
            status = calls.stat(name, dir_fd=place.fd)
        except OSError as error:
            raise place.failed(name, "find the file to set aside", error) from error
        if not stat.S_ISREG(status.st_mode):
            raise WriteFailedError("is not a regular file and is not set aside", path=place.path(name))
        _move(place, name, aside, status)
        if failure := _sync_directory(place, aside, "was set aside and may have its old name after a power failure"):
            raise failure


def aside_name(offset: int, number: int = 1) -> str:
    """Names a snapshot that was set aside: ``<20 digits>.snapshot.set-aside.<number>``.

    Kafka 2.7 to 4.x passes over such a file: `ProducerStateManager.listSnapshotFiles` asks for names that end in ``.snapshot``,
    `LogLoader` for ``.deleted``, ``.cleaned``, ``.swap``, ``.log`` and ``.*index``. One exception: with a ``.swap`` segment in the
    directory, 3.0 and later remove every file whose leading number lies in the range of that segment, whatever follows it.

    Args:
        offset: the offset in the snapshot's name, int64.
        number: from 1, to tell several of the same offset apart.
    """
    if not 0 <= offset < 1 << 63 or number < 1:
        raise ValueError(f"no such snapshot: offset {offset}, number {number}")
    return f"{offset:020d}.snapshot.set-aside.{number}"


def _check_names(*names: str) -> None:
    # Names are made by this program; one that leads out of the directory is a mistake in it.
    for name in names:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise ValueError(f"not the name of a file in a directory: {name!r}")
    if len(set(names)) != len(names):
        raise ValueError(f"the same name twice: {names[0]!r}")


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


@contextlib.contextmanager
def _opened(directory: int | str | os.PathLike[str], calls: FileCalls) -> Iterator[_Place]:
    if isinstance(directory, int):
        try:
            shown = os.readlink(f"/proc/self/fd/{directory}")
        except OSError:
            shown = f"directory {directory}"
        yield _Place(directory, shown, calls)
        return
    path = os.fspath(directory)
    try:
        fd = calls.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise WriteFailedError(f"cannot open the directory: {_reason(error)}", path=path, errno=error.errno) from error
    place = _Place(fd, path, calls)
    try:
        yield place
    finally:
        _close(place, fd)


def _close(place: _Place, fd: int) -> None:
    with contextlib.suppress(OSError):  # the descriptor is gone all the same, on Linux
        place.calls.close(fd)


def _remove_leftover(place: _Place, temporary_name: str) -> None:
    """Removes the temporary file of a killed run. One that is locked belongs to a live run, and is not ours to touch."""
    for _ in range(_LEFTOVER_ROUNDS_MAX):
        try:
            if _is_leftover_removed(place, temporary_name):
                return
        except FileNotFoundError:
            return
        except BlockingIOError as error:
            raise _written_by_another_run(place, temporary_name) from error
        except OSError as error:
            raise place.failed(temporary_name, "remove the temporary file of an earlier run", error) from error
    raise WriteFailedError("keeps being replaced by somebody else", path=place.path(temporary_name))


def _is_leftover_removed(place: _Place, temporary_name: str) -> bool:
    # Asked before opening: to open a device or a pipe may have effects of its own.
    if not stat.S_ISREG(place.calls.stat(temporary_name, dir_fd=place.fd).st_mode):
        raise WriteFailedError("is not a regular file and is not removed", path=place.path(temporary_name))
    return _is_unlinked(place, temporary_name, lambda _fd: True)


def _is_unlinked(place: _Place, temporary_name: str, is_meant: Callable[[int], bool]) -> bool:
    """Removes a temporary name that no live run holds and that still leads to a file that is meant."""
    # Write access is what the lock needs, and at the same time the proof that this file is ours to remove.
    fd = place.calls.open(temporary_name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place.fd)
    try:
        place.calls.lock(fd)
        # Whoever held the lock a moment ago may have removed this very file, and the name may lead to a newer one. Asked last, because
        # somebody without locks may put another file there while this one is looked at.
        if not is_meant(fd) or not place.leads_to(temporary_name, fd):
            return False
        place.calls.unlink(temporary_name, dir_fd=place.fd)
        return True
    finally:
        _close(place, fd)


def _written_by_another_run(place: _Place, temporary_name: str) -> BusyError:
    return BusyError("another run writes this file now", path=place.path(temporary_name), errno=errno.EAGAIN)


def _refuse_existing(place: _Place, name: str) -> None:
    """Spares the writing where the name is taken already; that it is never replaced rests on `_give_name` alone."""
    try:
        if not place.exists(name):
            return
    except OSError as error:
        raise place.failed(name, "look whether the file exists", error) from error
    raise _already_exists(place, name)


def _already_exists(place: _Place, name: str) -> StorageError:
    # A killed run may have linked the name and not synced the directory: whoever finds the right bytes here calls it done.
    failure = _sync_directory(place, name, "exists and may not survive a power failure")
    return failure or AlreadyExistsError("exists and is not replaced", path=place.path(name), errno=errno.EEXIST, name=name)


def _open_temporary(place: _Place, temporary_name: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        return place.calls.open(temporary_name, flags, 0o644, dir_fd=place.fd)
    except FileExistsError as error:
        raise _written_by_another_run(place, temporary_name) from error
    except OSError as error:
        raise place.failed(temporary_name, "create the temporary file", error) from error


def _lock_temporary(place: _Place, temporary_name: str, fd: int) -> None:
    try:
        place.calls.lock(fd)
        is_ours = place.leads_to(temporary_name, fd)
    except BlockingIOError as error:
        # Another run takes it for a leftover, and is about to remove it and to use the name: not ours to remove any more.
        raise _written_by_another_run(place, temporary_name) from error
    except OSError as error:
        failure = place.failed(temporary_name, "lock the temporary file", error)
        if not _remove_own(place, temporary_name, fd):
            failure.leftover = temporary_name
        raise failure from error
    if not is_ours:
        raise _written_by_another_run(place, temporary_name)


def _remove_own(place: _Place, temporary_name: str, fd: int) -> bool:
    """Removes the temporary file as far as it goes. Returns False where it may still be there."""
    try:
        if place.leads_to(temporary_name, fd):
            place.calls.unlink(temporary_name, dir_fd=place.fd)
    except OSError:
        return False
    return True


def _take_ownership(place: _Place, temporary_name: str, fd: int, owner: Ownership | None) -> None:
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


def _change_owner(place: _Place, temporary_name: str, fd: int, found: Ownership, owner: Ownership) -> None:
    try:
        if (found.uid, found.gid) != (owner.uid, owner.gid):
            place.calls.fchown(fd, owner.uid, owner.gid)
        if found.mode != owner.mode:
            place.calls.fchmod(fd, owner.mode)
    except OSError as error:
        if error.errno not in _OWNER_REFUSED:
            raise
        message = f"cannot be given the segment's {owner}: {_reason(error)}"
        raise RefusedError(message, path=place.path(temporary_name)) from error


def _write(place: _Place, temporary_name: str, fd: int, data: bytes) -> None:
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


def _read_back(place: _Place, temporary_name: str, fd: int, data: bytes) -> None:
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
        _close(place, again)
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


def _status_of(place: _Place, temporary_name: str, fd: int) -> os.stat_result:
    try:
        return place.calls.fstat(fd)
    except OSError as error:
        raise place.failed(temporary_name, "look at what was written", error) from error


def _give_name(place: _Place, temporary_name: str, name: str, fd: int) -> bool:
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
        if not is_linked and error.errno in _NO_RENAME_NOREPLACE:
            doing += " (the file system has neither hard links nor a rename that does not replace)"
        raise place.failed(name, doing, error) from error
    return is_linked


def _has_name(place: _Place, name: str, fd: int, cause: OSError) -> bool:
    try:
        return place.leads_to(name, fd)
    except OSError as error:
        raise place.unknown(name, f"may exist (giving the name failed with: {_reason(cause)})", error) from cause


def _finish(place: _Place, temporary_name: str | None, name: str) -> None:
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
    failure = _sync_directory(place, name, "exists and may not survive a power failure") or failure
    if failure is not None:
        failure.leftover = temporary_name if is_left else None
        raise failure


def _sync_directory(place: _Place, name: str, risk: str) -> OutcomeUnknownError | None:
    """Makes the directory's entries survive a power failure, or returns the error to raise."""
    try:
        place.calls.fsync(place.fd)
    except OSError as error:
        # Reading the entry back proves nothing about the device, unless the file system does not know the question at all.
        with contextlib.suppress(OSError):
            if error.errno in _NO_DIRECTORY_SYNC and place.exists(name):
                return None
        failure = place.unknown(name, f"{risk}: the directory cannot be synced", error)
        failure.__cause__ = error
        return failure
    return None


def _move(place: _Place, name: str, aside: str, status: os.stat_result) -> None:
    """Renames without replacing; through a second name where the file system has no such rename."""
    calls = place.calls
    try:
        try:
            calls.rename_noreplace(name, aside, dir_fd=place.fd)
        except OSError as error:
            if error.errno not in _NO_RENAME_NOREPLACE:
                raise
            calls.link(name, aside, dir_fd=place.fd)
            # Else a power failure may keep the removal and lose the new name.
            calls.fsync(place.fd)
            calls.unlink(name, dir_fd=place.fd)
    except OSError as error:
        try:
            is_aside = place.leads_to_file(aside, status)
            if is_aside and place.leads_to_file(name, status):
                calls.fsync(place.fd)  # a run that was stopped between link and unlink left both names
                calls.unlink(name, dir_fd=place.fd)
        except OSError as unseen:
            raise place.unknown(name, f"may have been set aside as {aside} ({_reason(error)})", unseen) from error
        if is_aside:
            return
        if error.errno == errno.EEXIST:
            raise AlreadyExistsError("exists and is not replaced", path=place.path(aside), name=aside) from error
        raise place.failed(name, f"set the file aside as {aside}", error) from error
