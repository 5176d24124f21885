"""Partition tasks on Spark: Spark tasks that read segments, then Spark tasks that replay the summaries of each partition.

The rows of a partition are sent to one Spark task, or to one for each of its chunks (``chunks``), in the order of the log. The task
replays, compares and writes with the same code as a run on one machine. If a replay needs earlier segments, another round reads
them.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import re
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from formats.errors import FormatError
from snaprebuild.errors import RefusedError, SnaprebuildError, StorageError
from snaprebuild.snapshots.engine.partition_task import Job, PartitionTask, to_domain_error
from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.spark import read_rows, summary_rows
from snaprebuild.spark.arrow_tables import TaskFrame, TaskFunction, mapped_in_tasks
from snaprebuild.spark.calls import Calls, answered, some_at_once, sources_of, stores_of
from snaprebuild.spark.chunks import (
    CHUNK_BYTES,
    ChunkPlan,
    collected,
    is_splittable,
    may_go_back,
    rows_of_segments,
    rows_sent,
    run_read_jobs,
    run_replays,
    sent_bytes_of_segment,
    tasks_of_pieces,
    whole_unless_large,
)
from snaprebuild.spark.effect_cache import JobCache
from snaprebuild.spark.effect_files import EffectCache
from snaprebuild.spark.executor_directories import identities_of
from snaprebuild.spark.job_progress import Progress, watched
from snaprebuild.spark.limited_reads import (
    Outcome,
    SharedReads,
    check_keeps_limits,
    read_with_shares,
    run_with_shares,
    shared_segments,
)
from snaprebuild.spark.packing import RANGES_PER_TASK, TASKS_MAX, in_turns, pack, task_bytes, tasks_for
from snaprebuild.spark.read_rows import ReadRow, ranges_of
from snaprebuild.spark.read_tasks import read_row, read_segments
from snaprebuild.spark.replay_tasks import TooManyRows, WholeUnlessLarge
from snaprebuild.spark.run_limits import limits_of, limits_of_stores
from snaprebuild.spark.segment_calls import call_on_segments
from snaprebuild.spark.session import is_stopped, python_of_executors
from snaprebuild.spark.task_services import TaskServices, local_cores, log_directories, rated_tasks, task_services
from snaprebuild.spark.whole_partitions import OUTCOME_SCHEMA, WholePartition, placed_by_cost, placed_whole, run_whole
from snaprebuild.storage.io_limits.policy import current_limits
from snaprebuild.storage.store import S3Settings
from snaprebuild.storage.thread_pool import local_map

__all__ = ["SparkEngine", "waves_of"]

log = logging.getLogger(__name__)

HERE_SECONDS = 0.5
"""Calls that take less are made by the driver: a job takes longer than that."""

HERE_SECONDS_MAX = 10.0
"""All calls are made by the driver if the first ones show that they take less: a job would gain little."""

CALLS_TOGETHER = 32
"""Calls that are sent in one row."""

JOB_ROW_TASKS = 1
"""Tasks that hand in the jobs in the stage that reads."""

WAVE_SEGMENTS_MAX = 50_000
"""Segments whose tasks go through the driver at once: some 100 MB (scripts/bench/scale_model.py)."""

SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(summary_rows.ROWS_PER_BATCH),
    # Tasks are packed by bytes already: planning each stage again when the one before it has ended only takes time.
    "spark.sql.adaptive.enabled": "false",
    # A table of the driver is sent by one task, and not by one for each core of the cluster.
    "spark.sql.leafNodeDefaultParallelism": "1",
    # Java only passes rows on. To compile code for that takes half a second of the first job, and gains nothing.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings while our jobs run."""

NOT_OF_PYTHON = ("at ", "...", "Caused by:", "Driver stacktrace:", "SQLSTATE:")
"""Lines of Java about an error of Python."""

OWN_ERROR = re.compile(r"^snaprebuild\.errors\.\w+: ")
"""The class of an error of a task, before its text."""

NOT_ARRIVED = "what was read of a segment did not arrive"

CALL_SCHEMA = pa.schema([("slot", pa.int32()), ("number", pa.int64()), ("call", pa.binary())])
ANSWER_SCHEMA = pa.schema([("number", pa.int64()), ("answer", pa.binary())])
"""A function with some of its arguments, or the results; by number."""

Item = TypeVar("Item")
MapResult = TypeVar("MapResult")


def waves_of(items: Iterable[Item], segments_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    """The items in their order, as many at once as go through the driver together.

    Args:
        items: of the job.
        segments_of: how many segments an item has.
    """
    return in_turns(items, WAVE_SEGMENTS_MAX, segments_of)


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Runs tasks to completion on the executors of a Spark session; see ``partition_task.Engine``.

    Attributes:
        session: which must be able to import this package in its Python workers.
        progress: called with what was done so far, and the bytes since the last call; maybe by a thread of its own.
        tasks: of each stage; None to follow the work (``packing.tasks_for``).
        chunk_bytes: a partition whose rows of summaries take more is replayed in chunks of this size, if possible.
        cache: effects of rolled segments, so that later runs need not read them; None for none.
    """

    session: SparkSession
    progress: Progress | None = None
    tasks: int | None = None
    chunk_bytes: int = CHUNK_BYTES
    cache: EffectCache | None = None

    def __call__(self, tasks: Sequence[PartitionTask]) -> None:
        """Runs all tasks, of one reader. A failure of one does not stop the others.

        Raises:
            UsageError: requests or bytes are limited, and the session is one of Spark Connect.
        """
        limits = limits_of(tasks)
        if limits is not None:
            check_keeps_limits(self.session)
        if tasks and tasks[0].reader is not None:
            for some in waves_of(tasks, lambda each: len(each.source.directory.segments)):
                call_on_segments(self, some, limits)
            return
        if limits is not None:
            run_with_shares(tasks, limits, partial(self._read_with_shares, limits, [task.source for task in tasks]))
            return
        for wave in waves_of(self._begun(tasks), lambda each: len(each[1])):
            self._run_wave(wave)

    def parallel_map(self, function: Callable[[Item], MapResult], items: Sequence[Item]) -> list[MapResult]:
        """Maps items in Spark tasks (``storage.thread_pool.ParallelMap``); in this process if requests or bytes are limited.

        Raises:
            StorageError: the job failed.
        """
        stores = list(dict.fromkeys(store for item in items for store in stores_of(item)))
        if limits_of_stores(stores) is not None:
            return list(local_map(stores)(function, items))
        answers: list[MapResult] = []
        began = time.monotonic()
        for item in items:
            passed = time.monotonic() - began
            if passed > HERE_SECONDS and passed * len(items) > HERE_SECONDS_MAX * max(len(answers), 1):
                break
            answers.append(function(item))
        left = items[len(answers) :]
        if not left:
            return answers
        most = min(-(-len(left) // tasks_for(0, len(left), self.tasks)), CALLS_TOGETHER)
        for some in some_at_once(Calls.of(function, left, most)):
            answers += self._called(some)
        return answers

    def _called(self, calls: list[Calls]) -> list[Any]:
        count = tasks_for(0, sum(len(each.items) for each in calls), self.tasks or len(calls))
        sent_bytes = [each.sent for each in calls]
        placed = pack([len(each) for each in sent_bytes], count)
        table = pa.Table.from_pydict({"slot": placed, "number": range(len(calls)), "call": sent_bytes}, schema=CALL_SCHEMA)
        try:
            with _settings(self.session, SETTINGS):
                sources = (source for each in calls for item in each.items for source in sources_of(item))
                function = task_services(self.session, sources).wrap(_call, count)
                rows = mapped_in_tasks(self.session, table, count, function, ANSWER_SCHEMA).collect()
        except Exception as error:
            raise self._failure(error) from error
        by_number = {row.number: row.answer for row in rows}
        answers = [answer for number, each in enumerate(calls) for answer in each.answers(by_number[number])]
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def _begun(self, tasks: Iterable[PartitionTask]) -> Iterator[tuple[PartitionTask, list[ReadTask]]]:
        """The tasks that read segments, with the first ones of each. The others are finished."""
        for task in tasks:
            if first := self._first_segments(task):
                yield task, first

    def _first_segments(self, task: PartitionTask) -> list[ReadTask]:
        try:
            if first := task.tasks():
                return first
            task.finish()
            task.settle()
        except Exception as error:  # it ends only this partition
            _fail(task, to_domain_error(error))
        return []

    def _read_with_shares(
        self, limits: S3Settings, sources: Sequence[PartitionSource], reads: Sequence[ReadTask]
    ) -> Sequence[Outcome]:
        """Summaries of segments, or their errors."""
        try:
            outcomes = dict(self.read_within_limits(limits, shared_segments(reads), log_directories(sources)))
        except (RefusedError, StorageError) as error:  # of the job as a whole
            return [error] * len(reads)
        return [outcomes[number] for number in range(len(reads))]

    def read_within_limits(
        self, limits: S3Settings, reads: SharedReads[Any], log_dirs: Iterable[str]
    ) -> Generator[tuple[int, Any]]:
        """Number and outcome of each item of a run whose requests or bytes are limited (``read_with_shares``).

        Args:
            limits: settings with the limits.
            reads: the items.
            log_dirs: directories on this machine that have them.

        Raises:
            UsageError: the session is one of Spark Connect.
            RefusedError, StorageError: the job as a whole failed.
        """
        check_keeps_limits(self.session)
        services = replace(task_services(self.session), log_dirs=identities_of(log_dirs))
        try:
            with (
                _settings(self.session, SETTINGS),
                contextlib.closing(read_with_shares(self.session, services.wrap, limits, reads)) as arriving,
            ):
                yield from arriving
        except Exception as error:
            raise self._failure(error) from error

    def _run_wave(self, wave: list[tuple[PartitionTask, list[ReadTask]]]) -> None:
        tasks = [task for task, _ in wave]
        running = set(range(len(tasks)))
        try:
            services = task_services(self.session, (task.source for task in tasks))
            outcomes = self._outcomes(tasks, dict(enumerate(first for _, first in wave)), services)
            # Closed at once: an error here must not leave rows in the memory of the executors, or settings of the session changed.
            with contextlib.closing(outcomes):
                for number, outcome in outcomes:
                    running.discard(number)
                    try:
                        if isinstance(outcome, Exception):
                            raise outcome
                        tasks[number].adopt(outcome)
                    except (SnaprebuildError, FormatError) as error:
                        _fail(tasks[number], error)
        except Exception as error:  # of the job as a whole
            failure = self._failure(error)
            is_of_job = isinstance(failure, StorageError)
            for number in sorted(running):
                _fail(tasks[number], failure)
                if is_of_job:  # one partition has the reason, and the others refer to it
                    failure = StorageError(f"the Spark job failed: the reason is with {tasks[min(running)].path}")

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
        reason = "the session was stopped" if is_stopped(self.session) else _reason(error)
        if missing := re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", reason):
            needs = "before the session starts, set PYSPARK_PYTHON to a Python with the dependencies of snaprebuild (docs/guides/spark.md)"
            reason = f"the Python of an executor{python_of_executors(self.session)} has no module {missing[1]}: {needs}"
        return StorageError(f"the Spark job failed: {reason}")

    def _outcomes(
        self, tasks: list[PartitionTask], first: dict[int, list[ReadTask]], services: TaskServices
    ) -> Generator[tuple[int, Any]]:
        """Number and outcome of each task, as they arrive."""
        whole = [] if self.cache is not None else self._whole_partitions(tasks, first)
        if whole:
            yield from self._run_whole(whole, services)
        done = {each.number for each in whole}
        rest = {number: segments for number, segments in first.items() if number not in done}
        if rest:
            yield from self._rounds(tasks, rest, services)

    def _whole_partitions(self, tasks: list[PartitionTask], first: dict[int, list[ReadTask]]) -> list[WholePartition]:
        """The partitions that one task does."""
        most_bytes = self._range_bytes(sum(each.identity.size_bytes for segments in first.values() for each in segments))
        whole = []
        for number, segments in first.items():
            job = tasks[number].job()
            partition = WholePartition.of(number, tasks[number], job, segments)
            if partition.is_small(most_bytes) and not is_splittable(job, segments, self.chunk_bytes):
                whole.append(partition)
        return whole

    def _run_whole(self, whole: Sequence[WholePartition], services: TaskServices) -> Generator[tuple[int, Any]]:
        """Number and outcome of each of these partitions."""
        placed, read_bytes = placed_whole(whole, self._most_tasks(), local_cores(self.session))
        yield from self._run_packed(run_whole, {each.number: each for each in whole}, placed, read_bytes, services)

    def _run_packed(
        self,
        function: TaskFunction,
        items: Mapping[int, object],
        placed: Sequence[int],
        read_bytes: Sequence[int],
        services: TaskServices,
    ) -> Generator[tuple[int, Any]]:
        """Number and outcome of each item that a task does.

        Args:
            function: takes batches of ``read_rows.table_of``, and yields those of ``OUTCOME_SCHEMA``.
            items: by number of their partition.
            placed: the task of each.
            read_bytes: by each task.
            services: for the tasks.
        """
        count = len(read_bytes)
        with _settings(self.session, SETTINGS), watched(self.session, self.progress, read_bytes):
            table = read_rows.table_of([*items.values()], placed)
            rows = mapped_in_tasks(self.session, table, count, services.wrap(function, count), OUTCOME_SCHEMA)
            for row in collected(rows, len(items), OUTCOME_SCHEMA):
                yield row.partition, pickle.loads(row.done)  # noqa: S301  made by our own task

    def run_partitions(
        self,
        function: TaskFunction,
        items: Sequence[object],
        sizes: Sequence[int],
        segments: Sequence[int],
        log_dirs: Iterable[str],
    ) -> Generator[tuple[int, Any]]:
        """Number and outcome of each partition, as they arrive; each is done by one task.

        Args:
            function: takes batches of ``read_rows.table_of``, and yields those of ``OUTCOME_SCHEMA``.
            items: one for each partition, which is numbered from 0.
            sizes: bytes that are read for each, which the progress shows.
            segments: that are opened for each; tasks are packed by both.
            log_dirs: directories on this machine that have the partitions.

        Raises:
            RefusedError, StorageError: the job as a whole failed.
        """
        placed, read_bytes = placed_by_cost(sizes, segments, self._most_tasks())
        services = replace(task_services(self.session), log_dirs=identities_of(log_dirs))
        outcomes = self._run_packed(function, dict(enumerate(items)), placed, read_bytes, services)
        try:
            # Closed at once: an error of the caller must not leave settings of the session changed.
            with contextlib.closing(outcomes):
                yield from outcomes
        except Exception as error:
            raise self._failure(error) from error

    def _rounds(
        self, tasks: list[PartitionTask], requested: dict[int, list[ReadTask]], services: TaskServices
    ) -> Generator[tuple[int, Any]]:
        """Number and outcome of each task, as they arrive."""
        persisted: list[TaskFrame] = []
        handed_out: dict[int, dict[int, ReadTask]] = {}
        cache = None if self.cache is None else JobCache(self.session, self.cache)
        with _settings(self.session, SETTINGS):
            try:
                while requested:
                    for number, each in requested.items():
                        handed_out.setdefault(number, {}).update((segment.base_offset, segment) for segment in each)
                    segments = {
                        number: [handed_out[number][at] for at in sorted(handed_out[number])] for number in sorted(requested)
                    }
                    jobs = {number: tasks[number].job() for number in segments}
                    work = Round.of(jobs, segments, requested, self.chunk_bytes)
                    requested = {}
                    for number, outcome in self._replayed(work, self._query(work, cache, services, persisted), services):
                        if not isinstance(outcome, MoreReads):
                            yield number, outcome
                        elif any(each.base_offset in handed_out[number] for each in outcome.tasks):
                            yield number, StorageError(NOT_ARRIVED)  # otherwise it would request it for ever
                        else:
                            requested[number] = outcome.tasks
            finally:
                for each_frame in persisted:
                    each_frame.rows.unpersist()
                if cache is not None:
                    cache.log_warnings()

    def _query(self, work: Round, cache: JobCache | None, services: TaskServices, persisted: list[TaskFrame]) -> ReplayQuery:
        """The query of a round.

        Args:
            work: of the round.
            cache: of effects; None for none.
            services: of the tasks.
            persisted: rows of earlier rounds. Those of this one are added if another query may need them.
        """
        if cache is None and not work.may_go_back:
            return self._query_of_readers(work, services, persisted)
        unread, cached = (work.requested, []) if cache is None else cache.split(work.requested, self.tasks)
        at_once = services.for_stages(2) if unread and cached else services
        frames: list[TaskFrame] = []
        sizes_read: list[int] = []
        if unread:
            new_writer = None if cache is None else cache.new_writer
            function = partial(read_segments, new_writer=new_writer, sent_bytes_max=work.sent_bytes_max)
            read, sizes_read = self._read(unread, at_once, function)
            frames.append(TaskFrame(read, len(sizes_read)))
        if cache is not None and cached:
            frames.append(cache.frame(cached, self.tasks, read=read_row, services=at_once, sent_bytes_max=work.sent_bytes_max))
        if frames and (work.large or work.may_go_back):
            union = _union(frames)
            persisted.append(TaskFrame(union.rows.persist(), union.tasks))
        whole = _union(persisted or frames)
        sent = rows_sent(whole.rows) if work.large else whole.rows
        results = run_replays(self.session, work.sent_jobs(), sent, work.plan(), self.tasks, services)
        return ReplayQuery(whole.rows, results, sizes_read, whole.tasks - len(sizes_read) + JOB_ROW_TASKS)

    def _query_of_readers(self, work: Round, services: TaskServices, persisted: list[TaskFrame]) -> ReplayQuery:
        """The query of a round that needs no further one: the tasks that read send the jobs with the rows, to the tasks that replay."""
        plan = work.plan()
        placed, count = tasks_of_pieces(plan.pieces, self.tasks)
        slots = {piece.partition: slot for piece, slot in zip(plan.pieces, placed, strict=True)}
        function = partial(read_segments, sent_bytes_max=work.sent_bytes_max)
        read, sizes_read = self._read(work.requested, services, function, SentJobs(work.sent_jobs(), slots))
        sent = read
        if work.large:
            read = read.persist()
            persisted.append(TaskFrame(read, len(sizes_read)))
            sent = rows_sent(read)
        return ReplayQuery(read, run_read_jobs(sent, len(work.jobs), count, services), sizes_read)

    def _replayed(self, work: Round, query: ReplayQuery, services: TaskServices) -> Generator[tuple[int, Any]]:
        """Number and outcome of each partition, or ``MoreReads``. Those with many rows come last: another query replays their chunks."""
        rows_bytes: dict[tuple[int, int], int] = {}
        large: list[int] = []
        with watched(self.session, self.progress, query.sizes_read, (query.other_tasks,)):
            for number, outcome in _outcomes_of(query.results):
                if isinstance(outcome, TooManyRows):
                    large.append(number)
                    rows_bytes |= {(number, at): size_bytes for at, size_bytes in outcome.rows_bytes.items()}
                else:
                    yield number, outcome
        if large:
            jobs = {number: work.jobs[number] for number in sorted(large)}
            segments = {number: work.segments[number] for number in jobs}
            plan = ChunkPlan.of(jobs, segments, rows_bytes, self.chunk_bytes, self.tasks or TASKS_MAX)
            yield from _outcomes_of(run_replays(self.session, jobs, rows_of_segments(query.rows), plan, self.tasks, services))

    def _most_tasks(self) -> int | None:
        """How many tasks a stage that reads has; None to follow the work."""
        if self.tasks is None and current_limits().io.bytes_per_second is not None:
            return rated_tasks(self.session)
        return self.tasks

    def _range_bytes(self, size_bytes: int) -> int:
        """Size of a range that one task reads without a split, if all tasks share these bytes."""
        return -(-task_bytes(size_bytes, self._most_tasks(), cores=local_cores(self.session)) // RANGES_PER_TASK)

    def _read(
        self,
        requested: Mapping[int, Sequence[ReadTask]],
        services: TaskServices,
        function: TaskFunction,
        sent_jobs: SentJobs | None = None,
    ) -> tuple[DataFrame, list[int]]:
        """The rows of segments, and the bytes that each task reads for them.

        Args:
            requested: the segments, by number of their partition.
            services: of the tasks.
            function: of the tasks: ``read_segments`` with its options.
            sent_jobs: that the tasks send on; None if they send none.
        """
        segments = [(number, task) for number, tasks in requested.items() for task in tasks]
        size_bytes = sum(task.identity.size_bytes for _, task in segments)
        most = self._most_tasks()
        range_bytes = self._range_bytes(size_bytes)
        rows = [row for number, task in segments for row in ranges_of(number, task, range_bytes)]
        if sent_jobs is not None:
            rows = list(sent_jobs.added_to(rows))
        count = tasks_for(size_bytes, len(rows), most, cores=local_cores(self.session))
        placed = pack([row.size_bytes for row in rows], count)
        sizes = [0] * count
        for row, task in zip(rows, placed, strict=True):
            sizes[task] += row.size_bytes
        table = read_rows.table_of(rows, placed)
        return mapped_in_tasks(self.session, table, count, services.wrap(function, count), summary_rows.SCHEMA), sizes


@dataclass(frozen=True, slots=True)
class Round:
    """The work of a round: segments are read, and the partitions are replayed with them and those of earlier rounds.

    Attributes:
        jobs: by number of their partition.
        segments: that each partition has requested so far, ascending.
        requested: those that no earlier round has read.
        chunk_bytes: a partition whose rows take more is replayed in chunks of this size, if possible.
        large: numbers of the partitions that may have so many rows. No other round reads any segment of them (``is_splittable``), so
            that the sizes of their rows are whole.
    """

    jobs: Mapping[int, Job]
    segments: Mapping[int, Sequence[ReadTask]]
    requested: dict[int, list[ReadTask]]
    chunk_bytes: int
    large: frozenset[int]

    @classmethod
    def of(
        cls,
        jobs: Mapping[int, Job],
        segments: Mapping[int, Sequence[ReadTask]],
        requested: dict[int, list[ReadTask]],
        chunk_bytes: int,
    ) -> Round:
        """The work of a round.

        Args:
            jobs: by number of their partition.
            segments: that each partition has requested so far, ascending.
            requested: those that no earlier round has read.
            chunk_bytes: a partition whose rows may take more, in bytes, is replayed in chunks if possible.
        """
        large = frozenset(number for number, job in jobs.items() if is_splittable(job, segments[number], chunk_bytes))
        return cls(jobs, segments, requested, chunk_bytes, large)

    @property
    def may_go_back(self) -> bool:
        """Whether another round may be needed."""
        return any(map(may_go_back, self.jobs.values()))

    @property
    def sent_bytes_max(self) -> dict[int, int]:
        """By number of a large partition, the bytes of rows of one segment that are sent to the task that replays."""
        return {number: sent_bytes_of_segment(self.segments[number], self.chunk_bytes) for number in self.large}

    def sent_jobs(self) -> dict[int, Job | WholeUnlessLarge]:
        """The jobs for the tasks that replay."""
        sent: dict[int, Job | WholeUnlessLarge] = {}
        for number, job in self.jobs.items():
            sent[number] = job
            if number in self.large:
                sent[number] = whole_unless_large(job, self.segments[number], self.chunk_bytes)
        return sent

    def plan(self) -> ChunkPlan:
        """Each partition as one piece of work."""
        return ChunkPlan.of(self.jobs, self.segments, _listed(self.segments), sys.maxsize, TASKS_MAX)


class ReplayQuery(NamedTuple):
    """A query that has not run yet.

    Attributes:
        rows: of the segments. They are persisted if another query may need them.
        results: rows of ``RESULT_SCHEMA``, one for each partition. To take them runs the query.
        sizes_read: bytes that each task reads.
        other_tasks: further tasks of the stage that reads.
    """

    rows: DataFrame
    results: Iterator[Any]
    sizes_read: list[int]
    other_tasks: int = 0


@dataclass(frozen=True, slots=True)
class MoreReads:
    """The reads that a replay waits for.

    Attributes:
        tasks: segments to read.
    """

    tasks: list[ReadTask]


@dataclass(frozen=True, slots=True)
class SentJobs:
    """Jobs that the tasks which read send on.

    Attributes:
        jobs: by number of their partition.
        slots: by number of a partition, the task that replays it.
    """

    jobs: Mapping[int, Job | WholeUnlessLarge]
    slots: Mapping[int, int]

    def added_to(self, rows: Iterable[ReadRow]) -> Iterator[ReadRow]:
        """The rows with the task that replays them. The first one of each partition has its job."""
        sent: set[int] = set()
        for row in rows:
            number = row.partition
            job = None if number in sent else pickle.dumps(self.jobs[number])
            sent.add(number)
            yield replace(row, replayed_by=self.slots[number], job=job)


def _fail(task: PartitionTask, error: SnaprebuildError | FormatError) -> None:
    task.fail(error)
    task.settle()


def _union(frames: Sequence[TaskFrame]) -> TaskFrame:
    return reduce(lambda one, other: TaskFrame(one.rows.unionByName(other.rows), one.tasks + other.tasks), frames)


def _outcomes_of(results: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Number and outcome of each partition, from rows of ``RESULT_SCHEMA``."""
    for row in results:
        if row.done is None:
            yield row.partition, MoreReads(pickle.loads(row.wanted))  # noqa: S301  made by our own task
        else:
            yield row.partition, pickle.loads(row.done)  # noqa: S301


def _listed(requested: Mapping[int, Sequence[ReadTask]]) -> dict[tuple[int, int], int]:
    """Sizes of segments, by partition and base offset."""
    return {(number, task.base_offset): task.identity.size_bytes for number, tasks in requested.items() for task in tasks}


def _follows_an_interrupt(error: BaseException | None) -> bool:
    """Whether it was raised while an interrupt was propagating."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _reason(error: Exception) -> str:
    """The most useful line: the last one of a Python traceback, else the first one that is not py4j's."""
    lines = [OWN_ERROR.sub("", line.strip()).removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    if any("Traceback (most recent call last)" in line for line in lines):  # through Connect after other words of the same line
        lines = [line for line in lines if not line.startswith(NOT_OF_PYTHON)][-1:]
    return next((line for line in lines if not line.startswith("An error occurred while calling")), type(error).__name__)


@contextlib.contextmanager
def _settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Changes settings of a session inside the block."""
    before: dict[str, str | None] = {}
    for key, value in settings.items():
        was = session.conf.get(key, None)
        try:
            session.conf.set(key, value)
        except Exception as error:  # some servers fix their settings: the result is the same, with more memory or time
            log.debug("%s stays %s: %s", key, was, error)
        else:
            before[key] = was
    try:
        yield
    finally:
        for key, was in before.items():
            if was is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, was)


def _call(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: calls the function of each row."""
    for batch in batches:
        for row in batch.to_pylist():
            yield pa.RecordBatch.from_pylist([{"number": row["number"], "answer": answered(row["call"])}], schema=ANSWER_SCHEMA)
