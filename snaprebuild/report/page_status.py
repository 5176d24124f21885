"""The first lines and the numbers of a page: those of the status that each document has, of several documents together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from snaprebuild.broker.status import StatusCounts, StatusWord, word_of
from snaprebuild.documents.report import PageTotals
from snaprebuild.findings import Severity, pluralize
from snaprebuild.report.page_data import PageData
from snaprebuild.report.page_document import NO_ANSWER, PageDocument
from snaprebuild.report.page_tones import BoundaryTone

__all__ = ["first_document", "first_lines", "page_totals"]

EXIT_CODES = (Severity.STORAGE, Severity.REFUSED, Severity.DAMAGED, Severity.FINDING, Severity.NOTE)
"""The worst first."""

WORDS = tuple(StatusWord)
"""The worst first."""

TOOL_HINT = "This is Kafka's own tool: put the address of a broker in place of HOST:PORT. The partitions below have the others."


def first_document(documents: Sequence[PageDocument]) -> PageDocument:
    """The document whose first lines are those of the page: the worst exit code, then the worst word, then the first one."""
    return min(documents, key=_rank)


def _rank(document: PageDocument) -> tuple[int, int]:
    counts = StatusCounts() if document.counts is None else document.counts
    return EXIT_CODES.index(Severity(document.exit_code)), WORDS.index(word_of(counts))


def first_lines(page: PageData, totals: PageTotals) -> dict[str, object]:
    """The first lines of a page: sentence, details, next command and a text after it, exit code, tone, name and host of the document.

    Args:
        page: with its documents.
        totals: of the page. Where a document reports less than they do, the page reports what they do.
    """
    first = first_document(page.documents)
    sentence, _, details = first.answer.partition("\n")
    if first.answer == NO_ANSWER:
        sentence = _sentence(totals, page.partition_count)
    faults = sum(filter(None, (totals.fates, totals.wrong_snapshots, totals.suspect_snapshots, totals.missing_snapshots)))
    # A verify with missing snapshots has exit code 0, too.
    is_clean = first.exit_code == 0 and not faults and not page.unread_paths
    tone = "missing" if first.exit_code in (0, 1) else "wrong"
    if is_clean:
        tone = "fine"
    command = first.next_command
    text = None
    tool_command = None
    worst = next((each for each in page.partitions() if each.next_command is not None), None)
    if _are_suspects_right(first, totals):
        others = [document for document in page.documents if document is not first]
        command = first_document(others).next_command
        text = "A replay proves the suspect snapshots right: they are no fault."
    elif command is not None:
        text = f"{page.fates[0].remedy}." if page.fates else None
    elif is_clean:
        text = "Nothing to do."
    elif page.fates:
        text = f"No command corrects this. {page.fates[0].remedy}."
    elif first.exit_code == 0 and worst is not None:
        command = worst.next_command
        text = "It is for the worst partition. The partitions below have the others."
    else:
        tool_command, text = _instead_of_a_command(page)
    return {
        "sentence": sentence,
        "details": details,
        "next_command": command,
        "tool_command": tool_command,
        "next_text": text,
        "exit_code": first.exit_code,
        "tone": tone,
        "document": first.name,
        "host": None if first.run is None or first.verb == "fleet" else first.run.host,
    }


def _are_suspects_right(first: PageDocument, totals: PageTotals) -> bool:
    """Whether other documents settle what the first one calls suspect: its next command would be the one that was run."""
    suspect = 0 if first.counts is None else first.counts.suspect
    return suspect > 0 and totals.suspect_snapshots == 0 and totals.wrong_snapshots == 0


def _sentence(totals: PageTotals, partitions: int) -> str:
    """The numbers of a page, for a document without an answer."""
    counts = (
        (totals.wrong_snapshots, "snapshot wrong", "snapshots wrong"),
        (totals.suspect_snapshots, "snapshot suspect", "snapshots suspect"),
        (totals.missing_snapshots, "snapshot missing", "snapshots missing"),
    )
    texts = [pluralize(count, one, many) for count, one, many in counts if count]
    return f"{', '.join(texts) or 'Nothing wrong or missing is shown'} in {pluralize(partitions, 'partition')}."


def _instead_of_a_command(page: PageData) -> tuple[str | None, str]:
    """A command of Kafka's own tool about the worst late transactions, and a text after it; without any, only a text."""
    late = next((each for each in page.partitions() if each.late), None)
    if late is None:
        return None, "No command corrects this: see the findings."
    over = next((each.abort_commands for each in late.open if each.abort_commands is not None), None)
    if over is not None:
        return over.since_3_0, f"It aborts a transaction that is over, of {late.topic_partition}. {TOOL_HINT}"
    return late.question, f"It asks the coordinators for the late transactions of {late.topic_partition}. {TOOL_HINT}"


def page_totals(page: PageData) -> PageTotals:
    """The numbers at the top of a page, of all partitions. One that no document of it has is unknown, not zero."""
    partitions = list(page.all_partitions())
    verbs = {document.verb for document in page.documents}
    counts = _counts(page)
    tones = sum((partition.tones for partition in partitions), Counter[BoundaryTone]())
    known_open = [count for partition in partitions if (count := partition.open_count) is not None]
    replayed = [partition for partition in partitions if partition.open_by_replay is not None]
    segments = sum(partition.segment_count for partition in partitions)
    compares = not verbs.isdisjoint(("verify", "tier-audit"))
    is_scan = not verbs.isdisjoint(("scan", "fleet"))
    is_judged = is_scan or "verify" in verbs
    wrong = max(counts.wrong, tones[BoundaryTone.WRONG])
    missing = max(counts.missing, tones[BoundaryTone.MISSING])
    suspect = counts.suspect if len(page.documents) == 1 else tones[BoundaryTone.SUSPECT]
    unverifiable = tones[BoundaryTone.UNVERIFIABLE]
    wrong_entries = None
    if compares:
        wrong_entries = sum(partition.wrong_entries for partition in partitions)
    stuck_partitions = None
    if is_scan:
        stuck_partitions = sum(bool(each.stuck_bytes) for each in partitions)
    late_transactions = None
    if replayed:
        late_transactions = sum(partition.late for partition in replayed)
    return PageTotals(
        segments=segments or None,
        wrong_snapshots=wrong if wrong or compares else None,
        wrong_entries=wrong_entries,
        unverifiable_snapshots=unverifiable if unverifiable or compares else None,
        suspect_snapshots=suspect if suspect or compares or is_scan else None,
        missing_snapshots=missing if missing or is_judged else None,
        fates=counts.fates + counts.topics_without_id if is_judged else None,
        waiting_segments=counts.waiting if is_judged else None,
        waiting_unknown_segments=counts.waiting_unknown if is_judged else None,
        stuck_partitions=stuck_partitions,
        stuck_bytes=sum(partition.stuck_bytes or 0 for partition in partitions),
        open_transactions=sum(known_open) if known_open else None,
        open_unknown_partitions=len(partitions) - len(known_open),
        late_transactions=late_transactions,
    )


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
