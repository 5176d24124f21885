"""The first lines and the numbers of a page: those of the status that each document has, of several documents together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from snaprebuild.broker.status import StatusCounts, StatusWord, word_of
from snaprebuild.documents.report import PageTotals
from snaprebuild.findings import Severity
from snaprebuild.replay.difference import ComparisonStatus
from snaprebuild.report.page_data import PageBoundary, PageData
from snaprebuild.report.page_document import PageDocument

__all__ = ["first_document", "first_lines", "page_totals"]

EXIT_CODES = (Severity.STORAGE, Severity.REFUSED, Severity.DAMAGED, Severity.FINDING, Severity.NOTE)
"""The worst first."""

WORDS = tuple(StatusWord)
"""The worst first."""

PROVEN_RIGHT = (ComparisonStatus.EQUAL.value, ComparisonStatus.EQUAL_AFTER_EXPIRY.value)


def first_document(documents: Sequence[PageDocument]) -> PageDocument:
    """The document whose first lines are those of the page: the worst exit code, then the worst word, then the first one."""
    return min(documents, key=_rank)


def _rank(document: PageDocument) -> tuple[int, int]:
    counts = StatusCounts() if document.counts is None else document.counts
    return EXIT_CODES.index(Severity(document.exit_code)), WORDS.index(word_of(counts))


def first_lines(page: PageData) -> dict[str, object]:
    """The first lines of a page: sentence, details, next command, exit code, name of the document."""
    first = first_document(page.documents)
    sentence, _, details = first.answer.partition("\n")
    return {
        "sentence": sentence,
        "details": details,
        "next_command": first.next_command,
        "exit_code": first.exit_code,
        "document": first.name,
    }


def page_totals(page: PageData) -> PageTotals:
    """The numbers at the top of a page. One that no document of it has is unknown, not zero."""
    partitions = page.partitions()
    verbs = {document.verb for document in page.documents}
    counts = _counts(page)
    known_open = [count for partition in partitions if (count := partition.open_count) is not None]
    segments = sum(partition.segment_count for partition in partitions)
    compares = not verbs.isdisjoint(("verify", "tier-audit"))
    is_scan = not verbs.isdisjoint(("scan", "fleet"))
    boundaries = [boundary for partition in partitions for boundary in partition.boundaries.values()]
    wrong = max(counts.wrong, sum(boundary.proven_wrong for boundary in boundaries))
    missing = max(counts.missing, sum(partition.missing for partition in partitions))
    suspect = counts.suspect if len(page.documents) == 1 else sum(_is_suspect(boundary) for boundary in boundaries)
    return PageTotals(
        segments=segments or None,
        wrong_snapshots=wrong if wrong or compares else None,
        suspect_snapshots=suspect if suspect or compares or is_scan else None,
        missing_snapshots=missing if missing or is_scan or "verify" in verbs else None,
        fates=counts.fates + counts.topics_without_id if is_scan or "verify" in verbs else None,
        waiting_segments=counts.waiting if is_scan or "verify" in verbs else None,
        stuck_partitions=sum(bool(each.stuck_bytes) for each in partitions) if is_scan else None,
        stuck_bytes=sum(partition.stuck_bytes or 0 for partition in partitions),
        open_transactions=sum(known_open) if known_open else None,
    )


def _is_suspect(boundary: PageBoundary) -> bool:
    """Suspect by a scan or an audit, and neither proven wrong nor proven right by a replay."""
    return "suspect" in (boundary.state, boundary.status) and not boundary.proven_wrong and boundary.status not in PROVEN_RIGHT


def _counts(page: PageData) -> StatusCounts:
    """The counts of all documents: the greatest of those about the same directories, added up over different directories.

    A document of ``fleet`` has the sums of the scans, which may be on the page, too.
    """
    fleets = [each.counts for each in page.documents if each.verb == "fleet" and each.counts is not None]
    groups = [_greatest(group) for group in _groups(page)]
    sums = StatusCounts(**{name: sum(getattr(each, name) for each in groups) for name in StatusCounts.__struct_fields__})
    return _greatest([*fleets, sums])


def _groups(page: PageData) -> list[list[StatusCounts]]:
    """The counts of the documents, those with a partition in common together."""
    group_of = {number: {number} for number in range(len(page.documents))}
    for partition in page.all_partitions():
        joined = set().union(*(group_of[number] for number in partition.documents))
        for number in joined:
            group_of[number] = joined
    groups = {id(group): group for group in group_of.values()}
    counted = [(number, each.counts) for number, each in enumerate(page.documents) if each.verb != "fleet"]
    return [[counts for number, counts in counted if number in group and counts is not None] for group in groups.values()]


def _greatest(parts: Iterable[StatusCounts]) -> StatusCounts:
    several = list(parts)
    names = StatusCounts.__struct_fields__
    return StatusCounts(**{name: max((getattr(each, name) for each in several), default=0) for name in names})
