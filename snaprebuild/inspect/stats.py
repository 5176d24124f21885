"""Statistics of partitions: producers, their lifetime and memory, batches and their kinds.

Everything comes from the retained log alone: a producer whose batches were all deleted is in no count, though a broker may still have it.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from formats.errors import FormatError
from snaprebuild.errors import GoneFileError, SnaprebuildError
from snaprebuild.findings import Finding, FindingCause, Severity
from snaprebuild.inspect.segment_statistics import (
    PRODUCER_SUMS,
    BatchFacts,
    BatchStatistics,
    JoinedColumns,
    KeyedColumns,
    StatisticsAnalysis,
    statistics_of,
)
from snaprebuild.published import Natural, Part
from snaprebuild.replay.classes import ReplayRecord
from snaprebuild.replay.segment_effect import IDENTITY, SegmentEffect, compose, entries_of
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.replay.window import Clock, expired_mask
from snaprebuild.snapshots.engine.log_facts import known_log_end
from snaprebuild.snapshots.engine.partition_task import PartitionTask, Progress, TaskOutcome
from snaprebuild.snapshots.engine.schedule import read_partitions
from snaprebuild.snapshots.engine.segment_reader import read_tasks
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import PartitionSource, Source, live_broker_notes

__all__ = [
    "EPOCH_NEAR_LIMIT",
    "EXPIRATIONS_MS",
    "SEGMENT_ROW",
    "PartitionStats",
    "ProducerTotals",
    "SegmentCounts",
    "StatisticsSums",
    "StatsResult",
    "collect_statistics",
]

HOUR_MS = 3_600_000
EXPIRATIONS_MS = (HOUR_MS, 6 * HOUR_MS, 24 * HOUR_MS, 7 * 24 * HOUR_MS)
"""Expirations that are compared with the configured one; the third is Kafka's default."""

EPOCH_NEAR_LIMIT = 32_000
"""Epochs from here on are reported. At 32,766 a coordinator gives its producer a new id (``TransactionMetadata.isEpochExhausted``)."""

NO_EPOCH_YET = 2**15 - 1
"""The lowest epoch of a producer with only empty control batches, which have none."""


class SegmentCounts(Part, frozen=True):
    """A segment."""

    base_offset: Natural
    next_offset: Natural
    size_bytes: Natural
    moment_ms: int
    """Greatest timestamp of the segment; without one, that of the segment before it."""
    batches: Natural
    records: Natural
    transactional_batches: Natural
    control_batches: Natural
    producers: Natural
    """Producer ids with a batch in it."""
    new_producers: Natural
    """Producer ids without a retained batch before it."""
    known_producers: Natural
    """Producer ids up to its end."""
    live_producers: Natural
    """Producer ids that have not expired at moment_ms."""


SEGMENT_ROW = np.dtype([(name, "i8") for name in SegmentCounts.__struct_fields__])
"""The members of ``SegmentCounts`` as columns: a partition may have very many segments."""

PRODUCER_JOINS = {
    "batches": np.add,
    "records": np.add,
    "partitions": np.add,
    "transactions": np.maximum,
    "lowest_epoch": np.minimum,
    "highest_epoch": np.maximum,
    "timestamp": np.maximum,
}
"""A producer over several partitions. One transaction may write into all of them, so that they cannot be added up."""


class ProducerTotals(Part, frozen=True):
    """Producer ids of a partition, a topic or everything, each counted once."""

    seen: Natural = 0
    """Producers with any batch."""
    one_batch: Natural = 0
    """Producers that wrote one data batch."""
    transactional: Natural = 0
    """Producers with a transaction: a marker, or an open one."""
    one_transaction: Natural = 0
    """Producers with one transaction, or at most one in each partition."""
    bumped: Natural = 0
    """Producers whose first and last epochs differ, in a partition or between partitions."""
    near_limit: Natural = 0
    """Producers with an epoch of 32000 or more; at 32766 a coordinator allocates a new producer id."""
    highest_epoch: Natural | None = None
    """Highest epoch; null without any."""

    @classmethod
    def of(cls, producers: KeyedColumns) -> ProducerTotals:
        """From rows with the columns of ``PRODUCER_JOINS``."""
        low, high, transactions = (producers.columns[name] for name in ("lowest_epoch", "highest_epoch", "transactions"))
        highest = int(high.max()) if len(high) else -1
        return cls(
            seen=len(producers),
            one_batch=int(np.count_nonzero(producers.columns["batches"] == 1)),
            transactional=int(np.count_nonzero(transactions)),
            one_transaction=int(np.count_nonzero(transactions == 1)),
            bumped=int(np.count_nonzero(low < high)),
            near_limit=int(np.count_nonzero(high >= EPOCH_NEAR_LIMIT)),
            highest_epoch=None if highest < 0 else highest,
        )


@dataclass(slots=True)
class StatisticsSums:
    """Sums over segments, of a partition, a topic or everything.

    Attributes:
        partitions: count of those whose segments were counted.
        segments: count of those that were read.
        size_bytes: of the segments that were read, of which ``read_bytes``.
        batches: of all kinds.
        entries: producers of each partition: what a broker would have without expiry.
        open_transactions: entries with one.
        live_entries: entries that are left at the clock's moment with each of the expirations of the result. Open transactions never
            expire.
        producers: counts of distinct ids; no sum over partitions.
    """

    partitions: int = 0
    segments: int = 0
    size_bytes: int = 0
    read_bytes: int = 0
    batches: BatchStatistics = field(default_factory=BatchStatistics)
    entries: int = 0
    open_transactions: int = 0
    live_entries: tuple[int, ...] = ()
    producers: ProducerTotals = field(default_factory=ProducerTotals)

    def add(self, other: StatisticsSums) -> None:
        """Adds the sums. ``producers`` stays as it is: a producer may write to several partitions."""
        self.partitions += other.partitions
        self.segments += other.segments
        self.size_bytes += other.size_bytes
        self.read_bytes += other.read_bytes
        self.batches = self.batches.plus(other.batches)
        self.entries += other.entries
        self.open_transactions += other.open_transactions
        self.live_entries = tuple(map(sum, zip(self.live_entries, other.live_entries, strict=True)))

    @property
    def batch_count(self) -> int:
        """Count of all batches."""
        return int(self.batches.kinds.columns["batches"].sum())


@dataclass(slots=True)
class PartitionStats:
    """The statistics of a partition.

    Attributes:
        source: the partition.
        totals: sums over its segments, as far as they could be read.
        segments: rows of ``SEGMENT_ROW`` if it is one of the partitions with the most batches, else None.
    """

    source: PartitionSource
    totals: StatisticsSums
    segments: np.ndarray | None = None
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StatsResult:
    """The statistics of all partitions.

    Attributes:
        expirations_ms: those of ``StatisticsSums.live_entries``, ascending, with that of the clock.
        total: of everything.
        topics: by name, over all log directories, the one with the most batches first.
        partitions: all selected ones, the one with the most batches first.
        producers: those with the most batches, in that order: columns of ``PRODUCER_JOINS`` by producer id.
    """

    clock: Clock
    expirations_ms: tuple[int, ...]
    total: StatisticsSums
    topics: dict[str, StatisticsSums]
    partitions: tuple[PartitionStats, ...]
    producers: KeyedColumns
    source_findings: tuple[Finding, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings of the source and of every partition."""
        return (*self.source_findings, *(finding for partition in self.partitions for finding in partition.findings))


def collect_statistics(
    source: Source,
    run: Run,
    *,
    top: int,
    check_crc: bool = False,
    progress: Progress | None = None,
) -> StatsResult:
    """Counts the partitions of ``source``.

    Args:
        source: from ``open_source``.
        run: its clock is for expiry.
        top: count of partitions whose segments are listed, and of producers that are listed.
        check_crc: compute checksums; batches are counted also if theirs differs.
        progress: called with partition and bytes of every segment.
    """
    clock = run.clock
    expirations_ms = tuple(sorted({*EXPIRATIONS_MS, clock.expiration_ms}))
    sums = _Sums(source, expirations_ms, top)

    def work_of(place: int, partition: PartitionStats) -> _StatsTask:
        return _StatsTask(partition, place, clock, sums, check_crc=check_crc, progress=progress)

    partitions = read_partitions(source.partitions, lambda _, each: PartitionStats(each, sums.no_totals()), work_of, run)
    sums.close()
    topics = {name: group.totals for name, group in sums.topics.items()}
    return StatsResult(
        clock=clock,
        expirations_ms=expirations_ms,
        total=sums.everything.totals,
        topics=dict(sorted(topics.items(), key=lambda item: (-item[1].batch_count, item[0]))),
        partitions=tuple(sorted(partitions, key=lambda each: (-each.totals.batch_count, each.source.directory.path))),
        producers=sums.producers,
        source_findings=(*source.findings, *live_broker_notes(source)),
    )


@dataclass(slots=True)
class _Group:
    """Partitions that are counted together: their sums, and the producers of those that are done, until all are done."""

    totals: StatisticsSums
    waiting: int = 0
    producers: JoinedColumns = field(default_factory=lambda: JoinedColumns(PRODUCER_JOINS))

    def add(self, totals: StatisticsSums, producers: KeyedColumns) -> None:
        self.totals.add(totals)
        self.producers.add(producers)
        self.waiting -= 1

    def close(self) -> None:
        self.totals.producers = ProducerTotals.of(self.producers.total())
        self.producers = JoinedColumns(PRODUCER_JOINS)


class _Sums:
    """Collects partitions when they are done, and keeps only what the result needs."""

    def __init__(self, source: Source, expirations_ms: tuple[int, ...], top: int) -> None:
        self.expirations_ms = expirations_ms
        self.everything = _Group(self.no_totals())
        self.topics: dict[str, _Group] = {}
        for partition in source.partitions:
            self.topics.setdefault(partition.directory.name.topic, _Group(self.no_totals())).waiting += 1
        self.producers = KeyedColumns.empty(PRODUCER_JOINS)
        self._top = top
        self._with_segments: list[tuple[int, int, PartitionStats]] = []

    def no_totals(self) -> StatisticsSums:
        """Sums without any partition."""
        return StatisticsSums(live_entries=(0,) * len(self.expirations_ms))

    def add(self, place: int, partition: PartitionStats, producers: KeyedColumns) -> None:
        partition.totals.producers = ProducerTotals.of(producers)
        self.everything.add(partition.totals, producers)
        topic = self.topics[partition.source.directory.name.topic]
        topic.add(partition.totals, producers)
        if not topic.waiting:
            topic.close()
        # Of equal ones the first partition stays: the order in which they are done varies.
        heapq.heappush(self._with_segments, (partition.totals.batch_count, -place, partition))
        if len(self._with_segments) > self._top:
            heapq.heappop(self._with_segments)[2].segments = None

    def close(self) -> None:
        self.producers = self._top_of(self.everything.producers.total())
        self.everything.close()
        for topic in self.topics.values():
            if topic.waiting:  # a partition of it ended with an unexpected error
                topic.close()

    def _top_of(self, producers: KeyedColumns) -> KeyedColumns:
        chosen = np.lexsort((producers.key, -producers.columns["batches"]))[: self._top]
        return KeyedColumns(producers.key[chosen], {name: column[chosen] for name, column in producers.columns.items()})


class _StatsTask(PartitionTask):
    """One partition: its segments in order, and its producers after each."""

    def __init__(
        self, partition: PartitionStats, place: int, clock: Clock, sums: _Sums, *, check_crc: bool, progress: Progress | None
    ) -> None:
        reads = partial(read_tasks, partition.source.directory, check_crc=check_crc, extras=(StatisticsAnalysis(),))
        super().__init__(partition.source, TaskOutcome(partition.findings), reads, progress)
        self._stats = partition
        self._place = place
        self._clock = clock
        self._sums = sums
        self._known_end = known_log_end(partition.source.directory)
        self._ended = False
        self._moment_ms = clock.as_of_ms
        self._latest: tuple[int, int] = (-1, 0)
        self._prefix: SegmentEffect = IDENTITY
        self._producers = JoinedColumns(PRODUCER_SUMS)
        self._rows: list[tuple[int, ...]] = []

    def take_segment(self, index: int, summary: SegmentSummary) -> bool:
        self._find(index, summary)
        statistics = statistics_of(summary.contents)
        totals = self._stats.totals
        before = self._prefix.producer_id
        self._prefix = compose(self._prefix, summary.effect).without_closes()
        self._producers.add(statistics.producers)
        totals.segments += 1
        totals.size_bytes += summary.size_bytes
        totals.read_bytes += summary.read_bytes
        totals.batches = totals.batches.plus(statistics.batches)
        if summary.facts.max_timestamp >= 0:
            self._moment_ms = summary.facts.max_timestamp
            self._latest = max(self._latest, (summary.facts.max_timestamp, -summary.base_offset))
        facts = BatchFacts.of(statistics.batches)
        row = {
            "base_offset": summary.base_offset,
            "next_offset": max(summary.facts.next_offset, summary.base_offset),  # a damaged batch may claim any
            "size_bytes": summary.size_bytes,
            "moment_ms": self._moment_ms,
            "batches": facts.batches,
            "records": facts.records,
            "transactional_batches": facts.data.transactional,
            "control_batches": facts.control,
            "producers": len(statistics.producers),
            "new_producers": len(self._prefix) - len(before),
            "known_producers": len(self._prefix),
            "live_producers": _live(entries_of(self._prefix), self._moment_ms, self._clock.expiration_ms),
        }
        self._rows.append(tuple(row[name] for name in SEGMENT_ROW.names or ()))
        return True

    def _find(self, index: int, summary: SegmentSummary) -> None:
        """Reports damage. The segments after it are counted all the same."""
        directory = self.source.directory
        findings = self.outcome.findings
        path = directory.file_path(directory.segments[index].log.name)
        record = ReplayRecord()
        record.take(summary, is_last=index == len(directory.segments) - 1, path=path, known_end=self._known_end)
        if record.damage is not None:
            message = f"{record.damage.reason}: later batches of this segment are not counted"
            findings.append(
                Finding(
                    "damaged-segment",
                    Severity.DAMAGED,
                    path,
                    message,
                    record.damage.offset,
                    is_unread=True,
                    cause=FindingCause.BROKEN_BATCHES,
                )
            )
        findings += [Finding("torn-tail", Severity.NOTE, path, note, summary.facts.next_offset) for note in record.notes]

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        super().fail(error)
        if not self._ended and not isinstance(error, GoneFileError):
            self.finish()

    def finish(self) -> None:
        """Adds the partition to the result, also if only a part of it could be read."""
        self._ended = True
        totals = self._stats.totals
        entries = entries_of(self._prefix)
        totals.partitions = 1
        totals.entries = len(entries)
        totals.open_transactions = int(np.count_nonzero(entries["current_txn_first_offset"] >= 0))
        totals.live_entries = tuple(_live(entries, self._clock.as_of_ms, each) for each in self._sums.expirations_ms)
        self._report_wrong_clock()
        self._stats.segments = np.array(self._rows, dtype=SEGMENT_ROW)
        self._sums.add(self._place, self._stats, _whole(self._producers.total(), self._prefix))
        self._prefix, self._rows, self._producers = IDENTITY, [], JoinedColumns(PRODUCER_SUMS)

    def _report_wrong_clock(self) -> None:
        """Reports timestamps in the future. Clocks differ by minutes; one that is ahead by the whole expiration is wrong."""
        latest_ms = self._latest[0]
        base_offset = -self._latest[1]
        ahead_ms = latest_ms - self._clock.as_of_ms
        if ahead_ms <= self._clock.expiration_ms:
            return
        message = (
            f"the segment at {base_offset} holds a timestamp {ahead_ms // 3_600_000} hours ahead of the clock: until then its producer "
            "does not expire, and retention by time does not delete the segment"
        )
        self.outcome.findings.append(
            Finding("timestamps-in-the-future", Severity.NOTE, self._stats.source.directory.path, message, base_offset)
        )


def _live(entries: np.ndarray, as_of_ms: int, expiration_ms: int) -> int:
    return len(entries) - int(np.count_nonzero(expired_mask(entries, as_of_ms, expiration_ms)))


def _whole(producers: KeyedColumns, state: SegmentEffect) -> KeyedColumns:
    """The producers of a partition: what they wrote, and their state. Both have one row for each, in the same order."""
    assert np.array_equal(producers.key, state.producer_id)
    first = state.first_epoch
    last = state.epoch
    columns = {
        "batches": producers.columns["batches"],
        "records": producers.columns["records"],
        "partitions": np.ones(len(producers), dtype=np.int64),
        "transactions": producers.columns["markers"] + (state.txn_first_offset >= 0),
        "lowest_epoch": np.where(state.assigned, np.minimum(first, last), NO_EPOCH_YET),
        "highest_epoch": np.maximum(first, last),
        "timestamp": state.timestamp,
    }
    return KeyedColumns(producers.key, columns)
