"""``snaprebuild.records`` next to Kafka's own consumer of three releases, at both isolation levels, on the logs of a real broker."""

import base64
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka_classpath import java_output
from kafka_node import KafkaNode
from manifests import FIXTURES
from moved_in_time import moved_in_time, ms_to_present

from snaprebuild.library.record_stream import records

pytestmark = [pytest.mark.broker, pytest.mark.full]

LOGS = {
    "mixed": FIXTURES / "kafka4-mixed" / "logs" / "mixed-0",
    "logappend": FIXTURES / "kafka4-mixed" / "logs" / "logappend-0",
    "deleted": FIXTURES / "kafka4-mixed" / "logs" / "deleted-0",
    "old": FIXTURES / "kafka27-mixed" / "logs" / "mixed-0",
    "compacted": FIXTURES / "kafka4-compacted" / "logs" / "compacted-0",
}
KEPT = {"retention.ms": -1, "retention.bytes": -1, "file.delete.delay.ms": 1000, "min.compaction.lag.ms": (1 << 63) - 1}
"""Nothing is deleted or compacted: the consumer and the tool read at different times."""
LEVELS = ("read_committed", "read_uncommitted")
COLUMNS = ("offset", "timestamp", "timestampType", "key", "value", "headers")


def log_end(partition: Path) -> int:
    """Offset after the last batch, by the lengths."""
    data = max(partition.glob("*.log")).read_bytes()
    at = end = 0
    while at < len(data):
        end = int.from_bytes(data[at : at + 8], "big") + int.from_bytes(data[at + 23 : at + 27], "big") + 1
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return end


def planted(node: KafkaNode, tmp_path: Path) -> None:
    """The logs in the log directory of a stopped broker."""
    node.start()
    for topic in LOGS:
        node.create_topic(topic, {**KEPT, "cleanup.policy": "compact" if topic == "compacted" else "delete"})
    node.stop()
    for topic, source in LOGS.items():
        young = moved_in_time(source, tmp_path / "young" / f"{topic}-0", ms_to_present(source))
        node.plant(f"{topic}-0", young, log_end(young))


def bytes_of(text: str) -> bytes | None:
    return None if text == "null" else base64.b64decode(text[1:])


def consumed(node: KafkaNode, questions: list[str]) -> list[list[dict[str, Any]]]:
    """The rows of each question (``ConsumedRecords.java``), by the consumer of the release of the broker."""
    answer = java_output("ConsumedRecords", arguments=[node.address], lines=questions, version=node.release.version)
    answers: list[list[dict[str, Any]]] = [[]]
    for line in answer:
        if not line:
            answers.append([])
            continue
        offset, timestamp, kind, key, value, *headers = line.split()
        pairs = [
            {"key": (bytes_of(name) or b"").decode(), "value": bytes_of(data)}
            for name, data in zip(headers[::2], headers[1::2], strict=True)
        ]
        answers[-1].append(
            {
                "offset": int(offset),
                "timestamp": int(timestamp),
                "timestampType": int(kind),
                "key": bytes_of(key),
                "value": bytes_of(value),
                "headers": pairs or None,
            }
        )
    return answers[:-1]


def ours(log_dir: Path | tuple[()], topic: str, **options: Any) -> list[dict[str, Any]]:
    stream = records(log_dir, topics=topic, columns=COLUMNS, **options)
    table = pa.Table.from_batches(list(stream), stream.schema)
    milliseconds = pa.compute.divide(table["timestamp"].cast(pa.int64()), 1000)
    rows: list[dict[str, Any]] = table.set_column(1, "timestamp", milliseconds).to_pylist()
    return rows


def middle_timestamp(log_dir: Path, topic: str) -> int:
    """Milliseconds of a record in the middle of the log: a question, and no expected value."""
    rows = ours(log_dir, topic, isolation="read_committed")
    return int(rows[len(rows) // 2]["timestamp"])


@pytest.mark.parametrize("version", ["2.7.2", "3.9.2", "4.3.1"])
def test_the_records_are_those_of_a_consumer(version: str, tmp_path: Path) -> None:
    node = KafkaNode(tmp_path / "node", version=version, tiering=False)
    with node:
        planted(node, tmp_path)
        middles = {topic: middle_timestamp(node.log_dir, topic) for topic in LOGS}
        node.start()
        whole = [f"{topic} {level} -1" for topic in LOGS for level in LEVELS]
        timed = [f"{topic} read_committed {middles[topic]}" for topic in LOGS]
        answers = consumed(node, [*whole, *timed])
        first, by_time = answers[: len(whole)], answers[len(whole) :]
        node.stop_all()
    seen = 0
    for question, rows in zip(whole, first, strict=True):
        topic, level, _ = question.split()
        assert ours(node.log_dir, topic, isolation=level) == rows, question
        seen += len(rows)
    for question, rows in zip(timed, by_time, strict=True):
        topic, _, time_ms = question.split()
        assert ours(node.log_dir, topic, starting_timestamp=int(time_ms)) == rows, question
    assert seen > 20_000


# --- remote storage --------------------------------------------------------------------------------------------------------

TIERED = {**KEPT, "remote.storage.enable": "true", "local.retention.ms": -2, "local.retention.bytes": 1}
"""What is uploaded is deleted from the disk."""
RETENTION = {"log.retention.check.interval.ms": 500, "log.initial.task.delay.ms": 500}
RETENTION_SECONDS = 120.0


def first_on_disk(partition: Path) -> int:
    return min(int(path.stem) for path in partition.glob("*.log"))


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_the_records_of_remote_storage_are_those_of_a_consumer(version: str, tmp_path: Path) -> None:
    """The broker serves what it has deleted from its disk from its ``LocalTieredStorage``. Two transactions hang at the end of the log."""
    topic = "old"
    questions = [f"{topic} {level} -1" for level in LEVELS]
    with KafkaNode(tmp_path / "node", version=version, settings=RETENTION) as node:
        node.start()
        node.create_topic(topic, TIERED)
        node.stop()
        source = LOGS["mixed"]
        young = moved_in_time(source, tmp_path / "young" / f"{topic}-0", ms_to_present(source))
        partition = node.plant(f"{topic}-0", young, log_end(young))
        bases = sorted(int(path.stem) for path in young.glob("*.log"))
        node.start()
        deadline = time.monotonic() + RETENTION_SECONDS
        while first_on_disk(partition) < bases[-4]:
            assert time.monotonic() < deadline, sorted(node.remote_files(f"{topic}-0"))
            time.sleep(0.2)
        answers = consumed(node, questions)
        node.stop_all()
    on_disk = first_on_disk(partition)
    assert all(rows[0]["offset"] < bases[1] < on_disk for rows in answers)
    for level, rows in zip(LEVELS, answers, strict=True):
        for metadata in ({}, {"metadata_log": node.log_dir}):
            both = ours(node.log_dir, topic, remote=node.remote_dir, isolation=level, **metadata)
            assert both == rows, (level, metadata)
        alone = ours((), topic, remote=node.remote_dir, isolation=level)
        assert alone == rows[: len(alone)] != []
        if level == "read_uncommitted":
            assert len(alone) >= sum(row["offset"] < on_disk for row in rows)
    assert len(answers[1]) > 5_000
