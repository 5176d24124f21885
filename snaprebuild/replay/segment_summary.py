"""Everything that replay needs to know of one segment: its effect on producer states, and the facts by which the result is judged.

A summary is small (one row for each producer of the segment), can be sent between processes, and of a closed segment never changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formats import limits
from formats.batch_headers import HeaderBlock, HeaderReader, SegmentBytes, Tail
from formats.record_batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from snaprebuild.replay.segment_effect import EFFECT_COLUMNS, IDENTITY, SegmentEffect, compose, effect_of_block

__all__ = ["SegmentSummary", "summarise_segment"]

BAD_CRC_LISTED_MAX = 100
"""Positions of damaged batches that a summary names; all are counted."""

BLOCK_ROWS = 65_536
"""Batches that are summarised together: their effects are composed for each producer, which should be the lesser part."""

SUMMARY_COLUMNS = tuple(sorted({*EFFECT_COLUMNS, "magic", "record_count"}))


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """What one segment holds.

    Attributes:
        base_offset: int64, from its name.
        size_bytes: of the file.
        batches: count of whole batches.
        first_offset: base offset of the first batch; None without batches, or when that is a message of magic 0 or 1, of which only the
            last offset is known.
        next_offset: last offset of the last batch + 1; the base offset without batches.
        max_timestamp: greatest timestamp of any header, ms; -1 for none.
        effect: on any producer state, with the transactions that it closes.
        tail: where its batches end, and why.
        bad_crc_count: batches whose checksum differs.
        bad_crc: (position in bytes, base offset) of the first ``BAD_CRC_LISTED_MAX`` of them.
        missing_offsets: offsets between its batches that no batch covers: compaction took whole batches.
        partial_batches: batches of magic 2 with fewer records than offsets: compaction took records.
        empty_control_batches: control batches without their record: compaction took markers.
        disorder_offset: base offset of the first batch that does not lie behind the one before it, or below the segment's base offset.
        legacy_batches: of magic 0 or 1; ``producer_batches``: with a producer id; ``transactional_batches``: of data in transactions.
        bytes_read: of the segment.
    """

    base_offset: int
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
    bytes_read: int


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
    reader = HeaderReader(
        source, check_crc=check_crc, hint=hint, block_bytes=block_bytes, block_rows=BLOCK_ROWS, columns=SUMMARY_COLUMNS
    )
    facts = _Facts(base_offset)
    effects = _Effects()
    for block in reader:
        facts.take(block)
        effects.take(effect_of_block(block))
    assert reader.tail is not None
    return SegmentSummary(
        base_offset=base_offset,
        size_bytes=source.size_bytes,
        batches=facts.batches,
        first_offset=facts.first_offset,
        next_offset=facts.next_offset,
        max_timestamp=facts.max_timestamp,
        effect=effects.total(),
        tail=reader.tail,
        bad_crc_count=facts.bad_crc_count,
        bad_crc=tuple(facts.bad_crc),
        missing_offsets=facts.missing_offsets,
        partial_batches=facts.partial_batches,
        empty_control_batches=facts.empty_control_batches,
        disorder_offset=facts.disorder_offset,
        legacy_batches=facts.legacy_batches,
        producer_batches=facts.producer_batches,
        transactional_batches=facts.transactional_batches,
        bytes_read=reader.bytes_read,
    )


class _Effects:
    """Composes the effects of blocks in order, like with like in size, so that many producers are not copied for each block."""

    def __init__(self) -> None:
        self._stack: list[SegmentEffect] = []

    def take(self, effect: SegmentEffect) -> None:
        while self._stack and len(self._stack[-1]) <= 2 * len(effect):
            effect = compose(self._stack.pop(), effect)
        self._stack.append(effect)

    def total(self) -> SegmentEffect:
        total = IDENTITY
        while self._stack:
            total = compose(self._stack.pop(), total)
        return total


class _Facts:
    """Counts, extremes and the order of offsets, block by block."""

    def __init__(self, base_offset: int) -> None:
        self.batches = 0
        self.first_offset: int | None = None
        self.next_offset = base_offset
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
