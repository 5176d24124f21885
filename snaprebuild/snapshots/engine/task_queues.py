"""The segments of partitions as they wait to be read, several small ones together, and the results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from snaprebuild.snapshots.engine.parcel_reader import Outcomes, Read
from snaprebuild.snapshots.engine.partition_task import PartitionTask, to_domain_error
from snaprebuild.snapshots.engine.segment_reader import Pieces, ReadTask

__all__ = ["Parcel", "ReadBudget", "TaskQueue", "hand_out", "next_parcels", "run_here"]

PARCEL_BYTES_MAX = 1 << 20
PARCEL_SEGMENTS_MAX = 32
"""Handing a segment to a worker costs some tenths of a millisecond, in which it reads several small ones."""


class Parcel(msgspec.Struct, eq=False):
    """Consecutive segments of a partition that are read together, and the results, once they are there."""

    queue: TaskQueue
    segments: list[ReadTask]
    outcomes: Outcomes | None = None


class ReadBudget(msgspec.Struct):
    """How many more segments are read together. The first one always is."""

    segments: int = msgspec.field(default_factory=lambda: PARCEL_SEGMENTS_MAX)
    size_bytes: int = PARCEL_BYTES_MAX
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
        self.in_flight: deque[Parcel] = deque()
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

    def next_parcel(self, budget: ReadBudget) -> Parcel | None:
        """The next segments that wait and that the budget takes; None without any."""
        segments = []
        while self.waiting and budget.takes(self.waiting[0]):
            segments.append(self.waiting.popleft())
        if not segments:
            return None
        parcel = Parcel(self, segments)
        self.in_flight.append(parcel)
        return parcel

    def opened(self, parcel: Parcel) -> list[Parcel]:
        """Its segments, each in a parcel of its own, in its place."""
        singles = [Parcel(self, [each]) for each in parcel.segments]
        place = self.in_flight.index(parcel)
        self.in_flight.remove(parcel)
        for each in reversed(singles):
            self.in_flight.insert(place, each)
        return singles


def run_here(queues: Iterable[TaskQueue], read: Read) -> None:
    """Reads everything in this process."""
    waiting = deque(queues)
    while waiting:
        parcels = next_parcels(waiting, ReadBudget())
        hand_out(parcels, read([each for parcel in parcels for each in parcel.segments]))
        for parcel in reversed(parcels):
            if parcel.queue.waits_again():
                waiting.appendleft(parcel.queue)


def next_parcels(waiting: deque[TaskQueue], budget: ReadBudget, ahead: int | None = None) -> list[Parcel]:
    """What of these partitions is read together. Those of which nothing waits any more are removed.

    Args:
        waiting: of one device.
        budget: of what is read together.
        ahead: no partition has more parcels in flight; None for no limit.
    """
    parcels: list[Parcel] = []
    while waiting and (ahead is None or len(waiting[0].in_flight) < ahead):
        parcel = waiting[0].next_parcel(budget)
        if parcel is not None:
            parcels.append(parcel)
        if waiting[0].waiting:
            break
        waiting.popleft()
    return parcels


def hand_out(parcels: Sequence[Parcel], outcomes: Outcomes) -> None:
    """Gives each parcel its part of what was read together."""
    start = 0
    for parcel in parcels:
        parcel.outcomes = outcomes[start : start + len(parcel.segments)]
        start += len(parcel.segments)
