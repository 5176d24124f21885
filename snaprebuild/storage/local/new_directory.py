"""The directory of a partition appears under its name whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Mapping

from snaprebuild.errors import AlreadyExistsError, RefusedError
from snaprebuild.storage.local.directories import OpenDirectory, check_names, opened
from snaprebuild.storage.local.file_calls import NO_RENAME_NOREPLACE, OS, FileCalls
from snaprebuild.storage.local.publish import create_file
from snaprebuild.storage.local.write_advice import advice_on_owner
from snaprebuild.storage.local.write_checks import check_new_files, check_owner
from snaprebuild.storage.store import Ownership

__all__ = ["check_partition_directory", "create_partition_directory", "remove_partition_directory"]

NAME_LENGTH_MAX = 255


def check_partition_directory(log_dir: str, owner: Ownership) -> None:
    """Makes sure, as far as possible before, that the directory of a partition can be created. Changes nothing.

    Args:
        log_dir: its parent.
        owner: of directory and files.

    Raises:
        RefusedError: the owner cannot be kept.
        WriteFailedError: nothing can be created there.
    """
    check_new_files(log_dir)
    check_owner(log_dir, owner)


def create_partition_directory(
    log_dir: str,
    name: str,
    files: Mapping[str, bytes],
    owner: Ownership | None,
    *,
    announce: Callable[[dict[str, int]], None] | None = None,
    calls: FileCalls = OS,
) -> None:
    """Creates the directory of a partition with its files.

    Until it is whole it has the name that a broker gives to directories which it deletes (``<name>.<32 hex>-delete``). Any other
    name would keep a broker from starting. The next start of a broker removes what a killed run leaves.

    Args:
        log_dir: its parent; the caller holds its lock.
        name: ``<topic>-<partition>``.
        files: by name.
        owner: of directory and files, with the mode of the files; None leaves them to the process.
        announce: called with the modification time of each file in ns, before the directory gets its name; if it raises, nothing is left.
        calls: the system calls.

    Raises:
        AlreadyExistsError: the name is taken.
        RefusedError: the owner cannot be kept.
        WriteFailedError: nothing took effect.
        OutcomeUnknownError: the directory was created, and may not survive a power failure.
    """
    temporary = _deleted_name(name)
    check_names(name, temporary)
    with opened(log_dir, calls) as place:
        if place.is_taken(name):  # saves the work; only the rename guarantees that nothing is replaced
            raise AlreadyExistsError("exists and is not replaced", path=place.path(name), errno=errno.EEXIST, name=name)
        path = os.path.join(log_dir, temporary)
        try:
            os.mkdir(temporary, 0o755, dir_fd=place.fd)
        except OSError as error:
            raise place.failed(temporary, "create the directory", error) from error
        try:
            if owner is not None:
                _take_directory(path, owner)
            for each, data in files.items():
                create_file(path, each, data, owner=owner, temporary_name=f"{each}.tmp", calls=calls)
            if announce is not None:
                announce({each: os.lstat(os.path.join(path, each)).st_mtime_ns for each in files})
            _give_name(place, temporary, name)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)  # it is gone already if it has its real name
            raise
        if failure := place.sync_failure(name, "exists and may not survive a power failure"):
            raise failure


def remove_partition_directory(log_dir: str, name: str, *, calls: FileCalls = OS) -> None:
    """Removes the directory of a partition with its files: first under the name that a broker gives to directories which it deletes.

    Args:
        log_dir: its parent; the caller holds its lock.
        name: ``<topic>-<partition>``.
        calls: the system calls.

    Raises:
        WriteFailedError: it cannot be renamed, and is as it was.
        OutcomeUnknownError: it has the other name, and may have the old one again after a power failure; or files of it are left.
    """
    temporary = _deleted_name(name)
    check_names(name, temporary)
    with opened(log_dir, calls) as place:
        try:
            calls.rename_noreplace(name, temporary, dir_fd=place.fd)
        except OSError as error:
            raise place.failed(name, "rename the directory", error) from error
        if failure := place.sync_failure(name, "was renamed, and may have its name again after a power failure"):
            raise failure
        try:
            shutil.rmtree(os.path.join(log_dir, temporary))
        except OSError as error:
            raise place.unknown(temporary, "files of it are left, which the next start of a broker removes", error) from error


def _deleted_name(name: str) -> str:
    """A name of a directory that a broker deletes."""
    mark = f".{secrets.token_hex(16)}-delete"
    return name[: NAME_LENGTH_MAX - len(mark)] + mark


def _take_directory(path: str, owner: Ownership) -> None:
    first = Ownership.of(os.stat(path))
    try:
        os.chown(path, owner.uid, owner.gid)
        os.chmod(path, owner.mode | (owner.mode & 0o444) >> 2)  # a user that may read files may search the directory
    except OSError as error:
        advice = advice_on_owner(owner, first, error, os.path.dirname(path))
        raise RefusedError(f"cannot be given its {owner}: {error.strerror}. {advice}", path=path) from error


def _give_name(place: OpenDirectory, temporary: str, name: str) -> None:
    status: os.stat_result | None = None
    try:
        status = place.calls.stat(temporary, dir_fd=place.fd)
        place.calls.rename_noreplace(temporary, name, dir_fd=place.fd)
    except OSError as error:
        # An error does not prove that nothing happened: the reply of a network file system can be lost.
        with contextlib.suppress(OSError):
            if status is not None and place.leads_to_file(name, status):
                return
        if error.errno == errno.EEXIST:
            message = "appeared meanwhile and is not replaced"
            raise AlreadyExistsError(message, path=place.path(name), errno=error.errno, name=name) from error
        doing = "give the directory its name"
        if error.errno in NO_RENAME_NOREPLACE:
            doing += " (the file system has no rename that does not replace)"
        raise place.failed(name, doing, error) from error
