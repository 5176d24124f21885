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

import errno
import os
from collections.abc import Callable

from snaprebuild.errors import AlreadyExistsError, StorageError
from snaprebuild.storage.file_calls import NO_RENAME_NOREPLACE, OS, FileCalls
from snaprebuild.storage.place import Place, check_names, opened, reason_of
from snaprebuild.storage.temporary_file import (
    Ownership,
    lock_temporary,
    open_temporary,
    read_back,
    remove_leftover,
    remove_own,
    take_ownership,
    write_all,
)

__all__ = ["Ownership", "create_file"]

# What `link` answers where the file system has no hard links (FAT, some FUSE and CIFS mounts), has used up those of this file,
# or the kernel forbids linking to files of other owners (fs.protected_hardlinks).
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


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
    check_names(name, temporary_name)
    with opened(directory, calls) as place:
        remove_leftover(place, temporary_name)
        _refuse_existing(place, name)
        fd = open_temporary(place, temporary_name)
        try:
            lock_temporary(place, temporary_name, fd)
            try:
                take_ownership(place, temporary_name, fd, owner)
                write_all(place, temporary_name, fd, data)
                read_back(place, temporary_name, fd, data)
                if before_name is not None:
                    before_name(_status_of(place, temporary_name, fd))
                is_linked = _give_name(place, temporary_name, name, fd)
            except BaseException as error:
                is_removed = remove_own(place, temporary_name, fd)
                if isinstance(error, StorageError) and not is_removed:
                    error.leftover = temporary_name
                raise
            _finish(place, temporary_name if is_linked else None, name)
        finally:
            # Last, because the lock goes with it. Everything is synced or given up: an error here would tell nothing.
            place.close(fd)


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
