"""Partition tasks on Spark: Spark tasks that read segments, then Spark tasks that replay the summaries of each partition.

The rows of a partition are sent to one Spark task, or to one for each of its chunks (``chunks``), in the order of the log. The task
replays, compares and writes with the same code as a run on one machine. If a replay needs earlier segments, another round reads
them.
"""

from __future__ import annotations

import contextlib
import logging
import math
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from formats.errors import FormatError
from snaprebuild.errors import RefusedError, SnaprebuildError, StorageError
from snaprebuild.snapshots.engine.partition_task import PartitionTask, to_domain_error
from snaprebuild.snapshots.engine.segment_reader import ReadTask, read_segment
from snaprebuild.spark import read_rows, summary_rows
from snaprebuild.spark.arrow_tables import data_frame, ddl
from snaprebuild.spark.calls import Call, answered, some_at_once
from snaprebuild.spark.chunks import CHUNK_BYTES, ChunkPlan, is_splittable, may_go_back, measured, run_replays
from snaprebuild.spark.counts import Counts, Progress, job_counters
from snaprebuild.spark.driver_channel import DriverChannel, listening
from snaprebuild.spark.effect_cache import JobCache
from snaprebuild.spark.effect_files import CacheWriter, EffectCache
from snaprebuild.spark.packing import TASK_BYTES_MAX, TASK_BYTES_MIN, packed_slots
from snaprebuild.spark.range_reader import read_range
from snaprebuild.spark.read_rows import ReadRow, ranges_of
from snaprebuild.spark.run_limits import check_limits, settings_of
from snaprebuild.spark.summary_rows import Row

__all__ = ["SparkEngine"]

log = logging.getLogger(__name__)

TASKS_PER_CORE = 4
"""Several, so that a core that finishes early takes over work from one that is late."""

RANGES_PER_TASK = 2
"""At least, if segments can be split: the fullest task then has at most half as much again as the mean."""

WAVE_SEGMENTS_MAX = 50_000
"""Segments whose tasks go through the driver at once: some 100 MB (scripts/bench/scale_model.py)."""

SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(summary_rows.ROWS_PER_BATCH),
    # Tasks are packed by bytes already: planning each stage again when the one before it has ended only takes time.
    "spark.sql.adaptive.enabled": "false",
}
"""Settings while our jobs run."""

CALL_SCHEMA = pa.schema([("slot", pa.int64()), ("number", pa.int64()), ("call", pa.binary())])
ANSWER_SCHEMA = pa.schema([("number", pa.int64()), ("answer", pa.binary())])
"""A function with its argument, or its result; by number."""

Item = TypeVar("Item")
MapResult = TypeVar("MapResult")


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Runs tasks to completion on the executors of a Spark session; see ``partition_task.Engine``.

    Attributes:
        session: which must be able to import this package in its Python workers.
        progress: called with what was done so far, and the bytes since the last call; by a thread of its own.
        chunk_bytes: a partition whose rows of summaries take more is replayed in chunks of this size, if possible.
        cache: effects of rolled segments, so that later runs need not read them; None for none.
    """

    session: SparkSession
    progress: Progress | None = None
    chunk_bytes: int = CHUNK_BYTES
    cache: EffectCache | None = None

    def __call__(self, tasks: Sequence[PartitionTask]) -> None:
        """Runs all tasks. A failure of one does not stop the others."""
        wave: list[tuple[PartitionTask, list[ReadTask]]] = []
        segments = 0
        for task in tasks:
            first = self._first_segments(task)
            if not first:
                continue
            if wave and segments + len(first) > WAVE_SEGMENTS_MAX:
                self._run_wave(wave)
                wave = []
                segments = 0
            wave.append((task, first))
            segments += len(first)
        if wave:
            self._run_wave(wave)

    def parallel_map(self, function: Callable[[Item], MapResult], items: Sequence[Item]) -> list[MapResult]:
        """Maps items in Spark tasks (``storage.thread_pool.ParallelMap``).

        Raises:
            StorageError: the job failed.
        """
        answers: list[MapResult] = []
        for some in some_at_once(Call.of(function, item) for item in items):
            answers += self._called(some)
        return answers

    def _called(self, calls: list[Call]) -> list[Any]:
        count = min(len(calls), TASKS_PER_CORE * self.session.sparkContext.defaultParallelism)
        sent_bytes = [call.sent for call in calls]
        placed = packed_slots([len(each) for each in sent_bytes], count)
        table = pa.Table.from_pydict({"slot": placed, "number": range(len(calls)), "call": sent_bytes}, schema=CALL_SCHEMA)
        try:
            with listening(self.session.sparkContext) as channel:
                sent = data_frame(self.session, table).repartition(count, "slot")
                rows = sent.mapInArrow(channel.wrap(_call), ddl(ANSWER_SCHEMA)).collect()
        except Exception as error:
            raise self._failure(error) from error
        answers: list[Any] = [None] * len(calls)
        for row in rows:
            answers[row.number] = calls[row.number].answer(row.answer)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def _first_segments(self, task: PartitionTask) -> list[ReadTask]:
        try:
            if first := task.tasks():
                return first
            task.finish()
            task.settle()
        except Exception as error:  # it ends only this partition
            _fail(task, to_domain_error(error))
        return []

    def _run_wave(self, wave: list[tuple[PartitionTask, list[ReadTask]]]) -> None:
        tasks = [task for task, _ in wave]
        running = set(range(len(tasks)))
        try:
            with listening(self.session.sparkContext) as channel:
                for number, outcome in self._rounds(tasks, dict(enumerate(first for _, first in wave)), channel):
                    running.discard(number)
                    try:
                        if isinstance(outcome, Exception):
                            raise outcome
                        tasks[number].adopt(outcome)
                    except (SnaprebuildError, FormatError) as error:
                        _fail(tasks[number], error)
        except Exception as error:  # of the job as a whole
            failure = self._failure(error)
            for number in sorted(running):
                _fail(tasks[number], failure)

    def _failure(self, error: Exception) -> RefusedError | StorageError:
        """Why a whole job failed: an executor that dies again and again, a session that was stopped or was not started.

        Raises:
            KeyboardInterrupt: it was interrupted. The cleanup in Java then failed, because its connection was in the middle of a call.
        """
        if _follows_an_interrupt(error):
            raise KeyboardInterrupt from error
        if isinstance(error, RefusedError | StorageError):
            return error
        log.debug("the Spark job failed", exc_info=error)
        context = self.session.sparkContext
        reason = "the session was stopped" if _is_stopped(self.session) else _reason(error)
        if missing := re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", reason):
            needs = "before the session starts, set PYSPARK_PYTHON to a Python with the dependencies of snaprebuild (docs/guides/spark.md)"
            reason = f"the Python of an executor ({context.pythonExec}) has no module {missing[1]}: {needs}"
        return StorageError(f"the Spark job failed: {reason}")

    def _rounds(
        self, tasks: list[PartitionTask], requested: dict[int, list[ReadTask]], channel: DriverChannel
    ) -> Iterator[tuple[int, Any]]:
        """Number and outcome of each task, as they arrive."""
        frames_of_rounds: list[DataFrame] = []
        handed_out: dict[int, dict[int, ReadTask]] = {}
        most = TASKS_PER_CORE * self.session.sparkContext.defaultParallelism
        cache = None if self.cache is None else JobCache(self.session, self.cache)
        with _settings(self.session, SETTINGS), job_counters(self.session.sparkContext, self.progress) as counts:
            try:
                while requested:
                    for number, each in requested.items():
                        handed_out.setdefault(number, {}).update((segment.base_offset, segment) for segment in each)
                    segments = {
                        number: [handed_out[number][at] for at in sorted(handed_out[number])] for number in sorted(requested)
                    }
                    jobs = {number: tasks[number].job() for number in segments}
                    unread, cached = (requested, []) if cache is None else cache.split(requested, most)
                    check_limits((segment for each in unread.values() for segment in each), jobs.values())
                    is_large = any(is_splittable(job, segments[number], self.chunk_bytes) for number, job in jobs.items())
                    frames = [self._read(unread, channel, counts, None if cache is None else cache.new_writer)] if unread else []
                    if cache is not None and cached:
                        frames.append(cache.frame(cached, most, read=_read_row, counts=counts, channel=channel))
                    if frames and (is_large or any(map(may_go_back, jobs.values()))):
                        frames = [_together(frames).persist()]
                        frames_of_rounds += frames
                    rows = _together(frames_of_rounds or frames)
                    sizes = measured(rows) if is_large else {}
                    plan = ChunkPlan.of(jobs, segments, sizes or _listed(segments), self._chunk_bytes(is_large), most)
                    requested = {}
                    for row in run_replays(self.session, jobs, rows, plan, most, counts, channel):
                        if row.done is None:
                            requested[row.partition] = pickle.loads(row.wanted)  # noqa: S301  made by our own task
                            was_handed_out = [each.base_offset in handed_out[row.partition] for each in requested[row.partition]]
                            if any(was_handed_out):
                                del requested[row.partition]  # otherwise it would request it for ever
                                yield row.partition, StorageError("what was read of a segment did not arrive")
                        else:
                            yield row.partition, pickle.loads(row.done)  # noqa: S301
            finally:
                for frame in frames_of_rounds:
                    frame.unpersist()
                if cache is not None:
                    cache.log_warnings()

    def _chunk_bytes(self, is_large: bool) -> int:
        return self.chunk_bytes if is_large else sys.maxsize

    def _read(
        self,
        requested: dict[int, list[ReadTask]],
        channel: DriverChannel,
        counts: Counts,
        new_writer: Callable[[], CacheWriter] | None,
    ) -> DataFrame:
        size_bytes = sum(task.identity.size_bytes for tasks in requested.values() for task in tasks)
        cores = self.session.sparkContext.defaultParallelism
        target_bytes = min(max(math.ceil(size_bytes / (TASKS_PER_CORE * cores)), TASK_BYTES_MIN), TASK_BYTES_MAX)
        range_bytes = -(-target_bytes // RANGES_PER_TASK)
        rows = [
            row
            for number, tasks in requested.items()
            for task in tasks
            for row in ranges_of(number, task, range_bytes, is_counted=_is_counted(task))
        ]
        tasks = max(1, min(len(rows), max(math.ceil(size_bytes / target_bytes), cores)))
        table = read_rows.table_of(rows, packed_slots([row.size_bytes for row in rows], tasks))
        function = channel.wrap(partial(_read_segments, counts=counts, new_writer=new_writer))
        return data_frame(self.session, table).repartition(tasks, "slot").mapInArrow(function, ddl(summary_rows.SCHEMA))


def _fail(task: PartitionTask, error: SnaprebuildError | FormatError) -> None:
    task.fail(error)
    task.settle()


def _is_counted(task: ReadTask) -> bool:
    settings = settings_of(task.store)
    return settings is not None and settings.max_requests is not None


def _together(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames)


def _listed(requested: dict[int, list[ReadTask]]) -> dict[tuple[int, int], int]:
    """Sizes of segments, by partition and base offset."""
    return {(number, task.base_offset): task.identity.size_bytes for number, tasks in requested.items() for task in tasks}


def _follows_an_interrupt(error: BaseException | None) -> bool:
    """Whether it was raised while an interrupt was propagating."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _is_stopped(session: SparkSession) -> bool:
    """Whether a session has ended. A session that lost its Java has not: its error says why."""
    try:
        _ = session.sparkContext.applicationId
    except AttributeError:  # it has no counterpart in Java any more
        return True
    except Exception:
        return False
    return False


def _reason(error: Exception) -> str:
    """The most useful line: the last one of a Python traceback, else the first one that is not py4j's."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        lines = [line for line in lines if not line.startswith(("at ", "...", "Caused by:", "Driver stacktrace:"))][-1:]
    return next((line for line in lines if not line.startswith("An error occurred while calling")), type(error).__name__)


@contextlib.contextmanager
def _settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Changes settings of a session inside the block."""
    before = {key: session.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key, was in before.items():
            if was is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, was)


def _read_segments(
    batches: Iterable[pa.RecordBatch], counts: Counts, new_writer: Callable[[], CacheWriter] | None = None
) -> Iterator[pa.RecordBatch]:
    """In a task: reads each segment that a row names, and caches the result if requested."""
    writer = None if new_writer is None else new_writer()
    for batch in batches:
        for row in read_rows.rows_of(batch):
            rows = _read_row(row)
            if writer is not None:
                writer.add(row.task, rows)
            counts.add(segments=int(row.number == 0), size_bytes=row.size_bytes)
            yield from summary_rows.batches_of(rows)
    if writer is not None:
        writer.close()


def _read_row(row: ReadRow) -> list[Row]:
    try:
        if row.ranges == 1:
            return list(summary_rows.rows_of_pieces(row.partition, read_segment(row.task)))
        return list(summary_rows.rows_of_range(row.partition, row.number, read_range(row.task, row.number, row.ranges)))
    except Exception as error:  # of this segment only
        return list(summary_rows.rows_of_error(row.partition, row.task.base_offset, row.number, to_domain_error(error)))


def _call(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: calls the function of each row."""
    for batch in batches:
        for row in batch.to_pylist():
            yield pa.RecordBatch.from_pylist([{"number": row["number"], "answer": answered(row["call"])}], schema=ANSWER_SCHEMA)
