"""The work of the verb ``undo``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options, check_paths
from snaprebuild.cli.render.receipts import ReceiptListView, UndoView
from snaprebuild.cli.render.tier import RepairUndoView
from snaprebuild.cli.runs.stores import stores_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.snapshots.receipts import undo as undoing
from snaprebuild.snapshots.receipts.receipt_reader import load_receipt
from snaprebuild.snapshots.receipts.verify_receipt import list_receipts, receipt_path, schema_of
from snaprebuild.tier.repair.undo import KIND, undo_receipt

__all__ = ["run_undo"]


def run_undo(
    *,
    receipt: str | None,
    dry_run: bool,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Takes a run back, or lists the receipts without one."""
    if receipt is None:
        out.begin()
        return ReceiptListView(*list_receipts())
    check_paths([receipt])
    receipt = receipt_path(receipt)
    out.begin(receipt=receipt)
    if (schema_of(receipt) or "").startswith(KIND):
        return RepairUndoView(undo_receipt(receipt, stores_of(s3), dry_run=dry_run))
    return UndoView(undoing.undo(load_receipt(receipt), dry_run=dry_run), receipt)
