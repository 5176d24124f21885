"""Partitions whose segments a function of their task reads: each segment is read by one Spark task, and taken in order by the driver."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec.structs import replace

from snaprebuild.errors import RefusedError, StorageError
from snaprebuild.snapshots.engine.partition_task import PartitionTask, TaskQueue, to_domain_error
from snaprebuild.snapshots.engine.segment_reader import Read, ReadTask
from snaprebuild.spark import read_rows
from snaprebuild.spark.limited_reads import SharedReads, segment_needs
from snaprebuild.spark.task_services import log_directories
from snaprebuild.spark.whole_partitions import OUTCOME_SCHEMA

if TYPE_CHECKING:
    from snaprebuild.spark.job import SparkEngine
    from snaprebuild.storage.store import S3Settings

__all__ = ["call_on_segments"]


@dataclass(frozen=True, slots=True)
class SegmentCall:
    """A segment that a task reads.

    Attributes:
        number: of the call.
        read: reads it.
        segment: which one.
    """

    number: int
    read: Read
    segment: ReadTask


def call_on_segments(engine: SparkEngine, tasks: Sequence[PartitionTask], limits: S3Settings | None) -> None:
    """Runs tasks that have a reader to completion. A failure of one does not stop the others.

    Args:
        engine: whose executors read.
        tasks: of partitions.
        limits: settings of their store with the limits of the run; None for none.
    """
    queues = [TaskQueue(task) for task in tasks]
    calls: list[SegmentCall] = []
    owners: list[TaskQueue] = []
    for queue in queues:
        queue.refill()
        for segment in queue.waiting:
            assert queue.task.reader is not None
            # A deadline is a time of the clock of this machine.
            calls.append(SegmentCall(len(calls), queue.task.reader, replace(segment, deadline=None)))
            owners.append(queue)
        queue.waiting.clear()
    outcomes = _outcomes(engine, calls, log_directories(task.source for task in tasks), limits)
    for number, queue in enumerate(owners):
        if not queue.is_over:
            queue.take(outcomes[number])
    for queue in queues:
        if not queue.is_over:
            queue.finish()


def _outcomes(
    engine: SparkEngine, calls: Sequence[SegmentCall], log_dirs: Iterable[str], limits: S3Settings | None
) -> dict[int, Any]:
    """The result of each call, or its error, by its number."""
    outcomes: dict[int, Any] = {}
    sizes = [call.segment.identity.size_bytes for call in calls]
    failure: RefusedError | StorageError = StorageError("the result of its task did not arrive")
    if not calls:
        return outcomes
    if limits is None:
        results = engine.run_partitions(_run_calls, calls, sizes, [1] * len(calls), log_dirs)
    else:
        # Of a damaged copy more is read than its size.
        needs = [segment_needs(call.segment) for call in calls]
        results = engine.read_within_limits(limits, SharedReads(_called, calls, needs, sizes, are_estimates=True), log_dirs)
    try:
        with contextlib.closing(results) as arriving:
            outcomes.update(arriving)
    except (RefusedError, StorageError) as error:
        failure = error
    return {call.number: outcomes.get(call.number, failure) for call in calls}


def _run_calls(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: reads the segments of ``read_rows.table_of``."""
    for batch in batches:
        for call in read_rows.rows_of(batch):
            outcome: Any
            try:
                outcome = _called(call)
            except Exception as error:
                outcome = to_domain_error(error)
            yield pa.RecordBatch.from_pydict({"partition": [call.number], "done": [pickle.dumps(outcome)]}, schema=OUTCOME_SCHEMA)


def _called(call: SegmentCall) -> Any:
    """The result of a call.

    Raises:
        SnaprebuildError, FormatError: the segment cannot be read.
    """
    (outcome,) = call.read([call.segment])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
