"""Everything that replay needs to know of one segment: its effect on producer states, and the facts by which the result is judged.

A summary is small (one row for each producer of the segment), can be sent between processes, and of a closed segment never changes. Where
the state is wanted inside a segment, at an offset that is no boundary, the segment is cut there and has a summary for each piece.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from formats import limits
from formats.batch_headers import HeaderBlock, HeaderReader, SegmentBytes, Tail, TailKind
from formats.control_record import ControlRecordType
from formats.record_batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from snaprebuild.replay.block_effect import EFFECT_COLUMNS, effect_of_block
from snaprebuild.replay.producer_trace import ROW_DTYPE, batches_of_producer, deciding
from snaprebuild.replay.running_effect import Levels, joined, stacked
from snaprebuild.replay.segment_effect import SegmentEffect
from snaprebuild.replay.segment_statistics import STATISTICS_COLUMNS, SegmentStatistics, StatisticsOfBlocks
from snaprebuild.replay.transactions import needed_closes

__all__ = ["NO_ROWS", "SegmentSummary", "summarise_pieces", "summarise_segment"]

BAD_CRC_LISTED_MAX = 100
"""Positions of damaged batches that a summary names; all are counted."""

BLOCK_ROWS = 65_536
"""Batches that are summarised together: their effects are composed for each producer, which should be the lesser part."""

NO_ROWS = np.zeros(0, dtype=ROW_DTYPE)
"""No batch of the producer that was asked for, or none asked for."""

SUMMARY_COLUMNS = tuple(sorted({*EFFECT_COLUMNS, "magic", "record_count"}))


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """What one segment holds, or one piece of it.

    Attributes:
        base_offset: of the segment, int64, from its name.
        cut_offset: the piece was cut off here, and another follows; None for the one that goes to the end of the segment.
        cut_batch_offset: base offset of the batch inside which the cut lies, which the next piece holds; None where it lies between two,
            or where the batch is not to be trusted.
        size_bytes: of the segment or piece.
        batches: count of whole batches.
        first_offset: base offset of the first batch; None without batches, or when that is a message of magic 0 or 1, of which only the
            last offset is known.
        next_offset: last offset of the last batch + 1; without batches that of the piece before, or the base offset.
        max_timestamp: greatest timestamp of any header, ms; -1 for none.
        effect: on any producer state, with those of the transactions closed here that ``needed_closes`` leaves.
        tail: where its batches end, and why; clean at a cut.
        bad_crc_count: batches whose checksum differs.
        bad_crc: (position in bytes, base offset) of the first ``BAD_CRC_LISTED_MAX`` of them.
        missing_offsets: offsets before and between its batches that no batch covers: compaction took whole batches.
        partial_batches: batches of magic 2 with fewer records than offsets: compaction took records.
        empty_control_batches: control batches without their record: compaction took markers.
        disorder_offset: base offset of the first batch that does not lie behind the one before it, or below the segment's base offset.
        legacy_batches: of magic 0 or 1; ``producer_batches``: with a producer id; ``transactional_batches``: of data in transactions.
        commit_markers: with their record; likewise ``abort_markers``.
        commits_left_out: committed transactions that are not among those of the effect.
        bytes_read: of the segment.
        statistics: its batches by kind and by producer, where they were asked for.
        traced: of the producer that was asked for, those of its batches that decide its entry (``ROW_DTYPE``, in log order).
    """

    base_offset: int
    cut_offset: int | None
    cut_batch_offset: int | None
    size_bytes: int
    batches: int
    first_offset: int | None
    next_offset: int
    max_timestamp: int
    effect: SegmentEffect
    tail: Tail
    bad_crc_count: int
    bad_crc: tuple[tuple[int, int], ...]
    missing_offsets: int
    partial_batches: int
    empty_control_batches: int
    disorder_offset: int | None
    legacy_batches: int
    producer_batches: int
    transactional_batches: int
    commit_markers: int
    abort_markers: int
    commits_left_out: int
    bytes_read: int
    traced: np.ndarray
    statistics: SegmentStatistics | None = None


def summarise_segment(
    source: SegmentBytes,
    base_offset: int,
    *,
    check_crc: bool = True,
    hint: np.ndarray | None = None,
    block_bytes: int = limits.HEADER_BLOCK_BYTES,
) -> SegmentSummary:
    """Reads a segment once, block by block.

    Args:
        source: its bytes.
        base_offset: from its name.
        check_crc: compute the checksum of every batch.
        hint: positions from the offset index, see ``HeaderReader``.
        block_bytes: bytes held at a time.

    Raises:
        TruncatedError: the segment became shorter while it was read.
        SnaprebuildError: whatever ``source`` raises when it cannot be read.
    """
    (whole,) = summarise_pieces(source, base_offset, (), is_last=True, check_crc=check_crc, hint=hint, block_bytes=block_bytes)
    return whole


def summarise_pieces(
    source: SegmentBytes,
    base_offset: int,
    cuts: Sequence[int],
    *,
    is_last: bool,
    check_crc: bool = True,
    hint: np.ndarray | None = None,
    block_bytes: int = limits.HEADER_BLOCK_BYTES,
    with_statistics: bool = False,
    traced_producer: int | None = None,
) -> tuple[SegmentSummary, ...]:
    """The same in pieces.

    A cut lies before the first batch that does not end below its offset: there a broker stops that brings its state to that offset
    (``UnifiedLog.rebuildProducerState``).

    Args:
        source: its bytes.
        base_offset: from its name.
        cuts: offsets above the base offset and below that of the next segment, ascending, none twice.
        is_last: of the log: the state at its end is that of the rest, so that no cut is made there or above.
        check_crc: as above; so are ``hint`` and ``block_bytes``.
        hint: see there.
        block_bytes: see there.
        with_statistics: count the batches by kind and by producer, too.
        traced_producer: id of the producer whose batches are wanted, too.

    Returns:
        The piece before each cut, and the rest, which may have no batch. No piece for cuts behind an end that is not clean.

    Raises:
        TruncatedError: as above.
        SnaprebuildError: as above.
    """
    columns = tuple({*SUMMARY_COLUMNS, *STATISTICS_COLUMNS}) if with_statistics else SUMMARY_COLUMNS
    reader = HeaderReader(source, check_crc=check_crc, hint=hint, block_bytes=block_bytes, block_rows=BLOCK_ROWS, columns=columns)
    pieces = _Pieces(reader, base_offset, cuts, with_statistics=with_statistics, traced_producer=traced_producer)
    for block in reader:
        pieces.take(block)
    return pieces.finish(is_last=is_last)


class _Pieces:
    """Collects the blocks of a segment into pieces."""

    def __init__(
        self, reader: HeaderReader, base_offset: int, cuts: Sequence[int], *, with_statistics: bool, traced_producer: int | None
    ) -> None:
        self._with_statistics = with_statistics
        self._reader = reader
        self._base_offset = base_offset
        self._traced_producer = traced_producer
        self._waiting = deque(cuts)
        self._done: list[SegmentSummary] = []
        self._start_bytes = 0
        self._bytes_read = 0
        self._begin(base_offset)

    def _begin(self, start_offset: int) -> None:
        self._facts = _Facts(start_offset)
        self._effects = _Effects()
        self._statistics = StatisticsOfBlocks() if self._with_statistics else None
        self._traced = NO_ROWS

    def take(self, block: HeaderBlock) -> None:
        if self._waiting:
            # The first batch that does not end below an offset, in log order, even where offsets do not ascend.
            reached = np.maximum.accumulate(block.column("base_offset") + block.column("last_offset_delta"))
            start = 0
            while self._waiting and self._waiting[0] <= reached[-1]:
                row = int(np.searchsorted(reached, self._waiting[0]))
                self._add(block.part(start, row))
                self._cut(int(block.position_bytes[row]), self._batch_around(self._waiting[0], block, row))
                start = row
            block = block.part(start, len(block))
        self._add(block)

    def _batch_around(self, offset: int, block: HeaderBlock, row: int) -> int | None:
        """Base offset of the batch in this row if ``offset`` lies inside it, for all that can be trusted."""
        base_offset = int(block.column("base_offset")[row])
        is_sound = block.column("magic")[row] == 2 and row not in block.bad_crc
        return base_offset if is_sound and self._facts.next_offset <= base_offset < offset else None

    def _add(self, block: HeaderBlock) -> None:
        if len(block):
            self._facts.take(block)
            self._effects.take(effect_of_block(block))
            if self._statistics is not None:
                self._statistics.take(block)
            if self._traced_producer is not None:
                rows = batches_of_producer(block, self._traced_producer, self._base_offset)
                self._traced = deciding(np.concatenate((self._traced, rows)))

    def _cut(self, position_bytes: int, batch_offset: int | None) -> None:
        tail = Tail(TailKind.CLEAN, position_bytes)
        self._done.append(self._summary(tail, position_bytes, self._waiting.popleft(), batch_offset))
        self._start_bytes, self._bytes_read = position_bytes, self._reader.bytes_read
        # The next piece begins where the batches of this one ended: it counts the gap in which the cut lies.
        self._begin(self._facts.next_offset)

    def finish(self, *, is_last: bool) -> tuple[SegmentSummary, ...]:
        tail = self._reader.tail
        assert tail is not None
        is_log_end = is_last and tail.kind is not TailKind.CORRUPT
        # Behind a clean end nothing more comes below the next segment; behind another one, only below the end itself.
        while self._waiting and not is_log_end and (tail.kind is TailKind.CLEAN or self._waiting[0] <= self._facts.next_offset):
            self._cut(tail.position_bytes, None)
        self._done.append(self._summary(tail, self._reader.source.size_bytes, None, None))
        return tuple(self._done)

    def _summary(self, tail: Tail, end_bytes: int, cut_offset: int | None, cut_batch_offset: int | None) -> SegmentSummary:
        facts, effect = self._facts, self._effects.total()
        return SegmentSummary(
            base_offset=self._base_offset,
            cut_offset=cut_offset,
            cut_batch_offset=cut_batch_offset,
            size_bytes=end_bytes - self._start_bytes,
            batches=facts.batches,
            first_offset=facts.first_offset,
            next_offset=facts.next_offset,
            max_timestamp=facts.max_timestamp,
            effect=effect,
            tail=tail,
            bad_crc_count=facts.bad_crc_count,
            bad_crc=tuple(facts.bad_crc),
            missing_offsets=facts.missing_offsets,
            partial_batches=facts.partial_batches,
            empty_control_batches=facts.empty_control_batches,
            disorder_offset=facts.disorder_offset,
            legacy_batches=facts.legacy_batches,
            producer_batches=facts.producer_batches,
            transactional_batches=facts.transactional_batches,
            commit_markers=facts.commit_markers,
            abort_markers=facts.abort_markers,
            commits_left_out=self._effects.commits_left_out,
            bytes_read=self._reader.bytes_read - self._bytes_read,
            statistics=None if self._statistics is None else self._statistics.total(),
            traced=self._traced,
        )


class _Effects:
    """Composes the effects of blocks in order."""

    def __init__(self) -> None:
        self._levels: Levels = ()
        self.commits_left_out = 0

    def take(self, effect: SegmentEffect) -> None:
        *before, last = stacked(self._levels, effect)
        self._levels = (*before, self._with_needed_closes(last))

    def total(self) -> SegmentEffect:
        return self._with_needed_closes(joined(self._levels))

    def _with_needed_closes(self, effect: SegmentEffect) -> SegmentEffect:
        needed = needed_closes(effect.closes)
        self.commits_left_out += len(effect.closes) - len(needed)
        return effect.with_closes(needed)


class _Facts:
    """Counts, extremes and the order of offsets, block by block."""

    def __init__(self, start_offset: int) -> None:
        self.batches = 0
        self.first_offset: int | None = None
        self.next_offset = start_offset
        self.max_timestamp = -1
        self.bad_crc: list[tuple[int, int]] = []
        self.bad_crc_count = 0
        self.missing_offsets = 0
        self.partial_batches = 0
        self.empty_control_batches = 0
        self.disorder_offset: int | None = None
        self.legacy_batches = 0
        self.producer_batches = 0
        self.transactional_batches = 0
        self.commit_markers = 0
        self.abort_markers = 0

    def take(self, block: HeaderBlock) -> None:
        base, delta, count = (block.column(name) for name in ("base_offset", "last_offset_delta", "record_count"))
        attributes, producer_id = block.column("attributes"), block.column("producer_id")
        is_new = block.column("magic") == 2
        if self.batches == 0 and is_new[0]:
            self.first_offset = int(base[0])
        self._order(base, base + delta + 1, is_new)
        self._bad_crc(block)
        self.batches += len(block)
        self.next_offset = int(base[-1]) + int(delta[-1]) + 1
        self.max_timestamp = max(self.max_timestamp, int(block.column("max_timestamp").max()))
        self.legacy_batches += len(block) - int(np.count_nonzero(is_new))
        self.producer_batches += int(np.count_nonzero(producer_id >= 0))
        transactional = attributes & (ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL) == ATTRIBUTE_TRANSACTIONAL
        self.transactional_batches += int(np.count_nonzero(transactional & (producer_id >= 0)))
        self.commit_markers += int(np.count_nonzero(block.marker_type == ControlRecordType.COMMIT))
        self.abort_markers += int(np.count_nonzero(block.marker_type == ControlRecordType.ABORT))
        self.partial_batches += int(np.count_nonzero((count != delta + 1) & is_new))
        empty = np.flatnonzero(count == 0)
        self.empty_control_batches += int(np.count_nonzero(is_new[empty] & (attributes[empty] & ATTRIBUTE_CONTROL != 0)))

    def _order(self, first: np.ndarray, following: np.ndarray, is_new: np.ndarray) -> None:
        """Gaps and disorder between neighbours. Where the wrapper of an old message begins is not known, so no gap is seen there."""
        expected = np.concatenate(([self.next_offset], following[:-1]))
        disorder = np.flatnonzero((first < expected) | (following <= first))
        if len(disorder) and self.disorder_offset is None:
            self.disorder_offset = int(first[disorder[0]])
        after_gap = np.flatnonzero(is_new & (first > expected))
        self.missing_offsets += int((first[after_gap] - expected[after_gap]).sum())

    def _bad_crc(self, block: HeaderBlock) -> None:
        self.bad_crc_count += len(block.bad_crc)
        rows = block.bad_crc[: BAD_CRC_LISTED_MAX - len(self.bad_crc)]
        pairs = zip(block.position_bytes[rows].tolist(), block.column("base_offset")[rows].tolist(), strict=True)
        self.bad_crc.extend(pairs)
