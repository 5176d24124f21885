"""The data sources: every batch and every producer as the grammar reads them, and no file opened that a query does not need.

What a reader does is asked of the reader itself, as Spark's Python workers call it; ``test_spark_sql.py`` asks Spark.
"""

import base64
import json
import os
import re
import shutil
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import crcmod.predefined
import numpy as np
import pyarrow as pa
import pytest
from faulty_store import faulty_store
from header_engines import read_reference, segment
from hypothesis import given
from hypothesis import strategies as st
from log_dirs import (
    EMPTY_SNAPSHOT,
    batch,
    batch_positions,
    copy_of,
    cut,
    flip,
    make_log_dir,
    marker,
    snapshot_name,
    write_partition,
)
from manifests import FIXTURES, REPOSITORY, PartitionFixture, partition_fixtures
from pyspark.sql import datasource
from pyspark.sql.datasource import CaseInsensitiveDict, EqualTo, GreaterThanOrEqual, In, LessThan, StringStartsWith
from pyspark.sql.pandas.types import from_arrow_schema

from formats.errors import BadMagicError, FormatError, TruncatedError
from formats.partition.producer_snapshot import parse_snapshot
from snaprebuild.errors import ReadFailedError, RefusedError, SnaprebuildError, UsageError
from snaprebuild.spark import header_rows, snapshot_rows
from snaprebuild.spark.arrow_tables import ddl
from snaprebuild.spark.data_sources import BatchHeaders, ProducerSnapshots
from snaprebuild.spark.selected_files import FileToRead, packed

pytestmark = pytest.mark.full

Rows = list[dict[str, Any]]

AS_IN_THE_HEADER = (
    *("size_bytes", "base_offset", "last_offset", "last_offset_delta", "record_count", "partition_leader_epoch", "magic", "crc"),
    *("attributes", "is_transactional", "is_control", "base_timestamp", "max_timestamp"),
    *("producer_id", "producer_epoch", "base_sequence"),
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CRC32C = crcmod.predefined.mkCrcFun("crc-32c")


def reader_of(source: type[Any], *paths: Path, schema: pa.Schema | None = None, **options: str) -> Any:
    made = source(CaseInsensitiveDict(options | ({"paths": json.dumps([str(path) for path in paths])} if paths else {})))
    names = re.findall(r"`(\w+)`", made.schema())
    return made.reader(from_arrow_schema(schema or pa.schema([source.whole.field(name) for name in names])))


def rows_of(reader: Any, tasks: list[Any] | None = None) -> Rows:
    """Of its own tasks, or of those of an earlier plan."""
    return [row for task in tasks or reader.partitions() for rows in reader.read(task) for row in rows.to_pylist()]


def headers(*paths: Path, **options: str) -> Rows:
    return rows_of(reader_of(BatchHeaders, *paths, **options))


def entries(*paths: Path, **options: str) -> Rows:
    return rows_of(reader_of(ProducerSnapshots, *paths, **options))


def files_of(reader: Any) -> set[str]:
    return {f"{Path(file.directory).name}/{file.name}" for task in reader.partitions() for file in task.value.files}


def expected_rows(path: Path) -> Rows:
    """The whole batches of a segment by the grammar (construct), their checksums by crcmod and zlib."""
    data = path.read_bytes()
    reading = read_reference(segment(data))
    markers = {each.row: each for each in reading.markers}
    topic, _, partition = path.parent.name.rpartition("-")
    rows = []
    for index, (header, position) in enumerate(zip(reading.headers, reading.positions, strict=True)):
        covered = data[position + (21 if header.magic == 2 else 16) : position + header.size_bytes]
        marker = markers.get(index)
        rows.append(
            {name: getattr(header, name) for name in AS_IN_THE_HEADER}
            | {
                "topic": topic,
                "partition": int(partition),
                "directory": str(path.parent),
                "segment_base_offset": int(path.stem),
                "position_bytes": position,
                "crc_ok": (CRC32C if header.magic == 2 else zlib.crc32)(covered) == header.crc,
                "codec": CODECS[header.attributes % 8],
                "timestamp_type": "NoTimestampType"
                if header.magic == 0
                else ("CreateTime", "LogAppendTime")[header.attributes // 8 % 2],
                "marker_type": None if marker is None else ("ABORT", "COMMIT")[marker.is_commit],
                "coordinator_epoch": None if marker is None else marker.coordinator_epoch,
                "error": None,
            }
        )
    return rows


# ---------------------------------------------------------------------------------------------------------------- what is read


def test_every_batch_is_a_row(partition_fixture: PartitionFixture) -> None:
    expected = [row for each in partition_fixture.segments for row in expected_rows(each.path)]
    assert headers(partition_fixture.directory) == expected


def test_every_entry_of_every_snapshot_is_a_row() -> None:
    directories = {each.directory for each in partition_fixtures()}
    expected: Rows = []
    for path in (path for directory in directories for path in directory.glob("*.snapshot")):
        topic, _, partition = path.parent.name.rpartition("-")
        found = parse_snapshot(path.read_bytes())
        of_file = {"topic": topic, "partition": int(partition), "directory": str(path.parent), "snapshot_offset": int(path.stem)}
        of_file |= {"entry_count": len(found), "error": None}
        names = ("producer_id", "epoch", "last_sequence", "last_offset", "offset_delta", "timestamp", "coordinator_epoch")
        for entry in found or [None]:
            row = {name: getattr(entry, name, None) for name in (*names, "current_txn_first_offset")}
            expected.append({**of_file, **row})

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["directory"], row["snapshot_offset"], row["producer_id"] or 0

    assert sorted(entries(*directories), key=key) == sorted(expected, key=key)
    assert len(expected) > 100
    assert any(row["entry_count"] == 0 for row in expected)


# ---------------------------------------------------------------------------------------------------------------- columns


def test_only_the_columns_that_are_named(tmp_path: Path) -> None:
    root = copy_of("kafka27-mixed", tmp_path)
    whole = headers(root)
    assert headers(root, columns="producer_id, topic") == [{name: row[name] for name in ("producer_id", "topic")} for row in whole]
    for name in header_rows.SCHEMA.names:
        assert headers(root, columns=name) == [{name: row[name]} for row in whole]
    all_entries = entries(root)
    for name in snapshot_rows.SCHEMA.names:
        assert entries(root, columns=name) == [{name: row[name]} for row in all_entries]


def test_a_schema_of_the_query_names_columns() -> None:
    place = FIXTURES / "kafka27-mixed"
    wanted = pa.schema([("magic", pa.int8()), ("topic", pa.string())])
    rows = rows_of(reader_of(BatchHeaders, place, schema=wanted))
    assert [list(row) for row in rows[:1]] == [["magic", "topic"]]
    with pytest.raises(UsageError, match="has no column 'colour'"):
        reader_of(BatchHeaders, place, schema=pa.schema([("colour", pa.string())]))
    with pytest.raises(UsageError, match="have the types `magic` tinyint"):
        reader_of(BatchHeaders, place, schema=pa.schema([("magic", pa.int64())]))
    with pytest.raises(UsageError, match="columns of kafka_batch_headers can be NULL: leave NOT NULL out"):
        reader_of(BatchHeaders, place, schema=pa.schema([pa.field("topic", pa.string(), nullable=False)]))


def test_checksums_are_computed_where_they_are_asked_for(tmp_path: Path) -> None:
    root = copy_of("damaged", tmp_path)
    told = Counter(row["crc_ok"] for row in headers(root))
    assert told[False] == 1
    assert {row["crc_ok"] for row in headers(root, checkCrc="false")} == {None}


def test_the_schemas_are_those_of_the_page() -> None:
    page = (REPOSITORY / "docs" / "reference" / "spark-sql.md").read_text()
    for source in (BatchHeaders, ProducerSnapshots):
        part = page.split(f"## {source.name()}\n")[1].split("\n## ")[0]
        documented = re.findall(r"^\| `(\w+)` \| (\w+) \|", part, re.MULTILINE)
        assert ", ".join(f"`{name}` {kind.lower()}" for name, kind in documented) == ddl(source.whole)


# ---------------------------------------------------------------------------------------------------------------- what is not opened


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the segments that are opened."""
    names: list[str] = []
    really = header_rows._opened

    def noted(file: FileToRead) -> Any:
        names.append(f"{Path(file.directory).name}/{file.name}")
        return really(file)

    monkeypatch.setattr(header_rows, "_opened", noted)
    return names


def three(root: Path) -> Path:
    """Two topics: ``a`` with segments at 0, 10 and 20, ``b`` with one."""
    for partition in (0, 1):
        pieces = {base: b"".join(batch(offset, count=2) for offset in range(base, base + 10, 2)) for base in (0, 10, 20)}
        write_partition(root / f"a-{partition}", pieces)
    write_partition(root / "b-0", {5: batch(5)})
    return root


A0 = {0: "a-0/00000000000000000000.log", 10: "a-0/00000000000000000010.log", 20: "a-0/00000000000000000020.log"}
A1 = {base: name.replace("a-0", "a-1") for base, name in A0.items()}
B0 = "b-0/00000000000000000005.log"
EVERYTHING = {*A0.values(), *A1.values(), B0}


@pytest.mark.parametrize(
    ("filters", "files"),
    [
        ([], EVERYTHING),
        ([EqualTo(("topic",), "b")], {B0}),
        ([StringStartsWith(("topic",), "a"), In(("partition",), (1, 7))], set(A1.values())),
        ([datasource.Not(EqualTo(("topic",), "a"))], {B0}),
        ([EqualTo(("segment_base_offset",), 10)], {A0[10], A1[10]}),
        ([GreaterThanOrEqual(("base_offset",), 10), LessThan(("base_offset",), 20)], {A0[10], A1[10], B0}),
        ([EqualTo(("last_offset",), 19)], {A0[10], A1[10], B0}),
        ([datasource.IsNull(("base_offset",))], set()),
        ([EqualTo(("producer_id",), 7)], EVERYTHING),
    ],
    ids=lambda value: ", ".join(sorted(map(str, value))) or "none",
)
def test_filters_keep_segments_closed(filters: list[Any], files: set[str], tmp_path: Path, opened: list[str]) -> None:
    reader = reader_of(BatchHeaders, three(tmp_path), pushFilters="true")
    assert list(reader.pushFilters(filters)) == filters, "Spark evaluates them for each row"
    rows = rows_of(reader)
    assert sorted(opened) == sorted(files)
    assert {f"{Path(row['directory']).name}/{row['segment_base_offset']:020d}.log" for row in rows} == files


@pytest.mark.parametrize(
    ("options", "files", "offsets"),
    [
        ({"topics": "b,c"}, {B0}, [5]),
        ({"topics": "[a]*", "partitions": "1", "offsetFrom": "27"}, {A1[20]}, [26, 28]),
        ({"topics": "a", "partitions": "0", "offsetFrom": "9", "offsetTo": "10"}, {A0[0], A0[10]}, [8, 10]),
        ({"offsetFrom": "30", "partitions": "1"}, {A1[20]}, []),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_options_narrow_without_filters(
    options: dict[str, str], files: set[str], offsets: list[int], tmp_path: Path, opened: list[str]
) -> None:
    """As on Spark 4.0, which pushes no filters: batches that have an offset of the range, and no others."""
    rows = headers(three(tmp_path), **options)
    assert set(opened) == files
    assert [row["base_offset"] for row in rows] == offsets
    assert [row["base_offset"] for row in headers(tmp_path, columns="base_offset", **options)] == offsets


def test_snapshots_are_chosen_by_offset(tmp_path: Path) -> None:
    directory = write_partition(tmp_path / "a-0", {0: batch(0), 9: batch(9)})
    for offset in (3, 9, 10):
        (directory / snapshot_name(offset)).write_bytes(EMPTY_SNAPSHOT)
    assert [row["snapshot_offset"] for row in entries(tmp_path, offsetFrom="4", offsetTo="9")] == [9]
    reader = reader_of(ProducerSnapshots, tmp_path, pushFilters="true")
    reader.pushFilters([EqualTo(("snapshot_offset",), 3)])
    assert files_of(reader) == {"a-0/" + snapshot_name(3)}


# ---------------------------------------------------------------------------------------------------------------- tasks


def made(*sizes: int) -> list[FileToRead]:
    return [FileToRead("t", 0, "/t-0", f"{index:020d}.log", index, size) for index, size in enumerate(sizes)]


@given(st.lists(st.integers(0, 2 << 30), max_size=300), st.none() | st.integers(1, 50))
def test_every_file_is_in_one_task(sizes: list[int], count: int | None) -> None:
    tasks = packed(made(*sizes), count)
    assert sorted(file.offset for task in tasks for file in task.files) == list(range(len(sizes)))
    assert [task.planned_directories is not None for task in tasks] == [True] + [False] * (len(tasks) - 1)
    assert all([file.offset for file in task.files] == sorted(file.offset for file in task.files) for task in tasks)
    if count is not None:
        assert len(tasks) == max(1, min(count, len(sizes)))


def test_tasks_are_nearly_equal() -> None:
    """Sizes by Zipf's law: a few partitions have most of the bytes."""
    sizes = [min(int((64 << 30) / rank), 1 << 30) for rank in range(1, 4000)]
    tasks = packed(made(*sizes), None)
    loads = [sum(file.size_bytes for file in task.files) for task in tasks]
    assert len(tasks) > 400
    assert max(loads) <= max(1.5 * np.mean(loads), 1 << 30)
    assert len(packed(made(*[1 << 30] * 4000), None)) == 2048
    assert len(packed(made(*[100] * 640), None)) == 11, "opening a file counts as reading 1 MiB"


def test_blocks_are_sent_as_they_are_read(tmp_path: Path) -> None:
    """Memory does not grow with the segment."""
    count = 130_000
    write_partition(tmp_path / "a-0", {0: b"".join(batch(offset) for offset in range(count))})
    reader = reader_of(BatchHeaders, tmp_path)
    (task,) = reader.partitions()
    lengths = [len(rows) for rows in reader.read(task)]
    assert sum(lengths) == count
    assert len(lengths) >= 2
    assert max(lengths) <= header_rows.ROWS_MIN + (4 << 20) // 61


# ---------------------------------------------------------------------------------------------------------------- faults


def damaged(root: Path) -> tuple[Path, int]:
    """The second segment of ``a-0`` has a batch of magic 9 in its middle. Returns its path and the position of that batch."""
    path = three(root) / A0[10]
    position = batch_positions(path)[2]
    data = bytearray(path.read_bytes())
    data[position + 16] = 9
    path.write_bytes(data)
    return path, position


def test_a_damaged_segment(tmp_path: Path) -> None:
    """It ends the query, or is a row of its own where faults are skipped."""
    path, position = damaged(tmp_path)
    with pytest.raises(BadMagicError) as caught:
        headers(tmp_path)
    assert (caught.value.file, caught.value.position) == (str(path), position + 16)
    rows = headers(tmp_path, mode="PERMISSIVE")
    (told,) = [row for row in rows if row["error"] is not None]
    assert told == dict.fromkeys(header_rows.SCHEMA.names) | {
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


def test_the_end_of_a_log_may_be_torn(tmp_path: Path) -> None:
    root = three(tmp_path)
    cut(root / A0[20], -1)
    assert len(headers(root)) == 30
    (told,) = [row for row in headers(root, mode="PERMISSIVE") if row["error"]]
    assert told["position_bytes"] == batch_positions(root / A0[20])[-1]
    with (root / A1[20]).open("ab") as file:
        file.write(bytes(4096))
    assert len(headers(root)) == 30
    cut(root / A0[0], -1)
    with pytest.raises(TruncatedError, match=f"{re.escape(str(root / A0[0]))}, byte"):
        headers(root)


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
    (told,) = [row for row in rows if row["error"]]
    assert (told["topic"], told["snapshot_offset"]) == ("mixed", int(path.stem))
    assert told["entry_count"] is told["producer_id"] is None
    assert str(path) in told["error"]
    assert len(rows) == others + 1


def test_what_is_no_regular_file_is_reported(tmp_path: Path) -> None:
    root = three(tmp_path / "logs")
    (root / A0[10]).rename(tmp_path / "elsewhere")
    (root / A0[10]).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ReadFailedError, match=r"a-0/00000000000000000010\.log: is no regular file"):
        headers(root)
    (told,) = [row for row in headers(root, mode="PERMISSIVE") if row["error"]]
    assert told["directory"] == str(root / A0[10])
    assert told["topic"] is None
    # Nothing is wrong with the snapshots.
    assert entries(root) == []


def test_directories_that_are_no_source_are_reported(tmp_path: Path) -> None:
    root, form = three(tmp_path), "a-7.0123456789abcdef0123456789abcdef-future"
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
                (told,) = [row for some in rows for row in some.to_pylist() if row["error"]]
                assert "a-0" in told["error"]
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
            with pytest.raises(RefusedError, match=f"{A0[10]}: changed since it was listed"):
                list(rows)
        else:
            found += [row for some in rows for row in some.to_pylist()]
            assert [row["base_offset"] for row in found if not row["error"]] == [*range(0, 10, 2), *range(20, 30, 2)]
            (error,) = [row["error"] for row in found if row["error"]]
            assert f"{A0[10]}: changed since it was listed" in error


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


def test_a_plan_reports_what_is_no_source_now(tmp_path: Path) -> None:
    root = three(tmp_path)
    reader = reader_of(BatchHeaders, root)
    plan = reader.partitions()
    write_partition(root / "a-7.0123456789abcdef0123456789abcdef-delete", {0: batch(0)})
    with pytest.raises(ReadFailedError, match="the broker will delete this directory"):
        read_again(reader, plan)


def test_filters_on_rows_that_tell_faults(tmp_path: Path) -> None:
    root = three(tmp_path)
    write_partition(root / "a-7.0123456789abcdef0123456789abcdef-delete", {0: batch(0)})
    for condition, told in ((EqualTo(("topic",), "b"), 0), (datasource.IsNull(("topic",)), 1), (datasource.IsNull(("error",)), 1)):
        reader = reader_of(BatchHeaders, root, mode="PERMISSIVE", pushFilters="true")
        reader.pushFilters([condition])
        assert len([row for row in rows_of(reader) if row["error"]]) == told


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    write_partition(root / "a-0", {0: batch(0) + marker(1, 7)[:-1], 9: b""})
    rows = headers(root, mode="PERMISSIVE")
    assert [row["directory"] for row in rows] == [f"{tmp_path}/�/a-0"] * 2
    assert rows[1]["error"].startswith(f"{tmp_path}/�/a-0/00000000000000000000.log")


# ---------------------------------------------------------------------------------------------------------------- nothing


def test_a_mistyped_place_is_no_empty_answer(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        headers(tmp_path / "nowhere")
    with pytest.raises(ReadFailedError, match="no partition was found"):
        headers(tmp_path)
    with pytest.raises(ReadFailedError, match=r"no topic matches 'c' \(3 partitions found\); topics: a, b$"):
        headers(three(tmp_path), topics="c")


def test_nothing_is_an_answer_where_nothing_is(tmp_path: Path) -> None:
    root = make_log_dir(tmp_path / "broker")
    assert headers(root) == entries(root) == []
    write_partition(root / "a-0", {0: b""})
    (root / "b-0").mkdir()
    assert headers(root) == headers(root, mode="PERMISSIVE") == []
    reader = reader_of(BatchHeaders, three(tmp_path / "other"), pushFilters="true")
    reader.pushFilters([EqualTo(("topic",), "c")])
    assert rows_of(reader) == []
    assert len(reader.partitions()) == 1


def test_objects_are_reached_as_options_say(tmp_path: Path) -> None:
    """Nothing of the environment leads to this store."""
    logs, key = FIXTURES / "kafka27-mixed" / "logs" / "logappend-0", tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    with faulty_store() as store:
        store.objects = {f"b/logs/logappend-0/{path.name}": path.read_bytes() for path in logs.iterdir()}
        options = {"s3EndpointUrl": store.endpoint, "s3PathStyle": "true"}
        for source in (BatchHeaders, ProducerSnapshots):
            here = rows_of(reader_of(source, logs))
            assert len(here) > 20
            reader = reader_of(source, path="s3://b/logs", s3Anonymous="true", s3SseCKeyFile=str(key), **options)
            assert rows_of(reader) == [{**row, "directory": "s3://b/logs/logappend-0"} for row in here]
        assert not [headers for _, _, headers in store.seen if "authorization" in headers]
        sent = {
            headers.get("x-amz-server-side-encryption-customer-key") for _, path, headers in store.seen if path.endswith(".log")
        }
        assert sent == {base64.b64encode(key.read_bytes()).decode()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "a"}, "option topic is not known: columns, topics, partitions"),
        ({"mode": "skip"}, "option mode: expected one of FAILFAST, PERMISSIVE, DROPMALFORMED, found 'skip'"),
        ({"columns": "topic,colour"}, "option columns: expected some of topic, .*, found 'colour'"),
        ({"offsetFrom": "-1"}, "option offsetFrom: expected a number, 0 or more, found '-1'"),
        ({"partitions": "0,x"}, "option partitions: expected a number, 0 or more, found 'x'"),
        ({"numPartitions": "0"}, "option numPartitions: expected 1 or more, found 0"),
        ({"pushFilters": "1"}, "option pushFilters: expected true or false, found '1'"),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_options_are_checked(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        headers(FIXTURES / "kafka27-mixed", **options)


def test_malformed_rows_are_dropped_where_that_is_asked_for(tmp_path: Path) -> None:
    damaged(tmp_path)
    (tmp_path / "a-0" / snapshot_name(10)).write_bytes(b"\0\1damaged")
    write_partition(tmp_path / "a-7.0123456789abcdef0123456789abcdef-delete", {0: batch(0)})
    for source in (BatchHeaders, ProducerSnapshots):
        permissive, dropped = (rows_of(reader_of(source, tmp_path, mode=mode)) for mode in ("permissive", "dropMalformed"))
        assert [row for row in permissive if row["error"] is None] == dropped
        assert len(permissive) == len(dropped) + 2


@pytest.mark.parametrize(
    ("pattern", "topics"), [("{}/{a,b}-[0]", "ab"), ("file://{}/b*", "b"), ("file:{}/*", "aab"), ("{}", "aab")]
)
def test_paths_as_spark_takes_them(pattern: str, topics: str, tmp_path: Path) -> None:
    three(tmp_path)
    with faulty_store() as store:
        store.objects = {f"b/x/{path.relative_to(tmp_path)}": path.read_bytes() for path in tmp_path.rglob("*.log")}
        options = {"s3EndpointUrl": store.endpoint, "s3PathStyle": "true", "s3Anonymous": "true", "columns": "topic, directory"}
        places = {pattern.replace("{}", str(tmp_path))}
        if not pattern.startswith("file"):
            places |= {pattern.replace("{}", f"{scheme}://b/x") for scheme in ("s3", "s3a")}
        for place in places:
            rows = rows_of(reader_of(BatchHeaders, path=place, **options))
            assert "".join(sorted(directory["topic"] for directory in {row["directory"]: row for row in rows}.values())) == topics


def test_what_does_not_exist_is_reported_when_the_query_is_analysed(tmp_path: Path) -> None:
    with faulty_store() as store:
        options = {"s3EndpointUrl": store.endpoint, "s3PathStyle": "true", "s3Anonymous": "true"}
        for path in (f"{tmp_path}/none", f"{tmp_path}/*.log", "s3://b/none", "s3a://b/none/*"):
            with pytest.raises(UsageError, match="does not exist"):
                BatchHeaders(CaseInsensitiveDict(path=path, **options)).schema()
    with pytest.raises(UsageError, match=r"hdfs: is not read"):
        BatchHeaders(CaseInsensitiveDict(path="hdfs://name/logs")).schema()


def test_a_path_is_needed() -> None:
    with pytest.raises(UsageError, match=r"load\(PATH\)"):
        BatchHeaders(CaseInsensitiveDict()).schema()
    assert BatchHeaders(CaseInsensitiveDict(path=str(FIXTURES), CHECKCRC="false")).schema() == ddl(header_rows.SCHEMA)
