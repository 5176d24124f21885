"""The export of records on Spark: one task writes the file of a partition, and the driver gives it its name.

Whatever happens to a task, an executor or the driver: a file with the name of an export is whole, and the result of its task has arrived.
"""

from __future__ import annotations

import contextlib
import errno
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from formats.errors import FormatError
from snaprebuild.consume.chosen_log import ChosenLog
from snaprebuild.consume.partition_result import ReadPartition
from snaprebuild.consume.record_export import ExportedPartition, export_partition, publish, remove_unnamed_files
from snaprebuild.consume.record_query import RecordQuery
from snaprebuild.consume.record_source import RecordSource
from snaprebuild.errors import SnaprebuildError, StorageError, UsageError, WriteFailedError
from snaprebuild.findings import Finding
from snaprebuild.snapshots.engine.partition_task import to_domain_error
from snaprebuild.spark import read_rows
from snaprebuild.spark.job import SparkEngine
from snaprebuild.spark.run_limits import limits_of_stores
from snaprebuild.spark.whole_partitions import OUTCOME_SCHEMA

__all__ = ["check_shares", "export_on_spark"]

SEGMENTS_AT_ONCE = 50_000
"""Segments whose listings go through the driver at once."""

SEGMENT_COST_BYTES = 256 << 10
"""Cost of opening a segment, as a number of additional bytes."""


@dataclass(frozen=True, slots=True)
class ExportItem:
    """A partition that a task exports.

    Attributes:
        number: of the partition.
        log: of the partition.
    """

    number: int
    log: ChosenLog


def check_shares(source: RecordSource) -> None:
    """Checks that the run has no limits which its tasks would have to share.

    Raises:
        UsageError: requests or bytes are limited.
    """
    if limits_of_stores(piece.store for log in source.logs for piece in log.pieces) is not None:
        raise UsageError(
            "max_requests and max_read_bytes: tasks of Spark that export records cannot share them; "
            "leave out --engine spark, or the limits"
        )


def export_on_spark(
    engine: SparkEngine, source: RecordSource, query: RecordQuery, findings: list[Finding], directory: str
) -> list[ReadPartition]:
    """Writes the records of each partition to a file of Parquet, as ``consume.record_export.export_records``.

    Args:
        engine: whose executors see the directory.
        source: what is read (``check_shares``).
        query: with the columns of the files.
        findings: filled with those of the partitions.
        directory: that gets the files (``make_export_directory``), at the same path on the driver and on the executors.

    Raises:
        WriteFailedError: a file cannot be written, or the driver does not see it. The files that are there are whole.
        StorageError: the job failed.
        UsageError: the range makes no sense for a partition.
    """
    partitions: list[ReadPartition] = []
    try:
        for logs in _waves(source.logs):
            outcomes = _exported(engine, logs, query, directory)
            for number, log in enumerate(logs):
                outcome = outcomes.get(number, StorageError("the result of its task did not arrive", path=log.place))
                if isinstance(outcome, Exception):
                    raise outcome
                findings += outcome.findings
                if outcome.partition is not None:
                    partitions.append(outcome.partition)
    finally:
        remove_unnamed_files(directory)
    return partitions


def _waves(logs: Sequence[ChosenLog]) -> Iterator[list[ChosenLog]]:
    """The logs, some at once."""
    some: list[ChosenLog] = []
    segments = 0
    for log in logs:
        if some and segments + len(log.pieces) > SEGMENTS_AT_ONCE:
            yield some
            some = []
            segments = 0
        some.append(log)
        segments += len(log.pieces)
    if some:
        yield some


def _exported(
    engine: SparkEngine, logs: Sequence[ChosenLog], query: RecordQuery, directory: str
) -> dict[int, ExportedPartition | SnaprebuildError | FormatError]:
    """The outcome of each log, by its number. Files of partitions have their names as soon as their results arrive."""
    # The listing of the directory stays here: a task needs the segments alone.
    items = [ExportItem(number, replace(log, source=None)) for number, log in enumerate(logs)]
    sizes = [log.size_bytes + len(log.pieces) * SEGMENT_COST_BYTES for log in logs]
    outcomes: dict[int, Any] = {}
    with contextlib.closing(engine.run_partitions(partial(_run_exports, query, directory), items, sizes)) as arriving:
        for number, outcome in arriving:
            if isinstance(outcome, ExportedPartition):
                _publish(outcome, directory)
            outcomes[number] = outcome
    return outcomes


def _publish(exported: ExportedPartition, directory: str) -> None:
    try:
        publish(exported, directory)
    except WriteFailedError as error:
        if error.errno != errno.ENOENT:
            raise
        message = "a task of Spark wrote below it, and the driver does not see the file: --out must be a directory that all machines share"
        raise WriteFailedError(message, path=directory, errno=errno.ENOENT) from error


def _run_exports(query: RecordQuery, directory: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: exports the partitions of ``read_rows.table_of``. An error of one ends that partition and no other."""
    for batch in batches:
        for item in read_rows.rows_of(batch):
            outcome: ExportedPartition | SnaprebuildError | FormatError
            try:
                outcome = export_partition(item.log, query, directory)
            except Exception as error:
                outcome = to_domain_error(error)
            yield pa.RecordBatch.from_pydict({"partition": [item.number], "done": [pickle.dumps(outcome)]}, schema=OUTCOME_SCHEMA)
