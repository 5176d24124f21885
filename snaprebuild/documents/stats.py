"""The document of ``inspect stats``."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from snaprebuild.inspect.segment_statistics import DataBatches
from snaprebuild.inspect.stats import ProducerTotals, SegmentCounts
from snaprebuild.published import Document, Natural, Part, Positive, Seconds, Streamed
from snaprebuild.storage.partition_names import TopicPartition

__all__ = [
    "BatchBytes",
    "Codecs",
    "Expiration",
    "Histogram",
    "Magic",
    "Stats",
    "StatsPartition",
    "StatsProducer",
    "StatsTopic",
    "StatsTotals",
]


class Expiration(Part, frozen=True):
    """Producers that an expiration leaves at as_of_ms, and the size of their snapshot."""

    expiration_ms: Positive
    entries: Natural
    snapshot_bytes: Natural


class Codecs(Part, frozen=True):
    """Batches of data by codec."""

    none: Natural
    gzip: Natural
    snappy: Natural
    lz4: Natural
    zstd: Natural
    unknown: Natural


class Magic(Part, frozen=True):
    """Batches by message format."""

    magic_0: Natural = msgspec.field(name="0")
    magic_1: Natural = msgspec.field(name="1")
    magic_2: Natural = msgspec.field(name="2")


class Histogram(Part, frozen=True):
    """Batches of a range of sizes."""

    from_bytes: Positive
    below_bytes: Positive
    batches: Positive


class BatchBytes(Part, frozen=True):
    """Sizes of batches."""

    total: Natural
    min: Natural | None
    """Null without batches."""
    mean: float | None
    max: Natural | None
    median_from: Positive | None
    """The median is at least this, and less than median_below, which is 1 more up to 63 and at most 1/32 more."""
    median_below: Positive | None
    histogram: Sequence[Histogram]
    """By powers of two, as far as there are any."""


class StatsTotals(Part, frozen=True):
    """Sums over partitions."""

    partitions: Natural
    """Partitions whose segments were counted."""
    segments: Natural
    """Segments that were read."""
    size_bytes: Natural
    """Bytes of those segments."""
    read_bytes: Natural
    producers: ProducerTotals
    entries: Natural
    """Sum of the producers of each partition: brokers that forget none would hold them in memory."""
    open_transactions: Natural
    """Entries with an open transaction; they never expire."""
    live_entries: Natural
    """Entries that have not expired at as_of_ms with expiration_ms."""
    snapshot_bytes: Natural
    """Size of one snapshot for each partition, with the live entries: 10 bytes and 46 for each entry."""
    by_expiration: Sequence[Expiration]
    """Live entries and snapshot sizes with other expirations, ascending; expiration_ms is among them."""
    batches: Natural
    records: Natural
    """Records of data; the header of a compressed message of magic 0 or 1 does not have their number, so they count as none."""
    data_batches: DataBatches
    control_batches: Natural
    """Transaction markers, and those of KRaft."""
    codecs: Codecs
    magic: Magic
    batch_bytes: BatchBytes


class StatsTopic(Part, frozen=True):
    """A topic over all log directories."""

    topic: str
    totals: StatsTotals


class StatsPartition(TopicPartition, frozen=True):
    """A partition."""

    path: str
    totals: StatsTotals
    segments: Sequence[SegmentCounts] | None
    """For the --top partitions with the most batches; null for others."""


class StatsProducer(Part, frozen=True):
    """A producer."""

    producer_id: Natural
    batches: Natural
    """Batches of data."""
    records: Natural
    partitions: Positive
    """Partitions with a batch of it."""
    transactions: Natural
    """Largest number in any partition: markers, and an open transaction."""
    lowest_epoch: int
    """Lowest epoch of the first and last batch of each partition; 32767 if there is none."""
    highest_epoch: int
    """Highest epoch of the first and last batch of each partition; -1 if there is none."""
    last_timestamp_ms: int
    """Greatest timestamp of its last batch or marker in each partition; -1 for none."""


class Stats(Document, frozen=True):
    """The JSON document of `snaprebuild inspect stats`."""

    NAME = "inspect-stats"
    VERSION = 2

    as_of_ms: int
    expiration_ms: Positive
    elapsed_seconds: Seconds
    totals: StatsTotals
    topics: Streamed[StatsTopic]
    """The one with the most batches first."""
    partitions: Streamed[StatsPartition]
    """The one with the most batches first."""
    producers: Streamed[StatsProducer]
    """Producers with the most batches, at most --top."""
