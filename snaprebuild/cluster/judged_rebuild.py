"""A plan carried out: with its receipt, and with the judgement of the cluster's evidence on what was written."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from snaprebuild.cluster.judged_plan import rebuild_findings
from snaprebuild.findings import Finding
from snaprebuild.snapshots.engine.partition_task import Progress
from snaprebuild.snapshots.plan.plan_model import Plan
from snaprebuild.snapshots.rebuild.rebuild_result import RebuildResult
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.receipts.receipt import Receipt, default_receipt_path, noting_receipt
from snaprebuild.snapshots.run import Run

__all__ = ["JudgedRebuild", "judged_rebuild"]


class JudgedRebuild(msgspec.Struct, frozen=True):
    """A rebuild and its findings, with those about producers whose ids the cluster has yet to give out."""

    result: RebuildResult
    findings: tuple[Finding, ...]


def judged_rebuild(
    plan: Plan,
    run: Run,
    *,
    dry_run: bool,
    receipt: str | None,
    progress: Progress | None,
    at_end: Callable[[RebuildResult], None] | None = None,
) -> JudgedRebuild:
    """Carries out a plan, for the command, the library and a notebook.

    Args:
        plan: from ``judged_plan`` or ``load_judged_plan``.
        run: its jobs, its engine and its facts.
        dry_run: replay and judge, write nothing.
        receipt: path of the receipt; None for a new one in the usual place.
        progress: called for every segment.
        at_end: called with the result. An error of it has the same note.

    Raises:
        RefusedError, StorageError: as ``rebuild``; any error has a note with the receipt if anything was written until then.
        UsageError: there is no place for a receipt.
    """
    written = Receipt(receipt or default_receipt_path(plan.request.destination.receipt_directory), plan)
    with noting_receipt(written):
        result = rebuild(plan, run, dry_run=dry_run, receipt=written, progress=progress)
        if at_end is not None:
            at_end(result)
    return JudgedRebuild(result, rebuild_findings(result, run.facts))
