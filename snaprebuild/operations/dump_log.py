"""The batches and records of a segment or a KRaft checkpoint, in blocks, and where its order, checksums or bytes are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from formats import limits
from formats.batch_headers import HEADER_COLUMNS, HeaderBlock, HeaderReader, Tail, TailKind
from formats.compression import CODECS
from formats.control_record import ControlRecord, ControlRecordType, parse_control_record
from formats.dumped_kind import DumpedKind
from formats.errors import BadValueError, FormatError, LimitExceededError
from formats.record_batch import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_DELETE_HORIZON,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    Record,
)
from formats.records import LogRecord, read_records
from snaprebuild.operations.dump_items import INT32_MAX, ROWS_MAX, Dump, DumpRequest, ItemForm, Items
from snaprebuild.operations.findings import Severity
from snaprebuild.storage.segment_file import SegmentFile

__all__ = ["log_items"]


def log_items(dump: Dump, request: DumpRequest) -> Iterator[Items]:
    """The batches of the file, each before those of its records that are wanted."""
    order = _Order(dump)
    with SegmentFile(dump.path) as source:
        reader = HeaderReader(source, check_crc=True, read_markers=False)
        for block in reader:
            order.add(block)
            _tell_bad_checksums(dump, block)
            yield from _block_items(dump, request, source, block)
        dump.tail = reader.tail
    assert dump.tail is not None
    _tell_tail(dump, dump.tail)


class _Order:
    """Whether each batch lies behind the one before it, and where offsets are left out, over the blocks of a file."""

    def __init__(self, dump: Dump) -> None:
        self._dump = dump
        self._is_first = True
        is_segment = dump.kind is DumpedKind.LOG and dump.offset is not None
        self._last_offset = (dump.offset or 0) - 1 if is_segment else -1

    def add(self, block: HeaderBlock) -> None:
        base = block.column("base_offset")
        last = base + block.column("last_offset_delta")
        before = np.concatenate((np.array([self._last_offset]), last[:-1]))
        wrong = np.flatnonzero((base <= before) | (last < base))
        if len(wrong):
            row = int(wrong[0])
            expected = f"more than {before[row]}" if base[row] <= before[row] else f"a last offset of {base[row]} or more"
            found = int(base[row]) if base[row] <= before[row] else int(last[row])
            error = BadValueError("offset of a batch", position=int(block.position_bytes[row]), expected=expected, found=found)
            self._dump.tell("disordered-offsets", Severity.DAMAGED, error, max(int(base[row]), 0), count=len(wrong))
        # How many offsets are inside of a compressed message of magic 0 or 1 its header does not say.
        is_wrapper = (block.column("magic") < 2) & (block.column("attributes") & ATTRIBUTE_CODEC != 0)
        gaps = np.flatnonzero((base - 1 > before) & ~is_wrapper)
        if self._is_first:
            gaps = gaps[gaps > 0]
        if len(gaps):
            row = int(gaps[0])
            position, found = int(block.position_bytes[row]), int(base[row])
            error = BadValueError("offset of a batch", position=position, expected=int(before[row]) + 1, found=found)
            self._dump.tell("offset-gaps", Severity.NOTE, error, max(found, 0), count=len(gaps))
        self._is_first = False
        self._last_offset = int(last[-1])


def _tell_bad_checksums(dump: Dump, block: HeaderBlock) -> None:
    if len(block.bad_crc):
        row = int(block.bad_crc[0])
        found = f"{int(block.column('crc')[row]):#010x}"
        error = BadValueError(
            "checksum of a batch", position=int(block.position_bytes[row]), expected="that of its bytes", found=found
        )
        dump.tell("bad-checksum", Severity.DAMAGED, error, max(int(block.column("base_offset")[row]), 0), count=len(block.bad_crc))


def _tell_tail(dump: Dump, tail: Tail) -> None:
    if tail.error is None:
        return
    if tail.kind is TailKind.ZERO_FILLED:
        dump.preallocated_bytes = dump.size_bytes - tail.position_bytes
        dump.tell("zero-filled-tail", Severity.NOTE, tail.error)
    elif tail.kind is TailKind.TORN:
        dump.tell("torn-tail", Severity.DAMAGED, tail.error)
    else:
        dump.tell("damaged-segment", Severity.DAMAGED, tail.error)


def _block_items(dump: Dump, request: DumpRequest, source: SegmentFile, block: HeaderBlock) -> Iterator[Items]:
    base = block.column("base_offset")
    last = base + block.column("last_offset_delta")
    shown = (last >= request.offset_from) & (base <= request.offset_to)
    legacy = block.column("magic") < 2
    # A run ends where the form changes, and behind each batch whose records are shown.
    with_records = shown & (request.deep | (block.column("attributes") & ATTRIBUTE_CONTROL != 0))
    ends = set(np.flatnonzero(legacy[1:] != legacy[:-1]) + 1) | set(np.flatnonzero(with_records) + 1) | {len(block)}
    valid = np.ones(len(block), dtype=bool)
    valid[block.bad_crc] = False
    columns = _batch_columns(block, valid)
    start = 0
    for end in sorted(map(int, ends)):
        rows = np.flatnonzero(shown[start:end]) + start
        if len(rows):
            form, names = (ItemForm.LEGACY_BATCH, _LEGACY_FIELDS) if legacy[rows[0]] else (ItemForm.BATCH, _BATCH_FIELDS)
            first, stop = int(rows[0]), int(rows[-1]) + 1
            if stop - first == len(rows):
                yield Items(form, {name: columns[name][first:stop] for name in names})
            else:  # only in a log without order
                yield Items(form, {name: [columns[name][row] for row in rows] for name in names})
        if with_records[end - 1]:
            yield from _record_items(dump, request, source, block, end - 1)
        start = end


_LEGACY_FIELDS = ("offset", "position", "timestamp_type", "timestamp", "size", "magic", "codec", "crc", "is_valid")
_BATCH_FIELDS = (
    *("base_offset", "last_offset", "record_count", "base_sequence", "last_sequence", "producer_id", "producer_epoch"),
    *("partition_leader_epoch", "is_transactional", "is_control", "delete_horizon_ms"),
    *_LEGACY_FIELDS[1:],
)
_CODEC_NAMES = (*CODECS, *(f"unknown ({number})" for number in range(len(CODECS), ATTRIBUTE_CODEC + 1)))


def _batch_columns(block: HeaderBlock, valid: np.ndarray) -> dict[str, list[Any]]:
    """The fields of both forms of batches."""
    attributes = block.column("attributes")
    base, delta = block.column("base_offset"), block.column("last_offset_delta")
    sequence = block.column("base_sequence")
    last_offset = (base + delta).tolist()
    base_timestamp = block.column("base_timestamp").tolist()
    has_horizon = np.flatnonzero(attributes & ATTRIBUTE_DELETE_HORIZON != 0).tolist()
    horizon: list[int | None] = [None] * len(block)
    for row in has_horizon:
        horizon[row] = base_timestamp[row]
    names = np.where(attributes & ATTRIBUTE_LOG_APPEND_TIME != 0, 1, 0) + np.where(block.column("magic") == 0, 2, 0)
    same = {name: block.column(name).tolist() for name in _SAME_FIELDS}
    return {
        **same,
        "last_offset": last_offset,
        "offset": last_offset,
        "last_sequence": np.where(sequence == -1, -1, _incremented(sequence, delta)).tolist(),
        "is_transactional": (attributes & ATTRIBUTE_TRANSACTIONAL != 0).tolist(),
        "is_control": (attributes & ATTRIBUTE_CONTROL != 0).tolist(),
        "delete_horizon_ms": horizon,
        "position": block.position_bytes.tolist(),
        "timestamp_type": [_TIMESTAMP_TYPES[number] for number in names.tolist()],
        "timestamp": block.column("max_timestamp").tolist(),
        "size": (block.column("length") + LOG_OVERHEAD_BYTES).tolist(),
        "codec": [_CODEC_NAMES[number] for number in (attributes & ATTRIBUTE_CODEC).tolist()],
        "is_valid": valid.tolist(),
    }


def _incremented(sequence: np.ndarray, increment: np.ndarray) -> np.ndarray:
    """``DefaultRecordBatch.incrementSequence``, which also of an impossible increment makes an int32."""
    increment = increment.astype(np.int32)
    wraps = sequence > INT32_MAX - increment
    return np.where(wraps, increment - (INT32_MAX - sequence) - 1, sequence + increment)


_SAME_FIELDS = (
    *("base_offset", "record_count", "base_sequence", "producer_id", "producer_epoch", "partition_leader_epoch"),
    *("magic", "crc"),
)
_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime", "NoTimestampType", "NoTimestampType")


def _record_items(dump: Dump, request: DumpRequest, source: SegmentFile, block: HeaderBlock, row: int) -> Iterator[Items]:
    """The records of one batch, which is read again."""
    header = BatchHeader(*(int(block.column(name)[row]) for name in HEADER_COLUMNS))
    position = int(block.position_bytes[row])
    records: list[LogRecord] = []
    try:
        if header.size_bytes > limits.DATA_BATCH_BYTES_MAX:
            expected = f"at most {limits.DATA_BATCH_BYTES_MAX} bytes"
            raise LimitExceededError("records of a batch", position=position, expected=expected, found=header.size_bytes)
        batch = bytearray(header.size_bytes)
        source.read_into(position, memoryview(batch))
        for record in read_records(header, bytes(batch), position=position):
            records.append(record)
            if len(records) == ROWS_MAX:
                yield from _shown_records(dump, request, header, records, position)
                records = []
    except LimitExceededError as error:
        dump.tell("over-limit", Severity.FINDING, error, max(header.base_offset, 0))
    except FormatError as error:
        dump.tell("unreadable-records", Severity.DAMAGED, error, max(header.base_offset, 0))
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
    yield Items(form, columns)


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
        columns["header_keys"] = [[each.key.decode(errors="replace") for each in record.headers] for record in records]
    else:
        columns["is_valid"] = [record.is_valid for record in records]
        columns["crc"] = [record.crc for record in records]
    return columns


def _payload_columns(request: DumpRequest, records: list[LogRecord]) -> dict[str, list[Any]]:
    """Keys and values as their bytes; None for every record where they are not wanted."""
    if not request.payload:
        nothing: list[Any] = [None] * len(records)
        return {"key": nothing, "value": nothing}
    return {"key": [record.key for record in records], "value": [record.value for record in records]}


def _control_items(dump: Dump, header: BatchHeader, records: list[LogRecord], position: int) -> Items:
    controls: list[ControlRecord | None] = []
    for record in records:
        try:
            controls.append(parse_control_record(Record(0, 0, record.key, record.value), position=position))
        except FormatError as error:
            dump.tell("unreadable-control-record", Severity.DAMAGED, error, record.offset)
            controls.append(None)
    columns = _record_columns(header, records)
    columns["type_id"] = [None if each is None else each.type_id for each in controls]
    columns["type"] = [None if each is None else _control_name(each.type_id) for each in controls]
    columns["content"] = [None if each is None else each.value for each in controls]
    return Items(ItemForm.CONTROL_RECORD, columns)


def _control_name(type_id: int) -> str:
    return ControlRecordType(type_id).name if type_id in set(ControlRecordType) else "UNKNOWN"
