"""Brokers whose ``__remote_log_metadata`` was deleted and rebuilt by ``tier metadata``: what they serve, upload and delete afterwards."""

import shutil
import time
from pathlib import Path

import pytest
from broker_settings import COPY_INTERVAL_MS
from command import in_json_process
from kafka_node import KafkaNode
from kraft_node import in_kraft
from tiered_topics import (
    METADATA,
    PARTITIONS,
    SEGMENT_BYTES,
    SETTINGS,
    TIERED,
    consumed,
    recreate_metadata_topic,
    remote_bases,
    wait_until,
)

pytestmark = [pytest.mark.broker, pytest.mark.full]

TOPICS = ("left", "cut", "sized")


def rebuild(node: KafkaNode) -> None:
    """As an operator does it, while the broker is stopped."""
    for number in range(PARTITIONS):
        shutil.rmtree(node.log_dir / f"{METADATA}-{number}")
    words = (node.remote_dir, "--log-dirs", node.log_dir, "--receipt", node.root / "receipt.jsonl")
    run = in_json_process("tier metadata", *words)
    assert run.exit_code == 0, run.stderr
    assert len(run.document["log_dirs"]) == PARTITIONS


@pytest.mark.parametrize("version", SEGMENT_BYTES)
def test_a_rebuilt_topic_serves_every_offset(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is uploaded twice, and retention deletes what it should and nothing else."""
    with in_kraft(version, monkeypatch)(tmp_path, version=version, settings=SETTINGS) as node:
        node.start()
        for topic in TOPICS:
            node.create_topic(topic, {**TIERED, SEGMENT_BYTES[version]: 1500})
            node.produce(topic, 300)
        for topic in TOPICS:
            node.wait_until_copied(f"{topic}-0")
        before = {topic: remote_bases(node, topic) for topic in TOPICS}
        ends = {topic: node.end_offset(topic) for topic in TOPICS}
        assert all(len(bases) >= 6 for bases in before.values())
        recreate_metadata_topic(node)
        node.stop()
        assert {topic: remote_bases(node, topic) for topic in TOPICS} == before

        rebuild(node)
        node.start()
        for topic in TOPICS:
            assert consumed(node, topic, 0, ends[topic]) == list(range(ends[topic])), topic

        # Uploads go on after the last copy, and nothing goes up twice (``remote_files`` fails then).
        node.produce("left", 200)
        node.wait_until_copied("left-0", above=ends["left"])
        assert set(before["left"]) < set(remote_bases(node, "left"))

        # Retention deletes what ends below the new log start offset, and nothing else.
        start = before["cut"][3] + 1
        node.delete_records("cut", start)
        wait_until(lambda: remote_bases(node, "cut") == before["cut"][3:], lambda: remote_bases(node, "cut"))
        sizes = [node.remote_files("sized-0")[f"{base:020d}.log"].stat().st_size for base in before["sized"]]
        node.set_topic("sized", {"retention.bytes": sum(sizes[-3:]) + 3000})
        wait_until(lambda: len(remote_bases(node, "sized")) < len(before["sized"]), lambda: remote_bases(node, "sized"))
        time.sleep(4 * COPY_INTERVAL_MS / 1000)
        left = remote_bases(node, "sized")
        assert left == before["sized"][-len(left) :]
        assert len(left) >= 3
        assert consumed(node, "sized", left[0], ends["sized"]) == list(range(left[0], ends["sized"]))
        assert consumed(node, "cut", start, ends["cut"]) == list(range(start, ends["cut"]))
        assert set(before["left"]) < set(remote_bases(node, "left"))
        node.stop()

        # The broker's own records follow ours.
        run = in_json_process("tier inventory", node.remote_dir, "--metadata-log", node.log_dir)
        assert (run.exit_code, run.document["verified"]) == (0, True), run.stderr


def test_produced_records_are_served_by_a_running_broker(tmp_path: Path) -> None:
    """Copying is off meanwhile. The first pass deletes what the dry run shows, and nothing else."""
    with KafkaNode(tmp_path, settings=SETTINGS) as node:
        node.start()
        node.create_topic("sized", {**TIERED, SEGMENT_BYTES["4.3.1"]: 1500})
        node.produce("sized", 300)
        node.wait_until_copied("sized-0")
        before = remote_bases(node, "sized")
        end = node.end_offset("sized")
        node.set_topic("sized", {"remote.log.copy.disable": "true", "local.retention.bytes": -2, "local.retention.ms": -2})
        recreate_metadata_topic(node)
        node.stop()
        log_dir = tmp_path / "copied"
        shutil.copytree(node.log_dir, log_dir)
        node.start()
        sizes = [node.remote_files("sized-0")[f"{base:020d}.log"].stat().st_size for base in before]
        node.set_topic("sized", {"retention.bytes": sum(sizes[-4:]) + 2500})
        words = (node.remote_dir, "--log-dir", log_dir, "--produce-to", node.address)
        refused = in_json_process("tier metadata", *words)
        assert (refused.exit_code, "--deletes" in refused.stderr) == (3, True)
        dry = in_json_process("tier metadata", *words, "--dry-run")
        assert dry.exit_code == 0, dry.stderr
        deleted = [each["start_offset"] for each in dry.document["expected_deletions"]]
        assert deleted == before[: len(deleted)] != []
        run = in_json_process("tier metadata", *words, "--deletes", len(deleted))
        assert run.exit_code == 0, run.stderr
        left = before[len(deleted) :]
        wait_until(lambda: remote_bases(node, "sized") == left, lambda: (remote_bases(node, "sized"), left))
        time.sleep(4 * COPY_INTERVAL_MS / 1000)
        assert remote_bases(node, "sized") == left
        assert consumed(node, "sized", left[0], end) == list(range(left[0], end))
        node.set_topic("sized", {"remote.log.copy.disable": "false"})
        node.produce("sized", 100)
        wait_until(lambda: remote_bases(node, "sized")[-1] > before[-1], lambda: remote_bases(node, "sized"))
        node.stop()
