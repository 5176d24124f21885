"""Makes the plan of a rebuild: boundaries, where replay begins and why, its cost, and the boundaries that are left out and why.

``plan`` prints this value, ``rebuild`` carries it out. A saved plan is refused after any of its inputs has changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from formats.broker.broker_files import Properties
from formats.errors import FormatError
from formats.limits import INT32_MAX, INT64_MAX
from formats.log.batch_headers import HeaderReader
from formats.partition.file_names import snapshot_file_name
from snaprebuild.broker.fates import Fate
from snaprebuild.broker.status import JudgedStart
from snaprebuild.errors import (
    ChangedFileError,
    DeadlinePassedError,
    GoneFileError,
    GonePartitionError,
    ReadFailedError,
    RefusedError,
)
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error
from snaprebuild.replay.block_effect import effect_of_block
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS, Clock
from snaprebuild.snapshots.destination.destinations import Destination
from snaprebuild.snapshots.destination.output_directory import without_output
from snaprebuild.snapshots.destination.placement_rules import (
    IRREGULAR_NAME,
    not_planned_findings,
)
from snaprebuild.snapshots.engine.log_facts import check_deadline, largest_timestamp_hint, log_end_offset
from snaprebuild.snapshots.engine.partition_replay import ReplayFrom, replay_window, source_replay
from snaprebuild.snapshots.plan.existing_snapshots import existing_findings
from snaprebuild.snapshots.plan.plan_model import (
    CLASS_NOT_ESTIMATED,
    DEFAULT_RETENTION_MS,
    BoundaryPlan,
    PartitionPlan,
    Plan,
    SourceGate,
)
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.start_gate import StartJudge, start_findings, without_removed
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.boundary_needs import LeftOut, LeftOutReason, boundary_needs, check_selected_boundaries
from snaprebuild.snapshots.source.broker_properties import has_remote_storage, number_of
from snaprebuild.snapshots.source.second_look import listed_now, with_new_listings, without_files
from snaprebuild.snapshots.source.source import (
    PartitionSource,
    Source,
    check_segments_are_files,
    open_source,
    yield_to_brokers,
)
from snaprebuild.snapshots.source.topic_ids import BrokerReadiness, readiness_findings, with_readiness
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.thread_pool import ParallelMap, local_map, serial_map

__all__ = [
    "due_and_left_out",
    "make_plan",
    "plan_partition",
    "replan_partition",
    "stop_index",
]

MADE_BY_INSTALL = LeftOutReason(LeftOut.MADE_BY_INSTALL, "the broker stopped cleanly without this one: `install` writes it")


def make_plan(
    request: RebuildRequest,
    gate: SourceGate,
    run: Run | None = None,
    *,
    measure_rate: bool = False,
    parallel_map: ParallelMap | None = None,
    most_first: Callable[[PartitionSource], int] | None = None,
    judged_by: float | None = None,
    judges_all: bool = False,
    not_ready: Severity = Severity.REFUSED,
    judge_start: StartJudge | None = None,
    known_fates: Sequence[Fate] | None = None,
    source: Source | None = None,
) -> Plan:
    """Looks at the disk and plans. Reads names, small files, snapshots, and the end of each last segment.

    Args:
        request: what is asked for.
        gate: judges whether the replicas may be written to.
        run: once its deadline is past, further partitions are listed and not planned, with a finding. None for a run as nothing else is
            asked for. The clock is that of the request.
        measure_rate: read a sample, to estimate how long the rebuild takes.
        parallel_map: plans the partitions; None for this process.
        most_first: the order of the plan: the partition with the greatest of these values first; None for the order of the paths.
        judged_by: the deadline of the verdicts on replicas; None for that of the run.
        judges_all: also ask for a verdict on replicas for which nothing would be written: the caller adds boundaries of its own.
        not_ready: severity where snapshots are left out because topics have no id, and remote storage is on.
        judge_start: judges what the next start does to each partition, for what a broker is to use; None if the plan does not report it.
        known_fates: of the next start, where the caller has judged and reported it; None else.
        source: of the request, where the caller has opened it; None to open it here.

    Raises:
        UsageError: nothing to read from, or ``out`` is no directory.
        RefusedError: the output directory is in a log directory.
    """
    run = replace(run or Run(), stores=request.s3)
    if source is None:
        source = open_source(request.paths, request.server_properties, request.selection, run)
    yield_to_brokers(source, run.limits)
    source, brokers = with_readiness(source)
    destination = request.destination
    for place in destination.directories:
        source = replace(source, partitions=without_output(source.partitions, place))
    expiration = request.expiration_ms or source.expiration_ms or DEFAULT_EXPIRATION_MS
    clock = Clock(request.as_of_ms, expiration)
    targets = destination.targets(source, request.s3)
    if most_first is not None:
        source = replace(source, partitions=tuple(sorted(source.partitions, key=most_first, reverse=True)))
    retention_ms, retention_source = _retention(source.properties)
    is_remote_off = source.properties is not None and not has_remote_storage(source.properties)
    findings = [*source.findings, *destination.broker_notes(source)]
    dates_from = retention_ms if is_remote_off else None
    tasks = [_PlanningTask(one, targets[one.directory.path], request, clock, dates_from, run.deadline) for one in source.partitions]
    plans = []
    parallel_map = parallel_map or local_map(partition.directory.store for partition in source.partitions)
    for planned, gate_findings in parallel_map(_run_planning_task, tasks):
        plans.append(planned)
        findings += gate_findings
    busy = [plan for plan in plans if plan.boundaries or (judges_all and plan.fault is None)]
    start = _start_of(source, request, judge_start)
    fates = known_fates if start is None else start.fates
    judging = run if judged_by is None else replace(run, deadline=judged_by)
    judged, gate_findings = gate(busy, request, source, findings, parallel_map, judging, fates=fates)
    plans = [judged.get(plan.path, plan) for plan in plans]
    findings += gate_findings
    if start is not None:
        start = without_removed(start, plans)
        findings += start_findings(start, plans, findings)
    if all(plan.fault is None for plan in plans):
        check_selected_boundaries(request.selection, ((plan.source, plan.log_end_offset) for plan in plans))
    readiness = tuple(_readiness_findings(brokers, plans, request, not_ready))
    findings += readiness
    plans = _with_needs(plans, request)
    rate = _measured_rate(plans, request.check_crc) if measure_rate else None
    return Plan(
        request=request,
        clock=clock,
        gate=gate,
        partitions=tuple(plans),
        findings=tuple(findings),
        rate_bytes_per_second=rate,
        retention_ms=retention_ms,
        retention_source=retention_source,
        readiness=readiness,
        is_remote_storage_off=is_remote_off,
        fates=tuple(fates or ()),
    )


def _start_of(source: Source, request: RebuildRequest, judge_start: StartJudge | None) -> JudgedStart | None:
    """The effect of the next start; None where no broker starts, or without ``judge_start``."""
    is_local = source.is_local
    if judge_start is None or not is_local or not request.destination.is_for_broker:
        return None
    return judge_start(source, request.kafka_release)


def replan_partition(plan: Plan, old: PartitionPlan, run: Run, *, holds_locks: bool) -> tuple[PartitionPlan, list[Finding]]:
    """The plan of a partition whose broker deleted a segment after it was planned. It is listed again, and judged again.

    Args:
        plan: of all.
        old: one of its partitions.
        run: as for ``make_plan``.
        holds_locks: this process holds the locks of the log directories: they show no broker.

    Returns:
        The plan, and what was found on the way.
    """
    request = plan.request
    path = old.path
    try:
        now = listed_now(old.source)
    except (ReadFailedError, GoneFileError) as error:
        return PartitionPlan(source=without_files(old.source), target=old.target, fault=str(error)), [finding_of_error(error, path)]
    dates_from = plan.retention_ms if plan.is_remote_storage_off else None
    planned, findings = _run_planning_task(_PlanningTask(now, old.target, request, plan.clock, dates_from, run.deadline))
    properties = run.facts.properties_if_given(request.server_properties)
    due = [planned] if planned.boundaries else []
    source = Source((planned.source,), (), None, properties, facts=run.facts)
    judged, gate_findings = plan.gate(due, request, source, findings, serial_map, run, holds_locks=holds_locks)
    replanned = judged.get(path, planned)
    return _with_needs([replanned], request)[0], [*findings, *gate_findings]


def plan_partition(
    partition: PartitionSource, target: str, request: RebuildRequest, clock: Clock, deadline: float | None
) -> tuple[PartitionPlan, list[Finding]]:
    """The plan of one partition that is listed, without a verdict on its replica, and findings.

    Args:
        partition: with a listing of now.
        target: directory for its snapshots.
        request: what is asked for.
        clock: expiry.
        deadline: as for ``make_plan``.
    """
    return _run_planning_task(_PlanningTask(partition, target, request, clock, DEFAULT_RETENTION_MS, deadline))


def _readiness_findings(
    brokers: Sequence[BrokerReadiness], plans: Sequence[PartitionPlan], request: RebuildRequest, not_ready: Severity
) -> list[Finding]:
    """Findings about brokers that would upload under topic id zero; what is written elsewhere, or was accepted, is a note.

    Where something is written, a note also shows what has to be done before remote storage is switched on.
    """
    severity = not_ready
    is_for_broker = request.destination.is_for_broker
    if not is_for_broker or request.accept_topic_id_zero:
        severity = Severity.NOTE
    elif not any(reason.kind is LeftOut.TOPIC_ID_ZERO for plan in plans for _, reason in plan.not_planned):
        severity = min(not_ready, Severity.FINDING)
    return readiness_findings(brokers, severity, with_notes=is_for_broker and any(plan.boundaries for plan in plans))


def _with_needs(plans: Sequence[PartitionPlan], request: RebuildRequest) -> list[PartitionPlan]:
    takes = request.selection.takes_boundary
    return [replace(each, needs=boundary_needs(each.source, each.log_end_offset, takes)) for each in plans]


class _PlanningTask(msgspec.Struct, frozen=True):
    """A partition that is planned, as a value that can be sent to another process."""

    partition: PartitionSource
    target: str
    request: RebuildRequest
    clock: Clock
    retention_ms: int | None
    """None where no date can be given: remote storage is on, or that is unknown."""
    deadline: float | None


def _run_planning_task(task: _PlanningTask) -> tuple[PartitionPlan, list[Finding]]:
    path = task.partition.directory.path
    findings: list[Finding] = []  # also those from before an error

    def planned_now(partition: PartitionSource) -> PartitionPlan:
        findings.clear()
        return _plan_partition(replace(task, partition=partition), findings)

    try:
        planned = with_new_listings(planned_now, task.partition)
    except DeadlinePassedError as error:
        message = f"{error.message} before this partition was planned: its missing snapshots are not rebuilt"
        cause = FindingCause.DEADLINE_PASSED
        finding = Finding("deadline-passed", Severity.FINDING, path, message, cause=cause)
        return PartitionPlan(source=task.partition, target=task.target, fault=message), [*findings, finding]
    except (ReadFailedError, RefusedError, FormatError) as error:  # of this partition alone
        error_finding = finding_of_error(error, path)
        if isinstance(error, GonePartitionError):
            return PartitionPlan(source=without_files(task.partition), target=task.target, fault=str(error)), [error_finding]
        return PartitionPlan(source=task.partition, target=task.target, fault=str(error)), [*findings, error_finding]
    return planned, findings + not_planned_findings(planned)


def _retention(properties: Properties | None) -> tuple[int, str]:
    """The retention in ms, -1 for no limit, and its source, as ``KafkaConfig.logRetentionTimeMillis``."""
    for key, unit_ms, greatest in (
        ("log.retention.ms", 1, INT64_MAX),
        ("log.retention.minutes", 60_000, INT32_MAX),
        ("log.retention.hours", 3_600_000, INT32_MAX),
    ):
        number = number_of(properties, key, greatest, may_be_unlimited=True)
        if number is not None:
            return max(number * unit_ms, -1), f"{key} of the broker"
    return DEFAULT_RETENTION_MS, "Kafka's default of 168 hours"


# ------------------------------------------------------------------------------------------------------------------ one partition


def _plan_partition(task: _PlanningTask, findings: list[Finding]) -> PartitionPlan:
    """Plans a partition; adds to the findings, which stay when the planning ends with an error."""
    partition = task.partition
    target = task.target
    request = task.request
    directory = partition.directory
    check_deadline(task.deadline, directory.path)
    check_segments_are_files(directory)
    if not directory.segments:
        findings.append(Finding("no-segment", Severity.NOTE, directory.path, "has no segment: nothing to rebuild"))
        return PartitionPlan(source=partition, target=target)
    log_end = log_end_offset(directory, task.deadline)
    due, not_planned = _due_boundaries(task, log_end, findings)
    if not due:
        return PartitionPlan(source=partition, target=target, log_end_offset=log_end, not_planned=tuple(not_planned))
    mode = ReplayFrom(request.replay_from)
    window = replay_window(partition, mode, task.clock, task.deadline)
    stop = _stop_index(directory, request, due, window)
    replay = source_replay(
        partition,
        task.clock,
        mode=mode,
        window_index=window,
        stop_index=stop,
        first_wanted=due[0].offset,
        known_end=log_end or 0,
        begins_empty=request.begins_empty,
    )
    start_index, start_reason = replay.start()
    sizes = [segment.size_bytes for segment in directory.segments[: replay.evidence_stop]]
    best = SnapshotClass.LOAD_EQUIVALENT if start_index else replay.best_class()
    boundaries = tuple(replace(boundary, expected_class=best) for boundary in due)
    return PartitionPlan(
        source=partition,
        target=target,
        boundaries=boundaries,
        not_planned=tuple(not_planned),
        log_end_offset=log_end,
        window_index=window,
        replay_index=start_index,
        replay_reason=start_reason,
        stop_index=stop,
        min_read_bytes=sum(sizes[start_index : None if start_index == 0 else stop]),
        max_read_bytes=sum(sizes if mode is ReplayFrom.AUTO else sizes[start_index:stop]),
        retention_frees_ms=_retention_frees(partition, due, task.retention_ms),
    )


def _stop_index(directory: PartitionDir, request: RebuildRequest, due: list[BoundaryPlan], window: int) -> int:
    """The first segment that is not needed: above what is wanted and what proves it.

    ``auto`` reads to the end of the log, unless a range of boundaries was asked for or a window may make that unnecessary. The next
    broker starts from the snapshot at the log end: a wrong one there must be found.
    """
    segments = directory.segments
    last = due[-1]
    mode = ReplayFrom(request.replay_from)
    if request.destination.while_broker_runs:
        return stop_index(directory, mode, last.offset)
    spares = window > 0 and due[0].offset > segments[min(window, len(segments) - 1)].base_offset
    if last.is_log_end or (mode is ReplayFrom.AUTO and request.offset_to is None and not spares):
        return len(segments)
    return stop_index(directory, mode, last.offset)


def stop_index(directory: PartitionDir, mode: ReplayFrom, offset: int) -> int:
    """The first segment that is not needed for the boundary at ``offset`` and what may prove it; ``offset`` is not the log end."""
    bases = directory.base_offsets
    stop = next((index for index, base in enumerate(bases) if index and base >= offset), len(bases))
    if bases[0] == 0 and mode is ReplayFrom.LOG_START:
        return stop
    # The first surviving snapshot above what is wanted: it may confirm the one at the first offset, or the window.
    above = next((at for at, _ in directory.snapshots if stop < len(bases) and at >= bases[stop]), None)
    if above is None:
        return stop
    return next((index for index, base in enumerate(bases) if base >= above), len(bases))


def due_and_left_out(
    partition: PartitionSource, log_end: int | None, request: RebuildRequest, destination: Destination
) -> tuple[list[BoundaryPlan], list[tuple[int, LeftOutReason]]]:
    """The selected boundaries that have no snapshot: those where one is due, and the others with the reason. Both ascend.

    Args:
        partition: with a segment.
        log_end: its log end offset; None or 0 if there is no snapshot to be at the log end.
        request: has the selection.
        destination: where the snapshots go, which may be another one than that of the request.
    """
    directory = partition.directory
    existing = set(directory.snapshot_offsets)
    due: list[BoundaryPlan] = []
    left_out: list[tuple[int, LeftOutReason]] = []
    for offset, is_log_end in _boundaries(directory, log_end):
        if offset in existing or not request.selection.takes_boundary(offset):
            continue
        reason = destination.reason_against(request, partition, offset, is_log_end=is_log_end)
        if destination.is_for_broker and directory.unreadable and snapshot_file_name(offset) in directory.unreadable:
            reason = IRREGULAR_NAME
        if reason is None:
            due.append(BoundaryPlan(offset, is_log_end, exists=False, expected_class=CLASS_NOT_ESTIMATED))
        else:
            left_out.append((offset, reason))
    return due, left_out


def _boundaries(directory: PartitionDir, log_end: int | None) -> list[tuple[int, bool]]:
    """The offset of each boundary, ascending, and whether it is the log end."""
    bases = directory.base_offsets[1:]
    ends = [log_end] if log_end and log_end not in bases else []
    return [(offset, offset == log_end) for offset in sorted([*bases, *ends])]


def _due_boundaries(
    task: _PlanningTask, log_end: int | None, findings: list[Finding]
) -> tuple[list[BoundaryPlan], list[tuple[int, LeftOutReason]]]:
    """The boundaries that are wanted, and those that are not due and why; adds findings about existing snapshots."""
    partition = task.partition
    request = task.request
    directory = task.partition.directory
    due, not_planned = due_and_left_out(partition, log_end, request, request.destination)
    if request.destination.is_for_broker:
        findings += existing_findings(
            partition,
            [offset for offset, _ in _boundaries(directory, log_end)],
            request.selection,
            task.clock.expiration_ms,
            is_replaced=request.set_aside,
            deadline=task.deadline,
        )
    existing = set(directory.snapshot_offsets)
    for offset, is_log_end in _boundaries(directory, log_end):
        if offset not in existing or not request.selection.takes_boundary(offset):
            continue
        if request.set_aside or request.boundaries == "all":
            due.append(BoundaryPlan(offset, is_log_end, exists=True, expected_class=CLASS_NOT_ESTIMATED))
    due.sort(key=lambda boundary: boundary.offset)
    active = directory.segments[-1].base_offset
    if request.destination.installed_later and due:
        not_planned = [(offset, _or_installed(reason)) for offset, reason in not_planned]
    if request.destination.installed_later and due and due[-1].offset < active:
        # What is rolled until it is installed is replayed from here, whether or not the broker has written this one.
        due.append(BoundaryPlan(active, False, active in existing, CLASS_NOT_ESTIMATED))
    return due, not_planned


def _or_installed(reason: LeftOutReason) -> LeftOutReason:
    """The reason in a partition of which something is staged: `install` goes on from there to the log end."""
    return MADE_BY_INSTALL if reason.kind is LeftOut.STOPPED_WITHOUT else reason


def _retention_frees(partition: PartitionSource, due: list[BoundaryPlan], retention_ms: int | None) -> int | None:
    """When the newest rolled segment without a snapshot is old enough to be deleted.

    With remote storage on, a broker keeps what is not uploaded, unless copying is disabled; and where that is unknown there is no date
    (``UnifiedLog.deleteRetentionMsBreachedSegments``, ``isSegmentEligibleForDeletion``).
    """
    if retention_ms is None or partition.is_tiered:
        return None
    missing = {boundary.offset for boundary in due if not boundary.exists and not boundary.is_log_end}
    following = partition.directory.segments[1:]
    blocking = [index for index, segment in enumerate(following) if segment.base_offset in missing]
    if not blocking or retention_ms < 0:
        return None
    newest = largest_timestamp_hint(partition, blocking[-1])
    return None if newest is None else newest + retention_ms


RATE_SAMPLE_BYTES = 32 << 20


def _measured_rate(plans: Sequence[PartitionPlan], check_crc: bool) -> float | None:
    """Bytes a second, measured on the beginning of the largest segment that would be read; None if nothing can be read."""
    candidates = [
        (segment, plan.source.directory)
        for plan in plans
        for segment in plan.source.directory.segments[plan.replay_index : plan.stop_index]
        if segment.size_bytes
    ]
    if not candidates:
        return None
    segment, directory = max(candidates, key=lambda each: (each[0].size_bytes, each[1].file_path(each[0].log.name)))
    started = time.perf_counter()
    read = 0
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
