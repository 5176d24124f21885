"""Producers and a consumer at work all the time, which keep account: what was acknowledged, committed, aborted, and what was read."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

PLAIN, TRANSACTED = "orders", "payments"
PARTITIONS = 2
RECORD_BYTES = 300
RECORDS_IN_TRANSACTION = 6
ABORTED_EACH = 4
PAUSE_SECONDS = 0.1
RECORDS_IN_STEP = 4
END_SECONDS = 180.0
DELIVERY_MS = 600_000


def _value(text: str) -> bytes:
    return text.encode().ljust(RECORD_BYTES, b".")


def _text(message: Message) -> str:
    value = message.value()
    assert isinstance(value, bytes)
    return value.rstrip(b".").decode()


@dataclass
class CountedTraffic:
    """An idempotent producer, a transactional one, and a consumer of committed records. Each record has a number of its own."""

    servers: str
    sent: int = 0
    acknowledged: set[int] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    committed: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    longest_silence: float = 0.0

    def __post_init__(self) -> None:
        self._stopping, self._read_all = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._produce, self._transact)]
        self._reader = threading.Thread(target=self._consume)

    def start(self) -> None:
        """Starts all three."""
        for thread in (*self._threads, self._reader):
            thread.start()

    @property
    def is_stopped(self) -> bool:
        """Whether nothing works any more, or never did."""
        return not self._reader.is_alive()

    def stop(self, *, wait_for_reader: bool = True) -> None:
        """Ends the producers, then the consumer when it has read what they wrote. Errors are in ``failed``."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        deadline = time.monotonic() + (END_SECONDS if wait_for_reader else 0.0)
        while self.expected() - self.seen.keys() and time.monotonic() < deadline:
            time.sleep(0.2)
        self._read_all.set()
        self._reader.join()

    def expected(self) -> set[tuple[str, str]]:
        """Topic and text of every record that a reader of committed records must find."""
        transacted = {(TRANSACTED, f"{number}-{each}") for number in list(self.committed) for each in range(RECORDS_IN_TRANSACTION)}
        return transacted | {(PLAIN, str(number)) for number in list(self.acknowledged)}

    def _settings(self, **more: object) -> dict[str, object]:
        return {"bootstrap.servers": self.servers, "log_level": 0, **more}

    # ---- writes ----

    def _produce(self) -> None:
        producer = Producer(self._settings(**{"enable.idempotence": True, "acks": "all", "delivery.timeout.ms": DELIVERY_MS}))
        while not self._stopping.wait(PAUSE_SECONDS):
            for _ in range(RECORDS_IN_STEP):
                number = self.sent
                self.sent += 1
                producer.produce(PLAIN, _value(str(number)), partition=number % PARTITIONS, on_delivery=self._delivery_of(number))
            producer.poll(0)
        if left := producer.flush(END_SECONDS):
            self.failed.append(f"{left} records were not acknowledged")

    def _delivery_of(self, number: int) -> object:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.acknowledged.add(number)
            else:
                self.failed.append(f"record {number}: {error}")

        return delivered

    def _transact(self) -> None:
        producer, number = self._transactional(), 0
        while not self._stopping.wait(PAUSE_SECONDS):
            try:
                self._transaction(producer, number)
            except KafkaException as error:
                self.unknown.add(number)
                self.failed.append(f"transaction {number}: {error}")
                producer = self._transactional()
            number += 1

    def _transactional(self) -> Producer:
        producer = Producer(self._settings(**{"transactional.id": "payments", "transaction.timeout.ms": 600_000}))
        producer.init_transactions(END_SECONDS)
        return producer

    def _transaction(self, producer: Producer, number: int) -> None:
        producer.begin_transaction()
        for each in range(RECORDS_IN_TRANSACTION):
            producer.produce(TRANSACTED, _value(f"{number}-{each}"), partition=each % PARTITIONS)
        if number % ABORTED_EACH == 0:
            producer.flush(END_SECONDS)  # else what was not sent yet would not be
            self.aborted.add(number)
            producer.abort_transaction(END_SECONDS)
            return
        try:
            producer.commit_transaction(END_SECONDS)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(END_SECONDS)
            self.aborted.add(number)
            return
        self.committed.add(number)

    # ---- reads ----

    def _consume(self) -> None:
        consumer = Consumer(self._settings(**{"group.id": "audit", "auto.offset.reset": "earliest"}))
        consumer.subscribe([PLAIN, TRANSACTED])
        last = time.monotonic()
        while not self._read_all.is_set():
            message = consumer.poll(0.5)
            if message is None or message.error() is not None:
                continue
            self.seen[str(message.topic()), _text(message)] += 1
            self.longest_silence = max(self.longest_silence, time.monotonic() - last)
            last = time.monotonic()
        consumer.close()


def read_everything(servers: str) -> Counter[tuple[str, str]]:
    """How often each committed record is in the topics, from their first offset to their end."""
    settings = {"bootstrap.servers": servers, "group.id": "check", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({**settings, "log_level": 0})
    left = {(topic, partition) for topic in (PLAIN, TRANSACTED) for partition in range(PARTITIONS)}
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in left])
    found: Counter[tuple[str, str]] = Counter()
    deadline = time.monotonic() + END_SECONDS
    while left:
        assert time.monotonic() < deadline, f"not read to the end: {left}"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found[str(message.topic()), _text(message)] += 1
        elif error.code() == KafkaError._PARTITION_EOF:
            left.discard((str(message.topic()), int(message.partition() or 0)))
    consumer.close()
    return found
