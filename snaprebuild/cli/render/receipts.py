"""Receipts as JSON documents and as tables: the present state of their files, what ``undo`` did, and the list of them."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from typing import TYPE_CHECKING

from snaprebuild.cli.result import print_table, print_text, shown, time_text
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
    from collections.abc import Iterable

    from snaprebuild.snapshots.receipts.receipt_reader import WrittenFile
    from snaprebuild.snapshots.receipts.undo import UndoneFile, UndoResult
    from snaprebuild.snapshots.receipts.verify_receipt import FileVerdict, ReceiptList, ReceiptVerdict

__all__ = [
    "print_receipt",
    "print_receipts",
    "print_undone",
    "receipt_answer",
    "receipt_document",
    "receipts_answer",
    "receipts_document",
    "undo_answer",
    "undo_document",
]


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


def receipt_answer(result: ReceiptVerdict) -> tuple[str, list[str]]:
    """The answer, and the words of the next command."""
    totals = Counter(verdict.status for verdict in result.files)
    answer = f"{pluralize(len(result.files), 'snapshot')} written: {counts_text(totals) or 'none'}."
    is_whole = totals["kept"] == len(result.files)
    return answer, [] if is_whole or not result.receipt.in_place else _scan_words(verdict.written for verdict in result.files)


def print_receipt(result: ReceiptVerdict, *, details: bool) -> None:
    """A table of directories, and one of the files that are not as they were written."""
    by_directory: dict[str, list[FileVerdict]] = {}
    for verdict in result.files:
        by_directory.setdefault(verdict.written.partition.target, []).append(verdict)
    rows = []
    for directory, verdicts in sorted(by_directory.items(), key=lambda each: all(one.status == "kept" for one in each[1])):
        counts = counts_text(Counter(verdict.status for verdict in verdicts))
        rows.append((verdicts[0].written.partition.topic_partition, len(verdicts), counts, shown(directory)))
    if rows:
        print_table(None, ("partition", "written", "now", "directory"), rows, right=("written",))
    listed = [
        (verdict.written.partition.topic_partition, verdict.written.offset, verdict.status, verdict.reason or "-")
        for verdict in result.files
        if details or verdict.status != "kept"
    ]
    if listed:
        title = "Every snapshot" if details else "Snapshots that are not as they were written"
        print_table(title, ("partition", "offset", "now", "because"), listed, right=("offset",), all_rows=details)


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


def undo_answer(result: UndoResult, receipt: str) -> tuple[str, list[str]]:
    """The answer, and the words of the next command.

    Args:
        result: of the run.
        receipt: path, as it was given.
    """
    totals = Counter(undone.action for undone in result.files)
    asides = Counter(f"set aside {undone.aside_action}" for undone in result.files if undone.aside_action is not None)
    is_changed = bool(totals["removed"] or asides["set aside put_back"])
    title = "Dry run: nothing was changed" if result.is_dry_run else "Undone" if is_changed else "Nothing was changed"
    counts = counts_text({**totals, **asides}) or "nothing to undo"
    answer = f"{title}; {pluralize(len(result.files), 'snapshot')}: {counts}."
    if result.is_dry_run:
        would = totals["would_remove"] or asides["set aside would_put_back"]
        return answer, ["undo", receipt] if would else []
    if totals["left"] or totals["failed"]:
        return answer, ["verify", "--receipt", receipt]
    return answer, _scan_words(undone.written for undone in result.files) if result.receipt.in_place and is_changed else []


def _scan_words(files: Iterable[WrittenFile]) -> list[str]:
    """A scan of the log directories of these files."""
    return ["scan", *map(shown, dict.fromkeys(os.path.dirname(each.partition.target) for each in files))]


def print_undone(result: UndoResult) -> None:
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
    if rows:
        columns = ("partition", "offsets", "snapshots", "set aside", "directory")
        print_table(None, columns, rows, drop=("offsets",))
    left = [undone for undone in result.files if undone.action in ("left", "failed") or undone.aside_action in ("left", "failed")]
    listed = [
        (undone.written.partition.topic_partition, undone.written.offset, undone.reason or undone.aside_reason) for undone in left
    ]
    if listed:
        print_table("Left alone", ("partition", "offset", "because"), listed, right=("offset",))
    if not result.receipt.ended:
        print_text("The run that left this receipt was killed or interrupted. It has what the run had announced.")
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


def receipts_answer(result: ReceiptList) -> tuple[str, list[str]]:
    """The answer, and the words of the next command: the newest receipt whose files are still there, and a dry run of it."""
    answer = f"{pluralize(len(result.receipts) + result.not_listed, 'receipt')} in {shown(result.directory)}"
    kept = next((each for each in result.receipts if each.states and each.states.get("kept")), None)
    return answer, [] if kept is None else ["undo", shown(kept.path), "--dry-run"]


def print_receipts(result: ReceiptList) -> None:
    """A row for each receipt, the newest first."""
    rows = []
    for each in result.receipts:
        files = "not looked at" if each.states is None else counts_text(each.states) or "none"
        rows.append((os.path.basename(each.path), time_text(each.began_ms), _verb(each.command), files))
    if rows:
        print_table(None, ("receipt file", "began", "command", "files"), rows, drop=("began", "command"))
    if result.not_listed:
        print_text(f"and {result.not_listed} older ones")


def _verb(command: str) -> str:
    """``rebuild`` of ``snaprebuild rebuild /var/lib/kafka``."""
    words = command.removeprefix("snaprebuild ").split()
    names = list(itertools.takewhile(lambda word: word.isidentifier() or word == "before-start", words[:2]))
    return " ".join(names[: 2 if names[:1] in (["follower"], ["tier"]) else 1]) or "?"
