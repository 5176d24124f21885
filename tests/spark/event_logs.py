"""What Spark's own log says of the tasks of a test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["new_tasks"]


def _events(event_log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in event_log.rglob("*") if path.is_file() for line in path.read_text().splitlines()]


@contextmanager
def new_tasks(spark: SparkSession, event_log: Path) -> Iterator[list[dict[str, Any]]]:
    """The tasks that end inside the block, from Spark's event log: filled when it ends."""
    spark.sparkContext.parallelize([0], 1).count()  # the end of a job brings the log up to date
    before = len(_events(event_log))
    found: list[dict[str, Any]] = []
    yield found
    spark.sparkContext.parallelize([0], 1).count()
    found += [each for each in _events(event_log)[before:] if each["Event"] == "SparkListenerTaskEnd"]
