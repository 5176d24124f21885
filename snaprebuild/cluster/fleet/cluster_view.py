"""Facts that the metadata log of a cluster adds to its scans: all replicas, the ISR, the leaders, and which brokers are controllers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from formats.errors import FormatError
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cluster.fleet.election_risk import TopicStorage
from snaprebuild.cluster.fleet.replicas import PartitionKey
from snaprebuild.cluster.metadata.feature_levels import FeatureLevel, feature_levels, held_back_findings
from snaprebuild.cluster.metadata.image_model import MetadataImage, ResourceType
from snaprebuild.cluster.metadata.image_reader import read_image
from snaprebuild.cluster.metadata.log import MetadataLog, meta_around
from snaprebuild.cluster.metadata.registered_model import METADATA_VERSION
from snaprebuild.cluster.metadata.topic_storage import is_remote
from snaprebuild.cluster.metadata.unknown_contents import UnknownContentsCounter, unknown_findings
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import Finding
from snaprebuild.snapshots.source.broker_properties import COPY_QUOTA

if TYPE_CHECKING:
    from snaprebuild.snapshots.run import Run

__all__ = ["ClusterView", "Placement", "read_cluster_view", "view_of"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a partition is.

    Attributes:
        replicas: brokers, the preferred leader first.
        in_sync: of these, those in sync, and those that are eligible to lead all the same (KIP-966).
        leader: None for none.
        is_reassigned: a reassignment is under way.
        leader_epoch: counts the elections; 0 where the first leader has led ever since. None if it is not known.
        is_offline: the metadata log has no leader: no replica gets in sync until a broker of ``in_sync`` has started.
    """

    replicas: tuple[int, ...]
    in_sync: frozenset[int]
    leader: int | None
    is_reassigned: bool = False
    leader_epoch: int | None = None
    is_offline: bool = False


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster at one offset of its metadata log.

    Attributes:
        offset: of the log, the last one that counts.
        placements: by topic, partition and topic id.
        controllers: voters of the quorum; of one with its own voters' nodes none is a broker.
        quorum_leader: the active controller, None if that is not known.
        directories: ids of the log directories that each broker registered with, as text; none before metadata.version 3.7-IV2.
        topics: with configurations about storage; all others have Kafka's defaults.
        retention_bytes: dynamic ``log.retention.bytes`` by broker, None for all brokers.
        levels: greatest ``metadata.version`` that each broker registered.
        features: levels of the cluster, and what its nodes support.
        copy_quotas: dynamic ``remote.log.manager.copy.max.bytes.per.second`` by broker, None for all brokers.
        epochs: broker epochs of the registrations.
        findings: what of the log is not known, and registrations that hold features back.
        unknown: what of the log this version does not know.
        other_files: names in its directory that neither Kafka nor this version gives.
        path: of the metadata log; empty for an image alone.
        cluster_id: of the log directory around it; None if it does not say.
    """

    offset: int
    placements: dict[PartitionKey, Placement] = field(default_factory=dict)
    controllers: frozenset[int] = frozenset()
    quorum_leader: int | None = None
    directories: dict[int, frozenset[str]] = field(default_factory=dict)
    topics: dict[str, TopicStorage] = field(default_factory=dict)
    retention_bytes: dict[int | None, int] = field(default_factory=dict)
    levels: dict[int, int] = field(default_factory=dict)
    features: tuple[FeatureLevel, ...] = ()
    copy_quotas: dict[int | None, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    unknown: UnknownContentsCounter = field(default_factory=UnknownContentsCounter)
    other_files: tuple[str, ...] = ()
    path: str = ""
    cluster_id: str | None = None

    def without(self, nodes: Collection[int]) -> ClusterView:
        """The cluster as it is when these brokers are stopped: they lead nothing, and are not in sync."""
        placements = {
            key: replace(
                each,
                in_sync=each.in_sync.difference(nodes),
                leader=None if each.leader in nodes else each.leader,
            )
            for key, each in self.placements.items()
        }
        return replace(self, placements=placements)

    def sorted_placements(self) -> list[tuple[PartitionKey, Placement]]:
        """The placements, ascending by topic and partition."""
        return sorted(self.placements.items(), key=lambda item: item[0][:2])


def read_cluster_view(location: str, run: Run) -> ClusterView:
    """Folds a metadata log.

    Raises:
        ReadFailedError: it cannot be read, or is damaged.
    """
    try:
        read = read_image(location, None, run)
    except FormatError as error:
        raise ReadFailedError(f"is damaged: {error.message}", path=error.file or location) from error
    image = read.fold.image()
    state = read.log.quorum_state
    levels = feature_levels(image, None if state is None else state.voters)
    findings = (*unknown_findings(read.log.path, read.log.unknown), *held_back_findings(read.log.path, levels))
    return replace(
        view_of(image),
        features=levels,
        findings=findings,
        unknown=read.log.unknown,
        other_files=read.log.other_files,
        path=read.log.path,
        cluster_id=_cluster_id_around(read.log),
    )


def _cluster_id_around(log: MetadataLog) -> str | None:
    """The cluster id in ``meta.properties`` of the log directory; None for a copy of the metadata log alone, and if it cannot be parsed."""
    try:
        meta = meta_around(log.directory)
    except FormatError:
        return None
    return None if meta is None else meta.cluster_id


def view_of(image: MetadataImage) -> ClusterView:
    """The view that an image gives."""
    placements: dict[PartitionKey, Placement] = {}
    for topic in image.topics.values():
        for number, partition in topic.partitions.items():
            leader = None if partition.leader < 0 else partition.leader
            in_sync = frozenset(partition.isr) | frozenset(partition.elr)
            is_reassigned = bool(partition.adding or partition.removing)
            key = topic.name, number, uuid_to_text(topic.topic_id)
            placements[key] = Placement(
                partition.replicas, in_sync, leader, is_reassigned, partition.leader_epoch, is_offline=leader is None
            )
    voters = image.quorum.voters or ()
    directories = {broker.node_id: frozenset(broker.directories) for broker in image.brokers.values()}
    controllers = frozenset(voter.voter_id for voter in voters)
    topics = _topic_configs(image)
    levels = {
        broker.node_id: broker.features[METADATA_VERSION].max_level
        for broker in image.brokers.values()
        if METADATA_VERSION in broker.features
    }
    return ClusterView(
        offset=image.offset,
        placements=placements,
        controllers=controllers,
        quorum_leader=image.quorum.leader_id,
        directories=directories,
        topics=topics,
        retention_bytes=_broker_configs(image, "log.retention.bytes"),
        copy_quotas=_broker_configs(image, COPY_QUOTA),
        levels=levels,
        epochs={broker.node_id: broker.epoch for broker in image.brokers.values()},
    )


def _topic_configs(image: MetadataImage) -> dict[str, TopicStorage]:
    topics: dict[str, TopicStorage] = {}
    for resource, values in image.configs.items():
        if resource.type == ResourceType.TOPIC:
            own = values.get("retention.bytes")
            topics[resource.name] = TopicStorage(is_remote(values), None if own is None else int(own))
    return topics


def _broker_configs(image: MetadataImage, name: str) -> dict[int | None, int]:
    """A dynamic number of brokers: by broker, None for all of them."""
    return {
        int(resource.name) if resource.name else None: int(values[name])
        for resource, values in image.configs.items()
        if resource.type == ResourceType.BROKER and name in values
    }
