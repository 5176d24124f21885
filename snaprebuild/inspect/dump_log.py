"""The batches and records of a segment or a KRaft checkpoint, in blocks, and what is wrong with their order, checksums or bytes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from formats import limits
from formats.compression import CODECS
from formats.errors import BadValueError, FormatError, LimitExceededError
from formats.limits import INT32_MAX
from formats.log.batch_headers import HEADER_COLUMNS, HeaderBlock, HeaderReader, Tail, TailKind, row_dtype, usual_markers
from formats.log.control_record import ControlRecord, ControlRecordType, EndTransactionMarker, parse_control_record
from formats.log.record_batch import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_DELETE_HORIZON,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    LOG_OVERHEAD_BYTES,
    RECORD_BATCH_HEADER,
    BatchHeader,
    Record,
)
from formats.log.record_columns import RecordColumns
from formats.log.records import LogRecord, read_record_columns, read_records
from formats.partition.file_names import DumpedKind
from snaprebuild.findings import Severity
from snaprebuild.inspect.dump_items import ROWS_MAX, Dump, DumpRequest, ItemForm, Items, Words
from snaprebuild.inspect.record_decoders import DecodedRecord, RecordDecoder
from snaprebuild.storage.local.pipe_reader import piped
from snaprebuild.storage.store import OpenBytes

__all__ = ["log_items"]

HELD_BYTES_MAX = 4 << 20
"""Keys, values and headers that are in memory before their records are yielded together."""

DECODED_TOGETHER_BYTES_MAX = 256 << 10
"""Keys, values and headers that are decoded together: their texts take up to some thirty times as much memory."""

HELD_BYTES_OF_A_HEADER = 100
"""Memory of a header without key and value."""


def log_items(dump: Dump, request: DumpRequest) -> Iterator[Items]:
    """The batches of the file, each before those of its records that were requested."""
    order = _Order(dump)
    # Records are read from another handle: reading ahead of an object works only for a handle that goes forward.
    with dump.opened() as source, dump.opened() as again:
        dump.size_bytes = source.size_bytes  # a broker may have appended
        reader = HeaderReader(source, check_crc=True, read_markers=False)
        for block in reader:
            order.add(block)
            _find_bad_checksums(dump, block)
            yield from _block_items(dump, request, again, block)
        dump.tail = reader.tail
    assert dump.tail is not None
    _find_tail(dump, dump.tail)


class _Order:
    """Checks over the blocks of a file that each batch begins after the end of the one before it, and finds gaps between offsets."""

    def __init__(self, dump: Dump) -> None:
        self._dump = dump
        self._is_first = True
        is_segment = dump.kind is DumpedKind.LOG and dump.offset is not None
        self._last_offset = (dump.offset or 0) - 1 if is_segment else -1

    def add(self, block: HeaderBlock) -> None:
        base = block.column("base_offset")
        last = base + block.column("last_offset_delta")
        before = np.concatenate((np.array([self._last_offset]), last[:-1]))
        begins_late = base > before
        wrong = np.flatnonzero(~begins_late | (last < base))
        if len(wrong):
            row = int(wrong[0])
            expected = f"a last offset of {base[row]} or more" if begins_late[row] else f"more than {before[row]}"
            self._add("disordered-offsets", Severity.DAMAGED, block, wrong, expected, last[row] if begins_late[row] else base[row])
        # The header of a compressed message of magic 0 or 1 does not show how many offsets are inside.
        is_wrapper = (block.column("magic") < 2) & (block.column("attributes") & ATTRIBUTE_CODEC != 0)
        gaps = np.flatnonzero((base - 1 > before) & ~is_wrapper)
        if self._is_first:
            gaps = gaps[gaps > 0]
        if len(gaps):
            row = int(gaps[0])
            self._add("offset-gaps", Severity.NOTE, block, gaps, int(before[row]) + 1, base[row])
        self._is_first = False
        self._last_offset = int(last[-1])

    def _add(self, code: str, severity: Severity, block: HeaderBlock, rows: np.ndarray, expected: object, found: np.int64) -> None:
        position = int(block.position_bytes[rows[0]])
        offset = int(block.column("base_offset")[rows[0]])
        error = BadValueError("offset of a batch", position=position, expected=expected, found=int(found))
        self._dump.add_finding(code, severity, error, offset, count=len(rows))


def _find_bad_checksums(dump: Dump, block: HeaderBlock) -> None:
    if len(block.bad_crc):
        row = int(block.bad_crc[0])
        found = f"{int(block.column('crc')[row]):#010x}"
        error = BadValueError(
            "checksum of a batch", position=int(block.position_bytes[row]), expected="that of its bytes", found=found
        )
        dump.add_finding("bad-checksum", Severity.DAMAGED, error, int(block.column("base_offset")[row]), count=len(block.bad_crc))


def _find_tail(dump: Dump, tail: Tail) -> None:
    if tail.error is None:
        return
    if tail.kind is TailKind.ZERO_FILLED:
        dump.preallocated_bytes = dump.size_bytes - tail.position_bytes
        dump.add_finding("zero-filled-tail", Severity.NOTE, tail.error)
    elif tail.kind is TailKind.TORN:
        dump.add_finding("torn-tail", Severity.DAMAGED, tail.error)
    else:
        dump.add_finding("damaged-segment", Severity.DAMAGED, tail.error)


def _block_items(dump: Dump, request: DumpRequest, source: OpenBytes, block: HeaderBlock) -> Iterator[Items]:
    base = block.column("base_offset")
    last = base + block.column("last_offset_delta")
    selected_rows = np.flatnonzero((last >= request.offset_from) & (base <= request.offset_to))
    is_legacy = block.column("magic")[selected_rows] < 2
    starts = {*range(0, len(selected_rows), ROWS_MAX), *(np.flatnonzero(is_legacy[1:] != is_legacy[:-1]) + 1).tolist()}
    for start, stop in itertools.pairwise([*sorted(starts), len(selected_rows)]):
        yield from _batch_items(dump, request, source, block, selected_rows[start:stop])


def _batch_items(dump: Dump, request: DumpRequest, source: OpenBytes, block: HeaderBlock, rows: np.ndarray) -> Iterator[Items]:
    """Some batches of one form of a block, each before its records."""
    is_legacy = int(block.column("magic")[rows[0]]) < 2
    form, names = (ItemForm.LEGACY_BATCH, _LEGACY_FIELDS) if is_legacy else (ItemForm.BATCH, _BATCH_FIELDS)
    columns = _batch_columns(block, rows)
    columns = {name: columns[name] for name in names}
    is_control = block.column("attributes")[rows] & ATTRIBUTE_CONTROL != 0
    markers = None if request.deep or is_legacy else _usual_markers(request, source, block, rows[is_control])
    is_open = request.deep | is_control
    headers = zip(*(block.column(name)[rows[is_open]].tolist() for name in HEADER_COLUMNS), strict=True)
    start = 0
    for row, header in zip(np.flatnonzero(is_open).tolist(), headers, strict=True):
        yield Items(form, columns, start, row + 1)
        number = None if markers is None else markers.numbers.get(int(rows[row]))
        if markers is not None and number is not None:
            yield Items(ItemForm.CONTROL_RECORD, markers.columns, number, number + 1)
        else:
            yield from _record_items(dump, request, source, BatchHeader(*header), int(columns["position"][row]))
        start = row + 1
    if start < len(rows):
        yield Items(form, columns, start, len(rows))


_LEGACY_FIELDS = ("offset", "position", "timestamp_type", "timestamp", "size", "magic", "codec", "crc", "is_valid")
_BATCH_FIELDS = (
    *("base_offset", "last_offset", "record_count", "base_sequence", "last_sequence", "producer_id", "producer_epoch"),
    *("partition_leader_epoch", "is_transactional", "is_control", "delete_horizon_ms"),
    *_LEGACY_FIELDS[1:],
)
_CODEC_NAMES = (*CODECS, *(f"unknown ({number})" for number in range(len(CODECS), ATTRIBUTE_CODEC + 1)))


def _batch_columns(block: HeaderBlock, rows: np.ndarray) -> dict[str, Any]:
    """The fields of both forms of batches."""
    header = {name: block.column(name)[rows] for name in HEADER_COLUMNS}
    attributes = header["attributes"]
    sequence = header["base_sequence"]
    delta = header["last_offset_delta"]
    last_offset = header["base_offset"] + delta
    horizon: list[int | None] = [None] * len(rows)
    for row in np.flatnonzero(attributes & ATTRIBUTE_DELETE_HORIZON != 0).tolist():
        horizon[row] = int(header["base_timestamp"][row])
    timestamp_type = (attributes & ATTRIBUTE_LOG_APPEND_TIME != 0) + 2 * (header["magic"] == 0)
    return {
        **{name: header[name] for name in _SAME_FIELDS},
        "last_offset": last_offset,
        "offset": last_offset,
        "last_sequence": np.where(sequence == -1, -1, _incremented(sequence, delta)),
        "is_transactional": _true_where(attributes & ATTRIBUTE_TRANSACTIONAL != 0),
        "is_control": _true_where(attributes & ATTRIBUTE_CONTROL != 0),
        "delete_horizon_ms": horizon,
        "position": block.position_bytes[rows],
        "timestamp_type": Words(_TIMESTAMP_TYPES, timestamp_type),
        "timestamp": header["max_timestamp"],
        "size": header["length"] + LOG_OVERHEAD_BYTES,
        "codec": Words(_CODEC_NAMES, attributes & ATTRIBUTE_CODEC),
        "is_valid": _true_where(~np.isin(rows, block.bad_crc)),
    }


def _true_where(is_so: np.ndarray) -> Words:
    return Words(("false", "true"), is_so.astype(np.uint8))


def _incremented(sequence: np.ndarray, increment: np.ndarray) -> np.ndarray:
    """``DefaultRecordBatch.incrementSequence``, which gives an int32 even for an impossible increment."""
    increment = increment.astype(np.int32)
    wraps = sequence > INT32_MAX - increment
    following: np.ndarray = np.where(wraps, increment - (INT32_MAX - sequence) - 1, sequence + increment)
    return following


_SAME_FIELDS = (
    *("base_offset", "record_count", "base_sequence", "producer_id", "producer_epoch", "partition_leader_epoch"),
    *("magic", "crc"),
)
_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime", "NoTimestampType", "NoTimestampType")


@dataclass(frozen=True, slots=True)
class _Markers:
    """The records of control batches that have exactly the bytes that a coordinator writes.

    Attributes:
        numbers: index of the record of a row of the block.
        columns: of the control records.
    """

    numbers: dict[int, int]
    columns: dict[str, list[Any]]


def _usual_markers(request: DumpRequest, source: OpenBytes, block: HeaderBlock, control: np.ndarray) -> _Markers | None:
    """The usual markers among the control batches ``control``, all at once: a transactional log has one for each transaction."""
    control = control[block.column("length")[control] + LOG_OVERHEAD_BYTES == _ROW.itemsize]
    base_offset = block.column("base_offset")[control]
    control = control[(base_offset >= request.offset_from) & (base_offset <= request.offset_to)]
    data = memoryview(bytearray(len(control) * _ROW.itemsize))
    for number, position in enumerate(block.position_bytes[control].tolist()):
        source.read_into(position, data[number * _ROW.itemsize : (number + 1) * _ROW.itemsize])
    batches = np.frombuffer(data, dtype=_ROW)
    type_id, coordinator_epoch, usual = usual_markers(batches)
    usual &= batches["record_count"] == 1
    if not usual.any():
        return None
    rows = control[usual]
    header = {name: block.column(name)[rows] for name in HEADER_COLUMNS}
    is_append_time = header["attributes"] & ATTRIBUTE_LOG_APPEND_TIME != 0
    types = type_id[usual].tolist()
    columns: dict[str, list[Any]] = {
        "offset": header["base_offset"].tolist(),
        "timestamp_type": [_TIMESTAMP_TYPES[number] for number in is_append_time.astype(int).tolist()],
        "timestamp": np.where(is_append_time, header["max_timestamp"], header["base_timestamp"]).tolist(),
        "key_size": [_MARKER_KEY_BYTES] * len(rows),
        "value_size": [_MARKER_VALUE_BYTES] * len(rows),
        "sequence": np.maximum(header["base_sequence"], -1).tolist(),
        "header_keys": [[]] * len(rows),
        "type_id": types,
        "type": [_CONTROL_NAMES[each] for each in types],
        "content": [EndTransactionMarker(0, epoch) for epoch in coordinator_epoch[usual].tolist()],
    }
    return _Markers({row: number for number, row in enumerate(rows.tolist())}, columns)


_ROW = row_dtype(RECORD_BATCH_HEADER)
_MARKER_KEY_BYTES = 4
_MARKER_VALUE_BYTES = 6


def _record_items(dump: Dump, request: DumpRequest, source: OpenBytes, header: BatchHeader, position: int) -> Iterator[Items]:
    """The records of one batch, which is read once more."""
    records: list[LogRecord] = []
    try:
        if header.size_bytes > limits.DATA_BATCH_BYTES_MAX:
            expected = f"at most {limits.DATA_BATCH_BYTES_MAX} bytes"
            raise LimitExceededError("records of a batch", position=position, expected=expected, found=header.size_bytes)
        batch = bytearray(header.size_bytes)
        source.read_into(position, memoryview(batch))
        held_bytes = 0
        shows_sizes = header.magic == 2 and not header.is_control and not request.payload and dump.decoder is None
        held_bytes_max = HELD_BYTES_MAX if dump.decoder is None else DECODED_TOGETHER_BYTES_MAX
        read = read_record_columns if shows_sizes else read_records
        for record in read(header, bytes(batch), position=position, piped=piped):
            if isinstance(record, RecordColumns):
                yield from _shown_records(dump, request, header, records, position)
                yield from _shown_columns(request, header, record)
                records = []
                held_bytes = 0
                continue
            records.append(record)
            held_bytes += len(record.key or b"") + len(record.value or b"") + HELD_BYTES_OF_A_HEADER * len(record.headers)
            if len(records) == ROWS_MAX or held_bytes >= held_bytes_max:
                yield from _shown_records(dump, request, header, records, position)
                records = []
                held_bytes = 0
    except LimitExceededError as error:
        dump.add_finding("over-limit", Severity.FINDING, error, header.base_offset)
    except FormatError as error:
        dump.add_finding("unreadable-records", Severity.DAMAGED, error, header.base_offset)
    yield from _shown_records(dump, request, header, records, position)


def _shown_records(
    dump: Dump, request: DumpRequest, header: BatchHeader, records: list[LogRecord], position: int
) -> Iterator[Items]:
    records = [record for record in records if request.offset_from <= record.offset <= request.offset_to]
    if not records:
        return
    if header.is_control:
        yield _control_items(dump, header, records, position)
        return
    form = ItemForm.RECORD if header.magic == 2 else ItemForm.LEGACY_RECORD
    columns = _record_columns(header, records) | _payload_columns(request, records)
    if header.magic == 2:
        values = [[each.value for each in record.headers] for record in records]
        columns["header_values"] = values if request.payload else [None] * len(records)
    if dump.decoder is not None:
        columns |= _decoded_columns(dump, dump.decoder, records)
    yield Items(form, columns)


def _shown_columns(request: DumpRequest, header: BatchHeader, records: RecordColumns) -> Iterator[Items]:
    """Records of which only sizes are shown."""
    rows = np.flatnonzero((records.offset >= request.offset_from) & (records.offset <= request.offset_to))
    if not len(rows):
        return
    columns: dict[str, Any] = {
        "offset": records.offset[rows],
        "timestamp_type": Words((_TIMESTAMP_TYPES[header.is_log_append_time],), np.zeros(len(rows), dtype=np.uint8)),
        "timestamp": records.timestamp[rows],
        "key_size": records.key_size[rows],
        "value_size": records.value_size[rows],
        "sequence": records.sequence[rows],
    }
    if records.header_keys is None:
        yield Items(ItemForm.SIZED_RECORD, columns)
        return
    plain = {name: column.tolist() for name, column in columns.items() if isinstance(column, np.ndarray)}
    nothing: list[Any] = [None] * len(rows)
    lists = {
        "offset": plain["offset"],
        "timestamp_type": [_TIMESTAMP_TYPES[header.is_log_append_time]] * len(rows),
        **plain,
        "header_keys": [[_header_key(key) for key in records.header_keys[row]] for row in rows.tolist()],
        "key": nothing,
        "value": nothing,
        "header_values": nothing,
    }
    yield Items(ItemForm.RECORD, lists)


def _record_columns(header: BatchHeader, records: list[LogRecord]) -> dict[str, list[Any]]:
    timestamp_type = _TIMESTAMP_TYPES[header.is_log_append_time + 2 * (header.magic == 0)]
    columns: dict[str, list[Any]] = {
        "offset": [record.offset for record in records],
        "timestamp_type": [timestamp_type] * len(records),
        "timestamp": [record.timestamp for record in records],
        "key_size": [-1 if record.key is None else len(record.key) for record in records],
        "value_size": [-1 if record.value is None else len(record.value) for record in records],
    }
    if header.magic == 2:
        columns["sequence"] = [record.sequence for record in records]
        columns["header_keys"] = [[_header_key(each.key) for each in record.headers] for record in records]
    else:
        columns["is_valid"] = [record.is_valid for record in records]
        columns["crc"] = [record.crc for record in records]
    return columns


@functools.lru_cache(maxsize=1024)
def _header_key(key: bytes) -> str:
    """Cached: the records of a topic have few different ones."""
    return key.decode(errors="replace")


def _payload_columns(request: DumpRequest, records: list[LogRecord]) -> dict[str, list[Any]]:
    """Keys and values as bytes; None for every record if they were not requested."""
    if not request.payload:
        nothing: list[Any] = [None] * len(records)
        return {"key": nothing, "value": nothing}
    return {"key": [record.key for record in records], "value": [record.value for record in records]}


def _decoded_columns(dump: Dump, decoder: RecordDecoder, records: list[LogRecord]) -> dict[str, list[Any]]:
    """The texts of keys and values; what could not be decoded becomes a finding too."""
    decoded: list[DecodedRecord] = []
    for record in records:
        try:
            each = decoder.decode(record.offset, record.key, record.value)
        except LimitExceededError as error:
            dump.add_finding("over-limit", Severity.FINDING, error, record.offset)
            each = DecodedRecord(None, None)
        if each.error is not None:
            dump.add_finding("undecoded-record", Severity.FINDING, each.error, record.offset)
        if each.unknown_type is not None:
            unknown = BadValueError("record type", expected="one that this release knows", found=each.unknown_type)
            dump.add_finding("unknown-record-type", Severity.NOTE, unknown, record.offset)
        decoded.append(each)
    return {"decoded_key": [each.key for each in decoded], "decoded_value": [each.value for each in decoded]}


def _control_items(dump: Dump, header: BatchHeader, records: list[LogRecord], position: int) -> Items:
    controls: list[ControlRecord | None] = []
    for record in records:
        try:
            controls.append(_control_record(record.key, record.value))
        except FormatError as error:
            dump.add_finding("unreadable-control-record", Severity.DAMAGED, error.shifted_by(position), record.offset)
            controls.append(None)
    columns = _record_columns(header, records)
    columns["type_id"] = [None if control is None else control.type_id for control in controls]
    columns["type"] = [None if control is None else _CONTROL_NAMES.get(control.type_id, "UNKNOWN") for control in controls]
    columns["content"] = [None if control is None else control.value for control in controls]
    return Items(ItemForm.CONTROL_RECORD, columns)


@functools.lru_cache(maxsize=1024)
def _control_record(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Cached: the markers of a log differ only in their type and coordinator epoch."""
    return parse_control_record(Record(0, 0, key, value))


_CONTROL_NAMES = {each.value: each.name for each in ControlRecordType}
