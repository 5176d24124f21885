"""Whether an executor reads the directories that the driver has listed.

A host without the share, or with a disk of its own at the same path, would find all files deleted, or read those of another broker.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping

from snaprebuild.errors import StorageError

__all__ = ["check_directories", "inodes_of"]


def inodes_of(directories: Iterable[str]) -> dict[str, int]:
    """The inodes of directories on this machine, by path. One that is gone is left out: whoever reads below it reports that."""
    inodes: dict[str, int] = {}
    for path in dict.fromkeys(directories):
        try:
            inodes[path] = os.stat(path).st_ino
        except OSError:
            continue
    return inodes


def check_directories(inodes: Mapping[str, int]) -> None:
    """In a task: makes sure that this machine has the directories of the driver.

    Raises:
        StorageError: a directory is missing, or is another one.
    """
    for path, inode in inodes.items():
        if inodes_of([path]) != {path: inode}:
            host = socket.gethostname()
            remedy = "mount it there at the same path, or run again if it was replaced"
            raise StorageError(f"the executor on {host} does not have this directory of the driver: {remedy}", path=path)
