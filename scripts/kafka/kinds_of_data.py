"""Data of every kind that matters to producer snapshots, written to a running broker by real producers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from confluent_kafka import Producer
from log_dirs import TRANSACTIONAL, batch
from wire import Wire

FLUSH_SECONDS = 120.0
RECORDS_IN_BATCH = 10
RECORDS_IN_TRANSACTION = 25
RECORD_BYTES = 300


class Kind(StrEnum):
    """How records are written."""

    PLAIN = "plain"
    IDEMPOTENT = "idempotent"
    COMMITTED = "committed"
    ABORTED = "aborted"
    HANGING = "hanging"


@dataclass(frozen=True)
class LastBatch:
    """The last batch of a producer that may send it again, as it was sent to the broker, and its offset."""

    producer_id: int
    epoch: int
    sequence: int
    data: bytes
    offset: int


def write_kind(address: str, topic: str, kind: Kind, records: int) -> None:
    """Writes this many records to partition 0 by one producer, in batches of ten, in transactions of 25."""
    if kind is Kind.HANGING:
        hang(int(address.rpartition(":")[2]), topic, records)
        return
    settings: dict[str, object] = {
        "bootstrap.servers": address,
        "log_level": 4,
        "linger.ms": 20,
        "batch.num.messages": RECORDS_IN_BATCH,
    }
    if kind is Kind.PLAIN:
        _write(Producer(settings), topic, records)
    elif kind is Kind.IDEMPOTENT:
        _write(Producer({**settings, "enable.idempotence": True}), topic, records)
    else:
        producer = Producer({**settings, "transactional.id": f"{topic}-{kind}-{time.time_ns()}"})
        producer.init_transactions(FLUSH_SECONDS)
        end: Callable[[float], None] = producer.commit_transaction if kind is Kind.COMMITTED else producer.abort_transaction
        for first in range(0, records, RECORDS_IN_TRANSACTION):
            producer.begin_transaction()
            _write(producer, topic, min(RECORDS_IN_TRANSACTION, records - first))
            end(FLUSH_SECONDS)


def _write(producer: Producer, topic: str, records: int) -> None:
    failed: list[object] = []
    for number in range(records):
        value = f"{number}-".encode().ljust(RECORD_BYTES, b".")
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0)
    left = producer.flush(FLUSH_SECONDS)
    assert (left, failed) == (0, []), f"{left} records were not sent, {failed[:1]}"


def hang(port: int, topic: str, records: int) -> None:
    """Writes in a transaction that no coordinator knows of, as brokers before 3.6 let clients do: no one will ever end it (KIP-664)."""
    with Wire(port) as wire:
        producer_id, epoch = wire.init_producer_id()
        for first in range(0, records, RECORDS_IN_BATCH):
            data = _batch(producer_id, epoch, first, min(RECORDS_IN_BATCH, records - first), TRANSACTIONAL)
            wire.produce(topic, data, transactional_id=f"{topic}-lost")


def write_to_be_retried(port: int, topic: str, records: int) -> LastBatch:
    """Writes by an idempotent producer, and returns its last batch."""
    with Wire(port) as wire:
        producer_id, epoch = wire.init_producer_id()
        for first in range(0, records, RECORDS_IN_BATCH):
            data = _batch(producer_id, epoch, first, RECORDS_IN_BATCH)
            offset = wire.produce(topic, data)
    return LastBatch(producer_id, epoch, first, data, offset)


def retry(port: int, topic: str, last: LastBatch) -> int:
    """Sends a batch again. Returns its offset: the one that it has had, where the broker knows the producer."""
    with Wire(port) as wire:
        return wire.produce(topic, last.data)


def _batch(producer_id: int, epoch: int, sequence: int, count: int, attributes: int = 0) -> bytes:
    return batch(
        0,
        producer_id=producer_id,
        epoch=epoch,
        sequence=sequence,
        count=count,
        timestamp=int(time.time() * 1000),
        attributes=attributes,
        payload_bytes=RECORD_BYTES,
    )
