"""The documents of the ``inspect`` commands; the lines of ``inspect dump`` are described in docs/schema alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from snaprebuild.published import Document, Int64, Natural, Part, Positive, RunRecord, Seconds, one_of
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.storage.partition_names import TopicPartition

__all__ = [
    "AbortCommands",
    "Answer",
    "Answered",
    "Batch",
    "Diff",
    "DiffTotals",
    "DifferingEntry",
    "DifferingField",
    "DifferingSnapshot",
    "Entry",
    "Explain",
    "ExplainedPartition",
    "ExplainedSnapshots",
    "HeldBatch",
    "OpenTransaction",
    "PartitionTransactions",
    "Side",
    "SnapshotTotals",
    "TransactionEvidence",
    "TransactionSums",
    "TransactionTotals",
    "Transactions",
]

EntryField = Annotated[
    str,
    one_of("epoch", "last_sequence", "last_offset", "offset_delta", "timestamp", "coordinator_epoch", "current_txn_first_offset"),
]
"""A field of an entry of a snapshot, as the file has it."""


class TransactionTotals(Part, frozen=True):
    """Transactions by state."""

    committed: Natural
    """Transactions with batches that a marker committed."""
    aborted: Natural
    """Transactions with batches that a marker aborted."""
    empty: Natural
    """Markers that closed nothing in this partition."""
    unknown: Natural
    """Markers without an earlier retained batch of their producer: of an empty transaction, or of one whose batches are deleted."""
    open: Natural
    """Transactions without a marker."""
    late: Natural
    """Open transactions without a batch for longer than late_after_ms."""


class TransactionSums(TransactionTotals, frozen=True):
    """Transactions of all partitions by state."""

    partitions_with_late: Natural
    """Partitions whose oldest transaction is late, as brokers count them."""


class AbortCommands(Part, frozen=True):
    """Commands of Kafka's own tool, which were not run."""

    since_3_0: str
    before_3_0: str


class TransactionEvidence(Part, frozen=True):
    """A fact, and where it is."""

    path: str
    """Log, file or directory that shows it."""
    offset: Natural | None
    """In that log."""
    timestamp_ms: int | None
    what: str
    """For the user; not stable."""


class OpenTransaction(Part, frozen=True):
    """A transaction without a marker."""

    first_offset: Natural
    producer_id: Natural
    epoch: int
    coordinator_epoch: int
    """Coordinator epoch of the last marker of its producer; -1 for none."""
    since_ms: Natural | None
    """Timestamp of its first batch."""
    last_ms: Natural | None
    """Timestamp of the last batch of its producer."""
    is_late: bool
    may_have_begun_before: bool
    """It may have begun below the first segment: nothing on disk shows it."""
    position_bytes: Natural | None
    """Position of its first batch in its segment."""
    abort_commands: AbortCommands | None
    """Null unless the evidence shows that it is over, and that this replica leads its partition."""
    two_phase: Annotated[str, one_of("yes", "no", "unknown")]
    """Whether it is under two-phase commit (KIP-939), by __transaction_state; checked only if it would be late. `yes`: never late,
    and no abort command."""
    transactional_id: str | None
    """By __transaction_state; null where two_phase was not checked, or no record names the producer."""
    timeout_ms: Natural | None
    """transaction.timeout.ms of its producer, by __transaction_state; null if unknown."""
    reason: (
        Annotated[
            str,
            one_of(
                "within_timeout",
                "over_timeout",
                "marker_pending",
                "marker_lost",
                "marker_missing",
                "late_append",
                "incomplete_replica",
                "unknown",
            ),
        ]
        | None
    )
    """Why it is open (docs/guides/inspect.md); null if it is not late."""
    reason_text: str | None
    """For the user; not stable."""
    evidence: Sequence[TransactionEvidence]
    """Of the reason."""
    missing_evidence: str | None
    """What would show more; for the user, not stable. Null if nothing is missing."""


class PartitionTransactions(TopicPartition, frozen=True):
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
    open: Sequence[OpenTransaction]
    """The oldest 100."""
    read_bytes: Natural


class Transactions(Document, frozen=True):
    """What `snaprebuild inspect transactions --output json` prints."""

    NAME = "inspect-transactions"
    VERSION = 2

    run: RunRecord
    as_of_ms: int
    late_after_ms: Natural
    elapsed_seconds: Seconds
    totals: TransactionSums
    partitions: Sequence[PartitionTransactions]


class Side(Part, frozen=True):
    """One of the two snapshots."""

    path: str
    offset: Natural | None
    """Offset in its name, if that is a broker's name."""
    size_bytes: Natural | None
    entries: Natural | None
    """Number of producers; null if the file does not parse."""
    expired: Natural | None
    """Entries that a load at as_of_ms drops; null without it."""


class DiffTotals(Part, frozen=True):
    """Producers that differ."""

    only_in_a: Natural
    only_in_b: Natural
    changed: Natural


class DifferingEntry(Part, frozen=True):
    """A producer that differs."""

    producer_id: Int64
    kind: Annotated[str, one_of("only_in_a", "only_in_b", "changed")]
    a: Mapping[EntryField, int]
    """All fields if only A has the producer; else those that differ."""
    b: Mapping[EntryField, int]
    consequence: str
    """What a broker with B would do if A is right."""


class Diff(Document, frozen=True):
    """What `snaprebuild inspect diff --output json` prints."""

    NAME = "inspect-diff"
    VERSION = 2

    as_of_ms: Natural | None
    """Null: every entry counts."""
    expiration_ms: Positive | None
    status: Annotated[str, one_of("equal_bytes", "equal", "equal_after_expiry", "different", "unreadable")]
    a: Side
    b: Side
    totals: DiffTotals
    entries: Sequence[DifferingEntry]
    """At most 1000, open transactions first."""
    entries_not_listed: Natural
    """Counted and not in entries."""


class Entry(Part, frozen=True):
    """An entry as in a snapshot: -1 where a field has no value."""

    producer_id: Natural
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


class Batch(Part, frozen=True):
    """A batch in a segment."""

    segment: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{20}\.log$")]
    """Name of the file."""
    position_bytes: Natural
    """Position of the batch in the file."""
    base_offset: Natural
    kind: Annotated[str, one_of("data", "transactional", "commit", "abort", "empty_control")]


class HeldBatch(Part, frozen=True):
    """A batch that a running broker holds in memory."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    """Negative only if a snapshot has an entry with an offset delta above its last offset."""


class DifferingField(Part, frozen=True):
    """A field of an entry."""

    field: EntryField
    found: int
    """Value in the snapshot."""
    expected: int
    """Value by the log."""


class DifferingSnapshot(Part, frozen=True):
    """A snapshot whose entry of the producer is not equal."""

    offset: Natural
    status: Annotated[str, one_of("equal", "equal_after_expiry", "missing", "extra", "differs", "unreadable", "not_compared")]
    fields: Sequence[DifferingField]


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
    """Those that are not equal, ascending; at most the first 100."""


class Answer(Part, frozen=True):
    """The answer of a broker."""

    answer: Annotated[
        str,
        one_of(
            "accepted",
            "duplicate",
            "OutOfOrderSequenceException",
            "InvalidProducerEpochException",
            "ProducerFencedException",
            "UnknownProducerIdException",
            "InvalidTxnStateException",
        ),
    ]
    """accepted, duplicate (acknowledged and not written again), or the exception that the broker throws."""
    reason: str
    """For the user; not stable."""
    first_offset: int | None
    """Offset with which a duplicate is acknowledged; else null. Negative in the same case as that of a batch in memory."""


class Answered(Part, frozen=True):
    """A batch that the producer might send, and the answers of a broker that wrote the log and runs, and after a start."""

    batch: str
    """For the user; not stable."""
    epoch: int
    sequence: int
    """Sequence of its first record; -1 for a batch of a group coordinator."""
    records: Positive
    is_transactional: bool
    transaction_version_2: bool
    running: Answer
    restarted: Answer


class ExplainedPartition(TopicPartition, frozen=True):
    """A partition that has the producer."""

    path: str
    offset: Natural | None
    """Offset of the state, exclusive; null if the replay ended before it."""
    snapshot_class: SnapshotClass | None = msgspec.field(name="class")
    """Class of the state (docs/concepts/confidence.md); null if the replay ended before it."""
    reasons: Sequence[str]
    entry: Entry | None
    set_by: Mapping[EntryField, Batch]
    """By field the batch that set its value, also if that is -1. A field is absent if no batch set it: it was in the base snapshot,
    or was never set."""
    base_snapshot_offset: Natural | None
    """Offset of the snapshot at the first offset, if the replay began from it."""
    in_memory: Sequence[HeldBatch]
    """The batches of this epoch that a running broker holds, oldest first."""
    expires_at_ms: int | None
    """When a broker forgets the producer; null with an open transaction, which never expires, or without entry."""
    is_expired: bool
    """Whether it has expired at as_of_ms."""
    snapshots: ExplainedSnapshots
    answers: Sequence[Answered]
    read_bytes: Natural


class Explain(Document, frozen=True):
    """What `snaprebuild inspect explain --output json` prints."""

    NAME = "inspect-explain"
    VERSION = 2

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
    """Those that have the producer; the only one that was read if it does not."""
