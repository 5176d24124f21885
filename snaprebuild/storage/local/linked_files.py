"""Files that are whole and synced get a second name in another directory: many at once, never over what has the name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from snaprebuild.errors import AlreadyExistsError, StorageError, WriteFailedError
from snaprebuild.storage.local.output_directory import check_names, reason_of

__all__ = ["link_files"]


def link_files(source: str, target: str, names: Iterable[str]) -> Iterator[tuple[str, StorageError | None]]:
    """Gives files of one directory the same names in another one. Nothing is durable before that one is synced.

    Args:
        source: directory of the files; no link is followed to it, or from it.
        target: directory that the names are made in.
        names: of the files.

    Yields:
        Each name, and None where it is there now, else why it is not; one file's misfortune does not stop the others.

    Raises:
        WriteFailedError: one of the directories cannot be opened.
    """
    source_fd = _opened(source)
    try:
        target_fd = _opened(target)
        try:
            for name in names:
                check_names(name)
                yield name, _linked(source_fd, target_fd, name, target)
        finally:
            os.close(target_fd)
    finally:
        os.close(source_fd)


def _linked(source_fd: int, target_fd: int, name: str, target: str) -> StorageError | None:
    try:
        os.link(name, name, src_dir_fd=source_fd, dst_dir_fd=target_fd, follow_symlinks=False)
    except FileExistsError as error:
        if _is_same(source_fd, target_fd, name):
            return None  # of an earlier run, or the reply of a network file system was lost and the request repeated
        return AlreadyExistsError("exists and is not replaced", path=os.path.join(target, name), errno=error.errno, name=name)
    except OSError as error:
        return WriteFailedError(f"cannot be linked: {reason_of(error)}", path=os.path.join(target, name), errno=error.errno)
    return None


def _is_same(source_fd: int, target_fd: int, name: str) -> bool:
    try:
        one, other = (os.stat(name, dir_fd=fd, follow_symlinks=False) for fd in (source_fd, target_fd))
    except OSError:
        return False
    return os.path.samestat(one, other)


def _opened(directory: str) -> int:
    try:
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise WriteFailedError(f"cannot open the directory: {reason_of(error)}", path=directory, errno=error.errno) from error
