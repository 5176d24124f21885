"""Few bytes of a segment, found by its index: its end, its first batch, or the batch at an offset."""

from __future__ import annotations

import os
from struct import Struct

import numpy as np

from formats import limits
from formats.log.batch_headers import HeaderReader, TailKind
from formats.log.record_batch import LENGTH_MIN, LOG_OVERHEAD_BYTES
from formats.partition.file_names import FileKind, FileSuffix, parse_file_name
from snaprebuild.broker.start_facts import SegmentEnd
from snaprebuild.errors import ReadFailedError
from snaprebuild.storage.local.regular_file import open_regular_file
from snaprebuild.storage.partition_dir import PartitionDir, SegmentFiles

__all__ = ["first_magic", "leader_epoch_below", "read_segment_end", "read_swap_range"]

_HEADER = Struct(">qiib6xi").unpack_from
"""Of ``RECORD_BATCH_HEADER``: base offset, length, leader epoch, magic, last offset delta."""
_HEADER_BYTES = 27
_ENTRY = Struct(">ii")
"""Of ``.index``: relative offset, position."""

CHUNK_BYTES_MAX = 1 << 20
"""Above it the headers are read block by block."""

HEADER_UP_TO_MAGIC_BYTES = 17
"""``FileLogInputStream.nextBatch`` stops where no more than these bytes are left, and throws at a size below ``SIZE_MIN`` before that."""
SIZE_MIN = 14
"""``LegacyRecord.RECORD_OVERHEAD_V0``."""


def read_segment_end(directory: PartitionDir) -> SegmentEnd:
    """Reads the end of the last segment of a local directory.

    Raises:
        ReadFailedError: it cannot be read.
        RefusedError: it changed meanwhile.
    """
    segment = directory.segments[-1]
    if segment.size_bytes == 0:
        return SegmentEnd(segment.base_offset, 0, 0)
    end = _quick_end(directory, segment.log.name, segment.offset_index, segment.base_offset)
    return _end_by_headers(directory, segment) if end is None else end


def _quick_end(directory: PartitionDir, log: str, offset_index: str | None, base_offset: int) -> SegmentEnd | None:
    """The end of a file with batches, by few bytes of it; None where it takes more."""
    path = directory.file_path(log)
    fd, status = open_regular_file(path)
    try:
        start_bytes = _last_position(directory, offset_index, status.st_size)
        return _plain_end(fd, base_offset, start_bytes, status.st_size)
    except OSError as error:
        raise ReadFailedError(f"cannot be read: {error.strerror}", path=path, errno=error.errno) from error
    finally:
        os.close(fd)


def read_swap_range(directory: PartitionDir) -> tuple[int, int] | None:
    """The offsets that the segments of an interrupted compaction or split cover; None without a segment that is whole.

    A ``.swap`` at or above a ``.cleaned`` is removed: a split was not finished (``LogLoader.removeTempFilesAndCollectSwapFiles``).

    Raises:
        ReadFailedError: one cannot be read.
    """
    known = [(name, parse_file_name(name)) for name in directory.swapped]
    cleaned = [each.offset for _, each in known if each is not None and each.suffix is FileSuffix.CLEANED]
    lowest_cleaned = min((offset for offset in cleaned if offset is not None), default=None)
    begins, ends = [], []
    for name, each in known:
        if each is None or each.suffix is not FileSuffix.SWAP or each.kind is not FileKind.LOG or each.offset is None:
            continue
        if lowest_cleaned is None or each.offset < lowest_cleaned:
            begins.append(each.offset)
            ends.append(_swap_end(directory, name, each.offset))
    return (min(begins), max(ends)) if begins else None


def _swap_end(directory: PartitionDir, log: str, base_offset: int) -> int:
    index = log.replace(FileKind.LOG.value, FileKind.OFFSET_INDEX.value)
    end = _quick_end(directory, log, index if index in directory.swapped else None, base_offset)
    if end is not None:
        return end.offset
    offset = base_offset
    with directory.store.open_bytes(directory.file_path(log), may_grow=True) as source:
        for block in HeaderReader(source, block_bytes=1 << 20, columns=("base_offset", "last_offset_delta")):
            offset = int(block.column("base_offset")[-1]) + int(block.column("last_offset_delta")[-1]) + 1
    return offset


def first_magic(directory: PartitionDir, segment: SegmentFiles) -> int | None:
    """Message format of the first batch of a segment; None if it has none.

    Raises:
        ReadFailedError: it cannot be read.
        RefusedError: it changed meanwhile.
    """
    with directory.open_segment(segment) as source:
        header = bytearray(HEADER_UP_TO_MAGIC_BYTES)
        done = source.read_into(0, memoryview(header))
    return header[-1] if done == HEADER_UP_TO_MAGIC_BYTES else None


def leader_epoch_below(directory: PartitionDir, segment: SegmentFiles, offset: int) -> int | None:
    """Leader epoch of the last batch of a segment that begins below an offset; None where there is none. Formats 0 and 1 have -1.

    Raises:
        ReadFailedError: the segment cannot be read.
        RefusedError: it changed meanwhile.
    """
    start_bytes = _indexed_position(directory, segment, offset)
    epoch = _epoch_below(directory, segment, offset, start_bytes)
    # An index that is wrong leads to no batch.
    return _epoch_below(directory, segment, offset, 0) if epoch is None and start_bytes else epoch


def _epoch_below(directory: PartitionDir, segment: SegmentFiles, offset: int, start_bytes: int) -> int | None:
    columns = ("base_offset", "partition_leader_epoch")
    epoch = None
    with directory.open_segment(segment) as source:
        reader = HeaderReader(source, start_bytes=start_bytes, block_bytes=1 << 16, columns=columns, read_markers=False)
        for block in reader:
            below = np.flatnonzero(block.column("base_offset") < offset)
            if len(below):
                epoch = int(block.column("partition_leader_epoch")[below[-1]])
            if len(below) < len(block):
                break
    return epoch


def _indexed_position(directory: PartitionDir, segment: SegmentFiles, offset: int) -> int:
    """Position of the last batch that ``.index`` names and that ends below an offset; 0 without one."""
    if segment.offset_index is None:
        return 0
    try:
        data = directory.store.read_small(directory.file_path(segment.offset_index), limits.INDEX_BYTES_MAX)
    except ReadFailedError:
        return 0  # a hint only
    entries = np.frombuffer(data or b"", ">i4")[: len(data or b"") // _ENTRY.size * 2].reshape(-1, 2)
    # A killed broker leaves zeros after the entries.
    below = entries[(entries[:, 0] < offset - segment.base_offset) & (entries[:, 1] > 0) & (entries[:, 1] < segment.size_bytes)]
    return int(below[-1, 1]) if len(below) else 0


def _last_position(directory: PartitionDir, offset_index: str | None, size_bytes: int) -> int:
    """Position that the last entry of the index names; 0 without one. A killed broker leaves zeros after the entries."""
    if offset_index is None:
        return 0
    try:
        fd, status = open_regular_file(directory.file_path(offset_index))
    except ReadFailedError:
        return 0  # a hint only
    try:
        low, high = 0, status.st_size // _ENTRY.size
        position = 0
        while low < high:
            # The last entry first: only a preallocated index has zeros there.
            at = high - 1 if high == status.st_size // _ENTRY.size else (low + high) // 2
            data = os.pread(fd, _ENTRY.size, at * _ENTRY.size)
            if len(data) == _ENTRY.size and any(data):
                position = _ENTRY.unpack(data)[1]
                low = at + 1
            else:
                high = at
    except OSError:
        return 0
    finally:
        os.close(fd)
    return position if 0 <= position < size_bytes else 0


def _plain_end(fd: int, base_offset: int, start_bytes: int, size_bytes: int) -> SegmentEnd | None:
    """The end where whole batches of format 2 lead from a position to the end of the file; None for anything else."""
    if size_bytes - start_bytes > CHUNK_BYTES_MAX:
        return None
    data = os.pread(fd, size_bytes - start_bytes, start_bytes)
    at, size, offset, epoch = 0, len(data), base_offset, None
    while size - at >= limits.BATCH_HEADER_BYTES_MAX:
        first, length, epoch, magic, delta = _HEADER(data, at)
        if magic != 2 or length < LENGTH_MIN[2] or first < offset or delta < 0:
            return None
        offset = first + delta + 1
        at += LOG_OVERHEAD_BYTES + length
    if at != size or epoch is None:
        return None
    return SegmentEnd(offset, size_bytes, size_bytes, leader_epoch=epoch)


def _end_by_headers(directory: PartitionDir, segment: SegmentFiles) -> SegmentEnd:
    columns = ("base_offset", "last_offset_delta", "partition_leader_epoch")
    offset, epoch = segment.base_offset, None
    with directory.open_segment(segment) as source:
        reader = HeaderReader(source, check_crc=False, block_bytes=1 << 20, columns=columns)
        for block in reader:
            offset = int(block.column("base_offset")[-1]) + int(block.column("last_offset_delta")[-1]) + 1
            epoch = int(block.column("partition_leader_epoch")[-1])
        tail = reader.tail
        assert tail is not None
        size_bytes = source.size_bytes
        header = bytearray(HEADER_UP_TO_MAGIC_BYTES)
        done = source.read_into(tail.position_bytes, memoryview(header)) if tail.kind is not TailKind.CLEAN else 0
    throws = (
        done == HEADER_UP_TO_MAGIC_BYTES
        and size_bytes - tail.position_bytes > HEADER_UP_TO_MAGIC_BYTES
        and int.from_bytes(header[8:12], "big", signed=True) < SIZE_MIN
    )
    return SegmentEnd(offset, tail.position_bytes, size_bytes, tail.kind, throws, epoch)
