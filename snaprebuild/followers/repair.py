"""Gives replicas that lost their producer state the right one: at their first offset, and in every snapshot above it.

A broker loads the newest snapshot, so that the first one alone would change nothing. The writing is that of ``rebuild`` in place: under the
broker's lock, wrong files set aside when asked, each file announced in a receipt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from snaprebuild.broker.status import Status
from snaprebuild.cluster.source_check.plan_gate import judge_plans, judge_start
from snaprebuild.errors import RefusedError
from snaprebuild.findings import Finding, FindingCause, Severity
from snaprebuild.followers.check import CheckedReplica, ReplicaCheck, initial_state
from snaprebuild.snapshots.destination.boundary_result import BoundaryAction
from snaprebuild.snapshots.destination.placement_rules import reason_against_writing_in_place, reason_for_distrust
from snaprebuild.snapshots.engine.partition_replay import ReplayFrom
from snaprebuild.snapshots.engine.partition_task import Progress
from snaprebuild.snapshots.plan.plan_model import BoundaryPlan, PartitionPlan, Plan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.planner import make_plan
from snaprebuild.snapshots.plan.start_gate import fate_against_writing, unsafe_start_finding
from snaprebuild.snapshots.rebuild.rebuild_result import PartitionResult, RebuildResult
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.receipts.receipt import Receipt
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import PartitionSource, Source, live_broker_notes, open_source

__all__ = ["ReplicaRepair", "refuse_live_broker", "repair_plan", "repair_replicas"]


RIGHT = frozenset((BoundaryAction.WRITTEN, BoundaryAction.EQUAL, BoundaryAction.WOULD_WRITE))
"""Actions after which a boundary has the right snapshot, or would have it."""


@dataclass(frozen=True)
class ReplicaRepair:
    """The result of a repair.

    Attributes:
        check: of the replicas.
        result: what was written; None where there was nothing to do.
        refused: findings of replicas that cannot be repaired.
    """

    check: ReplicaCheck
    result: RebuildResult | None
    refused: tuple[Finding, ...] = ()

    def of(self, replica: CheckedReplica) -> PartitionResult | None:
        """The snapshots written into a replica; None if there was nothing to write."""
        return self._by_path.get(replica.source.directory.path)

    @cached_property
    def _by_path(self) -> dict[str, PartitionResult]:
        return {} if self.result is None else {each.plan.path: each for each in self.result.partitions}

    def is_repaired(self, replica: CheckedReplica) -> bool:
        """Whether every snapshot of it is right now, or would be."""
        result = self.of(replica)
        return result is not None and all(each.action in RIGHT for each in result.boundaries)

    def status(self, findings: Sequence[Finding]) -> Status:
        """The counts after the repair, or as they would be.

        Args:
            findings: of the command.
        """
        return self.check.status_of([each for each in self.check.replicas if not self.is_repaired(each)], findings)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the check that no snapshot has settled, and those of the repair."""
        earlier = [*self.check.source_findings]
        for replica in self.check.replicas:
            earlier += replica.remote_findings
            if not self.is_repaired(replica):
                earlier += replica.findings
        earlier += self.refused
        if self.result is None:
            return tuple(earlier)
        reported = (*self.check.source_findings, *self.refused)
        return (*earlier, *(finding for finding in self.result.findings if finding not in reported))


def refuse_live_broker(source: Source) -> None:
    """Refuses to repair next to a broker, before remote storage is read, which may be much. The lock at the writing keeps brokers out.

    Raises:
        RefusedError: a broker, or another run, holds a log directory.
    """
    for note in live_broker_notes(source):
        raise RefusedError("a live broker, or another run, holds this log directory: stop the broker first", path=note.path)


def repair_plan(check: ReplicaCheck, *, set_aside: bool) -> tuple[Plan | None, tuple[Finding, ...]]:
    """Plans what is written, and finds which replicas cannot be repaired.

    Args:
        check: of the replicas.
        set_aside: replace snapshots that are proven wrong.
    """
    refused: list[Finding] = []
    wrong: dict[str, CheckedReplica] = {}
    for replica in check.replicas:
        reason = _reason_against_repair(replica) if replica.is_wrong else None
        if reason is not None:
            refused.append(_not_repaired(replica, reason))
        elif replica.is_wrong:
            wrong[replica.source.directory.path] = replica
    if not wrong:
        return None, tuple(refused)
    request = RebuildRequest(
        paths=tuple(wrong),
        boundaries="all",
        replay_from=ReplayFrom.LOG_START.value,
        set_aside=set_aside,
        as_of_ms=check.clock.as_of_ms,
        expiration_ms=check.clock.expiration_ms,
    )
    plan = make_plan(request, judge_plans, judges_all=True)  # of one that lacks only its first snapshot nothing is planned
    plans = {each.source.directory.path: each for each in plan.partitions}
    # The plan may write nothing into a replica: its boundaries are added here.
    fates = judge_start(open_source(list(wrong))).fates
    partitions = []
    for path, replica in wrong.items():
        planned = plans.get(path)
        if planned is None or not _is_unchanged(replica.source, planned.source):
            reason = "segments, snapshots or checkpoints changed since it was checked: stop the broker, and repair again"
            refused.append(_not_repaired(replica, reason))
        elif planned.verdict is None:
            reason = f"it cannot be judged whether it may be written to: {planned.fault}"
            refused.append(_not_repaired(replica, reason))
        elif (refusal := planned.verdict.in_place_refusal(path)) is not None:
            refused.append(refusal)
        elif (untrusted := reason_for_distrust(planned, replica.first_offset)) is not None:
            reason = f"no snapshot is written at {replica.first_offset}: {untrusted.text}"
            refused.append(_not_repaired(replica, reason))
        elif (fate := fate_against_writing(planned.source, fates)) is not None:
            refused.append(unsafe_start_finding(path, fate, Severity.REFUSED))
        else:
            partitions.append(_with_initial_state(planned, replica))
    if not partitions:
        return None, tuple(refused)
    # The check has judged every snapshot by the copies: what only looks suspect is no news.
    findings = tuple(each for each in plan.findings if each.cause is not FindingCause.SUSPECT_SNAPSHOT)
    return replace(plan, partitions=tuple(partitions), findings=findings), tuple(refused)


def _not_repaired(replica: CheckedReplica, reason: str) -> Finding:
    path = replica.source.directory.path
    return Finding("follower-not-repaired", Severity.REFUSED, path, reason, replica.first_offset)


def repair_replicas(
    check: ReplicaCheck,
    plan: Plan | None,
    refused: tuple[Finding, ...],
    run: Run,
    *,
    dry_run: bool = False,
    receipt: Receipt | None = None,
    progress: Progress | None = None,
) -> ReplicaRepair:
    """Writes the snapshots of a plan.

    Args:
        check: of the replicas.
        plan: from ``repair_plan``, or None if it has nothing to write.
        refused: findings of ``repair_plan``.
        run: its jobs.
        dry_run: replay and judge, write nothing.
        receipt: gets what is written; None leaves none.
        progress: called for every segment.

    Raises:
        RefusedError, StorageError: as ``rebuild``.
    """
    if plan is None:
        return ReplicaRepair(check, None, refused)
    return ReplicaRepair(check, rebuild(plan, run, dry_run=dry_run, receipt=receipt, progress=progress), refused)


def _is_unchanged(checked: PartitionSource, planned: PartitionSource) -> bool:
    """Whether the files are those of the check: the state at the first offset holds for no others. ``rebuild`` checks once more."""
    before = checked.directory
    after = planned.directory
    return (before.segments, before.snapshots) == (after.segments, after.snapshots) and checked.log_dir == planned.log_dir


def _reason_against_repair(replica: CheckedReplica) -> str | None:
    remote = replica.remote
    assert remote is not None
    if not replica.is_repairable:
        return f"what is right at {remote.offset} is {remote.judgement.snapshot_class.value}: {'; '.join(remote.judgement.reasons[:2])}"
    reason = reason_against_writing_in_place(replica.source, replica.first_offset, is_log_end=False)
    if reason is None:
        return None
    return f"no snapshot is written at {replica.first_offset}: {reason.text}"


def _with_initial_state(plan: PartitionPlan, replica: CheckedReplica) -> PartitionPlan:
    remote = replica.remote
    assert remote is not None
    first = replica.first_offset
    best = remote.judgement.snapshot_class
    exists = plan.source.directory.snapshot_at(first) is not None
    boundaries = {each.offset: replace(each, expected_class=best) for each in plan.boundaries}
    boundaries.setdefault(first, BoundaryPlan(first, False, exists, best))
    stop = len(plan.source.directory.segments)
    size = plan.source.directory.size_bytes
    return replace(
        plan,
        boundaries=tuple(boundaries[offset] for offset in sorted(boundaries)),
        initial_state=initial_state(remote),
        stop_index=stop,
        min_read_bytes=size,
        max_read_bytes=size,
        replay_reason="remote storage has the state there",
    )
