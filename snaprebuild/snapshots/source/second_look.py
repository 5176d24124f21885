"""A second look at a partition whose broker deleted a file of its listing while it was read.

A broker deletes segments, indexes and snapshots all the time. What was listed and is gone is no fault: the partition is listed again, and
its present files are read. A file that only changed is read once more where it is read (``storage.local.regular_file.once_more``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from snaprebuild.errors import GoneFileError
from snaprebuild.snapshots.source.source import PartitionSource, partition_source
from snaprebuild.storage.log_dir import listed_again, read_log_dir
from snaprebuild.storage.partition_dir import PartitionDir

__all__ = ["LISTINGS_MAX", "listed_now", "read_in_rounds", "with_new_listings", "without_files"]

LISTINGS_MAX = 5
"""Listings of a partition, at most, whose files a broker deletes while they are read."""

Result = TypeVar("Result")


def listed_now(partition: PartitionSource) -> PartitionSource:
    """A partition with a new listing: a broker has deleted a file of the old one.

    Raises:
        GoneFileError: it is gone.
        ReadFailedError: it cannot be listed.
    """
    now, state = listed_again(partition.directory), partition.log_dir
    found = partition_source(now, read_log_dir(state.path, state.store), partition.relative)
    return replace(found, is_broker_running=partition.is_broker_running, uploads_under_id_zero=partition.uploads_under_id_zero)


def without_files(partition: PartitionSource) -> PartitionSource:
    """The partition with an empty listing: what is known of one that is gone."""
    listed = partition.directory
    empty = PartitionDir(
        listed.path,
        listed.name,
        listed.device,
        has_partition_metadata=listed.has_partition_metadata,
        inode=listed.inode,
        store=listed.store,
    )
    return replace(partition, directory=empty)


def with_new_listings(look: Callable[[PartitionSource], Result], partition: PartitionSource) -> Result:
    """Calls a function for a partition, and again with a new listing when a file is gone.

    Raises:
        GoneFileError: the partition is gone, or its files were deleted faster than they could be read, ``LISTINGS_MAX`` times.
    """
    for _ in range(LISTINGS_MAX - 1):
        try:
            return look(partition)
        except GoneFileError:
            partition = listed_now(partition)
    return look(partition)


def read_in_rounds(
    places: Iterable[int], read: Callable[[Sequence[int]], Iterable[int]], begin_again: Callable[[int], bool]
) -> None:
    """Reads many partitions. Those whose broker deleted a file are listed and read again, ``LISTINGS_MAX`` times at most.

    Args:
        places: the partitions, by their places in a list of the caller.
        read: reads the partitions of some places, and returns the places of those that lost a file.
        begin_again: lists a partition again. False if there is nothing more to read of it.
    """
    due = list(places)
    for rounds_left in reversed(range(LISTINGS_MAX)):
        lost = read(due)
        due = [place for place in lost if rounds_left and begin_again(place)]
        if not due:
            return
