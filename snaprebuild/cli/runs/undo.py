"""The work of the verb ``undo``."""

from __future__ import annotations

import os
from functools import partial

from snaprebuild.cli.file_kinds import UNDONE_RECEIPT, check_file
from snaprebuild.cli.options.common import S3Options, check_paths
from snaprebuild.cli.render.receipts import DirectoryUndoView, ReceiptListView, UndoView
from snaprebuild.cli.render.tier import RepairUndoView
from snaprebuild.cli.runs.run_settings import stores_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError
from snaprebuild.snapshots.receipts import undo as undoing
from snaprebuild.snapshots.receipts.directory_receipt import FOLLOWER_FORM, TOPIC_FORM, undo_directories
from snaprebuild.snapshots.receipts.receipt_lines import STORE_KIND
from snaprebuild.snapshots.receipts.receipt_reader import ReceiptHeading, ReceiptKind, load_receipt
from snaprebuild.snapshots.receipts.verify_receipt import (
    list_receipts,
    newest_receipt,
    receipt_path,
    schema_of,
)
from snaprebuild.tier.repair.undo import is_repair_undone, undo_receipt

__all__ = ["run_undo"]


def run_undo(
    *,
    receipt: str | None,
    last: bool,
    dry_run: bool,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Takes a run back, or lists the receipts without one."""
    if receipt is not None and last:
        raise UsageError("--last takes back the newest run by itself: no RECEIPT goes with it")
    if receipt is None and not last:
        out.begin()
        return ReceiptListView(*list_receipts())
    if receipt is None:
        receipt = newest_receipt(partial(_is_undone, s3)).path
    check_paths([receipt])
    receipt = receipt_path(receipt)
    is_directory = os.path.isdir(receipt)  # of the parts of a receipt
    if not is_directory:
        check_file(receipt, UNDONE_RECEIPT)
    out.begin(read={"receipt": receipt})
    schema = "" if is_directory else schema_of(receipt) or ""
    for form in (TOPIC_FORM, FOLLOWER_FORM):
        if schema.startswith(form.kind):
            return DirectoryUndoView(undo_directories(receipt, form, dry_run=dry_run), is_last=last)
    if schema.startswith(STORE_KIND):
        return RepairUndoView(undo_receipt(receipt, stores_of(s3), dry_run=dry_run), is_last=last)
    return UndoView(undoing.undo(load_receipt(receipt), dry_run=dry_run), receipt, is_last=last)


def _is_undone(s3: S3Options, receipt: ReceiptHeading) -> bool:
    if receipt.kind is ReceiptKind.STORE:
        return is_repair_undone(receipt.path, stores_of(s3))
    for form in (TOPIC_FORM, FOLLOWER_FORM):
        if receipt.kind.value == form.kind:
            return undo_directories(receipt.path, form, dry_run=True).is_undone
    return undoing.is_undone(load_receipt(receipt.path))
