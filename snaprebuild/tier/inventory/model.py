"""The document of ``tier inventory``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

from formats.partition.checkpoint_file import LeaderEpochEntry
from snaprebuild.broker.status import StatusCounts, StatusWord
from snaprebuild.published import Document, Int64, Natural, Part, Uuid, one_of
from snaprebuild.storage.bucket_contents import BucketSettings
from snaprebuild.storage.partition_names import TopicPartition
from snaprebuild.storage.remote.listing import TierLayout
from snaprebuild.storage.remote.plugin_config import PluginConfig
from snaprebuild.tier.remote_partition import OBJECTS_NEEDED
from snaprebuild.tier.remote_store import CopyState

__all__ = [
    "FOREIGN",
    "BucketReport",
    "HiddenVersions",
    "InventoryCopy",
    "InventoryPartition",
    "InventoryTotals",
    "MetadataTopicReport",
    "OffsetRange",
    "StateBytes",
    "TierInventory",
    "UnfinishedUploads",
]

FOREIGN = "foreign"
"""State of objects that are no part of a copy."""


class OffsetRange(Part, frozen=True):
    """Offsets, both ends included."""

    first_offset: Natural
    last_offset: Natural


class InventoryCopy(Part, frozen=True):
    """A copy of a segment."""

    segment_id: Uuid
    """Id of this attempt at copying the segment."""
    state: CopyState
    """State of the copy (docs/guides/remote-storage.md)."""
    start_offset: Natural
    """First offset of the segment."""
    end_offset: Natural | None
    """Last offset; null if only the metadata log could have it."""
    leader_epochs: Sequence[LeaderEpochEntry]
    """Leader epochs of the segment, ascending; empty if they are not known."""
    segment_bytes: Natural | None
    """Size of the segment; null if it is not known."""
    stored_bytes: Natural
    """Bytes of its objects."""
    event_timestamp_ms: Int64 | None
    """When its state began; null without the metadata log."""
    missing: Sequence[Annotated[str, one_of(*(kind for kinds in OBJECTS_NEEDED.values() for kind in kinds))]]
    """Kinds of objects that are required but missing."""
    fault: str | None
    """Why its manifest cannot be read, or which of its sizes is wrong; null if nothing is."""
    key_id: str | None = None
    """Name of the key pair that its manifest has; null if it is not encrypted, or its manifest was not read."""
    reason: str = ""
    """The proof of its state, for the user; not stable."""
    compressed: bool | None = None
    """Whether its chunks are compressed; null if its manifest was not read, or its layout has none."""
    object_count: Natural = 0
    """Objects that it has."""
    modified_ms: Int64 | None = None
    """When the newest of its objects was written; null if it has no objects."""
    age_ms: Natural | None = None
    """Age of that object at `--as-of`; null if it has no objects."""
    object_storage_classes: Sequence[str] = ()
    """Storage classes of its objects; empty in a directory."""
    archive_tiers: Sequence[str] = ()
    """Archive tiers of INTELLIGENT_TIERING that objects of it are in: they must be restored before they can be read."""


class InventoryTotals(Part, frozen=True, rename="kebab"):
    """Copies by state."""

    live: Natural
    superseded: Natural
    lost: Natural
    phantom: Natural
    unfinished: Natural
    deleting: Natural
    deleted: Natural
    unknown: Natural
    another_topic_id: Natural
    another_cluster: Natural
    unverified: Natural
    unreadable: Natural


class InventoryPartition(TopicPartition, frozen=True):
    """A partition in remote storage."""

    topic_id: Uuid
    layout: TierLayout | None
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

    @property
    def counts(self) -> Counter[CopyState]:
        """Copies by state."""
        return Counter(copy.state for copy in self.copies)


class HiddenVersions(Part, frozen=True):
    """The objects that a versioned bucket keeps and no listing of objects shows."""

    noncurrent_versions: Natural
    noncurrent_bytes: Natural
    delete_markers: Natural
    """Markers that hide deleted objects; they have no bytes."""


class UnfinishedUploads(Part, frozen=True):
    """Multipart uploads that were neither completed nor aborted."""

    uploads: Natural
    part_bytes: Natural | None
    """Bytes of their parts; null if the parts of some were not listed."""
    oldest_ms: Int64 | None
    """When the oldest one began; null without any."""


class BucketReport(BucketSettings, frozen=True):
    """The contents of the bucket of the store besides the listed objects, and its rules for all of them."""

    hidden: HiddenVersions | None = None
    """Noncurrent versions and delete markers; null if they are unknown."""
    unfinished_uploads: UnfinishedUploads | None = None
    """Multipart uploads; null if they are unknown."""


class MetadataTopicReport(Part, frozen=True):
    """The topic `__remote_log_metadata` as the metadata log of the cluster has it."""

    topic_id: Uuid
    partitions: Natural
    replication_factor: Natural
    """The least of its partitions."""
    cleanup_policy: str | None
    """Setting of the topic; null without one, so that the default of brokers applies."""
    retention_ms: Int64 | None
    """Setting of the topic; null without one, so that the default of brokers applies."""
    retention_bytes: Int64 | None
    """Setting of the topic; null without one, so that the default of brokers applies."""


class StateBytes(Part, frozen=True):
    """Where the bytes are: those of one state."""

    state: Annotated[str, one_of(*CopyState, FOREIGN)]
    copies: Natural
    """Copies of segments; 0 for foreign objects."""
    objects: Natural
    stored_bytes: Natural


class TierInventory(Document, frozen=True):
    """The JSON document of `snaprebuild tier inventory`."""

    NAME = "tier-inventory"
    VERSION = 3

    location: str
    """Directory or s3:// URL of the store."""
    verified: bool
    """A metadata log that could be read whole has the states."""
    unknown_objects: Natural
    """Objects of no known layout."""
    partitions: Sequence[InventoryPartition]
    status: StatusWord = StatusWord.HEALTHY
    """The worst of the counts, in the order of StatusWord."""
    counts: StatusCounts = StatusCounts()
    """Copies that are damaged, and those whose state is unknown; no snapshot is judged."""
    as_of_ms: Natural = 0
    """Moment of the ages; 0 in documents of earlier versions."""
    cluster_id: str | None = None
    """Cluster whose records the states come from; null if it is unknown."""
    states: Sequence[StateBytes] = ()
    """Bytes of the selected partitions by state, and of foreign objects; states without objects or copies are left out."""
    bucket: BucketReport | None = None
    """Null for a directory."""
    plugin: PluginConfig | None = None
    """Configuration of the remote storage manager; null without --server-properties."""
    metadata_topic: MetadataTopicReport | None = None
    """Null without --metadata, or if the cluster has no such topic."""
