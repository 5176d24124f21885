"""Reads segments in parallel: worker processes, a limit for each device, results in order for each partition.

Small tasks run in this process. Otherwise workers are started once, and the schedule keeps every device busy; a spinning disk has one
reader at a time. No partition is read further ahead of its first missing segment than twice the count of workers.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from snaprebuild.errors import GoneFileError, ReadFailedError
from snaprebuild.findings import Finding, finding_of_error
from snaprebuild.snapshots.engine.partition_task import PartitionTask, TaskQueue, run_here
from snaprebuild.snapshots.engine.segment_reader import Read, read_group
from snaprebuild.snapshots.engine.worker_pool import WorkerPool
from snaprebuild.snapshots.engine.worker_start import IN_PROCESS_BYTES_MAX
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.second_look import listed_now, read_in_rounds, without_files
from snaprebuild.snapshots.source.source import PartitionSource, check_segments_are_files
from snaprebuild.storage.store import Store

__all__ = ["allowed_processors", "default_jobs", "read_partitions", "run_on_this_machine", "run_partitions", "run_tasks"]


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


def run_tasks(tasks: Sequence[PartitionTask], run: Run) -> None:
    """Runs all tasks to completion: with the engine of the run, or with workers of this machine. One that fails stops no other.

    Args:
        tasks: with the same reader.
        run: with the engine, and how many workers read.
    """
    with run.limits.active():
        if run.engine is None:
            run_on_this_machine(tasks, run, (tasks[0].reader if tasks else None) or read_group)
        else:
            run.engine(tasks)


def run_on_this_machine(tasks: Sequence[PartitionTask], run: Run, read: Read) -> None:
    """Runs all tasks to completion with workers of this machine, or in this process if there is little to read.

    Args:
        tasks: one that fails stops no other.
        run: how many workers.
        read: a function of a module, called by the workers; what it gives for each segment is what the tasks take.
    """
    queues = [TaskQueue(task) for task in tasks]
    for queue in queues:
        queue.refill()
    if sum(each.identity.size_bytes for queue in queues for each in queue.waiting) <= IN_PROCESS_BYTES_MAX:
        run_here(queues, read)
        return
    devices = {task.device for task in tasks}
    per_disk = run.limits.io.readers_per_disk
    worker_count = run.jobs
    if worker_count is None:
        worker_count = default_jobs(len(devices)) if per_disk is None else per_disk * len(devices)
    worker_count = run.limits.io.workers_at_most(worker_count)
    if worker_count <= 1:
        run_here(queues, read)
    else:
        workers = min(worker_count, sum(len(queue.waiting) for queue in queues))
        WorkerPool(queues, workers, devices, read, run.limits).run()


def run_partitions(tasks: Iterable[PartitionTask], run: Run) -> None:
    """Runs the tasks as ``run_tasks``. A partition whose segments are not regular files fails without being read."""
    checked = []
    for task in tasks:
        try:
            check_segments_are_files(task.source.directory)
        except ReadFailedError as error:
            task.fail(error)
            task.settle()
        else:
            checked.append(task)
    run_tasks(checked, run)


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
    run: Run,
) -> list[Result]:
    """Reads partitions as ``run_partitions``. If a broker deletes a file meanwhile, its partition is listed and read again.

    Args:
        sources: the partitions.
        begin: makes an empty result for a place in ``sources``.
        task_of: reads a partition into its result; called again with a new result for each listing.
        run: its jobs and its engine. Of its facts the locks that were free are forgotten at the end.

    Returns:
        A result for each partition. The result of a partition that is gone is empty, with a note. If files were deleted faster than they
        could be read, ``LISTINGS_MAX`` times, the result has the finding ``busy-log``.
    """
    results = [begin(place, source) for place, source in enumerate(sources)]

    def read(due: Sequence[int]) -> Iterator[int]:
        tasks = {place: task_of(place, results[place]) for place in due}
        run_partitions(tasks.values(), run)
        return (place for place, task in tasks.items() if task.outcome.lost_file)

    def begin_again(place: int) -> bool:
        old = results[place].source
        # Copies in remote storage make a log without a directory that could be listed.
        if not isinstance(old.directory.store, Store):
            return False
        try:
            results[place] = begin(place, listed_now(old))
        except (GoneFileError, ReadFailedError) as error:
            results[place] = begin(place, without_files(old))
            results[place].findings.append(finding_of_error(error, old.directory.path))
        return not results[place].findings

    read_in_rounds(range(len(results)), read, begin_again)
    run.facts.forget_free_locks()
    return results
