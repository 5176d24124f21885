"""Receipts as JSON documents and as tables: the present state of their files, what ``undo`` did, and the list of them."""

from __future__ import annotations

import datetime
import itertools
from collections import Counter
from typing import TYPE_CHECKING

from snaprebuild.cli.result import print_table, print_text, shown
from snaprebuild.cli.table import counts_text, range_text
from snaprebuild.documents.receipts import (
    FileTotals,
    ListedReceipt,
    Receipts,
    SetAside,
    Undo,
    UndoTotals,
    VerifiedFile,
    VerifyReceipt,
)
from snaprebuild.documents.receipts import UndoneFile as UndoneFileJson
from snaprebuild.findings import first_of, pluralize
from snaprebuild.replay.classes import SnapshotClass

if TYPE_CHECKING:
    from snaprebuild.snapshots.receipts.undo import UndoneFile, UndoResult
    from snaprebuild.snapshots.receipts.verify_receipt import FileVerdict, ReceiptList, ReceiptVerdict

__all__ = ["print_receipt", "print_receipts", "print_undo", "receipt_document", "receipts_document", "undo_document"]

FILES_SHOWN_MAX = 20


def receipt_document(result: ReceiptVerdict) -> VerifyReceipt:
    """The JSON document."""
    return VerifyReceipt(
        receipt=result.receipt.path,
        began_ms=result.receipt.began_ms,
        ended=result.receipt.ended,
        in_place=result.receipt.in_place,
        totals=FileTotals(**Counter(verdict.status for verdict in result.files)),
        files=[
            VerifiedFile(
                topic_partition=verdict.written.partition.topic_partition,
                path=verdict.written.path,
                offset=verdict.written.offset,
                snapshot_class=SnapshotClass(verdict.written.snapshot_class),
                status=verdict.status,
                reason=verdict.reason,
                is_explained=verdict.is_explained,
            )
            for verdict in result.files
        ],
    )


def print_receipt(result: ReceiptVerdict, *, details: bool) -> None:
    """A table of directories, one of the files that are not as they were written, and a line of totals."""
    by_directory: dict[str, list[FileVerdict]] = {}
    for verdict in result.files:
        by_directory.setdefault(verdict.written.partition.target, []).append(verdict)
    rows = []
    for directory, verdicts in by_directory.items():
        counts = counts_text(Counter(verdict.status for verdict in verdicts))
        rows.append((verdicts[0].written.partition.topic_partition, len(verdicts), counts, shown(directory)))
    if rows:
        print_table("Partitions", ("partition", "written", "now", "directory"), rows, right=("written",))
    listed = [
        (verdict.written.partition.topic_partition, verdict.written.offset, verdict.status, verdict.reason or "-")
        for verdict in result.files
        if details or verdict.status != "kept"
    ]
    if listed:
        title = "Every snapshot" if details else "Snapshots that are not as they were written"
        print_table(title, ("partition", "offset", "now", "because"), listed, right=("offset",))
    totals = Counter(verdict.status for verdict in result.files)
    print_text(f"{pluralize(len(result.files), 'snapshot')} written: {counts_text(totals) or 'none'}")


def undo_document(result: UndoResult) -> Undo:
    """The JSON document."""
    return Undo(
        receipt=result.receipt.path,
        began_ms=result.receipt.began_ms,
        ended=result.receipt.ended,
        in_place=result.receipt.in_place,
        dry_run=result.is_dry_run,
        totals=UndoTotals(**Counter(undone.action for undone in result.files)),
        files=[_file(undone) for undone in result.files],
        lock_files=result.lock_files,
    )


def _file(undone: UndoneFile) -> UndoneFileJson:
    written = undone.written
    aside = None
    if written.set_aside is not None and undone.aside_action is not None:
        aside = SetAside(name=written.set_aside[0], action=undone.aside_action, reason=undone.aside_reason)
    return UndoneFileJson(
        topic_partition=written.partition.topic_partition,
        path=written.path,
        offset=written.offset,
        action=undone.action,
        reason=undone.reason,
        set_aside=aside,
    )


def print_undo(result: UndoResult) -> None:
    """A table of directories, what was left alone, and what the broker does with the rest."""
    by_directory: dict[str, list[UndoneFile]] = {}
    for undone in result.files:
        by_directory.setdefault(undone.written.partition.target, []).append(undone)
    rows: list[tuple[object, ...]] = []
    for directory, files in by_directory.items():
        offsets = range_text([undone.written.offset for undone in files])
        asides = Counter(undone.aside_action for undone in files if undone.aside_action is not None)
        topic_partition = files[0].written.partition.topic_partition
        rows.append(
            (
                topic_partition,
                offsets,
                counts_text(Counter(undone.action for undone in files)),
                counts_text(asides) or "-",
                shown(directory),
            )
        )
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
        f"{pluralize(len(result.files), 'snapshot')}: {counts_text(Counter(undone.action for undone in result.files)) or 'nothing to undo'}"
    )
    if not result.receipt.ended:
        print_text("The run that left this receipt was killed or interrupted; what it came to announce is in it.")
    if result.receipt.in_place and any(undone.action == "removed" for undone in result.files):
        but = ", except what was left alone" if left else ""
        print_text(f"What the run wrote is removed{but}. `scan` shows what the broker does at its next start.")
    if result.lock_files:
        stays = "stays" if len(result.lock_files) == 1 else "stay"
        print_text(f"{first_of([shown(path) for path in result.lock_files])} {stays}: a broker makes the same file.")


def receipts_document(result: ReceiptList) -> Receipts:
    """The JSON document."""
    return Receipts(
        directory=result.directory,
        receipts=[
            ListedReceipt(
                path=each.path,
                began_ms=each.began_ms,
                command=each.command,
                files=None if each.states is None else FileTotals(**each.states),
            )
            for each in result.receipts
        ],
        not_listed=result.not_listed,
    )


def print_receipts(result: ReceiptList) -> None:
    """A row for each receipt, the newest first."""
    print_text(f"{pluralize(len(result.receipts), 'receipt')} in {shown(result.directory)}")
    if not result.receipts:
        return
    print_text("Next: snaprebuild undo RECEIPT --dry-run")
    rows = []
    for each in result.receipts:
        began = datetime.datetime.fromtimestamp(each.began_ms / 1000, datetime.UTC)
        files = "not looked at" if each.states is None else counts_text(each.states) or "none"
        rows.append((f"{began:%Y-%m-%d %H:%M:%SZ}", _verb(each.command), files, shown(each.path)))
    print_table("Receipts", ("began", "command", "files", "receipt"), rows)
    if result.not_listed:
        print_text(f"and {result.not_listed} older ones")


def _verb(command: str) -> str:
    """``rebuild`` of ``snaprebuild rebuild /var/lib/kafka``."""
    words = command.removeprefix("snaprebuild ").split()
    names = list(itertools.takewhile(lambda word: word.isidentifier() or word == "before-start", words[:2]))
    return " ".join(names[: 2 if names[:1] in (["follower"], ["tier"]) else 1]) or "?"
