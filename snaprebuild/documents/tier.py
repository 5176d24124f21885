"""The documents of the commands for remote storage."""

from __future__ import annotations

from collections.abc import Sequence

from snaprebuild.broker.status import StatusCounts
from snaprebuild.documents.common import StatusName
from snaprebuild.published import Document, Natural, Part, Positive, RunRecord, Seconds, Uuid
from snaprebuild.snapshots.receipts.directory_receipt import DirectoryUndo
from snaprebuild.storage.partition_names import TopicPartition
from snaprebuild.storage.remote.listing import TierLayout
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit.partition_audit import DifferingProducer, ProofKind, SnapshotVerdict
from snaprebuild.tier.cost import AuditCost
from snaprebuild.tier.inventory.model import TierInventory
from snaprebuild.tier.ledger.progress import LedgerProgress
from snaprebuild.tier.metadata.store_records import TierMetadata
from snaprebuild.tier.repair.repaired_copy import RepairedCopy, RepairTotals

__all__ = [
    "AuditTotals",
    "AuditedCopy",
    "AuditedPartition",
    "DirectoryUndo",
    "TierAudit",
    "TierInventory",
    "TierMetadata",
    "TierRepair",
]

# -------------------------------------------------------------------------------------------------------------------- audit


class AuditTotals(Part, frozen=True, rename="kebab"):
    """Snapshots by verdict."""

    right: Natural
    unproven: Natural
    suspect: Natural
    false_empty: Natural
    zero_bytes: Natural
    corrupt: Natural
    missing_producers: Natural
    wrong: Natural
    unreachable: Natural
    reach_unknown: Natural
    not_read: Natural
    consistent: Natural = 0
    """Absent in documents of earlier versions."""


class AuditedCopy(Part, frozen=True):
    """A copy of a segment and its snapshot."""

    segment_id: Uuid
    start_offset: Natural
    """First offset of the segment."""
    end_offset: Natural | None
    """Last offset; null if it is not known."""
    stored_bytes: Natural
    """Bytes of its objects."""
    verdict: SnapshotVerdict
    """Verdict on its snapshot (docs/guides/remote-storage.md)."""
    reason: str
    """Reason of the verdict, for the user; not stable."""
    entries: Natural | None
    """Producers in the snapshot; null if it was not compared."""
    expected_entries: Natural | None
    """Producers by replay; null if it was not compared."""
    difference_count: Natural
    """Producers that differ."""
    differences: Sequence[DifferingProducer]
    """The first 1,000, the certain ones first; at most 10,000 in a run."""
    proof_kind: ProofKind | None = None
    """Kind of its proof, with --ledger; null without one."""
    proven_ms: Natural | None = None
    """When its segment was read for that proof, milliseconds since 1970; null without one."""


class AuditedPartition(TopicPartition, frozen=True):
    """A partition in remote storage and its snapshots."""

    topic_id: Uuid
    layout: TierLayout
    read_bytes: Natural
    """Bytes of segments that were read."""
    records_read: Natural | None
    """Records that were decoded, control records included, with --level records; null at other levels."""
    replayed_from_offset: Natural | None
    """Base offset of the first segment that had to be read; null if there was none."""
    local_log_start_offset: Natural | None
    """First offset on the leader's disk, by --local-log-start or --log-dir; null without them."""
    totals: AuditTotals
    copies: Sequence[AuditedCopy]
    """Live copies, or complete ones if that is unknown; by start offset."""


class TierAudit(Document, frozen=True):
    """The JSON document of `snaprebuild tier audit`."""

    NAME = "tier-audit"
    VERSION = 3

    run: RunRecord
    location: str
    """Directory or s3:// URL of the store."""
    level: AuditLevel
    verified: bool
    """A metadata log that could be read whole has the live copies."""
    as_of_ms: Natural
    """Moment of expiry."""
    expiration_ms: Positive
    """How long an idle producer is remembered."""
    elapsed_seconds: Seconds
    estimate: AuditCost | None
    """Cost of the run without the manifests, before it began; null if the run ended earlier."""
    totals: AuditTotals
    partitions: Sequence[AuditedPartition]
    status: StatusName = "healthy"
    """The worst of the counts, in the order of StatusName."""
    counts: StatusCounts = StatusCounts()
    """Snapshots in remote storage that are wrong or suspect, and paths that were not read."""
    ledger: LedgerProgress | None = None
    """The counts of the ledger after the run; null without --ledger."""


# -------------------------------------------------------------------------------------------------------- repair and its undo


class TierRepair(Document, frozen=True):
    """The JSON document of `snaprebuild tier repair`, and `snaprebuild undo` of its receipt."""

    NAME = "tier-repair"
    VERSION = 3

    location: str
    """Directory or s3:// URL of the store."""
    dry_run: bool
    """Nothing was written."""
    undone_receipt: str | None
    """Receipt of the repair that was undone; null for a repair."""
    receipt: str | None
    """Receipt with which this can be undone; null if nothing was written."""
    verified: bool | None
    """A metadata log that could be read whole was named; null with undo."""
    as_of_ms: Natural | None
    """Moment of expiry; null with undo."""
    expiration_ms: Positive | None
    """How long an idle producer is remembered; null with undo."""
    totals: RepairTotals
    copies: Sequence[RepairedCopy]
    """Copies whose snapshot is wrong; with undo the copies that the receipt lists."""
    effect: Sequence[str]
    """For the user: when brokers use the written objects."""
    status: StatusName = "healthy"
    """The worst of the counts, in the order of StatusName; of an undo always "healthy"."""
    counts: StatusCounts = StatusCounts()
    """Counts of damaged, wrong, suspect or unproven snapshots after the run, or as they would be; of an undo 0."""
