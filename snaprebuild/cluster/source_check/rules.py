"""The rules of a verdict on a source, except the leader epochs (``lineage``). Each is a decision table: the first case that applies rules.

Source: ``PartitionRegistration``, ``BrokerRegistration``, ``ReplicationControlManager``,
``LogManager.readBrokerEpochFromCleanShutdownFiles`` of Kafka 4.3.1.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from formats.partition.file_names import LOG_START_OFFSET_CHECKPOINT, PARTITION_METADATA, RECOVERY_POINT_CHECKPOINT, DirectoryForm
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cluster.metadata.registered_model import (
    LOST_DIRECTORY,
    METADATA_VERSION,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerRegistration,
    LeaderRecoveryState,
    directory_text,
)
from snaprebuild.cluster.source_check.evidence import LogDirEvidence, Purpose, SourceEvidence

__all__ = [
    "RuleState",
    "Ruling",
    "assignment",
    "broker_epoch",
    "broker_ids",
    "clean_shutdown",
    "decide",
    "directory_form",
    "directory_id",
    "fails",
    "high_watermark",
    "in_sync",
    "log_end",
    "not_applicable",
    "not_known",
    "passes",
    "recovery_state",
    "registration",
    "topic_id",
    "warns",
]


class RuleState(StrEnum):
    """The outcome of a rule."""

    PASS = "pass"  # noqa: S105  # no password
    WARN = "warn"
    """It does not reject, but needs attention."""
    FAIL = "fail"
    NOT_KNOWN = "not-known"
    """Evidence that should be there is missing, cannot be read, or contradicts itself."""
    NOT_APPLICABLE = "not-applicable"
    """Nothing is missing: this kind of cluster, or this question, has no such evidence."""


class Ruling(msgspec.Struct, frozen=True):
    """The outcome of a rule for one replica.

    Attributes:
        evidence: the facts, one sentence.
        limit: the replica is trusted below this offset only; None for all of it.
        is_asserted: it rests on what the operator asserts.
        is_damaged: a file of the replica that could reject it is damaged, or missing although each broker of this kind writes it.
    """

    state: RuleState
    evidence: str
    limit: int | None = None
    is_asserted: bool = False
    is_damaged: bool = False


def passes(evidence: str, limit: int | None = None, *, is_asserted: bool = False) -> Ruling:
    """A rule that holds."""
    return Ruling(RuleState.PASS, evidence, limit, is_asserted)


def warns(evidence: str, limit: int | None = None) -> Ruling:
    """A rule that holds with a reservation."""
    return Ruling(RuleState.WARN, evidence, limit)


def fails(evidence: str) -> Ruling:
    """A rule that rejects the replica."""
    return Ruling(RuleState.FAIL, evidence)


def not_known(evidence: str | None, limit: int | None = None, *, is_damaged: bool = False) -> Ruling:
    """A rule without evidence that should be there."""
    return Ruling(RuleState.NOT_KNOWN, evidence or "", limit, is_damaged=is_damaged)


def not_applicable(evidence: str | None) -> Ruling:
    """A rule without evidence that this kind of cluster, or this question, never has."""
    return Ruling(RuleState.NOT_APPLICABLE, evidence or "")


def decide(*cases: tuple[object, Ruling], otherwise: Ruling) -> Ruling:
    """The ruling of the first case whose condition holds. All rulings are made, so their texts must do without the facts that they need."""
    return next((ruling for applies, ruling in cases if applies), otherwise)


NO_BROKER_FILES = "a bare copy of a partition: no file of a broker is around it"
NO_REPLICA_YET = "there is no replica yet"
NO_NODE_ID = "the id of the broker is not known"
NO_BROKER = "the broker is not registered"
METADATA_VERSION_3_9 = 21
"""The highest ``metadata.version`` that 3.9 knows, 3.9-IV0 (``MetadataVersion``)."""

_FORMS = {
    DirectoryForm.DELETE: "the broker will delete this directory",
    DirectoryForm.STRAY: "the partition is no longer assigned to this broker",
    DirectoryForm.FUTURE: "the partition is being moved here from another log directory",
}


def _no_evidence(evidence: SourceEvidence, why: str | None) -> Ruling:
    """A rule of the cluster that has nothing to judge. Without a metadata log there is nothing that could be missing in it."""
    return not_known(why) if evidence.has_metadata_log else not_applicable(why)


def _fails_by_log(evidence: SourceEvidence, why: str) -> Ruling:
    """A rule that is broken unless the metadata log has lost its end.

    A broker that is no voter does not flush its own copy (``KafkaRaftClient.appendAsFollower``), so that after an unclean stop it may be
    older than the partitions next to it.
    """
    if evidence.known.is_own and not evidence.log_dir.has_marker:
        return not_known(f"{why}; but after an unclean stop the broker's own metadata log may have lost its end (--metadata)")
    return fails(why)


def _uuid(value: bytes | None) -> str:
    return "none" if value is None else uuid_to_text(value)


def directory_form(evidence: SourceEvidence) -> Ruling:
    """R1: the name is plain, and no compaction was interrupted."""
    log = evidence.log
    return decide(
        (log.form in _FORMS, fails(f"the directory name is not plain ({log.form.value}): {_FORMS.get(log.form)}")),
        (log.swapped is not None, fails(f"a compaction was interrupted ({log.swapped}): start and stop a broker first")),
        otherwise=passes("the name is plain, and no compaction was interrupted"),
    )


def broker_ids(evidence: SourceEvidence) -> Ruling:
    """R2: meta.properties can be read, and all directories of the broker are of one cluster and node."""
    own, log_of = evidence.log_dir, None if evidence.cluster is None else evidence.cluster.cluster_id
    mixed = [
        f"{what} is {mine} here and {theirs} in {other.path}: not of one broker"
        for other in own.siblings
        for what, mine, theirs in (("cluster.id", own.cluster_id, other.cluster_id), ("node.id", own.node_id, other.node_id))
        if mine is not None and theirs is not None and mine != theirs
    ]
    siblings = f", as in {len(own.siblings)} other log directories" if own.siblings else ""
    return decide(
        (own.meta_fault is not None, fails(f"meta.properties cannot be read: {own.meta_fault}")),
        (not own.has_meta and not own.is_broker_directory, not_applicable(NO_BROKER_FILES)),
        (
            not own.has_meta and evidence.has_metadata_log,
            fails(
                "there is no meta.properties, which a KRaft broker has in each log directory: the owner of the replica is unknown"
            ),
        ),
        (not own.has_meta, not_known("there is no meta.properties")),
        (own.node_id is None, fails("meta.properties names no broker")),
        (mixed, fails("".join(mixed[:1]))),
        (
            None not in (log_of, own.cluster_id) and log_of != own.cluster_id,
            fails(f"cluster.id is {own.cluster_id} here and {log_of} next to the metadata log: of another cluster"),
        ),
        otherwise=passes(f"node {own.node_id} of cluster {own.cluster_id}{siblings}"),
    )


def registration(evidence: SourceEvidence) -> Ruling:
    """R3: the cluster knows the broker."""
    cluster, node = evidence.known, evidence.log_dir.node_id
    return decide(
        (evidence.why_unknown, _no_evidence(evidence, evidence.why_unknown)),
        (node is None, not_known(NO_NODE_ID)),
        (cluster.broker is None, _fails_by_log(evidence, f"node {node} is not registered at offset {cluster.offset}")),
        otherwise=passes(f"node {node} is registered with broker epoch {cluster.broker_epoch}"),
    )


def directory_id(evidence: SourceEvidence) -> Ruling:
    """R4: the log directory is one that the broker registered with."""
    own, registered = evidence.log_dir.directory_id, evidence.known.broker_directories
    ids = ", ".join(map(directory_text, registered))
    return decide(
        (evidence.known.broker is None, _no_evidence(evidence, evidence.why_unknown or NO_BROKER)),
        (not registered, not_applicable("the broker registered no directory ids (metadata.version before 3.7-IV2)")),
        (
            own is None and evidence.log_dir.has_meta,
            fails(
                f"meta.properties has no directory.id, and the broker registered with some ({ids}): a backup from before its upgrade"
            ),
        ),
        (own is None, not_known("there is no meta.properties with a directory.id")),
        (
            own not in registered,
            fails(f"directory.id {_uuid(own)} is not one of those that the broker registered with ({ids}): the disk was replaced"),
        ),
        otherwise=passes(f"directory.id {_uuid(own)} is registered"),
    )


def topic_id(evidence: SourceEvidence) -> Ruling:
    """R5: it is the topic that the cluster has under this name."""
    log, cluster = evidence.log, evidence.known
    fault = log.fault_of(PARTITION_METADATA)
    now = f"topic id {_uuid(log.topic_id)} here, {_uuid(cluster.topic_id)} in the cluster"
    return decide(
        (fault, not_known(fault, is_damaged=True)),
        (
            log.topic_id is None and evidence.has_metadata_log,
            fails("there is no partition.metadata: a KRaft broker takes a log without a topic id for a stray one"),
        ),
        (evidence.why_unknown, _no_evidence(evidence, evidence.why_unknown)),
        (
            cluster.topic_id is None,
            _fails_by_log(evidence, f"the cluster has no topic {log.topic} at offset {cluster.offset}: it was deleted"),
        ),
        (log.topic_id != cluster.topic_id, _fails_by_log(evidence, f"{now}: the topic was deleted and made again")),
        otherwise=passes(f"topic id {_uuid(log.topic_id)}"),
    )


def assignment(evidence: SourceEvidence) -> Ruling:
    """R6: the broker is a replica, in this log directory."""
    cluster, node, own = evidence.known, evidence.log_dir.node_id, evidence.log_dir.directory_id
    replicas, assigned = list(cluster.registered.replicas), cluster.registered.directory_of(node)
    is_one = f"node {node} is one of the replicas {replicas}"
    return decide(
        (evidence.why_unknown, _no_evidence(evidence, evidence.why_unknown)),
        (
            evidence.log.topic_id not in (None, cluster.topic_id) or cluster.topic_id is None,
            not_known("the cluster has no topic of this id"),
        ),
        (node is None, not_known(NO_NODE_ID)),
        (cluster.broker is None, not_known(NO_BROKER)),
        (cluster.partition is None, _fails_by_log(evidence, "the topic has no such partition in the cluster")),
        (
            assigned is None,
            _fails_by_log(evidence, f"node {node} is not one of the replicas {replicas}: the partition was reassigned"),
        ),
        (assigned == LOST_DIRECTORY, fails("the cluster has its directory for lost")),
        (
            own is None or assigned == MIGRATING_DIRECTORY or own not in cluster.broker_directories,
            passes(f"{is_one}; in which directory is not known"),
        ),
        (assigned == UNASSIGNED_DIRECTORY, warns(f"{is_one}, and has not reported to the cluster in which directory")),
        (
            assigned != own,
            _fails_by_log(evidence, f"the cluster has it in directory {_uuid(assigned)}, not in {_uuid(own)}"),
        ),
        otherwise=passes(f"{is_one}, in this directory"),
    )


def in_sync(evidence: SourceEvidence) -> Ruling:
    """R7: it is in sync, or eligible to lead, or leads. A rebuild needs no such rule: it describes local bytes."""
    partition, node = evidence.registered, evidence.log_dir.node_id
    why = evidence.why_unregistered or (
        NO_NODE_ID if node is None else None if node in partition.replicas else "it is not a replica"
    )
    detail = f"ISR {list(partition.isr)}, eligible leader replicas {list(partition.elr)}, leader {partition.leader}"
    return decide(
        (not evidence.log.exists, not_applicable(NO_REPLICA_YET)),
        (
            why and evidence.leader_asserted and _may_lead(evidence),
            passes(f"the operator asserts that it leads (--i-am-the-leader): {why}", is_asserted=True),
        ),
        (why, _no_evidence(evidence, why)),
        (node in partition.isr or node in partition.elr or node == partition.leader, passes(detail)),
        (
            evidence.purpose is Purpose.REBUILD,
            passes(f"not in {detail}, as after a controlled shutdown: not asked of a rebuild, which describes local bytes"),
        ),
        otherwise=fails(f"node {node} is not in {detail}"),
    )


def _may_lead(evidence: SourceEvidence) -> bool:
    """Whether no evidence on disk contradicts the operator: no metadata log is at hand, or an older one agrees."""
    cluster, node = evidence.cluster, evidence.log_dir.node_id
    if cluster is None:
        return not evidence.is_cluster_unreadable
    known = cluster.registered
    return (
        cluster.older is not None
        and node is not None
        and (cluster.partition is None or node in (*known.isr, *known.elr, known.leader))
    )


def recovery_state(evidence: SourceEvidence) -> Ruling:
    """R8: no unclean election without a recovery after it.

    With one replica that state never ends, because only a change of the ISR ends it. The replica then holds all that there is.
    """
    detail = "RECOVERING: its leader was elected uncleanly"
    return decide(
        (evidence.why_unregistered, _no_evidence(evidence, evidence.why_unregistered)),
        (evidence.registered.leader_recovery_state is not LeaderRecoveryState.RECOVERING, passes("RECOVERED")),
        (len(evidence.registered.replicas) > 1, fails(f"{detail}, and committed records may be missing here")),
        (evidence.log.is_empty, fails(f"{detail}, and its only replica is empty: the disk was replaced")),
        otherwise=warns(f"{detail}; with one replica that state never ends, and this replica holds all that there is"),
    )


def clean_shutdown(evidence: SourceEvidence) -> Ruling:
    """R9: the broker stopped cleanly, or only what was flushed and replicated is trusted."""
    own, log = evidence.log_dir, evidence.log
    # A broker takes 0 for what has no line in a checkpoint.
    flushed, replicated = max(log.recovery_point or 0, 0), max(log.high_watermark or 0, 0)
    siblings = _registered_siblings(evidence)
    unclean = next((each.path for each in siblings if not each.has_marker), None)
    why = "a live broker is at work" if own.is_live else "no clean-shutdown marker"
    why += f" in {unclean}" if own.has_marker and not own.is_live else ""
    others = {each.marker_epoch for each in siblings} - {own.marker_epoch}
    return decide(
        (not log.exists, not_applicable(NO_REPLICA_YET)),
        (not own.is_broker_directory, not_known(NO_BROKER_FILES)),
        (
            own.is_live and own.live_epoch is not None and not own.has_marker,
            passes(
                f"a live broker, of epoch {own.live_epoch} as --broker-epoch says: rolled segments below its high watermark",
                log.closed_below(replicated),
            ),
        ),
        (
            own.is_live or not own.has_marker or (unclean is not None and evidence.purpose is not Purpose.REBUILD),
            warns(
                f"{why}: only rolled segments below its recovery point {flushed} and its high watermark {replicated}",
                log.closed_below(min(flushed, replicated)),
            ),
        ),
        (unclean is not None, warns(f"stopped cleanly here, and {unclean} has no clean-shutdown marker")),
        (others, warns(f"stopped cleanly, with epoch {own.marker_epoch} here and {', '.join(map(str, others))} elsewhere")),
        (own.marker_epoch is None, passes("stopped cleanly; the marker has no epoch")),
        otherwise=passes("stopped cleanly"),
    )


def _registered_siblings(evidence: SourceEvidence) -> tuple[LogDirEvidence, ...]:
    """The other log directories of the broker, without disks that were taken out of it, as far as the cluster knows them."""
    registered = evidence.known.broker_directories
    return tuple(
        each for each in evidence.log_dir.siblings if not (registered and each.has_meta) or each.directory_id in registered
    )


def broker_epoch(evidence: SourceEvidence) -> Ruling:
    """R10: the broker did not register again since."""
    cluster, own = evidence.cluster, evidence.log_dir
    epoch, marker = own.stopped_epoch, "no broker epoch" if own.marker_epoch is None else f"broker epoch {own.marker_epoch}"
    if own.live_epoch is not None and own.has_marker and own.marker_epoch != own.live_epoch:
        return fails(
            f"--broker-epoch names a running broker of epoch {own.live_epoch}, and there is a clean-shutdown marker with {marker}: "
            "an old copy of its disk"
        )
    if cluster is None or cluster.broker is None:
        return _no_evidence(evidence, evidence.cluster_missing if cluster is None else NO_BROKER)
    registered, origin = cluster.broker.epoch, "the clean-shutdown marker" if own.has_marker else "--broker-epoch"
    no_marker = "there is no clean-shutdown marker,"
    return decide(
        (
            own.has_marker and own.is_marker_unregistered,
            not_applicable("the broker stopped before it had registered, so that its clean-shutdown marker has no epoch"),
        ),
        (
            own.has_marker and epoch is None and _writes_epochs(cluster.broker),
            fails(
                "the clean-shutdown marker has no broker epoch, and the broker that registered always writes one: "
                "a backup from before its upgrade"
            ),
        ),
        (own.has_marker and epoch is None, not_applicable("clean-shutdown markers of brokers before 3.9 have no epoch")),
        # After an unclean stop no file of an old copy has a later registration, not even its own metadata log.
        (
            epoch is None and cluster.is_own,
            not_applicable("without a clean-shutdown marker only the metadata log of another node shows a later registration"),
        ),
        (
            epoch is None and cluster.own_epoch is None,
            not_known(f"{no_marker} and no metadata log of the broker itself: it may be an old copy"),
        ),
        (
            epoch is None and cluster.own_epoch != registered,
            not_known(
                f"{no_marker} the broker's own metadata log has its epoch {cluster.own_epoch}, the registration {registered}: it may be "
                "an old copy"
            ),
        ),
        (
            epoch is None,
            passes(
                f"no clean-shutdown marker; the broker's own metadata log has the broker epoch of the registration, {registered}"
            ),
        ),
        (cluster.older is not None and (epoch or 0) > registered, not_known(cluster.older)),
        (
            epoch != registered,
            fails(f"{origin} has broker epoch {epoch}, the registration {registered}: the broker registered again since"),
        ),
        otherwise=passes(f"{origin} has the broker epoch of the registration, {epoch}"),
    )


def _writes_epochs(broker: BrokerRegistration) -> bool:
    """Whether a broker writes its epoch into the marker, as all from 3.9 on do (``CleanShutdownFileHandler``)."""
    return any(each.name == METADATA_VERSION and each.max_version >= METADATA_VERSION_3_9 for each in broker.features)


def high_watermark(evidence: SourceEvidence) -> Ruling:
    """R11: only what was committed leaves the replica; for an upload also only what is stable."""
    log, mark, is_rebuild = evidence.log, evidence.log.high_watermark, evidence.purpose is Purpose.REBUILD
    is_missing = mark is None or mark < 0
    found = "has no high watermark" if mark is None else f"has a negative high watermark, {mark}"
    detail = f"replication-offset-checkpoint {found} for it"
    limits = [each for each in (mark, log.log_end, log.last_stable) if each is not None]
    stable = "" if log.last_stable is None else f", the last stable offset {log.last_stable}"
    return decide(
        (not log.exists, not_applicable(NO_REPLICA_YET)),
        (is_missing and is_rebuild, not_applicable(f"{detail}; a rebuild does not ask for it")),
        (is_missing, not_known(f"{detail}: a broker takes 0", 0)),
        (is_rebuild, passes(f"the high watermark is {mark}, the log ends at {log.log_end}: a rebuild describes local bytes")),
        (
            log.is_stable_asked and log.last_stable is None,
            not_known(f"the high watermark is {mark}, and the last stable offset could not be found", 0),
        ),
        otherwise=passes(f"the high watermark is {mark}{stable}", min(limits, default=None)),
    )


def log_end(evidence: SourceEvidence) -> Ruling:
    """R13: nothing is missing that was there: the log reaches its high watermark, and is not that of a fresh disk."""
    log, own, mark = evidence.log, evidence.log_dir, evidence.log.high_watermark
    if not log.exists:
        return not_applicable(NO_REPLICA_YET)
    if log.log_end is None:
        return not_known("the end of the log cannot be read" if log.bases else "it has no segment")
    end, is_rebuild = log.log_end, evidence.purpose is Purpose.REBUILD
    start_fault, flush_fault = own.fault_of(LOG_START_OFFSET_CHECKPOINT), own.fault_of(RECOVERY_POINT_CHECKPOINT)
    is_below_mark = mark is not None and end < mark
    below = f"the log ends at {end}, below its high watermark {mark}"
    # After an unclean stop the high watermark must show it, too: a follower that was cut may not have written its recovery point again.
    is_short = (own.has_marker or is_below_mark) and log.recovery_point is not None and end < log.recovery_point
    return decide(
        (
            end < log.log_start and log.bases and not own.is_live,
            fails(f"the log ends at {end}, below its log start offset {log.log_start}: a broker deletes it at its start"),
        ),
        (
            is_short and not own.is_live,
            fails(f"the log ends at {end}, below its recovery point {log.recovery_point}: flushed records are gone"),
        ),
        (start_fault, not_known(start_fault, is_damaged=True)),
        (
            own.has_marker and mark is not None and log.recovery_point is None,
            not_known(
                flush_fault or f"{RECOVERY_POINT_CHECKPOINT} has no line of it, and each clean stop writes one", is_damaged=True
            ),
        ),
        (is_below_mark and is_rebuild and not own.has_marker, warns(f"{below}: lost with the unclean stop", log.closed_below(end))),
        (is_below_mark, fails(f"{below}: committed records are gone")),
        (
            mark is None and not is_rebuild,
            not_known(f"the log ends at {end}, and whether it reached further is not known: it has no high watermark"),
        ),
        (log.is_empty, _empty(evidence)),
        otherwise=passes(f"the log ends at {end}" + ("" if mark is None else f", its high watermark is {mark}")),
    )


def _empty(evidence: SourceEvidence) -> Ruling:
    """A replaced disk leaves an empty log, with a high watermark of 0; nothing on it shows that."""
    replaced_at, epoch = evidence.known.replaced_at, evidence.registered.leader_epoch
    peers = [peer for peer in evidence.peers if not evidence.is_of_another_log(peer)]
    longer = [f"{peer.path} ends at {peer.log_end}" for peer in peers if (peer.log_end or 0) > (evidence.log.log_end or 0)]
    return decide(
        (
            replaced_at is not None,
            fails(f"empty, and this log directory was first registered at {replaced_at}, when the partition was there"),
        ),
        (longer and evidence.purpose is not Purpose.REBUILD, fails(f"empty, and {longer[0] if longer else ''}")),
        (epoch > 0, warns(f"empty, in leader epoch {epoch}: never written to, or the disk was replaced")),
        otherwise=passes("empty"),
    )
