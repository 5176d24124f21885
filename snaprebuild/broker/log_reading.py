"""Reads the batches that a start reads: what a recovery cuts, and at which batch Kafka throws while it rebuilds the producers.

Source: ``LogLoader.recoverLog`` and ``recoverSegment``, ``LogSegment.recover``, ``OffsetIndex.append``,
``UnifiedLog.rebuildProducerState``, ``ProducerAppendInfo.appendDataBatch`` of 2.8.2, 3.6, 3.7, 3.9 and 4.3.1.
A replica takes batches of an older producer epoch, and gaps of sequences, with a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from formats import limits
from formats.errors import FormatError
from formats.log.batch_headers import HeaderBlock, HeaderReader
from formats.log.record_batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from formats.partition.producer_snapshot import read_entries
from snaprebuild.broker.start_facts import LogRead, PartitionFacts, Shutdown, TransactionIndexFault
from snaprebuild.storage.partition_dir import PartitionDir, SegmentFiles

__all__ = ["read_log"]

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
        data = directory.store.read_small(directory.file_path(file.name), limits.SNAPSHOT_BYTES_MAX)
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
        producer_ids, attributes = block.column("producer_id"), block.column("attributes")
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
        found = _recovered(directory, segment, producers)
        end_offset = found.end_offset
        if found.plain_write is not None:
            return LogRead(end_offset=end_offset, plain_write=found.plain_write, descending=descending)
        cut_bytes = segment.size_bytes - found.valid_bytes
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
    """As ``LogSegment.recover``: up to the first batch that is not whole, or whose checksum differs; nothing where the index descends."""
    found = _Recovered(segment.base_offset)
    index = _IndexOrder()
    with directory.open_segment(segment) as source:
        reader = HeaderReader(source, check_crc=True, columns=COLUMNS)
        for block in reader:
            good = int(block.bad_crc[0]) if len(block.bad_crc) else len(block)
            if index.descends(block, good):
                return _Recovered(segment.base_offset)
            row = producers.add(block, np.arange(good))
            if row is not None:
                found.plain_write = _place(block, row)
                return found
            if good:
                found.end_offset = int(block.column("base_offset")[good - 1] + block.column("last_offset_delta")[good - 1]) + 1
            if good < len(block):
                found.valid_bytes = int(block.position_bytes[good])
                return found
        assert reader.tail is not None
        found.valid_bytes = reader.tail.position_bytes
    return found


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
