"""Random logs: that they hold what they should, that Kafka reads them as their writer meant, and that ours agrees with Kafka."""

from __future__ import annotations

import gzip
import random
import re
import struct
from collections import Counter
from pathlib import Path

import cramjam
import pytest
from compare import Report, States, compare_directory, differences
from log_dirs import batch_positions
from log_writer import (
    ABORT,
    COMMIT,
    CONTROL,
    GZIP,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    marker_record,
    message,
    record,
    record_batch,
    wrapper_message,
    write_random_log,
)
from oracle import CompletedTransaction, Entry, Mode, Oracle
from ours import ENGINES, states_of

LOGS = 400
FEATURES = """
    abort; batch thinned by compaction; batch without producer id; commit; control batch without producer id;
    coordinator epoch goes down; empty control batch, known producer; empty control batch, unknown producer; empty data batch;
    empty last segment; epoch bump; epoch drop; epoch returns within a segment; gap at a segment's end; gap between batches;
    log append time; magic 0; magic 0 wrapper; magic 1; magic 1 wrapper; marker of a later version; marker of an unknown producer;
    marker with a timestamp delta; marker with an older epoch; marker with the next epoch; marker without transaction;
    no timestamp; poison: control type that is no marker; poison: data outside its transaction; poison: marker with a short key;
    producer id without sequence; second record in a control batch; segments; sequence wrap; torn tail; transaction begins;
    transaction continues
"""


def content(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir()}


def test_a_seed_gives_the_same_log_again(tmp_path: Path) -> None:
    one = write_random_log(tmp_path / "one" / "random-0", 7)
    assert content(write_random_log(tmp_path / "two" / "random-0", 7).directory) == content(one.directory)
    assert content(write_random_log(tmp_path / "three" / "random-0", 8).directory) != content(one.directory)


def test_the_logs_hold_what_a_replay_must_cope_with(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in range(1, LOGS + 1):
        seen.update(set(write_random_log(tmp_path / f"seed-{seed}" / "random-0", seed).features))
    assert sorted(seen) == sorted(feature.strip() for feature in FEATURES.split(";"))
    rare = {feature for feature, logs in seen.items() if logs < 5}
    assert rare == set()


@pytest.mark.kafka
def test_kafka_finds_every_batch_valid(oracle: Oracle, tmp_path: Path) -> None:
    """DumpLogSegments reads every record of every batch; here the writer and the format meet for the first time."""
    dumped = 0
    for seed in range(1, 31):
        log = write_random_log(tmp_path / f"seed-{seed}" / "random-0", seed)
        if any(feature.startswith(("poison", "torn")) for feature in log.features):
            continue
        for segment in sorted(log.directory.glob("*.log")):
            text = oracle.dump(segment, ["--deep-iteration"])
            batches = [line for line in text.splitlines() if line.startswith("baseOffset") or "isvalid" in line]
            assert "isvalid: false" not in text
            assert "Found non-consecutive" not in text
            assert bool(batches) is bool(segment.stat().st_size)
            dumped += len(batches)
    assert dumped > 500


@pytest.mark.kafka
@pytest.mark.parametrize("mode", ["rebuild", "recover"])
def test_kafka_reads_what_the_writer_meant(oracle: Oracle, tmp_path: Path, mode: Mode) -> None:
    """A log with the state written down by hand."""
    t = 1_790_000_000_000

    def batch(offset: int, records: list[bytes], producer_id: int, epoch: int, attributes: int = 0, **more: int) -> bytes:
        header = {"last_offset_delta": 0, "base_timestamp": t, "max_timestamp": t, "attributes": attributes} | more
        return record_batch(offset, records, producer_id=producer_id, epoch=epoch, **header)

    plain = record(0, 0, None, b"v")
    first = [
        message(0, 0, t, b"old"),
        wrapper_message(1, 1, 3, t),
        # Four offsets, two records: sequences 2147483646, 2147483647, 0, 1.
        batch(4, [plain] * 2, 0, 3, last_offset_delta=3, max_timestamp=t + 9, base_sequence=2**31 - 2),
        batch(8, [plain], 5, 0, TRANSACTIONAL | GZIP, base_sequence=0),
        batch(9, [], 6, 4, CONTROL),
    ]
    second = [
        # The record's timestamp counts, unless the header says that the broker's clock does.
        batch(10, [marker_record(ABORT, 12, timestamp_delta=7)], 5, 0, CONTROL | TRANSACTIONAL, max_timestamp=t + 100),
        batch(11, [marker_record(COMMIT, 13, version=1)], 0, 4, CONTROL | LOG_APPEND_TIME, max_timestamp=t + 100),
    ]
    (tmp_path / f"{0:020}.log").write_bytes(b"".join(first))
    (tmp_path / f"{10:020}.log").write_bytes(b"".join(second) + first[2][:-1])
    replay = oracle.replay(tmp_path, mode)
    empty = Entry(6, -1, -1, -1, 0, -1, -1, -1)
    assert replay.states == {
        10: {0: Entry(0, 3, 1, 7, 3, t + 9, -1, -1), 5: Entry(5, 0, 0, 8, 0, t, -1, 8), 6: empty},
        12: {0: Entry(0, 4, -1, -1, 0, t + 100, 13, -1), 5: Entry(5, 0, 0, 8, 0, t + 7, 12, -1), 6: empty},
    }
    assert [(boundary.batches, boundary.max_magic) for boundary in replay.boundaries] == [(5, 2), (2, 2)]
    last_stable_offset = 11 if mode == "recover" else None
    assert replay.completed == (CompletedTransaction(5, 8, 10, True, last_stable_offset),)


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("poison", "error"),
    [
        ("data outside its transaction", r"InvalidTxnStateException"),
        ("control type that is no marker", r"IllegalArgumentException"),
        ("marker with a short key", r"InvalidRecordException"),
    ],
)
def test_kafka_throws_at_the_poisoned_batch(oracle: Oracle, tmp_path: Path, poison: str, error: str) -> None:
    poisoned = 0
    for seed in range(1, LOGS + 1):
        log = write_random_log(tmp_path / f"seed-{seed}" / "random-0", seed)
        if f"poison: {poison}" in log.features:
            replay = oracle.replay(log.directory, "recover")
            assert replay.stopped is not None
            assert re.search(error, replay.stopped.error)
            poisoned += 1
    assert poisoned


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
        log = write_random_log(tmp_path / f"seed-{seed}" / "random-0", seed).directory
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


@pytest.mark.kafka
def test_the_comparison_sees_every_kind_of_difference(oracle: Oracle, tmp_path: Path) -> None:
    log = write_random_log(tmp_path / "random-0", 2)
    right = oracle.replay(log.directory, "recover").states
    boundary = max(right)
    producer_id, entry = max(right[boundary].items())
    others = {key: value for key, value in right[boundary].items() if key != producer_id}
    wrong: dict[str, States] = {}
    for name, value in entry._asdict().items():
        wrong[f"{name} is one off"] = right | {boundary: others | {producer_id: entry._replace(**{name: value + 1})}}
    wrong["no boundary"] = {key: value for key, value in right.items() if key != boundary}
    wrong["one boundary more"] = right | {boundary + 1: {}}
    wrong["one producer less"] = right | {boundary: others}
    wrong["one producer more"] = right | {boundary: right[boundary] | {4711: Entry(4711, 0, 0, 0, 0, 0, -1, -1)}}
    assert len(wrong) == 12
    for name, states in wrong.items():
        report = Report()
        answer = dict.fromkeys([log.directory], states)
        assert compare_directory(oracle, log.directory, {"ours": answer.__getitem__}, report), name
        assert report.differences
    assert differences(right, right) == []


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
