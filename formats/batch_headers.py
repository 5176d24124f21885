"""The fast header reader: the headers of a whole segment as numpy columns, block by block.

A segment is read in blocks of a few MiB into one reused buffer. In each block the batches are found (by following the lengths, in many
places at once where an offset index gives hints), their 61 header bytes are gathered in one go, and the few bytes of each transaction
marker are read beside them. No record is materialised and no payload is copied. The columns are those of
``record_batch.RECORD_BATCH_HEADER``, through a dtype that is derived from it.

Where iteration ends and why is told by ``Tail``, in the cases that ``FileLogInputStream.nextBatch`` has: the end of the file, a batch that
is not whole (the broker's iterators end silently there), or bytes on which the broker throws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
from construct import Struct

from formats import limits
from formats.batch_checksums import bad_checksums
from formats.batch_walk import LOOK_BYTES, chain_end, seeds_from_hints, seeds_from_search, walk_by_length, walk_from_seeds
from formats.checksum import crc32, crc32c
from formats.compression import decompress
from formats.control_record import ControlRecordType, EndTransactionMarker, parse_control_key, parse_control_record
from formats.errors import BadLengthError, BadMagicError, BadValueError, FormatError, LimitExceededError, TruncatedError
from formats.layout import dtype_of
from formats.record_batch import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    CRC_START,
    LENGTH_MIN,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MESSAGE_HEADER_V1,
    RECORD_BATCH_HEADER,
    BatchHeader,
    parse_batch_header,
    parse_record,
)

__all__ = [
    "BytesSegment",
    "HeaderBlock",
    "HeaderReader",
    "SegmentBytes",
    "Tail",
    "TailKind",
    "reference_headers",
]


class SegmentBytes(Protocol):
    """Random access to the bytes of a segment."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def size_bytes(self) -> int:
        """Size when it was opened; what is appended later is not read."""

    def read_into(self, position_bytes: int, buffer: memoryview) -> int:
        """Fills ``buffer`` from ``position_bytes``. Returns the count of bytes, less than asked for only at the end of the file."""


@dataclass(frozen=True, slots=True)
class BytesSegment:
    """A segment in memory."""

    data: bytes
    name: str = "segment"

    @property
    def size_bytes(self) -> int:
        """Length of the data."""
        return len(self.data)

    def read_into(self, position_bytes: int, buffer: memoryview) -> int:
        """See ``SegmentBytes.read_into``."""
        part = self.data[position_bytes : position_bytes + len(buffer)]
        buffer[: len(part)] = part
        return len(part)


class TailKind(Enum):
    """How the batches of a segment end."""

    CLEAN = "clean"
    """With the file."""
    TORN = "torn"
    """With a batch that is not whole: normal in the last segment after a crash."""
    ZERO_FILLED = "zero_filled"
    """With zeros up to the end of the file: a preallocated segment that was not closed."""
    CORRUPT = "corrupt"
    """With bytes on which a broker throws, or a magic that no broker writes."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Where the batches of a segment end.

    Attributes:
        kind: how.
        position_bytes: end of the last whole, readable batch.
        error: what stands there, unless ``kind`` is CLEAN.
    """

    kind: TailKind
    position_bytes: int
    error: FormatError | None = None


HEADER_COLUMNS = tuple(BatchHeader.__dataclass_fields__)
"""All fields of a header, in their order."""


@dataclass(frozen=True, slots=True)
class HeaderBlock:
    """Headers of consecutive batches.

    Attributes:
        position_bytes: int64 (n,), where each batch begins in the segment.
        columns: fields of ``RECORD_BATCH_HEADER`` by name, shape (n,), native byte order, as many as the reader was asked for. Messages
            of magic 0 and 1 have their values in the same columns, as ``BatchHeader`` describes.
        control: int64 (m,), the rows that are control batches with a producer id and at least one record, ascending.
        marker_type: int16 (m,), type of the first record of each of those.
        marker_coordinator_epoch: int32 (m,).
        marker_timestamp: int64 (m,), ms; that of the record, or the header's with LogAppendTime.
        bad_crc: int64 (k,), rows whose checksum differs, ascending; with ``check_crc`` only.
    """

    position_bytes: np.ndarray
    columns: dict[str, np.ndarray]
    control: np.ndarray
    marker_type: np.ndarray
    marker_coordinator_epoch: np.ndarray
    marker_timestamp: np.ndarray
    bad_crc: np.ndarray

    def __len__(self) -> int:
        return len(self.position_bytes)

    def column(self, name: str) -> np.ndarray:
        """One field of every header."""
        return self.columns[name]

    def part(self, start: int, stop: int) -> HeaderBlock:
        """The rows from ``start`` up to ``stop``, excluded, as a block of their own."""
        control, bad_crc = (slice(*np.searchsorted(rows, (start, stop))) for rows in (self.control, self.bad_crc))
        return HeaderBlock(
            self.position_bytes[start:stop],
            {name: column[start:stop] for name, column in self.columns.items()},
            self.control[control] - start,
            self.marker_type[control],
            self.marker_coordinator_epoch[control],
            self.marker_timestamp[control],
            self.bad_crc[bad_crc] - start,
        )

    def headers(self) -> list[BatchHeader]:
        """The rows as values, for tests and for people. Needs all columns."""
        values = zip(*(self.columns[name].tolist() for name in HEADER_COLUMNS), strict=True)
        return [BatchHeader(*row) for row in values]


def _native(column: np.ndarray) -> np.ndarray:
    return column.astype(column.dtype.newbyteorder("="))


@dataclass(frozen=True, slots=True)
class _Chunk:
    """What one block of bytes holds: as ``HeaderBlock``, but the control batches still as the bytes of their beginning."""

    position_bytes: np.ndarray
    columns: dict[str, np.ndarray]
    control: np.ndarray
    control_rows: np.ndarray
    bad_crc: np.ndarray


def _joined(chunks: list[_Chunk]) -> _Chunk:
    if len(chunks) == 1:
        return chunks[0]
    before = np.cumsum([0, *(len(chunk.position_bytes) for chunk in chunks[:-1])])
    return _Chunk(
        np.concatenate([chunk.position_bytes for chunk in chunks]),
        {name: np.concatenate([chunk.columns[name] for chunk in chunks]) for name in chunks[0].columns},
        np.concatenate([chunk.control + rows for chunk, rows in zip(chunks, before, strict=True)]),
        np.concatenate([chunk.control_rows for chunk in chunks]),
        np.concatenate([chunk.bad_crc + rows for chunk, rows in zip(chunks, before, strict=True)]),
    )


@dataclass(slots=True)
class HeaderReader:
    """Reads the headers of one segment; iterate it once.

    Attributes:
        source: the bytes.
        check_crc: compute the checksum of every batch and list those that differ.
        hint: positions at which batches probably begin, ascending (from an offset index). Never trusted, see ``formats.batch_walk``.
        start_bytes: where to begin; a batch must begin there.
        block_bytes: how much of the segment is held at a time.
        block_rows: headers from which on a ``HeaderBlock`` is handed out: array operations on few rows are not worth their fixed cost.
        columns: the fields that are wanted.
        read_markers: read the records of control batches with a producer id; a batch on which a broker throws ends the iteration. Else the
            blocks have none of them, and what a control batch holds is left to the caller.
        grammar: the layout of magic 2.
        tail: set when the iteration has ended.
        bytes_read: what was asked of ``source``.
    """

    source: SegmentBytes
    check_crc: bool = False
    hint: np.ndarray | None = None
    start_bytes: int = 0
    block_bytes: int = limits.HEADER_BLOCK_BYTES
    block_rows: int = 1
    columns: tuple[str, ...] = HEADER_COLUMNS
    read_markers: bool = True
    grammar: Struct = RECORD_BATCH_HEADER
    tail: Tail | None = None
    bytes_read: int = 0

    def __iter__(self) -> Iterator[HeaderBlock]:
        chunks: list[_Chunk] = []
        for chunk in self._chunks():
            chunks.append(chunk)
            if sum(len(chunk.position_bytes) for chunk in chunks) >= self.block_rows:
                block, fault = self._block(_joined(chunks))
                chunks = []
                if len(block):
                    yield block
                if fault is not None:
                    self.tail = fault
                    return
        if chunks:
            block, fault = self._block(_joined(chunks))
            self.tail = fault or self.tail
            if len(block):
                yield block

    def _chunks(self) -> Iterator[_Chunk]:
        """The bytes of the segment block by block, and what is read of them while they are there and in the processor's cache."""
        dtype = _row_dtype(self.grammar)
        capacity = min(max(self.block_bytes, 2 * limits.BATCH_HEADER_BYTES_MAX), max(self.source.size_bytes, 1))
        # A bytearray can be searched. Behind the block: a row's width, so that a short message at its end is gathered like any.
        data = bytearray(capacity + dtype.itemsize)
        buffer = np.frombuffer(data, dtype=np.uint8)
        position = self.start_bytes
        tail = self.tail
        while tail is None:
            filled = self._fill(buffer, position, capacity)
            at_end = position + filled >= self.source.size_bytes
            offsets, rows, end, reason = self._walk(data, buffer, position, filled, dtype)
            if len(offsets) == 0 and reason is None and not at_end:
                size = LOG_OVERHEAD_BYTES + int(_gather(buffer, np.zeros(1, dtype=np.int64), dtype)["length"][0])
                if position + size > self.source.size_bytes:
                    reason = _short(self.source, position)
                else:  # a batch that is larger than the block
                    offsets, end = np.zeros(1, dtype=np.int64), size
                    rows = _gather(buffer, offsets, dtype)
            tail = self._tail_behind(position, end, at_end, reason)
            fault = self._first_bad_header(rows)
            if fault is not None:
                row, error = fault
                start = position + int(offsets[row])
                tail = Tail(TailKind.CORRUPT, start, error.shifted_by(start))
                rows, offsets = rows[:row], offsets[:row]
            if len(rows):
                yield self._chunk(buffer, filled, offsets, rows, position)
            position += end
        self.tail = tail

    def _chunk(self, buffer: np.ndarray, filled: int, offsets: np.ndarray, rows: np.ndarray, position: int) -> _Chunk:
        _legacy_in_columns(rows)
        bad = self._bad_crc(buffer, filled, offsets, rows, position) if self.check_crc else np.zeros(0, dtype=np.int64)
        columns = {name: _native(rows[name]) for name in self.columns}
        is_control = rows["attributes"] & ATTRIBUTE_CONTROL != 0
        control = np.flatnonzero(is_control if self.read_markers else np.zeros(len(rows), dtype=bool))
        chosen = rows.view(f"V{rows.dtype.itemsize}")[control].view(rows.dtype)
        counts = (chosen["producer_id"] >= 0) & (chosen["record_count"] != 0)
        return _Chunk(offsets + position, columns, control[counts], chosen[counts], bad)

    def _tail_behind(self, position: int, end: int, at_end: bool, reason: FormatError | None) -> Tail | None:
        """The tail of the segment when it ends behind the batches of this block."""
        if reason is not None:
            return self._tail(reason, position + end)
        if not at_end:
            return None
        if position + end >= self.source.size_bytes:
            return Tail(TailKind.CLEAN, position + end)
        return self._tail(_short(self.source, position + end), position + end)

    def _fill(self, buffer: np.ndarray, position: int, capacity: int) -> int:
        wanted = min(capacity, self.source.size_bytes - position)
        filled = self.source.read_into(position, buffer.data[:wanted]) if wanted > 0 else 0
        if filled < wanted:
            found = f"{position + filled} bytes"
            raise TruncatedError(
                "segment became shorter", file=self.source.name, expected=f"{self.source.size_bytes} bytes", found=found
            )
        self.bytes_read += filled
        buffer[filled : filled + len(buffer) - capacity] = 0
        return filled

    def _walk(
        self, data: bytearray, buffer: np.ndarray, position: int, filled: int, dtype: np.dtype[np.void]
    ) -> tuple[np.ndarray, np.ndarray, int, FormatError | None]:
        """Offsets and rows of the whole batches of the block, where the last of them ends, and the error on which the walk stopped."""
        length_position = dtype.fields["length"][1]  # type: ignore[index]
        for seeds in self._guesses(data, buffer, position, filled, length_position):
            offsets = walk_from_seeds(buffer, filled, seeds, length_position)
            if offsets is not None:
                rows = _gather(buffer, offsets, dtype)
                proven = chain_end(offsets, _native(rows["length"]), filled)
                if proven is not None:
                    count, end = proven
                    return offsets[:count], rows[:count], end, None
        offsets, end, reason = walk_by_length(data, filled, length_position, self.source.name, position)
        return offsets, _gather(buffer, offsets, dtype), end, reason

    def _guesses(
        self, data: bytearray, buffer: np.ndarray, position: int, filled: int, length_position: int
    ) -> Iterator[np.ndarray]:
        if self.hint is not None and len(self.hint):
            seeds = seeds_from_hints(self.hint, position, filled)
            if seeds is not None:
                yield seeds
        seeds = seeds_from_search(data, buffer, filled, length_position)
        if seeds is not None:
            yield seeds

    def _tail(self, error: FormatError, position: int) -> Tail:
        if self._is_zero_from(position):
            return Tail(TailKind.ZERO_FILLED, position, error)
        kind = TailKind.TORN if isinstance(error, TruncatedError) else TailKind.CORRUPT
        return Tail(kind, position, error)

    def _is_zero_from(self, position: int) -> bool:
        buffer = bytearray(min(1 << 20, max(self.source.size_bytes - position, 0)))
        if not buffer:
            return False
        while position < self.source.size_bytes:
            count = self.source.read_into(position, memoryview(buffer))
            self.bytes_read += count
            if count == 0 or np.frombuffer(buffer, dtype=np.uint8, count=count).any():
                return False
            position += count
        return True

    def _first_bad_header(self, rows: np.ndarray) -> tuple[int, FormatError] | None:
        """The first header with a magic that no broker writes, or a length below the least of its magic."""
        magic, length = rows["magic"], rows["length"]
        if (magic == 2).all() and (length >= LENGTH_MIN[2]).all():
            return None
        least = np.asarray(LENGTH_MIN)[np.clip(magic, 0, 2)]
        bad = np.flatnonzero((magic < 0) | (magic > 2) | (length < least))
        if not len(bad):
            return None
        row = int(bad[0])
        error: FormatError
        if not 0 <= magic[row] <= 2:
            error = BadMagicError("magic of a batch", position=MAGIC_POSITION, expected="0, 1 or 2", found=int(magic[row]))
        else:
            what = f"length of a batch of magic {magic[row]}"
            error = BadLengthError(what, position=8, expected=f"at least {least[row]}", found=int(length[row]))
        return row, error.in_file(self.source.name)

    def _block(self, chunk: _Chunk) -> tuple[HeaderBlock, Tail | None]:
        """Reads the markers. With the tail of the segment where one of them is such that a broker throws on it."""
        control, rows = chunk.control, chunk.control_rows
        types, epochs, usual = _usual_markers(rows)
        deltas = np.zeros(len(control), dtype=np.int64)
        end, tail = len(chunk.position_bytes), None
        for index in np.flatnonzero(~usual).tolist():
            start = int(chunk.position_bytes[control[index]])
            try:
                batch = self._control_batch(start, LOG_OVERHEAD_BYTES + int(rows["length"][index]))
                types[index], epochs[index], deltas[index] = _read_marker(batch, rows[index])
            except FormatError as fault:
                tail = Tail(TailKind.CORRUPT, start, fault.shifted_by(start).in_file(self.source.name))
                end = int(control[index])
                control, rows, types, epochs, deltas = (each[:index] for each in (control, rows, types, epochs, deltas))
                break
        appended = rows["attributes"] & ATTRIBUTE_LOG_APPEND_TIME != 0
        timestamps = np.where(appended, rows["max_timestamp"], rows["base_timestamp"] + deltas)
        columns = {name: column[:end] for name, column in chunk.columns.items()}
        bad_crc = chunk.bad_crc[chunk.bad_crc < end]
        return HeaderBlock(chunk.position_bytes[:end], columns, control, types, epochs, timestamps, bad_crc), tail

    def _control_batch(self, position: int, size: int) -> bytes:
        """The bytes of a control batch, which are read again: this is rare. Positions of errors count from its start."""
        most = limits.CONTROL_BATCH_BYTES_MAX + limits.BATCH_HEADER_BYTES_MAX
        if size > most:
            raise LimitExceededError("control batch", position=0, expected=f"at most {most} bytes", found=size)
        batch = bytearray(size)
        count = self.source.read_into(position, memoryview(batch))
        self.bytes_read += count
        return bytes(batch[:count])

    def _bad_crc(self, buffer: np.ndarray, filled: int, offsets: np.ndarray, rows: np.ndarray, position: int) -> np.ndarray:
        ends = offsets + LOG_OVERHEAD_BYTES + rows["length"]
        if ends[-1] <= filled:
            return np.asarray(bad_checksums(buffer, offsets, ends, rows), dtype=np.int64)
        # One batch, larger than the block.
        magic = int(rows["magic"][0])
        function = crc32c if magic == 2 else crc32
        value = function(buffer.data[CRC_START[magic] : filled])
        start, end = position + filled, position + int(ends[0])
        rest = memoryview(bytearray(min(self.block_bytes, end - start)))
        while start < end:
            count = self.source.read_into(start, rest[: min(len(rest), end - start)])
            if count == 0:
                raise TruncatedError("segment became shorter", file=self.source.name, position=start)
            self.bytes_read += count
            value = function(rest[:count], value)
            start += count
        return np.flatnonzero(rows["crc"] != value)


def _short(source: SegmentBytes, position: int) -> TruncatedError:
    found = f"{source.size_bytes - position} bytes"
    return TruncatedError("batch", file=source.name, position=position, expected="a whole batch", found=found)


_MARKER_RECORD_BYTES = 17


def _row_dtype(grammar: Struct) -> np.dtype[np.void]:
    """The layout of a header, with room behind it for the record of a marker as coordinators write it, which is gathered in one go."""
    header = dtype_of(grammar)
    assert header.fields is not None
    fields = {name: (field[0], field[1]) for name, field in header.fields.items()}
    fields["marker_record"] = (np.dtype(f"V{_MARKER_RECORD_BYTES}"), header.itemsize)
    formats, offsets = zip(*fields.values(), strict=True)
    return np.dtype(
        {"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": header.itemsize + _MARKER_RECORD_BYTES}
    )


def _gather(buffer: np.ndarray, offsets: np.ndarray, dtype: np.dtype[np.void]) -> np.ndarray:
    """The bytes at ``offsets`` as rows: one take of fixed-width windows."""
    windows = np.ndarray((len(buffer) - dtype.itemsize + 1,), dtype=f"V{dtype.itemsize}", buffer=buffer, strides=(1,))
    rows: np.ndarray = windows[offsets].view(dtype)
    return rows


def _legacy_in_columns(rows: np.ndarray) -> None:
    """Rewrites the rows of magic 0 and 1, whose bytes stand elsewhere, into the columns of magic 2."""
    legacy = np.flatnonzero(rows["magic"] < 2)
    if not len(legacy):
        return
    raw = rows[legacy].view(np.uint8).reshape(len(legacy), rows.dtype.itemsize)
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


def _usual_markers(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reads the markers that have exactly the bytes a coordinator writes.

    Returns:
        Types (int16), coordinator epochs (int32), and which they are (bool); the grammar reads the others.
    """
    record = rows.view(np.uint8).reshape(len(rows), rows.dtype.itemsize)[:, -_MARKER_RECORD_BYTES:]
    usual: np.ndarray = (
        (rows["length"] == limits.BATCH_HEADER_BYTES_MAX - LOG_OVERHEAD_BYTES + _MARKER_RECORD_BYTES)
        & (rows["attributes"] & ATTRIBUTE_CODEC == 0)
        & (rows["record_count"] > 0)
        & (record[:, _USUAL_FIXED] == _USUAL_MARKER[_USUAL_FIXED]).all(axis=1)
        & (record[:, 7] == 0)
        & (record[:, 8] <= 1)
    )
    return record[:, 8].astype(np.int16), record[:, 12:16].copy().view(">i4")[:, 0].astype(np.int32), usual


def _read_marker(batch: bytes, row: np.void) -> tuple[int, int, int]:
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


def reference_headers(source: SegmentBytes) -> tuple[list[BatchHeader], list[int], Tail]:
    """The same headers, positions and tail by the grammar, one batch after the other: the reference of ``HeaderReader``."""
    headers: list[BatchHeader] = []
    positions: list[int] = []
    position = 0
    buffer = memoryview(bytearray(limits.BATCH_HEADER_BYTES_MAX))
    while position < source.size_bytes:
        count = source.read_into(position, buffer)
        left = source.size_bytes - position
        length = int.from_bytes(buffer[8:12], "big", signed=True)
        # As FileLogInputStream.nextBatch does: a batch that is not whole ends the file in silence, whatever its magic says.
        if left < LOOK_BYTES or (length >= LENGTH_MIN[0] and LOG_OVERHEAD_BYTES + length > left):
            return headers, positions, _reference_tail(source, position, _short(source, position))
        try:
            header = parse_batch_header(bytes(buffer[:count]), file=source.name, position=position)
        except FormatError as error:
            return headers, positions, _reference_tail(source, position, error)
        headers.append(header)
        positions.append(position)
        position += header.size_bytes
    return headers, positions, Tail(TailKind.CLEAN, position)


def _reference_tail(source: SegmentBytes, position: int, error: FormatError) -> Tail:
    rest = bytearray(source.size_bytes - position)
    source.read_into(position, memoryview(rest))
    if not any(rest):
        return Tail(TailKind.ZERO_FILLED, position, error)
    return Tail(TailKind.TORN if isinstance(error, TruncatedError) else TailKind.CORRUPT, position, error)
