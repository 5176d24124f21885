"""Small segments that are read together have the summaries, or the errors, that each of them has alone."""

import os
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest
from effects import assert_same
from hypothesis import given
from hypothesis import strategies as st
from log_dirs import batch, write_partition
from manifests import FIXTURES
from simulated_broker import listed

from formats.partition.file_names import parse_partition_dir_name
from snaprebuild.errors import RefusedError
from snaprebuild.snapshots.engine import segment_reader
from snaprebuild.snapshots.engine.segment_reader import Pieces, ReadTask, read_each, read_group, read_segment, read_tasks

WHOLE = b"".join(batch(at, producer_id=at % 3, sequence=at) for at in range(4))


def tasks_of(directory: Path) -> list[ReadTask]:
    listing = listed(directory)
    return read_tasks(listing, range(len(listing.segments)), check_crc=True)


LOGS = sorted(path for pattern in ("*/logs/*/*.log", "damaged/*/*/*.log") for path in FIXTURES.glob(pattern))
DIRECTORIES = [path for path in dict.fromkeys(log.parent for log in LOGS) if parse_partition_dir_name(path.name)]
ALL = [task for directory in DIRECTORIES for task in tasks_of(directory)]


def same(found: Sequence[Pieces | Exception], tasks: Sequence[ReadTask]) -> None:
    for one, other in zip(found, read_each(read_segment, tasks), strict=True):
        if isinstance(one, Exception) or isinstance(other, Exception):
            assert (type(one), str(one)) == (type(other), str(other))
            continue
        for piece, expected in zip(one, other, strict=True):
            assert_same(piece.effect, expected.effect)
            assert (piece.facts, repr(piece.tail), piece.read_bytes) == (expected.facts, repr(expected.tail), expected.read_bytes)
            assert piece.contents.commits_omitted == expected.contents.commits_omitted
            places = ("base_offset", "cut_offset", "cut_batch_offset", "size_bytes")
            assert [getattr(piece, name) for name in places] == [getattr(expected, name) for name in places]


@given(st.lists(st.sampled_from(ALL), min_size=2, max_size=12, unique_by=lambda task: task.path))
def test_segments_of_any_bundled_partitions(tasks: list[ReadTask]) -> None:
    """Sound and damaged ones, of all formats of batches."""
    same(read_group(tasks), tasks)


def test_all_small_segments_of_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is read alone."""
    tasks = [
        task for task in ALL if "kafka27-mixed" in task.path and 0 < task.identity.size_bytes <= segment_reader.TOGETHER_BYTES_MAX
    ]
    assert len(tasks) > 20
    with monkeypatch.context() as patch:
        patch.setattr(segment_reader, "read_segment", lambda task: pytest.fail(f"read alone: {task.path}"))
        found = read_group(tasks)
    same(found, tasks)


def test_a_segment_whose_last_batch_ends_in_the_next_file(tmp_path: Path) -> None:
    """The bytes of both files together are whole batches, those of the first are not."""
    cut = len(WHOLE) - 20
    parts = {0: WHOLE[:cut], 4: WHOLE[cut:], 8: WHOLE, 12: b""}
    tasks = tasks_of(write_partition(tmp_path / "t-0", parts))
    same(read_group(tasks), tasks)
    (first,) = read_group(tasks)[0]  # type: ignore[misc]
    assert (first.facts.batches, first.tail.position_bytes) == (3, len(WHOLE) // 4 * 3)


@pytest.mark.parametrize(
    "damage", [lambda path: os.truncate(path, 100), Path.unlink, lambda path: path.write_bytes(WHOLE[:-4] + b"jump")]
)
def test_one_that_is_not_what_was_listed(damage: object, tmp_path: Path) -> None:
    directory = write_partition(tmp_path / "t-0", {0: WHOLE, 4: WHOLE, 8: WHOLE, 12: b""})
    tasks = tasks_of(directory)
    damage(directory / "00000000000000000004.log")  # type: ignore[operator]
    found = read_group(tasks)
    same(found, tasks)
    assert [isinstance(each, RefusedError) for each in found] == [False, True, False, False]


def test_an_error_while_several_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is memory for one of them, and not for all."""
    tasks = tasks_of(write_partition(tmp_path / "t-0", {0: WHOLE, 4: WHOLE, 8: WHOLE}))
    with monkeypatch.context() as patch:
        patch.setattr(segment_reader, "effects_of_parts", mock.Mock(side_effect=MemoryError))
        found = read_group(tasks)
    same(found, tasks)


def test_one_that_grows_after_it_was_listed(tmp_path: Path) -> None:
    directory = write_partition(tmp_path / "t-0", {0: WHOLE, 4: WHOLE, 8: WHOLE})
    tasks = tasks_of(directory)
    with open(directory / "00000000000000000008.log", "ab") as log:
        log.write(batch(12, producer_id=1, sequence=4))
    found = read_group(tasks)
    same(found, tasks)
    (last,) = found[2]  # type: ignore[misc]
    assert last.facts.next_offset == 13


def test_only_what_is_unusual_is_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torn one, one with a wrong checksum, and one of which a piece is wanted."""
    parts = {4 * number: WHOLE for number in range(30)}
    parts |= {20: WHOLE[:-1], 40: WHOLE[:-4] + b"jump"}
    directory = write_partition(tmp_path / "t-0", parts)
    listing = listed(directory)
    tasks = read_tasks(listing, range(30), check_crc=True, cuts=(62,))
    expected = read_each(read_segment, tasks)
    alone: list[int] = []

    def noted(task: ReadTask) -> Pieces:
        alone.append(task.base_offset)
        return read_segment(task)

    with monkeypatch.context() as patch:
        patch.setattr(segment_reader, "read_segment", noted)
        found = read_group(tasks)
    same(found, tasks)
    assert alone == [20, 40, 60]
    assert [len(each) for each in found if not isinstance(each, Exception)] == [
        len(each) for each in expected if not isinstance(each, Exception)
    ]


def test_one_segment_twice(tmp_path: Path) -> None:
    """Once whole, and once in pieces."""
    listing = listed(write_partition(tmp_path / "t-0", {0: WHOLE, 4: WHOLE, 8: WHOLE}))
    tasks = [*read_tasks(listing, range(3), check_crc=True), *read_tasks(listing, [1], check_crc=True, cuts=(6,))]
    found = read_group(tasks)
    same(found, tasks)
    assert [len(each) for each in found] == [1, 1, 1, 2]  # type: ignore[arg-type]
