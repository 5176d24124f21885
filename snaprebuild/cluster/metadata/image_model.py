"""The state of a cluster at one offset of the metadata log, and the changes that one record makes. ``ImageFold`` makes these values.

``mask_of`` names the configurations whose values are not shown. A KRaft cluster keeps them in the metadata log unencrypted (with ZooKeeper
``password.encoder.secret`` encrypted them). As in a broker, a value is masked if its definition has type ``PASSWORD``, and if the name is
unknown, because a plugin's configuration may be a secret. The prefix of a listener, or of a listener and a SASL mechanism, does not count.

Source: ``MetadataImage`` and its parts, ``BrokerRegistration``, ``ControllerRegistration``, ``PartitionRegistration``, ``ResourceType``,
``PatternType``, ``AclOperation``, ``AclPermissionType``, ``ScramMechanism``, ``KafkaConfig.configType`` and ``maybeSensitive``,
``DynamicBrokerConfig.brokerConfigSynonyms``, ``KafkaConfigSchema.isSensitive`` of Kafka 4.4.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum

from formats.broker.kafka_releases import METADATA_VERSION, catalogued_releases, release_of_level
from formats.broker.kafka_settings import KafkaSetting, kafka_settings
from formats.errors import FormatError
from formats.log.control_record import Voter
from formats.message import Message
from formats.metadata.cluster_metadata import ClusterMetadataRecord
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cluster.metadata.registered_model import BrokerRegistration, FeatureLevels, Listener, PartitionRegistration
from snaprebuild.published import Part
from snaprebuild.snapshots.source.selection import Selection

__all__ = [
    "AccessControlEntry",
    "BrokerChanged",
    "ConfigResource",
    "ControllerRegistration",
    "DelegationToken",
    "ImageFault",
    "Mask",
    "MetadataChange",
    "MetadataImage",
    "PartitionChanged",
    "QuorumView",
    "ResourceType",
    "TopicChanged",
    "TopicImage",
    "mask_of",
    "mechanism_name",
    "remark_on_releases",
    "setting_of",
]


_RESOURCE_TYPES = ("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
_PATTERN_TYPES = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
_OPERATIONS = (
    *("UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION"),
    *("DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"),
)
_PERMISSION_TYPES = ("UNKNOWN", "ANY", "DENY", "ALLOW")
_MECHANISMS = ("UNKNOWN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def _name(names: tuple[str, ...], number: int) -> str:
    """The name for a number. A number of a later release has none, and is shown as it is."""
    return names[number] if 0 <= number < len(names) else str(number)


def mechanism_name(number: int) -> str:
    """The name of a SCRAM mechanism."""
    return _name(_MECHANISMS, number)


class AccessControlEntry(Part, frozen=True):
    """An ACL; names as Kafka has them, or a number that it does not know."""

    id: str
    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str

    @classmethod
    def of(cls, message: Message) -> AccessControlEntry:
        """The ACL of an ``AccessControlEntryRecord``."""
        return cls(
            id=uuid_to_text(message["id"]),
            resource_type=_name(_RESOURCE_TYPES, message["resourceType"]),
            resource_name=message["resourceName"],
            pattern_type=_name(_PATTERN_TYPES, message["patternType"]),
            principal=message["principal"],
            host=message["host"],
            operation=_name(_OPERATIONS, message["operation"]),
            permission=_name(_PERMISSION_TYPES, message["permissionType"]),
        )


class DelegationToken(Part, frozen=True):
    """A delegation token; the log holds no secret of it."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiration_timestamp_ms: int
    max_timestamp_ms: int


class ResourceType(IntEnum):
    """``ConfigResource.Type``."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ControllerRegistration(Part, frozen=True):
    """The registration of a controller."""

    node_id: int
    incarnation_id: str
    listeners: tuple[Listener, ...]
    features: dict[str, FeatureLevels]
    """By name."""


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic and its partitions by number."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionRegistration]


@dataclass(frozen=True, slots=True, order=True)
class ConfigResource:
    """The resource of a dynamic configuration. The empty name of type BROKER means all brokers."""

    type: int
    name: str

    def __str__(self) -> str:
        known = ResourceType(self.type).name if self.type in set(ResourceType) else str(self.type)
        return f"{known}:{self.name}"


@dataclass(frozen=True, slots=True)
class QuorumView:
    """The quorum, from the control records.

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
        brokers: by id.
        controllers: by id.
        topics: by topic id.
        topic_ids: by name.
        features: finalized levels by name, ``metadata.version`` among them.
        configs: what was set, by resource; values as Kafka stores them.
        next_producer_id: first id of the block that comes next, -1 where none was given out: no producer has this or a greater id.
        zk_migration_state: of a cluster that comes from ZooKeeper (``ZkMigrationState``): 0 for none, 1 before, 2 during, 3 after the
            migration.
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
    zk_migration_state: int = 0
    client_quotas: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float]] = field(default_factory=dict)
    acls: Mapping[bytes, AccessControlEntry] = field(default_factory=dict)
    scram_iterations: Mapping[tuple[int, str], int] = field(default_factory=dict)
    delegation_tokens: Mapping[str, DelegationToken] = field(default_factory=dict)
    quorum: QuorumView = field(default_factory=QuorumView)

    def topic_named(self, name: str) -> TopicImage | None:
        """The topic that has a name now."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics.get(topic_id)

    def selected_topics(self, selection: Selection) -> list[TopicImage]:
        """The topics with a selected partition, by name, each with its selected partitions alone."""
        topics = sorted(self.topics.values(), key=lambda each: (each.name, each.topic_id))
        if not selection.is_narrowed:
            return topics
        found = []
        for topic in topics:
            taken = {number: each for number, each in topic.partitions.items() if selection.takes_partition(topic.name, number)}
            if taken:
                found.append(replace(topic, partitions=taken))
        return found


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """A record that changed the cluster.

    Attributes:
        offset: of the record.
        record: that says so.
    """

    offset: int
    record: ClusterMetadataRecord


@dataclass(frozen=True, slots=True)
class BrokerChanged(MetadataChange):
    """A registration came, changed or went.

    Attributes:
        node_id: of the broker.
        before: None if there was none.
        after: None if there is none any more.
    """

    node_id: int
    before: BrokerRegistration | None
    after: BrokerRegistration | None


@dataclass(frozen=True, slots=True)
class TopicChanged(MetadataChange):
    """A topic was created or deleted. Its partitions have changes of their own: before a deletion, and after a creation.

    Attributes:
        topic_id: 16 bytes.
        name: of the topic.
    """

    topic_id: bytes
    name: str


@dataclass(frozen=True, slots=True)
class PartitionChanged(MetadataChange):
    """A partition came, changed or went.

    Attributes:
        topic_id: 16 bytes.
        topic: its name.
        partition: number.
        before: None if there was none.
        after: None if there is none any more.
    """

    topic_id: bytes
    topic: str
    partition: int
    before: PartitionRegistration | None
    after: PartitionRegistration | None


@dataclass(frozen=True, slots=True)
class ImageFault:
    """A record that contradicts what came before it, or cannot be read; it is left out, as a broker does that logs it as a fault.

    Attributes:
        offset: of the record, in a checkpoint the last one that the checkpoint holds.
        name: of its message, None if it cannot be read.
        error: what is wrong.
    """

    offset: int
    name: str | None
    error: FormatError


_LISTENER = re.compile(r"listener\.name\.[^.]*\.(.*)", re.DOTALL)
_OF_MECHANISMS = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
"""``DynamicBrokerConfig.ListenerMechanismConfigs``: a mechanism is between listener and name."""


class Mask(StrEnum):
    """Why a value is not shown."""

    SECRET = "secret"  # noqa: S105
    UNKNOWN_NAME = "unknown-name"


def mask_of(resource: ConfigResource, name: str) -> Mask | None:
    """Why the value of a configuration is masked; None if it is shown."""
    setting = setting_of(resource, name)
    if setting is None:
        return Mask.UNKNOWN_NAME
    return Mask.SECRET if setting.is_secret else None


def setting_of(resource: ConfigResource, name: str) -> KafkaSetting | None:
    """The meaning of a configuration for releases of Kafka; None if none of them knows its name."""
    settings = kafka_settings().get(resource.type, {})
    setting = settings.get(name)
    if setting is not None or resource.type != ResourceType.BROKER:
        return setting
    match = _LISTENER.fullmatch(name)
    if match is None:
        return None
    return settings.get(next((mechanism for mechanism in _OF_MECHANISMS if match[1].endswith(mechanism)), match[1]))


def remark_on_releases(image: MetadataImage, resource: ConfigResource, name: str) -> str:
    """The releases that know a configuration, if the newest one or the one of the cluster's ``metadata.version`` does not; else empty.

    Brokers of a release that does not know a name ignore it.
    """
    setting = setting_of(resource, name)
    if setting is None:
        return ""
    newest = list(catalogued_releases())[-1]
    level = image.features.get(METADATA_VERSION)
    oldest = None if level is None else release_of_level(METADATA_VERSION, level)
    is_known = all(setting.state_in(release) is not None for release in (oldest or newest, newest))
    return "" if is_known else setting.releases_text
