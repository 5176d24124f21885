"""Topics with remote storage on a broker of its own: what is on disk, in remote storage, and what a consumer gets of them."""

from __future__ import annotations

import contextlib
import time

from kafka_node import KafkaNode
from tiered_cluster import METADATA, SEGMENT_BYTES, TIERED, wait_until

SECONDS = 90.0
PARTITIONS = 3
SETTINGS: dict[str, object] = {
    "rlmm.config.remote.log.metadata.topic.num.partitions": PARTITIONS,
    "log.retention.check.interval.ms": 500,
    "log.initial.task.delay.ms": 500,
    # Else the clients of the broker itself make the topic anew, with one partition.
    "auto.create.topics.enable": "false",
}
"""Settings of a broker whose ``__remote_log_metadata`` is deleted while it runs."""

SMALL_SEGMENTS = {**TIERED, SEGMENT_BYTES["4.3.1"]: 1500}
"""Settings of a topic of 4.3.1 that has many copies after some hundred records."""


def consumed(node: KafkaNode, topic: str, first: int, end: int) -> list[int]:
    """The offsets that a consumer gets, from ``first`` on."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": node.address, "group.id": "reads", "enable.auto.commit": False, "auto.offset.reset": "error"}
    )
    consumer.assign([TopicPartition(topic, 0, first)])
    offsets: list[int] = []
    deadline = time.monotonic() + SECONDS
    while not offsets or offsets[-1] < end - 1:
        assert time.monotonic() < deadline, (topic, offsets[-3:])
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None, (topic, message.error())
            offsets.append(message.offset())
    consumer.close()
    return offsets


def recreate_metadata_topic(node: KafkaNode) -> None:
    """Deletes the topic, and makes it again as a broker does."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": node.address, "log_level": 4})
    admin.delete_topics([METADATA], operation_timeout=SECONDS)[METADATA].result(SECONDS)
    wait_until(lambda: METADATA not in admin.list_topics(timeout=SECONDS).topics, lambda: "the topic is there")
    new = NewTopic(
        METADATA, num_partitions=PARTITIONS, replication_factor=1, config={"retention.ms": "-1", "cleanup.policy": "delete"}
    )
    admin.create_topics([new], operation_timeout=SECONDS)[METADATA].result(SECONDS)
    wait_until(
        lambda: all((node.log_dir / f"{METADATA}-{number}").is_dir() for number in range(PARTITIONS)), lambda: "no directories"
    )


def seen(node: KafkaNode) -> tuple[list[str], list[str]]:
    """Topics and consumer groups of the cluster."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": node.address, "log_level": 4})
    groups = admin.list_consumer_groups(request_timeout=SECONDS).result(SECONDS).valid
    return sorted(admin.list_topics(timeout=SECONDS).topics), sorted(each.group_id for each in groups)


def use_a_group(node: KafkaNode) -> None:
    """Has the topic of groups created, as the first consumer of a cluster does."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": node.address, "group.id": "first"})
    deadline = time.monotonic() + SECONDS
    while "__consumer_offsets" not in seen(node)[0]:
        assert time.monotonic() < deadline
        with contextlib.suppress(KafkaException):  # the coordinator is not there yet
            consumer.committed([TopicPartition(METADATA, 0)], timeout=2)
    consumer.close()
