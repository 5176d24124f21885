"""Which segments are read together: small ones of a file system, of any partitions; never two objects of a store."""

from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from dying_reads import cannot_be_sent
from log_dirs import batch, write_partition
from msgspec.structs import replace
from recorded_tasks import RecordedTask
from simulated_broker import listed

from snaprebuild.snapshots.engine import schedule
from snaprebuild.snapshots.engine.partition_task import ReadBudget, TaskQueue, next_groups
from snaprebuild.snapshots.engine.schedule import run_tasks
from snaprebuild.snapshots.engine.segment_reader import Pieces, ReadTask, read_each
from snaprebuild.snapshots.run import Run

SMALL = b"".join(batch(at, producer_id=7, sequence=at) for at in range(4))


def works(tmp_path: Path, count: int) -> list[RecordedTask]:
    directories = [write_partition(tmp_path / f"t-{number}", {0: SMALL, 4: SMALL, 8: SMALL}) for number in range(count)]
    return [RecordedTask(listed(each)) for each in directories]


def in_store(tasks: list[ReadTask]) -> list[ReadTask]:
    return [replace(task, store=mock.Mock(is_local=False)) for task in tasks]


def groups_of(tmp_path: Path, *, is_local: bool) -> list[list[int]]:
    queues = deque(TaskQueue(work) for work in works(tmp_path, 3))
    for queue in queues:
        queue.refill()
        queue.waiting = deque(queue.waiting if is_local else in_store([*queue.waiting]))
    return [[each.base_offset for each in group.segments] for group in next_groups(queues, ReadBudget())]


def test_segments_of_several_partitions(tmp_path: Path) -> None:
    assert groups_of(tmp_path, is_local=True) == [[0, 4, 8]] * 3


def test_objects_one_by_one(tmp_path: Path) -> None:
    assert groups_of(tmp_path, is_local=False) == [[0]]


def test_nothing_is_asked_of_a_store_after_its_first_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work,) = works(tmp_path, 1)
    asked: list[int] = []

    def read(tasks: Sequence[ReadTask]) -> list[Pieces | Exception]:
        asked.extend(each.base_offset for each in tasks)
        return [OSError("no answer") for _ in tasks]

    monkeypatch.setattr(schedule, "read_group", read)
    monkeypatch.setattr(work, "tasks", lambda tasks=work.tasks: in_store(tasks()))
    run_tasks([work], Run())
    assert asked == [0]
    assert work.error is not None


def test_results_that_cannot_be_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The segment was handed to a worker with segments of other partitions: its results end that partition alone."""
    done = works(tmp_path, 4)
    monkeypatch.setattr(schedule, "IN_PROCESS_BYTES_MAX", 0)
    monkeypatch.setattr(schedule, "read_group", partial(read_each, cannot_be_sent))
    run_tasks(done, Run(jobs=2))
    assert [work.error is not None for work in done] == [False, True, False, False]
    assert [work.taken for work in done] == [[0, 4, 8], [0], [0, 4, 8], [0, 4, 8]]
