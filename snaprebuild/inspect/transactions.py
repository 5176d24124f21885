"""The transactions of partitions, from the retained log alone: the open ones, since when, and the segments that they hold back.

A transaction is *late* if its producer wrote nothing for longer than any coordinator waits. That is the rule by which a broker counts its
partitions with late transactions (``ProducerStateManager.hasLateTransaction``, KIP-664), and by which Kafka's own tool looks for hanging
ones. Only the coordinator can answer whether it still has the transaction.

A transaction under two-phase commit (KIP-939) never expires. Once it is prepared, a system outside of Kafka decides about its commit, and
an abort loses data. The coordinator's own log shows it: Kafka 4.3 has no state of its own for that, but its timeout is the greatest int32.
"""

from __future__ import annotations

import shlex
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

import numpy as np

from formats.errors import FormatError
from formats.log.batch_headers import HeaderReader
from formats.metadata.transaction_state import NEVER_EXPIRES_MS, TRANSACTION_STATE_TOPIC, read_transaction_state
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error, pluralize
from snaprebuild.replay.segment_effect import NONE
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine.boundary_state import BoundaryState
from snaprebuild.snapshots.engine.clock import Clock
from snaprebuild.snapshots.engine.partition_replay import source_replay
from snaprebuild.snapshots.engine.partition_task import Progress, ReplayTask, TaskOutcome
from snaprebuild.snapshots.engine.schedule import read_partitions
from snaprebuild.snapshots.engine.segment_reader import read_tasks
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.log_records import log_records
from snaprebuild.snapshots.source.source import PartitionSource, Source, live_broker_notes
from snaprebuild.storage.local.index_hints import read_positions_hint
from snaprebuild.storage.log_dir import find_partitions
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.store import USUAL_S3, S3Settings

__all__ = [
    "DEFAULT_MAX_TIMEOUT_MS",
    "LATE_BUFFER_MS",
    "OpenTransaction",
    "PartitionTransactions",
    "TransactionCounts",
    "TransactionStates",
    "TransactionsResult",
    "TwoPhase",
    "abort_commands",
    "find_transaction_states",
    "transactions",
]

DEFAULT_MAX_TIMEOUT_MS = 900_000
"""``transaction.max.timeout.ms``, 15 minutes."""

LATE_BUFFER_MS = 300_000
"""``ProducerStateManager.LATE_TRANSACTION_BUFFER_MS``: how much longer a coordinator may take."""

OPEN_LISTED_MAX = 100
"""Open transactions that a partition lists, the oldest first; all are counted."""

TOOL = "kafka-transactions.sh --bootstrap-server HOST:PORT"


class TwoPhase(StrEnum):
    """Whether a transaction is under two-phase commit."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction without a marker.

    Attributes:
        first_offset: of its first retained batch.
        coordinator_epoch: of the last marker of its producer, -1 for none.
        since_ms: timestamp of that first batch; None if it is not on disk, or has none.
        last_ms: timestamp of the last batch of its producer, or None.
        is_late: nothing was written for longer than any coordinator waits.
        may_have_begun_before: whether it may have begun below the first segment.
        position_bytes: of its first batch in the segment, or None.
        two_phase: whether it is under two-phase commit: then it never expires, is never late, and must not be aborted.
        transactional_id: of its producer; None if it was not looked up, or no coordinator's record names the producer.
        timeout_ms: with which its producer was initialized; None if that is unknown.
    """

    first_offset: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    since_ms: int | None
    last_ms: int | None
    is_late: bool
    may_have_begun_before: bool
    position_bytes: int | None
    two_phase: TwoPhase = TwoPhase.UNKNOWN
    transactional_id: str | None = None
    timeout_ms: int | None = None


@dataclass(slots=True)
class TransactionCounts:
    """Counts of the closed transactions of a partition.

    Attributes:
        committed: with batches.
        aborted: with batches.
        empty: markers that closed nothing here: the producer had added the partition but written nothing to it.
        unknown: markers without a retained batch of their producer before them: empty, or of a transaction whose batches are gone.
    """

    committed: int = 0
    aborted: int = 0
    empty: int = 0
    unknown: int = 0


@dataclass(slots=True)
class PartitionTransactions:
    """The transactions of one partition.

    Attributes:
        log_end_offset: up to which the log was replayed; None for an empty log.
        counts: closed transactions.
        open_count: count of open transactions.
        late_count: count of late ones among them.
        open: the oldest ``OPEN_LISTED_MAX`` open transactions, by first offset.
        counts_as_late: whether a broker counts the partition: its oldest transaction is late.
        offsets_held: count of offsets from the last stable offset to the log end.
        bytes_held: the same in bytes; None if the batch at the last stable offset is not on disk.
        segments_held: rolled segments that reach above the last stable offset, which tiered storage does not upload.
        segment_bytes_held: their size.
        bytes_read: of its segments.
    """

    source: PartitionSource
    log_end_offset: int | None = None
    counts: TransactionCounts = field(default_factory=TransactionCounts)
    open_count: int = 0
    late_count: int = 0
    open: list[OpenTransaction] = field(default_factory=list)
    counts_as_late: bool = False
    offsets_held: int = 0
    bytes_held: int | None = 0
    segments_held: int = 0
    segment_bytes_held: int = 0
    findings: list[Finding] = field(default_factory=list)
    bytes_read: int = 0

    @property
    def last_stable_offset(self) -> int | None:
        """First offset of the oldest open transaction, else the log end, if everything is replicated, which the disk does not show."""
        return self.open[0].first_offset if self.open else self.log_end_offset


@dataclass(frozen=True, slots=True)
class TransactionsResult:
    """The transactions of all partitions. ``late_ms``: without a batch for longer than this a transaction is late."""

    as_of_ms: int
    late_ms: int
    partitions: tuple[PartitionTransactions, ...]
    findings: tuple[Finding, ...]


def abort_commands(source: PartitionSource, transaction: OpenTransaction) -> tuple[str, str]:
    """The commands of Kafka's own tool that abort a transaction, for brokers since 3.0, and for older ones.

    With brokers since 3.0 the tool asks the broker whose transaction begins at the offset. An unknown coordinator epoch is given as 0, as
    the tool itself does. Brokers before 2.8 accept only version 0 of WriteTxnMarkers, which Kafka 4 no longer supports (KIP-896).
    """
    name = source.directory.name
    command = f"{TOOL} abort --topic {shlex.quote(name.topic)} --partition {name.partition}"
    producer = f"--producer-id {transaction.producer_id} --producer-epoch {transaction.epoch}"
    return (
        f"{command} --start-offset {transaction.first_offset}",
        f"{command} {producer} --coordinator-epoch {max(transaction.coordinator_epoch, 0)}",
    )


def transactions(
    source: Source,
    run: Run,
    late_ms: int,
    *,
    states: TransactionStates | None = None,
    check_crc: bool = True,
    progress: Progress | None = None,
) -> TransactionsResult:
    """The transactions of every partition of ``source``.

    Args:
        source: from ``open_source``.
        run: its clock is for lateness, and for which snapshot at the first offset is trusted.
        late_ms: without a batch for longer than this a transaction is late.
        states: of the coordinators; None for those in ``source``.
        check_crc: compute checksums.
        progress: called with partition and bytes of every segment.
    """
    if states is None:
        topics = ((each.directory.name.topic, each.directory) for each in source.partitions)
        states = TransactionStates([directory for topic, directory in topics if topic == TRANSACTION_STATE_TOPIC])
    known = states

    def work_of(_: int, partition: PartitionTransactions) -> _TransactionsTask:
        return _TransactionsTask(partition, run.clock, late_ms, known, check_crc=check_crc, progress=progress)

    partitions = read_partitions(source.partitions, lambda _, partition: PartitionTransactions(partition), work_of, run)
    found = [
        *source.findings,
        *live_broker_notes(source),
        *known.findings,
        *(finding for each in partitions for finding in each.findings),
    ]
    return TransactionsResult(run.clock.as_of_ms, late_ms, tuple(partitions), tuple(found))


class _TransactionsTask(ReplayTask):
    """One partition, replayed from its first segment."""

    lost_above_damage = "transactions above it are not listed"

    def __init__(
        self,
        partition: PartitionTransactions,
        clock: Clock,
        late_ms: int,
        states: TransactionStates,
        *,
        check_crc: bool,
        progress: Progress | None,
    ) -> None:
        directory = partition.source.directory
        reads = partial(read_tasks, directory, check_crc=check_crc)
        replay = source_replay(partition.source, clock)
        super().__init__(partition.source, TaskOutcome(partition.findings), reads, replay, progress)
        self._partition = partition
        self._clock = clock
        self._late_ms = late_ms
        self._states = states
        self._state: BoundaryState | None = None

    def take_segment(self, index: int, summary: SegmentSummary) -> bool:
        self._partition.bytes_read += summary.bytes_read
        return super().take_segment(index, summary)

    def finish(self) -> None:
        super().finish()
        if self._state is not None:
            self._open(self._state)

    def boundary(self, state: BoundaryState) -> None:
        self._state = state
        assert state.closes is not None, "the replay began at the first segment, and nothing was cut"
        counts, summary, closes = self._partition.counts, state.segment, state.closes
        closed = closes.first_offset != NONE
        committed = summary.contents.commits_omitted + int(np.count_nonzero(closed & ~closes.is_aborted))
        aborted = int(np.count_nonzero(closed & closes.is_aborted))
        others = summary.facts.commit_markers + summary.facts.abort_markers - committed - aborted
        # Only the first marker of a producer can have closed something from before the replay, or something that was compacted away.
        unknown = int(np.count_nonzero(~closed))
        if self._partition.source.is_compacted:
            unknown = others
        elif state.is_complete:
            unknown = 0
        counts.committed += committed
        counts.aborted += aborted
        counts.unknown += unknown
        counts.empty += others - unknown

    def _open(self, state: BoundaryState) -> None:
        partition, effect, now = self._partition, state.effect, self._clock.as_of_ms
        directory = partition.source.directory
        partition.log_end_offset = state.offset
        rows = np.flatnonzero(effect.txn_first_offset != NONE)
        rows = rows[np.argsort(effect.txn_first_offset[rows], kind="stable")]
        # Like the metric of the broker: a batch without a timestamp makes no transaction late.
        late = (effect.timestamp[rows] > 0) & (now - effect.timestamp[rows] > self._late_ms)
        states = [UNKNOWN_STATE] * len(rows)
        for at in np.flatnonzero(late).tolist():
            states[at] = self._states.of(int(effect.producer_id[rows[at]]), int(effect.epoch[rows[at]]))
        never_expires = np.array([each.two_phase is TwoPhase.YES for each in states], dtype=bool)
        late &= ~never_expires
        before = ~effect.txn_is_set[rows] & ~effect.starts_fresh[rows] & (not state.is_complete)
        partition.open_count, partition.late_count = len(rows), int(np.count_nonzero(late))
        listed = rows[:OPEN_LISTED_MAX]
        try:
            places = _first_batches(directory, effect.txn_first_offset[listed].tolist())
        except (ReadFailedError, FormatError) as error:
            self.fail(error)
            places = {}
        for at, row in enumerate(listed.tolist()):
            first, last = int(effect.txn_first_offset[row]), int(effect.timestamp[row])
            position, since = places.get(first, (None, -1))
            coordinator_epoch = int(effect.coordinator_epoch[row]) if effect.marked[row] else NONE
            partition.open.append(
                OpenTransaction(
                    first_offset=first,
                    producer_id=int(effect.producer_id[row]),
                    epoch=int(effect.epoch[row]),
                    coordinator_epoch=coordinator_epoch,
                    since_ms=None if since < 0 else since,
                    last_ms=None if last < 0 else last,
                    is_late=bool(late[at]),
                    may_have_begun_before=bool(before[at]),
                    position_bytes=position,
                    two_phase=states[at].two_phase,
                    transactional_id=states[at].transactional_id,
                    timeout_ms=states[at].timeout_ms,
                )
            )
        if partition.open:
            self._held(state.offset)
        if never_expires.any():
            self._report_two_phase(int(never_expires.sum()), int(effect.txn_first_offset[rows[never_expires][0]]))
        if partition.late_count:
            partition.counts_as_late = partition.open[0].is_late
            self._report_late(int(effect.txn_first_offset[rows[late][0]]))
        if directory.segments[0].base_offset > 0 and not state.is_complete:
            message = (
                f"the log on disk begins at {directory.segments[0].base_offset}: a transaction that began below it and wrote "
                "nothing since is unknown"
            )
            partition.findings.append(Finding("transactions-before-log-start", Severity.NOTE, directory.path, message))

    def _held(self, log_end_offset: int) -> None:
        """Counts what is above the last stable offset."""
        partition = self._partition
        segments, oldest = partition.source.directory.segments, partition.open[0]
        partition.offsets_held = log_end_offset - oldest.first_offset
        index = max(bisect_right([segment.base_offset for segment in segments], oldest.first_offset) - 1, 0)
        partition.bytes_held = None
        if oldest.position_bytes is not None:
            partition.bytes_held = sum(segment.size_bytes for segment in segments[index:]) - oldest.position_bytes
        partition.segments_held = len(segments) - 1 - index
        partition.segment_bytes_held = sum(segment.size_bytes for segment in segments[index:-1])

    def _report_two_phase(self, count: int, first_offset: int) -> None:
        message = (
            f"{pluralize(count, 'open transaction')} under two-phase commit (KIP-939), the oldest from offset {first_offset}: it never "
            "expires, and may be prepared. Ask the system that coordinates the commit, and do not abort it here"
        )
        path = self._partition.source.path
        self._partition.findings.append(Finding("two-phase-transaction", Severity.FINDING, path, message, first_offset))

    def _report_late(self, first_offset: int) -> None:
        partition = self._partition
        late = pluralize(partition.late_count, "open transaction has", "open transactions have")
        message = f"{late} no batch for more than {self._late_ms // 1000} s, the oldest from offset {first_offset}"
        if partition.counts_as_late:
            message += f": {partition.offsets_held} offsets are not stable"
        path = partition.source.path
        partition.findings.append(Finding("late-transaction", Severity.FINDING, path, message, first_offset))


def _first_batches(directory: PartitionDir, first_offsets: Iterable[int]) -> dict[int, tuple[int, int]]:
    """Position in its segment and timestamp of the batch at each offset, by offset, without those that are not on disk.

    Raises:
        ReadFailedError: a segment cannot be read.
    """
    bases = [segment.base_offset for segment in directory.segments]
    wanted: dict[int, list[int]] = {}
    for offset in first_offsets:
        wanted.setdefault(bisect_right(bases, offset) - 1, []).append(offset)
    found: dict[int, tuple[int, int]] = {}
    for index, offsets in wanted.items():
        if index < 0:
            continue
        segment = directory.segments[index]
        hint_path = directory.file_path(segment.offset_index) if segment.offset_index else None
        with directory.open_segment(segment) as source:
            hint = None if hint_path is None else read_positions_hint(hint_path, source.size_bytes, directory.store)
            for block in HeaderReader(source, hint=hint, columns=("base_offset", "max_timestamp", "magic")):
                for row in np.flatnonzero(np.isin(block.column("base_offset"), offsets) & (block.column("magic") == 2)).tolist():
                    timestamp = int(block.column("max_timestamp")[row])
                    found[int(block.column("base_offset")[row])] = (int(block.position_bytes[row]), timestamp)
                if all(offset in found for offset in offsets):
                    break
    return found


# ---------------------------------------------------------------------------------------------------------------- two-phase commit


@dataclass(frozen=True, slots=True)
class KnownState:
    """What the coordinators' records show of a transaction.

    Attributes:
        two_phase: whether it is under two-phase commit.
        transactional_id: of its producer; None if no record names the producer.
        timeout_ms: with which the producer was initialized; None if that is unknown.
    """

    two_phase: TwoPhase = TwoPhase.UNKNOWN
    transactional_id: str | None = None
    timeout_ms: int | None = None


UNKNOWN_STATE = KnownState()


class TransactionStates:
    """Partitions of ``__transaction_state``, which are read for the first late transaction.

    Attributes:
        findings: about what could not be read.
    """

    def __init__(self, directories: Sequence[PartitionDir] = ()) -> None:
        """Reads nothing yet. Several copies of one partition may be given: each can only add evidence."""
        self._directories = list(directories)
        self._two_phase: set[int] = set()
        self._timeouts: dict[tuple[int, int], int] = {}
        self._transactional_ids: dict[int, str] = {}
        self.findings: list[Finding] = []

    def of(self, producer_id: int, epoch: int) -> KnownState:
        """What is known of a transaction of a producer.

        Any record with the timeout of two-phase commit counts, because a later epoch may keep a prepared transaction. A record with another
        timeout counts only if it has this epoch: the timeout of a producer changes only together with its epoch.
        """
        while self._directories:
            self._read(self._directories.pop())
        name = self._transactional_ids.get(producer_id)
        if producer_id in self._two_phase:
            return KnownState(TwoPhase.YES, name, NEVER_EXPIRES_MS)
        timeout_ms = self._timeouts.get((producer_id, epoch))
        return KnownState(TwoPhase.UNKNOWN if timeout_ms is None else TwoPhase.NO, name, timeout_ms)

    def _read(self, directory: PartitionDir) -> None:
        try:
            for record in log_records(directory):
                if record.value is None:
                    continue
                try:
                    state = read_transaction_state(record.key or b"", record.value)
                except FormatError as error:
                    self._report(directory, f"offset {record.offset} cannot be read, and is not judged: {error.message}")
                    continue
                self._transactional_ids |= dict.fromkeys(state.producer_ids, state.transactional_id)
                if state.is_two_phase:
                    self._two_phase.update(state.producer_ids)
                elif state.producer_ids:
                    self._timeouts[state.producer_ids[0], state.producer_epoch] = state.timeout_ms
        except FormatError as error:
            self._report(directory, f"{error.message}: the records above it are not known")
        except ReadFailedError as error:
            self.findings.append(finding_of_error(error, directory.path))

    def _report(self, directory: PartitionDir, message: str) -> None:
        self.findings.append(Finding("unread-transaction-state", Severity.FINDING, directory.path, message, is_unread=True))


def find_transaction_states(paths: Sequence[str], stores: S3Settings = USUAL_S3) -> list[PartitionDir]:
    """Partitions of ``__transaction_state`` at or below paths.

    Raises:
        UsageError: a path does not exist, or no such partition is there.
    """
    if not paths:
        return []
    found = find_partitions(paths, stores)
    directories = [each for log_dir in found.log_dirs for each in log_dir.partitions if each.name.topic == TRANSACTION_STATE_TOPIC]
    if not directories:
        raise UsageError(f"--transaction-state: there is no partition of {TRANSACTION_STATE_TOPIC}", path=paths[0])
    return directories
