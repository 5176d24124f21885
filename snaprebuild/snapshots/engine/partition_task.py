"""One partition as a task: it asks for segments, takes their summaries in order, and collects an outcome.

Local runs (``schedule``) and Spark (``spark.partition_jobs``) drive the same tasks. A task that can run in another process has a ``Job``,
a value that is sent there and starts the task anew; what returns is the outcome. In local runs the segments of each task wait in a
``TaskQueue``: several small ones are read together, and their summaries are taken in order.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from formats.errors import FormatError
from snaprebuild.errors import (
    GoneFileError,
    GonePartitionError,
    LimitReachedError,
    OutOfMemoryError,
    SnaprebuildError,
    StorageError,
)
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.shell_words import absent_package_text
from snaprebuild.snapshots.engine.crosscheck import CrossCheck, segment_findings
from snaprebuild.snapshots.engine.first_snapshot import contradiction
from snaprebuild.snapshots.engine.partition_replay import BoundaryState, PartitionReplay
from snaprebuild.snapshots.engine.segment_reader import Outcomes, Pieces, Read, ReadTask
from snaprebuild.snapshots.run import NO_CACHE_HITS, CacheHits
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.io_limits.policy import current_limits
from snaprebuild.storage.store import ReadStore
from snaprebuild.storage.thread_pool import ThreadPool

if TYPE_CHECKING:
    from snaprebuild.snapshots.engine.index_check import IndexTally

__all__ = [
    "CachedSummary",
    "Engine",
    "Job",
    "PartitionTask",
    "Progress",
    "ProgressStoppedError",
    "ReadBudget",
    "ReadGroup",
    "Reads",
    "ReplayTask",
    "TaskOutcome",
    "TaskQueue",
    "hand_out",
    "next_groups",
    "run_here",
    "run_tasks_here",
    "to_domain_error",
]

log = logging.getLogger(__name__)

Progress = Callable[[str, int], None]
"""Called with the topic-partition and the bytes of a segment that was taken."""


class ProgressStoppedError(BaseException):
    """The caller stops the run by an error of its ``Progress``, which is the cause.

    It is no ``Exception``: an error of a partition ends that partition and no other.
    """


Reads = Callable[[Sequence[int]], list[ReadTask]]
"""``segment_reader.read_tasks`` with its arguments but the indices of the segments."""


class CachedSummary(SegmentSummary, frozen=True):
    """The summary of a segment of which this many bytes were not read, because an earlier run kept their effect."""

    bytes_cached: int = 0


class TaskOutcome(msgspec.Struct):
    """The result of a task. It is the same value wherever the task ran, and can be pickled.

    Attributes:
        read_bytes: of segments.
        ended: why the replay ended early; None if it did not.
        limit: the limit of the run that ended it, in words; None for none.
        lost_file: it ended because the broker deleted a file of the listing. The partition is still there.
    """

    findings: list[Finding] = msgspec.field(default_factory=list)
    read_bytes: int = 0
    cache_hits: CacheHits = NO_CACHE_HITS
    ended: str | None = None
    limit: str | None = None
    lost_file: bool = False

    def add_error(self, error: SnaprebuildError | FormatError, path: str) -> None:
        """Adds the finding of an error that ended the work on the partition, and keeps of which kind it was."""
        self.findings.append(finding_of_error(error, path))
        if isinstance(error, GoneFileError) and not isinstance(error, GonePartitionError):
            self.lost_file = True
        if isinstance(error, LimitReachedError):
            self.limit = error.message

    def add(self, part: Any) -> None:
        """Adds the outcome of the next part of the partition."""
        self.findings += part.findings
        self.read_bytes += part.read_bytes
        self.cache_hits += part.cache_hits
        self.ended = self.ended or part.ended
        self.limit = self.limit or part.limit
        self.lost_file = self.lost_file or part.lost_file


class PartitionTask:
    """The segments of one partition, read once and in order. Subclasses give it a purpose.

    Attributes:
        device: number of the device that holds the partition.
        reader: a function of a module that reads segments, and gives what ``take`` takes; None for summaries.
        outcome: what was found so far.
    """

    device = 0
    reader: Read | None = None
    outcome: TaskOutcome

    def __init__(self, source: PartitionSource, outcome: TaskOutcome, reads: Reads, progress: Progress | None = None) -> None:
        """Takes the partition, an empty outcome, and how segments are read."""
        self.device = source.directory.device
        self.source = source
        self.path = source.directory.path
        self.outcome = outcome
        self._reads = reads
        self._progress = progress
        self._order: list[int] | None = None
        self._taken = 0
        self._index_tally: IndexTally | None = None

    def tasks(self) -> list[ReadTask]:
        """The next segments to read, in order. Asked again when all were taken; empty at the end."""
        self._order = self.next_segments(is_first=self._order is None)
        self._taken = 0
        return self._reads(self._order)

    def next_segments(self, *, is_first: bool) -> list[int]:
        """Indices of the next segments to read: by default all, once."""
        return list(range(len(self.source.directory.segments))) if is_first else []

    def take(self, summary: SegmentSummary) -> bool:
        """Takes the summary of the next segment, or of the next piece of a cut one. False when no more are wanted."""
        assert self._order is not None
        index = self._order[self._taken]
        self._taken += summary.cut_offset is None
        self.outcome.read_bytes += summary.read_bytes
        if isinstance(summary, CachedSummary):
            self.outcome.cache_hits = self.outcome.cache_hits.with_segment(summary.bytes_cached)
        self.outcome.findings += self.segment_findings(index, summary)
        wants_more = self.take_segment(index, summary)
        if self._progress is not None:
            self._progress(self.source.directory.topic_partition, summary.size_bytes)
        return wants_more

    def segment_findings(self, index: int, summary: SegmentSummary) -> list[Finding]:
        """Findings of damage in a segment, or in its indexes."""
        return [*segment_findings(self.source, index, summary), *self.index_findings(index, summary)]

    def index_findings(self, index: int, summary: SegmentSummary) -> list[Finding]:
        """Findings of damage in the indexes of a copy in remote storage."""
        if not self.source.directory.segments[index].has_checked_indexes:
            return []
        if self._index_tally is None:
            from snaprebuild.snapshots.engine.index_check import IndexTally  # needed for remote storage alone

            self._index_tally = IndexTally(self.source.directory)
        return self._index_tally.take(index, summary)

    def take_segment(self, index: int, summary: SegmentSummary) -> bool:
        """Takes a segment, or a piece of it. False when no more are wanted."""
        raise NotImplementedError

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        """A segment could not be read, or taking it failed; nothing follows."""
        self.outcome.add_error(error, self.path)

    def finish(self) -> None:
        """Everything was taken."""

    def settle(self) -> None:
        """Called after ``finish`` or ``fail``, with the outcome of the whole partition even if its parts ran apart."""

    def needs(self) -> tuple[int, int] | None:
        """Requests and bytes that an object store is asked for besides the segments; None if unknown."""
        return None

    def stores(self) -> tuple[ReadStore, ...]:
        """The stores that this task reads and writes."""
        return (self.source.directory.store,)

    def job(self) -> Job:
        """This task for another process."""
        raise NotImplementedError

    def adopt(self, outcome: Any) -> None:
        """Takes the outcome of the job. The task is finished.

        Raises:
            SnaprebuildError: the receipt cannot be written.
        """
        raise NotImplementedError


class ReplayTask(PartitionTask):
    """A partition that is replayed: segments are asked for as the evidence needs them. Subclasses take the boundaries.

    Attributes:
        replay: of the partition.
        cross: compares files on disk with the replay.
        lost_above_damage: ends the finding about damage that no replay gets past; empty for no finding.
    """

    lost_above_damage = ""

    def __init__(
        self,
        source: PartitionSource,
        outcome: TaskOutcome,
        reads: Reads,
        replay: PartitionReplay,
        progress: Progress | None = None,
    ) -> None:
        """Takes a replay that has not begun."""
        super().__init__(source, outcome, reads, progress)
        self.replay = replay
        self.cross = CrossCheck(source, replay.clock)

    def tasks(self) -> list[ReadTask]:
        """The next segments to read, with their first events if a snapshot at the first offset must be judged."""
        tasks = super().tasks()
        if self.replay.judges_base:
            return [replace(task, with_first_events=True) for task in tasks]
        return tasks

    def next_segments(self, *, is_first: bool) -> list[int]:
        """The segments that the replay needs next."""
        return self.replay.begin() if is_first else self.replay.more()

    def take_segment(self, index: int, summary: SegmentSummary) -> bool:
        """Hands out the boundaries that a segment, or a piece of it, settles."""
        for state in self.replay.take(index, summary):
            self.boundary(state)
        return self.replay.damage is None

    def finish(self) -> None:
        """Hands out the boundaries that waited for later segments, and reports damage."""
        for state in self.replay.finish():
            self.boundary(state)
        self.replay.release()
        first = self.replay.first_snapshot
        contradicted = None if first is None else contradiction(self.source.directory, first)
        if contradicted is not None:
            self.outcome.findings.append(contradicted)
        damage = self.replay.damage
        if damage is None:
            return
        self.outcome.ended = damage.reason
        if self.lost_above_damage:
            message = f"{damage.reason}: {self.lost_above_damage}"
            finding = Finding(
                "damaged-segment",
                Severity.DAMAGED,
                self.path,
                message,
                damage.offset,
                is_unread=True,
                cause=FindingCause.BROKEN_BATCHES,
            )
            self.outcome.findings.append(finding)

    def boundary(self, state: BoundaryState) -> None:
        """Called with each boundary."""
        raise NotImplementedError


Engine = Callable[[Sequence[PartitionTask]], None]
"""Runs tasks to completion, on this machine or on a cluster."""


class Job(ABC):
    """A task as a value. It may run more than once: what an earlier attempt has written counts as written."""

    __slots__ = ()

    @abstractmethod
    def started(
        self, replay: PartitionReplay | None = None, threads: ThreadPool | None = None
    ) -> AbstractContextManager[PartitionTask]:
        """The task with an empty outcome.

        Args:
            replay: of a part of the partition (``PartitionReplay.part``); None for the whole.
            threads: that write files; they outlive the task. None for threads of its own.
        """

    def replay(self) -> PartitionReplay | None:
        """The replay of the whole partition, not yet begun; None if the task must not be split into chunks."""
        return None

    def read_tasks(self, indices: Sequence[int]) -> list[ReadTask]:
        """The tasks of these segments, as the task asks for them."""
        raise NotImplementedError


def to_domain_error(error: Exception) -> SnaprebuildError | FormatError:
    """Any error as one that a partition may end with."""
    if isinstance(error, SnaprebuildError | FormatError):
        return error
    log.debug("unforeseen", exc_info=error)
    if isinstance(error, MemoryError):
        if current_limits().io.max_memory_bytes is None:
            return OutOfMemoryError("out of memory")
        return OutOfMemoryError("out of memory: max_memory leaves no more for it")
    if isinstance(error, ModuleNotFoundError):
        return StorageError(absent_package_text(error))
    return SnaprebuildError(f"unforeseen {type(error).__name__}: {error}")


GROUP_BYTES_MAX = 1 << 20
GROUP_SEGMENTS_MAX = 32
"""Handing a segment to a worker costs some tenths of a millisecond, in which it reads several small ones."""


class ReadGroup(msgspec.Struct, eq=False):
    """Consecutive segments of a partition that are read together, and the results, once they are there."""

    queue: TaskQueue
    segments: list[ReadTask]
    outcomes: Outcomes | None = None


class ReadBudget(msgspec.Struct):
    """How many more segments are read together. The first one always is."""

    segments: int = msgspec.field(default_factory=lambda: GROUP_SEGMENTS_MAX)
    size_bytes: int = GROUP_BYTES_MAX
    is_untouched: bool = True

    def takes(self, task: ReadTask) -> bool:
        """Whether a segment fits, which then uses its share."""
        fits = self.segments > 0 and task.identity.size_bytes <= self.size_bytes and task.store.is_local
        if not fits and not self.is_untouched:
            return False
        # Requests to a store wait: as many workers as possible should wait at the same time.
        self.segments = self.segments - 1 if task.store.is_local else 0
        self.size_bytes -= task.identity.size_bytes
        self.is_untouched = False
        return True


class TaskQueue:
    """The segments of a task: waiting, and in flight or read, but not yet taken because an earlier one is in flight."""

    def __init__(self, task: PartitionTask) -> None:
        self.task = task
        self.waiting: deque[ReadTask] = deque()
        self.in_flight: deque[ReadGroup] = deque()
        self.is_over = False

    def refill(self) -> None:
        """Asks for the next segments once everything was taken."""
        if self.is_over or self.waiting or self.in_flight:
            return
        try:
            self.waiting.extend(self.task.tasks())
            if not self.waiting:
                self.finish()
        except Exception as error:
            self.fail(error)

    def finish(self) -> None:
        """Everything that is wanted was taken."""
        self.stop()
        self.task.finish()
        self.task.settle()

    def fail(self, error: Exception) -> None:
        """Any error ends this partition and no other."""
        self.stop()
        self.task.fail(to_domain_error(error))
        self.task.settle()

    def stop(self) -> None:
        """Nothing more is read or taken."""
        self.is_over = True
        self.waiting.clear()
        self.in_flight.clear()

    def take(self, outcome: Pieces | Exception) -> None:
        """Takes the next segment."""
        if isinstance(outcome, Exception):
            self.fail(outcome)
            return
        try:
            if not all(map(self.task.take, outcome)):
                self.finish()
        except Exception as error:
            self.fail(error)

    def take_ready(self) -> None:
        """Takes what was read up to the first segment that was not."""
        while self.in_flight and (outcomes := self.in_flight[0].outcomes) is not None:
            self.in_flight.popleft()
            for outcome in outcomes:
                if not self.is_over:
                    self.take(outcome)

    def waits_again(self) -> bool:
        """Takes what was read, and asks for more. True if segments wait again, and none did before."""
        was_waiting = bool(self.waiting)
        self.take_ready()
        self.refill()
        return bool(self.waiting) and not was_waiting

    def next_group(self, budget: ReadBudget) -> ReadGroup | None:
        """The next segments that wait and that the budget takes; None without any."""
        segments = []
        while self.waiting and budget.takes(self.waiting[0]):
            segments.append(self.waiting.popleft())
        if not segments:
            return None
        group = ReadGroup(self, segments)
        self.in_flight.append(group)
        return group

    def opened(self, group: ReadGroup) -> list[ReadGroup]:
        """The segments of a group, each in a group of its own, in its place."""
        singles = [ReadGroup(self, [each]) for each in group.segments]
        place = self.in_flight.index(group)
        self.in_flight.remove(group)
        for each in reversed(singles):
            self.in_flight.insert(place, each)
        return singles


def run_tasks_here(tasks: Iterable[PartitionTask], read: Read) -> None:
    """Runs tasks in this process.

    Args:
        tasks: that have not begun.
        read: gives for each segment what the tasks take.
    """
    queues = [TaskQueue(task) for task in tasks]
    for queue in queues:
        queue.refill()
    run_here(queues, read)


def run_here(queues: Iterable[TaskQueue], read: Read) -> None:
    """Reads everything in this process."""
    waiting = deque(queues)
    while waiting:
        groups = next_groups(waiting, ReadBudget())
        hand_out(groups, read([each for group in groups for each in group.segments]))
        for group in reversed(groups):
            if group.queue.waits_again():
                waiting.appendleft(group.queue)


def next_groups(waiting: deque[TaskQueue], budget: ReadBudget, ahead: int | None = None) -> list[ReadGroup]:
    """The segments of these partitions that are read together. Those of which nothing waits any more are removed.

    Args:
        waiting: of one device.
        budget: of what is read together.
        ahead: no partition has more groups in flight; None for no limit.
    """
    groups: list[ReadGroup] = []
    while waiting and (ahead is None or len(waiting[0].in_flight) < ahead):
        group = waiting[0].next_group(budget)
        if group is not None:
            groups.append(group)
        if waiting[0].waiting:
            break
        waiting.popleft()
    return groups


def hand_out(groups: Sequence[ReadGroup], outcomes: Outcomes) -> None:
    """Gives each group its part of what was read together."""
    start = 0
    for group in groups:
        group.outcomes = outcomes[start : start + len(group.segments)]
        start += len(group.segments)
