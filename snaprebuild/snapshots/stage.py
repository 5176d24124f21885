"""Builds the missing snapshots of a broker that runs, outside of its log directories, and writes a plan of what is staged."""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import asdict, replace

from formats.partition.file_names import snapshot_file_name
from snaprebuild.errors import ReadFailedError
from snaprebuild.snapshots.destination.boundary_result import NOT_DONE, BoundaryAction
from snaprebuild.snapshots.destination.destinations import Staged
from snaprebuild.snapshots.engine.partition_task import Progress
from snaprebuild.snapshots.plan.plan_model import PartitionPlan, Plan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild.preflight import with_preflight
from snaprebuild.snapshots.rebuild.rebuild_result import PartitionResult, RebuildResult
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.receipts.receipt_lines import SetAsideAnnounced, WriteAnnounced, WriteEvent
from snaprebuild.snapshots.run import Run, current_time_ms
from snaprebuild.snapshots.source.broker_properties import log_dirs_of
from snaprebuild.snapshots.staging.faulty_snapshots import faulty_snapshots
from snaprebuild.snapshots.staging.resume import is_disproved, is_resumed, owner_of_segments, plan_path, resume_staging, staging
from snaprebuild.snapshots.staging.staged_check import change_times, known_topic_id
from snaprebuild.snapshots.staging.staged_plan import (
    NotStaged,
    StagedEvidence,
    StagedPartition,
    StagedPlan,
    StagedSegment,
    StagedSnapshot,
    save_staged_plan,
)
from snaprebuild.storage.local.fingerprint import fingerprint_at

__all__ = ["resumed", "stage"]


@dataclass(slots=True)
class StagedFiles:
    """The files that a run stages.

    Attributes:
        announcements: by directory of the partition and offset.
    """

    announcements: dict[tuple[str, int], WriteAnnounced] = field(default_factory=dict)

    def record(self, partition: PartitionPlan, event: WriteEvent) -> None:
        """Takes a file that is about to get its name; or drops one that did not."""
        assert not isinstance(event, SetAsideAnnounced)
        at = partition.source.directory.path, event.offset
        if isinstance(event, WriteAnnounced):
            self.announcements[at] = event
        elif event.error is not None:
            self.announcements.pop(at, None)


@contextlib.contextmanager
def resumed(plan: Plan, *, dry_run: bool) -> Iterator[tuple[Plan, StagedPlan | None]]:
    """Locks the staging directory, and continues what an earlier run has staged there.

    Args:
        plan: whose destination is ``Staged``.
        dry_run: nothing is written, and nothing is locked.

    Yields:
        The plan without what is staged already, and the earlier staged plan; None without one.

    Raises:
        UsageError, RefusedError, StorageError: the directory cannot be used.
    """
    plan = with_preflight(plan)
    with staging(plan, dry_run=dry_run) as before:
        yield resume_staging(plan, before), before


def stage(
    plan: Plan,
    before: StagedPlan | None,
    run: Run,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> RebuildResult:
    """Carries out a plan whose destination is ``Staged``.

    Args:
        plan: from ``make_plan`` and ``resume_staging``.
        before: the earlier staged plan, from ``staging``, which locks the directory meanwhile.
        run: its jobs.
        dry_run: replay and judge, write nothing.
        progress: called for every segment.

    Raises:
        RefusedError: no links can be made there, or the name of the plan is taken.
        StorageError: nothing can be written there.
    """
    earlier = {} if before is None else {each.path: each for each in before.partitions}
    files = StagedFiles()
    # Before anything is read: a later change of a segment shows.
    ctimes = {each.source.directory.path: change_times(each.source.directory) for each in plan.partitions if each.boundaries}
    result = rebuild(plan, run, dry_run=dry_run, progress=progress, on_event=files.record)
    resumed = {each.path: earlier[each.path] for each in result.partitions if is_resumed(each.plan)}
    if dry_run:
        return result
    began_ms = current_time_ms()
    evidence = StagedEvidence.of(plan.request, plan.clock)
    partitions: list[StagedPartition] = []
    not_staged: list[NotStaged] = []
    for each in result.partitions:
        staged = _staged(each, files, resumed.get(each.path), plan.request, ctimes.get(each.path, {}), evidence)
        if staged is not None:
            partitions.append(staged)
        elif (left_out := _not_staged(each)) is not None:
            not_staged.append(left_out)
    if not partitions and before is None:
        return result
    gone = {each.path for each in result.partitions if _replaces(each, earlier)}
    log_dirs = {*_log_dirs(plan, run), *(() if before is None else before.log_dirs)}
    merged = sorted([*partitions, *(each for path, each in earlier.items() if path not in gone)], key=lambda each: each.path)
    looked_at = {each.path for each in result.partitions}
    unseen = [] if before is None else [each for each in before.not_staged if each.path not in looked_at]
    has_own_list = {each.path for each in merged}  # of what was given up
    left = tuple(sorted((each for each in (*not_staged, *unseen) if each.path not in has_own_list), key=lambda each: each.path))
    faulty = faulty_snapshots(result, before)
    if before is not None and not partitions and not gone and (left, faulty) == (before.not_staged, before.faulty_snapshots):
        return result  # the plan stays the one whose SHA-256 somebody may have approved
    assert isinstance(plan.request.destination, Staged)
    path = plan_path(plan.request.destination)
    staged_plan = StagedPlan(
        path=path,
        request=plan.request,
        clock=plan.clock,
        staged_ms=began_ms,
        log_dirs=tuple(sorted(log_dirs)),
        partitions=tuple(merged),
        not_staged=left,
        faulty_snapshots=faulty,
    )
    save_staged_plan(staged_plan, owner_of_segments(plan))
    return replace(result, staged_plan=path) if partitions else result


def _replaces(result: PartitionResult, earlier: Mapping[str, StagedPartition]) -> bool:
    """Whether this run has looked at a partition, so that the line of an earlier run does not count any more."""
    plan = result.plan
    staged = earlier.get(plan.path)
    if staged is None:
        return bool(plan.all_boundaries)
    # Where the next start keeps snapshots out, only existing ones were compared: nothing took the place of what is staged. Where this
    # process cannot write, nothing was replayed.
    looked_at = bool(plan.all_boundaries) and plan.fate is None and plan.blocked is None
    return looked_at or is_disproved(plan, staged)


def _log_dirs(plan: Plan, run: Run) -> set[str]:
    properties = run.facts.properties_if_given(plan.request.server_properties)
    configured = [] if properties is None else log_dirs_of(properties)
    used = {each.source.log_dir.path for each in plan.partitions if each.source.log_dir.is_broker_directory}
    return {*map(os.path.realpath, configured), *used}


def _staged(
    result: PartitionResult,
    files: StagedFiles,
    earlier: StagedPartition | None,
    request: RebuildRequest,
    ctimes: Mapping[int, int],
    evidence: StagedEvidence,
) -> StagedPartition | None:
    """The staged partition; None if nothing is due.

    Args:
        result: of the run.
        files: that it has written, or found.
        earlier: staged partition that the replay continued from; None if it began as planned.
        request: of this run.
        ctimes: inode change times of the segments before they were read, by base offset.
        evidence: of this run.
    """
    plan = result.plan
    directory = result.plan.source.directory
    if not directory.segments:  # gone since it was planned
        return None
    snapshots, reasons = _snapshots(result, files)
    first = result.outcome.replay_index
    given_up = [each.offset for each in result.boundaries if each.action in NOT_DONE]
    if earlier is not None:
        # Also those that are not missing now: a broker up to 2.7 may delete the existing snapshot until it is installed.
        staged = [_checked(each, plan.target) for each in earlier.snapshots if each.offset > directory.segments[0].base_offset]
        by_offset = {each.offset: each for each in (*staged, *snapshots)}
        snapshots = [by_offset[offset] for offset in sorted(by_offset)]
        reasons = reasons or earlier.reasons
        given_up += [offset for offset in earlier.given_up if offset not in by_offset]
        bases = directory.base_offsets
        first = bisect_left(bases, earlier.first_offset)
        request = _both(earlier.request, request)
        evidence = earlier.evidence
    if not any(each.is_due for each in snapshots):
        return None
    read_before = {} if earlier is None else {each.offset: each for each in earlier.segments[:-1]}
    segments = [each for each in directory.segments[first:] if each.base_offset <= snapshots[-1].offset]
    return StagedPartition(
        path=directory.path,
        topic_partition=plan.source.directory.topic_partition,
        topic_id=known_topic_id(directory),
        target=plan.target,
        log_start_offset=plan.source.log_start_offset,
        first_offset=segments[0].base_offset,
        segments=tuple(
            read_before.get(each.base_offset)
            or StagedSegment.of_segment(each.base_offset, each.log.identity, ctimes.get(each.base_offset))
            for each in segments
        ),
        snapshots=tuple(snapshots),
        given_up=tuple(sorted(given_up)),
        reasons=reasons,
        request=request,
        evidence=evidence,
    )


def _not_staged(result: PartitionResult) -> NotStaged | None:
    """The missing snapshots of a partition of which nothing is staged; None if it lacks nothing."""
    plan = result.plan
    failed = [each.offset for each in result.boundaries if each.action in NOT_DONE]
    refused = [offset for offset, reason in plan.not_planned if reason.may_be_needed]
    offsets = tuple(sorted({*failed, *refused}))
    if offsets or plan.fault is not None:
        return NotStaged(path=plan.path, offsets=offsets)
    return None


def _checked(snapshot: StagedSnapshot, target: str) -> StagedSnapshot:
    """A snapshot of an earlier run, with the change time of its file where its bytes are still those that were staged."""
    path = os.path.join(target, snapshot_file_name(snapshot.offset))
    try:
        ctime_ns = os.lstat(path).st_ctime_ns  # before its bytes: what is changed later has a later one
        is_same = fingerprint_at(path) == snapshot.fingerprint
    except (OSError, ReadFailedError):
        is_same = False
    return msgspec.structs.replace(snapshot, checked_ctime_ns=ctime_ns if is_same else None)


def _both(earlier: RebuildRequest, now: RebuildRequest) -> RebuildRequest:
    """The request that counts at the install, if a run continues another: the boundaries and files of both."""
    offset_from = None
    if earlier.offset_from is not None and now.offset_from is not None:
        offset_from = min(earlier.offset_from, now.offset_from)
    offset_to = None
    if earlier.offset_to is not None and now.offset_to is not None:
        offset_to = max(earlier.offset_to, now.offset_to)
    both = replace(
        now,
        offset_from=offset_from,
        offset_to=offset_to,
        metadata=now.metadata or earlier.metadata,
    )
    if now.server_properties is None:
        both = replace(both, server_properties=earlier.server_properties, expiration_ms=earlier.expiration_ms)
    return both


def _snapshots(result: PartitionResult, files: StagedFiles) -> tuple[list[StagedSnapshot], tuple[str, ...]]:
    """The snapshots that a run staged of a partition, ascending, and the reasons for the class of the last."""
    plan = result.plan
    directory = result.plan.source.directory
    exists = {boundary.offset for boundary in plan.all_boundaries if boundary.exists}
    snapshots: list[StagedSnapshot] = []
    reasons: tuple[str, ...] = ()
    for boundary in result.boundaries:
        if (
            boundary.action not in (BoundaryAction.WRITTEN, BoundaryAction.EQUAL)
            or (directory.path, boundary.offset) not in files.announcements
        ):
            continue
        announcement = files.announcements[directory.path, boundary.offset]
        inode = os.lstat(os.path.join(plan.target, snapshot_file_name(boundary.offset))).st_ino
        snapshots.append(
            StagedSnapshot(
                offset=boundary.offset,
                **asdict(announcement.file),
                inode=inode,
                snapshot_class=announcement.snapshot_class,
                entries=announcement.entries,
                is_due=boundary.offset not in exists,
            )
        )
        reasons = boundary.reasons
    return snapshots, reasons
