"""The transactions of a partition as values: the open ones, counts of the closed ones, and what they hold back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from snaprebuild.findings import Finding
from snaprebuild.inspect.coordinator_records import TwoPhase
from snaprebuild.inspect.hang_reasons import HangReason, TransactionEvidence
from snaprebuild.published import Natural, Part
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.partition_names import TopicPartition, names_of

__all__ = [
    "OPEN_LISTED_MAX",
    "AbortCommands",
    "OngoingTransaction",
    "PartitionTransactions",
    "TransactionSums",
    "TransactionTotals",
    "TransactionsPartition",
]

OPEN_LISTED_MAX = 100
"""Open transactions that a partition lists, the oldest first; all are counted."""


class AbortCommands(Part, frozen=True):
    """Commands of Kafka's own tool, which were not run."""

    since_3_0: str
    before_3_0: str


class OngoingTransaction(Part, frozen=True, kw_only=True):
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
    """The transaction may have begun below the first segment: nothing on disk shows it."""
    position_bytes: Natural | None
    """Position of its first batch in its segment."""
    abort_commands: AbortCommands | None = None
    """Null unless the evidence shows that it is over, and that this replica leads its partition."""
    two_phase: TwoPhase = TwoPhase.UNKNOWN
    """Whether it is under two-phase commit (KIP-939), by __transaction_state; checked only if it would be late. `yes`: never late,
    and no abort command."""
    transactional_id: str | None = None
    """By __transaction_state; null where two_phase was not checked, or no record names the producer."""
    timeout_ms: Natural | None = None
    """transaction.timeout.ms of its producer, by __transaction_state; null if unknown."""
    hang_reason: HangReason | None = None
    """Why it is open (docs/guides/inspect.md); null if it is not late."""
    reason: str | None = None
    """For the user; not stable."""
    facts: Sequence[TransactionEvidence] = ()
    """Facts that show the reason, the oldest first."""
    missing_evidence: str | None = None
    """Files that would show more; for the user, not stable. Null if nothing is missing."""


class TransactionTotals(msgspec.Struct, kw_only=True):
    """Transactions by state."""

    committed: Natural = 0
    """Transactions with batches that a marker committed."""
    aborted: Natural = 0
    """Transactions with batches that a marker aborted."""
    empty: Natural = 0
    """Markers that closed nothing in this partition."""
    unknown: Natural = 0
    """Markers without an earlier retained batch of their producer: of an empty transaction, or of one whose batches are deleted."""
    open: Natural = 0
    """Transactions without a marker."""
    late: Natural = 0
    """Open transactions without a batch for longer than late_after_ms."""


class TransactionSums(TransactionTotals, kw_only=True):
    """Transactions of all partitions by state."""

    partitions_with_late: Natural = 0
    """Partitions whose oldest transaction is late, as brokers count them."""

    def add(self, partition: PartitionTransactions) -> None:
        """Adds the transactions of a partition."""
        for name in TransactionTotals.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(partition.reported.totals, name))
        self.partitions_with_late += partition.reported.counts_as_late


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
    open: list[OngoingTransaction]
    """The oldest 100."""
    read_bytes: Natural


@dataclass(slots=True)
class PartitionTransactions:
    """The transactions of one partition, with what explains them.

    Attributes:
        source: the partition.
        reported: its transactions.
        last_offsets: of the last batch of each producer in ``reported.open``, by its id.
        findings: about this partition.
        has_gap: batches are damaged or missing, and not because of compaction: a marker may have been among them.
    """

    source: PartitionSource
    reported: TransactionsPartition
    last_offsets: dict[int, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    has_gap: bool = False

    @classmethod
    def of(cls, source: PartitionSource) -> PartitionTransactions:
        """The transactions before anything was read."""
        reported = TransactionsPartition(
            **names_of(source.directory),
            path=source.directory.path,
            can_be_tiered=source.can_be_tiered,
            log_end_offset=None,
            last_stable_offset=None,
            totals=TransactionTotals(),
            counts_as_late=False,
            held_offsets=0,
            held_bytes=0,
            held_segments=0,
            held_segment_bytes=0,
            open=[],
            read_bytes=0,
        )
        return cls(source, reported)

    def update(self, **members: Any) -> None:
        """Changes members of ``reported``."""
        self.reported = replace(self.reported, **members)

    @property
    def is_read_whole(self) -> bool:
        """Whether all markers that a whole log would have were read."""
        return not self.has_gap and not any(finding.leaves_gap for finding in self.findings)

    @property
    def cluster_id(self) -> str | None:
        """Cluster id of its log directory; None if that is unknown."""
        return self.source.log_dir.cluster_id
