"""The result of ``inspect stats``: the JSON document, and tables for people."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

from formats.partition.producer_snapshot import snapshot_size
from snaprebuild.cli.printing import print_table, print_text
from snaprebuild.cli.value_text import labels_of, size_text
from snaprebuild.cli.view import View
from snaprebuild.documents.stats import (
    BatchBytes,
    Codecs,
    Expiration,
    Histogram,
    Magic,
    Stats,
    StatsPartition,
    StatsProducer,
    StatsTopic,
    StatsTotals,
)
from snaprebuild.findings import Severity, pluralize
from snaprebuild.inspect.segment_statistics import BatchFacts
from snaprebuild.inspect.stats import EPOCH_NEAR_LIMIT, SEGMENT_ROW, PartitionStats, SegmentCounts, StatisticsSums, StatsResult
from snaprebuild.storage.partition_names import names_of

__all__ = ["StatsView"]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

PRODUCER_FIELDS = ("batches", "records", "partitions", "transactions", "lowest_epoch", "highest_epoch", "timestamp")


# ---------------------------------------------------------------------------------------------------------------- JSON


class StatsView(View):
    """The statistics of partitions."""

    def __init__(self, result: StatsResult, seconds: float, *, top: int, all_segments: bool) -> None:
        """Takes the result.

        Args:
            result: the statistics.
            seconds: that they took.
            top: rows of a table, at most.
            all_segments: the tables have the segments, too.
        """
        super().__init__(result.findings)
        self._result = result
        self._seconds = seconds
        self._top = top
        self._all_segments = all_segments

    def document(self) -> Stats:
        """The document of ``inspect stats``; its lists are iterators, for there may be very many partitions."""
        result = self._result
        names = ("producer_id", *PRODUCER_FIELDS[:-1], "last_timestamp_ms")
        return Stats(
            as_of_ms=result.clock.as_of_ms,
            expiration_ms=result.clock.expiration_ms,
            elapsed_seconds=round(self._seconds, 4),
            totals=_totals(result.total, result),
            topics=(StatsTopic(topic=name, totals=_totals(totals, result)) for name, totals in result.topics.items()),
            partitions=(_partition(each, result) for each in result.partitions),
            producers=(StatsProducer(**dict(zip(names, row, strict=True))) for row in _producer_rows(result)),
        )

    def print_table(self) -> None:
        """Prints sums first, then the topics, partitions and producers with the most batches."""
        result = self._result
        top = self._top
        total = result.total
        if not total.partitions:
            print_text("no partition was counted")
            return
        rows: list[tuple[object, ...]] = [("(all)", total.partitions, *_counted(total, result))]
        rows += [(name, each.partitions, *_counted(each, result)) for name, each in list(result.topics.items())[:top]]
        columns = ("topic", "partitions", *COUNTED)
        print_table(_title("Topics", len(result.topics), top), columns, rows, right=columns[1:], drop=LESS_COUNTED, all_rows=True)
        _print_expirations(result)
        _print_batches(total)
        labels = labels_of(each.source for each in result.partitions)
        listed = result.partitions[:top]
        rows = [(labels[each.source.directory.path], *_counted(each.totals, result)) for each in listed]
        title = _title("Partitions", len(result.partitions), top)
        print_table(title, ("partition", *COUNTED), rows, right=COUNTED, drop=LESS_COUNTED, all_rows=True)
        if self._all_segments:
            _print_segments(listed, labels)
        _print_producers(result, top)
        _print_verdict(result)


def _totals(totals: StatisticsSums, result: StatsResult) -> StatsTotals:
    facts = BatchFacts.of(totals.batches)
    live = _live(totals, result)
    return StatsTotals(
        partitions=totals.partitions,
        segments=totals.segments,
        size_bytes=totals.size_bytes,
        read_bytes=totals.read_bytes,
        producers=totals.producers,
        entries=totals.entries,
        open_transactions=totals.open_transactions,
        live_entries=live,
        snapshot_bytes=_snapshots_bytes(totals, live),
        by_expiration=[
            Expiration(expiration_ms=expiration_ms, entries=entries, snapshot_bytes=_snapshots_bytes(totals, entries))
            for expiration_ms, entries in zip(result.expirations_ms, totals.live_entries, strict=True)
        ],
        batches=facts.batches,
        records=facts.records,
        data_batches=facts.data,
        control_batches=facts.control,
        codecs=Codecs(**_codecs(facts)),
        magic=Magic(**{f"magic_{magic}": count for magic, count in enumerate(facts.magic)}),
        batch_bytes=_batch_bytes(totals, facts),
    )


def _live(totals: StatisticsSums, result: StatsResult) -> int:
    return totals.live_entries[result.expirations_ms.index(result.clock.expiration_ms)]


def _snapshots_bytes(totals: StatisticsSums, entries: int) -> int:
    """Bytes of one snapshot in each partition, with this many entries in total."""
    if totals.partitions:
        return (totals.partitions - 1) * snapshot_size(0) + snapshot_size(entries)
    return 0


def _codecs(facts: BatchFacts) -> dict[str, int]:
    return {**dict(zip(CODECS, facts.codecs, strict=False)), "unknown": sum(facts.codecs[len(CODECS) :])}


def _batch_bytes(totals: StatisticsSums, facts: BatchFacts) -> BatchBytes:
    median_from, median_below = facts.median_range or (None, None)
    return BatchBytes(
        total=facts.size_bytes,
        min=totals.batches.size_min_bytes if facts.batches else None,
        mean=round(facts.size_bytes / facts.batches, 1) if facts.batches else None,
        max=totals.batches.size_max_bytes if facts.batches else None,
        median_from=median_from,
        median_below=median_below,
        histogram=[Histogram(from_bytes=1 << log2, below_bytes=2 << log2, batches=count) for log2, count in facts.sizes.items()],
    )


def _partition(partition: PartitionStats, result: StatsResult) -> StatsPartition:
    names = SEGMENT_ROW.names or ()
    segments = None
    if partition.segments is not None:
        segments = [SegmentCounts(**dict(zip(names, row, strict=True))) for row in partition.segments.tolist()]
    return StatsPartition(
        **names_of(partition.source.directory),
        path=partition.source.directory.path,
        totals=_totals(partition.totals, result),
        segments=segments,
    )


def _producer_rows(result: StatsResult) -> Iterator[tuple[int, ...]]:
    """Producer id and ``PRODUCER_FIELDS``."""
    columns = [result.producers.key, *(result.producers.columns[name] for name in PRODUCER_FIELDS)]
    return zip(*(column.tolist() for column in columns), strict=True)


# ---------------------------------------------------------------------------------------------------------------- tables


COUNTED = ("segments", "size", "batches", "records", "producers", "one batch", "one transaction", "epoch bumped", "live")
"""Columns of everything, a topic or a partition."""

LESS_COUNTED = ("one transaction", "epoch bumped", "one batch", "records")
"""Columns that a narrow terminal does without."""


def _title(what: str, count: int, top: int) -> str:
    return what if count <= top else f"{what}, the top {top} of {count}"


def _counted(totals: StatisticsSums, result: StatsResult) -> tuple[object, ...]:
    batches = BatchFacts.of(totals.batches)
    totals_of_producers = totals.producers
    producers = (
        totals_of_producers.seen,
        totals_of_producers.one_batch,
        totals_of_producers.one_transaction,
        totals_of_producers.bumped,
    )
    return (totals.segments, size_text(totals.size_bytes), batches.batches, batches.records, *producers, _live(totals, result))


def _print_expirations(result: StatsResult) -> None:
    total = result.total
    rows = []
    for expiration_ms, entries in zip(result.expirations_ms, total.live_entries, strict=True):
        mark = "<- this one counts" if expiration_ms == result.clock.expiration_ms else ""
        size = size_text(_snapshots_bytes(total, entries))
        rows.append((expiration_ms, _duration(expiration_ms), entries, _share(entries, total.entries), size, mark))
    columns = ("expiration ms", "that is", "live", "of all", "snapshots", "")
    print_table("Producers by expiration", columns, rows, right=columns[:-1])
    print_text(f"live at {_moment(result.clock.as_of_ms)}, of {pluralize(total.entries, 'entry', 'entries')} in the retained log")
    print_text("")


def _print_batches(totals: StatisticsSums) -> None:
    facts = BatchFacts.of(totals.batches)
    rows: list[tuple[str, int]] = [
        ("data, transactional", facts.data.transactional),
        ("data, idempotent", facts.data.idempotent),
        ("data, without producer id", facts.data.without_producer),
        ("control", facts.control),
        *((f"codec {name}", count) for name, count in _codecs(facts).items() if count),
        *((f"magic {magic}", count) for magic, count in enumerate(facts.magic) if count),
        *((f"{size_text(1 << log2)} to {size_text(2 << log2)}", count) for log2, count in facts.sizes.items()),
    ]
    columns = ("kind", "batches", "share")
    table = [(kind, count, _share(count, facts.batches)) for kind, count in rows]
    print_table("Batches", columns, table, right=columns[1:], all_rows=True)
    if facts.median_range is not None:
        first, below = facts.median_range
        middle = size_text(first) if below - first == 1 else f"about {size_text((first + below) // 2)}"
        mean = size_text(round(facts.size_bytes / facts.batches))
        smallest = size_text(totals.batches.size_min_bytes)
        largest = size_text(totals.batches.size_max_bytes)
        print_text(f"batch sizes: smallest {smallest}, median {middle}, mean {mean}, largest {largest}")
        print_text("")


def _print_segments(partitions: Sequence[PartitionStats], labels: dict[str, str]) -> None:
    names = ("batches", "records", "transactional_batches", "control_batches", "producers", "new_producers", "live_producers")
    rows = []
    for each in partitions:
        if each.segments is None:
            continue
        label = labels[each.source.directory.path]
        for row in each.segments:
            size = size_text(int(row["size_bytes"]))
            counts = [int(row[name]) for name in names]
            snapshot = size_text(snapshot_size(int(row["live_producers"])))
            rows.append((label, int(row["base_offset"]), size, *counts, snapshot, _moment(int(row["moment_ms"]))))
    columns = ("partition", "segment", "size", "batches", "records", "transactional", "control", "producers", "new", "live at end")
    drop = ("new", "control", "transactional", "snapshot")
    print_table(
        "Segments", (*columns, "snapshot", "newest record"), rows, right=(*columns[1:], "snapshot"), drop=drop, all_rows=True
    )


def _print_producers(result: StatsResult, top: int) -> None:
    rows = [(*row[:-1], _moment(row[-1])) for row in _producer_rows(result)]
    if rows:
        columns = ("producer id", "batches", "records", "partitions", "transactions", "lowest epoch", "highest epoch", "last wrote")
        title = _title("Producers", result.total.producers.seen, top)
        print_table(title, columns, rows, right=columns[:-1], drop=("lowest epoch", "partitions"), all_rows=True)


def _print_verdict(result: StatsResult) -> None:
    total = result.total
    producers = total.producers
    live = _live(total, result)
    if producers.near_limit:
        who = pluralize(producers.near_limit, "producer")
        print_text(
            f"{who} with an epoch of {EPOCH_NEAR_LIMIT} or more, the highest is {producers.highest_epoch}: at 32766 it gets a new id"
        )
    one = f"{producers.one_batch} ({_share(producers.one_batch, producers.seen)}) wrote one batch only"
    text = f"{pluralize(producers.seen, 'producer id')}, of which {one}" if producers.seen else "no producer ids"
    size = size_text(_snapshots_bytes(total, live))
    print_text(f"{pluralize(total.partitions, 'partition')}: {text}; {live} live entries, snapshots of {size}")
    unread = sum(any(each.severity > Severity.FINDING for each in partition.findings) for partition in result.partitions)
    if unread:
        print_text(f"{pluralize(unread, 'partition')} damaged or not readable to the end: stderr shows why")


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _duration(milliseconds: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds >= size:
            value = milliseconds / size
            return f"{value:.0f} {unit}" if value == int(value) else f"{value:.1f} {unit}"
    return f"{milliseconds} ms"


def _moment(milliseconds: int) -> str:
    """A moment for a person; a client may write any timestamp, which need be no date."""
    try:
        return datetime.datetime.fromtimestamp(milliseconds // 1000, datetime.UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)
