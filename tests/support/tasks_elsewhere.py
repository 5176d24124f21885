"""An engine that runs tasks as other processes of a cluster do: each attempt from a pickled job, with a part of the receipt of its own.

Arguments of the program: a log directory, where to write (empty for in place), and the receipt. It rebuilds all boundaries.
"""

import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

from plans import planned

from snaprebuild.snapshots.engine.partition_task import Job, PartitionTask, TaskQueue, run_here
from snaprebuild.snapshots.engine.segment_reader import read_group
from snaprebuild.snapshots.rebuild.rebuild_result import RebuildResult
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.receipts.receipt import Receipt
from snaprebuild.snapshots.receipts.receipt_parts import end_own_parts
from snaprebuild.snapshots.run import Run

__all__ = ["TasksElsewhere", "rebuilt_elsewhere"]


class TasksElsewhere:
    """A ``partition_task.Engine``.

    Attributes:
        attempts: of each task; the outcome of the last one counts.
        between: called with the number of the attempt before it begins.
    """

    def __init__(self, attempts: int = 1, between: Callable[[int], None] | None = None) -> None:
        self.attempts = attempts
        self.between = between

    def __call__(self, tasks: Sequence[PartitionTask]) -> None:
        for task in tasks:
            sent = pickle.dumps(task.job())
            for attempt in range(self.attempts):
                if self.between is not None:
                    self.between(attempt)
                returned = attempted(sent)
            task.adopt(pickle.loads(returned))

    def parallel_map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Maps items here."""
        return [function(item) for item in items]


def attempted(sent: bytes) -> bytes:
    """One attempt at a job; its outcome."""
    job: Job = pickle.loads(sent)
    try:
        with job.started() as task:
            queue = TaskQueue(task)
            queue.refill()
            run_here([queue], read_group)
            return pickle.dumps(task.outcome)
    finally:
        end_own_parts()


def rebuilt_elsewhere(
    logs: object, out: object | None, receipt: object, engine: TasksElsewhere | None = None, **options: Any
) -> RebuildResult:
    """Rebuilds a log directory with such an engine."""
    plan = planned(logs, out=None if out is None else str(out), **{"boundaries": "all" if out else "missing", **options})
    return rebuild(plan, Run(engine=engine or TasksElsewhere()), receipt=Receipt(str(receipt), plan))


if __name__ == "__main__":
    _, logs, out, receipt = sys.argv
    result = rebuilt_elsewhere(logs, out or None, receipt)
    sys.exit(max((each.severity for each in result.findings), default=0))
