"""What the tasks of a run need from it, as one value that is sent to them: its limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from snaprebuild.spark.driver_channel import listening

__all__ = ["TaskFunction", "TaskServices", "task_services"]

TaskFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What ``mapInArrow`` runs in each task."""


class TaskServices(Protocol):
    """Can be pickled."""

    def wrap(self, function: TaskFunction, tasks: int) -> TaskFunction:
        """A function that runs under the limits of the run.

        Args:
            function: of the tasks of a stage.
            tasks: how many tasks the stage has: each gets this part of a rate.
        """


def task_services(session: SparkSession) -> AbstractContextManager[TaskServices]:
    """The services of a run, inside the block.

    Raises:
        RefusedError: they cannot be had here.
    """
    return listening(session)
