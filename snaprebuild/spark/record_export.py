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
from snaprebuild.errors import SnaprebuildError, StorageError, WriteFailedError
from snaprebuild.findings import Finding
from snaprebuild.snapshots.engine.partition_task import to_domain_error
from snaprebuild.spark import read_rows
from snaprebuild.spark.job import SparkEngine, waves_of
from snaprebuild.spark.limited_reads import SharedReads, check_keeps_limits
from snaprebuild.spark.record_tasks import directories_of
from snaprebuild.spark.run_limits import Needs, limits_of_stores, stored_needs
from snaprebuild.spark.whole_partitions import OUTCOME_SCHEMA
from snaprebuild.storage.store import S3Settings
from snaprebuild.storage.store_path import ReadPath

__all__ = ["check_session", "export_on_spark"]

INDEX_REQUESTS = 1
INDEX_BYTES = 1 << 10
"""Needs of the transaction index of a segment, about."""


@dataclass(frozen=True, slots=True)
class ExportItem:
    """A partition that a task exports.

    Attributes:
        number: of the partition.
        log: of the partition.
    """

    number: int
    log: ChosenLog


def check_session(engine: SparkEngine, source: RecordSource) -> None:
    """Checks the session of an export before anything is written.

    Raises:
        UsageError: it cannot keep the limits of the run.
    """
    if _limits_of(source.logs) is not None:
        check_keeps_limits(engine.session)


def _limits_of(logs: Iterable[ChosenLog]) -> S3Settings | None:
    return limits_of_stores(piece.store for log in logs for piece in log.pieces)


def export_on_spark(
    engine: SparkEngine, source: RecordSource, query: RecordQuery, findings: list[Finding], directory: str
) -> list[ReadPartition]:
    """Writes the records of each partition to a file of Parquet below a directory, which gets its name when it is whole.

    Args:
        engine: whose executors see the directory.
        source: what is read.
        query: with the columns of the files.
        findings: filled with those of the partitions.
        directory: that gets the files (``make_export_directory``), at the same path on the driver and on the executors.

    Raises:
        WriteFailedError: a file cannot be written, or the driver does not see it. The files that are there are whole.
        StorageError: the job failed.
        LimitReachedError: a limit of the run is used up.
        UsageError: the range makes no sense for a partition, or the session cannot keep the limits of the run.
    """
    partitions: list[ReadPartition] = []
    try:
        for logs in waves_of(source.logs, lambda log: len(log.pieces)):
            outcomes = _exported(engine, logs, query, directory)
            for number, log in enumerate(logs):
                outcome = outcomes.get(number, StorageError("the result of its task did not arrive", path=log.place))
                if isinstance(outcome, WriteFailedError) and outcome.errno == errno.ENOENT:
                    raise _not_shared(directory) from outcome
                if isinstance(outcome, Exception):
                    raise outcome
                findings += outcome.findings
                if outcome.partition is not None:
                    partitions.append(outcome.partition)
    finally:
        remove_unnamed_files(directory)
    return partitions


def _exported(
    engine: SparkEngine, logs: Sequence[ChosenLog], query: RecordQuery, directory: str
) -> dict[int, ExportedPartition | SnaprebuildError | FormatError]:
    """The outcome of each log, by its number. Files of partitions have their names as soon as their results arrive."""
    # The listing of the directory stays here: a task needs the segments alone.
    items = [ExportItem(number, replace(log, source=None)) for number, log in enumerate(logs)]
    sizes = [log.size_bytes for log in logs]
    segments = [len(log.pieces) for log in logs]
    outcomes: dict[int, Any] = {}
    limits = _limits_of(logs)
    if limits is None:
        results = engine.run_partitions(partial(_run_exports, query, directory), items, sizes, segments, directories_of(logs))
    else:
        needs = [_needs_of(log, query) for log in logs]
        reads = SharedReads(partial(_export_item, query, directory), items, needs, sizes, are_estimates=True)
        results = engine.read_within_limits(limits, reads, directories_of(logs))
    with contextlib.closing(results) as arriving:
        for number, outcome in arriving:
            if isinstance(outcome, ExportedPartition):
                _publish(outcome, directory)
                if limits is not None and engine.progress is not None:
                    engine.progress(logs[number].topic_partition, sizes[number])
            outcomes[number] = outcome
    return outcomes


def _needs_of(log: ChosenLog, query: RecordQuery) -> Needs:
    """The cost of exporting a partition, about: its segments are read once for their headers, if these matter, and once for records."""
    has_survey = query.needs_outcomes or query.starting_timestamp is not None or query.ending_timestamp is not None
    requests = 0
    read_bytes = 0
    for piece in log.pieces:
        if piece.store.is_local:
            continue
        segment_requests, segment_bytes = stored_needs(ReadPath(piece.store, piece.path), [piece.size_bytes])
        requests += (1 + has_survey) * segment_requests + INDEX_REQUESTS
        read_bytes += (1 + has_survey) * segment_bytes + INDEX_BYTES
    return requests, read_bytes


def _publish(exported: ExportedPartition, directory: str) -> None:
    try:
        publish(exported, directory)
    except WriteFailedError as error:
        if error.errno != errno.ENOENT:
            raise
        raise _not_shared(directory) from error


def _not_shared(directory: str) -> WriteFailedError:
    """The error of a task that does not find the directory of the export, or of a driver that does not find the file of a task."""
    message = (
        "the driver and the tasks of Spark do not see the same files below it: --out must be a directory that all machines share"
    )
    return WriteFailedError(message, path=directory, errno=errno.ENOENT)


def _run_exports(query: RecordQuery, directory: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: exports the partitions of ``read_rows.table_of``. An error of one ends that partition and no other."""
    for batch in batches:
        for item in read_rows.rows_of(batch):
            outcome: ExportedPartition | SnaprebuildError | FormatError
            try:
                outcome = _export_item(query, directory, item)
            except Exception as error:
                outcome = to_domain_error(error)
            yield pa.RecordBatch.from_pydict({"partition": [item.number], "done": [pickle.dumps(outcome)]}, schema=OUTCOME_SCHEMA)


def _export_item(query: RecordQuery, directory: str, item: ExportItem) -> ExportedPartition:
    return export_partition(item.log, query, directory)
