"""The transactions of partitions, from the retained log alone: the open ones, since when, and the segments that they hold back.

A transaction is *late* if its producer wrote nothing for longer than any coordinator waits. That is the rule by which a broker counts its
partitions with late transactions (``ProducerStateManager.hasLateTransaction``, KIP-664), and by which Kafka's own tool looks for hanging
ones. Only the coordinator can answer whether it still has the transaction.

A transaction under two-phase commit (KIP-939) never expires. Once it is prepared, a system outside of Kafka decides about its commit, and
an abort loses data. The coordinator's own log shows it: Kafka 4.3 has no state of its own for that, but its timeout is the greatest int32.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from formats.errors import FormatError
from formats.log.batch_headers import HeaderReader
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.inspect.coordinator_records import UNKNOWN_STATE, KnownState, TransactionStates, TwoPhase, own_transaction_states
from snaprebuild.inspect.late_transactions import ReadLeaders, explain_late
from snaprebuild.inspect.transaction_model import OPEN_LISTED_MAX, OngoingTransaction, PartitionTransactions, TransactionSums
from snaprebuild.replay.segment_effect import NONE, SegmentEffect
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine.partition_replay import BoundaryState, source_replay
from snaprebuild.snapshots.engine.partition_task import Progress, ReplayTask, TaskOutcome
from snaprebuild.snapshots.engine.schedule import read_partitions
from snaprebuild.snapshots.engine.segment_reader import read_tasks
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import Source, live_broker_notes
from snaprebuild.storage.partition_dir import PartitionDir, read_positions_hint

__all__ = [
    "DEFAULT_MAX_TIMEOUT_MS",
    "LATE_BUFFER_MS",
    "TransactionsResult",
    "read_transactions",
]

DEFAULT_MAX_TIMEOUT_MS = 900_000
"""``transaction.max.timeout.ms``, 15 minutes."""

LATE_BUFFER_MS = 300_000
"""``ProducerStateManager.LATE_TRANSACTION_BUFFER_MS``: how much longer a coordinator may take."""


@dataclass(frozen=True, slots=True)
class TransactionsResult:
    """The transactions of all partitions.

    Attributes:
        as_of_ms: the time at which transactions are late, ms since 1970.
        late_after_ms: without a batch for longer than this a transaction is late.
        partitions: all that were selected.
        findings: about the source and the partitions.
    """

    as_of_ms: int
    late_after_ms: int
    partitions: tuple[PartitionTransactions, ...]
    findings: tuple[Finding, ...]

    def totals(self) -> TransactionSums:
        """Sums over all partitions."""
        sums = TransactionSums()
        for partition in self.partitions:
            sums.add(partition)
        return sums


def read_transactions(
    source: Source,
    run: Run,
    late_after_ms: int,
    *,
    states: TransactionStates | None = None,
    read_leaders: ReadLeaders = lambda _: None,
    check_crc: bool = True,
    progress: Progress | None = None,
) -> TransactionsResult:
    """The transactions of every partition of ``source``.

    Args:
        source: from ``open_source``.
        run: its clock is for lateness, and for which snapshot at the first offset is trusted.
        late_after_ms: without a batch for longer than this a transaction is late.
        states: of the coordinators; None for those in the log directories of ``source``.
        read_leaders: reads leaders from a metadata log, if a transaction is late.
        check_crc: compute checksums.
        progress: called with partition and bytes of every segment.
    """
    states = own_transaction_states(source) if states is None else states

    def work_of(_: int, partition: PartitionTransactions) -> _TransactionsTask:
        return _TransactionsTask(partition, run.clock, late_after_ms, states, check_crc=check_crc, progress=progress)

    partitions = read_partitions(source.partitions, lambda _, partition: PartitionTransactions.of(partition), work_of, run)
    explain_late(partitions, states, read_leaders, run.clock.as_of_ms)
    findings = [
        *source.findings,
        *live_broker_notes(source),
        *states.findings,
        *(finding for each in partitions for finding in each.findings),
    ]
    return TransactionsResult(run.clock.as_of_ms, late_after_ms, tuple(partitions), tuple(findings))


class _TransactionsTask(ReplayTask):
    """One partition, replayed from its first segment."""

    lost_above_damage = "transactions above it are not listed"

    def __init__(
        self,
        partition: PartitionTransactions,
        clock: Clock,
        late_after_ms: int,
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
        self._late_after_ms = late_after_ms
        self._states = states
        self._state: BoundaryState | None = None

    def take_segment(self, index: int, summary: SegmentSummary) -> bool:
        self._partition.update(read_bytes=self._partition.reported.read_bytes + summary.read_bytes)
        return super().take_segment(index, summary)

    def finish(self) -> None:
        super().finish()
        if self._state is not None:
            self._list_open(self._state)

    def boundary(self, state: BoundaryState) -> None:
        self._state = state
        assert state.closes is not None, "the replay began at the first segment, and nothing was cut"
        totals = self._partition.reported.totals
        summary = state.segment
        closes = state.closes
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
        totals.committed += committed
        totals.aborted += aborted
        totals.unknown += unknown
        totals.empty += others - unknown

    def _list_open(self, state: BoundaryState) -> None:
        partition = self._partition
        effect = state.effect
        now = self._clock.as_of_ms
        directory = partition.source.directory
        partition.has_gap = state.is_unsound and not partition.source.is_compacted
        rows = np.flatnonzero(effect.txn_first_offset != NONE)
        rows = rows[np.argsort(effect.txn_first_offset[rows], kind="stable")]
        # Like the metric of the broker: a batch without a timestamp makes no transaction late.
        late = (effect.timestamp[rows] > 0) & (now - effect.timestamp[rows] > self._late_after_ms)
        states = [UNKNOWN_STATE] * len(rows)
        coordinators = self._states.of_cluster(partition.cluster_id) if late.any() else self._states
        for at in np.flatnonzero(late).tolist():
            states[at] = coordinators.of(int(effect.producer_id[rows[at]]), int(effect.epoch[rows[at]]))
        never_expires = np.array([each.two_phase is TwoPhase.YES for each in states], dtype=bool)
        late &= ~never_expires
        before = ~effect.txn_is_set[rows] & ~effect.starts_fresh[rows] & (not state.is_complete)
        partition.reported.totals.open = len(rows)
        partition.reported.totals.late = int(np.count_nonzero(late))
        transactions = self._listed(effect, rows[:OPEN_LISTED_MAX], states, late, before)
        # The last stable offset, if everything is replicated, which the disk does not show.
        stable = transactions[0].first_offset if transactions else state.offset
        partition.update(log_end_offset=state.offset, last_stable_offset=stable, open=transactions)
        if transactions:
            self._count_held(transactions[0], state.offset)
        if never_expires.any():
            self._report_two_phase(int(never_expires.sum()), int(effect.txn_first_offset[rows[never_expires][0]]))
        if partition.reported.totals.late:
            partition.update(counts_as_late=transactions[0].is_late)
            self._report_late(int(effect.txn_first_offset[rows[late][0]]))
        if directory.segments[0].base_offset > 0 and not state.is_complete:
            message = (
                f"the log on disk begins at {directory.segments[0].base_offset}: a transaction that began below it and wrote "
                "nothing since is unknown"
            )
            partition.findings.append(Finding("transactions-before-log-start", Severity.NOTE, directory.path, message))

    def _listed(
        self, effect: SegmentEffect, rows: np.ndarray, states: Sequence[KnownState], late: np.ndarray, before: np.ndarray
    ) -> list[OngoingTransaction]:
        """The transactions in some rows of an effect.

        Args:
            effect: of the whole log.
            rows: the first open transactions, ascending by their first offsets.
            states: of the coordinators, for each row.
            late: whether each is late.
            before: whether each may have begun below the first segment.
        """
        partition = self._partition
        try:
            places = _first_batches(partition.source.directory, effect.txn_first_offset[rows].tolist())
        except (ReadFailedError, FormatError) as error:
            self.fail(error)
            places = {}
        transactions = []
        for at, row in enumerate(rows.tolist()):
            first = int(effect.txn_first_offset[row])
            last = int(effect.timestamp[row])
            position, since = places.get(first, (None, -1))
            producer_id = int(effect.producer_id[row])
            partition.last_offsets[producer_id] = max(first, int(effect.last_offset[row]))
            coordinator_epoch = int(effect.coordinator_epoch[row]) if effect.marked[row] else NONE
            transactions.append(
                OngoingTransaction(
                    first_offset=first,
                    producer_id=producer_id,
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

        return transactions

    def _count_held(self, oldest: OngoingTransaction, log_end_offset: int) -> None:
        """Counts what is above the last stable offset, where the oldest open transaction begins."""
        segments = self._partition.source.directory.segments
        index = max(bisect_right([segment.base_offset for segment in segments], oldest.first_offset) - 1, 0)
        held_bytes = None
        if oldest.position_bytes is not None:
            held_bytes = sum(segment.size_bytes for segment in segments[index:]) - oldest.position_bytes
        self._partition.update(
            held_offsets=log_end_offset - oldest.first_offset,
            held_bytes=held_bytes,
            held_segments=len(segments) - 1 - index,
            held_segment_bytes=sum(segment.size_bytes for segment in segments[index:-1]),
        )

    def _report_two_phase(self, count: int, first_offset: int) -> None:
        message = (
            f"{pluralize(count, 'open transaction')} under two-phase commit (KIP-939), the oldest from offset {first_offset}: it never "
            "expires, and may be prepared. Ask the system that coordinates the commit, and do not abort it here"
        )
        path = self._partition.source.directory.path
        self._partition.findings.append(Finding("two-phase-transaction", Severity.FINDING, path, message, first_offset))

    def _report_late(self, first_offset: int) -> None:
        partition = self._partition
        late = pluralize(partition.reported.totals.late, "open transaction has", "open transactions have")
        message = f"{late} no batch for more than {self._late_after_ms // 1000} s, the oldest from offset {first_offset}"
        if partition.reported.counts_as_late:
            message += f": {partition.reported.held_offsets} offsets are not stable"
        path = partition.source.directory.path
        partition.findings.append(Finding("late-transaction", Severity.FINDING, path, message, first_offset))


def _first_batches(directory: PartitionDir, first_offsets: Iterable[int]) -> dict[int, tuple[int, int]]:
    """Position in its segment and timestamp of the batch at each offset, by offset, without those that are not on disk.

    Raises:
        ReadFailedError: a segment cannot be read.
    """
    bases = directory.base_offsets
    offsets_of: dict[int, list[int]] = {}
    for offset in first_offsets:
        offsets_of.setdefault(bisect_right(bases, offset) - 1, []).append(offset)
    places: dict[int, tuple[int, int]] = {}
    for index, offsets in offsets_of.items():
        if index < 0:
            continue
        segment = directory.segments[index]
        hint_file = directory.file(segment.offset_index) if segment.offset_index else None
        with directory.open_segment(segment) as source:
            hint = None if hint_file is None else read_positions_hint(hint_file, source.size_bytes)
            for block in HeaderReader(source, hint=hint, columns=("base_offset", "max_timestamp", "magic")):
                for row in np.flatnonzero(np.isin(block.column("base_offset"), offsets) & (block.column("magic") == 2)).tolist():
                    timestamp = int(block.column("max_timestamp")[row])
                    places[int(block.column("base_offset")[row])] = (int(block.position_bytes[row]), timestamp)
                if all(offset in places for offset in offsets):
                    break
    return places
