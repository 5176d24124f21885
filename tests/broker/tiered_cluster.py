"""A cluster of several real brokers with remote storage: what is written there, and what the brokers recorded of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from broker_settings import Settings
from kafka_node import TOOL_SECONDS, KafkaNode
from kafka_release import RELEASES

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

SECONDS = 150.0
METADATA = "__remote_log_metadata"
METADATA_PARTITIONS = 3
SEGMENT_BYTES = {"3.9.2": "segment.bytes", "4.3.1": "internal.segment.bytes", "4.4.0": "internal.segment.bytes"}
"""The setting that allows the smallest segments, by release."""
TIERED = {"remote.storage.enable": "true", "retention.ms": -1, "local.retention.bytes": 1}
CLUSTER = {
    "rlmm.config.remote.log.metadata.topic.num.partitions": METADATA_PARTITIONS,
    "log.retention.check.interval.ms": 500,
    "log.initial.task.delay.ms": 500,
    "log.segment.delete.delay.ms": 1000,
    # Else the clients of the brokers themselves make the topic anew, with one partition.
    "auto.create.topics.enable": "false",
    "controlled.shutdown.enable": "true",
    "replica.lag.time.max.ms": 3000,
    "broker.session.timeout.ms": 6000,
    "min.insync.replicas": 1,
    "auto.leader.rebalance.enable": "false",
}


def wait_until(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    """Waits for a condition, and fails with what there was instead."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


class ClusterNode(KafkaNode):
    """A node of such a cluster. Voters are named in the settings, as every release from 3.6 on takes them."""

    plugin_classpath: str | None = None

    def _cluster_settings(self) -> Settings:
        settings = super()._cluster_settings()
        address = settings.pop("controller.quorum.bootstrap.servers")
        if "advertised.listeners" in settings:
            settings["advertised.listeners"] = str(settings["advertised.listeners"]).partition(",")[0]
        return {**settings, "controller.quorum.voters": f"1@{address}"}

    def _quorum_options(self) -> list[str]:
        """None: the settings name the voters."""
        return []


@dataclass
class TieredCluster:
    """Brokers with node ids from 1 on; the first is the controller, too.

    Attributes:
        version: of Kafka.
        nodes: by node id.
        values: of the records of each topic, by offset, as a client read them.
    """

    version: str
    nodes: dict[int, ClusterNode]
    values: dict[str, dict[int, bytes | None]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Addresses of the brokers that run."""
        return ",".join(each.address for each in self.nodes.values() if each.is_running)

    @property
    def log_dirs(self) -> list[Path]:
        """Log directories of all brokers."""
        return [each.log_dir for each in self.nodes.values()]

    @property
    def remote_dir(self) -> Path:
        """The directory of LocalTieredStorage."""
        return self.nodes[1].remote_dir

    # ---- life ----

    def start(self) -> None:
        """Starts all nodes side by side: each waits for replicas of the metadata topic on others."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: node.start(), [each for each in self.nodes.values() if not each.is_running]))

    def stop(self) -> None:
        """A clean stop of all: the controller last."""
        for node in reversed(self.nodes.values()):
            if node.is_running:
                node.stop()

    # ---- topics ----

    def admin(self) -> AdminClient:
        """A client for the brokers that run."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.address, "log_level": 4})

    def create(self, topic: str, replicas: Sequence[int], *, partitions: int = 1, **settings: object) -> None:
        """A tiered topic with small segments, whose partitions have the same replicas."""
        from confluent_kafka.admin import NewTopic

        named = {name.replace("_", "."): value for name, value in settings.items()}
        config = {**TIERED, SEGMENT_BYTES[self.version]: 1500, **named}
        text = {name: str(value) for name, value in config.items()}
        new = NewTopic(topic, num_partitions=partitions, replica_assignment=[list(replicas)] * partitions, config=text)
        admin = self.admin()  # whose answers end with it
        admin.create_topics([new], operation_timeout=TOOL_SECONDS)[topic].result(TOOL_SECONDS)
        wait_until(lambda: self.leader(topic) in replicas, lambda: f"{topic} has no leader")

    def delete(self, topic: str) -> None:
        """Deletes a topic."""
        admin = self.admin()
        admin.delete_topics([topic], operation_timeout=TOOL_SECONDS)[topic].result(TOOL_SECONDS)
        wait_until(lambda: topic not in admin.list_topics(timeout=TOOL_SECONDS).topics, lambda: f"{topic} is there")

    def set(self, topic: str, **settings: object) -> None:
        """Changes settings of a topic."""
        self.running_node().set_topic(topic, {name.replace("_", "."): value for name, value in settings.items()})

    def running_node(self) -> ClusterNode:
        """Any node that runs."""
        return next(each for each in self.nodes.values() if each.is_running)

    def leader(self, topic: str) -> int:
        """Node id of the leader; -1 without one."""
        from confluent_kafka import KafkaException

        try:
            found = self.admin().list_topics(topic, timeout=TOOL_SECONDS).topics[topic].partitions
        except KafkaException:
            return -1
        leader = found[0].leader if 0 in found else -1
        return leader if leader in self.nodes and self.nodes[leader].is_running else -1

    def wait_for_leader(self, topic: str, node_id: int) -> None:
        """Waits until a node leads."""
        wait_until(lambda: self.leader(topic) == node_id, lambda: f"{topic} is led by {self.leader(topic)}")

    def in_sync(self, topic: str) -> set[int]:
        """The in-sync replicas."""
        return set(self.admin().list_topics(topic, timeout=TOOL_SECONDS).topics[topic].partitions[0].isrs)

    def produce(
        self,
        topic: str,
        records: int,
        *,
        timestamp_ms: int = 0,
        size: int = 20,
        batch: int = 5,
        aborts: str | None = None,
        partition: int = 0,
    ) -> None:
        """Writes small batches, acknowledged by the in-sync replicas.

        Args:
            topic: of the records.
            records: how many.
            timestamp_ms: of all; 0 for now.
            size: bytes of each value.
            batch: records of a batch.
            aborts: transactional id of a producer of which every second transaction of a batch is aborted; None for no transactions.
            partition: of the topic.
        """
        from confluent_kafka import Producer

        settings = {
            "bootstrap.servers": self.address,
            "log_level": 3,
            "enable.idempotence": True,
            "batch.num.messages": batch,
            "linger.ms": 5,
            "message.timeout.ms": 60_000,
        }
        if aborts is not None:
            settings["transactional.id"] = aborts
        producer = Producer(settings)
        if aborts is not None:
            producer.init_transactions(TOOL_SECONDS)
        for first in range(0, records, batch):
            if aborts is not None:
                producer.begin_transaction()
            for number in range(first, min(first + batch, records)):
                value = f"{topic}-{number}-".encode().ljust(size, b"v")
                producer.produce(topic, value, partition=partition, timestamp=timestamp_ms)
            if aborts is not None:
                assert producer.flush(TOOL_SECONDS) == 0, "records were not sent"  # an abort drops what was not
                (producer.commit_transaction if first // batch % 2 else producer.abort_transaction)(TOOL_SECONDS)
        assert producer.flush(TOOL_SECONDS) == 0, "records were not sent"

    # ---- what is there ----

    def local_bases(self, topic: str, node_id: int, partition: int = 0) -> list[int]:
        """Base offsets of the segments on the disk of a node."""
        return sorted(int(path.stem) for path in (self.nodes[node_id].log_dir / f"{topic}-{partition}").glob("*.log"))

    def wait_until_copied(self, *topics: str) -> None:
        """Waits until the leader has nothing but its active segment: it deletes what it knows as copied and recorded."""
        for topic in topics:
            wait_until(
                lambda topic=topic: (leader := self.leader(topic)) > 0 and len(self.local_bases(topic, leader)) == 1,
                lambda topic=topic: (topic, self.leader(topic), [self.local_bases(topic, each) for each in self.nodes]),
            )

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Log start offset and high watermark."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "offsets", "log_level": 3})
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TOOL_SECONDS)
        consumer.close()
        return low, high

    def read(self, topic: str, first: int | None = None, partition: int = 0) -> dict[int, bytes | None]:
        """The values that a consumer gets, also those of aborted transactions, by offset.

        Args:
            topic: of the partition.
            first: offset; None for the log start offset.
            partition: of the topic.
        """
        from confluent_kafka import Consumer, TopicPartition

        low, high = self.offsets(topic, partition)
        start = low if first is None else first
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "reads",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_uncommitted",
                "enable.partition.eof": True,
                "log_level": 3,
            }
        )
        consumer.assign([TopicPartition(topic, partition, start)])
        values: dict[int, bytes | None] = {}
        deadline = time.monotonic() + SECONDS
        while True:
            assert time.monotonic() < deadline, (topic, start, high, max(values, default=None))
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() == -191:  # the end of the partition
                break
            assert error is None, (topic, error)
            offset = message.offset()
            assert offset is not None
            values[offset] = message.value()
        consumer.close()
        return values

    def remote_bases(self, topic: str, topic_id: str | None = None) -> list[int]:
        """Base offsets of the copies in LocalTieredStorage, also of those with the same base."""
        names = self.remote_dir.glob(f"kafka-tiered-storage/{topic}-0-{topic_id or '*'}/*.log")
        return sorted(int(path.name[:20]) for path in names)

    # ---- the metadata topic ----

    def recreate_metadata_topic(self, replicas: Mapping[int, Sequence[int]]) -> None:
        """Deletes the topic, and makes it again as brokers do, with replicas of each partition."""
        from confluent_kafka.admin import NewTopic

        self.delete(METADATA)
        config = {"retention.ms": "-1", "cleanup.policy": "delete"}
        places = [list(replicas[each]) for each in sorted(replicas)]
        new = NewTopic(METADATA, num_partitions=len(places), replica_assignment=places, config=config)
        admin = self.admin()
        admin.create_topics([new], operation_timeout=TOOL_SECONDS)[METADATA].result(TOOL_SECONDS)
        wait_until(
            lambda: all(
                (self.nodes[node_id].log_dir / f"{METADATA}-{number}").is_dir()
                for number in replicas
                for node_id in replicas[number]
            ),
            lambda: "no directories",
        )


@contextmanager
def tiered_cluster(
    root: Path,
    version: str,
    *,
    brokers: int = 3,
    settings: Mapping[str, object] | None = None,
    java_options: Sequence[str] = (),
) -> Iterator[TieredCluster]:
    """A cluster in KRaft, not started. At the end of the block what runs of it is killed.

    Args:
        root: directory of the nodes.
        version: of Kafka, from 3.6 on.
        brokers: how many.
        settings: of all nodes, before those of such clusters.
        java_options: of all nodes.
    """
    replicas = min(3, brokers)
    common = {**CLUSTER, "rlmm.config.remote.log.metadata.topic.replication.factor": replicas, **(settings or {})}
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        if version in RELEASES:
            patch.setitem(RELEASES, version, replace(RELEASES[version], zookeeper=None))
        nodes: dict[int, ClusterNode] = {}
        for node_id in range(1, brokers + 1):
            node = ClusterNode(
                root / f"node{node_id}",
                version=version,
                settings=common,
                controller=nodes.get(1),
                node_id=node_id,
                heap_mib=384,
                java_options=java_options,
            )
            nodes[node_id] = stack.enter_context(node)
        yield TieredCluster(version, nodes)
