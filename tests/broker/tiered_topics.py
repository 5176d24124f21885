"""Tiered topics of a node with copies in remote storage, and a cluster whose groups were used."""

import contextlib
import time

from kafka_node import KafkaNode

METADATA = "__remote_log_metadata"
SECONDS = 90.0
TIERED = {"remote.storage.enable": "true", "internal.segment.bytes": 1500, "retention.ms": -1, "local.retention.bytes": 2000}


def wait_for_copies(node: KafkaNode, topic: str) -> None:
    """Until only the active segment, and those that local retention keeps, are not in remote storage alone."""
    deadline = time.monotonic() + SECONDS
    while len(list((node.log_dir / f"{topic}-0").glob("*.log"))) > 3:
        assert time.monotonic() < deadline
        time.sleep(0.1)


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
