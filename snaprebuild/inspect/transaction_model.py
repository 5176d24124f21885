"""The transactions of a partition as values: the open ones, counts of the closed ones, and what they hold back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from snaprebuild.findings import Finding, Severity
from snaprebuild.inspect.coordinator_records import TwoPhase
from snaprebuild.inspect.hang_reasons import HangReason, TransactionEvidence
from snaprebuild.published import Natural, Part
from snaprebuild.snapshots.source.source import PartitionSource

__all__ = [
    "OPEN_LISTED_MAX",
    "AbortCommands",
    "OngoingTransaction",
    "PartitionTransactions",
    "TransactionSums",
    "TransactionTotals",
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
    """It may have begun below the first segment: nothing on disk shows it."""
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
    """What would show more; for the user, not stable. Null if nothing is missing."""


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
            setattr(self, name, getattr(self, name) + getattr(partition.totals, name))
        self.partitions_with_late += partition.counts_as_late


@dataclass(slots=True)
class PartitionTransactions:
    """The transactions of one partition.

    Attributes:
        source: the partition.
        log_end_offset: up to which the log was replayed; None for an empty log.
        totals: counts of transactions.
        open: the oldest ``OPEN_LISTED_MAX`` open transactions, by first offset.
        last_offsets: of the last batch of each producer in ``open``, by its id.
        counts_as_late: whether a broker counts the partition: its oldest transaction is late.
        held_offsets: count of offsets from the last stable offset to the log end.
        held_bytes: the same range in bytes; None if the batch at the last stable offset is not on disk.
        held_segments: rolled segments that reach above the last stable offset, which tiered storage does not upload.
        held_segment_bytes: their size.
        findings: about this partition.
        read_bytes: of its segments.
        has_gap: batches are damaged or missing, and not because of compaction: a marker may have been among them.
    """

    source: PartitionSource
    log_end_offset: int | None = None
    totals: TransactionTotals = field(default_factory=TransactionTotals)
    open: list[OngoingTransaction] = field(default_factory=list)
    last_offsets: dict[int, int] = field(default_factory=dict)
    counts_as_late: bool = False
    held_offsets: int = 0
    held_bytes: int | None = 0
    held_segments: int = 0
    held_segment_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    read_bytes: int = 0
    has_gap: bool = False

    @property
    def is_read_whole(self) -> bool:
        """Whether all markers that a whole log would have were read."""
        return not self.has_gap and not any(each.severity > Severity.FINDING or each.is_unread for each in self.findings)

    @property
    def cluster_id(self) -> str | None:
        """Cluster id of its log directory; None if that is unknown."""
        meta = self.source.log_dir.meta
        return None if meta is None else meta.cluster_id

    @property
    def last_stable_offset(self) -> int | None:
        """First offset of the oldest open transaction, else the log end, if everything is replicated, which the disk does not show."""
        return self.open[0].first_offset if self.open else self.log_end_offset
