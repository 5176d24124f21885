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
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import numpy as np
from construct import Struct

from formats import limits
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


@dataclass(frozen=True, slots=True)
class HeaderBlock:
    """Headers of consecutive batches.

    Attributes:
        position_bytes: int64 (n,), where each batch begins in the segment.
        rows: (n,) of the dtype of ``RECORD_BATCH_HEADER``. Messages of magic 0 and 1 have their values in the same columns, as
            ``BatchHeader`` describes.
        control: int64 (m,), the rows that are control batches with a producer id and at least one record, ascending.
        marker_type: int16 (m,), type of the first record of each of those.
        marker_coordinator_epoch: int32 (m,).
        marker_timestamp: int64 (m,), ms; that of the record, or the header's with LogAppendTime.
    """

    position_bytes: np.ndarray
    rows: np.ndarray
    control: np.ndarray
    marker_type: np.ndarray
    marker_coordinator_epoch: np.ndarray
    marker_timestamp: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> np.ndarray:
        """One field of every header, in native byte order, shape (n,)."""
        column = self.rows[name]
        return column.astype(column.dtype.newbyteorder("="))

    def headers(self) -> list[BatchHeader]:
        """The rows as values, for tests and for people."""
        names = BatchHeader.__dataclass_fields__
        columns = [self.rows[name].tolist() for name in names]
        return [BatchHeader(*values) for values in zip(*columns, strict=True)]


@dataclass(slots=True)
class HeaderReader:
    """Reads the headers of one segment; iterate it once.

    Attributes:
        source: the bytes.
        check_crc: compute the checksum of every batch and list those that differ.
        hint: positions at which batches probably begin, ascending (from an offset index). Never trusted: every chain of batches must land
            on the next hint, or the block is walked from its start.
        start_bytes: where to begin; a batch must begin there.
        block_bytes: how much of the segment is held at a time.
        grammar: the layout of magic 2.
        tail: set when the iteration has ended.
        bad_crc_positions: positions of the batches whose checksum differs, ascending; with ``check_crc`` only.
        bytes_read: what was asked of ``source``.
    """

    source: SegmentBytes
    check_crc: bool = False
    hint: np.ndarray | None = None
    start_bytes: int = 0
    block_bytes: int = limits.HEADER_BLOCK_BYTES
    grammar: Struct = RECORD_BATCH_HEADER
    tail: Tail | None = None
    bad_crc_positions: list[int] = field(default_factory=list)
    bytes_read: int = 0

    def __iter__(self) -> Iterator[HeaderBlock]:
        dtype = dtype_of(self.grammar)
        length_position = dtype.fields["length"][1]  # type: ignore[index]
        capacity = max(self.block_bytes, 2 * limits.BATCH_HEADER_BYTES_MAX)
        # Behind the block: a header's width, so that a short message at its end can be gathered like any other.
        buffer = np.zeros(min(capacity, max(self.source.size_bytes, 1)) + limits.BATCH_HEADER_BYTES_MAX, dtype=np.uint8)
        position = self.start_bytes
        while self.tail is None:
            filled = self._fill(buffer, position)
            at_end = position + filled >= self.source.size_bytes
            offsets, end, reason = self._walk(buffer, position, filled, length_position)
            if len(offsets) == 0 and reason is None and not at_end:
                size = self._oversized_size(buffer, position, length_position)
                if size is None:  # not whole: the file ends inside it
                    reason = _short(self.source, position)
                else:
                    offsets, end = np.zeros(1, dtype=np.int64), size
            block, stop = self._block(buffer, filled, offsets, position, dtype)
            if stop is not None:
                self.tail = stop
            elif reason is not None:
                self.tail = self._tail(reason, position + end)
            elif at_end and position + end >= self.source.size_bytes:
                self.tail = Tail(TailKind.CLEAN, position + end)
            elif at_end:
                self.tail = self._tail(_short(self.source, position + end), position + end)
            position += end
            if len(block):
                yield block

    def _fill(self, buffer: np.ndarray, position: int) -> int:
        wanted = min(len(buffer) - limits.BATCH_HEADER_BYTES_MAX, self.source.size_bytes - position)
        filled = self.source.read_into(position, buffer.data[:wanted]) if wanted > 0 else 0
        if filled < wanted:
            found = f"{position + filled} bytes"
            raise TruncatedError(
                "segment became shorter", file=self.source.name, expected=f"{self.source.size_bytes} bytes", found=found
            )
        self.bytes_read += filled
        buffer[filled : filled + limits.BATCH_HEADER_BYTES_MAX] = 0
        return filled

    def _walk(
        self, buffer: np.ndarray, position: int, filled: int, length_position: int
    ) -> tuple[np.ndarray, int, FormatError | None]:
        """Where the whole batches of the block begin, where the last of them ends, and the error on which the walk stopped."""
        if self.hint is not None and len(self.hint):
            first, last = np.searchsorted(self.hint, (position, position + filled))
            seeds = self.hint[first:last].astype(np.int64) - position
            ascending = len(seeds) >= _HINTS_MIN and seeds[0] >= 0 and seeds[-1] < filled and (seeds[1:] > seeds[:-1]).all()
            if ascending:
                walked = _walk_from_hints(buffer, filled, seeds, length_position)
                if walked is not None:
                    return (*walked, None)
        return _walk_by_length(buffer, filled, length_position, self.source.name, position)

    def _oversized_size(self, buffer: np.ndarray, position: int, length_position: int) -> int | None:
        """Size of a batch that is larger than the block; None when the file ends inside it."""
        length = int.from_bytes(buffer[length_position : length_position + 4].tobytes(), "big", signed=True)
        size = LOG_OVERHEAD_BYTES + length
        return size if position + size <= self.source.size_bytes else None

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

    def _block(
        self, buffer: np.ndarray, filled: int, offsets: np.ndarray, position: int, dtype: np.dtype[np.void]
    ) -> tuple[HeaderBlock, Tail | None]:
        """Gathers the headers at ``offsets`` and everything that has to be read while the buffer holds them."""
        rows = _gather(buffer, offsets, dtype)
        stop: Tail | None = None
        fault = self._first_bad_header(rows)
        if fault is not None:
            row, error = fault
            stop = Tail(TailKind.CORRUPT, position + int(offsets[row]), error.shifted_by(position + int(offsets[row])))
            rows, offsets = rows[:row], offsets[:row]
        _legacy_in_columns(buffer, offsets, rows)
        control, markers, error_row = self._markers(buffer, filled, offsets, rows, position)
        if error_row is not None:
            row, error = error_row
            stop = Tail(TailKind.CORRUPT, position + int(offsets[row]), error)
            rows, offsets = rows[:row], offsets[:row]
        if self.check_crc:
            self._check_crc(buffer, filled, offsets, rows, position)
        return HeaderBlock(offsets + position, rows, control, *markers), stop

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

    def _markers(
        self, buffer: np.ndarray, filled: int, offsets: np.ndarray, rows: np.ndarray, position: int
    ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray], tuple[int, FormatError] | None]:
        """First records of the control batches that have a producer id and a record."""
        is_control = (rows["attributes"] & ATTRIBUTE_CONTROL != 0) & (rows["producer_id"] >= 0) & (rows["record_count"] != 0)
        control = np.flatnonzero(is_control)
        types = np.zeros(len(control), dtype=np.int16)
        epochs = np.zeros(len(control), dtype=np.int32)
        deltas = np.zeros(len(control), dtype=np.int64)
        usual = _usual_markers(buffer, offsets[control], rows[control], types, epochs)
        error: tuple[int, FormatError] | None = None
        for index in np.flatnonzero(~usual).tolist():
            row = int(control[index])
            start = int(offsets[row])
            try:
                batch = self._control_batch(buffer, filled, start, LOG_OVERHEAD_BYTES + int(rows["length"][row]), position)
                types[index], epochs[index], deltas[index] = _read_marker(batch, rows[row])
            except FormatError as fault:
                error = row, fault.shifted_by(position + start).in_file(self.source.name)
                control, types, epochs, deltas = control[:index], types[:index], epochs[:index], deltas[:index]
                break
        chosen = rows[control]
        timestamps = chosen["base_timestamp"].astype(np.int64) + deltas
        appended = chosen["attributes"] & ATTRIBUTE_LOG_APPEND_TIME != 0
        timestamps[appended] = chosen["max_timestamp"][appended]
        return control, (types, epochs, timestamps), error

    def _control_batch(self, buffer: np.ndarray, filled: int, start: int, size: int, position: int) -> bytes:
        """The bytes of a control batch, read again where it is larger than the block. Positions of errors count from its start."""
        most = limits.CONTROL_BATCH_BYTES_MAX + limits.BATCH_HEADER_BYTES_MAX
        if size > most:
            raise LimitExceededError("control batch", position=0, expected=f"at most {most} bytes", found=size)
        if start + size <= filled:
            return buffer[start : start + size].tobytes()
        batch = bytearray(size)
        count = self.source.read_into(position + start, memoryview(batch))
        self.bytes_read += count
        return bytes(batch[:count])

    def _check_crc(self, buffer: np.ndarray, filled: int, offsets: np.ndarray, rows: np.ndarray, position: int) -> None:
        view = buffer.data
        ends = offsets + LOG_OVERHEAD_BYTES + rows["length"]
        for start, end, magic, stored in zip(
            offsets.tolist(), ends.tolist(), rows["magic"].tolist(), rows["crc"].tolist(), strict=True
        ):
            function = crc32c if magic == 2 else crc32
            computed = function(view[start + CRC_START[magic] : min(end, filled)])
            if end > filled:
                computed = self._continue_crc(computed, position + filled, position + end, function is crc32c)
            if computed != stored:
                self.bad_crc_positions.append(position + start)

    def _continue_crc(self, value: int, start: int, end: int, castagnoli: bool) -> int:
        """The checksum of a batch that is larger than the block, over the bytes that follow the block."""
        buffer = memoryview(bytearray(min(self.block_bytes, end - start)))
        while start < end:
            count = self.source.read_into(start, buffer[: min(len(buffer), end - start)])
            if count == 0:
                raise TruncatedError("segment became shorter", file=self.source.name, position=start)
            self.bytes_read += count
            value = crc32c(buffer[:count], value) if castagnoli else crc32(buffer[:count], value)
            start += count
        return value


_LOOK_BYTES = MAGIC_POSITION + 2
"""FileLogInputStream looks at a length only where more than the 17 bytes up to the magic are left."""

_HINTS_MIN = 16
"""Fewer hints in a block than this do not pay for the array operations."""


def _short(source: SegmentBytes, position: int) -> TruncatedError:
    found = f"{source.size_bytes - position} bytes"
    return TruncatedError("batch", file=source.name, position=position, expected="a whole batch", found=found)


def _walk_by_length(
    buffer: np.ndarray, filled: int, length_position: int, name: str, position: int
) -> tuple[np.ndarray, int, FormatError | None]:
    """The plain walk, one batch after the other."""
    data = buffer.data[:filled]
    offsets: list[int] = []
    at = 0
    while at + _LOOK_BYTES <= filled:
        length = int.from_bytes(data[at + length_position : at + length_position + 4], "big", signed=True)
        if length < LENGTH_MIN[0]:
            expected = f"at least {LENGTH_MIN[0]}"
            error = BadLengthError("length of a batch", file=name, position=position + at + 8, expected=expected, found=length)
            return np.asarray(offsets, dtype=np.int64), at, error
        end = at + LOG_OVERHEAD_BYTES + length
        if end > filled:
            break
        offsets.append(at)
        at = end
    return np.asarray(offsets, dtype=np.int64), at, None


def _walk_from_hints(buffer: np.ndarray, filled: int, seeds: np.ndarray, length_position: int) -> tuple[np.ndarray, int] | None:
    """Walks from every hint at once, in lock-step: independent loads instead of one chain of dependent ones.

    Every chain must land exactly on the next hint; if one does not, the hints are wrong (or the bytes are), and None sends the caller to
    the plain walk, which finds out which.
    """
    if seeds[0] != 0:
        seeds = np.concatenate((np.zeros(1, dtype=np.int64), seeds))
    seeds = seeds[seeds + _LOOK_BYTES <= filled]
    bounds = np.append(seeds[1:], filled)
    lengths = np.ndarray((len(buffer) - length_position - 3,), dtype=">i4", buffer=buffer, offset=length_position, strides=(1,))
    found: list[np.ndarray] = []
    at = seeds
    end = filled
    while len(at):
        size = lengths[at].astype(np.int64)
        if (size < LENGTH_MIN[0]).any():
            return None
        after = at + LOG_OVERHEAD_BYTES + size
        over = after > bounds
        if over.any():
            # Only the last batch of the block may reach beyond its bound: it belongs to the next block.
            if over.sum() > 1 or not over[-1] or bounds[-1] != filled:
                return None
            end = int(at[-1])
            at, after, bounds = at[:-1], after[:-1], bounds[:-1]
        found.append(at)
        going = after < bounds
        if len(going) and going[-1] and bounds[-1] == filled and after[-1] + _LOOK_BYTES > filled:
            end = int(after[-1])
            going[-1] = False
        at, bounds = after[going], bounds[going]
    return np.sort(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64), end


def _gather(buffer: np.ndarray, offsets: np.ndarray, dtype: np.dtype[np.void]) -> np.ndarray:
    """The header bytes at ``offsets`` as rows: one take of fixed-width windows."""
    width = dtype.itemsize
    windows = np.lib.stride_tricks.as_strided(buffer, (len(buffer) - width + 1, width), (1, 1), writeable=False)
    return windows[offsets].view(dtype)[:, 0] if len(offsets) else np.zeros(0, dtype=dtype)


def _legacy_in_columns(buffer: np.ndarray, offsets: np.ndarray, rows: np.ndarray) -> None:
    """Rewrites the rows of magic 0 and 1, whose bytes stand elsewhere, into the columns of magic 2."""
    legacy = np.flatnonzero(rows["magic"] < 2)
    if not len(legacy):
        return
    old = _gather(buffer, offsets[legacy], _MESSAGE_DTYPE)
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
_USUAL_FIXED = np.array([index not in (7, 8, 12, 13, 14, 15) for index in range(17)])


def _usual_markers(buffer: np.ndarray, offsets: np.ndarray, rows: np.ndarray, types: np.ndarray, epochs: np.ndarray) -> np.ndarray:
    """Reads the markers that have exactly the bytes a coordinator writes. Returns which they are; the grammar reads the others."""
    header = limits.BATCH_HEADER_BYTES_MAX
    usual: np.ndarray = (
        (rows["length"] == header - LOG_OVERHEAD_BYTES + 17)
        & (rows["attributes"] & ATTRIBUTE_CODEC == 0)
        & (rows["record_count"] > 0)
    )
    where = np.flatnonzero(usual)
    if len(where):
        record = buffer[(offsets[where] + header)[:, None] + np.arange(17)]
        same = (record[:, _USUAL_FIXED] == _USUAL_MARKER[_USUAL_FIXED]).all(axis=1) & (record[:, 7] == 0) & (record[:, 8] <= 1)
        usual[where] = same
        types[where] = record[:, 8]
        epochs[where] = record[:, 12:16].copy().view(">i4")[:, 0]
    return usual


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
        if left < _LOOK_BYTES or (length >= LENGTH_MIN[0] and LOG_OVERHEAD_BYTES + length > left):
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
