"""A path with the store that holds it: one value for what is read or written there. And the store of each location."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Self

import msgspec
from msgspec.structs import replace

from snaprebuild.errors import ReadFailedError
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.store import (
    USUAL_S3,
    FileIdentity,
    OpenBytes,
    Ownership,
    ReadStore,
    S3Settings,
    Status,
    Store,
    WholeObject,
    is_object,
)

if TYPE_CHECKING:
    from snaprebuild.storage.bucket_contents import Bucket

__all__ = [
    "ReadPath",
    "StorePath",
    "bucket_of",
    "path_of",
    "store_of",
]


class ReadPath(msgspec.Struct, frozen=True):
    """A file or directory that is read; ``str`` gives the path. What each method raises is described at ``ReadStore``.

    Attributes:
        store: that holds it.
        path: an absolute path, or the location of an object.
    """

    store: ReadStore
    path: str

    def __str__(self) -> str:
        return self.path

    def at(self, path: str) -> Self:
        """Another path in the same store."""
        return replace(self, path=path)

    def below(self, name: str) -> Self:
        """The file of this name, or path, below the directory."""
        return self.at(f"{self.path}/{name}")

    def read_small(self, bytes_max: int) -> bytes | None:
        """All bytes of a small regular file; None when it is absent."""
        return self.store.read_small(self.path, bytes_max)

    def read_end(self, count: int) -> tuple[int, bytes] | None:
        """Size of the file, and its last ``count`` bytes; None when it is absent."""
        return self.store.read_end(self.path, count)

    def open(self, identity: FileIdentity | None = None, deadline: float | None = None, *, may_grow: bool = False) -> OpenBytes:
        """The file, to be read in ranges that are checked against ``identity``."""
        return self.store.open_bytes(self.path, identity, deadline, may_grow)

    def identity(self) -> FileIdentity | None:
        """The identity of the file that is there now; None when it is absent."""
        try:
            with self.open(may_grow=True) as source:
                return source.identity
        except ReadFailedError as error:
            if error.errno == errno.ENOENT:
                return None
            raise


class StorePath(ReadPath, frozen=True):
    """A file or directory that is listed and written, too. What each method raises is described at ``Store``."""

    store: Store

    @property
    def is_local(self) -> bool:
        """Whether it is in a file system."""
        return self.store.is_local

    def names(self) -> frozenset[str]:
        """The files directly in the directory; none if it is absent."""
        return self.store.names_in(self.path)

    def present(self, names: Iterable[str]) -> frozenset[str]:
        """The names that exist already in the directory."""
        return self.store.present(self.path, names)

    def list_below(self, name_prefix: str = "") -> Iterator[tuple[str, Status]]:
        """Path below the directory and status of every file there."""
        return self.store.list_below(self.path, name_prefix)

    def prepare_writes(self, largest_bytes: int = 0) -> None:
        """Makes sure that nothing below the directory would ever be replaced."""
        self.store.prepare_writes(self.path, largest_bytes)

    def prepare_replacing(self) -> None:
        """Makes sure that the store honours conditions below the directory."""
        self.store.prepare_replacing(self.path)

    def was_written_since(self, since_ns: int) -> bool:
        """Whether this run made the file, which began at ``since_ns``, ns since 1970."""
        return self.store.wrote(self.path, since_ns)

    def create(
        self, data: bytes, *, owner: Ownership | None, temporary_name: str, before_name: Callable[[int], None] | None = None
    ) -> None:
        """Creates the file, whole or not at all; never replaces one."""
        directory, name = os.path.split(self.path)
        self.store.create(directory, name, data, owner=owner, temporary_name=temporary_name, before_name=before_name)

    def create_large(self, source: OpenBytes) -> None:
        """Creates the file with the bytes of an open one; never replaces one."""
        self.store.create_large(self.path, source)

    def holds(self, source: OpenBytes) -> bool | None:
        """Whether the file has the bytes of an open one; None when it is absent."""
        return self.store.holds(self.path, source)

    def read_whole(self, bytes_max: int) -> WholeObject | None:
        """All bytes of the file with its identity, for ``replace``; None when it is absent."""
        return self.store.read_whole(self.path, bytes_max)

    def replace(self, data: bytes, was: WholeObject) -> None:
        """Replaces the file if it is still the one that was read."""
        self.store.replace(self.path, data, was)


def store_of(location: str, stores: S3Settings = USUAL_S3) -> Store:
    """The store that holds a location."""
    if not is_object(location):
        return LOCAL
    # The SDK takes longer to import than most commands run.
    from snaprebuild.storage.s3.store import S3Store

    return S3Store(stores)


def bucket_of(location: str, stores: S3Settings = USUAL_S3) -> Bucket | None:
    """The bucket of a location; None for a directory."""
    if not is_object(location):
        return None
    from snaprebuild.storage.s3.bucket import S3Bucket

    return S3Bucket(location, stores)


def path_of(location: str, stores: S3Settings = USUAL_S3) -> StorePath:
    """A location with the store that holds it."""
    return StorePath(store_of(location, stores), location)
