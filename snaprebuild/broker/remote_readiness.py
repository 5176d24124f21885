"""Whether the topics of a broker have ids when its next start switches uploads to remote storage on.

With ZooKeeper and a protocol below 2.8 topics have no id, and a broker even deletes ``partition.metadata`` when it loads a log. Kafka 3.6
to 3.9 then uploads under topic id zero. Once the protocol is raised each topic gets an id, and no consumer finds what was uploaded before.
A missing snapshot prevents such an upload, so whoever writes the snapshots has to ask first.

Source: ``MetadataVersion.isTopicIdsSupported``, ``UnifiedLog.initializeTopicId``, ``RemoteLogManager.onLeadershipChange`` of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

import msgspec

from formats.partition.partition_metadata import ZERO_UUID
from snaprebuild.findings import Finding, Severity, choose_form, first_of, pluralize

__all__ = [
    "NOT_READY_ADVICE",
    "TOPIC_IDS_FROM",
    "NextStart",
    "Readiness",
    "RemoteReadiness",
    "ReplicaTopicId",
    "not_ready_text",
    "readiness_finding",
    "readiness_note",
    "remote_readiness",
]

TOPIC_IDS_FROM = (2, 8)
"""``inter.broker.protocol.version`` from which on topics have ids."""

NOT_READY_ADVICE = "Raise the protocol first."
"""The advice about topics that would be uploaded under id zero."""


class Readiness(StrEnum):
    """The uploads of the topics of a broker after its next start."""

    READY = "ready"
    """Nothing is uploaded under id zero, as far as the files show."""
    REMOTE_STORAGE_OFF = "remote-storage-off"
    """Nothing is uploaded."""
    TOPIC_ID_ZERO = "topic-id-zero"
    """Some topics are uploaded under id zero."""


class NextStart(msgspec.Struct, frozen=True):
    """The settings of ``server.properties`` for the next start.

    Attributes:
        protocol: first two numbers of ``inter.broker.protocol.version``; None for that of the release.
        has_remote_storage: ``remote.log.storage.system.enable`` is true.
    """

    protocol: tuple[int, ...] | None
    has_remote_storage: bool


class ReplicaTopicId(msgspec.Struct, frozen=True):
    """A replica with the id in its ``partition.metadata``.

    Attributes:
        topic: its name.
        topic_id: 16 bytes; None where the file is absent or cannot be read.
        can_be_tiered: remote storage may be on for the topic: it is neither internal nor compacted.
    """

    topic: str
    topic_id: bytes | None
    can_be_tiered: bool = True


class RemoteReadiness(msgspec.Struct, frozen=True):
    """The judgement on one broker.

    Attributes:
        readiness: the case.
        topics: names of the topics that would be uploaded under id zero, sorted; only with ``TOPIC_ID_ZERO``.
        without_id: names of topics that can be tiered, of which a replica has no id; sorted. Empty with KRaft.
        protocol: that the next start sets, if it is below 2.8; else None.
    """

    readiness: Readiness
    topics: tuple[str, ...] = ()
    without_id: tuple[str, ...] = ()
    protocol: tuple[int, ...] | None = None


def remote_readiness(
    next_start: NextStart | None, replicas: Sequence[ReplicaTopicId], *, is_kraft: bool, has_remote_log_metadata: bool
) -> RemoteReadiness:
    """Judges the replicas of one broker.

    Args:
        next_start: None if no ``server.properties`` was named.
        replicas: of the broker, or those selected.
        is_kraft: it belongs to a KRaft cluster, whose topics always have ids.
        has_remote_log_metadata: a partition of ``__remote_log_metadata`` is on its disks, so remote storage is or was in use.
    """
    if is_kraft:
        return RemoteReadiness(Readiness.READY)
    tierable = {replica.topic for replica in replicas if replica.can_be_tiered}
    without_id = tuple(sorted({replica.topic for replica in replicas if replica.can_be_tiered and _lacks_id(replica)}))
    protocol = None if next_start is None or not _is_without_ids(next_start) else next_start.protocol
    if not tierable:
        return RemoteReadiness(Readiness.REMOTE_STORAGE_OFF)
    if next_start is not None and not next_start.has_remote_storage:
        return RemoteReadiness(Readiness.REMOTE_STORAGE_OFF, (), without_id, protocol)
    if protocol is not None:
        # Ids that are on disk now do not help: this start deletes the files.
        return RemoteReadiness(Readiness.TOPIC_ID_ZERO, tuple(sorted(tierable)), without_id, protocol)
    if not without_id:
        return RemoteReadiness(Readiness.READY)
    if has_remote_log_metadata:
        return RemoteReadiness(Readiness.TOPIC_ID_ZERO, without_id, without_id)
    if next_start is None:
        return RemoteReadiness(Readiness.REMOTE_STORAGE_OFF, (), without_id)
    return RemoteReadiness(Readiness.READY, (), without_id)


def _lacks_id(replica: ReplicaTopicId) -> bool:
    return replica.topic_id is None or replica.topic_id == ZERO_UUID


def _is_without_ids(next_start: NextStart) -> bool:
    return next_start.protocol is not None and next_start.protocol < TOPIC_IDS_FROM


def readiness_finding(judged: RemoteReadiness, path: str, severity: Severity) -> Finding | None:
    """The finding of a broker that would upload under id zero; None for every other one.

    Args:
        judged: the broker.
        path: of one of its log directories.
        severity: what the command makes of it.
    """
    if judged.readiness is not Readiness.TOPIC_ID_ZERO:
        return None
    topics = f"{pluralize(len(judged.topics), 'topic')} ({first_of(judged.topics)})"
    if judged.protocol is None:
        why = f"{topics} without a topic id in partition.metadata, and remote storage is in use (__remote_log_metadata)"
    else:
        number = ".".join(map(str, judged.protocol))
        why = f"inter.broker.protocol.version is {number}, and remote storage is on: {topics} without a topic id"
    message = (
        f"not ready for remote storage: {why}. Kafka would upload under topic id zero, and consumers lose these copies as soon as the "
        "protocol is raised. Raise it to 2.8 or newer on the controller and all brokers, start this broker once, then write snapshots. "
        "--accept-topic-id-zero writes them all the same"
    )
    return Finding("topic-id-zero", severity, path, message)


def not_ready_text(topics: Collection[str], *, with_advice: bool = True) -> str:
    """The part of the first line of a result about topics that would be uploaded under id zero; empty without any.

    Args:
        topics: their names.
        with_advice: say what to do, too.
    """
    if not topics:
        return ""
    have = choose_form(len(topics), "topic has", "topics have")
    advice = f" {NOT_READY_ADVICE}" if with_advice else ""
    return f"Not ready for remote storage: {len(topics)} {have} no id.{advice}"


def readiness_note(judged: RemoteReadiness, path: str) -> Finding | None:
    """The advice before remote storage is switched on; None where each topic has an id, or would be uploaded under id zero already.

    Args:
        judged: the broker.
        path: of one of its log directories.
    """
    topics = f"{pluralize(len(judged.without_id), 'topic')} without a topic id ({first_of(judged.without_id)})"
    if judged.readiness is Readiness.READY and judged.without_id:
        message = f"{topics}: before the upload to remote storage the controller must run protocol 2.8 or newer, too"
    elif judged.readiness is Readiness.REMOTE_STORAGE_OFF and judged.protocol is not None:
        number = ".".join(map(str, judged.protocol))
        message = f"inter.broker.protocol.version is {number}: raise it to 2.8 or newer before you switch remote storage on"
    elif judged.readiness is Readiness.REMOTE_STORAGE_OFF and judged.without_id:
        message = f"{topics}: raise inter.broker.protocol.version to 2.8 or newer before you switch remote storage on"
    else:
        return None
    return Finding("topic-id-missing", Severity.NOTE, path, message)
