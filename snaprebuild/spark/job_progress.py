"""The reads of the tasks of a job so far, for the progress line.

Spark reports how many tasks of a stage have ended, and not which. So the least that they can have read is shown, and the exact number when
the stage is over. Each byte is counted once, however often a task runs.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from snaprebuild.findings import pluralize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Progress", "ReadProgress", "watched"]

log = logging.getLogger(__name__)

SECONDS = 0.5
"""Time between two updates."""

JOIN_SECONDS = 5
"""How long to wait for the thread that looks, which may be in the middle of a call to a Java that is gone."""

JOB_GROUP = "spark.jobGroup.id"

Progress = Callable[[str, int], None]
"""Called with a text about what was done, and the bytes that were read since the last call."""

Stage = tuple[int, int, int]
"""Number of a stage, its tasks, and those that have ended."""


class ReadProgress:
    """How far the stage is that reads."""

    def __init__(self, progress: Progress, task_bytes: Sequence[int], other_tasks: Sequence[int]) -> None:
        """Takes the arguments of ``watched``."""
        self._progress = progress
        self._tasks = len(task_bytes)
        self._least_bytes = list(itertools.accumulate(sorted(task_bytes), initial=0))
        self._sizes = {self._tasks + others for others in other_tasks} - {1}
        self._lock = threading.Lock()
        self._stage: int | None = None
        self._shown_bytes = 0

    def update(self, stages: Iterable[Stage]) -> None:
        """Shows what is known from stages that run or are over."""
        with self._lock:
            for number, tasks, ended in sorted(stages):
                if self._stage is None and tasks in self._sizes:
                    self._stage = number  # the first one: a stage that replays is begun when the one that reads is over
                if number == self._stage:
                    others = tasks - self._tasks
                    self._show(max(ended - others, 0))

    def end(self) -> None:
        """All tasks have read."""
        with self._lock:
            self._show(self._tasks)

    def _show(self, ended: int) -> None:
        size_bytes = self._least_bytes[ended]
        if size_bytes > self._shown_bytes:
            self._progress(f"{ended} of {pluralize(self._tasks, 'task')} read", size_bytes - self._shown_bytes)
            self._shown_bytes = size_bytes


@contextlib.contextmanager
def watched(
    session: SparkSession, progress: Progress | None, task_bytes: Sequence[int], other_tasks: Sequence[int] = (0,)
) -> Iterator[None]:
    """Shows how far the queries of this thread are, inside the block. If it ends without an error, all was read.

    Args:
        session: that runs them.
        progress: shows it; None for nobody.
        task_bytes: what each task reads.
        other_tasks: how many tasks do something else in the same stage, for each query that may be the first to read.
    """
    from snaprebuild.spark.session import is_remote

    if progress is None:
        yield
        return
    shown = ReadProgress(progress, task_bytes, other_tasks)
    with _handled(session, shown) if is_remote(session) else _polled(session, shown):
        yield
    shown.end()


@contextlib.contextmanager
def _handled(session: SparkSession, shown: ReadProgress) -> Iterator[None]:
    """The server reports while a query of this thread runs."""
    thread = threading.get_ident()

    def handle(stages: Any, **_: Any) -> None:
        if threading.get_ident() == thread:
            shown.update([(each.stage_id, each.num_tasks, each.num_completed_tasks) for each in stages or ()])

    handler: Any = handle
    if not hasattr(session, "registerProgressHandler"):  # before 4.0
        yield
        return
    session.registerProgressHandler(handler)
    try:
        yield
    finally:
        session.removeProgressHandler(handler)


@contextlib.contextmanager
def _polled(session: SparkSession, shown: ReadProgress) -> Iterator[None]:
    """A thread asks for the stages of the jobs of this thread, which are in a group of their own."""
    context = session.sparkContext
    group = f"snaprebuild-{secrets.token_hex(8)}"
    before = context.getLocalProperty(JOB_GROUP)
    over = threading.Event()
    watcher = threading.Thread(target=_poll, args=(context, group, shown, over), name="spark progress", daemon=True)
    context.setLocalProperty(JOB_GROUP, group)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(JOIN_SECONDS)
        with contextlib.suppress(Exception):  # Java may be gone
            context.setLocalProperty(JOB_GROUP, before)  # type: ignore[arg-type]  # None removes it


def _poll(context: Any, group: str, shown: ReadProgress, over: threading.Event) -> None:
    tracker = context.statusTracker()
    while not over.wait(SECONDS):
        try:
            jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
            numbers = {stage for job in jobs if job is not None for stage in job.stageIds}
            stages = [tracker.getStageInfo(number) for number in numbers]
        except Exception as error:  # Java may be gone: the job says so
            log.debug("no progress is shown: %s", error)
            return
        shown.update([(each.stageId, each.numTasks, each.numCompletedTasks) for each in stages if each is not None])
