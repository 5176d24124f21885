"""Brokers whose ``__remote_log_metadata`` was deleted and rebuilt by ``tier metadata``: what they serve, upload and delete afterwards."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from broker_settings import COPY_INTERVAL_MS
from command import in_json_process
from kafka_node import KafkaNode
from kraft_node import in_kraft

pytestmark = [pytest.mark.broker, pytest.mark.full]

SECONDS = 90.0
PARTITIONS = 3
DAY_MS = 86_400_000
METADATA = "__remote_log_metadata"
SETTINGS = {
    "rlmm.config.remote.log.metadata.topic.num.partitions": PARTITIONS,
    "log.retention.check.interval.ms": 500,
    "log.initial.task.delay.ms": 500,
    # Else the clients of the broker itself make the topic anew, with one partition.
    "auto.create.topics.enable": "false",
}
TIERED = {"remote.storage.enable": "true", "retention.ms": -1, "local.retention.bytes": 1}
SEGMENT_BYTES = {"3.9.2": "segment.bytes", "4.3.1": "internal.segment.bytes"}
"""The setting that allows the smallest segments, by release."""
TOPICS = ("left", "cut", "sized")


def wait_until(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def remote_bases(node: KafkaNode, topic: str) -> list[int]:
    """Base offsets in remote storage; fails if a segment is there twice."""
    return sorted(int(name[:20]) for name in node.remote_files(f"{topic}-0") if name.endswith(".log"))


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


def lose_metadata(node: KafkaNode) -> None:
    """Deletes the directories of the topic, while the broker is stopped."""
    for number in range(PARTITIONS):
        shutil.rmtree(node.log_dir / f"{METADATA}-{number}")


def rebuild(node: KafkaNode) -> None:
    """As an operator does it, while the broker is stopped."""
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


@pytest.mark.parametrize("limit", ["retention.bytes", "retention.ms"])
def test_produced_records_are_served_by_a_running_broker(tmp_path: Path, limit: str) -> None:
    """Copying is off meanwhile. The first pass deletes what the dry run shows, and nothing else."""
    with KafkaNode(tmp_path, settings=SETTINGS) as node:
        node.start()
        node.create_topic("sized", {**TIERED, SEGMENT_BYTES["4.3.1"]: 1500})
        now_ms = time.time_ns() // 1_000_000
        for age_days in range(9, -1, -1):
            node.produce("sized", 30, timestamp_ms=now_ms - age_days * DAY_MS)
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
        wait_until(lambda: remote_bases(node, "sized") == left, lambda: (remote_bases(node, "sized"), left))
        time.sleep(4 * COPY_INTERVAL_MS / 1000)
        assert remote_bases(node, "sized") == left
        assert consumed(node, "sized", left[0], end) == list(range(left[0], end))
        node.set_topic("sized", {"remote.log.copy.disable": "false"})
        node.produce("sized", 100)
        wait_until(lambda: remote_bases(node, "sized")[-1] > before[-1], lambda: remote_bases(node, "sized"))
        node.stop()


@pytest.mark.parametrize("version", SEGMENT_BYTES)
def test_a_broker_that_ran_without_records_has_moved_its_log_starts(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had in remote storage alone is served again after its checkpoint was corrected."""
    with in_kraft(version, monkeypatch)(tmp_path, version=version, settings=SETTINGS) as node:
        node.start()
        node.create_topic("left", {**TIERED, SEGMENT_BYTES[version]: 1500})
        node.produce("left", 300)
        node.wait_until_copied("left-0")
        (first_local,) = [int(path.stem) for path in (node.log_dir / "left-0").glob("*.log")]
        end = node.end_offset("left")
        before = remote_bases(node, "left")
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
        run = in_json_process("tier metadata", *words)
        assert run.exit_code == 0, run.stderr
        node.start()
        assert consumed(node, "left", 0, end) == list(range(end))
        assert remote_bases(node, "left") == before
        node.stop()
