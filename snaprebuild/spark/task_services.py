"""The needs of the tasks of a run, as one value that is sent to them: how they read, and which limits they have no share of."""

from __future__ import annotations

import functools
import gc
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from snaprebuild.errors import RefusedError
from snaprebuild.snapshots.receipts.receipt_parts import end_own_parts
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.spark.arrow_tables import TaskFunction
from snaprebuild.spark.executor_directories import DirectoryIdentity, check_directories, identities_of, is_on_machine
from snaprebuild.spark.packing import RATED_TASKS
from snaprebuild.spark.session import is_remote
from snaprebuild.storage.io_limits.policy import IoLimits, current_limits
from snaprebuild.storage.s3.request_limits import meters

__all__ = ["TaskServices", "attempts_of_task", "is_speculative", "local_cores", "log_directories", "rated_tasks", "task_services"]

SPECULATION = "spark.speculation"


@dataclass(frozen=True, slots=True)
class TaskServices:
    """The limits of a run, as a value that is sent to tasks.

    Attributes:
        io_limits: of the run.
        attempts: at one task that may run at the same time.
        log_dirs: identities of the directories that tasks read, by path.
        stages: that may run at the same time.
    """

    io_limits: IoLimits
    attempts: int
    log_dirs: Mapping[str, DirectoryIdentity] = field(default_factory=dict)
    stages: int = 1

    def for_stages(self, count: int) -> TaskServices:
        """The limits for tasks of stages that may run at the same time, such as those of a union."""
        return replace(self, stages=count)

    def wrap(self, function: TaskFunction, tasks: int) -> TaskFunction:
        """A function that runs under the limits of the run.

        A task cannot ask others before each block, so each has its part of a rate. The rate holds for any number of executors: there
        are never more attempts at once than tasks, or twice as many with speculation.

        Args:
            function: of the tasks of a stage.
            tasks: how many the stage has.
        """
        return _Limited(function, self.io_limits.share_of(tasks * self.attempts * self.stages), self.log_dirs)


def rated_tasks(session: SparkSession) -> int:
    """How many tasks read under a rate: as many as can run at once, so that together they reach it.

    The rate holds also if this is wrong: it is divided by the tasks, not by the cores.
    """
    cores = _cores_at_most(session)
    return RATED_TASKS if cores is None else max(min(cores, RATED_TASKS), 1)


def local_cores(session: SparkSession) -> int | None:
    """How many tasks a session of this machine runs at once; None if the session may be on other machines."""
    master = str(session.conf.get("spark.master", ""))
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master)
    if local is None:
        return None
    if local[1] == "*":
        return None if is_remote(session) else os.cpu_count()
    return int(local[1] or 1)


def _cores_at_most(session: SparkSession) -> int | None:
    """How many cores a session gets at most, by its settings; None if these do not show it."""
    cores = local_cores(session)
    if cores is not None:
        return cores
    cluster = re.fullmatch(r"local-cluster\[(\d+),(\d+),\d+\]", str(session.conf.get("spark.master", "")))
    if cluster is not None:
        return int(cluster[1]) * int(cluster[2])
    most = _number(session, "spark.cores.max")
    if most is None:
        is_dynamic = _is_set(session, "spark.dynamicAllocation.enabled")
        executors = _number(session, "spark.dynamicAllocation.maxExecutors" if is_dynamic else "spark.executor.instances")
        cores = _number(session, "spark.executor.cores")
        most = None if executors is None or cores is None else executors * cores
    return most


def _number(session: SparkSession, name: str) -> int | None:
    text = str(session.conf.get(name, ""))
    return int(text) if text.isdecimal() else None


def task_services(session: SparkSession, sources: Iterable[PartitionSource] = ()) -> TaskServices:
    """The limits of the run whose work this thread does, for the tasks of a session.

    Args:
        session: that runs the tasks.
        sources: partitions that they read.
    """
    return TaskServices(current_limits().io, 2 if is_speculative(session) else 1, identities_of(log_directories(sources)))


def log_directories(sources: Iterable[PartitionSource]) -> Iterator[str]:
    """The log directories on this machine; of a partition that is a file system of its own, its directory."""
    for source in sources:
        directory = source.directory
        if is_on_machine(directory.store):
            yield directory.path if os.path.ismount(directory.path) else source.log_dir.path


def is_speculative(session: SparkSession) -> bool:
    """Whether a second attempt at a task may run next to the first one."""
    return _is_set(session, SPECULATION)


def attempts_of_task() -> int:
    """How many attempts at the task of this thread may run at once. Spark passes the settings of a session to its tasks."""
    context = TaskContext.get()
    return 2 if context is not None and _is_true(context.getLocalProperty(SPECULATION)) else 1


def _is_set(session: SparkSession, name: str) -> bool:
    return _is_true(session.conf.get(name, None))


def _is_true(value: str | None) -> bool:
    """The value of a setting, which Spark reads in any case of letters; false if it is not set."""
    return str(value).strip().lower() == "true"


@dataclass(frozen=True, slots=True)
class _Limited:
    function: TaskFunction
    io_limits: IoLimits
    log_dirs: Mapping[str, DirectoryIdentity]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        check_directories(self.log_dirs)
        meters.counter = _refuse
        current_limits().apply(self.io_limits)
        try:
            yield from self.function(batches)
        finally:
            end_own_parts()
        _freeze_modules()


def _refuse(run: str, kind: int, count: int, most: int, option: str) -> None:  # noqa: ARG001  a Counter
    """Counts nothing (``request_limits.Counter``): a task without a share of a limit (``limited_reads``) must not use any of it.

    Raises:
        RefusedError: always.
    """
    raise RefusedError(f"this task has no share of {option}, and sends no request: only the driver may do this work")


@functools.cache
def _freeze_modules() -> None:
    """Exempts from the collector of cycles what is alive when the first task of a process ends: modules for the most part.

    PySpark collects after every task (``pyspark.daemon``). Our imports have 140,000 objects, which take 0.07 s of the core. In that
    time a task can read 400 MiB of a segment from the page cache.
    """
    gc.freeze()
