"""The records of many batches of any magic as columns: keys, values and headers are ranges of bytes, not objects.

``formats.log.records.read_records`` is the definition: the tests prove the two equal, in records, errors and their positions.

Source: ``DefaultRecordBatch.iterator``, ``DefaultRecord.readFrom``, ``AbstractLegacyRecordBatch.DeepRecordsIterator``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import islice

import msgspec
import numpy as np

from formats import limits
from formats.checksum import crc32, crc32c
from formats.compression import CODECS, decompress_into
from formats.errors import BadChecksumError, FormatError, LimitExceededError, TruncatedError
from formats.log.batch_headers import HeaderBlock, SegmentBytes
from formats.log.record_batch import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_LOG_APPEND_TIME,
    CRC_START,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    BatchHeader,
    RecordHeader,
)
from formats.log.record_decoder import (
    PADDING_BYTES,
    RecordFields,
    decode_headers,
    decode_messages,
    decode_records,
    find_records,
    walk_records,
)
from formats.log.records import LogRecord, Piped, RecordWindow, check_end, next_record, read_records, walk_decompressed, walk_piped

__all__ = ["GROUP_BYTES", "GROUP_RECORDS", "RecordGroup", "bad_checksum", "record_groups"]

CRC_BYTES = 4
LENGTH_POSITION = 8
"""Byte of a batch at which its length begins; the length counts what follows ``LOG_OVERHEAD_BYTES``."""

GROUP_BYTES = 8 << 20
"""Bytes of decompressed records that a group holds, unless one record is larger."""

GROUP_RECORDS = 1 << 17
"""Most records of batches that are found at a time: some of their columns are int64."""

RECORD_BYTES_LEAST = 7
"""Bytes of the smallest record. A batch that counts more records than it has room for gets no columns for them."""

DECODED_RECORDS = 1 << 14
"""Most records that are decoded at a time: their columns are in the processor's cache meanwhile."""

GROUP_HEADERS = 1 << 17
"""Most headers of the records of a group, unless one record has more."""


class RecordGroup(msgspec.Struct, frozen=True):
    """Consecutive records of one segment, in the order of the file. There are n of them, n > 0, and m headers.

    Attributes:
        data: uint8, what all ranges are of: decompressed records, or bytes of the file. It is not changed later.
        batch: int64 (n,), ascending; the row of the batch in the ``HeaderBlock``.
        offset: int64 (n,), absolute.
        timestamp: int64 (n,), ms; -1 for none.
        timestamp_type: int8 (n,); 0 CreateTime, 1 LogAppendTime, -1 none (magic 0), as ``TimestampType.id``.
        sequence: int32 (n,); -1 for none.
        key_start: int64 (n,), position in ``data``.
        key_size: int64 (n,), bytes; -1 for null.
        value_start: int64 (n,).
        value_size: int64 (n,), bytes; -1 for null.
        header_count: int64 (n,), headers of each record; zeros if they were not requested.
        header_key_start: int64 (m,), the headers of the first record, then those of the second, and so on.
        header_key_size: int64 (m,), bytes; never null.
        header_value_start: int64 (m,).
        header_value_size: int64 (m,), bytes; -1 for null.
    """

    data: np.ndarray
    batch: np.ndarray
    offset: np.ndarray
    timestamp: np.ndarray
    timestamp_type: np.ndarray
    sequence: np.ndarray
    key_start: np.ndarray
    key_size: np.ndarray
    value_start: np.ndarray
    value_size: np.ndarray
    header_count: np.ndarray
    header_key_start: np.ndarray
    header_key_size: np.ndarray
    header_value_start: np.ndarray
    header_value_size: np.ndarray

    def __len__(self) -> int:
        return len(self.offset)

    def without_headers(self) -> RecordGroup:
        """The records as if they had no headers."""
        none = np.zeros(0, dtype=np.int64)
        columns = {name: getattr(self, name) for name in RECORD_COLUMNS if name != "header_count"}
        return RecordGroup(
            data=self.data, **columns, header_count=np.zeros_like(self.header_count), **dict.fromkeys(HEADER_RANGES, none)
        )

    def chosen(self, rows: np.ndarray | slice) -> RecordGroup:
        """The records at ``rows``: indices, ascending, or a mask, or a slice."""
        rows = np.arange(len(self))[rows]
        first = np.cumsum(self.header_count) - self.header_count
        counts = self.header_count[rows]
        headers = np.repeat(first[rows] - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
        columns = {name: getattr(self, name)[rows] for name in RECORD_COLUMNS}
        columns.update({name: getattr(self, name)[headers] for name in HEADER_RANGES})
        return RecordGroup(data=self.data, **columns)

    def records(self) -> list[LogRecord]:
        """The records as values, for tests and for display."""
        data = self.data.tobytes()
        keys = _values(data, self.key_start, self.key_size)
        values = _values(data, self.value_start, self.value_size)
        header_keys = _values(data, self.header_key_start, self.header_key_size)
        header_values = _values(data, self.header_value_start, self.header_value_size)
        headers = [RecordHeader(key or b"", value) for key, value in zip(header_keys, header_values, strict=True)]
        ends = np.cumsum(self.header_count).tolist()
        starts = [0, *ends[:-1]]
        numbers = zip(self.offset.tolist(), self.timestamp.tolist(), keys, values, self.sequence.tolist(), strict=True)
        return [LogRecord(*each, tuple(headers[start:end])) for each, start, end in zip(numbers, starts, ends, strict=True)]


RECORD_COLUMNS = (
    "batch",
    "offset",
    "timestamp",
    "timestamp_type",
    "sequence",
    "key_start",
    "key_size",
    "value_start",
    "value_size",
    "header_count",
)
HEADER_RANGES = ("header_key_start", "header_key_size", "header_value_start", "header_value_size")


def _values(data: bytes, starts: np.ndarray, sizes: np.ndarray) -> list[bytes | None]:
    ranges = zip(starts.tolist(), sizes.tolist(), strict=True)
    return [None if size < 0 else data[start : start + size] for start, size in ranges]


Damaged = Callable[[int, FormatError], None]


def record_groups(
    source: SegmentBytes,
    block: HeaderBlock,
    *,
    rows: np.ndarray | None = None,
    with_headers: bool = True,
    group_bytes: int = GROUP_BYTES,
    piped: Piped | None = None,
    on_damage: Damaged | None = None,
) -> Iterator[RecordGroup]:
    """The records of batches of one segment, in groups of bounded size: a batch may be cut into several.

    Checksums: those of the batches are the job of who reads the headers. With ``HeaderReader(check_crc=True)`` the block lists the bad
    ones, and their records are not read. Those of messages inside of a wrapper (magic 0 and 1) are checked here.

    Args:
        source: the segment. Only the batches of ``rows`` are read, neighbours with one call.
        block: headers of whole batches, with all columns.
        rows: int64, ascending; which batches of the block are wanted, control batches included. None for all.
        with_headers: whether the headers of the records are wanted.
        group_bytes: of records that a group holds at most, unless one record is larger.
        piped: large compressed batches are decompressed while they are read, and little of them is in memory; if None, all at once.
        on_damage: takes the row of a damaged batch and the error, after the records before the fault were yielded; then the records of
            the next batch follow. If None, the error is raised.

    Raises:
        BadChecksumError: the checksum of a batch, or of a message in it, is wrong; its position is where the batch begins.
        LimitExceededError: a batch is larger than ``limits.DATA_BATCH_BYTES_MAX``, stored or decompressed; or a record of a batch that
            is not read at once is larger than ``limits.RECORD_BYTES_MAX``.
        FormatError: records do not follow the format, as from ``read_records``. The records before the fault were yielded.
    """
    wanted = np.arange(len(block)) if rows is None else rows
    reader = _GroupReader(source, block, with_headers, group_bytes, piped, on_damage)
    return reader.groups(wanted)


_ALONE = 0
_PLAIN = 1
_MESSAGE = 2
"""How a batch is read: alone, or with its neighbours of the same kind, in columns: batches of magic 2, and messages of magic 0 and 1."""


class _GroupReader:
    """Reads the records of batches of one block; see ``record_groups``."""

    def __init__(
        self,
        source: SegmentBytes,
        block: HeaderBlock,
        with_headers: bool,
        group_bytes: int,
        piped: Piped | None,
        on_damage: Damaged | None,
    ) -> None:
        self._source = source
        self._block = block
        self._with_headers = with_headers
        self._group_bytes = group_bytes
        self._piped = piped
        self._on_damage = on_damage
        self._single = _Collector(with_headers)
        self._position = block.position_bytes
        self._size = block.columns["length"].astype(np.int64) + LOG_OVERHEAD_BYTES
        self._codec = block.columns["attributes"] & ATTRIBUTE_CODEC
        self._count = block.columns["record_count"].astype(np.int64)
        self._bad_crc = np.zeros(len(block), dtype=bool)
        self._bad_crc[block.bad_crc] = True

    def groups(self, rows: np.ndarray) -> Iterator[RecordGroup]:
        """The records of batches."""
        is_empty = (self._block.columns["magic"] == 2) & (self._count == 0)
        rows = rows[~(is_empty & ~self._bad_crc)[rows]]
        is_plain = (self._block.columns["magic"] == 2) & ~self._bad_crc & (self._count > 0) & (self._codec < len(CODECS))
        is_plain &= (self._count <= GROUP_RECORDS) & (self._size <= self._group_bytes)
        fits = self._count * RECORD_BYTES_LEAST <= self._size - limits.BATCH_HEADER_BYTES_MAX
        is_plain &= fits | (self._codec != 0)
        is_message = (self._block.columns["magic"] < 2) & ~self._bad_crc & (self._codec == 0) & (self._size <= self._group_bytes)
        self._count[is_message] = 1
        kind = np.where(is_plain, _PLAIN, np.where(is_message, _MESSAGE, _ALONE))[rows]
        ends_of_kind = np.append(np.flatnonzero(np.diff(kind)) + 1, len(rows))
        start = self._position[rows]
        end = start + self._size[rows]
        records = np.cumsum(self._count[rows])
        at = 0
        while at < len(rows):
            if kind[at] == _ALONE:
                yield from self._alone(int(rows[at]))
                at += 1
                continue
            stop = int(ends_of_kind[np.searchsorted(ends_of_kind, at, side="right")])
            stop = min(stop, int(np.searchsorted(end, start[at] + self._group_bytes, side="right")))
            before = records[at] - self._count[rows[at]]
            stop = min(stop, at + int(np.searchsorted(records[at:stop], before + GROUP_RECORDS, side="right")))
            yield from self._together(rows[at:stop], is_message=kind[at] == _MESSAGE)
            at = stop
        yield from self._rest()

    def _rest(self) -> Iterator[RecordGroup]:
        """The records that were read one by one, if there are any."""
        if len(self._single):
            yield self._single.group()

    def _together(self, rows: np.ndarray, is_message: bool) -> Iterator[RecordGroup]:
        """The records of batches, or messages, that are near to each other, none larger than a group as it is stored."""
        first = int(self._position[rows[0]])
        size = int(self._position[rows[-1]] + self._size[rows[-1]]) - first
        stored = np.empty(size + PADDING_BYTES, dtype=np.uint8)
        stored[size:] = 0
        if self._source.read_into(first, stored.data[:size]) != size:
            for row in rows.tolist():
                yield from self._alone(row)
            return
        end = self._position[rows] - first + self._size[rows]
        if is_message:
            start = self._position[rows] - first + MAGIC_POSITION
            yield from self._records(stored, rows, start, end, None, decode_messages)
            return
        start = self._position[rows] - first + limits.BATCH_HEADER_BYTES_MAX
        if not self._codec[rows].any():
            yield from self._decoded(stored, rows, start, end)
            return
        at = 0
        while at < len(rows):
            room = np.empty(self._group_bytes + PADDING_BYTES, dtype=np.uint8)
            ends = self._unpacked(stored, rows[at:], start[at:], end[at:], room)
            if not ends:
                yield from self._alone(int(rows[at]))
                at += 1
                continue
            bounds = np.array([0, *ends], dtype=np.int64)
            room = room[: ends[-1] + PADDING_BYTES]
            room[ends[-1] :] = 0
            yield from self._decoded(room, rows[at : at + len(ends)], bounds[:-1], bounds[1:])
            at += len(ends)

    def _unpacked(self, stored: np.ndarray, rows: np.ndarray, start: np.ndarray, end: np.ndarray, room: np.ndarray) -> list[int]:
        """Decompresses the records of the first batches, back to back, until one is damaged or does not fit. Returns where each ends."""
        view = room.data[: self._group_bytes]
        ends = list[int]()
        filled = 0
        columns = (self._codec[rows], start, end, self._count[rows])
        for codec, first, last, records in zip(*(column.tolist() for column in columns), strict=True):
            if codec:
                count = decompress_into(codec, stored[first:last].tobytes(), view[filled:])
                if count is None or count < records * RECORD_BYTES_LEAST:
                    break
            else:
                count = last - first
                if filled + count > self._group_bytes:
                    break
                view[filled : filled + count] = stored.data[first:last]
            filled += count
            ends.append(filled)
        return ends

    def _decoded(self, buffer: np.ndarray, rows: np.ndarray, start: np.ndarray, end: np.ndarray) -> Iterator[RecordGroup]:
        """The records of batches that are in a buffer."""
        count = self._count[rows]
        record_start, is_whole = find_records(buffer, start, end, count)
        record_end = np.empty_like(record_start)
        record_end[:-1] = record_start[1:]
        record_end[np.cumsum(count) - 1] = end
        is_readable = None if is_whole.all() else np.repeat(is_whole, count)
        yield from self._records(buffer, rows, record_start, record_end, is_readable, decode_records)

    def _records(
        self,
        buffer: np.ndarray,
        rows: np.ndarray,
        start: np.ndarray,
        end: np.ndarray,
        is_readable: np.ndarray | None,
        decode: Callable[[np.ndarray, np.ndarray, np.ndarray], RecordFields],
    ) -> Iterator[RecordGroup]:
        """The records that begin and end at these positions. Batches with others than plain records are read once more, one by one."""
        yield from self._rest()
        count = self._count[rows]
        first = np.cumsum(count) - count
        batch = np.repeat(np.arange(len(rows)), count)
        at = 0
        while at < len(batch):
            part = slice(at, at + DECODED_RECORDS)
            fields = decode(buffer, start[part], end[part])
            if is_readable is not None:
                fields.is_plain[~is_readable[part]] = False
                fields.header_count[~is_readable[part]] = 0
            plain = yield from self._plain_groups(buffer, rows[batch[part]], fields, end[part])
            at += plain
            if plain < len(fields.is_plain):
                row = int(batch[at])
                yield from self._alone(int(rows[row]), at - int(first[row]))
                yield from self._rest()
                at = int(first[row] + count[row])

    def _plain_groups(
        self, buffer: np.ndarray, batch: np.ndarray, fields: RecordFields, end: np.ndarray
    ) -> Generator[RecordGroup, None, int]:
        """The plain records at the beginning of some. Returns how many they are."""
        at = 0
        for stop in _header_parts(fields.header_count):
            part = slice(at, stop)
            group, plain = self._group(buffer, batch[part], _part(fields, part), end[part])
            if plain:
                yield group
            at += plain
            if at < stop:
                break
        return at

    def _group(self, buffer: np.ndarray, batch: np.ndarray, fields: RecordFields, end: np.ndarray) -> tuple[RecordGroup, int]:
        """The plain records at the beginning of some, and how many they are."""
        headers, is_plain = decode_headers(buffer, fields.header_start, fields.header_count, end)
        is_plain &= fields.is_plain
        plain = len(is_plain) if is_plain.all() else int(np.argmin(is_plain))
        columns = self._block.columns
        attributes = columns["attributes"][batch]
        is_append_time = (attributes & ATTRIBUTE_LOG_APPEND_TIME) != 0
        timestamp = columns["base_timestamp"][batch] + fields.timestamp_delta
        if is_append_time.any():
            timestamp = np.where(is_append_time, columns["max_timestamp"][batch], timestamp)
        timestamp_type = is_append_time.astype(np.int8)
        timestamp_type[columns["magic"][batch] == 0] = -1
        group = RecordGroup(
            data=buffer[:-PADDING_BYTES],
            batch=batch,
            offset=columns["base_offset"][batch] + fields.offset_delta,
            timestamp=timestamp,
            timestamp_type=timestamp_type,
            sequence=_sequences(columns["base_sequence"][batch], fields.offset_delta),
            key_start=fields.key_start,
            key_size=fields.key_size,
            value_start=fields.value_start,
            value_size=fields.value_size,
            header_count=fields.header_count,
            header_key_start=headers.key_start,
            header_key_size=headers.key_size,
            header_value_start=headers.value_start,
            header_value_size=headers.value_size,
        )
        if plain < len(is_plain):
            group = group.chosen(slice(0, plain))
        return group if self._with_headers else group.without_headers(), plain

    def _alone(self, row: int, skipped: int = 0) -> Iterator[RecordGroup]:
        """The records of a batch of any size after some of them, or the error of the batch."""
        header = self._block.header(row)
        position = int(self._position[row])
        try:
            if header.size_bytes > limits.DATA_BATCH_BYTES_MAX:
                expected = f"at most {limits.DATA_BATCH_BYTES_MAX} bytes"
                raise LimitExceededError("batch", position=position, expected=expected, found=header.size_bytes)
            if self._bad_crc[row]:
                raise bad_checksum(self._source, position)
            if (
                header.magic == 2
                and not skipped
                and header.record_count >= 0
                and (header.codec or header.size_bytes > self._group_bytes)
            ):
                yield from self._large(row, header, position)
            else:
                yield from self._one_by_one(row, header, position, skipped)
        except FormatError as error:
            yield from self._rest()
            if self._on_damage is None:
                raise error.in_file(self._source.name) from None
            self._on_damage(row, error.in_file(self._source.name))

    def _one_by_one(self, row: int, header: BatchHeader, position: int, skipped: int) -> Iterator[RecordGroup]:
        records = read_records(header, bytes(self._batch(header, position)), position=position, piped=self._piped)
        for record in islice(records, skipped, None):
            if not record.is_valid:
                what = "checksum of a message in a wrapper"
                raise BadChecksumError(what, position=position, expected=f"that of offset {record.offset}", found="another")
            self._single.add(row, header, record)
            if self._is_full:
                yield self._single.group()

    @property
    def _is_full(self) -> bool:
        single = self._single
        return single.size_bytes >= self._group_bytes or len(single) >= DECODED_RECORDS or single.header_count >= GROUP_HEADERS

    def _large(self, row: int, header: BatchHeader, position: int) -> Iterator[RecordGroup]:
        """The records of a batch of magic 2, of which a part is in memory at a time."""
        start = limits.BATCH_HEADER_BYTES_MAX
        reading = _SegmentRange(self._source, position + start, position + header.size_bytes)
        if header.codec:
            walk = partial(self._windowed, row, header, position)
            if self._piped is not None and header.size_bytes - start > limits.RECORD_WINDOW_BYTES:
                yield from walk_piped(header, partial(_whole_part, reading, header, position), position + start, self._piped, walk)
            else:
                yield from walk_decompressed(header, self._batch(header, position, start), position + start, self._piped, walk)
            return
        window = RecordWindow(b"", reading.read, position, header.size_bytes - start)
        yield from self._windowed(row, header, position, window)

    def _windowed(self, row: int, header: BatchHeader, position: int, window: RecordWindow) -> Iterator[RecordGroup]:
        number = 0
        at = 0
        singles = 0
        singles_next = SINGLES_LEAST
        while number < header.record_count:
            if singles:
                record, at = next_record(header, window, at, number, position)
                self._single.add(row, header, record)
                if self._is_full:
                    yield self._single.group()
                number += 1
                singles -= 1
                continue
            starts = walk_records(window.data, at, min(header.record_count - number, GROUP_RECORDS))
            if len(starts) == 1:  # no whole record that is plain
                if len(window.data) - at >= self._group_bytes:
                    singles = SINGLES_LEAST
                    continue
                if not window.more(at, self._group_bytes):
                    singles = SINGLES_LEAST
                at = 0
                continue
            yield from self._rest()
            plain = yield from self._decoded_part(row, window.data, np.array(starts, dtype=np.int64))
            number += plain
            at = starts[plain]
            if plain == len(starts) - 1:
                singles_next = SINGLES_LEAST
            else:
                singles = singles_next
                singles_next = min(2 * singles_next, SINGLES_MOST)
        yield from self._rest()
        check_end(header, window, at, position)

    def _decoded_part(self, row: int, data: bytes, bounds: np.ndarray) -> Generator[RecordGroup, None, int]:
        """The plain records at the beginning of those between the bounds. Returns how many they are."""
        start = int(bounds[0])
        size = int(bounds[-1]) - start
        buffer = np.empty(size + PADDING_BYTES, dtype=np.uint8)
        buffer[:size] = np.frombuffer(data, dtype=np.uint8, count=size, offset=start)
        buffer[size:] = 0
        record_start = bounds[:-1] - start
        record_end = bounds[1:] - start
        fields = decode_records(buffer, record_start, record_end)
        batch = np.full(len(record_start), row, dtype=np.int64)
        at = 0
        while at < len(batch):
            part = slice(at, at + DECODED_RECORDS)
            fields = decode_records(buffer, record_start[part], record_end[part])
            plain = yield from self._plain_groups(buffer, batch[part], fields, record_end[part])
            at += plain
            if plain < len(fields.is_plain):
                break
        return at

    def _batch(self, header: BatchHeader, position: int, start: int = 0) -> bytearray:
        """The bytes of a batch from one of them on."""
        reading = _SegmentRange(self._source, position + start, position + header.size_bytes)
        return _whole_part(reading, header, position, header.size_bytes)


SINGLES_LEAST = 64
SINGLES_MOST = 1 << 12
"""Records of a large batch that are read one by one after one that is not plain. The number doubles with each attempt that finds one."""


def bad_checksum(source: SegmentBytes, position: int) -> BadChecksumError:
    """The error about a batch with a wrong checksum: the checksum of its bytes is expected, the one in its header is found.

    Args:
        source: the segment, which has the whole batch.
        position: in the segment, where the batch begins.

    Raises:
        TruncatedError: the segment became shorter.
    """
    begin = _SegmentRange(source, position, position + MAGIC_POSITION + 1).take(MAGIC_POSITION + 1)
    if len(begin) <= MAGIC_POSITION:
        raise TruncatedError("batch", position=position, expected=f"{MAGIC_POSITION + 1} bytes", found=f"{len(begin)} bytes")
    magic = begin[MAGIC_POSITION]
    end = position + LOG_OVERHEAD_BYTES + int.from_bytes(begin[LENGTH_POSITION:LOG_OVERHEAD_BYTES])
    start = position + CRC_START[magic]
    stored = int.from_bytes(_SegmentRange(source, start - CRC_BYTES, start).take(CRC_BYTES))
    function = crc32c if magic == 2 else crc32
    reading = _SegmentRange(source, start, end)
    computed = 0
    while part := reading.read(limits.HEADER_BLOCK_BYTES):
        computed = function(part, computed)
    return BadChecksumError("checksum of a batch", position=position, expected=f"{computed:#010x}", found=f"{stored:#010x}")


class _SegmentRange:
    """Reads a range of a segment from its start to its end."""

    def __init__(self, source: SegmentBytes, start: int, end: int) -> None:
        self._source = source
        self._at = start
        self._end = end

    @property
    def left(self) -> int:
        """How many bytes were not read yet."""
        return self._end - self._at

    def read(self, count: int) -> bytes:
        """The next bytes, none at the end."""
        return bytes(self.take(count))

    def take(self, count: int) -> bytearray:
        """The next bytes, none at the end, of which no copy was made."""
        part = bytearray(min(count, self._end - self._at))
        read = 0
        if part:
            with memoryview(part) as view:
                read = self._source.read_into(self._at, view)
        self._at += read
        del part[read:]
        return part


def _whole_part(reading: _SegmentRange, header: BatchHeader, position: int, count: int) -> bytearray:
    """The next bytes of a batch, all that are requested unless the batch ends there.

    Raises:
        TruncatedError: the segment became shorter.
    """
    expected = min(count, reading.left)
    part = reading.take(expected)
    if len(part) != expected:
        found = header.size_bytes - reading.left
        raise TruncatedError("batch", position=position, expected=f"{header.size_bytes} bytes", found=f"{found} bytes")
    return part


def _header_parts(header_count: np.ndarray) -> list[int]:
    """Where groups of records end that have at most ``GROUP_HEADERS`` headers, unless one record has more."""
    total = int(header_count.sum())
    if total <= GROUP_HEADERS:
        return [len(header_count)]
    parts = (np.cumsum(header_count) - 1) // GROUP_HEADERS
    return [*(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(header_count)]


def _part(fields: RecordFields, part: slice) -> RecordFields:
    return RecordFields(*(getattr(fields, name)[part] for name in RecordFields.__struct_fields__))


def _sequences(base: np.ndarray, offset_delta: np.ndarray) -> np.ndarray:
    """The sequence number of each record, -1 for none; 0 follows 2^31 - 1 (``incremented_sequence``)."""
    if (base < 0).all():
        return np.full(len(base), -1, dtype=np.int32)
    sequence = base + offset_delta
    sequence = np.where(sequence > limits.INT32_MAX, sequence - limits.INT32_MAX - 1, sequence)
    return np.where(base >= 0, sequence, -1).astype(np.int32)


def _int64(number: int) -> int:
    """A sum as Java's long has it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


class _Collector:
    """Records one by one, until they are a group."""

    def __init__(self, with_headers: bool) -> None:
        self._with_headers = with_headers
        self._clear()

    def _clear(self) -> None:
        self._data = bytearray()
        self._numbers = list[tuple[int, ...]]()
        self._headers = list[tuple[int, ...]]()

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def size_bytes(self) -> int:
        """Bytes of keys, values and headers."""
        return len(self._data)

    @property
    def header_count(self) -> int:
        """Headers of all records."""
        return len(self._headers)

    def add(self, row: int, header: BatchHeader, record: LogRecord) -> None:
        """Adds a record of the batch of a row."""
        timestamp_type = -1 if header.magic == 0 else int(bool(header.attributes & ATTRIBUTE_LOG_APPEND_TIME))
        headers = record.headers if self._with_headers else ()
        key = self._range(record.key)
        value = self._range(record.value)
        numbers = (row, _int64(record.offset), _int64(record.timestamp), timestamp_type, record.sequence)
        self._numbers.append((*numbers, *key, *value, len(headers)))
        for each in headers:
            header_key = self._range(each.key)
            self._headers.append((*header_key, *self._range(each.value)))

    def _range(self, data: bytes | None) -> tuple[int, int]:
        start = len(self._data)
        if data is None:
            return start, -1
        self._data += data
        return start, len(data)

    def group(self) -> RecordGroup:
        """The records, which are no longer here."""
        numbers = np.array(self._numbers, dtype=np.int64).reshape(-1, len(RECORD_COLUMNS)).T
        headers = np.array(self._headers, dtype=np.int64).reshape(-1, len(HEADER_RANGES)).T
        columns = {name: np.ascontiguousarray(column) for name, column in zip(RECORD_COLUMNS, numbers, strict=True)}
        columns["timestamp_type"] = columns["timestamp_type"].astype(np.int8)
        columns["sequence"] = columns["sequence"].astype(np.int32)
        columns.update({name: np.ascontiguousarray(column) for name, column in zip(HEADER_RANGES, headers, strict=True)})
        group = RecordGroup(data=np.frombuffer(self._data, dtype=np.uint8), **columns)
        self._clear()
        return group
