"""What the tasks of a run need from it, as one value that is sent to them: its limits, and who hears of a file before it has its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from snaprebuild.spark.driver_channel import OnEvent, listening

__all__ = ["TaskFunction", "TaskServices", "task_services"]

TaskFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What ``mapInArrow`` runs in each task."""


class TaskServices(Protocol):
    """Can be pickled. Requests to object stores are counted for the whole run inside of ``wrap``."""

    def wrap(self, function: TaskFunction, tasks: int) -> TaskFunction:
        """A function that runs under the limits of the run.

        Args:
            function: of the tasks of a stage.
            tasks: how many tasks the stage has: each gets this part of a rate.
        """

    def announcer(self, number: int) -> Callable[[Any], None]:
        """Announces the events of the job with this number, and returns when they are safe: a file gets its name after that.

        What it returns raises SnaprebuildError, which ends the job.
        """


def task_services(session: SparkSession, on_event: OnEvent | None = None) -> AbstractContextManager[TaskServices]:
    """The services of a run, inside the block.

    Args:
        session: that runs the tasks.
        on_event: called with the number of a job and an event of it, by several threads at once; None if no job has events.

    Raises:
        RefusedError: they cannot be had here.
    """
    return listening(session, on_event)
