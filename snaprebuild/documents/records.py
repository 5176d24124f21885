"""The document of ``inspect records``, which is also the manifest of an export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from snaprebuild.published import Document, Natural, OffsetOrNone, Part, Streamed, one_of
from snaprebuild.storage.partition_names import TopicPartition, named

if TYPE_CHECKING:
    from snaprebuild.consume.partition_read import ReadRange

__all__ = ["ExportedFile", "RecordRange", "Records", "RecordsPartition", "ShownRecord", "record_range"]


class ExportedFile(Part, frozen=True):
    """A file of Parquet with the records of a partition."""

    path: str
    """Below the directory of the export; its name has the first and the last offset."""
    size_bytes: Natural


class RecordRange(TopicPartition, frozen=True):
    """The range of a partition that was read, and the counts of its records and batches."""

    source: str
    """The directory, or the remote storage."""
    start_offset: Natural
    """The first offset of the range."""
    end_offset: Natural
    """The offset after the last one of the range."""
    records: Natural
    """Records that were given, without rows about damage."""
    first_offset: OffsetOrNone
    """Offset of the first of them; -1 without one."""
    last_offset: OffsetOrNone
    """Offset of the last of them; -1 without one."""
    aborted_batches: Natural
    """Batches of aborted transactions that were left out."""
    control_batches: Natural
    """Batches of control records that were left out."""
    missing_offsets: Natural
    """Offsets of the range that are in no batch; compaction removes them by design."""
    damaged_batches: Natural
    """Batches, or ends of segments, that could not be read."""


def record_range(read: ReadRange) -> RecordRange:
    """The members of a range that was read, or is being read."""
    counts = read.counts
    return RecordRange(
        **named(read.topic, read.partition),
        source=read.place,
        start_offset=read.start,
        end_offset=read.end,
        records=counts.records,
        first_offset=-1 if counts.first_offset is None else counts.first_offset,
        last_offset=-1 if counts.last_offset is None else counts.last_offset,
        aborted_batches=counts.aborted_batches,
        control_batches=counts.control_batches,
        missing_offsets=counts.missing_offsets,
        damaged_batches=counts.damaged_batches,
    )


class RecordsPartition(RecordRange, frozen=True):
    """A partition whose records are shown or exported."""

    is_whole: bool
    """Nothing of the range was left out because of `--limit` or damage."""
    file: ExportedFile | None
    """File with the records of the partition; null without `--out`, and without a record."""


class ShownRecord(Part, frozen=True):
    """A record."""

    topic_partition: str
    offset: Natural
    timestamp_ms: int | None
    """Milliseconds since 1970; null for none."""
    timestamp_type: Annotated[str, one_of("CreateTime", "LogAppendTime")]
    key_bytes: Natural | None
    """null for a null key."""
    value_bytes: Natural | None
    """null for a null value."""
    transaction: Annotated[str, one_of("none", "committed", "aborted", "open")] | None
    """How the transaction of the record ended; null with read_committed, where all are committed or in none."""
    key: str | None
    """In the form of `--key-format`, `base64:` and base64 where the bytes are not of that form; null without it, and for null."""
    value: str | None
    """In the form of `--value-format`, as `key`."""


class Records(Document, frozen=True):
    """The JSON document of `snaprebuild inspect records`, and the manifest of `--out`."""

    NAME = "inspect-records"
    VERSION = 1

    isolation: Annotated[str, one_of("read_committed", "read_uncommitted", "all")]
    limit: Natural | None
    """Records at most; null for any number."""
    is_limited: bool
    """There may be more records than the limit."""
    not_read: tuple[str, ...]
    """Selected partitions of which nothing was read, because the limit was reached before, or because of damage."""
    partitions: Streamed[RecordsPartition]
    shown_records: Streamed[ShownRecord]
    """Empty with `--out`."""
