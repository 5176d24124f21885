"""Counts, extremes and the order of offsets of a run of batches: a value, and how two of them are joined.

Where the batch before the run ended is not asked for: the gap or disorder between two runs is found when they are joined. So joining is
associative, and runs may be blocks that follow each other, or ranges of a segment that were read side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from formats.log.batch_headers import HeaderBlock
from formats.log.control_record import ControlRecordType
from formats.log.record_batch import ATTRIBUTE_CONTROL

__all__ = ["BAD_CRC_LISTED_MAX", "FACT_COLUMNS", "NO_FACTS", "SegmentFacts"]

BAD_CRC_LISTED_MAX = 100
"""Positions of damaged batches that are named; all are counted."""

FACT_COLUMNS = ("attributes", "base_offset", "last_offset_delta", "magic", "max_timestamp", "record_count")
"""Fields of a header on which the facts depend."""


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """Of consecutive batches.

    Attributes:
        batches: count of whole batches. Without any, all others are as by default.
        base_offset: of the first batch; of a message of magic 0 or 1 that is its last offset.
        begins_with_magic_2: so that nothing lies between the end of the batch before and ``base_offset`` but a gap.
        next_offset: last offset of the last batch + 1.
        max_timestamp: greatest timestamp of any header, ms; -1 for none.
        bad_crc_count: batches whose checksum differs.
        bad_crc: (position in bytes, base offset) of the first ``BAD_CRC_LISTED_MAX`` of them.
        missing_offsets: offsets between the batches that no batch covers: compaction took whole batches.
        partial_batches: batches of magic 2 with fewer records than offsets: compaction took records.
        empty_control_batches: control batches without their record: compaction took markers.
        disorder_offset: base offset of the first batch that does not lie behind the one before it, or ends before it begins.
        commit_markers: with their record; likewise ``abort_markers``.
        index_hits: entries of the indexes that agree with the batches (``replay.index_hits``), where they were compared; else 0.
    """

    batches: int = 0
    base_offset: int = 0
    begins_with_magic_2: bool = False
    next_offset: int = 0
    max_timestamp: int = -1
    bad_crc_count: int = 0
    bad_crc: tuple[tuple[int, int], ...] = ()
    missing_offsets: int = 0
    partial_batches: int = 0
    empty_control_batches: int = 0
    disorder_offset: int | None = None
    commit_markers: int = 0
    abort_markers: int = 0
    index_hits: int = 0

    @classmethod
    def of_block(cls, block: HeaderBlock) -> SegmentFacts:
        """Of a block, which is not empty and has ``FACT_COLUMNS``."""
        base, delta, count = (block.column(name) for name in ("base_offset", "last_offset_delta", "record_count"))
        attributes = block.column("attributes")
        is_new = block.column("magic") == 2
        following = base + delta + 1
        disorder = following <= base
        disorder[1:] |= base[1:] < following[:-1]
        disordered = np.flatnonzero(disorder)
        # Where the wrapper of an old message begins is not known, so no gap is seen there.
        after_gap = np.flatnonzero(is_new[1:] & (base[1:] > following[:-1]))
        empty = np.flatnonzero(count == 0)
        bad = block.bad_crc[:BAD_CRC_LISTED_MAX]
        return cls(
            batches=len(block),
            base_offset=int(base[0]),
            begins_with_magic_2=bool(is_new[0]),
            next_offset=int(base[-1]) + int(delta[-1]) + 1,
            max_timestamp=max(-1, int(block.column("max_timestamp").max())),
            bad_crc_count=len(block.bad_crc),
            bad_crc=tuple(zip(block.position_bytes[bad].tolist(), base[bad].tolist(), strict=True)),
            missing_offsets=int((base[after_gap + 1] - following[after_gap]).sum()),
            partial_batches=int(np.count_nonzero((count != delta + 1) & is_new)),
            empty_control_batches=int(np.count_nonzero(is_new[empty] & (attributes[empty] & ATTRIBUTE_CONTROL != 0))),
            disorder_offset=int(base[disordered[0]]) if len(disordered) else None,
            commit_markers=int(np.count_nonzero(block.marker_type == ControlRecordType.COMMIT)),
            abort_markers=int(np.count_nonzero(block.marker_type == ControlRecordType.ABORT)),
        )

    def behind(self, offset: int) -> SegmentFacts:
        """The same batches where the one before them ends below ``offset``: with the gap or the disorder between.

        Without batches the next offset is ``offset``.
        """
        if not self.batches:
            return replace(self, next_offset=offset)
        gap = self.base_offset - offset
        if gap < 0:
            return replace(self, disorder_offset=self.base_offset)
        return replace(self, missing_offsets=self.missing_offsets + gap) if gap and self.begins_with_magic_2 else self

    @property
    def first_offset(self) -> int | None:
        """Base offset of the first batch; None without batches, or when that is a message of magic 0 or 1."""
        return self.base_offset if self.begins_with_magic_2 else None

    def then(self, following: SegmentFacts) -> SegmentFacts:
        """Of these batches and those that follow them. Associative, with ``NO_FACTS`` as its unit."""
        if not self.batches or not following.batches:
            return self if self.batches else following
        rest = following.behind(self.next_offset)
        sums = {name: getattr(self, name) + getattr(rest, name) for name in _SUMS}
        return SegmentFacts(
            base_offset=self.base_offset,
            begins_with_magic_2=self.begins_with_magic_2,
            next_offset=rest.next_offset,
            max_timestamp=max(self.max_timestamp, rest.max_timestamp),
            bad_crc=(self.bad_crc + rest.bad_crc)[:BAD_CRC_LISTED_MAX],
            disorder_offset=rest.disorder_offset if self.disorder_offset is None else self.disorder_offset,
            **sums,
        )


_SUMS = (
    "batches",
    "bad_crc_count",
    "missing_offsets",
    "partial_batches",
    "empty_control_batches",
    "commit_markers",
    "abort_markers",
    "index_hits",
)

NO_FACTS = SegmentFacts()
"""Of no batch."""
