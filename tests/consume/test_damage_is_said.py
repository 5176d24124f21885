"""Hidden records are reported with the byte of the damage or with a row, and all others are read: on small logs, counted by
hand."""

import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from log_dirs import CONTROL, TRANSACTIONAL, batch, marker
from small_logs import log_dir, plain, transactional

from formats.errors import FormatError
from formats.log.batch_headers import HeaderBlock
from snaprebuild.consume.transaction_outcomes import OutcomeReplay
from snaprebuild.errors import ReadFailedError
from snaprebuild.library.record_stream import RecordStream, records

COLUMNS = ("offset", "transaction")
LENIENT = ("PERMISSIVE", "DROPMALFORMED")


def plains(begin: int, end: int) -> list[bytes]:
    return [plain(at) for at in range(begin, end)]


def without_magic(data: bytes) -> bytes:
    return data[:16] + b"\x07" + data[17:]


def with_wrong_checksum(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def with_base_offset(data: bytes, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + data[8:]


def offsets_of(stream: RecordStream) -> list[int | None]:
    found: list[int | None] = pa.Table.from_batches(list(stream), stream.schema)["offset"].to_pylist()
    return found


def damaged_counts(stream: RecordStream) -> list[int]:
    return [each.damaged_batches for each in stream.partitions]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("mode", LENIENT)
def test_structural_damage_after_other_damage_is_counted(mode: str, isolation: str, tmp_path: Path) -> None:
    """A wrong checksum first, and then two ends of segments: each has its row, and one finding has their count."""
    one = [with_wrong_checksum(plain(0)), *plains(1, 4), without_magic(plain(4)), plain(5)]
    two = [plain(6), without_magic(plain(7)), *plains(8, 10)]
    source = log_dir(tmp_path, {0: b"".join(one), 6: b"".join(two), 10: plain(10)}, high_watermark=11)
    stream = records(source, columns=COLUMNS, isolation=isolation, mode=mode)
    found = offsets_of(stream)
    assert [each for each in found if each is not None] == [1, 2, 3, 5, 6, 8, 9, 10]
    assert found.count(None) == (3 if mode == "PERMISSIVE" else 0)
    assert damaged_counts(stream) == [3]
    (finding,) = [each for each in stream.findings if each.code == "records-damaged"]
    assert "3 batches of the range cannot be read" in finding.message
    assert "records-lost" not in {each.code for each in stream.findings}


@pytest.mark.parametrize("wrong", [5, 7, 900])
@pytest.mark.parametrize("compacted", [False, True])
def test_a_base_offset_that_is_too_high(wrong: int, compacted: bool, tmp_path: Path) -> None:
    """It is not under the checksum: only its neighbours, or the next segment, show that it is wrong."""
    first = [plain(0), plain(1), with_base_offset(plain(2), wrong), plain(3), plain(4)]
    source = log_dir(tmp_path, {0: b"".join(first), 6: plain(6) + plain(7)}, high_watermark=8, compacted=compacted)
    position = len(plain(0)) * 2
    for isolation in ("read_committed", "read_uncommitted"):
        with pytest.raises(FormatError, match=f"0.log, byte {position}: offset of a batch: expected 2 or higher, and below 3"):
            offsets_of(records(source, columns=COLUMNS, isolation=isolation, fail_on_data_loss=False))
        lenient = records(source, columns=COLUMNS, isolation=isolation, mode="PERMISSIVE")
        assert offsets_of(lenient) == [0, 1, None, 3, 4, 6, 7]
        assert damaged_counts(lenient) == [1]


def test_the_last_batch_of_a_segment_is_not_of_the_next_one(tmp_path: Path) -> None:
    source = log_dir(tmp_path, {0: plain(0) + with_base_offset(plain(1), 900), 2: plain(2)}, high_watermark=3, compacted=True)
    with pytest.raises(FormatError, match="offset of a batch: expected 1 or higher, and below 2, found 900"):
        offsets_of(records(source, columns=COLUMNS))
    assert offsets_of(records(source, columns=COLUMNS, mode="PERMISSIVE")) == [0, None, 2]


def test_segments_with_the_same_batches_are_read_once(tmp_path: Path) -> None:
    for count in (1, 3):
        segments = {0: b"".join(plains(0, 5 + count)), 5: b"".join(plains(5, 9))}
        source = log_dir(tmp_path / str(count), segments, high_watermark=9)
        assert offsets_of(records(source, columns=COLUMNS)) == list(range(9))


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("damage", [without_magic, with_wrong_checksum])
def test_damage_outside_the_range_does_not_matter(damage: Any, isolation: str, tmp_path: Path) -> None:
    first = [plain(0), damage(plain(1)), *plains(2, 6), damage(plain(6)), plain(7)]
    source = log_dir(tmp_path, {0: b"".join(first), 8: plain(8)}, high_watermark=9)
    bounds: dict[str, Any] = {"starting_offsets": {"orders": {0: 3}}, "ending_offsets": {"orders": {0: 6}}}
    for mode in ("FAILFAST", *LENIENT):
        stream = records(source, columns=COLUMNS, isolation=isolation, mode=mode, **bounds)
        assert offsets_of(stream) == [3, 4, 5]
        assert damaged_counts(stream) == [0]
    with pytest.raises(FormatError):
        offsets_of(records(source, columns=COLUMNS, isolation=isolation, starting_offsets={"orders": {0: 3}}))


# -------------------------------------------------------------------------------------------------------------- the log end


def without_marker_type(data: bytes) -> bytes:
    """Its key is empty: a broker throws there. The checksum is wrong, too."""
    at = data.index(b"\x08\x00\x00\x00", 61)
    return data[:at] + b"\x00" + data[at + 1 :]


def byte_of_error(source: Path, isolation: str) -> int:
    """Where the strict mode says that the log is damaged."""
    with pytest.raises(FormatError) as caught:
        offsets_of(records(source, columns=COLUMNS, isolation=isolation))
    found = re.search(r"0\.log, byte (\d+): ", str(caught.value))
    assert found is not None
    return int(found[1])


DAMAGED_ENDS: dict[str, tuple[Any, bytes]] = {
    "a batch": (without_magic, plain(2)),
    "a marker": (without_marker_type, marker(2, 7, commit=True)),
}


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("high_watermark", [None, 5])
@pytest.mark.parametrize("name", DAMAGED_ENDS)
def test_the_log_goes_on_behind_damage(name: str, high_watermark: int | None, isolation: str, tmp_path: Path) -> None:
    damage, which = DAMAGED_ENDS[name]
    source = log_dir(tmp_path, {0: plain(0, 2) + damage(which) + plain(3) + plain(4)}, high_watermark=high_watermark)
    assert len(plain(0, 2)) <= byte_of_error(source, isolation) < len(plain(0, 2)) + len(which)
    lenient = records(source, columns=COLUMNS, isolation=isolation, mode="PERMISSIVE")
    assert offsets_of(lenient) == [0, 1, None, 3, 4]
    assert damaged_counts(lenient) == [1]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("high_watermark", [None, 3])
def test_damage_in_the_last_batch(high_watermark: int | None, isolation: str, tmp_path: Path) -> None:
    source = log_dir(tmp_path, {0: plain(0, 2) + without_magic(plain(2))}, high_watermark=high_watermark)
    assert byte_of_error(source, isolation) == len(plain(0, 2)) + 16
    assert offsets_of(records(source, columns=COLUMNS, isolation=isolation, mode="PERMISSIVE")) == [0, 1, None]


def test_a_directory_without_segments_is_not_read_for_its_epochs(tmp_path: Path) -> None:
    whole = log_dir(tmp_path / "a", {0: b"".join(plains(0, 4))}, high_watermark=4)
    empty = log_dir(tmp_path / "b", {}, high_watermark=4)
    (empty / "orders-0" / "leader-epoch-checkpoint").write_text("0\n1\n9 0\n")
    assert offsets_of(records([whole, empty], columns=COLUMNS)) == [0, 1, 2, 3]


def test_a_high_watermark_of_another_replica_above_the_end_is_a_loss(tmp_path: Path) -> None:
    shorter = log_dir(tmp_path / "a", {0: b"".join(plains(0, 4))}, high_watermark=4)
    (shorter / "orders-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n9 3\n")
    longer = log_dir(tmp_path / "b", {0: b"".join(plains(0, 3))}, high_watermark=6)
    (longer / "orders-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    with pytest.raises(ReadFailedError, match="offsets 4 to 5 of orders-0 are not there: the log ends at 4, below its high"):
        offsets_of(records([shorter, longer], columns=COLUMNS))
    stream = records([shorter, longer], columns=COLUMNS, fail_on_data_loss=False)
    assert offsets_of(stream) == [0, 1, 2, 3]
    assert "records-lost" in {each.code for each in stream.findings}


# ------------------------------------------------------------------------------------------------------------- range, times


def test_a_partition_that_begins_above_the_end_of_the_range_is_empty(tmp_path: Path) -> None:
    source = log_dir(tmp_path, {5: b"".join(plains(5, 9))}, log_start=5, high_watermark=9)
    for isolation in ("read_committed", "read_uncommitted"):
        stream = records(source, columns=COLUMNS, isolation=isolation, ending_offsets={"orders": {0: 3}})
        assert offsets_of(stream) == []
        assert stream.exit_code == 0
        later = {"starting_timestamp": 2_000_000_000_000, "starting_offsets_by_timestamp_strategy": "latest"}
        ending = {"orders": {0: 7}}
        assert offsets_of(records(source, columns=COLUMNS, isolation=isolation, ending_offsets=ending, **later)) == []


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_damaged_record_at_the_time_that_is_searched(isolation: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("snaprebuild.argument_checks.NOT_MS", range(0))
    damaged = batch(3, records=[b"\x50abc"], timestamp=1_003)
    source = log_dir(tmp_path, {0: b"".join([*plains(0, 3), damaged, *plains(4, 6)])}, high_watermark=6)
    for time_ms, expected in ((1_002, [2, None, 4, 5]), (1_003, [None, 4, 5]), (1_004, [4, 5])):
        stream = records(source, columns=COLUMNS, isolation=isolation, mode="PERMISSIVE", starting_timestamp=time_ms)
        found = offsets_of(stream)
        assert sorted(found, key=str) == sorted(expected, key=str)
        with_offset = [each for each in found if each is not None]
        assert with_offset == sorted(with_offset)
    ending = records(source, columns=COLUMNS, isolation=isolation, mode="PERMISSIVE", ending_timestamp=1_003)
    assert offsets_of(ending) == [0, 1, 2]
    assert {each.code for each in ending.findings} == {"records-damaged"}
    with pytest.raises(FormatError):
        offsets_of(records(source, columns=COLUMNS, isolation=isolation, starting_timestamp=1_003))


# ------------------------------------------------------------------------------------------------------------- transactions


def outcomes_of(stream: RecordStream) -> dict[int, str]:
    rows = pa.Table.from_batches(list(stream), stream.schema).to_pylist()
    return {row["offset"]: row["transaction"] for row in rows if row["offset"] is not None}


@pytest.mark.parametrize("damage", [without_magic, with_wrong_checksum])
def test_damage_that_may_hide_a_marker_leaves_transactions_undecided(damage: Any, tmp_path: Path) -> None:
    """The damaged batch is the abort marker; the next marker of the producer is a commit, and does not decide about offset 0."""
    batches = [transactional(0, 7), transactional(1, 8), damage(marker(2, 7, commit=False)), transactional(3, 7)]
    batches += [marker(4, 7, commit=True), marker(5, 8, commit=False), transactional(6, 8), marker(7, 8, commit=True)]
    source = log_dir(tmp_path, {0: b"".join(batches), 8: plain(8)}, high_watermark=9)
    stream = records(source, columns=COLUMNS, mode="PERMISSIVE")
    assert outcomes_of(stream) == {0: "open", 3: "committed", 6: "committed", 8: "none"}
    (finding,) = [each for each in stream.findings if each.code == "records-judged-after-damage"]
    assert "records of producer 7 at offsets 0 to 1 may have been aborted or committed" in finding.message
    every = records(source, columns=COLUMNS, mode="PERMISSIVE", isolation="read_uncommitted")
    assert outcomes_of(every) == {0: "open", 1: "aborted", 3: "committed", 6: "committed", 8: "none"}


def test_many_producers_take_little_memory() -> None:
    """A million aborted transactions of as many producers take 24 bytes each, and a bounded table."""
    replay = OutcomeReplay(1 << 40)
    count = 200_000
    producers = np.arange(count, dtype=np.int64)
    is_marker = np.tile([False, True], count)
    rows = np.flatnonzero(is_marker)
    block = HeaderBlock(
        position_bytes=np.arange(2 * count),
        columns={
            "base_offset": np.arange(2 * count),
            "last_offset_delta": np.zeros(2 * count, dtype=np.int64),
            "attributes": np.where(is_marker, TRANSACTIONAL | CONTROL, TRANSACTIONAL),
            "producer_id": np.repeat(producers, 2),
            "record_count": np.ones(2 * count, dtype=np.int64),
        },
        control=rows,
        marker_type=np.zeros(count, dtype=np.int16),
        marker_coordinator_epoch=np.zeros(count, dtype=np.int32),
        marker_timestamp=np.zeros(count, dtype=np.int64),
        bad_crc=np.zeros(0, dtype=np.int64),
    )
    tracemalloc.start()
    try:
        for begin in range(0, 2 * count, 8192):
            replay.take(block.part(begin, min(begin + 8192, 2 * count)))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 24 * count + (20 << 20)
    outcomes = replay.outcomes()
    assert outcomes.aborted.tolist()[:2] == [[0, 0, 1], [1, 2, 3]]
    assert len(outcomes.aborted) == count
