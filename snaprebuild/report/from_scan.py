"""A document of ``scan`` on a page."""

from __future__ import annotations

from bisect import bisect_left

from snaprebuild.documents.saved_documents import DocumentHead, inconsistent, typed_members
from snaprebuild.documents.scan import Scan, ScannedLogDir, ScannedPartition
from snaprebuild.published import UnexpectedValueError
from snaprebuild.report.page_data import (
    PagePartition,
    PageSegment,
    SegmentFate,
)
from snaprebuild.report.page_document import PageDocument
from snaprebuild.report.page_writer import SHARED, STATUS, PageSink
from snaprebuild.snapshots.scan.result import BoundaryScan
from snaprebuild.snapshots.scan.upload_preflight import NextAttempt

__all__ = ["take_scan"]

FATES = {
    "uploadable": SegmentFate.UPLOADABLE,
    "uploadable-with-bad-snapshot": SegmentFate.BAD_SNAPSHOT,
    "blocked": SegmentFate.BLOCKED,
    "after-blocked": SegmentFate.AFTER_BLOCKED,
    "waits": SegmentFate.WAITS,
    "waits-for-lag": SegmentFate.WAITS,
    "not-known": SegmentFate.NOT_KNOWN,
}

NO_PRODUCERS = "which producers a wrong snapshot would forget: a scan reads no records; `verify --output json` shows it"


def take_scan(head: DocumentHead, sink: PageSink) -> None:
    """Takes a document of ``scan``.

    Raises:
        UsageError: it is damaged.
        ReadFailedError: it cannot be read.
    """
    document = PageDocument(sink.name_of(head), head.schema, head.program, lacks=[NO_PRODUCERS])
    number = sink.add_document(document)
    nodes: dict[str, int | None] = {}
    for name, value in typed_members(head.path, Scan, ("totals", "log_dirs", "partitions", *SHARED), optional=STATUS):
        if name == "log_dirs":
            nodes[value.path] = value.node_id
            document.facts.append(_log_dir_fact(value))
        elif name == "partitions":
            with inconsistent(head.path, f"segments of {value.topic_partition}"):
                _take_partition(value, sink.partition(value.topic_partition, value.path, number), nodes)
        else:
            sink.take_shared(document, name, value)


def _log_dir_fact(log_dir: ScannedLogDir) -> tuple[str, str]:
    node = "" if log_dir.node_id is None else f", node {log_dir.node_id}"
    cluster = "" if log_dir.cluster_id is None else f" of cluster {log_dir.cluster_id}"
    return log_dir.path, f"stop: {log_dir.shutdown}{node}{cluster}"


def _take_partition(found: ScannedPartition, partition: PagePartition, nodes: dict[str, int | None]) -> None:
    partition.node_id = nodes.get(found.log_dir)
    partition.log_start_offset = found.log_start_offset
    partition.log_end_offset = found.log_end.offset
    partition.log_end_at_least = found.log_end.at_least
    partition.high_watermark = found.high_watermark
    partition.kind = _kind(found)
    partition.last_stable_offset = found.upload.last_stable_offset
    if found.can_be_tiered:
        partition.stuck_bytes = found.upload.stuck_bytes
        partition.next_attempt = _next_attempt(found.upload.next_attempt)
    missing = set(found.missing_offsets)
    for each in found.boundaries:
        _take_boundary(each, partition, missing)
    _take_segments(found, partition)


def _kind(found: ScannedPartition) -> str | None:
    kinds = [] if found.topic_kind == "ordinary" else [found.topic_kind.replace("_", " ")]
    if found.is_compacted:
        kinds.append("compacted")
    return ", ".join(kinds) or None


def _take_boundary(found: BoundaryScan, partition: PagePartition, missing: set[int]) -> None:
    boundary = partition.boundary(found.offset)
    boundary.state = "not due" if found.state == "irregular" and found.offset not in missing else found.state
    boundary.entries = found.entries
    usual = (boundary.state, found.at_next_start) in (("present", "kept"), ("missing", "absent"))
    boundary.at_next_start = None if usual else found.at_next_start
    boundary.is_log_end = found.is_log_end
    boundary.proven_wrong |= boundary.state == "corrupt"
    boundary.first_open_offset = found.first_open_offset
    boundary.reasons += found.reasons


def _take_segments(found: ScannedPartition, partition: PagePartition) -> None:
    bases = [each.base_offset for each in found.segments]
    if bases != sorted(set(bases)):
        raise UnexpectedValueError("expected base offsets that ascend")
    fates = _fates(found, bases)
    partition.take_segments(
        [
            PageSegment(each.base_offset, each.size_bytes, each.modified_ms, fate)
            for each, fate in zip(found.segments, fates, strict=True)
        ]
    )


def _fates(found: ScannedPartition, bases: list[int]) -> list[SegmentFate]:
    """The fate of each segment, from the rolled ones above the log start; the last segment is the active one."""
    usual = SegmentFate.BELOW_START if found.can_be_tiered else SegmentFate.NEVER_UPLOADED
    fates = [usual] * len(bases)
    if bases:
        fates[-1] = SegmentFate.ACTIVE
    for run in found.upload.rolled_segments:
        first = bisect_left(bases, run.base_offset)
        end = bisect_left(bases, run.next_base_offset)
        for index in range(first, min(end, len(bases))):
            fates[index] = FATES[run.state]
    return fates


def _next_attempt(attempt: NextAttempt | None) -> str | None:
    """The next attempt of a leader, as a sentence; None if nothing throws."""
    thrown = [] if attempt is None else [each for each in attempt.outcomes if each.exception is not None]
    if attempt is None or not thrown:
        return None
    versions = "; ".join(f"{each.versions}: {(each.exception or '').rpartition('.')[2]}" for each in thrown)
    return f"the upload of the segment at {attempt.base_offset} fails ({versions})"
