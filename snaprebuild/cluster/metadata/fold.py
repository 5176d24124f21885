"""Folds the records of a metadata log into an image of the cluster, and reports what each record changes.

A record on which Kafka would throw is reported and left out, as in a broker, which logs a fault and continues. Records of a transaction
take effect together with the record that ends it; an abort drops them. Records of an open transaction are in no image.

Two points differ from Kafka or need a decision:

* With a topic its configurations go, also those of the same batch. Kafka keeps these if it takes creation and removal of the topic at once,
  so that two checkpoints of equal id may differ by configurations of removed topics.
* Unknown levels of ``metadata.version`` are kept.

Source: ``MetadataBatchLoader``, ``MetadataDelta``, ``ClusterDelta``, ``TopicsDelta``, ``TopicDelta``, ``FeaturesDelta``,
``ConfigurationsDelta``, ``AclsDelta``, ``ClientQuotasDelta``, ``ScramDelta`` of 4.3.1, ``UnregisterControllerRecord`` of 4.4.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from formats import limits
from formats.errors import BadValueError, FormatError, LimitExceededError
from formats.log.control_record import ControlRecord, KRaftVersion, LeaderChange, SnapshotHeader, Voters
from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild.cluster.metadata.batches import MetadataBatch, UnreadRecord
from snaprebuild.cluster.metadata.image_model import (
    AccessControlEntry,
    BrokerChanged,
    ConfigResource,
    ControllerRegistration,
    DelegationToken,
    ImageFault,
    MetadataChange,
    MetadataImage,
    PartitionChanged,
    QuorumView,
    ResourceType,
    TopicChanged,
    TopicImage,
)
from snaprebuild.cluster.metadata.registered_model import BrokerRegistration
from snaprebuild.cluster.metadata.registrations import (
    changed_broker,
    cleared_elr,
    merged_partition,
    new_partition,
    registered_broker,
    registered_controller,
)
from snaprebuild.published import Part

__all__ = ["FAULTS_MAX", "ImageFold", "MetadataState", "OpenMetadataTransaction"]


_KRAFT_VERSION_FEATURE = "kraft.version"


class MetadataState:
    """The state after the records so far, with the attributes of ``MetadataImage`` under the same names."""

    def __init__(self) -> None:
        """The state of an empty log."""
        self.brokers: dict[int, BrokerRegistration] = {}
        self.controllers: dict[int, ControllerRegistration] = {}
        self.topics: dict[bytes, TopicImage] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.features: dict[str, int] = {}
        self.configs: dict[ConfigResource, dict[str, str]] = {}
        self.next_producer_id = -1
        self.zk_migration_state = 0
        self.client_quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}
        self.acls: dict[bytes, AccessControlEntry] = {}
        self.scram_iterations: dict[tuple[int, str], int] = {}
        self.delegation_tokens: dict[str, DelegationToken] = {}
        self._partitions: dict[bytes, dict[int, Any]] = {}
        self._rules: Mapping[int, Callable[[ClusterMetadataRecord, int], list[MetadataChange] | None]] = {
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
            MetadataRecordType.ZK_MIGRATION_STATE: self._zk_migration,
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
        changes = self._rules[record.api_key](record, offset)
        return [MetadataChange(offset, record)] if changes is None else changes

    # -------------------------------------------------------------------------------------------- brokers and controllers

    def _set_broker(
        self, record: ClusterMetadataRecord, offset: int, node_id: int, after: BrokerRegistration | None
    ) -> list[MetadataChange]:
        before = self.brokers.pop(node_id, None)
        if after is not None:
            self.brokers[node_id] = after
        return [BrokerChanged(offset, record, node_id, before, after)]

    def _register_broker(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        return self._set_broker(record, offset, record.message["brokerId"], registered_broker(record.message))

    def _unregister_broker(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        return self._set_broker(record, offset, record.message["brokerId"], None)

    def _change_broker(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        broker = self._broker(record, record.message["brokerId"], record.message["brokerEpoch"])
        return self._set_broker(record, offset, broker.node_id, changed_broker(broker, record.message))

    def _fence_broker(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        broker = self._broker(record, record.message["id"], record.message["epoch"])
        fenced = record.api_key == MetadataRecordType.FENCE_BROKER
        return self._set_broker(record, offset, broker.node_id, replace(broker, fenced=fenced))

    def _broker(self, record: ClusterMetadataRecord, node_id: int, epoch: int) -> BrokerRegistration:
        broker = self.brokers.get(node_id)
        if broker is None:
            raise BadValueError(f"{record.name} of broker {node_id}", expected="a registered broker", found="none")
        if broker.epoch != epoch:
            raise BadValueError(f"{record.name} of broker {node_id}", expected=f"its epoch {broker.epoch}", found=epoch)
        return broker

    def _register_controller(self, record: ClusterMetadataRecord, _offset: int) -> None:
        self.controllers[record.message["controllerId"]] = registered_controller(record.message)

    def _unregister_controller(self, record: ClusterMetadataRecord, _offset: int) -> None:
        self.controllers.pop(record.message["controllerId"], None)

    # ---------------------------------------------------------------------------------------------- topics and partitions

    def _topic(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        name = record.message["name"]
        topic_id = record.message["topicId"]
        self._partitions[topic_id] = {}
        self.topics[topic_id] = TopicImage(name, topic_id, self._partitions[topic_id])
        self.topic_ids[name] = topic_id
        return [TopicChanged(offset, record, topic_id, name)]

    def _topic_of(self, record: ClusterMetadataRecord) -> TopicImage:
        topic = self.topics.get(record.message["topicId"])
        if topic is None:
            text = uuid_to_text(record.message["topicId"])
            raise BadValueError(f"{record.name} of topic id {text}", expected="a topic of this id", found="none")
        return topic

    def _remove_topic(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        topic = self._topic_of(record)
        changes: list[MetadataChange] = [
            PartitionChanged(
                offset=offset, record=record, topic_id=topic.topic_id, topic=topic.name, partition=number, before=before, after=None
            )
            for number, before in topic.partitions.items()
        ]
        del self.topics[topic.topic_id], self._partitions[topic.topic_id]
        self.topic_ids.pop(topic.name, None)
        self.configs.pop(ConfigResource(ResourceType.TOPIC, topic.name), None)
        return [*changes, TopicChanged(offset, record, topic.topic_id, topic.name)]

    def _partition(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        topic = self._topic_of(record)
        number = record.message["partitionId"]
        return [self._set_partition(record, offset, topic, number, new_partition(record.message))]

    def _partition_change(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        topic = self._topic_of(record)
        number = record.message["partitionId"]
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
        return PartitionChanged(
            offset=offset, record=record, topic_id=topic.topic_id, topic=topic.name, partition=number, before=before, after=after
        )

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

    def _feature_level(self, record: ClusterMetadataRecord, _offset: int) -> list[MetadataChange] | None:
        name = record.message["name"]
        level = record.message["featureLevel"]
        if name == _KRAFT_VERSION_FEATURE:
            return []  # early releases wrote it by mistake, and no release reads it (KAFKA-18979)
        self.features.pop(name, None)
        if level != 0:
            self.features[name] = level
        return None

    def _config(self, record: ClusterMetadataRecord, _offset: int) -> None:
        resource = ConfigResource(record.message["resourceType"], record.message["resourceName"])
        _set_or_drop(self.configs, resource, record.message["name"], record.message["value"])

    def _client_quota(self, record: ClusterMetadataRecord, _offset: int) -> None:
        parts = {each["entityType"]: each["entityName"] for each in record.message["entity"]}
        value = None if record.message["remove"] else record.message["value"]
        _set_or_drop(self.client_quotas, tuple(sorted(parts.items())), record.message["key"], value)

    def _producer_ids(self, record: ClusterMetadataRecord, _offset: int) -> None:
        self.next_producer_id = record.message["nextProducerId"]

    def _zk_migration(self, record: ClusterMetadataRecord, _offset: int) -> None:
        self.zk_migration_state = record.message["zkMigrationState"]

    def _acl(self, record: ClusterMetadataRecord, _offset: int) -> None:
        self.acls[record.message["id"]] = AccessControlEntry.of(record.message)

    def _remove_acl(self, record: ClusterMetadataRecord, _offset: int) -> None:
        if self.acls.pop(record.message["id"], None) is None:
            raise BadValueError(record.name, expected="an ACL of this id", found=uuid_to_text(record.message["id"]))

    def _scram(self, record: ClusterMetadataRecord, _offset: int) -> None:
        self.scram_iterations[record.message["mechanism"], record.message["name"]] = record.message["iterations"]

    def _remove_scram(self, record: ClusterMetadataRecord, _offset: int) -> None:
        self.scram_iterations.pop((record.message["mechanism"], record.message["name"]), None)

    def _delegation_token(self, record: ClusterMetadataRecord, _offset: int) -> None:
        message = record.message
        self.delegation_tokens[message["tokenId"]] = DelegationToken(
            token_id=message["tokenId"],
            owner=message["owner"],
            requester=message["requester"],
            renewers=tuple(message["renewers"]),
            issue_timestamp_ms=message["issueTimestamp"],
            expiration_timestamp_ms=message["expirationTimestamp"],
            max_timestamp_ms=message["maxTimestamp"],
        )

    def _remove_delegation_token(self, record: ClusterMetadataRecord, _offset: int) -> None:
        self.delegation_tokens.pop(record.message["tokenId"], None)


def _nothing(_record: ClusterMetadataRecord, _offset: int) -> list[MetadataChange]:
    """No change: the record is no part of an image."""
    return []


def _set_or_drop(all_values: dict[Any, dict[str, Any]], key: object, name: str, value: object) -> None:
    """Sets a value of a resource or entity; None removes it, and with its last value the key."""
    values = all_values.setdefault(key, {})
    values.pop(name, None)
    if value is not None:
        values[name] = value
    if not values:
        del all_values[key]


FAULTS_MAX = 1000
"""Faults that are kept; the others are counted."""


class OpenMetadataTransaction(Part, frozen=True):
    """A transaction of the metadata log that has no end."""

    offset: int
    """Offset of the record that began it."""
    name: str | None
    record_count: int


class ImageFold(MetadataState):
    """The state while records are applied; ``image`` gives what it is now as a value.

    Attributes:
        offset: last one that was seen, -1 for none.
        epoch: leader epoch of its batch.
        timestamp_ms: of its batch; ``latest_timestamp_ms``: the greatest of all batches.
        brokers: as they are now, without the records of an open transaction. The same holds for ``controllers``, ``topics`` and every
            other attribute of ``MetadataImage``.
        faults: the first ``FAULTS_MAX`` records that were left out.
        fault_count: all of them.
    """

    def __init__(self) -> None:
        """The state of an empty log."""
        super().__init__()
        self.offset = self.epoch = self.timestamp_ms = self.latest_timestamp_ms = -1
        self.quorum = QuorumView()
        self.faults: list[ImageFault] = []
        self.fault_count = 0
        self._transaction: tuple[int, str | None] | None = None
        self._held: list[tuple[ClusterMetadataRecord, int]] = []

    # ------------------------------------------------------------------------------------------------------------ batches

    def apply_checkpoint(self, batches: Iterable[MetadataBatch], end_offset: int, epoch: int) -> None:
        """Takes a whole checkpoint, whose records are of no offset of the log.

        Args:
            batches: of the checkpoint.
            end_offset: of its name: the first offset that it does not hold.
            epoch: of its name.
        """
        for batch in batches:
            for record in batch.records:
                if isinstance(record.content, ControlRecord) and isinstance(record.content.value, SnapshotHeader):
                    self.timestamp_ms = self.latest_timestamp_ms = record.content.value.last_contained_log_timestamp
                self._take(record.content, end_offset - 1, epoch)
        self.offset = end_offset - 1
        self.epoch = epoch

    def apply_batch(self, batch: MetadataBatch, last_offset: int | None = None) -> list[MetadataChange]:
        """Takes the next batch of the log.

        Args:
            batch: the one after what was seen.
            last_offset: records after it are left out; None for none.

        Returns:
            The changes, in order, each with the offset of its own record. The changes of a transaction are returned when it ends.
        """
        changes: list[MetadataChange] = []
        for record in batch.records:
            if last_offset is not None and record.offset > last_offset:
                break
            changes += self._take(record.content, record.offset, batch.leader_epoch)
        self.offset = batch.last_offset if last_offset is None else min(batch.last_offset, last_offset)
        self.epoch = batch.leader_epoch
        self.timestamp_ms = batch.append_timestamp_ms
        self.latest_timestamp_ms = max(self.latest_timestamp_ms, self.timestamp_ms)
        return changes

    def _take(self, content: ClusterMetadataRecord | ControlRecord | UnreadRecord, offset: int, epoch: int) -> list[MetadataChange]:
        match content:
            case ClusterMetadataRecord():
                return self.apply(content, offset)
            case ControlRecord():
                self._apply_control(content, epoch)
            case UnreadRecord():
                self._report(offset, None, content.error)
        return []

    def _apply_control(self, control: ControlRecord, epoch: int) -> None:
        value = control.value
        quorum = self.quorum
        if isinstance(value, LeaderChange):
            # If the quorum has a voter set of its own, the message has the same voters without their endpoints.
            voters = value.voters if quorum.kraft_version == 0 else quorum.voters
            self.quorum = dataclasses.replace(quorum, leader_id=value.leader_id, leader_epoch=epoch, voters=voters)
        elif isinstance(value, KRaftVersion):
            self.quorum = dataclasses.replace(quorum, kraft_version=value.kraft_version)
        elif isinstance(value, Voters):
            self.quorum = dataclasses.replace(quorum, voters=value.voters)

    # ------------------------------------------------------------------------------------------------------- transactions

    @property
    def open_transaction(self) -> OpenMetadataTransaction | None:
        """The transaction that has begun and not ended."""
        if self._transaction is None:
            return None
        return OpenMetadataTransaction(*self._transaction, len(self._held))

    def apply(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        """Takes the next record.

        Args:
            record: the one after what was seen.
            offset: of it.

        Returns:
            As ``apply_batch``. Records that cannot be applied are in ``faults``.

        Raises:
            LimitExceededError: a transaction of more records than ``limits.METADATA_TRANSACTION_RECORDS_MAX``.
        """
        match record.api_key:
            case MetadataRecordType.BEGIN_TRANSACTION:
                if self._transaction is not None:
                    return self._refused(record, offset, "none inside of another", f"one open since offset {self._transaction[0]}")
                self._transaction = (offset, record.message["name"])
            case MetadataRecordType.END_TRANSACTION | MetadataRecordType.ABORT_TRANSACTION:
                if self._transaction is None:
                    return self._refused(record, offset, "an open transaction", "none")
                held = self._held
                self._held = []
                self._transaction = None
                if record.api_key == MetadataRecordType.END_TRANSACTION:
                    return [change for each, at in held for change in self._changes(each, at)]
            case _ if self._transaction is not None:
                if len(self._held) == limits.METADATA_TRANSACTION_RECORDS_MAX:
                    expected = f"at most {limits.METADATA_TRANSACTION_RECORDS_MAX} records"
                    raise LimitExceededError(f"transaction of the metadata log at offset {self._transaction[0]}", expected=expected)
                self._held.append((record, offset))
            case _:
                return self._changes(record, offset)
        return []

    def _changes(self, record: ClusterMetadataRecord, offset: int) -> list[MetadataChange]:
        try:
            return self.change(record, offset)
        except FormatError as error:
            self._report(offset, record.name, error)
            return []

    def _refused(self, record: ClusterMetadataRecord, offset: int, expected: str, found: str) -> list[MetadataChange]:
        self._report(offset, record.name, BadValueError(record.name, expected=expected, found=found))
        return []

    def _report(self, offset: int, name: str | None, error: FormatError) -> None:
        self.fault_count += 1
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(ImageFault(offset, name, error))

    # --------------------------------------------------------------------------------------------------------------- image

    def image(self) -> MetadataImage:
        """The current state as a separate value: later records do not change it."""
        return MetadataImage(
            offset=self.offset,
            epoch=self.epoch,
            timestamp_ms=self.timestamp_ms,
            brokers=dict(self.brokers),
            controllers=dict(self.controllers),
            topics={
                topic_id: dataclasses.replace(topic, partitions=dict(topic.partitions)) for topic_id, topic in self.topics.items()
            },
            topic_ids=dict(self.topic_ids),
            features=dict(self.features),
            configs={resource: dict(values) for resource, values in self.configs.items()},
            next_producer_id=self.next_producer_id,
            zk_migration_state=self.zk_migration_state,
            client_quotas={entity: dict(values) for entity, values in self.client_quotas.items()},
            acls=dict(self.acls),
            scram_iterations=dict(self.scram_iterations),
            delegation_tokens=dict(self.delegation_tokens),
            quorum=self.quorum,
        )
