"""Carries a plan out: a ``RebuildRun`` (``snapshots.rebuild.run``) that links ready snapshots, and replays and writes the others."""

from __future__ import annotations

from collections.abc import Callable

from snaprebuild.snapshots.engine.partition_task import Progress
from snaprebuild.snapshots.plan.plan_model import PartitionPlan, Plan
from snaprebuild.snapshots.rebuild.preflight import with_preflight
from snaprebuild.snapshots.rebuild.result import PartitionResult, RebuildResult
from snaprebuild.snapshots.rebuild.run import RebuildRun
from snaprebuild.snapshots.receipts.receipt import Receipt
from snaprebuild.snapshots.receipts.write_events import WriteEvent
from snaprebuild.snapshots.run import Run

__all__ = ["rebuild"]


def rebuild(
    plan: Plan,
    run: Run | None = None,
    *,
    dry_run: bool = False,
    receipt: Receipt | None = None,
    progress: Progress | None = None,
    on_event: Callable[[PartitionPlan, WriteEvent], None] | None = None,
    is_rehearsal: bool = False,
) -> RebuildResult:
    """Carries out ``plan``. A failure in one partition does not stop the others.

    Args:
        plan: from ``make_plan`` or ``load_plan``.
        run: its jobs, its engine and its deadline: a partition that is not done by then keeps what was written, and a finding lists
            what it lacks. None for a run as nothing else is asked for. The clock is that of the plan.
        dry_run: replay and judge, write nothing.
        receipt: lists what is written; None for no receipt. A dry run checks its place.
        progress: called for every segment.
        on_event: takes the events about files in place of a receipt.
        is_rehearsal: of a dry run: a broker may hold the log directories now, and is stopped before the run.

    Raises:
        RefusedError: the receipt would be among the files of a broker, or its name is taken; or a store would replace what is there.
        StorageError: the receipt cannot be written, or a store does not answer. Nothing was read or written.
    """
    run = run or Run()
    if not any(partition.boundaries for partition in plan.partitions):
        receipt = None
    if receipt is not None:
        receipt.check_place()
    if dry_run:
        receipt = None
    plan = with_preflight(plan, is_rehearsal=is_rehearsal)
    with RebuildRun(run, receipt=receipt, on_event=on_event, dry_run=dry_run, progress=progress) as writing:
        results = [PartitionResult(partition) for partition in plan.partitions]
        writing.take_ready(results)
        writing.replay(plan, results)
        return writing.ended(plan, results)
