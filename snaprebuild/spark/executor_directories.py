"""Whether an executor reads the directories that the driver has listed.

A host without the share, or with a disk of its own at the same path, would find all files deleted, or read those of another broker.
A file system must therefore have the same inodes on each host: NFS has, and CIFS with ``serverino``; FUSE may number them anew.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from formats.partition.file_names import META_PROPERTIES
from snaprebuild.errors import StorageError
from snaprebuild.storage.remote.store import TierStore
from snaprebuild.storage.store import ReadStore, absolute, is_object

__all__ = ["DirectoryIdentity", "check_directories", "directories_above", "identities_of", "is_on_machine", "paths_without"]

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


def is_on_machine(store: ReadStore) -> bool:
    """Whether the files of a store have paths on this machine, also those of a directory of remote storage."""
    base = store.base if isinstance(store, TierStore) else store
    return base.is_local


def directories_above(places: Iterable[tuple[ReadStore, str]]) -> list[str]:
    """The directories on this machine that have these partition directories; of one which is a file system of its own, itself."""
    partitions = dict.fromkeys(path for store, path in places if is_on_machine(store))
    return list(dict.fromkeys(path if os.path.ismount(path) else os.path.dirname(path) for path in partitions))


def paths_without(partitions: Iterable[str], paths: Iterable[str]) -> list[str]:
    """The paths on this machine at or below which there is none of these partition directories."""
    ancestors: set[str] = set()
    for each in partitions:
        path = each
        while path not in ancestors:
            ancestors.add(path)
            path = os.path.dirname(path)
    return [path for path in paths if not is_object(path) and absolute(path) not in ancestors]


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
        present = identities_of([path]).get(path)
        if present != identity:
            what = f"the executor on {socket.gethostname()} does not have this directory of the driver"
            remedy = "mount it there at the same path, or run again if it was replaced"
            if present is not None and present.inode != identity.inode:
                what += f", but another one (inode {present.inode}, and not {identity.inode})"
                remedy += "; with FUSE, or CIFS without serverino, inodes differ on each host: use NFS, or s3://"
            raise StorageError(f"{what}: {remedy}", path=path)
