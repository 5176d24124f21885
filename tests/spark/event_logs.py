"""Tasks of a test in Spark's own log."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["new_tasks", "overlap", "reading_tasks"]


def _events(event_log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in event_log.rglob("*") if path.is_file() for line in path.read_text().splitlines()]


def _written(spark: SparkSession, event_log: Path) -> list[dict[str, Any]]:
    """Everything up to now: the end of a job brings the log up to date, once the listeners have been notified."""
    spark.sparkContext.parallelize([0], 1).count()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(60_000)
    return _events(event_log)


def _running_tasks(spark: SparkSession) -> int:
    """Also those of stages that have failed, which are no active stages any more."""
    return sum(each.numRunningTasks() for each in spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos())


@contextmanager
def new_tasks(spark: SparkSession, event_log: Path) -> Iterator[list[dict[str, Any]]]:
    """The tasks of stages that begin inside the block, from Spark's event log: filled when it ends.

    Tasks of queries that failed earlier end first: else they would keep the places of the new ones.
    """
    wait_until(lambda: not _running_tasks(spark), "tasks of earlier queries do not end")
    submitted = (each for each in _written(spark, event_log) if each["Event"] == "SparkListenerStageSubmitted")
    last = max((each["Stage Info"]["Stage ID"] for each in submitted), default=-1)
    found: list[dict[str, Any]] = []
    yield found
    events = _written(spark, event_log)
    found += [each for each in events if each["Event"] == "SparkListenerTaskEnd" and each["Stage ID"] > last]


def reading_tasks(ended: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tasks of the stage with the most tasks, in the order of their partitions; of the first such stage."""
    stages: dict[int, list[dict[str, Any]]] = {}
    for each in ended:
        assert not each["Task Info"]["Failed"]
        stages.setdefault(each["Stage ID"], []).append(each)
    return sorted(max(stages.values(), key=len), key=lambda each: each["Task Info"]["Index"])


def overlap(tasks: list[dict[str, Any]]) -> bool:
    """Whether two of the tasks ran at the same time."""
    times = [(each["Task Info"]["Launch Time"], each["Task Info"]["Finish Time"]) for each in tasks]
    return any(one[0] < other[1] and other[0] < one[1] for one, other in itertools.combinations(times, 2))
