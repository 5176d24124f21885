"""Worker processes that read segments: one pool, a limit for each device, and what happens when a worker dies.

A worker may be killed, mostly by the kernel for want of memory. Its pool ends with it, and its segment is unknown. New workers then read
all segments that were in flight once more, one at a time. If a worker dies again, its segment fails its partition and no other.
"""

from __future__ import annotations

import logging
import multiprocessing
import threading
from collections import deque
from collections.abc import Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, cast

from snaprebuild.errors import OutOfMemoryError, StorageError
from snaprebuild.snapshots.engine.partition_task import ReadBudget, ReadGroup, TaskQueue, hand_out, next_groups
from snaprebuild.snapshots.engine.segment_reader import Outcomes, Read
from snaprebuild.snapshots.engine.worker_start import (
    begin_worker,
    interrupts_later,
    parent_of_workers,
    start_server,
    without_main_module,
)
from snaprebuild.storage.io_limits.block_device import readers_at_once
from snaprebuild.storage.io_limits.policy import RunLimits
from snaprebuild.storage.s3.request_limits import meters
from snaprebuild.storage.thread_pool import NO_ROOM_ERRNOS

__all__ = ["WorkerPool"]

log = logging.getLogger(__name__)

LOST_MAX = 8
"""Workers that die one after the other, before anything at all was read, die of something else than what they read."""


LOOK_SECONDS = 1.0
"""Between two looks at the thread of the pool, while nothing is completed."""


def _cannot_start(error: Exception) -> StorageError | OutOfMemoryError:
    is_no_room = isinstance(error, RuntimeError) or (isinstance(error, OSError) and error.errno in NO_ROOM_ERRNOS)
    reason = error.strerror if isinstance(error, OSError) else str(error) or type(error).__name__
    needed = "They need /dev/null and /dev/shm, and some processes, threads and open files; --jobs 1 starts none"
    kind = OutOfMemoryError if is_no_room else StorageError
    return kind(f"worker processes cannot be started: {reason}. {needed}")


class RecordingContext:
    """A context of multiprocessing that keeps the processes it makes: an executor shows its own in no public way before Python 3.14."""

    def __init__(self, base: BaseContext) -> None:
        """Takes the context that makes them."""
        self.base = base
        self.processes: list[BaseProcess] = []

    def Process(self, *arguments: Any, **options: Any) -> BaseProcess:  # noqa: N802
        """A process, as the executor makes it."""
        process: BaseProcess = self.base.Process(*arguments, **options)  # type: ignore[attr-defined]
        self.processes.append(process)
        return process

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)


def _completed(pool: ProcessPoolExecutor, futures: Collection[Future[Outcomes]]) -> set[Future[Outcomes]]:
    """Waits until one of these is completed; returns all that are.

    Raises:
        OutOfMemoryError: the thread of the pool has ended, so that none ever will be. It starts a thread itself, and may not be allowed to.
    """
    while True:
        # There is no public way: an executor does not report that its thread has ended.
        thread: threading.Thread | None = pool._executor_manager_thread  # type: ignore[assignment]
        is_alive = thread is not None and thread.is_alive()
        done, _ = wait(futures, LOOK_SECONDS, FIRST_COMPLETED)
        if done:
            return done
        if not is_alive:
            raise _cannot_start(RuntimeError("a thread has ended"))


def _outcomes(future: Future[Outcomes], groups: Sequence[ReadGroup]) -> Outcomes | None:
    """None if a worker died, or if results of several segments could not be sent: each is then read alone."""
    try:
        return future.result()
    except BrokenProcessPool:
        return None
    except Exception as error:  # the results could not be sent
        return [error] if len(groups) == len(groups[0].segments) == 1 else None


def _end_workers(pool: ProcessPoolExecutor, processes: Sequence[BaseProcess]) -> None:
    """Kills the workers. Segments that they were reading are read again if they are still wanted.

    The executor does so itself if one of them died, except for a worker that was just being started. Such a worker waits for work for
    ever, and the executor waits for its end.
    """
    thread: threading.Thread | None = pool._executor_manager_thread  # type: ignore[assignment]
    if thread is not None and thread.ident is None:
        pool._executor_manager_thread = None  # type: ignore[assignment]  # it did not start, so that it cannot be waited for
    workers = [process for process in processes if process.pid is not None]  # the others were never started
    # Not `is_alive`: it takes the exit code out of a pipe, and so does a thread of the executor. One of them would get none.
    ended = connection.wait([worker.sentinel for worker in workers], timeout=0)
    for worker in workers:
        if worker.sentinel not in ended:
            worker.kill()


class WorkerPool:
    """Worker processes. They are forked from a small server process: safe next to the threads of a progress bar, and quick to start.

    That server has the environment of the moment when it was started, perhaps long ago by other code. The environment has the
    address of object stores and the credentials: workers that read objects are started afresh, with the environment of now.
    """

    def __init__(self, queues: list[TaskQueue], jobs: int, devices: set[int], read: Read, limits: RunLimits) -> None:
        """Takes the partitions, the count of workers, the devices of the partitions, what workers call, and the limits of the run."""
        self.read = read
        self.queues = queues
        self.jobs = jobs
        self.run_limits = limits
        per_disk = limits.io.readers_per_disk
        self.limits = {device: readers_at_once(device, jobs) if per_disk is None else min(per_disk, jobs) for device in devices}
        self.on_device = dict.fromkeys(devices, 0)
        self.waiting: dict[int, deque[TaskQueue]] = {device: deque() for device in devices}
        self.in_flight: dict[Future[Outcomes], list[ReadGroup]] = {}
        self.lost: list[ReadGroup] = []
        self.retry_isolated: deque[ReadGroup] = deque()
        self.lost_alone = 0
        self.has_read = False
        self.reads_objects = not all(task.store.is_local for queue in queues for task in queue.waiting)
        for queue in queues:
            if queue.waiting:
                self.waiting[queue.task.device].append(queue)

    def run(self) -> None:
        """Reads everything."""
        is_done = False
        while not is_done:
            context = RecordingContext(multiprocessing.get_context("spawn" if self.reads_objects else "forkserver"))
            with self._begun_pool(context) as pool:
                try:
                    is_done = self._read_isolated(pool) and self._read_all(pool)
                finally:
                    if not is_done:
                        _end_workers(pool, context.processes)
                    pool.shutdown(cancel_futures=True)
            self._sort_lost()
            if self.lost_alone >= LOST_MAX and not self.has_read:
                is_done = True
                self._fail(StorageError("worker processes die whatever they read: a lack of memory, or of what they need to start"))

    def _begun_pool(self, context: RecordingContext) -> ProcessPoolExecutor:
        try:
            if not self.reads_objects:
                start_server()
            base = context.base
            begin = (parent_of_workers(base), meters.share(base), self.run_limits.share(base, self.jobs))
            return ProcessPoolExecutor(self.jobs, mp_context=cast("BaseContext", context), initializer=begin_worker, initargs=begin)
        except OSError as error:
            raise _cannot_start(error) from error

    def _sort_lost(self) -> None:
        """Reads again what was in flight when a worker died, each segment alone."""
        lost = [each for each in self.lost if not each.queue.is_over]
        self.lost = []
        if not lost:
            return
        singles = [single for each in lost for single in each.queue.opened(each)]
        log.warning("a worker process died, or could not send results: %d segments are read once more, one at a time", len(singles))
        self.retry_isolated.extend(singles)

    def _read_isolated(self, pool: ProcessPoolExecutor) -> bool:
        """Reads what was in flight when a worker died, one segment at a time. False when a worker died again: the pool is gone."""
        while self.retry_isolated:
            each = self.retry_isolated.popleft()
            if each.queue.is_over:
                continue
            try:
                future = self._submitted(pool, [each])
            except BrokenProcessPool:  # it died with nothing to do
                self.retry_isolated.appendleft(each)
                return False
            _completed(pool, [future])
            outcomes = _outcomes(future, [each])
            if outcomes is None:
                self.lost_alone += 1
                message = "a worker process died while it read this file, and again when nothing else was read: perhaps for want of memory"
                self._take([each], [StorageError(message, path=each.segments[0].path)])
                return False
            self._take([each], outcomes)
        return True

    def _read_all(self, pool: ProcessPoolExecutor) -> bool:
        """Reads everything that waits. False when a worker died: the pool is gone, and nothing is in flight any more."""
        while (not self.lost and self._submit(pool)) or self.in_flight:
            self._collect(_completed(pool, self.in_flight))
        return not self.lost

    def _submit(self, pool: ProcessPoolExecutor) -> bool:
        """Starts as many readers as the devices allow. Returns whether it started one."""
        submitted = False
        while len(self.in_flight) < 2 * self.jobs and (groups := self._next_groups()):
            try:
                future = self._submitted(pool, groups)
            except BrokenProcessPool:
                self.lost += groups
                return False
            self.in_flight[future] = groups
            self.on_device[groups[0].queue.task.device] += 1
            submitted = True
        return submitted

    def _next_groups(self) -> list[ReadGroup]:
        """The segments that the next worker reads, all of one device."""
        queue = self._next()
        if queue is None:
            return []
        waiting = self.waiting[queue.task.device]
        waiting.appendleft(queue)
        return next_groups(waiting, ReadBudget(), 2 * self.jobs)

    def _submitted(self, pool: ProcessPoolExecutor, groups: Sequence[ReadGroup]) -> Future[Outcomes]:
        """Starts another worker if all are busy.

        Raises:
            BrokenProcessPool: one has died.
            StorageError: it cannot be started.
            OutOfMemoryError: a limit leaves no room for it.
        """
        segments = [each for group in groups for each in group.segments]
        try:
            with interrupts_later(), without_main_module():
                future = pool.submit(self.read, segments)
        except BrokenProcessPool:
            raise
        except (OSError, EOFError, RuntimeError) as error:  # EOFError: the server has ended
            raise _cannot_start(error) from error
        return future

    def _next(self) -> TaskQueue | None:
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

    def _collect(self, done: set[Future[Outcomes]]) -> None:
        for future in done:
            groups = self.in_flight.pop(future)
            self.on_device[groups[0].queue.task.device] -= 1
            outcomes = _outcomes(future, groups)
            if outcomes is None:
                self.lost += groups
            else:
                self._take(groups, outcomes)

    def _take(self, groups: Sequence[ReadGroup], outcomes: Outcomes) -> None:
        self.has_read |= not all(isinstance(outcome, Exception) for outcome in outcomes)
        hand_out(groups, outcomes)
        for each in groups:
            if each.queue.waits_again():
                self.waiting[each.queue.task.device].appendleft(each.queue)

    def _fail(self, error: StorageError) -> None:
        """Fails all partitions that are not finished."""
        for queue in self.queues:
            if not queue.is_over:
                queue.fail(error)
