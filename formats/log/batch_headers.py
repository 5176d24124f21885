"""The fast header reader: the headers of a whole segment as numpy columns, block by block.

A segment is read in blocks of a few MiB into one reused buffer. In each block the batches are found by their lengths, from many
places at once if an offset index gives hints. Their 61 header bytes are gathered in one go as rows (``HeaderRows``), and with them the few
bytes that hold the record of a transaction marker.
No record is materialised and no payload is copied. Rows and columns have the layout of ``record_batch.RECORD_BATCH_HEADER``, through a
dtype that is derived from it.

``Tail`` has where and why the iteration ended, in the cases of ``FileLogInputStream.nextBatch``. These are the end of the file, a
batch that is not whole, and bytes on which the broker throws. At a batch that is not whole the broker's iterators end silently.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Protocol, TypeGuard, TypeVar

import msgspec
import numpy as np
from construct import Struct

from formats import limits
from formats.checksum import crc32, crc32c
from formats.compression import decompress
from formats.errors import BadLengthError, BadMagicError, BadValueError, FormatError, LimitExceededError, TruncatedError
from formats.layout import dtype_of
from formats.log.batch_walk import chain_end, seeds_from_hints, seeds_from_search, walk_by_length, walk_from_seeds
from formats.log.control_record import ControlRecordType, EndTransactionMarker, parse_control_key, parse_control_record
from formats.log.record_batch import (
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
    parse_record,
)

__all__ = [
    "BytesSegment",
    "HeaderBlock",
    "HeaderReader",
    "SegmentBytes",
    "Tail",
    "TailKind",
    "notes_batches",
]


class SegmentBytes(Protocol):
    """Random access to the bytes of a segment."""

    @property
    def name(self) -> str:
        """Name of the file, for messages."""

    @property
    def size_bytes(self) -> int:
        """Size when it was opened; bytes appended later are not read."""

    def read_into(self, position_bytes: int, buffer: memoryview) -> int:
        """Fills ``buffer`` from ``position_bytes``. Returns the count of bytes, less than requested only at the end of the file."""


class _NotesBatches(Protocol):
    """A segment that may be appended to while it is read: at the end of the read, noted batches must still be where they were."""

    def note_batch(self, position_bytes: int, header: bytes) -> None:
        """A whole batch with this header begins at the position. Called for the first and the last batch of a block."""


def notes_batches(source: object) -> TypeGuard[_NotesBatches]:
    """Whether a segment may be appended to while it is read; ``isinstance`` takes tens of microseconds for a protocol."""
    return hasattr(source, "note_batch")


class BytesSegment(msgspec.Struct, frozen=True):
    """A segment in memory."""

    data: bytes
    name: str = "segment"

    @property
    def size_bytes(self) -> int:
        """Length of the data."""
        return len(self.data)

    def read_into(self, position_bytes: int, buffer: memoryview) -> int:
        """Reads bytes of the segment into a buffer (``SegmentBytes.read_into``)."""
        part = self.data[position_bytes : position_bytes + len(buffer)]
        buffer[: len(part)] = part
        return len(part)


class TailKind(Enum):
    """How the batches of a segment end."""

    CLEAN = "clean"
    """At the end of the file."""
    TORN = "torn"
    """At a batch that is not whole: normal in the last segment after a crash."""
    ZERO_FILLED = "zero_filled"
    """At zeros up to the end of the file: a preallocated segment that was not closed."""
    CORRUPT = "corrupt"
    """At bytes on which a broker throws, or a magic that no broker writes."""


class Tail(msgspec.Struct, frozen=True):
    """Where the batches of a segment end.

    Attributes:
        kind: how.
        position_bytes: end of the last whole, readable batch.
        error: the fault at that position, unless ``kind`` is CLEAN.
    """

    kind: TailKind
    position_bytes: int
    error: FormatError | None = None


HEADER_COLUMNS = tuple(BatchHeader.__struct_fields__)
"""All fields of a header, in their order."""


class HeaderBlock(msgspec.Struct, frozen=True):
    """Headers of consecutive batches.

    Attributes:
        position_bytes: int64 (n,), where each batch begins in the segment.
        columns: fields of ``RECORD_BATCH_HEADER`` by name, shape (n,), native byte order: the requested ones.
            Messages of magic 0 and 1 have their values in the same columns, as ``BatchHeader`` describes.
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

    @property
    def next_offset(self) -> int:
        """Offset after the last batch of a block that is not empty and has ``base_offset`` and ``last_offset_delta``."""
        return int(self.column("base_offset")[-1]) + int(self.column("last_offset_delta")[-1]) + 1

    def header(self, row: int) -> BatchHeader:
        """One header of a block that has ``HEADER_COLUMNS``."""
        return BatchHeader(*(int(self.column(name)[row]) for name in HEADER_COLUMNS))

    def part(self, start: int, stop: int) -> HeaderBlock:
        """The rows from ``start`` up to ``stop``, excluded, as a block."""
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
        """The rows as values, for tests and for display. Needs all columns."""
        values = zip(*(self.columns[name].tolist() for name in HEADER_COLUMNS), strict=True)
        return [BatchHeader(*row) for row in values]


class HeaderReader(msgspec.Struct):
    """Reads the headers of one segment; iterate it once.

    Attributes:
        source: the bytes.
        check_crc: compute the checksum of every batch and list those that differ.
        hint: positions at which batches probably begin, ascending (from an offset index). Never trusted, see
            ``formats.log.batch_walk``.
        start_bytes: where to begin; a batch must begin there.
        end_bytes: where a range of the segment ends, None for all of it; a batch must end there. If the first of several ranges
            begins at 0, each range proves the start of the next: see ``tail``.
        block_bytes: how much of the segment is held at a time.
        block_rows: least number of headers in a ``HeaderBlock``: array operations on few rows do not pay for their fixed cost.
        columns: the fields to read.
        read_markers: read the records of control batches with a producer id; a batch on which a broker throws ends the iteration.
            If False, the blocks have no markers, and the caller reads the control batches.
        grammar: the layout of magic 2.
        tail: set when the iteration has ended. For a range it equals that of the whole segment, except in one case: CLEAN before
            ``end_bytes``. Then a whole batch begins there and continues after the end of the range, so that the range does not
            begin or does not end between batches.
        bytes_read: bytes requested from ``source``.
    """

    source: SegmentBytes
    check_crc: bool = False
    hint: np.ndarray | None = None
    start_bytes: int = 0
    end_bytes: int | None = None
    block_bytes: int = limits.HEADER_BLOCK_BYTES
    block_rows: int = 1
    columns: tuple[str, ...] = HEADER_COLUMNS
    read_markers: bool = True
    grammar: Struct = RECORD_BATCH_HEADER
    tail: Tail | None = None
    bytes_read: int = 0

    def __iter__(self) -> Iterator[HeaderBlock]:
        # Columns are made from rows that are still in the processor's cache; blocks are joined from columns.
        groups = in_groups(self._rows(), min(CHUNK_ROWS, self.block_rows), joined_rows)
        chunks = in_groups(map(self._columns_of, groups), self.block_rows, joined_columns)
        for chunk in chunks:
            block, fault = self._block(chunk)
            self.tail = fault or self.tail
            if len(block):
                yield block
            if fault is not None:
                return

    def _rows(self) -> Iterator[HeaderRows]:
        """The rows of each block of the segment, gathered while its bytes are in memory and in the processor's cache."""
        dtype = row_dtype(self.grammar)
        range_end = self._range_end
        capacity = min(max(self.block_bytes, 2 * limits.BATCH_HEADER_BYTES_MAX), max(range_end - self.start_bytes, 1))
        # A bytearray can be searched. One row's width is added at the end, so that a short message there is gathered like any
        # other.
        data = bytearray(capacity + dtype.itemsize)
        buffer = np.frombuffer(data, dtype=np.uint8)
        position = self.start_bytes
        carried = 0
        noting = self.source if notes_batches(self.source) else None
        tail = self.tail
        while tail is None:
            filled = self._fill(buffer, position, capacity, carried)
            at_end = position + filled >= range_end
            offsets, rows, end, reason = self._walk(data, buffer, position, filled, dtype)
            if len(offsets) == 0 and reason is None and not at_end:
                size = LOG_OVERHEAD_BYTES + int(gather(buffer, np.zeros(1, dtype=np.int64), dtype)["length"][0])
                if position + size > range_end:
                    at_end = True
                else:  # a batch that is larger than the block
                    offsets = np.zeros(1, dtype=np.int64)
                    end = size
                    rows = gather(buffer, offsets, dtype)
            tail = self._tail_after(position, end, at_end, reason)
            if not are_current(rows):
                fault = self._first_bad_header(rows)
                if fault is not None:
                    row, error = fault
                    start = position + int(offsets[row])
                    tail = Tail(TailKind.CORRUPT, start, error.shifted_by(start))
                    rows = rows[:row]
                    offsets = offsets[:row]
                legacy_in_columns(rows)
            if len(rows):
                if noting is not None:
                    for at in (int(offsets[0]), int(offsets[-1])):
                        noting.note_batch(position + at, bytes(data[at : min(at + dtype.itemsize, end)]))
                bad = self._bad_crc(buffer, filled, offsets, rows, position) if self.check_crc else _NO_ROWS
                yield HeaderRows(offsets + position, rows, bad)
            # The bytes of a batch that is not whole begin the next block: each byte is read once, in order.
            position = position + end
            carried = max(filled - end, 0)
            buffer[:carried] = buffer[filled - carried : filled]
        self.tail = tail

    def _columns_of(self, headers: HeaderRows) -> HeaderColumns:
        rows = headers.rows
        columns = {name: native(rows[name]) for name in self.columns}
        control = (rows["attributes"] & ATTRIBUTE_CONTROL != 0).nonzero()[0] if self.read_markers else _NO_ROWS
        control = control[((rows["producer_id"][control] >= 0) & (rows["record_count"][control] != 0)).nonzero()[0]]
        return HeaderColumns(headers.position_bytes, columns, control, chosen_rows(rows, control), headers.bad_crc)

    @property
    def _range_end(self) -> int:
        return self.source.size_bytes if self.end_bytes is None else self.end_bytes

    def _tail_after(self, position: int, end: int, at_end: bool, reason: FormatError | None) -> Tail | None:
        """The tail if the segment, or the range, ends after the batches of this block."""
        stop = position + end
        if reason is not None:
            return self._tail(reason, stop)
        if not at_end:
            return None
        if stop == self._range_end:
            return Tail(TailKind.CLEAN, stop)
        if self.end_bytes is None:
            return self._tail(_short(self.source, stop), stop)
        return self._tail_before_range_end(stop)

    def _tail_before_range_end(self, stop: int) -> Tail:
        """No whole batch of the range begins at ``stop``: the tail that a reader of the whole segment finds there."""
        ahead = HeaderReader(
            self.source, start_bytes=stop, block_bytes=1, columns=(), read_markers=self.read_markers, grammar=self.grammar
        )
        crossing = next(iter(ahead), None)
        self.bytes_read += ahead.bytes_read
        if crossing is None and ahead.tail is not None:
            return ahead.tail
        return Tail(TailKind.CLEAN, stop)

    def _fill(self, buffer: np.ndarray, position: int, capacity: int, carried: int) -> int:
        """Reads a block whose first ``held`` bytes are in the buffer already. Returns its length."""
        stop = min(capacity, self._range_end - position)
        count = self.source.read_into(position + carried, buffer.data[carried:stop]) if stop > carried else 0
        filled = carried + count
        if filled != stop:
            size = f"{position + filled if stop > 0 else self.source.size_bytes} bytes"
            raise TruncatedError("segment became shorter", file=self.source.name, expected=f"{self._range_end} bytes", found=size)
        self.bytes_read += count
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
                rows = gather(buffer, offsets, dtype)
                proven = chain_end(offsets, native(rows["length"]), filled)
                if proven is not None:
                    count, end = proven
                    return offsets[:count], rows[:count], end, None
        offsets, end, reason = walk_by_length(data, filled, length_position, self.source.name, position)
        return offsets, gather(buffer, offsets, dtype), end, reason

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
        if self.source.size_bytes > limits.SEGMENT_BYTES_MAX:
            return False  # no broker preallocates so much, and a file with holes may have any size
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
        magic = rows["magic"]
        length = rows["length"]
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

    def _block(self, chunk: HeaderColumns) -> tuple[HeaderBlock, Tail | None]:
        """Reads the markers. Returns the tail of the segment, too, if a broker throws on one of them."""
        control = chunk.control
        rows = chunk.control_rows
        if not len(control):
            none = _NO_MARKERS
            return HeaderBlock(chunk.position_bytes, chunk.columns, control, none[0], none[1], none[2], chunk.bad_crc), None
        types, epochs, usual = usual_markers(rows)
        deltas = np.zeros(len(control), dtype=np.int64)
        end = len(chunk.position_bytes)
        tail = None
        for index in (~usual).nonzero()[0].tolist():
            start = int(chunk.position_bytes[control[index]])
            try:
                batch = self._control_batch(start, LOG_OVERHEAD_BYTES + int(rows["length"][index]))
                types[index], epochs[index], deltas[index] = read_marker(batch, rows[index])
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
        """The bytes of a control batch, read again: this is rare. Positions of errors count from its start."""
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
        start = position + filled
        end = position + int(ends[0])
        rest = memoryview(bytearray(min(self.block_bytes, end - start)))
        while start < end:
            count = self.source.read_into(start, rest[: min(len(rest), end - start)])
            if count == 0:
                raise TruncatedError("segment became shorter", file=self.source.name, position=start)
            self.bytes_read += count
            value = function(rest[:count], value)
            start += count
        return np.flatnonzero(rows["crc"] != value)


# ---------------------------------------------------------------------------------------------------- rows of headers

CHUNK_ROWS = 4096
"""Rows of which columns are made at a time, at least."""

_NO_ROWS = np.zeros(0, dtype=np.int64)
_NO_MARKERS = np.zeros(0, dtype=np.int16), np.zeros(0, dtype=np.int32), _NO_ROWS


def _short(source: SegmentBytes, position: int) -> TruncatedError:
    size = f"{source.size_bytes - position} bytes"
    return TruncatedError("batch", file=source.name, position=position, expected="a whole batch", found=size)


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
