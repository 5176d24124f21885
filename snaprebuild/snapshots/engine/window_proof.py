"""Proofs by surviving snapshots about data that is not replayed: deleted before the first segment, or below a window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from formats.log.batch_headers import HeaderReader
from formats.log.record_batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from formats.partition.producer_snapshot import HEADER_BYTES
from snaprebuild.replay.classes import Judgement, ReplayEvidence, ReplayRecord, SnapshotClass
from snaprebuild.replay.difference import Knowledge, compare
from snaprebuild.replay.segment_effect import IDENTITY, RunningEffect, SegmentEffect, effect_of_entries
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.window import (
    Clock,
    WindowState,
    expired_mask,
    open_below_fault,
    settle,
    shows_transactions,
    witness_fault,
)
from snaprebuild.snapshots.engine.snapshot_file import readable_snapshot
from snaprebuild.storage.partition_dir import PartitionDir, SegmentFiles
from snaprebuild.storage.thread_pool import local_map

__all__ = [
    "LOOKED_BELOW",
    "NOT_LOOKED_BELOW",
    "NO_TRANSACTIONS_BELOW",
    "NO_TRANSACTIONS_IN_WINDOW",
    "Held",
    "WindowProof",
    "begins_of_segments_show_transactions",
    "boundary_after",
    "holds_entry_below",
    "in_order",
    "prefixes_of",
    "prove_window",
]

LOOKED_BELOW = "the headers below the window show the same open transactions as that snapshot"

NO_TRANSACTIONS_BELOW = (
    "assumed: no batch below the window is transactional; none is in the window, in that snapshot, "
    "or in the first 256 KiB of a segment below"
)

NO_TRANSACTIONS_IN_WINDOW = (
    "assumed: no batch below the window is transactional; none is in the window, and that snapshot names no transaction"
)

NOT_LOOKED_BELOW = (
    "the topic has transactions, and a broker that once started without its state would have left the same snapshots: "
    "--replay-from auto looks at the headers below the window"
)

GAPS_NAMED_MAX = 10
"""Gaps that a judgement names."""


def boundary_after(segments: tuple[SegmentFiles, ...], index: int, summary: SegmentSummary) -> tuple[int | None, bool]:
    """The boundary after a segment, and whether it is the log end by its name and size; after a piece the cut.

    Returns:
        The base offset of the next segment, or the log end. None where that is no boundary of its own: the base of a last segment without
        batches is the boundary after the one before it, and 0 is none.
    """
    if summary.cut_offset is not None:
        return summary.cut_offset, False
    if index + 1 < len(segments):
        following = segments[index + 1]
        return following.base_offset, index + 2 == len(segments) and following.size_bytes == 0
    least = segments[index].base_offset + 1 if index else 1
    return (summary.facts.next_offset if summary.facts.next_offset >= least else None), True


Held = Mapping[int, Sequence[SegmentSummary]]
"""Summaries of consecutive segments, or of the pieces of each, by index."""


def in_order(summaries: Held) -> Iterator[tuple[int, SegmentSummary]]:
    """Segment index and summary of all segments, in order."""
    for index in sorted(summaries):
        for summary in summaries[index]:
            yield index, summary


def prefixes_of(summaries: Held) -> Iterator[tuple[int, SegmentSummary, RunningEffect]]:
    """Segment index and summary of all segments in order, each with the effect of all segments up to its end."""
    prefix = RunningEffect()
    for index, summary in in_order(summaries):
        prefix = prefix.then(summary.effect)
        yield index, summary, prefix


def holds_entry_below(entries: np.ndarray, offset: int) -> bool:
    """Whether a snapshot (entries of ``ENTRY_DTYPE``) knows a batch or an open transaction from below an offset."""
    offsets = (entries["last_offset"], entries["current_txn_first_offset"])
    return any(bool(((each >= 0) & (each < offset)).any()) for each in offsets)


# ---------------------------------------------------------------------------------------------------------------- the window


class WindowProof(msgspec.Struct, frozen=True):
    """The proof that a snapshot after the window gives.

    Attributes:
        total: effect of everything from the window to its end.
        witness: the snapshot at that end, as an effect; the identity where it proves nothing.
        fault: why it proves nothing, or None.
    """

    total: SegmentEffect
    witness: SegmentEffect
    fault: str | None

    def shows_transactions(self, directory: PartitionDir, start_index: int) -> bool:
        """Whether batches below segment ``start_index`` may be transactional: the window, its witness or a transaction index says so."""
        is_indexed = any(segment.transaction_index for segment in directory.segments[:start_index])
        return is_indexed or shows_transactions(self.total) or shows_transactions(self.witness)

    def open_below(self, directory: PartitionDir, below: Held) -> str | None:
        """The contradiction between the segments below the window and the witness, or None (``replay.window.open_below_fault``)."""
        *_, (last, _, prefix) = prefixes_of(below)
        bases = directory.base_offsets
        effect = prefix.total()
        window_offset = bases[last + 1]
        fault = open_below_fault(effect, self.total, self.witness, window_offset=window_offset, first_offset=bases[0])
        return _damage_in(directory, below) or fault

    def gap(self, directory: PartitionDir, summaries: Held, first_wanted: int, clock: Clock) -> str | None:
        """The first thing that is not settled at a boundary from ``first_wanted`` on, or None."""
        for index, summary, prefix in prefixes_of(summaries):
            offset, _ = boundary_after(directory.segments, index, summary)
            if offset is None or offset < first_wanted:
                continue
            settled = self.settled(prefix, clock)
            if settled.gap_count:
                gap = settled.gaps[0]
                return f"producer {gap.producer_id}: {gap.reason} ({gap.name})"
        return None

    def settled(self, prefix: RunningEffect, clock: Clock) -> WindowState:
        """The state after ``prefix``, which begins with the window."""
        return settle(prefix.total(), self.total, self.witness, as_of_ms=clock.as_of_ms, expiration_ms=clock.expiration_ms)

    def judge(self, settled: WindowState, judged: Judgement, below: str, evidence: ReplayEvidence, clock: Clock) -> Judgement:
        """The judgement of a state.

        Args:
            settled: the state.
            judged: what it would be if the log began with the window.
            below: the sentence about what was looked at below the window.
            evidence: of the replay.
            clock: for expiry.
        """
        if any(gap.name not in ("G4", "G5") for gap in settled.gaps):
            klass = SnapshotClass.UNSOUND
        elif self.fault is not None or settled.gaps:
            klass = SnapshotClass.UNPROVEN
        else:
            has_expired = expired_mask(settled.entries, clock.as_of_ms, clock.expiration_ms).any()
            klass = SnapshotClass.SUPERSET_SAFE if has_expired else SnapshotClass.LOAD_EQUIVALENT
        reasons = [] if self.fault is None else [f"nothing proves what is below the window: {self.fault}"]
        if klass.is_allowed_in_place:
            reasons += ["the snapshot after the window confirms the replay, and no gap is left below it", below]
        reasons += [f"producer {gap.producer_id}: {gap.reason} ({gap.name})" for gap in settled.gaps[:GAPS_NAMED_MAX]]
        if settled.gap_count > GAPS_NAMED_MAX:
            reasons.append(f"and {settled.gap_count - GAPS_NAMED_MAX} more")
        if not judged.snapshot_class.is_allowed_in_place:
            if SnapshotClass.UNSOUND in (klass, judged.snapshot_class):
                klass = SnapshotClass.UNSOUND
            else:
                klass = SnapshotClass.UNPROVEN
            reasons = [*judged.reasons, *(reasons if self.fault is not None or settled.gaps else ())]
        else:
            reasons += evidence.notes
        return Judgement(klass, tuple(reasons))


def prove_window(directory: PartitionDir, summaries: Held, witness_offset: int | None, clock: Clock) -> WindowProof:
    """Compares a window with the snapshot after it and the ones inside it.

    Args:
        directory: the listing.
        summaries: summaries of consecutive segments, the window.
        witness_offset: of the snapshot that ends the window, or None where there is none.
        clock: for expiry.
    """
    prefix = RunningEffect()
    for _, summary in in_order(summaries):
        prefix = prefix.then(summary.effect)
    total = prefix.total()
    witness = IDENTITY
    fault = _damage_in(directory, summaries)
    if fault is None:
        witness, fault = _witness_of(directory, summaries, total, witness_offset, clock)
    if fault is None:
        fault = _contradiction_inside(directory, summaries, clock)
    return WindowProof(total, IDENTITY if fault is not None else witness, fault)


def _damage_in(directory: PartitionDir, summaries: Held) -> str | None:
    record = ReplayRecord()
    segments = directory.segments
    for index, summary in in_order(summaries):
        following = directory.base_offset_after(index)
        record.take(summary, is_last=following is None, following=following, path=segments[index].log.name)
    if record.damage is not None:
        return record.damage.reason
    return record.unsound_reasons[0] if record.unsound_reasons else None


def _witness_of(
    directory: PartitionDir, summaries: Held, total: SegmentEffect, offset: int | None, clock: Clock
) -> tuple[SegmentEffect, str | None]:
    if not summaries:
        return IDENTITY, "nothing is inside the window"
    entries = None if offset is None else readable_snapshot(directory, offset)
    if offset is None or entries is None:
        return IDENTITY, "no readable snapshot after the window"
    last = max(summaries)
    end, _ = boundary_after(directory.segments, last, summaries[last][-1])
    if end != offset:
        return IDENTITY, f"the snapshot at {offset} is above the end of the replay, {end}"
    empty = next((at for at, file in directory.snapshots if at < offset and file.identity.size_bytes <= HEADER_BYTES), None)
    if empty is not None:
        return (
            IDENTITY,
            f"the snapshot at {empty} is empty: the one after the window may come from a broker that had lost its state",
        )
    witness = effect_of_entries(entries)
    fault = witness_fault(
        total,
        witness,
        window_offset=directory.segments[min(summaries)].base_offset,
        first_offset=directory.segments[0].base_offset,
        as_of_ms=clock.as_of_ms,
        expiration_ms=clock.expiration_ms,
    )
    return witness, fault


def _contradiction_inside(directory: PartitionDir, summaries: Held, clock: Clock) -> str | None:
    """A wrong snapshot inside the window: what the same broker wrote later may come from it."""
    window_offset = directory.segments[min(summaries)].base_offset
    for index, summary, prefix in prefixes_of(summaries):
        offset, _ = boundary_after(directory.segments, index, summary)
        if offset is not None and (fault := _contradiction_at(directory, offset, prefix, window_offset, clock)) is not None:
            return fault
    return None


def _contradiction_at(directory: PartitionDir, offset: int, prefix: RunningEffect, window_offset: int, clock: Clock) -> str | None:
    """Why the snapshot at a boundary of the window is wrong; None if it is not, or there is none.

    Args:
        directory: the listing.
        offset: of the boundary.
        prefix: everything from the window to it.
        window_offset: base offset of the first segment of the window.
        clock: for expiry.
    """
    entries = None if directory.snapshot_at(offset) is None else readable_snapshot(directory, offset)
    if entries is None:
        return None  # one that does not parse is deleted by a broker, which goes back to an older one: nothing comes from it
    knowledge = Knowledge(
        is_complete=False,
        unproven_reason=None,
        first_offset=window_offset,
        log_start_offset=window_offset,
        as_of_ms=clock.as_of_ms,
        expiration_ms=clock.expiration_ms,
    )
    comparison = compare(prefix.total(), entries, offset, knowledge)
    if not comparison.proven_wrong:
        return None
    return f"the snapshot at {offset} is wrong ({comparison.reason}), and the one after the window may come from it"


SAMPLE_BYTES = 256 << 10
"""Read at the begin of each segment below a window, where nothing shows that a topic has transactions."""


def begins_of_segments_show_transactions(directory: PartitionDir, stop_index: int) -> bool:
    """Whether a batch at the begin of one of the first segments is transactional, or a marker.

    Raises:
        ReadFailedError: one cannot be read.
        RefusedError: one has changed.
    """

    def shows(segment: SegmentFiles) -> bool:
        with directory.open_segment(segment) as source:
            source.will_stop_at(min(SAMPLE_BYTES, source.size_bytes))
            reader = HeaderReader(source, columns=("attributes",), read_markers=False, block_bytes=SAMPLE_BYTES)
            block = next(iter(reader), None)
        kinds = ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL
        return block is not None and bool((block.column("attributes") & kinds != 0).any())

    return any(local_map([directory.store])(shows, directory.segments[:stop_index]))
