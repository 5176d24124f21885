"""Writes logs from the format's definition alone, so that Kafka and the code under test are asked about bytes of a third hand.

`write_random_log` makes a partition directory from a seed: legal logs, and the odd ones that Kafka replays without complaint.
"""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import crc32c
from log_dirs import varint

ABORT, COMMIT = 0, 1
TRANSACTIONAL, CONTROL, LOG_APPEND_TIME, GZIP = 0x10, 0x20, 0x08, 0x01

# ---- the format ----


def record(offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    """One record of magic 2, without headers."""
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta)
    for part in (key, value):
        body += varint(-1) if part is None else varint(len(part)) + part
    body += varint(0)
    return varint(len(body)) + body


def record_batch(
    base_offset: int,
    records: list[bytes],
    *,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int = -1,
    epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    leader_epoch: int = 0,
    compress: bool = True,
) -> bytes:
    """A record batch of magic 2; without ``compress`` the records are written as they are given, whatever the attributes say."""
    payload = b"".join(records)
    if compress and attributes & GZIP:
        payload = gzip.compress(payload, mtime=0)
    checked = struct.pack(
        ">hiqqqhii", attributes, last_offset_delta, base_timestamp, max_timestamp, producer_id, epoch, base_sequence, len(records)
    )
    checked += payload
    return struct.pack(">qiibI", base_offset, 9 + len(checked), leader_epoch, 2, crc32c.crc32c(checked)) + checked


def marker_record(kind: int, coordinator_epoch: int, *, timestamp_delta: int = 0, offset_delta: int = 0, version: int = 0) -> bytes:
    """The record of a transaction marker. A later version may add fields after the known ones."""
    value = struct.pack(">hi", version, coordinator_epoch) + b"\x2a" * (3 if version else 0)
    return record(offset_delta, timestamp_delta, struct.pack(">hh", 0, kind), value)


def message(magic: int, offset: int, timestamp: int, value: bytes, *, attributes: int = 0) -> bytes:
    """A message of magic 0 or 1."""
    checked = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    checked += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(checked), zlib.crc32(checked)) + checked


def wrapper_message(magic: int, first_offset: int, count: int, timestamp: int) -> bytes:
    """Compressed messages of magic 0 or 1: the wrapper has the offset of the last; magic 1 counts the inner ones from 0."""
    start = 0 if magic else first_offset
    inner = b"".join(message(magic, start + k, timestamp, b"inner") for k in range(count))
    return message(magic, first_offset + count - 1, timestamp, gzip.compress(inner, mtime=0), attributes=GZIP)


# ---- random logs ----

SEQUENCES = 1 << 31
START_MS = 1_790_000_000_000


@dataclass
class Producer:
    """What the writer remembers of a producer, to write mostly legal batches."""

    producer_id: int
    epoch: int = 0
    next_sequence: int = 0
    in_transaction: bool = False
    epochs_in_segment: list[int] = field(default_factory=list)
    """Those written into this segment, after the one with which the producer came into it."""


class _LogWriter:
    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.directory = directory
        chance = self.random.random
        self.odd_epochs = chance() < 0.4
        self.legacy = chance() < 0.4
        self.log_append_time = chance() < 0.25
        self.gaps = chance() < 0.5
        self.poison = chance() < 0.12
        self.torn = chance() < 0.2
        self.offset = self.random.choice([0, 0, 0, 1, 454, 1 << 33])
        self.now_ms = START_MS
        self.coordinator_epoch = self.random.randrange(5)
        ids = [0, 1, 2, 1000, 1001, 77_000_000_000, 2**63 - 1]
        self.producers = [Producer(i) for i in self.random.sample(ids, self.random.randint(1, len(ids)))]
        # Two start close to the end of their sequence numbers or epochs.
        self.producers[0].next_sequence = self.random.choice([0, SEQUENCES - 3, SEQUENCES - 1])
        self.producers[-1].epoch = self.random.choice([0, 7, 32_760])

    # -- one step --

    def step(self) -> bytes:
        self.now_ms += self.random.choice([0, 1, 40, 5_000, -3_000])
        if self.gaps and self.random.random() < 0.1:
            self.offset += self.random.randint(1, 50)
        producer = self.random.choice(self.producers)
        kinds = ["data"] * 12 + ["marker"] * 5 + ["no producer", "empty control", "kraft control", "epoch"]
        kinds += ["legacy"] * (4 if self.legacy else 0) + ["odd epoch"] * (2 if self.odd_epochs else 0)
        kind = self.random.choice(kinds)
        if kind == "legacy":
            return self.legacy_messages()
        if kind == "no producer":
            return self.batch(None, [record(0, 0, b"k", b"v")], base_sequence=-1)
        if kind == "kraft control":
            # A leader change of KRaft: control type 2; its value is version, leader id, no voters, no granting voters, no tags.
            leader_change = record(0, 0, struct.pack(">hh", 0, 2), struct.pack(">hibbb", 0, 1, 1, 1, 0))
            return self.batch(None, [leader_change], base_sequence=-1, attributes=CONTROL)
        if kind == "empty control":
            return self.batch(producer, [], base_sequence=-1, attributes=CONTROL | TRANSACTIONAL, last_offset_delta=0)
        if kind == "marker":
            return self.marker(producer)
        if kind == "epoch":
            producer.epoch = min(producer.epoch + self.random.choice([1, 1, 3]), 32_767)
            producer.next_sequence = 0
        elif kind == "odd epoch":
            self.change_epoch_oddly(producer)
        return self.data(producer)

    def change_epoch_oddly(self, producer: Producer) -> None:
        """Down, or back to one that was left: no broker accepts it from a client, every broker replays it."""
        earlier = [epoch for epoch in producer.epochs_in_segment if epoch != producer.epoch]
        producer.epoch = self.random.choice(earlier) if earlier else max(0, producer.epoch - self.random.choice([1, 2]))

    def data(self, producer: Producer) -> bytes:
        transactional = producer.in_transaction or self.random.random() < 0.4
        count = self.random.choice([1, 1, 2, 3, 8])
        last_offset_delta = count - 1
        base_sequence = producer.next_sequence
        if self.gaps and self.random.random() < 0.15:
            # What compaction leaves of a batch: fewer records, or none, under the old header.
            last_offset_delta += self.random.randint(0, 4)
            count = self.random.randint(0, count)
        if self.random.random() < 0.05:
            base_sequence = -1
        if base_sequence >= 0:
            producer.next_sequence = (base_sequence + last_offset_delta + 1) % SEQUENCES
        records = [record(k, 0, None, b"x" * self.random.randrange(60)) for k in range(count)]
        attributes = GZIP if records and self.random.random() < 0.2 else 0
        if transactional:
            attributes |= TRANSACTIONAL
        producer.in_transaction = transactional
        return self.batch(
            producer, records, base_sequence=base_sequence, attributes=attributes, last_offset_delta=last_offset_delta
        )

    def marker(self, producer: Producer) -> bytes:
        kind = self.random.choice([ABORT, COMMIT])
        if self.random.random() < 0.4:
            # transaction.version 2: the marker carries the next epoch.
            producer.epoch = min(producer.epoch + 1, 32_767)
            producer.next_sequence = 0
        elif self.odd_epochs and producer.epoch > 0 and self.random.random() < 0.2:
            producer.epoch -= 1
        change = self.random.choice([0, 0, 0, 1, 10, -1])
        self.coordinator_epoch = max(0, self.coordinator_epoch + change)
        version = int(self.random.random() < 0.1)
        delta = self.random.choice([0, 0, 5, -5])
        records = [marker_record(kind, self.coordinator_epoch, timestamp_delta=delta, version=version)]
        if self.random.random() < 0.05:
            records.append(marker_record(1 - kind, 99, offset_delta=1))
        producer.in_transaction = False
        # Nothing reads the transactional bit of a control batch.
        attributes = CONTROL | (TRANSACTIONAL if self.random.random() < 0.9 else 0)
        return self.batch(producer, records, base_sequence=-1, attributes=attributes)

    def legacy_messages(self) -> bytes:
        magic = self.random.choice([0, 1])
        count = self.random.choice([1, 1, 4])
        offset, self.offset = self.offset, self.offset + count
        if count > 1:
            return wrapper_message(magic, offset, count, self.now_ms)
        return message(magic, offset, self.now_ms, b"legacy")

    def batch(
        self,
        producer: Producer | None,
        records: list[bytes],
        *,
        base_sequence: int,
        attributes: int = 0,
        last_offset_delta: int | None = None,
    ) -> bytes:
        if last_offset_delta is None:
            last_offset_delta = len(records) - 1
        base_timestamp, max_timestamp = self.now_ms, self.now_ms + self.random.choice([0, 0, 250])
        if self.log_append_time and self.random.random() < 0.7:
            attributes |= LOG_APPEND_TIME
            max_timestamp += 86_000_000
        elif self.random.random() < 0.03:
            base_timestamp = max_timestamp = -1
        if producer is not None and records:
            producer.epochs_in_segment.append(producer.epoch)
        offset, self.offset = self.offset, self.offset + last_offset_delta + 1
        return record_batch(
            offset,
            records,
            last_offset_delta=last_offset_delta,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=-1 if producer is None else producer.producer_id,
            epoch=-1 if producer is None else producer.epoch,
            base_sequence=base_sequence,
            attributes=attributes,
            leader_epoch=self.random.choice([0, 0, 3]),
        )

    # -- what makes Kafka throw --

    def poisoned(self) -> bytes:
        producer = self.random.choice(self.producers)
        kind = self.random.choice(["data outside its transaction", "control type that is no marker", "marker with a short key"])
        if kind == "control type that is no marker":
            return self.batch(producer, [record(0, 0, struct.pack(">hh", 0, 3), b"\0\0\0")], base_sequence=-1, attributes=CONTROL)
        if kind == "marker with a short key":
            return self.batch(producer, [record(0, 0, b"\0\0", b"\0\0\0\0\0\0")], base_sequence=-1, attributes=CONTROL)
        opening = self.batch(producer, [record(0, 0, None, b"in")], base_sequence=0, attributes=TRANSACTIONAL)
        return opening + self.batch(producer, [record(0, 0, None, b"out")], base_sequence=1)

    # -- the directory --

    def write(self) -> None:
        self.directory.mkdir(parents=True)
        count = self.random.randint(1, 6)
        poisoned = self.random.randrange(count) if self.poison else None
        for number in range(count):
            for producer in self.producers:
                del producer.epochs_in_segment[:-1]
            base = self.offset
            steps = self.random.choice([1, 5, 20, 40])
            if number == count - 1 and count > 1 and self.random.random() < 0.15:
                steps = 0
            batches = [self.step() for _ in range(steps)]
            if number == poisoned:
                batches.append(self.poisoned())
                batches += [self.step() for _ in range(self.random.choice([0, 3]))]
            elif number == count - 1 and batches and self.torn:
                torn = self.step()
                batches.append(torn[: self.random.randint(1, len(torn) - 1)])
            (self.directory / f"{base:020}.log").write_bytes(b"".join(batches))
            if self.gaps and self.random.random() < 0.3:
                self.offset += self.random.randint(1, 100)


def write_random_log(directory: Path, seed: int) -> Path:
    """Writes a partition directory, and returns it; the same seed gives the same bytes."""
    _LogWriter(directory, seed).write()
    return directory
