"""The content of a page, from any document: partitions with their segments, boundaries, producers and transactions.

The values come from the documents alone. A fact that no document has is absent here, and the page lists it as missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Any

import msgspec

from snaprebuild.broker.fates import StartFate
from snaprebuild.findings import ReportedFinding
from snaprebuild.inspect.transaction_model import OngoingTransaction
from snaprebuild.report.page_document import PageDocument
from snaprebuild.report.page_tones import BoundaryTone, PartitionTone, boundary_tone
from snaprebuild.report.page_values import exact_number, page_object

__all__ = ["PARTITIONS_MAX", "PageBoundary", "PageData", "PagePartition", "PageSegment", "SegmentFate"]

PARTITIONS_MAX = 20_000
"""Partitions of a page, at most: the worst are kept. A browser can hold more, but no reader looks at them."""

SEGMENTS_MAX = 1_000
"""Drawn of one partition: neighbours that share their fate are put together where there are more."""

BOUNDARIES_MAX = 2_000
"""Boundaries of one partition, at most; those with a fault or result come first."""

FINDINGS_MAX = 20_000

FATES_MAX = 20
"""Fates of one partition, at most."""

DIFFERENCES_MAX = 1_000
"""Producers of one partition that differ, at most."""

TRANSACTIONS_MAX = 500
"""Transactions of one partition, at most: the oldest."""

OPEN_MEMBERS = (
    *("first_offset", "producer_id", "epoch", "since_ms", "last_ms", "is_late", "may_have_begun_before", "abort_commands"),
    *("two_phase", "transactional_id", "timeout_ms", "hang_reason", "reason", "missing_evidence"),
)
"""Members of an open transaction that the page shows."""

FATE_MEMBERS = ("kind", "cause", "remedy", "releases")
"""Members of a fate that the page shows."""

GRAVE = ("damaged", "refused", "storage")
"""Severities of findings with another exit code than 1."""


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


class PageBoundary(msgspec.Struct, omit_defaults=True):
    """The facts of the documents about a boundary; a fact that none has is None.

    Attributes:
        offset: of the boundary.
        state: as ``scan`` has it: ``present``, ``missing``, ...
        entries: producers in the snapshot.
        expected_entries: producers by replay.
        status: of the comparison of ``verify``, or the verdict of an audit.
        snapshot_class: of the replay.
        at_next_start: what the next start of the broker leaves, if that is not what is there.
        action: its result in a run that wrote.
        is_log_end: it is the log end.
        proven_wrong: the log proves that the snapshot is wrong.
        first_open_offset: of the oldest transaction that the snapshot has as open.
        reasons: sentences.
    """

    offset: int
    state: str | None = None
    entries: int | None = None
    expected_entries: int | None = None
    status: str | None = None
    snapshot_class: str | None = msgspec.field(default=None, name="class")
    at_next_start: str | None = None
    action: str | None = None
    is_log_end: bool = False
    proven_wrong: bool = False
    first_open_offset: int | None = None
    reasons: list[str] = msgspec.field(default_factory=list)

    @property
    def tone(self) -> BoundaryTone:
        """The state of the boundary in one word."""
        return boundary_tone(
            self.state,
            self.status,
            self.at_next_start,
            is_written=self.action is not None,
            proven_wrong=self.proven_wrong,
        )

    @property
    def is_plain(self) -> bool:
        """No fact but that it is there."""
        return not self.reasons and not self.proven_wrong and self.action is None and self.state in (None, "present")

    @property
    def is_snapshot_at_log_end(self) -> bool:
        """The snapshot shows which transactions were open at the end of the log."""
        return self.is_log_end and self.state == "present"


@dataclass(slots=True)
class PagePartition:
    """One partition in one place.

    Attributes:
        topic_partition: ``<topic>-<partition>``.
        place: directory, or the store and topic id.
        origin: host that the directory is of, where documents of several hosts have equal paths; else empty.
        documents: numbers of the documents that have it.
        kind: what the topic is, where it is not ordinary.
        next_attempt: of a leader to upload, if it fails: a sentence.
        outcome: what to do about it, as ``fleet`` has it.
        facts: further lines of the kind (name, value), shown as they are.
        tables: (title, columns, rows), shown as they are.
        segments: ascending; at most some hundreds (``take_segments``) of ``segment_count``.
        boundaries: by offset.
        differences: producers about which a snapshot differs from the log, with the offset of the snapshot.
        difference_count: producers that differ, listed or not.
        wrong_entries: those among them that the log proves wrong, in snapshots that are proven wrong.
        open: transactions by replay, at most as many as the document lists.
        open_by_replay: count of open transactions by replay; None without one.
        open_document: number of the document with this replay; None without one.
        is_directory: its place is a path that commands take.
        uploads_under_id_zero: its topic has no id while remote storage is on: nothing is written for it.
        late: late transactions by that replay.
        held_segments: rolled segments above the last stable offset by that replay; ``held_segment_bytes`` of them.
        waiting: rolled segments that are uploaded later, without any action; None where no scan shows it.
        waiting_unknown: rolled segments of which it is unknown whether they wait.
        question: the command of Kafka's tool that asks the coordinators for its late transactions; None if none is to be asked for.
        next_command: for its directory, in words for a shell; None if there is nothing to do, or no command for it.
        next_text: a sentence in its place.
        findings: numbers in the findings of the page.
        fates: numbers in the fates of the page, of those that are more than a note: of its directory or of its log directory.
        is_unread: a path in it, or above it, was not read.
        severities: of its findings, how many of each.
        stuck_bytes: from the first blocked rolled segment to the last rolled one.
        lacks: what no document has that the timeline needs, sentences.
    """

    topic_partition: str
    place: str
    origin: str = ""
    documents: list[int] = field(default_factory=list)
    kind: str | None = None
    node_id: int | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
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
    differences: list[tuple[int, msgspec.Struct]] = field(default_factory=list)
    difference_count: int = 0
    wrong_entries: int = 0
    open: Sequence[OngoingTransaction] = ()
    open_by_replay: int | None = None
    open_document: int | None = None
    is_directory: bool = False
    uploads_under_id_zero: bool = False
    late: int = 0
    held_segments: int = 0
    held_segment_bytes: int = 0
    waiting: int | None = None
    waiting_unknown: int = 0
    question: str | None = None
    next_command: str | None = None
    next_text: str | None = None
    findings: list[int] = field(default_factory=list)
    fates: list[int] = field(default_factory=list)
    is_unread: bool = False
    severities: Counter[str] = field(default_factory=Counter)
    lacks: list[str] = field(default_factory=list)
    _tones: Counter[BoundaryTone] | None = None

    def boundary(self, offset: int) -> PageBoundary:
        """The boundary at an offset, which the caller may change."""
        self._tones = None
        return self.boundaries.setdefault(offset, PageBoundary(offset))

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

    @property
    def open_count(self) -> int | None:
        """Open transactions, listed or not; None where no document shows whether any is open."""
        if self.open_by_replay is not None:
            return self.open_by_replay
        ends = [each for each in self.boundaries.values() if each.is_snapshot_at_log_end]
        return len(_open_in_snapshots(ends)) if ends else None

    @property
    def tones(self) -> Counter[BoundaryTone]:
        """Boundaries by their state, listed on the page or not. They are counted once after the last change of a boundary."""
        if self._tones is None:
            self._tones = Counter(boundary.tone for boundary in self.boundaries.values())
        return self._tones

    @property
    def concerns(self) -> int:
        """Findings that are more than a note."""
        return self.severities.total() - self.severities["note"]

    @property
    def damaged(self) -> int:
        """Findings about files of it that are damaged."""
        return self.severities["damaged"]

    @property
    def grave(self) -> int:
        """Findings with another exit code than 1."""
        return sum(self.severities[each] for each in GRAVE)

    @property
    def tone(self) -> PartitionTone:
        """The worst state of the partition in one word."""
        tones = self.tones
        if self.fates or tones[BoundaryTone.WRONG] or self.grave:
            return PartitionTone.WRONG
        if self.stuck_bytes or tones[BoundaryTone.MISSING]:
            return PartitionTone.MISSING
        if tones[BoundaryTone.SUSPECT] or tones[BoundaryTone.REMOVED] or self.concerns or self.is_unread:
            return PartitionTone.CONCERN
        if tones[BoundaryTone.UNVERIFIABLE]:
            return PartitionTone.UNKNOWN
        return PartitionTone.FINE

    @property
    def badness(self) -> tuple[int, ...]:
        """For sorting, the worst first: by tone, then in the order of a first line, then by findings."""
        tones = self.tones
        return (
            -list(PartitionTone).index(self.tone),
            len(self.fates),
            tones[BoundaryTone.WRONG],
            self.grave,
            tones[BoundaryTone.SUSPECT],
            self.stuck_bytes or 0,
            tones[BoundaryTone.MISSING],
            self.concerns,
            self.is_unread,
            tones[BoundaryTone.REMOVED],
            self.open_count or 0,
            tones[BoundaryTone.UNVERIFIABLE],
            self.severities["note"],
        )

    def page_members(self) -> dict[str, object]:
        """The members that the page's script reads; those without a value are left out."""
        boundaries = sorted(self.boundaries.values(), key=lambda each: each.offset)
        lacks = list(self.lacks)
        if len(boundaries) > BOUNDARIES_MAX:
            lacks.append(
                f"{len(boundaries) - BOUNDARIES_MAX} of {len(boundaries)} boundaries are left out, beginning with those without a finding"
            )
            boundaries = sorted(boundaries, key=lambda each: each.is_plain)[:BOUNDARIES_MAX]
            boundaries.sort(key=lambda each: each.offset)
        if len(self.segments) < self.segment_count:
            lacks.append(f"{self.segment_count} segments are drawn as {len(self.segments)}: neighbours are joined")
        numbers = ("log_start_offset", "log_end_offset", "log_end_at_least", "high_watermark", "last_stable_offset")
        plain = (
            *("topic_partition", "place", "documents", "kind", "node_id", "stuck_bytes", "next_attempt", "outcome"),
            *("waiting", "open_count", "open_document", "question", "next_command", "next_text"),
        )
        counts = (
            *("waiting_unknown", "late", "held_segments", "held_segment_bytes"),
            *("difference_count", "wrong_entries", "concerns", "damaged"),
        )
        members: dict[str, object] = {
            **{name: getattr(self, name) for name in plain},
            **{name: exact_number(getattr(self, name)) for name in numbers},
            **{name: getattr(self, name) or None for name in counts},
            "tone": self.tone.value,
            "tones": {tone.value: count for tone, count in self.tones.items()},
            "facts": self.facts or None,
            "tables": self.tables or None,
            "segments": self._segment_columns(),
            "boundaries": [{**page_object(each), "tone": each.tone.value} for each in boundaries],
            "differences": self._difference_members() or None,
            "open": self._open_members() or None,
            "findings": self.findings or None,
            "fates": self.fates[:FATES_MAX] or None,
            "is_unread": self.is_unread or None,
            "origin": self.origin or None,
            "lacks": lacks or None,
        }
        return {name: each for name, each in members.items() if each is not None}

    def _segment_columns(self) -> dict[str, object]:
        """The segments as columns: a page may have very many."""
        segments = self.segments
        columns: dict[str, object] = {
            "base_offset": [exact_number(each.base_offset) for each in segments],
            "size_bytes": [each.size_bytes for each in segments],
            "modified_ms": [each.modified_ms for each in segments],
            "fates": "".join(each.fate for each in segments),
        }
        if len(segments) < self.segment_count:
            columns["counts"] = [each.count for each in segments]
        return columns

    def _difference_members(self) -> list[dict[str, Any]]:
        """Producers that differ, those that are proven wrong first: nothing proves the others right or wrong."""
        wrong = {offset for offset, boundary in self.boundaries.items() if boundary.proven_wrong}
        # An audit lists only what the log proves.
        rows = [
            {
                "offset": exact_number(offset),
                **page_object(each),
                "is_proven": offset in wrong and getattr(each, "is_certain", True),
            }
            for offset, each in self.differences
        ]
        rows.sort(key=lambda row: not row["is_proven"])
        return rows[:DIFFERENCES_MAX]

    def _open_members(self) -> list[dict[str, Any]]:
        """Open transactions by replay; without one the oldest that a snapshot at a log end has, of which only the offset is known."""
        if self.open_by_replay is not None:
            return [page_object(each, OPEN_MEMBERS) for each in self.open[:TRANSACTIONS_MAX]]
        ends = [each for each in self.boundaries.values() if each.is_snapshot_at_log_end]
        return [{"first_offset": exact_number(offset)} for offset in _open_in_snapshots(ends)]


def _open_in_snapshots(boundaries: Iterable[PageBoundary]) -> list[int]:
    """First offsets of the oldest open transactions, ascending."""
    return sorted({each.first_open_offset for each in boundaries if each.first_open_offset is not None})


@dataclass(slots=True)
class PageData:
    """A page.

    Attributes:
        title: of the page.
        documents: in the order in which they were named.
        findings: of all documents, each once for each host; ``finding_origins`` of them.
        findings_left: those above ``FINDINGS_MAX``.
        tables: what belongs to no partition: (title, text below it, columns, rows).
        fates: of all documents, each once for each host; ``fate_origins`` of them.
    """

    title: str
    documents: list[PageDocument] = field(default_factory=list)
    findings: list[ReportedFinding] = field(default_factory=list)
    finding_origins: list[str] = field(default_factory=list)
    findings_left: int = 0
    tables: list[tuple[str, str, list[str], list[list[str]]]] = field(default_factory=list)
    fates: list[StartFate] = field(default_factory=list)
    fate_origins: list[str] = field(default_factory=list)
    _partitions: dict[tuple[str, str, str], PagePartition] = field(default_factory=dict)
    _known_findings: set[tuple[str, ReportedFinding]] = field(default_factory=set)
    _known_fates: set[tuple[str, str, str, str, str]] = field(default_factory=set)

    def partition(self, topic_partition: str, place: str, document: int) -> PagePartition:
        """The partition of this name in this place, with the facts of other documents.

        Args:
            topic_partition: its name.
            place: directory, or the store and topic id.
            document: number of a document that has it.
        """
        # A path in a bucket is one for all hosts.
        origin = "" if "://" in place or document >= len(self.documents) else self.documents[document].origin
        partition = self._partitions.setdefault((topic_partition, place, origin), PagePartition(topic_partition, place, origin))
        if document not in partition.documents:
            partition.documents.append(document)
        return partition

    def add_finding(self, finding: ReportedFinding, origin: str = "") -> None:
        """Takes a finding, unless it is there. ``origin`` is that of its document."""
        if (origin, finding) in self._known_findings:
            return
        if len(self.findings) >= FINDINGS_MAX:
            self.findings_left += 1
            return
        self._known_findings.add((origin, finding))
        self.findings.append(finding)
        self.finding_origins.append(origin)

    def add_fate(self, fate: StartFate, origin: str) -> None:
        """Takes a fate, unless it is there. ``origin`` is that of its document."""
        key = (origin, fate.kind, fate.severity, fate.path, fate.cause)
        if key not in self._known_fates:
            self._known_fates.add(key)
            self.fates.append(fate)
            self.fate_origins.append(origin)

    @property
    def unread_paths(self) -> list[str]:
        """The paths that the runs of all documents did not read, each once."""
        return list(dict.fromkeys(path for document in self.documents for path in document.unread_paths))

    def all_partitions(self) -> Iterable[PagePartition]:
        """All of them, shown or not."""
        return self._partitions.values()

    @property
    def partition_count(self) -> int:
        """Count of all partitions, shown or not."""
        return len(self._partitions)

    def partitions(self) -> list[PagePartition]:
        """The partitions that are shown, the worst first."""
        ranked = sorted(
            self._partitions.values(),
            key=lambda each: (*(-each for each in each.badness), *_by_number(each.topic_partition), each.place),
        )
        return ranked[:PARTITIONS_MAX]

    def page_members(self) -> Iterator[tuple[str, object]]:
        """Everything but the partitions, by member."""
        yield "title", self.title
        yield "documents", [{**page_object(each), "verb": each.verb} for each in self.documents]
        findings = zip(self.findings, self.finding_origins, strict=True)
        yield "findings", [{**page_object(each), "origin": origin} if origin else page_object(each) for each, origin in findings]
        yield "findings_left", self.findings_left
        yield "fates", [page_object(each, FATE_MEMBERS) for each in self.fates]
        yield (
            "tables",
            [{"title": title, "text": text, "columns": columns, "rows": rows} for title, text, columns, rows in self.tables],
        )
        yield "partitions_left", max(0, self.partition_count - PARTITIONS_MAX)


def _by_number(name: str) -> tuple[str, int, str]:
    """For sorting: partition 9 of a topic before its partition 10."""
    topic, _, number = name.rpartition("-")
    return (topic, int(number) if number.isdecimal() and len(number) < 10 else -1, name)
