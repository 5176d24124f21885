"""Small partitions: one Spark task reads, replays, compares and writes each of them, as a worker of a run on one machine does.

No summary of a segment leaves its task, so nothing is shuffled or sorted. A replay that needs earlier segments reads them at once.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from formats.errors import FormatError
from snaprebuild.errors import SnaprebuildError
from snaprebuild.snapshots.engine.partition_task import Job, PartitionTask, ReadBudget, TaskQueue, run_here, to_domain_error
from snaprebuild.snapshots.engine.segment_reader import ReadTask, read_group
from snaprebuild.snapshots.rebuild.task import WRITERS
from snaprebuild.spark import read_rows
from snaprebuild.spark.packing import RANGES_PER_TASK, TASK_ITEMS, pack, tasks_for
from snaprebuild.storage.thread_pool import ThreadPool

__all__ = ["OUTCOME_SCHEMA", "WholePartition", "placed_by_cost", "placed_whole", "run_whole"]

OUTCOME_SCHEMA = pa.schema([("partition", pa.int32()), ("done", pa.binary())])
"""The outcome of a partition, or the error that ended it, by number."""

SEGMENTS_MAX = TASK_ITEMS // RANGES_PER_TASK
"""Segments of a partition that one task reads; those of a larger one are read by several tasks."""

SEGMENT_BYTES = 256 << 10
"""Cost of opening a segment and of writing a snapshot, as a number of additional bytes."""


@dataclass(frozen=True, slots=True)
class WholePartition:
    """A partition that one task does.

    Attributes:
        number: of the partition.
        job: that the task starts.
        segments: that it reads first.
        size_bytes: that it reads at most.
        first_bytes: of the segments that it reads first. A replay that needs earlier ones reads more.
    """

    number: int
    job: Job
    segments: int
    size_bytes: int
    first_bytes: int

    @classmethod
    def of(cls, number: int, task: PartitionTask, job: Job, first: Sequence[ReadTask]) -> WholePartition:
        """The partition of a task.

        Args:
            number: of it.
            task: with the listing.
            job: of it.
            first: segments that it asked for.
        """
        replay = job.replay()
        segments = len(first)
        first_bytes = sum(each.identity.size_bytes for each in first)
        size_bytes = first_bytes
        if replay is not None and replay.may_go_back():
            listed = task.source.directory.segments
            segments = len(listed)
            size_bytes = sum(each.log.identity.size_bytes for each in listed)
        return cls(number, job, segments, size_bytes, first_bytes)

    @property
    def cost_bytes(self) -> int:
        """Cost of the partition, compared with others."""
        return self.size_bytes + self.segments * SEGMENT_BYTES

    def is_small(self, most_bytes: int) -> bool:
        """Whether one task does it: it does not read more than this, nor very many segments."""
        return self.size_bytes <= most_bytes and self.segments <= SEGMENTS_MAX


def placed_whole(whole: Sequence[WholePartition], tasks: int | None, cores: int | None = None) -> tuple[list[int], list[int]]:
    """The task of each partition, and the bytes that each task reads if no replay needs earlier segments.

    Args:
        whole: the partitions.
        tasks: the setting of the user; None to follow the work.
        cores: of this machine, if all tasks run here; None on a cluster.
    """
    costs = [each.cost_bytes for each in whole]
    count = tasks_for(sum(costs), len(whole), tasks, opened=sum(each.segments for each in whole), cores=cores)
    placed = pack(costs, count)
    return placed, _read_bytes([each.first_bytes for each in whole], placed, count)


def placed_by_cost(sizes: Sequence[int], segments: Sequence[int], tasks: int | None) -> tuple[list[int], list[int]]:
    """The task of each partition, and the bytes that each task reads.

    Args:
        sizes: bytes that are read for each partition.
        segments: that are opened for each partition. Their costs count for the packing, and are no bytes that are read.
        tasks: the setting of the user; None to follow the work.
    """
    costs = [size + count * SEGMENT_BYTES for size, count in zip(sizes, segments, strict=True)]
    count = tasks_for(sum(costs), len(costs), tasks)
    placed = pack(costs, count)
    return placed, _read_bytes(sizes, placed, count)


def _read_bytes(sizes: Sequence[int], placed: Sequence[int], tasks: int) -> list[int]:
    """The bytes that each task reads."""
    read_bytes = [0] * tasks
    for size, task in zip(sizes, placed, strict=True):
        read_bytes[task] += size
    return read_bytes


def run_whole(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: does the partitions of ``read_rows.table_of``. An error of one ends that partition and no other."""
    with ThreadPool(WRITERS, thread_name_prefix="writer") as writers:
        for some in _together(row for batch in batches for row in read_rows.rows_of(batch)):
            numbers, outcomes = zip(*_outcomes(some, writers), strict=True)
            yield pa.RecordBatch.from_pydict({"partition": numbers, "done": outcomes}, schema=OUTCOME_SCHEMA)


def _together(rows: Iterable[WholePartition]) -> Iterator[list[WholePartition]]:
    """Partitions whose segments are read together."""
    some: list[WholePartition] = []
    budget = ReadBudget()
    for row in rows:
        if some and (row.segments > budget.segments or row.size_bytes > budget.size_bytes):
            yield some
            some = []
            budget = ReadBudget()
        budget.segments -= row.segments
        budget.size_bytes -= row.size_bytes
        some.append(row)
    if some:
        yield some


class _Queue(TaskQueue):
    """The segments of a task. An error that the task itself cannot take is kept."""

    error: SnaprebuildError | FormatError | None = None

    def fail(self, error: Exception) -> None:
        """Ends this partition and no other."""
        try:
            super().fail(error)
        except Exception as another:
            self.error = to_domain_error(another)


def _outcomes(some: Sequence[WholePartition], writers: ThreadPool) -> Iterator[tuple[int, bytes]]:
    """Number and pickled outcome of each partition."""
    failed: dict[int, SnaprebuildError | FormatError] = {}
    queues: dict[int, _Queue] = {}
    with contextlib.ExitStack() as stack:
        for each in some:
            try:
                queues[each.number] = _Queue(stack.enter_context(each.job.started(threads=writers)))
            except Exception as error:
                failed[each.number] = to_domain_error(error)
        for queue in queues.values():
            queue.refill()
        run_here(queues.values(), read_group)
    for number, queue in queues.items():
        try:
            yield number, pickle.dumps(queue.task.outcome if queue.error is None else queue.error)
        except Exception as error:
            failed[number] = to_domain_error(error)
    for number, failure in failed.items():
        yield number, pickle.dumps(failure)
