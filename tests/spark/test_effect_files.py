"""Files of kept effects, without Spark: what is written is read again exactly, and whatever does not fit is not used."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from budgets import scaled
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_dirs import batch, flip
from msgspec.structs import replace
from sentences import CHANGED_SINCE_LISTED, WOULD_DISTURB
from strategies import logs

from formats.log.batch_headers import BytesSegment
from snaprebuild.errors import ReadFailedError, RefusedError, UsageError
from snaprebuild.inspect.segment_statistics import StatisticsAnalysis
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine.partition_task import CachedSummary
from snaprebuild.snapshots.engine.segment_reader import ReadTask, read_segment
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.spark import effect_files, read_rows, summary_rows
from snaprebuild.spark.effect_files import (
    CachedSegment,
    CacheWriter,
    EffectCache,
    chosen_places,
    key_of,
    look_up,
    read_cached,
    rows_of_cached,
)
from snaprebuild.spark.partition_jobs import joined
from snaprebuild.spark.segment_ranges import RangeSummary, summarise_range
from snaprebuild.spark.summary_rows import Row, outcomes, rows_of_error, rows_of_pieces, rows_of_range
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import FileIdentity, S3Settings
from snaprebuild.storage.store_path import StorePath

pytestmark = pytest.mark.full

FIVE = b"".join(batch(at, producer_id=at % 3, sequence=at) for at in range(5))


def segment(directory: Path, data: bytes = FIVE, base_offset: int = 0) -> ReadTask:
    """A rolled segment on disk."""
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(data)
    return ReadTask(str(path), None, base_offset, FileIdentity.of(path.stat()), check_crc=True)


def rows_of(task: ReadTask) -> list[Row]:
    return list(rows_of_pieces(0, read_segment(task)))


class Messages(list[str]):
    """The findings of a run."""

    def __call__(self, text: str) -> None:
        self.append(text)


def keep(directory: Path, *segments: tuple[ReadTask, Sequence[Row]]) -> EffectCache:
    effects, reported = EffectCache.at(str(directory)), Messages()
    keeper = CacheWriter(effects, reported)
    for task, rows in segments:
        keeper.add(task, rows)
    keeper.close()
    assert not reported
    return effects


def found(effects: EffectCache, tasks: Sequence[ReadTask], reported: Messages) -> dict[int, CachedSegment]:
    """The segments that are kept, by base offset."""
    wanted = pa.array([key_of(task) for task in tasks], type=pa.binary())
    rows: list[Row] = []
    for each in look_up(effects.names(), effects, wanted, check_crc=any(task.check_crc for task in tasks)):
        rows += each.to_pylist()
    for row in rows:
        if row["fault"] is not None:
            reported(row["fault"])
    kept = {}
    for task in tasks:
        places = chosen_places([row for row in rows if row["key"] == key_of(task)], task.identity.size_bytes)
        if places:
            kept[task.base_offset] = CachedSegment(3, task, places)
    return kept


def summaries(effects: EffectCache, tasks: Sequence[ReadTask], reported: Messages) -> dict[int, Any]:
    """Cached summaries by base offset, as a run that asks for the tasks gets them."""
    kept = list(found(effects, tasks, reported).values())
    sent = rows_of_cached(read_rows.table_of(kept, [0] * len(kept)).to_batches())
    assert sorted(sent, key=lambda each: each.task.base_offset) == sorted(kept, key=lambda each: each.task.base_offset)
    gained = {}
    for each, rows in read_cached(sent, effects, reported):
        if rows is not None:
            ((partition, base_offset, outcome),) = outcomes(summary_rows.batches_of(rows))
            assert (partition, base_offset) == (3, each.task.base_offset)
            gained[base_offset] = outcome
    return gained


def same(one: SegmentSummary | RangeSummary, other: SegmentSummary | RangeSummary) -> None:
    """All rows of both, but for what shows that one was not read."""
    tables = []
    for each in (one, other):
        rows = rows_of_range(0, 0, each) if isinstance(each, RangeSummary) else rows_of_pieces(0, [each])
        tables.append(summary_rows.table_of([row | {"read_bytes": 0, "bytes_kept": None} for row in rows]))
    assert tables[0].equals(tables[1])


@settings(max_examples=scaled(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.integers(1, 4), st.integers(1, 3), st.data())
def test_what_is_kept_is_what_was_read(
    tmp_path_factory: pytest.TempPathFactory, count: int, producers: int, data: st.DataObject
) -> None:
    """Several segments, in one file and group or in many, one row or many for each."""
    place = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summary_rows, "PART_PRODUCERS", producers)
        patch.setattr(effect_files, "GROUP_BYTES", data.draw(st.sampled_from((1, 3_000, 1 << 20))))
        patch.setattr(effect_files, "FILE_BYTES", data.draw(st.sampled_from((1, 1 << 20))))
        patch.setattr(effect_files, "GROUPS_HELD_MAX", data.draw(st.sampled_from((0, 1, 4))))
        starts = [100_000 * number for number in range(count)]
        tasks = [segment(place, data.draw(logs(min_batches=1, start=start)).data, start) for start in starts]
        effects = keep(place / "effects", *((task, rows_of(task)) for task in tasks))
        reported = Messages()
        kept = summaries(effects, tasks, reported)
    assert not reported
    assert kept.keys() == set(starts)
    for task in tasks:
        (read,), (again,) = read_segment(task), kept[task.base_offset]
        same(again, read)
        assert isinstance(again, CachedSummary)
        assert (again.read_bytes, again.bytes_cached) == (0, task.identity.size_bytes)
        assert not isinstance(read, CachedSummary)
        assert read.read_bytes > 0


def ranges(task: ReadTask, *starts: int) -> Iterator[tuple[int, RangeSummary]]:
    source = BytesSegment(Path(task.path).read_bytes())
    for number, (start, end) in enumerate(zip(starts, (*starts[1:], None), strict=True)):
        yield number, summarise_range(source, task.base_offset, start, end)


def test_a_segment_in_ranges(tmp_path: Path) -> None:
    """Kept by several tasks, in several files; those of two runs that split otherwise go together where they meet."""
    task, step = segment(tmp_path), len(FIVE) // 5
    for starts in ((0, step, 3 * step), (0, 2 * step)):
        for number, part in ranges(task, *starts):
            effects = keep(tmp_path / "effects", (task, list(rows_of_range(0, number, part))))
    reported = Messages()
    outcome = summaries(effects, [task], reported)[0]
    assert isinstance(outcome, list)
    (whole,) = joined(outcome, task)
    assert isinstance(whole, CachedSummary)
    (read,) = read_segment(task)
    same(whole, read)
    assert (whole.read_bytes, whole.bytes_cached, reported) == (0, len(FIVE), [])
    for _ in range(2):  # one way through the segment is gone, and then the other
        (kept,) = found(effects, [task], reported).values()
        (tmp_path / "effects" / kept.places[-1].name).unlink()
    assert not found(effects, [task], reported)
    assert not reported


def row(name: str, start: int | None, end: int | None) -> Row:
    return {"name": name, "group": 0, "start_bytes": start, "end_bytes": end}


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([], ""),
        ([row("a", None, None)], "a"),
        ([row("a", None, None), row("b", None, None)], "b"),
        ([row("a", 0, 10)], "a"),
        ([row("a", 0, 4), row("b", 4, 10)], "ab"),
        ([row("b", 4, 10), row("a", 0, 4)], "ab"),
        ([row("a", 0, 4), row("c", 5, 10)], ""),
        ([row("a", 4, 10)], ""),
        ([row("a", 0, 4), row("b", 4, 9)], ""),
        ([row("a", 0, 4), row("b", 4, 11)], ""),
        ([row("a", 0, 0)], ""),
        ([row("a", 0, 4), row("b", 4, 2), row("c", 2, 10)], ""),
        ([row("a", 0, 4), row("a", 4, 10), row("b", 0, 4)], "ba"),
        ([row("a", 0, 4), row("a", 4, 10), row("b", 0, 6)], "aa"),
        ([row("a", 0, 4), row("b", 4, 10), row("c", None, None)], "c"),
    ],
)
def test_which_rows_make_a_segment(rows: list[Row], names: str) -> None:
    """The segment has ten bytes; of two rows about the same range the newer one counts."""
    assert "".join(place.name for place in chosen_places(rows, 10)) == names


def test_another_segment_is_not_found(tmp_path: Path) -> None:
    task = segment(tmp_path)
    effects, reported = keep(tmp_path / "effects", (task, rows_of(task))), Messages()
    size, mtime, inode = task.identity.size_bytes, task.identity.modified_ns, task.identity.inode
    others = [FileIdentity(size + 1, mtime, inode), FileIdentity(size, mtime + 1, inode), FileIdentity(size, mtime, inode + 1)]
    others.append(FileIdentity(size, mtime, inode, '"1"'))
    assert summaries(effects, [task], reported).keys() == {0}
    for other in (*(replace(task, identity=each) for each in others), replace(task, path="/a"), replace(task, base_offset=1)):
        assert not found(effects, [other], reported)
    for other in (replace(task, cuts=(2,)), replace(task, is_last=True), replace(task, extras=(StatisticsAnalysis(),))):
        assert not effect_files.is_cacheable(other)
    assert not reported


def test_what_was_read_without_checksums_serves_only_those_who_ask_for_none(tmp_path: Path) -> None:
    task = segment(tmp_path)
    skips = replace(task, check_crc=False)
    effects, reported = keep(tmp_path / "effects", (skips, rows_of(skips))), Messages()
    assert summaries(effects, [skips], reported).keys() == {0}
    assert not found(effects, [task], reported)
    keep(tmp_path / "effects", (task, rows_of(task)))
    assert summaries(effects, [task], reported).keys() == {0}
    (kept,) = found(effects, [skips], reported).values()
    ((_, batches),) = read_cached([dataclasses.replace(kept, task=skips)], effects, reported)
    assert batches is not None
    assert not reported


def test_what_is_not_kept(tmp_path: Path) -> None:
    """Whatever is damaged is looked at again, and what may still change, or hangs on more than the segment."""
    task = segment(tmp_path)
    torn = segment(tmp_path, FIVE[:-1], 1)
    broken = segment(tmp_path, FIVE[:68] + bytes([FIVE[68] ^ 1]) + FIVE[69:], 2)
    corrupt = segment(tmp_path, FIVE + bytes(range(1, 100)), 3)
    empty = segment(tmp_path, b"", 4)
    disordered = segment(tmp_path, FIVE + FIVE, 5)
    rows = [(each, rows_of(each)) for each in (torn, broken, corrupt, empty, disordered)]
    rows += [(replace(task, **{name: value}), rows_of(task)) for name, value in (("is_last", True), ("cuts", (3,)))]
    rows.append((replace(task, extras=(StatisticsAnalysis(),)), rows_of(task)))
    rows += [(task, list(rows_of_error(0, 0, 0, ReadFailedError("no")))), (task, [])]
    (_, crossed), _ = ranges(task, 0, 70)
    rows.append((task, list(rows_of_range(0, 0, crossed))))
    keep(tmp_path / "effects", *rows)
    assert not (tmp_path / "effects").exists()
    # An object that is appended to is another object.
    of_store = replace(task, is_last=True, store=S3Store(S3Settings()))
    keep(tmp_path / "effects", (of_store, rows_of(task)))
    assert len(list((tmp_path / "effects").iterdir())) == 1


@settings(max_examples=scaled(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_a_damaged_file(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Some byte of it is another one, or its end is missing: what is kept is what was read, or it is reported."""
    place = tmp_path_factory.mktemp("damaged")
    tasks = [segment(place, FIVE, 0), segment(place, batch(5, producer_id=9), 5)]
    effects = keep(place / "effects", *((task, rows_of(task)) for task in tasks))
    (path,) = (place / "effects").iterdir()
    size = path.stat().st_size
    position = data.draw(st.integers(0, 1 << 20)) % size
    if data.draw(st.booleans()):
        flip(path, position, data.draw(st.integers(1, 255)))
    else:
        os.truncate(path, position)
    reported = Messages()
    kept = summaries(effects, tasks, reported)
    for at, (again,) in kept.items():
        (read,) = read_segment(tasks[0 if at == 0 else 1])
        same(again, read)
    # A flipped bit of a name that no one reads hurts nothing; one that hides a segment has it read, with or without a finding.
    assert len(kept) == len(tasks) or reported or len(found(effects, tasks, reported)) < len(tasks)


def rewritten(file: Path, **columns: Any) -> None:
    """The file with other values in some columns, as a program would write it."""
    table = pq.read_table(file)
    for name, values in columns.items():
        at = table.column_names.index(name)
        table = table.set_column(at, table.schema.field(name), pa.array(values, type=table.schema.field(name).type))
    pq.write_table(table, file)


@pytest.mark.parametrize(
    "columns", [{"batches": [4]}, {"effect_producer_id": [[0, 1, 7]]}, {"path": ["/other"]}, {"checksum": [None]}], ids=str
)
def test_a_changed_row(tmp_path: Path, columns: dict[str, Any]) -> None:
    task = segment(tmp_path)
    effects, reported = keep(tmp_path / "effects", (task, rows_of(task))), Messages()
    (path,) = (tmp_path / "effects").iterdir()
    rewritten(path)
    assert summaries(effects, [task], reported).keys() == {0}
    rewritten(path, **columns)
    assert not summaries(effects, [task], reported)
    assert reported == [f"{task.path}: is read again: {path}: a row is damaged: its checksum differs"]


def test_a_whole_row_under_the_key_of_another_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys are made equal: path and identity are compared, too."""
    task, other = segment(tmp_path), segment(tmp_path, batch(5, producer_id=9), 5)
    effects, reported = EffectCache.at(str(tmp_path / "effects")), Messages()
    with monkeypatch.context() as patch:
        patch.setattr(effect_files, "key_of", lambda _: key_of(task))
        keep(tmp_path / "effects", (other, rows_of(other)))
    (kept,) = found(effects, [task], reported).values()
    ((_, rows),) = read_cached([kept], effects, reported)
    assert rows is None
    (line,) = reported
    assert "a row is of another segment: path differs" in line


def test_rows_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary_rows, "PART_PRODUCERS", 1)
    task = segment(tmp_path)
    effects, reported = keep(tmp_path / "effects", (task, rows_of(task))), Messages()
    (path,) = (tmp_path / "effects").iterdir()
    table = pq.read_table(path)
    assert len(table) == 3
    for rest in (table.take([0, 2]), table.take([0, 1]), table.take([0, 2, 1])):
        pq.write_table(rest, path)
        reported.clear()
        assert not summaries(effects, [task], reported)
        assert len(reported) == 1
    pq.write_table(table.take([1, 2]), path)
    assert not found(effects, [task], reported)


def test_files_that_are_none_of_ours(tmp_path: Path) -> None:
    """Files of another version are reported. Under other names, such as those of writers that were killed, they are passed over."""
    task = segment(tmp_path)
    effects, reported = keep(tmp_path / "effects", (task, rows_of(task))), Messages()
    (path,) = (tmp_path / "effects").iterdir()
    path.rename(path.with_name(f".{path.name}.tmp"))
    (tmp_path / "effects" / "notes.txt").write_text("mine")
    (tmp_path / "effects" / "part-0.parquet").write_bytes(b"PAR1")
    assert effects.names() == []
    names = ["effects-20261121T000000Z-0000000000000000.parquet", "effects-20261121T000000Z-0000000000000001.parquet"]
    pq.write_table(pa.table({"key": [b"x"]}), tmp_path / "effects" / names[0])
    (tmp_path / "effects" / names[1]).mkdir()
    assert effects.names() == names
    assert not found(effects, [task], reported)
    assert [line.split(": ", 2)[1:] for line in reported] == [
        ["is passed over", "was written by another version of the program"],
        ["is passed over", "is no regular file"],
    ]


def test_a_segment_that_was_replaced_since_it_was_listed(tmp_path: Path) -> None:
    task = segment(tmp_path)
    effects, reported = keep(tmp_path / "effects", (task, rows_of(task))), Messages()
    Path(task.path).write_bytes(FIVE + FIVE)
    assert not summaries(effects, [task], reported)
    Path(task.path).unlink()
    assert not summaries(effects, [task], reported)
    changed, gone = reported
    assert changed.endswith(f": the segment has {CHANGED_SINCE_LISTED}")
    assert gone.startswith(f"{task.path}: is read again: ")


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    """It is reported once, and nothing fails."""
    (tmp_path / "file").write_bytes(b"")
    task, reported = segment(tmp_path), Messages()
    keeper = CacheWriter(EffectCache(StorePath(LOCAL, str(tmp_path / "file" / "below"))), reported)
    for _ in range(2):
        keeper.add(task, rows_of(task))
        keeper.close()
    assert len(reported) == 1
    assert reported[0].startswith("effects are not cached: ")


def test_where_effects_may_go(tmp_path: Path) -> None:
    (tmp_path / "logs" / "t-0").mkdir(parents=True)
    segment(tmp_path / "logs" / "t-0")
    (tmp_path / "logs" / "meta.properties").write_text("version=0\n")
    partitions = open_source([str(tmp_path / "logs")]).partitions
    for place in ("logs", "logs/effects", "logs/t-0", "logs/t-0/effects"):
        with pytest.raises(RefusedError, match=rf"--cache leads into .*, where its files {WOULD_DISTURB}"):
            EffectCache.at(str(tmp_path / place)).prepare(partitions)
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    with pytest.raises(RefusedError):
        EffectCache.at(str(tmp_path / "link" / "effects")).prepare(partitions)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError):
        EffectCache.at(str(tmp_path / "file"))
    with pytest.raises(UsageError):
        EffectCache.at(str(tmp_path / "file" / "effects")).prepare(partitions)
    EffectCache.at(str(tmp_path / "elsewhere")).prepare(partitions)
    assert not (tmp_path / "elsewhere").exists(), "nothing is made before there is something to keep"


def test_limits_of_a_run_concern_its_segments() -> None:
    store = EffectCache.at(
        "s3://bucket/effects", S3Settings(max_requests=1, max_read_bytes=2, run="a", path_style=True)
    ).directory.store
    assert isinstance(store, S3Store)
    assert store.settings == S3Settings(path_style=True)
    assert store.settings.run != "a"
