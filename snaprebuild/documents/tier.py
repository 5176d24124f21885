"""The documents of the verbs on remote storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from snaprebuild.documents.common import Run, TopicPartition
from snaprebuild.documents.typed import Document, Int64, Natural, Part, Positive, Seconds, one_of

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
    """Of the copies that are read."""

    copies: Natural
    objects: Natural
    """Of which something is read."""
    requests: Natural
    """The most that are sent, if none must be repeated."""
    read_bytes: Natural
    """As they are stored."""
    storage_classes: dict[str, Natural]
    """Bytes by storage class; empty where the store has none."""
    dollars: Seconds | None
    """US dollars by assumed list prices, without transfer; null where a price is not known."""


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


class DifferingProducer(Part, frozen=True):
    """A producer whose entry in the snapshot is not what the replay gives."""

    producer_id: Int64
    kind: Annotated[str, one_of("missing", "extra", "stale", "field")]
    consequence: str
    """What a follower that starts from the snapshot would do."""


class AuditedCopy(Part, frozen=True):
    """A copy of a segment and its snapshot."""

    segment_id: Uuid
    start_offset: Natural
    """Of the segment."""
    end_offset: Natural | None
    """Last offset; null where it is not known."""
    stored_bytes: Natural
    """Of its objects."""
    verdict: Annotated[
        str,
        one_of(
            "right",
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
    """On its snapshot (docs/guides/remote-storage.md)."""
    reason: str
    """Of the verdict, for a person; not stable."""
    entries: Natural | None
    """Producers in the snapshot; null where it was not compared."""
    expected_entries: Natural | None
    """By replay; null where it was not compared."""
    difference_count: Natural
    """Producers that differ."""
    differences: Sequence[DifferingProducer]
    """The first 1,000, the certain ones first; a run lists 10,000."""


class AuditedPartition(TopicPartition, frozen=True):
    """A partition in remote storage and its snapshots."""

    topic_id: Uuid
    layout: Layout
    read_bytes: Natural
    """Of segments."""
    replayed_from_offset: Natural | None
    """Base offset of the first segment that was to be read; null where none was."""
    local_log_start_offset: Natural | None
    """First offset on the leader's disk, by --local-log-start or --log-dir; null without them."""
    totals: AuditTotals
    copies: Sequence[AuditedCopy]
    """Live ones, or complete ones where that is unknown; by start offset."""


class TierAudit(Document, frozen=True):
    """What `snaprebuild tier audit --output json` prints."""

    NAME = "tier-audit"
    VERSION = 2

    run: Run
    store: str
    """Location of the objects."""
    level: Annotated[str, one_of("structure", "reachable", "full")]
    verified: bool
    """A metadata log has the live copies."""
    as_of_ms: Natural
    """Moment of expiry."""
    expiration_ms: Positive
    """How long an idle producer is remembered."""
    elapsed_seconds: Seconds
    estimate: Estimate | None
    """What was to be read without the manifests, before it began; null where the run did not get that far."""
    totals: AuditTotals
    partitions: Sequence[AuditedPartition]


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
    """Of this attempt at copying the segment."""
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
    """Of the segment."""
    end_offset: Natural | None
    """Last offset; null where only the metadata log could have it."""
    leader_epochs: Sequence[LeaderEpoch]
    """In the segment, ascending; empty where they are not known."""
    segment_bytes: Natural | None
    """Size of the segment; null where it is not known."""
    stored_bytes: Natural
    """Of its objects."""
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
    """Kinds of objects that it needs and does not have."""
    fault: str | None
    """Why its manifest cannot be read."""


class InventoryPartition(TopicPartition, frozen=True):
    """A partition in remote storage."""

    topic_id: Uuid
    layout: Layout | None
    """Of its objects; null where there are none."""
    stored_bytes: Natural
    """Of all its objects."""
    totals: InventoryTotals
    gaps: Sequence[OffsetRange]
    """Offsets of which there is no copy, between those that serve reads."""
    overlaps: Sequence[OffsetRange]
    """Offsets of which several copies serve reads."""
    copies: Sequence[InventoryCopy]
    """By start offset."""


class TierInventory(Document, frozen=True):
    """What `snaprebuild tier inventory --output json` prints."""

    NAME = "tier-inventory"
    VERSION = 2

    store: str
    """Location of the objects."""
    verified: bool
    """A metadata log was given, so that states are known."""
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
    """Of its first byte."""
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class RepairedCopy(TopicPartition, frozen=True):
    """A copy of a segment whose snapshot is or was wrong."""

    topic_id: Uuid
    segment_id: Uuid
    start_offset: Natural
    """Of the segment."""
    end_offset: Natural | None
    """Last offset; null where it is not known, and with undo."""
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
    """What was done (docs/guides/remote-storage.md)."""
    reason: str
    """Why it was not done; empty if it was done, or would be."""
    verdict: Annotated[str, one_of("false-empty", "zero-bytes", "corrupt", "missing-producers", "wrong")] | None
    """As in tier-audit; null with undo."""
    entries: Natural | None
    """Producers in the wrong snapshot; null where it was not compared."""
    snapshot_class: Annotated[str, one_of("EXACT")] | None = msgspec.field(name="class")
    """Of the right snapshot: nothing else is repaired; null where none is proven."""
    manifest_key: str | None
    """Below the store; null where the repair was not begun."""
    indexes_key: str | None
    """Of the .indexes object; null where the repair was not begun, and with undo."""
    indexes_bytes: Natural | None
    """Size of that object before."""
    appended_bytes: Natural | None
    """To it; 0 where an earlier run has done that."""
    old_place: ObjectPart | None
    """Of the wrong snapshot in .indexes; null where the repair was not begun."""
    place: ObjectPart | None
    """Of the right one."""


class TierRepair(Document, frozen=True):
    """What `snaprebuild tier repair --output json` prints, and `snaprebuild undo` of its receipt."""

    NAME = "tier-repair"
    VERSION = 2

    store: str
    """Location of the objects."""
    dry_run: bool
    """Nothing was written."""
    undone_receipt: str | None
    """Receipt of the repair that was taken back; null for a repair."""
    receipt: str | None
    """Takes this back; null where nothing was written."""
    verified: bool | None
    """A metadata log was given; null with undo."""
    as_of_ms: Natural | None
    """Moment of expiry; null with undo."""
    expiration_ms: Positive | None
    """How long an idle producer is remembered; null with undo."""
    totals: RepairTotals
    copies: Sequence[RepairedCopy]
    """Those whose snapshot is wrong; with undo those that the receipt lists."""
    effect: Sequence[str]
    """For people: when brokers see what was written."""
