"""Images of metadata logs against those of Kafka's own ``MetadataBatchLoader``: the bundled logs, cut anywhere, and random ones."""

import random
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka_classpath import java_program
from kafka_images import Kafka, as_kafka
from manifests import FIXTURES

from formats.message_schema import load_schemas
from formats.metadata.cluster_metadata import (
    ClusterMetadataRecord,
    MetadataRecordType,
    read_cluster_metadata_record,
    write_cluster_metadata_record,
)
from snaprebuild.cluster.metadata.batches import MetadataBatch, MetadataRecord
from snaprebuild.cluster.metadata.fold import ImageFold
from snaprebuild.cluster.metadata.log import open_metadata_log

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("metadata-images")]

LOGS = {
    **{f"node{number}": FIXTURES / "kraft-cluster3" / f"node{number}" for number in (1, 3)},
    "kraft-metadata": FIXTURES / "kraft-metadata" / "logs",
}
RANDOM_LOGS = 150
KEYS = {schema.name: schema for schema in load_schemas("cluster-metadata").values()}


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with subprocess.Popen(
        java_program("Json", "MetadataImages"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Kafka(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


def test_bundled_logs_at_every_tenth_batch(kafka: Kafka) -> None:
    compared = 0
    for place in LOGS.values():
        kafka.begin()
        fold = ImageFold()
        for number, batch in enumerate(open_metadata_log(str(place)).walk()):
            fold.apply_batch(batch)
            records = [each.content for each in batch.records if isinstance(each.content, ClusterMetadataRecord)]
            if records:
                kafka.load(batch.base_offset, batch.leader_epoch, [write_cluster_metadata_record(each) for each in records])
            if number % 10 == 0 or fold.offset + 1 == open_metadata_log(str(place)).log_end_offset():
                assert as_kafka(fold.image(), fold.fault_count) == kafka.image(), f"{place} at {fold.offset}"
                compared += 1
    assert compared > 60


def test_what_follows_a_checkpoint(kafka: Kafka) -> None:
    """The records of a checkpoint, then the log after it: nodes whose logs begin with one."""
    for place in (FIXTURES / "kraft-cluster3" / "node2", FIXTURES / "kraft-metadata-moved" / "logs"):
        log = open_metadata_log(str(place))
        for checkpoint in log.checkpoints:
            kafka.begin()
            fold = ImageFold()
            fold.apply_checkpoint(log.checkpoint_batches(checkpoint), checkpoint.end_offset, checkpoint.epoch)
            for batches in (log.checkpoint_batches(checkpoint), log.walk(checkpoint.end_offset)):
                for batch in batches:
                    records = [each.content for each in batch.records if isinstance(each.content, ClusterMetadataRecord)]
                    if records:
                        kafka.load(batch.base_offset, batch.leader_epoch, [write_cluster_metadata_record(each) for each in records])
            for batch in log.walk(checkpoint.end_offset):
                fold.apply_batch(batch)
            assert as_kafka(fold.image(), fold.fault_count) == kafka.image(), checkpoint.path


# ---------------------------------------------------------------------------------------------------------------- random logs


class RandomLog:
    """Records that make sense most of the time, of few names and numbers, so that they meet."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.epochs: dict[int, int] = {}
        self.offset = 0

    def uuid(self, kind: int, most: int = 4) -> bytes:
        """One of few; of topics both signs of each half."""
        number = self.random.randrange(most)
        return bytes([kind if number % 2 else kind | 0x80]) + bytes(14) + bytes([number])

    def directory(self) -> bytes:
        return self.random.choice([bytes(16), bytes(15) + b"\1", bytes(15) + b"\2", self.uuid(0x50), self.uuid(0x51)])

    def brokers(self) -> list[int]:
        return self.random.sample(range(5), self.random.randrange(1, 5))

    def maybe(self, value: Callable[[], Any]) -> Any:
        return value() if self.random.random() < 0.4 else None

    def record(self) -> tuple[str, int, dict[str, Any]]:
        """Name, version and fields."""
        choose = self.random.choice
        name = choose(NAMES)
        version = self.random.randint(0, KEYS[name].versions.highest)
        broker = self.random.randrange(5)
        epoch = self.epochs.get(broker, 7) if self.random.random() < 0.9 else 3
        fields: dict[str, Any] = {}
        match name:
            case "RegisterBrokerRecord":
                self.epochs[broker] = self.offset
                fields = {
                    "brokerId": broker,
                    "brokerEpoch": self.offset,
                    "incarnationId": self.uuid(1),
                    "fenced": choose((True, False)),
                }
                fields |= {"endPoints": [self.endpoint() for _ in range(self.random.randrange(3))], "rack": choose((None, "r"))}
                fields |= {"features": [{"name": choose("ab"), "minSupportedVersion": 0, "maxSupportedVersion": 3}]}
                fields["inControlledShutdown"] = version >= 1 and choose((True, False))
                fields["logDirs"] = [self.uuid(0x50 + each) for each in range(version >= 3 and self.random.randrange(3))]
                fields["cordonedLogDirs"] = choose((None, [], fields["logDirs"])) if version >= 4 else None
            case "UnregisterBrokerRecord":
                fields = {"brokerId": broker, "brokerEpoch": epoch}
            case "BrokerRegistrationChangeRecord":
                fields = {"brokerId": broker, "brokerEpoch": epoch, "fenced": choose((-1, 0, 1, 1, 5))}
                fields["inControlledShutdown"] = choose((0, 1, 1, -1)) if version >= 1 else 0
                fields["logDirs"] = [self.uuid(0x50)] if version >= 2 and choose((True, False)) else []
                fields["cordonedLogDirs"] = choose((None, [], [self.uuid(0x50)])) if version >= 3 else None
            case "FenceBrokerRecord" | "UnfenceBrokerRecord":
                fields = {"id": broker, "epoch": epoch}
            case "RegisterControllerRecord":
                fields = {"controllerId": broker, "incarnationId": self.uuid(1), "zkMigrationReady": False}
                fields |= {"endPoints": [self.endpoint()], "features": []}
            case "TopicRecord":
                number = self.random.randrange(6)
                fields = {"name": f"t{number % 3}", "topicId": bytes([2 | 0x80 * (number % 2)]) + bytes(14) + bytes([number])}
            case "RemoveTopicRecord":
                fields = {"topicId": self.topic_id()}
            case "PartitionRecord":
                replicas = self.brokers()
                fields = {"partitionId": choose((0, 1)), "topicId": self.topic_id(), "replicas": replicas, "isr": replicas[:2]}
                fields |= {"removingReplicas": [], "addingReplicas": replicas[2:], "leader": choose((-1, replicas[0]))}
                fields |= {
                    "leaderRecoveryState": choose((0, 0, 1, 2)),
                    "leaderEpoch": choose((0, 7)),
                    "partitionEpoch": choose((0, 2**31 - 1)),
                }
                count = choose((0, len(replicas), len(replicas), 1)) if version >= 1 else 0
                fields["directories"] = [self.directory() for _ in range(count)]
                fields["eligibleLeaderReplicas"] = self.maybe(self.brokers) if version >= 2 else None
                fields["lastKnownElr"] = self.maybe(self.brokers) if version >= 2 else None
            case "PartitionChangeRecord":
                fields = {"partitionId": choose((0, 1)), "topicId": self.topic_id(), "isr": self.maybe(self.brokers)}
                fields |= {"leader": choose((-2, -2, -1, 1, 2)), "replicas": self.maybe(self.brokers)}
                fields |= {"removingReplicas": self.maybe(self.brokers), "addingReplicas": self.maybe(list)}
                fields |= {"leaderRecoveryState": choose((-1, -1, 0, 1, 3))}
                few = self.random.randrange(4)
                fields["directories"] = self.maybe(lambda: [self.directory() for _ in range(few)]) if version >= 1 else None
                fields["eligibleLeaderReplicas"] = self.maybe(self.brokers) if version >= 2 else None
                fields["lastKnownElr"] = self.maybe(list) if version >= 2 else None
            case "ClearElrRecord":
                fields = {"topicName": choose(("", "t0", "t1", "t2"))}
            case "ConfigRecord":
                fields = {"resourceType": choose((2, 4, 32)), "resourceName": choose(("", "t0", "t1"))}
                fields |= {"name": choose("ab"), "value": choose((None, "", "1", "2"))}
            case "FeatureLevelRecord":
                feature = choose(("metadata.version", "kraft.version", "group.version"))
                fields = {"name": feature, "featureLevel": self.random.randint(7, 30) if feature[0] == "m" else choose((0, 1, 2))}
            case "ProducerIdsRecord":
                fields = {"brokerId": broker, "nextProducerId": self.random.randrange(9) * 1000}
            case "ClientQuotaRecord":
                kinds = self.random.sample(["user", "client-id", "ip"], self.random.randrange(1, 3))
                fields = {
                    "entity": [{"entityType": kind, "entityName": choose((None, "x"))} for kind in kinds],
                    "key": choose("pq"),
                }
                fields |= {"value": float(self.random.randrange(4)), "remove": choose((True, False))}
            case "AccessControlEntryRecord":
                fields = {"id": self.uuid(4), "resourceType": 2, "resourceName": choose(("x", "y")), "patternType": 3}
                fields |= {"principal": "User:u", "host": choose(("*", "h")), "operation": 3, "permissionType": 3}
            case "RemoveAccessControlEntryRecord":
                fields = {"id": self.uuid(4)}
            case "UserScramCredentialRecord":
                fields = {"name": choose("uv"), "mechanism": choose((1, 2)), "iterations": self.random.randrange(4096, 9999)}
                fields |= {"salt": b"s", "storedKey": b"k", "serverKey": b"v"}
            case "RemoveUserScramCredentialRecord":
                fields = {"name": choose("uv"), "mechanism": choose((1, 2))}
            case "DelegationTokenRecord":
                fields = {"owner": "User:o", "requester": "User:r", "renewers": ["User:x"], "tokenId": choose("ab")}
                fields |= {"expirationTimestamp": self.random.randrange(9)}
            case "RemoveDelegationTokenRecord":
                fields = {"tokenId": choose("ab")}
        return name, version, fields

    def topic_id(self) -> bytes:
        number = self.random.randrange(6)
        return bytes([2 | 0x80 * (number % 2)]) + bytes(14) + bytes([number])

    def endpoint(self) -> dict[str, Any]:
        choose = self.random.choice
        return {
            "name": choose(("A", "B", "C")),
            "host": "h",
            "port": self.random.randrange(2**16),
            "securityProtocol": choose((0, 1, 3)),
        }


NAMES = [
    name for name in KEYS if "Transaction" not in name and name not in ("ZkMigrationStateRecord", "UnregisterControllerRecord")
]
NAMES += ["PartitionRecord", "PartitionChangeRecord", "TopicRecord", "RegisterBrokerRecord", "BrokerRegistrationChangeRecord"] * 3


ALONE = ("TopicRecord", "RemoveTopicRecord", "UserScramCredentialRecord", "RemoveUserScramCredentialRecord")
"""Records that are tested one at a time. When Kafka takes several at once, the order in a hash table may decide, or a topic that
was removed comes back."""


def goes_with_others(record: tuple[str, int, dict[str, Any]], fold: ImageFold) -> bool:
    """Whether Kafka takes a record in one step with others as it takes one after another.

    Where it throws on a partition of a topic that there is not, all that it takes in the same step is lost.
    """
    name, _, fields = record
    return name not in ALONE and (not name.startswith("Partition") or fields["topicId"] in fold.topics)


def has_taken_name(record: tuple[str, int, dict[str, Any]], fold: ImageFold) -> bool:
    """Whether it creates a topic while another has its name, which no controller does."""
    name, _, fields = record
    return name == "TopicRecord" and fold.topic_ids.get(fields["name"], fields["topicId"]) != fields["topicId"]


def test_random_logs(kafka: Kafka) -> None:
    """Records that Kafka throws on among them; some in transactions, which end, are aborted, or stay open."""
    faults = transactions = 0
    for seed in range(RANDOM_LOGS):
        made = RandomLog(seed)
        kafka.begin()
        fold = ImageFold()
        is_open = has_aborted = False
        for _ in range(40):
            records = [made.record()]
            while has_taken_name(records[0], fold) or (is_open and not goes_with_others(records[0], fold)):
                records = [made.record()]
            roll = made.random.random()
            if not is_open and roll < 0.15 and goes_with_others(records[0], fold):
                records.insert(0, ("BeginTransactionRecord", 0, {"name": None}))
                is_open = True
            elif is_open and roll < 0.4:
                is_abort = made.random.random() < 0.5
                records.append(("AbortTransactionRecord" if is_abort else "EndTransactionRecord", 0, {}))
                is_open, has_aborted, transactions = False, has_aborted or is_abort, transactions + 1
            batch, values = as_batch(made.offset, records)
            fold.apply_batch(batch)
            kafka.load(made.offset, 1, values)
            made.offset += len(values)
            if made.random.random() < 0.3:
                assert as_kafka(fold.image(), 0) == {**kafka.image(), "faults": 0}, f"seed {seed}, offset {made.offset}"
        faults += fold.fault_count
        ours, theirs = as_kafka(fold.image(), fold.fault_count), kafka.image()
        if fold.open_transaction is not None or has_aborted:
            ours["faults"] = theirs["faults"]  # ours are those of records that count; Kafka throws before it knows
        assert ours == theirs, f"seed {seed}"
    assert faults > RANDOM_LOGS
    assert transactions > RANDOM_LOGS


def as_batch(offset: int, records: list[tuple[str, int, dict[str, Any]]]) -> tuple[MetadataBatch, list[bytes]]:
    values = []
    for name, version, fields in records:
        key = KEYS[name].api_key
        assert key is not None
        values.append(write_cluster_metadata_record(ClusterMetadataRecord(MetadataRecordType(key), name, version, fields)))
    contents = [MetadataRecord(offset + number, read_cluster_metadata_record(value)) for number, value in enumerate(values)]
    last = offset + len(values) - 1
    return MetadataBatch(offset, last, 1, 0, False, 0, 0, tuple(contents)), values
