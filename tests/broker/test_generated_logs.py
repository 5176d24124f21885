"""Generated logs: every rule of the producer state is met, and Kafka's classes of every release make of them what ours make."""

import contextlib
import gzip
import struct
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import cramjam
import pytest
from budgets import EXAMPLES
from compare import Comparison, Report, compare_generated, completed_by
from fold_by_rules import Folded, fold
from hypothesis import given, settings
from kafka_classpath import KAFKA_VERSION, REPLAYED
from log_writer import ABORT, COMMIT, CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, marker_record, message, record, record_batch
from oracle import CompletedTransaction, Entry, Oracle
from ours import ENGINES, specification_completed
from strategies import BROKEN_MARKERS, GeneratedLog, GeneratedPartition, batch_of, header_of, partitions

LOGS, LOGS_OF_OTHERS, SEEDS_MAX = 250, 40, 12
T = 1_790_000_000_000


def batch(offset: int, records: list[bytes], producer_id: int, epoch: int, attributes: int = 0, **more: int) -> bytes:
    header = {"last_offset_delta": 0, "base_timestamp": T, "max_timestamp": T, "attributes": attributes} | more
    return record_batch(offset, records, producer_id=producer_id, epoch=epoch, **header)


def small_log(directory: Path) -> Path:
    """Three segments, written by hand. Kafka throws at the last one."""
    plain = record(0, 0, None, b"v")
    first = [
        message(1, 0, T, b"old"),
        # Four offsets, two records: sequences 2147483646, 2147483647, 0, 1.
        batch(1, [plain] * 2, 0, 3, last_offset_delta=3, base_sequence=2**31 - 2),
        batch(5, [plain], 5, 0, TRANSACTIONAL, base_sequence=0),
        batch(6, [], 6, 4, CONTROL),
    ]
    second = [
        batch(7, [marker_record(ABORT, 12, timestamp_delta=7)], 5, 1, CONTROL | TRANSACTIONAL),
        batch(8, [marker_record(COMMIT, 9)], 5, 0, CONTROL | LOG_APPEND_TIME, max_timestamp=T + 100),
        batch(9, [plain], 5, 0, TRANSACTIONAL, base_sequence=1),
    ]
    third = [batch(10, [plain], 5, 0, base_sequence=2), batch(11, [plain], 7, 0, base_sequence=0)]
    for base, batches in ((0, first), (7, second), (10, third)):
        (directory / f"{base:020}.log").write_bytes(b"".join(batches))
    return directory


def test_the_rules_that_a_small_log_meets(tmp_path: Path) -> None:
    """All of it written down by hand."""
    folded = fold(small_log(tmp_path))
    assert folded.hits == Counter(
        {
            "batch: magic 0 or 1, passed over": 1,
            "batch: producer id 0 counts like any": 1,
            "data: of an unknown producer": 2,
            "data: sequence wraps to 0": 1,
            "data: fewer records than offsets, offsets count (compacted)": 1,
            "data: opens a transaction": 2,
            "control: no record, unknown producer, entry of empty values": 1,
            "marker: aborts the open transaction": 1,
            "marker: of a transaction that another epoch opened": 1,
            "marker: newer epoch drops the batch": 1,
            "marker: timestamp is that of the record": 1,
            "version 2: marker of the next epoch ends the transaction and drops the batch": 1,
            "marker: no transaction open, known producer": 1,
            "marker: without the transactional bit, counts all the same": 1,
            "marker: log append time, timestamp is that of the header": 1,
            "marker: older coordinator epoch is taken": 1,
            "chunk: epoch leaves and comes back within a segment": 1,
            "data: same epoch, sequence that does not follow is taken": 1,
            "data: timestamp goes back": 1,
            "data: outside of its open transaction, Kafka throws": 1,
            "data: outside of one that was opened in an earlier segment, Kafka throws": 1,
        }
    )
    zero, empty = Entry(0, 3, 1, 4, 3, T, -1, -1), Entry(6, -1, -1, -1, 0, -1, -1, -1)
    assert folded.by_batch == {
        7: {0: zero, 5: Entry(5, 0, 0, 5, 0, T, -1, 5), 6: empty},
        10: {0: zero, 5: Entry(5, 0, 1, 9, 0, T, 9, 9), 6: empty},
    }
    assert folded.by_segment == folded.by_batch
    assert folded.undecided == {7: 5, 10: 9}
    aborted, orphan = CompletedTransaction(5, 5, 7, True, 8), CompletedTransaction(5, 8, 8, False, 9)
    assert (completed_by("2.8.0", folded), completed_by("2.7.2", folded)) == ([aborted], [aborted, orphan])


def test_an_epoch_that_comes_back_in_a_segment_without_data(tmp_path: Path) -> None:
    """Earlier entries survive where a segment is folded as one, and there alone."""
    (tmp_path / f"{0:020}.log").write_bytes(batch(0, [record(0, 0, None, b"v")], 5, 0, base_sequence=3))
    markers = [batch(offset, [marker_record(COMMIT, 0)], 5, epoch, CONTROL) for offset, epoch in ((1, 1), (2, 0))]
    (tmp_path / f"{1:020}.log").write_bytes(b"".join(markers))
    folded = fold(tmp_path)
    assert folded.by_batch[3] == {5: Entry(5, 0, -1, -1, 0, T, 0, -1)}
    assert folded.by_segment[3] == {5: Entry(5, 0, 3, 0, 0, T, 0, -1)}
    assert folded.hits["chunk: and no batch follows, so that Kafka's replays differ"] == 1


@settings(max_examples=EXAMPLES // 3)
@given(partition=partitions())
def test_ours_are_the_rules(partition: GeneratedPartition) -> None:
    """Also where there is no Java."""
    with tempfile.TemporaryDirectory() as place:
        directory = partition.write(Path(place) / "generated-0")
        folded = fold(directory)
        assert {engine: states(directory) for engine, states in ENGINES.items()} == dict.fromkeys(ENGINES, folded.by_batch)
        assert specification_completed(directory) == completed_by(KAFKA_VERSION, folded)


@pytest.mark.kafka
def test_kafka_ours_and_the_rules_agree(oracle: Oracle, tmp_path: Path) -> None:
    comparison = Comparison([oracle], sorted(ENGINES), tmp_path)
    for marker in BROKEN_MARKERS.values():
        log = GeneratedLog((batch_of(header_of(0, attributes=CONTROL, producer_id=7, producer_epoch=0), [marker]),))
        comparison.take(GeneratedPartition(((0, log),)).write)
    comparison.from_strategy(LOGS, seed=1)
    for seed in range(2, SEEDS_MAX):  # chance may leave out a rare rule
        if comparison.fewest(1):
            comparison.from_strategy(LOGS // 5, seed)
    report = comparison.reports[oracle.version]
    assert report.differences == []
    assert comparison.fewest(1) == []
    assert report.logs == comparison.logs >= len(BROKEN_MARKERS) + LOGS
    assert report.boundaries > 2 * LOGS
    assert report.entries > 4 * LOGS
    assert report.replays_differ > LOGS // 100
    assert list(tmp_path.iterdir()) == []


@pytest.mark.kafka
@pytest.mark.night
def test_the_other_releases_agree(tmp_path: Path) -> None:
    with contextlib.ExitStack() as running:
        others = [running.enter_context(Oracle(version)) for version in REPLAYED if version != KAFKA_VERSION]
        comparison = Comparison(others, sorted(ENGINES), tmp_path)
        comparison.from_strategy(LOGS_OF_OTHERS, seed=2)
    assert {version: (each.logs, each.differences) for version, each in comparison.reports.items()} == {
        version: (LOGS_OF_OTHERS, []) for version in REPLAYED if version != KAFKA_VERSION
    }
    completed = {version: each.completed for version, each in comparison.reports.items()}
    assert completed["2.7.2"] > completed["3.6.2"]


@pytest.mark.kafka
def test_a_difference_in_anything_that_is_compared_is_reported(oracle: Oracle, tmp_path: Path) -> None:
    (tmp_path / "small-0").mkdir()
    directory = small_log(tmp_path / "small-0")
    right = fold(directory)
    ours = {engine: states(directory) for engine, states in ENGINES.items()}

    def reported(folded: Folded, states: dict[str, dict[int, dict[int, Entry]]]) -> list[str]:
        report = Report()
        compare_generated(oracle, directory, folded, states, report)
        return report.differences

    assert reported(right, ours) == []
    boundary = max(right.by_batch)
    without = {offset: state for offset, state in right.by_batch.items() if offset != boundary}
    for engine in ENGINES:
        (line,) = reported(right, ours | {engine: without})
        assert line.endswith(f"boundary {boundary}: only Kafka has a state")
    assert len(reported(replace(right, by_batch=without), ours)) == 1
    assert len(reported(replace(right, by_segment=without), ours)) == 1
    assert len(reported(replace(right, undecided=right.undecided | {boundary: -5}), ours)) == 1
    assert len(reported(replace(right, completed=[]), ours)) == 1


def compressed(codec: int, data: bytes) -> bytes:
    """Compresses as Kafka does and asks for: Xerial's frame around snappy, and LZ4 blocks that do not depend on each other."""
    if codec == 2:
        block = bytes(cramjam.snappy.compress_raw(data))
        return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block
    if codec == 3:
        packer = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
        packer.compress(data)
        return bytes(packer.finish())
    return gzip.compress(data) if codec == 1 else bytes(cramjam.zstd.compress(data))


@pytest.mark.kafka
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_compressed_control_batch_is_read_as_kafka_reads_it(oracle: Oracle, tmp_path: Path, codec: int) -> None:
    """No broker writes one. Its readers accept it."""
    payload = compressed(codec, marker_record(COMMIT, 11, timestamp_delta=25))
    data = batch(0, [record(0, 0, None, b"x")], 3, 1, TRANSACTIONAL, base_sequence=0)
    control = batch(1, [payload], 3, 1, TRANSACTIONAL | CONTROL | codec, max_timestamp=T + 25, compress=False)
    directory = tmp_path / "compressed-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(data + control)
    expected = {2: {3: Entry(3, 1, 0, 0, 0, T + 25, 11, -1)}}
    assert oracle.replay(directory, "rebuild").states == expected
    assert ENGINES["segment effects"](directory) == expected
