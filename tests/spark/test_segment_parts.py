"""A segment read in parts by tasks that do not know of each other: the rows of the segment read whole, whatever its index says."""

import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from budgets import scaled
from hypothesis import given, settings
from hypothesis import strategies as st
from log_dirs import batch, batch_positions, cut, flip, record, write_partition
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import from_arrow_schema
from sentences import CHANGED_SINCE_LISTED

from formats.errors import BadMagicError, TruncatedError
from snaprebuild.errors import ReadFailedError, RefusedError
from snaprebuild.spark import packing, segment_parts
from snaprebuild.spark.data_sources import BatchHeaders

pytestmark = pytest.mark.full

Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts and looks back as if the segments of these tests were huge."""
    monkeypatch.setattr(packing, "SOURCE_PART_BYTES_MIN", 1)
    monkeypatch.setattr(segment_parts, "LOOK_BACK_BYTES", 200)


def reader_of(root: Path, tasks: int, **options: str) -> Any:
    made = BatchHeaders(CaseInsensitiveDict(paths=json.dumps([str(root)]), numPartitions=str(tasks), **options))
    return made.reader(from_arrow_schema(BatchHeaders.whole))


def read(root: Path, tasks: int, **options: str) -> list[Rows]:
    """The rows of each task, the last task first: no task knows of another."""
    reader = reader_of(root, tasks, **options)
    return [[row for rows in reader.read(task) for row in rows.to_pylist()] for task in reversed(reader.partitions())]


def in_order(tasks: Iterable[Rows]) -> Rows:
    return sorted(
        (row for rows in tasks for row in rows),
        key=lambda row: (row["directory"], row["segment_base_offset"], row["position_bytes"]),
    )


def write_index(log: Path, positions: Iterable[int]) -> None:
    """Entries as a broker writes them, but for what they say."""
    entries = b"".join(struct.pack(">ii", number, position) for number, position in enumerate(positions))
    log.with_suffix(".index").write_bytes(entries)


def log_of(root: Path, count: int = 200, **options: Any) -> Path:
    """One segment of batches of several sizes. Returns its path."""
    pieces = [batch(offset, records=[record(bytes(offset * 7 % 90))], **options) for offset in range(count)]
    return write_partition(root / "a-0", {0: b"".join(pieces)}) / f"{0:020d}.log"


def indexed_log(root: Path) -> tuple[Path, list[int]]:
    """Writes the log with an honest index. Returns its path, and where its batches begin."""
    path = log_of(root)
    positions = batch_positions(path)
    write_index(path, positions[3::3])
    return path, positions


def check_equal(root: Path, tasks: int, **options: str) -> list[Rows]:
    found = read(root, tasks, **options)
    assert in_order(found) == in_order(read(root, tasks, splitSegments="false", **options))
    return found


def test_several_tasks_read_one_segment(tmp_path: Path) -> None:
    _, positions = indexed_log(tmp_path)
    found = check_equal(tmp_path, 5)
    assert len(found) == 5
    sizes = [sum(row["size_bytes"] for row in rows) for rows in found]
    assert max(sizes) < 1.5 * min(sizes)
    assert [row["position_bytes"] for row in in_order(found)] == positions


@pytest.mark.parametrize("index", ["missing", "empty", "torn", "zeros"])
def test_no_index_to_split_by(index: str, tmp_path: Path) -> None:
    path = log_of(tmp_path)
    if index != "missing":
        path.with_suffix(".index").write_bytes({"empty": b"", "torn": b"\x01\x02\x03", "zeros": bytes(800)}[index])
    assert len(check_equal(tmp_path, 5)) == 1


def test_an_index_that_lies_everywhere(tmp_path: Path) -> None:
    """Each joint is none: the first task reads the segment, the others nothing."""
    path = log_of(tmp_path)
    write_index(path, [position + 1 for position in batch_positions(path)[3::3]])
    found = check_equal(tmp_path, 5)
    assert len(found) == 5
    assert sorted(map(len, found)) == [0, 0, 0, 0, 200]


@settings(max_examples=scaled(60))
@given(st.sets(st.integers(1, 5000), max_size=40), st.integers(1, 12), st.integers(0, 400))
def test_any_index(entries: set[int], tasks: int, look_back: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "SOURCE_PART_BYTES_MIN", 1)
        patch.setattr(segment_parts, "LOOK_BACK_BYTES", look_back)
        path = log_of(Path(place), count=40)
        write_index(path, sorted(entries | set(batch_positions(path)[5::7])))
        check_equal(Path(place), tasks)


def nested(root: Path) -> tuple[Path, Sequence[int]]:
    """A segment whose third batch holds batches in a record, and where they begin in the file."""
    inner = [batch(1000 + number, records=[record(bytes(40))]) for number in range(40)]
    outer = batch(2, records=[record(b"".join(inner))])
    path = write_partition(root / "a-0", {0: batch(0) + batch(1) + outer + batch(3)}) / f"{0:020d}.log"
    start = path.read_bytes().index(inner[0])
    return path, [start + sum(map(len, inner[:number])) for number in range(40)]


def test_batches_inside_a_record_are_no_rows(tmp_path: Path) -> None:
    """An index that leads into them is found out, where one right entry is before it, or none at all."""
    path, inside = nested(tmp_path)
    for entries in ([inside[20]], [inside[19], inside[20]], [*batch_positions(path)[1:2], inside[3]]):
        write_index(path, entries)
        found = check_equal(tmp_path, 2)
        assert [row["base_offset"] for row in in_order(found)] == [0, 1, 2, 3]


def test_an_index_that_lies_consistently_ends_the_query(tmp_path: Path) -> None:
    """Into a record, for longer than is looked back: no answer rather than a wrong one, and the way out is reported."""
    path, inside = nested(tmp_path)
    write_index(path, inside)
    reader = reader_of(tmp_path, 2)
    first, second = reader.partitions()
    assert list(reader.read(second))
    with pytest.raises(ReadFailedError, match=r"lead to byte \d+, and not to byte \d+.* splitSegments=false") as caught:
        list(reader.read(first))
    assert caught.value.path == str(path)
    assert len(in_order(read(tmp_path, 2, splitSegments="false"))) == 4


@pytest.mark.parametrize("tail", ["torn", "zeros", "clean"])
def test_the_end_of_a_log(tail: str, tmp_path: Path) -> None:
    path = log_of(tmp_path)
    positions = batch_positions(path)
    write_index(path, [*positions[3::3], path.stat().st_size - 2])
    if tail == "torn":
        cut(path, -1)
    elif tail == "zeros":
        with path.open("ab") as file:
            file.write(bytes(6000))
    found = check_equal(tmp_path, 5)
    assert len(found) == 5
    assert sum(map(len, found)) == 200 - (tail == "torn")


def test_damage_inside(tmp_path: Path) -> None:
    path, positions = indexed_log(tmp_path)
    flip(path, positions[100] + 16, 8)
    with pytest.raises(BadMagicError, match=f"byte {positions[100] + 16}"):
        read(tmp_path, 5)
    skipped = read(tmp_path, 5, mode="PERMISSIVE")
    assert len(skipped) == 1, "what stands behind damage is not read"
    assert len(skipped[0]) == 101
    assert skipped[0][-1]["position_bytes"] == positions[100]


def test_a_length_beyond_the_file_in_the_middle(tmp_path: Path) -> None:
    """The index leads to the batches after it."""
    path, positions = indexed_log(tmp_path)
    flip(path, positions[100] + 9, 0x40)
    with pytest.raises(TruncatedError, match=f"byte {positions[100]}: batch: expected a whole batch"):
        read(tmp_path, 5, splitSegments="false")
    with pytest.raises(ReadFailedError, match=f"lead to byte {positions[100]}, and not to"):
        read(tmp_path, 5)


def test_offsets_narrow_parts(tmp_path: Path) -> None:
    indexed_log(tmp_path)
    found = check_equal(tmp_path, 5, offsetFrom="77", offsetTo="123")
    assert [row["base_offset"] for row in in_order(found)] == list(range(77, 124))


def test_a_log_that_grows_and_one_that_is_replaced(tmp_path: Path) -> None:
    path, positions = indexed_log(tmp_path)
    reader = reader_of(tmp_path, 4)
    tasks = reader.partitions()
    with path.open("ab") as file:
        file.write(batch(200) + batch(201))
    write_index(path, positions[5::2])  # what a task reads now splits nothing
    assert sum(len(rows) for task in tasks for rows in reader.read(task)) == 202
    data = path.read_bytes()
    path.rename(path.with_suffix(".gone"))
    path.write_bytes(data)
    for task in tasks:
        with pytest.raises(RefusedError, match=rf"{CHANGED_SINCE_LISTED}, .*: load the DataFrame or view again"):
            list(reader.read(task))


def test_a_plan_that_is_used_again_reads_what_was_rolled_since(tmp_path: Path) -> None:
    """A segment in parts continues being read in parts; its last part also reads the segments after it."""
    path, _ = indexed_log(tmp_path)
    reader = reader_of(tmp_path, 4)
    tasks = reader.partitions()
    for step in range(3):
        with path.open("ab") as file:
            file.write(batch(200 + step))
        (path.parent / f"{1000 + step:020d}.log").write_bytes(batch(1000 + step))
        offsets = sorted(row["base_offset"] for task in tasks for rows in reader.read(task) for row in rows.to_pylist())
        assert offsets == [*range(201 + step), *range(1000, 1001 + step)]
    path.unlink()
    assert sum(len(rows) for task in tasks for rows in reader.read(task)) == 3
