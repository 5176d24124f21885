"""Replays partitions from their first segment and compares every snapshot on disk with the replay."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from formats.errors import FormatError
from formats.log.batch_headers import TailKind
from formats.partition.producer_snapshot import write_entries
from snaprebuild.errors import ChangedFileError, LimitReachedError, ReadFailedError, SnaprebuildError
from snaprebuild.findings import IN_FLUX, Finding, FindingCause, Severity, finding_of_error, in_flux
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import Comparison, ComparisonStatus, VerifiedSnapshot, impossible_entries
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine.crosscheck import LaterProducers, ListedDifferences
from snaprebuild.snapshots.engine.first_snapshot import wrong_by_the_log
from snaprebuild.snapshots.engine.log_facts import above_log_end, known_log_end
from snaprebuild.snapshots.engine.partition_replay import BoundaryState, PartitionReplay, source_replay
from snaprebuild.snapshots.engine.partition_task import Job, PartitionTask, Progress, ReplayTask, TaskOutcome
from snaprebuild.snapshots.engine.schedule import read_partitions
from snaprebuild.snapshots.engine.segment_reader import ReadTask, read_tasks
from snaprebuild.snapshots.engine.snapshot_file import read_snapshot_file
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.boundary_needs import (
    NO_NEEDS,
    BoundaryNeeds,
    NeedTotals,
    boundary_needs,
    check_selected_boundaries,
)
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import PartitionSource, Source, irregular_snapshots, live_broker_notes, log_start_above
from snaprebuild.snapshots.source.topic_ids import readiness_findings, with_readiness
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir
from snaprebuild.storage.partition_names import TopicKind
from snaprebuild.storage.s3.object_bytes import RANGE_BYTES
from snaprebuild.storage.thread_pool import ThreadPool

__all__ = [
    "UNSOUND",
    "OnBoundary",
    "PartitionVerdict",
    "VerifyOutcome",
    "VerifyResult",
    "compared_alone",
    "right_snapshot",
    "snapshot_needs",
    "verify",
    "verify_task",
]

UNSOUND = "unsound-boundary"

OnBoundary = Callable[[PartitionSource, BoundaryState, ListedFile | None, Comparison | None], None]
"""Called with each boundary of the replay, in log order, and each cut with a snapshot: its state, the snapshot there, and their comparison;
None without one."""


class VerifyOutcome(TaskOutcome):
    """The verdicts on one partition.

    Attributes:
        snapshots: one verdict for each snapshot on disk, ascending.
        reached: offsets at which the replay handed out a state.
        log_end_offset: end of the last segment that was read.
        later_producers: entries of ``ENTRY_DTYPE`` of the batches above the newest snapshot, in the order of the log, as bytes.
        lost_snapshot: a snapshot of the listing is gone.
        right_sha256: SHA-256 of the right snapshot of each boundary whose own is wrong or has no bytes, if they are wanted.
        unproven_reasons: why there is none, for each such boundary without one.
    """

    snapshots: list[VerifiedSnapshot] = msgspec.field(default_factory=list)
    reached: set[int] = msgspec.field(default_factory=set)
    log_end_offset: int = 0
    later_producers: bytes = b""
    lost_snapshot: bool = False
    right_sha256: dict[int, str] = msgspec.field(default_factory=dict)
    unproven_reasons: dict[int, str] = msgspec.field(default_factory=dict)

    @property
    def is_unsound_reported(self) -> bool:
        """Whether a finding names the first offset from which the log proves nothing."""
        return any(
            finding.cause is FindingCause.UNSOUND_BOUNDARY or finding.severity is Severity.DAMAGED for finding in self.findings
        )

    def add(self, part: VerifyOutcome) -> None:
        """Adds the outcome of the next part of the partition."""
        if self.is_unsound_reported:  # each part reports it by itself
            part.findings = [finding for finding in part.findings if finding.cause is not FindingCause.UNSOUND_BOUNDARY]
        TaskOutcome.add(self, part)
        self.snapshots += part.snapshots
        self.reached |= part.reached
        self.log_end_offset = part.log_end_offset
        self.later_producers += part.later_producers
        self.lost_snapshot = self.lost_snapshot or part.lost_snapshot
        self.right_sha256 |= part.right_sha256
        self.unproven_reasons |= part.unproven_reasons


class PartitionVerdict(msgspec.Struct):
    """A partition, judged.

    Attributes:
        needs: the selected boundaries that have no snapshot, by what they need.
    """

    source: PartitionSource
    outcome: VerifyOutcome = msgspec.field(default_factory=VerifyOutcome)
    needs: BoundaryNeeds = NO_NEEDS

    @property
    def findings(self) -> list[Finding]:
        """About this partition."""
        return self.outcome.findings

    @property
    def missing(self) -> list[int]:
        """Offsets of the selected boundaries that need a snapshot and have none."""
        return list(self.needs.missing_offsets)


class VerifyResult(msgspec.Struct, frozen=True):
    """Everything that was judged."""

    clock: Clock
    partitions: tuple[PartitionVerdict, ...]
    source_findings: tuple[Finding, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings of the source and of every partition."""
        return (*self.source_findings, *(finding for partition in self.partitions for finding in partition.findings))

    @property
    def counts(self) -> NeedTotals:
        """Selected boundaries without a snapshot, by what they need."""
        return NeedTotals.of(partition.needs for partition in self.partitions)

    @property
    def differences_not_listed(self) -> int:
        """Differing entries that are counted and not listed."""
        comparisons = (snapshot.comparison for partition in self.partitions for snapshot in partition.outcome.snapshots)
        return sum(comparison.difference_count - len(comparison.differences) for comparison in comparisons)


def verify(
    source: Source,
    run: Run,
    *,
    selection: Selection | None = None,
    check_crc: bool = True,
    progress: Progress | None = None,
    on_boundary: OnBoundary | None = None,
) -> VerifyResult:
    """Judges every snapshot of the partitions of ``source``.

    Args:
        source: from ``open_source``.
        run: entries that a load at the moment of its clock drops are not compared.
        selection: only snapshots at boundaries that it takes.
        check_crc: compute checksums.
        progress: called for every segment.
        on_boundary: called for every boundary; not with an engine that judges partitions elsewhere.

    Raises:
        UsageError: the selection names offsets, and no partition has a boundary or a snapshot there.
    """
    if selection is not None:
        check_selected_boundaries(selection, ((each, known_log_end(each.directory)) for each in source.partitions))
    selected = selection or Selection()
    listed = ListedDifferences()
    source, brokers = with_readiness(source)

    def task_of(place: int, verdict: PartitionVerdict) -> _VerifyTask:
        log_end = known_log_end(verdict.source.directory)
        verdict.needs = boundary_needs(verdict.source, log_end, selected.takes_boundary)
        job = _VerifyJob(verdict.source, run.clock, selected, check_crc, log_end)
        return _VerifyTask(job, verdict, partial(listed.add, place), progress=progress, on_boundary=on_boundary)

    verdicts = read_partitions(source.partitions, lambda _, partition: PartitionVerdict(partition), task_of, run)
    irregular = [finding for partition in source.partitions for finding in irregular_snapshots(partition.directory)]
    not_ready = readiness_findings(brokers, Severity.FINDING, with_notes=False)
    return VerifyResult(run.clock, tuple(verdicts), (*source.findings, *not_ready, *irregular, *live_broker_notes(source)))


def verify_task(
    verdict: PartitionVerdict,
    clock: Clock,
    list_differences: Callable[[int, Comparison], None],
    *,
    on_boundary: OnBoundary | None = None,
) -> PartitionTask:
    """The task that judges every snapshot of a log without a broker around it, as that of copies in remote storage.

    The outcome gets the SHA-256 of the right snapshots.

    Args:
        verdict: of the partition, which gets the outcome.
        clock: entries that a load at this moment drops are not compared.
        list_differences: takes the offset and the comparison of each snapshot (``ListedDifferences``).
        on_boundary: called for every boundary; not with an engine that judges partitions elsewhere.
    """
    job = _VerifyJob(verdict.source, clock, Selection(), True, known_log_end(verdict.source.directory), wants_right=True)
    return _VerifyTask(job, verdict, list_differences, on_boundary=on_boundary)


@dataclass(frozen=True, slots=True)
class _VerifyJob(Job):
    """One partition, as a value.

    Attributes:
        log_end_offset: the log reaches this offset for certain.
        wants_right: the outcome gets the SHA-256 of the right snapshots.
    """

    source: PartitionSource
    clock: Clock
    selection: Selection
    check_crc: bool
    log_end_offset: int
    wants_right: bool = False

    def replay(self) -> PartitionReplay:
        """From the first segment, on the snapshot there as far as the log and later snapshots confirm it."""
        return source_replay(self.source, self.clock, known_end=self.log_end_offset)

    def read_tasks(self, indices: Sequence[int]) -> list[ReadTask]:
        directory = self.source.directory
        # A broker that stops cleanly writes its snapshot at the log end, and continues in the same segment when it starts.
        cuts = sorted({offset for offset, _ in directory.snapshots if self.selection.takes_boundary(offset)})
        return read_tasks(directory, indices, check_crc=self.check_crc, cuts=cuts)

    @contextlib.contextmanager
    def started(
        self,
        replay: PartitionReplay | None = None,
        threads: ThreadPool | None = None,
    ) -> Iterator[_VerifyTask]:
        yield _VerifyTask(self, PartitionVerdict(self.source), partial(ListedDifferences().add, 0), replay)


class _VerifyTask(ReplayTask):
    """One partition, replayed as its broker would, and compared with every snapshot."""

    lost_above_damage = "nothing above it can be judged"
    outcome: VerifyOutcome

    def __init__(
        self,
        job: _VerifyJob,
        verdict: PartitionVerdict,
        list_differences: Callable[[int, Comparison], None],
        replay: PartitionReplay | None = None,
        *,
        progress: Progress | None = None,
        on_boundary: OnBoundary | None = None,
    ) -> None:
        replay = job.replay() if replay is None else replay
        super().__init__(job.source, verdict.outcome, job.read_tasks, replay, progress)
        self._job = job
        self._verdict = verdict
        self._list_differences = list_differences
        self._on_boundary = on_boundary
        self._selection = job.selection
        # Compaction leaves gaps by design, and such topics are never uploaded.
        ordinary = job.source.topic_kind is TopicKind.ORDINARY and not job.source.is_compacted
        self._unsound_severity = Severity.FINDING if ordinary else Severity.NOTE
        self._is_unsound_reported = False
        self._later = LaterProducers(job.source)

    def needs(self) -> tuple[int, int] | None:
        return snapshot_needs(self.source.directory)

    def job(self) -> _VerifyJob:
        return self._job

    def adopt(self, outcome: VerifyOutcome) -> None:
        self._verdict.outcome = self.outcome = outcome
        for snapshot in outcome.snapshots:
            self._list_differences(snapshot.offset, snapshot.comparison)

    def take_segment(self, index: int, summary: SegmentSummary) -> bool:
        wants_more = super().take_segment(index, summary)
        self.outcome.log_end_offset = max(summary.facts.next_offset, summary.base_offset)
        self._later.take(summary)
        return wants_more

    def finish(self) -> None:
        super().finish()
        self.outcome.later_producers = self._later.taken()

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        super().fail(error)
        self.outcome.later_producers = self._later.taken()
        self.outcome.ended = self.outcome.ended or f"the replay failed: {error}"

    def settle(self) -> None:
        """Judges the partition as a whole, and the snapshots that the replay did not reach."""
        outcome = self.outcome
        if outcome.lost_file:
            return
        if outcome.ended is None:
            self._above_log_end()
            outcome.findings += log_start_above(self.source, outcome.log_end_offset)
        self._others(outcome.ended or f"is above the log end {outcome.log_end_offset}")

    def boundary(self, state: BoundaryState) -> None:
        outcome = self.outcome
        outcome.reached.add(state.offset)
        differs = self.cross.transaction_index(state)
        if differs is not None:
            outcome.findings.append(differs)
        if state.is_unsound and not state.is_cut and not self._is_unsound_reported:
            if not outcome.is_unsound_reported:
                message = f"from here on the log proves nothing: {state.judgement.reasons[0]}"
                outcome.findings.append(
                    Finding(UNSOUND, self._unsound_severity, self.path, message, state.offset, cause=FindingCause.UNSOUND_BOUNDARY)
                )
            self._is_unsound_reported = True
        if not self._selection.takes_boundary(state.offset):
            return
        found = False
        for listed in self.source.directory.snapshots_at(state.offset):
            found |= self._compared(state, listed)
        if not found and not state.is_cut:
            self._take_right(state)
            if self._on_boundary is not None:
                self._on_boundary(self.source, state, None, None)

    def _take_right(self, state: BoundaryState) -> None:
        """Takes the SHA-256 of the right snapshot of a boundary whose own is wrong or absent, if it is wanted."""
        if not self._job.wants_right:
            return
        right = right_snapshot(state)
        if isinstance(right, bytes):
            self.outcome.right_sha256[state.offset] = hashlib.sha256(right).hexdigest()
        else:
            self.outcome.unproven_reasons[state.offset] = right

    def _compared(self, state: BoundaryState, listed: ListedFile) -> bool:
        """Judges a snapshot; False if it is gone by now."""
        try:
            comparison = self.cross.snapshot(state, listed)
        except ChangedFileError as error:
            self.outcome.findings.append(in_flux(error, self.path, state.offset))
            return True
        except ReadFailedError as error:
            self._unreadable(error)
            return True
        if comparison is None:
            self._deleted(state.offset, listed)
            return False
        if comparison.proven_wrong:
            self._take_right(state)
        if self._on_boundary is not None:
            self._on_boundary(self.source, state, listed, comparison)
        self._judge(VerifiedSnapshot(state.offset, listed.name, state.judgement.snapshot_class, comparison))
        return True

    def _unreadable(self, error: ReadFailedError) -> None:
        """A snapshot that cannot be read is unverified, and the others are judged all the same."""
        self.outcome.findings.append(finding_of_error(error, self.path))

    def _deleted(self, offset: int, listed: ListedFile) -> None:
        """A snapshot that was listed and is gone: neither missing nor judged."""
        self.outcome.lost_snapshot = True
        path = self.source.directory.file_path(listed.name)
        self.outcome.findings.append(Finding(IN_FLUX, Severity.NOTE, path, "was deleted during the run", offset))

    def _above_log_end(self) -> None:
        log_end = self.outcome.log_end_offset
        above = [at for at, _ in self.source.directory.snapshots if at > log_end and self._selection.takes_boundary(at)]
        if above:
            self.outcome.findings.append(above_log_end(self.source, above, log_end))

    def _others(self, reason: str) -> None:
        """Judges snapshots at offsets without a state to compare with by their own entries."""
        directory = self.source.directory
        for offset, listed in directory.snapshots:
            if offset in self.outcome.reached or not self._selection.takes_boundary(offset):
                continue
            wrong = self._wrong_first_snapshot(offset)
            if wrong is not None:
                self._judge(VerifiedSnapshot(offset, listed.name, None, wrong))
                continue
            is_first = bool(directory.segments) and offset <= directory.segments[0].base_offset
            why = "nothing before the first segment is on disk" if is_first else reason
            try:
                comparison = compared_alone(directory, offset, listed, why, is_broker_running=self.source.is_broker_running)
            except ChangedFileError as error:
                self.outcome.findings.append(in_flux(error, self.path, offset))
            except ReadFailedError as error:
                self._unreadable(error)
            except LimitReachedError as error:
                self.outcome.limit = error.message
                break  # nothing more is read
            else:
                if comparison is None:
                    self._deleted(offset, listed)
                else:
                    self._judge(VerifiedSnapshot(offset, listed.name, None, comparison))
        self.outcome.snapshots.sort(key=lambda each: each.offset)

    def _wrong_first_snapshot(self, offset: int) -> Comparison | None:
        """The comparison of the snapshot at the first offset, if the log alone contradicts it."""
        first = self.replay.first_snapshot
        if first is None or offset != self.source.directory.segments[0].base_offset:
            return None
        return wrong_by_the_log(first)

    def _judge(self, verdict: VerifiedSnapshot) -> None:
        self.outcome.snapshots.append(verdict)
        comparison = verdict.comparison
        if comparison.proven_wrong:
            message = f"{comparison.status.value.replace('_', ' ')}: {comparison.reason}"
            if comparison.differences:
                first = comparison.differences[0]
                message += f"; producer {first.producer_id}: {first.consequence}"
            found = Finding("wrong-snapshot", Severity.FINDING, self.path, message, verdict.offset, comparison.status.reason)
            self.outcome.findings.append(found)
        self._list_differences(verdict.offset, comparison)


def right_snapshot(state: BoundaryState) -> bytes | str:
    """The snapshot that a replay proves for a boundary; or why it proves none, in words."""
    judgement = state.judgement
    if state.is_cut and state.segment.cut_batch_offset is not None:
        return "the replay has no state at its end"  # the last copy below a gap ends with a batch, and its state is known
    if judgement.snapshot_class is not SnapshotClass.EXACT:
        # What was deleted before the first copy may still be in a later snapshot alone.
        return f"the replay is {judgement.snapshot_class.value}: {judgement.reasons[0]}"
    if state.segment.tail.kind is not TailKind.CLEAN:
        return f"its segment ends with bytes that are not a batch: {state.segment.tail.error}"
    impossible = impossible_entries(state.entries, state.offset)
    if impossible is not None:
        return f"the replay gives what no broker writes: {impossible}"
    return write_entries(state.entries)


def compared_alone(
    directory: PartitionDir, offset: int, listed: ListedFile, reason: str, *, is_broker_running: bool = False
) -> Comparison | None:
    """The comparison of a snapshot without a state: corrupt, or unverifiable for the reason ``reason``; None if it is gone.

    Raises:
        ReadFailedError: it cannot be read.
        ChangedFileError: its broker is writing it.
    """
    try:
        entries = read_snapshot_file(directory, offset, listed, is_broker_running=is_broker_running)
    except FormatError as error:
        return Comparison.corrupt(str(error))
    if entries is None:
        return None
    impossible = impossible_entries(entries, offset)
    status = ComparisonStatus.UNVERIFIABLE if impossible is None else ComparisonStatus.CORRUPT
    return Comparison(
        status=status,
        proven_wrong=impossible is not None,
        expected_entries=0,
        found_entries=len(entries),
        difference_count=0,
        differences=(),
        reason=impossible or reason,
    )


def snapshot_needs(directory: PartitionDir) -> tuple[int, int] | None:
    """Requests and bytes for all snapshots and transaction indexes of a listing; None if the log end must be read, too."""
    if directory.store.is_local or directory.log_end_offset is None:
        return None
    sizes = [listed.identity.size_bytes for _, listed in directory.snapshots]
    sizes += [each.transaction_index or 0 for each in directory.segments]
    return sum(-(-size // RANGE_BYTES) for size in sizes), sum(sizes)
