"""A document of ``verify`` on a page."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from formats.partition.file_names import FileKind, parse_file_name
from formats.text_lines import shown
from snaprebuild.documents.common import InputSegment
from snaprebuild.documents.saved_documents import DocumentHead, inconsistent, typed_members
from snaprebuild.documents.verify import VerifiedPartition, Verify
from snaprebuild.published import UnexpectedValueError
from snaprebuild.replay.difference import ComparisonStatus, VerifiedSnapshot
from snaprebuild.report.page_data import (
    PagePartition,
    PageSegment,
    SegmentFate,
)
from snaprebuild.report.page_document import PageDocument
from snaprebuild.report.page_writer import SHARED, STATUS, PageSink

__all__ = ["take_verify"]

NO_UPLOAD = "which segments would be uploaded: `scan --output json` shows it; both documents make one page"


def take_verify(head: DocumentHead, sink: PageSink) -> None:
    """Takes a document of ``verify``.

    Raises:
        UsageError: it is damaged.
        ReadFailedError: it cannot be read.
    """
    document = PageDocument.of(head, NO_UPLOAD)
    number = sink.add_document(document)
    for name, value in typed_members(
        head.path, Verify, ("as_of_ms", "expiration_ms", "totals", "partitions", *SHARED), optional=STATUS
    ):
        if name == "as_of_ms":
            document.as_of_ms = value
        elif name == "expiration_ms":
            document.take_expiration(value)
        elif name == "partitions":
            with inconsistent(head.path, f"inputs of {value.topic_partition}"):
                _take_partition(value, sink.partition(value.topic_partition, value.path, number))
        elif name == "totals":
            counts = msgspec.structs.asdict(value)
            text = ", ".join(
                f"{counts[each.value]} {each.value.replace('_', ' ')}" for each in ComparisonStatus if counts[each.value]
            )
            document.facts.append(("snapshots", text or "none"))
        else:
            sink.take_shared(document, name, value)


def _take_partition(verified: VerifiedPartition, partition: PagePartition) -> None:
    partition.is_directory = True
    if not partition.segments:
        partition.take_segments(_segments(verified.inputs))
    for each in verified.snapshots:
        _take_snapshot(each, partition)
    for offset in verified.missing_offsets:
        boundary = partition.boundary(offset)
        boundary.state = boundary.state or "missing"


def _segments(inputs: Sequence[InputSegment]) -> list[PageSegment]:
    """The last one is active."""
    segments = []
    for each in inputs:
        name = parse_file_name(each.name)
        if name is None or name.kind is not FileKind.LOG or name.offset is None:
            raise UnexpectedValueError(f"expected the name of a segment, found {shown(each.name)}")
        segments.append(PageSegment(name.offset, each.size_bytes, each.modified_ns // 1_000_000, SegmentFate.UNSAID))
    if segments:
        segments[-1].fate = SegmentFate.ACTIVE
    return segments


def _take_snapshot(snapshot: VerifiedSnapshot, partition: PagePartition) -> None:
    comparison = snapshot.comparison
    boundary = partition.boundary(snapshot.offset)
    boundary.state = boundary.state or "present"
    boundary.status = comparison.status.value
    boundary.snapshot_class = None if snapshot.snapshot_class is None else snapshot.snapshot_class.value
    boundary.proven_wrong |= comparison.proven_wrong
    boundary.entries = comparison.found_entries
    if snapshot.snapshot_class is not None:
        boundary.expected_entries = comparison.expected_entries
    if boundary.proven_wrong or not comparison.status.is_right:
        boundary.reasons.append(comparison.reason)
    partition.differences += [(snapshot.offset, each) for each in comparison.differences]
    partition.difference_count += comparison.difference_count
    if comparison.proven_wrong:
        partition.wrong_entries += comparison.certain_count
