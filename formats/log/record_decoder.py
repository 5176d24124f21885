"""Records that are in memory, as columns of numbers: an array operation handles one field of all records.

A fast path of ``formats.log.records.read_records``, which is the definition. A record that is not plain is left to it: one with a field
that is damaged or longer than what anyone writes, or with many headers.

Every buffer here has ``PADDING_BYTES`` zeros after its records, so that a varint that begins before their end can be read.
"""

from __future__ import annotations

import functools

import msgspec
import numpy as np

__all__ = [
    "PADDING_BYTES",
    "HeaderRanges",
    "RecordFields",
    "decode_headers",
    "decode_messages",
    "decode_records",
    "find_records",
    "walk_records",
]

PADDING_BYTES = 32

LANES_MIN = 24
"""Batches whose records are found at a time. One step for fewer of them takes longer than a loop over their records."""

HEADERS_MAX = 64
"""Headers of a plain record: those of the same number are handled at a time."""

_BEYOND = 1 << 40
"""An advance that ends after every buffer."""


@functools.cache
def _advances() -> np.ndarray:
    """How far the next record is, by the first two bytes of a record as a little-endian number; ``_BEYOND`` if they do not show it."""
    words = np.arange(1 << 16, dtype=np.int64)
    first = words & 0xFF
    second = words >> 8
    raw = np.where(first < 0x80, first, first & 0x7F | second << 7)
    size = np.where(first < 0x80, 1, 2)
    is_shown = ((first < 0x80) | (second < 0x80)) & (raw & 1 == 0)
    advances: np.ndarray = np.where(is_shown, size + (raw >> 1), _BEYOND)
    return advances


def find_records(buffer: np.ndarray, start: np.ndarray, end: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the records of batches begin: the n-th of all batches at a time, as only the length of a record shows where the next one is.

    Args:
        buffer: uint8, with padding.
        start: int64 (b,), where the records of each batch begin.
        end: int64 (b,), where they end.
        count: int64 (b,), how many there are; at least 1.

    Returns:
        int64, where each record begins, batch by batch; and bool (b,), whether the records of a batch end where it does. If not, the
        values of the batch have no meaning, but are inside of the buffer.
    """
    total = int(count.sum())
    found = np.zeros(total, dtype=np.int64)
    first = np.cumsum(count) - count
    order = np.argsort(-count, kind="stable")
    ordered = count[order]
    steps = int(ordered[LANES_MIN - 1]) if len(order) >= LANES_MIN else 0
    lanes = np.searchsorted(-ordered, -np.arange(steps), side="left").tolist()
    place = first[order]
    position = start[order]
    words = np.ndarray((len(buffer) - 1,), dtype="<u2", buffer=buffer, strides=(1,))
    advances = _advances()
    sentinel = len(buffer) - PADDING_BYTES + 1
    for lane_count in lanes:
        current = position[:lane_count]
        found[place[:lane_count]] = current
        place[:lane_count] += 1
        np.minimum(current + advances[words[current]], sentinel, out=current)
    reached = np.empty_like(start)
    reached[order] = position
    is_whole = (count <= steps) & (reached == end)
    for batch in np.flatnonzero(~is_whole).tolist():
        done = min(int(count[batch]), steps) if reached[batch] < end[batch] else 0
        at = int(reached[batch]) if done else int(start[batch])
        rest = int(count[batch]) - done
        starts = walk_records(buffer[at : end[batch]].tobytes(), 0, rest)
        is_whole[batch] = len(starts) == rest + 1 and starts[-1] == end[batch] - at
        stop = int(first[batch] + count[batch])
        found[stop - rest : stop] = np.array(starts[:-1], dtype=np.int64) + at if is_whole[batch] else 0
    return found, is_whole


def walk_records(data: bytes, at: int, count_max: int) -> list[int]:
    """Where the whole records from a position on begin, and where the last of them ends. Their lengths have four bytes at most."""
    starts = [at]
    size = len(data)
    for _ in range(count_max):
        if at + 4 > size:
            end = _end_of_last(data, at)
        else:
            byte = data[at]
            at += 1
            length = byte & 0x7F
            shift = 7
            while byte >= 0x80 and shift < 28:
                byte = data[at]
                at += 1
                length |= (byte & 0x7F) << shift
                shift += 7
            end = size + 1 if byte >= 0x80 or length & 1 else at + (length >> 1)
        if end > size:
            break
        starts.append(end)
        at = end
    return starts


def _end_of_last(data: bytes, at: int) -> int:
    """Where the record ends of which fewer than four bytes are there: its length is a byte, or it is not whole."""
    size = len(data)
    if at >= size or data[at] >= 0x80 or data[at] & 1:
        return size + 1
    return at + 1 + (data[at] >> 1)


class RecordFields(msgspec.Struct, frozen=True):
    """Records of magic 2, as columns of int64. Only the rows of plain records have a meaning.

    Attributes:
        timestamp_delta: ms.
        offset_delta: from the base offset of the batch.
        key_start: position in the buffer.
        key_size: bytes, -1 for null.
        value_start: position in the buffer.
        value_size: bytes, -1 for null.
        header_count: 0 for records that are not plain.
        header_start: position of the first header in the buffer.
        is_plain: bool; headers are not yet considered.
    """

    timestamp_delta: np.ndarray
    offset_delta: np.ndarray
    key_start: np.ndarray
    key_size: np.ndarray
    value_start: np.ndarray
    value_size: np.ndarray
    header_count: np.ndarray
    header_start: np.ndarray
    is_plain: np.ndarray


def decode_records(buffer: np.ndarray, start: np.ndarray, end: np.ndarray) -> RecordFields:
    """The fields of records.

    Args:
        buffer: uint8, with padding.
        start: int64 (n,), where each record begins.
        end: int64 (n,), where its length says that it ends.
    """
    is_plain = np.ones(len(start), dtype=bool)
    _, cursor = _varints(buffer, start, 4, is_plain)
    timestamp_delta, cursor = _varints(buffer, cursor + 1, 9, is_plain)  # after the attributes
    offset_delta, cursor = _varints(buffer, cursor, 4, is_plain)
    key_size, key_start, cursor = _ranges(buffer, cursor, end, is_plain)
    value_size, value_start, cursor = _ranges(buffer, cursor, end, is_plain)
    header_count, cursor = _varints(buffer, cursor, 4, is_plain)
    is_plain &= (header_count >= 0) & (header_count <= HEADERS_MAX) & (cursor <= end)
    is_plain &= (header_count > 0) | (cursor == end)
    header_count *= is_plain
    return RecordFields(timestamp_delta, offset_delta, key_start, key_size, value_start, value_size, header_count, cursor, is_plain)


def decode_messages(buffer: np.ndarray, start: np.ndarray, end: np.ndarray) -> RecordFields:
    """The fields of messages of magic 0 and 1 that are not compressed. Their offsets and timestamps are those of their batches.

    Args:
        buffer: uint8, with padding.
        start: int64 (n,), where the magic of each message is.
        end: int64 (n,), where each message ends.
    """
    is_plain = np.ones(len(start), dtype=bool)
    cursor = start + np.where(buffer[start] == 1, 10, 2)
    key_size, key_start, cursor = _sized_ranges(buffer, cursor, end, is_plain)
    value_size, value_start, cursor = _sized_ranges(buffer, cursor, end, is_plain)
    none = np.zeros(len(start), dtype=np.int64)
    return RecordFields(none, none, key_start, key_size, value_start, value_size, none.copy(), none, is_plain)


def _sized_ranges(
    buffer: np.ndarray, cursor: np.ndarray, end: np.ndarray, is_plain: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes, starts and ends of bytes after an int32 length, which is negative for null. A row that is not plain gets the end 0."""
    size_bytes = buffer[cursor[:, np.newaxis] + np.arange(4)]
    size = np.maximum(size_bytes.view(">i4")[:, 0].astype(np.int64), -1)
    start = cursor + 4
    after = start + np.maximum(size, 0)
    is_plain &= after <= end
    after *= is_plain
    return size, start, after


class HeaderRanges(msgspec.Struct, frozen=True):
    """The headers of records, those of the first one first, as columns of int64; sizes are -1 for null."""

    key_start: np.ndarray
    key_size: np.ndarray
    value_start: np.ndarray
    value_size: np.ndarray


def decode_headers(
    buffer: np.ndarray, header_start: np.ndarray, header_count: np.ndarray, end: np.ndarray
) -> tuple[HeaderRanges, np.ndarray]:
    """The headers of records.

    Args:
        buffer: uint8, with padding.
        header_start: int64 (n,), where the first header of each record begins.
        header_count: int64 (n,).
        end: int64 (n,), where each record ends.

    Returns:
        The headers, and bool (n,), whether those of a record end where it does. If not, they have no meaning.
    """
    ranges = HeaderRanges(*(np.zeros(int(header_count.sum()), dtype=np.int64) for _ in range(4)))
    is_plain = np.ones(len(header_count), dtype=bool)
    rows = np.flatnonzero(header_count)
    place = (np.cumsum(header_count) - header_count)[rows]
    cursor = header_start[rows]
    number = 0
    while len(rows):
        is_good = np.ones(len(rows), dtype=bool)
        key_size, key_start, cursor = _ranges(buffer, cursor, end[rows], is_good)
        is_good &= key_size >= 0
        value_size, value_start, cursor = _ranges(buffer, cursor, end[rows], is_good)
        ranges.key_start[place] = key_start
        ranges.key_size[place] = key_size
        ranges.value_start[place] = value_start
        ranges.value_size[place] = value_size
        number += 1
        place = place + 1
        goes_on = header_count[rows] > number
        is_plain[rows] = is_good & (goes_on | (cursor == end[rows]))
        left = np.flatnonzero(is_good & goes_on)
        rows = rows[left]
        place = place[left]
        cursor = cursor[left]
    return ranges, is_plain


def _ranges(
    buffer: np.ndarray, cursor: np.ndarray, end: np.ndarray, is_plain: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes, starts and ends of nullable bytes. A row that is not plain gets the end 0."""
    size, start = _varints(buffer, cursor, 4, is_plain)
    after = start + np.maximum(size, 0)
    is_plain &= (size >= -1) & (after <= end)
    after *= is_plain
    return size, start, after


def _varints(buffer: np.ndarray, cursor: np.ndarray, bytes_max: int, is_plain: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Zigzag coded varints at positions before the padding, and the positions after them. Longer ones are not plain."""
    byte = buffer[cursor]
    after = cursor + 1
    raw = byte.astype(np.int64)
    rows = np.flatnonzero(byte >= 0x80)
    if len(rows):
        raw[rows] &= 0x7F
        shift = 7
        while len(rows):
            if shift == 7 * bytes_max:
                is_plain[rows] = False
                break
            byte = buffer[after[rows]]
            after[rows] += 1
            raw[rows] |= (byte & 0x7F).astype(np.int64) << shift
            shift += 7
            rows = rows[byte >= 0x80]
    return (raw >> 1) ^ -(raw & 1), after
