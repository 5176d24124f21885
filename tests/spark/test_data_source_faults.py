"""The data sources on damaged files, and on directories that change after the query was planned."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import spark_filters
from log_dirs import (
    EMPTY_SNAPSHOT,
    batch,
    batch_positions,
    copy_of,
    cut,
    flip,
    marker,
    snapshot_name,
    write_partition,
)
from sentences import CHANGED_SINCE_LISTED
from source_rows import A0, damaged, entries, expected_rows, headers, reader_of, rows_of, three
from spark_filters import EqualTo

import snaprebuild as library
from formats.errors import BadMagicError, FormatError, TruncatedError
from snaprebuild.errors import ReadFailedError, RefusedError, SnaprebuildError, StorageError, UsageError
from snaprebuild.spark import header_rows
from snaprebuild.spark.data_sources import BatchHeaders, ProducerSnapshots

pytestmark = pytest.mark.full

# ---------------------------------------------------------------------------------------------------------------- faults


def test_a_damaged_segment(tmp_path: Path) -> None:
    """It ends the query, or is a row of its own where faults are skipped."""
    path, position = damaged(tmp_path)
    with pytest.raises(BadMagicError) as caught:
        headers(tmp_path)
    assert (caught.value.file, caught.value.position) == (str(path), position + 16)
    rows = headers(tmp_path, mode="PERMISSIVE")
    (reported,) = [row for row in rows if row["error"] is not None]
    assert reported == dict.fromkeys(header_rows.SCHEMA.names) | {
        "topic": "a",
        "partition": 0,
        "directory": str(tmp_path / "a-0"),
        "segment_base_offset": 10,
        "position_bytes": position,
        "error": f"{path}, byte {position + 16}: magic of a batch: expected 0, 1 or 2, found 9",
    }
    whole = [row for row in rows if row["error"] is None]
    assert whole == [
        row
        for directory in ("a-0", "a-1", "b-0")
        for file in sorted((tmp_path / directory).glob("*.log"))
        for row in expected_rows(file)
    ]
    assert len(whole) == 31 - 3


def wrong_length(path: Path) -> None:
    """Gives the second batch a length that leads behind the end of the file."""
    with path.open("r+b") as file:
        file.seek(batch_positions(path)[1] + 8)
        file.write((2**31 - 1).to_bytes(4, "big"))


def wrong_length_without_index(path: Path) -> None:
    wrong_length(path)
    path.with_suffix(".index").unlink()


def zeros_after(path: Path) -> None:
    with path.open("ab") as file:
        file.write(bytes(4096))


def zeros_from_second(path: Path) -> None:
    position = batch_positions(path)[1]
    with path.open("r+b") as file:
        file.seek(position)
        file.write(bytes(path.stat().st_size - position))


TORN = {
    "torn": lambda path: cut(path, -1),
    "zeros": zeros_after,
    "zeros over batches": zeros_from_second,
    "length without index": wrong_length_without_index,
}
"""Ends that a broker cuts off. No index leads to a whole batch behind them."""
DAMAGED = {"length": wrong_length, "magic": lambda path: flip(path, batch_positions(path)[1] + 16)}


@pytest.mark.parametrize("what", [*TORN, *DAMAGED])
def test_the_end_of_a_log_is_judged_alike_in_each_mode(what: str, tmp_path: Path) -> None:
    """And as by `verify`, which compares the batches with the offset index of a real broker."""
    root = copy_of("kafka27-mixed", tmp_path) / "mixed-0"
    path = max(root.glob("*.log"))
    {**TORN, **DAMAGED}[what](path)
    rows = headers(root, mode="PERMISSIVE")
    good = [row for row in rows if row["error"] is None]
    is_damaged = what not in TORN
    assert [row["segment_base_offset"] for row in rows if row["error"]] == [int(path.stem)] * is_damaged
    assert headers(root, mode="DROPMALFORMED") == good
    if is_damaged:
        with pytest.raises(FormatError, match=re.escape(str(path))):
            headers(root)
    else:
        assert headers(root) == good
    assert {row["position_bytes"] for row in good if row["segment_base_offset"] == int(path.stem)} >= {0}
    assert ("damaged-segment" in {each.code for each in library.verify(root).findings}) == is_damaged


def test_a_torn_end_of_a_rolled_segment_is_damage(tmp_path: Path) -> None:
    root = three(tmp_path)
    cut(root / A0[20], -1)
    assert len(headers(root)) == len(headers(root, mode="PERMISSIVE")) == 30
    cut(root / A0[0], -1)
    with pytest.raises(TruncatedError, match=f"{re.escape(str(root / A0[0]))}, byte"):
        headers(root)
    (reported,) = [row for row in headers(root, mode="PERMISSIVE") if row["error"]]
    assert reported["position_bytes"] == batch_positions(root / A0[0])[-1]


@pytest.mark.parametrize("position", [1, 30], ids=["version", "entry"])
def test_a_damaged_snapshot(position: int, tmp_path: Path) -> None:
    root = copy_of("kafka27-mixed", tmp_path)
    path = sorted((root / "mixed-0").glob("*.snapshot"))[0]
    others = len([row for row in entries(root) if row["snapshot_offset"] != int(path.stem) or row["topic"] != "mixed"])
    flip(path, position)
    with pytest.raises(FormatError) as caught:
        entries(root)
    assert caught.value.file == str(path)
    assert caught.value.position is not None
    rows = entries(root, mode="PERMISSIVE")
    (reported,) = [row for row in rows if row["error"]]
    assert (reported["topic"], reported["snapshot_offset"]) == ("mixed", int(path.stem))
    assert reported["entry_count"] is reported["producer_id"] is None
    assert str(path) in reported["error"]
    assert len(rows) == others + 1
    assert entries(root, mode="DROPMALFORMED") == [row for row in rows if row["error"] is None]


def test_what_is_no_regular_file_is_reported(tmp_path: Path) -> None:
    root = three(tmp_path / "logs")
    (root / A0[10]).rename(tmp_path / "elsewhere")
    (root / A0[10]).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ReadFailedError, match=r"a-0/00000000000000000010\.log: is no regular file"):
        headers(root)
    (reported,) = [row for row in headers(root, mode="PERMISSIVE") if row["error"]]
    assert reported["directory"] == str(root / A0[10])
    assert reported["topic"] is None
    # Nothing is wrong with the snapshots.
    assert entries(root) == []


def test_directories_that_are_no_source_are_reported(tmp_path: Path) -> None:
    root, form = three(tmp_path), "a-7.0123456789abcdef0123456789abcdef-stray"
    write_partition(root / form, {0: batch(0)})
    with pytest.raises(ReadFailedError, match=r"skipped; option mode=PERMISSIVE reads the rest"):
        headers(root)
    rows = headers(root, mode="PERMISSIVE")
    assert [row["directory"] for row in rows if row["error"]] == [str(root / form)]
    assert len(rows) == 32
    assert len(headers(root, topics="b")) == 1


def test_a_file_that_vanishes_while_its_task_reads(tmp_path: Path) -> None:
    """The task listed it, and cannot open it any more."""
    root = three(tmp_path)
    for offset in (10, 20):
        (root / "a-0" / snapshot_name(offset)).write_bytes(EMPTY_SNAPSHOT)
    for source, second in ((BatchHeaders, root / A0[10]), (ProducerSnapshots, root / "a-0" / snapshot_name(20))):
        for mode in ("FAILFAST", "PERMISSIVE"):
            reader = reader_of(source, root, topics="a", partitions="0", mode=mode, numPartitions="1")
            (task,) = reader.partitions()
            rows = reader.read(task)
            assert next(rows).num_rows
            second.rename(second.with_suffix(".hidden"))
            if mode == "FAILFAST":
                with pytest.raises(SnaprebuildError, match="a-0"):
                    list(rows)
            else:
                (reported,) = [row for some in rows for row in some.to_pylist() if row["error"]]
                assert "a-0" in reported["error"]
            second.with_suffix(".hidden").rename(second)


@pytest.mark.parametrize("replacement", [batch(15), None])
def test_a_segment_that_is_replaced_while_its_task_reads(replacement: bytes | None, tmp_path: Path) -> None:
    """Compaction does that. The rows of the listed file and of another one are never mixed; None is a copy of the same bytes."""
    root = three(tmp_path)
    for mode in ("FAILFAST", "PERMISSIVE"):
        reader = reader_of(BatchHeaders, root, topics="a", partitions="0", mode=mode, numPartitions="1")
        (task,) = reader.partitions()
        rows = reader.read(task)
        found = next(rows).to_pylist()
        new = (root / A0[10]).with_suffix(".new")
        new.write_bytes((root / A0[10]).read_bytes() if replacement is None else replacement)
        new.replace(root / A0[10])
        if mode == "FAILFAST":
            with pytest.raises(RefusedError, match=f"{A0[10]}: {CHANGED_SINCE_LISTED}"):
                list(rows)
        else:
            found += [row for some in rows for row in some.to_pylist()]
            assert [row["base_offset"] for row in found if not row["error"]] == [*range(0, 10, 2), *range(20, 30, 2)]
            (error,) = [row["error"] for row in found if row["error"]]
            assert f"{A0[10]}: {CHANGED_SINCE_LISTED}" in error


# ---------------------------------------------------------------------------------------------------------------- a plan that is used again


def read_again(reader: Any, tasks: list[Any]) -> list[str]:
    """Segments of all rows, one entry for each batch, as Spark reads a DataFrame with the tasks of its first query."""
    rows = rows_of(reader, tasks)
    return sorted(f"{Path(row['directory']).name}/{row['base_offset']}" for row in rows if row["base_offset"] is not None)


def test_a_plan_reads_what_is_there_now(tmp_path: Path) -> None:
    """Spark plans a DataFrame once. Whatever grows, shrinks, merges or appears: each file is read by one task."""
    root = three(tmp_path)
    reader = reader_of(BatchHeaders, root, numPartitions="3", offsetFrom="4")
    plan = reader.partitions()
    changes = (
        lambda: None,
        lambda: write_partition(root / "a-0", {30: batch(30), 40: batch(40)}),  # rolled
        (root / A0[0]).unlink,  # retention
        lambda: write_partition(root / "c-0", {0: batch(0, count=9)}),  # a new partition
        lambda: shutil.rmtree(root / "a-1"),  # a deleted topic
        lambda: (root / A0[20]).unlink() or write_partition(root / "a-0", {17: batch(17), 23: batch(23)}),  # cut back and refilled
        lambda: (root / A0[10]).unlink() or write_partition(root / "a-0", {0: batch(0) + batch(12)}),  # two merged by compaction
    )
    for change in changes:
        change()
        fresh = reader_of(BatchHeaders, root, offsetFrom="4")
        expected = read_again(fresh, fresh.partitions())
        assert expected
        assert read_again(reader, plan) == expected


def test_a_plan_of_snapshots_reads_what_is_there_now(tmp_path: Path) -> None:
    root = three(tmp_path)
    reader = reader_of(ProducerSnapshots, root)
    plan = reader.partitions()
    for offset in (10, 20):
        (root / "a-0" / snapshot_name(offset)).write_bytes(EMPTY_SNAPSHOT)
        assert [row["snapshot_offset"] for row in rows_of(reader, plan)] == list(range(10, offset + 1, 10))


@pytest.mark.parametrize("source", [BatchHeaders, ProducerSnapshots])
@pytest.mark.parametrize("options", [{}, {"topics": "a,b"}, {"mode": "PERMISSIVE"}], ids=str)
def test_a_directory_that_becomes_empty_has_no_rows(source: Any, options: dict[str, str], tmp_path: Path) -> None:
    """The rule holds for a plan made before and for the next one. A directory that is gone is an error."""
    root = three(tmp_path / "logs")
    reader = reader_of(source, root, **options)
    plan = reader.partitions()
    for each in list(root.iterdir()):
        shutil.rmtree(each)
    assert rows_of(reader, plan) == []
    assert rows_of(reader_of(source, root, **options)) == []
    root.rmdir()
    with pytest.raises(StorageError, match="does not have this directory of the driver"):
        rows_of(reader, plan)
    with pytest.raises(UsageError, match="does not exist"):
        rows_of(reader_of(source, root, **options))


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
def test_a_plan_without_files_reads_no_other_disk(mode: str, tmp_path: Path) -> None:
    """The paths are compared at or below which the driver saw no partition, and of others only the directories above those."""
    empty = tmp_path / "several" / "empty"
    empty.mkdir(parents=True)
    root = three(tmp_path / "several" / "full")
    reader = reader_of(BatchHeaders, empty.parent, empty, mode=mode)
    plan = reader.partitions()
    (task,) = plan
    assert set(task.value.log_dirs) == {str(root), str(empty)}
    assert rows_of(reader, plan)
    empty.rename(tmp_path / "before")
    three(empty)
    with pytest.raises(StorageError, match=r"another one \(inode \d+, and not \d+\): mount it there"):
        rows_of(reader, plan)


def test_a_partition_on_a_disk_of_its_own_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It seems to be deleted where it is not mounted. The directory above it is on a disk of the host."""
    root = three(tmp_path / "logs")
    monkeypatch.setattr(os.path, "ismount", lambda path: path == str(root / "a-0"))
    reader = reader_of(BatchHeaders, root)
    plan = reader.partitions()
    shutil.rmtree(root / "a-0")
    with pytest.raises(StorageError, match=r"a-0: the executor on \S+ does not have this directory of the driver: mount it there"):
        rows_of(reader, plan)


def test_a_plan_whose_topics_are_deleted_has_no_rows(tmp_path: Path) -> None:
    """A new query says that no topic has the name, because it may be mistyped."""
    root = three(tmp_path)
    for mode in ("FAILFAST", "PERMISSIVE", "DROPMALFORMED"):
        write_partition(root / "c-0", {0: batch(0)})
        reader = reader_of(BatchHeaders, root, topics="c", mode=mode)
        plan = reader.partitions()
        shutil.rmtree(root / "c-0")
        assert rows_of(reader, plan) == []
        with pytest.raises(UsageError, match=r"no topic matches 'c' \(3 partitions found\); topics: a, b$"):
            reader.partitions()


def test_a_plan_reports_what_is_no_source_now(tmp_path: Path) -> None:
    root = three(tmp_path)
    reader = reader_of(BatchHeaders, root)
    plan = reader.partitions()
    write_partition(root / "a-7.0123456789abcdef0123456789abcdef-stray", {0: batch(0)})
    with pytest.raises(ReadFailedError, match="the partition is no longer assigned to this broker"):
        read_again(reader, plan)


def test_filters_on_rows_that_report_faults(tmp_path: Path) -> None:
    root = three(tmp_path)
    write_partition(root / "a-7.0123456789abcdef0123456789abcdef-stray", {0: batch(0)})
    for condition, reported in (
        (EqualTo(("topic",), "b"), 0),
        (spark_filters.IsNull(("topic",)), 1),
        (spark_filters.IsNull(("error",)), 1),
    ):
        reader = reader_of(BatchHeaders, root, mode="PERMISSIVE", pushFilters="true")
        reader.pushFilters([condition])
        assert len([row for row in rows_of(reader) if row["error"]]) == reported


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    write_partition(root / "a-0", {0: batch(0) + marker(1, 7)[:-1], 9: b""})
    rows = headers(root, mode="PERMISSIVE")
    assert [row["directory"] for row in rows] == [f"{tmp_path}/�/a-0"] * 2
    assert rows[1]["error"].startswith(f"{tmp_path}/�/a-0/00000000000000000000.log")
