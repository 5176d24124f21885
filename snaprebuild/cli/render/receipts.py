"""Receipts as JSON documents and as tables: the present state of their files, what ``undo`` did, and the list of them."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import asdict

from snaprebuild.cli.answer import repeated_words
from snaprebuild.cli.options.kafka_release import release_words
from snaprebuild.cli.printing import newest_run_text, print_table, print_text
from snaprebuild.cli.table import counts_text, range_text
from snaprebuild.cli.value_text import shown, time_text
from snaprebuild.cli.view import Advice, Answer, View
from snaprebuild.documents.receipts import Undo, UndoTotals, VerifyReceipt
from snaprebuild.findings import Finding, FindingCause, Severity, choose_form, first_of, pluralize
from snaprebuild.shell_words import option_words
from snaprebuild.snapshots.receipts.directory_receipt import FOLLOWER_FORM, DirectoryAction, DirectoryUndo, DirectoryUndoResult
from snaprebuild.snapshots.receipts.receipt_reader import WrittenReceipt
from snaprebuild.snapshots.receipts.undo import FileAction, UndoneFile, UndoResult
from snaprebuild.snapshots.receipts.verify_receipt import FileStatus, FileTotals, Receipts, ReceiptVerdict, VerifiedFile

__all__ = ["DirectoryUndoView", "ReceiptListView", "ReceiptView", "UndoView"]


BEFORE_THE_START = Advice("start the broker, unless `scan` reports harm of its next start")
"""After a check of files that no broker has loaded: it does not judge the start, and another check would find the same."""


class ReceiptView(View):
    """The result of ``verify --written-by``."""

    def __init__(self, result: ReceiptVerdict, *, details: bool) -> None:
        """Takes the result, and whether the table has all files."""
        super().__init__(result.findings)
        self._result = result
        self._details = details

    def document(self) -> VerifyReceipt:
        receipt = self._result.receipt
        return VerifyReceipt(
            receipt=receipt.path,
            began_ms=receipt.began_ms,
            ended=receipt.ended,
            in_place=receipt.in_place,
            totals=FileTotals.of(self._result.files),
            files=self._result.files,
        )

    def answer(self) -> Answer:
        files = self._result.files
        totals = Counter(file.status.value for file in files)
        answer = f"{pluralize(len(files), 'snapshot')} written: {counts_text(totals) or 'none'}."
        is_whole = totals[FileStatus.KEPT] == len(files)
        if is_whole and self._result.is_before_start:
            return f"{answer} No broker has started since.", BEFORE_THE_START
        return answer, [] if is_whole or not self._result.receipt.in_place else _scan_words(self._result.receipt, files)

    def print_table(self) -> None:
        """A table of directories, and one of the files that are not as they were written."""
        by_directory: dict[str, list[VerifiedFile]] = {}
        for file in self._result.files:
            by_directory.setdefault(file.directory, []).append(file)
        rows = []
        for directory, files in sorted(by_directory.items(), key=lambda each: all(map(_is_kept, each[1]))):
            counts = counts_text(Counter(file.status.value for file in files))
            rows.append((files[0].topic_partition, len(files), counts, shown(directory)))
        if rows:
            print_table(None, ("partition", "written", "now", "directory"), rows, right=("written",))
        listed = [
            (file.topic_partition, file.offset, file.status, file.reason or "-")
            for file in self._result.files
            if self._details or not _is_kept(file)
        ]
        if listed:
            title = "Every snapshot" if self._details else "Snapshots that are not as they were written"
            columns = ("partition", "offset", "now", "because")
            print_table(title, columns, listed, right=("offset",), all_rows=self._details)


def _is_kept(file: VerifiedFile) -> bool:
    return file.status is FileStatus.KEPT


class UndoView(View):
    """The result of ``undo RECEIPT``."""

    def __init__(self, result: UndoResult, receipt: str, *, is_last: bool = False) -> None:
        """Takes the result, the path of the receipt as it was typed, and whether it was found by ``--last``."""
        super().__init__(result.findings)
        self._is_last = is_last
        self._result = result
        self._receipt = receipt

    def document(self) -> Undo:
        receipt = self._result.receipt
        return Undo(
            receipt=receipt.path,
            began_ms=receipt.began_ms,
            ended=receipt.ended,
            in_place=receipt.in_place,
            dry_run=self._result.dry_run,
            totals=UndoTotals(**Counter(file.action for file in self._result.files)),
            files=self._result.files,
            lock_files=self._result.lock_files,
        )

    def answer(self) -> Answer:
        result = self._result
        totals = Counter(file.action for file in result.files)
        asides = Counter(file.set_aside_file.action for file in result.files if file.set_aside_file is not None)
        is_changed = bool(totals[FileAction.REMOVED] or asides[FileAction.PUT_BACK])
        counts = counts_text({**totals, **{f"set aside {action}": count for action, count in asides.items()}})
        answer = f"{_undo_title(result, is_changed)}; {pluralize(len(result.files), 'snapshot')}: {counts or 'nothing to undo'}."
        if self._is_last:
            run = f"`{_verb_of(result.receipt.command)}`, {time_text(result.receipt.began_ms)}"
            answer += f"\n{newest_run_text(run, self._receipt)}"
        again = ("undo", shown(self._receipt))
        if result.dry_run:
            would = totals[FileAction.WOULD_REMOVE] or asides[FileAction.WOULD_PUT_BACK]
            if not would:
                return answer, []
            is_live = any(each.cause is FindingCause.LIVE_BROKER for each in result.findings)
            return answer, Advice("stop the broker", again) if is_live else again
        if any(each.severity in (Severity.REFUSED, Severity.STORAGE) for each in result.findings):
            return answer, Advice("correct what stderr lists", again)
        if totals[FileAction.LEFT] or totals[FileAction.FAILED]:
            return answer, ["verify", *option_words("--written-by", shown(self._receipt))]
        return answer, _scan_words(result.receipt, result.files) if result.receipt.in_place and is_changed else []

    def print_table(self) -> None:
        """A table of directories, what was left alone, and what the broker does with the rest."""
        result = self._result
        by_directory: dict[str, list[UndoneFile]] = {}
        for file in result.files:
            by_directory.setdefault(file.directory, []).append(file)
        rows: list[tuple[object, ...]] = []
        for directory, files in by_directory.items():
            offsets = range_text([file.offset for file in files])
            actions = counts_text(Counter(file.action for file in files))
            asides = counts_text(Counter(file.set_aside_file.action for file in files if file.set_aside_file is not None))
            rows.append((files[0].topic_partition, offsets, actions, asides or "-", shown(directory)))
        if rows:
            columns = ("partition", "offsets", "snapshots", "set aside", "directory")
            print_table(None, columns, rows, drop=("offsets",))
        left = [file for file in result.files if _is_left(file)]
        if left:
            listed = [(file.topic_partition, file.offset, _left_reason(file)) for file in left]
            print_table("Left alone", ("partition", "offset", "because"), listed, right=("offset",))
        if not result.receipt.ended:
            print_text("The run that left this receipt was killed or interrupted. It has what the run had announced.")
        if result.receipt.in_place and any(file.action == FileAction.REMOVED for file in result.files):
            but = ", except what was left alone" if left else ""
            print_text(f"What the run wrote is removed{but}. `scan` shows what the broker does at its next start.")
        if result.lock_files:
            stays = choose_form(len(result.lock_files), "stays", "stay")
            print_text(f"{first_of([shown(path) for path in result.lock_files])} {stays}: a broker makes the same file.")


def _undo_title(result: UndoResult, is_changed: bool) -> str:
    if result.dry_run:
        return "Dry run: nothing was changed"
    return "Undone" if is_changed else "Nothing was changed"


def _is_left(file: UndoneFile) -> bool:
    """Whether the file, or the one that was set aside for it, stays where it is."""
    actions = [file.action] if file.set_aside_file is None else [file.action, file.set_aside_file.action]
    return any(action in (FileAction.LEFT, FileAction.FAILED) for action in actions)


def _left_reason(file: UndoneFile) -> str | None:
    return file.reason or (None if file.set_aside_file is None else file.set_aside_file.reason)


def _scan_words(receipt: WrittenReceipt, files: Iterable[VerifiedFile | UndoneFile]) -> list[str]:
    """A scan of the log directories of these files, by the configuration and the release that the run followed."""
    words = ["scan", *map(shown, dict.fromkeys(os.path.dirname(file.directory) for file in files))]
    # Without its configuration a scan would take other settings than the run did. A file that is gone cannot be read.
    if receipt.server_properties is not None and os.path.isfile(receipt.server_properties):
        words += ["--server-properties", shown(receipt.server_properties)]
    return [*words, *release_words(receipt.kafka_release)]


class DirectoryUndoView(View):
    """The partition directories that ``undo RECEIPT`` removed."""

    def __init__(self, undo: DirectoryUndoResult, *, is_last: bool = False) -> None:
        """Takes the result, and whether its receipt was found by ``--last``."""
        super().__init__(undo.findings)
        self._is_last = is_last
        self._undo = undo

    def document(self) -> DirectoryUndo:
        undo = self._undo
        return DirectoryUndo(receipt=undo.receipt, dry_run=undo.dry_run, directories=undo.directories)

    def answer(self) -> Answer:
        undo = self._undo
        actions = Counter(each.action for each in undo.directories)
        totals = ", ".join(f"{count} {action}" for action, count in actions.items()) or "nothing to take back"
        directories = pluralize(len(undo.directories), "directory", "directories")
        dry = "Dry run: nothing was changed. " if undo.dry_run else ""
        answer = f"{dry}{directories}: {totals}."
        if self._is_last:
            answer += f"\n{newest_run_text(f'`{undo.verb}`', undo.receipt)}"
        if undo.dry_run and actions[DirectoryAction.WOULD_REMOVE]:
            return answer, ["undo", *repeated_words("dry_run")]
        if undo.verb == FOLLOWER_FORM.verb and actions[DirectoryAction.REMOVED]:
            return answer, Advice("remove the lines of this partition from the checkpoints, if you have merged them")
        return answer, []

    def print_table(self) -> None:
        rows = [(shown(each.path), each.action, each.reason or "-") for each in self._undo.directories]
        if rows:
            print_table(None, ("directory", "action", "because"), rows)


class ReceiptListView(View):
    """The result of ``undo`` without a receipt."""

    def __init__(self, result: Receipts, findings: Sequence[Finding]) -> None:
        super().__init__(findings)
        self._result = result

    def document(self) -> Receipts:
        return self._result

    def answer(self) -> Answer:
        """The next command is a dry run of the newest receipt that has files that are still there.

        With a receipt that cannot be read, it is unknown which run is the newest. ``undo --last`` refuses then, too.
        """
        result = self._result
        answer = f"{pluralize(len(result.receipts) + result.not_listed, 'receipt')} in {shown(result.directory)}"
        if any(each.severity for each in self.findings):
            return answer, Advice("move away what stderr lists, or name the receipt of the run to `undo`")
        newest = next((receipt for receipt in result.receipts if receipt.files is not None and receipt.files.kept), None)
        return answer, [] if newest is None else ["undo", shown(newest.path), "--dry-run"]

    def print_table(self) -> None:
        """A row for each receipt, the newest first."""
        rows = []
        for receipt in self._result.receipts:
            files = "not looked at" if receipt.files is None else counts_text(asdict(receipt.files)) or "none"
            is_elsewhere = os.path.dirname(receipt.path) != os.path.realpath(self._result.directory)
            name = shown(receipt.path) if is_elsewhere else os.path.basename(receipt.path)
            rows.append((name, time_text(receipt.began_ms), _verb_of(receipt.command), files))
        if rows:
            print_table(None, ("receipt file", "began", "command", "files"), rows, drop=("began", "command"))
        if self._result.not_listed:
            print_text(f"and {self._result.not_listed} older ones")


def _verb_of(command: str) -> str:
    """``rebuild`` of ``snaprebuild rebuild /var/lib/kafka``."""
    words = command.removeprefix("snaprebuild ").split()
    names = list(itertools.takewhile(lambda word: word.isidentifier() or word == "before-start", words[:2]))
    return " ".join(names[: 2 if names[:1] in (["follower"], ["tier"]) else 1]) or "?"
