"""Large files that are created where none is, in pieces: the segments of an upload. The port, and the file system behind it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from snaprebuild.errors import ReadFailedError, RefusedError, WriteFailedError
from snaprebuild.storage.local.atomic_file import create_file
from snaprebuild.storage.local.durable_directory import make_directories
from snaprebuild.storage.local.store import LocalStore
from snaprebuild.storage.store import OpenBytes, ReadStore, Store

__all__ = ["PART_BYTES", "LargeObjects", "LocalLargeObjects", "holds_bytes", "large_objects_of", "parts_of", "temporary_name_of"]

PART_BYTES = 16 << 20
"""Of an object is sent in one request, and held: 128 parts for the largest segment, where S3 takes 10,000."""

BLOCK_BYTES = 1 << 20


class LargeObjects(Protocol):
    """Creation of large files, which never replaces one."""

    def prepare_writes(self, directory: str, largest_bytes: int) -> None:
        """As ``Store.prepare_writes``, for files up to a size.

        Raises:
            RefusedError: the store would replace what is there.
            StorageError: it cannot be told.
        """

    def create(self, location: str, source: OpenBytes) -> None:
        """Creates a file with the bytes of an open one. What an earlier run began is gone on with, where the store keeps parts.

        Raises:
            AlreadyExistsError: the name is taken, perhaps by this very run, whose answer was lost: ``holds`` tells.
            BusyError, RefusedError, WriteFailedError, OutcomeUnknownError: as ``Store.create``.
            ReadFailedError: the source cannot be read.
        """

    def holds(self, location: str, source: OpenBytes) -> bool | None:
        """Whether a file has the bytes of an open one; None where there is none.

        Raises:
            ReadFailedError: it cannot be told.
        """


def large_objects_of(store: Store, part_bytes: int = PART_BYTES) -> LargeObjects:
    """The large files of a store."""
    if isinstance(store, LocalStore):
        return LocalLargeObjects(store)
    from snaprebuild.storage.s3.multipart import S3LargeObjects  # the SDK takes longer to import than most commands take

    return S3LargeObjects(store, part_bytes)  # type: ignore[arg-type]


def temporary_name_of(name: str) -> str:
    """Under which a file of a store is written on a file system."""
    return f".{name}.snaprebuild-tmp"


def parts_of(source: OpenBytes, part_bytes: int) -> Iterator[memoryview]:
    """All bytes of an open file, in pieces; each is gone when the next is asked for.

    Raises:
        RefusedError: it became shorter, or changed; this is known before the last piece is followed by the end.
        ReadFailedError: it cannot be read.
    """
    buffer = bytearray(min(part_bytes, source.size_bytes))
    for start in range(0, source.size_bytes, part_bytes):
        part = memoryview(buffer)[: min(part_bytes, source.size_bytes - start)]
        if source.read_into(start, part) != len(part):
            raise RefusedError("became shorter while it was read", path=source.name)
        yield part
    source.check_unchanged()


def holds_bytes(store: ReadStore, location: str, source: OpenBytes) -> bool | None:
    """Whether a file has the bytes of an open one, all of which are read; None where there is none.

    Raises:
        ReadFailedError: it cannot be read.
    """
    try:
        found = store.open_bytes(location)
    except ReadFailedError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    with found:
        if found.size_bytes != source.size_bytes:
            return False
        pairs = zip(parts_of(found, BLOCK_BYTES), parts_of(source, BLOCK_BYTES), strict=True)
        return all(one == other for one, other in pairs)


@dataclass(frozen=True, slots=True)
class LocalLargeObjects:
    """Files; see ``LargeObjects``. One that was begun is begun anew."""

    store: LocalStore

    def prepare_writes(self, directory: str, largest_bytes: int) -> None:
        """See ``LargeObjects.prepare_writes``: a link is never made over a name that is taken."""

    def create(self, location: str, source: OpenBytes) -> None:
        """See ``LargeObjects.create``."""
        directory, name = os.path.split(location)
        try:
            make_directories(directory)
        except OSError as error:
            raise WriteFailedError(f"cannot be created: {error.strerror}", path=directory, errno=error.errno) from error
        temporary_name = temporary_name_of(name)
        create_file(directory, name, lambda: parts_of(source, BLOCK_BYTES), owner=None, temporary_name=temporary_name)

    def holds(self, location: str, source: OpenBytes) -> bool | None:
        """See ``LargeObjects.holds``."""
        return holds_bytes(self.store, location, source)
