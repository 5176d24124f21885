"""Directories that are there, and stay so: the name of a new one stands in its parent, which has to be synced as well."""

from __future__ import annotations

import contextlib
import errno
import os

__all__ = ["make_directories", "sync_entries"]


def make_directories(directory: str) -> None:
    """Makes what is missing of a path. Without the syncs a power failure takes a directory away with all that was synced in it.

    Args:
        directory: path.

    Raises:
        OSError: it cannot be made, or something else has its name.
    """
    if os.path.isdir(directory):
        return
    parent = os.path.dirname(os.path.abspath(directory))
    make_directories(parent)
    with contextlib.suppress(FileExistsError):  # by another run, or thread
        os.mkdir(directory)
    if not os.path.isdir(directory):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory)
    sync_entries(parent)


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
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system that does not know the question
            raise
    finally:
        os.close(fd)
