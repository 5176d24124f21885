"""The objects in the document of ``scan``: what a scan found in each log directory and partition, as other commands read it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from snaprebuild.broker.leadership import MustNotLead
from snaprebuild.broker.start_facts import RemoteStorage, Shutdown
from snaprebuild.published import Int64, Natural, Part, Positive, RunRecord, one_of
from snaprebuild.snapshots.scan.scan_result import BoundaryScan, EpochSource, ScannedLogEnd, ScanTotals, StraySnapshot
from snaprebuild.snapshots.scan.snapshot_check import NewestSnapshot
from snaprebuild.snapshots.scan.upload_attempts import WayToStop
from snaprebuild.snapshots.scan.upload_preflight import BlockedSegment, Blocker, FreedBy, LagWait, NextAttempt, RolledSegments
from snaprebuild.storage.log_dir import ClusterKind
from snaprebuild.storage.partition_names import TopicKind, TopicPartition

__all__ = [
    "BlockerCount",
    "BrokerSettings",
    "Files",
    "FreeSpace",
    "NextStartSnapshots",
    "ScanRequest",
    "ScanRun",
    "ScannedLogDir",
    "ScannedPartition",
    "ScannedSegment",
    "ScannedTopic",
    "Upload",
    "UploadAttempts",
]


class FreeSpace(Part, frozen=True):
    """Free space of the file system of a log directory."""

    path: str
    free_bytes: Natural
    """For users without privileges."""


class ScanRun(RunRecord, frozen=True):
    """When, where and how the scan was made, and what the machine had at that moment."""

    free_space: Sequence[FreeSpace] = ()
    """By log directory; none for directories that are not on this machine."""


class BrokerSettings(Part, frozen=True):
    """Settings of `--server-properties` that decide about an upgrade and about uploads."""

    inter_broker_protocol_version: str | None
    """Null if it is not set: then it is that of the release."""
    copy_quota_bytes_per_second: Positive | None
    """remote.log.manager.copy.max.bytes.per.second; null if it is not set: then there is no limit."""
    producer_expiration_ms: Natural | None = None
    """How long producers live at most; null in earlier documents."""


class ScanRequest(Part, frozen=True):
    """The request of a run."""

    paths: Sequence[str]
    server_properties: str | None
    topics: Sequence[str]
    partitions: Sequence[int]
    topic_partitions: Sequence[str] = ()
    """Names of partitions that are taken besides those of the patterns and numbers; empty for none."""


class ScannedLogDir(Part, frozen=True):
    """A log directory."""

    path: str
    node_id: int | None
    cluster_id: str | None
    directory_id: str | None
    """From meta.properties, since 3.7."""
    cluster_kind: ClusterKind
    """From meta.properties; unknown if it is missing or names no node."""
    broker_epoch: Natural | None
    """Broker epoch; with KRaft an offset of the metadata log. From the clean-shutdown marker; without one from the registration
    of the broker in its own metadata log, if that is on a disk that was scanned. Null if neither has it.
    """
    shutdown: Shutdown
    """How the broker stopped; unknown: there is no file of a broker."""
    held_by: int | None
    """Process that holds the directory, -1 for one that is not visible."""
    totals: ScanTotals
    broker_epoch_source: EpochSource | None = None
    """Evidence of the broker epoch; null without one."""
    kafka_release: str | None = None
    """Release of the broker that holds the directory, by the jars of its process; null if that is not known."""


class ScannedTopic(Part, frozen=True):
    """A topic over all log directories."""

    topic: str
    remote_storage: RemoteStorage
    """On if the metadata log on disk (KRaft) or a checkpoint of the broker shows it. Off if the metadata log shows it. Off as well if the
    topic is internal or compacted, or `--server-properties` has no remote.log.storage.system.enable=true. Unknown if the files do not show
    it, or only by records that are not proven to be committed."""
    totals: ScanTotals


class ScannedSegment(Part, frozen=True):
    """A segment."""

    base_offset: Natural
    size_bytes: Natural
    modified_ms: Int64


class Files(Part, frozen=True):
    """Names that are not segments, indexes or snapshots as they should be; counts of files marked for deletion and of unknown names."""

    misnamed: Sequence[str]
    temporary: Sequence[str]
    irregular: Sequence[str]
    index_without_segment: Sequence[str]
    deleted: Natural
    unknown: Natural


class BlockerCount(Part, frozen=True):
    """A reason why segments are not uploaded."""

    blocker: Blocker
    segments: Positive
    freed_by: FreedBy


class Upload(Part, frozen=True):
    """The uploads of the segments to remote storage."""

    stuck_bytes: Natural
    stuck_bytes_after_rebuild: Natural
    last_stable_offset: Natural | None
    """Null if snapshots do not show it."""
    last_stable_offset_at_least: Natural
    """Lower bound of it."""
    last_stable_offset_source: str | None
    """Source of the two; null if there is none."""
    last_stable_offset_at_most: Natural | None
    """Upper bound of it; known only after a clean stop."""
    waiting_segments: Natural
    """Rolled segments above the last stable offset or the high watermark, or held by remote.copy.lag.*; 0 where remote storage is off."""
    blockers: Sequence[BlockerCount]
    blocked_segments: Sequence[BlockedSegment]
    rolled_segments: Sequence[RolledSegments]
    """All rolled segments above the log start offset, ascending. Empty where the topic is never uploaded."""
    next_attempt: NextAttempt | None
    """Null if there is nothing to try."""
    copy_lag: LagWait | None = None
    """Null if no segment waits, or the settings are not known."""
    waiting_unknown_segments: Natural = 0
    """Rolled segments of which it is unknown whether they wait: the last stable offset is not known."""


class NextStartSnapshots(Part, frozen=True):
    """The effect of the next start of a broker since 2.8 on the snapshots."""

    after: Annotated[str, one_of("a clean stop", "an unclean stop")]
    """The assumed stop; a clean stop for a running broker."""
    loaded_offset: Natural | None
    """Offset of the snapshot from which the state is loaded; null if it begins empty."""
    replay_from_offset: Natural | None
    removes_stray: Sequence[Natural]
    removes_out_of_range: Sequence[Natural]
    removes_corrupt: Sequence[Natural]
    writes_empty: Sequence[Natural]
    rebuilds: Sequence[Natural]


class ScannedPartition(TopicPartition, frozen=True):
    """A partition."""

    path: str
    log_dir: str
    topic_id: str | None
    """From partition.metadata; null if it is absent, as before 2.8, or does not parse."""
    form: Annotated[str, one_of("plain")]
    """Form of the directory's name; others are skipped, with a finding."""
    topic_kind: TopicKind
    is_compacted: bool
    """The log cleaner has a checkpoint for it."""
    can_be_tiered: bool
    """Neither internal nor compacted. The segments of other topics are never uploaded, so none is blocked."""
    is_tiered: bool
    """Remote storage is on: without it a broker checkpoints no log start at or below the first segment."""
    uploads_under_id_zero: bool
    """Remote storage is on, or in use, and the topic has no id at the next start: Kafka would upload under topic id zero."""
    log_start_offset: Natural
    log_end: ScannedLogEnd
    high_watermark: Natural | None
    """From replication-offset-checkpoint; null if that does not have it."""
    leader_epoch: Natural | None
    """The last one of leader-epoch-checkpoint; null without any."""
    totals: ScanTotals
    missing_offsets: Sequence[Natural]
    """Boundaries that need a snapshot and have none."""
    segments: Sequence[ScannedSegment]
    """Ascending."""
    boundaries: Sequence[BoundaryScan]
    """Ascending: the base offset of each segment but the first, and the log end if it is known."""
    other_snapshots: Sequence[StraySnapshot]
    """Snapshots with genuine names at no boundary."""
    files: Files
    upload: Upload
    next_start: NextStartSnapshots | None
    must_not_lead: MustNotLead | None = None
    """Null if nothing shows that the replica must not lead."""
    leader_epoch_start_offset: Natural | None = None
    """Offset at which leader_epoch began; null without any."""
    high_watermark_epoch: Natural | None = None
    """Leader epoch of the last record below high_watermark; null if that is 0 or unknown, and in earlier documents."""
    newest_snapshot: NewestSnapshot | None = None
    """Null without any, and if it does not parse."""


class UploadAttempts(Part, frozen=True):
    """How often a broker tries, what stops it until it can be started again, and other factors that are not in these files."""

    interval: str
    ways_to_stop: Sequence[WayToStop]
    not_looked_at: Sequence[str]
