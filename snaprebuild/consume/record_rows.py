"""Reads the first records of partitions, one partition after the other, as rows to show."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from snaprebuild.consume.partition_read import PartitionReader
from snaprebuild.consume.partition_result import PartitionReading, ReadPartition, reader_of
from snaprebuild.consume.record_query import RecordIsolation, RecordQuery
from snaprebuild.consume.record_source import RecordSource
from snaprebuild.findings import Finding, Severity

__all__ = ["ROW_BYTES_MAX", "RecordRow", "read_rows", "row_columns"]

ROW_BYTES_MAX = 64 << 20
"""Bytes of keys and values of all rows that are shown."""

ROW_COLUMNS = ("offset", "timestamp", "timestampType", "key", "value")


class RecordRow(msgspec.Struct, frozen=True):
    """A record that is shown.

    Attributes:
        topic_partition: ``<topic>-<partition>``.
        offset: of the record.
        timestamp_ms: ms since 1970; None for none.
        is_append_time: the timestamp is that of the broker.
        key_bytes: None for a null key.
        value_bytes: None for a null value.
        transaction: ``none``, ``committed``, ``aborted`` or ``open``; None if outcomes were not asked for.
        key: None if it is null or was not asked for.
        value: None if it is null or was not asked for.
    """

    topic_partition: str
    offset: int
    timestamp_ms: int | None
    is_append_time: bool
    key_bytes: int | None
    value_bytes: int | None
    transaction: str | None
    key: bytes | None
    value: bytes | None


def row_columns(isolation: RecordIsolation) -> tuple[str, ...]:
    """The columns that ``read_rows`` needs."""
    return ROW_COLUMNS if isolation is RecordIsolation.READ_COMMITTED else (*ROW_COLUMNS, "transaction")


def read_rows(
    source: RecordSource, query: RecordQuery, findings: list[Finding], *, limit: int, with_keys: bool, with_values: bool
) -> tuple[list[ReadPartition], list[RecordRow]]:
    """Reads the first records of a source, partition after partition.

    Args:
        source: what is read.
        query: with the columns of ``row_columns``.
        findings: filled with those of the partitions.
        limit: rows at most.
        with_keys: keys are kept.
        with_values: values are kept.
    """
    rows: list[RecordRow] = []
    partitions: list[ReadPartition] = []
    held_bytes = 0
    for log in source.logs:
        reader = reader_of(log, query, findings)
        if reader is None:
            continue
        first = len(rows)
        is_whole = True
        reading = PartitionReading(reader, findings)
        with contextlib.closing(reading.batches()) as batches:
            for batch in batches:
                for row in _rows_of(log.topic_partition, batch, with_keys=with_keys, with_values=with_values):
                    if len(rows) >= limit or held_bytes > ROW_BYTES_MAX:
                        is_whole = False
                        break
                    rows.append(row)
                    held_bytes += len(row.key or b"") + len(row.value or b"")
                if not is_whole:
                    break
        partitions.append(_read_partition(reader, rows[first:], is_whole=is_whole and not reading.lacks_records))
        findings += reader.findings
        if held_bytes > ROW_BYTES_MAX:
            message = f"keys and values of {len(rows)} records have more than {ROW_BYTES_MAX >> 20} MiB: no more records are shown"
            findings.append(Finding("over-limit", Severity.FINDING, log.place, message))
            break
        if not is_whole:
            break
    return partitions, rows


def _read_partition(reader: PartitionReader, rows: Sequence[RecordRow], *, is_whole: bool) -> ReadPartition:
    return ReadPartition(
        range=reader.range(),
        is_whole=is_whole,
        records=len(rows),
        first_offset=rows[0].offset if rows else None,
        last_offset=rows[-1].offset if rows else None,
    )


def _rows_of(topic_partition: str, batch: pa.RecordBatch, *, with_keys: bool, with_values: bool) -> Iterator[RecordRow]:
    count = len(batch)
    nothing: Sequence[None] = [None] * count
    names = batch.schema.names
    columns = (
        batch.column("offset").to_pylist(),
        batch.column("timestamp").cast(pa.int64()).to_pylist(),
        batch.column("timestampType").to_pylist(),
        pc.binary_length(batch.column("key")).to_pylist(),
        pc.binary_length(batch.column("value")).to_pylist(),
        batch.column("transaction").to_pylist() if "transaction" in names else nothing,
        batch.column("key").to_pylist() if with_keys else nothing,
        batch.column("value").to_pylist() if with_values else nothing,
    )
    for offset, timestamp_us, timestamp_type, key_bytes, value_bytes, transaction, key, value in zip(*columns, strict=True):
        timestamp_ms = None if timestamp_us is None else timestamp_us // 1000
        yield RecordRow(topic_partition, offset, timestamp_ms, timestamp_type == 1, key_bytes, value_bytes, transaction, key, value)
