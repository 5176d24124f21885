"""What a task is to read, as rows of a table, and back."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa

from snaprebuild.operations.schedule import ReadTask
from snaprebuild.storage.store import FileIdentity, Store

__all__ = ["SCHEMA", "table_of", "tasks_of"]

_PLAIN = {
    "path": pa.string(),
    "index_path": pa.string(),
    "base_offset": pa.int64(),
    "check_crc": pa.bool_(),
    "is_last": pa.bool_(),
    "cuts": pa.list_(pa.int64()),
}
_IDENTITY = {"size_bytes": pa.int64(), "mtime_ns": pa.int64(), "inode": pa.int64(), "etag": pa.string()}

SCHEMA = pa.schema([("slot", pa.int64()), ("partition", pa.int32()), *_PLAIN.items(), *_IDENTITY.items(), ("store", pa.binary())])
"""``slot`` leads to the task (``packing.slots``); the others are the number of the partition and those of ``ReadTask``."""


def table_of(rows: list[tuple[int, int, ReadTask]]) -> pa.Table:
    """Slot, number of the partition, and what is to be read."""
    columns: dict[str, list[object]] = {"slot": [slot for slot, _, _ in rows], "partition": [number for _, number, _ in rows]}
    columns |= {name: [getattr(task, name) for _, _, task in rows] for name in _PLAIN}
    columns |= {name: [getattr(task.identity, name) for _, _, task in rows] for name in _IDENTITY}
    stores: dict[Store, bytes] = {}
    for _, _, task in rows:
        if task.store not in stores:
            stores[task.store] = pickle.dumps(task.store)
    columns["store"] = [stores[task.store] for _, _, task in rows]
    return pa.Table.from_pydict(columns, schema=SCHEMA)


def tasks_of(batch: pa.RecordBatch) -> Iterator[tuple[int, ReadTask]]:
    """Number of the partition, and what is to be read."""
    for row in batch.to_pylist():
        identity = FileIdentity(**{name: row[name] for name in _IDENTITY})
        plain = {name: row[name] for name in _PLAIN if name != "cuts"}
        store = pickle.loads(row["store"])  # noqa: S301  settings and nothing else, from our own driver
        yield row["partition"], ReadTask(**plain, cuts=tuple(row["cuts"]), identity=identity, store=store)
