"""Counts of what the tasks of a job have done so far, for the progress line. A task that runs twice counts twice."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyspark import Accumulator, SparkContext

from snaprebuild.findings import pluralize

__all__ = ["Counts", "Progress", "job_counters"]

SECONDS = 0.5
"""Time between two updates."""

Progress = Callable[[str, int], None]
"""Called with a text about what was done, and the bytes that were read since the last call."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Sums that tasks add to when they end."""

    size_bytes: Accumulator[int]
    segments: Accumulator[int]
    partitions: Accumulator[int]

    def add(self, *, size_bytes: int = 0, segments: int = 0, partitions: int = 0) -> None:
        """Called in tasks."""
        self.size_bytes.add(size_bytes)
        self.segments.add(segments)
        self.partitions.add(partitions)

    @property
    def text(self) -> str:
        """Segments and partitions; on the driver."""
        return f"{pluralize(self.segments.value, 'segment')} read, {pluralize(self.partitions.value, 'partition')} put together"


@contextlib.contextmanager
def job_counters(context: SparkContext, progress: Progress | None) -> Iterator[Counts]:
    """Counts for one job, shown by ``progress`` while it runs."""
    counts = Counts(context.accumulator(0), context.accumulator(0), context.accumulator(0))
    if progress is None:
        yield counts
        return
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(counts, progress, over), name="spark progress", daemon=True)
    watcher.start()
    try:
        yield counts
    finally:
        over.set()
        watcher.join()


def _watch(counts: Counts, progress: Progress, over: threading.Event) -> None:
    shown = 0
    while not over.wait(SECONDS):
        now = counts.size_bytes.value
        progress(counts.text, now - shown)
        shown = now
