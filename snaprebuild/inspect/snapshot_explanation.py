"""Explains one snapshot: which of its entries the log contradicts, since which snapshot, and the batches that set the right values.

The partition is replayed from its first segment up to the offset of the snapshot. If entries are wrong, it is replayed once more, to trace
the batches of their producers: which ones these are is known only after the first replay.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from formats.partition.file_names import FileKind, parse_file_name
from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.errors import ChangedFileError, LimitReachedError, ReadFailedError, UsageError
from snaprebuild.findings import IN_FLUX, Finding, Severity, finding_of_error, in_flux
from snaprebuild.inspect.diff import EntryField
from snaprebuild.inspect.producer_trace import ProducerTrace, TraceAnalysis, TracedBatch, entry_of
from snaprebuild.published import Natural, Part
from snaprebuild.replay.classes import Judgement
from snaprebuild.replay.difference import ENTRY_FIELDS, Comparison, DifferenceKind, EntryDifference
from snaprebuild.replay.segment_effect import entries_of
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine.first_snapshot import wrong_by_the_log
from snaprebuild.snapshots.engine.log_facts import above_log_end
from snaprebuild.snapshots.engine.partition_replay import BoundaryState, source_replay
from snaprebuild.snapshots.engine.partition_task import Progress, ReplayTask, TaskOutcome
from snaprebuild.snapshots.engine.schedule import read_partitions
from snaprebuild.snapshots.engine.segment_reader import read_tasks
from snaprebuild.snapshots.engine.snapshot_file import readable_snapshot
from snaprebuild.snapshots.engine.window_proof import boundary_after
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import PartitionSource, Source, live_broker_notes
from snaprebuild.snapshots.verify import compared_alone
from snaprebuild.storage.partition_dir import ListedFile

__all__ = ["SnapshotExplanation", "SnapshotRun", "WrongEntry", "WrongField", "explain_snapshot", "snapshot_offset"]

ENTRIES_EXPLAINED_MAX = 100
"""Wrong entries whose batches are traced; all are counted."""


class WrongField(Part, frozen=True):
    """A field in which an entry differs from the log."""

    field: EntryField
    found: int | None
    """Value in the snapshot; null if it has no entry of the producer."""
    expected: int | None
    """Value by the log; null if the log has no entry of the producer."""
    right_since: TracedBatch | None
    """The batch that set the right value. Null if no batch did: the log has no entry, or the value is that of the first snapshot."""


class WrongEntry(Part, frozen=True):
    """An entry that the log contradicts."""

    producer_id: Natural
    kind: DifferenceKind
    deciding_field: EntryField | None
    """The first field that proves it wrong; null if the whole entry is missing, or too much."""
    fields: tuple[WrongField, ...]
    """All fields that differ, in the order of a snapshot."""
    right_since: TracedBatch | None
    """The batch after which the right value was in the log: that of the deciding field, or the last one of a missing entry."""
    wrong_since_offset: Natural
    """The first retained snapshot from which on each one up to this one has the entry wrong. Those that do not parse are passed over."""
    consequence: str
    open_from: int | None
    """First offset of the transaction that is open by the log; null without one."""


@dataclass(slots=True)
class SnapshotExplanation:
    """A snapshot, judged and explained.

    Attributes:
        name: of the file, in the directory of its partition.
        offset: that its name has.
        comparison: with the replay, or by its own entries if the replay has no state there. None if the file is gone or was not read.
        judgement: class of the replay at the offset, and its reasons; None if the replay has no state there.
        entries: that the log contradicts, the worst first, at most ``ENTRIES_EXPLAINED_MAX``.
        wrong_since_offset: the first retained snapshot from which on each one up to this one is proven wrong; None if this one is not.
        base_snapshot_offset: of the snapshot at the first offset, if the replay began with it.
    """

    source: PartitionSource
    name: str
    offset: int
    outcome: TaskOutcome = field(default_factory=TaskOutcome)
    comparison: Comparison | None = None
    judgement: Judgement | None = None
    entries: list[WrongEntry] = field(default_factory=list)
    wrong_since_offset: int | None = None
    base_snapshot_offset: int | None = None

    @property
    def findings(self) -> list[Finding]:
        """About the partition up to the offset, and about the snapshot."""
        return self.outcome.findings

    @property
    def path(self) -> str:
        """Path of the file."""
        return self.source.directory.file_path(self.name)


@dataclass(frozen=True, slots=True)
class SnapshotRun:
    """An explanation, and all findings of the run."""

    explanation: SnapshotExplanation
    clock: Clock
    findings: tuple[Finding, ...]
    read_bytes: int


def snapshot_offset(path: str) -> int | None:
    """The offset in the name of a snapshot; None for any other name, and for a directory on this machine."""
    name = parse_file_name(os.path.basename(path))
    if name is None or name.kind is not FileKind.PRODUCER_SNAPSHOT or os.path.isdir(path):
        return None
    return name.offset


def explain_snapshot(
    source: Source, name: str, offset: int, run: Run, *, check_crc: bool, progress: Progress | None
) -> SnapshotRun:
    """Explains a snapshot of the one partition of ``source``.

    Args:
        source: from ``open_source``, of the directory of the partition.
        name: of the file in this directory.
        offset: in its name.
        run: its clock is for expiry.
        check_crc: compute checksums.
        progress: called with partition and bytes of every segment.

    Raises:
        UsageError: the directory is not that of one partition, or has no such file.
    """
    if len(source.partitions) != 1:
        expected = (
            "is not in the directory of one partition, so that no segment shows what it should hold; `inspect diff` compares two"
        )
        raise UsageError(expected, path=name)
    directory = source.partitions[0].directory
    if all(listed.name != name for _, listed in directory.snapshots):
        raise UsageError("does not exist", path=directory.file_path(name))

    def explained(traced: tuple[int, ...]) -> SnapshotExplanation:
        def work_of(_: int, explanation: SnapshotExplanation) -> _SnapshotTask:
            return _SnapshotTask(explanation, run.clock, traced, check_crc=check_crc, progress=progress)

        begin = partial(_explanation_of, name, offset)
        return read_partitions(source.partitions, begin, work_of, run)[0]

    explanation = explained(())
    read_bytes = explanation.outcome.read_bytes
    comparison = explanation.comparison
    certain = [] if comparison is None else _certain_differences(comparison)
    if certain and explanation.judgement is not None:
        explanation = explained(tuple(each.producer_id for each in certain))
        read_bytes += explanation.outcome.read_bytes
    findings = (*source.findings, *live_broker_notes(source), *explanation.findings)
    return SnapshotRun(explanation, run.clock, findings, read_bytes)


def _certain_differences(comparison: Comparison) -> list[EntryDifference]:
    """The entries that are explained: of a snapshot that is proven wrong, those that prove it."""
    certain = [difference for difference in comparison.differences if comparison.proven_wrong and difference.is_certain]
    return certain[:ENTRIES_EXPLAINED_MAX]


def _explanation_of(name: str, offset: int, _: int, source: PartitionSource) -> SnapshotExplanation:
    return SnapshotExplanation(source, name, offset)


class _SnapshotTask(ReplayTask):
    """One partition, replayed up to the offset of a snapshot."""

    lost_above_damage = "no snapshot above it can be judged"

    def __init__(
        self, explanation: SnapshotExplanation, clock: Clock, traced: tuple[int, ...], *, check_crc: bool, progress: Progress | None
    ) -> None:
        directory = explanation.source.directory
        bases = directory.base_offsets
        offsets = sorted({offset for offset, _ in directory.snapshots if offset <= explanation.offset})
        extras = tuple(map(TraceAnalysis, traced))
        reads = partial(read_tasks, directory, check_crc=check_crc, cuts=offsets, extras=extras)
        # The snapshot at the first offset is judged by the whole log.
        is_first = not bases or explanation.offset <= bases[0]
        stop = len(bases) if is_first else bisect_left(bases, explanation.offset)
        replay = source_replay(explanation.source, clock, stop_index=stop)
        super().__init__(explanation.source, explanation.outcome, reads, replay, progress)
        self._explanation = explanation
        self._bases = bases
        self._traced = traced
        self._pieces: list[tuple[int | None, Sequence[np.ndarray]]] = []
        self._state: BoundaryState | None = None
        self._wrong_ids = np.zeros(0, dtype=np.int64)
        self._wrong_since = np.zeros(0, dtype=np.int64)
        self._file_wrong_since: int | None = None
        self._log_end = 0
        self._is_unread = False

    def take_segment(self, index: int, summary: SegmentSummary) -> bool:
        if self._traced:
            boundary, _ = boundary_after(self.source.directory.segments, index, summary)
            self._pieces.append((boundary, [part.rows for part in summary.contents.extras]))
        self._log_end = max(summary.facts.next_offset, summary.base_offset)
        return super().take_segment(index, summary)

    def boundary(self, state: BoundaryState) -> None:
        explanation = self._explanation
        if state.offset > explanation.offset:
            return
        for listed in self.source.directory.snapshots_at(state.offset):
            is_explained = listed.name == explanation.name
            if state.offset == explanation.offset and not is_explained:
                continue
            self._take_snapshot(state, listed, is_explained=is_explained)

    def _take_snapshot(self, state: BoundaryState, listed: ListedFile, *, is_explained: bool) -> None:
        """Compares a snapshot, and keeps since when each entry is wrong."""
        try:
            comparison = self.cross.snapshot(state, listed)
            ids = self._contradicted(state, comparison)
        except ChangedFileError as error:
            if is_explained:
                self._is_unread = True
                self.outcome.findings.append(in_flux(error, self.path, state.offset))
            return
        except ReadFailedError as error:
            if is_explained:
                self._is_unread = True
                self.outcome.findings.append(finding_of_error(error, self.path))
            return
        if comparison is None:
            if is_explained:
                self._is_unread = True
                path = self.source.directory.file_path(listed.name)
                self.outcome.findings.append(Finding(IN_FLUX, Severity.NOTE, path, "was deleted during the run", state.offset))
            return
        if comparison.proven_wrong and self._file_wrong_since is None:
            self._file_wrong_since = state.offset
        elif not comparison.proven_wrong:
            self._file_wrong_since = None
        if ids is not None:
            since = np.full(len(ids), state.offset, dtype=np.int64)
            _, now, before = np.intersect1d(ids, self._wrong_ids, assume_unique=True, return_indices=True)
            since[now] = self._wrong_since[before]
            self._wrong_ids = ids
            self._wrong_since = since
        if is_explained:
            self._state = state
            self._explanation.comparison = comparison
            self._explanation.judgement = state.judgement

    def _contradicted(self, state: BoundaryState, comparison: Comparison | None) -> np.ndarray | None:
        """Ids of the producers whose entries the log contradicts; None for a snapshot whose entries cannot be compared."""
        if comparison is None or (comparison.proven_wrong and not comparison.certain_count):
            return None
        if not comparison.certain_count:
            return np.zeros(0, dtype=np.int64)
        entries = readable_snapshot(self.source.directory, state.offset)
        return None if entries is None else self.cross.contradicted_producers(state, entries)

    def settle(self) -> None:
        """Judges the snapshot by its own entries, if the replay has no state at its offset, and explains what is wrong."""
        explanation = self._explanation
        if self.outcome.lost_file:
            return
        if explanation.comparison is None and not self._is_unread:
            self._judge_alone()
        comparison = explanation.comparison
        if comparison is None:
            return
        if comparison.proven_wrong:
            if self._file_wrong_since is None:
                explanation.wrong_since_offset = explanation.offset
            else:
                explanation.wrong_since_offset = self._file_wrong_since
            message = f"{comparison.status.value.replace('_', ' ')}: {comparison.reason}"
            finding = Finding("wrong-snapshot", Severity.FINDING, self.path, message, explanation.offset, comparison.status.reason)
            self.outcome.findings.append(finding)
        certain = _certain_differences(comparison)
        if self._state is None:
            explanation.entries = [self._entry_of_first_snapshot(each) for each in certain]
        elif self._traced:
            self._explain(self._state, certain)

    def _judge_alone(self) -> None:
        """The verdict on a snapshot at an offset of which the replay has no state."""
        explanation = self._explanation
        listed = next(each for at, each in self.source.directory.snapshots if each.name == explanation.name)
        is_first = bool(self._bases) and explanation.offset <= self._bases[0]
        first = self.replay.first_snapshot
        if is_first and first is not None and explanation.offset == self._bases[0]:
            explanation.comparison = wrong_by_the_log(first)
        if explanation.comparison is not None:
            return
        if self.outcome.ended is None and explanation.offset > self._log_end:
            self.outcome.findings.append(above_log_end(self.source, [explanation.offset], self._log_end))
        reason = self.outcome.ended or f"is above the log end {self._log_end}"
        if is_first:
            reason = "nothing before the first segment is on disk"
        try:
            is_running = self.source.is_broker_running
            explanation.comparison = compared_alone(
                self.source.directory, explanation.offset, listed, reason, is_broker_running=is_running
            )
        except ChangedFileError as error:
            self.outcome.findings.append(in_flux(error, self.path, explanation.offset))
        except ReadFailedError as error:
            self.outcome.findings.append(finding_of_error(error, self.path))
        except LimitReachedError as error:
            self.outcome.limit = error.message

    def _entry_of_first_snapshot(self, difference: EntryDifference) -> WrongEntry:
        """An entry of the snapshot at the first offset that a later batch contradicts: the batches that set the right value are deleted."""
        fields: tuple[WrongField, ...] = ()
        if difference.field is not None:
            fields = (WrongField(field=difference.field, found=difference.found, expected=difference.expected, right_since=None),)
        return _wrong_entry(difference, fields, None, self._explanation.offset)

    def _explain(self, state: BoundaryState, certain: Sequence[EntryDifference]) -> None:
        """Explains the entries whose batches were traced."""
        explanation = self._explanation
        found = readable_snapshot(self.source.directory, state.offset)
        if found is None:
            return
        if state.base_entries is not None:
            explanation.base_snapshot_offset = self._bases[0]
        since = dict(zip(self._wrong_ids.tolist(), self._wrong_since.tolist(), strict=True))
        for difference in certain:
            if difference.producer_id not in self._traced:
                continue  # it became wrong between two replays
            trace = self._trace(state, difference.producer_id)
            fields = _wrong_fields(entry_of(found, difference.producer_id), trace)
            deciding = difference.field
            newest = trace.set_by.get("last_offset" if deciding is None else deciding) or trace.set_by.get("timestamp")
            right_since = None if newest is None or trace.entry is None else newest.traced()
            wrong_since = since.get(difference.producer_id, explanation.offset)
            explanation.entries.append(_wrong_entry(difference, fields, right_since, wrong_since))

    def _trace(self, state: BoundaryState, producer_id: int) -> ProducerTrace:
        """The batches of a producer up to the snapshot."""
        base = state.base_entries
        trace = ProducerTrace.begun_with(None if base is None else entry_of(base, producer_id))
        number = self._traced.index(producer_id)
        for offset, rows in self._pieces:
            if rows:
                trace.take(rows[number], producer_id)
            if offset == state.offset:
                break
        expected = entries_of(state.prefix.of_producer(producer_id)).tolist()
        assert trace.entry == (ProducerEntry(*expected[0]) if expected else None), "the parallel replay and the trace differ"
        return trace


def _wrong_fields(found: ProducerEntry | None, trace: ProducerTrace) -> tuple[WrongField, ...]:
    """The fields in which an entry differs from the one by the log; all of them if there is only one of the two."""
    fields = []
    for name in ENTRY_FIELDS:
        found_value = None if found is None else getattr(found, name)
        expected = None if trace.entry is None else getattr(trace.entry, name)
        batch = trace.set_by.get(name)
        if found_value != expected:
            right_since = None if batch is None else batch.traced()
            fields.append(WrongField(field=name, found=found_value, expected=expected, right_since=right_since))
    return tuple(fields)


def _wrong_entry(
    difference: EntryDifference, fields: tuple[WrongField, ...], right_since: TracedBatch | None, wrong_since: int
) -> WrongEntry:
    return WrongEntry(
        producer_id=difference.producer_id,
        kind=difference.kind,
        deciding_field=difference.field,
        fields=fields,
        right_since=right_since,
        wrong_since_offset=wrong_since,
        consequence=difference.consequence,
        open_from=difference.open_from,
    )
