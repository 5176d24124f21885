"""Whether an executor reads the directories that the driver has listed.

A host without the share, or with a disk of its own at the same path, would find all files deleted, or read those of another broker.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from formats.partition.file_names import META_PROPERTIES
from snaprebuild.errors import StorageError

__all__ = ["DirectoryIdentity", "check_directories", "identities_of"]

META_BYTES_MAX = 1 << 16


class DirectoryIdentity(NamedTuple):
    """Facts that tell a directory from another one with its path.

    Attributes:
        inode: not sufficient alone. The root of each ext4 has inode 2, and the first directory below it 12.
        meta: lines of ``meta.properties`` without comments, which have a date; empty without the file. They name the broker, and since
            Kafka 3.7 the directory.
    """

    inode: int
    meta: tuple[bytes, ...]


def identities_of(directories: Iterable[str]) -> dict[str, DirectoryIdentity]:
    """The identities of directories on this machine, by path. One that is gone is left out: whoever reads below it reports that."""
    identities: dict[str, DirectoryIdentity] = {}
    for path in dict.fromkeys(directories):
        try:
            identities[path] = DirectoryIdentity(os.stat(path).st_ino, _meta_lines(path))
        except OSError:
            continue
    return identities


def _meta_lines(directory: str) -> tuple[bytes, ...]:
    try:
        # Something else than a file, as a pipe, has no end and no lines.
        descriptor = os.open(os.path.join(directory, META_PROPERTIES), os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ()
    try:
        data = os.read(descriptor, META_BYTES_MAX)
    except OSError:
        return ()
    finally:
        os.close(descriptor)
    return tuple(sorted(line for line in data.splitlines() if not line.startswith(b"#")))


def check_directories(identities: Mapping[str, DirectoryIdentity]) -> None:
    """In a task: makes sure that this machine has the directories of the driver.

    Raises:
        StorageError: a directory is missing, or is another one.
    """
    for path, identity in identities.items():
        if identities_of([path]) != {path: identity}:
            host = socket.gethostname()
            remedy = "mount it there at the same path, or run again if it was replaced"
            raise StorageError(f"the executor on {host} does not have this directory of the driver: {remedy}", path=path)
