"""Rebuilds one partition: replays it, compares what is there, and hands each wanted snapshot to its writer."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from formats.errors import FormatError
from formats.partition.producer_snapshot import write_entries
from snaprebuild.errors import (
    AlreadyExistsError,
    ChangedFileError,
    DeadlinePassedError,
    ReadFailedError,
    SnaprebuildError,
    StorageError,
)
from snaprebuild.findings import FindingCause, Severity, finding_of_error, in_flux, pluralize
from snaprebuild.replay.difference import Comparison, ComparisonStatus, impossible_entries
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.window import Clock, expired_mask
from snaprebuild.snapshots.destination.boundary_result import BoundaryAction, BoundaryResult, unfinished
from snaprebuild.snapshots.destination.rebuilt_snapshot import RebuiltSnapshot, Report, owner_of_snapshot
from snaprebuild.snapshots.destination.snapshot_writers import WriterSettings, moved_aside
from snaprebuild.snapshots.engine.crosscheck import LaterProducers, ListedDifferences
from snaprebuild.snapshots.engine.partition_replay import BoundaryState, PartitionReplay, ReplayFrom, source_replay
from snaprebuild.snapshots.engine.partition_task import Job, Progress, ReplayTask
from snaprebuild.snapshots.engine.segment_reader import ReadTask, read_tasks
from snaprebuild.snapshots.plan.plan_model import BoundaryPlan, PartitionPlan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild.preflight import denied_finding, is_denied
from snaprebuild.snapshots.rebuild.rebuild_result import PartitionResult, RebuildOutcome
from snaprebuild.snapshots.receipts.receipt_lines import WriteEvent, WriteSettled
from snaprebuild.snapshots.receipts.receipt_parts import EventList, PartReport
from snaprebuild.storage.local.broker_lock import HeldLock
from snaprebuild.storage.local.fingerprint import Fingerprint, fingerprint_at
from snaprebuild.storage.partition_dir import ListedFile
from snaprebuild.storage.store import ReadStore
from snaprebuild.storage.store_path import path_of
from snaprebuild.storage.thread_pool import ThreadPool

if TYPE_CHECKING:
    from snaprebuild.snapshots.receipts.receipt import Receipt

__all__ = ["WRITERS", "DriverReport", "RebuildJob", "RebuildTask"]

WRITERS = 8
"""Files written at once. Each waits for two syncs, so that one after the other would leave the device idle most of the time."""

PENDING_MAX = 4 * WRITERS
PENDING_BYTES_MAX = 128 << 20
"""Snapshots of one partition that wait to be written, and their entries: 46 MB where there are a million producers."""


@dataclass(frozen=True, slots=True)
class DriverReport:
    """Takes the events about the files of a partition in the process that leads the run.

    Attributes:
        partition: that is written to.
        on_event: takes the partition and an event.
        receipt: whose ``record`` that is; None without a receipt.
    """

    partition: PartitionPlan
    on_event: Callable[[PartitionPlan, WriteEvent], None]
    receipt: Receipt | None

    def __call__(self, event: WriteEvent) -> None:
        """Takes an event. Raises as ``on_event``."""
        self.on_event(self.partition, event)

    def elsewhere(self, objects_run: str) -> Report:
        """The receiver of the events of a task in another process; it can be pickled.

        Args:
            objects_run: what the objects of the run have in their metadata.

        Raises:
            WriteFailedError, RefusedError: the receipt cannot be written, so that no file may be.
        """
        if self.receipt is None:
            return EventList()
        return self.receipt.report_elsewhere(self.partition, objects_run)

    def take_events(self, events: Sequence[WriteEvent]) -> None:
        """Takes the events that returned with the outcome of a task. Raises as ``on_event``."""
        if self.receipt is not None:
            self.receipt.take_events(self.partition, events)
            return
        for event in events:
            self(event)


@dataclass(frozen=True, slots=True)
class RebuildJob(Job):
    """One partition of a plan, as a value. The process that sends it holds the lock of the log directory.

    Attributes:
        reported_corrupt: offsets of snapshots that the plan has already reported to be corrupt.
        report: takes the events about files; None for no receipt.
        deadline: see ``rebuild``.
        earlier_ns: an earlier attempt, not before this moment (ns since 1970), may have written some files; None for the only attempt.
    """

    plan: PartitionPlan
    request: RebuildRequest
    clock: Clock
    dry_run: bool
    reported_corrupt: frozenset[int | None]
    report: Report | None
    deadline: float | None = None
    earlier_ns: int | None = None

    def replay(self) -> PartitionReplay:
        """The replay of the whole partition, not yet begun."""
        plan = self.plan
        request = self.request
        return source_replay(
            plan.source,
            self.clock,
            mode=ReplayFrom(request.replay_from),
            window_index=plan.window_index,
            stop_index=plan.stop_index,
            first_wanted=plan.boundaries[0].offset,
            known_end=plan.log_end_offset or 0,
            resume_from=plan.resumed,
            initial_state=plan.initial_state,
            begins_empty=request.begins_empty,
        )

    def read_tasks(self, indices: Sequence[int]) -> list[ReadTask]:
        """The tasks that read these segments."""
        return read_tasks(self.plan.source.directory, indices, check_crc=self.request.check_crc, deadline=self.deadline)

    @contextlib.contextmanager
    def started(self, replay: PartitionReplay | None = None, threads: ThreadPool | None = None) -> Iterator[RebuildTask]:
        """The task with an empty outcome, which writes to the destination of the plan."""
        with contextlib.ExitStack() as stack:
            writers = threads or stack.enter_context(ThreadPool(WRITERS, thread_name_prefix="writer"))
            yield RebuildTask(self, PartitionResult(self.plan), writers, partial(ListedDifferences().add, 0), replay)


class RebuildTask(ReplayTask):
    """One partition: its replay, its cross-checks, its files. The outcome may have boundaries that were done with an earlier listing."""

    lost_above_damage = "nothing above it can be rebuilt"
    outcome: RebuildOutcome

    def __init__(
        self,
        job: RebuildJob,
        result: PartitionResult,
        writers: ThreadPool,
        list_differences: Callable[[int, Comparison], None],
        replay: PartitionReplay | None = None,
        *,
        lock: HeldLock | None = None,
        progress: Progress | None = None,
    ) -> None:
        replay = job.replay() if replay is None else replay
        super().__init__(job.plan.source, result.outcome, job.read_tasks, replay, progress)
        self._job = job
        self._result = result
        self._writers = writers
        self._list_differences = list_differences
        self._request = job.request
        self._target = path_of(job.plan.target, job.request.s3)
        settings = WriterSettings(clock=job.clock, report=job.report, lock=lock, dry_run=job.dry_run)
        self._write_one = job.request.destination.writer(result, job.request, settings).write
        self._driver_report = job.report if isinstance(job.report, DriverReport) else None
        if isinstance(job.report, EventList):
            self.outcome.events = job.report.events
        self._wanted = {boundary.offset: boundary for boundary in job.plan.boundaries}
        self._pending: deque[tuple[Future[BoundaryResult], int]] = deque()
        self._pending_bytes = 0
        self._denied: list[int] = []
        self._later = LaterProducers(job.plan.source)
        self._started = time.perf_counter()

    def take_segment(self, index: int, summary: SegmentSummary) -> bool:
        """Takes a segment, or a piece of it. False when no more are needed."""
        self._later.take(summary)
        return super().take_segment(index, summary)

    def stores(self) -> tuple[ReadStore, ...]:
        """The stores that this task reads and writes."""
        return *super().stores(), self._target.store

    def job(self) -> RebuildJob:
        """This task for another process. Several attempts may follow one another."""
        report = None if self._driver_report is None else self._driver_report.elsewhere(self._request.s3.run)
        return dataclasses.replace(self._job, report=report, deadline=None, earlier_ns=time.time_ns())

    def adopt(self, outcome: RebuildOutcome) -> None:
        """Takes the outcome of the job. Findings and boundaries of an earlier listing stay."""
        if self._driver_report is not None:
            self._driver_report.take_events(outcome.events)
            outcome.events = []
        for boundary in outcome.boundaries:
            if boundary.comparison is not None:
                self._list_differences(boundary.offset, boundary.comparison)
        outcome.findings[:0] = self.outcome.findings
        outcome.boundaries[:0] = self.outcome.boundaries
        self._result.outcome = self.outcome = outcome

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        """Ends the partition with an error. Snapshots that were written stay."""
        failures = [error]
        while self._pending:
            try:
                self._collect()
            except (SnaprebuildError, FormatError) as another:
                failures.append(another)
        if isinstance(error, DeadlinePassedError):
            failures.remove(error)
            self._report_deadline(error)
        for each in failures:
            self.outcome.add_error(each, self.path)
        self.outcome.ended = self.outcome.ended or str(error)
        self._close()

    def _report_deadline(self, error: DeadlinePassedError) -> None:
        """One finding for all that is left, which may be a long list on a broker that had no time at all."""
        done = {boundary.offset for boundary in self.outcome.boundaries}
        left = [each for each in self._job.plan.boundaries if each.offset not in done]
        message = f"{error.message}: nothing is missing, but not every snapshot was compared"
        severity = Severity.NOTE
        cause = None
        if left:
            message = f"{error.message}: {pluralize(len(left), 'snapshot')} not rebuilt"
            severity = Severity.FINDING
            cause = FindingCause.DEADLINE_PASSED
        self._result.add_finding("deadline-passed", severity, message, left[0].offset if left else None, cause=cause)
        self.outcome.boundaries += [unfinished(each, BoundaryAction.SKIPPED, error.message) for each in left]

    def finish(self) -> None:
        """Waits for the writers when every segment was taken."""
        super().finish()
        while self._pending:
            self._collect()
        self._close()

    def _close(self) -> None:
        self.outcome.later_producers = self._later.taken()
        self.outcome.elapsed_seconds += time.perf_counter() - self._started
        if self._denied:
            owner = None
            if self._request.destination.is_for_broker:
                owner = owner_of_snapshot(self._job.plan, self._denied[0])
            self.outcome.findings.append(denied_finding(self._job.plan.target, len(self._denied), owner))

    def settle(self) -> None:
        """Reports the boundaries that the replay did not reach, and sorts everything by offset."""
        outcome = self.outcome
        done = {boundary.offset for boundary in self.outcome.boundaries}
        if self.replay.start_reason:
            outcome.replay_index = self.replay.start_index
            outcome.replay_reason = self.replay.start_reason
        else:
            outcome.replay_index, outcome.replay_reason = self.replay.start()
        reason = outcome.ended or "the replay did not reach this boundary: the log changed while it was read"
        action = BoundaryAction.FAILED
        if any(each.severity is Severity.REFUSED for each in outcome.findings):
            action = BoundaryAction.REFUSED
        elif outcome.lost_file:
            action = BoundaryAction.SKIPPED
        for planned in self._job.plan.boundaries:
            if planned.offset not in done:
                outcome.boundaries.append(unfinished(planned, action, reason))
                self._result.add_finding("boundary-not-reached", Severity.FINDING, reason, planned.offset)
        outcome.sort()

    # ---------------------------------------------------------------------------------------------------------- boundaries

    def boundary(self, state: BoundaryState) -> None:
        """Compares what is there, and writes what is wanted."""
        findings = self.outcome.findings
        differs = self.cross.transaction_index(state)
        if differs is not None:
            findings.append(differs)
        boundary = self._wanted.get(state.offset)
        comparison: Comparison | None = None
        aside = self._moved_aside(boundary)
        try:
            comparison = self.cross.snapshot(state, aside)
        except ChangedFileError as error:
            findings.append(in_flux(error, self.path, state.offset))
        except ReadFailedError as error:
            findings.append(replace(finding_of_error(error, str(error.path)), offset=state.offset))
            if boundary is not None:
                self.outcome.boundaries.append(self._rebuilt(boundary, state, None).not_written(str(error), BoundaryAction.FAILED))
            return
        if comparison is not None and comparison.proven_wrong and not (boundary and self._request.set_aside):
            self._report_wrong(state.offset, comparison)
        if boundary is not None:
            rebuilt = self._rebuilt(boundary, state, comparison)
            if aside is not None:
                rebuilt = replace(rebuilt, set_aside_name=aside.name)
            size_bytes = rebuilt.entries.nbytes
            while self._pending and (len(self._pending) >= PENDING_MAX or self._pending_bytes + size_bytes > PENDING_BYTES_MAX):
                self._collect()
            self._pending.append((self._writers.submit(self._write, rebuilt), size_bytes))
            self._pending_bytes += size_bytes

    def _moved_aside(self, boundary: BoundaryPlan | None) -> ListedFile | None:
        """The snapshot that is at a boundary, if an earlier attempt of this job has set it aside; else None."""
        may_be_moved = self._request.set_aside and self._job.earlier_ns is not None and not self._job.dry_run
        if boundary is None or not boundary.exists or not may_be_moved:
            return None
        return moved_aside(self.source.directory, boundary.offset)

    def _report_wrong(self, offset: int, comparison: Comparison) -> None:
        status = comparison.status
        if status is ComparisonStatus.CORRUPT and offset in self._job.reported_corrupt:
            return
        is_local = self.source.directory.store.is_local
        remedy = "--set-aside replaces it" if is_local else "objects are never replaced, also not by --set-aside"
        message = f"the snapshot is {status.value.replace('_', ' ')}: {comparison.reason}; {remedy}"
        self._result.add_finding(
            "wrong-snapshot", Severity.FINDING, message, offset, status.reason, cause=FindingCause.WRONG_SNAPSHOT
        )

    def _collect(self) -> None:
        """Takes the oldest file that is being written; an error of it is raised here."""
        future, size_bytes = self._pending.popleft()
        self._pending_bytes -= size_bytes
        result = future.result()
        if result.comparison is not None:
            self._list_differences(result.offset, result.comparison)
        self.outcome.boundaries.append(result)

    def _write(self, rebuilt: RebuiltSnapshot) -> BoundaryResult:
        """An I/O error skips this file; a refusal ends the partition."""
        offset = rebuilt.boundary.offset
        try:
            impossible = impossible_entries(rebuilt.entries, offset)
            if impossible is not None:
                message = f"the log leads to a state that no snapshot can hold: {impossible}"
                self._result.add_finding("impossible-state", Severity.DAMAGED, message, offset)
                return rebuilt.not_written(message, BoundaryAction.FAILED)
            result = self._write_one(rebuilt)
            return (self._written_earlier(rebuilt) or result) if result.action == BoundaryAction.EQUAL else result
        except AlreadyExistsError as error:
            if (earlier := self._written_earlier(rebuilt)) is not None:
                return earlier
            message = "a file of this name appeared while the snapshot was rebuilt (a broker may be at work here): not touched"
            self._result.add_finding("refused", Severity.REFUSED, message, offset)
            return rebuilt.not_written(str(error))
        except (StorageError, FormatError) as error:
            if is_denied(error, rebuilt.target.path):
                self._denied.append(offset)
            else:
                self.outcome.findings.append(replace(finding_of_error(error, rebuilt.target.path), offset=offset))
            return rebuilt.not_written(str(error), BoundaryAction.FAILED)

    def _written_earlier(self, rebuilt: RebuiltSnapshot) -> BoundaryResult | None:
        """The result for an existing file if an earlier attempt of this job wrote it; else None."""
        earlier_ns = self._job.earlier_ns
        report = self._job.report
        aside = rebuilt.set_aside_name
        is_in_place = self._request.destination.writes_into_log_dirs
        was_there = is_in_place and aside is None and rebuilt.existing_comparison is not None
        if earlier_ns is None or self._job.dry_run or was_there:
            return None
        data = write_entries(rebuilt.entries)
        with contextlib.suppress(ReadFailedError):
            if rebuilt.file.read_small(len(data)) != data:
                return None
            if isinstance(report, PartReport) and not is_in_place:
                earlier_ns = report.place.begun_ns()  # a server of files may have another clock than the driver
            if not rebuilt.file.was_written_since(earlier_ns):
                return None
            fingerprint = fingerprint_at(rebuilt.path) if rebuilt.file.is_local else Fingerprint.of(data, 0)
            if report is not None:
                report(rebuilt.announcement(fingerprint))
                report(WriteSettled(rebuilt.boundary.offset))
            comparison = None if aside is None else rebuilt.existing_comparison
            return rebuilt.result(BoundaryAction.WRITTEN, aside=aside, comparison=comparison)
        return None

    def _rebuilt(self, boundary: BoundaryPlan, state: BoundaryState, comparison: Comparison | None) -> RebuiltSnapshot:
        """With --drop-expired the entries that a load at as-of drops are removed; the replay itself keeps them."""
        entries = state.entries
        judgement = state.judgement
        if self._request.drop_expired:
            expired = expired_mask(entries, self.replay.clock.as_of_ms, self.replay.clock.expiration_ms)
            entries = entries[~expired]
            if expired.any() and judgement.snapshot_class.is_allowed_in_place:
                reason = f"{int(expired.sum())} expired entries were dropped as asked"
                judgement = judgement.as_load_equivalent(reason)
        return RebuiltSnapshot(boundary, self._target, entries, judgement, comparison)
