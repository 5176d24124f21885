"""The documents of the commands for followers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from snaprebuild.documents.common import ActionTotals, ReplayedBoundary, TopicPartition
from snaprebuild.documents.tier import LeaderEpoch, Uuid
from snaprebuild.published import Document, Int64, Natural, Part, Positive, Seconds, Sha256, one_of
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import ComparisonStatus
from snaprebuild.snapshots.plan.verdict_summary import VerdictSummary

__all__ = [
    "Answer",
    "CheckpointLine",
    "Checkpoints",
    "CurrentLeaderEpoch",
    "DeletedCopy",
    "DeletedSegment",
    "Deletion",
    "Fetch",
    "FetchPathPartition",
    "FollowerBuild",
    "FollowerCheck",
    "FollowerFetchPath",
    "FollowerFile",
    "FollowerOffsets",
    "FollowerRepair",
    "KnownOffset",
    "LostProducer",
    "OffsetsPartition",
    "RemoteState",
    "RemoteStorage",
    "RepairedReplica",
    "Replica",
    "ReplicaSnapshot",
    "ReplicaTotals",
    "ViewedPartition",
]

OrNone = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
"""An offset or a timestamp; -1 for none, as Kafka has it."""

EpochOrNone = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]

Profile = Annotated[str, one_of("kip-1023", "kafka-4.3")]

AtStart = Annotated[str, one_of("when a broker next loads the log, at its start")]


# ---------------------------------------------------------------------------------------------------------- check and repair


class ReplicaTotals(Part, frozen=True, rename="kebab"):
    """Replicas by verdict."""

    intact: Natural
    lost_producer_state: Natural
    not_bootstrapped: Natural
    unknown: Natural


class RemoteState(Part, frozen=True):
    """The producers at an offset by remote storage."""

    offset: Natural
    """Offset of the state."""
    segment_id: Uuid
    """Id of the copy with the offset below."""
    start_offset: Natural
    """First offset of that copy."""
    end_offset: Natural
    """Its last offset."""
    replayed_from_offset: Natural
    """Base offset of the first of the consecutive copies up to there."""
    verdict: (
        Annotated[str, one_of("right", "unproven", "false-empty", "zero-bytes", "corrupt", "missing-producers", "wrong")] | None
    )
    """Verdict on the snapshot of that copy; null if the offset is inside of it."""
    reason: str
    """Reason of the verdict, for the user; not stable."""
    origin: Annotated[str, one_of("remote-snapshot", "rebuilt", "replayed")]
    """Source of the entries: the copy's own snapshot; a rebuild from the copies, because that is wrong; or the copies, because no
    snapshot belongs there."""
    snapshot_class: SnapshotClass = msgspec.field(name="class")
    """Class of the entries."""
    reasons: Sequence[str]
    """Reasons of the class, for the user; not stable."""
    entries: Natural
    """Number of producers."""
    open_transactions: Natural
    """Number of producers with an open transaction."""
    read_bytes: Natural
    """Bytes of segments in remote storage that were read."""


class LostProducer(Part, frozen=True):
    """An entry that should be in a snapshot and is not."""

    producer_id: Int64
    epoch: OrNone
    last_sequence: OrNone
    last_offset: OrNone
    timestamp_ms: OrNone
    """Milliseconds since 1970."""
    open_from: Natural | None
    """First offset of its open transaction."""
    expired: bool
    """A broker drops it when it loads the log at as_of_ms: no loss."""
    consequence: str
    """What a broker without it does; not stable."""


class ReplicaSnapshot(Part, frozen=True):
    """A snapshot of the replica, or a boundary without one."""

    offset: Natural
    """Offset of the snapshot or boundary."""
    entries: Natural | None
    """Entries in the file; null without one, or if it does not parse."""
    expected_entries: Natural
    """Entries by remote storage and the replica's own segments."""
    status: ComparisonStatus | None
    """Status of the file; null without one."""
    reason: str
    """For the user; not stable."""
    proven_wrong: bool
    """The state contradicts it for certain."""
    lost_count: Natural
    """Producers that are missing and have not expired."""
    open_count: Natural
    """Those of them with an open transaction."""
    expired_count: Natural
    """Producers that are missing, but have expired."""
    lost: Sequence[LostProducer]
    """Missing producers, open transactions first, expired ones last; at most 1,000 of a snapshot, and 10,000 of a run."""


class Replica(TopicPartition, frozen=True):
    """A replica as it was found."""

    path: str
    """Directory of the replica."""
    first_offset: Natural
    """Base offset of its first segment."""
    log_start_offset: Natural
    """Log start offset that its broker would use."""
    verdict: Annotated[str, one_of("intact", "lost-producer-state", "not-bootstrapped", "unknown")]
    reason: str
    """For the user; not stable."""
    cause: Annotated[str, one_of("discarded-at-bootstrap", "unknown")] | None
    """Cause of a loss."""
    remote: RemoteState | None
    read_bytes: Natural
    """Bytes of its own segments that were read."""
    snapshots: Sequence[ReplicaSnapshot]
    """By offset."""


class FollowerCheck(Document, frozen=True):
    """What `snaprebuild follower check --output json` prints."""

    NAME = "follower-check"
    VERSION = 2

    store: str
    """Location of the objects."""
    level: Annotated[str, one_of("full", "snapshot")]
    """How much of remote storage was read."""
    verified: bool
    """A metadata log has the live copies."""
    as_of_ms: Natural
    """Moment of expiry."""
    expiration_ms: Positive
    """How long an idle producer is remembered."""
    elapsed_seconds: Seconds
    totals: ReplicaTotals
    replicas: Sequence[Replica]


class RepairedReplica(Replica, frozen=True):
    """A replica as it was found, and what was done."""

    repaired: bool
    """Something was wrong, and all of it is right now, or would be after a run without --dry-run."""
    boundaries: Sequence[ReplayedBoundary]


class FollowerRepair(Document, frozen=True):
    """What `snaprebuild follower repair --output json` prints."""

    NAME = "follower-repair"
    VERSION = 2

    store: str
    """Location of the objects."""
    verified: bool
    """A metadata log has the live copies."""
    as_of_ms: Natural
    """Moment of expiry."""
    expiration_ms: Positive
    """How long an idle producer is remembered."""
    elapsed_seconds: Seconds
    dry_run: bool
    """Nothing was written."""
    receipt: str | None
    """File that lists the written files; null if nothing was written."""
    takes_effect: AtStart
    totals: ActionTotals
    replicas: Sequence[RepairedReplica]


# ------------------------------------------------------------------------------------------------- offsets, fetch path, plan


class RemoteStorage(Part, frozen=True):
    """The topic's remote.storage.enable, as far as it is known."""

    enabled: bool
    origin: str
    """File or option that contains it."""
    assumed: bool
    """No file or option contains it."""


class KnownOffset(Part, frozen=True):
    """An offset and its source."""

    offset: OrNone
    """-1 if a broker has none either."""
    origin: str
    """File or rule from which it was taken."""
    assumed: bool
    """No file contains it."""


class ViewedPartition(TopicPartition, frozen=True):
    """A partition of a leader and its offsets."""

    path: str
    """Path of the directory."""
    topic_id: str | None
    """From partition.metadata, as Kafka prints ids; null if the directory has none."""
    remote_storage: RemoteStorage
    log_start: KnownOffset
    local_start: KnownOffset
    highest_remote: KnownOffset | None
    """Last offset in remote storage from the view of a leader; null without a store."""
    high_watermark: KnownOffset
    log_end: KnownOffset


class CurrentLeaderEpoch(Part, frozen=True):
    """The current leader epoch and its source."""

    epoch: EpochOrNone
    origin: str
    """File or option from which it was taken."""
    assumed: bool
    """No file contains it."""


class Answer(Part, frozen=True):
    """The answer to a timestamp."""

    timestamp_ms: Int64
    """The requested timestamp: milliseconds since 1970, or special (below 0)."""
    offset: OrNone | None
    """-1 if there is none; null if it is not known."""
    record_timestamp_ms: OrNone | None
    """Timestamp of the record, milliseconds since 1970; -1 if the answer is no record."""
    leader_epoch: EpochOrNone | None
    error: Annotated[str, one_of("UNSUPPORTED_VERSION", "LEADER_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE")] | None
    found_in: str | None
    """Segment or copy in which a search ended."""
    reason: str
    """The rule that gave it, or why it is not known; not stable."""


class OffsetsPartition(ViewedPartition, frozen=True):
    """A partition and the answers of its leader."""

    last_stable: KnownOffset | None
    """Null if the request is not for committed records only, or it is not known."""
    leader_epoch: CurrentLeaderEpoch
    answers: Sequence[Answer]
    """In the order of the request."""


class FollowerOffsets(Document, frozen=True):
    """What `snaprebuild follower offsets --output json` prints."""

    NAME = "follower-offsets"
    VERSION = 2

    store: str | None
    """Location of the objects; null if none was named."""
    verified: bool
    """A metadata log has the live copies, and all of it could be read."""
    isolation: Annotated[str, one_of("replica", "read_uncommitted", "read_committed")]
    api_version: Annotated[int, msgspec.Meta(ge=0, le=11)]
    """Version of the request."""
    profile: Profile
    partitions: Sequence[OffsetsPartition]


class Fetch(Part, frozen=True):
    """How a fetch at the offset ends."""

    served: Annotated[str, one_of("local", "not-yet", "remote", "offset-moved-to-tiered-storage", "offset-out-of-range", "unknown")]
    source: str | None
    """The segment, or the id of the copy; null for neither."""
    object_key: str | None
    """Key of the copy's segment; null without one."""
    reason: str
    """Not stable."""


class DeletedSegment(Part, frozen=True):
    """A segment that would be deleted."""

    base_offset: Natural
    size_bytes: Natural


class DeletedCopy(Part, frozen=True):
    """A copy that would be deleted."""

    segment_id: Uuid
    start_offset: Natural
    end_offset: OrNone
    size_bytes: Natural
    phantom: bool
    """Announced, and never finished."""


class Deletion(Part, frozen=True):
    """What DeleteRecords up to the offset does."""

    error: Annotated[str, one_of("OFFSET_OUT_OF_RANGE", "INVALID_TOPIC_EXCEPTION", "POLICY_VIOLATION")] | None
    log_start_offset: Natural
    """Log start after the deletion."""
    segments: Sequence[DeletedSegment]
    """Segments on disk."""
    segment_bytes: Natural
    copies: Sequence[DeletedCopy]
    """Copies in remote storage."""
    copy_bytes: Natural
    reason: str
    """Not stable."""


class FetchPathPartition(ViewedPartition, frozen=True):
    """A partition, and the segment or copy that contains the offset."""

    consumer: Fetch
    follower: Fetch
    delete_records: Deletion


class FollowerFetchPath(Document, frozen=True):
    """What `snaprebuild follower fetch-path --output json` prints."""

    NAME = "follower-fetch-path"
    VERSION = 2

    store: str | None
    """Location of the objects; null if none was named."""
    verified: bool
    """A metadata log has the live copies, and all of it could be read."""
    offset: Natural
    """The requested offset."""
    partitions: Sequence[FetchPathPartition]


class FollowerFile(Part, frozen=True):
    """A file of the directory."""

    name: str
    size_bytes: Natural
    sha256: Sha256


class CheckpointLine(TopicPartition, frozen=True):
    """A line of a checkpoint."""

    offset: Natural


class Checkpoints(Part, frozen=True, rename="kebab"):
    """Lines for the checkpoints of the log directory."""

    log_start_offset_checkpoint: CheckpointLine
    recovery_point_offset_checkpoint: CheckpointLine
    replication_offset_checkpoint: CheckpointLine


class FollowerBuild(Document, frozen=True):
    """What `snaprebuild follower build --output json` prints."""

    NAME = "follower-build"
    VERSION = 3

    store: str
    """Location of the objects."""
    verified: bool
    """A metadata log has the live copies."""
    dry_run: bool
    """Nothing was written."""
    topic: str
    partition: Natural
    topic_partition: str
    topic_id: Uuid
    path: str
    """Directory of the partition."""
    target_offset: Positive
    """Everything below this offset is taken from remote storage."""
    target_epoch: Natural
    """Leader epoch of the offset right below it."""
    next_offset: Natural
    """Where the follower starts to fetch: after the copy that holds the offset below the target."""
    log_start_offset: Natural
    local_start_offset: Natural
    """Start of the log on its disk: equal to next_offset."""
    leader_epochs: Sequence[LeaderEpoch]
    remote: RemoteState
    files: Sequence[FollowerFile]
    checkpoints: Checkpoints
    warnings: Sequence[str]
    """Assumptions; not stable."""
    verdict: VerdictSummary | None
    """On the broker that gets the replica; null if its directory does not exist."""
    takes_effect: AtStart
