"""Counts, extremes and the order of offsets of a run of batches, as a value, and how two of these values are joined.

A run does not depend on where the batch before it ended: the gap or disorder between two runs is found when they are joined. So joining is
associative, and runs may be consecutive blocks, or ranges of a segment that were read in parallel.

Source of the index entries: ``OffsetIndex``, ``TimeIndex``, ``LeaderEpochFileCache``.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from formats.log.batch_headers import HeaderBlock
from formats.log.control_record import ControlRecordType
from formats.log.record_batch import ATTRIBUTE_CONTROL

__all__ = ["BAD_CRC_LISTED_MAX", "FACT_COLUMNS", "HIT_COLUMNS", "NO_FACTS", "IndexEntries", "SegmentFacts", "other_epochs"]

BAD_CRC_LISTED_MAX = 100
"""Positions of damaged batches that are named; all are counted."""

FACT_COLUMNS = ("attributes", "base_offset", "last_offset_delta", "magic", "max_timestamp", "record_count")
"""Fields of a header on which the facts depend."""


class SegmentFacts(msgspec.Struct, frozen=True):
    """Counts and extremes of consecutive batches.

    Attributes:
        batches: count of whole batches. Without any, all others have their defaults.
        base_offset: of the first batch; of a message of magic 0 or 1 that is its last offset.
        begins_with_magic_2: whether offsets between the end of the batch before and ``base_offset`` are a gap.
        next_offset: last offset of the last batch + 1.
        max_timestamp: greatest timestamp of any header, ms; -1 for none.
        bad_crc_count: batches whose checksum differs.
        bad_crc: (position in bytes, base offset) of the first ``BAD_CRC_LISTED_MAX`` of them.
        missing_offsets: offsets between the batches that no batch covers: compaction removed whole batches.
        partial_batches: batches of magic 2 with fewer records than offsets: compaction removed records.
        empty_control_batches: control batches without their record: compaction removed markers.
        disorder_offset: base offset of the first batch that begins before the end of the one before it, or ends before it begins.
        commit_markers: commit markers with their record.
        abort_markers: abort markers with their record.
        index_hits: index entries that agree with the batches (``IndexEntries.hits``); 0 if they were not compared.
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
    def of_block(cls, block: HeaderBlock, indexes: IndexEntries | None = None) -> SegmentFacts:
        """The facts of a block, which is not empty and has ``FACT_COLUMNS``, and ``HIT_COLUMNS`` if indexes are given."""
        (facts,) = cls.of_parts(block, np.zeros(1, dtype=np.int64))
        return facts if indexes is None else replace(facts, index_hits=indexes.hits(block))

    @classmethod
    def of_parts(cls, block: HeaderBlock, starts: np.ndarray) -> list[SegmentFacts]:
        """The facts of each part of a block.

        Args:
            block: not empty, with ``FACT_COLUMNS``.
            starts: int64 (k,), the row with which each part begins, strictly ascending from 0.
        """
        base, delta, count = (block.column(name) for name in ("base_offset", "last_offset_delta", "record_count"))
        is_new = block.column("magic") == 2
        following = base + delta + 1
        is_control = block.column("attributes") & ATTRIBUTE_CONTROL != 0
        ends = np.append(starts[1:], len(block))

        def inside(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[int]]:
            """Of ascending rows: where those of each part begin and end, and how many it has."""
            first, stop = np.searchsorted(rows, starts), np.searchsorted(rows, ends)
            return first, stop, (stop - first).tolist()

        disorder = base[1:] < following[:-1]
        # The first offset of a wrapper message (magic 0 or 1) is unknown, so no gap is counted before it.
        gap = is_new[1:] & (base[1:] > following[:-1])
        disorder[starts[1:] - 1] = gap[starts[1:] - 1] = False  # between two parts
        is_disordered = following <= base
        is_disordered[1:] |= disorder
        disordered = is_disordered.nonzero()[0]
        first_disordered, _, disorders = inside(disordered)
        gaps = gap.nonzero()[0] + 1
        first_gap, stop_gap, _ = inside(gaps)
        missing = np.append(0, np.cumsum(base[gaps] - following[gaps - 1]))
        empty = (count == 0).nonzero()[0]
        first_bad, stop_bad, bad_counts = inside(block.bad_crc)
        columns = zip(
            starts.tolist(),
            ends.tolist(),
            np.maximum.reduceat(block.column("max_timestamp"), starts).tolist(),
            (missing[stop_gap] - missing[first_gap]).tolist(),
            inside(((count != delta + 1) & is_new).nonzero()[0])[2],
            inside(empty[is_new[empty] & is_control[empty]])[2],
            inside(block.control[block.marker_type == ControlRecordType.COMMIT])[2],
            inside(block.control[block.marker_type == ControlRecordType.ABORT])[2],
            strict=True,
        )
        found = []
        for part, (start, end, latest, missing_offsets, partial, empty_control, commits, aborts) in enumerate(columns):
            bad = block.bad_crc[first_bad[part] : stop_bad[part]][:BAD_CRC_LISTED_MAX]
            found.append(
                cls(
                    batches=end - start,
                    base_offset=int(base[start]),
                    begins_with_magic_2=bool(is_new[start]),
                    next_offset=int(base[end - 1]) + int(delta[end - 1]) + 1,
                    max_timestamp=max(-1, latest),
                    bad_crc_count=bad_counts[part],
                    bad_crc=tuple(zip(block.position_bytes[bad].tolist(), base[bad].tolist(), strict=True)),
                    missing_offsets=missing_offsets,
                    partial_batches=partial,
                    empty_control_batches=empty_control,
                    disorder_offset=int(base[disordered[first_disordered[part]]]) if disorders[part] else None,
                    commit_markers=commits,
                    abort_markers=aborts,
                )
            )
        return found

    def after(self, offset: int) -> SegmentFacts:
        """The same batches after a batch that ends at ``offset`` - 1: with the gap or the disorder between them.

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
        """The facts of these batches and the following ones. Associative, with ``NO_FACTS`` as its unit."""
        if not self.batches or not following.batches:
            return self if self.batches else following
        rest = following.after(self.next_offset)
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


# ---------------------------------------------------------------------------------------------------------------- indexes

HIT_COLUMNS = ("base_offset", "last_offset_delta", "magic", "max_timestamp", "partition_leader_epoch")
"""Fields of a header that are compared with index entries."""


class IndexEntries(msgspec.Struct, frozen=True, eq=False):
    """The entries of the indexes of one segment; all arrays are int64.

    Attributes:
        offset: of the offset index, absolute, ascending; ``position``: in bytes, ascending.
        time_offset: of the time index, absolute; ``timestamp``: ms since 1970; both do not descend.
        epoch: of the leader epoch checkpoint; ``epoch_start``: first offset of each, ascending.
    """

    offset: np.ndarray
    position: np.ndarray
    time_offset: np.ndarray
    timestamp: np.ndarray
    epoch: np.ndarray
    epoch_start: np.ndarray

    def hits(self, block: HeaderBlock) -> int:
        """2 for each entry of the offset index and 1 for each of the time index that agree, minus 1 for each batch of another epoch.

        Summed over the whole segment this is ``2 * len(offset) + len(timestamp)`` if everything agrees, and less otherwise. So the sum only
        detects that an index may be damaged; ``snapshots.engine.remote_indexes`` then finds the entry.

        Args:
            block: not empty, with ``HIT_COLUMNS``.
        """
        base, positions = block.column("base_offset"), block.position_bytes
        last = base + block.column("last_offset_delta")
        begins = np.count_nonzero(np.isin(self.position, positions))
        inside = (self.offset >= last[0]) & (self.offset <= last[-1])
        rows = np.minimum(np.searchsorted(last, self.offset[inside]), len(last) - 1)
        ends = np.count_nonzero((last[rows] == self.offset[inside]) & (positions[rows] >= self.position[inside]))
        inside = (self.time_offset >= base[0]) & (self.time_offset <= last[-1])
        rows = np.minimum(np.searchsorted(last, self.time_offset[inside]), len(last) - 1)
        same = block.column("max_timestamp")[rows] == self.timestamp[inside]
        times = np.count_nonzero(same & (base[rows] <= self.time_offset[inside]))
        return int(begins + ends + times) - int(np.count_nonzero(other_epochs(self.epoch, self.epoch_start, block)))


def other_epochs(epoch: np.ndarray, epoch_start: np.ndarray, block: HeaderBlock) -> np.ndarray:
    """Which batches have another leader epoch than the checkpoint; all of them if the checkpoint is empty.

    Batches of magic 0 and 1 have no epoch. A broker does not add a negative epoch to its checkpoint. DeleteRecords within the segment
    removes the epochs below the log start, so batches below the first entry are not compared.
    """
    found = block.column("partition_leader_epoch")
    rows = np.searchsorted(epoch_start, block.column("base_offset"), side="right") - 1
    if not len(epoch):
        return np.ones(len(block), dtype=bool)
    differs: np.ndarray = (rows >= 0) & (epoch[rows] != found) & (found >= 0) & (block.column("magic") == 2)
    return differs
