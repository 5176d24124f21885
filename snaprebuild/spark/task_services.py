"""What the tasks of a run need from it, as one value that is sent to them: how they read, and which limits they have no share of."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import SparkSession

from snaprebuild.errors import RefusedError
from snaprebuild.snapshots.receipts.receipt_parts import end_own_parts
from snaprebuild.storage.io_limits.policy import IoLimits, current_limits
from snaprebuild.storage.s3.request_limits import meters

__all__ = ["TaskFunction", "TaskServices", "task_services"]

TaskFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What ``mapInArrow`` runs in each task."""


@dataclass(frozen=True, slots=True)
class TaskServices:
    """The limits of a run, as a value that is sent to tasks.

    Attributes:
        io_limits: of the run.
        attempts: at one task that may run at the same time.
        stages: that may run at the same time.
    """

    io_limits: IoLimits
    attempts: int
    stages: int = 1

    def for_stages(self, count: int) -> TaskServices:
        """The limits for tasks of stages that may run at the same time, such as those of a union."""
        return replace(self, stages=count)

    def wrap(self, function: TaskFunction, tasks: int) -> TaskFunction:
        """A function that runs under the limits of the run.

        A task cannot ask others before each block. So each has its part of a rate, and the rate holds for any number of executors:
        there are never more attempts at once than tasks, or twice as many with ``spark.speculation``.

        Args:
            function: of the tasks of a stage.
            tasks: how many the stage has.
        """
        return _Limited(function, self.io_limits.share_of(tasks * self.attempts * self.stages))


def task_services(session: SparkSession) -> TaskServices:
    """The limits of the run whose work this thread does, for the tasks of a session."""
    is_speculative = str(session.conf.get("spark.speculation", "false")).lower() == "true"
    return TaskServices(current_limits().io, 2 if is_speculative else 1)


@dataclass(frozen=True, slots=True)
class _Limited:
    function: TaskFunction
    io_limits: IoLimits

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
