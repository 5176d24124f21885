"""The story that this project exists for, on a real broker: a log of Kafka 2.7 that tiered storage cannot upload, and then can."""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import time
from pathlib import Path

import crc32c
import pytest
from kafka_node import COPY_INTERVAL_MS, KafkaNode

pytestmark = pytest.mark.broker

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "kafka27-mixed"
SEGMENTS = json.loads((FIXTURE / "manifest.json").read_text())["partitions"]["mixed-0"]["segments"]
PARTITION = "mixed-0"
LOG_END_OFFSET = 8231
LAST_STABLE_OFFSET = 6913
UPLOADED = [segment for segment in SEGMENTS if segment["next_offset"] <= LAST_STABLE_OFFSET]
TOPIC_SETTINGS = {"remote.storage.enable": "true", "retention.ms": -1, "retention.bytes": -1, "local.retention.ms": -2}
BROKEN = re.compile(
    r"NullPointerException|CorruptSnapshot|CorruptIndex|CorruptRecord|Corrupt\b|NonMonotonic|corrupted", re.IGNORECASE
)


def snapshot_bytes(entries: list[dict[str, int]]) -> bytes:
    """A snapshot file, written here from the manifest: what a right one must hold, whoever writes it."""
    body = struct.pack(">i", len(entries))
    for e in sorted(entries, key=lambda entry: entry["producer_id"]):
        body += struct.pack(">qhiq", e["producer_id"], e["epoch"], e["last_sequence"], e["last_offset"])
        body += struct.pack(">iqiq", e["offset_delta"], e["timestamp"], e["coordinator_epoch"], e["current_txn_first_offset"])
    return struct.pack(">hI", 1, crc32c.crc32c(body)) + body


def write_missing_snapshots(log_dir: Path) -> None:
    for segment in SEGMENTS:
        file = log_dir / PARTITION / f"{segment['snapshot_offset']:020}.snapshot"
        if not file.exists():
            file.write_bytes(snapshot_bytes(segment["entries"]))


# The step that the command will do: this line becomes `rebuild = ours.rebuild_in_place`.
rebuild = write_missing_snapshots


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


def test_a_log_without_snapshots_is_uploaded_after_the_rebuild(tmp_path: Path) -> None:
    assert len(UPLOADED) == 12
    with KafkaNode(tmp_path) as node:
        node.start()
        node.create_topic("mixed", TOPIC_SETTINGS)
        node.stop()
        partition = node.plant(PARTITION, FIXTURE / "logs" / PARTITION, LOG_END_OFFSET)
        left_by_kafka_27 = snapshots_in(partition)
        assert sorted(left_by_kafka_27) == [f"{offset:020}.snapshot" for offset in (7045, 7637, LOG_END_OFFSET)]

        # Before: the first segment lacks its snapshot, so none is uploaded, and the broker tries again and again.
        before = node.start()
        node.wait_for_log(r'NullPointerException: Cannot invoke "java.io.File.toPath\(\)"', before, 60, times=3)
        assert lock_holder(node.log_dir / ".lock") == node.pid
        node.stop()
        assert lock_holder(node.log_dir / ".lock") is None
        assert node.remote_files(PARTITION) == {}
        assert snapshots_in(partition) == left_by_kafka_27

        rebuild(node.log_dir)
        right = snapshots_in(partition)
        assert sorted(right) == [f"{segment['snapshot_offset']:020}.snapshot" for segment in SEGMENTS]

        # After a restart: everything below the last stable offset goes up, and only that.
        after = node.start()
        node.wait_for_log(r"Copied 0000\d+\.log to remote storage", after, 60, times=len(UPLOADED))
        time.sleep(3 * COPY_INTERVAL_MS / 1000)  # three more rounds of the copy task: it finds nothing that it may upload
        assert snapshots_in(partition) == right
        node.stop()
        said = node.log_since(after)
        assert [line for line in said.splitlines() if BROKEN.search(line)] == []
        assert snapshots_in(partition) == right
        remote = node.remote_files(PARTITION)
        assert sorted(name for name in remote if name.endswith(".log")) == [segment["segment"] for segment in UPLOADED]
        for segment in UPLOADED:
            # With the segment [base, next) goes the snapshot at next.
            uploaded = remote[f"{segment['base_offset']:020}.snapshot"].read_bytes()
            assert uploaded == right[f"{segment['snapshot_offset']:020}.snapshot"]
            assert remote[segment["segment"]].read_bytes() == (partition / segment["segment"]).read_bytes()
