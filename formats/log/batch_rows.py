"""The bytes that are gathered from each batch: its header, and after it the bytes that hold the record of a transaction marker.

Rows are structured arrays whose layout is derived from ``record_batch.RECORD_BATCH_HEADER``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec
import numpy as np
from construct import Struct

from formats import limits
from formats.checksum import crc32, crc32c
from formats.compression import decompress
from formats.errors import BadLengthError, BadValueError
from formats.layout import dtype_of
from formats.log.control_record import ControlRecordType, EndTransactionMarker, parse_control_key, parse_control_record
from formats.log.record_batch import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_LOG_APPEND_TIME,
    CRC_START,
    LENGTH_MIN,
    LOG_OVERHEAD_BYTES,
    MESSAGE_HEADER_V1,
    parse_record,
)

__all__ = [
    "HeaderColumns",
    "HeaderRows",
    "are_current",
    "bad_checksums",
    "bytes_of",
    "chosen_rows",
    "gather",
    "in_groups",
    "joined_columns",
    "joined_rows",
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


@functools.cache
def row_dtype(grammar: Struct) -> np.dtype[np.void]:
    """The layout of a header, followed by as many bytes as the record of a marker has; both are gathered in one go."""
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
    """Rewrites the rows of magic 0 and 1, whose fields are elsewhere, into the columns of magic 2."""
    legacy = (rows["magic"] < 2).nonzero()[0]
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

# The bytes that a coordinator writes: record length 16, attributes 0, deltas 0, key of 4 bytes (version 0), value of 6, no headers.
_USUAL_MARKER = np.frombuffer(bytes.fromhex("20000000080000 0000 0c 0000 00000000 00".replace(" ", "")), dtype=np.uint8)
_USUAL_FIXED = np.array([index not in (7, 8, 12, 13, 14, 15) for index in range(_MARKER_RECORD_BYTES)])


def usual_markers(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reads the markers that have exactly the bytes a coordinator writes.

    Returns:
        Types (int16), coordinator epochs (int32), and which rows they are (bool); the grammar reads the others.
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


class HeaderRows(msgspec.Struct, frozen=True):
    """Batches as they were read: positions in the segment, the first bytes of each as rows, and those with a bad checksum."""

    position_bytes: np.ndarray
    rows: np.ndarray
    bad_crc: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)


class HeaderColumns(msgspec.Struct, frozen=True):
    """Batches with the header in columns. ``batch_headers.HeaderBlock`` has the markers of ``control_rows`` in columns, too."""

    position_bytes: np.ndarray
    columns: dict[str, np.ndarray]
    control: np.ndarray
    control_rows: np.ndarray
    bad_crc: np.ndarray

    def __len__(self) -> int:
        return len(self.position_bytes)


_Part = TypeVar("_Part", HeaderRows, HeaderColumns)


def in_groups(parts: Iterator[_Part], rows: int, join: Callable[[list[_Part]], _Part]) -> Iterator[_Part]:
    """Joins parts until they have ``rows`` rows: array operations on few rows do not pay for their fixed cost."""
    waiting: list[_Part] = []
    count = 0
    for part in parts:
        waiting.append(part)
        count += len(part)
        if count >= rows:
            yield waiting[0] if len(waiting) == 1 else join(waiting)
            waiting = []
            count = 0
    if waiting:
        yield waiting[0] if len(waiting) == 1 else join(waiting)


def joined_rows(parts: list[HeaderRows]) -> HeaderRows:
    """The join of ``in_groups`` for rows."""
    return HeaderRows(
        np.concatenate([part.position_bytes for part in parts]),
        np.concatenate([part.rows.view(f"V{part.rows.dtype.itemsize}") for part in parts]).view(parts[0].rows.dtype),
        _joined_indices([(part.bad_crc, len(part)) for part in parts]),
    )


def joined_columns(parts: list[HeaderColumns]) -> HeaderColumns:
    """The join of ``in_groups`` for columns."""
    return HeaderColumns(
        np.concatenate([part.position_bytes for part in parts]),
        {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns},
        _joined_indices([(part.control, len(part)) for part in parts]),
        np.concatenate([part.control_rows for part in parts]),
        _joined_indices([(part.bad_crc, len(part)) for part in parts]),
    )


def _joined_indices(parts: list[tuple[np.ndarray, int]]) -> np.ndarray:
    """Turns indices into parts, each with its number of rows, into indices into the joined rows."""
    before = np.cumsum([0, *(rows for _, rows in parts[:-1])])
    return np.concatenate([indices + rows for (indices, _), rows in zip(parts, before, strict=True)])


# ---------------------------------------------------------------------------------------------------- checksums

_START = CRC_START[2]
_CHANGED_BYTES = _START + 4
_CHANGED = np.dtype(f"V{_CHANGED_BYTES}")


def bad_checksums(buffer: np.ndarray, offsets: np.ndarray, ends: np.ndarray, rows: np.ndarray) -> list[int]:
    """Indices of the batches whose checksum differs, ascending.

    The plain way is one call for each batch. The fast way treats the whole block as one message.
    It replaces the bytes between two checksummed parts (the rest of a header, 21 bytes). At the end of a batch the CRC register
    becomes zero; at the beginning of the next batch it gets the value with which a CRC starts.
    One call over all bytes then ends with the last stored checksum if every checksum is right. A single damaged batch always shows;
    two would have to cancel each other, with a probability of 2^-32.
    If the result differs, the bytes are restored, and the plain way finds the bad batches.

    Measured: batches of 350 bytes take 45 ns each instead of 450.

    Args:
        buffer: uint8; the batches, back to back. CHANGED by this call.
        offsets: int64 (n,), where each begins.
        ends: int64 (n,), where each ends.
        rows: (n,) their headers as structured rows, the first bytes of each row being those of its batch.
    """
    if len(offsets) > 1 and (rows["magic"] == 2).all():
        if _joined_is_right(buffer, offsets, ends, rows):
            return []
        _windows(buffer)[offsets] = bytes_of(rows)[:, :_CHANGED_BYTES].copy().view(_CHANGED)[:, 0]
    return _bad_one_by_one(buffer, offsets, ends, rows)


def _joined_is_right(buffer: np.ndarray, offsets: np.ndarray, ends: np.ndarray, rows: np.ndarray) -> bool:
    joints = np.empty((len(rows) - 1, _CHANGED_BYTES), dtype=np.uint8)
    joints[:, 4:_START] = 0
    stored = rows["crc"]
    # The register is the complement of the checksum, least byte first; its own bytes make it zero, and zeros leave it so.
    joints[:, :4] = (~stored[:-1]).astype("<u4").view(np.uint8).reshape(-1, 4)
    # From zero, the complement of four bytes gives the same register as the bytes do from all ones, with which a CRC starts.
    joints[:, _START:] = ~bytes_of(rows)[1:, _START:_CHANGED_BYTES]
    _windows(buffer)[offsets[1:]] = joints.view(_CHANGED)[:, 0]
    return crc32c(buffer.data[int(offsets[0]) + _START : int(ends[-1])]) == int(stored[-1])


def _windows(buffer: np.ndarray) -> np.ndarray:
    """The replaced bytes of a batch that begins at each byte."""
    return np.ndarray((len(buffer) - _CHANGED_BYTES + 1,), dtype=_CHANGED, buffer=buffer, strides=(1,))


def _bad_one_by_one(buffer: np.ndarray, offsets: np.ndarray, ends: np.ndarray, rows: np.ndarray) -> list[int]:
    view = buffer.data
    bad = []
    columns = zip(offsets.tolist(), ends.tolist(), rows["magic"].tolist(), rows["crc"].tolist(), strict=True)
    for row, (start, end, magic, stored) in enumerate(columns):
        function = crc32c if magic == 2 else crc32
        if function(view[start + CRC_START[magic] : end]) != stored:
            bad.append(row)
    return bad
