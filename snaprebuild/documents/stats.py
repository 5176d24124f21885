"""The document of ``inspect stats``."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from snaprebuild.documents.common import TopicPartition
from snaprebuild.documents.typed import Document, Natural, Part, Positive, Seconds, Streamed

__all__ = [
    "BatchBytes",
    "Codecs",
    "DataBatches",
    "Expiration",
    "Histogram",
    "Magic",
    "Partition",
    "Producer",
    "ProducerTotals",
    "Segment",
    "Stats",
    "Topic",
    "Totals",
]


class ProducerTotals(Part, frozen=True):
    """Producer ids, each counted once."""

    seen: Natural
    """With any batch."""
    one_batch: Natural
    """That wrote one data batch."""
    transactional: Natural
    """That have a transaction: a marker, or one that is open."""
    one_transaction: Natural
    """That have one, or at most one in each partition."""
    bumped: Natural
    """Whose first and last epochs differ, in a partition or between partitions."""
    near_limit: Natural
    """With an epoch of 32000 or more; at 32766 a coordinator gives a new producer id."""
    highest_epoch: Natural | None
    """Null without any."""


class Expiration(Part, frozen=True):
    """What an expiration leaves at as_of_ms."""

    expiration_ms: Positive
    entries: Natural
    snapshot_bytes: Natural


class DataBatches(Part, frozen=True):
    """Batches of data by kind of producer."""

    transactional: Natural
    """With a producer id, in a transaction."""
    idempotent: Natural
    """With a producer id, in none."""
    without_producer: Natural


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


class Totals(Part, frozen=True):
    """Sums over partitions."""

    partitions: Natural
    """Whose segments were counted."""
    segments: Natural
    """That were read."""
    size_bytes: Natural
    """Of those segments."""
    read_bytes: Natural
    producers: ProducerTotals
    entries: Natural
    """Producers of each partition, added up: what brokers that forgot none would hold in memory."""
    open_transactions: Natural
    """Entries with one; they never expire."""
    live_entries: Natural
    """Entries that have not expired at as_of_ms with expiration_ms."""
    snapshot_bytes: Natural
    """Of one snapshot for each partition, with those: 10 and 46 for each entry."""
    by_expiration: Sequence[Expiration]
    """The same for other expirations, ascending; expiration_ms is among them."""
    batches: Natural
    records: Natural
    """Of data; the header of a compressed message of magic 0 or 1 does not have their number, and it counts none."""
    data_batches: DataBatches
    control_batches: Natural
    """Transaction markers, and those of KRaft."""
    codecs: Codecs
    magic: Magic
    batch_bytes: BatchBytes


class Topic(Part, frozen=True):
    """A topic over all log directories."""

    topic: str
    totals: Totals


class Segment(Part, frozen=True):
    """A segment."""

    base_offset: Natural
    next_offset: Natural
    size_bytes: Natural
    moment_ms: int
    """Greatest timestamp of the segment, or that of the one before it where it has none."""
    batches: Natural
    records: Natural
    transactional_batches: Natural
    control_batches: Natural
    producers: Natural
    """Producer ids with a batch in it."""
    new_producers: Natural
    """Those without a retained batch before it."""
    known_producers: Natural
    """Producer ids up to its end."""
    live_producers: Natural
    """Those that have not expired at moment_ms."""


class Partition(TopicPartition, frozen=True):
    """A partition."""

    path: str
    totals: Totals
    segments: Sequence[Segment] | None
    """Of the --top partitions with the most batches; null for others."""


class Producer(Part, frozen=True):
    """A producer."""

    producer_id: Natural
    batches: Natural
    """Of data."""
    records: Natural
    partitions: Positive
    """In which it has a batch."""
    transactions: Natural
    """The most of any partition: markers, and one that is open."""
    lowest_epoch: int
    """Of the first and last of each partition; 32767 for one that has none."""
    highest_epoch: int
    """Of the first and last of each partition; -1 for one that has none."""
    last_timestamp_ms: int
    """Of its last batch or marker in each partition, the greatest; -1 for none."""


class Stats(Document, frozen=True):
    """What `snaprebuild inspect stats --output json` prints."""

    NAME = "inspect-stats"
    VERSION = 2

    as_of_ms: int
    expiration_ms: Positive
    elapsed_seconds: Seconds
    totals: Totals
    topics: Streamed[Topic]
    """The one with the most batches first."""
    partitions: Streamed[Partition]
    """The one with the most batches first."""
    producers: Streamed[Producer]
    """Those with the most batches, at most --top."""
