"""Segments that closed between staging and stopping: replayed on the state that was staged, and nothing before it is read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from formats.errors import FormatError
from formats.partition.file_names import snapshot_file_name
from formats.partition.producer_snapshot import read_entries
from snaprebuild.cluster.source.plan_gate import judged_plans
from snaprebuild.errors import ReadFailedError, RefusedError, UsageError
from snaprebuild.findings import Finding, Severity
from snaprebuild.replay.classes import Judgement, ReplayRecord
from snaprebuild.replay.running_effect import RunningEffect
from snaprebuild.replay.segment_effect import SegmentEffect, effect_of_entries
from snaprebuild.snapshots.engine.partition_replay import InitialState, ReplayCheckpoint, ReplayFrom
from snaprebuild.snapshots.plan.plan_model import BoundaryPlan, PartitionPlan, Plan
from snaprebuild.snapshots.plan.planner import stop_index
from snaprebuild.snapshots.rebuild.rebuild import rebuild
from snaprebuild.snapshots.rebuild.result import FAILED, REFUSED, SKIPPED
from snaprebuild.snapshots.source.broker_properties import read_server_properties
from snaprebuild.snapshots.source.source import Source
from snaprebuild.snapshots.staging.staged_check import CheckedPartition
from snaprebuild.snapshots.staging.staged_plan import StagedPartition, StagedSnapshot
from snaprebuild.storage.local.broker_lock import HeldLock
from snaprebuild.storage.local.fingerprint import Fingerprint
from snaprebuild.storage.local.regular_file import read_small_file
from snaprebuild.storage.log_dir import listed_again
from snaprebuild.storage.parallel_map import here

if TYPE_CHECKING:
    from snaprebuild.snapshots.receipts.receipt import Receipt

__all__ = ["going_on", "replay_closed_since", "staged_state"]


def replay_closed_since(
    partitions: Sequence[CheckedPartition],
    whole: Plan,
    locks: Mapping[str, HeldLock],
    receipt: Receipt,
    deadline: float | None,
    jobs: int | None,
    findings: list[Finding],
) -> None:
    """Writes what is due and was not staged. Adds to the results of the partitions.

    Args:
        partitions: those that have ``closed_since``.
        whole: the request that all of them were staged for, and the clock.
        locks: on their log directories.
        receipt: gets what is written.
        deadline: nothing is read once ``time.monotonic()`` is past it; None for none.
        jobs: worker processes, None for as many as processors.
        findings: gets what is about no partition.
    """
    request = whole.request
    try:
        properties = None if request.server_properties is None else read_server_properties(request.server_properties)
    except (UsageError, ReadFailedError, FormatError) as error:
        for each in partitions:
            _give_up(each, f"the broker's configuration cannot be read: {error}", FAILED)
        return
    plans = [found for each in partitions if (found := _plan_of(each)) is not None]
    if not plans:
        return
    source = Source(tuple(plan.source for plan in plans), (), None, properties)
    judged = judged_plans(plans, plans, request, source, here, findings, deadline, holds_locks=True)
    plan = replace(whole, partitions=tuple(judged))
    done = rebuild(plan, jobs=jobs, on_event=receipt.record, locks=locks, deadline=deadline)
    by_path = {each.result.plan.source.directory.path: each for each in partitions}
    for result in done.partitions:
        checked = by_path[result.plan.source.directory.path]
        into = checked.result
        into.outcome.add(result.outcome)
        told, reasons = {each.offset for each in result.boundaries}, dict(result.plan.not_planned)
        for wanted in checked.closed_since:  # of a replica that was rejected, or not judged in time, nothing is in the result
            if wanted.offset not in told:
                why = reasons.get(wanted.offset) or result.plan.fault or "is not rebuilt"
                action = SKIPPED if result.plan.verdict is None else REFUSED
                checked.give_up(wanted.offset, why, action, is_log_end=wanted.is_log_end)


def _plan_of(checked: CheckedPartition) -> PartitionPlan | None:
    """From the staged state on; None where that cannot be relied on, which is told."""
    plan = checked.result.plan
    source = replace(plan.source, directory=listed_again(plan.source.directory))  # with what was linked a moment ago
    try:
        return going_on(replace(plan, source=source), checked.staged, tuple(checked.closed_since))
    except (ReadFailedError, FormatError) as error:
        _give_up(checked, f"the staged state cannot be read: {error}", FAILED)
    except RefusedError as error:
        _give_up(checked, error.message)
    return None


def going_on(plan: PartitionPlan, staged: StagedPartition, wanted: tuple[BoundaryPlan, ...]) -> PartitionPlan:
    """What replays a partition from a staged state on, and reads nothing below it.

    Args:
        plan: of the partition as it is now: where it is, where its snapshots go, its log end, the verdict on it.
        staged: what was staged of it.
        wanted: boundaries, ascending, at least one; the first lies above the first snapshot that was staged.

    Raises:
        ReadFailedError: the file of that state is not the one that was staged.
        FormatError: it does not parse.
        RefusedError: no segment begins there.
    """
    directory, last = plan.source.directory, wanted[-1]
    point, given = staged_state(staged, wanted[0].offset)
    index = point.index_in(directory)
    if index is None:
        raise RefusedError(f"no segment begins at {point.offset}, where the staged state ends", path=directory.path)
    segments = directory.segments
    stop = len(segments) if last.is_log_end else stop_index(directory, ReplayFrom.LOG_START, last.offset)
    size_bytes = sum(each.size_bytes for each in segments[index:stop])
    return replace(
        plan,
        boundaries=wanted,
        window_index=0,
        replay_index=index,
        replay_reason=f"staged up to {point.offset}",
        stop_index=stop,
        bytes_least=size_bytes,
        bytes_most=size_bytes,
        given=given,
        resumed=point,
    )


def _give_up(checked: CheckedPartition, why: str, action: str = REFUSED) -> None:
    message = f"{why}: what closed since is not rebuilt; stage again"
    checked.result.say("not-staged", Severity.FINDING, message, checked.closed_since[0].offset)
    for boundary in checked.closed_since:
        checked.give_up(boundary.offset, why, action, is_log_end=boundary.is_log_end)


def staged_state(staged: StagedPartition, offset: int) -> tuple[ReplayCheckpoint, InitialState]:
    """The last staged state below an offset: where a replay goes on, and what it is worth.

    Args:
        staged: what was staged; its first snapshot lies below the offset.
        offset: of a boundary.

    Raises:
        ReadFailedError: its file is not the one that was staged.
        FormatError: it does not parse.
    """
    last = [each for each in staged.snapshots if each.offset < offset][-1]
    effect = _effect_of(staged, last)
    behind = max(((base, identity) for base, identity in staged.segments if base < last.offset), key=lambda each: each[0])
    record = ReplayRecord(next_offset=last.offset)
    point = ReplayCheckpoint(last.offset, staged.first_offset, behind, RunningEffect(effect), effect, record)
    reasons = staged.reasons if last is staged.snapshots[-1] else (f"staged at {last.offset}",)
    return point, InitialState(effect, Judgement(last.snapshot_class, reasons))


def _effect_of(staged: StagedPartition, snapshot: StagedSnapshot) -> SegmentEffect:
    path = os.path.join(staged.target, snapshot_file_name(snapshot.offset))
    data = read_small_file(path, snapshot.file.size_bytes)
    if data is None or Fingerprint.of(data, snapshot.file.mtime_ns) != snapshot.file:
        raise ReadFailedError("is not what was staged", path=path)
    return effect_of_entries(read_entries(data, file=path))
