"""The tasks that read segments: they send the summaries as rows to the tasks that replay (``replay_tasks``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa

from snaprebuild.snapshots.engine.partition_task import ReadBudget, to_domain_error
from snaprebuild.snapshots.engine.segment_reader import Pieces, read_group, read_segment
from snaprebuild.spark import read_rows, summary_rows
from snaprebuild.spark.effect_files import CacheWriter
from snaprebuild.spark.range_reader import read_range
from snaprebuild.spark.read_rows import ReadRow
from snaprebuild.spark.summary_rows import Row

__all__ = ["read_row", "read_segments"]


def read_segments(
    batches: Iterable[pa.RecordBatch],
    *,
    new_writer: Callable[[], CacheWriter] | None = None,
    sent_bytes_max: Mapping[int, int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """In a task: reads each segment that a row names.

    Args:
        batches: of ``read_rows.SCHEMA``.
        new_writer: of the cache that gets the results; None for no cache.
        sent_bytes_max: by number of a large partition, bytes of rows of one segment that are sent on; the rest is withheld.
            None if there are no large ones.

    Returns:
        The rows of the segments, of ``summary_rows.SCHEMA``, with the jobs that were sent with them.
    """
    writer = None if new_writer is None else new_writer()
    # Rows of several segments are in one batch, whose columns cost more than those of one row.
    read = summary_rows.batches_of(_read_rows(batches, writer))
    yield from summary_rows.with_sizes(read, sent_bytes_max) if sent_bytes_max else read
    if writer is not None:
        writer.close()


def _read_rows(batches: Iterable[pa.RecordBatch], writer: CacheWriter | None) -> Iterator[Row]:
    for some in _together(row for batch in batches for row in read_rows.rows_of(batch)):
        for row, rows in zip(some, _rows_together(some), strict=True):
            if writer is not None:
                writer.add(row.task, rows)
            if row.job is not None:
                rows = [*summary_rows.rows_of_job(row.partition, row.job), *rows]  # noqa: PLW2901
            for each in rows:
                each["slot"] = row.replayed_by
                yield each


def _together(rows: Iterable[ReadRow]) -> Iterator[list[ReadRow]]:
    """The pieces that one task reads: small segments together; a range, or a large segment, alone."""
    some: list[ReadRow] = []
    budget = ReadBudget()
    for row in rows:
        if row.ranges > 1:
            yield [row]
            continue
        if not budget.takes(row.task):
            yield some
            some = []
            budget = ReadBudget()
            budget.takes(row.task)
        some.append(row)
    if some:
        yield some


def _rows_together(some: list[ReadRow]) -> list[list[Row]]:
    if len(some) == 1:
        return [read_row(some[0])]
    outcomes = read_group([row.task for row in some])
    return [_rows_of_outcome(row, outcome) for row, outcome in zip(some, outcomes, strict=True)]


def _rows_of_outcome(row: ReadRow, outcome: Pieces | Exception) -> list[Row]:
    if isinstance(outcome, Exception):  # of this segment only
        return list(summary_rows.rows_of_error(row.partition, row.task.base_offset, row.number, to_domain_error(outcome)))
    return list(summary_rows.rows_of_pieces(row.partition, outcome))


def read_row(row: ReadRow) -> list[Row]:
    """The rows of a segment, or of a range of it; or the row of the error that ended it."""
    try:
        if row.ranges == 1:
            return _rows_of_outcome(row, read_segment(row.task))
        return list(summary_rows.rows_of_range(row.partition, row.number, read_range(row.task, row.number, row.ranges)))
    except Exception as error:
        return _rows_of_outcome(row, error)
