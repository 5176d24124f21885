"""``snaprebuild.records`` next to Kafka's consumer on logs that a real broker made hard to read.

Transactions and tombstones are compacted. Log starts are inside of batches and of transactions, also in remote storage. The broker
compressed records anew. Records are larger than a fetch. Timestamps have no order. A coordinator, or the end of the log, cut transactions
short.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from consumed_records import LEVELS, consumed, ours
from kafka_classpath import NEWEST_BROKER, java_output
from kafka_node import KafkaNode

if TYPE_CHECKING:
    from confluent_kafka import Producer

pytestmark = [pytest.mark.broker, pytest.mark.full]

SECONDS = 120.0
KEPT = {"retention.ms": -1, "retention.bytes": -1, "file.delete.delay.ms": 1000}
NO_MORE = {"min.compaction.lag.ms": (1 << 63) - 1, "max.compaction.lag.ms": (1 << 63) - 1, "min.cleanable.dirty.ratio": 1.0}
TIERED = {"remote.storage.enable": "true", "local.retention.ms": -2, "local.retention.bytes": 1}
SETTINGS = {
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.min.cleanable.ratio": 0.0,
    "log.initial.task.delay.ms": 500,
    "log.retention.check.interval.ms": 500,
}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": 0.0,
    "delete.retention.ms": 100,
    "segment.ms": 500,
    "max.compaction.lag.ms": 500,
}
START_MS = 1_790_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Topics:
    """Makes topics of one broker, and writes to them.

    Attributes:
        names: of the topics.
        tiered: those with remote storage, if the release has it.
        open: producers that must live on, because their transactions hang.
    """

    def __init__(self, node: KafkaNode) -> None:
        self._node = node
        self._rng = random.Random(node.release.version)
        is_newest = node.release.version.startswith("4.")
        self._small = {"internal.segment.bytes" if is_newest else "segment.bytes": 16384}
        self.names: list[str] = []
        self.tiered: list[str] = []
        self.open: list[Producer] = []

    def create(self, name: str, settings: Mapping[str, object] | None = None, *, small: bool = False, tiered: bool = False) -> None:
        """A topic with these settings of its own, perhaps of small segments, or with remote storage."""
        is_tiered = tiered and self._node.release.has_tiering
        common = {**KEPT, **(self._small if small else {}), **(TIERED if is_tiered else {})}
        self._node.create_topic(name, {**common, **(settings or {})})
        self.names.append(name)
        if is_tiered:
            self.tiered.append(name)

    def producer(self, transactional_id: str | None = None, **settings: object) -> Producer:
        """A producer, whose settings are named with ``_`` in place of ``.``; its transactions are begun by the caller.

        No transaction ends by its timeout: on a busy machine that would refuse records of any test.
        """
        from confluent_kafka import Producer

        named = {key.replace("_", "."): value for key, value in settings.items()}
        whole = {"bootstrap.servers": self._node.address, "log_level": 3, "enable.idempotence": True, "batch.num.messages": 20}
        if transactional_id is not None:
            whole |= {"transactional.id": transactional_id, "transaction.timeout.ms": 800_000}
        producer = Producer({**whole, **named})
        if transactional_id is not None:
            producer.init_transactions(SECONDS)
        return producer

    def write(
        self,
        producer: Producer,
        topic: str,
        count: int,
        *,
        keys: int = 0,
        times: Callable[[int], int] | None = None,
        size: int = 60,
        has_headers: bool = True,
    ) -> None:
        """Random records: of a number of keys, with tombstones; without keys anything."""
        rng = self._rng
        errors: list[object] = []
        for number in range(count):
            key: bytes | None = rng.choice([None, b"", rng.randbytes(9)])
            value: bytes | None = rng.choice(
                [None, b"", b"value " * rng.randint(1, size // 6), rng.randbytes(rng.randint(1, size))]
            )
            if keys:
                key = b"key-%d" % rng.randrange(keys)
            headers: list[tuple[str, str | bytes | None]] = []
            if has_headers and rng.random() < 0.2:
                headers = [
                    (rng.choice(["", "a", "a", "\u00fc"]), rng.choice([None, b"", b"one"])) for _ in range(rng.randint(1, 3))
                ]
            moment = int(time.time() * 1000) if times is None else times(number)
            producer.produce(
                topic,
                key=key,
                value=value,
                headers=headers or None,
                partition=0,
                timestamp=moment,
                on_delivery=lambda error, _: errors.append(error),
            )
            producer.poll(0)
        assert producer.flush(SECONDS) == 0
        assert errors == [None] * count, set(map(str, errors))

    def transactions(self, topic: str, count: int, *, producers: int = 3, keys: int = 0, name: str = "id") -> None:
        """Transactions of several producers at once, a third of them aborted."""
        rng = self._rng
        each = [self.producer(f"{topic}-{name}-{number}") for number in range(producers)]
        open_ones: list[Producer] = []
        for _ in range(count):
            free = [producer for producer in each if producer not in open_ones]
            if free and (not open_ones or rng.random() < 0.5):
                producer = rng.choice(free)
                producer.begin_transaction()
                open_ones.append(producer)
                self.write(producer, topic, rng.randint(1, 30), keys=keys)
                continue
            producer = rng.choice(open_ones)
            self.write(producer, topic, rng.randint(0, 9), keys=keys)
            open_ones.remove(producer)
            self.end(producer, is_committed=rng.random() < 0.66)
        for producer in open_ones:
            self.end(producer, is_committed=rng.random() < 0.5)

    @staticmethod
    def end(producer: Producer, *, is_committed: bool) -> None:
        """Ends the transaction of a producer."""
        if is_committed:
            producer.commit_transaction(SECONDS)
        else:
            producer.abort_transaction(SECONDS)


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


# ---------------------------------------------------------------------------------------------------------------------- topics


def compressed_anew(node: KafkaNode, topics: Topics) -> None:
    """The topic has another codec than the producer; some have a level, as far as the release knows levels."""
    levels: dict[str, Mapping[str, object]] = {
        "gzip": {"compression.gzip.level": 1},
        "lz4": {"compression.lz4.level": 17},
        "zstd": {"compression.zstd.level": -7},
    }
    has_levels = int(node.release.version.split(".")[0]) >= 4
    for number, codec in enumerate(CODECS):
        of_topic = CODECS[(number + 2) % len(CODECS)]
        name = f"{codec}-to-{of_topic}"
        level = levels.get(of_topic, {}) if has_levels else {}
        topics.create(name, {**level, "compression.type": "uncompressed" if of_topic == "none" else of_topic})
        topics.write(topics.producer(compression_type=codec, batch_num_messages=300), name, 900, size=3000)


def compacted(node: KafkaNode, topics: Topics) -> None:
    """Some passes of the cleaner, which also takes markers, over transactions with tombstones. The last transactions stay dirty."""
    for name in ("compacted", "compacted-once"):
        topics.create(name, COMPACTED)
        for number in range(3):
            topics.transactions(name, 20, keys=12, name=str(number))
            topics.write(topics.producer(), name, 20, keys=12)
            time.sleep(1.2)
        wait_until_compacted(node, topics.producer(), topics, name)
        time.sleep(2)
    topics.transactions("compacted", 20, keys=12, name="last")
    node.set_topic("compacted", NO_MORE)
    node.set_topic("compacted-once", {"cleanup.policy": "delete"})


def cut(node: KafkaNode, topics: Topics) -> None:
    """The log start is inside of a batch, of a transaction that was aborted, or that is open; segments below it are deleted."""
    topics.create("cut", small=True, tiered=True)
    early = [topics.producer(f"early-{number}") for number in range(3)]
    for producer in early:
        producer.begin_transaction()
        topics.write(producer, "cut", 30)
    while len(node.bases("cut")) < 4:
        topics.write(topics.producer(), "cut", 50)
    for producer in early:
        topics.write(producer, "cut", 30)
    end = node.end_offset("cut")
    topics.transactions("cut", 20)
    node.delete_records("cut", end - 33)
    wait(lambda: node.bases("cut")[0] > 90)
    topics.end(early[0], is_committed=False)
    topics.end(early[1], is_committed=True)
    topics.transactions("cut", 10, name="after")
    topics.write(early[2], "cut", 5)
    topics.end(early[2], is_committed=False)


def large(node: KafkaNode, topics: Topics) -> None:
    """Records that are larger than a fetch of the consumer, next to small ones, in transactions of each codec."""
    size = 2 << 20
    topics.create("large", {"max.message.bytes": 2 * size, "segment.bytes": 2 * size}, tiered=True)
    for codec in CODECS:
        producer = topics.producer(f"large-{codec}", compression_type=codec, message_max_bytes=2 * size, batch_num_messages=1)
        producer.begin_transaction()
        topics.write(producer, "large", 4, size=size)
        topics.write(producer, "large", 4)
        topics.end(producer, is_committed=codec != "gzip")


def unordered(node: KafkaNode, topics: Topics) -> None:
    """Timestamps in no order, and of the append."""
    rng = random.Random(7)
    for name, kind in (("unordered", "CreateTime"), ("appended", "LogAppendTime")):
        topics.create(name, {"message.timestamp.type": kind, "index.interval.bytes": 100}, small=True)
        for codec in ("none", "zstd"):
            producer = topics.producer(compression_type=codec)
            topics.write(producer, name, 400, times=lambda _: START_MS + rng.randrange(100_000))
        topics.transactions(name, 8)


def switched(node: KafkaNode, topics: Topics) -> None:
    """The time of the append and of the producer in turns, in the same segment, also with compressed batches."""
    topics.create("switched", {"index.interval.bytes": 100}, small=True)
    rng = random.Random(5)
    for number in range(6):
        node.set_topic("switched", {"message.timestamp.type": ("CreateTime", "LogAppendTime")[number % 2]})
        time.sleep(1)  # until the broker has taken it
        for codec in ("none", "lz4", "gzip"):
            producer = topics.producer(compression_type=codec)
            topics.write(producer, "switched", 40, times=lambda _: START_MS + rng.randrange(100_000))
        topics.transactions("switched", 3, name=str(number))


TIMES = range(START_MS // 10, 253_402_300_800_000)
"""A range may begin there: the unit is not seconds, and no year is above 9999."""

MOMENTS = (-1, 1, -2, -70_000_000_000, 9_223_372_036_855, 253_402_300_800_000, (1 << 53) + 1)
"""Without a time, below 1970, above the years 2262 and 9999."""


def odd_moments(node: KafkaNode, topics: Topics) -> None:
    """Times that few clients write, in any order and as the time of a whole batch."""
    most = (1 << 63) - 1
    is_newest = node.release.version.startswith("4.")
    allowed = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
    topics.create("moments", dict.fromkeys(allowed if is_newest else ("message.timestamp.difference.max.ms",), most), small=True)
    rng = random.Random(6)
    for codec in CODECS:
        producer = topics.producer(compression_type=codec)
        topics.write(producer, "moments", 60, times=lambda _: rng.choice(MOMENTS))
        for moment in MOMENTS:
            topics.write(producer, "moments", 5, times=lambda _, moment=moment: moment)


def own_topics(node: KafkaNode, topics: Topics) -> None:
    """Offsets of groups with tombstones, also those of transactions, in the topics that Kafka writes itself."""
    from confluent_kafka import Consumer, TopicPartition

    topics.create("grouped")
    topics.write(topics.producer(), "grouped", 20)
    producer = topics.producer("offsets")
    for number in range(4):
        consumer = Consumer({"bootstrap.servers": node.address, "group.id": f"group-{number}", "enable.auto.commit": False})
        consumer.subscribe(["grouped"])
        wait(lambda consumer=consumer: consumer.poll(0.5) is None and bool(consumer.assignment()))
        for offset in (3, 7):
            consumer.commit(offsets=[TopicPartition("grouped", 0, offset)], asynchronous=False)
            producer.begin_transaction()
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([TopicPartition("grouped", 0, offset + 1)], metadata, SECONDS)
            topics.end(producer, is_committed=number % 2 == 0)
        consumer.close()
    delete_groups(node, ["group-0", "group-1"])
    topics.names += ["__consumer_offsets", "__transaction_state"]


def delete_groups(node: KafkaNode, names: list[str]) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": node.address})
    for deleted in admin.delete_consumer_groups(names).values():
        deleted.result(SECONDS)


def cut_short(node: KafkaNode, topics: Topics) -> None:
    """The coordinator aborts a transaction for another producer of the id; another one is open at the end of its log."""
    topics.create("replaced")
    replaced = topics.producer("replaced")
    replaced.begin_transaction()
    topics.write(replaced, "replaced", 30)
    topics.write(topics.producer(), "replaced", 10)
    topics.producer("replaced")
    wait(lambda: node.end_offset("replaced", stable=True) == node.end_offset("replaced") > 40)
    topics.write(topics.producer(), "replaced", 10)
    topics.create("hangs")
    topics.transactions("hangs", 6)
    hanging = topics.producer("hangs")
    hanging.begin_transaction()
    topics.write(hanging, "hangs", 10)
    topics.transactions("hangs", 6, name="above")
    topics.open.append(hanging)


def others(node: KafkaNode, topics: Topics) -> None:
    """Without a record; of producers whose epoch is bumped by each transaction."""
    topics.create("empty")
    topics.create("emptied")
    topics.write(topics.producer(), "emptied", 30)
    node.delete_records("emptied", 30)
    if node.release.version.startswith("4."):
        topics.create("bumped")
        assert java_output(
            "NewestClient", arguments=[node.address], lines=["transactions bumped bumped 20"], version=NEWEST_BROKER
        ) == ["ok"]


def old_formats(node: KafkaNode, topics: Topics) -> None:
    """Messages and wrappers of magic 0 and 1, with batches of magic 2 after them; with the time of the append; with holes."""
    if not node.release.version.startswith("2."):
        return
    for codec in CODECS[:-1]:
        producer = topics.producer(compression_type=codec, batch_num_messages=50, enable_idempotence=False)
        write = partial(topics.write, producer, has_headers=False)
        for old in ("0.9.0", "0.10.2"):
            name = f"{codec}-{old}"
            topics.create(name, {"message.format.version": old})
            write(name, 200)
            node.set_topic(name, {"message.format.version": "2.7"})
            topics.write(topics.producer(compression_type=codec), name, 60)
        name = f"{codec}-appended"
        topics.create(name, {"message.format.version": "0.10.2", "message.timestamp.type": "LogAppendTime"})
        write(name, 100, times=lambda _: START_MS)
        name = f"{codec}-holes"
        topics.create(name, {**COMPACTED, "message.format.version": "0.10.2"})
        write(name, 300, keys=40)
        wait_until_compacted(node, producer, topics, name)
        write(name, 100, keys=40)
        node.set_topic(name, NO_MORE)


def wait_until_compacted(node: KafkaNode, producer: Producer, topics: Topics, name: str) -> None:
    """Waits for a pass of the cleaner over what is there."""
    time.sleep(1)
    before = size_of(node, name)
    topics.write(producer, name, 1, keys=1, has_headers=False)
    wait(lambda: size_of(node, name) < before)


def size_of(node: KafkaNode, name: str) -> int:
    return sum(each.stat().st_size for each in (node.log_dir / f"{name}-0").glob("*.log"))


@pytest.mark.parametrize(
    "version", [*(pytest.param(each, marks=pytest.mark.night) for each in ("2.7.2", "3.9.2", NEWEST_BROKER)), "4.3.1"]
)
def test_hard_logs(version: str, tmp_path: Path) -> None:
    with KafkaNode(tmp_path / "node", version=version, settings=SETTINGS) as node:
        node.start()
        topics = Topics(node)
        makers = (compacted, compressed_anew, cut, large, unordered, cut_short, others, old_formats)
        for make in (*makers, switched, odd_moments, own_topics):
            make(node, topics)
        answers = answers_of(node, topics, ("unordered", "appended", "cut", "compacted", "switched", "moments"))
    assert not wrong_answers(node, topics, answers)
    for topic in ("compacted", "cut", "replaced", "hangs"):
        committed, everything = (len(answers[f"{topic} {level} -1"]) for level in LEVELS)
        assert 0 < committed < everything, topic


@pytest.mark.night
def test_logs_that_an_upgraded_broker_continues(tmp_path: Path) -> None:
    """Directories of 2.7.2 in which 3.9.2 writes on, without a word about their formats."""
    makers = (compacted, cut, unordered, switched, cut_short)
    with KafkaNode(tmp_path / "node", version="2.7.2", settings=SETTINGS) as node:
        node.start()
        before = Topics(node)
        for make in (*makers, old_formats):
            make(node, before)
        before.open.clear()
        node.stop_all()
    with KafkaNode(tmp_path / "node", version="3.9.2", tiering=False, settings=SETTINGS) as node:
        node.start()
        topics = Topics(node)
        topics.names = before.names
        for name in topics.names:
            topics.write(topics.producer(), name, 30, keys=12)
            topics.transactions(name, 6, keys=12, name="upgraded")
        answers = answers_of(node, topics, ("unordered", "switched", "gzip-0.10.2"))
    assert not wrong_answers(node, topics, answers)


def answers_of(node: KafkaNode, topics: Topics, timed: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """The rows of the consumer by question: of all topics, and of some from a few times on. Stops the broker."""
    for topic in topics.tiered:
        node.wait_until_copied(f"{topic}-0", -1)
    questions = [f"{topic} {level} -1" for topic in topics.names for level in LEVELS]
    answers = dict(zip(questions, consumed(node, questions), strict=True))
    rng = random.Random(node.release.version)
    more = []
    for topic in timed:
        rows = answers[f"{topic} read_uncommitted -1"]
        moments = sorted({row["timestamp"] for row in rows if row["timestamp"] in TIMES})
        more += [f"{topic} read_uncommitted {moment}" for moment in rng.sample(moments, min(len(moments), 6))]
    answers |= dict(zip(more, consumed(node, more), strict=True))
    topics.open.clear()
    node.stop_all()
    return answers


def wrong_answers(node: KafkaNode, topics: Topics, answers: Mapping[str, list[dict[str, Any]]]) -> dict[str, object]:
    """The counts of rows, and the first that differ, by question."""
    wrong = {}
    for question, rows in answers.items():
        topic, level, moment = question.split()
        options: dict[str, Any] = {} if moment == "-1" else {"starting_timestamp": int(moment)}
        if topic in topics.tiered:
            options |= {"remote": node.remote_dir, "metadata_log": node.log_dir}
        mine = ours(node.log_dir, topic, isolation=level, **options)
        if mine != rows:
            first = next((pair for pair in zip(mine, rows, strict=False) if pair[0] != pair[1]), None)
            wrong[question] = (len(mine), len(rows), first)
    return wrong
