"""Where the range of a read begins and ends, which replica is read, and what is said about it: on small logs, counted by hand."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from generated_logs import write_checkpoints
from log_dirs import batch, batch_positions, marker, record, snapshot_bytes, snapshot_name, write_partition
from small_logs import log_dir, plain, transactional

from formats.errors import FormatError
from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.consume.partition_plan import plan_partition
from snaprebuild.consume.partition_read import PartitionReader
from snaprebuild.consume.record_query import RecordIsolation, RecordQuery, TimeBounds
from snaprebuild.consume.record_source import open_record_source
from snaprebuild.errors import ReadFailedError, RefusedError, UsageError
from snaprebuild.library.record_stream import RecordStream, records
from snaprebuild.snapshots.run import Run

COLUMNS = ("offset", "transaction")
LOG_APPEND_TIME = 0x08


def offsets(stream: RecordStream) -> list[int]:
    found: list[int] = pa.Table.from_batches(list(stream), stream.schema)["offset"].to_pylist()
    return found


def codes(stream: RecordStream) -> set[str]:
    return {finding.code for finding in stream.findings}


def ten(root: Path, **checkpoints: Any) -> Path:
    """Ten plain records in two segments."""
    first = b"".join(plain(at) for at in range(6))
    return log_dir(root, {0: first, 6: b"".join(plain(at) for at in range(6, 10))}, **checkpoints)


# ------------------------------------------------------------------------------------------------------------------ offsets


def test_the_range_is_that_of_the_checkpoints(tmp_path: Path) -> None:
    stream = records(ten(tmp_path, log_start=2, high_watermark=8), columns=COLUMNS)
    assert offsets(stream) == [2, 3, 4, 5, 6, 7]
    assert codes(stream) == {"records-above-high-watermark"}
    (finding,) = stream.findings
    assert "the high watermark is 8, as a broker wrote it at 2" in finding.message
    assert "the 2 offsets above it are not read" in finding.message
    assert stream.exit_code == 0


def test_without_a_high_watermark_the_log_is_read_to_its_end(tmp_path: Path) -> None:
    stream = records(ten(tmp_path), columns=COLUMNS)
    assert offsets(stream) == list(range(10))
    assert codes(stream) == {"records-without-high-watermark"}
    assert stream.exit_code == 1


@pytest.mark.parametrize(
    ("starting", "ending", "expected"),
    [
        ({0: 3}, {0: 5}, [3, 4]),
        ({0: -2}, {0: 3}, [2]),
        ({0: 6}, {0: -1}, [6, 7]),
        ({0: 8}, {0: -1}, []),
        ({0: 9}, {0: -1}, []),
        ({0: 5}, {0: 5}, []),
    ],
)
def test_offsets_of_a_partition(starting: dict[int, int], ending: dict[int, int], expected: list[int], tmp_path: Path) -> None:
    source = ten(tmp_path, log_start=2, high_watermark=8)
    stream = records(source, columns=COLUMNS, starting_offsets={"orders": starting}, ending_offsets={"orders": ending})
    assert offsets(stream) == expected


def test_an_end_above_the_high_watermark_is_read_and_said(tmp_path: Path) -> None:
    source = ten(tmp_path, high_watermark=8)
    ending = {"orders": {0: 10}}
    stream = records(source, columns=COLUMNS, ending_offsets=ending, isolation="read_uncommitted")
    assert offsets(stream) == list(range(10))
    assert "records-above-high-watermark" in codes(stream)
    assert stream.exit_code == 1
    assert offsets(records(source, columns=COLUMNS, ending_offsets=ending)) == list(range(8))


LOST: dict[str, tuple[dict[str, Any], str, list[int]]] = {
    "below the log start": (
        {"starting_offsets": {"orders": {0: 0}}},
        "offsets 0 to 1 of orders-0 are not there",
        list(range(2, 8)),
    ),
    "start above the end": ({"starting_offsets": {"orders": {0: 12}}}, "offsets 10 to 11 of orders-0 are not there", []),
    "end above the end": ({"ending_offsets": {"orders": {0: 12}}}, "offsets 10 to 11 of orders-0 are not there", list(range(2, 8))),
}


@pytest.mark.parametrize("name", LOST)
def test_offsets_that_are_not_there(name: str, tmp_path: Path) -> None:
    options, message, expected = LOST[name]
    source = ten(tmp_path, log_start=2, high_watermark=8)
    with pytest.raises(ReadFailedError, match=message):
        offsets(records(source, columns=COLUMNS, **options))
    stream = records(source, columns=COLUMNS, fail_on_data_loss=False, **options)
    assert offsets(stream) == expected
    assert "records-lost" in codes(stream)


def test_a_gap_is_a_loss_and_holes_of_compaction_are_none(tmp_path: Path) -> None:
    gap = {0: plain(0, 3) + plain(5, 2), 9: plain(9)}
    source = log_dir(tmp_path / "gap", gap, high_watermark=10)
    with pytest.raises(ReadFailedError, match="offsets 3 to 4 of orders-0 are in no batch"):
        offsets(records(source, columns=COLUMNS))
    stream = records(source, columns=COLUMNS, fail_on_data_loss=False)
    assert offsets(stream) == [0, 1, 2, 5, 6, 9]
    assert [(each.missing_offsets, each.records) for each in stream.partitions] == [(4, 6)]
    compacted = records(log_dir(tmp_path / "compacted", gap, high_watermark=10, compacted=True), columns=COLUMNS)
    assert offsets(compacted) == [0, 1, 2, 5, 6, 9]
    assert codes(compacted) == set()
    assert [each.missing_offsets for each in compacted.partitions] == [4]


def test_a_last_batch_that_is_too_high_leaves_a_gap(tmp_path: Path) -> None:
    """A base offset is not under the checksum: the batch is above the range, and what it should hold is missing."""
    source = log_dir(tmp_path, {0: plain(0, 3) + plain(7)}, high_watermark=5)
    with pytest.raises(ReadFailedError, match="offsets 3 to 4 of orders-0 are in no batch"):
        offsets(records(source, columns=COLUMNS))
    stream = records(source, columns=COLUMNS, fail_on_data_loss=False)
    assert offsets(stream) == [0, 1, 2]
    assert [each.missing_offsets for each in stream.partitions] == [2]


def test_two_records_of_one_offset(tmp_path: Path) -> None:
    same = batch(0, count=2, records=[record(b"a", offset_delta=1), record(b"b", offset_delta=1)])
    source = log_dir(tmp_path, {0: same + plain(2)}, high_watermark=3)
    with pytest.raises(FormatError, match="offset of a record: expected one that ascends, found 1"):
        offsets(records(source, columns=COLUMNS))
    assert offsets(records(source, columns=COLUMNS, mode="DROPMALFORMED")) == [1, 2]


def test_damage_above_the_range_may_hide_how_a_transaction_ended(tmp_path: Path) -> None:
    damaged = bytearray(plain(2))
    damaged[-1] ^= 1
    source = log_dir(tmp_path, {0: transactional(0, 7) + plain(1) + bytes(damaged) + marker(3, 7, commit=False)}, high_watermark=4)
    with pytest.raises(FormatError, match="checksum of a batch"):
        offsets(records(source, columns=COLUMNS, ending_offsets={"orders": {0: 2}}))


# -------------------------------------------------------------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("starting", "ending", "expected"),
    [(1_003, None, [3, 4, 5, 6, 7]), (None, 1_004, [0, 1, 2, 3]), (1_002, 1_005, [2, 3, 4]), (1_000, 9_999, list(range(8)))],
)
def test_times(starting: int | None, ending: int | None, expected: list[int], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("snaprebuild.argument_checks.NOT_MS", range(0))
    source = ten(tmp_path, high_watermark=8)
    assert offsets(records(source, columns=COLUMNS, starting_timestamp=starting, ending_timestamp=ending)) == expected


def test_no_record_at_or_after_a_time(tmp_path: Path) -> None:
    late = 2_000_000_000_000
    source = ten(tmp_path, high_watermark=8)
    with pytest.raises(UsageError, match="no record of orders-0 is at or after the starting time"):
        offsets(records(source, columns=COLUMNS, starting_timestamp=late))
    strategy = {"starting_offsets_by_timestamp_strategy": "latest"}
    assert offsets(records(source, columns=COLUMNS, starting_timestamp=late, **strategy)) == []


# ------------------------------------------------------------------------------------------------------------- transactions


def test_a_transaction_that_begins_below_the_range_and_ends_far_above(tmp_path: Path) -> None:
    segments = {0: transactional(0, 7) + plain(1), 2: transactional(2, 7) + plain(3), 4: plain(4) + marker(5, 7, commit=False)}
    source = log_dir(tmp_path, segments, high_watermark=6)
    options: dict[str, Any] = {"starting_offsets": {"orders": {0: 1}}, "ending_offsets": {"orders": {0: 4}}}
    assert offsets(records(source, columns=COLUMNS, **options)) == [1, 3]
    stream = records(source, columns=COLUMNS, isolation="read_uncommitted", **options)
    rows = pa.Table.from_batches(list(stream), stream.schema).to_pylist()
    assert [(row["offset"], row["transaction"]) for row in rows] == [(1, "none"), (2, "aborted"), (3, "none")]


def test_an_abort_whose_beginning_is_gone(tmp_path: Path) -> None:
    """The log begins in the middle of the transaction; no index has its abort, so that a consumer of a broker would get the record."""
    source = log_dir(tmp_path, {4: transactional(4, 7) + marker(5, 7, commit=False) + plain(6)}, log_start=4, high_watermark=7)
    stream = records(source, columns=COLUMNS)
    assert offsets(stream) == [6]
    assert "records-aborted-without-index" in codes(stream)


@pytest.mark.parametrize(
    ("snapshots", "stable"),
    [
        ({}, 42),
        ({40: 30}, 41),
        ({44: 30}, 41),
        ({48: 30}, 41),
        ({44: None, 48: 30}, 41),
        ({44: 42}, 42),
    ],
)
def test_a_transaction_from_below_the_first_segment_by_any_snapshot(
    snapshots: dict[int, int | None], stable: int, tmp_path: Path
) -> None:
    """A transaction from 30 on makes the log start 41 the last stable offset, as for a consumer of 2.7.2 and a log without it at 40."""
    segments = {40: plain(40, 2) + transactional(42, 7, 2), 44: plain(44, 4), 48: plain(48, 2)}
    source = log_dir(tmp_path, segments, log_start=41, high_watermark=50)
    for offset, first in snapshots.items():
        data = b"no snapshot" if first is None else snapshot_bytes([ProducerEntry(7, 0, 1, 43, 1, 1_042, -1, first)])
        (source / "orders-0" / snapshot_name(offset)).write_bytes(data)
    assert offsets(records(source, columns=COLUMNS)) == list(range(41, stable))
    assert offsets(records(source, columns=COLUMNS, isolation="read_uncommitted")) == list(range(41, 50))


def test_a_marker_above_the_high_watermark_ends_nothing(tmp_path: Path) -> None:
    source = log_dir(tmp_path, {0: plain(0) + transactional(1, 7) + plain(2) + marker(3, 7)}, high_watermark=3)
    stream = records(source, columns=COLUMNS)
    assert offsets(stream) == [0]
    assert "records-end-at-transaction" in codes(stream)
    assert offsets(records(source, columns=COLUMNS, isolation="read_uncommitted")) == [0, 1, 2]


# ------------------------------------------------------------------------------------------------------------------ damage


def test_damage_ends_the_read_at_its_byte_or_is_passed(tmp_path: Path) -> None:
    source = ten(tmp_path, high_watermark=10)
    path = source / "orders-0" / f"{0:020d}.log"
    position = batch_positions(path)[3]
    data = bytearray(path.read_bytes())
    data[position + 64] ^= 1
    path.write_bytes(data)
    for isolation in ("read_committed", "read_uncommitted"):
        stream = records(source, columns=COLUMNS, isolation=isolation)
        before = [next(iter(stream))["offset"].to_pylist()]
        assert before == [[0, 1, 2]]
        with pytest.raises(
            FormatError, match=f"0.log, byte {position}: checksum of a batch: expected 0x.{{8}}, found 0x.{{8}}"
        ) as caught:
            offsets(stream)
        assert offsets(records(source, columns=COLUMNS, isolation=isolation, ending_offsets={"orders": {0: 3}})) == [0, 1, 2]
        lenient = records(source, columns=COLUMNS, isolation=isolation, mode="PERMISSIVE")
        rows = pa.Table.from_batches(list(lenient), lenient.schema).to_pylist()
        assert [row["offset"] for row in rows if row["error"] is None] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert len(rows) == 10
        assert [row["error"] for row in rows if row["error"]] == [str(caught.value)]
        assert [row["error"] is not None for row in rows] == [row["offset"] is None for row in rows]
        assert offsets(records(source, columns=COLUMNS, isolation=isolation, mode="DROPMALFORMED")) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert lenient.exit_code == 4


def test_a_torn_end_is_said_and_a_lost_end_is_a_loss(tmp_path: Path) -> None:
    source = ten(tmp_path, high_watermark=9)
    path = source / "orders-0" / f"{6:020d}.log"
    path.write_bytes(path.read_bytes()[:-1])
    stream = records(source, columns=COLUMNS)
    assert offsets(stream) == list(range(9))
    assert codes(stream) == {"records-end-torn"}
    assert stream.exit_code == 0
    write_checkpoints(source, high_watermark=10)
    with pytest.raises(
        ReadFailedError, match="offsets 9 to 9 of orders-0 are not there: the log ends at 9, below its high watermark"
    ):
        offsets(records(source, columns=COLUMNS))
    lenient = records(source, columns=COLUMNS, fail_on_data_loss=False)
    assert offsets(lenient) == list(range(9))
    assert "records-lost" in codes(lenient)


@pytest.mark.parametrize("has_end", [False, True])
def test_a_lost_segment_may_have_had_the_end_of_a_transaction(tmp_path: Path, *, has_end: bool) -> None:
    """Where the read ends at the transaction, the loss above is said."""
    above = marker(9, 7, commit=False) if has_end else plain(9)
    first = plain(0) + transactional(1, 7) + plain(2)
    source = log_dir(tmp_path, {0: first, 6: b"".join(plain(at) for at in range(6, 9)) + above}, high_watermark=10)
    with pytest.raises(ReadFailedError, match="offsets 3 to 5 of orders-0 are "):
        offsets(records(source, columns=COLUMNS))
    lenient = records(source, columns=COLUMNS, fail_on_data_loss=False)
    rows = pa.Table.from_batches(list(lenient), lenient.schema).to_pylist()
    assert [row["offset"] for row in rows] == ([0, 2, 6, 7, 8] if has_end else [0])
    assert "records-lost" in codes(lenient)
    below = records(source, columns=COLUMNS, ending_offsets={"orders": {0: 1}})
    assert offsets(below) == [0]
    write_partition(source / "orders-0", {3: plain(3) + plain(4) + plain(5)})
    assert offsets(records(source, columns=COLUMNS)) == ([0, *range(2, 9)] if has_end else [0])


# ----------------------------------------------------------------------------------------------------------------- replicas


def replica(root: Path, count: int, epochs: list[tuple[int, int]], **checkpoints: Any) -> Path:
    path = log_dir(root, {0: b"".join(plain(at) for at in range(count))}, **checkpoints)
    lines = "".join(f"{epoch} {start}\n" for epoch, start in epochs)
    (path / "orders-0" / "leader-epoch-checkpoint").write_text(f"0\n{len(epochs)}\n{lines}")
    return path


def test_of_several_replicas_one_is_read(tmp_path: Path) -> None:
    """That with the newest leader epoch, whatever is longer; the high watermark is the highest of all."""
    longer = replica(tmp_path / "a", 9, [(0, 0), (1, 4)], high_watermark=6)
    newest = replica(tmp_path / "b", 8, [(0, 0), (1, 4), (2, 7)], high_watermark=5)
    stream = records([longer, newest], columns=("offset", "source"))
    rows = pa.Table.from_batches(list(stream), stream.schema).to_pylist()
    assert [row["offset"] for row in rows] == list(range(6))
    assert {row["source"] for row in rows} == {str(newest / "orders-0")}
    assert "records-of-several-replicas" in codes(stream)


def test_of_replicas_with_one_leader_epoch_the_longest_is_read(tmp_path: Path) -> None:
    shorter = replica(tmp_path / "a", 8, [(0, 0)], high_watermark=8)
    longer = replica(tmp_path / "b", 9, [(0, 0)], high_watermark=9)
    stream = records([shorter, longer], columns=("offset", "source"))
    rows = pa.Table.from_batches(list(stream), stream.schema).to_pylist()
    assert [(row["offset"], row["source"]) for row in rows] == [(offset, str(longer / "orders-0")) for offset in range(9)]


def test_replicas_that_contradict_are_refused(tmp_path: Path) -> None:
    one = replica(tmp_path / "a", 9, [(0, 0), (1, 4)], high_watermark=9)
    other = replica(tmp_path / "b", 8, [(0, 0), (2, 3)], high_watermark=8)
    with pytest.raises(RefusedError, match="has another leader epoch at offset 3"):
        records([one, other])
    for path, topic_id in ((one, "AAAAAAAAAAAAAAAAAAAAAQ"), (other, "AAAAAAAAAAAAAAAAAAAAAg")):
        (path / "orders-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    with pytest.raises(RefusedError, match="is of another topic of this name"):
        records([one, other])


def test_the_same_directory_twice_counts_once(tmp_path: Path) -> None:
    source = ten(tmp_path / "a", high_watermark=10)
    copy = Path(shutil.copytree(source, tmp_path / "copy"))
    assert offsets(records([source, source, copy], columns=COLUMNS)) == list(range(10))


# ---------------------------------------------------------------------------------------------------------------- selection


def test_topics_of_kafka_are_read_if_they_are_named(tmp_path: Path) -> None:
    source = ten(tmp_path, high_watermark=10)
    write_partition(source / "__consumer_offsets-0", {0: plain(0)})
    every = records(source, columns=("topic",), isolation="read_uncommitted")
    assert {row["topic"] for each in every for row in each.to_pylist()} == {"orders"}
    named = records(source, topics="__consumer_offsets", columns=("topic",), isolation="read_uncommitted")
    assert {row["topic"] for each in named for row in each.to_pylist()} == {"__consumer_offsets"}
    pattern = records(source, subscribe_pattern=".*", columns=("topic",))
    assert {row["topic"] for each in pattern for row in each.to_pylist()} == {"orders"}


def test_directories_that_are_no_source(tmp_path: Path) -> None:
    """A stray directory is said, unless its topic is not selected. A log in compaction is not left out in silence."""
    source = ten(tmp_path, high_watermark=10)
    stray = f"other-0.{'0' * 32}-stray"
    write_partition(source / stray, {0: plain(0)})
    assert offsets(records(source, topics="orders", columns=COLUMNS)) == list(range(10))
    for mode in ("FAILFAST", "PERMISSIVE"):
        stream = records(source, columns=COLUMNS, mode=mode)
        assert offsets(stream) == list(range(10))
        assert "stray-directory" in codes(stream)
    with pytest.raises(ReadFailedError, match="no longer assigned to this broker"):
        records(source / stray, columns=COLUMNS)
    (source / "orders-0" / f"{0:020d}.log.cleaned").touch()
    with pytest.raises((ReadFailedError, RefusedError), match="compact"):
        records(source, topics="orders", columns=COLUMNS)


def test_a_directory_without_partitions_has_no_records(tmp_path: Path) -> None:
    stream = records(tmp_path)
    assert list(stream) == []
    assert (codes(stream), stream.exit_code) == ({"nothing-found"}, 1)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a topic": ({"topics": "ordres"}, "no topic matches 'ordres'.*did you mean 'orders'"),
    "a partition": ({"assign": {"orders": [3]}}, "no partition orders-3"),
    "both": ({"topics": "orders", "assign": {"orders": [0]}}, "select topics in one way"),
    "offsets of another": ({"starting_offsets": {"other": {0: 1}}}, "starting_offsets: lacks orders-0, which is selected"),
    "a word": ({"starting_offsets": "latest"}, "starting_offsets: expected earliest"),
    "time and offset": ({"starting_offsets": {"orders": {0: 1}}, "starting_timestamp": 1_760_000_000_000}, "not both"),
    "a column": ({"columns": ["ofset"]}, "did you mean 'offset'"),
    "isolation": ({"isolation": "serializable"}, "isolation: expected"),
    "seconds": ({"starting_timestamp": 1_760_000_000}, "are they seconds"),
    "no topic": ({"topics": ""}, "topics: the text is empty"),
    "times backwards": ({"starting_timestamp": 1_760_000_000_001, "ending_timestamp": 1_760_000_000_000}, "ends before"),
    "backwards": ({"starting_offsets": {"orders": {0: 5}}, "ending_offsets": {"orders": {0: 4}}}, "begins at 5 and ends at 4"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused(name: str, tmp_path: Path) -> None:
    options, message = WRONG[name]
    with pytest.raises(UsageError, match=message):
        list(records(ten(tmp_path, high_watermark=10), **options))


def test_a_name_that_matches_nothing_is_said_while_others_are_read(tmp_path: Path) -> None:
    stream = records(ten(tmp_path, high_watermark=10), topics=["orders", "ordres"], columns=COLUMNS)
    assert offsets(stream) == list(range(10))
    (finding,) = stream.findings
    assert (finding.code, finding.path, stream.exit_code) == ("nothing-found", str(tmp_path), 1)
    assert finding.message == "no topic matches 'ordres'; did you mean 'orders'?"


def test_the_package_needs_no_arrow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = ten(tmp_path, high_watermark=10)
    monkeypatch.setitem(sys.modules, "snaprebuild.consume.arrow_batches", None)
    with pytest.raises(UsageError, match=r"pip install pyarrow"):
        records(source)


# ---------------------------------------------------------------------------------------------------------- times of interest


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (TimeBounds(), [0, 1, 2, 3, 4, 5]),
        (TimeBounds(least_ms=1_003), [3, 4, 5]),
        (TimeBounds(least_ms=1_004), [4, 5]),
        # The records of a batch with times of its producer may have earlier ones than the greatest, which its header has.
        (TimeBounds(most_ms=1_001), [0, 1, 2, 3]),
        (TimeBounds(most_ms=1_004), [0, 1, 2, 3, 4]),
        (TimeBounds(least_ms=1_005, most_ms=1_005), [5]),
        (TimeBounds(least_ms=9_000), []),
    ],
)
def test_batches_without_a_time_of_interest_are_left_out(times: TimeBounds, expected: list[int], tmp_path: Path) -> None:
    """The first four batches have the times of their producer, the others that of the append. No left out batch is a gap."""
    batches = [batch(at, timestamp=1_000 + at, attributes=0 if at < 4 else LOG_APPEND_TIME) for at in range(6)]
    log_dir(tmp_path, {0: b"".join(batches)}, log_start=0, high_watermark=6)
    query = RecordQuery(isolation=RecordIsolation.READ_UNCOMMITTED, columns=("offset",), times=times)
    (log,) = open_record_source([str(tmp_path)], query, Run()).logs
    reader = PartitionReader(plan_partition(log, query), query)
    assert [offset for rows in reader.batches() for offset in rows["offset"].to_pylist()] == expected
    assert reader.counts.missing_offsets == 0
