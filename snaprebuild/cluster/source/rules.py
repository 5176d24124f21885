"""The rules of a verdict on a source, but for the leader epochs (``lineage``): facts in, a ruling out.

Source: ``PartitionRegistration``, ``BrokerRegistration``, ``ReplicationControlManager``,
``LogManager.readBrokerEpochFromCleanShutdownFiles`` of Kafka 4.3.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from formats.partition.file_names import LOG_START_OFFSET_CHECKPOINT, PARTITION_METADATA, RECOVERY_POINT_CHECKPOINT, DirectoryForm
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cluster.metadata.image_model import (
    LOST_DIRECTORY,
    METADATA_VERSION,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerRegistration,
    LeaderRecoveryState,
    PartitionRegistration,
    directory_text,
)
from snaprebuild.cluster.source.evidence import ClusterEvidence, LogDirEvidence, PeerEvidence, Purpose, SourceEvidence

__all__ = [
    "Ruling",
    "State",
    "assignment",
    "broker_epoch",
    "broker_ids",
    "clean_shutdown",
    "directory_form",
    "directory_id",
    "fails",
    "fails_by_log",
    "high_watermark",
    "in_sync",
    "is_of_another_log",
    "log_end",
    "not_applicable",
    "not_known",
    "passes",
    "recovery_state",
    "registered_partition",
    "registration",
    "topic_id",
    "warns",
]


class State(StrEnum):
    """How a rule came out."""

    PASS = "pass"  # noqa: S105  # no password
    WARN = "warn"
    """It does not reject, and somebody should look."""
    FAIL = "fail"
    NOT_KNOWN = "not-known"
    """Evidence that should be there is missing, cannot be read, or contradicts itself."""
    NOT_APPLICABLE = "not-applicable"
    """Nothing is missing: this kind of cluster, or this question, has no such evidence."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a rule says.

    Attributes:
        state: how it came out.
        evidence: the facts, one sentence.
        limit: the replica is trusted below this offset only; None for all of it.
        is_word: it rests on the operator's word.
        is_damaged: a file of the replica that could reject it is damaged, or missing although each broker of this kind writes it.
    """

    state: State
    evidence: str
    limit: int | None = None
    is_word: bool = False
    is_damaged: bool = False


def passes(evidence: str, limit: int | None = None, *, is_word: bool = False) -> Ruling:
    """A rule that is kept."""
    return Ruling(State.PASS, evidence, limit, is_word)


def warns(evidence: str, limit: int | None = None) -> Ruling:
    """One that is not quite."""
    return Ruling(State.WARN, evidence, limit)


def fails(evidence: str) -> Ruling:
    """One that is broken."""
    return Ruling(State.FAIL, evidence)


def not_known(evidence: str, limit: int | None = None, *, is_damaged: bool = False) -> Ruling:
    """A rule whose evidence should be there, and is missing, cannot be read, or contradicts itself."""
    return Ruling(State.NOT_KNOWN, evidence, limit, is_damaged=is_damaged)


def not_applicable(evidence: str) -> Ruling:
    """A rule whose evidence this kind of cluster, or this question, does not have."""
    return Ruling(State.NOT_APPLICABLE, evidence)


NO_BROKER_FILES = "a bare copy of a partition: no file of a broker is around it"
NO_REPLICA_YET = "there is no replica yet"
NO_NODE_ID = "the id of the broker is not known"
METADATA_VERSION_3_9 = 21
"""The highest ``metadata.version`` that 3.9 knows, 3.9-IV0 (``MetadataVersion``)."""

_FORMS = {
    DirectoryForm.DELETE: "the broker will delete this directory",
    DirectoryForm.STRAY: "the partition is no longer assigned to this broker",
    DirectoryForm.FUTURE: "the partition is being moved here from another log directory",
}


def _image(evidence: SourceEvidence) -> ClusterEvidence | str:
    """What the cluster says, or why it says nothing of the broker as it was when it was last at work."""
    cluster = evidence.cluster
    return evidence.cluster_missing if cluster is None else cluster.older or cluster


def _no_evidence(evidence: SourceEvidence, why: str) -> Ruling:
    """A rule of the cluster that has nothing to judge. Without a metadata log there is nothing that could be missing in it."""
    is_at_hand = evidence.cluster is not None or evidence.is_cluster_unreadable
    return not_known(why) if is_at_hand else not_applicable(why)


def fails_by_log(evidence: SourceEvidence, told: str) -> Ruling:
    """A rule that is broken unless the metadata log has lost its end.

    A broker that is no voter does not flush its own copy (``KafkaRaftClient.appendAsFollower``), so that after an unclean stop it may be
    older than the partitions beside it.
    """
    cluster, own = evidence.cluster, evidence.log_dir
    if cluster is not None and cluster.is_own and not own.has_marker:
        return not_known(f"{told}; but after an unclean stop the broker's own metadata log may have lost its end (--metadata)")
    return fails(told)


def is_of_another_log(evidence: SourceEvidence, peer: PeerEvidence) -> bool:
    """Whether a peer is no replica of this partition: of another topic of its name, or of another cluster."""
    ids = (evidence.log.topic_id, peer.topic_id), (evidence.log_dir.cluster_id, peer.cluster_id)
    return any(None not in pair and pair[0] != pair[1] for pair in ids)


def registered_partition(evidence: SourceEvidence) -> PartitionRegistration | str:
    """The partition as the cluster has it, or why that is not known."""
    cluster = _image(evidence)
    if isinstance(cluster, str):
        return cluster
    known = evidence.log.topic_id
    if cluster.topic_id is None or (known is not None and known != cluster.topic_id):
        return "the cluster has no topic of this id"
    return "the cluster has no such partition" if cluster.partition is None else cluster.partition


def directory_form(evidence: SourceEvidence) -> Ruling:
    """R1: the name is plain, and no compaction was interrupted."""
    log = evidence.log
    if log.form in _FORMS:
        return fails(f"the directory name is not plain ({log.form.value}): {_FORMS[log.form]}")
    if log.swapped is not None:
        return fails(f"a compaction was interrupted ({log.swapped}): start and stop a broker first")
    return passes("the name is plain, and no compaction was interrupted")


def broker_ids(evidence: SourceEvidence) -> Ruling:
    """R2: meta.properties can be read, and all directories of the broker are of one cluster and node."""
    own = evidence.log_dir
    if own.meta_fault is not None:
        return fails(f"meta.properties cannot be read: {own.meta_fault}")
    if not own.has_meta and not own.is_broker_directory:
        return not_applicable(NO_BROKER_FILES)
    if not own.has_meta and (evidence.cluster is not None or evidence.is_cluster_unreadable):
        return fails(
            "there is no meta.properties, which a KRaft broker has in each log directory: whose replica it is cannot be told"
        )
    if not own.has_meta:
        return not_known("there is no meta.properties")
    if own.node_id is None:
        return fails("meta.properties names no broker")
    for other in own.siblings:
        for what, mine, theirs in (("cluster.id", own.cluster_id, other.cluster_id), ("node.id", own.node_id, other.node_id)):
            if mine is not None and theirs is not None and mine != theirs:
                return fails(f"{what} is {mine} here and {theirs} in {other.path}: not of one broker")
    cluster = evidence.cluster
    if cluster is not None and None not in (cluster.cluster_id, own.cluster_id) and cluster.cluster_id != own.cluster_id:
        return fails(
            f"cluster.id is {own.cluster_id} here and {cluster.cluster_id} where the metadata log lies: of another cluster"
        )
    beside = f", as in {len(own.siblings)} other log directories" if own.siblings else ""
    return passes(f"node {own.node_id} of cluster {own.cluster_id}{beside}")


def registration(evidence: SourceEvidence) -> Ruling:
    """R3: the cluster knows the broker."""
    cluster, node = _image(evidence), evidence.log_dir.node_id
    if isinstance(cluster, str):
        return _no_evidence(evidence, cluster)
    if node is None:
        return not_known(NO_NODE_ID)
    if cluster.broker is None:
        return fails_by_log(evidence, f"node {node} is not registered at offset {cluster.offset}")
    return passes(f"node {node} is registered with broker epoch {cluster.broker.epoch}")


def directory_id(evidence: SourceEvidence) -> Ruling:
    """R4: the log directory is one that the broker registered with."""
    cluster, own = _image(evidence), evidence.log_dir.directory_id
    if isinstance(cluster, str) or cluster.broker is None:
        return _no_evidence(evidence, cluster if isinstance(cluster, str) else "the broker is not registered")
    registered = cluster.broker.directories
    if not registered:
        return not_applicable("the broker registered no directory ids (metadata.version before 3.7-IV2)")
    told = ", ".join(map(directory_text, registered))
    if own is None and evidence.log_dir.has_meta:
        return fails(
            f"meta.properties has no directory.id, and the broker registered with some ({told}): a backup from before its upgrade"
        )
    if own is None:
        return not_known("there is no meta.properties with a directory.id")
    if own not in registered:
        return fails(
            f"directory.id {uuid_to_text(own)} is none of those that the broker registered with ({told}): the disk was replaced"
        )
    return passes(f"directory.id {uuid_to_text(own)} is registered")


def topic_id(evidence: SourceEvidence) -> Ruling:
    """R5: it is the topic that the cluster has under this name."""
    cluster, own = _image(evidence), evidence.log.topic_id
    fault = next((each for each in evidence.log.faults if PARTITION_METADATA in each), None)
    if fault is not None:
        return not_known(fault, is_damaged=True)
    if own is None and (evidence.cluster is not None or evidence.is_cluster_unreadable):
        return fails("there is no partition.metadata: a KRaft broker takes a log without a topic id for a stray one")
    if isinstance(cluster, str):
        return _no_evidence(evidence, cluster)
    if cluster.topic_id is None:
        told = f"the cluster has no topic {evidence.log.topic} at offset {cluster.offset}: it was deleted"
        return fails_by_log(evidence, told)
    assert own is not None
    if own != cluster.topic_id:
        now = uuid_to_text(cluster.topic_id)
        told = f"topic id {uuid_to_text(own)} here, {now} in the cluster: the topic was deleted and made again"
        return fails_by_log(evidence, told)
    return passes(f"topic id {uuid_to_text(own)}")


def assignment(evidence: SourceEvidence) -> Ruling:
    """R6: the broker is a replica, in this log directory."""
    cluster, node = _image(evidence), evidence.log_dir.node_id
    if isinstance(cluster, str):
        return _no_evidence(evidence, cluster)
    if evidence.log.topic_id not in (None, cluster.topic_id) or cluster.topic_id is None:
        return not_known("the cluster has no topic of this id")
    if node is None or cluster.broker is None:
        return not_known(NO_NODE_ID if node is None else "the broker is not registered")
    if cluster.partition is None:
        return fails_by_log(evidence, "the topic has no such partition in the cluster")
    replicas = list(cluster.partition.replicas)
    assigned = cluster.partition.directory_of(node)
    if assigned is None:
        return fails_by_log(evidence, f"node {node} is none of the replicas {replicas}: the partition was reassigned")
    own = evidence.log_dir.directory_id
    if assigned == LOST_DIRECTORY:
        return fails("the cluster has its directory for lost")
    if own is None or assigned == MIGRATING_DIRECTORY or own not in cluster.broker.directories:
        return passes(f"node {node} is one of the replicas {replicas}; in which directory is not known")
    if assigned == UNASSIGNED_DIRECTORY:
        return warns(f"node {node} is one of the replicas {replicas}, and has not told the cluster in which directory")
    if assigned != own:
        told = f"the cluster has it in directory {uuid_to_text(assigned)}, not in {uuid_to_text(own)}"
        return fails_by_log(evidence, told)
    return passes(f"node {node} is one of the replicas {replicas}, in this directory")


def in_sync(evidence: SourceEvidence) -> Ruling:
    """R7: it is in sync, or eligible to lead, or leads. Not asked of a rebuild, which describes local bytes."""
    partition, node = registered_partition(evidence), evidence.log_dir.node_id
    if not evidence.log.exists:
        return not_applicable(NO_REPLICA_YET)
    if isinstance(partition, str) or node is None or node not in partition.replicas:
        why = partition if isinstance(partition, str) else NO_NODE_ID if node is None else "it is no replica"
        if evidence.is_leader_by_word and _may_lead(evidence):
            return passes(f"that it leads rests on the operator's word (--i-am-the-leader): {why}", is_word=True)
        return _no_evidence(evidence, why)
    told = f"ISR {list(partition.isr)}, eligible leader replicas {list(partition.elr)}, leader {partition.leader}"
    if node in partition.isr or node in partition.elr or node == partition.leader:
        return passes(told)
    if evidence.purpose is Purpose.REBUILD:
        return passes(f"not in {told}, as after a controlled shutdown: not asked of a rebuild, which describes local bytes")
    return fails(f"node {node} is not in {told}")


def _may_lead(evidence: SourceEvidence) -> bool:
    """Whether no evidence on disk speaks against the operator's word: no metadata log is at hand, or one that is older and agrees."""
    cluster, node = evidence.cluster, evidence.log_dir.node_id
    if cluster is None:
        return not evidence.is_cluster_unreadable
    if cluster.older is None or node is None:
        return False
    known = cluster.partition
    return known is None or node in (*known.isr, *known.elr, known.leader)


def recovery_state(evidence: SourceEvidence) -> Ruling:
    """R8: no unclean election that nobody recovered from.

    With one replica that state never ends, because only a change of the ISR ends it; what the replica holds is then all that there is.
    """
    partition = registered_partition(evidence)
    if isinstance(partition, str):
        return _no_evidence(evidence, partition)
    if partition.leader_recovery_state is not LeaderRecoveryState.RECOVERING:
        return passes("RECOVERED")
    told = "RECOVERING: its leader was elected uncleanly"
    if len(partition.replicas) > 1:
        return fails(f"{told}, and what was committed need not be here")
    if evidence.log.is_empty:
        return fails(f"{told}, and its only replica is empty: the disk was replaced")
    return warns(f"{told}; with one replica that never ends, and what is here is all that there is")


def clean_shutdown(evidence: SourceEvidence) -> Ruling:
    """R9: the broker stopped cleanly, or only what was flushed and replicated is trusted."""
    own, log = evidence.log_dir, evidence.log
    if not log.exists:
        return not_applicable(NO_REPLICA_YET)
    if not own.is_broker_directory:
        return not_known(NO_BROKER_FILES)
    if own.is_live and own.live_epoch is not None and not own.has_marker:
        limit = log.closed_below(max(log.high_watermark or 0, 0))
        return passes(
            f"a live broker, of epoch {own.live_epoch} as --broker-epoch says: closed segments below its high watermark", limit
        )
    siblings = _registered_siblings(evidence)
    unclean = next((each.path for each in siblings if not each.has_marker), None)
    if own.is_live or not own.has_marker or (unclean is not None and evidence.purpose is not Purpose.REBUILD):
        # A broker takes 0 for what has no line in a checkpoint.
        flushed, replicated = max(log.recovery_point or 0, 0), max(log.high_watermark or 0, 0)
        why = "a live broker is at work" if own.is_live else "no clean-shutdown marker"
        why += f" in {unclean}" if own.has_marker and not own.is_live else ""
        told = f"{why}: only closed segments below its recovery point {flushed} and its high watermark {replicated}"
        return warns(told, log.closed_below(min(flushed, replicated)))
    if unclean is not None:
        return warns(f"stopped cleanly here, and {unclean} has no clean-shutdown marker")
    others = {each.marker_epoch for each in siblings} - {own.marker_epoch}
    if others:
        return warns(f"stopped cleanly, with epoch {own.marker_epoch} here and {', '.join(map(str, others))} elsewhere")
    return passes("stopped cleanly" + ("" if own.marker_epoch is not None else ", of which epoch the marker does not tell"))


def _registered_siblings(evidence: SourceEvidence) -> tuple[LogDirEvidence, ...]:
    """The other log directories of the broker, without disks that were taken out of it, as far as the cluster knows them."""
    cluster, siblings = _image(evidence), evidence.log_dir.siblings
    if isinstance(cluster, str) or cluster.broker is None or not cluster.broker.directories:
        return siblings
    return tuple(each for each in siblings if not each.has_meta or each.directory_id in cluster.broker.directories)


def broker_epoch(evidence: SourceEvidence) -> Ruling:
    """R10: the broker did not register again since."""
    cluster, own = evidence.cluster, evidence.log_dir
    if own.live_epoch is not None and own.has_marker and own.marker_epoch != own.live_epoch:
        marker = "no broker epoch" if own.marker_epoch is None else f"broker epoch {own.marker_epoch}"
        return fails(
            f"--broker-epoch names a running broker of epoch {own.live_epoch}, and there is a clean-shutdown marker with {marker}: "
            "an old copy of its disk"
        )
    if cluster is None or cluster.broker is None:
        return _no_evidence(evidence, evidence.cluster_missing if cluster is None else "the broker is not registered")
    registered, epoch = cluster.broker.epoch, own.stopped_epoch
    if own.has_marker and epoch is None:
        if own.is_marker_unregistered:
            return not_applicable("the broker stopped before it had registered, so that its clean-shutdown marker has no epoch")
        if _writes_epochs(cluster.broker):
            return fails(
                "the clean-shutdown marker has no broker epoch, and the broker that registered always writes one: "
                "a backup from before its upgrade"
            )
        return not_applicable("clean-shutdown markers of brokers before 3.9 have no epoch")
    if epoch is None:
        return _epoch_without_marker(cluster, registered)
    if cluster.older is not None and epoch > registered:
        return not_known(cluster.older)
    origin = "the clean-shutdown marker" if own.has_marker else "--broker-epoch"
    if epoch != registered:
        return fails(f"{origin} has broker epoch {epoch}, the registration {registered}: the broker registered again since")
    return passes(f"{origin} has the broker epoch of the registration, {epoch}")


def _epoch_without_marker(cluster: ClusterEvidence, registered: int) -> Ruling:
    """R10 after an unclean stop: a later registration is in no file of an old copy, also not in its own metadata log."""
    if cluster.is_own:
        return not_applicable("without a clean-shutdown marker only the metadata log of another node shows a later registration")
    if cluster.own_epoch is None:
        return not_known("there is no clean-shutdown marker, and no metadata log of the broker itself: it may be an old copy")
    if cluster.own_epoch != registered:
        return not_known(
            f"there is no clean-shutdown marker, the broker's own metadata log has its epoch {cluster.own_epoch}, the registration "
            f"{registered}: it may be an old copy"
        )
    return passes(f"no clean-shutdown marker; the broker's own metadata log has the broker epoch of the registration, {registered}")


def _writes_epochs(broker: BrokerRegistration) -> bool:
    """Whether a broker writes its epoch into the marker, as all from 3.9 on do (``CleanShutdownFileHandler``)."""
    return any(each.name == METADATA_VERSION and each.max_version >= METADATA_VERSION_3_9 for each in broker.features)


def high_watermark(evidence: SourceEvidence) -> Ruling:
    """R11: only what was committed leaves the replica; for an upload also only what is stable."""
    log, mark = evidence.log, evidence.log.high_watermark
    if not log.exists:
        return not_applicable(NO_REPLICA_YET)
    is_rebuild = evidence.purpose is Purpose.REBUILD
    if mark is None or mark < 0:
        found = "has no high watermark" if mark is None else f"has a negative high watermark, {mark}"
        told = f"replication-offset-checkpoint {found} for it"
        return not_applicable(f"{told}; a rebuild does not ask for it") if is_rebuild else not_known(f"{told}: a broker takes 0", 0)
    if is_rebuild:
        return passes(f"the high watermark is {mark}, the log ends at {log.log_end}: a rebuild describes local bytes")
    if log.is_stable_asked and log.last_stable is None:
        return not_known(f"the high watermark is {mark}, and the last stable offset could not be found", 0)
    limits = [mark, *(each for each in (log.log_end, log.last_stable) if each is not None)]
    stable = "" if log.last_stable is None else f", the last stable offset {log.last_stable}"
    return passes(f"the high watermark is {mark}{stable}", min(limits))


def log_end(evidence: SourceEvidence) -> Ruling:
    """R13: nothing is missing that was there: the log reaches its high watermark, and is not that of a fresh disk."""
    log, own = evidence.log, evidence.log_dir
    if not log.exists:
        return not_applicable(NO_REPLICA_YET)
    if log.log_end is None:
        return not_known("the end of the log cannot be read" if log.bases else "it has no segment")
    mark = log.high_watermark
    fault = next((each for each in own.faults if LOG_START_OFFSET_CHECKPOINT in each), None)
    if log.log_end < log.log_start and log.bases and not own.is_live:
        return fails(f"the log ends at {log.log_end}, below its log start offset {log.log_start}: a broker deletes it at its start")
    # After an unclean stop the high watermark must show it, too: a follower that was cut may not have written its recovery point again.
    is_short = own.has_marker or (mark is not None and log.log_end < mark)
    if is_short and log.recovery_point is not None and log.log_end < log.recovery_point and not own.is_live:
        return fails(f"the log ends at {log.log_end}, below its recovery point {log.recovery_point}: what was flushed is gone")
    if fault is not None:
        return not_known(fault, is_damaged=True)
    if own.has_marker and mark is not None and log.recovery_point is None:
        broken = next((each for each in own.faults if RECOVERY_POINT_CHECKPOINT in each), None)
        return not_known(
            broken or f"{RECOVERY_POINT_CHECKPOINT} has no line of it, and each clean stop writes one", is_damaged=True
        )
    if mark is not None and log.log_end < mark:
        told = f"the log ends at {log.log_end}, below its high watermark {mark}"
        if evidence.purpose is Purpose.REBUILD and not own.has_marker:
            return warns(f"{told}: lost with the unclean stop", log.closed_below(log.log_end))
        return fails(f"{told}: what was committed is gone")
    if mark is None and evidence.purpose is not Purpose.REBUILD:
        return not_known(f"the log ends at {log.log_end}, and whether it reached further is not known: it has no high watermark")
    if not log.is_empty:
        return passes(f"the log ends at {log.log_end}" + ("" if mark is None else f", its high watermark is {mark}"))
    return _empty(evidence)


def _empty(evidence: SourceEvidence) -> Ruling:
    """A disk that was replaced leaves an empty log, with a high watermark of 0, and nothing on it tells."""
    cluster, partition = _image(evidence), registered_partition(evidence)
    if not isinstance(cluster, str) and cluster.replaced_at is not None:
        return fails(f"empty, and this log directory was first registered at {cluster.replaced_at}, when the partition was there")
    peers = [peer for peer in evidence.peers if not is_of_another_log(evidence, peer)]
    longer = next((peer for peer in peers if (peer.log_end or 0) > (evidence.log.log_end or 0)), None)
    if longer is not None and evidence.purpose is not Purpose.REBUILD:
        return fails(f"empty, and {longer.path} ends at {longer.log_end}")
    if not isinstance(partition, str) and partition.leader_epoch > 0:
        return warns(f"empty, in leader epoch {partition.leader_epoch}: never written to, or the disk was replaced")
    return passes("empty")
