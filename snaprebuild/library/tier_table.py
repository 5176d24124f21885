"""The result of ``audit`` as a table: a row for each copy of a segment in remote storage."""

from __future__ import annotations

from collections.abc import Iterator

from snaprebuild.documents.tier import AuditedPartition
from snaprebuild.library.tables import Row, RowTable

__all__ = ["AUDIT"]


def _audit_rows(partition: AuditedPartition) -> Iterator[Row]:
    for copy in partition.copies:
        yield {
            "topic": partition.topic,
            "partition": partition.partition,
            "topic_partition": partition.topic_partition,
            "topic_id": partition.topic_id,
            "layout": partition.layout.value,
            "segment_id": copy.segment_id,
            "start_offset": copy.start_offset,
            "end_offset": copy.end_offset,
            "stored_bytes": copy.stored_bytes,
            "verdict": copy.verdict.value,
            "reason": copy.reason,
            "entries": copy.entries,
            "expected_entries": copy.expected_entries,
            "difference_count": copy.difference_count,
        }


AUDIT = RowTable(
    {"topic": str, "partition": int, "topic_partition": str, "topic_id": str, "layout": str, "segment_id": str}
    | dict.fromkeys(("start_offset", "end_offset", "stored_bytes"), int)
    | {"verdict": str, "reason": str}
    | dict.fromkeys(("entries", "expected_entries", "difference_count"), int),
    _audit_rows,
)
