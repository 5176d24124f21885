"""What a task is to read, as rows of a table, and back."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from formats.limits import RANGES_MAX
from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.spark.summary_rows import PIECES_MAX
from snaprebuild.storage.store import FileIdentity

__all__ = ["SCHEMA", "ReadRow", "ranges_of", "rows_of", "table_of"]

_PLAIN = {
    "path": pa.string(),
    "index_path": pa.string(),
    "base_offset": pa.int64(),
    "check_crc": pa.bool_(),
    "is_last": pa.bool_(),
    "cuts": pa.list_(pa.int64()),
    "until": pa.int64(),
    "check_indexes": pa.bool_(),
}
_IDENTITY = {"size_bytes": pa.int64(), "mtime_ns": pa.int64(), "inode": pa.int64(), "etag": pa.string()}

SCHEMA = pa.schema(
    [
        ("slot", pa.int64()),
        ("partition", pa.int32()),
        ("number", pa.int32()),
        ("ranges", pa.int32()),
        *_PLAIN.items(),
        *_IDENTITY.items(),
        ("store", pa.binary()),
    ]
)
"""``slot`` leads to the task (``packing.slots``); then the number of the partition, that of the range and how many its segment has, and
those of ``ReadTask``."""


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
        """To be read, nearly."""
        return self.task.identity.size_bytes // self.ranges


def ranges_of(partition: int, task: ReadTask, target_bytes: int, *, is_counted: bool = False) -> list[ReadRow]:
    """The segment in ranges of at most about ``target_bytes``; without an index, or with very many cuts, it is not split.

    Where requests are counted neither: its ranges ask for more than the whole.
    """
    size = task.identity.size_bytes
    is_whole = task.index_path is None or len(task.cuts) >= PIECES_MAX or is_counted
    ranges = 1 if is_whole else min(max(-(-size // target_bytes), 1), RANGES_MAX)
    return [ReadRow(partition, task, number, ranges) for number in range(ranges)]


def table_of(rows: Sequence[ReadRow], slots: Sequence[int]) -> pa.Table:
    """The rows, each with the slot that it goes to."""
    tasks = [row.task for row in rows]
    columns: dict[str, list[object]] = {"slot": list(slots)}
    columns |= {name: [getattr(row, name) for row in rows] for name in ("partition", "number", "ranges")}
    columns |= {name: [getattr(task, name) for task in tasks] for name in _PLAIN}
    columns |= {name: [getattr(task.identity, name) for task in tasks] for name in _IDENTITY}
    stores = {store: pickle.dumps(store) for store in {task.store for task in tasks}}
    columns["store"] = [stores[task.store] for task in tasks]
    return pa.Table.from_pydict(columns, schema=SCHEMA)


def rows_of(batch: pa.RecordBatch) -> Iterator[ReadRow]:
    """And back."""
    for row in batch.to_pylist():
        identity = FileIdentity(**{name: row[name] for name in _IDENTITY})
        plain = {name: row[name] for name in _PLAIN if name != "cuts"}
        store = pickle.loads(row["store"])  # noqa: S301  settings and nothing else, from our own driver
        task = ReadTask(**plain, cuts=tuple(row["cuts"]), identity=identity, store=store)
        yield ReadRow(row["partition"], task, row["number"], row["ranges"])
