"""The data sources: every batch and every producer as the grammar reads them, and no file opened that a query does not need.

What a reader does is asked of the reader itself, as Spark's Python workers call it; ``test_spark_sql.py`` asks Spark.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import spark_filters
from hypothesis import given
from hypothesis import strategies as st
from log_dirs import (
    EMPTY_SNAPSHOT,
    batch,
    copy_of,
    snapshot_name,
    write_partition,
)
from manifests import FIXTURES, REPOSITORY, PartitionFixture, partition_fixtures
from source_rows import A0, A1, B0, Rows, entries, expected_rows, files_of, headers, reader_of, rows_of, three
from spark_filters import EqualTo, GreaterThanOrEqual, In, LessThan, StringStartsWith

from formats.partition.producer_snapshot import parse_snapshot
from snaprebuild.errors import UsageError
from snaprebuild.spark import header_rows, snapshot_rows
from snaprebuild.spark.arrow_tables import ddl
from snaprebuild.spark.data_sources import BatchHeaders, ProducerSnapshots
from snaprebuild.spark.selected_files import FileToRead, packed

pytestmark = pytest.mark.full


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
    reported = Counter(row["crc_ok"] for row in headers(root))
    assert reported[False] == 1
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


EVERYTHING = {*A0.values(), *A1.values(), B0}


@pytest.mark.parametrize(
    ("filters", "files"),
    [
        ([], EVERYTHING),
        ([EqualTo(("topic",), "b")], {B0}),
        ([StringStartsWith(("topic",), "a"), In(("partition",), (1, 7))], set(A1.values())),
        ([spark_filters.Not(EqualTo(("topic",), "a"))], {B0}),
        ([EqualTo(("segment_base_offset",), 10)], {A0[10], A1[10]}),
        ([GreaterThanOrEqual(("base_offset",), 10), LessThan(("base_offset",), 20)], {A0[10], A1[10], B0}),
        ([EqualTo(("last_offset",), 19)], {A0[10], A1[10], B0}),
        ([spark_filters.IsNull(("base_offset",))], set()),
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
    """Spark 4.0 pushes no filters: batches that have an offset of the range are rows, and no others."""
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
