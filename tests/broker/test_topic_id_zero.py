"""Topics without an id on a real 3.9.2 with ZooKeeper: what is uploaded below protocol 2.8 is lost, and the refusal prevents that."""

import time
from pathlib import Path

import pytest
from command import in_json_process, snaprebuild_process
from kafka_node import KafkaNode
from planted_log import plant_old_log
from sentences import NOT_READY, RAISE_THE_PROTOCOL

pytestmark = [pytest.mark.broker, pytest.mark.night]

VERSION = "3.9.2"
OLD = {"inter.broker.protocol.version": "2.7", "log.retention.check.interval.ms": 500}
RAISED = {**OLD, "inter.broker.protocol.version": "3.9"}
ZERO = "AAAAAAAAAAAAAAAAAAAAAA"
SECONDS = 240.0
COPIED = r"Copied 0000\d+\.log to remote storage"
TIERED = {"remote.storage.enable": "true", "retention.ms": -1, "retention.bytes": -1}


def earliest(node: KafkaNode, topic: str) -> int:
    """The first offset that consumers get."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    partition, admin = TopicPartition(topic, 0), AdminClient({"bootstrap.servers": node.address, "log_level": 4})
    return int(admin.list_offsets({partition: OffsetSpec.earliest()})[partition].result(SECONDS).offset)


def wait_until_moved(node: KafkaNode, topic: str, offset: int) -> int:
    """The first offset that consumers get, once it is above ``offset``."""
    deadline = time.monotonic() + SECONDS
    while (found := earliest(node, topic)) <= offset:
        assert time.monotonic() < deadline, f"the log still starts at {found}"
        time.sleep(0.2)
    return found


def directories(node: KafkaNode, partition: str) -> set[str]:
    """Topic ids under which remote storage has copies of a partition."""
    found = node.remote_dir.glob(f"kafka-tiered-storage/{partition}-*/*.log")
    return {path.parent.name.removeprefix(f"{partition}-") for path in found}


def properties_of(node: KafkaNode) -> tuple[str, Path]:
    return "--server-properties", node.root / "server.properties"


def test_copies_under_id_zero_are_lost_when_the_protocol_is_raised(tmp_path: Path) -> None:
    with KafkaNode(tmp_path, version=VERSION, settings=OLD) as node:
        mark = node.start()
        node.create_topic("orders", {**TIERED, "local.retention.ms": 1, "segment.bytes": 4096})
        node.produce("orders", 1000)
        node.wait_for_log(COPIED, mark, SECONDS, times=3)
        node.wait_for_log("Incremented local log start offset to", mark, SECONDS)
        assert earliest(node, "orders") == 0, "consumers read it from remote storage"
        node.stop()
        assert directories(node, "orders-0") == {ZERO}
        tier = (node.remote_dir, "--metadata-log", node.log_dir)
        assert in_json_process("tier inventory", *tier).codes["tier-topic-id-zero"] == 1
        assert snaprebuild_process("scan", *properties_of(node)).text.startswith(f"{NOT_READY}1 topic has no id.")
    with KafkaNode(tmp_path, version=VERSION, settings=RAISED) as node:
        node.start()
        assert wait_until_moved(node, "orders", 0) > 0, "the loss that this is about"
        node.stop_all()


def test_a_topic_without_an_id_is_uploaded_after_the_protocol_was_raised(tmp_path: Path) -> None:
    with KafkaNode(tmp_path, version=VERSION, settings=OLD) as node:
        partition = plant_old_log(node, {**TIERED, "local.retention.ms": -2})
        mark = node.start()
        node.wait_for_log("NullPointerException", mark, SECONDS)
        node.stop()
        before = sorted(path.name for path in partition.glob("*.snapshot"))
        assert not (partition / "partition.metadata").exists()
        run = snaprebuild_process("rebuild", *properties_of(node))
        assert run.exit_code == 3
        assert run.text.startswith(f"{NOT_READY}1 topic has no id. {RAISE_THE_PROTOCOL}")
        started = snaprebuild_process("before-start", *properties_of(node), "--fail-closed", "--", "echo", "started")
        assert (started.exit_code, started.stdout) == (0, "started\n")
        assert sorted(path.name for path in partition.glob("*.snapshot")) == before
        assert directories(node, "mixed-0") == set()
    with KafkaNode(tmp_path, version=VERSION, settings=RAISED) as node:
        node.start()
        node.stop()
        assert (partition / "partition.metadata").exists(), "the controller has given the topic its id"
        run = snaprebuild_process("rebuild", *properties_of(node))
        assert run.exit_code == 0, run.stderr
        mark = node.start()
        node.wait_for_log(COPIED, mark, SECONDS, times=12)
        assert earliest(node, "mixed") == 0
        node.stop_all()
        assert len(directories(node, "mixed-0") - {ZERO}) == 1
        assert ZERO not in directories(node, "mixed-0")
