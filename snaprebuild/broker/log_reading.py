"""Reads what a start reads of a log: its end by few bytes, and the batches that a recovery cuts or that rebuild the producers.

Of a segment few bytes are found by its index: its end, its first batch, or the batch at an offset. `verify` also reads the batches: what a
recovery cuts, and at which batch Kafka throws.

Source: ``LogLoader.recoverLog`` and ``recoverSegment``, ``LogSegment.recover``, ``OffsetIndex.append``,
``UnifiedLog.rebuildProducerState``, ``ProducerAppendInfo.appendDataBatch`` of 2.8.2, 3.6, 3.7, 3.9 and 4.3.1.
A replica takes batches of an older producer epoch, and gaps of sequences, with a warning.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from formats import limits
from formats.errors import FormatError
from formats.log.batch_headers import HeaderBlock, HeaderReader, TailKind
from formats.log.record_batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL, LENGTH_MIN, LOG_OVERHEAD_BYTES
from formats.partition.file_names import FileKind, FileSuffix, parse_file_name
from formats.partition.producer_snapshot import read_entries
from snaprebuild.broker.start_facts import LogRead, PartitionFacts, SegmentEnd, Shutdown, TransactionIndexFault
from snaprebuild.errors import ReadFailedError
from snaprebuild.storage.local.regular_file import open_regular_file
from snaprebuild.storage.partition_dir import PartitionDir, SegmentFiles

__all__ = [
    "first_magic",
    "leader_epoch_below",
    "read_log",
    "read_segment_end",
    "read_swap_range",
]

_HEADER = Struct(">qiib6xi").unpack_from
"""Fields of ``RECORD_BATCH_HEADER``: base offset, length, leader epoch, magic, last offset delta."""
_ENTRY = Struct(">ii")
"""Entry of an ``.index`` file: relative offset, position."""

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
        raise ReadFailedError.from_os_error(error, "cannot be read", path) from error
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
    begins = []
    ends = []
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
    with directory.file(log).open(may_grow=True) as source:
        for block in HeaderReader(source, block_bytes=1 << 20, columns=("base_offset", "last_offset_delta")):
            offset = block.next_offset
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
    if epoch is None and start_bytes:
        return _epoch_below(directory, segment, offset, 0)
    return epoch


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
        data = directory.file(segment.offset_index).read_small(limits.INDEX_BYTES_MAX)
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
        low = 0
        high = status.st_size // _ENTRY.size
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
    at = 0
    size = len(data)
    offset = base_offset
    epoch = None
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
    offset = segment.base_offset
    epoch = None
    with directory.open_segment(segment) as source:
        reader = HeaderReader(source, check_crc=False, block_bytes=1 << 20, columns=columns)
        for block in reader:
            offset = block.next_offset
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


INDEX_INTERVAL_BYTES = 4096
"""``index.interval.bytes`` by default: an index entry follows when more bytes were read since the last one."""
COLUMNS = ("base_offset", "last_offset_delta", "producer_id", "attributes")


def read_log(directory: PartitionDir, facts: PartitionFacts) -> LogRead | None:
    """Reads what the start reads; None where the end of the log is not known.

    Args:
        directory: a local one, with segments.
        facts: all others of the partition.

    Raises:
        ReadFailedError: a segment cannot be read.
        RefusedError: one changed meanwhile.
    """
    if facts.end is None:
        return None
    is_recovered = facts.shutdown is Shutdown.UNCLEAN
    first = facts.first_recovered if is_recovered else len(directory.segments)
    limit = directory.segments[first].base_offset if is_recovered else facts.end.offset
    producers = _OpenTransactions()
    start = _snapshot_start(directory, facts, limit, producers)
    if start is None and not is_recovered:
        start = limit  # after a clean stop without any snapshot nothing is read
    start = facts.log_start if start is None else start
    plain_write = _read_before(directory.segments[:first], directory, start, limit, producers)
    descending = tuple(base for base in _rebuilt(facts) if _descends(directory, base))
    if plain_write is not None or not is_recovered:
        return LogRead(end_offset=facts.end.offset, plain_write=plain_write, descending=descending)
    return _recovery(directory, first, producers, descending)


def _rebuilt(facts: PartitionFacts) -> list[int]:
    """Base offsets of the segments that are recovered while they are loaded (``LogLoader.loadSegmentFiles``)."""
    below_base = {base for base, fault in facts.transaction_index_faults if fault is TransactionIndexFault.BELOW_BASE}
    return sorted({*facts.without_index, *below_base})


def _snapshot_start(directory: PartitionDir, facts: PartitionFacts, limit: int, producers: _OpenTransactions) -> int | None:
    """Offset of the newest snapshot that a broker loads; its open transactions go into ``producers``. None without one."""
    newest = max(facts.snapshots, default=0)
    for offset, file in reversed(directory.snapshots):
        # Those at no base offset are removed before, but for the newest one.
        if offset > limit or (offset != newest and offset not in facts.base_offsets):
            continue
        data = directory.file(file.name).read_small(limits.SNAPSHOT_BYTES_MAX)
        if data is None:
            continue
        try:
            entries = read_entries(data, file=file.name)
        except FormatError:
            continue  # a broker removes it, and takes the one before
        is_open = entries["current_txn_first_offset"] >= 0
        producers.begin(set(entries["producer_id"][is_open].tolist()))
        return offset
    return None


class _OpenTransactions:
    """The producers with an open transaction."""

    def __init__(self) -> None:
        self._open: set[int] = set()

    def begin(self, producer_ids: set[int]) -> None:
        self._open = producer_ids

    def add(self, block: HeaderBlock, rows: NDArray[np.intp]) -> int | None:
        """Takes batches. Returns the first row of a batch outside of a transaction while its producer has one open; None without one."""
        producer_ids = block.column("producer_id")
        attributes = block.column("attributes")
        rows = rows[producer_ids[rows] >= 0]
        is_transactional = attributes & ATTRIBUTE_TRANSACTIONAL != 0
        if not self._open and not is_transactional[rows].any():
            return None
        is_control = attributes & ATTRIBUTE_CONTROL != 0
        markers = frozenset(block.control.tolist())
        for row in map(int, rows):
            producer_id = int(producer_ids[row])
            if is_control[row]:
                if row in markers:
                    self._open.discard(producer_id)
            elif is_transactional[row]:
                self._open.add(producer_id)
            elif producer_id in self._open:
                return row
        return None


def _read_before(
    segments: Sequence[SegmentFiles], directory: PartitionDir, start: int, limit: int, producers: _OpenTransactions
) -> tuple[int, int] | None:
    """Reads batches from one offset to another as Kafka does without a recovery: no checksum counts. Returns the plain write."""
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else limit
        if following <= start or start >= limit:
            continue
        with directory.open_segment(segment) as source:
            for block in HeaderReader(source, columns=COLUMNS):
                last = block.column("base_offset") + block.column("last_offset_delta")
                rows = np.flatnonzero((last >= start) & (block.column("base_offset") < limit))
                row = producers.add(block, rows)
                if row is not None:
                    return _place(block, row)
    return None


def _place(block: HeaderBlock, row: int) -> tuple[int, int]:
    return int(block.column("base_offset")[row]), int(block.column("producer_id")[row])


# ------------------------------------------------------------------------------------------------------------- recovery


def _recovery(directory: PartitionDir, first: int, producers: _OpenTransactions, descending: tuple[int, ...]) -> LogRead:
    segments = directory.segments
    end_offset = segments[first].base_offset
    for index in range(first, len(segments)):
        segment = segments[index]
        recovered = _recovered(directory, segment, producers)
        end_offset = recovered.end_offset
        if recovered.plain_write is not None:
            return LogRead(end_offset=end_offset, plain_write=recovered.plain_write, descending=descending)
        cut_bytes = segment.size_bytes - recovered.valid_bytes
        if cut_bytes:
            later = segments[index + 1 :]
            cut_bytes += sum(each.size_bytes for each in later)
            return LogRead(end_offset=end_offset, cut_bytes=cut_bytes, cut_segments=len(later), descending=descending)
    return LogRead(end_offset=end_offset, descending=descending)


class _Recovered:
    """One segment after its recovery."""

    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset
        self.valid_bytes = 0
        self.plain_write: tuple[int, int] | None = None


def _recovered(directory: PartitionDir, segment: SegmentFiles, producers: _OpenTransactions) -> _Recovered:
    """The part of a segment that ``LogSegment.recover`` keeps.

    Up to the first batch that is not whole, or whose checksum differs; nothing where the index descends.
    """
    recovered = _Recovered(segment.base_offset)
    index = _IndexOrder()
    with directory.open_segment(segment) as source:
        reader = HeaderReader(source, check_crc=True, columns=COLUMNS)
        for block in reader:
            good = int(block.bad_crc[0]) if len(block.bad_crc) else len(block)
            if index.descends(block, good):
                return _Recovered(segment.base_offset)
            row = producers.add(block, np.arange(good))
            if row is not None:
                recovered.plain_write = _place(block, row)
                return recovered
            if good:
                recovered.end_offset = int(block.column("base_offset")[good - 1] + block.column("last_offset_delta")[good - 1]) + 1
            if good < len(block):
                recovered.valid_bytes = int(block.position_bytes[good])
                return recovered
        assert reader.tail is not None
        recovered.valid_bytes = reader.tail.position_bytes
    return recovered


class _IndexOrder:
    """Whether ``OffsetIndex.append`` throws an InvalidOffsetException while an index is made anew."""

    def __init__(self) -> None:
        self._last_position = 0
        self._last_offset: int | None = None

    def descends(self, block: HeaderBlock, count: int) -> bool:
        """Takes the first batches of a block, those of all before were taken."""
        positions = block.position_bytes[:count]
        last = block.column("base_offset")[:count] + block.column("last_offset_delta")[:count]
        for at in self._entries(positions):
            offset = int(last[at])
            if self._last_offset is not None and offset <= self._last_offset:
                return True
            self._last_offset = offset
        return False

    def _entries(self, positions: NDArray[np.int64]) -> Iterator[int]:
        """Rows that get an index entry."""
        at = 0
        while at < len(positions):
            at = int(np.searchsorted(positions, self._last_position + INDEX_INTERVAL_BYTES, side="right"))
            if at < len(positions):
                self._last_position = int(positions[at])
                yield at


def _descends(directory: PartitionDir, base_offset: int) -> bool:
    """Whether the offsets of a segment, whose index is made anew, descend."""
    segment = directory.segment_at(base_offset)
    if segment is None:
        return False
    index = _IndexOrder()
    with directory.open_segment(segment) as source:
        return any(index.descends(block, len(block)) for block in HeaderReader(source, columns=COLUMNS))
