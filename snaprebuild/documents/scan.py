"""The document of ``scan``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from snaprebuild.broker.status import StatusCounts
from snaprebuild.documents.common import StatusName
from snaprebuild.published import Document, Int64, Natural, Part, Positive, RunRecord, Streamed, one_of
from snaprebuild.storage.partition_names import TopicPartition

__all__ = [
    "BlockedSegment",
    "Blocker",
    "Boundary",
    "BrokerSettings",
    "Files",
    "FreeSpace",
    "LogDir",
    "LogEnd",
    "MustNotLead",
    "NewestSnapshot",
    "NextAttempt",
    "NextStart",
    "Outcome",
    "Partition",
    "Request",
    "RolledSegments",
    "Scan",
    "ScanRun",
    "Segment",
    "StartFate",
    "StraySnapshot",
    "Topic",
    "Totals",
    "Upload",
    "UploadAttempts",
    "WayToStop",
]

AtNextStart = Annotated[str, one_of("kept", "removed", "rebuilt", "empty", "absent")]

BlockerName = Annotated[
    str,
    one_of(
        "missing-snapshot",
        "snapshot-removed-at-start",
        "irregular-snapshot",
        "missing-offset-index",
        "missing-time-index",
        "no-leader-epochs",
        "leader-epochs-lost",
        "segment-too-large",
    ),
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


class Request(Part, frozen=True):
    """The request of a run."""

    paths: Sequence[str]
    server_properties: str | None
    topics: Sequence[str]
    partitions: Sequence[int]


class Totals(msgspec.Struct, kw_only=True):
    """Sums over partitions. Stuck bytes and blocked segments count rolled segments only."""

    partitions: Natural = 0
    segments: Natural = 0
    size_bytes: Natural = 0
    """Bytes of the segments."""
    boundaries: Natural = 0
    """Offsets at which a snapshot belongs."""
    missing: Natural = 0
    """Boundaries that need a snapshot and have none: the same number in scan, plan, rebuild, verify and report."""
    not_needed: Natural = 0
    """Boundaries without a snapshot where no broker uses one."""
    made_by_broker: Natural = 0
    """Boundaries without a snapshot that the broker writes itself, at its next stop or start."""
    unread: Natural = 0
    """Selected paths that were not read, or not to their end. Nothing else in the document covers them."""
    corrupt: Natural = 0
    """Snapshots that do not parse."""
    suspect: Natural = 0
    """Snapshots that parse but cannot be correct."""
    misnamed: Natural = 0
    """Files with names that no broker writes and on which it fails."""
    stray: Natural = 0
    """Snapshots at no boundary."""
    blocked_segments: Natural = 0
    """Rolled segments that would not be uploaded."""
    stuck_bytes: Natural = 0
    """Bytes of the first blocked segment of each partition and of every later rolled one."""
    stuck_bytes_after_rebuild: Natural = 0
    """The same, after everything is rebuilt and the broker was started."""

    def add(self, other: Totals) -> None:
        """Adds another sum."""
        for name in self.__struct_fields__:
            if value := getattr(other, name):  # most are 0
                setattr(self, name, getattr(self, name) + value)


BY_MARKER = "clean-shutdown-marker"
BY_METADATA_LOG = "metadata-log"


class LogDir(Part, frozen=True):
    """A log directory."""

    path: str
    node_id: int | None
    cluster_id: str | None
    directory_id: str | None
    """From meta.properties, since 3.7."""
    cluster_kind: Annotated[str, one_of("kraft", "zookeeper", "unknown")]
    """From meta.properties; unknown if it is missing or names no node."""
    broker_epoch: Natural | None
    """With KRaft an offset of the metadata log. From the clean-shutdown marker; without one from the registration of the broker in its own
    metadata log, if that is on a disk that was scanned. Null if neither has it."""
    shutdown: Annotated[str, one_of("clean", "unclean", "running", "unknown")]
    """How the broker stopped; unknown: there is no file of a broker."""
    held_by: int | None
    """Process that holds the directory, -1 for one that is not visible."""
    totals: Totals
    broker_epoch_by: Annotated[str, one_of(BY_MARKER, BY_METADATA_LOG)] | None = None
    """Evidence of the broker epoch; null without one."""
    kafka_release: str | None = None
    """Release of the broker that holds the directory, by the jars of its process; null if that is not known."""


class Topic(Part, frozen=True):
    """A topic over all log directories."""

    topic: str
    remote_storage: Annotated[str, one_of("on", "off", "unknown")]
    """On if the metadata log on disk (KRaft) or a checkpoint of the broker shows it. Off if the metadata log shows it. Off as well if the
    topic is internal or compacted, or `--server-properties` has no remote.log.storage.system.enable=true. Unknown if the files do not show
    it, or only by records that are not proven to be committed."""
    totals: Totals


class LogEnd(Part, frozen=True):
    """Log end offset, null if only reading the last segment shows it."""

    offset: Natural | None
    source: str | None
    """The file that shows it."""
    at_least: Natural


class Segment(Part, frozen=True):
    """A segment."""

    base_offset: Natural
    size_bytes: Natural
    modified_ms: Int64


class Boundary(Part, frozen=True):
    """An offset at which a snapshot belongs."""

    offset: Natural
    is_log_end: bool
    state: Annotated[str, one_of("present", "missing", "corrupt", "suspect", "unreadable", "irregular", "regenerated", "not due")]
    entries: Natural | None
    """Producers in the snapshot; null without a snapshot that parses."""
    at_next_start: AtNextStart | None
    """What the next start of the broker leaves there; null if that is unknown."""
    reasons: Sequence[str]
    """What is wrong or suspicious."""
    first_open_offset: Natural | None
    """First offset of the oldest transaction that is open in the snapshot; null without one."""


class NewestSnapshot(Part, frozen=True):
    """What the newest snapshot of a partition knows: a broker that stopped cleanly loads it."""

    offset: Natural
    entries: Natural
    least_offset: Natural | None
    """The least offset that an entry names; null if none does."""
    newest_timestamp_ms: Int64 | None
    """Of all entries; null without any."""
    first_open_offset: Natural | None
    """First offset of the oldest open transaction; null without one."""


class StraySnapshot(Part, frozen=True):
    """A snapshot at no boundary."""

    offset: Natural
    at_next_start: AtNextStart | None
    """What the next start of the broker leaves there; null if that is unknown."""


class Files(Part, frozen=True):
    """Names that are not segments, indexes or snapshots as they should be; counts of files marked for deletion and of unknown names."""

    misnamed: Sequence[str]
    temporary: Sequence[str]
    irregular: Sequence[str]
    index_without_segment: Sequence[str]
    deleted: Natural
    unknown: Natural


class Blocker(Part, frozen=True):
    """A reason why segments are not uploaded."""

    blocker: BlockerName
    segments: Positive
    freed_by: Annotated[str, one_of("rebuild", "broker start", "hand", "retention")]


class BlockedSegment(Part, frozen=True):
    """A rolled segment that would not be uploaded."""

    base_offset: Natural
    next_base_offset: Natural
    size_bytes: Natural
    blockers: Sequence[BlockerName]


class RolledSegments(Part, frozen=True):
    """Consecutive rolled segments with the same state."""

    base_offset: Natural
    next_base_offset: Natural
    segments: Positive
    size_bytes: Natural
    state: Annotated[
        str, one_of("uploadable", "uploadable-with-bad-snapshot", "blocked", "after-blocked", "waits", "waits-for-lag", "not-known")
    ]
    blockers: Sequence[BlockerName]


class Outcome(Part, frozen=True):
    """The result of an attempt to upload."""

    versions: str
    exception: str | None
    """Class of the exception; null if the segment is passed to the plugin."""
    message: str | None
    """Message of the exception; for a NullPointerException that of Java 14 and later."""
    thrown_in: str | None
    announces: bool
    """The segment is announced in __remote_log_metadata before, under a new id: if an exception follows, a phantom is left."""


class NextAttempt(Part, frozen=True):
    """The first segment at which the upload of a leader fails, after a start with the present files; else the first one."""

    base_offset: Natural
    next_base_offset: Natural
    size_bytes: Natural
    uploads_before: Natural
    """Segments that are uploaded before it."""
    assumes: Sequence[str]
    outcomes: Sequence[Outcome]
    """Outcomes by versions of brokers."""


class CopyLag(Part, frozen=True):
    """The rolled segments that remote.copy.lag.ms and remote.copy.lag.bytes (4.4) let wait; nothing is wrong with them."""

    lag_ms: int
    """-1 for none."""
    lag_bytes: int
    """-1 for none."""
    base_offset: Natural
    """Of the first one."""
    segments: Positive
    size_bytes: Natural
    due_ms: int | None
    """When the first one is due, ms since 1970; null if its age does not matter."""
    due_bytes: Natural | None
    """Bytes to be written until it is due; null if they do not matter."""


class Upload(Part, frozen=True):
    """What tiered storage would do with the segments."""

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
    blockers: Sequence[Blocker]
    blocked_segments: Sequence[BlockedSegment]
    rolled_segments: Sequence[RolledSegments]
    """All rolled segments above the log start offset, ascending. Empty where the topic is never uploaded."""
    next_attempt: NextAttempt | None
    """Null if there is nothing to try."""
    copy_lag: CopyLag | None = None
    """Null if no segment waits, or the settings are not known."""
    waiting_unknown_segments: Natural = 0
    """Rolled segments of which it is unknown whether they wait: the last stable offset is not known."""


class NextStart(Part, frozen=True):
    """What the next start of a broker since 2.8 does to the snapshots."""

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


class MustNotLead(Part, frozen=True):
    """Why a replica must not lead: its leader epochs do not cover its batches of format 2, or its next start loses records."""

    cause: str
    severity: Annotated[str, one_of("finding", "damaged")]
    remedy: str = ""
    """What an operator does about the worst fate; empty in earlier documents."""


class Partition(TopicPartition, frozen=True):
    """A partition."""

    path: str
    log_dir: str
    topic_id: str | None
    """From partition.metadata; null if it is absent, as before 2.8, or does not parse."""
    form: Annotated[str, one_of("plain")]
    """Form of the directory's name; others are skipped, with a finding."""
    topic_kind: Annotated[str, one_of("ordinary", "internal", "remote_log_metadata", "cluster_metadata")]
    is_compacted: bool
    """The log cleaner has a checkpoint for it."""
    can_be_tiered: bool
    """Neither internal nor compacted. The segments of other topics are never uploaded, so none is blocked."""
    is_tiered: bool
    """Remote storage is on: without it a broker checkpoints no log start at or below the first segment."""
    uploads_under_id_zero: bool
    """Remote storage is on, or in use, and the topic has no id at the next start: Kafka would upload under topic id zero."""
    log_start_offset: Natural
    log_end: LogEnd
    high_watermark: Natural | None
    """From replication-offset-checkpoint; null if that does not have it."""
    leader_epoch: Natural | None
    """The last one of leader-epoch-checkpoint; null without any."""
    totals: Totals
    missing_offsets: Sequence[Natural]
    """Boundaries that need a snapshot and have none."""
    segments: Sequence[Segment]
    """Ascending."""
    boundaries: Sequence[Boundary]
    """Ascending: the base offset of each segment but the first, and the log end if it is known."""
    other_snapshots: Sequence[StraySnapshot]
    """Snapshots with genuine names at no boundary."""
    files: Files
    upload: Upload
    next_start: NextStart | None
    must_not_lead: MustNotLead | None = None
    """Null if nothing shows that the replica must not lead."""
    leader_epoch_start_offset: Natural | None = None
    """Offset at which leader_epoch began; null without any."""
    high_watermark_epoch: Natural | None = None
    """Leader epoch of the last record below high_watermark; null if that is 0 or unknown, and in earlier documents."""
    newest_snapshot: NewestSnapshot | None = None
    """Null without any, and if it does not parse."""


class WayToStop(Part, frozen=True):
    """A setting that stops the attempts."""

    versions: str
    setting: str
    effect: str


class UploadAttempts(Part, frozen=True):
    """How often a broker tries, what stops it until it can be started again, and other factors that are not in these files."""

    interval: str
    ways_to_stop: Sequence[WayToStop]
    not_looked_at: Sequence[str]


FateName = Annotated[
    str,
    one_of(
        "no-start",
        "fails-once",
        "offline",
        "emptied",
        "records-cut",
        "end-lost",
        "stray-deleted",
        "leading-deletes-remote",
        "stray",
        "catches-up",
        "leader-epochs-cut",
        "snapshots-removed",
        "swap-finished",
        "no-leader-epochs",
        "recovered",
        "copy-takes-over",
        "old-replica",
    ),
]


class StartFate(Part, frozen=True):
    """What the next start of a broker does to a partition, a log directory or the broker."""

    kind: FateName
    severity: Annotated[str, one_of("note", "finding", "damaged")]
    subject: str
    """The topic-partition, or the path of a log directory."""
    path: str
    cause: str
    detail: str
    evidence: str
    """The files that show it."""
    age: str | None
    """How old the metadata log is that was used; null without one."""
    releases: str | None
    """Kafka releases with this fate; null for all that can start the broker."""
    log_line: str
    """What Kafka logs, or throws."""
    remedy: str
    in_sync: Sequence[int]
    """Ids of the other replicas that are in sync, as far as a metadata log shows."""
    holds_broker: bool
    """`before-start --fail-closed` does not start the broker."""


class Scan(Document, frozen=True):
    """What `snaprebuild scan --output json` prints. Offsets are int64."""

    NAME = "scan"
    VERSION = 3

    request: Request
    run: ScanRun
    totals: Totals
    log_dirs: Sequence[LogDir]
    """By path."""
    topics: Sequence[Topic]
    """By name, over all log directories."""
    partitions: Streamed[Partition]
    """The worst first."""
    upload_attempts: UploadAttempts
    status: StatusName = "healthy"
    """The worst of what was found, in the order of StatusName."""
    fates: Sequence[StartFate] = ()
    """What the next start does, the worst first; partitions without one start as usual."""
    counts: StatusCounts = StatusCounts()
    """The counts of the first line."""
    settings: BrokerSettings | None = None
    """Null without `--server-properties`."""
