"""Producer snapshots as rows: the data source ``kafka_producer_snapshot``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from formats import limits
from formats.errors import FormatError
from formats.partition.producer_snapshot import read_entries
from snaprebuild.consume.arrow_arrays import numbers, one_row, repeated
from snaprebuild.errors import ReadFailedError, SnaprebuildError
from snaprebuild.spark.selected_files import FileToRead, text_of
from snaprebuild.spark.source_options import SourceOptions

__all__ = ["SCHEMA", "known", "rows_of_snapshot"]

ROWS_MAX = 65_536
"""Rows that are sent at a time: 5 MB with all columns."""

_OF_FILE = {"topic": pa.string(), "partition": pa.int32(), "directory": pa.string(), "snapshot_offset": pa.int64()}

_OF_ENTRY = {
    "producer_id": pa.int64(),
    "epoch": pa.int16(),
    "last_sequence": pa.int32(),
    "last_offset": pa.int64(),
    "offset_delta": pa.int32(),
    "timestamp": pa.int64(),
    "coordinator_epoch": pa.int32(),
    "current_txn_first_offset": pa.int64(),
}

SCHEMA = pa.schema([*_OF_FILE.items(), ("entry_count", pa.int32()), *_OF_ENTRY.items(), ("error", pa.string())])
"""All columns (docs/reference/spark-sql.md). Values are those of the file: -1 where Kafka writes it."""


def known(file: FileToRead) -> dict[str, str | int | None]:
    """The values that all rows of a snapshot share."""
    return {
        "topic": file.topic,
        "partition": file.partition,
        "directory": text_of(file.directory),
        "snapshot_offset": file.offset,
    }


def rows_of_snapshot(file: FileToRead, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """One row for each producer. An empty snapshot, or an unreadable one if faults are reported, has one row without it.

    Raises:
        FormatError: the snapshot is damaged, unless such faults are skipped.
        ReadFailedError: it cannot be read, unless such faults are skipped.
    """
    try:
        entries = _entries(file)
    except (FormatError, SnaprebuildError) as error:
        if not options.skips_faults:
            raise
        if options.reports_faults:
            yield _without_producer(file, options.schema, {"error": text_of(str(error))})
        return
    if not len(entries):
        yield _without_producer(file, options.schema, {"entry_count": 0})
    of_file = {**known(file), "entry_count": len(entries)}
    for start in range(0, len(entries), ROWS_MAX):
        part = entries[start : start + ROWS_MAX]
        arrays = []
        for field in options.schema:
            if field.name in _OF_ENTRY:
                column = part[field.name]
                arrays.append(numbers(column.astype(column.dtype.newbyteorder("="))).cast(field.type))
            else:
                arrays.append(repeated(of_file.get(field.name), field.type, len(part)))
        yield pa.RecordBatch.from_arrays(arrays, schema=options.schema)


def _entries(file: FileToRead) -> np.ndarray:
    data = file.file.read_small(limits.SNAPSHOT_BYTES_MAX)
    if data is None:
        raise ReadFailedError("was deleted since it was listed", path=file.path)
    return read_entries(data, file=file.path)


def _without_producer(file: FileToRead, schema: pa.Schema, values: dict[str, object]) -> pa.RecordBatch:
    return one_row({**known(file), **values}, schema)
