"""The last stable offset of a leader: where the first transaction begins that has no marker below the high watermark, else that mark.

Source: ``UnifiedLog.lastStableOffset`` and ``maybeIncrementFirstUnstableOffset``, ``ProducerStateManager.firstUnstableOffset``; 4.3.1.
A transaction whose marker is not replicated holds it like one that is open.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from snaprebuild.operations.evidence import Clock
from snaprebuild.operations.findings import Finding, Severity
from snaprebuild.operations.partition_view import Known, PartitionView
from snaprebuild.operations.partition_work import PartitionWork, run_partitions
from snaprebuild.operations.replay_partition import BoundaryState, PartitionReplay, ReplayFrom
from snaprebuild.operations.schedule import ReadTask
from snaprebuild.operations.segment_tasks import read_tasks
from snaprebuild.replay.segment_effect import NONE
from snaprebuild.replay.segment_summary import SegmentSummary

__all__ = ["last_stable_offsets"]


def last_stable_offsets(
    views: Iterable[tuple[PartitionView, Known]], clock: Clock, findings: list[Finding], jobs: int | None
) -> dict[str, Known]:
    """The last stable offset of each partition, by path.

    Args:
        views: partitions whose segments on disk are replayed, with their high watermarks.
        clock: for which snapshot at the first offset is trusted.
        findings: gets what is damaged; such partitions are left out.
        jobs: worker processes, None for as many as processors.
    """
    works = [_StateAtMark(view, mark, clock) for view, mark in views]
    run_partitions(works, jobs)
    known = {}
    for work in works:
        bad = [finding for finding in work.findings if finding.severity >= Severity.REFUSED]
        findings += bad
        if not bad:
            known[work.view.directory.path] = work.last_stable()
    return known


class _StateAtMark(PartitionWork):
    """One partition, replayed from its first segment, with the state at its high watermark."""

    def __init__(self, view: PartitionView, mark: Known, clock: Clock) -> None:
        self.findings: list[Finding] = []
        super().__init__(view.source, self.findings, None)
        self.view = view
        self._mark = mark
        self._replay = PartitionReplay(view.directory, ReplayFrom.AUTO, clock, 0, len(view.directory.segments), 0)
        self._state: BoundaryState | None = None

    def all_tasks(self) -> list[ReadTask]:
        return read_tasks(self.view.directory, self._replay.begin(), check_crc=True, cuts=(self._mark.value,))

    def take_segment(self, index: int, summary: SegmentSummary) -> bool:
        for state in self._replay.take(index, summary):
            self._take_state(state)
        return self._replay.damage is None

    def finish(self) -> None:
        for state in self._replay.finish():
            self._take_state(state)
        damage = self._replay.damage
        if damage is not None:
            message = f"{damage.reason}: what lies above it is not told"
            self.findings.append(Finding("damaged-segment", Severity.DAMAGED, self.view.directory.path, message, damage.offset))

    def _take_state(self, state: BoundaryState) -> None:
        if state.offset <= self._mark.value:
            self._state = state

    def last_stable(self) -> Known:
        """The offset, once everything was taken."""
        segments, mark = self.view.directory.segments, self._mark
        first, producer = self._first_open()
        # Of transactions that began below the first segment only a snapshot there tells.
        begins_inside = bool(segments) and segments[0].base_offset > 0
        is_assumed = begins_inside and (self._replay.trusted_base is None)
        if first is None or first >= mark.value:
            origin = "the high watermark: no open transaction begins below it"
            return Known(mark.value, origin, is_assumed or mark.is_assumed)
        origin = f"the first offset of the transaction of producer {producer}, open at the high watermark"
        return Known(min(max(first, self.view.log_start.value), mark.value), origin, is_assumed or mark.is_assumed)

    def _first_open(self) -> tuple[int | None, int]:
        """Where the oldest transaction begins that is open at the mark, and whose it is."""
        if self._state is not None:
            effect = self._state.effect
            firsts, producers = effect.txn_first_offset, effect.producer_id
        else:  # nothing on disk lies below the mark
            entries = self._replay.trusted_base
            if entries is None:
                return None, NONE
            firsts, producers = entries["current_txn_first_offset"], entries["producer_id"]
        rows = np.flatnonzero(firsts != NONE)
        if not len(rows):
            return None, NONE
        row = rows[np.argmin(firsts[rows])]
        return int(firsts[row]), int(producers[row])
