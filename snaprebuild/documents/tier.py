"""The documents of the commands for remote storage."""

from __future__ import annotations

from collections.abc import Sequence

from snaprebuild.broker.status import StatusCounts
from snaprebuild.documents.common import StatusName
from snaprebuild.published import Document, Natural, Positive, RunRecord, Seconds
from snaprebuild.snapshots.receipts.directory_receipt import DirectoryUndo
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit.audited_copy import AuditedCopy, AuditedPartition, AuditTotals
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
