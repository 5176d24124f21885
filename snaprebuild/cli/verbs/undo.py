"""The verb ``undo``."""

from __future__ import annotations

from typing import Annotated

import typer

from snaprebuild.cli.options.common import S3Options, check_paths
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError

__all__ = ["undo"]


@verb()
def undo(
    *,
    receipt: Annotated[str | None, typer.Argument(metavar="[RECEIPT]", hidden=True)] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed, and change nothing. Default: remove it.")
    ] = False,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """REMOVES the snapshots that a run wrote, and puts back what it set aside. Without RECEIPT, lists the receipts.

    RECEIPT is the file that `rebuild`, `install`, `before-start`, `follower repair` or `tier repair` left. Stop the broker first; for
    remote storage it may run. Only files that still have the bytes and the time of that run are removed. What was changed or replaced
    since is left alone and reported, exit code 1. A second undo finds nothing to do; one that was interrupted can be run again.
    """
    from snaprebuild.snapshots.receipts.receipt_reader import load_receipt
    from snaprebuild.snapshots.receipts.undo import undo as take_back
    from snaprebuild.snapshots.receipts.verify_receipt import list_receipts, receipt_path, schema_of
    from snaprebuild.tier.repair.undo import SCHEMA, load_repair_receipt, undo_repairs

    if receipt is None:
        from snaprebuild.cli.render.receipts import print_receipts, receipts_answer, receipts_document

        out.begin()
        listed = list_receipts()
        return Result(
            lambda: receipts_document(listed),
            listed.findings,
            lambda: print_receipts(listed),
            answer=lambda: receipts_answer(listed),
        )
    check_paths([receipt])
    receipt = receipt_path(receipt)
    out.begin(receipt=receipt)
    if schema_of(receipt) == SCHEMA:
        from snaprebuild.cli.render.tier import RepairUndoView
        from snaprebuild.storage.log_dir import directory_fault
        from snaprebuild.storage.stores import path_of

        root, announced = load_repair_receipt(receipt)
        store = path_of(root, s3.settings())
        if store.is_local and (fault := directory_fault(root)) is not None:
            raise UsageError(fault, path=root)
        return RepairUndoView(undo_repairs(store, announced, receipt, dry_run=dry_run))
    from snaprebuild.cli.render.receipts import print_undone, undo_answer, undo_document

    result = take_back(load_receipt(receipt), dry_run=dry_run)
    return Result(
        lambda: undo_document(result),
        result.findings,
        lambda: print_undone(result),
        answer=lambda: undo_answer(result, receipt),
    )
