"""The numbers of ``stats``, counted batch by batch from the headers that the grammar reads: the reference of its columns."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from header_engines import Reading, read_reference, segment

from formats.log.record_batch import BatchHeader

HOUR = 3_600_000
CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


@dataclass
class Producer:
    """One producer of one partition."""

    batches: int = 0
    records: int = 0
    markers: int = 0
    epochs: list[int] = field(default_factory=list)
    timestamp: int = -1
    is_open: bool = False

    def lives(self, as_of: int, expiration: int) -> bool:
        """``ProducerStateManager.isProducerExpired``, turned round; a long of Java overflows, as only timestamps of no date make it."""
        age = (as_of - self.timestamp + 2**63) % 2**64 - 2**63
        return self.is_open or age < expiration


@dataclass
class Partition:
    """One partition, its segments in order."""

    segments: list[dict[str, int]] = field(default_factory=list)
    headers: list[BatchHeader] = field(default_factory=list)
    producers: dict[int, Producer] = field(default_factory=dict)
    size_bytes: int = 0

    def add(self, reading: Reading, base_offset: int, size_bytes: int, as_of: int, expiration: int) -> None:
        """The next segment."""
        before = set(self.producers)
        seen = set()
        for row, header in enumerate(reading.headers):
            if header.producer_id >= 0:
                seen.add(header.producer_id)
                self._fold(header, [each.timestamp for each in reading.markers if each.row == row] if header.is_control else [])
        moment = max((header.max_timestamp for header in reading.headers), default=-1)
        if moment < 0:
            moment = self.segments[-1]["moment_ms"] if self.segments else as_of
        headers = reading.headers
        self.headers += headers
        self.size_bytes += size_bytes
        self.segments.append(
            {
                "base_offset": base_offset,
                "next_offset": max(headers[-1].last_offset + 1, base_offset) if headers else base_offset,
                "size_bytes": size_bytes,
                "moment_ms": moment,
                "batches": len(headers),
                "records": sum(map(records_of, headers)),
                "transactional_batches": sum(kind_of(header) == "transactional" for header in headers),
                "control_batches": sum(header.is_control for header in headers),
                "producers": len(seen),
                "new_producers": len(seen - before),
                "known_producers": len(self.producers),
                "live_producers": sum(each.lives(moment, expiration) for each in self.producers.values()),
            }
        )

    def _fold(self, header: BatchHeader, marker_timestamps: list[int]) -> None:
        producer = self.producers.setdefault(header.producer_id, Producer())
        if header.is_control:
            if not header.record_count:
                return
            producer.markers += 1
            (producer.timestamp,) = marker_timestamps
            producer.is_open = False
        else:
            producer.batches += 1
            producer.records += records_of(header)
            producer.timestamp = header.max_timestamp
            producer.is_open |= header.is_transactional
        producer.epochs.append(header.producer_epoch)


def records_of(header: BatchHeader) -> int:
    """Records of data, as far as the header says."""
    if header.is_control:
        return 0
    if header.magic < 2:
        return int(header.codec == 0)
    return max(header.record_count, 0)


def kind_of(header: BatchHeader) -> str:
    """Whose batch it is."""
    if header.is_control:
        return "control"
    if header.producer_id < 0:
        return "without_producer"
    return "transactional" if header.is_transactional else "idempotent"


def partition_of(segments: Iterable[tuple[int, bytes]], as_of: int, expiration: int) -> Partition:
    """Segments as base offset and bytes."""
    partition = Partition()
    for base_offset, data in segments:
        partition.add(read_reference(segment(data)), base_offset, len(data), as_of, expiration)
    return partition


def partition_in(directory: Path, as_of: int, expiration: int) -> Partition:
    """The segments of a directory."""
    paths = sorted(path for path in directory.glob("*.log") if path.stem.isdecimal())
    return partition_of(((int(path.stem), path.read_bytes()) for path in paths), as_of, expiration)


def over_partitions(partitions: Sequence[Partition]) -> dict[int, dict[str, int]]:
    """Each producer id once: what ``producers`` of the document says of it."""
    found: dict[int, list[Producer]] = {}
    for partition in partitions:
        for producer_id, producer in partition.producers.items():
            found.setdefault(producer_id, []).append(producer)
    rows = {}
    for producer_id, producers in found.items():
        ends = [epoch for producer in producers for epoch in (*producer.epochs[:1], *producer.epochs[-1:])]
        rows[producer_id] = {
            "producer_id": producer_id,
            "batches": sum(producer.batches for producer in producers),
            "records": sum(producer.records for producer in producers),
            "partitions": len(producers),
            "transactions": max(producer.markers + producer.is_open for producer in producers),
            "lowest_epoch": min(ends, default=32767),
            "highest_epoch": max(ends, default=-1),
            "last_timestamp_ms": max(producer.timestamp for producer in producers),
        }
    return rows


def totals_of(partitions: Sequence[Partition], as_of: int, expiration: int) -> dict[str, Any]:
    """The document's numbers of these partitions together, without ``read_bytes``, which depends on how they are read."""
    headers = [header for partition in partitions for header in partition.headers]
    entries = [producer for partition in partitions for producer in partition.producers.values()]
    rows = over_partitions(partitions).values()
    sizes = sorted(header.size_bytes for header in headers)
    kinds = Counter(map(kind_of, headers))
    codecs = Counter(CODECS.get(header.codec, "unknown") for header in headers if not header.is_control)
    median = sizes[(len(sizes) - 1) // 2] if sizes else 0
    width = max(1, 2 ** (median.bit_length() - 1) // 32) if sizes else 0  # of a median of 183 we know 180 to 183
    buckets = Counter(size.bit_length() - 1 for size in sizes)

    def kept(expiration_ms: int) -> dict[str, int]:
        count = sum(producer.lives(as_of, expiration_ms) for producer in entries)
        return {"expiration_ms": expiration_ms, "entries": count, "snapshot_bytes": 10 * len(partitions) + 46 * count}

    highest = max((row["highest_epoch"] for row in rows), default=-1)
    return {
        "partitions": len(partitions),
        "segments": sum(len(partition.segments) for partition in partitions),
        "size_bytes": sum(partition.size_bytes for partition in partitions),
        "producers": {
            "seen": len(rows),
            "one_batch": sum(row["batches"] == 1 for row in rows),
            "transactional": sum(row["transactions"] > 0 for row in rows),
            "one_transaction": sum(row["transactions"] == 1 for row in rows),
            "bumped": sum(row["lowest_epoch"] < row["highest_epoch"] for row in rows),
            "near_limit": sum(row["highest_epoch"] >= 32_000 for row in rows),
            "highest_epoch": None if highest < 0 else highest,
        },
        "entries": len(entries),
        "open_transactions": sum(producer.is_open for producer in entries),
        "live_entries": kept(expiration)["entries"],
        "snapshot_bytes": kept(expiration)["snapshot_bytes"],
        "by_expiration": [kept(each) for each in sorted({HOUR, 6 * HOUR, 24 * HOUR, 168 * HOUR, expiration})],
        "batches": len(headers),
        "records": sum(map(records_of, headers)),
        "data_batches": {kind: kinds[kind] for kind in ("transactional", "idempotent", "without_producer")},
        "control_batches": kinds["control"],
        "codecs": {name: codecs[name] for name in (*CODECS.values(), "unknown")},
        "magic": {str(magic): sum(header.magic == magic for header in headers) for magic in range(3)},
        "batch_bytes": {
            "total": sum(sizes),
            "min": sizes[0] if sizes else None,
            "mean": round(sum(sizes) / len(sizes), 1) if sizes else None,
            "max": sizes[-1] if sizes else None,
            "median_from": median - median % width if sizes else None,
            "median_below": median - median % width + width if sizes else None,
            "histogram": [
                {"from_bytes": 2**log, "below_bytes": 2 ** (log + 1), "batches": buckets[log]} for log in sorted(buckets)
            ],
        },
    }


def without(document: dict[str, Any], *names: str) -> dict[str, Any]:
    """A document without some members."""
    return {name: value for name, value in document.items() if name not in names}
