"""What would be rebuilt: boundaries, where replay begins and why, what it costs, and what stays out and why.

``plan`` prints this value (``planned``), ``rebuild`` carries it out. Saved and loaded again it is refused when any input is no longer what
it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from formats.errors import FormatError
from formats.log.batch_headers import HeaderReader
from formats.partition.file_names import snapshot_file_name
from snaprebuild.cluster.source.plan_gate import judged_plans
from snaprebuild.cluster.source.verifier import is_judged
from snaprebuild.errors import ChangedFileError, DeadlinePassedError, GoneFileError, ReadFailedError, RefusedError, UsageError
from snaprebuild.findings import GONE, Finding, Severity, finding_of_error, in_flux
from snaprebuild.replay.block_effect import effect_of_block
from snaprebuild.replay.broker_start import LoadedLog, broker_start
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS
from snaprebuild.snapshots.engine.log_facts import check_deadline, largest_timestamp_hint, log_end_offset, replay_window
from snaprebuild.snapshots.engine.partition_replay import Clock, PartitionReplay, ReplayFrom, read_snapshot_file
from snaprebuild.snapshots.plan.placement_rules import IRREGULAR_NAME, check_running_brokers, not_planned_findings, why_not_due
from snaprebuild.snapshots.plan.plan_model import (
    DEFAULT_RETENTION_MS,
    BoundaryPlan,
    PartitionPlan,
    Plan,
    Request,
    empty_plan,
    remote_log_start,
)
from snaprebuild.snapshots.source.boundary_needs import boundary_needs, check_selected_boundaries
from snaprebuild.snapshots.source.broker_properties import read_server_properties
from snaprebuild.snapshots.source.output_directory import check_output, staged_directories, target_directories, without_output
from snaprebuild.snapshots.source.source import (
    PartitionSource,
    Source,
    check_segments_are_files,
    listed_now,
    live_broker_notes,
    open_source,
    with_new_listings,
    without_files,
    yield_to_brokers,
)
from snaprebuild.storage.parallel_map import Each, here, here_for
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.stores import store_of

__all__ = ["check_next_start", "make_plan", "plan_anew", "stop_index"]

RATE_SAMPLE_BYTES = 32 << 20


def make_plan(
    request: Request,
    *,
    measure_rate: bool = False,
    each: Each | None = None,
    most_first: Callable[[PartitionSource], int] | None = None,
    deadline: float | None = None,
    judged_by: float | None = None,
    judges_all: bool = False,
) -> Plan:
    """Looks at the disk and plans. Reads names, small files, snapshots, and the end of each last segment.

    Args:
        request: what is asked for.
        measure_rate: read a sample to tell how long it would take.
        each: plans the partitions; None for this process.
        most_first: the partitions are planned, and stand in the plan, from the greatest of these values on; None for the order of their
            paths.
        deadline: once ``time.monotonic()`` is past it the partitions that are left are listed and not planned, and a finding says so; None
            for none.
        judged_by: likewise, for the verdicts on them; None for ``deadline``.
        judges_all: ask for a verdict on replicas, too, for which nothing would be written: the caller adds boundaries of its own.

    Raises:
        UsageError: nothing to read from, or ``out`` is no directory.
        RefusedError: the output directory lies in a log directory.
    """
    source = open_source(request.paths, request.server_properties, request.selection, request.s3)
    yield_to_brokers(source)
    for place in request.stage if request.out is None else (request.out,):
        source = replace(source, partitions=without_output(source.partitions, place))
    expiration = request.expiration_ms or source.expiration_ms or DEFAULT_EXPIRATION_MS
    clock = Clock(request.as_of_ms, expiration)
    targets = staged_directories(request.stage, source) if request.stage else target_directories(request.out, source.partitions)
    if request.out is not None:
        check_output(request.out, targets.values(), source.partitions, store_of(request.out, request.s3))
    if most_first is not None:
        source = replace(source, partitions=tuple(sorted(source.partitions, key=most_first, reverse=True)))
    retention_ms, retention_source = _retention(request.server_properties)
    notes = check_running_brokers(source) if request.broker_running else live_broker_notes(source)
    findings = [*source.findings, *notes]
    wanted = [_Wanted(each, targets[each.directory.path], request, clock, retention_ms, deadline) for each in source.partitions]
    plans = []
    each = each or here_for(partition.directory.store for partition in source.partitions)
    for planned, found in each(_planned, wanted):
        plans.append(planned)
        findings += found
    busy = [plan for plan in plans if (plan.boundaries or (judges_all and plan.fault is None)) and is_judged(plan.source.directory)]
    plans = judged_plans(plans, busy, request, source, each, findings, deadline if judged_by is None else judged_by)
    if all(each.fault is None for each in plans):
        check_selected_boundaries(request.selection, ((each.source, each.log_end_offset) for each in plans))
    plans = _with_needs(plans, request)
    rate = _measured_rate(plans, request.check_crc) if measure_rate else None
    return Plan(request, clock, tuple(plans), tuple(findings), rate, retention_ms, retention_source)


def plan_anew(plan: Plan, old: PartitionPlan, deadline: float | None) -> tuple[PartitionPlan, list[Finding]]:
    """The plan of a partition whose broker deleted a segment after it was planned. It is listed again, and judged again.

    Args:
        plan: of all.
        old: one of its partitions.
        deadline: as for ``make_plan``.

    Returns:
        The plan, and what was found on the way.
    """
    request, path = plan.request, old.source.directory.path
    try:
        now = listed_now(old.source)
    except (ReadFailedError, GoneFileError) as error:
        return empty_plan(without_files(old.source), old.target, str(error)), [finding_of_error(error, path)]
    planned, findings = _planned(_Wanted(now, old.target, request, plan.clock, plan.retention_ms, deadline))
    properties = None if request.server_properties is None else read_server_properties(request.server_properties)
    due = [planned] if planned.boundaries and is_judged(planned.source.directory) else []
    judged = judged_plans([planned], due, request, Source((planned.source,), (), None, properties), here, findings, deadline)
    return _with_needs(judged, request)[0], findings


def _with_needs(plans: Sequence[PartitionPlan], request: Request) -> list[PartitionPlan]:
    takes = request.selection.takes_boundary
    return [replace(each, needs=boundary_needs(each.source, each.log_end_offset, takes)) for each in plans]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A partition to be planned, as a value that can be sent to another process."""

    partition: PartitionSource
    target: str
    request: Request
    clock: Clock
    retention_ms: int
    deadline: float | None


def _planned(wanted: _Wanted) -> tuple[PartitionPlan, list[Finding]]:
    findings: list[Finding] = []

    def planned_as(partition: PartitionSource) -> PartitionPlan:
        findings.clear()
        return _plan_partition(replace(wanted, partition=partition), findings)

    try:
        planned = with_new_listings(planned_as, wanted.partition)
    except DeadlinePassedError as error:
        message = f"{error.message} before this partition was looked into: what it lacks is not rebuilt"
        path = wanted.partition.directory.path
        return empty_plan(wanted.partition, wanted.target, message), [Finding("deadline-passed", Severity.FINDING, path, message)]
    except (ReadFailedError, RefusedError, FormatError) as error:  # of this partition alone
        found = finding_of_error(error, wanted.partition.directory.path)
        findings.append(found)
        partition = without_files(wanted.partition) if found.code == GONE else wanted.partition
        planned = empty_plan(partition, wanted.target, str(error))
    return planned, findings + not_planned_findings(planned)


def _retention(server_properties: str | None) -> tuple[int, str]:
    if server_properties is None:
        return DEFAULT_RETENTION_MS, "Kafka's default of 168 hours"
    properties = read_server_properties(server_properties)
    for key, unit_ms in (("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)):
        value = properties.get(key)
        if value is not None:
            try:
                return int(value) * unit_ms, f"{key} of the broker"
            except ValueError as error:
                raise UsageError(f"{key}: {error}", path=server_properties) from error
    return DEFAULT_RETENTION_MS, "Kafka's default of 168 hours"


# ------------------------------------------------------------------------------------------------------------------ one partition


def _plan_partition(asked: _Wanted, findings: list[Finding]) -> PartitionPlan:
    partition, target, request, clock, deadline = asked.partition, asked.target, asked.request, asked.clock, asked.deadline
    directory = partition.directory
    check_deadline(deadline, directory.path)
    check_segments_are_files(directory)
    if not directory.segments:
        findings.append(Finding("no-segment", Severity.NOTE, directory.path, "has no segment: nothing to rebuild"))
        return empty_plan(partition, target, None)
    log_end = log_end_offset(directory, deadline)
    boundaries, not_planned = _wanted(asked, log_end, findings)
    if not boundaries:
        return replace(empty_plan(partition, target, None, log_end), not_planned=tuple(not_planned))
    bases = [segment.base_offset for segment in directory.segments]
    mode = ReplayFrom(request.replay_from)
    window = replay_window(partition, mode, clock, deadline)
    stop = _stop_index(directory, request, boundaries, window)
    replay = PartitionReplay(directory, mode, clock, window, stop, boundaries[0][0], log_end or 0)
    start_index, start_reason = replay.start()
    size_from = [segment.size_bytes for segment in directory.segments[:stop]]
    has_first = mode is ReplayFrom.AUTO and directory.snapshot_at(bases[0]) is not None
    best = _best_class(start_index, bases[0], is_remote_below=remote_log_start(partition, request) is not None, has_first=has_first)
    wanted = tuple(BoundaryPlan(offset, is_end, exists, best) for offset, is_end, exists in boundaries)
    if request.in_place and log_end is not None:
        check_next_start(partition, log_end, [boundary.offset for boundary in wanted], findings)
    return PartitionPlan(
        source=partition,
        target=target,
        boundaries=wanted,
        not_planned=tuple(not_planned),
        log_end_offset=log_end,
        window_index=window,
        replay_index=start_index,
        replay_reason=start_reason,
        stop_index=stop,
        bytes_least=sum(size_from[start_index:]),
        bytes_most=sum(size_from) if mode is ReplayFrom.AUTO else sum(size_from[start_index:]),
        retention_frees_ms=_retention_frees(partition, boundaries, asked.retention_ms),
    )


def check_next_start(partition: PartitionSource, log_end: int, offsets: list[int], findings: list[Finding]) -> None:
    """Tells of snapshots that the broker would remove again when it starts: it does so above a segment whose offset index is missing.

    Args:
        partition: the partition.
        log_end: its log end offset.
        offsets: of the snapshots.
        findings: gets what is found.
    """
    directory = partition.directory
    start = broker_start(
        LoadedLog(
            base_offsets=tuple(segment.base_offset for segment in directory.segments),
            checkpointed_log_start=partition.checkpointed_log_start,
            log_end=log_end,
            snapshots=dict.fromkeys({*offsets, *(offset for offset, _ in directory.snapshots)}, True),
            is_clean=partition.log_dir.was_shut_down_cleanly,
            recovery_point=partition.recovery_point,
            without_index=frozenset(segment.base_offset for segment in directory.segments if segment.offset_index is None),
            is_tiered=partition.is_tiered,
        )
    )
    removed = sorted(set(offsets) - {offset for offset, _ in start.after})
    if removed:
        message = (
            f"the broker would remove {len(removed)} of these snapshots at its next start, from {removed[0]} on, because an offset "
            "index is missing below: start and stop it once, so that it makes the index, then run again"
        )
        findings.append(Finding("snapshot-removed-at-start", Severity.FINDING, directory.path, message, removed[0]))


def _best_class(start_index: int, first_base: int, *, is_remote_below: bool, has_first: bool) -> str:
    if start_index:
        return SnapshotClass.LOAD_EQUIVALENT.value
    if is_remote_below:
        return SnapshotClass.EXACT.value if has_first else SnapshotClass.UNPROVEN.value
    best = SnapshotClass.EXACT_FROM_LOG_START if first_base else SnapshotClass.EXACT
    return best.value


def _stop_index(directory: PartitionDir, request: Request, boundaries: list[tuple[int, bool, bool]], window: int) -> int:
    """The first segment that is not needed: behind what is wanted and behind what proves it.

    ``auto`` reads on to the end of the log, unless a range of boundaries was asked for or a window may spare it: a wrong snapshot at the
    log end is what the next broker starts from, and whoever rebuilds a partition wants to know.
    """
    bases = [segment.base_offset for segment in directory.segments]
    offset, is_log_end, _ = boundaries[-1]
    mode = ReplayFrom(request.replay_from)
    if request.stage or request.broker_running:
        return stop_index(directory, mode, offset)
    spares = window > 0 and boundaries[0][0] > bases[min(window, len(bases) - 1)]
    if is_log_end or (mode is ReplayFrom.AUTO and request.offset_to is None and not spares):
        return len(bases)
    return stop_index(directory, mode, offset)


def stop_index(directory: PartitionDir, mode: ReplayFrom, offset: int) -> int:
    """The first segment that is not needed for the boundary at ``offset`` and what may prove it; ``offset`` is not the log end."""
    bases = [segment.base_offset for segment in directory.segments]
    stop = next((index for index, base in enumerate(bases) if index and base >= offset), len(bases))
    if bases[0] == 0 and mode is ReplayFrom.LOG_START:
        return stop
    # The first surviving snapshot behind what is wanted: it may confirm the one at the first offset, or the window.
    behind = next((at for at, _ in directory.snapshots if stop < len(bases) and at >= bases[stop]), None)
    return stop if behind is None else next((index for index, base in enumerate(bases) if base >= behind), len(bases))


def _wanted(
    asked: _Wanted, log_end: int | None, findings: list[Finding]
) -> tuple[list[tuple[int, bool, bool]], list[tuple[int, str]]]:
    """(offset, is log end, exists) of the wanted boundaries, and what is not due."""
    partition, request = asked.partition, asked.request
    directory = partition.directory
    offsets = {segment.base_offset: False for segment in directory.segments[1:]}
    if log_end is not None and log_end > 0:
        offsets[log_end] = True
    existing = {offset for offset, _ in directory.snapshots}
    wanted, not_planned = [], []
    for offset, is_end in sorted(offsets.items()):
        if not request.selection.takes_boundary(offset):
            continue
        exists = offset in existing
        if exists and request.out is None and not request.set_aside:
            check_deadline(asked.deadline, directory.path)
            _check_existing(partition, offset, findings)
        if request.boundaries == "missing" and exists and not request.set_aside:
            continue
        reason = None if exists else why_not_due(request, partition, offset, is_log_end=is_end)
        if request.out is None and snapshot_file_name(offset) in directory.unreadable:
            reason = IRREGULAR_NAME
        if reason is None:
            wanted.append((offset, is_end, exists))
        else:
            not_planned.append((offset, reason))
    active = directory.segments[-1].base_offset
    if request.stage and wanted and wanted[-1][0] < active:
        # What closes until it is installed is replayed from here, whether or not the broker has written this one.
        wanted.append((active, False, active in existing))
    return wanted, not_planned


def _check_existing(partition: PartitionSource, offset: int, findings: list[Finding]) -> None:
    directory = partition.directory
    try:
        read_snapshot_file(directory, offset, is_broker_running=partition.is_broker_running)
    except ChangedFileError as error:
        findings.append(in_flux(error, directory.path, offset))
    except ReadFailedError as error:
        findings.append(replace(finding_of_error(error, directory.path), offset=offset))
    except FormatError as error:
        remedy = "it is replaced with --set-aside only" if directory.store.is_local else "objects are never replaced"
        message = f"{error}; {remedy}"
        findings.append(Finding("corrupt-snapshot", Severity.FINDING, directory.path, message, offset))


def _retention_frees(partition: PartitionSource, boundaries: list[tuple[int, bool, bool]], retention_ms: int) -> int | None:
    """When the newest closed segment without a snapshot is old enough to be deleted."""
    missing = {offset for offset, is_end, exists in boundaries if not exists and not is_end}
    following = partition.directory.segments[1:]
    blocking = [index for index, segment in enumerate(following) if segment.base_offset in missing]
    if not blocking or retention_ms < 0:
        return None
    newest = largest_timestamp_hint(partition, blocking[-1])
    return None if newest is None else newest + retention_ms


def _measured_rate(plans: list[PartitionPlan], check_crc: bool) -> float | None:
    """Bytes a second, measured on the beginning of the largest segment that would be read."""
    candidates = [
        (segment, plan.source.directory)
        for plan in plans
        for segment in plan.source.directory.segments[plan.replay_index : plan.stop_index]
        if segment.size_bytes
    ]
    if not candidates:
        return None
    segment, directory = max(candidates, key=lambda each: (each[0].size_bytes, each[1].file_path(each[0].log.name)))
    started, read = time.perf_counter(), 0
    try:
        with directory.open_segment(segment) as source:
            reader = HeaderReader(source, check_crc=check_crc)
            for block in reader:
                effect_of_block(block)
                read = reader.bytes_read
                if read >= RATE_SAMPLE_BYTES:
                    break
    except (ReadFailedError, ChangedFileError, FormatError):
        return None
    return read / max(time.perf_counter() - started, 1e-6) if read else None
