"""What the metadata log says of a cluster at one offset, as values. ``metadata_fold`` makes them.

Source: ``MetadataImage`` and its parts, ``BrokerRegistration``, ``ControllerRegistration``, ``PartitionRegistration`` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from formats.log.control_record import Voter
from formats.partition.partition_metadata import ZERO_UUID, uuid_to_text
from snaprebuild.cluster.metadata.security_entries import AccessControlEntry, DelegationToken

__all__ = [
    "LOST_DIRECTORY",
    "METADATA_VERSION",
    "MIGRATING_DIRECTORY",
    "UNASSIGNED_DIRECTORY",
    "BrokerRegistration",
    "ConfigResource",
    "ControllerRegistration",
    "LeaderRecoveryState",
    "Listener",
    "MetadataImage",
    "PartitionRegistration",
    "QuorumView",
    "ResourceType",
    "SupportedFeature",
    "TopicImage",
    "directory_text",
]

MIGRATING_DIRECTORY = ZERO_UUID
"""``DirectoryId.MIGRATING``: in a directory that is not known; the cluster was one without directory ids."""
UNASSIGNED_DIRECTORY = bytes(15) + b"\1"
"""``DirectoryId.UNASSIGNED``: the broker has yet to choose one."""
LOST_DIRECTORY = bytes(15) + b"\2"
"""``DirectoryId.LOST``: in a directory that went offline."""

METADATA_VERSION = "metadata.version"

_DIRECTORY_NAMES = {MIGRATING_DIRECTORY: "MIGRATING", UNASSIGNED_DIRECTORY: "UNASSIGNED", LOST_DIRECTORY: "LOST"}


def directory_text(directory_id: bytes) -> str:
    """A directory id as Kafka prints it, or the name of one that is reserved."""
    return _DIRECTORY_NAMES.get(directory_id) or uuid_to_text(directory_id)


class LeaderRecoveryState(IntEnum):
    """``LeaderRecoveryState``: RECOVERING after an unclean election, until the leader says that it has recovered."""

    RECOVERED = 0
    RECOVERING = 1


class ResourceType(IntEnum):
    """``ConfigResource.Type``."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True)
class Listener:
    """Where a broker or controller listens: name, host, port, and the number of its ``SecurityProtocol``."""

    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class SupportedFeature:
    """A feature and the levels, int16, that a node knows."""

    name: str
    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A broker as it registered, with what was changed since.

    Attributes:
        id: int32.
        epoch: int64, of this registration.
        incarnation_id: 16 bytes, new for each start of the broker.
        fenced: it may lead nothing and belongs to no ISR.
        in_controlled_shutdown: likewise.
        directories: ids of its log directories that are online, 16 bytes each; empty before metadata.version 3.7-IV2.
        cordoned_directories: those of them that take no new replicas, or None where the broker did not say.
        rack: or None.
        listeners: by name.
        features: by name.
        is_migrating_zk_broker: of a cluster that was about to leave ZooKeeper.
    """

    id: int
    epoch: int
    incarnation_id: bytes
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[bytes, ...]
    cordoned_directories: tuple[bytes, ...] | None
    rack: str | None
    listeners: tuple[Listener, ...]
    features: tuple[SupportedFeature, ...]
    is_migrating_zk_broker: bool


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """A controller as it registered; see ``BrokerRegistration``."""

    id: int
    incarnation_id: bytes
    zk_migration_ready: bool
    listeners: tuple[Listener, ...]
    features: tuple[SupportedFeature, ...]


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """A partition: who holds it and who leads it.

    Attributes:
        replicas: broker ids, the preferred leader first.
        directories: of each replica, in the same order, 16 bytes each.
        isr: broker ids that are in sync.
        removing: replicas that a reassignment takes away; likewise ``adding``.
        adding: see there.
        elr: eligible leader replicas (KIP-966): not in sync, and complete up to the high watermark all the same.
        last_known_elr: whom an unclean election asks first.
        leader: broker id, -1 for none.
        leader_recovery_state: see there.
        leader_epoch: int32, counts leaders.
        partition_epoch: int32, counts changes.
    """

    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]
    isr: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int
    leader_recovery_state: LeaderRecoveryState
    leader_epoch: int
    partition_epoch: int

    def directory_of(self, broker_id: int) -> bytes | None:
        """The directory id of a broker's replica, None where it has none."""
        return self.directories[self.replicas.index(broker_id)] if broker_id in self.replicas else None


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic and its partitions by number."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionRegistration]


@dataclass(frozen=True, slots=True, order=True)
class ConfigResource:
    """What a dynamic configuration belongs to; the empty name of type BROKER stands for all brokers."""

    type: int
    name: str

    def __str__(self) -> str:
        known = ResourceType(self.type).name if self.type in set(ResourceType) else str(self.type)
        return f"{known}:{self.name}"


@dataclass(frozen=True, slots=True)
class QuorumView:
    """What the control records say of the quorum.

    Attributes:
        leader_id: of the last ``LeaderChange``, None before the first.
        leader_epoch: of its batch.
        voters: of the last voter set, or of the last ``LeaderChange`` where none was written (static voters); None before the first.
        kraft_version: 0 where no record said otherwise.
    """

    leader_id: int | None = None
    leader_epoch: int | None = None
    voters: tuple[Voter, ...] | None = None
    kraft_version: int = 0


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """A cluster at one offset.

    Attributes:
        offset: last one that is in, -1 for none.
        epoch: leader epoch of its batch.
        timestamp_ms: of its batch, ms since 1970; -1 for none.
        brokers: by id; likewise ``controllers``.
        controllers: see there.
        topics: by topic id.
        topic_ids: by name.
        features: finalized levels by name, ``metadata.version`` among them.
        configs: what was set, by resource; values as Kafka stores them.
        next_producer_id: first id of the block that comes next, -1 where none was given out: no producer has this or a greater id.
        client_quotas: by entity, which is a sorted tuple of type and name (None for the default).
        acls: by id.
        scram_iterations: of each credential, by number of the mechanism and user; salts and keys are left out.
        delegation_tokens: by id.
        quorum: what the control records said.
    """

    offset: int = -1
    epoch: int = -1
    timestamp_ms: int = -1
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    controllers: Mapping[int, ControllerRegistration] = field(default_factory=dict)
    topics: Mapping[bytes, TopicImage] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: int = -1
    client_quotas: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float]] = field(default_factory=dict)
    acls: Mapping[bytes, AccessControlEntry] = field(default_factory=dict)
    scram_iterations: Mapping[tuple[int, str], int] = field(default_factory=dict)
    delegation_tokens: Mapping[str, DelegationToken] = field(default_factory=dict)
    quorum: QuorumView = field(default_factory=QuorumView)

    def topic_named(self, name: str) -> TopicImage | None:
        """The topic that has a name now."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics.get(topic_id)
