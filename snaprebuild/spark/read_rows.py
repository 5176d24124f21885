"""Segments to read, as rows of a table for tasks, and back."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from formats.limits import RANGES_MAX
from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.spark.summary_rows import PIECES_MAX

__all__ = ["SCHEMA", "ReadRow", "ranges_of", "rows_of", "table_of"]

SCHEMA = pa.schema([("slot", pa.int32()), ("row", pa.binary())])
"""``slot`` selects the task (``packing.slots``)."""


@dataclass(frozen=True, slots=True)
class ReadRow:
    """A segment to read, or one of its ranges.

    Attributes:
        partition: number of its partition.
        task: the segment.
        number: of the range, from 0.
        ranges: how many the segment is split into; 1 for the whole.
    """

    partition: int
    task: ReadTask
    number: int = 0
    ranges: int = 1

    @property
    def size_bytes(self) -> int:
        """About how much is read."""
        return self.task.identity.size_bytes // self.ranges


def ranges_of(partition: int, task: ReadTask, target_bytes: int, *, is_counted: bool = False) -> list[ReadRow]:
    """The segment in ranges of at most about ``target_bytes``; without an index, or with very many cuts, it is not split.

    It is also not split if requests are counted, because its ranges request more than the whole. A deadline is a time of the clock
    of this machine.
    """
    size = task.identity.size_bytes
    is_whole = task.index_path is None or len(task.cuts) >= PIECES_MAX or is_counted
    ranges = 1 if is_whole else min(max(-(-size // target_bytes), 1), RANGES_MAX)
    return [ReadRow(partition, replace(task, deadline=None), number, ranges) for number in range(ranges)]


def table_of(rows: Sequence[object], slots: Sequence[int]) -> pa.Table:
    """The rows, each with its slot."""
    return pa.Table.from_pydict({"slot": list(slots), "row": [pickle.dumps(row) for row in rows]}, schema=SCHEMA)


def rows_of(batch: pa.RecordBatch) -> Iterator[Any]:
    """The rows of a batch of ``table_of``."""
    for row in batch.column("row").to_pylist():
        yield pickle.loads(row)  # noqa: S301  made by our own driver
