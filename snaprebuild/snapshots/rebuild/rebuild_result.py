"""The results of ``rebuild``, ``stage`` and ``install``: of a partition, and of the whole run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from snaprebuild.broker.status import SnapshotFaults, Status, snapshot_faults, status_of
from snaprebuild.errors import RefusedError, SnaprebuildError
from snaprebuild.findings import Finding, FindingCause, Severity, exit_code_of, unread_paths
from snaprebuild.replay.difference import ComparisonStatus
from snaprebuild.snapshots.destination.boundary_result import NOT_DONE, BoundaryAction, BoundaryResult, unfinished
from snaprebuild.snapshots.engine.partition_task import TaskOutcome
from snaprebuild.snapshots.plan.plan_model import BoundaryPlan, PartitionPlan, Plan, concerns_of_plan, topics_left_out
from snaprebuild.snapshots.receipts.receipt_lines import WriteEvent
from snaprebuild.snapshots.source.boundary_needs import BoundaryNeeds

__all__ = ["PartitionResult", "RebuildOutcome", "RebuildResult", "is_not_judged"]


class RebuildOutcome(TaskOutcome):
    """The result of one partition, without its plan.

    Attributes:
        boundaries: one result for each wanted boundary, ascending.
        replay_index: segment where replay began in the end, and ``replay_reason`` why.
        elapsed_seconds: from the first segment taken to the last file written; of a partition in chunks, of all its tasks together.
        later_producers: entries of ``ENTRY_DTYPE`` of the batches above the newest snapshot that were read, in the order of the log, as
            bytes.
        events: about files, of a task in another process that did not record them.
    """

    boundaries: list[BoundaryResult] = msgspec.field(default_factory=list)
    replay_index: int = 0
    replay_reason: str = ""
    elapsed_seconds: float = 0.0
    later_producers: bytes = b""
    events: list[WriteEvent] = msgspec.field(default_factory=list)

    def add(self, part: RebuildOutcome) -> None:
        """Adds the outcome of the next part of the partition."""
        TaskOutcome.add(self, part)
        self.boundaries += part.boundaries
        self.elapsed_seconds += part.elapsed_seconds
        self.later_producers += part.later_producers
        self.events += part.events

    def sort(self) -> None:
        """Orders boundaries by offset, and findings by offset and code; findings about the whole partition come first."""
        self.boundaries.sort(key=lambda boundary: boundary.offset)
        self.findings.sort(key=lambda finding: (-1 if finding.offset is None else finding.offset, finding.code))


class PartitionResult(msgspec.Struct):
    """One partition of a plan, with its result.

    Attributes:
        plan: of the partition.
        outcome: of the work.
        touched_segment: of ``install``: base offset of the first segment that was touched since it was staged; None if there is none.
        replayed_not_linked: of ``install``: offsets of the snapshots that are replayed for it.
    """

    plan: PartitionPlan
    outcome: RebuildOutcome = msgspec.field(default_factory=RebuildOutcome)
    touched_segment: int | None = None
    replayed_not_linked: tuple[int, ...] = ()

    @property
    def path(self) -> str:
        """Path of the partition directory."""
        return self.plan.path

    @property
    def boundaries(self) -> list[BoundaryResult]:
        """One result for each wanted boundary, ascending."""
        return self.outcome.boundaries

    @property
    def findings(self) -> list[Finding]:
        """About this partition."""
        return self.outcome.findings

    @property
    def needs(self) -> BoundaryNeeds:
        """Boundaries without a snapshot before anything was written, with those whose file vanished after the plan was made."""
        needs = self.plan.needs
        plan = self.plan
        if plan.target != plan.path:
            return needs
        vanished = {each.offset for each in self.boundaries if each.action == BoundaryAction.WRITTEN and each.comparison is None}
        return replace(needs, missing_offsets=tuple(sorted({*needs.missing_offsets, *vanished})))

    def add_finding(
        self,
        code: str,
        severity: Severity,
        message: str,
        offset: int | None = None,
        reason: str | None = None,
        *,
        cause: FindingCause | None = None,
    ) -> None:
        """Adds a finding about the partition; several writers may do so at once."""
        self.findings.append(Finding(code, severity, self.path, message, offset, reason, cause=cause))

    def give_up(self, boundary: BoundaryPlan, reason: str, action: BoundaryAction = BoundaryAction.REFUSED) -> None:
        """Adds a boundary that gets no snapshot: ``refused``, ``failed`` or ``skipped``."""
        self.boundaries.append(unfinished(boundary, action, reason))

    def give_up_after(self, error: SnaprebuildError, boundary: BoundaryPlan) -> None:
        """Adds a boundary that gets no snapshot because of an error."""
        action = BoundaryAction.REFUSED if isinstance(error, RefusedError) else BoundaryAction.FAILED
        self.give_up(boundary, str(error), action)


class RebuildResult(msgspec.Struct, frozen=True):
    """The result of a plan.

    Attributes:
        plan: that was carried out.
        partitions: one result for each.
        dry_run: nothing was written.
        receipt: path of the file that lists what was written; None if nothing was, or without a receipt.
        receipt_findings: errors when the receipt was closed.
        staged_plan: path of the plan for ``install``; None where nothing was staged.
        not_staged: snapshots that are missing in partitions of which nothing was staged; of ``install`` alone.
        phase_seconds: of the phases of ``install``, by their names.
    """

    plan: Plan
    partitions: tuple[PartitionResult, ...]
    dry_run: bool
    receipt: str | None = None
    receipt_findings: tuple[Finding, ...] = ()
    staged_plan: str | None = None
    not_staged: int = 0
    phase_seconds: dict[str, float] = msgspec.field(default_factory=dict)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings of the plan, of every partition, and of the receipt. One cause of many, such as a held lock, is one finding."""
        of_partitions = [finding for partition in self.partitions for finding in partition.findings]
        # A file that the plan could not read, and the run neither, is one failure.
        failed = {(finding.code, finding.path, finding.offset) for finding in of_partitions if finding.severity is Severity.STORAGE}
        of_plan = (finding for finding in self.plan.findings if (finding.code, finding.path, finding.offset) not in failed)
        return tuple(dict.fromkeys((*of_plan, *of_partitions, *self.receipt_findings)))

    @property
    def exit_code(self) -> int:
        """Exit code of the worst finding."""
        return exit_code_of(self.findings)

    @property
    def set_aside(self) -> int:
        """How many of the written snapshots replace a wrong one, which is set aside."""
        return sum(_replaces(boundary) for partition in self.partitions for boundary in partition.boundaries)

    @property
    def not_judged(self) -> int:
        """How many existing snapshots the replay can neither prove right nor wrong. They are left as they are."""
        if not self.plan.request.destination.writes_into_log_dirs:
            return 0
        return sum(is_not_judged(boundary) for partition in self.partitions for boundary in partition.boundaries)

    @property
    def status(self) -> Status:
        """The one answer after the run, or for a dry run as it would be now: without what waits, which no run looks at."""
        plans = [partition.plan for partition in self.partitions]
        faults = self.faults()
        return status_of(
            concerns_of_plan(self.plan, plans),
            wrong=len(faults.wrong),
            suspect=len(faults.suspect),
            missing=self.not_staged + sum(map(_missing_now, self.partitions)),
            waiting=0,
            unread=len(unread_paths(self.findings)),
            topics_without_id=topics_left_out(self.plan, plans),
        )

    def faults(self) -> SnapshotFaults:
        """The snapshots in the log directories that are wrong or suspect after the run, or now where nothing was written."""
        wrong = set[tuple[str, int]]()
        replaced = set[tuple[str, int]]()
        settled = set[tuple[str, int]]()
        for partition in self.partitions:
            for boundary in partition.boundaries:
                at = partition.path, boundary.offset
                if _replaces(boundary):
                    replaced.add(at)
                elif boundary.comparison is not None and boundary.comparison.proven_wrong:
                    wrong.add(at)
                elif boundary.comparison is not None and boundary.comparison.status is not ComparisonStatus.UNVERIFIABLE:
                    settled.add(at)
        return snapshot_faults(self.findings, wrong=wrong, replaced=replaced, settled=settled)

    @property
    def differences_not_listed(self) -> int:
        """Differing entries that are counted and not listed."""
        comparisons = (boundary.comparison for partition in self.partitions for boundary in partition.boundaries)
        return sum(each.difference_count - len(each.differences) for each in comparisons if each is not None)

    @property
    def totals(self) -> dict[str, int]:
        """Boundaries by action."""
        return dict(Counter(boundary.action.value for partition in self.partitions for boundary in partition.boundaries))

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each boundary that was wanted, by partition and offset."""
        for partition in self.partitions:
            for boundary in partition.boundaries:
                yield {
                    "path": partition.path,
                    "topic_partition": partition.plan.source.directory.topic_partition,
                    "offset": boundary.offset,
                    "is_log_end": boundary.is_log_end,
                    "action": boundary.action.value,
                    "class": None if boundary.snapshot_class is None else boundary.snapshot_class.value,
                    "reasons": list(boundary.reasons),
                    "entries": boundary.entries,
                    "read_bytes": partition.outcome.read_bytes,
                    "elapsed_seconds": round(partition.outcome.elapsed_seconds, 4),
                }


def _replaces(boundary: BoundaryResult) -> bool:
    """Whether the snapshot takes, or would take, the place of a wrong one."""
    return boundary.comparison is not None and boundary.action in (BoundaryAction.WRITTEN, BoundaryAction.WOULD_WRITE)


def is_not_judged(boundary: BoundaryResult) -> bool:
    """Whether an existing snapshot was compared with a replay that proves nothing about it."""
    comparison = boundary.comparison
    if comparison is None or comparison.proven_wrong:
        return False
    snapshot_class = boundary.snapshot_class
    is_unproven = snapshot_class is not None and not snapshot_class.is_allowed_in_place
    return is_unproven or comparison.status is ComparisonStatus.UNVERIFIABLE


def _missing_now(partition: PartitionResult) -> int:
    """Boundaries that need a snapshot in the log directory, and have none after the run."""
    missing = set(partition.needs.missing_offsets)
    if partition.plan.target == partition.path:
        for boundary in partition.boundaries:
            if boundary.action == BoundaryAction.WRITTEN:
                missing.discard(boundary.offset)
            elif boundary.comparison is None and (boundary.action in NOT_DONE or boundary.action == BoundaryAction.WOULD_WRITE):
                missing.add(boundary.offset)
    return len(missing)
