"""The document of ``report``."""

from __future__ import annotations

from collections.abc import Sequence

from snaprebuild.documents.typed import Document, Natural, Part

__all__ = ["Report", "Source", "Totals"]


class Source(Part, frozen=True):
    """A document that the page was made from."""

    path: str
    schema: str
    snaprebuild: str
    """Version of the program that wrote it."""
    lacks: Sequence[str]
    """What it does not have that the page could show."""
    made: str
    """When it was made, UTC; empty for a receipt that does not have it."""
    host: str
    command: str
    cluster_ids: Sequence[str]


class Totals(Part, frozen=True):
    """Sums of the partitions on the page."""

    segments: Natural
    wrong_snapshots: Natural
    missing_snapshots: Natural
    stuck_partitions: Natural
    stuck_bytes: Natural
    open_transactions: Natural | None
    """At the log ends; null where no document shows whether any is open."""


class Report(Document, frozen=True):
    """What `snaprebuild report --output json` prints: facts about the page, not its content."""

    NAME = "report"
    VERSION = 2

    unread: Natural
    """Paths that the runs of the documents did not read, each once. The page shows them."""
    unread_paths: Sequence[str]
    page: str
    """Path of the page, as it was named."""
    title: str
    size_bytes: Natural
    """Of the page."""
    documents: Sequence[Source]
    partitions: Natural
    """In the documents, each once."""
    partitions_left: Natural
    """Of those, not on the page: it holds 20,000, the worst."""
    totals: Totals
    page_findings: Natural
    """Findings of the documents on the page, each once."""
    page_findings_left: Natural
    """Not on the page: it holds 20,000."""
