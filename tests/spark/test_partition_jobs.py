"""Feeding a work from what was read elsewhere: it must come to what ``run_tasks`` brings it to, in whatever order it asks."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from budgets import scaled
from hypothesis import given, settings
from hypothesis import strategies as st
from log_dirs import batch, write_partition
from recorded_tasks import RecordedTask
from simulated_broker import listed

from snaprebuild.errors import SnaprebuildError
from snaprebuild.snapshots.engine.schedule import run_tasks
from snaprebuild.snapshots.engine.segment_reader import ReadTask, read_segment, read_tasks
from snaprebuild.snapshots.run import Run
from snaprebuild.spark.partition_jobs import Outcome, SummaryStream, drain_summaries
from snaprebuild.storage.partition_dir import PartitionDir

SEGMENTS = 8


def reported(work: RecordedTask) -> tuple[object, ...]:
    """Everything that a task received."""
    return [(each.base_offset, each.cut_offset) for each in work.summaries], work.error and str(work.error), work.finished


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> PartitionDir:
    """Eight segments of two batches."""
    segments = {2 * at: batch(2 * at) + batch(2 * at + 1) for at in range(SEGMENTS)}
    return listed(write_partition(tmp_path_factory.mktemp("logs") / "t-0", segments))


def outcome_of(task: ReadTask) -> Outcome:
    try:
        return read_segment(task)
    except SnaprebuildError as error:
        return error


def fed(make: Callable[[], RecordedTask]) -> tuple[RecordedTask, int]:
    """In each round the work begins anew, with all that was read."""
    read: dict[int, Outcome] = {task.base_offset: outcome_of(task) for task in make().tasks()}
    rounds = 1
    while True:
        fresh = make()
        missing = drain_summaries(fresh, SummaryStream(iter(sorted(read.items()))))
        if not missing:
            return fresh, rounds
        assert not {task.base_offset for task in missing} & read.keys(), "what has arrived is not asked for again"
        read |= {task.base_offset: outcome_of(task) for task in missing}
        rounds += 1


going_back = st.lists(st.integers(0, SEGMENTS - 1), unique=True, min_size=1).map(
    lambda all_of_them: [sorted(all_of_them[at::3]) for at in range(3) if all_of_them[at::3]]
)
"""Each segment once, in rounds that may lie anywhere, as where a replay asks for segments further back."""


@settings(max_examples=scaled(300))
@given(going_back, st.none() | st.integers(1, 6), st.none() | st.integers(1, 6), st.none() | st.integers(0, SEGMENTS - 1))
def test_a_work_that_is_fed_equals_one_that_is_run(
    partition: PartitionDir, rounds: list[list[int]], enough: int | None, bad: int | None, gone: int | None
) -> None:
    """Also where it has enough, where taking fails, and where a segment cannot be read."""

    def make() -> RecordedTask:
        return RecordedTask(partition, rounds, stop_after=enough, refuse_at=bad, cuts=(3,))

    expected = make()
    aside = Path(partition.path, "gone")
    path = aside.with_name(f"{2 * gone:020d}.log") if gone is not None else None
    if path is not None:
        path.rename(aside)
    try:
        run_tasks([expected], Run(jobs=1))
        found, count = fed(make)
    finally:
        if path is not None:
            aside.rename(path)
    assert reported(found) == reported(expected)
    assert 1 <= count <= len(rounds)


def segment_of(listing: PartitionDir, index: int) -> Outcome:
    return read_segment(read_tasks(listing, [index], check_crc=True)[0])


def test_arrivals_keep_what_was_passed_and_nothing_else(partition: PartitionDir) -> None:
    drawn: list[int] = []

    def stream() -> Iterator[tuple[int, Outcome]]:
        for index in range(5):
            drawn.append(index)
            yield 2 * index, segment_of(partition, index)

    arrivals = SummaryStream(stream())
    assert arrivals.take(4) is not None
    assert drawn == [0, 1, 2], "no further than asked for"
    assert arrivals.take(4) is None, "once"
    assert arrivals.take(5) is None
    assert drawn == [0, 1, 2, 3]
    assert arrivals.take(6) is not None
    assert arrivals.take(0) is not None
    assert arrivals.take(0) is None
    assert arrivals.take(8) is not None
    assert arrivals.take(99) is None
    assert arrivals.take(2) is not None


def test_an_unforeseen_error_is_reported(partition: PartitionDir) -> None:
    class Surprising(RecordedTask):
        def finish(self) -> None:
            raise ZeroDivisionError("by nothing")

    work = Surprising(partition, [[0]])
    assert drain_summaries(work, SummaryStream(iter([(0, segment_of(partition, 0))]))) == []
    assert reported(work) == ([(0, None)], "unforeseen ZeroDivisionError: by nothing", 0)
