"""The state of each copy in remote storage, with its proof.

A state that says that no broker reads a copy has a positive proof. That is a recorded deletion, or the removal of the topic from the
cluster, or Kafka's cache, in which no leader epoch leads to the copy. What has no record is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import METADATA_TOPIC, DeleteState, RemoteSegment, SegmentState, TopicIdPartition
from snaprebuild.cluster.source_check.metadata_read import MetadataRead, TopicRemoval
from snaprebuild.tier.remote_log import RemoteLogs
from snaprebuild.tier.remote_partition import ICEBERG_LACKS, RemoteCopy, RemotePartition
from snaprebuild.tier.remote_store import CopyState, unrecorded_states

__all__ = ["CopyStanding", "TopicEvidence", "modified_ms_of", "proven_removal", "standing_of_copies"]

NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class TopicEvidence:
    """The topics in the metadata log of the cluster; nothing without one.

    Attributes:
        topic_ids: current topic id by name.
        ids_ever: topic ids that the log names, also of topics that were removed.
        removals: removals that are proven to be committed, by topic id.
        unproven_removals: those that are not.
        timestamp_ms: greatest in the log, ms since 1970; -1 without one.
    """

    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    ids_ever: frozenset[bytes] = frozenset()
    removals: Mapping[bytes, TopicRemoval] = field(default_factory=dict)
    unproven_removals: Mapping[bytes, TopicRemoval] = field(default_factory=dict)
    timestamp_ms: int = -1

    @classmethod
    def of(cls, read: MetadataRead) -> TopicEvidence:
        """The evidence of a metadata log.

        Raises:
            SnaprebuildError, FormatError: it cannot be read again.
        """
        removals = read.topic_removals()
        proven = {topic_id: each for topic_id, each in removals.items() if each.offset < read.proven_below}
        unproven = {topic_id: each for topic_id, each in removals.items() if topic_id not in proven}
        return cls(read.image.topic_ids, read.topic_ids_ever(), proven, unproven, read.latest_ms)


@dataclass(frozen=True, slots=True)
class CopyStanding:
    """The state of a copy.

    Attributes:
        reason: what proves it, for the user.
        is_removed: the removal of its topic is the proof.
    """

    state: CopyState
    reason: str
    is_removed: bool = False


def modified_ms_of(copy: RemoteCopy) -> int | None:
    """When the newest object of a copy was written, ms since 1970; None if it has none."""
    return max((each.identity.modified_ns // NS_PER_MS for each in copy.objects.by_kind.values()), default=None)


def standing_of_copies(remote: RemotePartition, logs: RemoteLogs, topics: TopicEvidence) -> dict[bytes, CopyStanding]:
    """The state of each copy of a partition, by segment id.

    Args:
        remote: the partition; the facts of copies without a record were read.
        logs: the metadata log.
        topics: what the metadata log of the cluster shows.
    """
    removal = proven_removal(remote.id, logs, topics)
    unrecorded = [copy.segment_id for copy in remote.copies.values() if copy.record is None]
    states = unrecorded_states(logs, remote.id, unrecorded, verified=remote.verified)
    standings = {}
    for segment_id, copy in remote.copies.items():
        if copy.record is not None:
            standings[segment_id] = _recorded(copy, copy.record, remote, logs, removal)
        else:
            standings[segment_id] = _unrecorded(copy, states[segment_id], remote, logs, topics, removal)
    return standings


def proven_removal(partition: TopicIdPartition, logs: RemoteLogs, topics: TopicEvidence) -> TopicRemoval | None:
    """The removal of a topic, if no record of a copy is as late: such a record contradicts the removal."""
    removal = topics.removals.get(partition.topic_id)
    if removal is None or logs.copied_ms.get(partition.topic_id, -1) >= removal.timestamp_ms:
        return None
    return removal


def _removed(removal: TopicRemoval) -> CopyStanding:
    moment = _moment(removal.timestamp_ms)
    reason = f"RemoveTopic at offset {removal.offset} of __cluster_metadata, {moment}, is later than every record of the topic"
    return CopyStanding(CopyState.DELETED, reason, is_removed=True)


def _moment(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


# ---------------------------------------------------------------------------------------------------------- copies with a record


def _recorded(
    copy: RemoteCopy, record: RemoteSegment, remote: RemotePartition, logs: RemoteLogs, removal: TopicRemoval | None
) -> CopyStanding:
    deletion = logs.deletions.get(remote.id)
    if deletion is not None:
        return CopyStanding(CopyState.DELETING, f"{deletion.state.name} of its partition is recorded")
    if record.state is SegmentState.DELETE_SEGMENT_STARTED:
        return CopyStanding(CopyState.DELETING, f"{record.state.name} is its last record")
    if removal is not None:
        return _removed(removal)
    if record.state is SegmentState.COPY_SEGMENT_STARTED:
        if copy.objects.by_kind:
            return CopyStanding(CopyState.UNFINISHED, f"{record.state.name} is its last record")
        return CopyStanding(CopyState.PHANTOM, f"{record.state.name} is its last record, and it has no object")
    if not remote.log.is_referenced(record):
        epochs = ", ".join(str(entry.epoch) for entry in record.leader_epochs)
        if not remote.verified:
            return CopyStanding(CopyState.UNVERIFIED, "finished; whether brokers read it may be in records that could not be read")
        return CopyStanding(CopyState.SUPERSEDED, f"finished, and no lookup in leader epoch {epochs} leads to it")
    if copy.unanswered is not None:
        return CopyStanding(CopyState.UNREADABLE, f"objects that the listing lacks: {copy.unanswered}")
    if copy.missing == ICEBERG_LACKS:
        return CopyStanding(CopyState.UNREADABLE, "finished, with a manifest alone, as segment.format=iceberg leaves it")
    if copy.missing:
        return CopyStanding(CopyState.LOST, f"finished, and a request for {', '.join(copy.missing)} finds nothing")
    return CopyStanding(CopyState.LIVE, "finished, and lookups of brokers lead to it")


# ------------------------------------------------------------------------------------------------------- copies without a record


def _unrecorded(
    copy: RemoteCopy,
    state: CopyState | None,
    remote: RemotePartition,
    logs: RemoteLogs,
    topics: TopicEvidence,
    removal: TopicRemoval | None,
) -> CopyStanding:
    if state is CopyState.DELETED:
        whose = "its partition" if remote.id in logs.deleted else "the copy"
        name = DeleteState.DELETE_PARTITION_FINISHED if remote.id in logs.deleted else SegmentState.DELETE_SEGMENT_FINISHED
        return CopyStanding(state, f"{name.name} of {whose} is recorded")
    if state is CopyState.DELETING:
        return CopyStanding(state, f"{logs.deletions[remote.id].state.name} of its partition is recorded")
    if removal is not None:
        return _removed(removal)
    if state is CopyState.ANOTHER_CLUSTER:
        return CopyStanding(state, f"cluster {logs.cluster_naming(remote.id)} has records of the partition, and this one has none")
    other_id = _other_topic_id(copy, remote, logs, topics)
    if other_id is not None:
        reason = f"no record, and {remote.id.topic} has the topic id {uuid_to_text(other_id)} in this cluster"
        return CopyStanding(CopyState.ANOTHER_TOPIC_ID, reason)
    if state is CopyState.UNKNOWN:
        missing = None if remote.id in logs.partitions else logs.not_given(remote.id)
        if missing is not None:
            return CopyStanding(state, f"partition {missing} of {METADATA_TOPIC}, which has its records, was not given")
        cluster = logs.cluster_that_may_name(remote.id)
        if cluster is not None:
            return CopyStanding(state, f"no record, and records of cluster {cluster} cannot be read or were not given")
        return CopyStanding(state, f"no record in {METADATA_TOPIC}")
    if copy.missing:
        return CopyStanding(CopyState.UNREADABLE, f"{', '.join(copy.missing)} is missing, and no record was read")
    if copy.facts.fault is not None or copy.facts.torn_index is not None:
        return CopyStanding(CopyState.UNREADABLE, copy.facts.fault or copy.facts.torn_index or "")
    return CopyStanding(CopyState.UNVERIFIED, "complete, and no record was read")


def _other_topic_id(copy: RemoteCopy, remote: RemotePartition, logs: RemoteLogs, topics: TopicEvidence) -> bytes | None:
    """The topic id that the name of a topic had in the cluster after the copy was made, if the cluster never had that of the copy.

    A topic may have been made again, with the id of the copy, after the logs were saved: they must be newer than the copy.
    """
    own = remote.id
    modified_ms = copy.event_timestamp_ms or modified_ms_of(copy)
    recorded = {each.topic_id: each.topic for each in (*logs.partitions, *logs.deletions, *logs.deleted)}
    if modified_ms is None or own.topic_id in topics.ids_ever or own.topic_id in recorded:
        return None
    current = topics.topic_ids.get(own.topic)
    if current is not None:
        if current != own.topic_id and modified_ms < topics.timestamp_ms:
            return current
        return None
    later = (each for each, topic in recorded.items() if topic == own.topic and logs.copied_ms.get(each, -1) > modified_ms)
    return next(later, None)
