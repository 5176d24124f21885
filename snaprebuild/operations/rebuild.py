"""Carries a plan out: replays, and gives each missing snapshot its name once it is whole, read back and checked."""

from __future__ import annotations

import bisect
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from formats.errors import FormatError
from formats.file_names import snapshot_file_name, snapshot_temporary_file_name
from formats.producer_snapshot import read_entries, write_entries
from snaprebuild.errors import AlreadyExistsError, ReadFailedError, RefusedError, SnaprebuildError, StorageError, WriteFailedError
from snaprebuild.operations.crosscheck import CrossCheck, bad_checksum_finding, disorder_finding
from snaprebuild.operations.findings import Finding, Severity, finding_of_error
from snaprebuild.operations.plan import (
    CLEANER_UNKNOWN,
    END_BELOW_RECOVERY_POINT,
    IRREGULAR_NAME,
    NO_BROKER_FILES,
    BoundaryPlan,
    PartitionPlan,
    Plan,
    not_due_in_place,
)
from snaprebuild.operations.replay_partition import BoundaryState, PartitionReplay, ReplayFrom
from snaprebuild.operations.schedule import ReadTask, Work, run
from snaprebuild.operations.segment_tasks import read_tasks
from snaprebuild.replay.classes import Judgement, SnapshotClass
from snaprebuild.replay.difference import Comparison, SnapshotStatus, impossible_entries
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.window import expired_mask, same_when_loaded
from snaprebuild.storage.atomic_file import Ownership, aside_name, create_file, set_aside
from snaprebuild.storage.broker_lock import HeldLock, hold
from snaprebuild.storage.log_dir import read_log_dir, read_small_file
from snaprebuild.storage.partition_dir import list_partition_dir

__all__ = ["BoundaryResult", "PartitionResult", "RebuildResult", "rebuild"]

log = logging.getLogger(__name__)

WRITERS = 8
"""Files written at once. Each waits for two syncs, so that one after the other would leave the device idle most of the time."""

PENDING_MAX = 4 * WRITERS
"""Snapshots of one partition that wait to be written: states are large where producers are many."""

ASIDE_NUMBERS_MAX = 100
"""Snapshots of one offset that are set aside side by side."""

WRITTEN, EQUAL, KEPT, LEFT_OUT, WOULD_WRITE = "written", "equal", "kept", "left_out", "would_write"


@dataclass(frozen=True, slots=True)
class BoundaryResult:
    """What became of one boundary.

    Attributes:
        offset: the boundary.
        is_log_end: it is the log end offset.
        action: ``written``, ``would_write`` (dry run), ``equal`` (is there already), ``kept`` (is there, differs, was not touched) or
            ``left_out``.
        snapshot_class: of the rebuilt snapshot, or None when it was not rebuilt; ``reasons`` say why.
        entries: count in the rebuilt snapshot, or None.
        path: of the snapshot, or None.
        set_aside: name that a wrong snapshot was moved to, or None.
        comparison: with a snapshot that was there, or None.
    """

    offset: int
    is_log_end: bool
    action: str
    snapshot_class: SnapshotClass | None
    reasons: tuple[str, ...]
    entries: int | None = None
    path: str | None = None
    set_aside: str | None = None
    comparison: Comparison | None = None


@dataclass(slots=True)
class PartitionResult:
    """What became of one partition.

    Attributes:
        plan: what was planned.
        boundaries: one result for each wanted boundary, ascending.
        findings: about this partition.
        bytes_read: of its segments.
        replay_index: segment where replay began in the end, and why.
        seconds: from the first segment taken to the last file written.
    """

    plan: PartitionPlan
    boundaries: list[BoundaryResult] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    bytes_read: int = 0
    replay_index: int = 0
    replay_reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RebuildResult:
    """What became of a plan."""

    plan: Plan
    partitions: tuple[PartitionResult, ...]
    is_dry_run: bool

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Those of the plan and of every partition."""
        return (*self.plan.findings, *(finding for partition in self.partitions for finding in partition.findings))


Progress = Callable[[PartitionResult, int], None]
"""Called with the partition and the bytes of a segment that was taken."""


def rebuild(plan: Plan, *, jobs: int | None = None, dry_run: bool = False, progress: Progress | None = None) -> RebuildResult:
    """Carries out ``plan``. A failure in one partition does not stop the others.

    Args:
        plan: from ``make_plan`` or ``load_plan``.
        jobs: worker processes, None for as many as processors.
        dry_run: replay and judge, write nothing.
        progress: told of every segment.
    """
    results = [PartitionResult(partition) for partition in plan.partitions]
    in_place = plan.request.out is None
    with contextlib.ExitStack() as stack:
        locks = _Locks(stack, needed=in_place and not dry_run)
        writers = stack.enter_context(ThreadPoolExecutor(WRITERS, thread_name_prefix="writer"))
        context = _Context(plan, writers, dry_run, progress, _told_corrupt(plan))
        works = []
        for result in results:
            _note_left_out(result)
            if not result.plan.boundaries:
                continue
            try:
                lock = locks.of(result)
            except (RefusedError, WriteFailedError) as error:
                _refuse(result, error)
                continue
            works.append(_RebuildWork(result, context, lock))
        run(works, jobs)
    return RebuildResult(plan, tuple(results), dry_run)


@dataclass(frozen=True, slots=True)
class _Context:
    """What all partitions of a run share."""

    plan: Plan
    writers: ThreadPoolExecutor
    dry_run: bool
    progress: Progress | None
    told_corrupt: set[tuple[str, int | None]]
    """Path and offset of the snapshots that the plan has already told to be corrupt."""


def _told_corrupt(plan: Plan) -> set[tuple[str, int | None]]:
    return {(finding.path, finding.offset) for finding in plan.findings if finding.code == "corrupt-snapshot"}


class _Locks:
    """Holds each log directory once while it is written to, so that no broker starts on it."""

    def __init__(self, stack: contextlib.ExitStack, *, needed: bool) -> None:
        self._stack = stack
        self._needed = needed
        self._held: dict[str, HeldLock | RefusedError | WriteFailedError] = {}

    def of(self, result: PartitionResult) -> HeldLock | None:
        log_dir = result.plan.source.log_dir
        if not log_dir.is_broker_directory:
            return None
        if not self._needed:
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
    """A broker may have been at work between the plan and the lock.

    Raises:
        RefusedError: the partition, or what its broker says of it, is not what was planned for.
    """
    directory, state = plan.source.directory, plan.source.log_dir
    if replace(read_log_dir(state.path), faults=()) != replace(state, faults=()):
        raise RefusedError("the broker's files changed since the plan was made: plan again", path=state.path)
    now = list_partition_dir(directory.path, directory.name)
    if (now.segments, now.snapshots) != (directory.segments, directory.snapshots):
        raise RefusedError("segments or snapshots changed since the plan was made: plan again", path=directory.path)


def _note_left_out(result: PartitionResult) -> None:
    path = result.plan.source.directory.path
    for offset, reason in result.plan.left_out:
        # What a broker does not need, or makes itself, is nobody's business; what it needs and we may not write is.
        unknown = reason in (NO_BROKER_FILES, CLEANER_UNKNOWN, END_BELOW_RECOVERY_POINT, IRREGULAR_NAME)
        code, severity = ("not-known-to-be-due", Severity.FINDING) if unknown else ("not-due", Severity.NOTE)
        result.findings.append(Finding(code, severity, path, reason, offset))


def _refuse(result: PartitionResult, error: SnaprebuildError) -> None:
    result.findings.append(finding_of_error(error, result.plan.source.directory.path))
    result.boundaries = [
        BoundaryResult(wanted.offset, wanted.is_log_end, LEFT_OUT, None, (str(error),)) for wanted in result.plan.boundaries
    ]


class _RebuildWork(Work):
    """One partition: its replay, its cross-checks, its files."""

    def __init__(self, result: PartitionResult, context: _Context, lock: HeldLock | None) -> None:
        plan = result.plan
        self.device = plan.source.directory.device
        self._result = result
        self._request = context.plan.request
        self._clock = context.plan.clock
        self._lock = lock
        self._dry_run = context.dry_run
        self._progress = context.progress
        self._writers = context.writers
        self._wanted = {boundary.offset: boundary for boundary in plan.boundaries}
        self._told_corrupt = context.told_corrupt
        self._pending: deque[Future[BoundaryResult]] = deque()
        self._cross = CrossCheck(plan.source, self._clock)
        self._replay = PartitionReplay(
            plan.source.directory,
            ReplayFrom(self._request.replay_from),
            self._clock,
            plan.window_index,
            plan.stop_index,
            plan.boundaries[0].offset,
            plan.log_end_offset or 0,
        )
        self._order: list[int] = []
        self._taken = 0
        self._started: float | None = None

    # ---------------------------------------------------------------------------------------------------------- Work

    def tasks(self) -> list[ReadTask]:
        indices = self._replay.begin() if self._started is None else self._replay.more()
        self._started = self._started or time.perf_counter()
        self._order, self._taken = indices, 0
        return read_tasks(self._result.plan.source.directory, indices, check_crc=self._request.check_crc)

    def take(self, summary: SegmentSummary) -> bool:
        index = self._order[self._taken]
        self._taken += summary.cut_offset is None
        self._result.bytes_read += summary.bytes_read
        if summary.bad_crc_count:
            self._result.findings.append(bad_checksum_finding(self._result.plan.source, index, summary))
        if summary.disorder_offset is not None:
            self._result.findings.append(disorder_finding(self._result.plan.source, index, summary.disorder_offset))
        for state in self._replay.take(index, summary):
            self._boundary(state)
        if self._progress is not None:
            self._progress(self._result, summary.size_bytes)
        return self._replay.damage is None

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        failures = [error]
        while self._pending:
            try:
                self._collect()
            except (SnaprebuildError, FormatError) as another:
                failures.append(another)
        path = self._result.plan.source.directory.path
        self._result.findings += [finding_of_error(each, path) for each in failures]
        self._close(str(error))

    def finish(self) -> None:
        for state in self._replay.finish():
            self._boundary(state)
        while self._pending:
            self._collect()
        damage = self._replay.damage
        if damage is not None:
            self._finding("damaged-segment", Severity.DAMAGED, f"{damage.reason}: nothing above it can be rebuilt", damage.offset)
        self._close(None if damage is None else damage.reason)

    def _close(self, reason: str | None) -> None:
        result = self._result
        done = {boundary.offset for boundary in result.boundaries}
        for wanted in self._wanted.values():
            if wanted.offset not in done:
                why = reason or "the replay did not come to this boundary: the log changed while it was read"
                result.boundaries.append(BoundaryResult(wanted.offset, wanted.is_log_end, LEFT_OUT, None, (why,)))
                self._finding("boundary-left-out", Severity.FINDING, why, wanted.offset)
        result.boundaries.sort(key=lambda boundary: boundary.offset)
        # Written side by side, told in order.
        result.findings.sort(key=lambda finding: (-1 if finding.offset is None else finding.offset, finding.code))
        result.replay_index, result.replay_reason = self._replay.start_index, self._replay.start_reason
        result.seconds = time.perf_counter() - (self._started or time.perf_counter())

    def _finding(self, code: str, severity: Severity, message: str, offset: int | None = None) -> None:
        self._result.findings.append(Finding(code, severity, self._result.plan.source.directory.path, message, offset))

    # ---------------------------------------------------------------------------------------------------------- boundaries

    def _boundary(self, state: BoundaryState) -> None:
        differs = self._cross.transaction_index(state)
        if differs is not None:
            self._result.findings.append(differs)
        wanted = self._wanted.get(state.offset)
        try:
            comparison = self._cross.snapshot(state)
        except ReadFailedError as error:
            self._result.findings.append(replace(finding_of_error(error, str(error.path)), offset=state.offset))
            if wanted is not None:
                self._result.boundaries.append(self._left_out(wanted, state.judgement, state.entries, str(error)))
            return
        is_corrupt = comparison is not None and comparison.status is SnapshotStatus.CORRUPT
        told = is_corrupt and (self._result.plan.source.directory.path, state.offset) in self._told_corrupt
        if comparison is not None and comparison.proven_wrong and not told and not (wanted and self._request.set_aside):
            message = f"the snapshot is {comparison.status.value}: {comparison.reason}; --set-aside replaces it"
            self._finding("wrong-snapshot", Severity.FINDING, message, state.offset)
        if wanted is not None:
            if len(self._pending) >= PENDING_MAX:
                self._collect()
            self._pending.append(self._writers.submit(self._write_or_tell, wanted, state, comparison))

    def _collect(self) -> None:
        """Takes the oldest file that is being written; an error of it is raised here."""
        self._result.boundaries.append(self._pending.popleft().result())

    def _write_or_tell(self, wanted: BoundaryPlan, state: BoundaryState, comparison: Comparison | None) -> BoundaryResult:
        """A file that cannot be written or read is that file's misfortune; a refusal concerns them all."""
        try:
            return self._write(wanted, state, comparison)
        except AlreadyExistsError as error:
            message = "a file of this name appeared while the snapshot was rebuilt (a broker may be at work here): not touched"
            self._finding("refused", Severity.REFUSED, message, wanted.offset)
            return self._left_out(wanted, state.judgement, state.entries, str(error))
        except (StorageError, FormatError) as error:
            self._result.findings.append(replace(finding_of_error(error, self._result.plan.target), offset=wanted.offset))
            return self._left_out(wanted, state.judgement, state.entries, str(error))

    def _write(self, wanted: BoundaryPlan, state: BoundaryState, comparison: Comparison | None) -> BoundaryResult:
        entries, judgement = self._filtered(state)
        impossible = impossible_entries(entries, state.offset)
        if impossible is not None:
            message = f"the log leads to a state that no snapshot can hold: {impossible}"
            self._finding("impossible-state", Severity.DAMAGED, message, state.offset)
            return self._left_out(wanted, judgement, entries, message)
        if self._request.out is None:
            return self._write_in_place(wanted, entries, judgement, comparison)
        return self._write_out(wanted, entries, judgement)

    def _filtered(self, state: BoundaryState) -> tuple[np.ndarray, Judgement]:
        """With --drop-expired the entries that a load at as-of drops are left out; the state that is carried on keeps them."""
        if not self._request.drop_expired:
            return state.entries, state.judgement
        expired = expired_mask(state.entries, self._clock.as_of_ms, self._clock.expiration_ms)
        judgement = state.judgement
        if expired.any() and judgement.snapshot_class.may_go_in_place:
            reason = f"{int(expired.sum())} expired entries were left out as asked"
            judgement = Judgement(SnapshotClass.LOAD_EQUIVALENT, (reason, *judgement.reasons))
        return state.entries[~expired], judgement

    def _judged(self, wanted: BoundaryPlan, judgement: Judgement) -> None:
        log.info("%s at %d: %s", self._result.plan.source.directory.path, wanted.offset, judgement)
        if not judgement.snapshot_class.may_go_in_place:
            code = f"{judgement.snapshot_class.value.lower()}-boundary"
            self._finding(code, Severity.FINDING, "; ".join(judgement.reasons[:3]), wanted.offset)

    def _left_out(self, wanted: BoundaryPlan, judgement: Judgement, entries: np.ndarray, why: str) -> BoundaryResult:
        reasons = (why, *judgement.reasons)
        return BoundaryResult(wanted.offset, wanted.is_log_end, LEFT_OUT, judgement.snapshot_class, reasons, len(entries))

    def _result_of(
        self,
        wanted: BoundaryPlan,
        action: str,
        entries: np.ndarray,
        judgement: Judgement,
        *,
        aside: str | None = None,
        comparison: Comparison | None = None,
    ) -> BoundaryResult:
        path = os.path.join(self._result.plan.target, snapshot_file_name(wanted.offset))
        return BoundaryResult(
            wanted.offset,
            wanted.is_log_end,
            action,
            judgement.snapshot_class,
            judgement.reasons,
            len(entries),
            path,
            aside,
            comparison,
        )

    # ---------------------------------------------------------------------------------------------------------- in place

    def _write_in_place(
        self, wanted: BoundaryPlan, entries: np.ndarray, judgement: Judgement, comparison: Comparison | None
    ) -> BoundaryResult:
        source = self._result.plan.source
        if comparison is not None and not comparison.proven_wrong:
            same = comparison.status in (SnapshotStatus.EQUAL, SnapshotStatus.EQUAL_AFTER_EXPIRY)
            return self._result_of(wanted, EQUAL if same else KEPT, entries, judgement, comparison=comparison)
        if comparison is not None and not self._request.set_aside:
            return self._result_of(wanted, KEPT, entries, judgement, comparison=comparison)
        not_due = not_due_in_place(source, wanted.offset, is_log_end=wanted.is_log_end)
        if not_due is not None:
            self._finding("wrong-snapshot", Severity.FINDING, f"wrong, and not replaced: {not_due}", wanted.offset)
            return self._left_out(wanted, judgement, entries, not_due)
        self._judged(wanted, judgement)
        klass = judgement.snapshot_class
        if klass is SnapshotClass.UNSOUND:
            return self._left_out(wanted, judgement, entries, "an UNSOUND snapshot is never written into a log directory")
        if klass is SnapshotClass.UNPROVEN and not self._request.allow_unproven:
            return self._left_out(wanted, judgement, entries, "an UNPROVEN snapshot is written with --allow-unproven only")
        if self._dry_run:
            return self._result_of(wanted, WOULD_WRITE, entries, judgement, comparison=comparison)
        if self._lock is not None:
            self._lock.verify()
        aside = self._set_aside(wanted) if comparison is not None else None
        segments = source.directory.segments
        segment = segments[bisect.bisect_left(segments, wanted.offset, key=lambda each: each.base_offset) - 1]
        try:
            self._create(wanted, entries, segment.log.ownership)
        except SnaprebuildError:
            if aside is not None:
                self._put_back(wanted, aside)
            raise
        return self._result_of(wanted, WRITTEN, entries, judgement, aside=aside, comparison=comparison)

    def _set_aside(self, wanted: BoundaryPlan) -> str:
        directory = self._result.plan.source.directory
        for number in range(1, ASIDE_NUMBERS_MAX + 1):
            name = aside_name(wanted.offset, number)
            with contextlib.suppress(AlreadyExistsError):
                set_aside(directory.path, snapshot_file_name(wanted.offset), name)
                return name
        raise WriteFailedError(
            f"{ASIDE_NUMBERS_MAX} snapshots of offset {wanted.offset} were set aside already", path=directory.path
        )

    def _put_back(self, wanted: BoundaryPlan, aside: str) -> None:
        """The new file could not be written: the old one, wrong as it is, returns to its name, or the finding says where it lies."""
        directory = self._result.plan.source.directory.path
        try:
            set_aside(directory, aside, snapshot_file_name(wanted.offset))
        except StorageError as error:
            message = (
                f"was set aside as {aside}, its successor could not be written, and it could not be moved back: {error.message}"
            )
            self._finding("left-set-aside", Severity.STORAGE, message, wanted.offset)

    def _create(self, wanted: BoundaryPlan, entries: np.ndarray, owner: Ownership | None) -> None:
        create_file(
            self._result.plan.target,
            snapshot_file_name(wanted.offset),
            write_entries(entries),
            owner=owner,
            temporary_name=snapshot_temporary_file_name(wanted.offset),
        )

    # ---------------------------------------------------------------------------------------------------------- elsewhere

    def _write_out(self, wanted: BoundaryPlan, entries: np.ndarray, judgement: Judgement) -> BoundaryResult:
        self._judged(wanted, judgement)
        path = os.path.join(self._result.plan.target, snapshot_file_name(wanted.offset))
        existing = self._compare_out(path, entries)
        if existing is None and not self._dry_run:
            try:
                os.makedirs(self._result.plan.target, exist_ok=True)
            except OSError as error:
                message = f"cannot be created: {error.strerror}"
                raise WriteFailedError(message, path=self._result.plan.target, errno=error.errno) from error
            try:
                self._create(wanted, entries, None)
            except AlreadyExistsError:
                existing = self._compare_out(path, entries)
        if existing is None:
            return self._result_of(wanted, WOULD_WRITE if self._dry_run else WRITTEN, entries, judgement)
        if existing:
            return self._result_of(wanted, EQUAL, entries, judgement)
        self._finding("different-file", Severity.FINDING, f"{path} is there and differs: kept", wanted.offset)
        return self._result_of(wanted, KEPT, entries, judgement)

    def _compare_out(self, path: str, entries: np.ndarray) -> bool | None:
        """Whether the file that is there is equal as a map, after one expiry filter on both sides; None when there is none."""
        data = read_small_file(path, bytes_max=_read_size_max(entries))
        if data is None:
            return None
        try:
            found = read_entries(data, file=path)
        except FormatError:
            return False
        return same_when_loaded(found, entries, self._clock.as_of_ms, self._clock.expiration_ms)


def _read_size_max(entries: np.ndarray) -> int:
    """A file that is larger than this by far is not read to be compared."""
    return 10 + 46 * (2 * len(entries) + 1_000_000)
