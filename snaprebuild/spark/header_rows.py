"""Batch headers as rows: the data source ``kafka_batch_headers``."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from formats.compression import CODECS
from formats.errors import FormatError
from formats.limits import INT64_MAX
from formats.log.batch_headers import HeaderBlock, HeaderReader, Tail, TailKind
from formats.log.control_record import ControlRecordType
from formats.log.record_batch import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    LOG_OVERHEAD_BYTES,
)
from snaprebuild.consume.arrow_arrays import flags, numbers, one_row, repeated, texts
from snaprebuild.errors import SnaprebuildError
from snaprebuild.snapshots.engine.log_facts import ends_at_log_end
from snaprebuild.spark.segment_parts import bounds_of_part, check_end_of_part
from snaprebuild.spark.selected_files import FileToRead, ReadFault, text_of
from snaprebuild.spark.source_options import SourceOptions
from snaprebuild.storage.local.segment_file import check_parts
from snaprebuild.storage.partition_dir import read_positions_hint
from snaprebuild.storage.store import OpenBytes

__all__ = ["ROWS_MIN", "SCHEMA", "known", "ranges", "rows_of_fault", "rows_of_segment"]

ROWS_MIN = 16_384
"""Rows that are sent at a time, at least, unless the segment ends: 2 MB with all columns."""

_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime", "NoTimestampType")
_CODEC_NAMES = (*CODECS, *(f"unknown ({number})" for number in range(len(CODECS), ATTRIBUTE_CODEC + 1)))
_MARKERS = ("ABORT", "COMMIT")
_MARKER_NAMES = texts(_MARKERS)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column that is computed from the headers.

    Attributes:
        kind: its type.
        needs: fields of the header from which it is computed.
        make: computes it from a block.
    """

    kind: pa.DataType
    needs: tuple[str, ...]
    make: Callable[[HeaderBlock], pa.Array]


def _field(name: str, kind: pa.DataType) -> _Column:
    return _Column(kind, (name,), lambda block: numbers(block.column(name)))


def _flag(bit: int) -> _Column:
    return _Column(pa.bool_(), ("attributes",), lambda block: flags(block.column("attributes") & bit != 0))


def _names(names: tuple[str, ...], needs: tuple[str, ...], number: Callable[[HeaderBlock], np.ndarray]) -> _Column:
    words = texts(names)
    return _Column(pa.string(), needs, lambda block: words.take(numbers(number(block))))


def _last_offset(block: HeaderBlock) -> pa.Array:
    return numbers(block.column("base_offset") + block.column("last_offset_delta"))


def _size_bytes(block: HeaderBlock) -> pa.Array:
    return numbers(block.column("length").astype(np.int64) + LOG_OVERHEAD_BYTES)


def _timestamp_type(block: HeaderBlock) -> np.ndarray:
    is_append_time = block.column("attributes") & ATTRIBUTE_LOG_APPEND_TIME != 0
    return np.where(block.column("magic") == 0, 2, is_append_time.astype(np.int8))


def _is_marker(block: HeaderBlock) -> np.ndarray:
    """The control batches with a producer id whose first record is a transaction marker."""
    return np.isin(block.marker_type, (ControlRecordType.ABORT, ControlRecordType.COMMIT))


def _marker_type(block: HeaderBlock) -> pa.Array:
    types, is_none = _of_markers(block, block.marker_type)
    return _MARKER_NAMES.take(numbers(types, is_none))


def _coordinator_epoch(block: HeaderBlock) -> pa.Array:
    return numbers(*_of_markers(block, block.marker_coordinator_epoch))


def _of_markers(block: HeaderBlock, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A value of each marker for all batches, and which batches are none."""
    is_marker = _is_marker(block)
    column = np.zeros(len(block), dtype=values.dtype)
    is_none = np.ones(len(block), dtype=bool)
    column[block.control[is_marker]] = values[is_marker]
    is_none[block.control[is_marker]] = False
    return column, is_none


def _crc_ok(block: HeaderBlock) -> pa.Array:
    is_right = np.ones(len(block), dtype=bool)
    is_right[block.bad_crc] = False
    return flags(is_right)


_OF_FILE = {"topic": pa.string(), "partition": pa.int32(), "directory": pa.string(), "segment_base_offset": pa.int64()}

_OF_BATCH = {
    "position_bytes": _Column(pa.int64(), (), lambda block: numbers(block.position_bytes)),
    "size_bytes": _Column(pa.int64(), ("length",), _size_bytes),
    "base_offset": _field("base_offset", pa.int64()),
    "last_offset": _Column(pa.int64(), ("base_offset", "last_offset_delta"), _last_offset),
    "last_offset_delta": _field("last_offset_delta", pa.int32()),
    "record_count": _field("record_count", pa.int32()),
    "partition_leader_epoch": _field("partition_leader_epoch", pa.int32()),
    "magic": _field("magic", pa.int8()),
    "crc": _field("crc", pa.int64()),
    "crc_ok": _Column(pa.bool_(), (), _crc_ok),
    "attributes": _field("attributes", pa.int16()),
    "codec": _names(_CODEC_NAMES, ("attributes",), lambda block: block.column("attributes") & ATTRIBUTE_CODEC),
    "timestamp_type": _names(_TIMESTAMP_TYPES, ("attributes", "magic"), _timestamp_type),
    "is_transactional": _flag(ATTRIBUTE_TRANSACTIONAL),
    "is_control": _flag(ATTRIBUTE_CONTROL),
    "base_timestamp": _field("base_timestamp", pa.int64()),
    "max_timestamp": _field("max_timestamp", pa.int64()),
    "producer_id": _field("producer_id", pa.int64()),
    "producer_epoch": _field("producer_epoch", pa.int16()),
    "base_sequence": _field("base_sequence", pa.int32()),
    "marker_type": _Column(pa.string(), (), _marker_type),
    "coordinator_epoch": _Column(pa.int32(), (), _coordinator_epoch),
}

_OF_MARKERS = {"marker_type", "coordinator_epoch"}

_READ_BY_NEIGHBOUR = Tail(TailKind.CLEAN, 0)
"""The tail of a part that does not begin with a batch."""

SCHEMA = pa.schema([*_OF_FILE.items(), *((name, column.kind) for name, column in _OF_BATCH.items()), ("error", pa.string())])
"""All columns (docs/reference/spark-sql.md). Values are those of the log: -1 where Kafka writes it."""


def known(file: FileToRead) -> dict[str, str | int | None]:
    """The values that all rows of a segment share."""
    return {
        "topic": file.topic,
        "partition": file.partition,
        "directory": text_of(file.directory),
        "segment_base_offset": file.offset,
    }


def ranges(file: FileToRead) -> dict[str, tuple[int, int]]:
    """Bounds of the offsets of a segment."""
    bounds = (file.offset, INT64_MAX if file.next_offset is None else file.next_offset - 1)
    return {"base_offset": bounds, "last_offset": bounds}


def rows_of_segment(file: FileToRead, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """One row for each batch with an offset of the selection, and one for the damage that ends the segment early, if requested.

    Raises:
        FormatError: the segment is damaged, unless such faults are skipped.
        ReadFailedError: it cannot be read, unless such faults are skipped.
    """
    try:
        tail = yield from _batches(file, options)
        if tail.error is None:
            return
        if not options.skips_faults:
            raise tail.error
        position = tail.position_bytes
        error = str(tail.error)
    except (FormatError, SnaprebuildError) as fault:
        if not options.skips_faults:
            raise
        position = None
        error = str(fault)
    if options.reports_faults:
        yield _row(options.schema, {**known(file), "position_bytes": position, "error": error})


def rows_of_fault(fault: ReadFault, schema: pa.Schema) -> pa.RecordBatch:
    """The row about a file that is not read."""
    return _row(schema, {"directory": text_of(fault.path), "error": f"{fault.path}: {fault.message}"})


def _row(schema: pa.Schema, values: dict[str, object]) -> pa.RecordBatch:
    row = {name: text_of(value) if isinstance(value, str) else value for name, value in values.items()}
    return one_row(row, schema)


def _opened(file: FileToRead) -> OpenBytes:
    return file.file.open(file.identity, may_grow=file.next_offset is None)


def _hint(file: FileToRead, source: OpenBytes) -> np.ndarray | None:
    """The index as a hint; None for an object, because its request costs more than the hint saves."""
    index = file.index
    return None if index is None or not file.store.is_local else read_positions_hint(index, source.size_bytes)


def _batches(file: FileToRead, options: SourceOptions) -> Generator[pa.RecordBatch, None, Tail]:
    """The rows of whole batches, of a segment or a part of it. Returns how the segment ends, as far as the part shows it.

    A torn end of a log that a broker cuts off is clean.
    """
    names = options.schema.names
    selection = options.selection
    is_narrowed = selection.offset_from is not None or selection.offset_to is not None
    fields = {field for name in names if name in _OF_BATCH for field in _OF_BATCH[name].needs}
    check_crc = options.check_crc and "crc_ok" in names
    with _opened(file) as source:
        start = 0
        end = None
        if file.joints:
            assert file.identity is not None
            check_parts(file.path, file.identity, source.identity)
            bounds = bounds_of_part(source, file.joints, file.part)
            if bounds is None:
                return _READ_BY_NEIGHBOUR
            start, end = bounds
        reader = HeaderReader(
            source,
            check_crc=check_crc,
            hint=_hint(file, source),
            start_bytes=start,
            end_bytes=end,
            block_rows=ROWS_MIN,
            columns=tuple(sorted(fields | {"base_offset", "last_offset_delta"} if is_narrowed else fields)),
            read_markers=not _OF_MARKERS.isdisjoint(names),
        )
        for block in reader:
            rows = _record_batch(block, file, options.schema, check_crc=check_crc)
            if is_narrowed:
                base = block.column("base_offset")
                is_selected = np.ones(len(block), dtype=bool)
                if selection.offset_from is not None:
                    is_selected &= base + block.column("last_offset_delta") >= selection.offset_from
                if selection.offset_to is not None:
                    is_selected &= base <= selection.offset_to
                rows = rows.filter(flags(is_selected))
            if len(rows):
                yield rows
        assert reader.tail is not None
        check_end_of_part(reader.tail, end, file.path)
        is_torn = file.next_offset is None and reader.tail.kind in (TailKind.TORN, TailKind.ZERO_FILLED)
        if is_torn and ends_at_log_end(source, file.offset, file.index):
            return Tail(TailKind.CLEAN, reader.tail.position_bytes)
        return reader.tail


def _record_batch(block: HeaderBlock, file: FileToRead, schema: pa.Schema, *, check_crc: bool) -> pa.RecordBatch:
    of_file = known(file)
    arrays = []
    for field in schema:
        if field.name == "error" or (field.name == "crc_ok" and not check_crc):
            arrays.append(pa.nulls(len(block), field.type))
        elif field.name in of_file:
            arrays.append(repeated(of_file[field.name], field.type, len(block)))
        else:
            arrays.append(_OF_BATCH[field.name].make(block).cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
