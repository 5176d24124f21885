"""What is taken of each batch at once: its header, and behind it the bytes in which a transaction marker has its record.

Rows are structured arrays whose layout is derived from ``record_batch.RECORD_BATCH_HEADER``.
"""

from __future__ import annotations

import numpy as np
from construct import Struct

from formats import limits
from formats.compression import decompress
from formats.errors import BadLengthError, BadValueError
from formats.layout import dtype_of
from formats.log.control_record import ControlRecordType, EndTransactionMarker, parse_control_key, parse_control_record
from formats.log.record_batch import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_LOG_APPEND_TIME,
    LENGTH_MIN,
    LOG_OVERHEAD_BYTES,
    MESSAGE_HEADER_V1,
    parse_record,
)

__all__ = [
    "are_current",
    "bytes_of",
    "chosen_rows",
    "gather",
    "legacy_in_columns",
    "native",
    "read_marker",
    "row_dtype",
    "usual_markers",
]


def native(column: np.ndarray) -> np.ndarray:
    """A column in native byte order, contiguous."""
    return column.astype(column.dtype.newbyteorder("="))


def bytes_of(rows: np.ndarray) -> np.ndarray:
    """The bytes of rows, uint8 (n, width)."""
    return rows.view(np.uint8).reshape(len(rows), rows.dtype.itemsize)


def chosen_rows(rows: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """The rows at ``indices``. Taken as bytes: numpy copies a structured row field by field."""
    chosen: np.ndarray = rows.view(f"V{rows.dtype.itemsize}")[indices].view(rows.dtype)
    return chosen


def are_current(rows: np.ndarray) -> bool:
    """Whether all are headers of magic 2, long enough for one."""
    return bool((rows["magic"] == 2).all() and (rows["length"] >= LENGTH_MIN[2]).all())


_MARKER_RECORD_BYTES = 17


def row_dtype(grammar: Struct) -> np.dtype[np.void]:
    """The layout of a header, with room behind it for the record of a marker as coordinators write it, which is gathered in one go."""
    header = dtype_of(grammar)
    assert header.fields is not None
    fields = {name: (field[0], field[1]) for name, field in header.fields.items()}
    fields["marker_record"] = (np.dtype(f"V{_MARKER_RECORD_BYTES}"), header.itemsize)
    formats, offsets = zip(*fields.values(), strict=True)
    return np.dtype(
        {"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": header.itemsize + _MARKER_RECORD_BYTES}
    )


def gather(buffer: np.ndarray, offsets: np.ndarray, dtype: np.dtype[np.void]) -> np.ndarray:
    """The bytes at ``offsets`` as rows: one take of fixed-width windows."""
    windows = np.ndarray((len(buffer) - dtype.itemsize + 1,), dtype=f"V{dtype.itemsize}", buffer=buffer, strides=(1,))
    rows: np.ndarray = windows[offsets].view(dtype)
    return rows


def legacy_in_columns(rows: np.ndarray) -> None:
    """Rewrites the rows of magic 0 and 1, whose bytes stand elsewhere, into the columns of magic 2."""
    legacy = np.flatnonzero(rows["magic"] < 2)
    if not len(legacy):
        return
    raw = bytes_of(chosen_rows(rows, legacy))
    old = raw[:, : _MESSAGE_DTYPE.itemsize].copy().view(_MESSAGE_DTYPE)[:, 0]
    timestamp = np.where(old["magic"] == 1, old["timestamp"], -1)
    rows["crc"][legacy] = old["crc"]
    rows["attributes"][legacy] = old["attributes"] & (ATTRIBUTE_CODEC | ATTRIBUTE_LOG_APPEND_TIME)
    rows["last_offset_delta"][legacy] = 0
    rows["base_timestamp"][legacy] = timestamp
    rows["max_timestamp"][legacy] = timestamp
    for name in ("partition_leader_epoch", "producer_id", "producer_epoch", "base_sequence", "record_count"):
        rows[name][legacy] = -1


_MESSAGE_DTYPE = dtype_of(MESSAGE_HEADER_V1)

# What a coordinator writes: record length 16, attributes 0, deltas 0, key of 4 bytes (version 0), value of 6 bytes, no headers.
_USUAL_MARKER = np.frombuffer(bytes.fromhex("20000000080000 0000 0c 0000 00000000 00".replace(" ", "")), dtype=np.uint8)
_USUAL_FIXED = np.array([index not in (7, 8, 12, 13, 14, 15) for index in range(_MARKER_RECORD_BYTES)])


def usual_markers(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reads the markers that have exactly the bytes a coordinator writes.

    Returns:
        Types (int16), coordinator epochs (int32), and which they are (bool); the grammar reads the others.
    """
    record = bytes_of(rows)[:, -_MARKER_RECORD_BYTES:]
    usual: np.ndarray = (
        (rows["length"] == limits.BATCH_HEADER_BYTES_MAX - LOG_OVERHEAD_BYTES + _MARKER_RECORD_BYTES)
        & (rows["attributes"] & ATTRIBUTE_CODEC == 0)
        & (rows["record_count"] > 0)
        & (record[:, _USUAL_FIXED] == _USUAL_MARKER[_USUAL_FIXED]).all(axis=1)
        & (record[:, 7] == 0)
        & (record[:, 8] <= 1)
    )
    return record[:, 8].astype(np.int16), record[:, 12:16].copy().view(">i4")[:, 0].astype(np.int32), usual


def read_marker(batch: bytes, row: np.void) -> tuple[int, int, int]:
    """Type, coordinator epoch and timestamp delta of the first record of a control batch, by the grammar.

    Errors are those on which ``ProducerAppendInfo.append`` throws; their positions count from the start of the batch.
    """
    count = int(row["record_count"])
    header = limits.BATCH_HEADER_BYTES_MAX
    if count < 0:
        raise BadLengthError("count of records", position=57, expected="0 or more", found=count)
    codec = int(row["attributes"]) & ATTRIBUTE_CODEC
    payload = decompress(codec, batch[header:], bytes_max=limits.CONTROL_BATCH_BYTES_MAX, position=header)
    record, size = parse_record(payload, position=header)
    if count == 1 and size != len(payload):  # DefaultRecordBatch.RecordIterator.next: "records still remaining"
        what = "records of a control batch that counts one"
        raise BadLengthError(what, position=header, expected=f"{size} bytes", found=f"{len(payload)} bytes")
    _, type_id = parse_control_key(record, position=header)
    if type_id not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):  # before the value, as EndTransactionMarker.deserialize
        what = "type of a control record with a producer id"
        raise BadValueError(what, position=header, expected="0 (abort) or 1 (commit)", found=type_id)
    control = parse_control_record(record, position=header)
    assert isinstance(control.value, EndTransactionMarker)
    return control.type_id, control.value.coordinator_epoch, record.timestamp_delta
