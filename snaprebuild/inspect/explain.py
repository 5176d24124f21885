"""Explains one producer: its entry at an offset, the batch that set each field, its entries in snapshots, and the answers of a broker."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import msgspec
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
from snaprebuild.inspect.diff import EntryField
from snaprebuild.inspect.producer_trace import BatchKind, ProducerTrace, TraceAnalysis, TracedBatch, entry_of, traced_rows
from snaprebuild.published import Natural, Part, Positive, one_of
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import ENTRY_FIELDS, next_sequence
from snaprebuild.replay.segment_effect import entries_of
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.window import Clock, is_expired
from snaprebuild.snapshots.engine.partition_replay import BoundaryState, source_replay
from snaprebuild.snapshots.engine.partition_task import Progress, ReplayTask, TaskOutcome
from snaprebuild.snapshots.engine.schedule import read_partitions
from snaprebuild.snapshots.engine.segment_reader import read_tasks
from snaprebuild.snapshots.engine.snapshot_file import read_snapshot_file
from snaprebuild.snapshots.engine.window_proof import boundary_after
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import PartitionSource, Source, live_broker_notes
from snaprebuild.storage.partition_names import TopicPartition, names_of

__all__ = [
    "AnsweredBatch",
    "DifferingField",
    "DifferingSnapshot",
    "EntryStatus",
    "ExplainResult",
    "ExplainedPartition",
    "ExplainedSnapshots",
    "ProducerExplanation",
    "Question",
    "SnapshotTotals",
    "explain_producer",
]

DIFFERING_LISTED_MAX = 100
"""Snapshots that an explanation lists because they differ; all are counted."""

EPOCH_MAX = 2**15 - 1


@dataclass(frozen=True, slots=True)
class Question:
    """The producer, state and batch to explain.

    Attributes:
        producer_id: not negative.
        requested_offset: of the state, exclusive as in the name of a snapshot; None for the log end.
        broker_version: of the broker that answers, one of ``broker_answer.VERSIONS``.
        sequence: base sequence of a batch for which the answer is wanted, or None for a choice of batches.
        epoch: its epoch, or None for that of the entry.
    """

    producer_id: int
    requested_offset: int | None = None
    broker_version: tuple[int, int] = VERSIONS[-1]
    sequence: int | None = None
    epoch: int | None = None


class EntryStatus(StrEnum):
    """How the entry of the producer in a snapshot compares with the log."""

    EQUAL = "equal"
    EQUAL_AFTER_EXPIRY = "equal_after_expiry"
    """A load of the snapshot drops what differs."""
    MISSING = "missing"
    """The log has an entry, and the snapshot has none."""
    EXTRA = "extra"
    """The snapshot has an entry, and the log has none."""
    DIFFERS = "differs"
    UNREADABLE = "unreadable"
    NOT_COMPARED = "not_compared"
    """The replay did not reach the offset of the snapshot."""


class DifferingField(Part, frozen=True):
    """A field of an entry."""

    field: Annotated[str, one_of(*ENTRY_FIELDS)]
    found: int
    """Value in the snapshot."""
    expected: int
    """Value by the log."""


class DifferingSnapshot(Part, frozen=True):
    """A snapshot whose entry of the producer is not equal."""

    offset: Natural
    status: EntryStatus
    fields: tuple[DifferingField, ...] = ()


class AnsweredBatch(Part, frozen=True):
    """A batch that the producer might send, and the answers of a broker that wrote the log and runs, and after a start.

    Even after an unclean stop the recovery writes a snapshot at the log end, and loads it.
    """

    batch: str
    """For the user; not stable."""
    epoch: int
    base_sequence: int
    """Sequence of its first record; -1 for a batch of a group coordinator."""
    records: Positive
    is_transactional: bool
    transaction_version_2: bool
    running: BrokerAnswer
    restarted: BrokerAnswer

    @classmethod
    def of(cls, batch: str, attempt: Attempt, answers: Sequence[BrokerAnswer]) -> AnsweredBatch:
        """The answers to an attempt: of the running broker, and of the restarted one.

        Args:
            batch: the attempt in words.
            attempt: what the producer sends.
            answers: two, in this order.
        """
        running, restarted = answers
        return cls(batch=batch, **msgspec.structs.asdict(attempt), running=running, restarted=restarted)


class SnapshotTotals(Part, frozen=True):
    """Snapshots at or below the offset in which the producer is or should be, by status."""

    equal: Natural = 0
    equal_after_expiry: Natural = 0
    missing: Natural = 0
    extra: Natural = 0
    differs: Natural = 0
    unreadable: Natural = 0
    not_compared: Natural = 0


class ExplainedSnapshots(Part, frozen=True):
    """The snapshots at or below the offset."""

    totals: SnapshotTotals
    differing: Sequence[DifferingSnapshot]
    """Snapshots that are not equal, ascending; at most the first 100."""


class ExplainedPartition(TopicPartition, frozen=True):
    """A partition that has the producer."""

    path: str
    offset: Natural | None
    """Offset of the state, exclusive; null if the replay ended before it."""
    snapshot_class: SnapshotClass | None = msgspec.field(name="class")
    """Class of the state (docs/concepts/confidence.md); null if the replay ended before it."""
    reasons: Sequence[str]
    entry: ProducerEntry | None
    """Fields as in a snapshot: -1 where a field has no value. Null if the log does not have the producer."""
    set_by: Mapping[EntryField, TracedBatch]
    """By field the batch that set its value, also if that is -1. A field is absent if no batch set it: it was in the base snapshot,
    or was never set."""
    base_snapshot_offset: Natural | None
    """Offset of the snapshot at the first offset, if the replay began from it."""
    in_memory: Sequence[BatchInMemory]
    """The batches of this epoch that a running broker holds, oldest first."""
    expires_at_ms: int | None
    """When a broker forgets the producer; null with an open transaction, which never expires, or without entry."""
    expired: bool
    """Whether it has expired at as_of_ms."""
    snapshots: ExplainedSnapshots
    answers: Sequence[AnsweredBatch]
    read_bytes: Natural


@dataclass(slots=True)
class ProducerExplanation:
    """The producer in one partition.

    Attributes:
        source: the partition.
        explained: what is known of the producer there.
        findings: about the partition.
        is_known: the log (up to the given offset) or a snapshot has an entry of the producer.
        outside: why the log has no state at the given offset, or None.
    """

    source: PartitionSource
    explained: ExplainedPartition
    findings: list[Finding] = field(default_factory=list)
    is_known: bool = False
    outside: str | None = None

    @classmethod
    def of(cls, source: PartitionSource) -> ProducerExplanation:
        """The explanation before anything was read."""
        explained = ExplainedPartition(
            **names_of(source.directory),
            path=source.directory.path,
            offset=None,
            snapshot_class=None,
            reasons=(),
            entry=None,
            set_by={},
            base_snapshot_offset=None,
            in_memory=(),
            expires_at_ms=None,
            expired=False,
            snapshots=ExplainedSnapshots(totals=SnapshotTotals(), differing=()),
            answers=(),
            read_bytes=0,
        )
        return cls(source, explained)

    def update(self, **members: Any) -> None:
        """Changes members of ``explained``."""
        self.explained = replace(self.explained, **members)


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
    partitions: tuple[ProducerExplanation, ...]
    partitions_read: int
    findings: tuple[Finding, ...]


def explain_producer(
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

    def work_of(_: int, explanation: ProducerExplanation) -> _ExplainTask:
        return _ExplainTask(explanation, question, run.clock, check_crc=check_crc, progress=progress)

    explanations = read_partitions(source.partitions, lambda _, partition: ProducerExplanation.of(partition), work_of, run)
    with_producer = [each for each in explanations if each.is_known]
    findings = [*source.findings, *live_broker_notes(source)]
    findings += [finding for each in explanations for finding in each.findings]
    listed = with_producer or (explanations if len(explanations) == 1 else [])
    for each in listed:
        if each.outside is not None:
            findings.append(
                Finding("offset-not-in-log", Severity.FINDING, each.source.directory.path, each.outside, question.requested_offset)
            )
    if not with_producer and explanations:
        if len(explanations) == 1:
            where = explanations[0].source.directory.path
        else:
            where = explanations[0].source.log_dir.path
        message = f"no partition that was read has producer {question.producer_id}"
        message += "" if question.requested_offset is None else f" before offset {question.requested_offset}"
        unread = sum(any(finding.leaves_gap for finding in each.findings) for each in explanations)
        if unread:
            message += f"; {pluralize(unread, 'partition')} could not be read to the end, and may have it"
        message += ". `inspect stats` lists the ids"
        # If not everything was read, other findings report that, and this one is only a note.
        severity = Severity.NOTE if unread else Severity.FINDING
        findings.append(Finding("unknown-producer", severity, where, message))
    return ExplainResult(question, run.clock, tuple(listed), len(explanations), tuple(findings))


class _ExplainTask(ReplayTask):
    """One partition, replayed up to the offset."""

    lost_above_damage = "nothing above it can be explained"

    def __init__(
        self, explanation: ProducerExplanation, question: Question, clock: Clock, *, check_crc: bool, progress: Progress | None
    ) -> None:
        directory = explanation.source.directory
        at = question.requested_offset
        bases = directory.base_offsets
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
        self._explanation.update(read_bytes=self._explanation.explained.read_bytes + summary.read_bytes)
        boundary, _ = boundary_after(self.source.directory.segments, index, summary)
        self._pieces.append((boundary, traced_rows(summary.contents)))
        self._log_end = max(summary.facts.next_offset, summary.base_offset)
        return super().take_segment(index, summary)

    def finish(self) -> None:
        super().finish()
        explanation = self._explanation
        damage = self.replay.damage
        counts = self._compare_snapshots()
        explanation.is_known = bool(counts.keys() - {EntryStatus.UNREADABLE})
        if self._state is not None:
            self._explain(self._state)
            explanation.is_known |= explanation.explained.entry is not None
            return
        explanation.is_known |= self._last is not None and self._entry_in(self._last) is not None
        if self._question.requested_offset is not None and damage is None:
            if self._bases:
                explanation.outside = f"the log on disk begins at {self._bases[0]} and ends at {self._log_end}"
            else:
                explanation.outside = "the log is empty"

    def boundary(self, state: BoundaryState) -> None:
        if state.offset in self._snapshots:
            self._entries[state.offset] = self._entry_in(state)
        self._last = state
        if self._question.requested_offset in (None, state.offset):
            self._state = state

    def _entry_in(self, state: BoundaryState) -> ProducerEntry | None:
        rows = entries_of(state.prefix.of_producer(self._question.producer_id)).tolist()
        return ProducerEntry(*rows[0]) if rows else None

    def _explain(self, state: BoundaryState) -> None:
        question = self._question
        clock = self._clock
        at = state.offset
        entry = self._entry_in(state)
        trace = ProducerTrace.begun_with(self._base_entry(state))
        for offset, rows in self._pieces:
            trace.take(rows, question.producer_id)
            if offset == at:
                break
        assert trace.entry == entry, "the parallel replay and the trace differ"
        expired = entry is not None and is_expired(entry, clock.as_of_ms, clock.expiration_ms)
        expires_at_ms = None
        if entry is not None and entry.current_txn_first_offset < 0:
            expires_at_ms = entry.timestamp + clock.expiration_ms
        is_forgotten = entry is None or expired
        running = None if is_forgotten else trace.memory
        restarted = None if entry is None or is_forgotten else ProducerMemory.loaded(entry)
        answered = []
        for what, attempt in _attempts(question, trace):
            answers = [answer_to(memory, attempt, question.broker_version) for memory in (running, restarted)]
            answered.append(AnsweredBatch.of(what, attempt, answers))
            # The log does not show the transaction version of the client: both answers are given if they differ.
            bumping = replace(attempt, is_transactional=True, transaction_version_2=True)
            bumping_answers = [answer_to(memory, bumping, question.broker_version) for memory in (running, restarted)]
            if (attempt.is_transactional or entry is None) and bumping_answers != answers:
                answered.append(AnsweredBatch.of(f"{what}, in transaction version 2", bumping, bumping_answers))
        self._explanation.update(
            offset=at,
            snapshot_class=state.judgement.snapshot_class,
            reasons=state.judgement.reasons,
            entry=entry,
            set_by={name: batch.traced() for name, batch in trace.set_by.items()},
            in_memory=tuple(trace.in_memory),
            expires_at_ms=expires_at_ms,
            expired=expired,
            answers=answered,
        )

    def _base_entry(self, state: BoundaryState) -> ProducerEntry | None:
        base = state.base_entries
        if base is None:
            return None
        self._explanation.update(base_snapshot_offset=self._bases[0])
        return entry_of(base, self._question.producer_id)

    def _compare_snapshots(self) -> Counter[EntryStatus]:
        """Compares the entries in snapshots; gives the counts by status."""
        counts = Counter[EntryStatus]()
        differing: list[DifferingSnapshot] = []
        for offset in sorted(self._snapshots):
            view = self._compared(offset)
            if view is None:
                continue
            counts[view.status] += 1
            if view.status is not EntryStatus.EQUAL and len(differing) < DIFFERING_LISTED_MAX:
                differing.append(view)
        totals = SnapshotTotals(**{status.value: count for status, count in counts.items()})
        self._explanation.update(snapshots=ExplainedSnapshots(totals=totals, differing=differing))
        return counts

    def _compared(self, offset: int) -> DifferingSnapshot | None:
        """The entry in the snapshot; None if neither the snapshot nor the log has the producer."""
        try:
            source = self._explanation.source
            entries = read_snapshot_file(source.directory, offset, is_broker_running=source.is_broker_running)
        except ChangedFileError as error:
            self._explanation.findings.append(in_flux(error, self._explanation.source.directory.path, offset))
            return None
        except (FormatError, ReadFailedError) as error:
            if isinstance(error, ReadFailedError):
                path = self._explanation.source.directory.path
                self._explanation.findings.append(replace(finding_of_error(error, path), offset=offset))
            return DifferingSnapshot(offset, EntryStatus.UNREADABLE)
        if entries is None:
            return None
        snapshot_entry = entry_of(entries, self._question.producer_id)
        if offset not in self._entries:
            return None if snapshot_entry is None else DifferingSnapshot(offset, EntryStatus.NOT_COMPARED)
        expected = self._entries[offset]
        if snapshot_entry == expected:
            return None if snapshot_entry is None else DifferingSnapshot(offset, EntryStatus.EQUAL)
        clock = self._clock
        if all(each is None or is_expired(each, clock.as_of_ms, clock.expiration_ms) for each in (snapshot_entry, expected)):
            return DifferingSnapshot(offset, EntryStatus.EQUAL_AFTER_EXPIRY)
        if snapshot_entry is None or expected is None:
            return DifferingSnapshot(offset, EntryStatus.MISSING if snapshot_entry is None else EntryStatus.EXTRA)
        fields = (DifferingField(name, getattr(snapshot_entry, name), getattr(expected, name)) for name in ENTRY_FIELDS)
        return DifferingSnapshot(offset, EntryStatus.DIFFERS, tuple(each for each in fields if each.found != each.expected))


def _attempts(question: Question, trace: ProducerTrace) -> list[tuple[str, Attempt]]:
    """The batch of the question, or the batches whose answers differ most."""
    entry = trace.entry
    epoch = 0 if entry is None else max(entry.epoch, 0)
    last = -1 if entry is None else entry.last_sequence
    following = next_sequence(last)
    of_last_data = trace.last_data is not None and trace.last_data.kind == BatchKind.TRANSACTIONAL
    in_transaction = entry is not None and (entry.current_txn_first_offset >= 0 or of_last_data or entry.coordinator_epoch >= 0)
    if question.sequence is not None or question.epoch is not None:
        requested_epoch = epoch if question.epoch is None else question.epoch
        sequence = question.sequence
        if sequence is None:
            sequence = following if requested_epoch == epoch else 0
        # A retry is the same batch again, with as many records.
        same = next((each for each in trace.in_memory if requested_epoch == epoch and each.first_sequence == sequence), None)
        records = 1 if same is None else _records(same)
        return [("as asked", Attempt(requested_epoch, sequence, records, in_transaction))]
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
