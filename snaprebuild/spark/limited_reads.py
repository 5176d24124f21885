"""Runs with a limit of requests or of bytes: executors read, each task with a share, and the driver does all else.

A share has what the items of a task need, and up to a quarter more. It is taken from the budget of the run before the job begins,
and what a task reports as not used returns when the job has ended.

The needs of a segment are known. Those of other items are estimates: one that was too low is doubled for the next attempt. When nothing
fits any more, the next item gets all that is left. So such a run ends with its limit used up, as on one machine.

A task that Spark repeats cannot know what its first attempt has used. So it gets nothing: its items are handed out again, with
another share, and the first share counts as used. This holds because no attempt looks like a first one twice: the job is one stage
without a shuffle, whose rows go to the driver at once. Spark repeats such a stage task by task, and numbers the attempts.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

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

__all__ = [
    "ShareCounter",
    "SharedReads",
    "check_keeps_limits",
    "read_with_shares",
    "run_with_shares",
    "segment_needs",
    "shared_segments",
    "shares_of",
]

SEGMENTS_AT_ONCE = 1_000
"""Segments of a job that go through the driver at once."""

TASKS_MAX = 64
"""A job has no more: each task has a share, and a small share is soon used up by requests that must be repeated."""

SECOND_ATTEMPT_SECONDS = 60.0
"""How long a second attempt waits while the first one may still run, as with speculation: the first that ends counts."""

ROW_SCHEMA = pa.schema([("number", pa.int64()), ("outcome", pa.binary()), ("requests", pa.int64()), ("read_bytes", pa.int64())])
"""An item has a row with its number, and what was read or the error. A task ends with a row: its place below 0, and what it used."""

Item = TypeVar("Item")

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
class SharedReads(Generic[Item]):
    """Items that tasks read with shares.

    Attributes:
        read: reads one of them, in a task.
        items: what is read.
        needs: of each item.
        sizes: of the items in bytes, by which the tasks are packed.
        are_estimates: the needs may be wrong. Then items are read in their order, and the first one that the limit ends ends the run.
    """

    read: Callable[[Item], Any]
    items: Sequence[Item]
    needs: Sequence[Needs]
    sizes: Sequence[int]
    are_estimates: bool


def shared_segments(tasks: Sequence[ReadTask]) -> SharedReads[ReadTask]:
    """The summaries of segments. One that does not fit is left out, as in a run on one machine."""
    sizes = [task.identity.size_bytes for task in tasks]
    return SharedReads(read_segment, tasks, [segment_needs(task) for task in tasks], sizes, are_estimates=False)


def segment_needs(task: ReadTask) -> Needs:
    """The needs of a segment; nothing for one on a file system."""
    return (0, 0) if task.store.is_local else needs_of(task)


@dataclass(frozen=True, slots=True)
class _ReadShares:
    """The function of the tasks: each reads the items of its place, within its share.

    Attributes:
        read: reads an item.
        items: of the job.
        places: numbers of the items of each task.
        shares: of each task.
        waits: a second attempt may run next to the first one.
    """

    read: Callable[[Any], Any]
    items: list[Any]
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
            outcome: Any
            try:
                outcome = self.read(self.items[number])
            except Exception as error:  # of this item only
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


def read_with_shares(
    session: SparkSession, wrap: Wrap, settings: S3Settings, reads: SharedReads[Any]
) -> Generator[tuple[int, Any]]:
    """Reads items on executors, and never sends more requests or reads more bytes than the run may.

    Args:
        session: that runs the tasks.
        wrap: puts the function of the tasks under the other limits of the run.
        settings: with the limits.
        reads: the items.

    Returns:
        The number of each item, with what was read or its error: ``LimitReachedError`` if its needs are not left.
    """
    needs = list(reads.needs)
    waiting = list(range(len(needs)))
    while waiting:
        before = left_of(settings)
        chosen = _fitting(needs, waiting, before, in_order=reads.are_estimates)
        has_all_left = reads.are_estimates and not chosen
        if has_all_left:
            chosen = waiting[:1]
            needs[chosen[0]] = _all_of(before, needs[chosen[0]])
        outcomes = _job(session, wrap, settings, reads, chosen, needs) if chosen else {}
        again: list[int] = []
        is_over = False
        has_grown = False
        for number in chosen:
            outcome = outcomes.get(number)
            if isinstance(outcome, LimitReachedError) and has_all_left:
                is_over = True
            # A share may be used up before the budget is; and a task that was repeated has read nothing.
            elif isinstance(outcome, LimitReachedError | None):
                again.append(number)
                if reads.are_estimates and outcome is not None:
                    requests, read_bytes = needs[number]
                    needs[number] = 2 * requests + 1, 2 * read_bytes + 1
                    has_grown = True
                continue
            yield number, outcome
        is_over |= len(again) == len(chosen) and left_of(settings) == before and not has_grown
        taken = set(chosen)
        left_out = [number for number in waiting if number not in taken]
        waiting = again
        if reads.are_estimates:
            waiting = sorted([*again, *left_out])
            left_out = []
        if is_over:
            left_out += waiting
            waiting = []
        for number in left_out:
            yield number, _used_up(settings)


def _all_of(left: tuple[int | None, int | None], needs: Needs) -> Needs:
    """All that is left; the needs of what has no limit."""
    requests, read_bytes = left
    return needs[REQUESTS] if requests is None else requests, needs[BYTES] if read_bytes is None else read_bytes


def _used_up(settings: S3Settings) -> LimitReachedError:
    requests, _ = left_of(settings)
    if settings.max_requests is None or (requests and settings.max_read_bytes is not None):
        option = "max_read_bytes"
    else:
        option = "max_requests"
    most = settings.max_requests if option == "max_requests" else settings.max_read_bytes
    return limit_used_up(option, most)


def _fitting(needs: Sequence[Needs], waiting: Sequence[int], left: tuple[int | None, int | None], *, in_order: bool) -> list[int]:
    """Items that wait and whose needs together are left; the first ones take precedence.

    One that does not fit is left out, as a run on one machine does. Those after it may need less, and local ones need nothing.

    Args:
        needs: of all items.
        waiting: numbers of those that wait.
        left: requests and bytes that the run may still use; None for any number.
        in_order: nothing after the first one that does not fit is taken.
    """
    fitting = []
    needed: Needs = (0, 0)
    for number in waiting:
        total = _sum((needed, needs[number]))
        if all(most is None or each <= most for each, most in zip(total, left, strict=True)):
            needed = total
            fitting.append(number)
        elif in_order:
            break
    return fitting


def _job(
    session: SparkSession,
    wrap: Wrap,
    settings: S3Settings,
    reads: SharedReads[Any],
    numbers: Sequence[int],
    needs: Sequence[Needs],
) -> dict[int, Any]:
    """The outcomes of the items of one job, by number; fewer than all if a task was repeated."""
    count = min(len(numbers), TASKS_MAX)
    places: list[list[int]] = [[] for _ in range(count)]
    for at, place in enumerate(pack([reads.sizes[number] for number in numbers], count)):
        places[place].append(at)
    shares = shares_of([_sum(needs[numbers[at]] for at in place) for place in places], left_of(settings))
    limits = settings.max_requests, settings.max_read_bytes
    meter = meter_of(settings.run)
    for kind, each in enumerate(_sum(shares)):
        if limits[kind] is not None:
            meter.take(kind, each, limits[kind], OPTIONS[kind])
    items = [reads.items[number] for number in numbers]
    function = _ReadShares(reads.read, items, places, shares, waits=is_speculative(session))
    outcomes: dict[int, Any] = {}
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
