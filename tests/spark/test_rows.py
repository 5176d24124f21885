"""Summaries and tasks as rows of Arrow tables, and back: nothing is lost, whatever a segment holds."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_dirs import batch
from msgspec.structs import replace
from strategies import INT64, logs

from formats import errors as format_errors
from formats.errors import BadChecksumError, FormatError
from formats.limits import RANGES_MAX
from formats.log.batch_headers import BytesSegment
from snaprebuild import errors as own_errors
from snaprebuild.errors import SnaprebuildError, SnapshotRefusedError, StorageError
from snaprebuild.replay.segment_effect import COLUMNS
from snaprebuild.replay.segment_summary import summarise_pieces
from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.spark import read_rows, summary_rows
from snaprebuild.spark.segment_ranges import WhyWhole, join_ranges, summarise_range
from snaprebuild.spark.summary_rows import JobRow, outcomes, rows_of_error, rows_of_job, rows_of_pieces, rows_of_range, table_of
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import FileIdentity, S3Settings

pytestmark = pytest.mark.full


def through_arrow(rows: list[summary_rows.Row], batch_rows: int = 1000) -> list[pa.RecordBatch]:
    """Rows as Spark hands them on: serialised, and in batches of any size."""
    table = pa.Table.from_batches([table_of(rows)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table, max_chunksize=batch_rows)
    return list(pa.ipc.open_stream(sink.getvalue()))


def as_values(value: object) -> object:
    """With all types: arrays by their elements, errors by their text, structs field by field."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.tolist()
    if isinstance(value, Exception):
        return type(value), str(value)
    if isinstance(value, tuple | list):
        return type(value), [as_values(each) for each in value]
    if isinstance(value, msgspec.Struct):
        return type(value), {name: as_values(getattr(value, name)) for name in value.__struct_fields__}
    return type(value), value


def assert_same(found: object, expected: object) -> None:
    assert as_values(found) == as_values(expected)


def damaged(data: bytes, positions: Sequence[int], flips: Sequence[int], cut: int) -> bytes:
    """Some bytes of payloads and headers flipped, and the end cut off."""
    changed = bytearray(data)
    for flip in flips:
        if positions:
            changed[(positions[flip % len(positions)] + 12 + flip % 60) % len(changed)] ^= 0x55
    return bytes(changed[: len(changed) - cut])


@given(st.data(), st.integers(1, 7), st.sampled_from((1, 2, 1000)))
def test_summaries_of_any_log(data: st.DataObject, batch_rows: int, producers: int) -> None:
    """Also of more producers than a row holds: the closed transactions, the checksums and the tail are in the first row."""
    log = data.draw(logs())
    cuts = sorted({at for at in data.draw(st.lists(st.integers(0, 80), max_size=5)) if at > 0})
    start = log.headers[0].base_offset if log.batches else 0
    flips = data.draw(st.lists(st.integers(0, 1000), max_size=3))
    content = damaged(log.data, log.positions, flips, data.draw(st.sampled_from((0, 0, 1, 40))) if log.batches else 0)
    is_last = data.draw(st.booleans())
    options = {"with_first_events": data.draw(st.booleans())}
    pieces = summarise_pieces(BytesSegment(content), start, [start + cut for cut in cuts], is_last=is_last, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summary_rows, "PART_PRODUCERS", producers)
        job_rows, piece_rows = list(rows_of_job(3, b"job", start, pieces[0].effect)), list(rows_of_pieces(3, pieces))
    assert len(piece_rows) == sum(max(-(-len(piece.effect) // producers), 1) for piece in pieces)
    assert len({tuple(row[name] for name in summary_rows.KEYS) for row in piece_rows}) == len(piece_rows)
    rows = [*job_rows, *piece_rows, *rows_of_error(4, 7, 0, StorageError("no"))]
    (_, _, job), (partition, base_offset, found), (_, _, error) = outcomes(through_arrow(rows, batch_rows))
    assert isinstance(job, JobRow)
    assert (job.job, partition, base_offset) == (b"job", 3, start)
    assert all(getattr(job.state, name).tolist() == getattr(pieces[0].effect, name).tolist() for name in COLUMNS)
    assert isinstance(error, StorageError)
    assert isinstance(found, tuple)
    assert len(found) == len(pieces)
    for one, other in zip(found, pieces, strict=True):
        assert_same(one, other)


def test_a_row_is_not_large() -> None:
    """Rows of the most producers, none of whose values can be written shorter."""
    count = summary_rows.PART_PRODUCERS + 1
    header = batch(0, producer_id=1)
    (one,) = summarise_pieces(BytesSegment(header), 0, (), is_last=True)
    columns = {name: np.repeat(getattr(one.effect, name), count) for name in COLUMNS}
    columns["producer_id"] = np.arange(count, dtype=np.int64)
    many = one.with_effect(type(one.effect)(**columns, closes=one.effect.closes))
    first, second = rows_of_pieces(0, [many])
    assert table_of([first]).nbytes < 1_400_000
    assert [len(row["effect_producer_id"]) for row in (first, second)] == [count - 1, 1]
    ((_, _, found),) = outcomes(through_arrow([first, second], 1))
    assert isinstance(found, tuple)
    assert_same(found[0], many)


def _subclasses(root: type) -> list[type]:
    return [root, *(each for sub in root.__subclasses__() for each in _subclasses(sub))]


# The hook alone refuses, and it runs no job.
OWN = [
    kind for kind in _subclasses(SnaprebuildError) if kind.__module__ == own_errors.__name__ and kind is not SnapshotRefusedError
]
OF_FORMATS = [kind for kind in _subclasses(FormatError) if kind.__module__ == format_errors.__name__]


@pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.__name__)
def test_every_error_of_ours(kind: type[SnaprebuildError]) -> None:
    error = kind("cannot be read: é", path="/a/b.log")
    for name, value in {"errno": 5, "leftover": "x.tmp", "name": "n"}.items():
        if hasattr(error, name):
            setattr(error, name, value)
    ((partition, base_offset, found),) = outcomes(through_arrow(list(rows_of_error(1, 2, 0, error))))
    assert (partition, base_offset) == (1, 2)
    assert type(found) is kind
    assert vars(found) == vars(error)
    assert (str(found), found.exit_code) == (str(error), kind.exit_code)


@pytest.mark.parametrize("kind", OF_FORMATS, ids=lambda kind: kind.__name__)
def test_every_error_of_the_formats(kind: type[FormatError]) -> None:
    for error in (kind("length"), kind("length", file="a", position=3, expected="at least 61", found=7, unit="line")):
        ((_, _, found),) = outcomes(through_arrow(list(rows_of_error(0, 0, 0, error))))
        assert type(found) is kind
        assert vars(found) == vars(error)


def test_values_in_errors_become_text() -> None:
    """Values become text where errors cross between processes."""
    error = BadChecksumError("checksum", expected=b"\x01", found=[2])
    ((_, _, found),) = outcomes(through_arrow(list(rows_of_error(0, 0, 0, error))))
    assert str(found) == str(error)


tasks = st.builds(
    ReadTask,
    path=st.text(st.characters(exclude_categories=("Cs",)), max_size=30),
    index_path=st.none() | st.text(st.characters(exclude_categories=("Cs",)), max_size=30),
    base_offset=INT64,
    identity=st.builds(
        FileIdentity,
        size_bytes=st.integers(0, 2**63 - 1),
        modified_ns=INT64,
        inode=st.integers(0, 2**63 - 1),
        etag=st.none() | st.text("0123456789abcdef-", max_size=40),
    ),
    store=st.sampled_from([LOCAL, S3Store(S3Settings(endpoint_url="http://127.0.0.1:1", path_style=True))]),
    check_crc=st.booleans(),
    is_last=st.booleans(),
    cuts=st.lists(INT64, max_size=4).map(tuple),
)


read = st.builds(
    read_rows.ReadRow, partition=st.integers(0, 2**31 - 1), task=tasks, number=st.integers(0, 1023), ranges=st.integers(1, 1024)
)


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), read), max_size=6), st.integers(1, 4))
def test_tasks(slotted: list[tuple[int, read_rows.ReadRow]], batch_rows: int) -> None:
    """Each slot has its rows in their order, in whatever batches they arrive."""
    table = read_rows.table_of([row for _, row in slotted], [slot for slot, _ in slotted])
    arrived: dict[int, list[read_rows.ReadRow]] = {}
    for record in table.to_batches(max_chunksize=1):
        arrived.setdefault(record.column("slot")[0].as_py(), []).extend(read_rows.rows_of(record))
    assert arrived == {slot: [row for other, row in slotted if other == slot] for slot, _ in slotted}
    rows = [row for batch in table.to_batches(max_chunksize=batch_rows) for row in read_rows.rows_of(batch)]
    assert rows == [row for in_slot in arrived.values() for row in in_slot]


@given(tasks, st.integers(1, 2**40))
def test_ranges_of_a_segment(task: ReadTask, target_bytes: int) -> None:
    rows = read_rows.ranges_of(5, task, target_bytes)
    assert [row.number for row in rows] == list(range(rows[0].ranges))
    assert {(row.partition, row.task, row.ranges) for row in rows} == {(5, task, len(rows))}
    assert 1 <= len(rows) <= RANGES_MAX
    if task.index_path is None:
        assert len(rows) == 1
    elif len(rows) < RANGES_MAX:
        assert all(row.size_bytes <= target_bytes for row in rows)


@given(st.data(), st.integers(1, 7))
def test_ranges_of_any_log(data: st.DataObject, batch_rows: int) -> None:
    """Joined after the wire they are what the whole segment is, or are not joined either way."""
    log = data.draw(logs(min_batches=1))
    flips = data.draw(st.lists(st.integers(0, 1000), max_size=3))
    source = BytesSegment(damaged(log.data, log.positions, flips, data.draw(st.sampled_from((0, 0, 1)))))
    start = log.headers[0].base_offset
    inside = [at for at in log.positions if 0 < at < source.size_bytes]
    starts = [0, *sorted(data.draw(st.sets(st.sampled_from(inside), max_size=3)) if inside else ())]
    cuts = sorted(start + each for each in data.draw(st.sets(st.integers(1, 60), max_size=3)))
    ends = [*starts[1:], None]
    ranges = [summarise_range(source, start, at, end, cuts=cuts) for at, end in zip(starts, ends, strict=True)]
    rows = [row for number, pieces in enumerate(ranges) for row in rows_of_range(3, number, pieces)]
    ((_, _, found),) = outcomes(through_arrow(rows, batch_rows))
    assert isinstance(found, list)
    joined, direct = join_ranges(found, cuts), join_ranges([part for pieces in ranges for part in pieces], cuts)
    if isinstance(direct, WhyWhole):
        assert joined is direct
        return
    assert isinstance(joined, tuple)
    for ours, theirs, whole in zip(joined, direct, summarise_pieces(source, start, cuts, is_last=True), strict=True):
        assert_same(ours, theirs)
        assert_same(replace(ours, read_bytes=0), replace(whole, read_bytes=0))
