"""What would be rebuilt: boundaries, where replay begins and why, what it costs, and what stays out and why.

``plan`` prints this value, ``rebuild`` carries it out. Saved and loaded again it is refused when any input is no longer what it was.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace

from formats.batch_headers import HeaderReader
from formats.errors import FormatError
from formats.file_names import snapshot_file_name
from snaprebuild.cluster.source_evidence import Purpose
from snaprebuild.cluster.source_verdict import SourceVerdict
from snaprebuild.errors import DeadlinePassedError, ReadFailedError, RefusedError, UsageError
from snaprebuild.operations.each import Each, here_for
from snaprebuild.operations.findings import Finding, Severity, finding_of_error
from snaprebuild.operations.log_facts import check_deadline, largest_timestamp_hint, log_end_offset, window_index
from snaprebuild.operations.replay_partition import Clock, GivenState, PartitionReplay, ReplayFrom, read_snapshot_file
from snaprebuild.operations.source import (
    PartitionSource,
    Selection,
    Source,
    TopicKind,
    check_segments_are_files,
    live_broker_notes,
    log_dirs_of,
    open_source,
    read_server_properties,
)
from snaprebuild.operations.verdict.cluster_truth import ClusterTruth
from snaprebuild.operations.verdict.judges import Judges, KnownSource, is_judged, named_only, rejection
from snaprebuild.replay.block_effect import effect_of_block
from snaprebuild.replay.broker_start import LoadedLog, broker_start
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.producer_state import DEFAULT_EXPIRATION_MS
from snaprebuild.storage.broker_lock import LOCK_FILE_NAME
from snaprebuild.storage.directory_kind import BROKER_FILES
from snaprebuild.storage.local_store import LOCAL
from snaprebuild.storage.log_dir import store_of
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.store import ABOVE_BUCKETS, USUAL_S3, S3Settings, Store, is_object

__all__ = [
    "BoundaryPlan",
    "PartitionPlan",
    "Plan",
    "Request",
    "check_output",
    "is_missed",
    "make_plan",
    "not_due_in_place",
    "not_trusted",
    "remote_below",
    "stop_index",
]

NO_BROKER_FILES = "no broker's files lie around it, so that nothing tells what a broker would do here: write with --out"
CLEANER_UNKNOWN = "the cleaner's checkpoint cannot be read, so that nothing tells whether the topic is compacted: write with --out"
IRREGULAR_NAME = "its name belongs to a directory, link or pipe: move that away first"
END_BELOW_RECOVERY_POINT = "the log ends below its recovery point: its last segment has lost its end"
NOT_KNOWN_TO_BE_DUE = frozenset((NO_BROKER_FILES, CLEANER_UNKNOWN, END_BELOW_RECOVERY_POINT, IRREGULAR_NAME))
"""Reasons for which something that a broker may need is left out."""

RATE_SAMPLE_BYTES = 32 << 20
DEFAULT_RETENTION_MS = 604_800_000
"""``log.retention.hours`` is 168 by default."""


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for; a saved plan carries it, so that it can be made again and compared.

    Attributes:
        paths: absolute, in the order given.
        server_properties: path, or None.
        topics, partitions, offset_from, offset_to: the selection.
        out: directory to write to, or None for in place.
        boundaries: ``missing`` or ``all``.
        replay_from: auto, window or log-start.
        set_aside: replace proven wrong snapshots.
        check_crc: compute checksums.
        drop_expired: leave expired entries out.
        allow_unproven: write UNPROVEN ones in place.
        as_of_ms, expiration_ms: the clock.
        metadata: location of the cluster's metadata log, which tells whether replicas may be written to; None for each broker's own.
        s3: how object stores are reached.
    """

    paths: tuple[str, ...]
    server_properties: str | None = None
    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    offset_from: int | None = None
    offset_to: int | None = None
    out: str | None = None
    boundaries: str = "missing"
    replay_from: str = ReplayFrom.AUTO.value
    set_aside: bool = False
    check_crc: bool = True
    drop_expired: bool = False
    allow_unproven: bool = False
    as_of_ms: int = 0
    expiration_ms: int | None = None
    metadata: str | None = None
    s3: S3Settings = USUAL_S3

    def as_json(self) -> dict[str, object]:
        """Plain values; ``s3`` is None where no object store is concerned."""
        fields = asdict(self)
        fields["s3"].pop("run")
        if not any(map(is_object, (*self.paths, self.out or "", self.metadata or ""))):
            fields["s3"] = None
        return fields

    @property
    def selection(self) -> Selection:
        """The partitions and boundaries asked for."""
        return Selection(self.topics, frozenset(self.partitions), self.offset_from, self.offset_to)


@dataclass(frozen=True, slots=True)
class BoundaryPlan:
    """A boundary that is wanted.

    Attributes:
        offset: the boundary.
        is_log_end: it is the log end offset.
        exists: a snapshot of this name is there; it is compared, and replaced only when asked and proven wrong.
        expected_class: the best class that the evidence can give; the real one is known after the replay.
    """

    offset: int
    is_log_end: bool
    exists: bool
    expected_class: str


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What is to be done for one partition.

    Attributes:
        source: the partition and what its broker says of it.
        target: directory that the snapshots go to.
        boundaries: wanted ones, ascending.
        left_out: (offset, reason) of boundaries that are not due where they would go.
        log_end_offset: end of the last whole batch; None where it cannot be read.
        window_index: first segment within the expiration.
        replay_index: segment where replay begins, as far as names and hints tell.
        replay_reason: why there.
        stop_index: first segment that is not needed.
        bytes_least: to read; ``bytes_most`` when the evidence asks for everything below.
        retention_frees_ms: moment after which plain retention has deleted every segment that lacks a snapshot; None when unknown.
        fault: why nothing can be done, or None.
        given: the state before the first segment, where it is known from elsewhere; None to begin as the request says.
        verdict: on the replica as a source of snapshots; None where nothing would be written.
    """

    source: PartitionSource
    target: str
    boundaries: tuple[BoundaryPlan, ...]
    left_out: tuple[tuple[int, str], ...]
    log_end_offset: int | None
    window_index: int
    replay_index: int
    replay_reason: str
    stop_index: int
    bytes_least: int
    bytes_most: int
    retention_frees_ms: int | None
    fault: str | None = None
    given: GivenState | None = None
    verdict: SourceVerdict | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan for everything that was asked for.

    Attributes:
        request: what was asked.
        clock: expiry.
        partitions: one plan for each, ordered by path.
        findings: what was skipped, refused or found on the way.
        rate_bytes_per_second: measured on a sample of the segments; None without any.
        retention_ms: the retention that ``retention_frees_ms`` assumes, with ``retention_source``.
    """

    request: Request
    clock: Clock
    partitions: tuple[PartitionPlan, ...]
    findings: tuple[Finding, ...]
    rate_bytes_per_second: float | None = None
    retention_ms: int = DEFAULT_RETENTION_MS
    retention_source: str = "Kafka's default"

    @property
    def bytes_least(self) -> int:
        """Bytes to read."""
        return sum(partition.bytes_least for partition in self.partitions)

    @property
    def bytes_most(self) -> int:
        """Bytes to read when every window has to be extended to its log start."""
        return sum(partition.bytes_most for partition in self.partitions)


def make_plan(
    request: Request,
    *,
    measure_rate: bool = False,
    each: Each | None = None,
    most_first: Callable[[PartitionSource], int] | None = None,
    deadline: float | None = None,
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
        judges_all: ask for a verdict on replicas, too, for which nothing would be written: the caller adds boundaries of its own.

    Raises:
        UsageError: nothing to read from, or ``out`` is no directory.
        RefusedError: the output directory lies in a log directory.
    """
    source = open_source(request.paths, request.server_properties, request.selection, request.s3)
    if request.out is not None:
        # What an earlier run left below the source is its output, no input.
        out = _real(request.out)
        kept = tuple(each for each in source.partitions if each.directory.segments or not _lies_in(_real(each.directory.path), out))
        source = replace(source, partitions=kept)
    expiration = request.expiration_ms or source.expiration_ms or DEFAULT_EXPIRATION_MS
    clock = Clock(request.as_of_ms, expiration)
    targets = _targets(request.out, source.partitions)
    if request.out is not None:
        check_output(request.out, targets.values(), source.partitions, store_of(request.out, request.s3))
    if most_first is not None:
        source = replace(source, partitions=tuple(sorted(source.partitions, key=most_first, reverse=True)))
    retention_ms, retention_source = _retention(request.server_properties)
    findings = [*source.findings, *live_broker_notes(source)]
    wanted = [_Wanted(each, targets[each.directory.path], request, clock, retention_ms, deadline) for each in source.partitions]
    plans = []
    each = each or here_for(partition.directory.store for partition in source.partitions)
    for planned, found in each(_planned, wanted):
        plans.append(planned)
        findings += found
    busy = [plan for plan in plans if (plan.boundaries or (judges_all and plan.fault is None)) and is_judged(plan.source.directory)]
    plans = _judged_plans(plans, busy, request, source, each, findings)
    rate = _measured_rate(plans, request.check_crc) if measure_rate else None
    return Plan(request, clock, tuple(plans), tuple(findings), rate, retention_ms, retention_source)


def _judged_plans(
    plans: list[PartitionPlan], busy: list[PartitionPlan], request: Request, source: Source, each: Each, findings: list[Finding]
) -> list[PartitionPlan]:
    """The plans with a verdict on each replica that is ``busy``; those that are rejected write nothing in place.

    Raises:
        UsageError: the metadata log that was named is none.
        RefusedError: it is damaged.
        StorageError: it cannot be read.
    """
    truth = ClusterTruth(request.metadata, request.s3)
    truth.named()
    judges = Judges(Purpose.REBUILD, truth)
    judges.meet(source.log_dirs, [] if source.properties is None else log_dirs_of(source.properties))
    asked = [(plan, judges.know(plan.source.log_dir, named_only(plan.source.directory)), request.out is None) for plan in busy]
    told: dict[str, PartitionPlan] = {}
    for plan, found in each(_judged, asked):
        told[plan.source.directory.path] = plan
        findings += found
    findings += [*truth.findings, *judges.findings]
    return [told.get(plan.source.directory.path, plan) for plan in plans]


def _judged(asked: tuple[PartitionPlan, KnownSource, bool]) -> tuple[PartitionPlan, list[Finding]]:
    plan, known, in_place = asked
    directory = plan.source.directory
    try:
        verdict = known.judged(directory, plan.source.log_dir, plan.log_end_offset)
    except (ReadFailedError, RefusedError, FormatError) as error:  # of this partition alone
        return _nothing(plan.source, plan.target, str(error)), [finding_of_error(error, directory.path)]
    if verdict.is_rejected:
        finding = rejection(verdict, directory.path)
        if not in_place:
            told = replace(finding, severity=Severity.NOTE, message=f"{finding.message}; written elsewhere all the same")
            return replace(plan, verdict=verdict), [told]
        nothing = _nothing(plan.source, plan.target, f"{verdict}: {verdict.why}", plan.log_end_offset)
        return replace(nothing, left_out=plan.left_out, verdict=verdict), [finding]
    if not in_place or verdict.offset is None:
        return replace(plan, verdict=verdict), []
    # What is there is compared all the same: whoever wants it right is to know that it is wrong.
    plan = replace(plan, verdict=verdict)
    beyond = tuple((each.offset, why) for each in plan.boundaries if not each.exists and (why := not_trusted(plan, each.offset)))
    kept = tuple(each for each in plan.boundaries if each.exists or each.offset <= verdict.offset)
    left_out = tuple(sorted((*plan.left_out, *beyond)))
    if not kept:
        plan = _nothing(plan.source, plan.target, None, plan.log_end_offset)
    limited = replace(plan, boundaries=kept, left_out=left_out, verdict=verdict)
    return limited, _left_out_findings(replace(limited, left_out=beyond))


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
    try:
        planned = _plan_partition(wanted, findings)
    except DeadlinePassedError as error:
        message = f"{error.message} before this partition was looked into: what it lacks is not rebuilt"
        path = wanted.partition.directory.path
        return _nothing(wanted.partition, wanted.target, message), [Finding("deadline-passed", Severity.FINDING, path, message)]
    except (ReadFailedError, RefusedError, FormatError) as error:  # of this partition alone
        findings.append(finding_of_error(error, wanted.partition.directory.path))
        planned = _nothing(wanted.partition, wanted.target, str(error))
    return planned, findings + _left_out_findings(planned)


def _left_out_findings(plan: PartitionPlan) -> list[Finding]:
    found = []
    for offset, reason in plan.left_out:
        # What a broker does not need, or makes itself, is nobody's business; what it needs and we may not write is.
        is_known = not is_missed(plan, offset, reason)
        code, severity = ("not-due", Severity.NOTE) if is_known else ("not-known-to-be-due", Severity.FINDING)
        found.append(Finding(code, severity, plan.source.directory.path, reason, offset))
    return found


def _nothing(partition: PartitionSource, target: str, fault: str | None, log_end: int | None = None) -> PartitionPlan:
    return PartitionPlan(partition, target, (), (), log_end, 0, 0, "nothing to do", 0, 0, 0, None, fault)


def check_output(
    out: str, targets: Iterable[str], partitions: Iterable[PartitionSource], store: Store = LOCAL, *, option: str = "--out"
) -> None:
    """A directory that a broker does not know keeps it from starting, so nothing foreign is put where one may run.

    In an object store no broker runs; but what lies there may be a copy that is put back one day.

    Args:
        out: the directory asked for.
        targets: the one for each partition.
        partitions: that are read.
        store: that holds the targets.
        option: that asked for it.

    Raises:
        UsageError: ``out`` is no directory.
        RefusedError: it lies in a directory of a broker.
        ReadFailedError: an object store does not tell.
    """
    above = out
    while store.is_local and not os.path.lexists(above):
        above = os.path.dirname(above)
    if store.is_local and not os.path.isdir(above):
        raise UsageError(f"{option} leads there, and it is no directory", path=above)
    own = {_real(partition.directory.path) for partition in partitions}
    known: dict[str, bool] = {}
    wanted = sorted({_real(target) for target in targets})
    for target, holds_segments in zip(wanted, here_for([store])(store.holds_segments, wanted), strict=True):
        inside = _directory_around(target, own) or (target if holds_segments else _broker_directory_above(target, store, known))
        if inside is not None:
            raise RefusedError(f"{option} leads into {inside}, where a broker would trip over it", path=out)


def _real(location: str) -> str:
    return location if is_object(location) else os.path.realpath(location)


def _directory_around(target: str, directories: set[str]) -> str | None:
    while target not in directories:
        if target == (target := os.path.dirname(target)):
            return None
    return target


def _broker_directory_above(target: str, store: Store, known: dict[str, bool]) -> str | None:
    """The log directory of any broker, selected or not, that a target lies in; None where it lies in none.

    Args:
        target: the directory.
        store: that holds it.
        known: whether directories are those of a broker, as far as that was asked.
    """
    names = [name for name in BROKER_FILES if name != LOCK_FILE_NAME]
    directory = target
    while True:
        if directory not in known:
            known[directory] = False
            with contextlib.suppress(ReadFailedError):  # above --out, where a role may be forbidden to look
                known[directory] = bool(store.present(directory, names))
        if known[directory]:
            return directory
        above = os.path.dirname(directory)
        if above in (directory, ABOVE_BUCKETS):
            return None
        directory = above


def _lies_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)


def _targets(out: str | None, partitions: tuple[PartitionSource, ...]) -> dict[str, str]:
    """Where each partition's snapshots go: ``DIR/<topic-partition>`` if that is unique, else by the path below the sources for all."""
    if out is None:
        return {partition.directory.path: partition.directory.path for partition in partitions}
    names = [partition.topic_partition for partition in partitions]
    if len(set(names)) == len(names):
        return {partition.directory.path: os.path.join(out, partition.topic_partition) for partition in partitions}
    return {partition.directory.path: os.path.join(out, partition.relative) for partition in partitions}


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
        return _nothing(partition, target, None)
    log_end = log_end_offset(directory, deadline)
    boundaries, left_out = _wanted(asked, log_end, findings)
    if not boundaries:
        return replace(_nothing(partition, target, None, log_end), left_out=tuple(left_out))
    bases = [segment.base_offset for segment in directory.segments]
    mode = ReplayFrom(request.replay_from)
    window = 0 if mode is ReplayFrom.LOG_START else window_index(partition, clock, deadline)
    stop = _stop_index(directory, request, boundaries, window)
    replay = PartitionReplay(directory, mode, clock, window, stop, boundaries[0][0], log_end or 0)
    start_index, start_reason = replay.start()
    size_from = [segment.size_bytes for segment in directory.segments[:stop]]
    has_first = mode is ReplayFrom.AUTO and directory.snapshot_at(bases[0]) is not None
    best = _best_class(start_index, bases[0], is_remote_below=remote_below(partition, request) is not None, has_first=has_first)
    wanted = tuple(BoundaryPlan(offset, is_end, exists, best) for offset, is_end, exists in boundaries)
    if request.out is None and log_end is not None:
        _check_next_start(partition, log_end, [boundary.offset for boundary in wanted], findings)
    return PartitionPlan(
        source=partition,
        target=target,
        boundaries=wanted,
        left_out=tuple(left_out),
        log_end_offset=log_end,
        window_index=window,
        replay_index=start_index,
        replay_reason=start_reason,
        stop_index=stop,
        bytes_least=sum(size_from[start_index:]),
        bytes_most=sum(size_from) if mode is ReplayFrom.AUTO else sum(size_from[start_index:]),
        retention_frees_ms=_retention_frees(partition, boundaries, asked.retention_ms),
    )


def _check_next_start(partition: PartitionSource, log_end: int, offsets: list[int], findings: list[Finding]) -> None:
    """Snapshots that the broker would remove again when it starts: it does so above a segment whose offset index is missing."""
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


def remote_below(partition: PartitionSource, request: Request) -> int | None:
    """``PartitionSource.remote_from``, where it matters: elsewhere "log-start" means the state that begins empty at the first segment."""
    is_elsewhere = request.out is not None
    return None if is_elsewhere and request.replay_from == ReplayFrom.LOG_START.value else partition.remote_from


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
    wanted, left_out = [], []
    for offset, is_end in sorted(offsets.items()):
        if not request.selection.takes_boundary(offset):
            continue
        exists = offset in existing
        if exists and request.out is None and not request.set_aside:
            check_deadline(asked.deadline, directory.path)
            _check_existing(directory, offset, findings)
        if request.boundaries == "missing" and exists and not request.set_aside:
            continue
        reason = None if request.out is not None or exists else not_due_in_place(partition, offset, is_log_end=is_end)
        if request.out is None and snapshot_file_name(offset) in directory.unreadable:
            reason = IRREGULAR_NAME
        if reason is None:
            wanted.append((offset, is_end, exists))
        else:
            left_out.append((offset, reason))
    return wanted, left_out


def _check_existing(directory: PartitionDir, offset: int, findings: list[Finding]) -> None:
    try:
        read_snapshot_file(directory, offset)
    except ReadFailedError as error:
        findings.append(replace(finding_of_error(error, directory.path), offset=offset))
    except FormatError as error:
        message = f"{error}; it is replaced with --set-aside only"
        findings.append(Finding("corrupt-snapshot", Severity.FINDING, directory.path, message, offset))


def not_due_in_place(partition: PartitionSource, offset: int, *, is_log_end: bool) -> str | None:
    """Why a snapshot at this offset must not be written into the log directory, or None."""
    kind = partition.topic_kind
    if kind is TopicKind.CLUSTER_METADATA:
        return "the cluster metadata log keeps its own snapshots"
    if kind is not TopicKind.ORDINARY:
        return "an internal topic is never uploaded to tiered storage"
    if partition.is_compacted:
        return "a compacted topic is never uploaded to tiered storage"
    if is_log_end and offset < partition.recovery_point:
        return END_BELOW_RECOVERY_POINT
    if offset <= partition.log_start_offset:
        return f"a broker deletes snapshots at or below the log start offset {partition.log_start_offset}"
    if not partition.log_dir.is_broker_directory:
        return NO_BROKER_FILES
    if not partition.log_dir.is_cleaner_known:
        return CLEANER_UNKNOWN
    if not partition.log_dir.was_shut_down_cleanly:
        if is_log_end:
            return "the broker was not shut down cleanly: it writes the one at the log end itself"
        if offset > partition.recovery_point:
            return f"the broker was not shut down cleanly: above its recovery point {partition.recovery_point} it regenerates snapshots"
    return None


def not_trusted(plan: PartitionPlan, offset: int) -> str | None:
    """Why the verdict on a replica keeps a snapshot at this offset from being written into it, or None."""
    verdict = plan.verdict
    if verdict is None or not (verdict.is_rejected or (verdict.offset is not None and offset > verdict.offset)):
        return None
    return f"the replica is {verdict}: {verdict.why}"


def is_missed(plan: PartitionPlan, offset: int, reason: str) -> bool:
    """Whether a boundary that was left out for a reason may be one that a broker needs, and does not make itself."""
    return reason in NOT_KNOWN_TO_BE_DUE or reason == not_trusted(plan, offset)


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
    except (ReadFailedError, FormatError):
        return None
    return read / max(time.perf_counter() - started, 1e-6) if read else None
