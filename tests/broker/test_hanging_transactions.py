"""Hanging transactions of a real broker: those that ``kafka-transactions.sh find-hanging`` lists get an abort, and no other one.

One lost its marker with the end of a log, in front of an unclean election. One got a batch after its marker, as brokers without the
checks of KIP-890 take it. One is alive.
"""

import shlex
import time
from pathlib import Path

import pytest
from command import in_json_process
from kafka_node import KafkaNode
from log_dirs import TRANSACTIONAL, batch, batch_positions, cut
from wire import Wire

from formats.metadata.transaction_state import TransactionStatus, read_transaction_state
from snaprebuild.inspect.coordinator_records import find_transaction_states
from snaprebuild.snapshots.source.log_records import log_records

pytestmark = [pytest.mark.broker, pytest.mark.full]

SECONDS = 120.0
TOOL = "org.apache.kafka.tools.TransactionsCommand"
UNCHECKED = {"transaction.partition.verification.enable": "false"}


def hanging(node: KafkaNode) -> set[tuple[str, int]]:
    """Topic and start offset of each transaction that Kafka's own tool takes for hanging."""
    arguments = ("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")
    lines = node.tool(TOOL, "--bootstrap-server", node.address, *arguments).splitlines()
    names, *rows = [line.split() for line in lines if line.strip()]
    at = names.index("StartOffset")
    return {(row[0], int(row[at])) for row in rows}


def wait_until_complete(node: KafkaNode, transactional_ids: set[str]) -> None:
    """Until the coordinator has written that every marker was acknowledged."""
    deadline = time.monotonic() + SECONDS
    while True:
        status = {}
        for directory in find_transaction_states([str(node.log_dir)]):
            for record in log_records(directory):
                if record.value is not None:
                    state = read_transaction_state(record.key or b"", record.value)
                    status[state.transactional_id] = state.status
        if {status.get(name) for name in transactional_ids} == {TransactionStatus.COMPLETE_COMMIT}:
            return
        assert time.monotonic() < deadline, status
        time.sleep(0.2)


def write_after_the_marker(node: KafkaNode, topic: str) -> int:
    """Sends the next batch of the producer of a topic, whose transaction has ended. Returns its offset."""
    with Wire(node.port) as wire:
        ((producer_id, producer),) = wire.describe_producers(topic).items()
        late = batch(
            0,
            producer_id=producer_id,
            epoch=producer.epoch,
            sequence=producer.last_sequence + 1,
            attributes=TRANSACTIONAL,
            timestamp=producer.last_timestamp - 1,
        )
        return wire.produce(topic, late, transactional_id=f"id-{topic}")


def test_an_abort_for_those_that_kafka_finds_hanging(tmp_path: Path) -> None:
    from confluent_kafka import Producer

    with KafkaNode(tmp_path, tiering=False, settings=UNCHECKED) as node:
        node.start()
        for topic in ("lost", "late", "alive"):
            node.create_topic(topic, {})
        for topic in ("lost", "late"):
            node.produce(topic, 1, transactional_id=f"id-{topic}")
        wait_until_complete(node, {"id-lost", "id-late"})
        late_offset = write_after_the_marker(node, "late")
        alive = Producer(
            {"bootstrap.servers": node.address, "log_level": 4, "transactional.id": "id-alive", "transaction.timeout.ms": 900_000}
        )
        alive.init_transactions(SECONDS)
        alive.begin_transaction()
        alive.produce("alive", b"v", partition=0)
        assert alive.flush(SECONDS) == 0

        node.kill()
        (log,) = (node.log_dir / "lost-0").glob("*.log")
        cut(log, batch_positions(log)[-1])
        node.start()
        node.wait_for_replicas("lost", leader=1, in_sync={1})

        found = hanging(node)
        assert found == {("lost", 0), ("late", late_offset)}
        reasons = explained(node)
        assert {name: reason for (name, _), (reason, _) in reasons.items()} == {
            "lost": "marker_lost",
            "late": "late_append",
            "alive": "within_timeout",
        }
        commands = {place: command for place, (_, command) in reasons.items() if command is not None}
        assert set(commands) == found

        for command in commands.values():
            _, option, _, *arguments = shlex.split(command)
            node.tool(TOOL, option, node.address, *arguments)
        assert hanging(node) == set()
        for topic in ("lost", "late"):
            assert node.end_offset(topic, stable=True) == node.end_offset(topic)
        assert {name for name, _ in explained(node)} == {"alive"}


def explained(node: KafkaNode) -> dict[tuple[str, int], tuple[str, str | None]]:
    """Reason, and the abort if one is printed, by topic and first offset."""
    run = in_json_process("inspect transactions", node.log_dir, "--assume", "late_after_ms=1")
    return {
        (partition["topic"], each["first_offset"]): (
            each["hang_reason"],
            None if each["abort_commands"] is None else each["abort_commands"]["since_3_0"],
        )
        for partition in run.document["partitions"]
        for each in partition["open"]
    }
