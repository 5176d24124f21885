"""What ``inspect stats`` found: the JSON document, and tables for people."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from formats.partition.producer_snapshot import snapshot_size
from snaprebuild.cli.result import labels_of, print_table, print_text, size_text
from snaprebuild.documents import stats as doc
from snaprebuild.findings import Severity, pluralize
from snaprebuild.inspect.segment_statistics import BatchFacts
from snaprebuild.inspect.stats import EPOCH_NEAR_LIMIT, SEGMENT_ROW, PartitionStats, StatsResult, Totals
from snaprebuild.storage.partition_names import names_of

__all__ = ["print_stats", "stats_document"]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

PRODUCER_FIELDS = ("batches", "records", "partitions", "transactions", "lowest_epoch", "highest_epoch", "timestamp")


# ---------------------------------------------------------------------------------------------------------------- JSON


def stats_document(result: StatsResult, seconds: float) -> doc.Stats:
    """The JSON document; its lists are iterators, for there may be very many partitions."""
    names = ("producer_id", *PRODUCER_FIELDS[:-1], "last_timestamp_ms")
    return doc.Stats(
        as_of_ms=result.clock.as_of_ms,
        expiration_ms=result.clock.expiration_ms,
        elapsed_seconds=round(seconds, 4),
        totals=_totals(result.total, result),
        topics=(doc.Topic(topic=name, totals=_totals(totals, result)) for name, totals in result.topics.items()),
        partitions=(_partition(each, result) for each in result.partitions),
        producers=(doc.Producer(**dict(zip(names, row, strict=True))) for row in _producer_rows(result)),
    )


def _totals(totals: Totals, result: StatsResult) -> doc.Totals:
    facts = BatchFacts.of(totals.batches)
    producers = totals.facts
    live = _live(totals, result)
    return doc.Totals(
        partitions=totals.partitions,
        segments=totals.segments,
        size_bytes=totals.size_bytes,
        read_bytes=totals.bytes_read,
        producers=doc.ProducerTotals(**{**asdict(producers), "highest_epoch": _known(producers.highest_epoch)}),
        entries=totals.entries,
        open_transactions=totals.open_transactions,
        live_entries=live,
        snapshot_bytes=_snapshots_bytes(totals, live),
        by_expiration=[
            doc.Expiration(expiration_ms=expiration_ms, entries=kept, snapshot_bytes=_snapshots_bytes(totals, kept))
            for expiration_ms, kept in zip(result.expirations_ms, totals.kept, strict=True)
        ],
        batches=facts.batches,
        records=facts.records,
        data_batches=doc.DataBatches(
            transactional=facts.transactional, idempotent=facts.idempotent, without_producer=facts.without_producer
        ),
        control_batches=facts.control,
        codecs=doc.Codecs(
            **_codecs(facts),
        ),
        magic=doc.Magic(**{f"magic_{magic}": count for magic, count in enumerate(facts.magic)}),
        batch_bytes=_batch_bytes(totals, facts),
    )


def _known(epoch: int) -> int | None:
    return None if epoch < 0 else epoch


def _live(totals: Totals, result: StatsResult) -> int:
    return totals.kept[result.expirations_ms.index(result.clock.expiration_ms)]


def _snapshots_bytes(totals: Totals, entries: int) -> int:
    """Bytes of one snapshot in each partition, with this many entries in total."""
    return (totals.partitions - 1) * snapshot_size(0) + snapshot_size(entries) if totals.partitions else 0


def _codecs(facts: BatchFacts) -> dict[str, int]:
    return {**dict(zip(CODECS, facts.codecs, strict=False)), "unknown": sum(facts.codecs[len(CODECS) :])}


def _batch_bytes(totals: Totals, facts: BatchFacts) -> doc.BatchBytes:
    median_from, median_below = facts.median_range or (None, None)
    return doc.BatchBytes(
        total=facts.size_bytes,
        min=totals.batches.size_min_bytes if facts.batches else None,
        mean=round(facts.size_bytes / facts.batches, 1) if facts.batches else None,
        max=totals.batches.size_max_bytes if facts.batches else None,
        median_from=median_from,
        median_below=median_below,
        histogram=[
            doc.Histogram(from_bytes=1 << log2, below_bytes=2 << log2, batches=count) for log2, count in facts.sizes.items()
        ],
    )


def _partition(partition: PartitionStats, result: StatsResult) -> doc.Partition:
    names = SEGMENT_ROW.names or ()
    rows = None if partition.segments is None else partition.segments.tolist()
    return doc.Partition(
        **names_of(partition.source.directory),
        path=partition.source.path,
        totals=_totals(partition.totals, result),
        segments=None if rows is None else [doc.Segment(**dict(zip(names, row, strict=True))) for row in rows],
    )


def _producer_rows(result: StatsResult) -> Iterator[tuple[int, ...]]:
    """Producer id and ``PRODUCER_FIELDS``."""
    columns = [result.producers.key, *(result.producers.columns[name] for name in PRODUCER_FIELDS)]
    return zip(*(column.tolist() for column in columns), strict=True)


# ---------------------------------------------------------------------------------------------------------------- tables


COUNTED = ("segments", "size", "batches", "records", "producers", "one batch", "one transaction", "epoch bumped", "live")
"""Columns of everything, a topic or a partition."""

LESS_COUNTED = ("one transaction", "epoch bumped", "one batch", "records")
"""Those that a narrow terminal does without."""


def print_stats(result: StatsResult, top: int, *, details: bool) -> None:
    """Prints the tables: sums first, the topics, partitions and producers with the most batches."""
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
    shown = result.partitions[:top]
    rows = [(labels[each.source.path], *_counted(each.totals, result)) for each in shown]
    title = _title("Partitions", len(result.partitions), top)
    print_table(title, ("partition", *COUNTED), rows, right=COUNTED, drop=LESS_COUNTED, all_rows=True)
    if details:
        _print_segments(shown, labels)
    _print_producers(result, top)
    _print_verdict(result)


def _title(what: str, count: int, top: int) -> str:
    return what if count <= top else f"{what}, the top {top} of {count}"


def _counted(totals: Totals, result: StatsResult) -> tuple[object, ...]:
    facts = totals.facts
    batches = BatchFacts.of(totals.batches)
    producers = (facts.seen, facts.one_batch, facts.one_transaction, facts.bumped)
    return (totals.segments, size_text(totals.size_bytes), batches.batches, batches.records, *producers, _live(totals, result))


def _print_expirations(result: StatsResult) -> None:
    total = result.total
    rows = []
    for expiration_ms, kept in zip(result.expirations_ms, total.kept, strict=True):
        mark = "<- this one counts" if expiration_ms == result.clock.expiration_ms else ""
        size = size_text(_snapshots_bytes(total, kept))
        rows.append((expiration_ms, _duration(expiration_ms), kept, _share(kept, total.entries), size, mark))
    columns = ("expiration ms", "that is", "live", "of all", "snapshots", "")
    print_table("Producers by expiration", columns, rows, right=columns[:-1])
    print_text(f"live at {_moment(result.clock.as_of_ms)}, of {pluralize(total.entries, 'entry', 'entries')} in the retained log")
    print_text("")


def _print_batches(totals: Totals) -> None:
    facts = BatchFacts.of(totals.batches)
    rows: list[tuple[str, int]] = [
        ("data, transactional", facts.transactional),
        ("data, idempotent", facts.idempotent),
        ("data, without producer id", facts.without_producer),
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
    rows = [
        (
            labels[each.source.path],
            int(row["base_offset"]),
            size_text(int(row["size_bytes"])),
            *(int(row[name]) for name in names),
            size_text(snapshot_size(int(row["live_producers"]))),
            _moment(int(row["moment_ms"])),
        )
        for each in partitions
        for row in (() if each.segments is None else each.segments)
    ]
    columns = ("partition", "segment", "size", "batches", "records", "transactional", "control", "producers", "new", "live at end")
    drop = ("new", "control", "transactional", "snapshot")
    print_table(
        "Segments", (*columns, "snapshot", "newest record"), rows, right=(*columns[1:], "snapshot"), drop=drop, all_rows=True
    )


def _print_producers(result: StatsResult, top: int) -> None:
    rows = [(*row[:-1], _moment(row[-1])) for row in _producer_rows(result)]
    if rows:
        columns = ("producer id", "batches", "records", "partitions", "transactions", "lowest epoch", "highest epoch", "last wrote")
        title = _title("Producers", result.total.facts.seen, top)
        print_table(title, columns, rows, right=columns[:-1], drop=("lowest epoch", "partitions"), all_rows=True)


def _print_verdict(result: StatsResult) -> None:
    total = result.total
    facts = total.facts
    live = _live(total, result)
    if facts.near_limit:
        who = pluralize(facts.near_limit, "producer")
        print_text(
            f"{who} with an epoch of {EPOCH_NEAR_LIMIT} or more, the highest is {facts.highest_epoch}: at 32766 it gets a new id"
        )
    one = f"{facts.one_batch} ({_share(facts.one_batch, facts.seen)}) wrote one batch only"
    producers = f"{pluralize(facts.seen, 'producer id')}, of which {one}" if facts.seen else "no producer ids"
    size = size_text(_snapshots_bytes(total, live))
    print_text(f"{pluralize(total.partitions, 'partition')}: {producers}; {live} live entries, snapshots of {size}")
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
