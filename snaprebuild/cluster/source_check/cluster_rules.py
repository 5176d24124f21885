"""The rules of a verdict on a source that the metadata log of the cluster answers.

In each the first case that applies decides.

Source: ``PartitionRegistration``, ``BrokerRegistration``, ``ReplicationControlManager``,
``LogManager.readBrokerEpochFromCleanShutdownFiles`` of Kafka 4.3.1.
"""

from __future__ import annotations

from formats.partition.file_names import PARTITION_METADATA
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cluster.metadata.registered_model import (
    LOST_DIRECTORY,
    METADATA_VERSION,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerRegistration,
    LeaderRecoveryState,
    PartitionRegistration,
)
from snaprebuild.cluster.rule_result import Basis, holds, not_applicable, unknown
from snaprebuild.cluster.source_check.evidence import MetadataEvidence, SourceEvidence
from snaprebuild.cluster.source_check.rules import NO_REPLICA_YET, SourceRule, SourceRuleResult, rejects, warns
from snaprebuild.snapshots.plan.source_verdict import Purpose
from snaprebuild.storage.log_dir import ClusterKind

__all__ = [
    "assignment",
    "broker_epoch",
    "directory_id",
    "in_sync",
    "recovery_state",
    "registration",
    "topic_id",
]

NO_NODE_ID = "the id of the broker is not known"
NO_BROKER = "the broker is not registered"
METADATA_VERSION_3_9 = 21
"""The highest ``metadata.version`` that 3.9 knows, 3.9-IV0 (``MetadataVersion``)."""


def _no_evidence(rule: SourceRule, evidence: SourceEvidence, reason: str) -> SourceRuleResult:
    """A rule of the cluster that has nothing to judge. Nothing is missing where the cluster is one with ZooKeeper."""
    if evidence.needs_metadata_log:
        return unknown(rule, reason)
    return not_applicable(rule, reason)


def _rejects_by_log(rule: SourceRule, evidence: SourceEvidence, reason: str) -> SourceRuleResult:
    """A rule that is broken unless the metadata log has lost its end.

    A broker that is no voter does not flush its own copy (``KafkaRaftClient.appendAsFollower``), so that after an unclean stop it may be
    older than the partitions next to it.
    """
    if evidence.cluster_facts.is_own and not evidence.log_dir.has_marker:
        lost = "after an unclean stop the broker's own metadata log may have lost its end (--metadata)"
        return unknown(rule, f"{reason}; but {lost}", basis=Basis.RECORDS_SO_FAR)
    return rejects(rule, reason)


def _uuid(value: bytes | None) -> str:
    return "none" if value is None else uuid_to_text(value)


def registration(evidence: SourceEvidence) -> SourceRuleResult:
    """R3: the cluster knows the broker."""
    cluster = evidence.cluster_facts
    node = evidence.log_dir.node_id
    if evidence.unknown_reason:
        return _no_evidence(SourceRule.R3, evidence, evidence.unknown_reason)
    if node is None:
        return unknown(SourceRule.R3, NO_NODE_ID)
    if cluster.broker is None:
        return _rejects_by_log(SourceRule.R3, evidence, f"node {node} is not registered at offset {cluster.offset}")
    return holds(SourceRule.R3, f"node {node} is registered with broker epoch {cluster.broker_epoch}")


def directory_id(evidence: SourceEvidence) -> SourceRuleResult:
    """R4: the log directory is one that the broker registered with."""
    own = evidence.log_dir.directory
    registered = evidence.cluster_facts.broker_directories
    if evidence.cluster_facts.broker is None:
        return _no_evidence(SourceRule.R4, evidence, evidence.unknown_reason or NO_BROKER)
    if not registered:
        return not_applicable(SourceRule.R4, "the broker registered no directory ids (metadata.version before 3.7-IV2)")
    ids = ", ".join(registered)
    if own is None and evidence.log_dir.has_meta:
        return rejects(
            SourceRule.R4,
            f"meta.properties has no directory.id, and the broker registered with some ({ids}): a backup from before its upgrade",
        )
    if own is None:
        return unknown(SourceRule.R4, "there is no meta.properties with a directory.id")
    if own not in registered:
        return rejects(
            SourceRule.R4,
            f"directory.id {own} is not one of those that the broker registered with ({ids}): the disk was replaced",
        )
    return holds(SourceRule.R4, f"directory.id {own} is registered")


def topic_id(evidence: SourceEvidence) -> SourceRuleResult:
    """R5: it is the topic that the cluster has under this name."""
    log = evidence.log
    cluster = evidence.cluster_facts
    fault = log.fault_of(PARTITION_METADATA)
    if fault:
        return unknown(SourceRule.R5, fault, basis=Basis.DAMAGED_FILE)
    if log.topic_id is None and (evidence.has_metadata_log or evidence.log_dir.kind is ClusterKind.KRAFT):
        return rejects(
            SourceRule.R5, "there is no partition.metadata: a KRaft broker takes a log without a topic id for a stray one"
        )
    if evidence.unknown_reason:
        return _no_evidence(SourceRule.R5, evidence, evidence.unknown_reason)
    if cluster.topic_id is None:
        reason = f"the cluster has no topic {log.topic} at offset {cluster.offset}: it was deleted"
    else:
        ids = f"topic id {_uuid(log.topic_id)} here, {_uuid(cluster.topic_id)} in the cluster"
        reason = f"{ids}: the topic was deleted and made again"
    if cluster.is_topic_removed:
        return rejects(SourceRule.R5, reason)
    if log.topic_id != cluster.topic_id or cluster.topic_id is None:
        return _rejects_by_log(SourceRule.R5, evidence, reason)
    return holds(SourceRule.R5, f"topic id {_uuid(log.topic_id)}")


def assignment(evidence: SourceEvidence) -> SourceRuleResult:
    """R6: the broker is a replica, in this log directory."""
    cluster = evidence.cluster_facts
    node = evidence.log_dir.node_id
    own = evidence.log_dir.directory
    if evidence.unknown_reason:
        return _no_evidence(SourceRule.R6, evidence, evidence.unknown_reason)
    if evidence.log.topic_id not in (None, cluster.topic_id) or cluster.topic_id is None:
        return unknown(SourceRule.R6, "the cluster has no topic of this id")
    if node is None:
        return unknown(SourceRule.R6, NO_NODE_ID)
    if cluster.broker is None:
        return unknown(SourceRule.R6, NO_BROKER)
    if cluster.partition is None:
        return _rejects_by_log(SourceRule.R6, evidence, "the topic has no such partition in the cluster")
    replicas = list(cluster.registered.replicas)
    assigned = cluster.registered.directory_of(node)
    if assigned is None:
        return _rejects_by_log(
            SourceRule.R6, evidence, f"node {node} is not one of the replicas {replicas}: the partition was reassigned"
        )
    if assigned == LOST_DIRECTORY:
        return rejects(SourceRule.R6, "the cluster has its directory for lost")
    is_one = f"node {node} is one of the replicas {replicas}"
    # ``DirectoryId``: a replica that is MIGRATING has a directory, which no broker has reported yet. One that is UNASSIGNED may have none.
    if own is None or assigned == MIGRATING_DIRECTORY or own not in cluster.broker_directories:
        return holds(SourceRule.R6, f"{is_one}; in which directory is not known")
    if assigned == UNASSIGNED_DIRECTORY:
        return warns(SourceRule.R6, f"{is_one}, and has not reported to the cluster in which directory")
    if assigned != own:
        return _rejects_by_log(SourceRule.R6, evidence, f"the cluster has it in directory {assigned}, not in {own}")
    return holds(SourceRule.R6, f"{is_one}, in this directory")


def in_sync(evidence: SourceEvidence) -> SourceRuleResult:
    """R7: it is in sync, or eligible to lead, or leads. A rebuild needs no such rule: it describes local bytes."""
    partition = evidence.registered
    node = evidence.log_dir.node_id
    reason = evidence.unregistered_reason or _not_a_replica_reason(node, partition)
    detail = f"ISR {list(partition.isr)}, eligible leader replicas {list(partition.elr)}, leader {partition.leader}"
    if not evidence.log.exists:
        return not_applicable(SourceRule.R7, NO_REPLICA_YET)
    if reason and evidence.i_am_the_leader:
        if evidence.needs_metadata_log:
            return unknown(
                SourceRule.R7, "--i-am-the-leader is for ZooKeeper: with KRaft a metadata log shows who leads (--metadata)"
            )
        return holds(SourceRule.R7, f"the operator asserts that it leads (--i-am-the-leader): {reason}", basis=Basis.OPERATOR)
    if reason:
        return _no_evidence(SourceRule.R7, evidence, reason)
    if node in partition.isr or node in partition.elr or node == partition.leader:
        return holds(SourceRule.R7, detail)
    if evidence.purpose is Purpose.REBUILD:
        return holds(
            SourceRule.R7, f"not in {detail}, as after a controlled shutdown: not asked of a rebuild, which describes local bytes"
        )
    return rejects(SourceRule.R7, f"node {node} is not in {detail}")


def _not_a_replica_reason(node: int | None, partition: PartitionRegistration) -> str | None:
    """Why it is not known whether a broker is in sync; None for a replica of the partition."""
    if node is None:
        return NO_NODE_ID
    if node not in partition.replicas:
        return "it is not a replica"
    return None


def recovery_state(evidence: SourceEvidence) -> SourceRuleResult:
    """R8: no unclean election without a recovery after it.

    With one replica that state never ends, because only a change of the ISR ends it. The replica then holds all that there is.
    """
    detail = "RECOVERING: its leader was elected uncleanly"
    if evidence.unregistered_reason:
        return _no_evidence(SourceRule.R8, evidence, evidence.unregistered_reason)
    if evidence.registered.leader_recovery_state != LeaderRecoveryState.RECOVERING:
        return holds(SourceRule.R8, "RECOVERED")
    if len(evidence.registered.replicas) > 1:
        return rejects(SourceRule.R8, f"{detail}, and committed records may be missing here")
    if evidence.log.is_empty:
        return rejects(SourceRule.R8, f"{detail}, and its only replica is empty: the disk was replaced")
    return warns(SourceRule.R8, f"{detail}; with one replica that state never ends, and this replica holds all that there is")


def broker_epoch(evidence: SourceEvidence) -> SourceRuleResult:
    """R10: the broker did not register again since, and the disk is not that of another broker.

    A broker epoch is an offset of the metadata log, at which or soon after which the broker was registered
    (``QuorumController.registerBroker``).
    """
    cluster = evidence.cluster
    own = evidence.log_dir
    if own.live_epoch is not None and own.has_marker and own.marker_epoch != own.live_epoch:
        marker = "no broker epoch" if own.marker_epoch is None else f"broker epoch {own.marker_epoch}"
        return rejects(
            SourceRule.R10,
            f"--broker-epoch names a running broker of epoch {own.live_epoch}, and there is a clean-shutdown marker with {marker}: "
            "an old copy of its disk",
        )
    if cluster is None:
        return _no_evidence(SourceRule.R10, evidence, evidence.cluster_missing)
    if cluster.broker is None:
        return _no_evidence(SourceRule.R10, evidence, NO_BROKER)
    if own.has_marker and own.is_marker_unregistered:
        return not_applicable(
            SourceRule.R10, "the broker stopped before it had registered, so that its clean-shutdown marker has no epoch"
        )
    epoch = own.stopped_epoch
    if epoch is None:
        return _without_epoch(evidence, cluster, cluster.broker)
    registered = cluster.broker.epoch
    origin = "the clean-shutdown marker" if own.has_marker else "--broker-epoch"
    if cluster.epoch_owner not in (None, own.node_id):
        return rejects(
            SourceRule.R10,
            f"{origin} has broker epoch {epoch}, with which node {cluster.epoch_owner} registered: the disk is that broker's",
        )
    if cluster.older is not None and epoch > registered:
        return unknown(SourceRule.R10, cluster.older)
    if epoch != registered:
        return rejects(
            SourceRule.R10, f"{origin} has broker epoch {epoch}, the registration {registered}: the broker registered again since"
        )
    if cluster.older:
        return unknown(SourceRule.R10, cluster.older)
    return holds(SourceRule.R10, f"{origin} has the broker epoch of the registration, {epoch}")


def _without_epoch(evidence: SourceEvidence, cluster: MetadataEvidence, broker: BrokerRegistration) -> SourceRuleResult:
    """R10 where neither a marker nor the operator names the epoch under which the broker last ran."""
    if evidence.log_dir.has_marker and _writes_epochs(broker):
        return rejects(
            SourceRule.R10,
            "the clean-shutdown marker has no broker epoch, and the broker that registered always writes one: "
            "a backup from before its upgrade",
        )
    if evidence.log_dir.has_marker:
        return not_applicable(SourceRule.R10, "clean-shutdown markers of brokers before 3.9 have no epoch")
    if cluster.is_own:
        return _by_own_log(evidence)
    no_marker = "there is no clean-shutdown marker,"
    if cluster.own_epoch is None:
        return unknown(SourceRule.R10, f"{no_marker} and no metadata log of the broker itself: it may be an old copy")
    if cluster.own_epoch != broker.epoch:
        return unknown(
            SourceRule.R10,
            f"{no_marker} the broker's own metadata log has its epoch {cluster.own_epoch}, the registration {broker.epoch}: it may be "
            "an old copy",
        )
    return holds(
        SourceRule.R10,
        f"no clean-shutdown marker; the broker's own metadata log has the broker epoch of the registration, {broker.epoch}",
    )


def _by_own_log(evidence: SourceEvidence) -> SourceRuleResult:
    """R10 without a marker and without the metadata log of another node.

    After an unclean stop no file of an old copy has a later registration, not even its own metadata log.
    """
    only = "without a clean-shutdown marker only the metadata log of another node shows a later registration"
    if evidence.purpose is Purpose.REBUILD or evidence.log_dir.is_live:
        return not_applicable(SourceRule.R10, only)
    if evidence.accept_own_log:
        return holds(
            SourceRule.R10, f"the operator accepts the broker's own metadata log (--accept-own-log): {only}", basis=Basis.OPERATOR
        )
    advice = "Name one with --metadata DIR. Only if there is none, use --accept-own-log"
    return unknown(SourceRule.R10, f"{only}: it may be an old copy. {advice}", basis=Basis.OWN_LOG_ALONE)


def _writes_epochs(broker: BrokerRegistration) -> bool:
    """Whether a broker writes its epoch into the marker, as all from 3.9 on do (``CleanShutdownFileHandler``)."""
    levels = broker.features.get(METADATA_VERSION)
    return levels is not None and levels.max_level >= METADATA_VERSION_3_9
