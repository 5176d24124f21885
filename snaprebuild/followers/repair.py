"""Gives replicas that lost their producer state the right one: at their first offset, and in every snapshot above it.

A broker loads the newest snapshot, so that the first one alone would change nothing. The writing is that of ``rebuild`` in place: under the
broker's lock, wrong files set aside when asked, each file announced in a receipt.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from snaprebuild.cluster.source_check.plan_gate import judge_plans, judge_start
from snaprebuild.errors import RefusedError
from snaprebuild.findings import Finding, Severity
from snaprebuild.followers.check import CheckedReplica, FollowerCheck, given_state
from snaprebuild.snapshots.destination.placement_rules import reason_against_writing_in_place, reason_for_distrust
from snaprebuild.snapshots.engine.partition_replay import ReplayFrom
from snaprebuild.snapshots.engine.partition_task import Progress
from snaprebuild.snapshots.plan.plan_model import BoundaryPlan, PartitionPlan, Plan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.planner import make_plan
from snaprebuild.snapshots.plan.start_gate import fate_against_writing, unsafe_start_finding
from snaprebuild.snapshots.rebuild.rebuild import rebuild
from snaprebuild.snapshots.rebuild.result import BoundaryAction, PartitionResult, RebuildResult
from snaprebuild.snapshots.receipts.receipt import Receipt
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import PartitionSource, Source, live_broker_notes, open_source

__all__ = ["FollowerRepair", "follower_repair", "refuse_live_broker", "repair_plan"]


@dataclass(frozen=True)
class FollowerRepair:
    """The result of a repair.

    Attributes:
        check: what was found.
        result: what was written; None where there was nothing to do.
        refused: findings of replicas that cannot be repaired.
    """

    check: FollowerCheck
    result: RebuildResult | None
    refused: tuple[Finding, ...] = ()

    def of(self, replica: CheckedReplica) -> PartitionResult | None:
        """The snapshots written into a replica; None if there was nothing to write."""
        return self._by_path.get(replica.source.path)

    @cached_property
    def _by_path(self) -> dict[str, PartitionResult]:
        return {} if self.result is None else {each.plan.path: each for each in self.result.partitions}

    def is_repaired(self, replica: CheckedReplica) -> bool:
        """Whether every snapshot of it is right now, or would be."""
        done = self.of(replica)
        return done is not None and all(
            each.action in (BoundaryAction.WRITTEN, BoundaryAction.EQUAL, BoundaryAction.WOULD_WRITE) for each in done.boundaries
        )

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Without those of the check that are settled."""
        found = [*self.check.source_findings]
        for replica in self.check.replicas:
            done = self.of(replica)
            if done is None or not self.is_repaired(replica):
                found += replica.findings
        written = () if self.result is None else self.result.findings
        return (*found, *self.refused, *(each for each in written if each not in (*self.check.source_findings, *self.refused)))


def refuse_live_broker(source: Source) -> None:
    """Before remote storage is read, which may be much. It is the lock at the writing that keeps brokers out.

    Raises:
        RefusedError: a broker, or another run, holds a log directory.
    """
    for note in live_broker_notes(source):
        raise RefusedError("a live broker, or another run, holds this log directory: stop the broker first", path=note.path)


def repair_plan(check: FollowerCheck, *, set_aside: bool) -> tuple[Plan | None, tuple[Finding, ...]]:
    """Plans what is written, and finds which replicas cannot be repaired.

    Args:
        check: what was found.
        set_aside: replace snapshots that are proven wrong.
    """
    refused: list[Finding] = []
    wrong: dict[str, CheckedReplica] = {}
    for replica in check.replicas:
        why = _why_not(replica) if replica.is_wrong else None
        if why is not None:
            path = replica.source.path
            refused.append(Finding("follower-not-repaired", Severity.REFUSED, path, why, replica.first_offset))
        elif replica.is_wrong:
            wrong[replica.source.path] = replica
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
    planned_at = {each.source.path: each for each in plan.partitions}
    # Also of those of which the plan writes nothing: their boundaries are added here.
    fates = judge_start(open_source(list(wrong))).fates
    partitions = []
    for path, replica in wrong.items():
        planned = planned_at.get(path)
        if planned is None or not _is_unchanged(replica.source, planned.source):
            why = "segments, snapshots or checkpoints changed since it was checked: stop the broker, and repair again"
            refused.append(Finding("follower-not-repaired", Severity.REFUSED, path, why, replica.first_offset))
        elif planned.verdict is None:
            why = f"it cannot be judged whether it may be written to: {planned.fault}"
            refused.append(Finding("follower-not-repaired", Severity.REFUSED, path, why, replica.first_offset))
        elif (refusal := planned.verdict.in_place_refusal(path)) is not None:
            refused.append(refusal)
        elif (untrusted := reason_for_distrust(planned, replica.first_offset)) is not None:
            why = f"no snapshot is written at {replica.first_offset}: {untrusted.text}"
            refused.append(Finding("follower-not-repaired", Severity.REFUSED, path, why, replica.first_offset))
        elif (fate := fate_against_writing(planned.source, fates)) is not None:
            refused.append(unsafe_start_finding(path, fate, Severity.REFUSED))
        else:
            partitions.append(_with_given(planned, replica))
    if not partitions:
        return None, tuple(refused)
    return replace(plan, partitions=tuple(partitions)), tuple(refused)


def follower_repair(
    check: FollowerCheck,
    plan: Plan | None,
    refused: tuple[Finding, ...],
    run: Run,
    *,
    dry_run: bool = False,
    receipt: Receipt | None = None,
    progress: Progress | None = None,
) -> FollowerRepair:
    """Carries ``repair_plan`` out.

    Args:
        check: what was found.
        plan: what is written, or None.
        refused: findings of ``repair_plan``.
        run: its jobs.
        dry_run: replay and judge, write nothing.
        receipt: gets what is written; None leaves none.
        progress: called for every segment.

    Raises:
        RefusedError, StorageError: as ``rebuild``.
    """
    if plan is None:
        return FollowerRepair(check, None, refused)
    return FollowerRepair(check, rebuild(plan, run, dry_run=dry_run, receipt=receipt, progress=progress), refused)


def _is_unchanged(checked: PartitionSource, planned: PartitionSource) -> bool:
    """The state at the first offset of the one belongs to no other; ``rebuild`` asks the same of the plan once it has the lock."""
    was = checked.directory
    now = planned.directory
    return (was.segments, was.snapshots) == (now.segments, now.snapshots) and checked.log_dir == planned.log_dir


def _why_not(replica: CheckedReplica) -> str | None:
    remote = replica.remote
    assert remote is not None
    if not remote.judgement.snapshot_class.is_allowed_in_place:
        return f"what is right at {remote.offset} is {remote.judgement.snapshot_class.value}: {'; '.join(remote.judgement.reasons[:2])}"
    reason = reason_against_writing_in_place(replica.source, replica.first_offset, is_log_end=False)
    return None if reason is None else f"no snapshot is written at {replica.first_offset}: {reason.text}"


def _with_given(plan: PartitionPlan, replica: CheckedReplica) -> PartitionPlan:
    remote = replica.remote
    assert remote is not None
    first = replica.first_offset
    best = remote.judgement.snapshot_class
    exists = plan.source.directory.snapshot_at(first) is not None
    wanted = {each.offset: replace(each, expected_class=best) for each in plan.boundaries}
    wanted.setdefault(first, BoundaryPlan(first, False, exists, best))
    stop = len(plan.source.directory.segments)
    size = plan.source.directory.size_bytes
    return replace(
        plan,
        boundaries=tuple(wanted[offset] for offset in sorted(wanted)),
        given=given_state(remote),
        stop_index=stop,
        min_read_bytes=size,
        max_read_bytes=size,
        replay_reason="remote storage has the state there",
    )
