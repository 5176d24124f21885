"""A document of ``tier audit`` on a page."""

from __future__ import annotations

from typing import Any

from snaprebuild.documents.saved_documents import DocumentHead, checked, is_of, members_of, optional, text_of, whole
from snaprebuild.report.page_data import PageBoundary, PageDocument, PagePartition, PageProducer, PageSegment, SegmentFate
from snaprebuild.report.page_writer import PageSink

__all__ = ["take_audit"]

WRONG = frozenset({"false-empty", "zero-bytes", "corrupt", "missing-producers", "wrong"})
"""Verdicts that a follower pays for."""

QUIET = frozenset({"right", "not-read"})

LACKS = ("segments that are only on a broker's disk: `scan --output json` of the leader tells them",)


def take_audit(head: DocumentHead, sink: PageSink) -> None:
    """Takes a document of ``tier audit``.

    Raises:
        UsageError: it is damaged.
        ReadFailedError: it cannot be read.
    """
    document = PageDocument(sink.name_of(head), head.schema, head.program, lacks=list(LACKS))
    number = sink.add_document(document)
    store, count = "", 0
    for name, value in members_of(head.path, ("partitions", "findings"), ("store", "level", "partitions", "findings", "totals")):
        with checked(head.path, f"{name}[{count}]" if name == "partitions" else name):
            if name == "store":
                store = text_of(value)
                document.facts.append(("store", store))
            elif name == "level":
                document.facts.append(("level", text_of(value)))
            elif name == "totals":
                document.facts.append(("snapshots", ", ".join(f"{whole(many)} {each}" for each, many in value.items() if many)))
            elif name == "partitions":
                place = f"{store} ({text_of(value['layout'])}, topic id {text_of(value['topic_id'])})"
                topic_partition = f"{text_of(value['topic'])}-{whole(value['partition'])}"
                _take_partition(value, sink.partition(topic_partition, place, number))
                count += 1
            elif name == "run":
                document.take_run(value)
            elif name == "unread_paths":
                document.unread = [text_of(each) for each in is_of(list, value)]
            elif name == "findings":
                sink.take_finding(value)


def _take_partition(value: Any, partition: PagePartition) -> None:
    partition.kind = "remote"
    segments = []
    for copy in is_of(list, value["copies"]):
        start, end = whole(copy["start_offset"]), optional(whole, copy["end_offset"])
        segments.append(PageSegment(start, whole(copy["stored_bytes"]), None, SegmentFate.COPY))
        if end is not None:
            partition.log_end_at_least = max(partition.log_end_at_least or 0, end + 1)
            _take_copy(copy, partition, end + 1)
    partition.take_segments(segments)
    local_start = optional(whole, value["local_log_start"])
    if local_start is not None:
        partition.facts.append(("on the leader's disk from", str(local_start)))


def _take_copy(copy: Any, partition: PagePartition, offset: int) -> None:
    """The snapshot of a copy belongs to the offset behind it."""
    verdict = text_of(copy["verdict"])
    boundary = partition.boundaries.setdefault(offset, PageBoundary())
    boundary.state = boundary.state or "present"
    if boundary.status is None or verdict in WRONG:  # copies may end at the same offset: the worse one is told
        boundary.status = verdict
    boundary.is_wrong |= verdict in WRONG
    boundary.entries = optional(whole, copy["entries"])
    boundary.expected = optional(whole, copy["expected_entries"])
    if verdict not in QUIET:
        boundary.why.append(text_of(copy["why"]))
    producers = [_producer_of(each, offset) for each in is_of(list, copy["differences"])]
    partition.producers += producers
    partition.producers_not_listed += max(0, whole(copy["difference_count"]) - len(producers))


def _producer_of(value: Any, offset: int) -> PageProducer:
    producer_id, consequence = whole(value["producer_id"], least=-(2**63)), text_of(value["consequence"])
    return PageProducer(producer_id, offset, text_of(value["kind"]), None, None, None, True, consequence, None)
