"""The documents of the ``inspect`` commands; the lines of ``inspect dump`` are described in docs/schema alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from snaprebuild.inspect.diff import DifferingEntry, DiffStatus, DiffTotals, SnapshotSide
from snaprebuild.inspect.explain import ExplainedPartition
from snaprebuild.inspect.snapshot_explanation import WrongEntry
from snaprebuild.inspect.transaction_model import TransactionsPartition, TransactionSums
from snaprebuild.published import Document, Natural, Positive, RunRecord, Seconds
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import ComparisonStatus

__all__ = ["Diff", "Explain", "ExplainSnapshot", "Transactions"]


class Transactions(Document, frozen=True):
    """The JSON document of `snaprebuild inspect transactions`."""

    NAME = "inspect-transactions"
    VERSION = 3

    run: RunRecord
    as_of_ms: int
    late_after_ms: Natural
    elapsed_seconds: Seconds
    totals: TransactionSums
    partitions: Sequence[TransactionsPartition]


class Diff(Document, frozen=True):
    """The JSON document of `snaprebuild inspect diff`."""

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


class Explain(Document, frozen=True):
    """The JSON document of `snaprebuild inspect explain`."""

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
    """The JSON document of `snaprebuild inspect explain FILE.snapshot`."""

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
