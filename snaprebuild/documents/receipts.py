"""The documents about receipts: of ``verify --written-by``, and of ``undo`` with and without a receipt."""

from __future__ import annotations

from collections.abc import Sequence

from snaprebuild.published import Document, Natural, Part
from snaprebuild.snapshots.receipts.undo import UndoneFile
from snaprebuild.snapshots.receipts.verify_receipt import FileTotals, Receipts, VerifiedFile

__all__ = ["Receipts", "Undo", "UndoTotals", "VerifyReceipt"]


class VerifyReceipt(Document, frozen=True):
    """The JSON document of `snaprebuild verify --written-by FILE`."""

    NAME = "verify-receipt"
    VERSION = 2

    receipt: str
    began_ms: int
    """When the run began to write."""
    ended: bool
    """The run has ended by itself; else it was killed."""
    in_place: bool
    totals: FileTotals
    files: Sequence[VerifiedFile]


class UndoTotals(Part, frozen=True):
    """Files by action."""

    removed: Natural = 0
    would_remove: Natural = 0
    absent: Natural = 0
    left: Natural = 0
    failed: Natural = 0


class Undo(Document, frozen=True):
    """The JSON document of `snaprebuild undo RECEIPT`."""

    NAME = "undo"
    VERSION = 3

    receipt: str
    began_ms: int
    """When the run began to write."""
    ended: bool
    """The run has ended by itself; else it was killed."""
    in_place: bool
    dry_run: bool
    totals: UndoTotals
    files: Sequence[UndoneFile]
    lock_files: Sequence[str]
    """`.lock` of the log directories that were written to. They stay, as the broker's own do."""
