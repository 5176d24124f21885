"""Carries a plan out: replays, and gives each missing snapshot its name once it is whole, read back and checked."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from formats.errors import FormatError
from formats.partition.file_names import parse_file_name
from formats.partition.producer_snapshot import write_entries
from snaprebuild.errors import (
    AlreadyExistsError,
    ChangedFileError,
    DeadlinePassedError,
    ReadFailedError,
    RefusedError,
    SnaprebuildError,
    StorageError,
    WriteFailedError,
)
from snaprebuild.findings import Finding, Severity, counted, finding_of_error, in_flux
from snaprebuild.replay.classes import Judgement, SnapshotClass
from snaprebuild.replay.difference import Comparison, SnapshotStatus, impossible_entries
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.window import expired_mask
from snaprebuild.snapshots.engine.boundary_task import BoundaryWork
from snaprebuild.snapshots.engine.cache_hits import FromEffects
from snaprebuild.snapshots.engine.chunks import Chunk, DivisibleJob, Failure, Unreached, failure_of
from snaprebuild.snapshots.engine.crosscheck import ListedDifferences, segment_findings
from snaprebuild.snapshots.engine.partition_replay import BoundaryState, Clock, PartitionReplay, ReplayFrom
from snaprebuild.snapshots.engine.partition_task import has_lost_a_file
from snaprebuild.snapshots.engine.read_tasks import read_tasks
from snaprebuild.snapshots.engine.schedule import Engine, ReadTask, Tell, run
from snaprebuild.snapshots.engine.summary_stream import Arrivals, feed
from snaprebuild.snapshots.plan.plan_model import BoundaryPlan, PartitionPlan, Plan, Request, remote_log_start
from snaprebuild.snapshots.plan.planner import plan_anew
from snaprebuild.snapshots.rebuild.in_place_writer import InPlaceWriter
from snaprebuild.snapshots.rebuild.output_writer import OutWriter
from snaprebuild.snapshots.rebuild.result import (
    EQUAL,
    FAILED,
    NOT_DONE,
    REFUSED,
    SKIPPED,
    WRITTEN,
    BoundaryResult,
    PartitionResult,
    RebuildResult,
)
from snaprebuild.snapshots.rebuild.staged_writer import StageWriter
from snaprebuild.snapshots.rebuild.writer import RebuiltSnapshot, SnapshotWriter, remove_other_name
from snaprebuild.snapshots.receipts.receipt import Receipt, ReceiptSink, RemoteReceipt, Said, take_step
from snaprebuild.snapshots.source.source import LISTINGS_MAX
from snaprebuild.storage.local.broker_lock import HeldLock, hold
from snaprebuild.storage.local.fingerprint import Fingerprint, fingerprint_at
from snaprebuild.storage.local.same_mount import check_links
from snaprebuild.storage.log_dir import listed_again, read_log_dir, store_of

__all__ = ["Progress", "RebuildJob", "RemoteRebuild", "rebuild"]

WRITERS = 8
"""Files written at once. Each waits for two syncs, so that one after the other would leave the device idle most of the time."""

PENDING_MAX, PENDING_BYTES_MAX = 4 * WRITERS, 128 << 20
"""Snapshots of one partition that wait to be written, and their entries: 46 MB where there are a million producers."""

Progress = Callable[[str, int], None]
"""Called with the topic-partition and the bytes of a segment that was taken."""


def rebuild(
    plan: Plan,
    *,
    jobs: int | None = None,
    engine: Engine | None = None,
    dry_run: bool = False,
    receipt: Receipt | None = None,
    progress: Progress | None = None,
    deadline: float | None = None,
    told: ReceiptSink | None = None,
    locks: Mapping[str, HeldLock] | None = None,
) -> RebuildResult:
    """Carries out ``plan``. A failure in one partition does not stop the others.

    Args:
        plan: from ``make_plan`` or ``load_plan``.
        jobs: worker processes, None for as many as processors.
        engine: reads and replays in place of worker processes of this machine.
        dry_run: replay and judge, write nothing.
        receipt: gets what is written; None leaves none.
        progress: told of every segment.
        deadline: nothing is read once ``time.monotonic()`` is past it: a partition that is not done by then keeps what was written, and a
            finding tells what it lacks. None for none.
        told: is told what is written in place of a receipt, and belongs to the caller, who ends it.
        locks: on log directories that the caller holds, by their paths; others are held here.

    Raises:
        RefusedError: the receipt would lie among the files of a broker, or its name is taken; or a store would replace what is there.
        StorageError: the receipt cannot be written where it is wanted, or a store tells nothing. Nothing was read or written.
    """
    receipt = None if dry_run or not any(partition.boundaries for partition in plan.partitions) else receipt
    if receipt is not None:
        receipt.check_place()
    if not dry_run:
        _prepare_writes(plan)
    results = [PartitionResult(partition) for partition in plan.partitions]
    in_place, kept = plan.request.in_place, _Kept()
    # The writers end before the locks are let go, also when an interrupt ends the run: nothing is written without the lock.
    with contextlib.ExitStack() as held, ThreadPoolExecutor(WRITERS, thread_name_prefix="writer") as writers:
        needed = in_place and not dry_run and not plan.request.broker_running
        locks_of = _Locks(held, locks or {}, needed=needed)
        corrupt, listed = _told_corrupt(plan), ListedDifferences()
        sink = told if receipt is None and not dry_run else receipt
        context = _Context(_named(plan.request), plan.clock, writers, dry_run, sink, progress, corrupt, listed, deadline=deadline)

        def work_of(place: int) -> _RebuildWork | None:
            result = results[place]
            second_names = _second_names(result.plan) if in_place and not dry_run else []
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
            return _RebuildWork(result, place, context, lock, _replay_of(result.plan, plan.request, plan.clock))

        due: Sequence[int] = range(len(results))
        try:
            for listing in range(LISTINGS_MAX):
                works = [work for place in due if (work := work_of(place)) is not None]
                run(works, jobs) if engine is None else engine(works)
                due = [place for place in due if has_lost_a_file(results[place].findings)]
                if not due or listing + 1 == LISTINGS_MAX:
                    break
                for place in due:
                    old, results[place] = results[place], _begun_anew(plan, results[place], deadline)
                    if not plan.request.stage:  # an install takes only what rests on segments that are there
                        kept.keep(place, old, results[place].plan)
        finally:
            writers.shutdown(cancel_futures=True)
    kept.give_back(results)
    plan = replace(plan, partitions=tuple(result.plan for result in results))
    return RebuildResult(plan, tuple(results), dry_run, *_ended(receipt))


class _Kept:
    """Boundaries that were done before a broker deleted the segments that they rest on: each was the state of a moment."""

    def __init__(self) -> None:
        self._of: dict[int, list[tuple[BoundaryPlan, BoundaryResult]]] = {}

    def keep(self, place: int, result: PartitionResult, planned: PartitionPlan) -> None:
        """Keeps what was done, and is not in the new plan of the partition."""
        again = {boundary.offset for boundary in planned.boundaries}
        by_offset = {boundary.offset: boundary for boundary in result.plan.boundaries}
        done = [each for each in result.boundaries if each.action not in NOT_DONE and each.offset not in again]
        self._of.setdefault(place, []).extend((by_offset[each.offset], each) for each in done)

    def give_back(self, results: Sequence[PartitionResult]) -> None:
        """Puts it into the final results."""
        for place, kept in self._of.items():
            result = results[place]
            result.boundaries = sorted((*(each for _, each in kept), *result.boundaries), key=lambda each: each.offset)
            planned = sorted((*(each for each, _ in kept), *result.plan.boundaries), key=lambda each: each.offset)
            result.plan = replace(result.plan, boundaries=tuple(planned))


def _begun_anew(plan: Plan, old: PartitionResult, deadline: float | None) -> PartitionResult:
    """An empty result for a partition whose broker deleted a segment, planned with a new listing."""
    planned, findings = plan_anew(plan, old.plan, deadline)
    result = PartitionResult(planned)
    # What could not be written is not forgotten.
    result.findings += [finding for finding in old.findings if finding.severity is Severity.STORAGE]
    result.findings += [finding for finding in findings if finding not in plan.findings]
    return result


def _named(request: Request) -> Request:
    """With a name for the run, by which the objects that it makes are known as its own."""
    settings = request.s3
    return request if settings.run else replace(request, s3=replace(settings, run=secrets.token_hex(8)))


def _prepare_writes(plan: Plan) -> None:
    """Asks each place once, before anything is read or written, whether what is there is safe from being replaced."""
    out, settings = plan.request.out, plan.request.s3
    wanted = [partition for partition in plan.partitions if partition.boundaries]
    for directory in plan.request.stage if wanted else ():
        check_links(directory)
    for place in sorted({partition.source.log_dir.path if out is None else out for partition in wanted}):
        store_of(place, settings).prepare_writes(place)


def _ended(receipt: Receipt | None) -> tuple[str | None, tuple[Finding, ...]]:
    """The path of the receipt, if there was anything to write, and what went wrong with its last line."""
    if receipt is None or not receipt.is_there:
        return None, ()
    try:
        receipt.close()
    except WriteFailedError as error:
        return receipt.path, (finding_of_error(error, receipt.path),)
    return receipt.path, ()


@dataclass(frozen=True, slots=True)
class _Context:
    """What all partitions of a run share."""

    request: Request
    clock: Clock
    writers: ThreadPoolExecutor
    dry_run: bool
    receipt: ReceiptSink | None
    progress: Progress | None
    told_corrupt: frozenset[tuple[str, int | None]]
    """Path and offset of the snapshots that the plan has already told to be corrupt."""
    listed: ListedDifferences
    earlier_ns: int | None = None
    """An earlier attempt, not before this moment (ns since 1970), may have written some of the files; None where there is but one."""
    deadline: float | None = None


def _told_corrupt(plan: Plan) -> frozenset[tuple[str, int | None]]:
    return frozenset((finding.path, finding.offset) for finding in plan.findings if finding.code == "corrupt-snapshot")


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
    """A broker may have been at work between the plan and the lock.

    Raises:
        RefusedError: the partition, or what its broker says of it, is not what was planned for.
    """
    directory, state = plan.source.directory, plan.source.log_dir
    if replace(read_log_dir(state.path, state.store), faults=()) != replace(state, faults=()):
        raise RefusedError("the broker's files changed since the plan was made: plan again", path=state.path)
    now = listed_again(directory)
    if (now.segments, now.snapshots) != (directory.segments, directory.snapshots):
        raise RefusedError("segments or snapshots changed since the plan was made: plan again", path=directory.path)


def _second_names(plan: PartitionPlan) -> list[int]:
    """Offsets of snapshots that seem to have their temporary name, too: a run was killed between link and unlink."""
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
    if _is_denied(error):
        result.findings.append(_denied_finding(result.plan.source.log_dir.path, len(result.plan.boundaries)))
    else:
        result.findings.append(finding_of_error(error, result.plan.source.directory.path))
    action = REFUSED if isinstance(error, RefusedError) else FAILED
    result.boundaries = [
        BoundaryResult(wanted.offset, wanted.is_log_end, action, None, (str(error),)) for wanted in result.plan.boundaries
    ]


def _is_denied(error: BaseException) -> bool:
    return isinstance(error, WriteFailedError) and error.errno in (errno.EACCES, errno.EPERM)


def _denied_finding(directory: str, count: int) -> Finding:
    """One for all snapshots of a directory that this user may not write, with the user that may."""
    owner = "its owner"
    with contextlib.suppress(OSError):
        owner = f"its owner (uid {os.stat(directory).st_uid})"
    message = f"permission denied: {counted(count, 'snapshot')} not written. Run as {owner} or as root"
    return Finding("storage-failed", Severity.STORAGE, directory, message)


def _writer_of(result: PartitionResult, context: _Context, lock: HeldLock | None) -> SnapshotWriter:
    if context.request.stage:
        return StageWriter(result, context.request, context.receipt, dry_run=context.dry_run)
    if context.request.out is None:
        return InPlaceWriter(result, context.request, lock, context.receipt, dry_run=context.dry_run)
    return OutWriter(result, context.request, context.clock, context.receipt, dry_run=context.dry_run)


def _replay_of(plan: PartitionPlan, request: Request, clock: Clock) -> PartitionReplay:
    mode, first, log_end = ReplayFrom(request.replay_from), plan.boundaries[0].offset, plan.log_end_offset or 0
    remote_from, window, stop = remote_log_start(plan.source, request), plan.window_index, plan.stop_index
    return PartitionReplay(plan.source.directory, mode, clock, window, stop, first, log_end, plan.resumed, plan.given, remote_from)


class _RebuildWork(BoundaryWork):
    """One partition: its replay, its cross-checks, its files."""

    def __init__(
        self, result: PartitionResult, place: int, context: _Context, lock: HeldLock | None, replay: PartitionReplay
    ) -> None:
        plan, request = result.plan, context.request
        super().__init__(plan.source, replay, check_crc=request.check_crc, deadline=context.deadline)
        self._result = result
        self._context = context
        self._place = place
        self._listed = context.listed
        self._request = request
        self._clock = context.clock
        self._progress = context.progress
        self._writers = context.writers
        self._store = store_of(plan.target, context.request.s3)
        self._writer = _writer_of(result, context, lock)
        self._wanted = {boundary.offset: boundary for boundary in plan.boundaries}
        self._told_corrupt = context.told_corrupt
        self._pending: deque[tuple[Future[BoundaryResult], int]] = deque()
        self._pending_bytes = 0
        self._denied: list[int] = []
        self._started = time.perf_counter()

    # ---------------------------------------------------------------------------------------------------------- Work

    def take(self, summary: SegmentSummary) -> bool:
        wants_more = super().take(summary)
        if self._progress is not None:
            self._progress(self.source.topic_partition, summary.size_bytes)
        return wants_more

    def taken(self, index: int, summary: SegmentSummary) -> None:
        self._result.findings += segment_findings(self.source, index, summary)

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        failures = [error]
        while self._pending:
            try:
                self._collect()
            except (SnaprebuildError, FormatError) as another:
                failures.append(another)
        path = self._result.plan.source.directory.path
        if isinstance(error, DeadlinePassedError):
            failures.remove(error)
            self._tell_deadline(error)
        self._result.findings += [finding_of_error(each, path) for each in failures]
        self._close(str(error))

    def _tell_deadline(self, error: DeadlinePassedError) -> None:
        """One finding for all that is left, which may be a long list on a broker that had no time at all."""
        result = self._result
        done = {boundary.offset for boundary in result.boundaries}
        left = [wanted for wanted in result.plan.boundaries if wanted.offset not in done]
        if left:
            message = f"{error.message}: {counted(len(left), 'snapshot')} not rebuilt"
            result.say("deadline-passed", Severity.FINDING, message, left[0].offset)
        else:
            result.say(
                "deadline-passed", Severity.NOTE, f"{error.message}: nothing is missing, and not all that was there is compared"
            )
        why = (error.message,)
        result.boundaries += [BoundaryResult(wanted.offset, wanted.is_log_end, SKIPPED, None, why) for wanted in left]

    def finish(self) -> None:
        super().finish()
        while self._pending:
            self._collect()
        damage = self.replay.damage
        if damage is not None:
            message = f"{damage.reason}: nothing above it can be rebuilt"
            finding = Finding(
                "damaged-segment", Severity.DAMAGED, self.source.directory.path, message, damage.offset, is_unread=True
            )
            self._result.findings.append(finding)
        self._close(None if damage is None else damage.reason)

    def _close(self, reason: str | None) -> None:
        result = self._result
        result.replay_index, result.replay_reason = self.replay.start_index, self.replay.start_reason
        result.bytes_read, result.from_effects = self.bytes_read, self.kept
        result.seconds = time.perf_counter() - self._started
        if self._denied:
            result.findings.append(_denied_finding(_existing(result.plan.target), len(self._denied)))
        self._settle(reason)

    def _settle(self, reason: str | None) -> None:
        """What is told of the partition as a whole; ``reason`` says why the replay ended before its time, None where it did not."""
        _close_boundaries(self._result, reason)

    def job(self) -> RebuildJob:
        path, context = self._result.plan.source.directory.path, self._context
        told = frozenset((at, offset) for at, offset in context.told_corrupt if at == path)
        has_receipt = context.receipt is not None
        return RebuildJob(self._result.plan, context.request, context.clock, context.dry_run, told, time.time_ns(), has_receipt)

    def adopt(self, done: RemoteRebuild) -> None:
        result = self._result
        for name in _RESULTS:
            setattr(result, name, getattr(done, name))
        for boundary in result.boundaries:
            if boundary.comparison is not None:
                self._listed.add(self._place, boundary.offset, boundary.comparison)

    def hear(self, said: Said) -> None:
        """A file that is about to get its name elsewhere, or what became of it."""
        if self._context.receipt is not None:
            take_step(self._context.receipt, self._result.plan, said)

    @property
    def _remedy(self) -> str:
        is_local = self._result.plan.source.directory.store.is_local
        return "--set-aside replaces it" if is_local else "objects are never replaced, also not by --set-aside"

    # ---------------------------------------------------------------------------------------------------------- boundaries

    def boundary(self, state: BoundaryState) -> None:
        differs = self.cross.transaction_index(state)
        if differs is not None:
            self._result.findings.append(differs)
        wanted = self._wanted.get(state.offset)
        comparison: Comparison | None = None
        try:
            comparison = self.cross.snapshot(state)
        except ChangedFileError as error:
            self._result.findings.append(in_flux(error, self.source.directory.path, state.offset))
        except ReadFailedError as error:
            self._result.findings.append(replace(finding_of_error(error, str(error.path)), offset=state.offset))
            if wanted is not None:
                self._result.boundaries.append(self._rebuilt(wanted, state, None).not_written(str(error), FAILED))
            return
        is_corrupt = comparison is not None and comparison.status is SnapshotStatus.CORRUPT
        told = is_corrupt and (self._result.plan.source.directory.path, state.offset) in self._told_corrupt
        if comparison is not None and comparison.proven_wrong and not told and not (wanted and self._request.set_aside):
            message = f"the snapshot is {comparison.status.value.replace('_', ' ')}: {comparison.reason}; {self._remedy}"
            self._result.say("wrong-snapshot", Severity.FINDING, message, state.offset, comparison.status.reason)
        if wanted is not None:
            rebuilt = self._rebuilt(wanted, state, comparison)
            size_bytes = rebuilt.entries.nbytes
            while self._pending and (len(self._pending) >= PENDING_MAX or self._pending_bytes + size_bytes > PENDING_BYTES_MAX):
                self._collect()
            self._pending.append((self._writers.submit(self._write_or_tell, rebuilt), size_bytes))
            self._pending_bytes += size_bytes

    def _collect(self) -> None:
        """Takes the oldest file that is being written; an error of it is raised here."""
        future, size_bytes = self._pending.popleft()
        self._pending_bytes -= size_bytes
        result = future.result()
        if result.comparison is not None:
            self._listed.add(self._place, result.offset, result.comparison)
        self._result.boundaries.append(result)

    def _write_or_tell(self, rebuilt: RebuiltSnapshot) -> BoundaryResult:
        """A file that cannot be written or read is that file's misfortune; a refusal concerns them all."""
        offset = rebuilt.wanted.offset
        try:
            impossible = impossible_entries(rebuilt.entries, offset)
            if impossible is not None:
                message = f"the log leads to a state that no snapshot can hold: {impossible}"
                self._result.say("impossible-state", Severity.DAMAGED, message, offset)
                return rebuilt.not_written(message, FAILED)
            result = self._writer.write(rebuilt)
            return (self._written_earlier(rebuilt) or result) if result.action == EQUAL else result
        except AlreadyExistsError as error:
            if (earlier := self._written_earlier(rebuilt)) is not None:
                return earlier
            message = "a file of this name appeared while the snapshot was rebuilt (a broker may be at work here): not touched"
            self._result.say("refused", Severity.REFUSED, message, offset)
            return rebuilt.not_written(str(error))
        except (StorageError, FormatError) as error:
            if _is_denied(error):
                self._denied.append(offset)
            else:
                self._result.findings.append(replace(finding_of_error(error, rebuilt.target), offset=offset))
            return rebuilt.not_written(str(error), FAILED)

    def _written_earlier(self, rebuilt: RebuiltSnapshot) -> BoundaryResult | None:
        """Asked of a file that is there: what an earlier attempt at the same partition has written is written; None where it has not."""
        earlier_ns = self._context.earlier_ns
        stood_there = self._request.in_place and rebuilt.found is not None
        if earlier_ns is None or self._context.dry_run or stood_there:
            return None
        data = write_entries(rebuilt.entries)
        with contextlib.suppress(ReadFailedError):
            if self._store.read_small(rebuilt.path, len(data)) != data:
                return None
            if not self._store.wrote(rebuilt.path, earlier_ns):
                return None
            found = fingerprint_at(rebuilt.path) if self._store.is_local else Fingerprint.of(data, 0)
            if (receipt := self._context.receipt) is not None:
                klass = rebuilt.judgement.snapshot_class.value
                receipt.announce(self._result.plan, rebuilt.wanted.offset, klass, len(rebuilt.entries), found)
                receipt.settle(self._result.plan, rebuilt.wanted.offset)
            return rebuilt.result(WRITTEN)
        return None

    def _rebuilt(self, wanted: BoundaryPlan, state: BoundaryState, comparison: Comparison | None) -> RebuiltSnapshot:
        """With --drop-expired the entries that a load at as-of drops are removed; the state that is carried on keeps them."""
        entries, judgement = state.entries, state.judgement
        if self._request.drop_expired:
            expired = expired_mask(entries, self.replay.clock.as_of_ms, self.replay.clock.expiration_ms)
            entries = entries[~expired]
            if expired.any() and judgement.snapshot_class.may_go_in_place:
                reason = f"{int(expired.sum())} expired entries were dropped as asked"
                judgement = Judgement(SnapshotClass.LOAD_EQUIVALENT, (reason, *judgement.reasons))
        return RebuiltSnapshot(wanted, self._result.plan.target, self._store, entries, judgement, comparison)


def _existing(target: str) -> str:
    """The directory itself, or where it would be made."""
    while not os.path.lexists(target) and os.path.dirname(target) != target:
        target = os.path.dirname(target)
    return target


def _close_boundaries(result: PartitionResult, reason: str | None) -> None:
    """Tells of the boundaries that the replay did not come to; and everything that was told before in its order."""
    done = {boundary.offset for boundary in result.boundaries}
    for wanted in result.plan.boundaries:
        if wanted.offset not in done:
            why = reason or "the replay did not come to this boundary: the log changed while it was read"
            is_refused = any(each.severity is Severity.REFUSED for each in result.findings)
            action = REFUSED if is_refused else SKIPPED if has_lost_a_file(result.findings) else FAILED
            left = BoundaryResult(wanted.offset, wanted.is_log_end, action, None, (why,))
            result.boundaries.append(left)
            result.say("boundary-not-reached", Severity.FINDING, why, wanted.offset)
    result.boundaries.sort(key=lambda boundary: boundary.offset)
    # Written side by side, told in order.
    result.findings.sort(key=lambda finding: (-1 if finding.offset is None else finding.offset, finding.code))


# ---------------------------------------------------------------------------------------------------------------- elsewhere


_RESULTS = ("boundaries", "findings", "bytes_read", "from_effects", "replay_index", "replay_reason", "seconds")


@dataclass(frozen=True, slots=True)
class RemoteRebuild:
    """What became of a partition that was carried out in another process: as ``PartitionResult``, without its plan."""

    boundaries: list[BoundaryResult]
    findings: list[Finding]
    bytes_read: int
    from_effects: FromEffects
    replay_index: int
    replay_reason: str
    seconds: float


class _RebuildChunk(_RebuildWork):
    """Some of its segments: what is told of the partition as a whole is told when all chunks are merged."""

    ended: str | None = None

    def _settle(self, reason: str | None) -> None:
        self.ended = reason


_DoneChunk = tuple[RemoteRebuild, str | None]
"""With the reason why the replay ended in it, None where it did not."""


@dataclass(frozen=True, slots=True)
class RebuildJob(DivisibleJob):
    """One partition of a plan, to be carried out in another process.

    Attributes:
        plan: of the partition.
        request: what was asked for.
        clock: expiry.
        dry_run: write nothing.
        told_corrupt: path and offset of snapshots that the plan has already told to be corrupt.
        begun_ns: no attempt began before this moment, ns since 1970.
        has_receipt: what is written is to be told, before it has its name.
        tell: says so to the process that keeps the receipt; None without one.
    """

    plan: PartitionPlan
    request: Request
    clock: Clock
    dry_run: bool
    told_corrupt: frozenset[tuple[str, int | None]]
    begun_ns: int
    has_receipt: bool
    tell: Tell | None = None

    def telling(self, tell: Tell) -> RebuildJob:
        """As ``schedule.TellingJob``."""
        return replace(self, tell=tell) if self.has_receipt else self

    def replay(self) -> PartitionReplay:
        """As ``DivisibleJob``."""
        return _replay_of(self.plan, self.request, self.clock)

    def read_tasks(self, indices: Sequence[int]) -> list[ReadTask]:
        """As ``DivisibleJob``."""
        return read_tasks(self.plan.source.directory, indices, check_crc=self.request.check_crc)

    def carry_out(self, arrivals: Arrivals) -> tuple[RemoteRebuild | None, list[ReadTask]]:
        """As ``schedule.Job``. Whoever sent it holds the lock of the log directory that it writes to."""
        result = PartitionResult(self.plan)
        with self._context() as context:
            missing = feed(_RebuildWork(result, 0, context, None, self.replay()), arrivals)
        return (None, missing) if missing else (_remote(result), [])

    def carry_out_chunk(self, chunk: Chunk, arrivals: Arrivals) -> _DoneChunk:
        """As ``DivisibleJob``."""
        result = PartitionResult(self.plan)
        with self._context() as context:
            work = _RebuildChunk(result, 0, context, None, self.replay().part(chunk.stop, chunk.after))
            missing = feed(work, arrivals)
        assert not missing, "a chunk asks for its own segments alone"
        return _remote(result), work.ended

    def merged(self, chunks: Iterable[_DoneChunk | Unreached | Failure]) -> RemoteRebuild:
        """As ``DivisibleJob``."""
        result, reason = PartitionResult(self.plan), None
        for chunk in chunks:
            if isinstance(chunk, tuple):
                done, ended = chunk
                result.boundaries += done.boundaries
                result.findings += done.findings
                result.bytes_read += done.bytes_read
                result.from_effects += done.from_effects
                result.seconds += done.seconds
                reason = reason or ended
            elif (error := failure_of(chunk, reason)) is not None:
                result.findings.append(finding_of_error(error, self.plan.source.directory.path))
                reason = reason or str(error)
        result.replay_index, result.replay_reason = self.replay().start()
        _close_boundaries(result, reason)
        return _remote(result)

    @contextlib.contextmanager
    def _context(self) -> Iterator[_Context]:
        receipt = None if self.tell is None else RemoteReceipt(self.tell)
        with ThreadPoolExecutor(WRITERS, thread_name_prefix="writer") as writers:
            told, listed = self.told_corrupt, ListedDifferences()
            yield _Context(self.request, self.clock, writers, self.dry_run, receipt, None, told, listed, self.begun_ns)


def _remote(result: PartitionResult) -> RemoteRebuild:
    return RemoteRebuild(**{name: getattr(result, name) for name in _RESULTS})
