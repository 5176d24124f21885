"""Reads segments in parallel: worker processes, a limit for each device, results in order for each partition.

Small tasks run in this process. Otherwise workers are started once, and the schedule keeps every device busy; a spinning disk has one
reader at a time. No partition is read further ahead of its first missing segment than twice the count of workers.

A worker may be killed, mostly by the kernel for want of memory. Its pool ends with it, and its segment is unknown. New workers then read
all segments that were in flight once more, one at a time. If a worker dies again, its segment fails its partition and no other.

A worker that looks at a mapped file also dies if the file becomes shorter meanwhile (SIGBUS). What was in flight is then read again in
parallel, without a mapping.
"""

from __future__ import annotations

import contextlib
import logging
import math
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol, TypeVar

from snaprebuild.errors import GoneFileError, ReadFailedError, StorageError
from snaprebuild.findings import Finding, finding_of_error
from snaprebuild.snapshots.engine.partition_task import Engine, PartitionTask, has_lost_a_file, to_domain_error
from snaprebuild.snapshots.engine.segment_reader import Pieces, ReadTask, read_in_worker, read_segment
from snaprebuild.snapshots.engine.worker_start import IN_PROCESS_BYTES_MAX, begin_worker, parent_of_workers, start_server
from snaprebuild.snapshots.source.source import (
    LISTINGS_MAX,
    PartitionSource,
    check_segments_are_files,
    listed_now,
    without_files,
)
from snaprebuild.storage.io_limits.block_device import readers_at_once
from snaprebuild.storage.io_limits.policy import current_io_limits, share_io_limits
from snaprebuild.storage.s3.request_limits import share_meters
from snaprebuild.storage.store import Store

__all__ = ["allowed_processors", "default_jobs", "read_partitions", "run", "run_partitions"]

log = logging.getLogger(__name__)

PARCEL_BYTES_MAX = 1 << 20
PARCEL_SEGMENTS_MAX = 32
"""Handing a segment to a worker costs some tenths of a millisecond, in which it reads several small ones."""

MAPPED_DEATHS_MAX = 3
"""Of workers by files that became shorter. Nothing is mapped any more after that: each costs the start of new workers."""

LOST_MAX = 8
"""Workers that die one after the other, before anything at all was read, die of something else than what they read."""


def default_jobs(devices: int) -> int:
    """Workers without ``--jobs``: the processors, or the devices if those are more, so that none is idle."""
    return max(min(len(os.sched_getaffinity(0)), allowed_processors()), devices)


def allowed_processors(cgroups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Processors that the control groups of this process (cgroup v2, ``cpu.max``) let it use; very many without a limit.

    Args:
        cgroups: where they are mounted.
        own: names that of this process.
    """
    least = sys.maxsize
    with contextlib.suppress(OSError, StopIteration):
        group = next(line.removeprefix("0::") for line in own.read_text().splitlines() if line.startswith("0::"))
        inner = cgroups / group.strip("/")
        for directory in (inner, *inner.parents):
            with contextlib.suppress(OSError, ValueError):  # "max" is no number; the outermost has no limit
                quota, period = (directory / "cpu.max").read_text().split()
                least = min(least, max(math.ceil(int(quota) / int(period)), 1))
            if directory == cgroups:
                break
    return least


def run(tasks: Sequence[PartitionTask], jobs: int | None = None, engine: Engine | None = None) -> None:
    """Runs all tasks to completion: with ``engine``, or else with workers of this machine. A failure of one does not stop the others."""
    if engine is not None:
        engine(tasks)
        return
    queues = [_TaskQueue(task) for task in tasks]
    for queue in queues:
        queue.refill()
    total = sum(each.identity.size_bytes for queue in queues for each in queue.waiting)
    devices = {task.device for task in tasks}
    per_disk = current_io_limits().readers_per_disk
    wanted = jobs if jobs is not None else default_jobs(len(devices)) if per_disk is None else per_disk * len(devices)
    wanted = current_io_limits().workers_at_most(wanted)
    if wanted <= 1 or total <= IN_PROCESS_BYTES_MAX:
        _run_here(queues)
    else:
        _Pool(queues, min(wanted, sum(len(queue.waiting) for queue in queues)), devices).run()


def run_partitions(tasks: Iterable[PartitionTask], jobs: int | None, engine: Engine | None = None) -> None:
    """As ``run``. A partition whose segments are not regular files fails without being read."""
    checked = []
    for task in tasks:
        try:
            check_segments_are_files(task.source.directory)
        except ReadFailedError as error:
            task.fail(error)
            task.settle()
        else:
            checked.append(task)
    run(checked, jobs, engine)


class _Result(Protocol):
    """The result of a command for one partition."""

    @property
    def source(self) -> PartitionSource:
        """The partition."""

    @property
    def findings(self) -> list[Finding]:
        """About it."""


Result = TypeVar("Result", bound=_Result)


def read_partitions(
    sources: Sequence[PartitionSource],
    begin: Callable[[int, PartitionSource], Result],
    task_of: Callable[[int, Result], PartitionTask],
    jobs: int | None,
    engine: Engine | None = None,
) -> list[Result]:
    """Reads partitions as ``run_partitions``. If a broker deletes a file meanwhile, its partition is listed and read again.

    Args:
        sources: the partitions.
        begin: makes an empty result for a place in ``sources``.
        task_of: reads a partition into its result; called again with a new result for each listing.
        jobs: as ``run``.
        engine: as ``run``.

    Returns:
        A result for each partition. The result of a partition that is gone is empty, with a note. If files were deleted faster than they
        could be read, ``LISTINGS_MAX`` times, the result has the finding ``busy-log``.
    """
    results = [begin(place, source) for place, source in enumerate(sources)]
    due = list(range(len(results)))
    for _ in range(LISTINGS_MAX - 1):
        run_partitions([task_of(place, results[place]) for place in due], jobs, engine)
        # Copies in remote storage make a log without a directory that could be listed.
        due = [
            place
            for place in due
            if has_lost_a_file(results[place].findings) and isinstance(results[place].source.directory.store, Store)
        ]
        for place in due:
            old = results[place].source
            try:
                results[place] = begin(place, listed_now(old))
            except (GoneFileError, ReadFailedError) as error:
                results[place] = begin(place, without_files(old))
                results[place].findings.append(finding_of_error(error, old.directory.path))
        due = [place for place in due if not results[place].findings]
        if not due:
            return results
    run_partitions([task_of(place, results[place]) for place in due], jobs, engine)
    return results


Outcomes = Sequence[Pieces | Exception]
"""Of the segments of a parcel."""


@dataclass(eq=False, slots=True)
class _Parcel:
    """Consecutive segments that were handed to a worker together, and the results, once they are there."""

    queue: _TaskQueue
    segments: list[ReadTask]
    may_map: bool = False
    future: Future[list[Pieces | Exception]] | None = None
    outcomes: Outcomes | None = None


class _TaskQueue:
    """The segments of a task: waiting, and in flight or read, but not yet taken because an earlier one is in flight."""

    def __init__(self, task: PartitionTask) -> None:
        self.task = task
        self.waiting: deque[ReadTask] = deque()
        self.in_flight: deque[_Parcel] = deque()
        self.is_over = False

    def refill(self) -> None:
        if self.is_over or self.waiting or self.in_flight:
            return
        try:
            self.waiting.extend(self.task.tasks())
            if not self.waiting:
                self.finish()
        except Exception as error:
            self.fail(error)

    def finish(self) -> None:
        """Nothing is taken any more."""
        self.stop()
        self.task.finish()
        self.task.settle()

    def fail(self, error: Exception) -> None:
        """Any error ends this partition and no other."""
        self.stop()
        self.task.fail(to_domain_error(error))
        self.task.settle()

    def stop(self) -> None:
        self.is_over = True
        self.waiting.clear()
        for each in self.in_flight:
            if each.future is not None:
                each.future.cancel()
        self.in_flight.clear()

    def take(self, outcome: Pieces | Exception) -> None:
        if isinstance(outcome, Exception):
            self.fail(outcome)
            return
        try:
            if not all(map(self.task.take, outcome)):
                self.finish()
        except Exception as error:
            self.fail(error)

    def take_ready(self) -> None:
        while self.in_flight and (outcomes := self.in_flight[0].outcomes) is not None:
            self.in_flight.popleft()
            for outcome in outcomes:
                if not self.is_over:
                    self.take(outcome)

    def next_parcel(self, most: int) -> _Parcel:
        """The next segment that waits, and those after it that are small enough to go with it. At most this number together."""
        segments = [self.waiting.popleft()]
        left = PARCEL_BYTES_MAX - segments[0].identity.size_bytes
        while self.waiting and len(segments) < most and (left := left - self.waiting[0].identity.size_bytes) >= 0:
            segments.append(self.waiting.popleft())
        parcel = _Parcel(self, segments)
        self.in_flight.append(parcel)
        return parcel

    def opened(self, parcel: _Parcel) -> list[_Parcel]:
        """Its segments, each in a parcel of its own, in its place."""
        singles = [_Parcel(self, [each]) for each in parcel.segments]
        place = self.in_flight.index(parcel)
        self.in_flight.remove(parcel)
        for each in reversed(singles):
            self.in_flight.insert(place, each)
        return singles


def _outcome(read: Callable[..., Pieces], *arguments: ReadTask) -> Pieces | Exception:
    try:
        return read(*arguments)
    except Exception as error:
        return error


def _run_here(queues: list[_TaskQueue]) -> None:
    for queue in queues:
        while not queue.is_over:
            while queue.waiting:
                queue.take(_outcome(read_segment, queue.waiting.popleft()))
            queue.refill()


def _outcomes(future: Future[list[Pieces | Exception]]) -> Outcomes | None:
    """None if a worker died."""
    try:
        return future.result()
    except BrokenProcessPool:
        return None
    except Exception as error:  # the results could not be sent
        return [error]


@contextlib.contextmanager
def _interrupts_later() -> Iterator[None]:
    """Interrupts wait meanwhile, also in processes that are started here, until these say otherwise."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_workers(pool: ProcessPoolExecutor) -> None:
    """Kills the workers. Segments that they were reading are read again if they are still wanted.

    The executor does so itself if one of them died, except for a worker that was just being started. Such a worker waits for work for
    ever, and the executor waits for its end.
    """
    workers = [*(pool._processes or {}).values()]
    # Not `is_alive`: it takes the exit code out of a pipe, and so does a thread of the executor. One of them would get none.
    ended = connection.wait([worker.sentinel for worker in workers], timeout=0)
    for worker in workers:
        if worker.sentinel not in ended:
            worker.kill()


class _Pool:
    """Worker processes. They are forked from a small server process: safe next to the threads of a progress bar, and quick to start.

    That server has the environment of the moment when it was started, perhaps long ago by other code. The environment has the
    address of object stores and the credentials: workers that read objects are started afresh, with the environment of now.
    """

    def __init__(self, queues: list[_TaskQueue], jobs: int, devices: set[int]) -> None:
        self.queues = queues
        self.jobs = jobs
        per_disk = current_io_limits().readers_per_disk
        self.limits = {device: readers_at_once(device, jobs) if per_disk is None else min(per_disk, jobs) for device in devices}
        self.on_device = dict.fromkeys(devices, 0)
        self.waiting: dict[int, deque[_TaskQueue]] = {device: deque() for device in devices}
        self.in_flight: dict[Future[list[Pieces | Exception]], _Parcel] = {}
        self.lost: list[_Parcel] = []
        self.again: deque[_Parcel] = deque()
        self.retry_isolated: deque[_Parcel] = deque()
        self.workers: dict[int, BaseProcess] = {}
        self.mapped_deaths = 0
        self.lost_alone = 0
        self.has_read = False
        self.reads_objects = not all(task.store.is_local for queue in queues for task in queue.waiting)
        for queue in queues:
            if queue.waiting:
                self.waiting[queue.task.device].append(queue)

    def run(self) -> None:
        context = multiprocessing.get_context("spawn" if self.reads_objects else "forkserver")
        is_done = False
        while not is_done:
            self.workers.clear()
            with self._begun_pool(context) as pool:
                try:
                    is_done = self._read_isolated(pool) and self._read_all(pool)
                finally:
                    if not is_done:
                        _end_workers(pool)
                    pool.shutdown(cancel_futures=True)
            self._sort_lost()
            if self.lost_alone >= LOST_MAX and not self.has_read:
                is_done = True
                self._fail(StorageError("worker processes die whatever they read: a lack of memory, or of what they need to start"))

    def _begun_pool(self, context: BaseContext) -> ProcessPoolExecutor:
        try:
            if not self.reads_objects:
                start_server()
            begin = (parent_of_workers(context), share_meters(context), share_io_limits(context, self.jobs))
            return ProcessPoolExecutor(self.jobs, mp_context=context, initializer=begin_worker, initargs=begin)
        except OSError as error:
            message = (
                f"worker processes cannot be started: {error.strerror}. They need /dev/null and /dev/shm; --jobs 1 needs neither"
            )
            raise StorageError(message) from error

    def _sort_lost(self) -> None:
        """What was in flight when a worker died is read again: at once if it died of a mapping, else each segment alone."""
        lost, self.lost = [each for each in self.lost if not each.queue.is_over], []
        if not lost:
            return
        may_be_mapped = any(each.may_map for each in lost)
        if may_be_mapped and any(worker.exitcode == -signal.SIGBUS for worker in self.workers.values()):
            self.mapped_deaths += 1
            log.info(
                "a file became shorter while it was read: %d segments are read once more", sum(len(each.segments) for each in lost)
            )
            for each in lost:
                each.may_map = False
            self.again.extend(lost)
            return
        singles = [single for each in lost for single in each.queue.opened(each)]
        log.warning("a worker process died: %d segments are read once more, one at a time", len(singles))
        self.retry_isolated.extend(singles)

    def _read_isolated(self, pool: ProcessPoolExecutor) -> bool:
        """Reads what was in flight when a worker died, one segment at a time. False when a worker died again: the pool is gone."""
        while self.retry_isolated:
            each = self.retry_isolated.popleft()
            if each.queue.is_over:
                continue
            try:
                future = self._submitted(pool, each)
            except BrokenProcessPool:  # it died with nothing to do
                self.retry_isolated.appendleft(each)
                return False
            outcomes = _outcomes(future)
            if outcomes is None:
                self.lost_alone += 1
                message = "a worker process died while it read this file, and again when nothing else was read: perhaps for want of memory"
                self._take(each, [StorageError(message, path=each.segments[0].path)])
                return False
            self._take(each, outcomes)
        return True

    def _read_all(self, pool: ProcessPoolExecutor) -> bool:
        """Reads everything that waits. False when a worker died: the pool is gone, and nothing is in flight any more."""
        while (not self.lost and self._submit(pool)) or self.in_flight:
            done, _ = wait(self.in_flight, return_when=FIRST_COMPLETED)
            self._collect(done)
        return not self.lost

    def _submit(self, pool: ProcessPoolExecutor) -> bool:
        """Starts as many readers as the devices allow. Returns whether it started one."""
        submitted = False
        while len(self.in_flight) < 2 * self.jobs and (each := self._next_parcel()) is not None:
            try:
                each.future = self._submitted(pool, each)
            except BrokenProcessPool:
                self.lost.append(each)
                return False
            self.in_flight[each.future] = each
            self.on_device[each.queue.task.device] += 1
            submitted = True
        return submitted

    def _next_parcel(self) -> _Parcel | None:
        while self.again:
            again = self.again.popleft()
            if not again.queue.is_over:
                return again
        queue = self._next()
        if queue is None:
            return None
        # Requests to a store wait: as many workers as possible should wait at the same time.
        parcel = queue.next_parcel(1 if self.reads_objects else PARCEL_SEGMENTS_MAX)
        parcel.may_map = not self.reads_objects and self.mapped_deaths < MAPPED_DEATHS_MAX
        if queue.waiting:
            self.waiting[queue.task.device].appendleft(queue)
        return parcel

    def _submitted(self, pool: ProcessPoolExecutor, parcel: _Parcel) -> Future[list[Pieces | Exception]]:
        """Starts another worker if all are busy.

        Raises:
            BrokenProcessPool: one has died.
        """
        with _interrupts_later():
            future = pool.submit(read_in_worker, read_segment, parcel.segments, may_map=parcel.may_map)
        self.workers |= pool._processes or {}
        return future

    def _next(self) -> _TaskQueue | None:
        """Takes the next partition to read from off its device.

        It is the first one of the device with the fewest readers, so that no device is idle while another has many readers. A partition
        that waits for an early segment, with many later ones read already, is passed over.
        """
        for device in sorted(self.waiting, key=lambda each: self.on_device[each]):
            waiting = self.waiting[device]
            if self.on_device[device] >= self.limits[device]:
                continue
            while waiting and not waiting[0].waiting:
                waiting.popleft()  # it ended early
            for queue in waiting:
                if queue.waiting and len(queue.in_flight) < 2 * self.jobs:
                    waiting.remove(queue)
                    return queue
        return None

    def _collect(self, done: set[Future[list[Pieces | Exception]]]) -> None:
        for future in done:
            each = self.in_flight.pop(future)
            self.on_device[each.queue.task.device] -= 1
            outcomes = _outcomes(future)
            if outcomes is None:
                self.lost.append(each)
            else:
                self._take(each, outcomes)

    def _take(self, each: _Parcel, outcomes: Outcomes) -> None:
        each.outcomes = outcomes
        self.has_read |= not all(isinstance(outcome, Exception) for outcome in outcomes)
        queue = each.queue
        had_more = bool(queue.waiting)
        queue.take_ready()
        queue.refill()
        if queue.waiting and not had_more:
            self.waiting[queue.task.device].appendleft(queue)

    def _fail(self, error: StorageError) -> None:
        """Fails all partitions that are not finished."""
        for queue in self.queues:
            if not queue.is_over:
                queue.fail(error)
