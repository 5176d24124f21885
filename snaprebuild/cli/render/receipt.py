"""What became of the files of a receipt, as JSON (``snaprebuild.verify-receipt/1``; docs/json.md) and as tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from snaprebuild.cli.result import print_table, print_text, shown
from snaprebuild.findings import pluralize

if TYPE_CHECKING:
    from snaprebuild.snapshots.receipts.verify_receipt import FileVerdict, ReceiptVerdict

__all__ = ["print_receipt", "receipt_document"]


def receipt_document(result: ReceiptVerdict) -> dict[str, object]:
    """The JSON document."""
    return {
        "receipt": result.receipt.path,
        "began_ms": result.receipt.began_ms,
        "ended": result.receipt.ended,
        "in_place": result.receipt.in_place,
        "files": [
            {
                "topic_partition": verdict.written.partition.topic_partition,
                "path": verdict.written.path,
                "offset": verdict.written.offset,
                "class": verdict.written.snapshot_class,
                "status": verdict.status,
                "reason": verdict.reason,
                "is_explained": verdict.is_explained,
            }
            for verdict in result.files
        ],
        "totals": dict(Counter(verdict.status for verdict in result.files)),
    }


def print_receipt(result: ReceiptVerdict, *, details: bool) -> None:
    """A table of directories, one of the files that are not as they were written, and a line of totals."""
    by_directory: dict[str, list[FileVerdict]] = {}
    for verdict in result.files:
        by_directory.setdefault(verdict.written.partition.target, []).append(verdict)
    rows = []
    for directory, verdicts in by_directory.items():
        counts = _text(Counter(verdict.status for verdict in verdicts))
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
    print_text(f"{pluralize(len(result.files), 'snapshot')} written: {_text(totals) or 'none'}")


def _text(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {status}" for status, count in counts.items())
