"""One run that writes snapshots, of ``rebuild``, ``stage`` or ``install``: its locks, its receipt, its writers, and its results.

The snapshot of a wanted boundary is linked if it is ready, that is if it was staged and is still valid. Else the boundary is replayed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType

from msgspec.structs import replace

from formats.errors import FormatError
from formats.partition.file_names import parse_file_name
from snaprebuild.errors import RefusedError, SnaprebuildError, WriteFailedError
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error
from snaprebuild.snapshots.destination.boundary_result import NOT_DONE
from snaprebuild.snapshots.destination.link_writer import LinkWriter
from snaprebuild.snapshots.destination.rebuilt_snapshot import remove_other_name
from snaprebuild.snapshots.engine.crosscheck import ListedDifferences
from snaprebuild.snapshots.engine.partition_task import Progress, ProgressStoppedError
from snaprebuild.snapshots.engine.schedule import run_tasks
from snaprebuild.snapshots.plan.plan_model import Blocked, BoundaryPlan, PartitionPlan, Plan
from snaprebuild.snapshots.plan.planner import replan_partition
from snaprebuild.snapshots.plan.start_gate import fate_against_writing
from snaprebuild.snapshots.rebuild.preflight import blocked_by, with_preflight
from snaprebuild.snapshots.rebuild.rebuild_result import PartitionResult, RebuildOutcome, RebuildResult
from snaprebuild.snapshots.rebuild.task import WRITERS, DriverReport, RebuildJob, RebuildTask
from snaprebuild.snapshots.receipts.receipt import Receipt
from snaprebuild.snapshots.receipts.receipt_lines import WriteEvent
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.second_look import read_in_rounds
from snaprebuild.snapshots.source.source import Source
from snaprebuild.storage.local.broker_lock import HeldLock, hold
from snaprebuild.storage.log_dir import listed_again, read_log_dir
from snaprebuild.storage.thread_pool import ThreadPool, serial_map

__all__ = [
    "RebuildRun",
    "RunLocks",
    "rebuild",
]


class RunLocks:
    """Holds each log directory once while it is written to, so that no broker starts on it."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        """Holds nothing yet; the locks are released with ``stack``."""
        self._stack = stack
        self._held: dict[str, HeldLock | RefusedError | WriteFailedError] = {}

    def hold(self, log_dir: str) -> HeldLock:
        """The lock of a log directory. A failure is remembered, and raised again.

        Raises:
            RefusedError: a broker, or another run, holds it, or that is not known.
            WriteFailedError: nothing can be written there.
        """
        if log_dir not in self._held:
            try:
                self._held[log_dir] = self._stack.enter_context(hold(log_dir))
            except (RefusedError, WriteFailedError) as error:
                self._held[log_dir] = error
        lock = self._held[log_dir]
        if not isinstance(lock, HeldLock):
            raise lock
        return lock

    def is_held(self, log_dir: str) -> bool:
        """Whether this run holds the lock of a log directory: no broker runs on it then."""
        return isinstance(self._held.get(log_dir), HeldLock)

    def hold_for(self, plan: PartitionPlan) -> HeldLock | None:
        """The lock for a partition that is replayed; None where no broker can be at work. The partition must be what was planned for.

        Raises:
            RefusedError, WriteFailedError: as ``hold``; or the partition has changed since it was planned.
        """
        log_dir = plan.source.log_dir
        if not log_dir.is_broker_directory:
            return None
        lock = self.hold(log_dir.path) if log_dir.store.is_local else None  # no broker works on objects
        if plan.source.is_broker_running:
            raise RefusedError("a broker ran here when the plan was made: plan again", path=log_dir.path)
        _check_unchanged(plan)
        return lock


def _check_unchanged(plan: PartitionPlan) -> None:
    """A broker may have run between the plan and the lock.

    Raises:
        RefusedError: the partition, or the state that its broker recorded, is not what was planned for.
    """
    directory = plan.source.directory
    state = plan.source.log_dir
    if replace(read_log_dir(state.place), faults=()) != replace(state, faults=()):
        raise RefusedError("the broker's files changed since the plan was made: plan again", path=state.path)
    now = listed_again(directory)
    if (now.segments, now.snapshots) != (directory.segments, directory.snapshots):
        raise RefusedError("segments or snapshots changed since the plan was made: plan again", path=directory.path)


class RebuildRun:
    """A run. It is a context: the writers end before the locks are released, also when an interrupt ends the run.

    Attributes:
        dry_run: nothing is written, and no lock is taken.
        locks: on the log directories that are written to.
        on_event: takes the events about files; None for nothing that does.
        receipt: whose ``record`` that is; None without a receipt.
        run, progress: as of ``rebuild``.
        phase_seconds: of the phases so far, by their names.
    """

    def __init__(
        self,
        run: Run,
        *,
        receipt: Receipt | None = None,
        on_event: Callable[[PartitionPlan, WriteEvent], None] | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Takes what all partitions have in common; see ``rebuild``.

        Args:
            run: its jobs, its engine and its deadline.
            receipt: lists what is written; its place was checked. None for no receipt.
            on_event: takes the events about files in place of a receipt.
            dry_run: replay and judge, write nothing.
            progress: called for every segment.
        """
        self.dry_run = dry_run
        self.phase_seconds: dict[str, float] = {}
        self.receipt = receipt
        self.on_event = on_event if receipt is None else receipt.record
        self.run = run
        self.progress = progress
        self._stack = contextlib.ExitStack()
        self.locks = RunLocks(self._stack)

    def __enter__(self) -> RebuildRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        try:
            if isinstance(error, ProgressStoppedError):
                self._close_receipt()  # every writer has ended: the run was not killed
            elif error is not None and self.receipt is not None:
                self.receipt.abandon()
        finally:
            self._stack.__exit__(kind, error, where)

    @contextlib.contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Adds the time that its body takes to a phase."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.phase_seconds[phase] = self.phase_seconds.get(phase, 0.0) + time.perf_counter() - began

    def take_ready(self, results: Sequence[PartitionResult]) -> None:
        """Gives the ready snapshots of some partitions their names, and adds their boundaries to the results.

        Args:
            results: of the partitions; the log directories of those with something to link are held.
        """
        waiting = [each for each in results if each.plan.ready]
        for result in waiting:
            if not result.plan.boundaries:
                result.outcome.replay_index = result.plan.replay_index
                result.outcome.replay_reason = result.plan.replay_reason
        if waiting:
            with ThreadPool(WRITERS, thread_name_prefix="sync") as threads:
                LinkWriter(self.locks.hold, self.receipt, threads, self.timed, dry_run=self.dry_run).write(waiting)

    def replay(self, plan: Plan, results: list[PartitionResult], *, only_planned: bool = False) -> None:
        """Replays the other boundaries of the partitions and writes their snapshots. A failure in one partition does not stop the others.

        Args:
            plan: with the request and the clock; plans a partition again whose broker deleted a file of it.
            results: one for each partition, with its plan. A partition that was planned again gets a new one.
            only_planned: a partition that is planned again gets no boundaries that it had not before: the caller settles the others.

        Raises:
            RefusedError: a store would replace what is there.
            StorageError: a store does not answer. Nothing was read or written.
        """
        if not self.dry_run:
            _prepare_writes(plan, results)
        with ThreadPool(WRITERS, thread_name_prefix="writer") as writers:
            replays = _Replays(self, plan, results, writers, only_planned=only_planned)
            try:
                read_in_rounds(range(len(results)), replays.read, replays.begin_again)
            finally:
                writers.shutdown(cancel_futures=True)
        replays.add_done_to_plans()

    def ended(self, plan: Plan, results: Sequence[PartitionResult]) -> RebuildResult:
        """Ends the receipt. Must be called with the locks held, after the last file.

        Args:
            plan: that was carried out; its partitions are those of the results.
            results: of all partitions.
        """
        for each in results:
            each.outcome.sort()
        plan = replace(plan, partitions=tuple(each.plan for each in results))
        receipt, findings = self._close_receipt()
        return RebuildResult(plan, tuple(results), self.dry_run, receipt, findings, phase_seconds=self.phase_seconds)

    def _close_receipt(self) -> tuple[str | None, tuple[Finding, ...]]:
        """The path of the receipt, if there was anything to write, and what went wrong with its last line."""
        receipt = self.receipt
        if receipt is None or not receipt.is_there:
            return None, ()
        try:
            receipt.close()
        except SnaprebuildError as error:
            return receipt.path, (finding_of_error(error, receipt.path),)
        return (receipt.path if receipt.is_there else None), ()


class _Replays:
    """The replays of a run, in rounds: a partition whose broker deleted a file of the listing is planned and read again."""

    def __init__(
        self, run: RebuildRun, plan: Plan, results: list[PartitionResult], writers: ThreadPool, *, only_planned: bool
    ) -> None:
        self._run = run
        self._plan = plan
        self._results = results
        self._writers = writers
        self._only_planned = only_planned
        self._destination = plan.request.destination
        self._holds_locks = plan.request.destination.locks_log_dirs and not run.dry_run
        self._request = replace(plan.request, s3=plan.request.s3.for_run())
        self._listed = ListedDifferences()
        self._done: dict[int, list[BoundaryPlan]] = {}
        self._left_over: dict[str, list[int]] = {}
        if self._destination.writes_into_log_dirs and not run.dry_run:
            self._left_over = _second_names_to_remove(plan, [each.plan for each in results], run)
        self._corrupt: dict[str, set[int | None]] = {}
        for finding in plan.findings:
            if finding.cause is FindingCause.CORRUPT_SNAPSHOT:
                self._corrupt.setdefault(finding.path, set()).add(finding.offset)

    def read(self, due: Sequence[int]) -> list[int]:
        """Replays the partitions of some places. Returns the places whose broker deleted a file meanwhile."""
        tasks = {place: task for place in due if (task := self._task_of(place)) is not None}
        run_tasks(list(tasks.values()), self._run.run)
        return [place for place, task in tasks.items() if task.outcome.lost_file]

    def _task_of(self, place: int) -> RebuildTask | None:
        result = self._results[place]
        second_names = self._left_over.get(result.path, [])
        if result.plan.blocked is not None:
            _give_up(result, result.plan.blocked)
            return None
        if not result.plan.boundaries and not second_names:
            return None
        lock: HeldLock | None = None
        try:
            if self._holds_locks:
                lock = self._run.locks.hold_for(result.plan)
        except (RefusedError, WriteFailedError) as error:
            if result.plan.boundaries:
                log_dir = result.plan.source.log_dir.path
                _give_up(result, blocked_by(result.plan, error, log_dir))
            return None
        if lock is not None:
            for offset in second_names:
                remove_other_name(result, offset)
        if not result.plan.boundaries:
            return None
        run = self._run
        listed = partial(self._listed.add, place)
        corrupt = frozenset(self._corrupt.get(result.path, ()))
        if run.on_event is None or run.dry_run:
            report = None
        else:
            report = DriverReport(result.plan, run.on_event, run.receipt)
        job = RebuildJob(
            plan=result.plan,
            request=self._request,
            clock=self._plan.clock,
            dry_run=run.dry_run,
            reported_corrupt=corrupt,
            report=report,
            deadline=run.run.deadline,
        )
        return RebuildTask(job, result, self._writers, listed, lock=lock, progress=run.progress)

    def begin_again(self, place: int) -> bool:
        """Plans a partition again. The new result keeps what was done: each boundary was right then. Returns that it is replayed again."""
        old = self._results[place]
        planned, findings = replan_partition(self._plan, old.plan, self._run.run, holds_locks=self._holds_locks)
        # What could not be written is not forgotten.
        storage = [each for each in old.findings if each.severity is Severity.STORAGE]
        outcome = RebuildOutcome([*storage, *(each for each in findings if each not in self._plan.findings)])
        if self._only_planned:
            offsets = {each.offset for each in old.plan.boundaries}
            planned = replace(planned, boundaries=tuple(each for each in planned.boundaries if each.offset in offsets))
        if not self._destination.installed_later:  # an install takes only what depends on segments that are there
            again = {boundary.offset for boundary in planned.boundaries}
            outcome.boundaries = [each for each in old.boundaries if each.action not in NOT_DONE and each.offset not in again]
            done = {each.offset for each in outcome.boundaries}
            earlier = (*self._done.get(place, ()), *old.plan.boundaries)
            self._done[place] = [each for each in earlier if each.offset in done]
        self._results[place] = PartitionResult(planned, outcome)
        return True

    def add_done_to_plans(self) -> None:
        """Puts what was done before a partition was planned again into its last plan."""
        for place, done in self._done.items():
            result = self._results[place]
            boundaries = sorted((*done, *result.plan.boundaries), key=lambda each: each.offset)
            result.plan = replace(result.plan, boundaries=tuple(boundaries))


def _prepare_writes(plan: Plan, results: Sequence[PartitionResult]) -> None:
    """Checks each place once, before anything is read or written, that existing files cannot be replaced there."""
    writing = [each.plan for each in results if each.plan.boundaries and each.plan.blocked is None]
    log_dirs = sorted({each.source.log_dir.path for each in writing})
    plan.request.destination.prepare_writes(log_dirs, plan.request.s3)


def _second_names_to_remove(plan: Plan, partitions: Sequence[PartitionPlan], run: RebuildRun) -> dict[str, list[int]]:
    """Offsets of the left-over names of each partition, by path. One that the gate refuses keeps them: nothing there is touched.

    The gate judges partitions that something would be written into; those that lack nothing are judged here, also by their next start.
    """
    offsets_by_path = {}
    for each in partitions:
        if _may_be_touched(each) and fate_against_writing(each.source, plan.fates) is None:
            offsets = _second_names(each)
            if offsets:
                offsets_by_path[each.path] = offsets
    unjudged = [each for each in partitions if each.path in offsets_by_path and each.verdict is None and not each.boundaries]
    locked = [each for each in unjudged if run.locks.is_held(each.source.log_dir.path)]
    judged = _judged_now(plan, locked, run.run, holds_locks=True)
    judged |= _judged_now(plan, [each for each in unjudged if each not in locked], run.run, holds_locks=False)
    for each in unjudged:
        verdict = judged.get(each.path)
        if verdict is None or not _may_be_touched(verdict):
            del offsets_by_path[each.path]
    return offsets_by_path


def _judged_now(plan: Plan, partitions: Sequence[PartitionPlan], run: Run, *, holds_locks: bool) -> dict[str, PartitionPlan]:
    """The verdicts of the gate by path; none if it cannot judge. Our own lock on a log directory is no sign of a broker."""
    if not partitions:
        return {}
    try:
        properties = run.facts.properties_if_given(plan.request.server_properties)
        source = Source(tuple(each.source for each in partitions), (), None, properties, facts=run.facts)
        return plan.gate(partitions, plan.request, source, plan.findings, serial_map, run, holds_locks=holds_locks)[0]
    except (SnaprebuildError, FormatError):
        return {}


def _may_be_touched(plan: PartitionPlan) -> bool:
    """Whether nothing keeps a partition out of the run: neither a fault, nor the verdict on its replica, nor its next start."""
    if plan.fault is not None or plan.fate is not None or plan.keeps_files is not None:
        return False
    return plan.verdict is None or plan.verdict.in_place_refusal(plan.path) is None


def _second_names(plan: PartitionPlan) -> list[int]:
    """Offsets of snapshots that seem to have their temporary name as well: a run was killed between link and unlink."""
    directory = plan.source.directory
    offsets: list[int] = []
    if not directory.store.is_local:
        return offsets
    for name in directory.temporary:
        file_name = parse_file_name(name)
        assert file_name is not None
        assert file_name.offset is not None
        snapshot = directory.snapshot_at(file_name.offset)
        with contextlib.suppress(OSError):
            if snapshot is not None and os.lstat(directory.file_path(name)).st_ino == snapshot.identity.inode:
                offsets.append(file_name.offset)
    return offsets


def _give_up(result: PartitionResult, blocked: Blocked) -> None:
    """Nothing of a partition is replayed."""
    result.findings.append(blocked.finding)
    for boundary in result.plan.boundaries:
        result.give_up(boundary, blocked.text, blocked.action)


def rebuild(
    plan: Plan,
    run: Run | None = None,
    *,
    dry_run: bool = False,
    receipt: Receipt | None = None,
    progress: Progress | None = None,
    on_event: Callable[[PartitionPlan, WriteEvent], None] | None = None,
    is_rehearsal: bool = False,
) -> RebuildResult:
    """Carries out ``plan``. A failure in one partition does not stop the others.

    Args:
        plan: from ``make_plan`` or ``load_plan``.
        run: its jobs, its engine and its deadline: a partition that is not done by then keeps what was written, and a finding lists
            what it lacks. None for a run as nothing else is asked for. The clock is that of the plan.
        dry_run: replay and judge, write nothing.
        receipt: lists what is written; None for no receipt. A dry run checks its place.
        progress: called for every segment.
        on_event: takes the events about files in place of a receipt.
        is_rehearsal: of a dry run: a broker may hold the log directories now, and is stopped before the run.

    Raises:
        RefusedError: the receipt would be among the files of a broker, or its name is taken; or a store would replace what is there.
        StorageError: the receipt cannot be written, or a store does not answer. Nothing was read or written.
    """
    run = run or Run()
    if not any(partition.boundaries for partition in plan.partitions):
        receipt = None
    if receipt is not None:
        receipt.check_place()
    if dry_run:
        receipt = None
    plan = with_preflight(plan, is_rehearsal=is_rehearsal)
    with RebuildRun(run, receipt=receipt, on_event=on_event, dry_run=dry_run, progress=progress) as writing:
        results = [PartitionResult(partition) for partition in plan.partitions]
        writing.take_ready(results)
        writing.replay(plan, results)
        return writing.ended(plan, results)
