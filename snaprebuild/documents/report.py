"""The document of ``report``."""

from __future__ import annotations

from collections.abc import Sequence

from snaprebuild.documents.common import ExitCode
from snaprebuild.published import Document, Natural, Part, RunRecord

__all__ = ["PageTotals", "Report", "ReportedDocument"]


class ReportedDocument(Part, frozen=True):
    """A document from which the page was made."""

    path: str
    schema: str
    snaprebuild: str
    """Version of the program that wrote it."""
    lacks: Sequence[str]
    """Facts that the page could show, but that this document does not have."""
    run: RunRecord | None
    """The run that made it; null if the document does not have it."""


class PageTotals(Part, frozen=True):
    """Sums of the partitions on the page; null where none of the documents shows them."""

    segments: Natural | None
    wrong_snapshots: Natural | None
    """Proven wrong by the log, or they do not parse."""
    wrong_entries: Natural | None
    """Entries of producers in these snapshots that the log contradicts."""
    unverifiable_snapshots: Natural | None
    """Read or compared, and proven neither right nor wrong."""
    suspect_snapshots: Natural | None
    """Suspect to `scan` or `tier audit`, and neither proven wrong nor right."""
    missing_snapshots: Natural | None
    fates: Natural | None
    """Causes of what the next start does, without notes, and topics without an id."""
    waiting_segments: Natural | None
    """Rolled segments that are uploaded later, without any action: at least as many."""
    waiting_unknown_segments: Natural | None
    """Rolled segments of which it is unknown whether they wait."""
    stuck_partitions: Natural | None
    stuck_bytes: Natural
    open_transactions: Natural | None
    """At the log ends of the partitions in which the documents show them."""
    open_unknown_partitions: Natural
    """Partitions in which no document shows whether a transaction is open."""
    late_transactions: Natural | None
    """By `inspect transactions`, among the open ones."""


class Report(Document, frozen=True):
    """The JSON document of `snaprebuild report`: facts about the page, not its content."""

    NAME = "report"
    VERSION = 3

    unread: Natural
    """Paths that the runs of the documents did not read, each once. The page shows them."""
    unread_paths: Sequence[str]
    page: str
    """Path of the page."""
    title: str
    size_bytes: Natural
    """Size of the page."""
    documents: Sequence[ReportedDocument]
    partitions: Natural
    """Partitions in the documents, each once."""
    partitions_left: Natural
    """Partitions that are not on the page: it has the worst 20,000."""
    totals: PageTotals
    page_findings: Natural
    """Findings of the documents on the page, each once."""
    page_findings_left: Natural
    """Findings that are not on the page: it has 20,000."""
    page_answer: str
    """The first line of the page, and what follows it: the answer of its worst document. Not stable."""
    page_next_command: str | None
    """The next command of that document; null for none. Not stable."""
    page_exit_code: ExitCode
    """Exit code of that document."""
