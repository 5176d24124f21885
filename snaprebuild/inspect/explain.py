"""Explains one producer: its entry at an offset, the batch that set each field, its entries in snapshots, and the answers of a broker."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from msgspec.structs import replace

from formats.errors import FormatError
from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.errors import ChangedFileError, ReadFailedError
from snaprebuild.findings import Finding, Severity, finding_of_error, in_flux, pluralize
from snaprebuild.inspect.broker_answer import (
    VERSIONS,
    Attempt,
    BatchInMemory,
    BrokerAnswer,
    ProducerMemory,
    answer_to,
)
from snaprebuild.inspect.producer_trace import BatchKind, ProducerTrace, TraceAnalysis, TracedBatch, traced_rows
from snaprebuild.replay.classes import Judgement
from snaprebuild.replay.difference import next_sequence
from snaprebuild.replay.segment_effect import entries_of
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.window import is_expired
from snaprebuild.snapshots.engine.boundary_state import BoundaryState
from snaprebuild.snapshots.engine.clock import Clock
from snaprebuild.snapshots.engine.partition_replay import source_replay
from snaprebuild.snapshots.engine.partition_task import Progress, ReplayTask, TaskOutcome
from snaprebuild.snapshots.engine.schedule import read_partitions
from snaprebuild.snapshots.engine.segment_reader import read_tasks
from snaprebuild.snapshots.engine.snapshot_file import read_snapshot_file
from snaprebuild.snapshots.engine.window_proof import boundary_after
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import PartitionSource, Source, live_broker_notes

__all__ = ["Answered", "ExplainResult", "Explanation", "Question", "SnapshotView", "explain"]

DIFFERING_LISTED_MAX = 100
"""Snapshots that an explanation lists because they differ; all are counted."""

EPOCH_MAX = 2**15 - 1


@dataclass(frozen=True, slots=True)
class Question:
    """The producer, state and batch to explain.

    Attributes:
        producer_id: not negative.
        at: offset of the wanted state, exclusive as in the name of a snapshot; None for the log end.
        version: of the broker that answers, one of ``broker_answer.VERSIONS``.
        sequence: base sequence of a batch for which the answer is wanted, or None for a choice of batches.
        epoch: its epoch, or None for that of the entry.
    """

    producer_id: int
    at: int | None = None
    version: tuple[int, int] = VERSIONS[-1]
    sequence: int | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """The entry of the producer in a snapshot on disk.

    Attributes:
        offset: of the snapshot.
        status: ``equal``, ``equal_after_expiry`` (a load drops what differs), ``missing`` (no entry), ``extra`` (an entry, and the log has
            none), ``differs`` or ``unreadable``.
        differences: (field, in the snapshot, by the log).
    """

    offset: int
    status: str
    differences: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Answered:
    """A batch that the producer might send, and the answers of a broker.

    Attributes:
        what: describes the batch.
        attempt: the batch.
        running: the answer of the broker that wrote the log and still runs.
        restarted: its answer after a start; even after an unclean stop, recovery writes and loads a snapshot at the log end.
    """

    what: str
    attempt: Attempt
    running: BrokerAnswer
    restarted: BrokerAnswer


@dataclass(slots=True)
class Explanation:
    """The producer in one partition.

    Attributes:
        offset: of the state; None if the replay reached none.
        judgement: class of the state and its reasons, or None.
        entry: of the producer, or None if the log does not have it.
        set_by: by field the batch that set it (``ProducerTrace``).
        base_offset: of the snapshot at the first offset, if the replay began with it.
        in_memory: the batches that a running broker has in memory, oldest first.
        expires_at_ms: when a broker drops it, ms since 1970; None with an open transaction or without entry.
        snapshots: those at or below the offset that differ, ascending, at most ``DIFFERING_LISTED_MAX``.
        snapshot_counts: all at or below the offset, by status.
        is_known: the log (up to the given offset) or a snapshot has an entry of the producer.
        outside: why the log has no state at the given offset, or None.
    """

    source: PartitionSource
    offset: int | None = None
    judgement: Judgement | None = None
    entry: ProducerEntry | None = None
    set_by: dict[str, TracedBatch] = field(default_factory=dict)
    base_offset: int | None = None
    in_memory: tuple[BatchInMemory, ...] = ()
    expires_at_ms: int | None = None
    is_expired: bool = False
    snapshots: list[SnapshotView] = field(default_factory=list)
    snapshot_counts: dict[str, int] = field(default_factory=dict)
    answers: list[Answered] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    bytes_read: int = 0
    is_known: bool = False
    outside: str | None = None


@dataclass(frozen=True, slots=True)
class ExplainResult:
    """The explanations of all partitions.

    Attributes:
        partitions: those that have the producer; or the only one that was read.
        partitions_read: count of all.
        findings: about the source and about the partitions.
    """

    question: Question
    clock: Clock
    partitions: tuple[Explanation, ...]
    partitions_read: int
    findings: tuple[Finding, ...]


def explain(
    source: Source,
    question: Question,
    run: Run,
    *,
    check_crc: bool = True,
    progress: Progress | None = None,
) -> ExplainResult:
    """Explains a producer in every partition of ``source`` that has it.

    Args:
        source: from ``open_source``.
        question: what to explain.
        run: its clock is for expiry.
        check_crc: compute checksums.
        progress: called with partition and bytes of every segment.
    """

    def work_of(_: int, explanation: Explanation) -> _ExplainTask:
        return _ExplainTask(explanation, question, run.clock, check_crc=check_crc, progress=progress)

    explanations = read_partitions(source.partitions, lambda _, partition: Explanation(partition), work_of, run)
    known = [each for each in explanations if each.is_known]
    findings = [*source.findings, *live_broker_notes(source)]
    findings += [finding for each in explanations for finding in each.findings]
    shown = known or (explanations if len(explanations) == 1 else [])
    for each in shown:
        if each.outside is not None:
            findings.append(Finding("offset-not-in-log", Severity.FINDING, each.source.path, each.outside, question.at))
    if not known and explanations:
        where = explanations[0].source.path if len(explanations) == 1 else explanations[0].source.log_dir.path
        message = f"no partition that was read has producer {question.producer_id}"
        message += "" if question.at is None else f" before offset {question.at}"
        unread = sum(
            any(finding.severity > Severity.FINDING or finding.is_unread for finding in each.findings) for each in explanations
        )
        if unread:
            message += f"; {pluralize(unread, 'partition')} could not be read to the end, and may have it"
        message += ". `inspect stats` lists the ids"
        # If not everything was read, other findings report that, and this one is only a note.
        severity = Severity.NOTE if unread else Severity.FINDING
        findings.append(Finding("unknown-producer", severity, where, message))
    return ExplainResult(question, run.clock, tuple(shown), len(explanations), tuple(findings))


class _ExplainTask(ReplayTask):
    """One partition, replayed up to the offset."""

    lost_above_damage = "nothing above it can be explained"

    def __init__(
        self, explanation: Explanation, question: Question, clock: Clock, *, check_crc: bool, progress: Progress | None
    ) -> None:
        directory = explanation.source.directory
        at = question.at
        bases = [segment.base_offset for segment in directory.segments]
        snapshots = {offset for offset, _ in directory.snapshots if at is None or offset <= at}
        cuts = sorted(snapshots if at is None else snapshots | {at})
        reads = partial(read_tasks, directory, check_crc=check_crc, cuts=cuts, extras=(TraceAnalysis(question.producer_id),))
        stop = len(bases) if at is None else bisect_left(bases, at)
        replay = source_replay(explanation.source, clock, stop_index=stop)
        super().__init__(explanation.source, TaskOutcome(explanation.findings), reads, replay, progress)
        self._explanation = explanation
        self._question = question
        self._clock = clock
        self._bases = bases
        self._entries: dict[int, ProducerEntry | None] = {}
        self._state: BoundaryState | None = None
        self._last: BoundaryState | None = None
        self._pieces: list[tuple[int | None, np.ndarray]] = []
        self._log_end = 0
        self._snapshots = snapshots

    def take_segment(self, index: int, summary: SegmentSummary) -> bool:
        self._explanation.bytes_read += summary.read_bytes
        boundary, _ = boundary_after(self.source.directory.segments, index, summary)
        self._pieces.append((boundary, traced_rows(summary.contents)))
        self._log_end = max(summary.facts.next_offset, summary.base_offset)
        return super().take_segment(index, summary)

    def finish(self) -> None:
        super().finish()
        explanation = self._explanation
        damage = self.replay.damage
        self._compare_snapshots()
        explanation.is_known = bool(explanation.snapshot_counts.keys() - {"unreadable"})
        if self._state is not None:
            self._explain(self._state)
            explanation.is_known |= explanation.entry is not None
            return
        explanation.is_known |= self._last is not None and self._entry_in(self._last) is not None
        if self._question.at is not None and damage is None:
            explanation.outside = (
                f"the log on disk begins at {self._bases[0]} and ends at {self._log_end}" if self._bases else "the log is empty"
            )

    def boundary(self, state: BoundaryState) -> None:
        if state.offset in self._snapshots:
            self._entries[state.offset] = self._entry_in(state)
        self._last = state
        if self._question.at in (None, state.offset):
            self._state = state

    def _entry_in(self, state: BoundaryState) -> ProducerEntry | None:
        found = entries_of(state.prefix.of_producer(self._question.producer_id)).tolist()
        return ProducerEntry(*found[0]) if found else None

    def _explain(self, state: BoundaryState) -> None:
        explanation = self._explanation
        question = self._question
        at = state.offset
        judgement = state.judgement
        entry = self._entry_in(state)
        trace = ProducerTrace.begun_with(self._base_entry(state))
        for offset, rows in self._pieces:
            trace.take(rows, question.producer_id)
            if offset == at:
                break
        assert trace.entry == entry, "the parallel replay and the trace differ"
        explanation.offset = at
        explanation.judgement = judgement
        explanation.entry = entry
        explanation.set_by = trace.set_by
        explanation.in_memory = tuple(trace.in_memory)
        if entry is not None:
            clock = self._clock
            explanation.is_expired = is_expired(entry, clock.as_of_ms, clock.expiration_ms)
            if entry.current_txn_first_offset < 0:
                explanation.expires_at_ms = entry.timestamp + clock.expiration_ms
        forgotten = entry is None or explanation.is_expired
        running = None if forgotten else trace.memory
        restarted = None if entry is None or forgotten else ProducerMemory.loaded(entry)
        for what, attempt in _attempts(question, trace):
            answered = Answered(what, attempt, *(answer_to(memory, attempt, question.version) for memory in (running, restarted)))
            explanation.answers.append(answered)
            # The log does not show the transaction version of the client: both answers are given if they differ.
            bumping = replace(attempt, is_transactional=True, bumps_epochs=True)
            answers = [answer_to(memory, bumping, question.version) for memory in (running, restarted)]
            if (attempt.is_transactional or entry is None) and answers != [answered.running, answered.restarted]:
                explanation.answers.append(Answered(f"{what}, in transaction version 2", bumping, *answers))

    def _base_entry(self, state: BoundaryState) -> ProducerEntry | None:
        base = state.base_entries
        if base is None:
            return None
        self._explanation.base_offset = self._bases[0]
        row = np.flatnonzero(base["producer_id"] == self._question.producer_id)
        return ProducerEntry(*base[row[0]].tolist()) if len(row) else None

    def _compare_snapshots(self) -> None:
        explanation = self._explanation
        for offset in sorted(self._snapshots):
            view = self._view(offset)
            if view is None:
                continue
            explanation.snapshot_counts[view.status] = explanation.snapshot_counts.get(view.status, 0) + 1
            if view.status != "equal" and len(explanation.snapshots) < DIFFERING_LISTED_MAX:
                explanation.snapshots.append(view)

    def _view(self, offset: int) -> SnapshotView | None:
        """The entry in the snapshot; None if neither the snapshot nor the log has the producer."""
        try:
            source = self._explanation.source
            entries = read_snapshot_file(source.directory, offset, is_broker_running=source.is_broker_running)
        except ChangedFileError as error:
            self._explanation.findings.append(in_flux(error, self._explanation.source.path, offset))
            return None
        except (FormatError, ReadFailedError) as error:
            if isinstance(error, ReadFailedError):
                path = self._explanation.source.path
                self._explanation.findings.append(replace(finding_of_error(error, path), offset=offset))
            return SnapshotView(offset, "unreadable")
        if entries is None:
            return None
        # A broker takes the last of two entries of one producer.
        rows = np.flatnonzero(entries["producer_id"] == self._question.producer_id)
        found = ProducerEntry(*entries[rows[-1]].tolist()) if len(rows) else None
        if offset not in self._entries:
            return None if found is None else SnapshotView(offset, "not_compared")
        expected = self._entries[offset]
        if found == expected:
            return None if found is None else SnapshotView(offset, "equal")
        clock = self._clock
        if all(each is None or is_expired(each, clock.as_of_ms, clock.expiration_ms) for each in (found, expected)):
            return SnapshotView(offset, "equal_after_expiry")
        if found is None or expected is None:
            return SnapshotView(offset, "missing" if found is None else "extra")
        fields = ((name, getattr(found, name), getattr(expected, name)) for name in ProducerEntry.__struct_fields__)
        return SnapshotView(offset, "differs", tuple(each for each in fields if each[1] != each[2]))


def _attempts(question: Question, trace: ProducerTrace) -> list[tuple[str, Attempt]]:
    """The batch of the question, or the batches whose answers differ most."""
    entry = trace.entry
    epoch = 0 if entry is None else max(entry.epoch, 0)
    last = -1 if entry is None else entry.last_sequence
    following = next_sequence(last)
    of_last_data = trace.last_data is not None and trace.last_data.kind == BatchKind.TRANSACTIONAL
    in_transaction = entry is not None and (entry.current_txn_first_offset >= 0 or of_last_data or entry.coordinator_epoch >= 0)
    if question.sequence is not None or question.epoch is not None:
        asked_epoch = epoch if question.epoch is None else question.epoch
        sequence = question.sequence
        if sequence is None:
            sequence = following if asked_epoch == epoch else 0
        # A retry is the same batch again, with as many records.
        same = next((each for each in trace.in_memory if asked_epoch == epoch and each.first_sequence == sequence), None)
        return [("as asked", Attempt(asked_epoch, sequence, 1 if same is None else _records(same), in_transaction))]
    if entry is not None and entry.last_offset >= 0 and last == -1:
        return [("the next one", Attempt(epoch, -1, 1, in_transaction))]
    attempts = [("the next one", Attempt(epoch, following, 1, in_transaction))]
    if trace.in_memory:
        newest = trace.in_memory[-1]
        oldest = trace.in_memory[0]
        attempts.append(("the last one again", Attempt(epoch, newest.first_sequence, _records(newest), in_transaction)))
        if newest != oldest:
            what = f"the one {len(trace.in_memory) - 1} before it again"
            attempts.append((what, Attempt(epoch, oldest.first_sequence, _records(oldest), in_transaction)))
    attempts.append(("one after a gap", Attempt(epoch, next_sequence(following), 1, in_transaction)))
    if epoch < EPOCH_MAX:
        attempts.append(("the first of a new epoch", Attempt(epoch + 1, 0, 1, in_transaction)))
    if epoch > 0:
        attempts.append(("the first of an older epoch", Attempt(epoch - 1, 0, 1, in_transaction)))
    return attempts


def _records(batch: BatchInMemory) -> int:
    """The count of records by the sequences, which may wrap."""
    return (batch.last_sequence - batch.first_sequence) % 2**31 + 1
