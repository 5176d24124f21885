"""The verb ``undo``."""

from __future__ import annotations

from typing import Annotated

import typer

from snaprebuild.cli.options.common import S3Options, check_paths
from snaprebuild.cli.options.description import option
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError

__all__ = ["undo"]


@verb()
def undo(
    *,
    receipt: Annotated[str | None, typer.Argument(metavar="[RECEIPT]", hidden=True)] = None,
    last: Annotated[
        bool,
        option(
            "--last",
            short="Take back the newest run that is not undone yet, without naming its receipt",
            default="name RECEIPT",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        option(
            "--dry-run",
            short="Show what would be removed, and change nothing",
            default="no",
        ),
    ] = False,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """REMOVES the snapshots that a run wrote, and puts back what it set aside. Without RECEIPT and --last, lists the receipts.

    RECEIPT is the file that `rebuild`, `install`, `before-start`, `follower repair` or `tier repair` left. Stop the broker first; for
    remote storage it may run. Only files that still have the bytes and the time of that run are removed. What was changed or replaced
    since is left alone and reported, exit code 1. A second undo finds nothing to do; one that was interrupted can be run again.
    """
    from snaprebuild.cli.file_kinds import UNDONE_RECEIPT, check_file
    from snaprebuild.cli.render.receipts import ReceiptListView, UndoView
    from snaprebuild.cli.render.tier import RepairUndoView
    from snaprebuild.snapshots.receipts import undo as undoing
    from snaprebuild.snapshots.receipts.receipt_reader import load_receipt
    from snaprebuild.snapshots.receipts.verify_receipt import STORE_KIND, list_receipts, newest_receipt, receipt_path, schema_of
    from snaprebuild.tier.repair.undo import is_repair_undone, undo_receipt

    if receipt is not None and last:
        raise UsageError("--last takes back the newest run by itself: no RECEIPT goes with it")
    if receipt is None and not last:
        out.begin()
        return ReceiptListView(list_receipts())
    if receipt is None:
        receipt = newest_receipt(
            lambda each: (
                is_repair_undone(each.path, s3.settings()) if each.is_of_store else undoing.is_undone(load_receipt(each.path))
            )
        ).path
    check_paths([receipt])
    receipt = receipt_path(receipt)
    check_file(receipt, UNDONE_RECEIPT)
    out.begin(receipt=receipt)
    if (schema_of(receipt) or "").startswith(STORE_KIND):
        return RepairUndoView(undo_receipt(receipt, s3.settings(), dry_run=dry_run), is_last=last)
    return UndoView(undoing.undo(load_receipt(receipt), dry_run=dry_run), receipt, is_last=last)
