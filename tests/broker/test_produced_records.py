"""``tier upload --produce-to`` next to a real broker: over TLS and SASL, with the permissions that the documentation names.

After it the broker takes the copies for its own, uploads none of them again, deletes its local segments, and serves reads from them.
"""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiven_reader import read_copies
from certificates import certificate
from command import in_json_process, snaprebuild_process
from kafka_node import KafkaNode
from manifests import FIXTURES
from moved_in_time import moved_in_time, ms_to_present
from wire import Wire

pytestmark = pytest.mark.broker

FIXTURE = FIXTURES / "kafka4-mixed"
SEGMENTS = json.loads((FIXTURE / "manifest.json").read_text())["partitions"]["mixed-0"]["segments"]
LOG_END = SEGMENTS[-1]["next_offset"]
STABLE = min(each["current_txn_first_offset"] for each in SEGMENTS[-1]["entries"] if each["current_txn_first_offset"] >= 0)
DUE = [segment for segment in SEGMENTS if segment["next_offset"] <= STABLE]
SUFFIXES = {"offset": "index", "timestamp": "timeindex", "producerSnapshot": "snapshot", "leaderEpoch": "leader_epoch_checkpoint"}
SUFFIXES |= {"transaction": "txnindex"}
TOPIC = {"remote.storage.enable": "true", "retention.ms": -1, "retention.bytes": -1, "local.retention.ms": -2}
PASSWORD = "not-to-be-told"
READ_SECONDS = 120.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[KafkaNode]:
    _, keystore = certificate(tmp_path)
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    secure = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": keystore,
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f'{login} user_uploader="{PASSWORD}" user_stranger="{PASSWORD}";',
    }
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "rlmm.config.remote.log.metadata.topic.num.partitions": 7,
        "log.retention.check.interval.ms": 500,
    }
    with KafkaNode(tmp_path / "node", settings=settings, secure=secure) as running:
        yield running


def client_settings(directory: Path, user: str) -> Path:
    path = directory / f"{user}.properties"
    lines = [
        "# of a client",
        "security.protocol=SASL_SSL",
        "sasl.mechanism=PLAIN",
        f"sasl.username={user}",
        f"sasl.password={PASSWORD}",
    ]
    path.write_text("\n".join([*lines, f"ssl.ca.location={directory / 'certificate.pem'}", ""]))
    return path


def allow(node: KafkaNode, topic: str, *operations: str) -> None:
    arguments = ["--bootstrap-server", f"127.0.0.1:{node.port}", "--add", "--allow-principal", "User:uploader", "--topic", topic]
    for operation in operations:
        arguments += ["--operation", operation]
    node.tool("org.apache.kafka.tools.AclCommand", *arguments)


def end_offsets(node: KafkaNode, topic: str) -> dict[int, int]:
    arguments = ["--bootstrap-server", f"127.0.0.1:{node.port}", "--topic", topic, "--time", "-1"]
    lines = node.tool("org.apache.kafka.tools.GetOffsetShell", *arguments).split()
    return {int(line.split(":")[1]): int(line.split(":")[2]) for line in lines if line.count(":") == 2 and not line.endswith(":")}


def records_of(node: KafkaNode) -> list[tuple[int, bytes | None, bytes | None]]:
    """Records that a consumer reads from the whole partition, up to the last stable offset."""
    import confluent_kafka

    settings = {"bootstrap.servers": f"127.0.0.1:{node.port}", "group.id": "reader", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({**settings, "isolation.level": "read_committed", "auto.offset.reset": "error"})
    consumer.assign([confluent_kafka.TopicPartition("mixed", 0, 0)])
    found, deadline = [], time.monotonic() + READ_SECONDS
    try:
        while True:
            assert time.monotonic() < deadline, f"{len(found)} records were read"
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.append((message.offset(), message.key(), message.value()))
            elif message is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return found
    finally:
        consumer.close()


def give_to_test_plugin(store: Path, node: KafkaNode) -> None:
    """The copies in the layout of LocalTieredStorage, the only storage manager that ships with Kafka: what ours would be for the plugin."""
    objects = {path.relative_to(store).as_posix(): path.read_bytes() for path in store.rglob("*") if path.is_file()}
    for copy in read_copies(objects):
        directory = node.remote_dir / "kafka-tiered-storage" / f"mixed-0-{copy.topic_id}"
        directory.mkdir(parents=True, exist_ok=True)
        stem = f"{copy.base_offset:020d}-{copy.segment_id}"
        (directory / f"{stem}.log").write_bytes(copy.segment)
        for name, suffix in SUFFIXES.items():
            data = copy.indexes[name]
            if data is not None:
                (directory / f"{stem}.{suffix}").write_bytes(data)


def announced(run: Any) -> list[str]:
    return [each["announced"] for each in run.partition("mixed-0")["segments"] if each["announced"] is not None]


def test_a_broker_takes_our_copies_for_its_own(node: KafkaNode, tmp_path: Path) -> None:
    node.start()
    node.create_topic("mixed", {**TOPIC, "remote.log.copy.disable": "true"})
    node.stop()
    source = FIXTURE / "logs" / "mixed-0"
    directory = node.plant("mixed-0", moved_in_time(source, tmp_path / "today", ms_to_present(source)), LOG_END)
    mark = node.start()
    allow(node, "__remote_log_metadata", "Describe", "Read", "Write")
    allow(node, "mixed", "Describe")
    before = records_of(node)
    assert len([offset for offset, _, _ in before if offset < DUE[-1]["next_offset"]]) > 1000
    store = tmp_path / "store"
    servers, command = f"127.0.0.1:{node.secure_port}", ("tier upload", store, directory, "--produce-to")

    # Somebody without permission gets that error, and the store stays as it was.
    stranger = client_settings(tmp_path, "stranger")
    refused = snaprebuild_process("tier", "upload", store, directory, "--produce-to", servers, "--producer-config", stranger)
    assert (refused.exit_code, store.exists()) == (5, False)
    assert "the topic __remote_log_metadata cannot be described: " in refused.stderr
    assert "uthoriz" in refused.stderr
    stranger.write_text(stranger.read_text().replace(PASSWORD, f"{PASSWORD}-and-wrong"))
    refused = snaprebuild_process("tier", "upload", store, directory, "--produce-to", servers, "--producer-config", stranger)
    assert (refused.exit_code, store.exists(), PASSWORD in refused.stderr) == (5, False, False)
    assert "uthentication" in refused.stderr

    # All that is rolled and stable goes up, and is reported; a second run shows nothing.
    options = ("--producer-config", client_settings(tmp_path, "uploader"))
    run = in_json_process(*command, servers, *options)
    assert (run.exit_code, run.document["metadata_partitions"], run.document["produced_to"]) == (0, 7, servers)
    assert announced(run) == ["now"] * len(DUE)
    ends = end_offsets(node, "__remote_log_metadata")
    assert ends == {number: 2 * len(DUE) * (number == run.partition("mixed-0")["metadata_partition"]) for number in range(7)}
    again = in_json_process(*command, servers, *options)
    assert (again.exit_code, announced(again)) == (0, ["before"] * len(DUE))
    other = in_json_process(*command, f"127.0.0.1:{node.port}", "--uploader", "another")
    assert other.document["totals"]["present"] == len(DUE)
    assert end_offsets(node, "__remote_log_metadata") == ends

    # The broker may upload again, and finds that it has: only local retention has something to do.
    give_to_test_plugin(store, node)
    files = {path.name for path in (node.remote_dir / "kafka-tiered-storage").rglob("*")}
    node.set_topic("mixed", {"remote.log.copy.disable": "false", "local.retention.ms": 1})
    node.wait_for_log(rf"Incremented local log start offset to {DUE[-1]['next_offset']}\b", mark, READ_SECONDS)
    end = DUE[-1]["next_offset"]
    with Wire(node.port) as wire:
        answers = wire.list_offsets("mixed", (-5, -4, -2))
    assert {asked: offset for asked, (offset, *_) in answers.items()} == {-5: end - 1, -4: end, -2: 0}
    assert records_of(node) == before
    node.stop()
    assert sorted(path.name for path in directory.glob("*.log")) == [each["segment"] for each in SEGMENTS[len(DUE) :]]
    assert {path.name for path in (node.remote_dir / "kafka-tiered-storage").rglob("*")} == files
    said = node.log_since(mark)
    assert not re.search(
        r"Copied 0000\d+\.log to remote storage|Dropping the event|Error occurred while processing the records", said
    )

    # What was produced is what a reader of the topic's own files finds.
    inventory = in_json_process("tier inventory", store, "--metadata-log", node.log_dir)
    (partition,) = inventory.document["partitions"]
    assert {each["state"] for each in partition["copies"]} == {"live"}
    assert [each["start_offset"] for each in partition["copies"]] == [each["base_offset"] for each in DUE]


def test_no_one_listens(tmp_path: Path) -> None:
    import socket

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{closed.getsockname()[1]}"
        run = snaprebuild_process("tier", "upload", tmp_path / "store", FIXTURE / "logs", "--produce-to", servers)
    assert (run.exit_code, (tmp_path / "store").exists()) == (5, False)
    assert f"{servers}: the brokers do not answer: " in run.stderr
    assert "Connection refused" in run.stderr
