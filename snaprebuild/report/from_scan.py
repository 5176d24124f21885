"""A document of ``scan`` on a page."""

from __future__ import annotations

from bisect import bisect_left

from snaprebuild.documents.saved_documents import DocumentHead, inconsistent, typed_members
from snaprebuild.documents.scan import Scan
from snaprebuild.published import UnexpectedValueError
from snaprebuild.report.page_data import (
    PagePartition,
    PageSegment,
    SegmentFate,
)
from snaprebuild.report.page_document import PageDocument
from snaprebuild.report.page_writer import SHARED, STATUS, PageSink
from snaprebuild.snapshots.scan.scan_parts import ScannedLogDir, ScannedPartition
from snaprebuild.snapshots.scan.scan_result import BoundaryScan
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
    document = PageDocument.of(head, NO_PRODUCERS)
    number = sink.add_document(document)
    nodes: dict[str, int | None] = {}
    for name, value in typed_members(
        head.path, Scan, ("totals", "log_dirs", "partitions", *SHARED), optional=(*STATUS, "settings")
    ):
        if name == "settings":
            if value is not None and value.producer_expiration_ms is not None:
                document.take_expiration(value.producer_expiration_ms)
        elif name == "log_dirs":
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


def _take_partition(scanned: ScannedPartition, partition: PagePartition, nodes: dict[str, int | None]) -> None:
    partition.is_directory = True
    partition.uploads_under_id_zero = scanned.uploads_under_id_zero
    partition.node_id = nodes.get(scanned.log_dir)
    partition.log_start_offset = scanned.log_start_offset
    partition.log_end_offset = scanned.log_end.offset
    partition.log_end_at_least = scanned.log_end.at_least
    partition.high_watermark = scanned.high_watermark
    partition.kind = _kind(scanned)
    partition.last_stable_offset = scanned.upload.last_stable_offset
    if scanned.can_be_tiered:
        partition.stuck_bytes = scanned.upload.stuck_bytes
        partition.waiting = scanned.upload.waiting_segments
        partition.waiting_unknown = scanned.upload.waiting_unknown_segments
        partition.next_attempt = _next_attempt(scanned.upload.next_attempt)
    missing = set(scanned.missing_offsets)
    for each in scanned.boundaries:
        _take_boundary(each, partition, missing)
    _take_segments(scanned, partition)


def _kind(scanned: ScannedPartition) -> str | None:
    kinds = [] if scanned.topic_kind == "ordinary" else [scanned.topic_kind.replace("_", " ")]
    if scanned.is_compacted:
        kinds.append("compacted")
    return ", ".join(kinds) or None


def _take_boundary(scanned: BoundaryScan, partition: PagePartition, missing: set[int]) -> None:
    boundary = partition.boundary(scanned.offset)
    boundary.state = "not due" if scanned.state == "irregular" and scanned.offset not in missing else scanned.state
    boundary.entries = scanned.entries
    usual = (boundary.state, scanned.at_next_start) in (("present", "kept"), ("missing", "absent"))
    boundary.at_next_start = None if usual else scanned.at_next_start
    boundary.is_log_end = scanned.is_log_end
    boundary.proven_wrong |= boundary.state == "corrupt"
    boundary.first_open_offset = scanned.first_open_offset
    boundary.reasons += scanned.reasons


def _take_segments(scanned: ScannedPartition, partition: PagePartition) -> None:
    bases = [each.base_offset for each in scanned.segments]
    if bases != sorted(set(bases)):
        raise UnexpectedValueError("expected base offsets that ascend")
    fates = _fates(scanned, bases)
    partition.take_segments(
        [
            PageSegment(each.base_offset, each.size_bytes, each.modified_ms, fate)
            for each, fate in zip(scanned.segments, fates, strict=True)
        ]
    )


def _fates(scanned: ScannedPartition, bases: list[int]) -> list[SegmentFate]:
    """The fate of each segment, from the rolled ones above the log start; the last segment is the active one."""
    usual = SegmentFate.BELOW_START if scanned.can_be_tiered else SegmentFate.NEVER_UPLOADED
    fates = [usual] * len(bases)
    if bases:
        fates[-1] = SegmentFate.ACTIVE
    for run in scanned.upload.rolled_segments:
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
