"""The receipts that ``undo`` lists, as JSON (``snaprebuild.receipts/1``; docs/json.md) and as a table."""

from __future__ import annotations

import datetime
import itertools
from typing import TYPE_CHECKING

from snaprebuild.cli.result import print_table, print_text, shown
from snaprebuild.findings import pluralize

if TYPE_CHECKING:
    from snaprebuild.snapshots.receipts.verify_receipt import ReceiptList

__all__ = ["print_receipts", "receipts_document"]


def receipts_document(result: ReceiptList) -> dict[str, object]:
    """The JSON document."""
    return {
        "directory": result.directory,
        "receipts": [
            {"path": each.path, "began_ms": each.began_ms, "command": each.command, "files": each.states}
            for each in result.receipts
        ],
        "not_listed": result.not_listed,
    }


def print_receipts(result: ReceiptList) -> None:
    """A row for each receipt, the newest first."""
    print_text(f"{pluralize(len(result.receipts), 'receipt')} in {shown(result.directory)}")
    if not result.receipts:
        return
    print_text("Next: snaprebuild undo RECEIPT --dry-run")
    rows = []
    for each in result.receipts:
        began = datetime.datetime.fromtimestamp(each.began_ms / 1000, datetime.UTC)
        files = "not looked at" if each.states is None else ", ".join(f"{n} {name}" for name, n in each.states.items()) or "none"
        rows.append((f"{began:%Y-%m-%d %H:%M:%SZ}", _verb(each.command), files, shown(each.path)))
    print_table("Receipts", ("began", "command", "files", "receipt"), rows)
    if result.not_listed:
        print_text(f"and {result.not_listed} older ones")


def _verb(command: str) -> str:
    """``rebuild`` of ``snaprebuild rebuild /var/lib/kafka``."""
    words = command.removeprefix("snaprebuild ").split()
    names = list(itertools.takewhile(lambda word: word.isidentifier() or word == "before-start", words[:2]))
    return " ".join(names[: 2 if names[:1] in (["follower"], ["tier"]) else 1]) or "?"
