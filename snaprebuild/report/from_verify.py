"""A document of ``verify`` on a page."""

from __future__ import annotations

from typing import Any

from formats.partition.file_names import FileKind, parse_file_name
from formats.text_lines import shown
from snaprebuild.documents.saved_documents import (
    DocumentHead,
    UnexpectedValueError,
    checked,
    is_of,
    members_of,
    optional,
    text_of,
    whole,
)
from snaprebuild.report.page_data import (
    PageBoundary,
    PageDocument,
    PagePartition,
    PageProducer,
    PageSegment,
    SegmentFate,
)
from snaprebuild.report.page_writer import PageSink

__all__ = ["producers_of", "take_verify"]

NO_UPLOAD = "which segments would be uploaded: `scan --output json` tells it; both documents make one page"


def take_verify(head: DocumentHead, sink: PageSink) -> None:
    """Takes a document of ``verify``.

    Raises:
        UsageError: it is damaged.
        ReadFailedError: it cannot be read.
    """
    document = PageDocument(sink.name_of(head), head.schema, head.program, lacks=[NO_UPLOAD])
    number = sink.add_document(document)
    count = 0
    for name, value in members_of(head.path, ("partitions", "findings"), ("partitions", "findings", "totals")):
        with checked(head.path, f"{name}[{count}]" if name == "partitions" else name):
            if name == "partitions":
                _take_partition(value, sink.partition(text_of(value["topic_partition"]), text_of(value["path"]), number))
                count += 1
            elif name == "run":
                document.take_run(value)
            elif name == "unread_paths":
                document.unread = [text_of(each) for each in is_of(list, value)]
            elif name == "findings":
                sink.take_finding(value)
            elif name == "totals":
                said = ", ".join(f"{whole(many)} {status.replace('_', ' ')}" for status, many in value.items())
                document.facts.append(("snapshots", said or "none"))


def _take_partition(value: Any, partition: PagePartition) -> None:
    if not partition.segments:
        partition.take_segments(_segments(value["inputs"]))
    for each in is_of(list, value["snapshots"]):
        _take_snapshot(each, partition)
    for offset in is_of(list, value["missing"]):
        boundary = partition.boundaries.setdefault(whole(offset), PageBoundary())
        boundary.state = boundary.state or "missing"


def _segments(inputs: Any) -> list[PageSegment]:
    """Of the identities (name, size, modification time in ns, ...), the last one active."""
    segments = []
    for row in is_of(list, inputs):
        name = parse_file_name(text_of(row[0]))
        if name is None or name.kind is not FileKind.LOG or name.offset is None:
            raise UnexpectedValueError(f"expected the name of a segment, found {shown(row[0])}")
        modified_ns = optional(lambda each: whole(each, least=-(2**63)), row[2])
        modified_ms = None if modified_ns is None else modified_ns // 1_000_000
        segments.append(PageSegment(name.offset, whole(row[1]), modified_ms, SegmentFate.UNSAID))
    if segments:
        segments[-1].fate = SegmentFate.ACTIVE
    return segments


def _take_snapshot(value: Any, partition: PagePartition) -> None:
    offset = whole(value["offset"])
    boundary = partition.boundaries.setdefault(offset, PageBoundary())
    boundary.state = boundary.state or "present"
    boundary.status = text_of(value["status"])
    boundary.snapshot_class = optional(text_of, value["class"])
    boundary.is_wrong |= is_of(bool, value["proven_wrong"])
    boundary.entries = whole(value["found_entries"])
    if boundary.snapshot_class is not None:
        boundary.expected = whole(value["expected_entries"])
    if boundary.is_wrong or boundary.status not in ("equal", "equal_after_expiry"):
        boundary.why.append(text_of(value["reason"]))
    producers = producers_of(value["differences"], offset)
    partition.producers += producers
    partition.producers_not_listed += max(0, whole(value["difference_count"]) - len(producers))


def producers_of(differences: Any, offset: int) -> list[PageProducer]:
    """The producers of whom a snapshot says something else than the log.

    Raises:
        KeyError, TypeError, ValueError: they are not told as ``verify`` and ``tier audit`` do.
    """
    return [
        PageProducer(
            whole(each["producer_id"], least=-(2**63)),
            offset,
            text_of(each["kind"]),
            optional(text_of, each.get("field")),
            optional(_any_number, each.get("expected")),
            optional(_any_number, each.get("found")),
            is_of(bool, each.get("is_certain", True)),
            text_of(each["consequence"]),
            optional(whole, each.get("open_from")),
        )
        for each in is_of(list, differences)
    ]


def _any_number(value: object) -> int:
    return whole(value, least=-(2**63))
