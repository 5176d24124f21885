"""What tasks found, brought to the driver some of it at a time: where every snapshot is wrong, a partition may have a megabyte to tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import DataFrame, Row

__all__ = ["taken"]

PARTITIONS_AT_ONCE = 500


def taken(found: DataFrame, numbers: Sequence[int]) -> Iterator[Row]:
    """The rows of a frame that has one for each partition.

    Args:
        found: with the column ``partition``; carried out once, unless an executor is lost that holds some of it.
        numbers: of the partitions, ascending.
    """
    if len(numbers) <= PARTITIONS_AT_ONCE:
        yield from found.collect()
        return
    held = found.persist()
    try:
        for start in range(0, len(numbers), PARTITIONS_AT_ONCE):
            some = numbers[start : start + PARTITIONS_AT_ONCE]
            yield from held.where(held["partition"].between(some[0], some[-1])).collect()
    finally:
        held.unpersist()
