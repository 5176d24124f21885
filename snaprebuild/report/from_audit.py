"""A document of ``tier audit`` on a page."""

from __future__ import annotations

from snaprebuild.documents.saved_documents import DocumentHead, typed_members
from snaprebuild.documents.tier import AuditedCopy, AuditedPartition, TierAudit
from snaprebuild.published import encoded_members
from snaprebuild.report.page_data import PagePartition, PageSegment, SegmentFate
from snaprebuild.report.page_document import PageDocument
from snaprebuild.report.page_writer import SHARED, PageSink

__all__ = ["take_audit"]

WRONG = frozenset({"false-empty", "zero-bytes", "corrupt", "missing-producers", "wrong"})
"""Verdicts on snapshots from which a follower would start wrong."""

QUIET = frozenset({"right", "consistent", "not-read"})

LACKS = ("segments that are only on a broker's disk: `scan --output json` of the leader shows them",)


def take_audit(head: DocumentHead, sink: PageSink) -> None:
    """Takes a document of ``tier audit``.

    Raises:
        UsageError: it is damaged.
        ReadFailedError: it cannot be read.
    """
    document = PageDocument.of(head, *LACKS)
    number = sink.add_document(document)
    store = ""
    for name, value in typed_members(
        head.path, TierAudit, ("location", "level", "totals", "partitions", *SHARED), optional=("counts", "answer", "next_command")
    ):
        if name == "location":
            store = value
            document.facts.append(("store", store))
        elif name == "level":
            document.facts.append(("level", value))
        elif name == "totals":
            counts = ", ".join(f"{count} {verdict}" for verdict, count in encoded_members(value).items() if count)
            document.facts.append(("snapshots", counts))
        elif name == "partitions":
            place = f"{store} ({value.layout}, topic id {value.topic_id})"
            _take_partition(value, sink.partition(value.topic_partition, place, number))
        else:
            sink.take_shared(document, name, value)


def _take_partition(audited: AuditedPartition, partition: PagePartition) -> None:
    partition.kind = "remote"
    segments = []
    for copy in audited.copies:
        segments.append(PageSegment(copy.start_offset, copy.stored_bytes, None, SegmentFate.COPY))
        if copy.end_offset is not None:
            partition.log_end_at_least = max(partition.log_end_at_least or 0, copy.end_offset + 1)
            _take_copy(copy, partition, copy.end_offset + 1)
    partition.take_segments(segments)
    if audited.local_log_start_offset is not None:
        partition.facts.append(("on the leader's disk from", str(audited.local_log_start_offset)))


def _take_copy(copy: AuditedCopy, partition: PagePartition, offset: int) -> None:
    """The snapshot of a copy is that of the offset after its end."""
    boundary = partition.boundary(offset)
    boundary.state = boundary.state or "present"
    if boundary.status is None or copy.verdict in WRONG:  # copies may end at the same offset: the worse one is shown
        boundary.status = copy.verdict
    boundary.proven_wrong |= copy.verdict in WRONG
    boundary.entries = copy.entries
    boundary.expected_entries = copy.expected_entries
    if copy.verdict not in QUIET:
        boundary.reasons.append(copy.reason)
    partition.differences += [(offset, each) for each in copy.differences]
    partition.difference_count += copy.difference_count
    if copy.verdict in WRONG:
        partition.wrong_entries += copy.difference_count
