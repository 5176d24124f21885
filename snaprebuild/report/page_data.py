"""The content of a page, from any document: partitions with their segments, boundaries, producers and transactions.

The values come from the documents alone. A fact that no document has is absent here, and the page lists it as missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby

from snaprebuild.report.page_document import PageDocument

__all__ = [
    "PARTITIONS_MAX",
    "PageBoundary",
    "PageData",
    "PageFate",
    "PageFinding",
    "PagePartition",
    "PageProducer",
    "PageSegment",
    "PageTransaction",
    "SegmentFate",
]

PARTITIONS_MAX = 20_000
"""Partitions of a page, at most: the worst are kept. A browser can hold more, but no reader looks at them."""

SEGMENTS_MAX = 1_000
"""Drawn of one partition: neighbours that share their fate are put together where there are more."""

BOUNDARIES_MAX = 2_000
"""Boundaries of one partition, at most; those with a fault or result come first."""

FINDINGS_MAX = 20_000

START_FATES_MAX = 20
"""Fates of one partition, at most."""

PRODUCERS_MAX = 1_000
"""Producers of one partition, at most."""

TRANSACTIONS_MAX = 500
"""Transactions of one partition, at most: the oldest."""

EXACT_NUMBER_MAX = 2**53 - 1
"""Larger numbers are given as text: JavaScript has doubles."""


class SegmentFate(StrEnum):
    """The fate of a segment by a document; the value is its name in the page's data."""

    UPLOADABLE = "u"
    BAD_SNAPSHOT = "x"
    BLOCKED = "b"
    AFTER_BLOCKED = "h"
    WAITS = "w"
    NOT_KNOWN = "k"
    ACTIVE = "a"
    BELOW_START = "s"
    NEVER_UPLOADED = "n"
    UNSAID = "p"
    """The document lists the segment and says no more."""
    COPY = "r"
    """A copy in remote storage."""


@dataclass(slots=True)
class PageSegment:
    """One segment, or some that follow one another (``count``)."""

    base_offset: int
    size_bytes: int | None
    modified_ms: int | None
    fate: SegmentFate
    count: int = 1


@dataclass(slots=True)
class PageBoundary:
    """The facts of the documents about a boundary; a fact that none has is None.

    Attributes:
        state: as ``scan`` says it: ``present``, ``missing``, ...
        entries: producers in the snapshot; ``expected``: by replay.
        status: as ``verify`` says it, or the verdict of an audit.
        snapshot_class: of the replay.
        next_start: what the next start of the broker leaves.
        action: its result in a run that wrote.
        is_log_end: it is the log end.
        is_wrong: something is proven to be wrong.
        first_open_offset: of the oldest transaction that the snapshot has as open.
        why: sentences.
    """

    state: str | None = None
    entries: int | None = None
    expected: int | None = None
    status: str | None = None
    snapshot_class: str | None = None
    next_start: str | None = None
    action: str | None = None
    is_log_end: bool = False
    is_wrong: bool = False
    first_open_offset: int | None = None
    why: list[str] = field(default_factory=list)

    @property
    def is_plain(self) -> bool:
        """No fact but that it is there."""
        return not self.why and not self.is_wrong and self.action is None and self.state in (None, "present")

    def as_json(self, offset: int) -> list[object]:
        """[offset, state, entries], and where there is more to say, an object."""
        more = {
            "expected": self.expected,
            "status": self.status,
            "class": self.snapshot_class,
            "next": self.next_start,
            "action": self.action,
            "end": self.is_log_end or None,
            "wrong": self.is_wrong or None,
            "open": _number(self.first_open_offset),
            "why": self.why or None,
        }
        known = {name: value for name, value in more.items() if value is not None}
        row: list[object] = [_number(offset), self.state, self.entries]
        return [*row, known] if known else row


@dataclass(frozen=True, slots=True)
class PageProducer:
    """A producer of whom a snapshot says something else than the log.

    Attributes:
        producer_id: int64.
        offset: of the snapshot.
        kind: how it differs.
        field: that differs; None for the whole entry.
        expected: by the log; ``found``: in the snapshot.
        is_certain: the log proves it.
        cost: what a broker with that snapshot would do.
        open_from: where the transaction begins that is open by the log.
    """

    producer_id: int
    offset: int
    kind: str
    field: str | None
    expected: int | None
    found: int | None
    is_certain: bool
    cost: str
    open_from: int | None

    def as_json(self) -> list[object]:
        """The fields in their order."""
        return [
            str(self.producer_id),
            _number(self.offset),
            self.kind,
            self.field,
            _number(self.expected),
            _number(self.found),
            self.is_certain,
            self.cost,
            _number(self.open_from),
        ]


@dataclass(frozen=True, slots=True)
class PageTransaction:
    """A transaction that is open at the log end.

    Attributes:
        first_offset: of its first batch.
        producer_id: None where the document does not name it.
        is_late: no batch for longer than any coordinator waits.
        is_replayed: a replay of the log proves it; else a snapshot at the log end has it as open.
        reason: why it is open although it is late; None if the document does not say.
    """

    first_offset: int
    producer_id: int | None = None
    is_late: bool = False
    is_replayed: bool = False
    reason: str | None = None

    def as_json(self) -> list[object]:
        """First offset, None (open to the log end), producer id, whether it is late, and the reason if there is one."""
        producer = None if self.producer_id is None else str(self.producer_id)
        reason = [] if self.reason is None else [self.reason]
        return [_number(self.first_offset), None, producer, self.is_late, *reason]


@dataclass(frozen=True, slots=True)
class PageFinding:
    """A finding, with the partition that it is of, where it is of one."""

    code: str
    severity: str
    path: str
    message: str
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class PageFate:
    """What the next start of a broker does.

    Attributes:
        kind: name of the kind.
        severity: of its finding.
        path: of a partition, a file or a log directory.
        cause: in a few words.
    """

    kind: str
    severity: str
    path: str
    cause: str


@dataclass(slots=True)
class PagePartition:
    """One partition in one place.

    Attributes:
        name: ``<topic>-<partition>``.
        place: directory, or the store and topic id.
        documents: numbers of the documents that have it.
        kind: what the topic is, where it is not ordinary.
        facts: further lines of the kind (name, value), shown as they are.
        tables: (title, columns, rows), shown as they are.
        outcome: what to do about it, as ``fleet`` says it.
        segments: ascending; at most some hundreds (``take_segments``) of ``segment_count``.
        boundaries: by offset.
        producers: see there.
        transactions: by first offset; ``open_transactions`` are those that count.
        open_not_listed: open ones that a document counts and does not list.
        is_replayed: a replay shows which transactions are open.
        has_snapshot_at_end: a snapshot at the log end shows the oldest one that is open.
        findings: numbers.
        fates: those that are more than a note, of its directory or of its log directory.
        is_concerned: it has a fate or a finding that is more than a note, or was not read.
        stuck_bytes: from the first blocked rolled segment to the last rolled one.
        lacks: what no document has that the timeline needs, sentences.
    """

    name: str
    place: str
    documents: list[int] = field(default_factory=list)
    kind: str | None = None
    node_id: int | None = None
    log_start: int | None = None
    log_end: int | None = None
    log_end_at_least: int | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    stuck_bytes: int | None = None
    next_attempt: str | None = None
    outcome: str | None = None
    facts: list[tuple[str, str]] = field(default_factory=list)
    tables: list[tuple[str, list[str], list[list[str]]]] = field(default_factory=list)
    segments: list[PageSegment] = field(default_factory=list)
    segment_count: int = 0
    boundaries: dict[int, PageBoundary] = field(default_factory=dict)
    producers: list[PageProducer] = field(default_factory=list)
    producers_not_listed: int = 0
    transactions: dict[int, PageTransaction] = field(default_factory=dict)
    open_not_listed: int = 0
    is_replayed: bool = False
    has_snapshot_at_end: bool = False
    findings: list[int] = field(default_factory=list)
    fates: list[PageFate] = field(default_factory=list)
    is_concerned: bool = False
    lacks: list[str] = field(default_factory=list)

    def take_segments(self, segments: list[PageSegment]) -> None:
        """Takes all segments; neighbours that share their fate are put together where there are more than are drawn."""
        self.segment_count = len(segments)
        if len(segments) <= SEGMENTS_MAX:
            self.segments = segments
            return
        at_once = -(-len(segments) // SEGMENTS_MAX)
        self.segments = []
        for fate, same in groupby(segments, lambda each: each.fate):
            run = list(same)
            for begin in range(0, len(run), at_once):
                part = run[begin : begin + at_once]
                size = sum(each.size_bytes or 0 for each in part)
                self.segments.append(PageSegment(part[0].base_offset, size, part[-1].modified_ms, fate, len(part)))

    def take_transaction(self, found: PageTransaction) -> None:
        """Takes an open transaction, which another document may have, too."""
        known = self.transactions.get(found.first_offset)
        if known is None or found.is_replayed:
            self.transactions[found.first_offset] = found

    @property
    def open_transactions(self) -> list[PageTransaction]:
        """By first offset. Where a replay shows them, a snapshot that has others as open is wrong."""
        listed = (each for _, each in sorted(self.transactions.items()))
        return [each for each in listed if each.is_replayed or not self.is_replayed]

    @property
    def open_count(self) -> int | None:
        """Open transactions, listed or not; None where no document shows whether any is open."""
        if not (self.is_replayed or self.has_snapshot_at_end):
            return None
        return len(self.open_transactions) + self.open_not_listed

    @property
    def missing(self) -> int:
        """Boundaries that need a snapshot and have none."""
        return sum(boundary.state in ("missing", "irregular") for boundary in self.boundaries.values())

    @property
    def badness(self) -> tuple[int, ...]:
        """For sorting: what the next start does, proven wrong, stuck, missing, suspect, any other finding; the worst first."""
        boundaries = self.boundaries.values()
        wrong = sum(boundary.is_wrong for boundary in boundaries)
        suspect = sum(boundary.state == "suspect" for boundary in boundaries)
        missing = self.missing if self.kind is None else 0
        return (len(self.fates), wrong, self.stuck_bytes or 0, missing, suspect, self.is_concerned, len(self.findings))

    def as_json(self) -> dict[str, object]:
        """As the page's script takes it; members without a value are left out."""
        boundaries = sorted(self.boundaries.items())
        lacks = list(self.lacks)
        if len(boundaries) > BOUNDARIES_MAX:
            ranked = sorted(boundaries, key=lambda each: each[1].is_plain)[:BOUNDARIES_MAX]
            lacks.append(
                f"{len(boundaries) - BOUNDARIES_MAX} of {len(boundaries)} boundaries are left out, beginning with those without a finding"
            )
            boundaries = sorted(ranked, key=lambda each: each[0])
        segments = self.segments
        if len(segments) < self.segment_count:
            lacks.append(f"{self.segment_count} segments are drawn as {len(segments)}: neighbours are joined")
        value: dict[str, object] = {
            "name": self.name,
            "place": self.place,
            "documents": self.documents,
            "kind": self.kind,
            "node": self.node_id,
            "start": _number(self.log_start),
            "end": _number(self.log_end),
            "atLeast": _number(self.log_end_at_least),
            "highWatermark": _number(self.high_watermark),
            "lastStable": _number(self.last_stable_offset),
            "stuck": self.stuck_bytes,
            "next": self.next_attempt,
            "outcome": self.outcome,
            "facts": self.facts or None,
            "tables": self.tables or None,
            "bases": [_number(each.base_offset) for each in segments],
            "sizes": [each.size_bytes for each in segments],
            "modified": [None if each.modified_ms is None else each.modified_ms // 1000 for each in segments],
            "fates": "".join(each.fate for each in segments),
            "counts": [each.count for each in segments] if len(segments) < self.segment_count else None,
            "boundaries": [boundary.as_json(offset) for offset, boundary in boundaries],
            "producers": [each.as_json() for each in self.producers[:PRODUCERS_MAX]] or None,
            "producersLeft": (self.producers_not_listed + max(0, len(self.producers) - PRODUCERS_MAX)) or None,
            "transactions": [each.as_json() for each in self.open_transactions[:TRANSACTIONS_MAX]] or None,
            "open": self.open_count,
            "findings": self.findings or None,
            "startFates": [[each.kind, each.cause] for each in self.fates[:START_FATES_MAX]] or None,
            "concerned": self.is_concerned or None,
            "lacks": lacks or None,
        }
        return {name: each for name, each in value.items() if each is not None}


@dataclass(slots=True)
class PageData:
    """A page.

    Attributes:
        title: of the page.
        documents: in the order in which they were named.
        findings: of all documents, each once.
        findings_left: those above ``FINDINGS_MAX``.
        tables: what belongs to no partition: (title, text below it, columns, rows).
        fates: of all documents, each once.
    """

    title: str
    documents: list[PageDocument] = field(default_factory=list)
    findings: list[PageFinding] = field(default_factory=list)
    findings_left: int = 0
    tables: list[tuple[str, str, list[str], list[list[str]]]] = field(default_factory=list)
    fates: list[PageFate] = field(default_factory=list)
    _partitions: dict[tuple[str, str], PagePartition] = field(default_factory=dict)

    def partition(self, name: str, place: str, document: int) -> PagePartition:
        """The partition of this name in this place, as far as other documents tell of it, too."""
        found = self._partitions.setdefault((name, place), PagePartition(name, place))
        if document not in found.documents:
            found.documents.append(document)
        return found

    def add_finding(self, finding: PageFinding, seen: dict[PageFinding, int]) -> None:
        """Takes a finding, once; ``seen`` numbers those that are there."""
        if finding in seen:
            return
        if len(self.findings) >= FINDINGS_MAX:
            self.findings_left += 1
            return
        seen[finding] = len(self.findings)
        self.findings.append(finding)

    @property
    def unread_paths(self) -> list[str]:
        """The paths that the runs of all documents did not read, each once."""
        return list(dict.fromkeys(path for document in self.documents for path in document.unread))

    def all_partitions(self) -> Iterable[PagePartition]:
        """All of them, shown or not."""
        return self._partitions.values()

    @property
    def partition_count(self) -> int:
        """Count of all partitions, shown or not."""
        return len(self._partitions)

    def partitions(self) -> list[PagePartition]:
        """Those that are shown, the worst first."""
        ranked = sorted(
            self._partitions.values(), key=lambda each: (*(-each for each in each.badness), *_by_number(each.name), each.place)
        )
        return ranked[:PARTITIONS_MAX]

    def head_json(self) -> Iterator[tuple[str, object]]:
        """Everything but the partitions, by member."""
        yield "title", self.title
        yield (
            "documents",
            [each.as_json() for each in self.documents],
        )
        yield "findings", [[each.code, each.severity, each.path, each.message, _number(each.offset)] for each in self.findings]
        yield "findingsLeft", self.findings_left
        yield (
            "tables",
            [{"title": title, "text": text, "columns": columns, "rows": rows} for title, text, columns, rows in self.tables],
        )
        yield "partitionsLeft", max(0, self.partition_count - PARTITIONS_MAX)


def _number(value: int | None) -> int | str | None:
    return str(value) if value is not None and abs(value) > EXACT_NUMBER_MAX else value


def _by_number(name: str) -> tuple[str, int, str]:
    """For sorting: partition 9 of a topic before its partition 10."""
    topic, _, number = name.rpartition("-")
    return (topic, int(number) if number.isdecimal() and len(number) < 10 else -1, name)
