"""Random logs: that they hold what they should, that Kafka reads them as their writer meant, and that ours agrees with Kafka."""

from __future__ import annotations

import gzip
import random
import struct
from collections import Counter
from pathlib import Path

import cramjam
import pytest
from fold_by_rules import RULES, fold
from log_dirs import batch_positions
from log_writer import (
    COMMIT,
    CONTROL,
    TRANSACTIONAL,
    marker_record,
    record,
    record_batch,
    write_random_log,
)
from oracle import Entry, Oracle
from ours import ENGINES, states_of

LOGS = 200
NOT_MET = {
    "batch: of 9999 (timestamp of the producer)",
    "control: key of a later version",
    "control: key of a negative version, Kafka throws",
    "control: value of a negative version, Kafka throws",
    "control: value too short, Kafka throws",
}
"""Rules that no log of the writer meets: those of the strategy do."""


def test_the_logs_hold_what_a_replay_must_cope_with(tmp_path: Path) -> None:
    met: Counter[str] = Counter()
    for seed in range(1, LOGS + 1):
        met += fold(write_random_log(tmp_path / f"seed-{seed}" / "random-0", seed)).hits
    assert set(RULES) - set(met) == NOT_MET


@pytest.mark.kafka
def test_kafka_finds_every_batch_valid(oracle: Oracle, tmp_path: Path) -> None:
    """DumpLogSegments reads every record of every batch; here the writer and the format meet for the first time."""
    dumped = 0
    for seed in range(1, 31):
        log = write_random_log(tmp_path / f"seed-{seed}" / "random-0", seed)
        if oracle.replay(log, "recover").stopped is not None or is_torn(log):
            continue
        for segment in sorted(log.glob("*.log")):
            text = oracle.dump(segment, ["--deep-iteration"])
            batches = [line for line in text.splitlines() if line.startswith("baseOffset") or "isvalid" in line]
            assert "isvalid: false" not in text
            assert "Found non-consecutive" not in text
            assert bool(batches) is bool(segment.stat().st_size)
            dumped += len(batches)
    assert dumped > 500


def is_torn(log: Path) -> bool:
    """Its last batch is not whole."""
    segment = max(log.glob("*.log"))
    return len(last_offsets(segment)) < len(batch_positions(segment))


def last_offsets(segment: Path) -> dict[int, int]:
    """Where each whole batch of a segment begins, and the last offset in it; that of a wrapper is its own."""
    data, found = segment.read_bytes(), {}
    for at in batch_positions(segment):
        if at + 12 + int.from_bytes(data[at + 8 : at + 12]) <= len(data):
            delta = struct.unpack_from(">i", data, at + 23)[0] if data[at + 16] == 2 else 0
            found[at] = struct.unpack_from(">q", data, at)[0] + delta
    return found


def ended_below(log: Path, offset: int, to: Path) -> Path:
    """The log as it was when it ended with the last batch below ``offset``."""
    to.mkdir(parents=True)
    for segment in sorted(log.glob("*.log")):
        end = next((at for at, last in last_offsets(segment).items() if last >= offset), None)
        if int(segment.stem) < offset:
            (to / segment.name).write_bytes(segment.read_bytes()[:end])
    return to


@pytest.mark.kafka
def test_ours_agrees_with_kafka_inside_segments(oracle: Oracle, tmp_path: Path) -> None:
    """At any offset: Kafka's state after a replay of the log as it was there."""
    compared: Counter[str] = Counter()
    for seed in range(1, 121):
        log = write_random_log(tmp_path / f"seed-{seed}" / "random-0", seed)
        bases = sorted(int(segment.stem) for segment in log.glob("*.log"))
        chance = random.Random(seed)
        end = max((last for segment in log.glob("*.log") for last in last_offsets(segment).values()), default=bases[0])
        cuts = sorted({chance.randrange(bases[0], end) for _ in range(5)} - set(bases)) if end > bases[0] else []
        ours = states_of(log, cuts)
        for cut in cuts:
            kafka = oracle.replay(ended_below(log, cut, tmp_path / f"seed-{seed}-{cut}" / "random-0"), "recover")
            if kafka.stopped is not None:
                assert cut not in ours
                compared["thrown"] += 1
                continue
            assert ours[cut] == kafka.boundaries[-1].state, (seed, cut)
            compared["offsets"] += 1
            compared["entries"] += len(ours[cut])
    assert compared["offsets"] > 300
    assert compared["entries"] > 600
    assert compared["thrown"] > 0


def lz4_frame(data: bytes) -> bytes:
    """As Kafka writes and asks for: blocks that do not depend on each other."""
    packer = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
    packer.compress(data)
    return bytes(packer.finish())


@pytest.mark.kafka
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_compressed_control_batch_is_read_as_kafka_reads_it(oracle: Oracle, tmp_path: Path, codec: int) -> None:
    """No broker writes one; its readers accept it."""
    marker = marker_record(COMMIT, 11, timestamp_delta=25)
    block = bytes(cramjam.snappy.compress_raw(marker))
    snappy = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block
    payload = {1: gzip.compress(marker), 2: snappy, 3: lz4_frame(marker), 4: bytes(cramjam.zstd.compress(marker))}
    data = record_batch(
        0,
        [record(0, 0, None, b"x")],
        last_offset_delta=0,
        base_timestamp=5,
        max_timestamp=5,
        producer_id=3,
        epoch=1,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    control = record_batch(
        1,
        [payload[codec]],
        last_offset_delta=0,
        base_timestamp=100,
        max_timestamp=125,
        producer_id=3,
        epoch=1,
        attributes=TRANSACTIONAL | CONTROL | codec,
        compress=False,
    )
    directory = tmp_path / "compressed-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(data + control)
    expected = {2: {3: Entry(3, 1, 0, 0, 0, 125, 11, -1)}}
    assert oracle.replay(directory, "rebuild").states == expected
    assert ENGINES["segment effects"](directory) == expected
