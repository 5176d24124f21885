"""Carries a plan out: replays, and gives each missing snapshot its name once it is whole, read back and checked."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from formats.partition.file_names import parse_file_name
from snaprebuild.errors import (
    RefusedError,
    SnaprebuildError,
    WriteFailedError,
)
from snaprebuild.findings import Finding, Severity, finding_of_error
from snaprebuild.snapshots.destination.rebuilt_snapshot import owner_of_snapshot, remove_other_name
from snaprebuild.snapshots.engine.crosscheck import ListedDifferences
from snaprebuild.snapshots.engine.partition_task import Progress
from snaprebuild.snapshots.engine.schedule import run_tasks
from snaprebuild.snapshots.plan.plan_model import BoundaryPlan, PartitionPlan, Plan, Request
from snaprebuild.snapshots.plan.planner import replan_partition
from snaprebuild.snapshots.rebuild.result import (
    FAILED,
    NOT_DONE,
    REFUSED,
    BoundaryResult,
    PartitionResult,
    RebuildOutcome,
    RebuildResult,
)
from snaprebuild.snapshots.rebuild.task import WRITERS, RebuildJob, RebuildTask, denied_finding, is_denied, unfinished
from snaprebuild.snapshots.receipts.receipt import Receipt
from snaprebuild.snapshots.receipts.write_events import WriteEvent
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.second_look import read_in_rounds
from snaprebuild.storage.local.broker_lock import HeldLock, hold
from snaprebuild.storage.log_dir import listed_again, read_log_dir
from snaprebuild.storage.threads import ThreadPool

__all__ = ["rebuild"]


def rebuild(
    plan: Plan,
    run: Run | None = None,
    *,
    dry_run: bool = False,
    receipt: Receipt | None = None,
    progress: Progress | None = None,
    on_event: Callable[[PartitionPlan, WriteEvent], None] | None = None,
    locks: Mapping[str, HeldLock] | None = None,
) -> RebuildResult:
    """Carries out ``plan``. A failure in one partition does not stop the others.

    Args:
        plan: from ``make_plan`` or ``load_plan``.
        run: its jobs, its engine and its deadline: a partition that is not done by then keeps what was written, and a finding lists
            what it lacks. None for a run as nothing else is asked for. The clock is that of the plan.
        dry_run: replay and judge, write nothing.
        receipt: lists what is written; None for no receipt.
        progress: called for every segment.
        on_event: takes the events about files in place of a receipt.
        locks: on log directories that the caller holds, by their paths; others are held here.

    Raises:
        RefusedError: the receipt would be among the files of a broker, or its name is taken; or a store would replace what is there.
        StorageError: the receipt cannot be written, or a store does not answer. Nothing was read or written.
    """
    run = run or Run()
    receipt = None if dry_run or not any(partition.boundaries for partition in plan.partitions) else receipt
    if receipt is not None:
        receipt.check_place()
        on_event = receipt.record
    if not dry_run:
        _prepare_writes(plan)
    results = [PartitionResult(partition) for partition in plan.partitions]
    destination, done = plan.request.destination, _Done()
    # The writers end before the locks are released, also when an interrupt ends the run: nothing is written without the lock.
    with contextlib.ExitStack() as held, ThreadPool(WRITERS, thread_name_prefix="writer") as writers:
        locks_of = _Locks(held, locks or {}, needed=destination.locks_log_dirs and not dry_run)
        request, listed = _with_run_id(plan.request), ListedDifferences()
        corrupt: dict[str, set[int | None]] = {}
        for finding in plan.findings:
            if finding.code == "corrupt-snapshot":
                corrupt.setdefault(finding.path, set()).add(finding.offset)

        def task_of(place: int) -> RebuildTask | None:
            result = results[place]
            second_names = _second_names(result.plan) if destination.writes_into_log_dirs and not dry_run else []
            if not result.plan.boundaries and not second_names:
                return None
            try:
                lock = locks_of.of(result)
            except (RefusedError, WriteFailedError) as error:
                if result.plan.boundaries:
                    _refuse(result, error)
                return None
            if lock is not None:
                for offset in second_names:
                    remove_other_name(result, offset)
            if not result.plan.boundaries:
                return None
            reported = frozenset(corrupt.get(result.path, ()))
            report = None if on_event is None or dry_run else partial(on_event, result.plan)
            job = RebuildJob(result.plan, request, plan.clock, dry_run, reported, report, run.deadline)
            return RebuildTask(job, result, writers, partial(listed.add, place), lock=lock, progress=progress)

        def read(due: Sequence[int]) -> list[int]:
            tasks = {place: task for place in due if (task := task_of(place)) is not None}
            run_tasks(list(tasks.values()), run)
            return [place for place, task in tasks.items() if task.outcome.lost_file]

        def begin_again(place: int) -> bool:
            old = results[place]
            results[place] = _restarted(plan, old, run)
            if not destination.installed_later:  # an install takes only what depends on segments that are there
                _keep_done(done, place, old, results[place].plan)
            return True

        try:
            read_in_rounds(range(len(results)), read, begin_again)
        finally:
            writers.shutdown(cancel_futures=True)
    _merge_done(results, done)
    plan = replace(plan, partitions=tuple(result.plan for result in results))
    return RebuildResult(plan, tuple(results), dry_run, *_ended(receipt))


_Done = dict[int, list[tuple[BoundaryPlan, BoundaryResult]]]
"""By place of the partition: boundaries that were done before a broker deleted the segments that they depend on. Each was right then."""


def _keep_done(done: _Done, place: int, result: PartitionResult, planned: PartitionPlan) -> None:
    """Keeps what was done, and is not in the new plan of the partition."""
    again = {boundary.offset for boundary in planned.boundaries}
    by_offset = {boundary.offset: boundary for boundary in result.plan.boundaries}
    kept = [each for each in result.boundaries if each.action not in NOT_DONE and each.offset not in again]
    done.setdefault(place, []).extend((by_offset[each.offset], each) for each in kept)


def _merge_done(results: Sequence[PartitionResult], done: _Done) -> None:
    """Puts what was kept into the final results."""
    for place, kept in done.items():
        result = results[place]
        result.outcome.boundaries = sorted((*(each for _, each in kept), *result.boundaries), key=lambda each: each.offset)
        planned = sorted((*(each for each, _ in kept), *result.plan.boundaries), key=lambda each: each.offset)
        result.plan = replace(result.plan, boundaries=tuple(planned))


def _restarted(plan: Plan, old: PartitionResult, run: Run) -> PartitionResult:
    """An empty result for a partition whose broker deleted a segment, planned with a new listing."""
    planned, findings = replan_partition(plan, old.plan, run)
    # What could not be written is not forgotten.
    storage = [finding for finding in old.findings if finding.severity is Severity.STORAGE]
    return PartitionResult(planned, RebuildOutcome([*storage, *(each for each in findings if each not in plan.findings)]))


def _with_run_id(request: Request) -> Request:
    """The request with an id of the run, which is stored as metadata of the objects that it makes."""
    settings = request.s3
    return request if settings.run else replace(request, s3=dataclasses.replace(settings, run=secrets.token_hex(8)))


def _prepare_writes(plan: Plan) -> None:
    """Checks each place once, before anything is read or written, that existing files cannot be replaced there."""
    log_dirs = sorted({partition.source.log_dir.path for partition in plan.partitions if partition.boundaries})
    plan.request.destination.prepare_writes(log_dirs, plan.request.s3)


def _ended(receipt: Receipt | None) -> tuple[str | None, tuple[Finding, ...]]:
    """The path of the receipt, if there was anything to write, and what went wrong with its last line."""
    if receipt is None or not receipt.is_there:
        return None, ()
    try:
        receipt.close()
    except WriteFailedError as error:
        return receipt.path, (finding_of_error(error, receipt.path),)
    return receipt.path, ()


class _Locks:
    """Holds each log directory once while it is written to, so that no broker starts on it."""

    def __init__(self, stack: contextlib.ExitStack, held: Mapping[str, HeldLock], *, needed: bool) -> None:
        self._stack = stack
        self._needed = needed
        self._held: dict[str, HeldLock | RefusedError | WriteFailedError] = {**held}

    def of(self, result: PartitionResult) -> HeldLock | None:
        log_dir = result.plan.source.log_dir
        if not self._needed or not log_dir.is_broker_directory:
            return None
        if not log_dir.store.is_local:  # no broker works on objects
            _check_unchanged(result.plan)
            return None
        if log_dir.path not in self._held:
            try:
                self._held[log_dir.path] = self._stack.enter_context(hold(log_dir.path))
            except (RefusedError, WriteFailedError) as error:
                self._held[log_dir.path] = error
        held = self._held[log_dir.path]
        if not isinstance(held, HeldLock):
            raise held
        _check_unchanged(result.plan)
        return held


def _check_unchanged(plan: PartitionPlan) -> None:
    """A broker may have run between the plan and the lock.

    Raises:
        RefusedError: the partition, or the state that its broker recorded, is not what was planned for.
    """
    directory, state = plan.source.directory, plan.source.log_dir
    if replace(read_log_dir(state.path, state.store), faults=()) != replace(state, faults=()):
        raise RefusedError("the broker's files changed since the plan was made: plan again", path=state.path)
    now = listed_again(directory)
    if (now.segments, now.snapshots) != (directory.segments, directory.snapshots):
        raise RefusedError("segments or snapshots changed since the plan was made: plan again", path=directory.path)


def _second_names(plan: PartitionPlan) -> list[int]:
    """Offsets of snapshots that seem to have their temporary name as well: a run was killed between link and unlink."""
    directory = plan.source.directory
    found: list[int] = []
    if not directory.store.is_local:
        return found
    for name in directory.temporary:
        known = parse_file_name(name)
        assert known is not None
        assert known.offset is not None
        snapshot = directory.snapshot_at(known.offset)
        with contextlib.suppress(OSError):
            if snapshot is not None and os.lstat(directory.file_path(name)).st_ino == snapshot.identity.inode:
                found.append(known.offset)
    return found


def _refuse(result: PartitionResult, error: SnaprebuildError) -> None:
    if is_denied(error, result.plan.source.log_dir.path):
        boundaries = result.plan.boundaries
        owner = owner_of_snapshot(result.plan, boundaries[0].offset) if boundaries else None
        result.findings.append(denied_finding(result.plan.source.log_dir.path, len(boundaries), owner))
    else:
        result.findings.append(finding_of_error(error, result.path))
    action = REFUSED if isinstance(error, RefusedError) else FAILED
    result.outcome.boundaries = [unfinished(wanted, action, str(error)) for wanted in result.plan.boundaries]
