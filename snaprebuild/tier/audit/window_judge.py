"""Compares snapshots in remote storage with a replay of one window, without any evidence from the segments below it.

The window alone contradicts much, and proves nothing: a producer that is silent in it may have a transaction open. What other snapshots
show is in ``window_evidence``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from formats.errors import FormatError
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error
from snaprebuild.replay.classes import ReplayRecord, SnapshotClass
from snaprebuild.replay.difference import Comparison, ComparisonStatus, compare
from snaprebuild.replay.segment_effect import RunningEffect
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine.snapshot_file import read_snapshot_file
from snaprebuild.snapshots.engine.window_proof import boundary_after, prefixes_of
from snaprebuild.snapshots.verified_snapshot import VerifiedSnapshot
from snaprebuild.snapshots.verify import UNSOUND, compared_alone
from snaprebuild.storage.partition_dir import ListedFile
from snaprebuild.tier.audit.window import WindowContents, WindowSnapshot
from snaprebuild.tier.audit.window_evidence import WindowEvidence
from snaprebuild.tier.audit.window_outcome import WindowOutcome

__all__ = ["judge_window", "judge_without_replay"]

NOTHING = RunningEffect()


def judge_window(contents: WindowContents) -> WindowOutcome:
    """The verdicts on the snapshots of a window, and what is wrong with its segments."""
    outcome = WindowOutcome()
    judge = _WindowJudge(contents, outcome)
    judged, reason = judge.by_the_window()
    if not contents.window.is_whole:
        WindowEvidence(contents, outcome).settle(judged)
    judge.add_verdicts(judged, reason)
    return outcome


def judge_without_replay(contents: WindowContents, reason: str) -> WindowOutcome:
    """The verdicts on snapshots by their own content, because the replay failed for a reason."""
    outcome = WindowOutcome()
    _WindowJudge(contents, outcome).add_verdicts([], reason)
    return outcome


class _WindowJudge:
    """Judges one window, and collects the result."""

    def __init__(self, contents: WindowContents, outcome: WindowOutcome) -> None:
        self._contents = contents
        self._outcome = outcome
        self._window = contents.window
        self._directory = contents.directory

    def by_the_window(self) -> tuple[list[WindowSnapshot], str | None]:
        """Every snapshot that the replay reaches; and why it ended early, None if it did not."""
        record = ReplayRecord(absence="in no batch")
        judged = list[WindowSnapshot]()
        for index, summary, prefix in prefixes_of(self._contents.held):
            following = self._directory.segments[index + 1 : index + 2]
            record.take(
                summary,
                is_last=not following,
                following=following[0].base_offset if following else None,
                path=self._directory.file_path(self._directory.segments[index].log.name),
                known_end=self._directory.log_end_offset or 0,
            )
            if record.damage is not None or prefix.failure_offset is not None:
                self._outcome.resume_at = self._outcome.resume_at or self._directory.segments[index].base_offset + 1
                self._outcome.ended = self._damaged(record, prefix)
                return judged, self._outcome.ended
            offset, _ = boundary_after(self._directory.segments, index, summary)
            if offset is None:
                continue
            unproven = next(iter(record.evidence().unsound_reasons), None)
            self._find_unsound(offset, unproven)
            judged += self._judged_at(offset, summary, prefix, unproven)
        return judged, None

    def _find_unsound(self, offset: int, unproven: str | None) -> None:
        """Reports once from where on the log proves nothing, as ``verify`` does."""
        if unproven is not None and self._outcome.resume_at is None:
            self._outcome.resume_at = offset
        if unproven is not None and not self._outcome.is_unsound_reported:
            message = f"from here on the copies below prove nothing: {unproven}"
            self._outcome.findings.append(
                Finding(UNSOUND, Severity.FINDING, self._directory.path, message, offset, cause=FindingCause.UNSOUND_BOUNDARY)
            )

    def _damaged(self, record: ReplayRecord, prefix: RunningEffect) -> str:
        reason = f"no broker could go on at offset {prefix.failure_offset}"
        offset = prefix.failure_offset
        if record.damage is not None:
            reason = record.damage.reason
            offset = record.damage.offset
        message = f"{reason}: what is above it does not follow from what is below"
        self._outcome.findings.append(
            Finding(
                "damaged-segment",
                Severity.DAMAGED,
                self._directory.path,
                message,
                offset,
                is_unread=True,
                cause=FindingCause.BROKEN_BATCHES,
            )
        )
        return reason

    def _judged_at(
        self, offset: int, summary: SegmentSummary, prefix: RunningEffect, unproven: str | None
    ) -> Iterator[WindowSnapshot]:
        for listed in self._directory.snapshots_at(offset):
            try:
                entries = read_snapshot_file(self._directory, offset, listed)
            except ReadFailedError as error:
                self._outcome.findings.append(finding_of_error(error, self._directory.path))
                continue
            except FormatError as error:
                comparison = Comparison(
                    status=ComparisonStatus.CORRUPT,
                    proven_wrong=True,
                    expected_entries=0,
                    found_entries=0,
                    difference_count=0,
                    differences=(),
                    reason=str(error),
                )
                yield WindowSnapshot(offset, listed, NOTHING, unproven, None, comparison)
                continue
            if entries is None:
                continue
            if summary.cut_batch_offset is not None and unproven is None:
                reason = f"no broker writes a snapshot here: {offset} is inside the batch that begins at {summary.cut_batch_offset}"
                comparison = Comparison(
                    status=ComparisonStatus.CORRUPT,
                    proven_wrong=True,
                    expected_entries=0,
                    found_entries=len(entries),
                    difference_count=0,
                    differences=(),
                    reason=reason,
                )
            else:
                knowledge = self._contents.knowledge(unproven, is_complete=self._window.is_whole)
                comparison = compare(prefix.total(), entries, offset, knowledge)
            if self._window.is_whole or comparison.proven_wrong or offset < self._window.least_offset:
                yield WindowSnapshot(offset, listed, NOTHING, unproven, None, comparison)  # nothing more is asked of it
            else:
                yield WindowSnapshot(offset, listed, prefix, unproven, entries, comparison)

    def add_verdicts(self, judged: list[WindowSnapshot], reason: str | None) -> None:
        """Adds the verdicts; snapshots that the replay did not reach get one by their own content."""
        least = self._window.least_offset
        seen = {each.listed.name for each in judged}
        for each in judged:
            if each.offset >= least:
                is_exact = self._window.is_whole and each.unproven_reason is None
                snapshot_class = each.snapshot_class or (SnapshotClass.EXACT if is_exact else SnapshotClass.UNPROVEN)
                self._outcome.snapshots.append(VerifiedSnapshot(each.offset, each.listed.name, snapshot_class, each.comparison))
        for offset, listed in self._directory.snapshots:
            if offset >= least and listed.name not in seen:
                comparison = self._by_itself(offset, listed, reason or "the replay has no state at its end")
                if comparison is not None:
                    self._outcome.snapshots.append(VerifiedSnapshot(offset, listed.name, None, comparison))
        self._outcome.snapshots.sort(key=lambda each: each.offset)

    def _by_itself(self, offset: int, listed: ListedFile, reason: str) -> Comparison | None:
        with contextlib.suppress(ReadFailedError):
            return compared_alone(self._directory, offset, listed, reason)
        return None
