"""The result of ``report``: its document, and the table of what the page was made from."""

from __future__ import annotations

from collections import Counter

from snaprebuild.broker.status import counted_status
from snaprebuild.cli.printing import print_table, print_text
from snaprebuild.cli.render.status import next_of_status
from snaprebuild.cli.value_text import shown, size_text
from snaprebuild.cli.view import Advice, View
from snaprebuild.documents.report import PageTotals, Report, ReportedDocument
from snaprebuild.findings import first_of, pluralize
from snaprebuild.report.make import ReportResult
from snaprebuild.report.page_next import PartitionStatus
from snaprebuild.report.page_status import first_document, page_totals
from snaprebuild.shell_words import program_command

__all__ = ["ReportView", "partition_next_command"]


def partition_next_command(facts: PartitionStatus) -> str | None:
    """The next command of a partition on the page, by the status as for each other result; None if there is none to run."""
    counts = facts.counts
    if counts.fates:
        return None  # the page shows what the next start does, and what to do about it
    following = next_of_status(
        counted_status(counts),
        [facts.path],
        is_verified=facts.is_verified,
        is_local=facts.is_local,
        can_plan=facts.can_plan,
        can_replace=facts.can_replace,
        expiry=facts.expiry,
    )
    words = following.words if isinstance(following, Advice) else following
    return program_command(words) if words else None


class ReportView(View):
    """A page that was written."""

    def __init__(self, result: ReportResult) -> None:
        super().__init__([])
        self._result = result

    def document(self) -> Report:
        """The document of ``report``: facts about the page."""
        result = self._result
        page = result.page
        first = first_document(page.documents)
        return Report(
            unread=len(page.unread_paths),
            unread_paths=page.unread_paths,
            page=result.path,
            title=page.title,
            size_bytes=result.size_bytes,
            documents=[
                ReportedDocument(
                    path=head.path,
                    schema=head.schema,
                    snaprebuild=head.snaprebuild,
                    lacks=document.lacks,
                    run=document.run,
                )
                for head, document in zip(result.heads, page.documents, strict=True)
            ],
            partitions=page.partition_count,
            partitions_left=page.partition_count - len(page.partitions()),
            totals=page_totals(page),
            page_findings=len(page.findings),
            page_findings_left=page.findings_left,
            page_answer=first.answer,
            page_next_command=first.next_command,
            page_exit_code=first.exit_code,
        )

    def summary(self) -> str:
        """The answer: gaps of the page, and its path."""
        result = self._result
        place = f"Page: {shown(result.path)}, {size_text(result.size_bytes)}. Open it in a browser; it needs no network."
        if not result.page.unread_paths:
            return place
        unread = first_of([shown(path) for path in result.page.unread_paths])
        return f"INCOMPLETE: the documents do not cover what could not be read: {unread}. {place}"

    def print_table(self) -> None:
        """Prints where the page is, its documents, and its totals."""
        result = self._result
        page = result.page
        partitions = page.partitions()
        print_text(self.summary())
        counts = Counter(number for partition in partitions for number in partition.documents)
        rows = [(shown(head.path), head.schema, head.snaprebuild, counts[number]) for number, head in enumerate(result.heads)]
        print_table("Documents", ("file", "form", "written by", "partitions"), rows, right=("partitions",))
        print_text(f"{pluralize(page.partition_count, 'partition')}: {_totals_text(page_totals(page))}")
        left = page.partition_count - len(partitions)
        if left:
            print_text(f"{pluralize(left, 'partition')} with the least to say left out of the page")


def _totals_text(totals: PageTotals) -> str:
    """The numbers of a page in words. What no document shows is listed as unknown."""
    counts = (
        (totals.segments, "segment"),
        (totals.fates, "fate"),
        (totals.wrong_snapshots, "wrong snapshot"),
        (totals.unverifiable_snapshots, "unverifiable snapshot"),
        (totals.suspect_snapshots, "suspect snapshot"),
        (totals.missing_snapshots, "missing snapshot"),
        (totals.stuck_partitions, "stuck partition"),
        (totals.open_transactions, "open transaction"),
    )
    known = ", ".join(pluralize(count, name) for count, name in counts if count is not None)
    unknown = ", ".join(f"{name}s" for count, name in counts if count is None)
    return f"{known}. Unknown: {unknown}." if unknown else f"{known}."
