"""Report: makes one page of the documents of other commands. It has each partition once, with the facts of every document."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from snaprebuild.documents.fleet import Fleet
from snaprebuild.documents.inspect import Transactions
from snaprebuild.documents.saved_documents import DocumentHead, members_of, read_head
from snaprebuild.documents.scan import Scan
from snaprebuild.documents.tier import TierAudit
from snaprebuild.documents.verify import Verify
from snaprebuild.errors import UsageError
from snaprebuild.report.from_audit import take_audit
from snaprebuild.report.from_fleet import take_fleet
from snaprebuild.report.from_receipt import take_receipt
from snaprebuild.report.from_scan import take_scan
from snaprebuild.report.from_transactions import take_transactions
from snaprebuild.report.from_verify import take_verify
from snaprebuild.report.page import page_pieces
from snaprebuild.report.page_data import PageData
from snaprebuild.report.page_links import link_paths
from snaprebuild.report.page_next import NextCommand, add_next_commands
from snaprebuild.report.page_writer import OF_HOSTS, PageSink
from snaprebuild.snapshots.receipts.receipt_lines import VERSION as RECEIPT_VERSION
from snaprebuild.storage.local.document_file import write_text_file

__all__ = ["TAKERS", "ReportResult", "make_report"]

DOCUMENTS_MAX = 1_000

TITLE = "Producer snapshots"

TAKERS: dict[str, tuple[int, Callable[[DocumentHead, PageSink], None]]] = {
    "scan": (Scan.VERSION, take_scan),
    "verify": (Verify.VERSION, take_verify),
    "tier-audit": (TierAudit.VERSION, take_audit),
    "inspect-transactions": (Transactions.VERSION, take_transactions),
    "fleet": (Fleet.VERSION, take_fleet),
    "receipt": (RECEIPT_VERSION, take_receipt),
}
"""The documents of a page: by command the supported version, and the function that takes it."""


@dataclass(frozen=True, slots=True)
class ReportResult:
    """A page that was made.

    Attributes:
        path: of the file; ``size_bytes`` of it.
        heads: the documents, in the order in which they were named.
        page: its content.
    """

    path: str
    size_bytes: int
    heads: tuple[DocumentHead, ...]
    page: PageData


def make_report(paths: Sequence[str], place: str, title: str | None, next_command: NextCommand) -> ReportResult:
    """Reads documents and writes the page.

    Args:
        paths: of the documents.
        place: of the page; an older one of ours is replaced.
        title: of the page; None for one that says what it is about.
        next_command: decides the next command of a partition.

    Raises:
        UsageError: no document, too many, one twice, or one that is none, is damaged or of another version.
        ReadFailedError: one cannot be read.
        RefusedError: the page may not be written there.
        WriteFailedError: it cannot be written.
    """
    if not paths:
        raise UsageError("name at least one document; `scan PATH --save-json FILE` writes one")
    if len(paths) > DOCUMENTS_MAX:
        raise UsageError(f"expected at most {DOCUMENTS_MAX} documents, found {len(paths)}")
    real_paths: set[str] = set()
    for path in paths:
        if os.path.realpath(path) in real_paths:
            raise UsageError("is named twice", path=path)
        real_paths.add(os.path.realpath(path))
    versions = {verb: version for verb, (version, _) in TAKERS.items()}
    heads = tuple(read_head(path, versions) for path in paths)
    sink = PageSink(title or TITLE, has_several_hosts=_have_several_hosts(heads))
    for head in heads:
        TAKERS[head.verb][1](head, sink)
    link_paths(sink.page)
    add_next_commands(sink.page, next_command)
    write_text_file(place, page_pieces(sink.page))
    return ReportResult(place, os.path.getsize(place), heads, sink.page)


def _have_several_hosts(heads: Sequence[DocumentHead]) -> bool:
    """Whether documents of one command are of different hosts: then equal paths are of different brokers.

    Documents of different commands may have different names of one host, as that of a container.
    """
    hosts: dict[str, set[str]] = {}
    for head in heads:
        if head.verb in OF_HOSTS and head.verb != "receipt":
            hosts.setdefault(head.verb, set()).add(_host_of(head))
    return any(len(names) > 1 for names in hosts.values())


def _host_of(head: DocumentHead) -> str:
    """The host of a run, which is one of the first members of a document; empty if it is not there."""
    for name, value in members_of(head.path, ("partitions", "log_dirs"), ()):
        if name == "run":
            return str(value.get("host", "")) if isinstance(value, dict) else ""
    return ""
