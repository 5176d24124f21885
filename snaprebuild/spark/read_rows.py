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

SCHEMA = pa.schema([("slot", pa.int32()), ("rows", pa.binary())])
"""``slot`` is the number of the task."""

ROWS_TOGETHER = 64
"""Rows in one pickle."""


@dataclass(frozen=True, slots=True)
class ReadRow:
    """A segment to read, or one of its ranges.

    Attributes:
        partition: number of its partition.
        task: the segment.
        number: of the range, from 0.
        ranges: how many the segment is split into; 1 for the whole.
        replayed_by: number of the task that replays the partition; None if it is not known yet.
        job: the pickled job of the partition, which the task sends on before the segment. None for all but the first row of a
            partition. Also None if the driver sends the jobs itself.
    """

    partition: int
    task: ReadTask
    number: int = 0
    ranges: int = 1
    replayed_by: int | None = None
    job: bytes | None = None

    @property
    def size_bytes(self) -> int:
        """About how much is read."""
        return self.task.identity.size_bytes // self.ranges


def ranges_of(partition: int, task: ReadTask, target_bytes: int) -> list[ReadRow]:
    """The segment in ranges of at most about ``target_bytes``; without an index, or with very many cuts, it is not split.

    A deadline is a time of the clock of this machine.
    """
    size = task.identity.size_bytes
    is_whole = task.index_path is None or len(task.cuts) >= PIECES_MAX
    ranges = 1 if is_whole else min(max(-(-size // target_bytes), 1), RANGES_MAX)
    return [ReadRow(partition, replace(task, deadline=None), number, ranges) for number in range(ranges)]


def table_of(rows: Sequence[object], slots: Sequence[int]) -> pa.Table:
    """The rows, each with its slot; those of one slot some together, as their pickles have much in common."""
    by_slot: dict[int, list[object]] = {}
    for row, slot in zip(rows, slots, strict=True):
        by_slot.setdefault(slot, []).append(row)
    some = [(slot, each[at : at + ROWS_TOGETHER]) for slot, each in by_slot.items() for at in range(0, len(each), ROWS_TOGETHER)]
    columns = {"slot": [slot for slot, _ in some], "rows": [pickle.dumps(each) for _, each in some]}
    return pa.Table.from_pydict(columns, schema=SCHEMA)


def rows_of(batch: pa.RecordBatch) -> Iterator[Any]:
    """The rows of a batch of ``table_of``."""
    for rows in batch.column("rows").to_pylist():
        yield from pickle.loads(rows)  # noqa: S301  made by our own driver
