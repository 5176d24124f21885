"""The results of the library as tables: a row for each partition of a scan, for each boundary of a plan, and so on.

A value that is unknown is None. The columns have the names of the members of the documents, where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from snaprebuild.documents.common import PartitionNeeds
from snaprebuild.documents.plan import PlannedPartition
from snaprebuild.documents.rebuild import RebuiltPartition
from snaprebuild.documents.verify import VerifiedPartition
from snaprebuild.snapshots.scan.scan_parts import ScannedPartition

__all__ = ["PLAN", "REBUILD", "SCAN", "VERIFY", "Row", "RowTable"]

Row = dict[str, Any]
"""The values of a row by column."""

PartitionT = TypeVar("PartitionT")

_NAMES: dict[str, type] = {"path": str, "topic": str, "partition": int, "topic_partition": str}


class RowTable(NamedTuple, Generic[PartitionT]):
    """How partitions become rows."""

    columns: dict[str, type]
    """The type of each column: ``str``, ``int``, ``float``, ``bool`` or ``list`` (of text)."""
    rows_of: Callable[[PartitionT], Iterator[Row]]


def _names(partition: PartitionNeeds | ScannedPartition) -> Row:
    return {name: getattr(partition, name) for name in _NAMES}


def _scan_rows(partition: ScannedPartition) -> Iterator[Row]:
    totals = partition.totals
    yield {
        **_names(partition),
        "log_start_offset": partition.log_start_offset,
        "log_end_offset": partition.log_end.offset,
        "high_watermark": partition.high_watermark,
        "last_stable_offset": partition.upload.last_stable_offset,
        "segments": totals.segments,
        "size_bytes": totals.size_bytes,
        "missing": totals.missing,
        "suspect": totals.suspect,
        "corrupt": totals.corrupt,
        "blocked_segments": totals.blocked_segments,
        "stuck_bytes": totals.stuck_bytes,
        "can_be_tiered": partition.can_be_tiered,
        "is_tiered": partition.is_tiered,
    }


SCAN = RowTable(
    _NAMES
    | dict.fromkeys(("log_start_offset", "log_end_offset", "high_watermark", "last_stable_offset", "segments", "size_bytes"), int)
    | dict.fromkeys(("missing", "suspect", "corrupt", "blocked_segments", "stuck_bytes"), int)
    | dict.fromkeys(("can_be_tiered", "is_tiered"), bool),
    _scan_rows,
)


def _plan_rows(partition: PlannedPartition) -> Iterator[Row]:
    for boundary in partition.boundaries:
        yield {
            **_names(partition),
            "offset": boundary.offset,
            "is_log_end": boundary.is_log_end,
            "action": "planned",
            "exists": boundary.exists,
            "expected_class": boundary.expected_class.value,
            "reason": None,
        }
    for left_out in partition.not_planned:
        yield {
            **_names(partition),
            "offset": left_out.offset,
            "is_log_end": None,
            "action": left_out.action,
            "exists": None,
            "expected_class": None,
            "reason": left_out.reason,
        }


PLAN = RowTable(
    _NAMES | {"offset": int, "is_log_end": bool, "action": str, "exists": bool} | {"expected_class": str, "reason": str},
    _plan_rows,
)


def _rebuild_rows(partition: RebuiltPartition) -> Iterator[Row]:
    for boundary in partition.boundaries:
        yield {
            **_names(partition),
            "offset": boundary.offset,
            "is_log_end": boundary.is_log_end,
            "action": boundary.action.value,
            "class": None if boundary.snapshot_class is None else boundary.snapshot_class.value,
            "reasons": list(boundary.reasons),
            "entries": boundary.entries,
            "read_bytes": partition.read_bytes,
            "elapsed_seconds": partition.elapsed_seconds,
        }


REBUILD = RowTable(
    _NAMES
    | {"offset": int, "is_log_end": bool, "action": str, "class": str, "reasons": list}
    | {"entries": int, "read_bytes": int, "elapsed_seconds": float},
    _rebuild_rows,
)


def _verify_rows(partition: VerifiedPartition) -> Iterator[Row]:
    for snapshot in partition.snapshots:
        comparison = snapshot.comparison
        yield {
            **_names(partition),
            "offset": snapshot.offset,
            "name": snapshot.name,
            "class": None if snapshot.snapshot_class is None else snapshot.snapshot_class.value,
            "status": comparison.status.value,
            "proven_wrong": comparison.proven_wrong,
            "expected_entries": comparison.expected_entries,
            "found_entries": comparison.found_entries,
            "difference_count": comparison.difference_count,
            "reason": comparison.reason,
        }


VERIFY = RowTable(
    _NAMES
    | {"offset": int, "name": str, "class": str, "status": str, "proven_wrong": bool}
    | dict.fromkeys(("expected_entries", "found_entries", "difference_count"), int)
    | {"reason": str},
    _verify_rows,
)
