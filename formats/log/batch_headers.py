"""The fast header reader: the headers of a whole segment as numpy columns, block by block.

A segment is read in blocks of a few MiB into one reused buffer. In each block the batches are found by their lengths, from many
places at once if an offset index gives hints. Their 61 header bytes are gathered in one go, and with them the few bytes of each
transaction marker.
No record is materialised and no payload is copied. The columns are those of ``record_batch.RECORD_BATCH_HEADER``, through a dtype
that is derived from it.

``Tail`` has where and why the iteration ended, in the cases of ``FileLogInputStream.nextBatch``. These are the end of the file, a
batch that is not whole, and bytes on which the broker throws. At a batch that is not whole the broker's iterators end silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Protocol, TypeGuard

import msgspec
import numpy as np
from construct import Struct

from formats import limits
from formats.checksum import crc32, crc32c
from formats.errors import BadLengthError, BadMagicError, FormatError, LimitExceededError, TruncatedError
from formats.log.batch_rows import (
    HeaderColumns,
    HeaderRows,
    are_current,
    bad_checksums,
    chosen_rows,
    gather,
    in_groups,
    joined_columns,
    joined_rows,
    legacy_in_columns,
    native,
    read_marker,
    row_dtype,
    usual_markers,
)
from formats.log.batch_walk import chain_end, seeds_from_hints, seeds_from_search, walk_by_length, walk_from_seeds
from formats.log.record_batch import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    CRC_START,
    LENGTH_MIN,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    RECORD_BATCH_HEADER,
    BatchHeader,
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
        return ahead.tail if crossing is None and ahead.tail is not None else Tail(TailKind.CLEAN, stop)

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


CHUNK_ROWS = 4096
"""Rows of which columns are made at a time, at least."""

_NO_ROWS = np.zeros(0, dtype=np.int64)
_NO_MARKERS = np.zeros(0, dtype=np.int16), np.zeros(0, dtype=np.int32), _NO_ROWS


def _short(source: SegmentBytes, position: int) -> TruncatedError:
    size = f"{source.size_bytes - position} bytes"
    return TruncatedError("batch", file=source.name, position=position, expected="a whole batch", found=size)
