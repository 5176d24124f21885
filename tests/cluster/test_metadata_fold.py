"""The fold of a metadata log where no real log goes: records of 4.4, transactions, limits. Kafka's own loader is asked in ``broker``."""

from typing import Any

import pytest

from formats import limits
from formats.errors import LimitExceededError
from formats.message_schema import load_schemas
from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from snaprebuild.cluster.metadata.fold import FAULTS_MAX, ImageFold
from snaprebuild.cluster.metadata.image_model import BrokerChanged, PartitionChanged, TopicChanged

SCHEMAS = {schema.api_key: schema for schema in load_schemas("cluster-metadata").values()}
TOPIC = bytes(15) + b"\7"


def record(kind: MetadataRecordType, **fields: Any) -> ClusterMetadataRecord:
    schema = SCHEMAS[kind]
    return ClusterMetadataRecord(kind, schema.name, schema.versions.highest, {**schema.body.defaults(), **fields})


def fold_of(*records: ClusterMetadataRecord) -> ImageFold:
    fold = ImageFold()
    for offset, each in enumerate(records):
        fold.apply(each, offset)
    return fold


BEGIN, END, ABORT = (
    record(kind)
    for kind in (MetadataRecordType.BEGIN_TRANSACTION, MetadataRecordType.END_TRANSACTION, MetadataRecordType.ABORT_TRANSACTION)
)
CREATE = (
    record(MetadataRecordType.TOPIC, name="t", topicId=TOPIC),
    record(
        MetadataRecordType.PARTITION,
        partitionId=0,
        topicId=TOPIC,
        replicas=[1, 2],
        isr=[1, 2],
        leader=1,
        leaderEpoch=0,
        partitionEpoch=0,
    ),
)


def test_a_controller_that_unregisters() -> None:
    """Since 4.4."""
    register = record(MetadataRecordType.REGISTER_CONTROLLER, controllerId=3)
    unregister = record(MetadataRecordType.UNREGISTER_CONTROLLER, controllerId=3)
    assert set(fold_of(register).controllers) == {3}
    assert fold_of(register, unregister, unregister).image().controllers == {}


def test_changes_of_a_transaction_come_with_its_end() -> None:
    fold = ImageFold()
    assert [fold.apply(each, offset) for offset, each in enumerate((BEGIN, *CREATE), 10)] == [[], [], []]
    assert fold.open_transaction is not None
    assert (fold.open_transaction.offset, fold.open_transaction.record_count) == (10, 2)
    assert fold.image().topics == {}
    created, partition = fold.apply(END, 13)
    assert isinstance(created, TopicChanged)
    assert isinstance(partition, PartitionChanged)
    assert (created.offset, partition.offset, partition.before) == (11, 12, None)
    assert fold.open_transaction is None
    assert set(fold.image().topics) == {TOPIC}


def test_transactions_out_of_place() -> None:
    fold = fold_of(END, BEGIN, BEGIN, *CREATE, ABORT, ABORT)
    assert [each.offset for each in fold.faults] == [0, 2, 6]
    assert fold.image().topics == {}


def test_a_transaction_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "METADATA_TRANSACTION_RECORDS_MAX", 1)
    with pytest.raises(LimitExceededError, match="transaction of the metadata log at offset 0: expected at most 1 records"):
        fold_of(BEGIN, *CREATE)


def test_faults_are_counted_beyond_those_that_are_kept() -> None:
    fold = fold_of(*[record(MetadataRecordType.REMOVE_TOPIC, topicId=TOPIC)] * (FAULTS_MAX + 5))
    assert (len(fold.faults), fold.fault_count) == (FAULTS_MAX, FAULTS_MAX + 5)


def test_an_image_is_a_value_of_its_own() -> None:
    fold = fold_of(*CREATE)
    before = fold.image()
    fold.apply(record(MetadataRecordType.PARTITION_CHANGE, partitionId=0, topicId=TOPIC, leader=2), 2)
    assert (before.topics[TOPIC].partitions[0].leader, fold.topics[TOPIC].partitions[0].leader) == (1, 2)
    (removed,) = [
        each for each in fold.apply(record(MetadataRecordType.REMOVE_TOPIC, topicId=TOPIC), 3) if isinstance(each, PartitionChanged)
    ]
    assert (removed.after, removed.before) == (
        None,
        fold_of(*CREATE, record(MetadataRecordType.PARTITION_CHANGE, partitionId=0, topicId=TOPIC, leader=2))
        .topics[TOPIC]
        .partitions[0],
    )
    assert before.topic_named("t") is not None
    assert fold.image().topic_named("t") is None


def test_what_a_registration_was_before() -> None:
    fold = ImageFold()
    (first,) = fold.apply(record(MetadataRecordType.REGISTER_BROKER, brokerId=1, brokerEpoch=5), 5)
    (second,) = fold.apply(record(MetadataRecordType.REGISTER_BROKER, brokerId=1, brokerEpoch=9), 9)
    assert isinstance(first, BrokerChanged)
    assert isinstance(second, BrokerChanged)
    assert first.before is None
    assert second.before == first.after != second.after
    assert fold.apply(record(MetadataRecordType.FENCE_BROKER, id=1, epoch=5), 10) == []
    assert "expected its epoch 9, found 5" in str(fold.faults[0].error)
