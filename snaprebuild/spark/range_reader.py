"""Reads a range of a segment: what a Spark task does with a part of a large one."""

from __future__ import annotations

from formats.partition.offset_index import split_positions
from snaprebuild.snapshots.engine.segment_reader import ReadTask, index_entries_of, open_segment
from snaprebuild.spark.segment_ranges import RangeSummary, summarise_range
from snaprebuild.storage.local.segment_file import check_parts

__all__ = ["read_range"]


def read_range(task: ReadTask, number: int, ranges: int) -> tuple[RangeSummary, ...]:
    """Reads one of ``ranges`` ranges of a segment. Each call for the segment finds the same places to split at.

    Returns:
        For ``join_ranges``. Empty if there are fewer ranges, as without an index.

    Raises:
        As ``read_segment``.
    """
    with open_segment(task, splits=True) as (source, hint):
        check_parts(task.path, task.identity, source.identity)
        starts = (0, *split_positions(hint, task.identity.size_bytes, -(-task.identity.size_bytes // ranges)))
        if number >= len(starts):
            return ()
        end = starts[number + 1] if number + 1 < len(starts) else None
        if end is not None:
            source.will_stop_at(end)
        return summarise_range(
            source,
            task.base_offset,
            starts[number],
            end,
            check_crc=task.check_crc,
            hint=hint,
            extras=task.extras,
            with_first_events=task.with_first_events,
            cuts=task.cuts,
            indexes=index_entries_of(task),
        )
