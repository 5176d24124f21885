"""Which files of a receipt a later run wrote again: what is there now is of that run, and its receipt takes it back.

`install` links a staged file with its bytes and its time. After an undo, or a deletion by hand, the next install links the same file. The
file alone does not show which of the two runs it is of.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator

from snaprebuild.errors import ReadFailedError, SnaprebuildError
from snaprebuild.snapshots.receipts.receipt_places import ReceiptFile, listed_receipts
from snaprebuild.snapshots.receipts.receipt_reader import ReceiptKind, WrittenFile, WrittenReceipt, heading_of, read_receipt
from snaprebuild.storage.local.fingerprint import fingerprint_at

__all__ = ["later_receipts"]

RECEIPTS_KEPT = 16
"""Receipts of later runs that stay in memory: each may have many files, and an undo asks for the same few again."""


def later_receipts(receipt: WrittenReceipt) -> dict[str, str]:
    """The receipt of the newest later run that wrote what is there, by path of the file; only of files that ``receipt`` has.

    A later run that announced a file and was taken back, or whose file is there no more, keeps nothing from an undo.

    Receipts in the default places, those that have a link there, and receipts next to ``receipt`` are read.

    Args:
        receipt: of the earlier run.
    """
    paths = {file.path for file in receipt.files}
    newest: dict[str, tuple[int, str]] = {}
    for listed in _candidates(receipt):
        later = _announced_in(listed)
        if later is None or later.began_ms <= receipt.began_ms or later.host != receipt.host:
            continue
        for file in later.files:
            if file.path in paths and not file.is_undone and _is_there(file):
                newest[file.path] = max(newest.get(file.path, (0, "")), (later.began_ms, listed.path))
    return {path: name for path, (_, name) in newest.items()}


def _is_there(file: WrittenFile) -> bool:
    """Whether what has the name now is a file of that run."""
    try:
        return fingerprint_at(file.path) in file.fingerprints
    except ReadFailedError:
        return False


def _candidates(receipt: WrittenReceipt) -> Iterator[ReceiptFile]:
    own = os.path.realpath(receipt.path)
    seen = {own}
    for listed in (*listed_receipts(), *listed_receipts(os.path.dirname(own), prefix="", suffix=".jsonl")):
        place = os.path.realpath(listed.path)
        if place not in seen and _began_ms(listed.path) > receipt.began_ms:
            seen.add(place)
            yield listed


def _began_ms(path: str) -> int:
    """The moment of a run by the first line of its receipt; 0 for another file."""
    try:
        heading = heading_of(path)
    except SnaprebuildError:
        return 0
    return 0 if heading is None or heading.kind is not ReceiptKind.SNAPSHOTS else heading.began_ms


@functools.lru_cache(maxsize=RECEIPTS_KEPT)
def _announced_in(listed: ReceiptFile) -> WrittenReceipt | None:
    """The receipt; None for one that cannot be read."""
    try:
        return read_receipt(listed.path)
    except SnaprebuildError:
        return None
