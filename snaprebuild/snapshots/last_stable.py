"""The last stable offset (LSO) of a leader: where the first transaction begins that has no marker below the high watermark.

Without such a transaction it is the high watermark.

Source: ``UnifiedLog.lastStableOffset`` and ``maybeIncrementFirstUnstableOffset``, ``ProducerStateManager.firstUnstableOffset``; 4.3.1.
A transaction whose marker is not replicated holds it like one that is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from formats.errors import FormatError
from formats.log.batch_headers import TailKind
from snaprebuild.errors import SnaprebuildError
from snaprebuild.findings import Finding, Severity
from snaprebuild.published import OffsetOrNone, Part
from snaprebuild.replay.segment_effect import NONE
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine.partition_replay import BoundaryState, source_replay
from snaprebuild.snapshots.engine.partition_task import ReplayTask, TaskOutcome
from snaprebuild.snapshots.engine.schedule import read_partitions
from snaprebuild.snapshots.engine.segment_reader import read_tasks
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import PartitionSource

__all__ = ["KnownOffset", "last_stable_offsets", "stable_ends"]


class KnownOffset(Part, frozen=True):
    """An offset and its source."""

    offset: OffsetOrNone
    """-1 if a broker has none either."""
    source: str
    """File or rule from which it was taken."""
    assumed: bool
    """No file contains it."""


def last_stable_offsets(
    logs: Iterable[tuple[PartitionSource, int, KnownOffset]], run: Run
) -> tuple[dict[str, KnownOffset], list[Finding]]:
    """The last stable offset of each partition, by path, and findings of damage; partitions that are damaged are left out.

    Args:
        logs: partitions whose segments on disk are replayed, with their log start offsets and high watermarks.
        run: its clock decides which snapshot at the first offset is trusted.
    """
    tasks = [_StateAtHighWatermark(source, log_start, high_watermark, run.clock) for source, log_start, high_watermark in logs]
    stable = {}
    findings = []
    for task in _with_states(tasks, run):
        damage = _damage(task)
        findings += damage
        if not damage:
            stable[task.path] = task.last_stable()
    return stable, findings


def stable_ends(high_watermarks: Iterable[tuple[PartitionSource, int]], run: Run) -> tuple[dict[str, int], list[Finding]]:
    """Below which offset each log is whole and stable, by path, and findings of damage and gaps.

    The offset is at most the last stable offset, and at most the end of what could be replayed.

    Args:
        high_watermarks: partitions whose segments on disk are replayed, with their high watermarks.
        run: its clock decides which snapshot at the first offset is trusted.
    """
    tasks = []
    for source, offset in high_watermarks:
        high_watermark = KnownOffset(offset, "", assumed=False)
        tasks.append(_StateAtHighWatermark(source, source.log_start_offset, high_watermark, run.clock))
    ends = {}
    findings = []
    for task in _with_states(tasks, run):
        end = task.stable_end()
        ends[task.path] = end
        damage = _damage(task)
        findings += damage
        if task.gap is not None and not damage:
            findings.append(Finding("log-gap", Severity.FINDING, task.path, task.gap, end))
    return ends, findings


def _with_states(tasks: Sequence[_StateAtHighWatermark], run: Run) -> list[_StateAtHighWatermark]:
    """Runs the tasks. If a broker deletes a segment meanwhile, its partition is read again."""
    sources = [task.source for task in tasks]
    return read_partitions(sources, lambda place, source: tasks[place].for_new_listing(source), lambda _, task: task, run)


def _damage(task: _StateAtHighWatermark) -> list[Finding]:
    """The findings that keep a partition from being replayed to its end."""
    return [finding for finding in task.findings if finding.severity >= Severity.REFUSED or finding.is_unread or finding.is_deleted]


class _StateAtHighWatermark(ReplayTask):
    """One partition, replayed from its first segment, with the state at its high watermark."""

    lost_above_damage = "what is above it is not known"

    def __init__(self, source: PartitionSource, log_start: int, high_watermark: KnownOffset, clock: Clock) -> None:
        reads = partial(read_tasks, source.directory, check_crc=True, cuts=(high_watermark.offset,))
        super().__init__(source, TaskOutcome(), reads, source_replay(source, clock))
        self.findings = self.outcome.findings
        self._log_start = log_start
        self._high_watermark = high_watermark
        self._clock = clock
        self._state: BoundaryState | None = None
        self._whole_end: int | None = None
        self._is_whole = True
        self._has_failed = False
        self.gap: str | None = None

    def for_new_listing(self, source: PartitionSource) -> _StateAtHighWatermark:
        """The task for another listing of the partition."""
        return _StateAtHighWatermark(source, max(self._log_start, source.log_start_offset), self._high_watermark, self._clock)

    def take_segment(self, index: int, summary: SegmentSummary) -> bool:
        wants_more = super().take_segment(index, summary)
        self._extend_whole_end(summary)
        return wants_more

    def _extend_whole_end(self, summary: SegmentSummary) -> None:
        """Moves the end of the batches without a gap or damage by one segment. Compaction leaves gaps by design."""
        begin = summary.base_offset if self._whole_end is None else self._whole_end
        may_have_gaps = not self.source.can_be_tiered or not self.source.log_dir.is_cleaner_known
        has_gap = summary.base_offset > begin or bool(summary.facts.missing_offsets)
        if not self._is_whole:
            return
        if (has_gap and not may_have_gaps) or summary.facts.disorder_offset is not None:
            self._is_whole = False
            self._whole_end = begin
            self.gap = (
                f"batches are missing between offset {begin} and {summary.facts.next_offset}: nothing above {begin} is trusted"
            )
            return
        if summary.facts.bad_crc_count:
            self._is_whole = False
            self._whole_end = max(begin, summary.facts.bad_crc[0][1])
            return
        self._whole_end = max(begin, summary.facts.next_offset)
        self._is_whole = summary.tail.kind is TailKind.CLEAN

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        self._has_failed = True
        super().fail(error)

    def boundary(self, state: BoundaryState) -> None:
        if state.offset <= self._high_watermark.offset:
            self._state = state

    def stable_end(self) -> int:
        """Below it the log is whole and stable, once everything was taken that can be read."""
        end = min(self.last_stable().offset, self._whole_end or 0)
        if not self._has_failed and self.replay.damage is None:
            return end
        # Transactions that began above the last state are not in it.
        return 0 if self._state is None else min(end, self._state.offset)

    def last_stable(self) -> KnownOffset:
        """The offset, once everything was taken."""
        segments = self.source.directory.segments
        high_watermark = self._high_watermark
        first, producer = self._first_open()
        # Only a snapshot there has the transactions that began below the first segment.
        begins_inside = bool(segments) and segments[0].base_offset > 0
        assumed = begins_inside and not self._is_complete()
        if first is None or first >= high_watermark.offset:
            source = "the high watermark: no open transaction begins below it"
            return KnownOffset(high_watermark.offset, source, assumed=assumed or high_watermark.assumed)
        source = f"the first offset of the transaction of producer {producer}, open at the high watermark"
        return KnownOffset(
            min(max(first, self._log_start), high_watermark.offset), source, assumed=assumed or high_watermark.assumed
        )

    def _is_complete(self) -> bool:
        """Whether the state has all producers, also those of the records below the first segment."""
        if self._state is not None:
            return self._state.is_complete
        base = self.replay.before_first_segment()
        return base is not None and base.is_complete

    def _first_open(self) -> tuple[int | None, int]:
        """Where the oldest transaction begins that is open at the high watermark, and whose it is."""
        if self._state is not None:
            effect = self._state.effect
        else:  # nothing on disk is below the high watermark
            base = self.replay.before_first_segment()
            if base is None:
                return None, NONE
            effect = base.prefix.total()
        firsts = effect.txn_first_offset
        rows = np.flatnonzero(firsts != NONE)
        if not len(rows):
            return None, NONE
        row = rows[np.argmin(firsts[rows])]
        return int(firsts[row]), int(effect.producer_id[row])
