"""The tasks that take the summaries of segments: they replay partitions or chunks (``partition_jobs``), and merge the chunks.

They take and return rows of Arrow tables, so that tests can run them without Spark, with any distribution of the rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import pyarrow as pa

from formats.limits import RANGES_MAX
from snaprebuild.errors import SnaprebuildError
from snaprebuild.replay.segment_effect import IDENTITY, SegmentEffect
from snaprebuild.snapshots.engine.partition_task import Job, TaskOutcome, to_domain_error
from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.spark.partition_jobs import (
    Chunk,
    Outcome,
    SkippedChunk,
    SummaryStream,
    chunk_start_states,
    composed,
    merged,
    run_chunk,
    run_job,
)
from snaprebuild.spark.summary_rows import (
    ROWS_PER_BATCH,
    WHOLE,
    JobRow,
    Row,
    batches_of,
    outcomes,
    rows_of_error,
    rows_of_job,
    rows_of_pieces,
)

__all__ = [
    "MERGED_FIRST",
    "RESULT_SCHEMA",
    "Division",
    "TooManyRows",
    "WholeUnlessLarge",
    "begin_chunks",
    "compose_chunks",
    "merge_chunks",
    "run_jobs",
]

RESULT_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("base_offset", pa.int64()),
        ("job", pa.binary()),
        ("done", pa.binary()),
        ("wanted", pa.binary()),
    ]
)
"""For each partition, or chunk from a base offset on: its outcome, or the further read tasks that it needs."""

MERGED_FIRST = WHOLE - 1
"""Base offset of the row with the job of a partition whose results are those of chunks."""

ERROR_RANGE = RANGES_MAX
"""After all ranges and pieces of a segment."""


@dataclass(frozen=True, slots=True)
class WholeUnlessLarge:
    """A job that one task does if its rows are few. Else it is not started, and the result is ``TooManyRows``.

    Attributes:
        job: of the whole partition.
        rows_bytes_max: of its rows. They come after their sizes, so that the task decides before the first of them.
    """

    job: Job
    rows_bytes_max: int


@dataclass(frozen=True, slots=True)
class TooManyRows:
    """The result for a partition that must be replayed in chunks.

    Attributes:
        rows_bytes: of its segments, by base offset.
    """

    rows_bytes: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Division:
    """A partition in chunks.

    Attributes:
        job: of the whole.
        starts: index of the first segment of each chunk.
        base_offsets: ``WHOLE``, and those of the first segments of the further chunks.
        stop: index after the last segment.
    """

    job: Job
    starts: tuple[int, ...]
    base_offsets: tuple[int, ...]
    stop: int

    def chunks(self) -> list[tuple[int, int, int]]:
        """Base offset, first segment and the one after the last, of each."""
        return list(zip(self.base_offsets, self.starts, (*self.starts[1:], self.stop), strict=True))

    def indices_from(self, base_offset: int) -> range:
        """Indices of the segments of a chunk."""
        _, start, stop = self.chunks()[self.base_offsets.index(base_offset)]
        return range(start, stop)


@dataclass(frozen=True, slots=True)
class _ChunkOrder:
    """A chunk to run, without the state before it but with the size of that."""

    job: Job
    chunk: Chunk
    producers: int

    @classmethod
    def of(cls, job: Job, chunk: Chunk) -> tuple[_ChunkOrder, SegmentEffect]:
        """The order and the state."""
        if chunk.resume_from is None:
            return cls(job, chunk, 0), IDENTITY
        state = chunk.resume_from.state
        return cls(job, replace(chunk, resume_from=chunk.resume_from.with_state(IDENTITY)), len(state)), state

    def run(self, state: SegmentEffect, stream: SummaryStream) -> TaskOutcome:
        if len(state) != self.producers:
            raise SnaprebuildError(f"{len(state)} of {self.producers} producers of the state before a chunk arrived")
        resume_from = self.chunk.resume_from
        return run_chunk(self.job, replace(self.chunk, resume_from=resume_from and resume_from.with_state(state)), stream)


@dataclass(frozen=True, slots=True)
class _Arrived:
    """A job with the summaries that follow it."""

    partition: int
    base_offset: int
    row: JobRow
    stream: SummaryStream

    def unpickled(self) -> Any:
        assert self.row.job is not None
        return pickle.loads(self.row.job)  # noqa: S301  made by our own driver, or by a task of ours


def _jobs(batches: Iterable[pa.RecordBatch]) -> Iterator[_Arrived]:
    count = 0

    def job_of(each: tuple[int, int, JobRow | Outcome]) -> tuple[int, int]:
        nonlocal count
        count += isinstance(each[2], JobRow)
        return each[0], count

    for _, rows in groupby(outcomes(batches), key=job_of):
        if (job := _arrived(rows)) is not None:
            yield job


def _arrived(rows: Iterator[tuple[int, int, JobRow | Outcome]]) -> _Arrived | None:
    partition, base_offset, first = next(rows)
    if not isinstance(first, JobRow) or first.job is None:
        return None  # nothing is done with the segments: the replay ended before them
    return _Arrived(partition, base_offset, first, SummaryStream(_segments(rows)))


def _segments(rows: Iterator[tuple[int, int, JobRow | Outcome]]) -> Iterator[tuple[int, Outcome]]:
    for _, base_offset, outcome in rows:
        assert not isinstance(outcome, JobRow)
        yield base_offset, outcome


def run_jobs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: runs each job with the segments that follow it."""
    some: list[Row] = []
    for row in _results(batches):
        some.append(row)
        if len(some) >= ROWS_PER_BATCH:
            yield pa.RecordBatch.from_pylist(some, schema=RESULT_SCHEMA)
            some = []
    if some:
        yield pa.RecordBatch.from_pylist(some, schema=RESULT_SCHEMA)


def _results(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for each in _jobs(batches):
        try:
            done, more = _ran(each)
            outcome = (None, pickle.dumps(more)) if more else (pickle.dumps(done), None)
        except Exception as error:  # it ends only this partition
            outcome = pickle.dumps(to_domain_error(error)), None
        yield _result(each.partition, each.base_offset, *outcome)


def _ran(arrived: _Arrived) -> tuple[Any, list[ReadTask]]:
    """The result of a job, or the further read tasks that it needs."""
    job = arrived.unpickled()
    if isinstance(job, _ChunkOrder):
        return job.run(arrived.row.state, arrived.stream), []
    if isinstance(job, SkippedChunk):
        return job, []
    if isinstance(job, WholeUnlessLarge):
        sizes = arrived.row.sizes
        if sizes.has_withheld or sizes.total_bytes > job.rows_bytes_max:
            return TooManyRows(sizes.rows_bytes), []
        job = job.job
    return run_job(job, arrived.stream)


def _result(partition: int, base_offset: int, done: bytes | None, more: bytes | None) -> Row:
    return {"partition": partition, "base_offset": base_offset, "done": done, "wanted": more}


# ------------------------------------------------------------------------------------------------------------------------ chunks


def compose_chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the segments of each chunk with one effect together, as rows of summaries."""
    for each in _jobs(batches):
        yield from batches_of(_composed_rows(each))


def _composed_rows(each: _Arrived) -> Iterator[Row]:
    base_offset = max(each.base_offset, 0)
    try:
        division: Division = each.unpickled()
        for base_offset, pieces in composed(division.job, division.indices_from(each.base_offset), each.stream):
            if isinstance(pieces, tuple):
                yield from rows_of_pieces(each.partition, pieces)
            else:
                yield from rows_of_error(each.partition, base_offset, ERROR_RANGE, pieces)
    except Exception as error:  # it ends only this partition
        yield from rows_of_error(each.partition, base_offset, ERROR_RANGE, to_domain_error(error))


def begin_chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: goes over the composed chunks of each partition. Yields the rows of a job for each chunk that must be replayed."""
    for each in _jobs(batches):
        yield from batches_of(_beginning_rows(each))


def _beginning_rows(each: _Arrived) -> Iterator[Row]:
    division: Division = each.unpickled()
    waiting = iter(division.base_offsets)
    try:
        for chunk in chunk_start_states(division.job, division.starts, each.stream):
            order, state = (chunk, IDENTITY) if isinstance(chunk, SkippedChunk) else _ChunkOrder.of(division.job, chunk)
            yield from rows_of_job(each.partition, pickle.dumps(order), next(waiting), state)
    except Exception as error:  # it ends only this partition
        skipped = pickle.dumps(SkippedChunk(to_domain_error(error)))
        yield from rows_of_job(each.partition, skipped, next(waiting, WHOLE))


def merge_chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: merges the results of chunks into those of their partitions; other rows stay as they are."""
    rows = (row for batch in batches for row in batch.to_pylist())
    for _, results in groupby(rows, key=lambda row: row["partition"]):
        yield _merged(results)


def _merged(results: Iterator[Row]) -> pa.RecordBatch:
    first = next(results)
    if first["job"] is None:
        return pa.RecordBatch.from_pylist([first], schema=RESULT_SCHEMA)
    try:
        division: Division = pickle.loads(first["job"])  # noqa: S301  made by our own driver
        chunks = (pickle.loads(row["done"]) for row in results)  # noqa: S301  made by our own tasks
        done = pickle.dumps(merged(division.job, chunks))
    except Exception as error:  # it ends only this partition
        done = pickle.dumps(to_domain_error(error))
    return pa.RecordBatch.from_pylist([_result(first["partition"], WHOLE, done, None)], schema=RESULT_SCHEMA)
