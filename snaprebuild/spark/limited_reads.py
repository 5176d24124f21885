"""Runs with a limit of requests or of bytes: executors read the segments, each task with a share, and the driver does all else.

A share has what the segments of a task need, and up to a quarter more. It is taken from the budget of the run before the job begins,
and what a task reports as not used returns when the job has ended.

A task that Spark repeats cannot know what its first attempt has used. So it gets nothing: its segments are handed out again, with
another share, and the first share counts as used. This holds because no attempt looks like a first one twice: the job is one stage
without a shuffle, whose rows go to the driver at once. Spark repeats such a stage task by task, and numbers the attempts.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from formats.errors import FormatError
from snaprebuild.errors import LimitReachedError, SnaprebuildError, UsageError
from snaprebuild.snapshots.engine.partition_task import PartitionTask, ReadBudget, ReadGroup, TaskQueue, hand_out, to_domain_error
from snaprebuild.snapshots.engine.segment_reader import Pieces, ReadTask, read_segment
from snaprebuild.spark.arrow_tables import ddl
from snaprebuild.spark.packing import pack
from snaprebuild.spark.run_limits import Needs, check_limits, left_of, needs_of
from snaprebuild.spark.session import is_remote
from snaprebuild.spark.task_services import is_speculative
from snaprebuild.storage.s3.request_limits import BYTES, OPTIONS, REQUESTS, limit_used_up, meter_of, meters
from snaprebuild.storage.store import S3Settings

__all__ = ["ShareCounter", "check_keeps_limits", "read_with_shares", "run_with_shares", "shares_of"]

SEGMENTS_AT_ONCE = 1_000
"""Segments of a job that go through the driver at once."""

TASKS_MAX = 64
"""A job has no more: each task has a share, and a small share is soon used up by requests that must be repeated."""

SECOND_ATTEMPT_SECONDS = 60.0
"""How long a second attempt waits while the first one may still run, as with speculation: the first that ends counts."""

ROW_SCHEMA = pa.schema([("number", pa.int64()), ("outcome", pa.binary()), ("requests", pa.int64()), ("read_bytes", pa.int64())])
"""A segment has a row with its number, and what was read or the error. A task ends with a row: its place below 0, and what it used."""

Outcome = Pieces | SnaprebuildError | FormatError

Wrap = Callable[[Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], int], Any]
"""``TaskServices.wrap``."""


class ShareCounter:
    """Counts the requests and bytes of a task against its share (``request_limits.Counter``)."""

    def __init__(self, share: Needs) -> None:
        """Begins with nothing used."""
        self._left = list(share)
        self._used = [0, 0]
        self._lock = threading.Lock()

    def __call__(self, run: str, kind: int, count: int, most: int, option: str) -> None:
        """Counts what is about to be requested.

        Raises:
            LimitReachedError: it is more than what is left of the share.
        """
        with self._lock:
            if count > self._left[kind]:
                raise limit_used_up(option, most)
            self._left[kind] -= count
            self._used[kind] += count

    def end(self) -> Needs:
        """Takes what is left: a thread that is late requests nothing more. Returns what was used."""
        with self._lock:
            self._left = [0, 0]
            return self._used[REQUESTS], self._used[BYTES]


@dataclass(frozen=True, slots=True)
class _ReadShares:
    """The function of the tasks: each reads the segments of its place, within its share.

    Attributes:
        reads: all segments.
        places: numbers of the segments of each task.
        shares: of each task.
        waits: a second attempt may run next to the first one.
    """

    reads: list[ReadTask]
    places: list[list[int]]
    shares: list[Needs]
    waits: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                yield from self._task(place)

    def _task(self, place: int) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            if self.waits:
                time.sleep(SECOND_ATTEMPT_SECONDS)
            return
        counter = ShareCounter(self.shares[place])
        meters.counter = counter
        for number in self.places[place]:
            outcome: Outcome
            try:
                outcome = read_segment(self.reads[number])
            except Exception as error:  # of this segment only
                outcome = to_domain_error(error)
            yield _row(number, pickle.dumps(outcome), (0, 0))
        yield _row(-1 - place, b"", counter.end())


def _row(number: int, outcome: bytes, used: Needs) -> pa.RecordBatch:
    row = {"number": number, "outcome": outcome, "requests": used[0], "read_bytes": used[1]}
    return pa.RecordBatch.from_pylist([row], schema=ROW_SCHEMA)


def shares_of(needs: Sequence[Needs], left: tuple[int | None, int | None]) -> list[Needs]:
    """The share of each task: what it needs, and a quarter more as far as that is left.

    Args:
        needs: of each task; together they are not more than what is left.
        left: requests and bytes that the run may still use; None for any number.
    """
    columns = []
    for kind in (REQUESTS, BYTES):
        needed = [each[kind] for each in needs]
        spare = [each // 4 + 2 for each in needed]
        most = left[kind]
        if most is not None:
            room = most - sum(needed)
            wanted = sum(spare)
            if wanted > room:
                spare = [each * room // wanted for each in spare]
        columns.append([need + more for need, more in zip(needed, spare, strict=True)])
    return list(zip(*columns, strict=True))


def check_keeps_limits(session: SparkSession) -> None:
    """Makes sure that no share can be used twice.

    A client of Spark Connect that loses its connection may send a job again. To the tasks of the second job it is their first attempt.

    Args:
        session: that would run the tasks.

    Raises:
        UsageError: it is one of Spark Connect.
    """
    if is_remote(session):
        raise UsageError(
            "max_requests and max_read_bytes cannot be kept with Spark Connect: it may run a job twice; leave them out"
        )


def read_with_shares(session: SparkSession, wrap: Wrap, settings: S3Settings, reads: Sequence[ReadTask]) -> list[Outcome]:
    """Reads segments on executors, and never sends more requests or reads more bytes than the run may.

    Args:
        session: that runs the tasks.
        wrap: puts the function of the tasks under the other limits of the run.
        settings: with the limits.
        reads: segments.

    Returns:
        What was read of each, or its error: ``LimitReachedError`` if its needs are not left.
    """
    outcomes: dict[int, Outcome] = {}
    waiting = list(range(len(reads)))
    while waiting:
        before = left_of(settings)
        fitting = _fitting(reads, waiting, before)
        taken = set(fitting)
        if fitting:
            outcomes |= _job(session, wrap, settings, reads, fitting)
        # A share may be used up before the budget is; and a task that was repeated has read nothing.
        again = [number for number in fitting if isinstance(outcomes.get(number), LimitReachedError | None)]
        is_stuck = len(again) == len(fitting) and left_of(settings) == before
        for number in waiting:
            if is_stuck or number not in taken:
                outcomes.setdefault(number, _used_up(settings))
        waiting = [] if is_stuck else again
    return [outcomes[number] for number in range(len(reads))]


def _used_up(settings: S3Settings) -> LimitReachedError:
    requests, _ = left_of(settings)
    if settings.max_requests is None or (requests and settings.max_read_bytes is not None):
        option = "max_read_bytes"
    else:
        option = "max_requests"
    most = settings.max_requests if option == "max_requests" else settings.max_read_bytes
    return limit_used_up(option, most)


def _fitting(reads: Sequence[ReadTask], waiting: Sequence[int], left: tuple[int | None, int | None]) -> list[int]:
    """Segments that wait and whose needs together are left; the first ones take precedence.

    One that does not fit is left out, as a run on one machine does. Those after it may need less, and local ones need nothing.
    """
    fitting = []
    needed: Needs = (0, 0)
    for number in waiting:
        total = _sum((needed, _needs(reads[number])))
        if all(most is None or each <= most for each, most in zip(total, left, strict=True)):
            needed = total
            fitting.append(number)
    return fitting


def _needs(task: ReadTask) -> Needs:
    return (0, 0) if task.store.is_local else needs_of(task)


def _job(
    session: SparkSession, wrap: Wrap, settings: S3Settings, reads: Sequence[ReadTask], numbers: Sequence[int]
) -> dict[int, Outcome]:
    """The outcomes of the tasks of one job, by number; fewer than all if a task was repeated."""
    count = min(len(numbers), TASKS_MAX)
    places: list[list[int]] = [[] for _ in range(count)]
    for at, place in enumerate(pack([reads[number].identity.size_bytes for number in numbers], count)):
        places[place].append(at)
    here = [reads[number] for number in numbers]
    shares = shares_of([_sum(_needs(here[at]) for at in place) for place in places], left_of(settings))
    limits = settings.max_requests, settings.max_read_bytes
    meter = meter_of(settings.run)
    for kind, each in enumerate(_sum(shares)):
        if limits[kind] is not None:
            meter.take(kind, each, limits[kind], OPTIONS[kind])
    function = _ReadShares(here, places, shares, waits=is_speculative(session))
    outcomes: dict[int, Outcome] = {}
    # Partitions without a shuffle before them, as the docstring of this module needs them.
    for row in session.range(0, count, 1, count).mapInArrow(wrap(function, count), ddl(ROW_SCHEMA)).collect():
        if row.number >= 0:
            outcomes[numbers[row.number]] = pickle.loads(row.outcome)  # noqa: S301  made by our own task
            continue
        share = shares[-1 - row.number]
        for kind, used in enumerate((row.requests, row.read_bytes)):
            if limits[kind] is not None:
                meter.give_back(kind, share[kind] - used)
    return outcomes


def _sum(needs: Iterable[Needs]) -> Needs:
    requests = 0
    read_bytes = 0
    for each in needs:
        requests += each[REQUESTS]
        read_bytes += each[BYTES]
    return requests, read_bytes


def run_with_shares(
    tasks: Sequence[PartitionTask],
    settings: S3Settings,
    read: Callable[[Sequence[ReadTask]], Sequence[Outcome]],
) -> None:
    """Runs tasks to completion in this process, which replays, compares and writes. A failure of one does not stop the others.

    Args:
        tasks: of partitions.
        settings: with the limits of the run.
        read: reads segments on executors (``read_with_shares``).
    """
    queues = [TaskQueue(task) for task in tasks]
    for queue in queues:
        queue.refill()
    try:
        check_limits(settings, (each for queue in queues for each in queue.waiting), tasks)
    except LimitReachedError as error:
        for queue in queues:
            if not queue.is_over:
                queue.fail(error)
    while groups := _next_groups(queues):
        hand_out(groups, list(read([each for group in groups for each in group.segments])))
        for queue in queues:
            queue.waits_again()


def _next_groups(queues: Sequence[TaskQueue]) -> list[ReadGroup]:
    groups: list[ReadGroup] = []
    for queue in queues:
        while len(groups) < SEGMENTS_AT_ONCE and (group := queue.next_group(ReadBudget())) is not None:
            groups.append(group)
    return groups
