"""The ids of topics, as the files of their brokers show them, for the judgement of ``broker.remote_readiness``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from formats import limits
from formats.broker.broker_files import Properties
from formats.errors import FormatError
from formats.partition.file_names import PARTITION_METADATA, DirectoryForm, parse_partition_dir_name
from formats.partition.partition_metadata import read_partition_metadata
from snaprebuild.broker.remote_readiness import (
    NextStart,
    Readiness,
    RemoteReadiness,
    ReplicaTopicId,
    readiness_finding,
    readiness_note,
    remote_readiness,
)
from snaprebuild.errors import ChangedFileError, ReadFailedError, UsageError
from snaprebuild.findings import Finding, Severity
from snaprebuild.snapshots.source.broker_properties import has_remote_storage, log_dirs_of, protocol_of
from snaprebuild.snapshots.source.source import PartitionSource, Source
from snaprebuild.storage.log_dir import LogDirState
from snaprebuild.storage.partition_names import TopicKind, topic_kind_of

__all__ = ["BrokerReadiness", "ReplicaPlace", "broker_readiness", "readiness_findings", "topics_under_id_zero", "with_readiness"]


class ReplicaPlace(msgspec.Struct, frozen=True):
    """A replica of a broker.

    Attributes:
        topic: its name.
        path: of its directory.
        log_dir: the small files of its log directory.
        can_be_tiered: as ``PartitionSource.can_be_tiered``.
    """

    topic: str
    path: str
    log_dir: LogDirState
    can_be_tiered: bool


class BrokerReadiness(msgspec.Struct, frozen=True):
    """The judgement on a broker.

    Attributes:
        log_dirs: paths of its log directories, sorted.
        judged: its readiness.
        is_zookeeper: its files or its configuration show that it belongs to a ZooKeeper cluster.
    """

    log_dirs: tuple[str, ...]
    judged: RemoteReadiness
    is_zookeeper: bool = False

    def uploads_under_id_zero(self, log_dir: str, topic: str) -> bool:
        """Whether a topic in one of these log directories would be uploaded under id zero."""
        return log_dir in self.log_dirs and topic in self.judged.topics


def with_readiness(source: Source) -> tuple[Source, tuple[BrokerReadiness, ...]]:
    """A source whose partitions show whether they would be uploaded under id zero, and the judgement on each of its brokers."""
    replicas = [
        ReplicaPlace(each.directory.name.topic, each.directory.path, each.log_dir, each.can_be_tiered) for each in source.partitions
    ]
    brokers = broker_readiness(replicas, source.properties)
    if not any(each.judged.topics for each in brokers):
        return source, brokers
    return replace(source, partitions=tuple(_marked(each, brokers) for each in source.partitions)), brokers


def _marked(partition: PartitionSource, brokers: Iterable[BrokerReadiness]) -> PartitionSource:
    topic = partition.directory.name.topic
    log_dir = partition.log_dir.path
    is_zero = partition.can_be_tiered and any(each.uploads_under_id_zero(log_dir, topic) for each in brokers)
    return replace(partition, uploads_under_id_zero=is_zero)


def topics_under_id_zero(partitions: Iterable[PartitionSource]) -> frozenset[str]:
    """The topics that would be uploaded under id zero, of partitions ``with_readiness``."""
    return frozenset(each.directory.name.topic for each in partitions if each.uploads_under_id_zero)


def broker_readiness(replicas: Sequence[ReplicaPlace], properties: Properties | None) -> tuple[BrokerReadiness, ...]:
    """Judges each broker that has some of these replicas. A copy of partitions, or one in an object store, belongs to none.

    Args:
        replicas: of any brokers.
        properties: the configuration of the next start; None if none was named.

    Raises:
        UsageError: ``inter.broker.protocol.version`` is no version.
    """
    configured = () if properties is None else _configured_log_dirs(properties)
    by_broker: dict[object, list[ReplicaPlace]] = {}
    for each in replicas:
        state = each.log_dir
        if state.store.is_local and (state.is_broker_directory or state.path in configured):
            by_broker.setdefault(_broker_of(state, configured), []).append(each)
    next_start = None
    if properties is not None:
        next_start = NextStart(protocol=protocol_of(properties), has_remote_storage=has_remote_storage(properties))
    has_kraft_roles = properties is not None and properties.has_kraft_roles
    return tuple(_judged(own, next_start, configured, has_kraft_roles=has_kraft_roles) for own in by_broker.values())


def _configured_log_dirs(properties: Properties) -> tuple[str, ...]:
    try:
        return tuple(os.path.realpath(path) for path in log_dirs_of(properties))
    except UsageError:  # reported where the directories are needed
        return ()


def _broker_of(state: LogDirState, configured: Sequence[str]) -> object:
    """Log directories with equal values belong to one broker."""
    if state.path in configured:
        return "configured"
    if state.meta is None or state.meta.node_id is None:
        return state.path
    return state.meta.cluster_id, state.meta.node_id


def _judged(
    replicas: Sequence[ReplicaPlace], next_start: NextStart | None, configured: Sequence[str], *, has_kraft_roles: bool
) -> BrokerReadiness:
    states = {each.log_dir.path: each.log_dir for each in replicas}
    log_dirs = tuple(sorted(states))
    others = configured if any(path in configured for path in log_dirs) else ()
    if has_kraft_roles or any(state.meta is not None and state.meta.is_kraft for state in states.values()):
        return BrokerReadiness(log_dirs, RemoteReadiness(Readiness.READY))
    topics = _topics_in({*log_dirs, *others})
    is_kraft = TopicKind.CLUSTER_METADATA in topics and all(state.meta is None for state in states.values())
    ids = [ReplicaTopicId(each.topic, _topic_id(each), each.can_be_tiered) for each in replicas if each.can_be_tiered]
    has_remote_log_metadata = TopicKind.REMOTE_LOG_METADATA in topics
    judged = remote_readiness(next_start, ids, is_kraft=is_kraft, has_remote_log_metadata=has_remote_log_metadata)
    is_zookeeper = next_start is not None or any(state.meta is not None for state in states.values())
    return BrokerReadiness(log_dirs, judged, is_zookeeper=is_zookeeper and not is_kraft)


def _topics_in(log_dirs: Iterable[str]) -> set[TopicKind]:
    """The kinds of the topics of which a directory is there. One that cannot be listed is reported where its partitions are read."""
    kinds = set()
    for path in log_dirs:
        try:
            names = os.listdir(path)
        except OSError:
            continue
        for name in names:
            parsed = parse_partition_dir_name(name)
            if parsed is not None and parsed.form is DirectoryForm.PLAIN:
                kinds.add(topic_kind_of(parsed.topic))
    return kinds


def _topic_id(replica: ReplicaPlace) -> bytes | None:
    """None also for a file that cannot be read or parsed: it proves no id."""
    path = os.path.join(replica.path, PARTITION_METADATA)
    try:
        data = replica.log_dir.store.read_small(path, limits.TEXT_FILE_BYTES_MAX)
        return None if data is None else read_partition_metadata(data, file=path).topic_id
    except (ReadFailedError, ChangedFileError, FormatError):
        return None


def readiness_findings(brokers: Iterable[BrokerReadiness], severity: Severity, *, with_notes: bool) -> list[Finding]:
    """A finding for each broker that would upload under id zero.

    Args:
        brokers: that were judged.
        severity: of these findings.
        with_notes: also what has to be done on other brokers before remote storage is switched on: a note each, if ZooKeeper is
            certain.
    """
    findings = []
    for each in brokers:
        finding = readiness_finding(each.judged, each.log_dirs[0], severity)
        if finding is None and with_notes and each.is_zookeeper:
            finding = readiness_note(each.judged, each.log_dirs[0])
        if finding is not None:
            findings.append(finding)
    return findings
