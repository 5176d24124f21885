"""Judges the snapshot at the first offset of a log by the segments and the later snapshots (``replay.base_judge``).

Every caller that begins a replay with such a snapshot uses ``judge_first_snapshot``: one file has one verdict.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from formats.errors import FormatError
from formats.limits import INDEX_BYTES_MAX
from formats.partition.transaction_index import AbortedTransaction, read_transaction_index
from snaprebuild.errors import LimitReachedError, ReadFailedError, RefusedError
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.replay.base_judge import BaseJudge, LaterSnapshot, SegmentBoundary
from snaprebuild.replay.base_verdict import BaseVerdict
from snaprebuild.replay.classes import ReplayRecord
from snaprebuild.replay.difference import (
    Comparison,
    ComparisonStatus,
    DifferenceKind,
    EntryDifference,
    Knowledge,
    compare,
    consequence_of_change,
)
from snaprebuild.replay.first_events import NO_EVENTS, FirstEvents, joined_events
from snaprebuild.replay.segment_effect import NONE, RunningEffect, SegmentEffect, effect_of_entries, lookup
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS, Clock
from snaprebuild.snapshots.engine.snapshot_file import readable_snapshot
from snaprebuild.snapshots.engine.window_proof import Held, boundary_after
from snaprebuild.storage.partition_dir import PartitionDir

__all__ = [
    "BASE_CONTRADICTED",
    "FirstSnapshot",
    "contradiction",
    "judge_first_snapshot",
    "wrong_by_the_log",
]

BASE_CONTRADICTED = "base-contradicted"


class FirstSnapshot(msgspec.Struct, frozen=True):
    """The snapshot at the first offset, as a replay uses it.

    Attributes:
        verdict: on it; None if it cannot be read, or holds what no snapshot of its offset can hold.
        reason: why it is not used, or None.
    """

    verdict: BaseVerdict | None
    reason: str | None

    @property
    def usable(self) -> BaseVerdict | None:
        """The verdict if nothing contradicts it."""
        return None if self.reason is not None else self.verdict


def judge_first_snapshot(
    directory: PartitionDir, summaries: Held, clock: Clock, written_by_us: Collection[int] = ()
) -> FirstSnapshot:
    """The verdict on the snapshot at the first base offset.

    Args:
        directory: the listing; its first segment is among ``summaries``.
        summaries: summaries of its segments, with their first events.
        clock: entries that a load at its moment drops may be absent from a later snapshot.
        written_by_us: offsets of later snapshots that a receipt of this program names. They are no evidence: they may come from the one
            that is judged.
    """
    first = directory.segments[0].base_offset
    entries = readable_snapshot(directory, first)
    if entries is None:
        return FirstSnapshot(None, f"the snapshot at the first offset {first} is unreadable and adds nothing")
    evidence = _SegmentEvidence(directory, clock, effect_of_entries(entries), written_by_us)
    evidence.take(summaries)
    judge = BaseJudge(first, entries, clock.expiration_ms)
    events = joined_events(evidence.events)
    aborted = _aborted(directory, summaries, events, evidence.whole)
    verdict = judge.verdict(events, evidence.snapshots(), aborted, evidence.thrown_at, evidence.boundaries)
    if not verdict.is_refuted:
        return FirstSnapshot(verdict, None)
    text = verdict.refutations[0].text(first)
    return FirstSnapshot(verdict, f"the snapshot at the first offset {first} is contradicted: {text}: not used")


class _SegmentEvidence:
    """The summary of consecutive segments, up to the first one that is damaged or incomplete.

    Attributes:
        events: first events of each segment.
        whole: indices of the segments.
        boundaries: the ends of these segments, up to a batch at which Kafka throws.
        thrown_at: offset of a batch at which Kafka throws only if it starts from the first snapshot; None without one.
    """

    def __init__(self, directory: PartitionDir, clock: Clock, base: SegmentEffect, written_by_us: Collection[int]) -> None:
        self.events: list[FirstEvents] = []
        self.whole: list[int] = []
        self.boundaries: list[SegmentBoundary] = []
        self.thrown_at: int | None = None
        self._directory = directory
        self._clock = clock
        self._base = base
        self._written_by_us = written_by_us
        self._ends: list[tuple[int, RunningEffect, int]] = []
        self._waiting: tuple[int, RunningEffect, int] | None = None

    def take(self, summaries: Held) -> None:
        """Takes all segments.

        Only some callers read a segment in pieces, and all must come to one verdict: the pieces count together, or not at all.
        """
        self._take_whole(summaries)
        # The one at the log end may have been written much later than the last batch. So may one at an empty segment.
        self._end_waiting(self._clock.as_of_ms)

    def _take_whole(self, summaries: Held) -> None:
        record = ReplayRecord()
        plain = RunningEffect()
        based = RunningEffect(self._base)
        newest = -1
        segments = self._directory.segments
        for index in sorted(summaries):
            pieces = summaries[index]
            following = self._directory.base_offset_after(index)
            for piece in pieces:
                record.take(piece, is_last=following is None, following=following, path=segments[index].log.name)
            if any(piece.facts.batches for piece in pieces):
                self._end_waiting(_first_timestamp(pieces))
            if record.damage is not None or record.unsound_reasons:
                return
            for piece in pieces:
                plain = plain.then(piece.effect)
                based = based.then(piece.effect)
                newest = max(newest, piece.facts.max_timestamp)
                self.events.append(_events_of(piece))
            self.whole.append(index)
            if based.failure_offset != plain.failure_offset:
                self.thrown_at = based.failure_offset
                return
            if plain.failure_offset is not None:
                return
            if pieces[-1].cut_offset is not None:
                return  # the rest of the segment is not there
            offset, _ = boundary_after(segments, index, pieces[-1])
            if offset is not None:
                self.boundaries.append(SegmentBoundary(offset, newest))
            if offset is not None and offset > segments[0].base_offset and self._directory.snapshot_at(offset) is not None:
                self._end_waiting(newest)
                self._waiting = offset, plain, newest

    def _end_waiting(self, written_ms: int) -> None:
        """A snapshot at the end of a segment is written when the next one begins, perhaps after days without any batch."""
        if self._waiting is not None:
            offset, prefix, newest = self._waiting
            self._ends.append((offset, prefix, max(newest, written_ms)))
            self._waiting = None

    def snapshots(self) -> Iterator[LaterSnapshot]:
        """The later snapshots that are evidence, ascending; each is read when it is asked for."""
        for offset, prefix, newest in self._ends:
            entries = None if offset in self._written_by_us else readable_snapshot(self._directory, offset)
            if entries is None:
                continue
            total = prefix.total()
            if not self._contradicts_log(entries, offset, total, newest):
                yield LaterSnapshot(offset, entries, total, newest)

    def _contradicts_log(self, entries: np.ndarray, offset: int, total: SegmentEffect, written_ms: int) -> bool:
        first = self._directory.segments[0].base_offset
        knowledge = Knowledge(
            is_complete=False,
            unproven_reason=None,
            first_offset=first,
            log_start_offset=first,
            as_of_ms=written_ms,
            expiration_ms=min(self._clock.expiration_ms, DEFAULT_EXPIRATION_MS),
        )
        if compare(total, entries, offset, knowledge).proven_wrong:
            return True
        # An entry that had expired is no better evidence if it is wrong.
        ids = np.sort(entries["producer_id"].astype(np.int64))
        common = total.chosen(lookup(ids, total.producer_id)[1])
        return compare(common, entries, offset, replace(knowledge, as_of_ms=0)).proven_wrong


def _first_timestamp(pieces: Sequence[SegmentSummary]) -> int:
    """About the time of the first batch of a segment, ms; later rather than earlier."""
    newest = NONE
    for piece in pieces:
        events = piece.contents.first_events
        if events is not None and len(events):
            return max(newest, int(events.largest_timestamp[np.argmin(events.offset)]))
        newest = max(newest, piece.facts.max_timestamp)
    return newest


def _events_of(summary: SegmentSummary) -> FirstEvents:
    events = summary.contents.first_events
    assert events is not None or not summary.facts.batches, "the first events were not read"
    return NO_EVENTS if events is None else events


def _aborted(
    directory: PartitionDir, summaries: Held, events: FirstEvents, whole: Sequence[int]
) -> Iterator[tuple[str, AbortedTransaction]]:
    """Entries of the transaction indexes of the segments in which a first marker aborts; of those that can be read."""
    markers = np.sort(events.marker_offset[events.marker_is_abort])
    for index in sorted(set(whole)):
        segment = directory.segments[index]
        end = max(summary.facts.next_offset for summary in summaries[index])
        low, high = np.searchsorted(markers, (segment.base_offset, end))
        if low == high or not segment.transaction_index or segment.until_offset is not None:
            continue
        path = directory.transaction_index_path(segment.base_offset)
        try:
            data = directory.store.read_small(path, INDEX_BYTES_MAX)
            entries = [] if data is None else list(read_transaction_index(data, file=path))
        except LimitReachedError:
            raise  # an index that was not read might contradict the snapshot
        except (FormatError, ReadFailedError, RefusedError):
            continue
        for entry in entries:
            yield f"the transaction index of the segment at {segment.base_offset}", entry


def wrong_by_the_log(first: FirstSnapshot) -> Comparison | None:
    """The comparison of the first snapshot with the log, if the log alone contradicts it; None if it does not."""
    verdict = first.verdict
    if verdict is None:
        return None
    refutations = [each for each in verdict.refutations if each.rule.is_of_the_log]
    if not refutations:
        return None
    producers = verdict.entries["producer_id"].tolist()
    differences = []
    for each in refutations:
        if each.producer_id in producers:
            entry = verdict.entries[producers.index(each.producer_id)]
            consequence = consequence_of_change(each.field, entry, entry)
        else:
            consequence = "its open transaction is forgotten: undecided data is read by consumers and uploaded"
        kind = DifferenceKind.FIELD
        differences.append(
            EntryDifference(
                producer_id=each.producer_id,
                kind=kind,
                field=each.field,
                expected=each.other_value,
                found=each.base_value,
                is_certain=True,
                consequence=consequence,
            )
        )
    contradicted = pluralize(len({each.producer_id for each in refutations}), "entry", "entries")
    reason = f"the log contradicts {contradicted}: {refutations[0].text(verdict.offset)}"
    entries = len(verdict.entries)
    return Comparison(
        status=ComparisonStatus.STALE,
        proven_wrong=True,
        expected_entries=entries,
        found_entries=entries,
        difference_count=len(refutations),
        differences=tuple(differences),
        reason=reason,
        certain_count=len(refutations),
    )


def contradiction(directory: PartitionDir, first: FirstSnapshot) -> Finding | None:
    """The finding for a first snapshot that something contradicts."""
    verdict = first.verdict
    if verdict is None or not verdict.is_refuted:
        return None
    listed = directory.snapshot_at(verdict.offset)
    assert listed is not None
    refutation = verdict.refutations[0]
    path = directory.file_path(listed.name)
    more = f", and {verdict.refutation_count - 1} more contradictions" if verdict.refutation_count > 1 else ""
    either = "" if refutation.rule.is_of_the_log else "; either of the two may be wrong"
    message = f"the snapshot at the first offset is not used: {refutation.text(verdict.offset)}{either}{more}"
    return Finding(BASE_CONTRADICTED, Severity.FINDING, path, message, verdict.offset, refutation.rule.value)
