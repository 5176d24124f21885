"""``snaprebuild.records`` next to Kafka's own consumer of three releases, at both isolation levels, on the logs of a real broker."""

import time
from pathlib import Path

import pytest
from consumed_records import LEVELS, consumed, ours
from kafka_node import KafkaNode
from manifests import FIXTURES
from moved_in_time import moved_in_time, ms_to_present
from test_rebuilt_clusters import write_history
from tiered_cluster import tiered_cluster

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


def middle_timestamp(log_dir: Path, topic: str) -> int:
    """Milliseconds of a record in the middle of the log: a question, and no expected value."""
    rows = ours(log_dir, topic, isolation="read_committed")
    return int(rows[len(rows) // 2]["timestamp"])


@pytest.mark.parametrize("version", ["2.7.2", pytest.param("3.9.2", marks=pytest.mark.night), "4.3.1"])
def test_the_records_are_those_of_a_consumer(version: str, tmp_path: Path) -> None:
    node = KafkaNode(tmp_path / "node", version=version, tiering=False)
    with node:
        planted(node, tmp_path)
        middles = {topic: middle_timestamp(node.log_dir, topic) for topic in LOGS}
        node.start()
        whole = [f"{topic} {level} -1" for topic in LOGS for level in LEVELS]
        timed = [f"{topic} read_committed {middles[topic]}" for topic in LOGS]
        answers = consumed(node, [*whole, *timed])
        first = answers[: len(whole)]
        by_time = answers[len(whole) :]
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
"""Settings of a topic whose uploaded segments are deleted from the disk."""
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


def test_the_records_of_a_cluster_are_those_of_a_consumer(tmp_path: Path) -> None:
    """Topics that were copied by several leaders; a replica that lost records led, and another one was cut; a topic was made again."""
    with tiered_cluster(tmp_path, "4.3.1") as cluster:
        cluster.start()
        topics = write_history(cluster)
        questions = [f"{topic} {level} -1" for topic in topics for level in LEVELS]
        answers = dict(zip(questions, consumed(cluster.nodes[1], questions), strict=True))
        cluster.stop()
    wrong = {}
    for question, rows in answers.items():
        topic, level, _ = question.split()
        own = [each for each in cluster.log_dirs if (each / f"{topic}-0").is_dir()]
        for log_dirs in ([*own], *([each] for each in own)):
            for metadata in ((), cluster.log_dirs):
                mine = ours(log_dirs, topic, isolation=level, remote=cluster.remote_dir, metadata_log=metadata)
                if mine != rows:
                    wrong[question, len(log_dirs), len(metadata)] = (len(mine), len(rows))
        alone = ours((), topic, isolation=level, remote=cluster.remote_dir)
        alone = [row for row in alone if row["offset"] >= rows[0]["offset"]]
        if alone != rows[: len(alone)] or not alone:
            wrong[question, "alone"] = (len(alone), len(rows))
    assert not wrong
    assert len(answers["unclean read_committed -1"]) == 100
