"""The story that this project exists for, on a real broker: a log of Kafka 2.7 that tiered storage cannot upload, and then can."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import struct
import time
from pathlib import Path
from typing import Any

import crc32c
import our_command
import pytest
from broker_settings import COPY_INTERVAL_MS
from kafka_node import KafkaNode
from moved_in_time import moved_in_time, ms_to_present
from runbook_page import block

pytestmark = pytest.mark.broker

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "kafka27-mixed"
SEGMENTS = json.loads((FIXTURE / "manifest.json").read_text())["partitions"]["mixed-0"]["segments"]
PARTITION = "mixed-0"
LOG_END_OFFSET = 8231
LAST_STABLE_OFFSET = 6913
LATER_MS = ms_to_present(FIXTURE / "logs" / PARTITION)
"""A broker forgets producers of a log that is weeks old: it gets this one as of today."""
UPLOADED = [segment for segment in SEGMENTS if segment["next_offset"] <= LAST_STABLE_OFFSET]
TOPIC_SETTINGS = {"remote.storage.enable": "true", "retention.ms": -1, "retention.bytes": -1, "local.retention.ms": -2}
LOG_SECONDS = 120.0
BROKEN = re.compile("NullPointerException|Corrupt|NonMonotonic", re.IGNORECASE)


def snapshot_bytes(entries: list[dict[str, int]]) -> bytes:
    """A snapshot file, written here from the manifest: what a right one of the log as of today must hold, whoever writes it."""
    body = struct.pack(">i", len(entries))
    for e in sorted(entries, key=lambda entry: entry["producer_id"]):
        body += struct.pack(">qhiq", e["producer_id"], e["epoch"], e["last_sequence"], e["last_offset"])
        body += struct.pack(
            ">iqiq", e["offset_delta"], e["timestamp"] + LATER_MS, e["coordinator_epoch"], e["current_txn_first_offset"]
        )
    return struct.pack(">hI", 1, crc32c.crc32c(body)) + body


# The step that is tested.
rebuild = our_command.rebuild_in_place


def snapshots_in(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.snapshot")}


def lock_holder(lock_file: Path) -> int | None:
    """Who holds a POSIX record lock on the file: ``fcntl(F_GETLK)``, as a program can ask without disturbing the holder.

    Kafka 4 removes the file when it stops.
    """
    if not lock_file.exists():
        return None
    request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    with lock_file.open("rb+") as lock:
        kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(lock, fcntl.F_GETLK, request))
    return None if kind == fcntl.F_UNLCK else pid


def planted(node: KafkaNode) -> Path:
    """Makes the topic and puts the log of Kafka 2.7 in its place; the broker is stopped. Returns the partition's directory."""
    node.start()
    node.create_topic("mixed", TOPIC_SETTINGS)
    node.stop()
    today = moved_in_time(FIXTURE / "logs" / PARTITION, node.root / "today" / PARTITION, LATER_MS)
    return node.plant(PARTITION, today, LOG_END_OFFSET)


def as_typed(node: KafkaNode, option: str) -> None:
    """Runs the one command of the runbook for topics that are stuck that has this option."""
    (line,) = [each for each in block("Stop and restart the attempts").lines if "kafka-configs.sh" in each and option in each]
    words = shlex.split(line.replace("localhost:9092", node.address).replace("orders", "mixed"))
    assert "Completed updating config" in node.tool("kafka.admin.ConfigCommand", *words[1:])


def upload(node: KafkaNode, segments: int, *, copying_was_stopped: bool = False) -> list[str]:
    """Starts the broker, waits until it has uploaded so many segments, and stops it. Returns what it said that is bad."""
    mark = node.start()
    if copying_was_stopped:
        as_typed(node, "--delete-config")
    node.wait_for_log(r"Copied 0000\d+\.log to remote storage", mark, LOG_SECONDS, times=segments)
    time.sleep(3 * COPY_INTERVAL_MS / 1000)  # three more rounds of the copy task: it finds nothing that it may upload
    node.stop()
    return [line for line in node.log_since(mark).splitlines() if BROKEN.search(line)]


def assert_remote(node: KafkaNode, segments: list[dict[str, Any]], right: dict[str, bytes]) -> None:
    """The remote storage holds these segments and no other, each as it is here, with the snapshot at its end."""
    remote = node.remote_files(PARTITION)
    assert sorted(name for name in remote if name.endswith(".log")) == [segment["segment"] for segment in segments]
    for segment in segments:
        assert remote[segment["segment"]].read_bytes() == (node.log_dir / PARTITION / segment["segment"]).read_bytes()
        # With the segment [base, next) goes the snapshot at next.
        uploaded = remote[f"{segment['base_offset']:020}.snapshot"].read_bytes()
        assert uploaded == right[f"{segment['snapshot_offset']:020}.snapshot"]


def test_a_log_without_snapshots_is_uploaded_after_the_rebuild(tmp_path: Path) -> None:
    with KafkaNode(tmp_path) as node:
        partition = planted(node)
        left_by_kafka_27 = snapshots_in(partition)
        assert sorted(left_by_kafka_27) == [f"{offset:020}.snapshot" for offset in (7045, 7637, LOG_END_OFFSET)]

        # Before: the first segment lacks its snapshot, so none is uploaded, and the broker tries again and again.
        before = node.start()
        node.wait_for_log(r'NullPointerException: Cannot invoke "java.io.File.toPath\(\)"', before, LOG_SECONDS, times=3)
        as_typed(node, "--add-config")
        node.wait_for_log("remote.log.copy.disable|[Cc]opy.*(cancel|disabled)", before, LOG_SECONDS)
        assert lock_holder(node.log_dir / ".lock") == node.pid
        assert rebuild(node.log_dir) == 3  # a live broker holds the directory
        assert snapshots_in(partition) == left_by_kafka_27
        node.stop()
        assert BROKEN.search(node.log_since(before))
        assert lock_holder(node.log_dir / ".lock") is None
        assert node.remote_files(PARTITION) == {}
        assert snapshots_in(partition) == left_by_kafka_27

        assert rebuild(node.log_dir) == 0
        right = snapshots_in(partition)
        written = {f"{segment['snapshot_offset']:020}.snapshot": snapshot_bytes(segment["entries"]) for segment in SEGMENTS}
        assert right == written | left_by_kafka_27

        # After a restart, and with copying allowed again: everything below the last stable offset goes up, and only that.
        assert len(UPLOADED) == 12
        assert upload(node, len(UPLOADED), copying_was_stopped=True) == []
        assert snapshots_in(partition) == right
        assert_remote(node, UPLOADED, right)


@pytest.mark.parametrize("set_aside", [False, True], ids=["kept", "set-aside"])
def test_empty_snapshots_of_the_broker_must_be_replaced(tmp_path: Path, set_aside: bool) -> None:
    """A broker that finds no snapshot at all writes empty ones, without a replay, and so forgets the two open transactions."""
    with KafkaNode(tmp_path) as node:
        partition = planted(node)
        for file in partition.glob("*.snapshot"):
            file.unlink()
        started = node.start()
        node.wait_for_log("Wrote producer snapshot at offset 8231 with 0 producer ids", started, LOG_SECONDS)
        node.stop()
        empty = snapshots_in(partition)
        assert {name: len(data) for name, data in empty.items()} == {f"{offset:020}.snapshot": 10 for offset in (7045, 7637, 8231)}

        assert rebuild(node.log_dir, set_aside=set_aside) == (0 if set_aside else 1)
        there = snapshots_in(partition)
        if set_aside:
            assert there == {
                f"{segment['snapshot_offset']:020}.snapshot": snapshot_bytes(segment["entries"]) for segment in SEGMENTS
            }
            assert upload(node, len(UPLOADED)) == []
            assert_remote(node, UPLOADED, there)
        else:
            # What the tool warns of: two segments above the last stable offset go up, with snapshots that hold nobody.
            assert {name: there[name] for name in empty} == empty
            assert upload(node, len(UPLOADED) + 2) == []
            assert_remote(node, SEGMENTS[: len(UPLOADED) + 2], there)
        assert snapshots_in(partition) == there
