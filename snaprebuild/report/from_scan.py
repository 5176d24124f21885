"""A document of ``scan`` on a page."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from snaprebuild.documents.saved_documents import (
    DocumentHead,
    UnexpectedValueError,
    checked,
    field_of,
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
    PageSegment,
    PageTransaction,
    SegmentFate,
)
from snaprebuild.report.page_writer import PageSink

__all__ = ["take_scan"]

FATES = {
    "uploadable": SegmentFate.UPLOADABLE,
    "uploadable-with-bad-snapshot": SegmentFate.BAD_SNAPSHOT,
    "blocked": SegmentFate.BLOCKED,
    "behind-blocked": SegmentFate.BEHIND_BLOCKED,
    "waits": SegmentFate.WAITS,
    "not-known": SegmentFate.NOT_KNOWN,
}

WRONG = frozenset({"corrupt"})
"""States of a boundary that need no replay to be known as wrong."""

NO_SEGMENTS = "it does not list its segments, as documents of older versions do not: the timeline has boundaries alone; scan again"
NO_PRODUCERS = "which producers a wrong snapshot would forget: a scan reads no segment; `verify --output json` tells it"


def take_scan(head: DocumentHead, sink: PageSink) -> None:
    """Takes a document of ``scan``.

    Raises:
        UsageError: it is damaged.
        ReadFailedError: it cannot be read.
    """
    document = PageDocument(sink.name_of(head), head.schema, head.program, lacks=[NO_PRODUCERS])
    number = sink.add_document(document)
    nodes: dict[str, int | None] = {}
    has_segments = True
    count = 0
    needed = ("total", "log_dirs", "partitions", "findings")
    for name, value in members_of(head.path, ("log_dirs", "partitions", "findings"), needed):
        with checked(head.path, f"{name}[{count}]" if name == "partitions" else name):
            if name == "log_dirs":
                nodes[text_of(value["path"])] = optional(whole, value["node_id"])
                document.facts.append(_log_dir_fact(value))
            elif name == "partitions":
                has_segments &= "segments" in value
                _take_partition(value, sink.partition(text_of(value["topic_partition"]), text_of(value["path"]), number), nodes)
                count += 1
            elif name == "run":
                document.take_run(value)
            elif name == "unread_paths":
                document.unread = [text_of(each) for each in is_of(list, value)]
            elif name == "findings":
                sink.take_finding(value)
    if not has_segments:
        document.lacks.append(NO_SEGMENTS)


def _log_dir_fact(value: Any) -> tuple[str, str]:
    whose = "" if value["node_id"] is None else f", node {whole(value['node_id'])}"
    cluster = "" if value["cluster_id"] is None else f" of cluster {text_of(value['cluster_id'])}"
    return text_of(value["path"]), f"stop: {text_of(value['shutdown'])}{whose}{cluster}"


def _take_partition(value: Any, partition: PagePartition, nodes: dict[str, int | None]) -> None:
    end = field_of(value, "log_end")
    partition.node_id = nodes.get(text_of(value["log_dir"]))
    partition.log_start = whole(value["log_start_offset"])
    partition.log_end = optional(whole, end["offset"])
    partition.log_end_at_least = whole(end["at_least"])
    partition.high_watermark = optional(whole, value.get("high_watermark"))
    partition.kind = _kind(value)
    upload = field_of(value, "upload")
    partition.last_stable_offset = optional(whole, upload["last_stable_offset"])
    if is_of(bool, value["can_be_tiered"]):
        partition.stuck_bytes = whole(upload["stuck_bytes"])
        partition.next_attempt = _next_attempt(upload["next_attempt"])
    missing = None if "missing" not in value else {whole(each) for each in is_of(list, value["missing"])}
    for each in is_of(list, value["boundaries"]):
        _take_boundary(each, partition, missing)
    if "segments" in value:
        _take_segments(value, partition)
    for boundary in partition.boundaries.values():
        if boundary.is_log_end and boundary.state == "present":
            partition.has_snapshot_at_end = True
            if boundary.first_open_offset is not None:
                partition.take_transaction(PageTransaction(boundary.first_open_offset))


def _kind(value: Any) -> str | None:
    kinds = [] if value["topic_kind"] == "ordinary" else [text_of(value["topic_kind"]).replace("_", " ")]
    if is_of(bool, value["is_compacted"]):
        kinds.append("compacted")
    return ", ".join(kinds) or None


def _take_boundary(value: Any, partition: PagePartition, missing: set[int] | None) -> None:
    """``missing``: offsets, None in documents of older versions, which do not list them."""
    offset = whole(value["offset"])
    boundary = partition.boundaries.setdefault(offset, PageBoundary())
    boundary.state = text_of(value["state"])
    if boundary.state == "irregular" and missing is not None and offset not in missing:
        boundary.state = "not due"
    boundary.entries = optional(whole, value["entries"])
    boundary.next_start = _told_fate(boundary.state, optional(text_of, value["at_next_start"]))
    boundary.is_log_end = is_of(bool, value["is_log_end"])
    boundary.is_wrong |= boundary.state in WRONG
    boundary.first_open_offset = optional(whole, value.get("first_open_offset"))
    boundary.why += [text_of(each) for each in is_of(list, value["why"])]


def _told_fate(state: str, fate: str | None) -> str | None:
    """What goes without saying is left out: most snapshots are there and stay."""
    return None if (state, fate) in (("present", "kept"), ("missing", "absent")) else fate


def _take_segments(value: Any, partition: PagePartition) -> None:
    columns = [[whole(each) for each in is_of(list, value["segments"][name])] for name in ("base_offsets", "sizes_bytes")]
    bases, sizes = columns
    modified = [whole(each, least=-(2**63)) for each in is_of(list, value["segments"]["modified_ms"])]
    if not len(bases) == len(sizes) == len(modified) or bases != sorted(set(bases)):
        raise UnexpectedValueError("expected columns of one length with base offsets that ascend")
    fates = _fates(value, bases)
    partition.take_segments([PageSegment(*each) for each in zip(bases, sizes, modified, fates, strict=True)])


def _fates(value: Any, bases: list[int]) -> list[SegmentFate]:
    """Of each segment, from the runs that a scan tells: closed ones above the log start; the last segment is the active one."""
    usual = SegmentFate.BELOW_START if value["can_be_tiered"] else SegmentFate.NEVER_UPLOADED
    fates = [usual] * len(bases)
    if bases:
        fates[-1] = SegmentFate.ACTIVE
    for run in is_of(list, value["upload"]["closed_segments"]):
        first = bisect_left(bases, whole(run["base_offset"]))
        behind = bisect_left(bases, whole(run["next_base_offset"]))
        for index in range(first, min(behind, len(bases))):
            fates[index] = FATES.get(text_of(run["state"]), SegmentFate.UNSAID)
    return fates


def _next_attempt(value: Any) -> str | None:
    """What a leader meets next, in a sentence; None where nothing throws."""
    if value is None:
        return None
    thrown = [each for each in is_of(list, value["outcomes"]) if each["exception"] is not None]
    if not thrown:
        return None
    versions = "; ".join(f"{text_of(each['versions'])}: {text_of(each['exception']).rpartition('.')[2]}" for each in thrown)
    return f"a leader tries the segment at {whole(value['base_offset'])} in vain ({versions})"
