"""Whole files lose a name or get another one: nothing is replaced, only regular files are touched, no link is followed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from snaprebuild.errors import AlreadyExistsError, WriteFailedError
from snaprebuild.storage.local.directories import OpenDirectory, check_names, opened, reason_of
from snaprebuild.storage.local.file_calls import NO_RENAME_NOREPLACE, OS, FileCalls

__all__ = ["aside_name", "remove_file", "remove_second_name", "set_aside", "sync_directory"]


def remove_second_name(directory: int | str | os.PathLike[str], name: str, temporary_name: str, *, calls: FileCalls = OS) -> bool:
    """Removes the temporary name of a file that also has its real name: a run leaves both if it is killed in between.

    Both names must lead to one regular file that has no third name and that no live run holds. Such a file was synced and read back
    before it was linked. Anything else is left alone.

    Args:
        directory: path of the directory, or a descriptor of it that is open for reading.
        name: the file's name.
        temporary_name: the name under which it was written.
        calls: the system calls.

    Returns:
        Whether there was such a name; it is gone, and the directory synced.

    Raises:
        WriteFailedError: it cannot be removed.
        OutcomeUnknownError: it was removed, and a power failure may bring it back.
    """
    check_names(name, temporary_name)
    with opened(directory, calls) as place:

        def is_second_name(status: os.stat_result) -> bool:
            return stat.S_ISREG(status.st_mode) and status.st_nlink == 2 and place.leads_to_file(name, status)

        try:
            # Checked before opening, so that nothing else is opened; and again after locking, because names may change meanwhile.
            is_there = is_second_name(calls.stat(temporary_name, dir_fd=place.fd))
            if not is_there or not place.is_unlinked(temporary_name, lambda fd: is_second_name(calls.fstat(fd))):
                return False
        except (FileNotFoundError, BlockingIOError):
            return False
        except OSError as error:
            raise place.failed(temporary_name, "remove the temporary name of a whole file", error) from error
        if failure := place.sync_failure(name, "exists, and a power failure may bring its temporary name back"):
            raise failure
    return True


def remove_file(
    directory: int | str | os.PathLike[str], name: str, is_meant: Callable[[int], bool], *, calls: FileCalls = OS
) -> bool:
    """Removes a regular file that no live run holds, if ``is_meant`` is true for it. A link is not followed.

    Args:
        directory: path of the directory, or a descriptor of it that is open for reading.
        name: the file's name inside the directory.
        is_meant: checks the open file; after that, the name is checked to lead to the file still.
        calls: the system calls.

    Returns:
        Whether it was removed; the removal is durable after ``sync_directory``.

    Raises:
        FileNotFoundError: there is no such name.
        BusyError: another run writes the file now.
        WriteFailedError: it cannot be removed, or is no regular file.
        ReadFailedError: from ``is_meant``.
    """
    check_names(name)
    with opened(directory, calls) as place:
        try:
            # Checked before opening: opening a device or a pipe may have effects of its own.
            if not stat.S_ISREG(calls.stat(name, dir_fd=place.fd).st_mode):
                raise WriteFailedError("is no regular file and is not removed", path=place.path(name))
            if not place.is_unlinked(name, is_meant):
                return False
        except FileNotFoundError:
            raise
        except BlockingIOError as error:
            raise place.busy(name) from error
        except OSError as error:
            raise place.failed(name, "remove the file", error) from error
    return True


def sync_directory(directory: int | str | os.PathLike[str], *, calls: FileCalls = OS) -> None:
    """Makes removals from a directory durable: one sync for many files.

    Args:
        directory: path of the directory, or a descriptor of it that is open for reading.
        calls: the system calls.

    Raises:
        OutcomeUnknownError: a power failure may bring files back.
    """
    with opened(directory, calls) as place:
        if failure := place.sync_failure(".", "a power failure may bring back what was removed"):
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
    check_names(name, aside)
    with opened(directory, calls) as place:
        try:
            status = calls.stat(name, dir_fd=place.fd)
        except OSError as error:
            raise place.failed(name, "find the file to set aside", error) from error
        if not stat.S_ISREG(status.st_mode):
            raise WriteFailedError("is not a regular file and is not set aside", path=place.path(name))
        _move(place, name, aside, status)
        if failure := place.sync_failure(aside, "was set aside and may have its old name after a power failure"):
            raise failure


def aside_name(offset: int, number: int = 1) -> str:
    """Names a snapshot that was set aside: ``<20 digits>.snapshot.set-aside.<number>``.

    Kafka 2.7 to 4.x ignores such a file: `ProducerStateManager.listSnapshotFiles` asks for names that end in ``.snapshot``,
    `LogLoader` for ``.deleted``, ``.cleaned``, ``.swap``, ``.log`` and ``.*index``. One exception: if the
    directory has a ``.swap`` segment, 3.0 and later remove every file whose leading number is in the range of that segment.

    Args:
        offset: the offset in the snapshot's name, int64.
        number: from 1, to distinguish several of the same offset.
    """
    if not 0 <= offset < 1 << 63 or number < 1:
        raise ValueError(f"no such snapshot: offset {offset}, number {number}")
    return f"{offset:020d}.snapshot.set-aside.{number}"


def _move(place: OpenDirectory, name: str, aside: str, status: os.stat_result) -> None:
    """Renames without replacing; through a second name if the file system has no such rename."""
    calls = place.calls
    try:
        try:
            calls.rename_noreplace(name, aside, dir_fd=place.fd)
        except OSError as error:
            if error.errno not in NO_RENAME_NOREPLACE:
                raise
            calls.link(name, aside, dir_fd=place.fd)
            # Otherwise a power failure may keep the removal and lose the new name.
            calls.fsync(place.fd)
            calls.unlink(name, dir_fd=place.fd)
    except OSError as error:
        try:
            is_aside = place.leads_to_file(aside, status)
            if is_aside and place.leads_to_file(name, status):
                calls.fsync(place.fd)  # a run that was stopped between link and unlink left both names
                calls.unlink(name, dir_fd=place.fd)
        except OSError as unseen:
            raise place.unknown(name, f"may have been set aside as {aside} ({reason_of(error)})", unseen) from error
        if is_aside:
            return
        if error.errno == errno.EEXIST:
            raise AlreadyExistsError("exists and is not replaced", path=place.path(aside), name=aside) from error
        raise place.failed(name, f"set the file aside as {aside}", error) from error
