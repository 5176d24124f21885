"""Generates partitions for measurements: batches of a given size by many producers, transactions, markers, checksums, indexes.

Payloads are random bytes: replay reads headers and markers only. Everything that a broker checks when it replays is right: lengths,
checksums, the order of offsets, legal sequences and transactions. So Kafka's own classes can be timed on the same files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from formats.checksum import crc32c
from formats.layout import dtype_of
from formats.log.record_batch import RECORD_BATCH_HEADER

__all__ = ["Shape", "make_partition"]

HEADER = dtype_of(RECORD_BATCH_HEADER)
MARKER_BYTES = 78
MARKER_RECORD = bytes.fromhex("20000000080000") + bytes(2) + bytes.fromhex("0c0000") + bytes(4) + b"\0"
INDEX_INTERVAL_BYTES = 4096
BATCHES_OF_A_TRANSACTION = 10
TRANSACTIONAL_SHARE = 0.3
LEADER_EPOCH = 7
FIRST_PRODUCER_ID = 4_000_000
START_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Shape:
    """Size and contents of the partition to generate.

    Attributes:
        batch_bytes: mean size of a data batch; sizes vary by a quarter.
        total_bytes: of all segments.
        segment_bytes: of one.
        producers: producer ids, 30 % of them transactional.
        bumps: every transaction has its own epoch, as with KIP-890 (transaction version 2).
        leader_epoch: of all batches.
        start_ms: timestamp of the first.
    """

    batch_bytes: int
    total_bytes: int
    segment_bytes: int = 128 << 20
    producers: int = 1000
    bumps: bool = False
    leader_epoch: int = LEADER_EPOCH
    start_ms: int = START_MS


def make_partition(directory: Path, shape: Shape, seed: int = 1) -> int:
    """Writes segments with their offset indexes. Returns the count of batches."""
    random = np.random.default_rng(seed)
    directory.mkdir(parents=True)
    # What each producer has written so far: batches (markers too), records of its present sequence.
    written = np.zeros(shape.producers, dtype=np.int64)
    records = np.zeros(shape.producers, dtype=np.int64)
    offset = batches = total = 0
    while total < shape.total_bytes:
        size = min(shape.segment_bytes, shape.total_bytes - total)
        count = size // shape.batch_bytes
        rows, sizes = _rows(random, shape, count, offset, written, records)
        _write_segment(directory, random, rows, sizes, offset)
        offset = int(rows["base_offset"][-1] + rows["last_offset_delta"][-1]) + 1
        batches += count
        total += size
    return batches


def _rows(
    random: np.random.Generator, shape: Shape, count: int, offset: int, written: np.ndarray, records: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Headers without checksums, and whole sizes. Advances ``written`` and ``records``."""
    producer = random.integers(shape.producers, size=count)
    order = np.argsort(producer, kind="stable")
    per_producer = np.bincount(producer, minlength=shape.producers)
    starts = np.cumsum(per_producer) - per_producer
    nth = np.empty(count, dtype=np.int64)
    nth[order] = np.arange(count) - np.repeat(starts, per_producer)
    nth += written[producer]
    written += per_producer

    transactional = producer < int(shape.producers * TRANSACTIONAL_SHARE)
    round_, step = np.divmod(nth, BATCHES_OF_A_TRANSACTION + 1)
    marker = transactional & (step == BATCHES_OF_A_TRANSACTION)
    record_count = np.where(marker, 1, np.maximum(shape.batch_bytes // 100, 1))
    spread = shape.batch_bytes // 4
    sizes = np.where(marker, MARKER_BYTES, shape.batch_bytes + random.integers(-spread, spread + 1, size=count))

    rows = np.zeros(count, dtype=HEADER)
    rows["base_offset"] = offset + np.cumsum(record_count) - record_count
    rows["length"] = sizes - 12
    rows["partition_leader_epoch"] = shape.leader_epoch
    rows["magic"] = 2
    rows["attributes"] = np.where(marker, 0x30, np.where(transactional, 0x10, 0))
    rows["last_offset_delta"] = record_count - 1
    rows["base_timestamp"] = rows["max_timestamp"] = shape.start_ms + rows["base_offset"] // 100
    rows["producer_id"] = FIRST_PRODUCER_ID + producer
    rows["producer_epoch"] = np.where(transactional & shape.bumps, (round_ + marker) % 32_000, 0)
    rows["base_sequence"] = np.where(
        marker, -1, _sequences(shape, producer, order, np.where(marker, 0, record_count), step, records)
    )
    rows["record_count"] = record_count
    return rows, sizes


def _sequences(
    shape: Shape, producer: np.ndarray, order: np.ndarray, count: np.ndarray, step: np.ndarray, records: np.ndarray
) -> np.ndarray:
    """Base sequences: they run on for ever, or begin at 0 with each new epoch."""
    if shape.bumps:
        transactional = producer < int(shape.producers * TRANSACTIONAL_SHARE)
        running = _sequences(Shape(1, 1, producers=shape.producers), producer, order, count, step, records)
        return np.where(transactional, step * int(count.max()), running)
    sorted_count = count[order]
    running = np.cumsum(sorted_count) - sorted_count
    sorted_producer = producer[order]
    first = np.flatnonzero(np.diff(sorted_producer, prepend=-1))
    lengths = np.diff(np.append(first, len(order)))
    running -= np.repeat(running[first], lengths)
    sequences = np.empty(len(order), dtype=np.int64)
    sequences[order] = running + records[sorted_producer]
    records += np.bincount(producer, weights=count, minlength=len(records)).astype(np.int64)
    return sequences % 2**31


def _write_segment(directory: Path, random: np.random.Generator, rows: np.ndarray, sizes: np.ndarray, base_offset: int) -> None:
    positions = np.cumsum(sizes) - sizes
    data = np.frombuffer(bytearray(random.bytes(int(sizes.sum()))), dtype=np.uint8)
    marker = np.flatnonzero(rows["attributes"] & 0x20)
    record = np.tile(np.frombuffer(MARKER_RECORD, dtype=np.uint8), (len(marker), 1))
    record[:, 8] = 1
    data[(positions[marker] + HEADER.itemsize)[:, None] + np.arange(len(MARKER_RECORD))] = record

    windows = np.lib.stride_tricks.as_strided(data, (len(data) - HEADER.itemsize + 1, HEADER.itemsize), (1, 1))
    windows[positions] = rows.view(np.uint8).reshape(len(rows), HEADER.itemsize)
    view = data.data
    ends = (positions + sizes).tolist()
    rows["crc"] = [crc32c(view[start + 21 : end]) for start, end in zip(positions.tolist(), ends, strict=True)]
    windows[positions] = rows.view(np.uint8).reshape(len(rows), HEADER.itemsize)
    name = f"{base_offset:020d}"
    (directory / f"{name}.log").write_bytes(view)
    (directory / f"{name}.index").write_bytes(_index(rows, positions, base_offset))


def _index(rows: np.ndarray, positions: np.ndarray, base_offset: int) -> bytes:
    """The index that ``LogSegment.append`` writes: an entry for the last offset of a batch 4096 bytes after the last entry."""
    last_offset = rows["base_offset"].astype(np.int64) + rows["last_offset_delta"] - base_offset
    chosen: list[int] = []
    row = 0
    last = 0
    while True:
        row = max(int(np.searchsorted(positions, last + INDEX_INTERVAL_BYTES, side="right")), row + 1)
        if row >= len(positions):
            break
        chosen.append(row)
        last = int(positions[row])
    entries = np.zeros(len(chosen), dtype=[("offset", ">i4"), ("position", ">i4")])
    entries["offset"] = last_offset[chosen]
    entries["position"] = positions[chosen]
    return entries.tobytes()
