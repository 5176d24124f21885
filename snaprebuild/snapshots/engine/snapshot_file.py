"""Snapshot files of a partition: read, once more where a broker may be writing them, and as evidence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from formats.errors import FormatError, LimitExceededError
from formats.limits import SNAPSHOT_BYTES_MAX
from formats.partition.producer_snapshot import read_entries
from snaprebuild.errors import ChangedFileError, ReadFailedError
from snaprebuild.replay.difference import impossible_entries
from snaprebuild.storage.local.regular_file import may_be_in_flux
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir

__all__ = ["read_in_flux", "read_snapshot_file", "readable_snapshot"]

Read = TypeVar("Read")


def read_snapshot_file(
    directory: PartitionDir, offset: int, listed: ListedFile | None = None, *, is_broker_running: bool = False
) -> np.ndarray | None:
    """Entries of the snapshot at an offset, or None where there is none.

    Args:
        directory: the listing.
        offset: of the snapshot.
        listed: which one, where several have this offset; None for the first.
        is_broker_running: a broker holds the log directory, and may be writing the snapshot.

    Raises:
        FormatError: it does not parse.
        ReadFailedError: it cannot be read.
        ChangedFileError: a broker is writing it: it was read twice.
    """
    listed = listed or directory.snapshot_at(offset)
    if listed is None:
        return None
    path = directory.file_path(listed.name)
    size_bytes = listed.identity.size_bytes
    if size_bytes > SNAPSHOT_BYTES_MAX:
        raise LimitExceededError("snapshot", file=path, expected=f"at most {SNAPSHOT_BYTES_MAX} bytes", found=size_bytes)
    bytes_max = SNAPSHOT_BYTES_MAX if directory.store.is_local else size_bytes + 1  # a file may have grown since it was listed

    def read() -> np.ndarray | None:
        data = directory.file(listed.name).read_small(bytes_max)
        return None if data is None else read_entries(data, file=path)

    return read_in_flux(read, directory, listed, is_broker_running=is_broker_running)


def read_in_flux(read: Callable[[], Read], directory: PartitionDir, listed: ListedFile, *, is_broker_running: bool) -> Read:
    """Reads a snapshot once more where a broker may have been writing it.

    Raises:
        ChangedFileError: a broker is still writing it.
        FormatError: it does not parse, and no broker is writing it.
    """
    path = directory.file_path(listed.name)
    try:
        return read()
    except FormatError:
        if not directory.store.is_local or not may_be_in_flux(path, listed.identity, is_broker_running=is_broker_running):
            raise
    try:
        return read()
    except FormatError as error:
        raise ChangedFileError("is being written by a broker: run again to have it judged", path=path) from error


def readable_snapshot(directory: PartitionDir, offset: int) -> np.ndarray | None:
    """Entries of the snapshot at an offset, as evidence; None where there is none, it cannot be read, or no broker can have written it."""
    try:
        entries = read_snapshot_file(directory, offset)
    except (FormatError, ReadFailedError, ChangedFileError):
        return None
    if entries is None or impossible_entries(entries, offset) is not None:
        return None
    return entries
