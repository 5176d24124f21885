"""The documents of the ``inspect`` commands; the lines of ``inspect dump`` are described in docs/schema alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.inspect.broker_answer import BatchInMemory
from snaprebuild.inspect.diff import DifferingEntry, DiffStatus, DiffTotals, EntryField, SnapshotSide
from snaprebuild.inspect.explain import AnsweredBatch, DifferingSnapshot
from snaprebuild.inspect.producer_trace import TracedBatch
from snaprebuild.inspect.snapshot_explanation import WrongEntry
from snaprebuild.inspect.transaction_model import OngoingTransaction, TransactionSums, TransactionTotals
from snaprebuild.published import Document, Natural, Part, Positive, RunRecord, Seconds
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import ComparisonStatus
from snaprebuild.storage.partition_names import TopicPartition

__all__ = [
    "Diff",
    "Explain",
    "ExplainSnapshot",
    "ExplainedPartition",
    "ExplainedSnapshots",
    "SnapshotTotals",
    "Transactions",
    "TransactionsPartition",
]


class TransactionsPartition(TopicPartition, frozen=True):
    """A partition."""

    path: str
    can_be_tiered: bool
    """Neither internal nor compacted."""
    log_end_offset: Natural | None
    """End of the replay; null for an empty log."""
    last_stable_offset: Natural | None
    """First offset of the oldest open transaction, else the log end; null for an empty log."""
    totals: TransactionTotals
    counts_as_late: bool
    """A broker counts the partition among those with late transactions."""
    held_offsets: Natural
    """Offsets from the last stable offset to the log end."""
    held_bytes: Natural | None
    """Bytes of the same range; null if the first batch is not on disk."""
    held_segments: Natural
    """Rolled segments that reach above the last stable offset: tiered storage uploads none of them."""
    held_segment_bytes: Natural
    open: Sequence[OngoingTransaction]
    """The oldest 100."""
    read_bytes: Natural


class Transactions(Document, frozen=True):
    """What `snaprebuild inspect transactions --output json` prints."""

    NAME = "inspect-transactions"
    VERSION = 3

    run: RunRecord
    as_of_ms: int
    late_after_ms: Natural
    elapsed_seconds: Seconds
    totals: TransactionSums
    partitions: Sequence[TransactionsPartition]


class Diff(Document, frozen=True):
    """What `snaprebuild inspect diff --output json` prints."""

    NAME = "inspect-diff"
    VERSION = 3

    as_of_ms: Natural | None
    """Null: every entry counts."""
    expiration_ms: Positive | None
    status: DiffStatus
    a: SnapshotSide
    b: SnapshotSide
    totals: DiffTotals
    entries: Sequence[DifferingEntry]
    """At most 1000, open transactions first."""
    entries_not_listed: Natural
    """Counted and not in entries."""


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


class Explain(Document, frozen=True):
    """What `snaprebuild inspect explain --output json` prints."""

    NAME = "inspect-explain"
    VERSION = 3

    producer_id: Natural
    requested_offset: Natural | None
    """Null for the log end."""
    broker_version: Annotated[str, msgspec.Meta(pattern=r"^[0-9]+\.[0-9]+$")]
    """Version whose answers are shown."""
    as_of_ms: int
    expiration_ms: Positive
    elapsed_seconds: Seconds
    partitions_read: Natural
    partitions: Sequence[ExplainedPartition]
    """Partitions that have the producer; the only one that was read if it does not."""


class ExplainSnapshot(Document, frozen=True):
    """What `snaprebuild inspect explain FILE.snapshot --output json` prints."""

    NAME = "inspect-explain-snapshot"
    VERSION = 1

    topic: str
    partition: Natural
    topic_partition: str
    path: str
    offset: Natural
    """In the name of the file."""
    as_of_ms: int
    expiration_ms: Positive
    elapsed_seconds: Seconds
    read_bytes: Natural
    """Bytes of segments that were read: those up to the offset twice, if entries are wrong."""
    status: ComparisonStatus | None
    """Null if the file was not read."""
    proven_wrong: bool
    reason: str | None
    """Why it is wrong, or cannot be judged; null if the file was not read."""
    found_entries: Natural
    expected_entries: Natural | None
    """By the replay; null if it has no state at the offset."""
    snapshot_class: SnapshotClass | None = msgspec.field(name="class")
    """Class of the replay at the offset (docs/concepts/confidence.md); null if it has no state there."""
    reasons: Sequence[str]
    """Why the replay has this class."""
    wrong_since_offset: Natural | None
    """The first retained snapshot from which on each one up to this one is proven wrong; null if this one is not."""
    base_snapshot_offset: Natural | None
    """Offset of the snapshot at the first offset, if the replay began from it."""
    differing_entries: Natural
    """Entries that differ, also those of which the log does not prove that they are wrong."""
    entries: Sequence[WrongEntry]
    """Entries that the log contradicts, those with open transactions first; at most 100."""
    entries_not_listed: Natural
