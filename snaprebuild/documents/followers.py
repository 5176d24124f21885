"""The documents of the commands for followers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from formats.partition.checkpoint_file import LeaderEpochEntry
from snaprebuild.broker.status import StatusCounts
from snaprebuild.documents.common import ActionTotals, StatusName
from snaprebuild.followers.check import LossCause, ReplicaVerdict
from snaprebuild.followers.fetch_path import FollowerFetchPath
from snaprebuild.followers.offsets import FollowerOffsets
from snaprebuild.followers.plan import FollowerPlan
from snaprebuild.followers.remote_state import StateSource
from snaprebuild.followers.replica_snapshots import ReplicaSnapshot
from snaprebuild.published import Document, Natural, Part, Positive, Seconds, Sha256, Uuid, one_of
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.destination.boundary_result import BoundaryResult
from snaprebuild.snapshots.plan.source_verdict import VerdictSummary
from snaprebuild.storage.partition_names import TopicPartition
from snaprebuild.tier.audit.partition_audit import SnapshotVerdict

__all__ = [
    "CheckpointLine",
    "CheckpointLines",
    "FollowerBuild",
    "FollowerCheck",
    "FollowerFetchPath",
    "FollowerFile",
    "FollowerOffsets",
    "FollowerPlan",
    "FollowerRepair",
    "FollowerReplica",
    "RemoteProducers",
    "RepairedReplica",
    "ReplicaTotals",
]

# ---------------------------------------------------------------------------------------------------------- check and repair


class ReplicaTotals(Part, frozen=True, rename="kebab"):
    """Replicas by verdict."""

    intact: Natural
    lost_producer_state: Natural
    not_bootstrapped: Natural
    unknown: Natural


class RemoteProducers(Part, frozen=True):
    """The producers at an offset by remote storage."""

    offset: Natural
    """Offset of the state."""
    segment_id: Uuid
    """Id of the copy with the offset below."""
    start_offset: Natural
    """First offset of that copy."""
    end_offset: Natural
    """Last offset of the segment."""
    replayed_from_offset: Natural
    """Base offset of the first of the consecutive copies up to there."""
    verdict: SnapshotVerdict | None
    """Verdict on the snapshot of that copy; null if the offset is inside of it."""
    reason: str
    """Reason of the verdict, for the user; not stable."""
    entries_source: StateSource
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


class FollowerReplica(TopicPartition, frozen=True):
    """A replica as it was found."""

    path: str
    """Directory of the replica."""
    first_offset: Natural
    """Base offset of its first segment."""
    log_start_offset: Natural
    """Log start offset that its broker would use."""
    verdict: ReplicaVerdict
    reason: str
    """For the user; not stable."""
    loss_cause: LossCause | None
    """Cause of a loss."""
    remote: RemoteProducers | None
    read_bytes: Natural
    """Bytes of its own segments that were read."""
    snapshots: Sequence[ReplicaSnapshot]
    """By offset."""


class FollowerCheck(Document, frozen=True):
    """The JSON document of `snaprebuild follower check`."""

    NAME = "follower-check"
    VERSION = 3

    location: str
    """Path or URL of the objects."""
    level: Annotated[str, one_of("full", "snapshot")]
    """How much of remote storage was read."""
    verified: bool
    """A metadata log that could be read whole has the states of the copies."""
    as_of_ms: Natural
    """Moment of expiry."""
    expiration_ms: Positive
    """How long an idle producer is remembered."""
    elapsed_seconds: Seconds
    totals: ReplicaTotals
    replicas: Sequence[FollowerReplica]
    status: StatusName = "healthy"
    """The worst of the counts, in the order of StatusName."""
    counts: StatusCounts = StatusCounts()
    """Counts of damaged, wrong, missing or unproven snapshots, after the run or as it would be."""


class RepairedReplica(FollowerReplica, frozen=True):
    """A replica as it was found, and what was done."""

    repaired: bool
    """Something was wrong, and all of it is right now, or would be after a run without --dry-run."""
    boundaries: Sequence[BoundaryResult]


class FollowerRepair(Document, frozen=True):
    """The JSON document of `snaprebuild follower repair`."""

    NAME = "follower-repair"
    VERSION = 3

    location: str
    """Path or URL of the objects."""
    verified: bool
    """A metadata log that could be read whole has the states of the copies."""
    as_of_ms: Natural
    """Moment of expiry."""
    expiration_ms: Positive
    """How long an idle producer is remembered."""
    elapsed_seconds: Seconds
    dry_run: bool
    """Nothing was written."""
    receipt: str | None
    """File that lists the written files; null if nothing was written."""
    takes_effect: str
    totals: ActionTotals
    replicas: Sequence[RepairedReplica]
    status: StatusName = "healthy"
    """The worst of the counts, in the order of StatusName."""
    counts: StatusCounts = StatusCounts()
    """Counts of damaged, wrong, missing or unproven snapshots, after the run or as it would be."""


# -------------------------------------------------------------------------------------------------------------------- build


class FollowerFile(Part, frozen=True):
    """A file of the directory."""

    name: str
    size_bytes: Natural
    sha256: Sha256


class CheckpointLine(TopicPartition, frozen=True):
    """A line of a checkpoint."""

    offset: Natural


class CheckpointLines(Part, frozen=True, rename="kebab"):
    """Lines for the checkpoints of the log directory."""

    log_start_offset_checkpoint: CheckpointLine
    recovery_point_offset_checkpoint: CheckpointLine
    replication_offset_checkpoint: CheckpointLine


class FollowerBuild(Document, frozen=True):
    """The JSON document of `snaprebuild follower build`."""

    NAME = "follower-build"
    VERSION = 3

    location: str
    """Path or URL of the objects."""
    verified: bool
    """A metadata log that could be read whole has the states of the copies."""
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
    local_log_start_offset: Natural
    """Start of the log on its disk: equal to next_offset."""
    leader_epochs: Sequence[LeaderEpochEntry]
    remote: RemoteProducers
    files: Sequence[FollowerFile]
    checkpoint_lines: CheckpointLines
    warnings: Sequence[str]
    """Assumptions; not stable."""
    verdict: VerdictSummary | None
    """On the broker that gets the replica; null if its directory does not exist."""
    takes_effect: str
    receipt: str | None
    """Path of the receipt; null in a dry run."""
