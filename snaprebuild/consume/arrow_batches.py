"""Records as batches of Arrow: the columns of Spark's Kafka source, and more on request.

What a column has where a record has no such value, or one that the type cannot hold:

* ``timestamp`` is null for a record without one (-1), and where microseconds do not fit into an int64 (beyond the year 294,000).
* ``headers`` is null for a record without headers, as in Spark's Kafka source.
* ``key`` of a header that is not UTF-8 has U+FFFD where Kafka's consumer has it: Java decodes it so.
* ``schema_id`` is null unless the value begins with a byte 0 and four bytes more.
* ``error`` is null for a record. A row for damage has only it, and where the damage is.
* ``leader_epoch``, ``producer_id``, ``producer_epoch`` and ``sequence`` are those of the log: -1 for none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from formats.limits import INT64_MAX
from formats.log.batch_headers import HeaderBlock
from formats.log.record_batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from formats.log.record_groups import RecordGroup
from snaprebuild.consume.arrow_arrays import flags, numbers, repeated, texts

__all__ = [
    "COLUMN_TYPES",
    "DEFAULT_COLUMNS",
    "HEADER_TYPE",
    "TRANSACTION_STATES",
    "arrow_batch",
    "decoded_header_key",
    "record_schema",
]

HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])

COLUMN_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(HEADER_TYPE),
    "leader_epoch": pa.int32(),
    "producer_id": pa.int64(),
    "producer_epoch": pa.int16(),
    "sequence": pa.int32(),
    "transactional": pa.bool_(),
    "transaction": pa.string(),
    "control": pa.bool_(),
    "segment_base_offset": pa.int64(),
    "position_bytes": pa.int64(),
    "source": pa.string(),
    "schema_id": pa.int32(),
    "error": pa.string(),
}
"""All columns. ``timestampType`` is 0 for CreateTime, 1 for LogAppendTime, -1 for none. ``position_bytes`` is that of the batch in its
segment. ``schema_id`` is that of a value in the format of Confluent's registry."""

DEFAULT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""The columns of Spark's Kafka source."""

TRANSACTION_STATES = ("none", "committed", "aborted", "open")
"""Values of ``transaction``."""


def record_schema(columns: Sequence[str] = DEFAULT_COLUMNS) -> pa.Schema:
    """The schema of batches with these columns.

    Raises:
        KeyError: there is no such column.
    """
    return pa.schema([(name, COLUMN_TYPES[name]) for name in columns])


def arrow_batch(
    group: RecordGroup,
    block: HeaderBlock,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    *,
    topic: str,
    partition: int,
    segment_base_offset: int | None = None,
    source: str | None = None,
    transaction: np.ndarray | None = None,
) -> pa.RecordBatch:
    """The records of a group as a batch of Arrow, which shares no memory with it.

    Args:
        group: the records.
        block: the headers of their batches, of which ``group.batch`` has the rows.
        columns: names of ``COLUMN_TYPES``, in the order wanted.
        topic: of all records.
        partition: of all records.
        segment_base_offset: of the segment of the group; null if None.
        source: log directory or id of the copy; null if None.
        transaction: integers (rows of the block,), positions in ``TRANSACTION_STATES``; null if None.

    Raises:
        KeyError: there is no such column.
    """
    schema = record_schema(columns)
    same = {"topic": topic, "partition": partition, "segment_base_offset": segment_base_offset, "source": source}
    arrays = []
    for name in columns:
        if name in same:
            arrays.append(repeated(same[name], COLUMN_TYPES[name], len(group)))
        elif name == "error":
            arrays.append(pa.nulls(len(group), pa.string()))
        elif name == "transaction":
            arrays.append(_transaction(group, transaction))
        elif name in _OF_BATCH:
            arrays.append(_of_batch(name, block, group))
        else:
            arrays.append(_OF_RECORD[name](group))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_OF_BATCH = {"leader_epoch": "partition_leader_epoch", "producer_id": "producer_id", "producer_epoch": "producer_epoch"}
_OF_BATCH |= {"transactional": "attributes", "control": "attributes", "position_bytes": ""}
_FLAGS = {"transactional": ATTRIBUTE_TRANSACTIONAL, "control": ATTRIBUTE_CONTROL}


def _of_batch(name: str, block: HeaderBlock, group: RecordGroup) -> pa.Array:
    if name == "position_bytes":
        return numbers(block.position_bytes[group.batch])
    column = block.column(_OF_BATCH[name])[group.batch]
    return flags(column & _FLAGS[name] != 0) if name in _FLAGS else numbers(column)


_STATES = texts(TRANSACTION_STATES)


def _transaction(group: RecordGroup, states: np.ndarray | None) -> pa.Array:
    if states is None:
        return pa.nulls(len(group), pa.string())
    return _STATES.take(numbers(states[group.batch]))


def _bytes(data: pa.Buffer, start: np.ndarray, size: np.ndarray) -> pa.Array:
    """Copies of ranges, null where the size is negative."""
    count = len(start)
    if not count:
        return pa.nulls(0, pa.binary())
    bounds = np.empty((count, 2), dtype=np.int32)
    bounds[:, 0] = start
    np.add(start, np.maximum(size, 0), out=bounds[:, 1], casting="unsafe")
    # Every second value is the range; those between are what is from the end of one to the start of the next, and are not used.
    ranges = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), data])
    rows = numbers(np.arange(0, 2 * count, 2, dtype=np.int32), size < 0)
    return pc.take(ranges, rows, boundscheck=False)


def _key(group: RecordGroup) -> pa.Array:
    return _bytes(pa.py_buffer(group.data), group.key_start, group.key_size)


def _value(group: RecordGroup) -> pa.Array:
    return _bytes(pa.py_buffer(group.data), group.value_start, group.value_size)


_MS_MAX = INT64_MAX // 1000


def _timestamp(group: RecordGroup) -> pa.Array:
    ms = group.timestamp
    is_null = (ms == -1) | (ms > _MS_MAX) | (ms < -_MS_MAX)
    return numbers(np.where(is_null, 0, ms) * 1000, is_null, COLUMN_TYPES["timestamp"])


def _headers(group: RecordGroup) -> pa.Array:
    data = pa.py_buffer(group.data)
    keys = _header_keys(_bytes(data, group.header_key_start, group.header_key_size))
    values = _bytes(data, group.header_value_start, group.header_value_size)
    bounds = np.zeros(len(group) + 1, dtype=np.int32)
    np.cumsum(group.header_count, out=bounds[1:])
    headers = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE))
    return pa.ListArray.from_arrays(numbers(bounds), headers, type=COLUMN_TYPES["headers"], mask=flags(group.header_count == 0))


def _header_keys(keys: pa.Array) -> pa.Array:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return texts([decoded_header_key(each) for each in keys.to_pylist()])


_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def decoded_header_key(key: bytes) -> str:
    """The key of a header as Kafka's consumer has it (``Utils.utf8``): Java puts one U+FFFD for malformed bytes.

    Python does so too, except for what would be a surrogate: there Java has one for all its bytes.
    """
    return _SURROGATE.sub(b"\xef\xbf\xbd", key).decode(errors="replace")


def _schema_id(group: RecordGroup) -> pa.Array:
    start = group.value_start
    has_id = group.value_size >= _SCHEMA_ID_BYTES
    has_id &= group.data[np.where(has_id, start, 0)] == 0 if len(group.data) else False
    ids = np.zeros(len(group), dtype=np.int32)
    places = start[has_id][:, np.newaxis] + np.arange(1, _SCHEMA_ID_BYTES)
    ids[has_id] = group.data[places].view(">i4")[:, 0]
    return numbers(ids, ~has_id)


_SCHEMA_ID_BYTES = 5

_OF_RECORD = {
    "key": _key,
    "value": _value,
    "offset": lambda group: numbers(group.offset),
    "timestamp": _timestamp,
    "timestampType": lambda group: numbers(group.timestamp_type.astype(np.int32)),
    "headers": _headers,
    "sequence": lambda group: numbers(group.sequence),
    "schema_id": _schema_id,
}
