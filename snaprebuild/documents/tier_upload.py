"""The document of ``tier upload``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from formats.partition.checkpoint_file import LeaderEpochEntry
from snaprebuild.broker.status import StatusCounts
from snaprebuild.documents.common import StatusName
from snaprebuild.published import Document, Natural, Part, Uuid
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.ensure_snapshot import Origin
from snaprebuild.snapshots.plan.source_verdict import VerdictSummary
from snaprebuild.snapshots.validated_snapshot import Validity
from snaprebuild.storage.partition_names import TopicPartition
from snaprebuild.tier.upload.announce import Announcement
from snaprebuild.tier.upload.model import UploadAction

__all__ = ["OldClaim", "TierUpload", "UploadTotals", "UploadedPartition", "UploadedSegment", "UploadedSnapshot"]


class UploadTotals(Part, frozen=True, rename="kebab"):
    """Rolled segments by action."""

    uploaded: Natural
    would_upload: Natural
    finished_before: Natural
    present: Natural
    unverified: Natural
    claimed: Natural
    waits: Natural
    refused: Natural
    failed: Natural
    held_back: Natural


class UploadedSnapshot(Part, frozen=True):
    """The producer snapshot that goes with a segment."""

    origin: Origin
    """on_disk: the file there, which nothing contradicts; rebuilt: by a replay."""
    snapshot_class: SnapshotClass = msgspec.field(name="class")
    entries: Natural
    """Number of producers."""


class OldClaim(Part, frozen=True):
    """The claim of an earlier registration of the same broker."""

    uploader: str
    run_name: str
    segment_id: Uuid
    claimed_ms: Natural
    node_id: int | None
    """Node id of the broker whose log it is, from meta.properties."""
    directory_id: Uuid | None
    """Id of its log directory."""
    broker_epoch: Natural | None
    """Epoch of the registration under which its broker was last active; null if it is not known."""


class UploadedSegment(Part, frozen=True):
    """A rolled segment."""

    start_offset: Natural
    """Base offset of the segment."""
    end_offset: Natural
    """Last offset that it has."""
    segment_bytes: Natural
    """Size of the .log file."""
    action: UploadAction
    """`uploaded`: by this run. `would-upload`: without --dry-run it would be. `finished-before`: by an earlier run of this uploader.
    `present`: a copy of another uploader, which brokers read. `unverified`: a copy that brokers may not read. `claimed`: by another
    uploader. `waits`: for the last stable offset or the high watermark. `failed`: in storage. `held-back`: an earlier segment was not
    uploaded."""
    reason: str
    """A sentence; empty if the action is sufficient."""
    segment_id: Uuid | None
    """Id of the copy; null if there is none."""
    key: str | None
    """Key of its objects below the store, without suffix; null if there is none."""
    took_over: OldClaim | None
    """The claim that was taken over, or would be; null for none."""
    announced: Announcement | None
    """How brokers know of the copy. `now`: its records were produced and read back. `before`: they were in the topic. `needless`:
    brokers read another copy by now. Null if this run announced nothing."""
    snapshot: UploadedSnapshot | None
    """Null if the segment was not checked."""
    compared: Validity | None
    """The comparison of this log with the snapshot of a copy that is `present`; null if it was not compared."""
    leader_epochs: Sequence[LeaderEpochEntry]
    """Leader epochs of the segment, as in the metadata record."""
    max_timestamp_ms: Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)] | None
    """Greatest timestamp, milliseconds since 1970; null if the segment was not checked."""
    txn_index_empty: bool | None
    """No transaction was aborted in it; null if it was not checked."""


class UploadedPartition(TopicPartition, frozen=True):
    """A partition and its rolled segments."""

    path: str
    """Directory of the partition."""
    topic_id: Uuid | None
    """Null if it is not known."""
    metadata_partition: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None
    """Partition of __remote_log_metadata with its records; null if nothing was checked."""
    uploader: str
    """Name in claims."""
    node_id: int | None
    """Node id of the broker whose log it is, from meta.properties."""
    directory_id: Uuid | None
    """Id of its log directory."""
    broker_epoch: Natural | None
    """Epoch of the registration under which its broker was last active; null if it is not known."""
    verdict: VerdictSummary | None
    """On the replica as a source of snapshots; null if nothing would be written."""
    totals: UploadTotals
    segments: Sequence[UploadedSegment]


class TierUpload(Document, frozen=True):
    """The JSON document of `snaprebuild tier upload`."""

    NAME = "tier-upload"
    VERSION = 3

    location: str
    """Directory or s3:// URL of the store."""
    key_prefix: str
    """Text before the topic in each key, below the store."""
    plugin_key_prefix: str
    """Required key.prefix of the plugin, so that it finds them."""
    chunk_bytes: Annotated[int, msgspec.Meta(ge=1, le=1_073_741_823)]
    """The chunk.size in the manifests."""
    run_name: str
    """Random name of this run."""
    node_id: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]
    """Node id of the broker in manifests and records; -1 if none is known."""
    dry_run: bool
    """Nothing was written."""
    verified: bool
    """A metadata log that could be read whole has the copies that brokers read."""
    voters: Sequence[str]
    """Metadata logs of other voters (--voter)."""
    peers: Sequence[str]
    """Other replicas whose leader epochs were compared (--peer)."""
    records_file: str | None
    """File with the records of __remote_log_metadata; null if none was requested or there is none to write."""
    produced_to: str | None
    """Brokers whose __remote_log_metadata was read and written to (--produce-to); null without that option."""
    metadata_partitions: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    """Partitions of __remote_log_metadata."""
    totals: UploadTotals
    partitions: Sequence[UploadedPartition]
    status: StatusName = "healthy"
    """The worst of the counts, in the order of StatusName."""
    counts: StatusCounts = StatusCounts()
    """Snapshots of copies that are present and wrong by this log, segments that wait, and paths that were not read."""
