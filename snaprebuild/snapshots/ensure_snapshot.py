"""The snapshot that belongs to a segment: one partition is replayed up to one boundary, within limits on bytes and time.

Implements ``snaprebuild.hooks``.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Generic, TypeVar

import numpy as np
from msgspec.structs import replace

from formats.errors import FormatError
from formats.limits import SNAPSHOT_BYTES_MAX
from formats.partition.file_names import snapshot_file_name
from formats.partition.producer_snapshot import read_entries, write_entries
from snaprebuild.argument_checks import check_flag, check_instance, check_jobs, check_moment, check_one_of, check_period, optional
from snaprebuild.argument_names import names_members
from snaprebuild.errors import (
    GoneFileError,
    ReadFailedError,
    RefusalReason,
    RefusedError,
    SnaprebuildError,
    SnapshotRefusedError,
    UsageError,
)
from snaprebuild.replay.classes import Judgement, SnapshotClass
from snaprebuild.replay.difference import Comparison, ComparisonStatus, impossible_entries
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS, Clock, expired_mask
from snaprebuild.snapshots.destination.output_directory import check_output
from snaprebuild.snapshots.engine.log_facts import log_end_offset
from snaprebuild.snapshots.engine.partition_replay import (
    BoundaryState,
    PartitionReplay,
    ReplayCheckpoint,
    ReplayFrom,
    replay_window,
    source_replay,
)
from snaprebuild.snapshots.engine.partition_task import ReplayTask, TaskOutcome
from snaprebuild.snapshots.engine.schedule import run_tasks
from snaprebuild.snapshots.engine.segment_reader import ReadTask, read_tasks
from snaprebuild.snapshots.plan.planner import stop_index
from snaprebuild.snapshots.refusals import is_below_log_start, opened_or_refused, reason_of_deletion, refusal_reason
from snaprebuild.snapshots.run import Run, current_time_ms
from snaprebuild.snapshots.source.second_look import with_fresh_listings
from snaprebuild.snapshots.source.source import PartitionSource, check_segments_are_files
from snaprebuild.snapshots.validated_snapshot import ValidatedSnapshot, Validity, judge_snapshot
from snaprebuild.storage.store import USUAL_S3, FileIdentity, S3Settings, check_settings
from snaprebuild.storage.store_path import StorePath, path_of

__all__ = [
    "DEFAULT_OPTIONS",
    "BoundaryRequest",
    "EnsuredSnapshot",
    "OneBoundaryTask",
    "Origin",
    "ReplayOptions",
    "replay_to_boundary",
    "run_of",
]

Result = TypeVar("Result")


@names_members
@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How a log is replayed, and which results the caller accepts. A value that makes no sense is a ``UsageError``.

    Attributes:
        as_of_ms: the time at which producers expire, ms since 1970; None for the time of the call. Set it only to replay an old copy as if
            it were its own time: nothing expires at 0.
        expiration_ms: ``producer.id.expiration.ms`` of the broker. A smaller value loses producers.
        replay_from: ``auto``, ``window`` or ``log-start`` (docs/concepts/confidence.md).
        check_crc: compute the checksum of every batch.
        allow_unproven: accept a snapshot of the class UNPROVEN.
        allow_unsound: accept a snapshot of the class UNSOUND.
        jobs: processes that read segments; 1 reads in the calling process.
        s3: how object stores are reached; without it as the environment and the SDK are set up.
    """

    as_of_ms: int | None = None
    expiration_ms: int = DEFAULT_EXPIRATION_MS
    replay_from: ReplayFrom | str = ReplayFrom.AUTO
    check_crc: bool = True
    allow_unproven: bool = False
    allow_unsound: bool = False
    jobs: int = 1
    s3: S3Settings = USUAL_S3

    def __post_init__(self) -> None:
        optional(check_moment)("as_of_ms", self.as_of_ms)
        check_period("expiration_ms", self.expiration_ms)
        check_one_of([each.value for each in ReplayFrom])("replay_from", self.replay_from)
        check_flag("check_crc", self.check_crc)
        check_flag("allow_unproven", self.allow_unproven)
        check_flag("allow_unsound", self.allow_unsound)
        check_jobs("jobs", self.jobs)
        check_settings(check_instance(S3Settings)("s3", self.s3))


DEFAULT_OPTIONS = ReplayOptions()


def run_of(options: ReplayOptions, deadline: float | None = None) -> Run:
    """The run of one call of the library: producers expire now, unless the options name another time.

    Args:
        options: of the caller.
        deadline: nothing is read after this ``time.monotonic()``; None for no limit.
    """
    now_ms = current_time_ms() if options.as_of_ms is None else options.as_of_ms
    return Run(clock=Clock(now_ms, options.expiration_ms), jobs=options.jobs, deadline=deadline, stores=options.s3)


class Origin(Enum):
    """Where the bytes of a snapshot come from."""

    ON_DISK = "on_disk"
    """From the file in the partition directory, which nothing contradicts."""
    REBUILT = "rebuilt"
    """From a replay of the log: there is no such file, or it is wrong."""


@dataclass(frozen=True, slots=True)
class EnsuredSnapshot:
    """A snapshot that belongs to a segment.

    Attributes:
        offset: the next base offset of the segment, which is the snapshot's own.
        data: the whole file, as Kafka writes it.
        path: of a file with these bytes: below ``out``, or the partition's own; None without one.
        snapshot_class: confidence of the bytes (docs/concepts/confidence.md).
        reasons: why that class, and why a file on disk was not taken.
        entries: count of producers.
        read_bytes: of segments.
        point: opaque; the next call resumes from it (``after``). None if none can: at the log end, or if a window was replayed.
        index_fault: what is wrong with the ``.txnindex`` of the segment, by the replay; None if nothing is known to be.
    """

    offset: int
    data: bytes = field(repr=False)
    path: str | None
    origin: Origin
    snapshot_class: SnapshotClass
    reasons: tuple[str, ...]
    entries: int
    read_bytes: int
    point: ReplayCheckpoint | None = field(default=None, repr=False, compare=False)
    index_fault: str | None = field(default=None, repr=False)


SummaryCache = dict[tuple[int, FileIdentity], SegmentSummary]
"""By base offset and identity of the segment."""


@dataclass(frozen=True, slots=True)
class BoundaryRequest:
    """One boundary of a partition, as callers of ``snaprebuild.hooks`` ask for it.

    Attributes:
        directory: of the partition, absolute.
        offset: the boundary.
        run: of the call.
        max_bytes: of segments that may be read; None for no limit.
        out: a second directory that the snapshot is written to; None for none.
        after: where an earlier replay ended; None without one.
        source: the partition, already listed; None to list it.
        summaries: of the segments that earlier replays of this partition read. The replay reads none of them again, and adds its own.
            None to keep nothing.
    """

    directory: str
    offset: int
    options: ReplayOptions
    run: Run
    max_bytes: int | None = None
    out: str | None = None
    after: ReplayCheckpoint | None = None
    source: PartitionSource | None = None
    summaries: SummaryCache | None = None


def replay_to_boundary(request: BoundaryRequest, take: Callable[[OneBoundaryTask], Result]) -> Result:
    """Replays up to the boundary, and returns what ``take`` makes of the finished task.

    When a broker deletes a segment during the replay, the partition is listed again.

    Raises:
        SnapshotRefusedError: it was refused, a limit was reached, or the boundary was deleted during the replay.
    """
    attempts = _Attempts(request, take)
    try:
        return with_fresh_listings(attempts.run)
    except GoneFileError as error:
        reason = refusal_reason(error)
        read = attempts.read_bytes
        raise SnapshotRefusedError(error.message, path=error.path, reason=reason, read_bytes=read) from error


class _Attempts(Generic[Result]):
    """Replays up to a boundary, as often as the partition has to be listed.

    Attributes:
        read_bytes: of segments, in all attempts that ended.
    """

    def __init__(self, request: BoundaryRequest, take: Callable[[OneBoundaryTask], Result]) -> None:
        self.read_bytes = 0
        self._request = request
        self._take = take
        self._is_again = False

    def run(self, _: bool) -> Result:
        """One attempt, with a new listing if it is not the first.

        Raises:
            GoneFileError, ReadFailedError: a file is gone since the listing, or cannot be read.
            SnapshotRefusedError: it was refused, a limit was reached, or the boundary was deleted meanwhile.
        """
        request = self._next_request()
        task = None
        try:
            task = _boundary_task(request)
            run_tasks([task], request.run)
            if task.failure is not None:
                raise task.failure
            return self._take(task)
        except SnapshotRefusedError as error:
            if not self._is_again or error.reason is not RefusalReason.BELOW_LOG_START:
                raise
            raise self._deleted_meanwhile(error, error.reason) from error
        except (GoneFileError, ReadFailedError):
            self._is_again = True
            self.read_bytes += 0 if task is None else task.outcome.read_bytes
            raise
        except UsageError as error:
            if not self._is_again:
                raise
            reason = reason_of_deletion(request.directory, request.offset, request.run)
            raise self._deleted_meanwhile(error, reason) from error
        except (RefusedError, FormatError) as error:
            message, path = (error.message, error.path) if isinstance(error, RefusedError) else (str(error), request.directory)
            read = self.read_bytes + (task.outcome.read_bytes if task else 0)
            raise SnapshotRefusedError(message, path=path, reason=refusal_reason(error), read_bytes=read) from error

    def _next_request(self) -> BoundaryRequest:
        if not self._is_again:
            return self._request
        allowed = self._request.max_bytes
        left = None if allowed is None else max(allowed - self.read_bytes, 0)
        return dataclasses.replace(self._request, source=None, max_bytes=left)

    def _deleted_meanwhile(self, error: SnaprebuildError, reason: RefusalReason) -> SnapshotRefusedError:
        message = f"{error.message}: a segment was deleted during the replay"
        if reason is RefusalReason.GONE:
            message = "the partition was deleted or moved during the replay"
        return SnapshotRefusedError(message, path=error.path, reason=reason, read_bytes=self.read_bytes)


def _boundary_task(request: BoundaryRequest) -> OneBoundaryTask:
    """The partition, and where its replay begins and ends."""
    options = request.options
    run = request.run
    partition = opened_or_refused(request.directory, run) if request.source is None else request.source
    directory = partition.directory
    mode = ReplayFrom(options.replay_from)
    clock = run.clock
    check_segments_are_files(directory)
    if request.out is not None:
        _check_output(path_of(request.out, run.stores), partition)
    bases = directory.base_offsets
    is_log_end = request.offset not in bases[1:]
    if not bases or request.offset < 1 or (is_log_end and request.offset <= bases[-1]):
        if request.offset > 0 and is_below_log_start(partition, request.offset):
            message = f"the segment that ends at {request.offset} is deleted: the log start offset is {partition.log_start_offset}"
            raise SnapshotRefusedError(message, path=directory.path, reason=RefusalReason.BELOW_LOG_START)
        raise UsageError(f"{request.offset} is neither the base offset of a later segment nor the log end", path=directory.path)
    # The end of the last segment is read only where it matters: without an index that is all of it.
    if is_log_end:
        _check_bytes(request, directory.segments[-1].size_bytes)
    end = log_end_offset(directory, run.deadline) if is_log_end else 0
    if is_log_end and request.offset != end:
        message = f"{request.offset} is neither the base offset of a later segment nor the log end, which is {end}"
        raise UsageError(message, path=directory.path)
    stop = len(bases) if is_log_end else stop_index(directory, mode, request.offset)
    resumed = request.after
    if resumed is not None and (resumed.offset >= request.offset or resumed.index_in(directory) is None):
        resumed = None
    # Going on from a neighbour needs no window. Finding it opens the time index of each segment: for every segment of an upload again.
    needs_window = resumed is None or is_log_end
    window = replay_window(partition, mode, clock, run.deadline) if needs_window else 0
    replay = source_replay(
        partition,
        clock,
        mode=mode,
        window_index=window,
        stop_index=stop,
        first_wanted=request.offset,
        known_end=end,
        resume_from=resumed,
    )
    if not is_log_end and (resumed is not None or (bases[0] == 0 and replay.start()[0] == 0)):
        # From the beginning of the log on nothing above the boundary has to prove anything.
        replay.window_index, replay.stop_index = 0, bases.index(request.offset)
    return OneBoundaryTask(request, partition, replay)


def _check_bytes(request: BoundaryRequest, wanted_bytes: int, read_bytes: int = 0) -> None:
    if request.max_bytes is not None and wanted_bytes > request.max_bytes:
        message = f"{wanted_bytes} bytes of segments would have to be read, and max_bytes is {request.max_bytes}"
        raise SnapshotRefusedError(message, path=request.directory, reason=RefusalReason.LIMIT, read_bytes=read_bytes)


def _check_output(out: StorePath, partition: PartitionSource) -> None:
    try:
        check_output(out, [out.path], [partition], option="out")
    except RefusedError as error:
        raise SnapshotRefusedError(error.message, path=error.path, reason=RefusalReason.OUTPUT) from error


@dataclass(frozen=True, slots=True)
class _NotTaken:
    reason: str


class OneBoundaryTask(ReplayTask):
    """The replay of one partition up to the one boundary that is wanted."""

    def __init__(self, request: BoundaryRequest, partition: PartitionSource, replay: PartitionReplay) -> None:
        reads = partial(read_tasks, partition.directory, check_crc=request.options.check_crc, deadline=request.run.deadline)
        super().__init__(partition, TaskOutcome(), reads, replay)
        self.failure: SnaprebuildError | FormatError | None = None
        self._request = request
        self._due: deque[ReadTask] = deque()
        self._state: BoundaryState | None = None
        self._checkpoint: ReplayCheckpoint | None = None

    def tasks(self) -> list[ReadTask]:
        """The next segments to read. A segment whose summary is known from an earlier replay is taken here, and not read."""
        while True:
            self._due = self._due or deque(super().tasks())
            tasks: list[ReadTask] = []
            while self._due and self._known_summary(self._due[0]) is None:
                tasks.append(self._due.popleft())
            if tasks or not self._due:
                return tasks
            summary = self._known_summary(self._due.popleft())
            assert summary is not None
            if not self.take(replace(summary, read_bytes=0)):
                return []

    def _known_summary(self, task: ReadTask) -> SegmentSummary | None:
        summary = (self._request.summaries or {}).get((task.base_offset, task.identity))
        if summary is not None and task.with_first_events and summary.facts.batches and summary.contents.first_events is None:
            return None
        return summary

    def next_segments(self, *, is_first: bool) -> list[int]:
        """Raises SnapshotRefusedError if they exceed the limit on bytes."""
        indices = super().next_segments(is_first=is_first)
        read = self.outcome.read_bytes
        summaries = self._request.summaries or {}
        segments = [self.source.directory.segments[index] for index in indices]
        unread = sum(each.size_bytes for each in segments if (each.base_offset, each.log.identity) not in summaries)
        _check_bytes(self._request, read + unread, read)
        return indices

    def take_segment(self, index: int, summary: SegmentSummary) -> bool:
        """No more is wanted once the boundary is there."""
        segment = self.source.directory.segments[index]
        if self._request.summaries is not None:
            self._request.summaries[segment.base_offset, segment.log.identity] = summary
        return super().take_segment(index, summary) and self._state is None

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        """Keeps the error for the caller."""
        self.failure = error

    def finish(self) -> None:
        """Judges the boundary when every segment was taken."""
        if self._state is None:
            super().finish()

    def boundary(self, state: BoundaryState) -> None:
        """Keeps the one that is wanted."""
        if state.offset == self._request.offset:
            self._state, self._checkpoint = state, self.replay.checkpoint(state)

    def refusal(self, message: str, reason: RefusalReason, judgement: Judgement | None = None) -> SnapshotRefusedError:
        """A refusal that counts what was read."""
        return SnapshotRefusedError(
            message,
            path=self.path,
            reason=reason,
            read_bytes=self.outcome.read_bytes,
            snapshot_class=None if judgement is None else judgement.snapshot_class.value,
            reasons=() if judgement is None else judgement.reasons,
        )

    def ensured(self) -> EnsuredSnapshot:
        """The snapshot on disk if it is proven right, else the result of the replay.

        Raises:
            SnapshotRefusedError: neither may be relied on.
        """
        state = self._state
        options = self._request.options
        if state is None:
            damage = self.replay.damage
            if damage is None:
                raise self.refusal("the log changed while it was read", RefusalReason.CHANGED)
            raise self.refusal(f"{damage.reason}: a broker stops here, too", RefusalReason.DAMAGED)
        judgement = state.judgement
        klass = judgement.snapshot_class
        accepted = {SnapshotClass.UNSOUND: options.allow_unsound, SnapshotClass.UNPROVEN: options.allow_unproven}
        if not accepted.get(klass, True):
            raise self._not_accepted(judgement)
        on_disk = self._on_disk(state)
        if isinstance(on_disk, EnsuredSnapshot):
            return on_disk
        impossible = impossible_entries(state.entries, state.offset)
        if impossible is not None:
            message = f"the log leads to a state that no snapshot can hold: {impossible}"
            raise self.refusal(message, RefusalReason.DAMAGED, judgement)
        if on_disk is None:
            reasons = judgement.reasons
        else:
            reasons = (*judgement.reasons, f"the file on disk is not taken: {on_disk.reason}")
        data = write_entries(state.entries)
        return self._ensured(data, None, Origin.REBUILT, Judgement(klass, reasons), len(state.entries))

    def _not_accepted(self, judgement: Judgement) -> SnapshotRefusedError:
        """The refusal of a snapshot whose class the options do not allow. The cleaner removes batches that would prove it."""
        klass = judgement.snapshot_class
        message = f"it would be {klass.value}: {judgement.reasons[0]}"
        if not self.source.can_be_tiered:
            message = f"an internal or compacted topic, which no broker uploads: {message}"
            return self.refusal(message, RefusalReason.NEVER_TIERED, judgement)
        reason = RefusalReason.DAMAGED if klass is SnapshotClass.UNSOUND else RefusalReason.UNPROVEN
        return self.refusal(message, reason, judgement)

    def validated(self, entries: np.ndarray) -> ValidatedSnapshot:
        """The verdict on the entries of a snapshot."""
        if self._state is None:
            damage = self.replay.damage
            if damage is None:
                reason = "the log changed while it was read"
            else:
                reason = f"{damage.reason}: no replay gets past it"
            return ValidatedSnapshot(
                self._request.offset, Validity.UNPROVEN, (reason,), entries=len(entries), read_bytes=self.outcome.read_bytes
            )
        return judge_snapshot(self._state, self.cross.judge(self._state, entries), self.outcome.read_bytes, self._checkpoint)

    def _ensured(self, data: bytes, path: str | None, origin: Origin, judgement: Judgement, entries: int) -> EnsuredSnapshot:
        klass = judgement.snapshot_class
        reasons = judgement.reasons
        assert self._state is not None
        index = self.cross.transaction_index(self._state)
        fault = None if index is None else index.message
        offset = self._request.offset
        read = self.outcome.read_bytes
        return EnsuredSnapshot(
            offset=offset,
            data=data,
            path=path,
            origin=origin,
            snapshot_class=klass,
            reasons=reasons,
            entries=entries,
            read_bytes=read,
            point=self._checkpoint,
            index_fault=fault,
        )

    def _on_disk(self, state: BoundaryState) -> EnsuredSnapshot | _NotTaken | None:
        """The file on disk, if nothing contradicts it; else why it is not taken, or None without one.

        Kafka would upload it as it is. A broker keeps producers whose batches were deleted meanwhile, so it may have more than a replay.

        Raises:
            SnapshotRefusedError: it is wrong, and has live producers that the replay may lack: no option returns fewer than the file.
        """
        directory = self.source.directory
        file = directory.file(snapshot_file_name(state.offset))
        listed = dict(directory.snapshots).get(state.offset)
        if listed is not None and listed.identity.size_bytes > SNAPSHOT_BYTES_MAX:
            return _NotTaken(f"has {listed.identity.size_bytes} bytes, more than the limit of {SNAPSHOT_BYTES_MAX}")
        try:
            data = file.read_small(SNAPSHOT_BYTES_MAX)
            if data is None:
                return None
            entries = read_entries(data, file=file.path)
        except FormatError as error:
            return _NotTaken(str(error))
        except ReadFailedError as error:
            if error.errno is not None or not directory.store.is_local:
                raise
            return _NotTaken(error.message)  # no regular file
        comparison = self.cross.judge(state, entries)
        judgement = state.judgement
        if comparison.status is ComparisonStatus.EQUAL_AFTER_EXPIRY:
            judgement = judgement.as_load_equivalent(comparison.reason)
        elif self._is_what_a_broker_would_upload(comparison, judgement):
            reason = f"the file on disk, which nothing contradicts: {comparison.reason}"
            judgement = Judgement(judgement.snapshot_class, (reason, *judgement.reasons))
        elif comparison.status is not ComparisonStatus.EQUAL:
            if self._may_lack(state, entries):
                reason = RefusalReason.UNPROVEN if self.source.can_be_tiered else RefusalReason.NEVER_TIERED
                message = f"the file on disk is wrong ({comparison.reason}), and has producers that the retained log does not have"
                raise self.refusal(message, reason, judgement)
            return _NotTaken(f"{comparison.status.value.replace('_', ' ')}: {comparison.reason}")
        return self._ensured(data, file.path, Origin.ON_DISK, judgement, len(entries))

    def _is_what_a_broker_would_upload(self, comparison: Comparison, judgement: Judgement) -> bool:
        """Whether nothing contradicts a file that the log does not prove. Compacted topics are not uploaded."""
        is_open = judgement.snapshot_class in (SnapshotClass.EXACT_FROM_LOG_START, SnapshotClass.UNPROVEN)
        return comparison.status is ComparisonStatus.UNVERIFIABLE and is_open and self.source.can_be_tiered

    def _may_lack(self, state: BoundaryState, entries: np.ndarray) -> bool:
        """Whether a file has live producers that the state lacks, and that may have been there before the first retained batch."""
        if state.is_complete or state.judgement.snapshot_class.holds_for_an_expiration:
            return False
        clock = self.replay.clock
        live = entries[~expired_mask(entries, clock.as_of_ms, clock.expiration_ms)]
        return bool((~np.isin(live["producer_id"], state.entries["producer_id"])).any())
