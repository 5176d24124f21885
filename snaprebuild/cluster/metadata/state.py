"""What a metadata log has decided so far, and what each record changes in it, as Kafka's ``MetadataDelta`` applies it.

Two things need a decision:

* With a topic its configurations go, also those that came in the same batch; Kafka keeps these where it takes creation and removal of the
  topic at once, so that two checkpoints of equal id may differ by configurations of topics that are gone.
* Levels of ``metadata.version`` that some release does not know are kept.

Source: ``MetadataDelta``, ``ClusterDelta``, ``TopicsDelta``, ``TopicDelta``, ``FeaturesDelta``, ``ConfigurationsDelta``, ``AclsDelta``,
``ClientQuotasDelta``, ``ScramDelta``, ``PartitionRegistration`` of 4.3.1, ``UnregisterControllerRecord`` of 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from formats.errors import BadValueError
from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cluster.metadata.changes import BrokerChanged, MetadataChange, OtherChanged, PartitionChanged, TopicChanged
from snaprebuild.cluster.metadata.image_model import (
    BrokerRegistration,
    ConfigResource,
    ControllerRegistration,
    ResourceType,
    TopicImage,
)
from snaprebuild.cluster.metadata.registrations import (
    changed_broker,
    cleared_elr,
    merged_partition,
    new_partition,
    registered_broker,
    registered_controller,
)
from snaprebuild.cluster.metadata.security_entries import AccessControlEntry, DelegationToken

__all__ = ["MetadataState"]

_KRAFT_VERSION_FEATURE = "kraft.version"


class MetadataState:
    """What the records said; all that ``MetadataImage`` has of them, under the same names, to look at while records come."""

    def __init__(self) -> None:
        """Of an empty log."""
        self.brokers: dict[int, BrokerRegistration] = {}
        self.controllers: dict[int, ControllerRegistration] = {}
        self.topics: dict[bytes, TopicImage] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.features: dict[str, int] = {}
        self.configs: dict[ConfigResource, dict[str, str]] = {}
        self.next_producer_id = -1
        self.client_quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}
        self.acls: dict[bytes, AccessControlEntry] = {}
        self.scram_iterations: dict[tuple[int, str], int] = {}
        self.delegation_tokens: dict[str, DelegationToken] = {}
        self._partitions: dict[bytes, dict[int, Any]] = {}
        self._rules: Mapping[int, Callable[[ClusterMetadataRecord, int], list[MetadataChange]]] = {
            MetadataRecordType.REGISTER_BROKER: self._register_broker,
            MetadataRecordType.UNREGISTER_BROKER: self._unregister_broker,
            MetadataRecordType.TOPIC: self._topic,
            MetadataRecordType.PARTITION: self._partition,
            MetadataRecordType.CONFIG: self._config,
            MetadataRecordType.PARTITION_CHANGE: self._partition_change,
            MetadataRecordType.FENCE_BROKER: self._fence_broker,
            MetadataRecordType.UNFENCE_BROKER: self._fence_broker,
            MetadataRecordType.REMOVE_TOPIC: self._remove_topic,
            MetadataRecordType.DELEGATION_TOKEN: self._delegation_token,
            MetadataRecordType.USER_SCRAM_CREDENTIAL: self._scram,
            MetadataRecordType.FEATURE_LEVEL: self._feature_level,
            MetadataRecordType.CLIENT_QUOTA: self._client_quota,
            MetadataRecordType.PRODUCER_IDS: self._producer_ids,
            MetadataRecordType.BROKER_REGISTRATION_CHANGE: self._change_broker,
            MetadataRecordType.ACCESS_CONTROL_ENTRY: self._acl,
            MetadataRecordType.REMOVE_ACCESS_CONTROL_ENTRY: self._remove_acl,
            MetadataRecordType.NO_OP: _nothing,
            MetadataRecordType.ZK_MIGRATION_STATE: _nothing,
            MetadataRecordType.REMOVE_USER_SCRAM_CREDENTIAL: self._remove_scram,
            MetadataRecordType.REMOVE_DELEGATION_TOKEN: self._remove_delegation_token,
            MetadataRecordType.REGISTER_CONTROLLER: self._register_controller,
            MetadataRecordType.CLEAR_ELR: self._clear_elr,
            MetadataRecordType.UNREGISTER_CONTROLLER: self._unregister_controller,
        }

    def change(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        """Applies a record that is none of a transaction's ends.

        Raises:
            BadValueError: Kafka would throw on it; then nothing has changed.
        """
        return self._rules[record.api_key](record, offset)

    # -------------------------------------------------------------------------------------------- brokers and controllers

    def _set_broker(
        self, record: ClusterMetadataRecord, offset: int, broker_id: int, after: BrokerRegistration | None
    ) -> list[MetadataChange]:
        before = self.brokers.pop(broker_id, None)
        if after is not None:
            self.brokers[broker_id] = after
        return [BrokerChanged(offset, record, broker_id, before, after)]

    def _register_broker(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        return self._set_broker(record, offset, record.message["brokerId"], registered_broker(record.message))

    def _unregister_broker(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        return self._set_broker(record, offset, record.message["brokerId"], None)

    def _change_broker(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        broker = self._broker(record, record.message["brokerId"], record.message["brokerEpoch"])
        return self._set_broker(record, offset, broker.id, changed_broker(broker, record.message))

    def _fence_broker(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        broker = self._broker(record, record.message["id"], record.message["epoch"])
        fenced = record.api_key == MetadataRecordType.FENCE_BROKER
        return self._set_broker(record, offset, broker.id, replace(broker, fenced=fenced))

    def _broker(self, record: ClusterMetadataRecord, broker_id: int, epoch: int) -> BrokerRegistration:
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise BadValueError(f"{record.name} of broker {broker_id}", expected="a registered broker", found="none")
        if broker.epoch != epoch:
            raise BadValueError(f"{record.name} of broker {broker_id}", expected=f"its epoch {broker.epoch}", found=epoch)
        return broker

    def _register_controller(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        self.controllers[record.message["controllerId"]] = registered_controller(record.message)
        return [OtherChanged(offset, record)]

    def _unregister_controller(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        self.controllers.pop(record.message["controllerId"], None)
        return [OtherChanged(offset, record)]

    # ---------------------------------------------------------------------------------------------- topics and partitions

    def _topic(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        name, topic_id = record.message["name"], record.message["topicId"]
        self._partitions[topic_id] = {}
        self.topics[topic_id] = TopicImage(name, topic_id, self._partitions[topic_id])
        self.topic_ids[name] = topic_id
        return [TopicChanged(offset, record, topic_id, name, is_created=True)]

    def _known_topic(self, record: ClusterMetadataRecord) -> TopicImage:
        topic = self.topics.get(record.message["topicId"])
        if topic is None:
            text = uuid_to_text(record.message["topicId"])
            raise BadValueError(f"{record.name} of topic id {text}", expected="a topic of this id", found="none")
        return topic

    def _remove_topic(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        topic = self._known_topic(record)
        changes: list[MetadataChange] = [
            PartitionChanged(offset, record, topic.topic_id, topic.name, number, before, None)
            for number, before in topic.partitions.items()
        ]
        del self.topics[topic.topic_id], self._partitions[topic.topic_id]
        self.topic_ids.pop(topic.name, None)
        self.configs.pop(ConfigResource(ResourceType.TOPIC, topic.name), None)
        return [*changes, TopicChanged(offset, record, topic.topic_id, topic.name, is_created=False)]

    def _partition(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        topic, number = self._known_topic(record), record.message["partitionId"]
        return [self._set_partition(record, offset, topic, number, new_partition(record.message))]

    def _partition_change(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        topic, number = self._known_topic(record), record.message["partitionId"]
        before = topic.partitions.get(number)
        if before is None:
            raise BadValueError(f"{record.name} of {topic.name}-{number}", expected="a partition of this number", found="none")
        return [self._set_partition(record, offset, topic, number, merged_partition(before, record.message))]

    def _set_partition(
        self, record: ClusterMetadataRecord, offset: int, topic: TopicImage, number: int, after: Any
    ) -> PartitionChanged:
        partitions = self._partitions[topic.topic_id]
        before = partitions.get(number)
        partitions[number] = after
        return PartitionChanged(offset, record, topic.topic_id, topic.name, number, before, after)

    def _clear_elr(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        name = record.message["topicName"]
        if name and name not in self.topic_ids:
            raise BadValueError(record.name, expected="a topic of this name", found=name)
        topics = [self.topics[self.topic_ids[name]]] if name else list(self.topics.values())
        return [
            self._set_partition(record, offset, topic, number, cleared_elr(partition))
            for topic in topics
            for number, partition in topic.partitions.items()
            if partition.elr or partition.last_known_elr
        ]

    # ------------------------------------------------------------------------------------------------------ all the others

    def _feature_level(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        name, level = record.message["name"], record.message["featureLevel"]
        if name == _KRAFT_VERSION_FEATURE:
            return []  # early releases wrote it by mistake, and it is read by nobody (KAFKA-18979)
        self.features.pop(name, None)
        if level != 0:
            self.features[name] = level
        return [OtherChanged(offset, record)]

    def _config(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        resource = ConfigResource(record.message["resourceType"], record.message["resourceName"])
        _set_or_drop(self.configs, resource, record.message["name"], record.message["value"])
        return [OtherChanged(offset, record)]

    def _client_quota(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        parts = {each["entityType"]: each["entityName"] for each in record.message["entity"]}
        value = None if record.message["remove"] else record.message["value"]
        _set_or_drop(self.client_quotas, tuple(sorted(parts.items())), record.message["key"], value)
        return [OtherChanged(offset, record)]

    def _producer_ids(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        self.next_producer_id = record.message["nextProducerId"]
        return [OtherChanged(offset, record)]

    def _acl(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        message = record.message
        self.acls[message["id"]] = AccessControlEntry(
            message["resourceType"],
            message["resourceName"],
            message["patternType"],
            message["principal"],
            message["host"],
            message["operation"],
            message["permissionType"],
        )
        return [OtherChanged(offset, record)]

    def _remove_acl(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        if self.acls.pop(record.message["id"], None) is None:
            raise BadValueError(record.name, expected="an ACL of this id", found=uuid_to_text(record.message["id"]))
        return [OtherChanged(offset, record)]

    def _scram(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        self.scram_iterations[record.message["mechanism"], record.message["name"]] = record.message["iterations"]
        return [OtherChanged(offset, record)]

    def _remove_scram(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        self.scram_iterations.pop((record.message["mechanism"], record.message["name"]), None)
        return [OtherChanged(offset, record)]

    def _delegation_token(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        message = record.message
        self.delegation_tokens[message["tokenId"]] = DelegationToken(
            message["owner"],
            message["requester"],
            tuple(message["renewers"]),
            message["issueTimestamp"],
            message["maxTimestamp"],
            message["expirationTimestamp"],
        )
        return [OtherChanged(offset, record)]

    def _remove_delegation_token(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        self.delegation_tokens.pop(record.message["tokenId"], None)
        return [OtherChanged(offset, record)]


def _nothing(_record: ClusterMetadataRecord, _offset: int) -> list[MetadataChange]:
    """Of records that are no part of an image."""
    return []


def _set_or_drop(of: dict[Any, dict[str, Any]], key: object, name: str, value: object) -> None:
    """Sets a value; None takes it away, and with the last one all of its kind."""
    values = of.setdefault(key, {})
    values.pop(name, None)
    if value is not None:
        values[name] = value
    if not values:
        del of[key]
