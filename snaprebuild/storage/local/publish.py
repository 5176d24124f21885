"""Publishes a file atomically: it appears under its name whole or not at all.

Kafka writes a snapshot in place and syncs it later (`ProducerStateManager.writeSnapshot`), so a power failure leaves torn files.
This module writes a file under a temporary name, syncs it, reads it back, and only then gives it its name. The steps, and the
reason for their order:

1. Create the temporary file, readable for everyone. A plain file that the broker may not read keeps the whole log directory offline
   (`LogLoader.removeTempFilesAndCollectSwapFiles`), and a run may be killed after any step.
2. Lock it, so that a second run can distinguish a file in use from the leftover of a killed run.
3. Set the owner, then the mode, before there is a byte in it. In this order the broker may read it at every moment.
4. Write, sync, read back from the device through a second descriptor, compare every byte.
5. Give it its name. A new file is linked, which fails if the name is taken; a rename would replace. A file that is replaced is
   checked again, and then the new one is renamed over it only if it is unchanged. A file system has no conditional rename, so
   another program can still write between that check and the rename. Another run of this program cannot, because both lock the same
   temporary file.
6. Remove the temporary name, sync the directory.

A run that is killed before the link leaves a temporary file. The next run that writes this name removes it. A run that is killed
after the link leaves a whole file under both names; `whole_file.remove_second_name` removes the temporary one.

No version of Kafka reads files with the temporary name ``<20 digits>.snapshot.tmp``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator

import msgspec

from snaprebuild.errors import AlreadyExistsError, RefusedError, StorageError, WriteFailedError
from snaprebuild.storage.local.directories import OpenDirectory, check_names, opened, reason_of
from snaprebuild.storage.local.file_calls import NO_RENAME_NOREPLACE, OS, FileCalls
from snaprebuild.storage.local.write_advice import advice_on_owner
from snaprebuild.storage.store import FileIdentity, Ownership

__all__ = [
    "TEMPORARY_SUFFIX",
    "Blocks",
    "create_file",
    "left_file",
    "owner_refusal",
    "replace_file",
    "temporary_file",
    "temporary_name_of",
]

Blocks = Callable[[], Iterable[bytes | memoryview]]
"""Yields the bytes of a large file, block by block. Called twice: to write them, and to compare them with the written file."""

TEMPORARY_SUFFIX = ".snaprebuild-tmp"
"""Ending of the temporary name of a file that is replaced, or created outside of log directories."""

_READ_BLOCK_BYTES = 1 << 20

# Another run may remove the same leftover between two of our calls; a few rounds are enough for that, more would be an attack.
_LEFTOVER_ROUNDS_MAX = 8

# Errors of `link`. The file system has no hard links (FAT, some FUSE and CIFS mounts) or allows no more links to this file. Or the
# kernel forbids links to files of other owners (fs.protected_hardlinks).
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
# EINVAL: an owner that this user namespace has no number for.
_OWNER_REFUSED = frozenset({errno.EPERM, errno.EACCES, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS})


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
    """Creates a file. Once this returns, the file survives a power failure.

    Args:
        directory: path of the directory, or a descriptor of it that is open for reading (not O_PATH).
        name: the file's name inside the directory.
        data: all of its bytes, or a function that yields them.
        owner: owner, group and mode that it must have, those of the segment. None leaves them to the process (0644).
        temporary_name: name under which it is written, ``<20 digits>.snapshot.tmp``. A leftover of a killed run there is removed.
        before_name: called with the status of the whole file, synced and read back, before it gets its name. If it raises, nothing
            is left.
        calls: the system calls.

    Raises:
        AlreadyExistsError: the name is taken. The file there was not touched, and its directory entry was made durable. So a caller
            that finds the right bytes there may rely on them.
        RefusedError: the owner cannot be kept. Not a byte of the data was written.
        BusyError: another run writes the same file now.
        WriteFailedError: nothing took effect.
        OutcomeUnknownError: the file exists or may exist, and something after that failed.
    """
    check_names(name, temporary_name)
    blocks = (lambda: (data,)) if isinstance(data, bytes) else data
    with opened(directory, calls) as place:
        _remove_leftover(place, temporary_name)
        _refuse_existing(place, name)
        with temporary_file(place, temporary_name) as temporary:
            temporary.fill(blocks, owner)
            if before_name is not None:
                before_name(temporary.status())
            temporary.link_as(name)


def replace_file(path: str, data: bytes, was: FileIdentity, *, calls: FileCalls = OS) -> None:
    """Replaces a file if it is still the one that was read. Once this returns, the change survives a power failure.

    Args:
        path: of the file; a link is not followed.
        data: all of its new bytes.
        was: its identity when it was read.
        calls: the system calls.

    Raises:
        RefusedError: it is another file, or gone, or its owner cannot be kept.
        BusyError: another run replaces it now.
        WriteFailedError: nothing took effect.
        OutcomeUnknownError: the new file exists or may exist, and something after that failed.
    """
    directory, name = os.path.split(path)
    temporary_name = name + TEMPORARY_SUFFIX
    check_names(name, temporary_name)
    with opened(directory, calls) as place:
        owner = Ownership.of(_unchanged(place, name, was))
        _remove_leftover(place, temporary_name)
        with temporary_file(place, temporary_name) as temporary:
            temporary.fill(lambda: (data,), owner)
            _unchanged(place, name, was)
            temporary.rename_over(name)


def owner_refusal(owner: Ownership, present: Ownership, error: OSError, *, directory: str, path: str) -> RefusedError:
    """The refusal of a file that cannot be given its owner.

    Args:
        owner: that it must have.
        present: that the file system gave to it.
        error: of the system call.
        directory: of the file.
        path: for the message.
    """
    advice = advice_on_owner(owner, present, error, directory)
    return RefusedError(f"cannot be given its {owner}: {reason_of(error)}. {advice}", path=path)


def temporary_name_of(name: str) -> str:
    """The name under which a file of remote storage is written on a file system."""
    return f".{name}{TEMPORARY_SUFFIX}"


@contextlib.contextmanager
def temporary_file(place: OpenDirectory, name: str, mode: int = 0o644, *, is_locked: bool = True) -> Iterator[TemporaryFile]:
    """A new file under a temporary name, for a block that fills it and gives it its name. Removed if the block raises before that.

    Args:
        place: its directory.
        name: its temporary name.
        mode: permission bits.
        is_locked: other runs may use the same temporary name.

    Raises:
        BusyError: another run uses the temporary name now.
        WriteFailedError: it cannot be made.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        fd = place.calls.open(name, flags, mode, dir_fd=place.fd)
    except FileExistsError as error:
        raise place.busy(name) from error
    except OSError as error:
        raise place.failed(name, "create the temporary file", error) from error
    with _until_named(TemporaryFile(place, name, fd), is_locked=is_locked) as temporary:
        yield temporary


@contextlib.contextmanager
def left_file(place: OpenDirectory, name: str) -> Iterator[TemporaryFile]:
    """A file that another process wrote, synced and left under a temporary name, for a block that gives it its name.

    Removed if the block raises before that.

    Args:
        place: its directory.
        name: its temporary name, which no other run uses.

    Raises:
        WriteFailedError: it cannot be opened; with the error number ENOENT it is not there.
    """
    try:
        fd = place.calls.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place.fd)
    except OSError as error:
        raise place.failed(name, "open what was written", error) from error
    with _until_named(TemporaryFile(place, name, fd), is_locked=False) as temporary:
        yield temporary


@contextlib.contextmanager
def _until_named(temporary: TemporaryFile, *, is_locked: bool) -> Iterator[TemporaryFile]:
    """The file for a block. It is removed if the block raises before it has its name, and closed."""
    try:
        if is_locked:
            temporary.lock()
        try:
            yield temporary
        except BaseException as error:
            is_removed = temporary.is_named or temporary.remove()
            if isinstance(error, StorageError) and not is_removed:
                error.leftover = temporary.name
            raise
    finally:
        # Last, because closing ends the lock. Everything is synced or given up: an error here would mean nothing.
        temporary.place.close(temporary.fd)


class TemporaryFile(msgspec.Struct):
    """An open file under a temporary name.

    Attributes:
        is_named: it has its real name, or another outcome was reported.
    """

    place: OpenDirectory
    name: str
    fd: int
    is_named: bool = False

    def lock(self) -> None:
        """Locks it.

        Raises:
            BusyError: another run is removing it as a leftover.
            WriteFailedError: the file system offers no locks; the file is removed.
        """
        try:
            self.place.calls.lock(self.fd)
            is_ours = self.place.leads_to(self.name, self.fd)
        except BlockingIOError as error:
            # Another run is about to remove it as a leftover and to use the name: it is not ours to remove any more.
            raise self.place.busy(self.name) from error
        except OSError as error:
            failure = self._failed("lock the temporary file", error)
            if not self.remove():
                failure.leftover = self.name
            raise failure from error
        if not is_ours:
            raise self.place.busy(self.name)

    def remove(self) -> bool:
        """Removes it as far as possible. Returns False if it may still be there."""
        try:
            if self.place.leads_to(self.name, self.fd):
                self.place.calls.unlink(self.name, dir_fd=self.place.fd)
        except OSError:
            return False
        return True

    def status(self) -> os.stat_result:
        """The current status of the file.

        Raises:
            WriteFailedError: the file system does not answer.
        """
        try:
            return self.place.calls.fstat(self.fd)
        except OSError as error:
            raise self._failed("check what was written", error) from error

    def fill(self, blocks: Blocks, owner: Ownership | None) -> None:
        """Sets owner and mode, writes and syncs all bytes, and compares them with those on the device.

        Raises:
            RefusedError: the owner cannot be kept.
            WriteFailedError: a step failed, or other bytes were read back.
        """
        if owner is not None:
            self._take_ownership(owner)
        self._write(blocks)
        self._read_back(blocks)

    def link_as(self, name: str) -> None:
        """Gives it its name, which must be free, and makes the name durable.

        Raises:
            AlreadyExistsError: the name is taken.
            WriteFailedError: nothing took effect.
            OutcomeUnknownError: the file exists or may exist under its name.
        """
        is_linked = _give_name(self.place, self.name, name, self.fd)
        self.is_named = True
        _finish(self.place, self.name if is_linked else None, name)

    def rename_over(self, name: str) -> None:
        """Gives it its name, replaces the file with that name, and makes the change durable.

        Raises:
            WriteFailedError: nothing took effect.
            OutcomeUnknownError: it is the old file or the new one.
        """
        place = self.place
        try:
            place.calls.rename(self.name, name, dir_fd=place.fd)
        except OSError as error:
            # The reply of a network file system can be lost.
            if not _has_name(place, name, self.fd, error, "may have been replaced (renaming"):
                raise place.failed(name, "replace the file", error) from error
        self.is_named = True
        if failure := place.sync_failure(name, "was replaced, and may be the old one after a power failure"):
            raise failure

    def sync(self) -> None:
        """Makes its bytes durable. Raises OSError."""
        self.place.calls.fsync(self.fd)

    def _failed(self, doing: str, error: OSError) -> WriteFailedError:
        return self.place.failed(self.name, doing, error)

    def _take_ownership(self, owner: Ownership) -> None:
        calls = self.place.calls
        try:
            present = Ownership.of(calls.fstat(self.fd))
            if present != owner:
                self._change_owner(present, owner)
                # Some network file systems accept another owner and keep their own.
                present = Ownership.of(calls.fstat(self.fd))
        except OSError as error:
            raise self._failed(f"give the file its {owner}", error) from error
        if present != owner:
            message = f"cannot be given its {owner}: the file system keeps {present}"
            raise RefusedError(message, path=self.place.path(self.name))

    def _change_owner(self, present: Ownership, owner: Ownership) -> None:
        try:
            if (present.uid, present.gid) != (owner.uid, owner.gid):
                self.place.calls.fchown(self.fd, owner.uid, owner.gid)
            if present.mode != owner.mode:
                self.place.calls.fchmod(self.fd, owner.mode)
        except OSError as error:
            if error.errno not in _OWNER_REFUSED:
                raise
            raise owner_refusal(owner, present, error, directory=self.place.shown, path=self.place.path(self.name)) from error

    def _write(self, blocks: Blocks) -> None:
        size = 0
        try:
            for block in blocks():
                rest = memoryview(block)
                size += len(rest)
                while rest:
                    count = self.place.calls.write(self.fd, rest)
                    if count <= 0:
                        raise OSError(errno.EIO, "the file system takes no bytes")
                    rest = rest[count:]
            self.sync()
        except OSError as error:
            raise self._failed(f"write {size} bytes", error) from error

    def _read_back(self, blocks: Blocks) -> None:
        place = self.place
        calls = self.place.calls
        with contextlib.suppress(OSError):  # optional: without it the bytes are compared with those in the page cache
            calls.forget_cached(self.fd)
        try:
            again = calls.open(self.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place.fd)
        except OSError as error:
            raise self._failed("read back what was written", error) from error
        try:
            if not os.path.samestat(calls.fstat(again), calls.fstat(self.fd)):
                raise WriteFailedError("was replaced while it was written", path=place.path(self.name))
            difference = _first_difference(calls, again, blocks)
        except OSError as error:
            raise self._failed("read back what was written", error) from error
        finally:
            with contextlib.suppress(OSError):  # the next reader is a broker that starts: until then others need the memory
                calls.forget_cached(again)
            place.close(again)
        if difference is not None:
            message = f"reads back other bytes than were written, from byte {difference}"
            raise WriteFailedError(message, path=place.path(self.name))


def _remove_leftover(place: OpenDirectory, temporary_name: str) -> None:
    """Removes the temporary file of a killed run. A locked one belongs to a live run and is not touched."""
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
    raise WriteFailedError("is replaced by another program again and again", path=place.path(temporary_name))


def _is_leftover_removed(place: OpenDirectory, temporary_name: str) -> bool:
    # Checked before opening: opening a device or a pipe may have effects of its own.
    if not stat.S_ISREG(place.calls.stat(temporary_name, dir_fd=place.fd).st_mode):
        raise WriteFailedError("is not a regular file and is not removed", path=place.path(temporary_name))
    return place.is_unlinked(temporary_name, lambda _fd: True)


def _refuse_existing(place: OpenDirectory, name: str) -> None:
    """Saves the work of writing if the name is taken already; only `_give_name` guarantees that the file is never replaced."""
    if place.is_taken(name):
        raise _already_exists(place, name)


def _already_exists(place: OpenDirectory, name: str) -> StorageError:
    # A killed run may have linked the name without syncing the directory. A caller that finds the right bytes considers it done.
    failure = place.sync_failure(name, "exists and may not survive a power failure")
    return failure or AlreadyExistsError("exists and is not replaced", path=place.path(name), errno=errno.EEXIST, name=name)


def _unchanged(place: OpenDirectory, name: str, was: FileIdentity) -> os.stat_result:
    """The status of a file, which must still have its identity.

    Raises:
        RefusedError: it has another identity, or is gone.
    """
    try:
        status = place.calls.stat(name, dir_fd=place.fd)
    except FileNotFoundError:
        raise RefusedError("is gone (another program is writing here): run again", path=place.path(name)) from None
    except OSError as error:
        raise place.failed(name, "check whether it has changed", error) from error
    if not stat.S_ISREG(status.st_mode) or FileIdentity.of(status) != was:
        raise RefusedError("changed since it was read (another program is writing here): run again", path=place.path(name))
    return status


def _first_difference(calls: FileCalls, fd: int, blocks: Blocks) -> int | None:
    position = 0
    for block in blocks():
        rest = memoryview(block)
        while rest:
            data = calls.read(fd, min(len(rest), _READ_BLOCK_BYTES))
            expected = rest[: len(data)]
            if not data or data != expected:
                common = zip(data, expected, strict=False)  # a device may return anything
                return position + next((i for i, (one, other) in enumerate(common) if one != other), len(expected))
            position += len(data)
            rest = rest[len(data) :]
    return position if calls.read(fd, 1) else None


def _give_name(place: OpenDirectory, temporary_name: str, name: str, fd: int) -> bool:
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
        if _has_name(place, name, fd, error, "may exist (giving the name"):
            return True
        if error.errno == errno.EEXIST:
            raise _already_exists(place, name) from error
        doing = "give the file its name"
        if not is_linked and error.errno in NO_RENAME_NOREPLACE:
            doing += " (the file system has neither hard links nor a rename that does not replace)"
        raise place.failed(name, doing, error) from error
    return is_linked


def _has_name(place: OpenDirectory, name: str, fd: int, cause: OSError, risk: str) -> bool:
    """Whether a file has its name although the call failed."""
    try:
        return place.leads_to(name, fd)
    except OSError as error:
        raise place.unknown(name, f"{risk} failed with: {reason_of(cause)})", error) from cause


def _finish(place: OpenDirectory, temporary_name: str | None, name: str) -> None:
    """Removes the temporary name and makes both changes durable; the file already has its name."""
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
