"""Rules R1 to R13 by their states: each has rows of faults and of healthy forms, and says which states it never has.

The expected states come from Kafka. Its controller registers brokers and replicas (KIP-858, KIP-903, KIP-966). A broker writes a marker
when it stops, and deletes logs when it starts (``LogManager``). A follower cuts its log (KIP-101). No row needs a file.
"""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rule_marks import HOLDS, MARKS, NOT_APPLICABLE, REJECTS, UNKNOWN, WARNS, Mark, mark_of

from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.file_names import DirectoryForm
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cluster.metadata.registered_model import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerRegistration,
    FeatureLevels,
    LeaderRecoveryState,
    PartitionRegistration,
    directory_text,
)
from snaprebuild.cluster.source_check.evidence import LogDirEvidence, LogEvidence, MetadataEvidence, PeerEvidence, SourceEvidence
from snaprebuild.cluster.source_check.rules import SourceRule, SourceRuleResult
from snaprebuild.cluster.source_check.verdict import SourceVerdict, judge
from snaprebuild.snapshots.plan.source_verdict import Purpose
from snaprebuild.storage.log_dir import ClusterKind

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cluster-rules.md"
TOPIC, OTHER_TOPIC = b"t" * 16, b"u" * 16
DISK, SECOND_DISK, OTHER_DISK = b"d" * 16, b"e" * 16, b"f" * 16
OTHER_PLACES = (directory_text(b"2" * 16), directory_text(b"3" * 16))
EPOCHS = (LeaderEpochEntry(0, 0), LeaderEpochEntry(3, 120))
BROKER = BrokerRegistration(
    node_id=1,
    epoch=15,
    incarnation_id=uuid_to_text(b"i" * 16),
    fenced=False,
    in_controlled_shutdown=False,
    directories=(directory_text(DISK), directory_text(SECOND_DISK)),
    cordoned_directories=None,
    rack=None,
    listeners=(),
    features={"metadata.version": FeatureLevels(1, 29)},
)
PARTITION = PartitionRegistration(
    replicas=(2, 3, 1),
    directories=(*OTHER_PLACES, directory_text(DISK)),
    isr=(1, 2, 3),
    removing=(),
    adding=(),
    elr=(),
    last_known_elr=(),
    leader=2,
    leader_recovery_state=LeaderRecoveryState.RECOVERED,
    leader_epoch=3,
    partition_epoch=7,
)
LOG = LogEvidence(
    path="/d/orders-1",
    topic="orders",
    partition=1,
    topic_id=TOPIC,
    bases=(0, 100, 200),
    log_end_offset=250,
    high_watermark=250,
    recovery_point=250,
    epochs=EPOCHS,
    tail_epoch=3,
)
LOG_DIR = LogDirEvidence(
    path="/d",
    has_meta=True,
    kind=ClusterKind.KRAFT,
    node_id=1,
    cluster_id="c",
    directory_id=DISK,
    has_marker=True,
    marker_epoch=15,
)
CLUSTER = MetadataEvidence(path="/m", offset=347, cluster_id="c", broker=BROKER, topic_id=TOPIC, partition=PARTITION)
PEER = PeerEvidence("/p/orders-1", "c", TOPIC, EPOCHS, 0, 250)
SECOND = LogDirEvidence(
    path="/e", has_meta=True, node_id=1, cluster_id="c", directory_id=SECOND_DISK, has_marker=True, marker_epoch=15
)
NO_LOG: dict[str, Any] = {"cluster": None}
ZOOKEEPER: dict[str, Any] = {
    "cluster": None,
    "log_dir.kind": ClusterKind.ZOOKEEPER,
    "log_dir.directory_id": None,
    "log_dir.marker_epoch": None,
    "log.topic_id": None,
}
BARE: dict[str, Any] = {
    "cluster": None,
    "log_dir": LogDirEvidence(path="/copy", is_broker_directory=False),
}
OLDER: dict[str, Any] = {"cluster.older": "the metadata log ends earlier"}
UNCLEAN: dict[str, Any] = {"log_dir.has_marker": False, "log_dir.marker_epoch": None}
OWN_LOG: dict[str, Any] = {"cluster.is_own": True}
NOT_YET: dict[str, Any] = {
    "log": LogEvidence("/d/orders-1", "orders", 1, topic_id=TOPIC, exists=False),
    "purpose": Purpose.BOOTSTRAP,
}
REBUILD: dict[str, Any] = {"purpose": Purpose.REBUILD}
LIVE: dict[str, Any] = {**UNCLEAN, "log_dir.is_live": True}
EMPTY: dict[str, Any] = {
    "log.bases": (0,),
    "log.log_end_offset": 0,
    "log.high_watermark": 0,
    "log.recovery_point": 0,
    "log.epochs": (),
    "log.tail_epoch": None,
}
NOT_IN_SYNC: dict[str, Any] = {"cluster.partition.isr": (2, 3)}
RECOVERING: dict[str, Any] = {"cluster.partition.leader_recovery_state": LeaderRecoveryState.RECOVERING}
ALONE: dict[str, Any] = {
    "cluster.partition.replicas": (1,),
    "cluster.partition.directories": (directory_text(DISK),),
    "cluster.partition.isr": (1,),
}


def changed(value: Any, path: list[str], to: Any) -> Any:
    """A struct with one field, below others, changed."""
    name, *rest = path
    return msgspec.structs.replace(value, **{name: changed(getattr(value, name), rest, to) if rest else to})


def evidence(**changes: Any) -> SourceEvidence:
    """The evidence of a healthy replica for an upload, with these changes; a name with dots is that of a field below."""
    found = SourceEvidence(purpose=Purpose.UPLOAD, log=LOG, log_dir=LOG_DIR, cluster=CLUSTER)
    for name, value in changes.items():
        found = changed(found, name.split("."), value)
    return found


def of_registrations(directory: str) -> dict[str, Any]:
    """The directory in which the cluster has the replica of this broker."""
    return {"cluster.partition.directories": (*OTHER_PLACES, directory)}


Row = tuple[SourceRule, Mark, str, dict[str, Any]]
ROWS: list[Row] = [
    (SourceRule.R1, HOLDS, "a plain name", {}),
    (SourceRule.R1, REJECTS, "the broker deletes it", {"log.form": DirectoryForm.DELETE}),
    (SourceRule.R1, REJECTS, "the broker found it assigned to others", {"log.form": DirectoryForm.STRAY}),
    (SourceRule.R1, REJECTS, "it is being moved here", {"log.form": DirectoryForm.FUTURE}),
    (SourceRule.R1, REJECTS, "a compaction was interrupted", {"log.swapped": "00000000000000000083.log.swap"}),
    (SourceRule.R2, HOLDS, "the ids of one broker", {}),
    (SourceRule.R2, HOLDS, "another disk of the broker", {"log_dir.siblings": (SECOND,)}),
    (SourceRule.R2, HOLDS, "a metadata log without meta.properties next to it", {"cluster.cluster_id": None}),
    (
        SourceRule.R2,
        HOLDS,
        "another disk whose meta.properties is gone",
        {"log_dir.siblings": (LogDirEvidence(path="/e", has_marker=True),)},
    ),
    (
        SourceRule.R2,
        REJECTS,
        "meta.properties cannot be read",
        {"log_dir.meta_fault": "/d/meta.properties: line 3", "log_dir.has_meta": False},
    ),
    (
        SourceRule.R2,
        REJECTS,
        "meta.properties is gone, and there is a metadata log",
        {"log_dir.has_meta": False, "log_dir.node_id": None},
    ),
    (
        SourceRule.R2,
        REJECTS,
        "the same without a metadata log",
        {**NO_LOG, "log_dir.meta_fault": "/d/meta.properties: line 3", "log_dir.has_meta": False, "log_dir.node_id": None},
    ),
    (SourceRule.R2, REJECTS, "it names no broker", {"log_dir.node_id": None}),
    (SourceRule.R2, REJECTS, "a disk of another cluster", {"log_dir.siblings": (changed(SECOND, ["cluster_id"], "x"),)}),
    (SourceRule.R2, REJECTS, "a disk of another broker", {"log_dir.siblings": (changed(SECOND, ["node_id"], 2),)}),
    (SourceRule.R2, REJECTS, "the metadata log of another cluster", {"cluster.cluster_id": "x"}),
    (SourceRule.R2, UNKNOWN, "meta.properties is gone", {**NO_LOG, "log_dir.has_meta": False, "log_dir.node_id": None}),
    (SourceRule.R2, NOT_APPLICABLE, "a bare copy", BARE),
    (SourceRule.R3, HOLDS, "registered", {}),
    (SourceRule.R3, HOLDS, "registered, by its own log after an unclean stop", {**OWN_LOG, **UNCLEAN}),
    (SourceRule.R3, REJECTS, "not registered", {"cluster.broker": None}),
    (SourceRule.R3, REJECTS, "its run is over, whatever was lost", {**OLDER, "cluster.broker": None, "cluster.epoch_owner": 1}),
    (SourceRule.R3, UNKNOWN, "no metadata log on a KRaft disk", NO_LOG),
    (SourceRule.R3, UNKNOWN, "the metadata log is older", OLDER),
    (SourceRule.R3, UNKNOWN, "not registered in a log that lost its end", {**OLDER, "cluster.broker": None}),
    (SourceRule.R3, UNKNOWN, "whose disk it is is not known", {"log_dir.node_id": None}),
    (SourceRule.R3, UNKNOWN, "its own log after an unclean stop may lack it", {**OWN_LOG, **UNCLEAN, "cluster.broker": None}),
    (SourceRule.R3, NOT_APPLICABLE, "a cluster with ZooKeeper", ZOOKEEPER),
    (SourceRule.R3, NOT_APPLICABLE, "a bare copy", BARE),
    (SourceRule.R4, HOLDS, "one of its directories", {}),
    (SourceRule.R4, HOLDS, "the other one", {"log_dir.directory_id": SECOND_DISK}),
    (SourceRule.R4, REJECTS, "none of its directories", {"log_dir.directory_id": OTHER_DISK}),
    (SourceRule.R4, REJECTS, "a backup from before 3.7", {"log_dir.directory_id": None}),
    (
        SourceRule.R4,
        REJECTS,
        "none of those of its last run",
        {**OLDER, "cluster.epoch_owner": 1, "log_dir.directory_id": OTHER_DISK},
    ),
    (SourceRule.R4, UNKNOWN, "meta.properties is gone", {"log_dir.has_meta": False, "log_dir.directory_id": None}),
    (SourceRule.R4, UNKNOWN, "the broker is not registered", {"cluster.broker": None}),
    (SourceRule.R4, UNKNOWN, "no metadata log on a KRaft disk", NO_LOG),
    (
        SourceRule.R4,
        UNKNOWN,
        "a lost record may have added it",
        {**OLDER, "log_dir.directory_id": OTHER_DISK, "log_dir.marker_epoch": 400},
    ),
    (SourceRule.R4, NOT_APPLICABLE, "metadata.version before 3.7-IV2", {"cluster.broker.directories": ()}),
    (SourceRule.R4, NOT_APPLICABLE, "a cluster with ZooKeeper", ZOOKEEPER),
    (SourceRule.R5, HOLDS, "the topic of the name", {}),
    (SourceRule.R5, REJECTS, "the topic was deleted", {"cluster.topic_id": None, "cluster.partition": None}),
    (SourceRule.R5, REJECTS, "made again under the name", {"cluster.topic_id": OTHER_TOPIC}),
    (SourceRule.R5, REJECTS, "no topic id: a stray log", {"log.topic_id": None}),
    (SourceRule.R5, REJECTS, "no topic id on a KRaft disk alone", {**NO_LOG, "log.topic_id": None}),
    (
        SourceRule.R5,
        REJECTS,
        "ids are never used again, so an older log shows it, too",
        {**OLDER, "cluster.topic_id": OTHER_TOPIC, "cluster.is_topic_removed": True},
    ),
    (
        SourceRule.R5,
        REJECTS,
        "deleted, by its own log after an unclean stop",
        {**OWN_LOG, **UNCLEAN, "cluster.topic_id": None, "cluster.is_topic_removed": True},
    ),
    (
        SourceRule.R5,
        UNKNOWN,
        "partition.metadata is damaged",
        {"log.topic_id": None, "log.faults": ("partition.metadata: version 7",)},
    ),
    (SourceRule.R5, UNKNOWN, "its own log after an unclean stop may lack it", {**OWN_LOG, **UNCLEAN, "cluster.topic_id": None}),
    (SourceRule.R5, UNKNOWN, "a lost record may have made it", {**OLDER, "cluster.topic_id": None}),
    (SourceRule.R5, UNKNOWN, "no metadata log on a KRaft disk", NO_LOG),
    (SourceRule.R5, NOT_APPLICABLE, "a cluster with ZooKeeper", ZOOKEEPER),
    (SourceRule.R6, HOLDS, "assigned, in this directory", {}),
    (SourceRule.R6, HOLDS, "assigned before directories had ids", of_registrations(MIGRATING_DIRECTORY)),
    (SourceRule.R6, HOLDS, "a disk without an id", {"log_dir.directory_id": None}),
    (SourceRule.R6, WARNS, "the broker has yet to report the directory", of_registrations(UNASSIGNED_DIRECTORY)),
    (SourceRule.R6, REJECTS, "reassigned", {"cluster.partition.replicas": (2, 3, 4)}),
    (SourceRule.R6, REJECTS, "in its other directory", of_registrations(directory_text(SECOND_DISK))),
    (SourceRule.R6, REJECTS, "its directory is lost", of_registrations(LOST_DIRECTORY)),
    (SourceRule.R6, REJECTS, "the topic has fewer partitions", {"cluster.partition": None}),
    (SourceRule.R6, UNKNOWN, "the topic is another one", {"cluster.topic_id": OTHER_TOPIC}),
    (SourceRule.R6, UNKNOWN, "the topic is gone", {"cluster.topic_id": None, "cluster.partition": None}),
    (SourceRule.R6, UNKNOWN, "whose disk it is is not known", {"log_dir.node_id": None}),
    (SourceRule.R6, UNKNOWN, "the broker is not registered", {"cluster.broker": None}),
    (
        SourceRule.R6,
        UNKNOWN,
        "its own log after an unclean stop may lack it",
        {**OWN_LOG, **UNCLEAN, "cluster.partition.replicas": (2, 3, 4)},
    ),
    (SourceRule.R6, UNKNOWN, "a lost record may have assigned it", {**OLDER, "cluster.partition.replicas": (2, 3, 4)}),
    (SourceRule.R6, UNKNOWN, "no metadata log on a KRaft disk", NO_LOG),
    (SourceRule.R6, NOT_APPLICABLE, "a cluster with ZooKeeper", ZOOKEEPER),
    (SourceRule.R7, HOLDS, "in sync", {}),
    (SourceRule.R7, HOLDS, "eligible to lead (KIP-966)", {**NOT_IN_SYNC, "cluster.partition.elr": (1,)}),
    (SourceRule.R7, HOLDS, "the leader", {**NOT_IN_SYNC, "cluster.partition.leader": 1}),
    (SourceRule.R7, HOLDS, "a rebuild describes local bytes", {**NOT_IN_SYNC, **REBUILD}),
    (SourceRule.R7, HOLDS, "the operator's word, with ZooKeeper", {**ZOOKEEPER, "i_am_the_leader": True}),
    (SourceRule.R7, REJECTS, "not in sync", NOT_IN_SYNC),
    (SourceRule.R7, UNKNOWN, "no metadata log on a KRaft disk", NO_LOG),
    (SourceRule.R7, UNKNOWN, "the same, whatever the operator says", {**NO_LOG, "i_am_the_leader": True}),
    (SourceRule.R7, UNKNOWN, "no replica", {"cluster.partition.replicas": (2, 3, 4)}),
    (SourceRule.R7, UNKNOWN, "whose disk it is is not known", {"log_dir.node_id": None}),
    (SourceRule.R7, NOT_APPLICABLE, "a replica that is yet to be made", NOT_YET),
    (SourceRule.R7, NOT_APPLICABLE, "a cluster with ZooKeeper", ZOOKEEPER),
    (SourceRule.R8, HOLDS, "recovered", {}),
    (SourceRule.R8, WARNS, "one replica: the state never ends", {**RECOVERING, **ALONE}),
    (SourceRule.R8, REJECTS, "elected uncleanly", RECOVERING),
    (SourceRule.R8, REJECTS, "its only replica is empty", {**RECOVERING, **ALONE, **EMPTY}),
    (SourceRule.R8, UNKNOWN, "no metadata log on a KRaft disk", NO_LOG),
    (SourceRule.R8, UNKNOWN, "the partition is not known", {"cluster.partition": None}),
    (SourceRule.R8, NOT_APPLICABLE, "a cluster with ZooKeeper", ZOOKEEPER),
    (SourceRule.R9, HOLDS, "stopped cleanly", {}),
    (SourceRule.R9, HOLDS, "stopped cleanly, before 3.9", {"log_dir.marker_epoch": None, "cluster.broker.features": {}}),
    (SourceRule.R9, HOLDS, "a live broker of a known epoch", {**LIVE, "log_dir.live_epoch": 15}),
    (
        SourceRule.R9,
        HOLDS,
        "a disk that was taken out has no marker",
        {"log_dir.siblings": (changed(changed(SECOND, ["directory_id"], OTHER_DISK), ["has_marker"], False),)},
    ),
    (SourceRule.R9, WARNS, "no marker", UNCLEAN),
    (SourceRule.R9, WARNS, "a live broker of an unknown epoch", LIVE),
    (SourceRule.R9, WARNS, "no marker on its other disk", {"log_dir.siblings": (changed(SECOND, ["has_marker"], False),)}),
    (
        SourceRule.R9,
        WARNS,
        "the same, for a rebuild",
        {**REBUILD, "log_dir.siblings": (changed(SECOND, ["has_marker"], False),)},
    ),
    (SourceRule.R9, WARNS, "markers of two starts", {"log_dir.siblings": (changed(SECOND, ["marker_epoch"], 14),)}),
    (SourceRule.R9, UNKNOWN, "a bare copy", BARE),
    (SourceRule.R9, NOT_APPLICABLE, "a replica that is yet to be made", NOT_YET),
    (SourceRule.R10, HOLDS, "the epoch of the registration", {}),
    (SourceRule.R10, HOLDS, "of a live broker", {**LIVE, "log_dir.live_epoch": 15}),
    (SourceRule.R10, HOLDS, "its own log has the epoch", {**UNCLEAN, "cluster.own_epoch": 15}),
    (SourceRule.R10, HOLDS, "its own log is accepted", {**UNCLEAN, **OWN_LOG, "accept_own_log": True}),
    (SourceRule.R10, REJECTS, "registered again since", {"log_dir.marker_epoch": 14}),
    (SourceRule.R10, REJECTS, "registered again since, by a log that is older", {**OLDER, "log_dir.marker_epoch": 14}),
    (SourceRule.R10, REJECTS, "the disk of another broker", {"cluster.epoch_owner": 2}),
    (SourceRule.R10, REJECTS, "a marker next to a live broker", {"log_dir.live_epoch": 16}),
    (SourceRule.R10, REJECTS, "a marker from before 3.9", {"log_dir.marker_epoch": None}),
    (SourceRule.R10, UNKNOWN, "no metadata log on a KRaft disk", NO_LOG),
    (SourceRule.R10, UNKNOWN, "the broker is not registered", {"cluster.broker": None}),
    (SourceRule.R10, UNKNOWN, "a later registration is lost", {**OLDER, "log_dir.marker_epoch": 400}),
    (SourceRule.R10, UNKNOWN, "the log is older", OLDER),
    (SourceRule.R10, UNKNOWN, "no marker, and no log of its own", UNCLEAN),
    (SourceRule.R10, UNKNOWN, "no marker, and its own log has another epoch", {**UNCLEAN, "cluster.own_epoch": 14}),
    (SourceRule.R10, UNKNOWN, "no marker, and its own log alone", {**UNCLEAN, **OWN_LOG}),
    (SourceRule.R10, NOT_APPLICABLE, "the same for a rebuild", {**UNCLEAN, **OWN_LOG, **REBUILD}),
    (SourceRule.R10, NOT_APPLICABLE, "the same of a live broker", {**LIVE, **OWN_LOG}),
    (
        SourceRule.R10,
        NOT_APPLICABLE,
        "stopped before it had registered",
        {"log_dir.is_marker_unregistered": True, "log_dir.marker_epoch": None},
    ),
    (SourceRule.R10, NOT_APPLICABLE, "brokers before 3.9", {"log_dir.marker_epoch": None, "cluster.broker.features": {}}),
    (SourceRule.R10, NOT_APPLICABLE, "a cluster with ZooKeeper", ZOOKEEPER),
    (SourceRule.R11, HOLDS, "up to the high watermark", {"log.high_watermark": 220}),
    (SourceRule.R11, HOLDS, "up to the last stable offset", {"log.last_stable_offset": 190, "log.is_stable_asked": True}),
    (SourceRule.R11, HOLDS, "a rebuild describes local bytes", {**REBUILD, "log.high_watermark": 220}),
    (SourceRule.R11, UNKNOWN, "no line", {"log.high_watermark": None}),
    (SourceRule.R11, UNKNOWN, "a negative line", {"log.high_watermark": -5}),
    (SourceRule.R11, UNKNOWN, "the last stable offset was not found", {"log.is_stable_asked": True}),
    (SourceRule.R11, NOT_APPLICABLE, "a rebuild needs no line", {**REBUILD, "log.high_watermark": None}),
    (SourceRule.R11, NOT_APPLICABLE, "a replica that is yet to be made", NOT_YET),
    (SourceRule.R12, HOLDS, "ascending", {}),
    (SourceRule.R12, HOLDS, "as in another replica", {"peers": (PEER,)}),
    (
        SourceRule.R12,
        HOLDS,
        "a compacted log begins an epoch later",
        {"log.is_compacted": True, "peers": (changed(PEER, ["epochs"], (LeaderEpochEntry(0, 0), LeaderEpochEntry(3, 110))),)},
    ),
    (
        SourceRule.R12,
        WARNS,
        "the log continued without its end",
        {"peers": (changed(PEER, ["epochs"], (*EPOCHS, LeaderEpochEntry(4, 230))),)},
    ),
    (SourceRule.R12, WARNS, "a replica that cannot be compared", {"peers": (changed(PEER, ["topic_id"], OTHER_TOPIC),)}),
    (SourceRule.R12, REJECTS, "epochs descend", {"log.epochs": (LeaderEpochEntry(3, 0), LeaderEpochEntry(1, 120))}),
    (SourceRule.R12, REJECTS, "offsets descend", {"log.epochs": (LeaderEpochEntry(0, 120), LeaderEpochEntry(3, 100))}),
    (
        SourceRule.R12,
        REJECTS,
        "an epoch begins elsewhere in another replica",
        {"peers": (changed(PEER, ["epochs"], (LeaderEpochEntry(0, 0), LeaderEpochEntry(3, 110))),)},
    ),
    (SourceRule.R12, UNKNOWN, "the file is damaged", {"log.epochs": None, "log.faults": ("leader-epoch-checkpoint: line 2",)}),
    (SourceRule.R12, UNKNOWN, "the file is gone, and batches have epochs", {"log.epochs": None}),
    (SourceRule.R12, UNKNOWN, "the file is empty, and batches have epochs", {"log.epochs": ()}),
    (SourceRule.R12, UNKNOWN, "batches below the first epoch", {"log.is_uncovered": True}),
    (SourceRule.R12, UNKNOWN, "batches above the last epoch", {"log.tail_epoch": 5}),
    (SourceRule.R12, NOT_APPLICABLE, "message formats 0 and 1", {"log.epochs": None, "log.tail_epoch": -1}),
    (SourceRule.R12, NOT_APPLICABLE, "an empty log", EMPTY),
    (SourceRule.R13, HOLDS, "all is there", {}),
    (SourceRule.R13, HOLDS, "a rebuild needs no high watermark", {**REBUILD, "log.high_watermark": None}),
    (SourceRule.R13, HOLDS, "never written to", {**EMPTY, "cluster.partition.leader_epoch": 0}),
    (SourceRule.R13, HOLDS, "a follower that was cut, and killed", {**UNCLEAN, "log.recovery_point": 300}),
    (
        SourceRule.R13,
        WARNS,
        "the end was lost with an unclean stop",
        {**UNCLEAN, **REBUILD, "log.log_end_offset": 240, "log.recovery_point": 200},
    ),
    (SourceRule.R13, WARNS, "empty in a later epoch", EMPTY),
    (SourceRule.R13, REJECTS, "committed records are gone", {"log.log_end_offset": 240, "log.recovery_point": 240}),
    (SourceRule.R13, REJECTS, "flushed records are gone", {**REBUILD, "log.log_end_offset": 240, "log.high_watermark": 230}),
    (SourceRule.R13, REJECTS, "below its log start: the broker deletes it", {"log.log_start_offset": 300}),
    (SourceRule.R13, REJECTS, "the disk was replaced", {**EMPTY, "cluster.replaced_at": 274}),
    (SourceRule.R13, REJECTS, "empty, and another replica is not", {**EMPTY, "peers": (PEER,)}),
    (SourceRule.R13, UNKNOWN, "the end cannot be read", {"log.log_end_offset": None}),
    (SourceRule.R13, UNKNOWN, "no segment", {"log.bases": (), "log.log_end_offset": None}),
    (SourceRule.R13, UNKNOWN, "the log starts are damaged", {"log_dir.faults": ("/d/log-start-offset-checkpoint: line 2",)}),
    (SourceRule.R13, UNKNOWN, "no recovery point after a clean stop", {"log.recovery_point": None}),
    (SourceRule.R13, UNKNOWN, "an upload needs a high watermark", {"log.high_watermark": None}),
    (SourceRule.R13, NOT_APPLICABLE, "a replica that is yet to be made", NOT_YET),
]
NEVER: dict[tuple[SourceRule, Mark], str] = {
    (SourceRule.R1, WARNS): "a name is plain or it is not",
    (SourceRule.R1, UNKNOWN): "a listing has all names",
    (SourceRule.R1, NOT_APPLICABLE): "each directory has a name",
    (SourceRule.R2, WARNS): "two ids differ or they do not",
    (SourceRule.R3, WARNS): "a broker is registered or it is not",
    (SourceRule.R4, WARNS): "a directory is registered or it is not",
    (SourceRule.R5, WARNS): "two ids differ or they do not",
    (SourceRule.R7, WARNS): "what is not in sync may lack committed records",
    (SourceRule.R9, REJECTS): "after an unclean stop a part is still whole",
    (SourceRule.R10, WARNS): "a disk is of the last run or of an earlier one",
    (SourceRule.R11, WARNS): "it only says how far",
    (SourceRule.R11, REJECTS): "it only says how far",
}
"""The states that a rule does not have, with the reason."""
LIMITS: dict[tuple[SourceRule, str], int | None] = {
    # Rolled segments end at 100 and 200; the checkpoints say what is flushed and what is replicated.
    (SourceRule.R9, "no marker"): 200,
    (SourceRule.R9, "a live broker of a known epoch"): 200,
    (SourceRule.R9, "a live broker of an unknown epoch"): 200,
    (SourceRule.R9, "no marker on its other disk"): 200,
    (SourceRule.R9, "the same, for a rebuild"): None,
    (SourceRule.R11, "up to the high watermark"): 220,
    (SourceRule.R11, "up to the last stable offset"): 190,
    (SourceRule.R11, "a rebuild describes local bytes"): None,
    (SourceRule.R11, "no line"): 0,
    (SourceRule.R11, "a negative line"): 0,
    (SourceRule.R11, "the last stable offset was not found"): 0,
    (SourceRule.R12, "the log continued without its end"): 230,
    (SourceRule.R13, "the end was lost with an unclean stop"): 200,
}
"""Below which offset the replica is trusted, by the row. All other rows but those of R11 limit nothing."""
CAUSES: dict[tuple[SourceRule, str], str] = {
    (SourceRule.R5, "the topic was deleted"): "it was deleted",
    (SourceRule.R5, "made again under the name"): "deleted and made again",
    (SourceRule.R6, "the topic has fewer partitions"): "no such partition",
    (SourceRule.R6, "reassigned"): "the partition was reassigned",
    (SourceRule.R6, "its directory is lost"): "its directory for lost",
    (SourceRule.R6, "in its other directory"): "not in",
    (SourceRule.R10, "no marker, and no log of its own"): "no metadata log of the broker itself",
    (SourceRule.R10, "no marker, and its own log has another epoch"): "has its epoch 14",
    (SourceRule.R12, "the file is damaged"): "line 2",
    (SourceRule.R12, "the file is gone, and batches have epochs"): "is missing",
}
"""The cause in the evidence, where several causes lead to one state, and ask for different actions."""
NAMES = {HOLDS: "pass", WARNS: "warn", REJECTS: "fail", UNKNOWN: "not-known", NOT_APPLICABLE: "not-applicable"}
"""States in the words of the document of ``cluster source``."""
IDS = [f"{rule.name} {mark[0]}{'' if mark[1] is None else f' {mark[1]}'}: {text}" for rule, mark, text, _ in ROWS]


def result_of(verdict: SourceVerdict, rule: SourceRule) -> SourceRuleResult:
    (found,) = [each for each in verdict.results if each.rule is rule]
    return found


@pytest.mark.parametrize(("rule", "mark", "text", "changes"), ROWS, ids=IDS)
def test_each_state(rule: SourceRule, mark: Mark, text: str, changes: dict[str, Any]) -> None:
    verdict = judge(evidence(**changes))
    found = result_of(verdict, rule)
    assert mark_of(found) == mark, found.evidence
    assert found.state_name == NAMES[mark]
    assert found.evidence
    assert CAUSES.get((rule, text), "") in found.evidence
    assert verdict.is_rejected or mark != REJECTS
    if (rule, text) in LIMITS:
        assert found.trusted_below == LIMITS[rule, text]
    elif rule is not SourceRule.R11:
        assert found.trusted_below is None


def test_each_rule_has_a_row_for_each_of_its_states() -> None:
    """A new rule has none, and fails here."""
    have = {(rule, mark) for rule, mark, *_ in ROWS}
    assert len(set(IDS)) == len(IDS)
    assert have.isdisjoint(NEVER)
    assert have | NEVER.keys() == {(rule, mark) for rule in SourceRule for mark in MARKS}
    assert {(rule, text) for rule, _, text, _ in ROWS} >= LIMITS.keys() | CAUSES.keys()


@pytest.mark.parametrize("purpose", [Purpose.REBUILD, Purpose.UPLOAD])
@pytest.mark.parametrize(
    "changes", [{}, ZOOKEEPER, {"peers": (PEER,)}, {"log_dir.siblings": (SECOND,)}], ids=["KRaft", "ZooKeeper", "peer", "disks"]
)
def test_a_healthy_replica_breaks_none(purpose: Purpose, changes: dict[str, Any]) -> None:
    results = judge(evidence(purpose=purpose, **changes)).results
    assert {mark_of(each) for each in results} <= {HOLDS, NOT_APPLICABLE}


def test_the_page_has_the_rules_with_the_states_that_they_have() -> None:
    section = PAGE.read_text().partition("## Rules of cluster source")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (R\d+) (\S+) \| (.*) \| ?(.*?) ?\|$", section, re.MULTILINE)
    assert [(number, name) for number, name, *_ in rows] == [(rule.name, rule.value) for rule in SourceRule]
    limiting = {rule for (rule, _), limit in LIMITS.items() if limit is not None}
    for number, _, fails, warns in rows:
        rule = SourceRule[number]
        assert (fails == "never") == ((rule, REJECTS) in NEVER), number
        assert bool(warns) == ((rule, WARNS) not in NEVER or rule in limiting), number
