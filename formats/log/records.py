"""The records of a batch of any magic, decompressed, in their order: for commands that show data.

A hand-written reader, because the grammar (``record_batch.RECORD``) takes a hundred times as long; the tests prove the two equal.

Source: ``DefaultRecordBatch.iterator``, ``DefaultRecord.readFrom``, ``AbstractLegacyRecordBatch.DeepRecordsIterator``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from formats import limits
from formats.checksum import crc32
from formats.compression import decompress, decompress_from
from formats.errors import BadLengthError, BadMagicError, BadValueError, FormatError, LimitExceededError, TruncatedError
from formats.limits import INT32_MAX
from formats.log.record_batch import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_LOG_APPEND_TIME,
    CRC_START,
    LENGTH_MIN,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    BatchHeader,
    RecordHeader,
)
from formats.log.record_columns import RecordColumns, plain_records

__all__ = [
    "LogRecord",
    "RecordWindow",
    "check_end",
    "incremented_sequence",
    "next_record",
    "read_record_columns",
    "read_records",
    "walk_decompressed",
    "walk_piped",
]

BEYOND_RECORD_BYTES = 64
"""The fields of a record whose length is too small take up to five bytes each after its end, until the first one that has a length."""


class LogRecord(NamedTuple):
    """One record as a consumer of the log file sees it.

    Attributes:
        offset: int64, absolute.
        timestamp: ms, int64; -1 for none.
        key: bytes or None.
        value: bytes or None.
        sequence: int32, -1 for none.
        headers: of magic 2.
        crc: stored checksum of a message of magic 0 and 1, else None.
        is_valid: whether ``crc`` is right; True in magic 2, where the batch has the checksum.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    sequence: int = -1
    headers: tuple[RecordHeader, ...] = ()
    crc: int | None = None
    is_valid: bool = True


def incremented_sequence(sequence: int, increment: int) -> int:
    """The sequence number after ``increment`` more records; 0 follows 2^31 - 1 (``DefaultRecordBatch.incrementSequence``)."""
    following = sequence + increment
    return following if following <= INT32_MAX else following - INT32_MAX - 1


class Reading(Protocol):
    """A context that gives a function; it takes a number of bytes and returns at most that many, none at the end."""

    def __enter__(self) -> Callable[[int], bytes]: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any, /) -> object: ...


Piped = Callable[[Callable[[str], None]], Reading]
"""Runs a function that writes to a path, and reads what it writes meanwhile (``snaprebuild.storage.local.pipe_reader.piped``)."""

_Item = TypeVar("_Item")


def read_records(header: BatchHeader, batch: bytes, *, position: int = 0, piped: Piped | None = None) -> Iterator[LogRecord]:
    """The records of a whole batch, in their order.

    Args:
        header: of the batch.
        batch: its bytes, from the base offset on.
        position: where it begins in its file, for messages; a fault inside compressed data has the position of the batch.
        piped: large compressed data is decompressed while it is read, and little of it is in memory; if None, all at once.

    Raises:
        LimitExceededError: decompressed records are larger than ``limits.DATA_BATCH_BYTES_MAX``; with ``piped``, one record is
            larger than ``limits.RECORD_BYTES_MAX``.
        FormatError: they do not follow the format, or their number differs from the header's. The records before the fault were
            yielded.
    """
    if header.magic == 2:
        return _records(header, batch, position, piped, _records_of)
    return _messages(header, batch, position, piped)


def read_record_columns(
    header: BatchHeader, batch: bytes, *, position: int = 0, piped: Piped | None = None
) -> Iterator[RecordColumns | LogRecord]:
    """The records of a whole batch of magic 2, in their order. The ordinary ones are columns of numbers.

    Args, Raises:
        As ``read_records``.
    """
    walk = _records_of if header.record_count < COLUMN_ROWS_MIN else _columns_of
    return _records(header, batch, position, piped, walk)


class RecordWindow:
    """Records of a batch, decompressed, read forward; only the requested part is in memory.

    Args:
        data: its first bytes, all of them if ``read`` is None.
        read: takes a number of bytes and returns at most that many, none at the end of the batch.
        position: of the batch, for messages.
        size_bytes: of all records, if that is known.

    Attributes:
        data: what is in memory.
        passed: bytes before ``data``.
    """

    def __init__(
        self, data: bytes, read: Callable[[int], bytes] | None = None, position: int = 0, size_bytes: int | None = None
    ) -> None:
        self.data = data
        self.passed = 0
        self._read = read
        self._position = position
        self._size_bytes = size_bytes

    def more(self, at: int, count: int = 1) -> bool:
        """Drops what is before ``at``, and holds ``wanted`` bytes from there, or all that are left. Returns whether any were read."""
        if self._size_bytes is not None:
            count = max(min(count, self._size_bytes - self.passed - at), 1)
        if self._read is not None and count > limits.RECORD_BYTES_MAX:
            expected = f"at most {limits.RECORD_BYTES_MAX} bytes"
            raise LimitExceededError("record of a batch", position=self._position, expected=expected, found=count)
        parts = [self.data[at:]]
        size = before = len(parts[0])
        while self._read is not None and (size < count or size == before):
            part = self._read(max(limits.RECORD_WINDOW_BYTES, count - size))
            if not part:
                break
            parts.append(part)
            size += len(part)
        self.passed += at
        if self.passed + size > limits.DATA_BATCH_BYTES_MAX:
            expected = f"at most {limits.DATA_BATCH_BYTES_MAX} bytes"
            raise LimitExceededError("records", position=self._position, expected=expected, found="more")
        self.data = b"".join(parts)
        return size > before


def walk_decompressed(
    header: BatchHeader,
    data: bytes | bytearray,
    position: int,
    piped: Piped | None,
    walk: Callable[[RecordWindow], Iterator[_Item]],
) -> Iterator[_Item]:
    """Decompresses the records of a batch, and yields the items that ``walk`` makes of them.

    Args:
        header: of the batch.
        data: what follows the header, or the value of a wrapper message.
        position: of ``data`` in its file.
        piped: as for ``read_records``.
        walk: takes the records.

    Raises:
        LimitExceededError: they are larger than ``limits.DATA_BATCH_BYTES_MAX``, and ``piped`` is None.
        FormatError: the data does not follow the format of its codec.
    """
    if piped is None or not header.codec or len(data) <= limits.RECORD_WINDOW_BYTES:
        bytes_max = limits.DATA_BATCH_BYTES_MAX if piped is None else limits.RECORD_WINDOW_BYTES
        try:
            whole = decompress(header.codec, data, bytes_max=bytes_max, position=position, magic=header.magic)
        except LimitExceededError:
            if piped is None:
                raise
        else:
            yield from walk(RecordWindow(whole))
            return
    yield from walk_piped(header, _read_from(data), position, piped, walk)


def _read_from(data: bytes | bytearray) -> Callable[[int], bytes | bytearray]:
    at = 0

    def read(count: int) -> bytes | bytearray:
        nonlocal at
        part = data if not at and count >= len(data) else data[at : at + count]
        at += len(part)
        return part

    return read


def walk_piped(
    header: BatchHeader,
    read: Callable[[int], bytes | bytearray],
    position: int,
    piped: Piped,
    walk: Callable[[RecordWindow], Iterator[_Item]],
) -> Iterator[_Item]:
    """Decompresses the records of a batch while they are read, and yields the items that ``walk`` makes of them.

    Args:
        header: of the batch.
        read: gives the next bytes of what follows the header, as many as requested unless they end there.
        position: of these bytes in their file.
        piped: as for ``read_records``; ``read`` is called by its thread.
        walk: takes the records.

    Raises:
        FormatError: the data does not follow the format of its codec; or what ``read`` raises.
    """
    with piped(lambda path: decompress_from(header.codec, read, path, position=position, magic=header.magic)) as decompressed:
        yield from walk(RecordWindow(b"", decompressed, position))


def _records(
    header: BatchHeader,
    batch: bytes,
    position: int,
    piped: Piped | None,
    walk: Callable[[BatchHeader, RecordWindow, int], Iterator[_Item]],
) -> Iterator[_Item]:
    start = limits.BATCH_HEADER_BYTES_MAX
    if header.record_count < 0:
        raise BadLengthError("count of records", position=position + 57, expected="0 or more", found=header.record_count)
    if not header.record_count:  # what follows the header is not looked at
        return
    yield from walk_decompressed(header, batch[start:], position + start, piped, lambda window: walk(header, window, position))


COLUMN_ROWS_MIN = 64
COLUMN_ROWS_MAX = 1 << 14
"""Records of which columns are made at a time. To make those of fewer takes longer than to read the records one by one."""

SKIPPED_MAX = 1 << 10
"""Records that are read one by one before columns are tried again. The number doubles with each attempt that gives few of them."""


def _columns_of(header: BatchHeader, window: RecordWindow, position: int) -> Iterator[RecordColumns | LogRecord]:
    at = 0
    number = 0
    skipped = 1
    next_try = 0
    data = window.data
    while number < header.record_count:
        if number >= next_try or data is not window.data:
            data = window.data
            columns = plain_records(header, data, at, min(header.record_count - number, COLUMN_ROWS_MAX))
            if columns is not None:
                yield columns
                number += len(columns)
                at = columns.end
            if columns is not None and len(columns) >= COLUMN_ROWS_MIN:
                skipped = 1
            else:
                next_try = number + skipped
                skipped = min(2 * skipped, SKIPPED_MAX)
            continue
        record, at = next_record(header, window, at, number, position)
        yield record
        number += 1
    check_end(header, window, at, position)


def _records_of(header: BatchHeader, window: RecordWindow, position: int) -> Iterator[LogRecord]:
    at = 0
    for number in range(header.record_count):
        record, at = next_record(header, window, at, number, position)
        yield record
    check_end(header, window, at, position)


def next_record(header: BatchHeader, window: RecordWindow, at: int, number: int, position: int) -> tuple[LogRecord, int]:
    """The record of magic 2 that begins at a position of what the window holds, and where it ends there by then.

    Args:
        header: of the batch.
        window: the records of the batch.
        at: where the record begins, in ``window.data``.
        number: of the record in its batch, from 0.
        position: of the batch in its file, for messages.

    Raises:
        LimitExceededError, FormatError: as ``read_records``.
    """
    base_position = position if header.codec else position + limits.BATCH_HEADER_BYTES_MAX
    data = window.data
    if at == len(data):
        if not window.more(at):
            raise TruncatedError("batch", position=position, expected=f"{header.record_count} records", found=number)
        data = window.data
        at = 0
    fault_position = base_position + (0 if header.codec else window.passed + at)
    while True:
        try:
            end, timestamp_delta, offset_delta, key, value, headers = _record(data, at)
            break
        except IndexError:
            needed = _record_bytes(data, at)
            # With all of the record and what follows it in memory, its own lengths are wrong: more bytes would not mend them.
            is_whole = len(data) - at >= needed + BEYOND_RECORD_BYTES
            if is_whole or not window.more(at, needed):
                raise TruncatedError(
                    "record",
                    position=fault_position,
                    expected="more bytes",
                    found="the end of its batch",
                ) from None
            data = window.data
            at = 0
        except FormatError as error:
            raise error.shifted_by(fault_position) from None
    sequence = incremented_sequence(header.base_sequence, offset_delta) if header.base_sequence >= 0 else -1
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    return LogRecord(header.base_offset + offset_delta, timestamp, key, value, sequence, headers), end


def check_end(header: BatchHeader, window: RecordWindow, at: int, position: int) -> None:
    """Checks that the batch ends after its last record, at a position of what the window holds.

    Raises:
        BadLengthError: bytes follow.
    """
    used = window.passed + at
    while window.more(len(window.data)):  # only counted
        pass
    found = window.passed
    if used != found:
        what = f"records of a batch that counts {header.record_count}"
        raise BadLengthError(what, position=position, expected=f"{used} bytes", found=f"{found} bytes")


def _record_bytes(data: bytes, at: int) -> int:
    """Size of the record that begins at ``at``, as far as its first bytes show."""
    try:
        length, end = _varint(data, at)
    except IndexError:
        return len(data) - at + 1
    return end - at + length


Fields = tuple[int, int, int, bytes | None, bytes | None, tuple[RecordHeader, ...]]


def _record(data: bytes, at: int) -> Fields:
    """The record at a position, and where it ends. IndexError where the data ends before it does.

    Varints of one byte, as most are, are read here: a call for each takes twice the time of all the rest.
    """
    byte = data[at]
    if byte < 0x80:
        length = (byte >> 1) ^ -(byte & 1)
        at += 1
    else:
        length, at = _varint(data, at)
    end = at + length
    if length < 0:
        raise BadLengthError("length of a record", expected="0 or more", found=length)
    if end > len(data):
        raise IndexError
    byte = data[at + 1]
    if byte < 0x80:
        timestamp_delta = (byte >> 1) ^ -(byte & 1)
        at += 2
    else:
        timestamp_delta, at = _varint(data, at + 1, 64)
    byte = data[at]
    if byte < 0x80:
        offset_delta = (byte >> 1) ^ -(byte & 1)
        at += 1
    else:
        offset_delta, at = _varint(data, at)
    key, at = _nullable_bytes(data, at, end)
    value, at = _nullable_bytes(data, at, end)
    headers: tuple[RecordHeader, ...] = ()
    if data[at] == 0:
        at += 1
    else:
        count, at = _varint(data, at)
        headers, at = _headers(data, at, end, count)
    if at != end:
        raise BadLengthError("length of a record", expected=length - (end - at), found=length)
    return end, timestamp_delta, offset_delta, key, value, headers


NULL = 1
"""The length -1, zigzag coded."""


def _headers(data: bytes, at: int, end: int, count: int) -> tuple[tuple[RecordHeader, ...], int]:
    if not 0 <= count <= limits.RECORD_HEADERS_MAX:
        raise BadLengthError("count of record headers", expected=f"0..{limits.RECORD_HEADERS_MAX}", found=count)
    headers = []
    for _ in range(count):
        byte = data[at]
        if byte < 0x80 and not byte & 1:  # a key of less than 64 bytes, as most are
            at += 1
            stop = at + (byte >> 1)
            if stop > end:
                raise IndexError
            key = data[at:stop]
            at = stop
        else:
            key, at = _key_of_header(data, at, end)
        value: bytes | None = None
        if data[at] == NULL:
            at += 1
        else:
            value, at = _nullable_bytes(data, at, end)
        headers.append(RecordHeader(key, value))
    return tuple(headers), at


def _key_of_header(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    key, at = _nullable_bytes(data, at, end)
    if key is None:
        raise BadLengthError("key of a record header", expected="0 or more", found=-1)
    return key, at


def _nullable_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    byte = data[at]
    if byte == NULL:
        return None, at + 1
    if byte < 0x80:
        length = (byte >> 1) ^ -(byte & 1)
        at += 1
    else:
        length, at = _varint(data, at)
    if length < 0:  # DefaultRecord.readFrom takes any negative length for null
        return None, at
    if at + length > end:
        raise IndexError
    return data[at : at + length], at + length


def _varint(data: bytes, at: int, bits: int = 32) -> tuple[int, int]:
    """A zigzag coded varint (``ByteUtils.readVarint``, ``readVarlong``) and where it ends."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    raw = byte & 0x7F
    shift = 7
    shift_max = 28 if bits == 32 else 63
    while True:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > shift_max:
            raise BadLengthError("varint", expected=f"at most {shift_max // 7 + 1} bytes", found="more")
    raw &= (1 << bits) - 1
    return (raw >> 1) ^ -(raw & 1), at


def _messages(header: BatchHeader, batch: bytes, position: int, piped: Piped | None) -> Iterator[LogRecord]:
    outer = _message(batch, 0, position)
    if not header.codec:
        yield outer
        return
    if header.codec > LEGACY_CODEC_MAX:
        expected = f"0..{LEGACY_CODEC_MAX}"
        raise BadValueError("codec of a wrapper message", position=position, expected=expected, found=header.codec)
    if outer.value is None:
        raise BadLengthError("value of a wrapper message", position=position, expected="0 or more", found=-1)
    value_position = position + len(batch) - len(outer.value)
    # In magic 1 the offsets inside count from the first message, and the wrapper has that of the last; see KIP-31.
    last = None
    for data, start in walk_decompressed(
        header, outer.value, value_position, piped, lambda window: _messages_inside(window, position)
    ):
        last = int.from_bytes(data[start : start + 8], "big", signed=True)
    if last is None:
        raise TruncatedError("wrapper message", position=position, expected="at least one message", found="none")
    base = _base_inside(header, last, position)
    for data, start in walk_decompressed(
        header, outer.value, value_position, piped, lambda window: _messages_inside(window, position)
    ):
        message = _message(data, start, position)
        codec = data[start + MAGIC_POSITION + 1] & ATTRIBUTE_CODEC
        if codec:
            raise BadValueError("codec of a message in a wrapper", position=position, expected=0, found=codec)
        # All messages of magic 1 inside have the timestamp type of the wrapper.
        is_append_time = header.attributes & ATTRIBUTE_LOG_APPEND_TIME and data[start + MAGIC_POSITION] == 1
        timestamp = header.max_timestamp if is_append_time else message.timestamp
        yield message._replace(offset=base + message.offset, timestamp=timestamp)


LEGACY_CODEC_MAX = 3
"""Brokers never wrote zstd before magic 2, and no consumer reads it there."""


def _base_inside(header: BatchHeader, last: int, position: int) -> int:
    """The offset that those of the messages in a wrapper count from.

    Args:
        header: of the wrapper.
        last: stored offset of the last message inside.
        position: of the wrapper, for messages.
    """
    if header.magic == 0 or header.base_offset == 0:  # producers leave it 0
        return 0
    if last > header.base_offset:
        expected = f"at most {header.base_offset}"
        raise BadValueError("offset of the last message in a wrapper", position=position, expected=expected, found=last)
    return header.base_offset - last


def _messages_inside(window: RecordWindow, position: int) -> Iterator[tuple[bytes, int]]:
    """Bytes, and the position in them at which a whole message begins, for each message in turn. One that is cut off ends them."""
    at = 0
    while True:
        at = _read_on(window, at, LOG_OVERHEAD_BYTES)
        if len(window.data) - at < LOG_OVERHEAD_BYTES:
            return
        size = int.from_bytes(window.data[at + 8 : at + LOG_OVERHEAD_BYTES], "big", signed=True)
        if size < LENGTH_MIN[0]:
            raise BadLengthError(
                "size of a message in a wrapper", position=position, expected=f"at least {LENGTH_MIN[0]}", found=size
            )
        at = _read_on(window, at, LOG_OVERHEAD_BYTES + size)
        if len(window.data) - at - LOG_OVERHEAD_BYTES < size:
            return
        yield window.data, at
        at += LOG_OVERHEAD_BYTES + size


def _read_on(window: RecordWindow, at: int, count: int) -> int:
    """Where the bytes of ``at`` begin once ``count`` of them, or all that are left, are in memory."""
    if len(window.data) - at >= count:
        return at
    window.more(at, count)
    return 0


def _message(data: bytes, at: int, position: int) -> LogRecord:
    """The message at a position, which must be whole; its offset is the stored one. Inside a wrapper it may have another magic."""
    magic = data[at + MAGIC_POSITION]
    if magic > 1:
        raise BadMagicError("magic of a message in a wrapper", position=position, expected="0 or 1", found=magic)
    end = at + LOG_OVERHEAD_BYTES + int.from_bytes(data[at + 8 : at + LOG_OVERHEAD_BYTES], "big")
    crc = int.from_bytes(data[at + 12 : at + 16], "big")
    is_valid = crc == crc32(memoryview(data)[at + CRC_START[magic] : end])
    fields = at + MAGIC_POSITION + 2
    timestamp = int.from_bytes(data[fields : fields + 8], "big", signed=True) if magic else -1
    key, key_end = _sized(data, fields + (8 if magic else 0), end, position)
    value, _ = _sized(data, key_end, end, position)
    return LogRecord(int.from_bytes(data[at : at + 8], "big", signed=True), timestamp, key, value, crc=crc, is_valid=is_valid)


def _sized(data: bytes, at: int, end: int, position: int) -> tuple[bytes | None, int]:
    """Key or value of a message: an int32 length, negative for null."""
    length = int.from_bytes(data[at : at + 4], "big", signed=True)
    if at + 4 > end or at + 4 + max(length, 0) > end:
        left = max(end - at - 4, 0)
        raise TruncatedError("key or value of a message", position=position, expected=f"{length} bytes", found=f"{left} bytes")
    return (None, at + 4) if length < 0 else (data[at + 4 : at + 4 + length], at + 4 + length)
