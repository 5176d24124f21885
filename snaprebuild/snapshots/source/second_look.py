"""A second look at a directory whose broker or controller deleted a file of its listing while it was read.

Brokers delete segments, indexes, snapshots and checkpoints all the time. What was listed and is gone is no fault (``findings.is_gone``).
The directory is listed again, and its present files are read. Whatever lists before it reads does that with a function of this module.
A file that only changed is read once more where it is read (``storage.local.regular_file.once_more``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from snaprebuild.errors import GoneFileError, ReadFailedError
from snaprebuild.findings import is_gone
from snaprebuild.snapshots.source.source import PartitionSource, partition_source
from snaprebuild.storage.log_dir import listed_again, read_log_dir
from snaprebuild.storage.partition_dir import PartitionDir

__all__ = [
    "LISTINGS_MAX",
    "listed_now",
    "listings_of",
    "read_in_rounds",
    "with_fresh_listings",
    "with_new_listings",
    "without_files",
]

LISTINGS_MAX = 5
"""Listings of a directory, at most, whose files are deleted while they are read."""

Result = TypeVar("Result")


def listed_now(partition: PartitionSource) -> PartitionSource:
    """A partition with a new listing: a broker has deleted a file of the old one.

    Raises:
        GoneFileError: it is gone.
        ReadFailedError: it cannot be listed.
    """
    now = listed_again(partition.directory)
    state = partition.log_dir
    present = partition_source(now, read_log_dir(state.place), partition.relative)
    return replace(present, is_broker_running=partition.is_broker_running, uploads_under_id_zero=partition.uploads_under_id_zero)


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


def listings_of(partition: PartitionSource, count_max: int = LISTINGS_MAX) -> Iterator[PartitionSource]:
    """The partition as it was listed, and then with a new listing each time that another one is asked for.

    Args:
        partition: with its first listing.
        count_max: listings at most, the first one included.

    Raises:
        GoneFileError: it is gone.
        ReadFailedError: it cannot be listed.
    """
    yield partition
    for _ in range(count_max - 1):
        partition = listed_now(partition)
        yield partition


def with_fresh_listings(look: Callable[[bool], Result]) -> Result:
    """Calls a function that lists and reads. It is called again while a file is gone since its listing, ``LISTINGS_MAX`` times at most.

    Args:
        look: gets whether this is the last time.

    Raises:
        GoneFileError, ReadFailedError: of the last time.
    """
    for _ in range(LISTINGS_MAX - 1):
        try:
            return look(False)
        except (GoneFileError, ReadFailedError) as error:
            if not is_gone(error):
                raise
    return look(True)


def with_new_listings(look: Callable[[PartitionSource], Result], partition: PartitionSource) -> Result:
    """Calls a function for a partition, and again with a new listing when a file is gone.

    Raises:
        GoneFileError: the partition is gone, or its files were deleted faster than they could be read, ``LISTINGS_MAX`` times.
    """
    lost: GoneFileError | None = None
    for listed in listings_of(partition):
        try:
            return look(listed)
        except GoneFileError as error:
            lost = error
    assert lost is not None
    raise lost


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
