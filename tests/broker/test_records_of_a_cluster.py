"""``--bootstrap-server``: the records of a running broker give what its log directory gives once it is stopped."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command import in_json
from kafka_node import KafkaNode
from kraft_node import in_kraft
from tiered_topics import METADATA, SECONDS, SETTINGS, SMALL_SEGMENTS, seen, wait_until

from snaprebuild.storage.remote.metadata_topic import MetadataTopic

pytestmark = [pytest.mark.broker, pytest.mark.full]

AS_OF = ("--as-of", "2030-01-01")


def copies(document: dict[str, Any]) -> list[Any]:
    """The members of each copy in a document, without those that depend on the time of the run."""
    left_out = ("age_ms", "elapsed_seconds")
    found = [
        {name: value for name, value in copy.items() if name not in left_out}
        for partition in document["partitions"]
        for copy in partition["copies"]
    ]
    return sorted(found, key=lambda each: json.dumps(each, sort_keys=True))


def test_the_same_as_from_the_log_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_kraft("4.3.1", monkeypatch)(tmp_path, version="4.3.1", settings=SETTINGS) as node:
        node.start()
        for topic in ("one", "two"):
            node.create_topic(topic, SMALL_SEGMENTS)
            node.produce(topic, 200)
            node.wait_until_copied(f"{topic}-0")
        before = seen(node)
        refused = in_json("tier inventory", node.remote_dir, "--bootstrap-server", node.address)
        assert refused.exit_code == 3
        assert "__consumer_offsets" in refused.stderr
        assert seen(node) == before, "nothing was created"
        read_without_refusal(node)
        before = seen(node)
        assert METADATA in before[0]
        client = tmp_path / "client.properties"
        client.write_text("security.protocol=PLAINTEXT\n")
        cluster = ("--bootstrap-server", node.address, "--command-config", client)
        running = {
            "inventory": in_json("tier inventory", node.remote_dir, *cluster),
            "audit": in_json("tier audit", node.remote_dir, *cluster, *AS_OF, "--jobs", "1"),
            "metadata": in_json("tier metadata", node.remote_dir, *cluster),
        }
        assert seen(node) == before, "nothing was created, and no group"
        repair = in_json("tier repair", node.remote_dir, *cluster, *AS_OF, "--jobs", "1", "--dry-run")
        ends = {number: node_end(node, number) for number in range(3)}
        node.stop()
        for verb, run in running.items():
            options = (*AS_OF, "--jobs", "1") if verb == "audit" else ()
            stopped = in_json(f"tier {verb}", node.remote_dir, "--metadata-log", node.log_dir, *options)
            assert run.document["verified"] is True, verb
            assert copies(run.document) == copies(stopped.document), verb
            assert len(copies(run.document)) >= 8, verb
            assert run.exit_code == stopped.exit_code == 0, (verb, run.stderr)
            (note,) = [each for each in run.document["findings"] if each["code"] == "metadata-topic-read"]
            printed = dict(re.findall(r"(\d+): (\d+)", note["message"].partition("began: ")[2]))
            assert {int(number): int(end) for number, end in printed.items()} == ends, verb
        assert repair.document["verified"] is True
        assert repair.exit_code == 0, repair.stderr


def read_without_refusal(node: KafkaNode) -> None:
    """The reason for the refusal: the client library looks for the coordinator of a group that the client never joins.

    If this ends with an error, the library does not do that any more, and nothing needs to be refused.
    """
    topic = MetadataTopic(node.address, {})
    topic.bounds(0)
    wait_until(lambda: "__consumer_offsets" in seen(node)[0], lambda: seen(node))
    topic.close()


def node_end(node: KafkaNode, number: int) -> int:
    """Offset after the last record of a partition of the topic, by a client of the test."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": node.address, "group.id": "ends"})
    _, high = consumer.get_watermark_offsets(TopicPartition(METADATA, number), timeout=SECONDS)
    consumer.close()
    return int(high)


def test_a_cluster_that_does_not_answer(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    run = in_json("tier inventory", tmp_path / "store", "--bootstrap-server", "127.0.0.1:1")
    assert run.exit_code == 5
    assert "the brokers do not answer" in run.stderr
