"""The verb ``undo``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from snaprebuild.cli.options.common import S3Options, check_paths
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.snapshots.receipts.undo import UndoneFile, UndoResult

__all__ = ["undo"]

FILES_SHOWN_MAX = 20


@verb()
def undo(
    *,
    receipt: Annotated[str | None, typer.Argument(metavar="[RECEIPT]", hidden=True)] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed, and change nothing. Default: remove it.")
    ] = False,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """REMOVES the snapshots that a run wrote, and puts back what it set aside. Without RECEIPT, lists the receipts.

    RECEIPT is the file that `rebuild`, `install`, `before-start`, `follower repair` or `tier repair` left. Stop the broker first; for
    remote storage it may run. Only files that still have the bytes and the time of that run are removed. What was changed or replaced
    since is left alone and reported, exit code 1. A second undo finds nothing to do; one that was interrupted can be run again.
    """
    from snaprebuild.snapshots.receipts.receipt_reader import load_receipt
    from snaprebuild.snapshots.receipts.undo import undo as take_back
    from snaprebuild.snapshots.receipts.verify_receipt import list_receipts, schema_of
    from snaprebuild.tier.repair.undo import SCHEMA, load_repair_receipt, undo_repairs

    if receipt is None:
        from snaprebuild.cli.render.receipt_list import print_receipts, receipts_document

        out.begin()
        listed = list_receipts()
        return Result.untyped(("receipts", 1), lambda: receipts_document(listed), listed.findings, lambda: print_receipts(listed))
    check_paths([receipt])
    out.begin(receipt=receipt)
    if schema_of(receipt) == SCHEMA:
        from snaprebuild.cli.render.tier_undo import undone_result
        from snaprebuild.storage.log_dir import directory_fault
        from snaprebuild.storage.stores import store_of

        root, announced = load_repair_receipt(receipt)
        store = store_of(root, s3.settings())
        if store.is_local and (fault := directory_fault(root)) is not None:
            raise UsageError(fault, path=root)
        return undone_result(undo_repairs(store, root, announced, receipt, dry_run=dry_run))
    result = take_back(load_receipt(receipt), dry_run=dry_run)
    return Result.untyped(("undo", 1), lambda: _document(result), result.findings, lambda: _print(result))


def _document(result: UndoResult) -> dict[str, object]:
    return {
        "receipt": result.receipt.path,
        "began_ms": result.receipt.began_ms,
        "ended": result.receipt.ended,
        "in_place": result.receipt.in_place,
        "dry_run": result.is_dry_run,
        "files": [_file(undone) for undone in result.files],
        "lock_files": result.lock_files,
        "totals": dict(Counter(undone.action for undone in result.files)),
    }


def _file(undone: UndoneFile) -> dict[str, object]:
    written = undone.written
    aside = None
    if written.set_aside is not None:
        aside = {"name": written.set_aside[0], "action": undone.aside_action, "reason": undone.aside_reason}
    return {
        "topic_partition": written.partition.topic_partition,
        "path": written.path,
        "offset": written.offset,
        "action": undone.action,
        "reason": undone.reason,
        "set_aside": aside,
    }


def _print(result: UndoResult) -> None:
    from snaprebuild.cli.result import print_table, print_text, shown
    from snaprebuild.findings import first_of, pluralize

    by_directory: dict[str, list[UndoneFile]] = {}
    for undone in result.files:
        by_directory.setdefault(undone.written.partition.target, []).append(undone)
    rows: list[tuple[object, ...]] = []
    for directory, files in by_directory.items():
        first, last = files[0].written.offset, files[-1].written.offset
        offsets = f"{first} .. {last}" if first != last else str(first)
        asides = Counter(undone.aside_action for undone in files if undone.aside_action is not None)
        topic_partition = files[0].written.partition.topic_partition
        rows.append((topic_partition, offsets, _counts(undone.action for undone in files), _text(asides) or "-", shown(directory)))
    is_changed = any(undone.action == "removed" or undone.aside_action == "put_back" for undone in result.files)
    title = "Dry run: nothing was changed" if result.is_dry_run else "Undone" if is_changed else "Nothing was changed"
    if rows:
        print_table(title, ("partition", "offsets", "snapshots", "set aside", "directory"), rows)
    left = [undone for undone in result.files if undone.action in ("left", "failed") or undone.aside_action in ("left", "failed")]
    listed = [
        (undone.written.partition.topic_partition, undone.written.offset, undone.reason or undone.aside_reason)
        for undone in left[:FILES_SHOWN_MAX]
    ]
    if listed:
        print_table("Left alone", ("partition", "offset", "because"), listed, right=("offset",))
    if len(left) > FILES_SHOWN_MAX:
        print_text(f"and {len(left) - FILES_SHOWN_MAX} more (--output json lists them)")
    print_text(
        f"{pluralize(len(result.files), 'snapshot')}: {_counts(undone.action for undone in result.files) or 'nothing to undo'}"
    )
    if not result.receipt.ended:
        print_text("The run that left this receipt was killed or interrupted; what it came to announce is in it.")
    if result.receipt.in_place and any(undone.action == "removed" for undone in result.files):
        but = ", except what was left alone" if left else ""
        print_text(f"What the run wrote is removed{but}. `scan` shows what the broker does at its next start.")
    if result.lock_files:
        stays = "stays" if len(result.lock_files) == 1 else "stay"
        print_text(f"{first_of([shown(path) for path in result.lock_files])} {stays}: a broker makes the same file.")


def _counts(actions: Iterable[str]) -> str:
    return _text(Counter(actions))


def _text(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {action.replace('_', ' ')}" for action, count in counts.items())
