"""Staging again into the same directory: what is proven unchanged is taken as it lies there, and only what closed since is read."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import replace

from formats.errors import FormatError
from formats.partition.file_names import snapshot_file_name
from snaprebuild.errors import ReadFailedError, RefusedError
from snaprebuild.findings import Finding, Severity
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.plan.placement_rules import is_missed
from snaprebuild.snapshots.plan.plan_model import PartitionPlan, Plan, Request
from snaprebuild.snapshots.rebuild.result import EQUAL, BoundaryResult, PartitionResult
from snaprebuild.snapshots.rebuild.writer import owner_of_snapshot
from snaprebuild.snapshots.staging.rolled_since import going_on
from snaprebuild.snapshots.staging.staged_check import known_topic_id
from snaprebuild.snapshots.staging.staged_plan import (
    PLAN_NAME,
    StagedEvidence,
    StagedPartition,
    StagedPlan,
    load_staged_plan,
)
from snaprebuild.storage.local.directories import hold_directory
from snaprebuild.storage.local.fingerprint import fingerprint_at
from snaprebuild.storage.store import Ownership

__all__ = ["from_what_is_staged", "goes_on", "is_disproved", "plan_path", "staged_before", "staging", "take_as_it_lies"]

log = logging.getLogger(__name__)


def plan_path(request: Request) -> str:
    """Where the plan of what is staged lies."""
    return os.path.join(request.stage[0], PLAN_NAME)


def staged_before(request: Request) -> StagedPlan | None:
    """What an earlier run has left in the same directory; None where none has.

    Raises:
        UsageError: its plan is none.
        ReadFailedError: it cannot be read.
    """
    if not request.stage:
        return None
    path = plan_path(request)
    return load_staged_plan(path) if os.path.lexists(path) else None


@contextlib.contextmanager
def staging(plan: Plan, *, dry_run: bool) -> Iterator[StagedPlan | None]:
    """Holds the directory that the plan of what is staged lies in, until it is written: no other run's rows get lost.

    Args:
        plan: from ``make_plan``; of which ``request.stage`` is not set nothing is held.
        dry_run: nothing is held, nor where nothing is to be staged and no directory is there.

    Yields:
        What an earlier run has left there; None where none has.

    Raises:
        RefusedError: another run stages into it.
        UsageError: what is called a staged plan there is none.
        StorageError: it cannot be made or read.
    """
    with contextlib.ExitStack() as held:
        if plan.request.stage and not dry_run:
            directory = plan.request.stage[0]
            if os.path.lexists(directory) or any(each.boundaries for each in plan.partitions):
                held.enter_context(hold_directory(directory, "stages into this directory"))
        yield staged_before(plan.request)


def from_what_is_staged(plan: Plan, before: StagedPlan | None) -> Plan:
    """The plan that goes on from what an earlier run has staged, where that still stands; else a partition is replayed as planned.

    It stands where the segments that it rests on are the same files, each boundary up to its end that is wanted now lies ready with
    the bytes, owner and mode that it was staged with, and it was replayed with the same options and the same expiration.

    Args:
        plan: from ``make_plan``.
        before: from ``staged_before`` or ``staging``; where it is None the plan is given back.
    """
    if before is None:
        return plan
    staged, wanted = {each.path: each for each in before.partitions}, StagedEvidence.of(plan.request, plan.clock)
    weak = () if plan.request.allow_unproven else (SnapshotClass.UNPROVEN,)
    partitions = tuple(_going_on(each, staged.get(each.source.directory.path), wanted, weak) for each in plan.partitions)
    notes = [_note(each) for each in partitions if goes_on(each)]
    return replace(plan, partitions=partitions, findings=(*plan.findings, *notes))


def goes_on(plan: PartitionPlan) -> bool:
    """Whether it rests on what an earlier run has staged."""
    return bool(plan.lies_ready) or plan.resumed is not None


def is_disproved(plan: PartitionPlan, staged: StagedPartition) -> bool:
    """Whether what an earlier run has staged may not be installed, by what this plan knows: refused, or not to be trusted so far up.

    Args:
        plan: of the partition, now.
        staged: what was staged of it.
    """
    due = {each.offset for each in staged.due}
    return plan.fault is not None or any(offset in due and is_missed(plan, offset, reason) for offset, reason in plan.not_planned)


def _note(plan: PartitionPlan) -> Finding:
    message = "what an earlier run has staged still stands: only what closed since is read"
    return Finding("staged-earlier", Severity.NOTE, plan.source.directory.path, message)


def _going_on(
    plan: PartitionPlan, staged: StagedPartition | None, evidence: StagedEvidence, weak: tuple[SnapshotClass, ...]
) -> PartitionPlan:
    """``weak``: classes that are not wanted."""
    if staged is None or not plan.boundaries or staged.target != plan.target or not staged.evidence.speaks_for(evidence):
        return plan
    if is_disproved(plan, staged) or any(each.snapshot_class in weak for each in staged.snapshots):
        return plan
    ready, last = {each.offset for each in staged.snapshots}, staged.snapshots[-1].offset
    lies_ready = tuple(each for each in plan.boundaries if each.offset in ready)
    new = tuple(each for each in plan.boundaries if each.offset not in ready)
    if new and (new[0].offset < staged.snapshots[0].offset or any(each.offset in staged.given_up for each in new)):
        return plan
    directory = plan.source.directory
    now = {segment.base_offset: segment.log.identity for segment in directory.segments}
    try:
        if last not in now or staged.first_change(now) is not None or staged.topic_id not in (None, known_topic_id(directory)):
            return plan
        _check_files(plan, staged)
        if new:
            return replace(going_on(plan, staged, new), lies_ready=lies_ready)
    except (ReadFailedError, RefusedError, FormatError) as error:
        log.info("%s: what is staged is not gone on from: %s", directory.path, error)
        return plan
    index, reason = list(now).index(last), f"staged up to {last}"
    nothing = replace(plan, boundaries=(), bytes_least=0, bytes_most=0, replay_index=index, replay_reason=reason)
    return replace(nothing, lies_ready=lies_ready)


def _check_files(plan: PartitionPlan, staged: StagedPartition) -> None:
    """Every staged file is there with its bytes, and would be taken by an install.

    Raises:
        ReadFailedError: one is not.
    """
    bases = {segment.base_offset for segment in plan.source.directory.segments}
    for each in staged.snapshots:
        path = os.path.join(staged.target, snapshot_file_name(each.offset))
        try:
            status = os.lstat(path)
        except OSError as error:
            raise ReadFailedError(f"cannot be looked at: {error.strerror}", path=path, errno=error.errno) from error
        if each.offset in bases and Ownership.of(status) != owner_of_snapshot(plan, each.offset):
            raise ReadFailedError("has another owner or mode than its segment", path=path)
        if status.st_ino != each.inode or fingerprint_at(path) != each.file:
            raise ReadFailedError("is not what was staged", path=path)


def take_as_it_lies(result: PartitionResult, staged: StagedPartition) -> None:
    """Tells of the boundaries of a plan that lie ready, as if they had been staged and found equal.

    Args:
        result: of the partition; what lies ready counts as planned from now on.
        staged: what an earlier run has left of it.
    """
    plan, by_offset = result.plan, {each.offset: each for each in staged.snapshots}
    why = ("staged by an earlier run: the segments that it rests on are the same files",)
    for boundary in plan.lies_ready:
        each = by_offset[boundary.offset]
        path = os.path.join(staged.target, snapshot_file_name(each.offset))
        done = BoundaryResult(each.offset, boundary.is_log_end, EQUAL, each.snapshot_class, why, each.entries, path)
        result.boundaries.append(done)
    result.boundaries.sort(key=lambda each: each.offset)
    if not plan.boundaries:
        result.replay_index, result.replay_reason = plan.replay_index, plan.replay_reason
    boundaries = sorted((*plan.boundaries, *plan.lies_ready), key=lambda each: each.offset)
    result.plan = replace(plan, boundaries=tuple(boundaries), lies_ready=())
