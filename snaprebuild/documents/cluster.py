"""The documents of ``cluster check``, ``cluster advise``, ``cluster isr`` and ``cluster source``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from snaprebuild.documents.common import UnknownContents
from snaprebuild.documents.simulations import OffsetAndEpoch, PolicyName, StartMove
from snaprebuild.published import Document, Natural, Part, Positive, Streamed, one_of
from snaprebuild.snapshots.plan.source_verdict import RuleName, VerdictSummary
from snaprebuild.storage.partition_names import TopicPartition

__all__ = [
    "AdvisedPolicy",
    "Checkpoint",
    "ClusterAdvise",
    "ClusterCheck",
    "ClusterIsr",
    "ClusterSource",
    "Election",
    "ElectionLog",
    "Feature",
    "HoldingNode",
    "IsrEvent",
    "LogStart",
    "MetadataLogUsed",
    "NextCheckpoint",
    "Node",
    "NodeRule",
    "QuorumState",
    "Reader",
    "SourceReplica",
    "SourceRule",
]


class LogStart(Part, frozen=True):
    """Where the log began before the node stopped."""

    offset: Natural
    epoch: Natural | None
    """Leader epoch of the record before it; null if it is not known."""


# --------------------------------------------------------------------------------------------------------------- cluster check


class Checkpoint(Part, frozen=True):
    """A checkpoint."""

    offset: Natural
    """Exclusive end."""
    epoch: Natural
    size_bytes: Natural
    timestamp_ms: int | None
    """Timestamp of the last record that it contains, from its header."""
    fault: str | None
    """Why it is not whole."""


class NodeRule(Part, frozen=True):
    """The result of a rule."""

    rule: Annotated[str, one_of(*(f"K{number}" for number in range(1, 21)))]
    text: str
    """What is true if the rule is met."""
    outcome: Annotated[str, one_of("held", "violated", "not-judged", "not-applicable")]
    """not-judged: what the rule needs is missing, or another rule reports the reason. not-applicable: it has nothing to judge."""
    grade: Annotated[str, one_of("info", "warning", "error", "damage")] | None
    """Grade of the violation; null if there is none."""
    evidence: str
    """One sentence; not stable."""
    path: str
    """File or directory concerned."""
    offset: Natural | None
    """Offset concerned."""


class Node(Part, frozen=True):
    """One directory."""

    directory: str
    """Directory of the metadata log."""
    node_id: Natural | None
    """From meta.properties; null if there is none."""
    cluster_id: str | None
    """From meta.properties; null if there is none."""
    is_leader: bool | None
    """Whether it is the leader among the given directories; null if that is not known."""
    first_base_offset: Natural | None
    """Base offset of the first segment; null without segments."""
    start: LogStart
    end_offset: Natural
    """Offset after the last batch."""
    checkpoints: Sequence[Checkpoint]
    """By id."""
    rules: Sequence[NodeRule]
    """The rules; one that is violated several times is listed as often."""
    unknown_contents: UnknownContents | None = None
    """What of the log this version does not know; null for nothing."""


class QuorumState(Part, frozen=True):
    """The quorum-state file."""

    epoch: int
    leader_id: int | None
    """Null for none."""
    voted_id: int | None
    """The node that got its vote in that epoch; null for none."""


class ElectionLog(Part, frozen=True):
    """The log of one directory, as an election compares it."""

    directory: str
    """Directory of the metadata log."""
    node_id: Natural | None
    """From meta.properties; null if there is none."""
    end: OffsetAndEpoch
    """End of the log after a node has started from it."""
    quorum_state: QuorumState | None
    """Null if the file is absent or cannot be read."""
    can_win: Annotated[str, one_of("yes", "no", "unknown")]
    """Whether a majority of the voters can elect the node."""
    reason: str
    """One sentence; not stable."""
    has_most: bool
    """No other directory ends above it."""


class Election(Part, frozen=True):
    """The nodes that can be elected from these directories."""

    voters: Sequence[Natural] | None
    """Ids, from the directory with the highest end; null if none of its files has them."""
    voters_not_given: Sequence[Natural]
    """Voters without a directory."""
    directories: Sequence[ElectionLog]
    """One for each directory."""


class HoldingNode(Part, frozen=True):
    """A registration that supports less of a feature than another one."""

    kind: Annotated[str, one_of("broker", "controller")]
    """A combined node has a registration of each kind."""
    node_id: Natural
    max_level: Natural
    """Greatest level that it supports; 0 if it does not name the feature."""
    state: Annotated[str, one_of("voter", "observer", "controller", "active", "fenced", "fenced-without-replicas")]
    """The evidence in the log: a voter, no voter (`observer`), or a controller without known voters; the state of a broker."""


class Feature(Part, frozen=True):
    """The levels of a feature, from the registrations of brokers and controllers."""

    name: str
    level: Natural
    """Level of the cluster; 0 if the feature is off."""
    max_of_all: Natural
    """Greatest level that all registered nodes support."""
    max_of_any: Natural
    """Greatest level that a registered node supports."""
    held_back_by: Sequence[HoldingNode]
    """The registrations that support less than `max_of_any`."""


class ClusterCheck(Document, frozen=True):
    """What `snaprebuild cluster check --output json` prints."""

    NAME = "cluster-check"
    VERSION = 2

    followers: Annotated[str, one_of("kafka", "strict", "literal")]
    """What --followers requires of the starts of followers."""
    nodes: Sequence[Node]
    """One for each directory."""
    election: Election
    features: Sequence[Feature] | None
    """By the directory whose log ends highest; null if its records cannot be read."""


# -------------------------------------------------------------------------------------------------------------- cluster advise


class NextCheckpoint(Part, frozen=True):
    """The next checkpoint to which the start may move."""

    record_bytes: Natural
    """Bytes of the batches after the latest checkpoint."""
    age_ms: Natural | None
    """Time since the last record of the latest checkpoint; null if that is not known."""
    is_due: bool
    """A node that has been running since the latest checkpoint takes it with the next record."""


class Reader(Part, frozen=True):
    """A reader of the log."""

    name: str
    """Name of the listener, or id of the replica."""
    offset: Natural
    """Next offset that it reads."""


class AdvisedPolicy(Part, frozen=True):
    """What one policy would do."""

    policy: PolicyName
    start: LogStart
    """Start of the log after the moves."""
    moves: Sequence[StartMove]
    """Moves in their order; none if the start stays."""
    kept_bytes: Natural
    """Bytes of the log after the moves."""
    kept_checkpoints: Natural
    """Checkpoints after the moves."""
    invalidated: Sequence[str]
    """Replicas whose next offset would be deleted."""
    reloaded: Sequence[str]
    """Listeners whose next offset would be deleted."""
    stays_because: str | None
    """Null if it moves; not stable."""


class ClusterAdvise(Document, frozen=True):
    """What `snaprebuild cluster advise --output json` prints."""

    NAME = "cluster-advise"
    VERSION = 2

    directory: str
    """Directory of the metadata log."""
    node_id: Natural | None
    """From meta.properties; null if there is none."""
    is_leader: bool
    """Whether it is the leader of its quorum, as far as is known."""
    as_of_ms: Natural
    """Time of the advice."""
    retention_bytes: Annotated[int, msgspec.Meta(ge=-1)]
    """Negative for none."""
    retention_ms: Annotated[int, msgspec.Meta(ge=-1)]
    """Negative for none."""
    lag_time_max_ms: Natural
    checkpoint_interval_ms: Natural
    """A checkpoint is taken at least once in this time; 0 for not by time."""
    checkpoint_record_bytes: Positive
    """A checkpoint is taken each time the log has grown by this many bytes of records."""
    next_checkpoint: NextCheckpoint
    first_base_offset: Natural | None
    """Base offset of the first segment; null without segments."""
    start: LogStart
    end_offset: Natural
    """Offset after the last batch."""
    kept_bytes: Natural
    """Bytes of segments and checkpoints."""
    replicas: Sequence[Reader]
    """Replicas that are known to fetch from it."""
    unknown_replicas: Sequence[int] | None
    """Ids of voters and brokers without a known offset; null if no image can be read."""
    listeners: Sequence[Reader]
    leader_start: OffsetAndEpoch | None
    """Start of the leader's log; null if it is not known, or this is the leader."""
    policies: Sequence[AdvisedPolicy]
    assumptions: Sequence[str]
    """One sentence each."""
    unknown_contents: UnknownContents | None = None
    """What of the log this version does not know; null for nothing."""


# ----------------------------------------------------------------------------------------------------------------- cluster isr

IsrFault = Annotated[
    str,
    one_of(
        "unregistered",
        "fenced",
        "shutting-down",
        "epoch-ahead",
        "stale-member",
        "last-member-new-disk",
        "elected-new-disk",
        "unclean-election",
        "new-disk",
    ),
]


class IsrEvent(TopicPartition, frozen=True):
    """A replica that joined, or stayed, and what is known of it."""

    fault: IsrFault
    offset: Natural
    """Offset of the record."""
    is_proven: bool
    """The record is proven to be committed, with the transaction that it is in."""
    timestamp_ms: int
    """Timestamp of its batch, ms since 1970."""
    leader_epoch: int
    """Leader epoch of its batch: identifies the controller that wrote it."""
    topic_id: str
    """22 characters, URL-safe base64."""
    broker: int
    """Id of the broker with the replica."""
    kind: Annotated[str, one_of("caught-up", "elected", "elected-uncleanly", "stayed")]
    """How it became in sync."""
    isr_before: Sequence[int]
    """In-sync replicas before the record."""
    isr: Sequence[int]
    """In-sync replicas after the record."""
    broker_epoch: int | None
    """Epoch of the registration at that time."""
    left_offset: int | None
    """Offset of the record by which it had left; null if that is not known."""
    gone_directories: Sequence[str]
    """Ids of its directories at that time that are not registered any more."""


class ClusterIsr(Document, frozen=True):
    """What `snaprebuild cluster isr --output json` prints."""

    NAME = "cluster-isr"
    VERSION = 2

    path: str
    """The metadata log directory."""
    known_from: Natural
    """First offset that was read; earlier history is not known."""
    checkpoint: str | None
    """Checkpoint at the start of the history; null for the beginning of the log."""
    end_offset: Natural
    """Offset after the last one."""
    proven_end_offset: Natural
    """After the last offset that is proven to be committed, 0 if none is."""
    isr_changes: Natural
    """Changes of in-sync replicas."""
    joins: Natural
    """Replicas that joined."""
    totals: dict[IsrFault, Positive]
    """Events by fault."""
    events: Streamed[IsrEvent]
    """The first 10,000, by offset."""
    unknown_contents: UnknownContents | None = None
    """What of the log this version does not know; null for nothing."""


# -------------------------------------------------------------------------------------------------------------- cluster source


class SourceRule(Part, frozen=True):
    """The result of one rule."""

    rule: RuleName
    name: Annotated[
        str,
        one_of(
            "directory-form",
            "broker-ids",
            "registration",
            "directory-id",
            "topic-id",
            "assignment",
            "in-sync",
            "recovery-state",
            "clean-shutdown",
            "broker-epoch",
            "high-watermark",
            "leader-epochs",
            "log-end",
        ),
    ]
    state: Annotated[str, one_of("pass", "warn", "fail", "not-known", "not-applicable")]
    evidence: str
    """The facts, one sentence; not stable."""
    trusted_below: Natural | None
    """Limit of the offset by this rule alone; null if it limits nothing."""


class MetadataLogUsed(Part, frozen=True):
    """The metadata log that the rules compare with."""

    path: str
    is_own: bool
    """Found in the log directories of the broker; otherwise it was named by an option."""
    offset: Natural
    """Last offset that was used."""
    proven_below: Natural
    """Records below it are known to be committed."""
    proof: str
    unknown_contents: UnknownContents | None = None
    """What of the log this version does not know; null for nothing."""


class SourceReplica(TopicPartition, frozen=True):
    """A replica with its verdict."""

    path: str
    """Path of the partition directory."""
    node_id: Natural | None
    """From meta.properties; null if that does not have it."""
    cluster_id: str | None
    """From meta.properties; null if that does not have it."""
    directory_id: str | None
    """From meta.properties; null if that does not have it."""
    topic_id: str | None
    """From partition.metadata."""
    log_end_offset: Natural | None
    """End of the last whole batch; null if it cannot be read, or there is no segment."""
    high_watermark: Natural | None
    """From the checkpoint file."""
    last_stable_offset: Natural | None
    """From a replay of the log; null for a rebuild, which does not need it."""
    metadata_log: MetadataLogUsed | None
    """Null for none."""
    metadata_log_missing: str | None
    """Why no metadata log was used."""
    verdict: VerdictSummary
    verdict_text: Annotated[
        str, msgspec.Meta(pattern=r"^(TRUSTED|TRUSTED_BELOW\([0-9]+\)|UNKNOWN\(R[0-9]+\)|REJECTED\(R[0-9]+\))$")
    ]
    """The result, with the offset or the rule."""
    rules: Annotated[Sequence[SourceRule], msgspec.Meta(min_length=13, max_length=13)]


class ClusterSource(Document, frozen=True):
    """What `snaprebuild cluster source --output json` prints."""

    NAME = "cluster-source"
    VERSION = 2

    purpose: Annotated[str, one_of("rebuild", "upload", "bootstrap")]
    """The purpose for which the replicas may be a source."""
    server_properties: str | None
    """Configuration of the broker whose log.dirs were read."""
    metadata: str | None
    """Location of the named metadata log; null for each broker's own."""
    requested_offset: Natural | None
    """Last offset of the metadata log that is used; null for all."""
    voters: Sequence[str]
    """Metadata logs of other voters (--voter)."""
    peers: Sequence[str]
    """Locations of other replicas."""
    broker_epoch: Natural | None
    """Epoch of the live broker, asserted by the operator."""
    i_am_the_leader: bool
    """Asserted by the operator."""
    accept_own_log: bool
    """The operator accepts the broker's own metadata log after an unclean stop (rule R10)."""
    replicas: Sequence[SourceReplica]
