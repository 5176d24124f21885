"""Works carried out by Spark: tasks that read segments, then tasks that put the summaries of each partition together.

The rows of a partition meet in one task, or in one for each of its chunks (``chunks``), ordered as the log is; it replays, compares and
writes as a run on one machine does, with the same code, and keeps no more of it. Where a replay asks for segments further back, another
round reads them.
"""

from __future__ import annotations

import logging
import math
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from formats.errors import FormatError
from snaprebuild.errors import RefusedError, SnaprebuildError, StorageError
from snaprebuild.snapshots.engine.schedule import Job, ReadTask, Tell, TellingJob, Work, read_range, read_segment, told
from snaprebuild.spark import read_rows, summary_rows
from snaprebuild.spark.arrow_tables import data_frame, ddl
from snaprebuild.spark.chunks import CHUNK_BYTES, Cut, may_be_cut, may_go_back, measured, put_together
from snaprebuild.spark.counts import Counts, Progress, counted
from snaprebuild.spark.driver_channel import Caller, DriverLine, listening
from snaprebuild.spark.effect_cache import Keeping
from snaprebuild.spark.effect_files import Effects, Keeper
from snaprebuild.spark.packing import TASK_BYTES_MAX, TASK_BYTES_MIN, packed_slots
from snaprebuild.spark.read_rows import ReadRow, ranges_of
from snaprebuild.spark.run_limits import check_limits, settings_of
from snaprebuild.spark.summary_rows import Row

__all__ = ["SparkEngine"]

log = logging.getLogger(__name__)

TASKS_PER_CORE = 4
"""So that a core that is done early takes over from one that is late."""

RANGES_PER_TASK = 2
"""At least, where segments can be split: what the fullest task has is then at most half as much again as the mean."""

WAVE_SEGMENTS_MAX = 50_000
"""Segments whose tasks go through the driver at once: some 100 MB (scripts/scale_model.py)."""

SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(summary_rows.ROWS_PER_BATCH),
    # Tasks are packed by bytes already: to plan each stage anew when the one before it has ended only takes time.
    "spark.sql.adaptive.enabled": "false",
}
"""While our jobs run."""

CALL_SCHEMA = pa.schema([("slot", pa.int64()), ("number", pa.int64()), ("call", pa.binary())])
ANSWER_SCHEMA = pa.schema([("number", pa.int64()), ("answer", pa.binary())])
"""A function with its argument, and what it returned; by number."""

Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Brings works to their ends with the executors of a Spark session; see ``schedule.Engine``.

    Attributes:
        session: which must be able to import this package in its Python workers.
        progress: told what was done so far, and the bytes since it was told last; by a thread of its own.
        chunk_bytes: a partition whose rows of summaries take more is replayed in chunks of so much, where that can be.
        effects: where what closed segments gave is kept, so that another run need not read them; None for nowhere.
    """

    session: SparkSession
    progress: Progress | None = None
    chunk_bytes: int = CHUNK_BYTES
    effects: Effects | None = None

    def __call__(self, works: Sequence[Work]) -> None:
        """Carries out all works. A failure of one does not stop the others."""
        wave: list[tuple[Work, list[ReadTask]]] = []
        segments = 0
        for work in works:
            tasks = self._first_tasks(work)
            if not tasks:
                continue
            if wave and segments + len(tasks) > WAVE_SEGMENTS_MAX:
                self._carry_out(wave)
                wave, segments = [], 0
            wave.append((work, tasks))
            segments += len(tasks)
        if wave:
            self._carry_out(wave)

    def each(self, function: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
        """As ``storage.parallel_map.Each``: what the function does is done by tasks.

        Raises:
            StorageError: the job failed.
        """
        if not items:
            return []
        count = min(len(items), TASKS_PER_CORE * self.session.sparkContext.defaultParallelism)
        rows = [pickle.dumps((function, item)) for item in items]
        placed = packed_slots([len(row) for row in rows], count)
        table = pa.Table.from_pydict({"slot": placed, "number": range(len(rows)), "call": rows}, schema=CALL_SCHEMA)
        try:
            with listening(self.session.sparkContext) as line:
                sent = data_frame(self.session, table).repartition(count, "slot")
                found = sent.mapInArrow(line.around(_call), ddl(ANSWER_SCHEMA)).collect()
        except Exception as error:
            raise self._failure(error) from error
        answers = [pickle.loads(row.answer) for row in sorted(found, key=lambda row: row.number)]  # noqa: S301  of our own tasks
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def _first_tasks(self, work: Work) -> list[ReadTask]:
        try:
            tasks = work.tasks()
            if not tasks:
                work.finish()
        except Exception as error:  # it ends this partition and no other
            work.fail(told(error))
            return []
        return tasks

    def _carry_out(self, wave: list[tuple[Work, list[ReadTask]]]) -> None:
        works = [work for work, _ in wave]
        open_works = set(range(len(works)))
        try:
            with listening(self.session.sparkContext, lambda number, said: works[number].hear(said)) as line:
                for number, done in self._rounds(works, dict(enumerate(tasks for _, tasks in wave)), line):
                    open_works.discard(number)
                    try:
                        if isinstance(done, Exception):
                            raise done
                        works[number].adopt(done)
                    except (SnaprebuildError, FormatError) as error:
                        works[number].fail(error)
        except Exception as error:  # of the job as a whole
            failure = self._failure(error)
            for number in sorted(open_works):
                works[number].fail(failure)

    def _failure(self, error: Exception) -> RefusedError | StorageError:
        """Why a job as a whole failed: an executor that dies again and again, a session that was stopped; or was not begun.

        Raises:
            KeyboardInterrupt: it was interrupted. What was then to be tidied up with Java found its connection in the middle of a call.
        """
        if _is_behind_an_interrupt(error):
            raise KeyboardInterrupt from error
        if isinstance(error, RefusedError | StorageError):
            return error
        log.debug("the Spark job failed", exc_info=error)
        context = self.session.sparkContext
        reason = "the session was stopped" if context._jsc is None else _reason(error)
        if missing := re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", reason):
            needs = "it needs the dependencies of snaprebuild (docs/guides/spark.md)"
            reason = f"the Python of an executor ({context.pythonExec}) has no module {missing[1]}: {needs}"
        return StorageError(f"the Spark job failed: {reason}")

    def _rounds(self, works: list[Work], wanted: dict[int, list[ReadTask]], line: DriverLine) -> Iterator[tuple[int, Any]]:
        """Number and outcome of each work, as they come."""
        held: list[DataFrame] = []
        settings = _Settings(self.session, SETTINGS)
        given: set[tuple[int, int]] = set()
        most = TASKS_PER_CORE * self.session.sparkContext.defaultParallelism
        keeping = None if self.effects is None else Keeping(self.session, self.effects)
        with settings, counted(self.session.sparkContext, self.progress) as counts:
            try:
                while wanted:
                    unread, kept = (wanted, []) if keeping is None else keeping.split(wanted, most)
                    jobs = {number: _telling(works[number].job(), Caller(line, number)) for number in sorted(wanted)}
                    check_limits((task for tasks in unread.values() for task in tasks), jobs.values())
                    is_large = any(may_be_cut(job, wanted[number], self.chunk_bytes) for number, job in jobs.items())
                    frames = [self._read(unread, line, counts, None if keeping is None else keeping.keeper)] if unread else []
                    if keeping is not None and kept:
                        frames.append(keeping.frame(kept, most, read=_read_row, counts=counts, line=line))
                    read = _together(frames)
                    if is_large or any(map(may_go_back, jobs.values())):
                        held.append(read.persist())
                    sizes = measured(read) if is_large else _listed(wanted)
                    cut = Cut.of(jobs, wanted, sizes, self.chunk_bytes if is_large else sys.maxsize, most)
                    rows = _together(held or [read])
                    given |= {(number, task.base_offset) for number, tasks in wanted.items() for task in tasks}
                    wanted = {}
                    for row in put_together(self.session, jobs, rows, cut, most, counts, line):
                        if row.done is None:
                            wanted[row.partition] = pickle.loads(row.wanted)  # noqa: S301  made by our own task
                            if any((row.partition, task.base_offset) in given for task in wanted[row.partition]):
                                del wanted[row.partition]  # nothing would ever end
                                yield row.partition, StorageError("what was read of a segment did not arrive")
                        else:
                            yield row.partition, pickle.loads(row.done)  # noqa: S301
            finally:
                for frame in held:
                    frame.unpersist()
                if keeping is not None:
                    keeping.tell()

    def _read(
        self,
        wanted: dict[int, list[ReadTask]],
        line: DriverLine,
        counts: Counts,
        makes_keeper: Callable[[], Keeper] | None,
    ) -> DataFrame:
        size_bytes = sum(task.identity.size_bytes for tasks in wanted.values() for task in tasks)
        cores = self.session.sparkContext.defaultParallelism
        target_bytes = min(max(math.ceil(size_bytes / (TASKS_PER_CORE * cores)), TASK_BYTES_MIN), TASK_BYTES_MAX)
        range_bytes = -(-target_bytes // RANGES_PER_TASK)
        rows = [
            row
            for number, tasks in wanted.items()
            for task in tasks
            for row in ranges_of(number, task, range_bytes, is_counted=_is_counted(task))
        ]
        tasks = max(1, min(len(rows), max(math.ceil(size_bytes / target_bytes), cores)))
        table = read_rows.table_of(rows, packed_slots([row.size_bytes for row in rows], tasks))
        function = line.around(partial(_read_segments, counts=counts, makes_keeper=makes_keeper))
        return data_frame(self.session, table).repartition(tasks, "slot").mapInArrow(function, ddl(summary_rows.SCHEMA))


def _telling(job: Job, tell: Tell) -> Job:
    return job.telling(tell) if isinstance(job, TellingJob) else job


def _is_counted(task: ReadTask) -> bool:
    settings = settings_of(task.store)
    return settings is not None and settings.max_requests is not None


def _together(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames)


def _listed(wanted: dict[int, list[ReadTask]]) -> dict[tuple[int, int], int]:
    """Sizes of segments, by partition and base offset."""
    return {(number, task.base_offset): task.identity.size_bytes for number, tasks in wanted.items() for task in tasks}


def _is_behind_an_interrupt(error: BaseException | None) -> bool:
    """Whether it was raised while an interrupt was on its way up."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _reason(error: Exception) -> str:
    """The line that tells most: the last one of a traceback of Python, else the first one that is not py4j's."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        lines = [line for line in lines if not line.startswith(("at ", "...", "Caused by:", "Driver stacktrace:"))][-1:]
    return next((line for line in lines if not line.startswith("An error occurred while calling")), type(error).__name__)


class _Settings:
    """Settings of a session for a while."""

    def __init__(self, session: SparkSession, settings: dict[str, str]) -> None:
        self._session, self._settings = session, settings
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> None:
        for key, value in self._settings.items():
            self._before[key] = self._session.conf.get(key, None)
            self._session.conf.set(key, value)

    def __exit__(self, *_: object) -> None:
        for key, value in self._before.items():
            if value is None:
                self._session.conf.unset(key)
            else:
                self._session.conf.set(key, value)


def _read_segments(
    batches: Iterable[pa.RecordBatch], counts: Counts, makes_keeper: Callable[[], Keeper] | None = None
) -> Iterator[pa.RecordBatch]:
    """In a task: reads each segment that a row names, and keeps what that gave where it is asked for."""
    keeper = None if makes_keeper is None else makes_keeper()
    for batch in batches:
        for row in read_rows.rows_of(batch):
            rows = _read_row(row)
            if keeper is not None:
                keeper.add(row.task, rows)
            counts.add(segments=int(row.number == 0), size_bytes=row.size_bytes)
            yield from summary_rows.batches_of(rows)
    if keeper is not None:
        keeper.close()


def _read_row(row: ReadRow) -> list[Row]:
    try:
        if row.ranges == 1:
            return list(summary_rows.rows_of_pieces(row.partition, read_segment(row.task)))
        return list(summary_rows.rows_of_range(row.partition, row.number, read_range(row.task, row.number, row.ranges)))
    except Exception as error:  # of this segment alone
        return list(summary_rows.rows_of_error(row.partition, row.task.base_offset, row.number, told(error)))


def _call(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: calls what each row holds."""
    for batch in batches:
        for row in batch.to_pylist():
            function, item = pickle.loads(row["call"])  # noqa: S301  made by our own driver
            try:
                answer = function(item)
            except Exception as error:  # raised by the driver, as if it had been called there
                answer = told(error)
            yield pa.RecordBatch.from_pylist([{"number": row["number"], "answer": pickle.dumps(answer)}], schema=ANSWER_SCHEMA)
