"""The transactions of a partition as values: the open ones, counts of the closed ones, and what they hold back."""

from __future__ import annotations

from dataclasses import dataclass, field

from snaprebuild.findings import Finding, Severity
from snaprebuild.inspect.coordinator_records import TwoPhase
from snaprebuild.inspect.hang_reasons import Explanation
from snaprebuild.snapshots.source.source import PartitionSource

__all__ = ["OPEN_LISTED_MAX", "OpenTransaction", "PartitionTransactions", "TransactionCounts"]

OPEN_LISTED_MAX = 100
"""Open transactions that a partition lists, the oldest first; all are counted."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction without a marker.

    Attributes:
        first_offset: of its first retained batch.
        coordinator_epoch: of the last marker of its producer, -1 for none.
        since_ms: timestamp of that first batch; None if it is not on disk, or has none.
        last_ms: timestamp of the last batch of its producer, or None.
        last_offset: of the last batch of its producer.
        is_late: nothing was written for longer than any coordinator waits.
        may_have_begun_before: whether it may have begun below the first segment.
        position_bytes: of its first batch in the segment, or None.
        two_phase: whether it is under two-phase commit: then it never expires, is never late, and must not be aborted.
        transactional_id: of its producer; None if it was not looked up, or no coordinator's record names the producer.
        timeout_ms: with which its producer was initialized; None if that is unknown.
        explanation: why it is open although it is late; None if it is not late.
    """

    first_offset: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    since_ms: int | None
    last_ms: int | None
    last_offset: int
    is_late: bool
    may_have_begun_before: bool
    position_bytes: int | None
    two_phase: TwoPhase = TwoPhase.UNKNOWN
    transactional_id: str | None = None
    timeout_ms: int | None = None
    explanation: Explanation | None = None


@dataclass(slots=True)
class TransactionCounts:
    """Counts of the closed transactions of a partition.

    Attributes:
        committed: with batches.
        aborted: with batches.
        empty: markers that closed nothing here: the producer had added the partition but written nothing to it.
        unknown: markers without a retained batch of their producer before them: empty, or of a transaction whose batches are gone.
    """

    committed: int = 0
    aborted: int = 0
    empty: int = 0
    unknown: int = 0


@dataclass(slots=True)
class PartitionTransactions:
    """The transactions of one partition.

    Attributes:
        log_end_offset: up to which the log was replayed; None for an empty log.
        counts: closed transactions.
        open_count: count of open transactions.
        late_count: count of late ones among them.
        open: the oldest ``OPEN_LISTED_MAX`` open transactions, by first offset.
        counts_as_late: whether a broker counts the partition: its oldest transaction is late.
        offsets_held: count of offsets from the last stable offset to the log end.
        bytes_held: the same in bytes; None if the batch at the last stable offset is not on disk.
        segments_held: rolled segments that reach above the last stable offset, which tiered storage does not upload.
        segment_bytes_held: their size.
        bytes_read: of its segments.
        has_gap: batches are damaged or missing, and not because of compaction: a marker may have been among them.
    """

    source: PartitionSource
    log_end_offset: int | None = None
    counts: TransactionCounts = field(default_factory=TransactionCounts)
    open_count: int = 0
    late_count: int = 0
    open: list[OpenTransaction] = field(default_factory=list)
    counts_as_late: bool = False
    offsets_held: int = 0
    bytes_held: int | None = 0
    segments_held: int = 0
    segment_bytes_held: int = 0
    findings: list[Finding] = field(default_factory=list)
    bytes_read: int = 0
    has_gap: bool = False

    @property
    def is_read_whole(self) -> bool:
        """Whether all markers that a whole log would have were read."""
        return not self.has_gap and not any(each.severity > Severity.FINDING or each.is_unread for each in self.findings)

    @property
    def cluster_id(self) -> str | None:
        """Of its log directory; None if that is unknown."""
        meta = self.source.log_dir.meta
        return None if meta is None else meta.cluster_id

    @property
    def last_stable_offset(self) -> int | None:
        """First offset of the oldest open transaction, else the log end, if everything is replicated, which the disk does not show."""
        return self.open[0].first_offset if self.open else self.log_end_offset
