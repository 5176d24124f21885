"""The documents of the ``inspect`` commands; the lines of ``inspect dump`` are described in docs/schema alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from snaprebuild.inspect.diff import DifferingEntry, DiffStatus, DiffTotals, SnapshotSide
from snaprebuild.inspect.explain import ExplainedPartition
from snaprebuild.inspect.transaction_model import TransactionsPartition, TransactionSums
from snaprebuild.published import Document, Natural, Positive, RunRecord, Seconds

__all__ = ["Diff", "Explain", "Transactions"]


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
