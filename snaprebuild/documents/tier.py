"""The documents of the commands for remote storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from snaprebuild.broker.status import StatusCounts
from snaprebuild.documents.common import StatusName
from snaprebuild.published import Document, Int64, Natural, Part, Positive, RunRecord, Seconds, one_of
from snaprebuild.storage.partition_names import TopicPartition

__all__ = [
    "AuditTotals",
    "AuditedCopy",
    "AuditedPartition",
    "DifferingProducer",
    "Estimate",
    "InventoryCopy",
    "InventoryPartition",
    "InventoryTotals",
    "LeaderEpoch",
    "ObjectPart",
    "OffsetRange",
    "RepairTotals",
    "RepairedCopy",
    "TierAudit",
    "TierInventory",
    "TierRepair",
    "Uuid",
]

Uuid = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{22}$")]
"""As Kafka prints ids of topics and of remote segments."""

Layout = Annotated[str, one_of("aiven", "local-tiered-storage")]


class LeaderEpoch(Part, frozen=True):
    """A leader epoch and its first offset."""

    epoch: Natural
    start_offset: Natural


class Estimate(Part, frozen=True):
    """Cost of the copies that are read."""

    copies: Natural
    objects: Natural
    """Objects that are read, in part or as a whole."""
    requests: Natural
    """The most that are sent, if none must be repeated."""
    read_bytes: Natural
    """Stored bytes that are read."""
    storage_classes: dict[str, Natural]
    """Bytes by storage class; empty if the store has none."""
    dollars: Seconds | None
    """US dollars by assumed list prices, without transfer; null if a price is not known."""


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


class DifferingProducer(Part, frozen=True):
    """A producer whose entry in the snapshot differs from the replay."""

    producer_id: Int64
    kind: Annotated[str, one_of("missing", "extra", "stale", "field")]
    consequence: str
    """What a follower that starts from the snapshot would do."""


class AuditedCopy(Part, frozen=True):
    """A copy of a segment and its snapshot."""

    segment_id: Uuid
    start_offset: Natural
    """First offset of the segment."""
    end_offset: Natural | None
    """Last offset; null if it is not known."""
    stored_bytes: Natural
    """Bytes of its objects."""
    verdict: Annotated[
        str,
        one_of(
            "right",
            "consistent",
            "unproven",
            "suspect",
            "false-empty",
            "zero-bytes",
            "corrupt",
            "missing-producers",
            "wrong",
            "unreachable",
            "reach-unknown",
            "not-read",
        ),
    ]
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


class AuditedPartition(TopicPartition, frozen=True):
    """A partition in remote storage and its snapshots."""

    topic_id: Uuid
    layout: Layout
    read_bytes: Natural
    """Bytes of segments that were read."""
    replayed_from_offset: Natural | None
    """Base offset of the first segment that had to be read; null if there was none."""
    local_log_start_offset: Natural | None
    """First offset on the leader's disk, by --local-log-start or --log-dir; null without them."""
    totals: AuditTotals
    copies: Sequence[AuditedCopy]
    """Live copies, or complete ones if that is unknown; by start offset."""


class TierAudit(Document, frozen=True):
    """What `snaprebuild tier audit --output json` prints."""

    NAME = "tier-audit"
    VERSION = 2

    run: RunRecord
    store: str
    """Location of the objects."""
    level: Annotated[str, one_of("structure", "reachable", "full")]
    verified: bool
    """A metadata log that could be read whole has the live copies."""
    as_of_ms: Natural
    """Moment of expiry."""
    expiration_ms: Positive
    """How long an idle producer is remembered."""
    elapsed_seconds: Seconds
    estimate: Estimate | None
    """Cost of the run without the manifests, before it began; null if the run ended earlier."""
    totals: AuditTotals
    partitions: Sequence[AuditedPartition]
    status: StatusName = "healthy"
    """The worst of the counts, in the order of StatusName."""
    counts: StatusCounts = StatusCounts()
    """Snapshots in remote storage that are wrong or suspect, and paths that were not read."""


# ---------------------------------------------------------------------------------------------------------------- inventory


class InventoryTotals(Part, frozen=True):
    """Copies by state."""

    live: Natural
    superseded: Natural
    lost: Natural
    phantom: Natural
    unfinished: Natural
    deleting: Natural
    deleted: Natural
    unknown: Natural
    orphan: Natural
    unverified: Natural
    unreadable: Natural


class OffsetRange(Part, frozen=True):
    """Offsets, both ends included."""

    first_offset: Natural
    last_offset: Natural


class InventoryCopy(Part, frozen=True):
    """A copy of a segment."""

    segment_id: Uuid
    """Id of this attempt at copying the segment."""
    state: Annotated[
        str,
        one_of(
            "live",
            "superseded",
            "lost",
            "phantom",
            "unfinished",
            "deleting",
            "deleted",
            "unknown",
            "orphan",
            "unverified",
            "unreadable",
        ),
    ]
    """See docs/guides/remote-storage.md."""
    start_offset: Natural
    """First offset of the segment."""
    end_offset: Natural | None
    """Last offset; null if only the metadata log could have it."""
    leader_epochs: Sequence[LeaderEpoch]
    """Leader epochs of the segment, ascending; empty if they are not known."""
    segment_bytes: Natural | None
    """Size of the segment; null if it is not known."""
    stored_bytes: Natural
    """Bytes of its objects."""
    event_timestamp_ms: Int64 | None
    """When its state began; null without the metadata log."""
    missing: Sequence[
        Annotated[
            str,
            one_of(
                "log",
                "indexes",
                "rsm-manifest",
                ".log",
                ".index",
                ".timeindex",
                ".leader_epoch_checkpoint",
                ".snapshot",
            ),
        ]
    ]
    """Kinds of objects that are required but missing."""
    fault: str | None
    """Why its manifest cannot be read."""


class InventoryPartition(TopicPartition, frozen=True):
    """A partition in remote storage."""

    topic_id: Uuid
    layout: Layout | None
    """Layout of its objects; null if there are none."""
    stored_bytes: Natural
    """Bytes of all its objects."""
    totals: InventoryTotals
    gaps: Sequence[OffsetRange]
    """Offsets without a copy, between those that serve reads."""
    overlaps: Sequence[OffsetRange]
    """Offsets for which several copies serve reads."""
    copies: Sequence[InventoryCopy]
    """By start offset."""


class TierInventory(Document, frozen=True):
    """What `snaprebuild tier inventory --output json` prints."""

    NAME = "tier-inventory"
    VERSION = 2

    store: str
    """Location of the objects."""
    verified: bool
    """A metadata log that could be read whole has the states."""
    unknown_objects: Natural
    """Objects of no known layout."""
    partitions: Sequence[InventoryPartition]


# -------------------------------------------------------------------------------------------------------- repair and its undo


class RepairTotals(Part, frozen=True, rename="kebab"):
    """Copies by action."""

    repaired: Natural
    would_repair: Natural
    not_repaired: Natural
    restored: Natural
    would_restore: Natural
    absent: Natural
    left: Natural
    refused: Natural
    failed: Natural
    unknown: Natural


class ObjectPart(Part, frozen=True):
    """A part of an object, as it is stored."""

    position: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    """Position of its first byte."""
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class RepairedCopy(TopicPartition, frozen=True):
    """A copy of a segment whose snapshot is or was wrong."""

    topic_id: Uuid
    segment_id: Uuid
    start_offset: Natural
    """First offset of the segment."""
    end_offset: Natural | None
    """Last offset; null if it is not known, and with undo."""
    action: Annotated[
        str,
        one_of(
            "repaired",
            "would-repair",
            "not-repaired",
            "restored",
            "would-restore",
            "absent",
            "left",
            "refused",
            "failed",
            "unknown",
        ),
    ]
    """The action (docs/guides/remote-storage.md)."""
    reason: str
    """Why it was not done; empty if it was done, or would be."""
    verdict: Annotated[str, one_of("false-empty", "zero-bytes", "corrupt", "missing-producers", "wrong")] | None
    """As in tier audit; null with undo."""
    entries: Natural | None
    """Producers in the wrong snapshot; null if it was not compared."""
    snapshot_class: Annotated[str, one_of("EXACT")] | None = msgspec.field(name="class")
    """Class of the right snapshot: only this one is written; null if none is proven."""
    manifest_key: str | None
    """Key below the store; null if the repair was not begun."""
    indexes_key: str | None
    """Key of the .indexes object; null if the repair was not begun, and with undo."""
    indexes_bytes: Natural | None
    """Size of that object before."""
    appended_bytes: Natural | None
    """Bytes that are appended to it; 0 if an earlier run has done that."""
    old_place: ObjectPart | None
    """Position of the wrong snapshot in .indexes; null if the repair was not begun."""
    place: ObjectPart | None
    """Position of the right one."""


class TierRepair(Document, frozen=True):
    """What `snaprebuild tier repair --output json` prints, and `snaprebuild undo` of its receipt."""

    NAME = "tier-repair"
    VERSION = 2

    store: str
    """Location of the objects."""
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
    """Those whose snapshot is wrong; with undo those that the receipt lists."""
    effect: Sequence[str]
    """For the user: when brokers use the written objects."""
