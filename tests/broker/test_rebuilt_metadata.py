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
    SECONDS,
    SEGMENT_BYTES,
    SETTINGS,
    TIERED,
    consumed,
    recreate_metadata_topic,
    wait_until,
)

pytestmark = [pytest.mark.broker, pytest.mark.full]

DAY_MS = 86_400_000
TOPICS = ("left", "cut", "sized")


def lose_metadata(node: KafkaNode) -> None:
    """Deletes the directories of the topic, while the broker is stopped."""
    for number in range(PARTITIONS):
        shutil.rmtree(node.log_dir / f"{METADATA}-{number}")


def rebuild(node: KafkaNode) -> None:
    """Rebuilds the metadata as an operator does it, while the broker is stopped."""
    lose_metadata(node)
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
        before = {topic: node.remote_bases(topic) for topic in TOPICS}
        ends = {topic: node.end_offset(topic) for topic in TOPICS}
        assert all(len(bases) >= 6 for bases in before.values())
        recreate_metadata_topic(node)
        node.stop()
        assert {topic: node.remote_bases(topic) for topic in TOPICS} == before

        rebuild(node)
        node.start()
        for topic in TOPICS:
            assert consumed(node, topic, 0, ends[topic]) == list(range(ends[topic])), topic

        # Uploads go on after the last copy, and nothing goes up twice (``remote_files`` fails then).
        node.produce("left", 200)
        node.wait_until_copied("left-0", above=ends["left"])
        assert set(before["left"]) < set(node.remote_bases("left"))

        # Retention deletes what ends below the new log start offset, and nothing else.
        start = before["cut"][3] + 1
        node.delete_records("cut", start)
        wait_until(lambda: node.remote_bases("cut") == before["cut"][3:], lambda: node.remote_bases("cut"))
        sizes = [node.remote_files("sized-0")[f"{base:020d}.log"].stat().st_size for base in before["sized"]]
        node.set_topic("sized", {"retention.bytes": sum(sizes[-3:]) + 3000})
        wait_until(lambda: len(node.remote_bases("sized")) < len(before["sized"]), lambda: node.remote_bases("sized"))
        time.sleep(4 * COPY_INTERVAL_MS / 1000)
        left = node.remote_bases("sized")
        assert left == before["sized"][-len(left) :]
        assert len(left) >= 3
        assert consumed(node, "sized", left[0], ends["sized"]) == list(range(left[0], ends["sized"]))
        assert consumed(node, "cut", start, ends["cut"]) == list(range(start, ends["cut"]))
        assert set(before["left"]) < set(node.remote_bases("left"))
        node.stop()

        # The broker's own records follow ours.
        run = in_json_process("tier inventory", node.remote_dir, "--metadata-log", node.log_dir)
        assert (run.exit_code, run.document["verified"]) == (0, True), run.stderr


@pytest.mark.parametrize("limit", ["retention.bytes", pytest.param("retention.ms", marks=pytest.mark.night)])
def test_produced_records_are_served_by_a_running_broker(tmp_path: Path, limit: str) -> None:
    """Copying is off meanwhile. The first pass deletes what the dry run shows, and nothing else."""
    with KafkaNode(tmp_path, settings=SETTINGS) as node:
        node.start()
        node.create_topic("sized", {**TIERED, SEGMENT_BYTES["4.3.1"]: 1500})
        now_ms = time.time_ns() // 1_000_000
        for age_days in range(9, -1, -1):
            node.produce("sized", 30, timestamp_ms=now_ms - age_days * DAY_MS)
        node.wait_until_copied("sized-0")
        before = node.remote_bases("sized")
        end = node.end_offset("sized")
        node.set_topic("sized", {"remote.log.copy.disable": "true", "local.retention.bytes": -2, "local.retention.ms": -2})
        recreate_metadata_topic(node)
        node.stop()
        log_dir = tmp_path / "copied"
        shutil.copytree(node.log_dir, log_dir)
        node.start()
        sizes = [node.remote_files("sized-0")[f"{base:020d}.log"].stat().st_size for base in before]
        node.set_topic("sized", {limit: sum(sizes[-4:]) + 2500 if limit == "retention.bytes" else int(4.5 * DAY_MS)})
        words = (node.remote_dir, "--log-dir", log_dir, "--produce-to", node.address)
        refused = in_json_process("tier metadata", *words)
        assert (refused.exit_code, "--deletes" in refused.stderr) == (3, True)
        dry = in_json_process("tier metadata", *words, "--dry-run")
        assert dry.exit_code == 0, dry.stderr
        deleted = [each["start_offset"] for each in dry.document["expected_deletions"]]
        assert deleted == before[: len(deleted)] != []
        assert len(deleted) < len(before)
        assert {each["deletion_reason"] for each in dry.document["expected_deletions"]} == {limit.replace(".", "-")}
        run = in_json_process("tier metadata", *words, "--deletes", len(deleted))
        assert run.exit_code == 0, run.stderr
        left = before[len(deleted) :]
        wait_until(lambda: node.remote_bases("sized") == left, lambda: (node.remote_bases("sized"), left))
        time.sleep(4 * COPY_INTERVAL_MS / 1000)
        assert node.remote_bases("sized") == left
        assert consumed(node, "sized", left[0], end) == list(range(left[0], end))
        node.set_topic("sized", {"remote.log.copy.disable": "false"})
        node.produce("sized", 100)
        wait_until(lambda: node.remote_bases("sized")[-1] > before[-1], lambda: node.remote_bases("sized"))
        node.stop()


@pytest.mark.parametrize("version", [pytest.param("3.9.2", marks=pytest.mark.night), "4.3.1"])
def test_a_broker_that_ran_without_records_has_moved_its_log_starts(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that were in remote storage alone are served again after the checkpoint was corrected."""
    with in_kraft(version, monkeypatch)(tmp_path, version=version, settings=SETTINGS) as node:
        node.start()
        node.create_topic("left", {**TIERED, SEGMENT_BYTES[version]: 1500})
        node.produce("left", 300)
        node.wait_until_copied("left-0")
        (first_local,) = [int(path.stem) for path in (node.log_dir / "left-0").glob("*.log")]
        end = node.end_offset("left")
        before = node.remote_bases("left")
        node.stop()
        checkpoint = node.log_dir / "log-start-offset-checkpoint"
        assert "left 0 0" in checkpoint.read_text().splitlines()
        lose_metadata(node)
        mark = node.start()
        node.wait_for_log(f"Found the logStartOffset: {first_local} for partition: .*left-0", mark, SECONDS)
        node.stop()
        moved = f"left 0 {first_local}"
        assert moved in checkpoint.read_text().splitlines()

        lose_metadata(node)
        words = (node.remote_dir, "--log-dirs", node.log_dir, "--receipt", node.root / "receipt.jsonl")
        refused = in_json_process("tier metadata", *words)
        assert (refused.exit_code, list(node.log_dir.glob(f"{METADATA}-*"))) == (3, [])
        (partition,) = refused.document["partitions"]
        assert [each["cause"] for each in partition["refusals"]] == ["log-start-moved"]
        checkpoint.write_text(checkpoint.read_text().replace(moved, "left 0 0"))
        refused = in_json_process("tier metadata", *words)
        (partition,) = refused.document["partitions"]
        assert (refused.exit_code, [each["cause"] for each in partition["refusals"]]) == (3, ["not-served"])
        epochs = node.log_dir / "left-0" / "leader-epoch-checkpoint"
        assert f"0 {first_local}" in epochs.read_text().splitlines()
        epochs.write_text(epochs.read_text().replace(f"0 {first_local}", "0 0"))
        run = in_json_process("tier metadata", *words)
        assert run.exit_code == 0, run.stderr
        node.start()
        assert consumed(node, "left", 0, end) == list(range(end))
        assert node.remote_bases("left") == before
        node.stop()
