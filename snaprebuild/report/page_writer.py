"""Collects the facts of one document after the other in a page."""

from __future__ import annotations

from typing import Any

from snaprebuild.published import RunRecord
from snaprebuild.report.page_data import PageData, PagePartition
from snaprebuild.report.page_document import NO_ANSWER, PageDocument

__all__ = ["OF_HOSTS", "SHARED", "STATUS", "PageSink"]

SHARED = ("run", "unread_paths", "findings", "exit_code")
"""Members of all documents that a page takes."""

OF_HOSTS = ("scan", "verify", "inspect-transactions", "receipt")
"""Documents about the disks of one host."""

STATUS = ("counts", "fates", "answer", "next_command")
"""More of them, which a document may lack."""


class PageSink:
    """A page that grows."""

    def __init__(self, title: str, *, has_several_hosts: bool = False) -> None:
        self.page = PageData(title)
        self._has_several_hosts = has_several_hosts

    def add_document(self, document: PageDocument) -> int:
        """Takes a document; returns its number."""
        self._take_run(document, document.run)
        self.page.documents.append(document)
        return len(self.page.documents) - 1

    def partition(self, name: str, place: str, document: int) -> PagePartition:
        """The partition of this name in this place."""
        return self.page.partition(name, place, document)

    def take_shared(self, document: PageDocument, name: str, value: Any) -> None:
        """Takes a member that all documents have, or may have (``SHARED``, ``STATUS``), as its struct."""
        if name == "fates":
            self.page.add_fate(value, document.origin)
        elif name == "answer":
            document.answer = value or NO_ANSWER
        elif name == "next_command":
            document.next_command = value
        elif name == "exit_code":
            document.exit_code = value
        elif name == "counts":
            document.counts = value
        elif name == "run":
            self._take_run(document, value)
        elif name == "unread_paths":
            document.unread_paths = value
        elif name == "findings":
            self.page.add_finding(value, document.origin)

    def _take_run(self, document: PageDocument, run: RunRecord | None) -> None:
        if run is None:
            return
        # That of a scan has more members.
        document.run = RunRecord(**{member: getattr(run, member) for member in RunRecord.__struct_fields__})
        if self._has_several_hosts and document.verb in OF_HOSTS:
            document.origin = run.host
