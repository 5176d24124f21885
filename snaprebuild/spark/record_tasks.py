"""The tasks that read the records of a query: each has some partitions, or a part of the range of a large one.

What a task reads is decided when Spark plans the query, up to the offsets of each large partition. So all tasks of a query read one state
of the log, and each offset is in one task. The headers of a large partition are read while Spark plans: no task could know alone how
its transactions ended.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from formats.errors import FormatError
from snaprebuild.consume.arrow_arrays import one_row
from snaprebuild.consume.arrow_batches import record_schema
from snaprebuild.consume.chosen_log import ChosenLog
from snaprebuild.consume.partition_plan import RecordPlan, parts_of, plan_partition
from snaprebuild.consume.partition_read import PartitionReader
from snaprebuild.consume.record_query import ALL_TIMES, DamageMode, RecordQuery, TimeBounds
from snaprebuild.consume.record_source import open_record_source
from snaprebuild.errors import SnaprebuildError, UsageError
from snaprebuild.findings import Finding, Severity
from snaprebuild.snapshots.run import Run
from snaprebuild.spark.executor_directories import DirectoryIdentity, check_directories, directories_above, identities_of
from snaprebuild.spark.option_names import with_option_names
from snaprebuild.spark.packing import packed_for_source, source_part_bytes
from snaprebuild.spark.pushed_filters import time_bounds
from snaprebuild.spark.record_options import RecordOptions
from snaprebuild.spark.selected_files import passes, text_of
from snaprebuild.spark.source_options import existing_paths
from snaprebuild.spark.task_services import attempts_of_task
from snaprebuild.storage.io_limits.policy import NO_IO_LIMITS, IoLimits, RunLimits, limited_io

__all__ = ["RecordTask", "directories_of", "record_tasks", "rows_of_task"]

log = logging.getLogger(__name__)

PARTITION_COST_BYTES = 1 << 20
"""Cost of opening a partition, as a number of additional bytes."""


@dataclass(frozen=True, slots=True)
class RecordTask:
    """The work of one task of Spark.

    Attributes:
        logs: partitions that the task plans itself.
        plans: ranges that were planned.
        faults: paths that are not read, and why.
        times: that the filters of the query leave.
        log_dirs: identities of the directories above those of the segments, by path.
        limits: of its reads: a share of those of the query.
    """

    logs: tuple[ChosenLog, ...] = ()
    plans: tuple[RecordPlan, ...] = ()
    faults: tuple[tuple[str, str], ...] = ()
    times: TimeBounds = ALL_TIMES
    log_dirs: Mapping[str, DirectoryIdentity] = field(default_factory=dict)
    limits: IoLimits = NO_IO_LIMITS


def record_tasks(options: RecordOptions, filters: Sequence[Any]) -> list[RecordTask]:
    """The tasks of a query, at least one.

    Raises:
        UsageError, RefusedError, ReadFailedError, FormatError: as ``open_record_source`` and ``plan_partition``.
    """
    limits = IoLimits(bytes_per_second=options.bytes_per_second)
    with limited_io(limits):
        tasks = _planned_tasks(options, filters)
    times = time_bounds(filters, "timestamp")
    share = limits.share_of(len(tasks))
    return [dataclasses.replace(each, times=times, log_dirs=_log_dirs(each), limits=share) for each in tasks]


def _planned_tasks(options: RecordOptions, filters: Sequence[Any]) -> list[RecordTask]:
    query = options.query
    source = open_record_source(
        existing_paths(options.paths, options.s3), query, Run(stores=options.s3), remote=options.store_access()
    )
    _warn([*source.findings, *(finding for each in source.logs for finding in each.findings)])
    logs = [each for each in source.logs if passes({"topic": each.topic, "partition": each.partition}, {}, filters)]
    total = sum(each.size_bytes for each in logs)
    part_bytes = source_part_bytes(total, options.tasks)
    units: list[tuple[int, RecordTask]] = []
    for each in logs:
        if each.size_bytes <= part_bytes or not options.splits_segments or query.skips_faults:
            units.append((each.size_bytes, RecordTask(logs=(replace(each, source=None),))))
            continue
        plan = plan_partition(each, query)
        _warn(_new_findings(plan))
        for part in parts_of(plan, part_bytes):
            ranges = {"offset": (part.start, max(part.end - 1, part.start))}
            if part.damage is not None or passes({}, ranges, filters):
                units.append((_bytes_of(part), RecordTask(plans=(part,))))
    faults = tuple((text_of(each.path), each.message) for each in source.findings if each.leaves_gap)
    return [*([RecordTask(faults=faults)] if faults else []), *_packed(units, options.tasks)]


def directories_of(logs: Iterable[ChosenLog]) -> list[str]:
    """The directories on this machine above those of the segments."""
    return directories_above((piece.store, os.path.dirname(piece.path)) for log in logs for piece in log.pieces)


def _log_dirs(task: RecordTask) -> dict[str, DirectoryIdentity]:
    return identities_of(directories_of([*task.logs, *(plan.log for plan in task.plans)]))


def _bytes_of(part: RecordPlan) -> int:
    """The bytes that a part reads, about: a part of a segment has the share of its offsets."""
    size = 0
    for piece in part.pieces:
        offsets = max(min(part.end, piece.high) - max(part.start, piece.low), 1)
        size += piece.size_bytes * offsets // max(piece.high - piece.low, 1)
    return size


def _packed(units: Sequence[tuple[int, RecordTask]], tasks: int | None) -> list[RecordTask]:
    """Tasks of nearly equal size."""
    sizes = [size + PARTITION_COST_BYTES for size, _ in units]
    return [
        RecordTask(
            logs=tuple(log for unit in each for log in unit.logs),
            plans=tuple(plan for unit in each for plan in unit.plans),
        )
        for each in packed_for_source([unit for _, unit in units], sizes, tasks)
    ]


def rows_of_task(task: RecordTask, options: RecordOptions) -> Iterator[pa.RecordBatch]:
    """The records of a task.

    Raises:
        StorageError: this machine does not have the directories of the driver, whatever the mode.
        FormatError: a batch is damaged, with the mode FAILFAST.
        UsageError, RefusedError, ReadFailedError: as ``plan_partition`` and ``PartitionReader.batches``.
    """
    batches = _batches_of_task(task, options)
    limits = RunLimits(task.limits.share_of(attempts_of_task()))
    while True:
        with limits.active():
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _batches_of_task(task: RecordTask, options: RecordOptions) -> Iterator[pa.RecordBatch]:
    check_directories(task.log_dirs)
    query = replace(options.query, times=task.times)
    for path, message in task.faults:
        if query.mode is DamageMode.PERMISSIVE:
            yield _fault_row({"source": path, "error": f"{path}: {message}"}, query)
    for plan in task.plans:
        yield from _rows_of_plan(plan, query)
    for each in task.logs:
        try:
            plan = plan_partition(each, query)
            _warn(_new_findings(plan))
            yield from _rows_of_findings(plan.log, _new_findings(plan), query)
            yield from _rows_of_plan(plan, query)
        except (FormatError, SnaprebuildError) as error:
            if not query.skips_faults or isinstance(error, UsageError):
                raise
            log.warning("%s: %s", each.topic_partition, with_option_names(str(error)))
            if query.mode is DamageMode.PERMISSIVE:
                place = {"topic": each.topic, "partition": each.partition, "source": each.place}
                yield _fault_row({**place, "error": str(error)}, query)


def _rows_of_plan(plan: RecordPlan, query: RecordQuery) -> Iterator[pa.RecordBatch]:
    reader = PartitionReader(plan, query)
    yield from reader.batches()
    _warn(reader.findings)
    # Each damaged batch has had a row.
    yield from _rows_of_findings(plan.log, [each for each in reader.findings if each.severity is not Severity.DAMAGED], query)


def _new_findings(plan: RecordPlan) -> list[Finding]:
    """The findings of a plan that were not known before it: the others were in the log of the driver."""
    return [each for each in plan.findings if each not in plan.log.findings]


def _rows_of_findings(log_read: ChosenLog, findings: Sequence[Finding], query: RecordQuery) -> Iterator[pa.RecordBatch]:
    """A row for each finding that is more than a note, with the mode PERMISSIVE; with others the log has them alone."""
    if query.mode is not DamageMode.PERMISSIVE:
        return
    for finding in findings:
        if finding.severity > Severity.NOTE:
            place = {"topic": log_read.topic, "partition": log_read.partition, "source": log_read.place}
            yield _fault_row({**place, "error": f"{finding.code}: {finding.message}"}, query)


def _fault_row(values: dict[str, Any], query: RecordQuery) -> pa.RecordBatch:
    """The row about something that cannot be read, or not to its end."""
    return one_row({**values, "error": with_option_names(values["error"])}, record_schema(query.columns))


def _warn(findings: Sequence[Finding]) -> None:
    """Writes findings to the log of the process: next to the driver while Spark plans, and of an executor in a task."""
    for finding in findings:
        log.warning("%s: %s: %s", finding.code, finding.path, with_option_names(finding.message))
