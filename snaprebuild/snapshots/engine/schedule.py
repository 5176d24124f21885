"""Reading segments side by side: worker processes, a limit for each device, results in order for each partition.

Small work is done in this process. Otherwise workers are started once and fed so that every device is busy, a spinning disk with one
reader at a time, and that no partition is read further ahead of its first missing segment than twice the count of workers.

A worker may be killed, mostly by the kernel for want of memory. Its pool ends with it, and nobody knows which task it had: so what was in
flight is read once more by new workers, one task at a time. Where a worker dies again, its task fails its partition and no other.
"""

from __future__ import annotations

import contextlib
import logging
import math
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from formats.errors import FormatError
from formats.partition.offset_index import split_positions
from snaprebuild.errors import ChangedFileError, OutOfMemoryError, SnaprebuildError, StorageError
from snaprebuild.replay.segment_facts import IndexEntries
from snaprebuild.replay.segment_ranges import RangeSummary, summarise_range
from snaprebuild.replay.segment_summary import SegmentSummary, summarise_pieces
from snaprebuild.snapshots.engine.worker_start import begin_worker, parent_of_workers
from snaprebuild.storage.io_limits.block_device import readers_at_once
from snaprebuild.storage.io_limits.policy import manners, share_manners
from snaprebuild.storage.local.index_hints import read_positions_hint
from snaprebuild.storage.local.segment_file import check_parts
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.s3.request_limits import share_meters
from snaprebuild.storage.store import FileIdentity, OpenBytes, ReadStore

if TYPE_CHECKING:
    from snaprebuild.snapshots.engine.summary_stream import Arrivals

__all__ = [
    "Engine",
    "Job",
    "Pieces",
    "ReadTask",
    "Tell",
    "TellingJob",
    "Work",
    "allowed_processors",
    "default_jobs",
    "read_range",
    "read_segment",
    "run",
    "told",
]

log = logging.getLogger(__name__)

IN_PROCESS_BYTES_MAX = 96 << 20
"""Starting workers costs some tenths of a second, in which one process reads about this much."""

FORK_SERVER = "snaprebuild.snapshots.engine.fork_server"

LOST_MAX = 8
"""Workers that die one after the other, before anything at all was read, die of something else than what they read."""

Pieces = tuple[SegmentSummary, ...]
"""What reading a segment gives: its summary, or those of its pieces where it was to be cut."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """One segment to read.

    Attributes:
        path: of the segment.
        index_path: of its offset index, a hint; None where there is none.
        base_offset: from its name.
        identity: what it was when it was listed.
        check_crc: compute checksums.
        is_last: of its partition: a live broker may append to it.
        cuts: offsets inside it at which it is cut in pieces, ascending.
        with_statistics: count its batches by kind and by producer, too.
        traced_producer: id of the producer whose deciding batches are wanted, too, or None.
        deadline: nothing is read once ``time.monotonic()`` is past it, which all processes of a machine share; None for none.
        store: that holds it.
        until: batches from this offset on do not count; None where all do.
        check_indexes: compare the indexes next to it with its batches.
    """

    path: str
    index_path: str | None
    base_offset: int
    identity: FileIdentity
    check_crc: bool
    is_last: bool = False
    cuts: tuple[int, ...] = ()
    with_statistics: bool = False
    traced_producer: int | None = None
    deadline: float | None = None
    store: ReadStore = LOCAL
    until: int | None = None
    check_indexes: bool = False


class Work:
    """The segments of one partition, as a source of tasks and a sink of summaries. Subclasses give it a purpose.

    Attributes:
        device: number of the device that holds the partition.
    """

    device: int = 0

    def tasks(self) -> list[ReadTask]:
        """The next segments to read, in order; asked again when all were taken; empty at the end."""
        raise NotImplementedError

    def take(self, summary: SegmentSummary) -> bool:
        """Takes the summary of the next segment, or of the next piece of one that was to be cut. False when no more are wanted."""
        raise NotImplementedError

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        """A segment could not be read, or taking it failed; nothing follows."""
        raise NotImplementedError

    def finish(self) -> None:
        """Everything was taken."""
        raise NotImplementedError

    def job(self) -> Job:
        """This work as a value that can be sent to another process, and carried out there instead of here."""
        raise NotImplementedError

    def adopt(self, done: Any) -> None:
        """Takes over what ``Job.carry_out`` gave elsewhere; the work is finished."""
        raise NotImplementedError

    def hear(self, said: Any) -> None:
        """Takes what its job says while it is carried out elsewhere (``TellingJob``), and waits for: the job ends with what is raised."""
        raise NotImplementedError


Engine = Callable[[Sequence[Work]], None]
"""Brings works to their ends: ``run`` with workers of this machine, or what does the same elsewhere."""


class Job(Protocol):
    """A work as a value."""

    def carry_out(self, arrivals: Arrivals) -> tuple[object, list[ReadTask]]:
        """Feeds the work with what has arrived. It may be done more than once, and what an earlier attempt has written is written.

        Returns:
            What ``Work.adopt`` takes, and nothing; or None, and the tasks that it wants beside those that have arrived.
        """
        ...


Tell = Callable[[object], None]
"""Says something, and returns when it was heard; raises what it was answered. A value that can be sent to another process."""


@runtime_checkable
class TellingJob(Job, Protocol):
    """A job of which something has to be known before it goes on, wherever it is carried out."""

    def telling(self, tell: Tell) -> Job:
        """The same job, which says so to ``Work.hear``."""
        ...


@contextlib.contextmanager
def _opened(task: ReadTask, *, splits: bool = False) -> Iterator[tuple[OpenBytes, np.ndarray | None]]:
    """The segment of a task and the hint of its index: of an object only to split it, for else it saves less than its request costs.

    Raises:
        RefusedError: it is not the file that was listed or changed while it was read (``ChangedFileError``), or the deadline has passed.
        ReadFailedError: it cannot be opened.
    """
    with task.store.open_bytes(task.path, task.identity, task.deadline, task.is_last) as source:
        hint = None
        if task.index_path is not None and (splits or task.store.is_local):
            hint = read_positions_hint(task.index_path, source.size_bytes, task.store)
        yield source, hint


def _index_entries(task: ReadTask) -> IndexEntries | None:
    if not task.check_indexes:
        return None
    from snaprebuild.snapshots.engine.remote_indexes import read_index_entries  # needed for remote storage alone

    return read_index_entries(task.store, task.path, task.base_offset)


def read_segment(task: ReadTask) -> Pieces:
    """Reads one segment; runs in a worker. One that changes while it is read is read once more.

    Returns:
        Its summary, or those of its pieces.

    Raises:
        RefusedError: it is not the file that was listed or changed both times (``ChangedFileError``), or the deadline has passed.
        SnaprebuildError: it cannot be read.
    """
    try:
        return _read_once(task)
    except ChangedFileError:
        return _read_once(task)


def _read_once(task: ReadTask) -> Pieces:
    cuts = task.cuts if task.until is None else (*(cut for cut in task.cuts if cut < task.until), task.until)
    with _opened(task) as (source, hint):
        pieces = summarise_pieces(
            source,
            task.base_offset,
            cuts,
            is_last=task.is_last,
            check_crc=task.check_crc,
            hint=hint,
            with_statistics=task.with_statistics,
            traced_producer=task.traced_producer,
            indexes=_index_entries(task),
        )
    return pieces if task.until is None else tuple(_before(pieces, task.until))


def _before(pieces: Pieces, until: int) -> Iterator[SegmentSummary]:
    """The pieces up to a cut, which then is the end of the segment; all of them where the segment ends before it."""
    for piece in pieces:
        is_end = piece.cut_offset == until
        yield replace(piece, cut_offset=None, cut_batch_offset=None) if is_end else piece
        if is_end:
            return


def read_range(task: ReadTask, number: int, ranges: int) -> tuple[RangeSummary, ...]:
    """Reads one of ``ranges`` parts of a segment; whoever reads another part finds the same places to split at.

    Returns:
        For ``replay.segment_ranges.join_ranges``. Nothing where there are fewer parts, as without an index.

    Raises:
        As ``read_segment``.
    """
    with _opened(task, splits=True) as (source, hint):
        check_parts(task.path, task.identity, source.identity)
        starts = (0, *split_positions(hint, task.identity.size_bytes, -(-task.identity.size_bytes // ranges)))
        if number >= len(starts):
            return ()
        end = starts[number + 1] if number + 1 < len(starts) else None
        if end is not None:
            source.will_stop_at(end)
        return summarise_range(
            source,
            task.base_offset,
            starts[number],
            end,
            check_crc=task.check_crc,
            hint=hint,
            with_statistics=task.with_statistics,
            traced_producer=task.traced_producer,
            cuts=task.cuts,
            indexes=_index_entries(task),
        )


def default_jobs(devices: int) -> int:
    """Workers when nobody asks for a number: the processors, or the devices where those are more, so that none is idle."""
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


def run(works: Sequence[Work], jobs: int | None = None) -> None:
    """Feeds all works until each is finished or has failed. A failure of one does not stop the others."""
    states = [_State(work) for work in works]
    for state in states:
        state.refill()
    total = sum(task.identity.size_bytes for state in states for task in state.waiting)
    devices = {work.device for work in works}
    per_disk = manners().readers_per_disk
    wanted = jobs if jobs is not None else default_jobs(len(devices)) if per_disk is None else per_disk * len(devices)
    wanted = manners().workers_at_most(wanted)
    if wanted <= 1 or total <= IN_PROCESS_BYTES_MAX:
        _run_here(states)
    else:
        _Pool(states, min(wanted, sum(len(state.waiting) for state in states)), devices).run()


@dataclass(eq=False, slots=True)
class _Reading:
    """A task that was handed to a worker, and what came of it: summaries, an error, or nothing yet."""

    state: _State
    task: ReadTask
    future: Future[Pieces] | None = None
    outcome: Pieces | Exception | None = None


class _State:
    """A work with its tasks: waiting, and handed out but not yet taken, because they or an earlier one are being read."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.waiting: deque[ReadTask] = deque()
        self.reading: deque[_Reading] = deque()
        self.is_over = False

    def refill(self) -> None:
        if self.is_over or self.waiting or self.reading:
            return
        try:
            self.waiting.extend(self.work.tasks())
            if not self.waiting:
                self.is_over = True
                self.work.finish()
        except Exception as error:
            self.end(error)

    def end(self, error: Exception) -> None:
        """Whatever went wrong ends this partition and no other."""
        self.stop()
        self.work.fail(told(error))

    def stop(self) -> None:
        self.is_over = True
        self.waiting.clear()
        for reading in self.reading:
            if reading.future is not None:
                reading.future.cancel()
        self.reading.clear()

    def take(self, outcome: Pieces | Exception) -> None:
        if isinstance(outcome, Exception):
            self.end(outcome)
            return
        try:
            # Nothing is taken any more once the work has enough.
            if not all(map(self.work.take, outcome)):
                self.stop()
                self.work.finish()
        except Exception as error:
            self.end(error)

    def take_ready(self) -> None:
        while self.reading and (outcome := self.reading[0].outcome) is not None:
            self.reading.popleft()
            self.take(outcome)


def told(error: Exception) -> SnaprebuildError | FormatError:
    """Any error as one that a partition may end with."""
    if isinstance(error, SnaprebuildError | FormatError):
        return error
    log.debug("unforeseen", exc_info=error)
    if isinstance(error, MemoryError):
        most = manners().max_memory_bytes
        return OutOfMemoryError("out of memory" if most is None else "out of memory: --max-memory leaves no more for it")
    return SnaprebuildError(f"unforeseen {type(error).__name__}: {error}")


def _outcome(read: Callable[..., Pieces], *arguments: ReadTask) -> Pieces | Exception:
    try:
        return read(*arguments)
    except Exception as error:
        return error


def _run_here(states: list[_State]) -> None:
    for state in states:
        while not state.is_over:
            while state.waiting:
                state.take(_outcome(read_segment, state.waiting.popleft()))
            state.refill()


@contextlib.contextmanager
def _interrupts_later() -> Iterator[None]:
    """Interrupts wait meanwhile, also in processes that are started here, until these say otherwise."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Processes that are started here never see the interrupt of a terminal, which reaches all of them and is ours to answer."""
    before = signal.getsignal(signal.SIGINT)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield  # a handler that could not be put back, or a thread that may not set one
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end_workers(pool: ProcessPoolExecutor) -> None:
    """What they were reading is read again, or by nobody.

    The executor does so itself where one of them died, but for a worker that was just being started: that one waits for work for ever,
    and the executor for its end.
    """
    for worker in [*(pool._processes or {}).values()]:
        if worker.is_alive():
            worker.kill()


class _Pool:
    """Worker processes. They are forked from a small server process: safe beside the threads of a progress bar, and quick to start.

    That server has the environment of the moment when it was started, perhaps long ago and by somebody else. The environment tells where
    object stores are and who asks: workers that read objects are started afresh, with the environment of now.
    """

    def __init__(self, states: list[_State], jobs: int, devices: set[int]) -> None:
        self.states = states
        self.jobs = jobs
        per_disk = manners().readers_per_disk
        self.limits = {device: readers_at_once(device, jobs) if per_disk is None else min(per_disk, jobs) for device in devices}
        self.on_device = dict.fromkeys(devices, 0)
        self.queues: dict[int, deque[_State]] = {device: deque() for device in devices}
        self.in_flight: dict[Future[Pieces], _Reading] = {}
        self.suspects: deque[_Reading] = deque()
        self.lost_alone = 0
        self.has_read = False
        self.reads_objects = not all(task.store.is_local for state in states for task in state.waiting)
        for state in states:
            if state.waiting:
                self.queues[state.work.device].append(state)

    def run(self) -> None:
        context = multiprocessing.get_context("spawn" if self.reads_objects else "forkserver")
        if not self.reads_objects:
            # The kernel watches the thread that starts the server, and only the main thread lives as long as its process.
            is_main = threading.current_thread() is threading.main_thread()
            context.set_forkserver_preload([*([FORK_SERVER] if is_main else []), __name__])
            with _interrupts_ignored():
                forkserver.ensure_running()
        is_done = False
        while not is_done:
            begin = (parent_of_workers(context), share_meters(context), share_manners(context, self.jobs))
            with ProcessPoolExecutor(self.jobs, mp_context=context, initializer=begin_worker, initargs=begin) as pool:
                try:
                    is_done = self._read_suspects(pool) and self._read_all(pool)
                finally:
                    if not is_done:
                        _end_workers(pool)
                    pool.shutdown(cancel_futures=True)
            if self.lost_alone >= LOST_MAX and not self.has_read:
                is_done = True
                self._fail(StorageError("worker processes die whatever they read: a lack of memory, or of what they need to start"))

    def _read_suspects(self, pool: ProcessPoolExecutor) -> bool:
        """Reads what was in flight when a worker died, one task at a time. False when a worker died again: the pool is gone."""
        while self.suspects:
            reading = self.suspects.popleft()
            if reading.state.is_over:
                continue
            try:
                future = self._submitted(pool, reading.task)
            except BrokenProcessPool:  # it died with nothing to do
                self.suspects.appendleft(reading)
                return False
            outcome = _outcome(future.result)
            is_lost = isinstance(outcome, BrokenProcessPool)
            if is_lost:
                self.lost_alone += 1
                message = "a worker process died while it read this file, and again when nothing else was read: perhaps for want of memory"
                outcome = StorageError(message, path=reading.task.path)
            self._settle(reading, outcome)
            if is_lost:
                return False
        return True

    def _read_all(self, pool: ProcessPoolExecutor) -> bool:
        """Reads everything that waits. False when a worker died: the pool is gone, and nothing is in flight any more."""
        while (not self.suspects and self._submit(pool)) or self.in_flight:
            done, _ = wait(self.in_flight, return_when=FIRST_COMPLETED)
            self._collect(done)
        if self.suspects:
            log.warning("a worker process died: %d segments are read once more, one at a time", len(self.suspects))
        return not self.suspects

    def _submit(self, pool: ProcessPoolExecutor) -> bool:
        """Starts as many readers as the devices allow. Returns whether it started one."""
        submitted = False
        while len(self.in_flight) < 2 * self.jobs and (state := self._next()) is not None:
            reading = _Reading(state, state.waiting.popleft())
            state.reading.append(reading)
            if state.waiting:
                self.queues[state.work.device].appendleft(state)
            try:
                reading.future = self._submitted(pool, reading.task)
            except BrokenProcessPool:
                self.suspects.append(reading)
                return False
            self.in_flight[reading.future] = reading
            self.on_device[state.work.device] += 1
            submitted = True
        return submitted

    @staticmethod
    def _submitted(pool: ProcessPoolExecutor, task: ReadTask) -> Future[Pieces]:
        """Which starts a worker where all have something to do.

        Raises:
            BrokenProcessPool: one has died.
        """
        with _interrupts_later():
            return pool.submit(read_segment, task)

    def _next(self) -> _State | None:
        """Takes the next partition to read from out of its queue.

        That is the first one of the device with the fewest readers, so that none is idle while another has many. A partition that waits for
        an early segment, with many later ones read already, is passed over.
        """
        for device in sorted(self.queues, key=lambda each: self.on_device[each]):
            queue = self.queues[device]
            if self.on_device[device] >= self.limits[device]:
                continue
            while queue and not queue[0].waiting:
                queue.popleft()  # it ended early
            for state in queue:
                if state.waiting and len(state.reading) < 2 * self.jobs:
                    queue.remove(state)
                    return state
        return None

    def _collect(self, done: set[Future[Pieces]]) -> None:
        for future in done:
            reading = self.in_flight.pop(future)
            self.on_device[reading.state.work.device] -= 1
            outcome = _outcome(future.result)
            if isinstance(outcome, BrokenProcessPool):
                self.suspects.append(reading)
            else:
                self._settle(reading, outcome)

    def _settle(self, reading: _Reading, outcome: Pieces | Exception) -> None:
        reading.outcome = outcome
        self.has_read |= not isinstance(outcome, Exception)
        state = reading.state
        had_more = bool(state.waiting)
        state.take_ready()
        state.refill()
        if state.waiting and not had_more:
            self.queues[state.work.device].appendleft(state)

    def _fail(self, error: StorageError) -> None:
        """What was finished stays so."""
        for state in self.states:
            if not state.is_over:
                state.end(error)
