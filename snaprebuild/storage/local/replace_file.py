"""A file is replaced, whole or not at all, if it is still the one that was read.

The steps are those of ``atomic_file`` up to the name: a temporary file beside it, locked, with its owner and mode, synced and read back.
Then the old file is looked at once more, and the new one renamed over it. Two runs that replace one file meet at the temporary name, which
each of them locks. A file system has no conditional rename, so that nothing keeps another program from writing between that look and the
rename.
"""

from __future__ import annotations

import errno
import os
import stat

from snaprebuild.errors import OutcomeUnknownError, ReadFailedError, RefusedError
from snaprebuild.storage.local.atomic_file import Ownership, written_temporary
from snaprebuild.storage.local.file_calls import OS, FileCalls
from snaprebuild.storage.local.output_directory import Place, check_names, opened, reason_of
from snaprebuild.storage.local.regular_file import open_regular_file
from snaprebuild.storage.store import FileIdentity

__all__ = ["TEMPORARY_SUFFIX", "read_identified", "replace_file"]

TEMPORARY_SUFFIX = ".snaprebuild-tmp"


def read_identified(path: str, bytes_max: int) -> tuple[bytes, FileIdentity] | None:
    """All bytes of a regular file, and what it was while they were read; None when it is absent.

    Raises:
        ReadFailedError: it cannot be read, is larger than ``bytes_max``, or changed meanwhile.
    """
    try:
        fd, status = open_regular_file(path)
    except ReadFailedError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    try:
        if status.st_size > bytes_max:
            raise ReadFailedError(f"has {status.st_size} bytes, more than the limit of {bytes_max}", path=path)
        parts, size = [], 0
        while size <= bytes_max and (part := os.read(fd, 1 << 20)):
            parts.append(part)
            size += len(part)
        identity = FileIdentity.of(status)
        if size != status.st_size or FileIdentity.of(os.fstat(fd)) != identity:
            raise ReadFailedError("changes while it is read", path=path)
        return b"".join(parts), identity
    except OSError as error:
        raise ReadFailedError(f"cannot be read: {error.strerror}", path=path, errno=error.errno) from error
    finally:
        os.close(fd)


def replace_file(path: str, data: bytes, was: FileIdentity, *, calls: FileCalls = OS) -> None:
    """Replaces a file; once this returns that survives a power failure.

    Args:
        path: of the file; a link is not followed.
        data: all of its new bytes.
        was: what it was when it was read.
        calls: the system calls.

    Raises:
        RefusedError: it is another one, or gone, or its owner cannot be kept.
        BusyError: another run replaces it now.
        WriteFailedError: nothing took effect.
        OutcomeUnknownError: the new one is there, or may be, and something after that failed.
    """
    directory, name = os.path.split(path)
    temporary_name = name + TEMPORARY_SUFFIX
    check_names(name, temporary_name)
    with opened(directory, calls) as place:
        owner = Ownership.of(_still(place, name, was))
        with written_temporary(place, temporary_name, data, owner) as fd:
            _still(place, name, was)
            _rename(place, temporary_name, name, fd)
            if failure := place.sync_failure(name, "was replaced, and may be the old one after a power failure"):
                raise failure


def _still(place: Place, name: str, was: FileIdentity) -> os.stat_result:
    """The status of the file, which must be what it was."""
    try:
        status = place.calls.stat(name, dir_fd=place.fd)
    except FileNotFoundError:
        raise RefusedError("is gone (somebody is at work here): run again", path=place.path(name)) from None
    except OSError as error:
        raise place.failed(name, "look whether it is still what it was", error) from error
    if not stat.S_ISREG(status.st_mode) or FileIdentity.of(status) != was:
        raise RefusedError("changed since it was read (somebody is at work here): run again", path=place.path(name))
    return status


def _rename(place: Place, temporary_name: str, name: str, fd: int) -> None:
    try:
        place.calls.rename(temporary_name, name, dir_fd=place.fd)
    except OSError as error:
        # The reply of a network file system can be lost.
        try:
            if place.leads_to(name, fd):
                return
        except OSError as unseen:
            message = f"may have been replaced (renaming failed with: {reason_of(error)}): {reason_of(unseen)}"
            raise OutcomeUnknownError(message, path=place.path(name), errno=unseen.errno) from error
        raise place.failed(name, "replace the file", error) from error
