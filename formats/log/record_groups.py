"""The records of many batches of any magic as columns: keys, values and headers are ranges of bytes, not objects.

``formats.log.records.read_records`` is the definition: the tests prove the two equal, in records, errors and their positions.

Source: ``DefaultRecordBatch.iterator``, ``DefaultRecord.readFrom``, ``AbstractLegacyRecordBatch.DeepRecordsIterator``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from formats import limits
from formats.checksum import crc32, crc32c
from formats.errors import BadChecksumError, FormatError, LimitExceededError, TruncatedError
from formats.log.batch_headers import HEADER_COLUMNS, HeaderBlock, SegmentBytes
from formats.log.record_batch import ATTRIBUTE_LOG_APPEND_TIME, CRC_START, BatchHeader, RecordHeader
from formats.log.records import LogRecord, Piped, read_records

__all__ = ["GROUP_BYTES", "GROUP_RECORDS", "RecordGroup", "record_groups"]

GROUP_BYTES = 8 << 20
"""Bytes of decompressed records that a group holds, unless one record is larger."""

GROUP_RECORDS = 1 << 17
"""Most records of a group: some of its columns are int64, and the smallest record has seven bytes."""

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

    def chosen(self, rows: np.ndarray) -> RecordGroup:
        """The records at ``rows``: indices, ascending, or a mask."""
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
    bad = {int(row) for row in block.bad_crc}
    collector = _Collector(with_headers)
    for row in wanted.tolist():
        header = BatchHeader(*(int(block.columns[name][row]) for name in HEADER_COLUMNS))
        position = int(block.position_bytes[row])
        try:
            batch = _batch(source, header, position)
            if row in bad:
                raise _bad_checksum(header, batch, position)
            for record in read_records(header, batch, position=position, piped=piped):
                if not record.is_valid:
                    what = "checksum of a message in a wrapper"
                    raise BadChecksumError(what, position=position, expected=f"that of offset {record.offset}", found="another")
                collector.add(row, header, record)
                if collector.size_bytes >= group_bytes or len(collector) >= GROUP_RECORDS:
                    yield collector.group()
        except FormatError as error:
            if len(collector):
                yield collector.group()
            if on_damage is None:
                raise error.in_file(source.name) from None
            on_damage(row, error.in_file(source.name))
    if len(collector):
        yield collector.group()


def _batch(source: SegmentBytes, header: BatchHeader, position: int) -> bytes:
    """The bytes of a batch."""
    size = header.size_bytes
    if size > limits.DATA_BATCH_BYTES_MAX:
        expected = f"at most {limits.DATA_BATCH_BYTES_MAX} bytes"
        raise LimitExceededError("batch", position=position, expected=expected, found=size)
    batch = bytearray(size)
    count = source.read_into(position, memoryview(batch))
    if count != size:
        raise TruncatedError("batch", position=position, expected=f"{size} bytes", found=f"{count} bytes")
    return bytes(batch)


def _bad_checksum(header: BatchHeader, batch: bytes, position: int) -> BadChecksumError:
    function = crc32c if header.magic == 2 else crc32
    computed = function(memoryview(batch)[CRC_START[header.magic] :])
    found = f"{header.crc:#010x}"
    return BadChecksumError("checksum of a batch", position=position, expected=f"{computed:#010x}", found=found)


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
