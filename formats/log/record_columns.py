"""Records of a batch of magic 2 as columns of numbers, without their keys and values: for commands that show sizes only.

A fast path of ``formats.log.records.read_records``, which is the definition: whatever is not an ordinary record is left to it. The
tests prove the two equal.
"""

from __future__ import annotations

import msgspec
import numpy as np

from formats.limits import INT32_MAX
from formats.log.record_batch import BatchHeader

__all__ = ["RecordColumns", "plain_records"]

Column = np.ndarray[tuple[int], np.dtype[np.int64]]


class RecordColumns(msgspec.Struct, frozen=True):
    """Consecutive records; the columns are int64 and of one length, which is not 0.

    Attributes:
        offset: absolute.
        timestamp: ms.
        key_size: bytes, -1 for null.
        value_size: bytes, -1 for null.
        sequence: int32, -1 for none.
        header_keys: of each record, as bytes; None if no record has headers.
        end: where the last record ends, in the data.
    """

    offset: Column
    timestamp: Column
    key_size: Column
    value_size: Column
    sequence: Column
    header_keys: list[list[bytes]] | None
    end: int

    def __len__(self) -> int:
        return len(self.offset)


SUM_MAX = 1 << 62
"""A base and a delta of at most 62 bits are added as int64."""


HEADERS_MAX = 64
"""Headers of an ordinary record."""

HEADERS_AT_ONCE_MAX = 1 << 15
"""Headers of the records of which columns are made at a time: each key is an object."""


def plain_records(header: BatchHeader, data: bytes, at: int, count_max: int) -> RecordColumns | None:
    """The ordinary records that begin at a position, up to the first other one.

    Args:
        header: of the batch.
        data: decompressed records of the batch, perhaps not all.
        at: where a record begins.
        count_max: how many records are wanted at most.

    Returns:
        None if the first record is another one, or not whole.
    """
    if max(abs(header.base_offset), abs(header.base_timestamp), abs(header.max_timestamp)) >= SUM_MAX:
        return None
    bodies, ends = _bounds(data, at, count_max)
    if not bodies:
        return None
    size = len(data)
    end = np.array(ends, dtype=np.int64)
    buffer = np.frombuffer(data, dtype=np.uint8)
    cursor = np.array(bodies, dtype=np.int64) + 1  # after the attributes
    timestamp_delta, cursor, is_plain = _varints(buffer, cursor, 9)
    offset_delta, cursor, is_short = _varints(buffer, cursor, 4)
    is_plain &= is_short
    sizes = []
    for _ in range(2):
        length, cursor, is_short = _varints(buffer, cursor, 4)
        is_plain &= is_short & (length >= -1)
        cursor = cursor + np.maximum(length, 0)
        is_plain &= cursor <= end
        cursor = np.minimum(cursor, size)
        sizes.append(length)
    header_count, cursor, is_short = _varints(buffer, cursor, 4)
    is_plain &= is_short & (header_count >= 0) & (header_count <= HEADERS_MAX)
    header_count = np.where(is_plain, header_count, 0)
    is_plain &= np.cumsum(header_count) <= HEADERS_AT_ONCE_MAX
    keys, cursor = _header_keys(buffer, cursor, end, np.where(is_plain, header_count, 0))
    is_plain &= cursor == end
    count = len(end) if is_plain.all() else int(np.argmin(is_plain))
    if not count:
        return None
    offset_delta = offset_delta[:count]
    timestamp = header.base_timestamp + timestamp_delta[:count]
    if header.is_log_append_time:
        timestamp = np.full(count, header.max_timestamp, dtype=np.int64)
    sequence = np.full(count, -1, dtype=np.int64)
    if header.base_sequence >= 0:
        sequence = header.base_sequence + offset_delta
        sequence = np.where(sequence > INT32_MAX, sequence - INT32_MAX - 1, sequence)
    key_size, value_size = (each[:count] for each in sizes)
    return RecordColumns(
        offset=header.base_offset + offset_delta,
        timestamp=timestamp,
        key_size=key_size,
        value_size=value_size,
        sequence=sequence,
        header_keys=_bytes_of(keys, data, count) if header_count[:count].any() else None,
        end=int(end[count - 1]),
    )


Keys = list[tuple[Column, Column, Column]]
"""For each number of a header, the rows that have it, and where its key begins and ends."""


def _header_keys(buffer: np.ndarray, cursor: Column, end: Column, header_count: Column) -> tuple[Keys, Column]:
    """The keys of the headers that begin at some positions.

    Returns:
        The keys, and the positions after the headers; -1 for a record whose headers are not ordinary ones.
    """
    keys = Keys()
    cursor = cursor.copy()
    rows = np.flatnonzero(header_count)
    number = 0
    while len(rows):
        length, start, is_good = _varints(buffer, cursor[rows], 4)
        stop = start + length
        is_good &= (length >= 0) & (stop <= end[rows])
        value_length, after, is_short = _varints(buffer, stop * is_good, 4)
        after = after + np.maximum(value_length, 0)
        is_good &= is_short & (value_length >= -1) & (after <= end[rows])
        cursor[rows] = np.where(is_good, after, -1)
        keys.append((rows, start, stop))
        number += 1
        rows = rows[is_good & (header_count[rows] > number)]
    return keys, cursor


def _bytes_of(keys: Keys, data: bytes, count: int) -> list[list[bytes]]:
    """The keys of the first records."""
    values: list[list[bytes]] = [[] for _ in range(count)]
    for rows, start, stop in keys:
        until = int(np.searchsorted(rows, count))
        for row, first, last in zip(rows[:until].tolist(), start[:until].tolist(), stop[:until].tolist(), strict=True):
            values[row].append(data[first:last])
    return values


def _bounds(data: bytes, at: int, count_max: int) -> tuple[list[int], list[int]]:
    """Where the attributes of each whole record are, and where it ends. The lengths have at most three bytes."""
    bodies = list[int]()
    ends = list[int]()
    size = len(data)
    for _ in range(count_max):
        if at + 3 > size:
            break
        byte = data[at]
        at += 1
        length = byte & 0x7F
        if byte >= 0x80:
            byte = data[at]
            at += 1
            length |= (byte & 0x7F) << 7
            if byte >= 0x80:
                byte = data[at]
                at += 1
                length |= byte << 14
        end = at + (length >> 1)
        if byte >= 0x80 or length & 1 or end > size:
            break
        bodies.append(at)
        ends.append(end)
        at = end
    return bodies, ends


def _varints(buffer: np.ndarray, cursor: Column, bytes_max: int) -> tuple[Column, Column, np.ndarray]:
    """Zigzag coded varints at some positions.

    Returns:
        The values; the positions after them; and whether each is inside of the buffer, and not longer than ``bytes_max``.
    """
    last = len(buffer) - 1
    raw = np.zeros(len(cursor), dtype=np.int64)
    is_whole = np.zeros(len(cursor), dtype=bool)
    for number in range(bytes_max):
        byte = buffer[np.minimum(cursor, last)].astype(np.int64)
        rest = ~is_whole
        raw = np.where(rest, raw | (byte & 0x7F) << (7 * number), raw)
        ends = rest & (byte < 0x80) & (cursor <= last)
        cursor = cursor + rest
        is_whole |= ends
        if is_whole.all():
            break
    return (raw >> 1) ^ -(raw & 1), cursor, is_whole
