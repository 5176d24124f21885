"""Replays partitions from their first segment and compares every snapshot on disk with the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from formats.errors import FormatError
from snaprebuild.errors import ChangedFileError, GoneFileError, ReadFailedError, SnaprebuildError
from snaprebuild.findings import Finding, Severity, finding_of_error, in_flux
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import Comparison, SnapshotStatus, impossible_entries
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine.cache_hits import NONE_KEPT, FromEffects
from snaprebuild.snapshots.engine.chunks import Chunk, DivisibleJob, Failure, Unreached, failure_of
from snaprebuild.snapshots.engine.crosscheck import CrossCheck, ListedDifferences
from snaprebuild.snapshots.engine.log_facts import known_log_end
from snaprebuild.snapshots.engine.partition_replay import (
    BoundaryState,
    Clock,
    PartitionReplay,
    ReplayFrom,
    read_snapshot_file,
)
from snaprebuild.snapshots.engine.partition_task import PartitionWork, Progress, read_partitions
from snaprebuild.snapshots.engine.read_tasks import read_tasks
from snaprebuild.snapshots.engine.schedule import Engine, ReadTask
from snaprebuild.snapshots.engine.summary_stream import Arrivals, feed
from snaprebuild.snapshots.source.boundary_needs import (
    NO_NEEDS,
    BoundaryNeeds,
    NeedCounts,
    boundary_needs,
    check_selected_boundaries,
)
from snaprebuild.snapshots.source.source import PartitionSource, Selection, Source, TopicKind, live_broker_notes, log_start_above
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir
from snaprebuild.storage.s3.object_bytes import RANGE_BYTES

__all__ = [
    "UNSOUND",
    "BoundaryTold",
    "PartitionVerdict",
    "RemoteVerdict",
    "SnapshotVerdict",
    "VerifyJob",
    "VerifyResult",
    "snapshot_needs",
    "verify",
]


UNSOUND = "unsound-boundary"

BoundaryTold = Callable[[PartitionSource, BoundaryState, ListedFile | None, Comparison | None], None]
"""Told of each boundary that the replay comes to, in log order, and of each cut with a snapshot: its state, the snapshot there, and both
side by side; None without one."""


@dataclass(frozen=True, slots=True)
class SnapshotVerdict:
    """A snapshot on disk, judged.

    Attributes:
        offset: from its name.
        comparison: with the replay.
        snapshot_class: of the replay at this offset; None where it did not come by: below the first segment or its base, above the log
            end, or behind damage.
        name: of the file.
    """

    offset: int
    comparison: Comparison
    snapshot_class: SnapshotClass | None
    name: str = ""


@dataclass(slots=True)
class PartitionVerdict:
    """A partition, judged.

    Attributes:
        source: the partition.
        snapshots: one verdict for each snapshot on disk, ascending.
        needs: the selected boundaries that have no snapshot, by what they need.
        findings: about this partition.
        bytes_read: of its segments.
        from_effects: what was not read, because an earlier run has kept what it gave.
    """

    source: PartitionSource
    snapshots: list[SnapshotVerdict] = field(default_factory=list)
    needs: BoundaryNeeds = NO_NEEDS
    findings: list[Finding] = field(default_factory=list)
    bytes_read: int = 0
    from_effects: FromEffects = NONE_KEPT

    @property
    def missing(self) -> list[int]:
        """Offsets of the selected boundaries that need a snapshot and have none."""
        return list(self.needs.missing)


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """Everything that was judged."""

    clock: Clock
    partitions: tuple[PartitionVerdict, ...]
    source_findings: tuple[Finding, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Those of the source and of every partition."""
        return (*self.source_findings, *(finding for partition in self.partitions for finding in partition.findings))

    @property
    def counts(self) -> NeedCounts:
        """Selected boundaries without a snapshot, by what they need."""
        return NeedCounts.of(partition.needs for partition in self.partitions)

    @property
    def differences_not_listed(self) -> int:
        """Differing entries that are counted and not listed."""
        comparisons = (snapshot.comparison for partition in self.partitions for snapshot in partition.snapshots)
        return sum(comparison.difference_count - len(comparison.differences) for comparison in comparisons)


def verify(
    source: Source,
    clock: Clock,
    *,
    selection: Selection | None = None,
    check_crc: bool = True,
    jobs: int | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
    tell: BoundaryTold | None = None,
) -> VerifyResult:
    """Judges every snapshot of the partitions of ``source``.

    Args:
        source: from ``open_source``.
        clock: for expiry: entries that a load at that moment drops are not compared.
        selection: only snapshots at boundaries that it takes.
        check_crc: compute checksums.
        jobs: worker processes, None for as many as processors.
        engine: reads and replays in place of worker processes of this machine.
        progress: told of every segment: partition and bytes.
        tell: told of every boundary; not with an engine that judges partitions elsewhere.

    Raises:
        UsageError: the selection names offsets, and no partition has a boundary or a snapshot there.
    """
    assert tell is None or engine is None, "states stay where they are made"
    if selection is not None:
        check_selected_boundaries(selection, ((each, known_log_end(each.directory)) for each in source.partitions))
    selected, listed = selection or Selection(), ListedDifferences()

    def work_of(place: int, verdict: PartitionVerdict) -> _VerifyWork:
        return _VerifyWork(verdict, place, clock, selected, listed, check_crc=check_crc, progress=progress, tell=tell)

    verdicts = read_partitions(source.partitions, lambda _, partition: PartitionVerdict(partition), work_of, jobs, engine)
    return VerifyResult(clock, tuple(verdicts), (*source.findings, *live_broker_notes(source)))


def _replay_of(source: PartitionSource, clock: Clock, log_end: int) -> PartitionReplay:
    """Empty at the first segment: what a snapshot at the first offset claims is judged by the later ones, it is no truth."""
    directory = source.directory
    return PartitionReplay(directory, ReplayFrom.LOG_START, clock, 0, len(directory.segments), 0, log_end)


def _read_tasks(source: PartitionSource, indices: Sequence[int], selection: Selection, *, check_crc: bool) -> list[ReadTask]:
    directory = source.directory
    # A broker that stops cleanly writes its snapshot wherever the log ends, and goes on in the same segment when it starts.
    cuts = sorted({offset for offset, _ in directory.snapshots if selection.takes_boundary(offset)})
    return read_tasks(directory, indices, check_crc=check_crc, cuts=cuts)


class _VerifyWork(PartitionWork):
    """One partition, replayed as its broker would, with every snapshot beside it."""

    def __init__(
        self,
        verdict: PartitionVerdict,
        place: int,
        clock: Clock,
        selection: Selection,
        listed: ListedDifferences,
        *,
        check_crc: bool,
        progress: Progress | None,
        replay: PartitionReplay | None = None,
        tell: BoundaryTold | None = None,
    ) -> None:
        super().__init__(verdict.source, verdict.findings, progress)
        self._tell = tell
        self._verdict = verdict
        self._place = place
        self._listed = listed
        self._clock = clock
        self._selection = selection
        self._check_crc = check_crc
        self._cross = CrossCheck(verdict.source, clock)
        if replay is None:
            log_end = known_log_end(verdict.source.directory)
            replay = _replay_of(verdict.source, clock, log_end)
            verdict.needs = boundary_needs(verdict.source, log_end, selection.takes_boundary)
        self._replay = replay
        # Compaction leaves gaps by design, and such topics are never uploaded.
        ordinary = verdict.source.topic_kind is TopicKind.ORDINARY and not verdict.source.is_compacted
        self._unsound_severity = Severity.FINDING if ordinary else Severity.NOTE
        self._told_unsound = False
        self._seen: set[int] = set()
        self._log_end = 0

    def all_tasks(self) -> list[ReadTask]:
        indices = self._replay.begin()
        self._next = indices[0] if indices else 0
        return _read_tasks(self._verdict.source, indices, self._selection, check_crc=self._check_crc)

    def take_segment(self, index: int, summary: SegmentSummary) -> bool:
        self._verdict.bytes_read += summary.bytes_read
        self._verdict.from_effects = self._verdict.from_effects.with_segment(summary)
        for state in self._replay.take(index, summary):
            self._boundary(state)
        self._log_end = max(summary.facts.next_offset, summary.base_offset)
        return self._replay.damage is None

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        super().fail(error)
        if not isinstance(error, GoneFileError):
            self._settle(f"the replay failed: {error}")

    def finish(self) -> None:
        damage = self._replay.damage
        if damage is not None:
            path = self._verdict.source.directory.path
            message = f"{damage.reason}: nothing above it can be judged"
            self._verdict.findings.append(
                Finding("damaged-segment", Severity.DAMAGED, path, message, damage.offset, is_unread=True)
            )
        self._settle(None if damage is None else damage.reason)

    def _settle(self, reason: str | None) -> None:
        """What is told of the partition as a whole; ``reason`` says why the replay ended before its time, None where it did not."""
        if reason is None:
            self._above_log_end()
            self._verdict.findings += log_start_above(self._verdict.source, self._log_end)
        self._others(reason or f"lies above the log end {self._log_end}")

    def job(self) -> VerifyJob:
        return VerifyJob(self._verdict.source, self._clock, self._selection, self._check_crc)

    def adopt(self, done: RemoteVerdict) -> None:
        verdict = self._verdict
        verdict.snapshots = done.snapshots
        verdict.bytes_read, verdict.from_effects = done.bytes_read, done.from_effects
        verdict.findings += done.findings
        for snapshot in verdict.snapshots:
            self._listed.add(self._place, snapshot.offset, snapshot.comparison)

    def _boundary(self, state: BoundaryState) -> None:
        self._seen.add(state.offset)
        differs = self._cross.transaction_index(state)
        if differs is not None:
            self._verdict.findings.append(differs)
        if state.has_doubts and not state.is_cut and not self._is_unsound_told():
            message = f"from here on the log proves nothing: {state.judgement.reasons[0]}"
            self._verdict.findings.append(
                Finding(UNSOUND, self._unsound_severity, self._verdict.source.directory.path, message, state.offset)
            )
        if not self._selection.takes_boundary(state.offset):
            return
        found = False
        for listed in self._verdict.source.directory.snapshots_at(state.offset):
            found |= self._compared(state, listed)
        if not found and not state.is_cut and self._tell is not None:
            self._tell(self._verdict.source, state, None, None)

    def _compared(self, state: BoundaryState, listed: ListedFile) -> bool:
        """Judges a snapshot; False where it is gone by now."""
        try:
            comparison = self._cross.snapshot(state, listed)
        except ChangedFileError as error:
            self._verdict.findings.append(in_flux(error, self._verdict.source.directory.path, state.offset))
            return True
        except ReadFailedError as error:
            self._unreadable(error)
            return True
        if comparison is None:
            return False
        if self._tell is not None:
            self._tell(self._verdict.source, state, listed, comparison)
        self._judge(SnapshotVerdict(state.offset, comparison, state.judgement.snapshot_class, listed.name))
        return True

    def _is_unsound_told(self) -> bool:
        if not self._told_unsound:
            findings = self._verdict.findings
            self._told_unsound = any(finding.code == UNSOUND or finding.severity is Severity.DAMAGED for finding in findings)
        return self._told_unsound

    def _unreadable(self, error: ReadFailedError) -> None:
        """That a snapshot cannot be read proves nothing about it, and the others are judged all the same."""
        self._verdict.findings.append(finding_of_error(error, self._verdict.source.directory.path))

    def _above_log_end(self) -> None:
        """A broker takes a snapshot of what its log holds, so one that lies above the log end tells that the log was longer."""
        directory, log_dir = self._verdict.source.directory, self._verdict.source.log_dir
        above = [at for at, _ in directory.snapshots if at > self._log_end and self._selection.takes_boundary(at)]
        if not above:
            return
        more = f" and {len(above) - 1} more" if len(above) > 1 else ""
        below = f"the log ends at {self._log_end}, below the snapshot at {above[-1]}{more}"
        message, severity = f"{below}: the log lost its tail, or the snapshot belongs to another log", Severity.FINDING
        if log_dir.is_broker_directory and log_dir.clean_shutdown is None:
            message, severity = f"{below}: its broker did not stop cleanly, and removes such files when it starts", Severity.NOTE
        self._verdict.findings.append(Finding("snapshot-above-log-end", severity, directory.path, message, above[-1]))

    def _others(self, reason: str) -> None:
        """Snapshots at offsets where the replay has no state to compare with: only what they say by themselves."""
        directory = self._verdict.source.directory
        for offset, listed in directory.snapshots:
            if offset in self._seen or not self._selection.takes_boundary(offset):
                continue
            is_first = bool(directory.segments) and offset <= directory.segments[0].base_offset
            why = "nothing before the first segment is on disk" if is_first else reason
            try:
                running = self._verdict.source.is_broker_running
                entries = read_snapshot_file(directory, offset, listed, is_broker_running=running)
            except ChangedFileError as error:
                self._verdict.findings.append(in_flux(error, directory.path, offset))
                continue
            except ReadFailedError as error:
                self._unreadable(error)
                continue
            except FormatError as error:
                comparison = Comparison(SnapshotStatus.CORRUPT, True, 0, 0, 0, (), str(error))
            else:
                if entries is None:
                    continue
                impossible = impossible_entries(entries, offset)
                status = SnapshotStatus.UNVERIFIABLE if impossible is None else SnapshotStatus.CORRUPT
                comparison = Comparison(status, impossible is not None, 0, len(entries), 0, (), impossible or why)
            self._judge(SnapshotVerdict(offset, comparison, None, listed.name))
        self._verdict.snapshots.sort(key=lambda each: each.offset)

    def _judge(self, verdict: SnapshotVerdict) -> None:
        self._verdict.snapshots.append(verdict)
        comparison = verdict.comparison
        if comparison.proven_wrong:
            message = f"{comparison.status.value.replace('_', ' ')}: {comparison.reason}"
            if comparison.differences:
                first = comparison.differences[0]
                message += f"; producer {first.producer_id}: {first.consequence}"
            path = self._verdict.source.directory.path
            self._verdict.findings.append(
                Finding("wrong-snapshot", Severity.FINDING, path, message, verdict.offset, comparison.status.reason)
            )
        self._listed.add(self._place, verdict.offset, comparison)


@dataclass(frozen=True, slots=True)
class RemoteVerdict:
    """What a partition that was judged in another process came to: as ``PartitionVerdict``, without its source."""

    snapshots: list[SnapshotVerdict]
    findings: list[Finding]
    bytes_read: int
    from_effects: FromEffects


class _VerifyChunk(_VerifyWork):
    """Some of its segments: what is told of the partition as a whole is told when all chunks are merged."""

    ended: str | None = None

    def _settle(self, reason: str | None) -> None:
        self.ended = reason

    def done(self) -> _DoneChunk:
        """What it came to."""
        return _DoneChunk(_remote(self._verdict), self.ended, frozenset(self._seen), self._log_end)


class _MergedChunks(_VerifyWork):
    """The whole partition, of what its chunks came to."""

    def add(self, chunk: _DoneChunk) -> None:
        """Adds the next one."""
        verdict, done = self._verdict, chunk.done
        verdict.snapshots += done.snapshots
        verdict.bytes_read += done.bytes_read
        verdict.from_effects += done.from_effects
        for finding in done.findings:  # each chunk tells by itself from where on the log proves nothing
            if finding.code != UNSOUND or not self._is_unsound_told():
                verdict.findings.append(finding)
        self._seen |= chunk.seen
        self._log_end = chunk.log_end

    def settle(self, reason: str | None) -> None:
        """What is told at the end."""
        self._settle(reason)


@dataclass(frozen=True, slots=True)
class _DoneChunk:
    """What became of a chunk.

    Attributes:
        done: its snapshots.
        ended: why the replay ended in it, None where it did not.
        seen: offsets at which the replay handed out a state.
        log_end: end of its last segment.
    """

    done: RemoteVerdict
    ended: str | None
    seen: frozenset[int]
    log_end: int


@dataclass(frozen=True, slots=True)
class VerifyJob(DivisibleJob):
    """One partition, to be judged in another process.

    Attributes:
        source: the partition.
        clock: for expiry.
        selection: only snapshots at boundaries that it takes.
        check_crc: compute checksums.
    """

    source: PartitionSource
    clock: Clock
    selection: Selection
    check_crc: bool

    def replay(self) -> PartitionReplay:
        """As ``DivisibleJob``."""
        return _replay_of(self.source, self.clock, known_log_end(self.source.directory))

    def read_tasks(self, indices: Sequence[int]) -> list[ReadTask]:
        """As ``DivisibleJob``."""
        return _read_tasks(self.source, indices, self.selection, check_crc=self.check_crc)

    def carry_out(self, arrivals: Arrivals) -> tuple[RemoteVerdict | None, list[ReadTask]]:
        """As ``schedule.Job``."""
        verdict = PartitionVerdict(self.source)
        missing = feed(self._work(_VerifyWork, verdict), arrivals)
        return (None, missing) if missing else (_remote(verdict), [])

    def needs(self) -> tuple[int, int] | None:
        """Requests and bytes beside the segments, where an object store is concerned; None where it cannot be told."""
        return snapshot_needs(self.source.directory)

    def carry_out_chunk(self, chunk: Chunk, arrivals: Arrivals) -> _DoneChunk:
        """As ``DivisibleJob``."""
        work = self._work(_VerifyChunk, PartitionVerdict(self.source), self.replay().part(chunk.stop, chunk.after))
        missing = feed(work, arrivals)
        assert not missing, "a chunk asks for its own segments alone"
        return work.done()

    def merged(self, chunks: Iterable[_DoneChunk | Unreached | Failure]) -> RemoteVerdict:
        """As ``DivisibleJob``."""
        verdict, reason = PartitionVerdict(self.source), None
        work = self._work(_MergedChunks, verdict)
        for chunk in chunks:
            if isinstance(chunk, _DoneChunk):
                work.add(chunk)
                reason = reason or chunk.ended
            elif (error := failure_of(chunk, reason)) is not None:
                verdict.findings.append(finding_of_error(error, self.source.directory.path))
                reason = reason or f"the replay failed: {error}"
        work.settle(reason)
        return _remote(verdict)

    def _work(self, kind: type[_AnyWork], verdict: PartitionVerdict, replay: PartitionReplay | None = None) -> _AnyWork:
        listed = ListedDifferences()
        return kind(verdict, 0, self.clock, self.selection, listed, check_crc=self.check_crc, progress=None, replay=replay)


_AnyWork = TypeVar("_AnyWork", bound=_VerifyWork)


def snapshot_needs(directory: PartitionDir) -> tuple[int, int] | None:
    """Requests and bytes for all snapshots and transaction indexes of a listing.

    None where the log end is looked for, too, which takes what it takes.
    """
    if directory.store.is_local or directory.log_end_offset is None:
        return None
    sizes = [listed.identity.size_bytes for _, listed in directory.snapshots]
    sizes += [each.transaction_index or 0 for each in directory.segments]
    sizes += [size for each in directory.segments if each.has_checked_indexes for size in each.compared_bytes]
    return sum(-(-size // RANGE_BYTES) for size in sizes), sum(sizes)


def _remote(verdict: PartitionVerdict) -> RemoteVerdict:
    return RemoteVerdict(verdict.snapshots, verdict.findings, verdict.bytes_read, verdict.from_effects)
