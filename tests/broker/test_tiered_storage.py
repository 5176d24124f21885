"""The scenario that this project exists for, on a real broker: a log of Kafka 2.7 that tiered storage cannot upload, and then can."""

import re
import shlex
import time
from pathlib import Path

import pytest
from broker_settings import COPY_INTERVAL_MS
from command import snaprebuild_process
from kafka_node import KafkaNode
from log_dirs import EMPTY_SNAPSHOT, partition_fixture, snapshot_bytes, snapshot_name
from planted_log import LAST_STABLE_OFFSET, LEFT, TRUTH, plant_old_log
from runbook_page import block

pytestmark = pytest.mark.broker

PARTITION = "mixed-0"
SEGMENTS = partition_fixture("kafka27-mixed", PARTITION).segments
UPLOADED = [each for each in SEGMENTS if each.next_offset <= LAST_STABLE_OFFSET]
TOPIC_SETTINGS = {"remote.storage.enable": "true", "retention.ms": -1, "retention.bytes": -1, "local.retention.ms": -2}
LOG_SECONDS = 120.0
BROKEN = re.compile("NullPointerException|Corrupt|NonMonotonic", re.IGNORECASE)
RIGHT = {
    snapshot_name(offset): snapshot_bytes(sorted(entries, key=lambda each: each.producer_id)) for offset, entries in TRUTH.items()
}


def snapshots_in(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.snapshot")}


def as_typed(node: KafkaNode, option: str) -> None:
    """Runs the one command of the runbook for topics that are stuck that has this option."""
    (line,) = [
        each
        for each in block("Stop and restart the attempts: `remote.log.copy.disable`").lines
        if "kafka-configs.sh" in each and option in each
    ]
    words = shlex.split(line.replace("localhost:9092", node.address).replace("orders", "mixed"))
    assert "Completed updating config" in node.tool("kafka.admin.ConfigCommand", *words[1:])


def upload(node: KafkaNode, *, copying_was_stopped: bool = False) -> list[str]:
    """Starts the broker, waits until it has uploaded the segments that may go up, and stops it. Returns what it said that is bad."""
    mark = node.start()
    if copying_was_stopped:
        as_typed(node, "--delete-config")
    node.wait_for_log(r"Copied 0000\d+\.log to remote storage", mark, LOG_SECONDS, times=len(UPLOADED))
    time.sleep(3 * COPY_INTERVAL_MS / 1000)  # three more rounds of the copy task: it finds nothing that it may upload
    node.stop()
    return [line for line in node.log_since(mark).splitlines() if BROKEN.search(line)]


def assert_remote(node: KafkaNode, right: dict[str, bytes]) -> None:
    """Remote storage holds what is below the last stable offset, each segment as it is here, with the snapshot at its end."""
    remote = node.remote_files(PARTITION)
    assert sorted(name for name in remote if name.endswith(".log")) == [segment.path.name for segment in UPLOADED]
    for segment in UPLOADED:
        assert remote[segment.path.name].read_bytes() == (node.log_dir / PARTITION / segment.path.name).read_bytes()
        # With the segment [base, next) goes the snapshot at next.
        assert remote[snapshot_name(segment.base_offset)].read_bytes() == right[snapshot_name(segment.snapshot_offset)]


def test_a_log_without_snapshots_is_uploaded_after_the_rebuild(tmp_path: Path) -> None:
    with KafkaNode(tmp_path) as node:
        partition = plant_old_log(node, TOPIC_SETTINGS)
        left_by_kafka_27 = snapshots_in(partition)
        assert sorted(left_by_kafka_27) == [snapshot_name(offset) for offset in LEFT]

        # Before: the first segment lacks its snapshot, so none is uploaded, and the broker tries again and again.
        before = node.start()
        node.wait_for_log(r'NullPointerException: Cannot invoke "java.io.File.toPath\(\)"', before, LOG_SECONDS, times=3)
        as_typed(node, "--add-config")
        node.wait_for_log("remote.log.copy.disable|[Cc]opy.*(cancel|disabled)", before, LOG_SECONDS)
        assert snaprebuild_process("rebuild", node.log_dir).exit_code == 3, "a live broker holds the directory"
        node.stop()
        assert node.remote_files(PARTITION) == {}
        assert snapshots_in(partition) == left_by_kafka_27

        assert snaprebuild_process("rebuild", node.log_dir).exit_code == 0
        right = snapshots_in(partition)
        assert right == RIGHT | left_by_kafka_27

        # After a restart, and with copying allowed again: everything below the last stable offset goes up, and only that.
        assert len(UPLOADED) == 12
        assert upload(node, copying_was_stopped=True) == []
        assert snapshots_in(partition) == right
        assert_remote(node, right)


def test_empty_snapshots_of_the_broker_must_be_replaced(tmp_path: Path) -> None:
    """A broker that finds no snapshot at all writes empty ones, without a replay, and so forgets the two open transactions."""
    with KafkaNode(tmp_path) as node:
        partition = plant_old_log(node, TOPIC_SETTINGS)
        for file in partition.glob("*.snapshot"):
            file.unlink()
        started = node.start()
        node.wait_for_log("Wrote producer snapshot at offset 8231 with 0 producer ids", started, LOG_SECONDS)
        node.stop()
        assert snapshots_in(partition) == dict.fromkeys(map(snapshot_name, LEFT), EMPTY_SNAPSHOT)
        assert snaprebuild_process("rebuild", node.log_dir, "--set-aside").exit_code == 0
        assert snapshots_in(partition) == RIGHT
        assert upload(node) == []
        assert_remote(node, RIGHT)
        assert snapshots_in(partition) == RIGHT
