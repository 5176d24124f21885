"""Odd stores that no broker wrote, given to brokers with rebuilt records: each offset is served, and retention deletes what it should.

``tier inventory`` then agrees with the broker on each copy: those that it calls live or superseded are those that the broker knows.
"""

import shutil
import time
from pathlib import Path

import pytest
from broker_settings import COPY_INTERVAL_MS
from command import in_json_process
from kafka_classpath import NEWEST_BROKER
from kafka_node import KafkaNode
from kraft_node import in_kraft
from odd_stores import OddStore, odd_store
from tiered_topics import METADATA, PARTITIONS, SECONDS, SEGMENT_BYTES, SETTINGS, TIERED, wait_until
from tiers import id_text

from formats.partition.partition_metadata import uuid_from_text

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.night]

STORES = 10
KNOWN = ("live", "superseded")
"""States of copies that have a record."""
RESTARTS = 3
"""Each one gives the partitions new leader epochs, below which those of the stores are."""


def topic_id_of(node: KafkaNode, topic: str) -> bytes:
    lines = (node.log_dir / f"{topic}-0" / "partition.metadata").read_text().splitlines()
    return uuid_from_text(next(line.partition(": ")[2] for line in lines if line.startswith("topic_id")))


def newest_epoch(node: KafkaNode, topic: str) -> int:
    """The last leader epoch that the leader of an empty partition had."""
    return int((node.log_dir / f"{topic}-0" / "leader-epoch-checkpoint").read_text().split()[-2])


def planted(node: KafkaNode, seeds: range) -> list[OddStore]:
    """Topics of a stopped broker, whose records are in remote storage alone."""
    node.start()
    for seed in seeds:
        node.create_topic(f"odd{seed}", {**TIERED, SEGMENT_BYTES.get(node.release.version, SEGMENT_BYTES["4.3.1"]): 1500})
    for _ in range(RESTARTS):
        node.stop()
        node.start()
    node.stop()
    epochs = [newest_epoch(node, f"odd{seed}") for seed in seeds]
    now_ms = time.time_ns() // 1_000_000 - 3_600_000
    stores = []
    for seed, epoch in zip(seeds, epochs, strict=True):
        topic = f"odd{seed}"
        store = odd_store(seed, node.remote_dir, topic, topic_id_of(node, topic), epoch, now_ms)
        node.plant(f"{topic}-0", store.write_log(node.root / "logs" / topic), store.log_end)
        node.set_log_start(topic, store.log_start)
        stores.append(store)
    return stores


def read_values(node: KafkaNode, store: OddStore, first: int, end: int) -> dict[int, bytes | None]:
    """Records that a consumer gets from an offset up to another one."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": node.address, "group.id": "reads", "enable.auto.commit": False, "auto.offset.reset": "error"}
    )
    consumer.assign([TopicPartition(store.topic, 0, first)])
    values: dict[int, bytes | None] = {}
    deadline = time.monotonic() + SECONDS
    while max(values, default=-1) < end - 1:
        assert time.monotonic() < deadline, (store.topic, store.oddities, max(values, default=-1), end)
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None, (store.topic, store.oddities, message.error())
            values[message.offset()] = message.value()
    consumer.close()
    return {offset: value for offset, value in values.items() if offset < end}


def remote_files(node: KafkaNode, store: OddStore) -> list[Path]:
    """The files of the copies of the topic in remote storage."""
    return list((node.remote_dir / "kafka-tiered-storage" / f"{store.topic}-0-{id_text(store.topic_id)}").glob("*"))


def remote_ids(node: KafkaNode, store: OddStore) -> set[str]:
    """Segment ids of the copies of which any file is in remote storage."""
    return {path.name[21:43] for path in remote_files(node, store)}


def states_of(node: KafkaNode, store: OddStore) -> dict[str, str]:
    """The state of each copy of the topic, as ``tier inventory`` shows it; the broker is stopped."""
    run = in_json_process("tier inventory", node.remote_dir, "--metadata-log", node.log_dir, "--topic", store.topic)
    topic_id = id_text(store.topic_id)
    parts = [each for each in run.document["partitions"] if each["topic_id"] == topic_id]
    return {copy["segment_id"]: copy["state"] for each in parts for copy in each["copies"]}


@pytest.mark.parametrize("first_seed", [0, STORES])
@pytest.mark.parametrize("version", [*SEGMENT_BYTES, NEWEST_BROKER])
def test_what_no_broker_wrote_is_served(version: str, first_seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = range(first_seed, first_seed + STORES)
    with in_kraft(version, monkeypatch)(tmp_path, version=version, settings=SETTINGS) as node:
        stores = planted(node, seeds)
        for number in range(PARTITIONS):
            shutil.rmtree(node.log_dir / f"{METADATA}-{number}", ignore_errors=True)
        run = in_json_process(
            "tier metadata", node.remote_dir, "--log-dirs", node.log_dir, "--receipt", node.root / "receipt.jsonl"
        )
        oddities = {store.topic: store.oddities for store in stores}
        refusals = [(each["topic"], oddities[each["topic"]], each["refusals"]) for each in run.document["partitions"]]
        # Unfinished copies, and those that retention has half deleted, are a finding.
        assert run.exit_code in (0, 1), run.stderr
        assert [each for each in refusals if each[2]] == []
        assert len(run.document["log_dirs"]) == PARTITIONS, run.stderr
        states = {store.topic: states_of(node, store) for store in stores}
        for store in stores:
            served = {segment for segment, state in states[store.topic].items() if state in KNOWN}
            assert served <= {id_text(segment_id) for segment_id, _, _ in store.copies}, store
        node.start()
        for store in stores:
            expected = {offset: value for offset, value in store.values.items() if offset >= store.log_start}
            assert read_values(node, store, store.log_start, store.log_end) == expected, (store.topic, store.oddities)

        # Uploads go on above the copies, and nothing goes up twice.
        grown = stores[:: len(stores) // 3]
        for store in grown:
            before = remote_ids(node, store)
            node.produce(store.topic, 100)
            node.wait_until_copied(f"{store.topic}-0", above=store.log_end)
            new = {int(path.name[:20]) for path in remote_files(node, store) if path.name[21:43] not in before}
            assert min(new) == store.log_end, (store.topic, store.oddities, sorted(new))

        # Records below the middle are deleted: the copies that end there go, and no other one that the broker knows.
        time.sleep(2 * COPY_INTERVAL_MS / 1000)
        for store in stores:
            middle = (store.log_start + store.log_end) // 2
            known = {segment for segment, state in states[store.topic].items() if state in KNOWN}
            ends = {id_text(segment_id): last for segment_id, _, last in store.copies}
            kept = {segment for segment in known if ends[segment] >= middle}
            node.delete_records(store.topic, middle)
            wait_until(
                lambda store=store, known=known, kept=kept: remote_ids(node, store) & known == kept,  # type: ignore[misc]
                lambda store=store, known=known, kept=kept: (store, remote_ids(node, store) & known, kept),  # type: ignore[misc]
            )
            expected = {offset: value for offset, value in store.values.items() if offset >= middle}
            assert read_values(node, store, middle, store.log_end) == expected, (store.topic, store.oddities)
        node.stop()
        for store in stores:
            after = states_of(node, store)
            deleted = {segment for segment, state in states[store.topic].items() if state in KNOWN} - remote_ids(node, store)
            assert {after.get(segment, "deleted") for segment in deleted} <= {"deleted"}, store
