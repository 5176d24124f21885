"""The receipts in the state directory of the user, newest first, for ``undo`` without an argument."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field

from snaprebuild.errors import SnaprebuildError
from snaprebuild.findings import Finding, Severity
from snaprebuild.snapshots.receipts.receipt import state_directory
from snaprebuild.snapshots.receipts.receipt_reader import load_receipt
from snaprebuild.snapshots.receipts.verify_receipt import verify_receipt
from snaprebuild.storage.local.regular_file import open_named_file

__all__ = ["ListedReceipt", "ReceiptList", "list_receipts", "schema_of"]

HEADER_BYTES_MAX = 1 << 16
RECEIPTS_MAX = 1000
"""Older ones are counted only: each listed receipt is read, and each of its files is looked at."""


@dataclass(frozen=True, slots=True)
class ListedReceipt:
    """A receipt and the present state of its files.

    Attributes:
        path: of the receipt.
        began_ms: when the run began to write, ms since 1970.
        command: as it was typed; empty where the receipt does not name it.
        states: files by state (``verify_receipt``); None for objects in a bucket and for remote storage, which are not looked at.
    """

    path: str
    began_ms: int
    command: str
    states: dict[str, int] | None


@dataclass(slots=True)
class ReceiptList:
    """All receipts of a directory.

    Attributes:
        directory: that was listed.
        receipts: newest first.
        not_listed: number of older ones.
        findings: receipts that cannot be read.
    """

    directory: str
    receipts: list[ListedReceipt] = field(default_factory=list)
    not_listed: int = 0
    findings: list[Finding] = field(default_factory=list)


def schema_of(path: str) -> str | None:
    """The schema id in the first line of a file of ours; None where there is none.

    Raises:
        UsageError: no such file.
        ReadFailedError: it cannot be read.
    """
    found = _header(path).get("schema")
    return found if isinstance(found, str) else None


def _header(path: str) -> dict[str, object]:
    with open_named_file(path) as file:
        line = file.readline(HEADER_BYTES_MAX)
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return header if isinstance(header, dict) else {}


def list_receipts() -> ReceiptList:
    """The receipts of the state directory and of the current one, where runs without a home leave theirs."""
    directory = state_directory() or os.getcwd()
    result = ReceiptList(directory)
    try:
        names = sorted((name for name in os.listdir(directory) if name.startswith("snaprebuild-receipt-")), reverse=True)
    except FileNotFoundError:
        return result
    result.not_listed = max(0, len(names) - RECEIPTS_MAX)
    for name in names[:RECEIPTS_MAX]:
        path = os.path.join(directory, name)
        try:
            result.receipts.append(_listed(path))
        except SnaprebuildError as error:
            result.findings.append(Finding("unreadable-receipt", Severity.FINDING, path, error.message))
    return result


def _listed(path: str) -> ListedReceipt:
    header = _header(path)
    began = header.get("began_ms")
    began_ms = began if isinstance(began, int) else 0
    if str(header.get("schema")).startswith("snaprebuild.tier-"):
        return ListedReceipt(path, began_ms, "snaprebuild tier repair", None)
    receipt = load_receipt(path)
    states = Counter(verdict.status for verdict in verify_receipt(receipt).files)
    return ListedReceipt(path, receipt.began_ms, receipt.command, dict(states))
