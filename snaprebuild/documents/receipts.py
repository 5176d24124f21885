"""The documents about receipts: of ``verify --receipt``, and of ``undo`` with and without a receipt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from snaprebuild.published import Document, Natural, Part, one_of
from snaprebuild.replay.classes import SnapshotClass

__all__ = [
    "FileTotals",
    "ListedReceipt",
    "Receipts",
    "SetAside",
    "Undo",
    "UndoTotals",
    "UndoneFile",
    "VerifiedFile",
    "VerifyReceipt",
]


class FileTotals(Part, frozen=True):
    """Files by their present state."""

    kept: Natural = 0
    removed: Natural = 0
    replaced: Natural = 0
    unreadable: Natural = 0


class VerifiedFile(Part, frozen=True):
    """A file of a receipt."""

    topic_partition: str
    path: str
    offset: Natural
    snapshot_class: SnapshotClass = msgspec.field(name="class")
    """Class when it was written."""
    status: Annotated[str, one_of("kept", "removed", "replaced", "unreadable")]
    reason: str | None
    """Null if it was kept untouched."""
    is_explained: bool
    """A broker or `undo` changes such a file in this way."""


class VerifyReceipt(Document, frozen=True):
    """What `snaprebuild verify --receipt FILE --output json` prints."""

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


class SetAside(Part, frozen=True):
    """The snapshot that the run had set aside."""

    name: str
    action: Annotated[str, one_of("put_back", "would_put_back", "absent", "left", "failed")]
    reason: str | None
    """Why it is not put back."""


class UndoneFile(Part, frozen=True):
    """A file that the run wrote."""

    topic_partition: str
    path: str
    offset: Natural
    action: Annotated[str, one_of("removed", "would_remove", "absent", "left", "failed")]
    reason: str | None
    """Why it is not removed."""
    set_aside: SetAside | None


class UndoTotals(Part, frozen=True):
    """Files by action."""

    removed: Natural = 0
    would_remove: Natural = 0
    absent: Natural = 0
    left: Natural = 0
    failed: Natural = 0


class Undo(Document, frozen=True):
    """What `snaprebuild undo RECEIPT --output json` prints."""

    NAME = "undo"
    VERSION = 2

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


class ListedReceipt(Part, frozen=True):
    """A receipt."""

    path: str
    began_ms: int
    """When the run began to write."""
    command: str
    """Command line of the run; empty if the receipt does not have it."""
    files: FileTotals | None
    """Null for remote storage, which is not checked."""


class Receipts(Document, frozen=True):
    """What `snaprebuild undo --output json` prints without a receipt."""

    NAME = "receipts"
    VERSION = 2

    directory: str
    """Default directory of receipts."""
    receipts: Sequence[ListedReceipt]
    """Newest first."""
    not_listed: Natural
    """Older receipts, beyond the newest 1,000."""
