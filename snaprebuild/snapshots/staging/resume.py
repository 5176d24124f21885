"""Replays that continue from a staged state: of a further run of ``stage``, and of ``install`` for segments that were rolled since.

A staged state that is proven unchanged is reused, and nothing below it is read.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

from msgspec.structs import replace

from formats.errors import FormatError
from formats.partition.file_names import snapshot_file_name
from formats.partition.producer_snapshot import read_entries
from snaprebuild.errors import ReadFailedError, RefusedError, WriteFailedError
from snaprebuild.findings import Finding, Severity
from snaprebuild.replay.classes import Judgement, ReplayRecord, SnapshotClass
from snaprebuild.replay.segment_effect import RunningEffect, SegmentEffect, effect_of_entries
from snaprebuild.snapshots.destination.destinations import Staged
from snaprebuild.snapshots.destination.rebuilt_snapshot import owner_of_snapshot
from snaprebuild.snapshots.engine.partition_replay import InitialState, ReplayCheckpoint, ReplayFrom
from snaprebuild.snapshots.plan.plan_model import BoundaryPlan, PartitionPlan, Plan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.planner import stop_index
from snaprebuild.snapshots.rebuild.preflight import with_preflight, without_blocked
from snaprebuild.snapshots.source.boundary_needs import LeftOut
from snaprebuild.snapshots.staging.faulty_snapshots import faults_left
from snaprebuild.snapshots.staging.staged_check import change_times, known_topic_id, ready_snapshot
from snaprebuild.snapshots.staging.staged_plan import (
    PLAN_NAME,
    StagedEvidence,
    StagedPartition,
    StagedPlan,
    StagedSnapshot,
    load_staged_plan,
)
from snaprebuild.storage.local.directories import check_not_held, hold_directory, make_directories
from snaprebuild.storage.local.fingerprint import Fingerprint, fingerprint_at
from snaprebuild.storage.local.log_dir_guard import check_outside_log_dirs
from snaprebuild.storage.local.regular_file import read_small_file
from snaprebuild.storage.local.write_advice import with_advice
from snaprebuild.storage.local.write_checks import check_new_files
from snaprebuild.storage.store import Ownership

__all__ = [
    "check_staging",
    "earlier_staged_plan",
    "is_disproved",
    "is_resumed",
    "is_valid_state",
    "owner_of_segments",
    "plan_path",
    "rehearsed",
    "resume_staging",
    "resumed_plan",
    "staging",
]

log = logging.getLogger(__name__)


def plan_path(staged: Staged) -> str:
    """Where the plan of what is staged is."""
    return os.path.join(staged.stages[0], PLAN_NAME)


def earlier_staged_plan(request: RebuildRequest) -> StagedPlan | None:
    """The plan that an earlier run left in the same directory; None without one.

    Raises:
        UsageError: its plan is none.
        ReadFailedError: it cannot be read.
    """
    if not isinstance(request.destination, Staged):
        return None
    path = plan_path(request.destination)
    return load_staged_plan(path) if os.path.lexists(path) else None


@contextlib.contextmanager
def staging(plan: Plan, *, dry_run: bool) -> Iterator[StagedPlan | None]:
    """Locks the directory of the staged plan until the plan is written, so that no lines of another run are lost.

    Args:
        plan: from ``with_preflight``; of another destination than ``Staged`` nothing is locked.
        dry_run: nothing is locked. Nothing is locked either if there is nothing to stage and no directory.

    Yields:
        The plan that an earlier run left there; None without one.

    Raises:
        RefusedError: another run stages into it.
        UsageError: the file with the name of the staged plan is none.
        StorageError: it cannot be made or read.
    """
    with contextlib.ExitStack() as locks:
        destination = plan.request.destination
        check_staging(plan)
        if isinstance(destination, Staged) and not dry_run:
            directory = destination.stages[0]
            has_boundaries = _writes_any(plan)
            for stage in _used_stages(plan, destination):
                _make_stage(stage, owner_of_segments(plan))
            if has_boundaries or os.path.lexists(directory):
                locks.enter_context(hold_directory(directory))
        yield earlier_staged_plan(plan.request)


def check_staging(plan: Plan) -> None:
    """Makes sure that a plan whose destination is ``Staged`` can be carried out. Changes nothing.

    Args:
        plan: from ``make_plan``; for another destination nothing is checked.

    Raises:
        RefusedError: another run stages into the directory, or it would be in the log directory of a broker.
        LockUnknownError: the file system offers no locks.
        WriteFailedError: it cannot be made, or not be written to.
    """
    destination = plan.request.destination
    if not isinstance(destination, Staged):
        return
    if _writes_any(plan):
        for stage in destination.stages:
            if not os.path.isdir(stage):
                check_outside_log_dirs(stage)
            check_new_files(stage)
    if os.path.lexists(destination.stages[0]):
        check_not_held(destination.stages[0])


def _writes_any(plan: Plan) -> bool:
    return any(each.boundaries and each.blocked is None for each in plan.partitions)


def _used_stages(plan: Plan, destination: Staged) -> list[str]:
    """The directories that get a file: those of partitions with snapshots, and the first one, which gets the plan; none without any."""
    targets = [each.target for each in plan.partitions if each.boundaries and each.blocked is None]
    is_used = {stage: any(target.startswith(f"{stage}{os.sep}") for target in targets) for stage in destination.stages}
    return [stage for number, stage in enumerate(destination.stages) if is_used[stage] or (targets and number == 0)]


def _make_stage(directory: str, owner: Ownership | None) -> None:
    try:
        make_directories(directory, owner)
    except OSError as error:
        message = with_advice(f"cannot be created: {error.strerror}", error, directory)
        raise WriteFailedError(message, path=directory, errno=error.errno) from error


def owner_of_segments(plan: Plan) -> Ownership | None:
    """The owner of the segments, which the user of the broker is; None without any segment."""
    for each in plan.partitions:
        if each.source.directory.segments:
            return each.source.directory.segments[0].log.ownership
    return None


def resume_staging(plan: Plan, before: StagedPlan | None) -> Plan:
    """The plan that continues from the staged snapshots of an earlier run if they are valid; else a partition is replayed as planned.

    They are valid under three conditions. The segments that they were replayed from are the same files. Each boundary up to their end that
    is wanted now is staged, with the bytes, owner and mode that it was staged with. The options and the expiration are the same.

    Args:
        plan: from ``make_plan``.
        before: from ``earlier_staged_plan`` or ``staging``; where it is None the plan is given back.

    Raises:
        RefusedError: what was staged there for another log directory would be replaced.
    """
    if before is None:
        return plan
    _check_targets(plan, before)
    staged = {each.path: each for each in before.partitions}
    evidence = StagedEvidence.of(plan.request, plan.clock)
    weak = () if plan.request.allow_unproven else (SnapshotClass.UNPROVEN,)
    partitions = tuple(_resumed(each, staged.get(each.source.directory.path), evidence, weak) for each in plan.partitions)
    resumed = [each for each in partitions if is_resumed(each)]
    notes = [_note(each) for each in resumed]
    # The replay that found these is not done again.
    faults = faults_left(before, [each.path for each in resumed])
    return replace(plan, partitions=partitions, findings=(*plan.findings, *notes, *faults))


def _check_targets(plan: Plan, before: StagedPlan) -> None:
    """Partitions of two log directories may have one name. After a move between disks the earlier directory is gone."""
    paths = {each.target: each.path for each in before.partitions}
    for each in plan.partitions:
        earlier = paths.get(each.target, each.path)
        if each.boundaries and earlier != each.path and os.path.isdir(earlier):
            message = f"holds what was staged for {earlier}, and {each.path} would replace it: name another --to directory"
            raise RefusedError(message, path=each.target)


def is_resumed(plan: PartitionPlan) -> bool:
    """Whether it rests on what an earlier run has staged."""
    return bool(plan.ready) or plan.resumed is not None


def is_disproved(plan: PartitionPlan, staged: StagedPartition) -> bool:
    """Whether what an earlier run has staged may not be installed, by what this plan knows: the log or the replica is not to be trusted.

    Every other reason proves nothing about the staged bytes. It is one of the place, of a setting or of the next start, and `install`
    judges it again.

    Args:
        plan: of the partition, now.
        staged: the staged snapshots of the partition.
    """
    due = {each.offset for each in staged.due}
    reasons = [reason for offset, reason in plan.not_planned if offset in due]
    if any(reason.kind is LeftOut.DISTRUSTED for reason in reasons):
        return True
    if plan.fate is None:
        return plan.fault is not None
    verdict = plan.verdict
    return verdict is not None and (verdict.is_rejected or verdict.in_place_refusal(plan.path) is not None)


def _note(plan: PartitionPlan) -> Finding:
    message = "the staged snapshots of an earlier run are still valid: only newer segments are read"
    return Finding("staged-earlier", Severity.NOTE, plan.path, message)


def _resumed(
    plan: PartitionPlan, staged: StagedPartition | None, evidence: StagedEvidence, weak: tuple[SnapshotClass, ...]
) -> PartitionPlan:
    """``weak``: classes that are not wanted."""
    if (
        staged is None
        or not plan.boundaries
        or staged.target != plan.target
        or not staged.evidence.is_at_least_as_strong_as(evidence)
    ):
        return plan
    if is_disproved(plan, staged) or any(each.snapshot_class in weak for each in staged.snapshots):
        return plan
    by_offset = {each.offset: each for each in staged.snapshots}
    last = staged.snapshots[-1].offset
    ready = tuple(ready_snapshot(staged, by_offset[each.offset], each) for each in plan.boundaries if each.offset in by_offset)
    new = tuple(each for each in plan.boundaries if each.offset not in by_offset)
    if new and (new[0].offset < staged.snapshots[0].offset or any(each.offset in staged.given_up for each in new)):
        return plan
    directory = plan.source.directory
    now = {segment.base_offset: segment.log.identity for segment in directory.segments}
    try:
        if last not in now or staged.first_change(now) is not None or staged.topic_id not in (None, known_topic_id(directory)):
            return plan
        if staged.first_touched(change_times(directory)) is not None:
            return plan
        _check_files(plan, staged)
        if new:
            state = [each for each in staged.snapshots if each.offset < new[0].offset][-1]
            return replace(resumed_plan(plan, staged, new, state), ready=ready)
    except (ReadFailedError, RefusedError, FormatError) as error:
        log.info("%s: the staged state is not continued: %s", directory.path, error)
        return plan
    index = list(now).index(last)
    reason = f"staged up to {last}"
    return replace(plan, boundaries=(), ready=ready, min_read_bytes=0, max_read_bytes=0, replay_index=index, replay_reason=reason)


def _check_files(plan: PartitionPlan, staged: StagedPartition) -> None:
    """Every staged file is there with its bytes, and would be taken by an install.

    Raises:
        ReadFailedError: one is not.
    """
    bases = set(plan.source.directory.base_offsets)
    for each in staged.snapshots:
        path = os.path.join(staged.target, snapshot_file_name(each.offset))
        try:
            status = os.lstat(path)
        except OSError as error:
            raise ReadFailedError.from_os_error(error, "cannot be accessed", path) from error
        if each.offset in bases and Ownership.of(status) != owner_of_snapshot(plan, each.offset):
            raise ReadFailedError("has another owner or mode than its segment", path=path)
        if status.st_ino != each.inode or fingerprint_at(path) != each.fingerprint:
            raise ReadFailedError("is not what was staged", path=path)


def resumed_plan(
    plan: PartitionPlan, staged: StagedPartition, boundaries: tuple[BoundaryPlan, ...], state: StagedSnapshot
) -> PartitionPlan:
    """The plan that replays a partition from a staged state, and reads nothing below it.

    Args:
        plan: of the partition as it is now: where it is, where its snapshots go, its log end, the verdict on it.
        staged: the staged snapshots of the partition.
        boundaries: boundaries, ascending, at least one.
        state: the staged snapshot that the replay continues from, below all of them.

    Raises:
        ReadFailedError: the file of that state is not the one that was staged.
        FormatError: it does not parse.
        RefusedError: no segment begins there.
    """
    directory = plan.source.directory
    last = boundaries[-1]
    point, initial_state = _staged_state(staged, state)
    index = point.index_in(directory)
    if index is None:
        raise RefusedError(f"no segment begins at {point.offset}, where the staged state ends", path=directory.path)
    segments = directory.segments
    stop = len(segments) if last.is_log_end else stop_index(directory, ReplayFrom.LOG_START, last.offset)
    size_bytes = sum(each.size_bytes for each in segments[index:stop])
    return replace(
        plan,
        boundaries=boundaries,
        window_index=0,
        replay_index=index,
        replay_reason=f"staged up to {point.offset}",
        stop_index=stop,
        min_read_bytes=size_bytes,
        max_read_bytes=size_bytes,
        initial_state=initial_state,
        resumed=point,
    )


def _staged_state(staged: StagedPartition, last: StagedSnapshot) -> tuple[ReplayCheckpoint, InitialState]:
    """A staged state: where a replay continues, and the class of that state.

    Args:
        staged: what was staged.
        last: the snapshot with the state.

    Raises:
        ReadFailedError: its file is not the one that was staged.
        FormatError: it does not parse.
    """
    effect = _effect_of(staged, last)
    before = [each for each in staged.segments if each.offset < last.offset][-1]
    record = ReplayRecord(next_offset=last.offset)
    point = ReplayCheckpoint(last.offset, staged.first_offset, (before.offset, before.identity), RunningEffect(effect), record)
    reasons = staged.reasons if last is staged.snapshots[-1] else (f"staged at {last.offset}",)
    return point, InitialState(effect, Judgement(last.snapshot_class, reasons))


def is_valid_state(staged: StagedPartition, snapshot: StagedSnapshot) -> bool:
    """Whether a staged file is there, with the bytes that were staged."""
    try:
        _effect_of(staged, snapshot)
    except (ReadFailedError, FormatError) as error:
        log.info("%s: the staged state at %d is not continued: %s", staged.path, snapshot.offset, error)
        return False
    return True


def _effect_of(staged: StagedPartition, snapshot: StagedSnapshot) -> SegmentEffect:
    path = os.path.join(staged.target, snapshot_file_name(snapshot.offset))
    data = read_small_file(path, snapshot.size_bytes)
    if data is None or Fingerprint.of(data, snapshot.modified_ns) != snapshot.fingerprint:
        raise ReadFailedError("is not what was staged", path=path)
    return effect_of_entries(read_entries(data, file=path))


def rehearsed(plan: Plan) -> Plan:
    """The plan after everything that a run checks before it reads segments; nothing is written or locked.

    Raises:
        UsageError, RefusedError: a staging directory cannot be used.
    """
    plan = with_preflight(plan, is_rehearsal=True)
    check_staging(plan)
    before = earlier_staged_plan(plan.request)
    if before is not None:
        plan = with_preflight(resume_staging(plan, before), is_rehearsal=True)
    return without_blocked(plan)
