"""The ``SourceGate`` of the commands: a verdict on each replica that would be written to, before anything is written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from formats.errors import FormatError
from snaprebuild.broker.fates import Fate
from snaprebuild.broker.status import JudgedStart
from snaprebuild.cluster.source_check.evidence import LogEvidence
from snaprebuild.cluster.source_check.evidence_collector import SourceRequest, is_judged
from snaprebuild.cluster.source_check.evidence_reader import log_evidence
from snaprebuild.cluster.source_check.metadata_logs import MetadataLogs
from snaprebuild.cluster.source_check.source_verdicts import ReadLogs, SourceReplica, judge_sources, replica_of
from snaprebuild.cluster.source_check.verdict import SourceVerdict
from snaprebuild.errors import DeadlinePassedError, SnaprebuildError
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error
from snaprebuild.snapshots.destination.placement_rules import not_planned_findings, reason_for_distrust
from snaprebuild.snapshots.engine.log_facts import check_deadline
from snaprebuild.snapshots.plan.plan_model import PartitionPlan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.source_verdict import Purpose
from snaprebuild.snapshots.plan.start_gate import (
    fate_against_writing,
    unsafe_start_finding,
    without_removed_snapshots,
    without_writing,
)
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.second_look import with_new_listings
from snaprebuild.snapshots.source.source import Source
from snaprebuild.storage.thread_pool import ParallelMap

__all__ = ["judge_plans", "judge_start"]


def judge_plans(
    plans: Sequence[PartitionPlan],
    request: RebuildRequest,
    source: Source,
    reported: Sequence[Finding],
    parallel_map: ParallelMap,
    run: Run,
    *,
    holds_locks: bool = False,
    fates: Sequence[Fate] | None = None,
    unsafe: Severity = Severity.REFUSED,
) -> tuple[dict[str, PartitionPlan], list[Finding]]:
    """The plans of the replicas that are trusted, by path, and the findings (``SourceGate``). The plan of the metadata log is left out.

    Args:
        plans: of the partitions for which something would be written.
        request: what is asked for.
        source: the partitions with their log directories.
        reported: findings so far: their reasons are not repeated.
        parallel_map: judges the partitions.
        run: as of ``SourceGate``.
        holds_locks: the caller holds the locks of the log directories.
        fates: of the next start, where the command has judged it before; None to judge it here.
        unsafe: severity where nothing is written into a partition because of its fate.

    Raises:
        UsageError: the metadata log that was named is none.
        RefusedError: it is damaged.
        StorageError: it cannot be read.
    """
    deadline = run.deadline
    logs = MetadataLogs(request.metadata, replace(run, stores=request.s3))
    with contextlib.suppress(DeadlinePassedError):  # which each partition reports
        logs.named()
    judgeable = {plan.path: plan for plan in plans if is_judged(plan.source.directory)}
    verdicts = judge_sources(
        SourceRequest(
            purpose=Purpose.REBUILD,
            logs=logs,
            log_dirs=source.log_dirs,
            named=request.paths,
            properties=source.properties,
            locks=None if holds_locks else source.facts,
        ),
        [replica_of(plan.source.directory, plan.source.log_dir) for plan in judgeable.values()],
        _logs_of(judgeable, parallel_map, deadline),
    )
    judged: dict[str, tuple[PartitionPlan, list[Finding]]] = {}
    for replica, error in verdicts.unread:  # of this partition alone
        plan = judgeable[replica.path]
        finding = finding_of_error(error, plan.path)
        judged[plan.path] = PartitionPlan(source=plan.source, target=plan.target, fault=str(error)), [finding]
    late = {path: _too_late(judgeable[path]) for path in verdicts.late}
    faults = [finding for _, found in (*judged.values(), *late.values()) for finding in found]
    messages = [each.message for each in (*reported, *faults, *verdicts.findings)]
    for each in verdicts.judged:
        judged[each.replica.path] = _limited(judgeable[each.replica.path], each.verdict, request, messages)
    if request.destination.is_for_broker:
        plan_of = {plan.path: plan for plan in plans}
        judged |= _unsafe(plan_of, judged, request, source, fates, unsafe, holds_locks=holds_locks)
    judged |= late  # nothing is written there: what the next start does is not judged after the deadline
    if request.destination.installed_later:
        judged = {path: (_without_states_alone(plan), found) for path, (plan, found) in judged.items()}
    findings = [finding for _, found in judged.values() for finding in found]
    return {path: plan for path, (plan, _) in judged.items()}, [*findings, *verdicts.findings]


def judge_start(source: Source, release: str | None = None, *, holds_locks: bool = False) -> JudgedStart:
    """The effect of the next start of each broker, as ``StartJudge``."""
    from snaprebuild.cluster.scan_storage import NextStartJudge  # what is written elsewhere needs nothing of a scan

    return NextStartJudge()(source, release, holds_locks=holds_locks)


def _logs_of(plans: Mapping[str, PartitionPlan], parallel_map: ParallelMap, deadline: float | None) -> ReadLogs:
    """Reads the replicas of plans, by path. The tail is read again only where there is a metadata log that may be older."""

    def read(replica: SourceReplica) -> LogEvidence:
        return _read((plans[replica.path], True, deadline))

    def read_all(asked: Sequence[tuple[SourceReplica, bool]]) -> Iterable[LogEvidence | SnaprebuildError | FormatError]:
        return parallel_map(_read_or_fault, [(plans[replica.path], has_log, deadline) for replica, has_log in asked])

    return ReadLogs(read, read_all)


def _read_or_fault(asked: tuple[PartitionPlan, bool, float | None]) -> LogEvidence | SnaprebuildError | FormatError:
    """The files of a replica, in a worker."""
    try:
        return _read(asked)
    except (SnaprebuildError, FormatError) as error:
        return error


def _read(asked: tuple[PartitionPlan, bool, float | None]) -> LogEvidence:
    plan, has_metadata_log, deadline = asked
    end = None if has_metadata_log else plan.log_end_offset
    check_deadline(deadline, plan.path)
    return with_new_listings(lambda now: log_evidence(now.directory, now.log_dir, log_end_offset=end), plan.source)


def _nothing(plan: PartitionPlan, reason: str | None, verdict: SourceVerdict | None = None) -> PartitionPlan:
    return PartitionPlan(
        source=plan.source,
        target=plan.target,
        not_planned=plan.not_planned,
        log_end_offset=plan.log_end_offset,
        fault=reason,
        verdict=verdict,
    )


def _unsafe(
    wanted: Mapping[str, PartitionPlan],
    judged: Mapping[str, tuple[PartitionPlan, list[Finding]]],
    request: RebuildRequest,
    source: Source,
    fates: Sequence[Fate] | None,
    severity: Severity,
    *,
    holds_locks: bool,
) -> dict[str, tuple[PartitionPlan, list[Finding]]]:
    """The plans of those partitions of which the next start loses everything, or some of the new snapshots."""
    writing = [path for path in judged if _writes(wanted[path], request)]
    if not writing:
        return {}
    if fates is None:
        fates = judge_start(source, request.kafka_release, holds_locks=holds_locks).fates
    reduced_plans = {}
    for path in writing:
        plan, findings = judged[path]
        fate = fate_against_writing(plan.source, fates)
        if fate is None:
            limited, removed = without_removed_snapshots(plan, fates)
            if removed:
                reduced_plans[path] = limited, [*findings, *removed]
            continue
        reduced = without_writing(wanted[path], plan, fate)
        left_out = [] if reduced.fate is None else [unsafe_start_finding(path, fate, severity)]
        reduced_plans[path] = reduced, [*findings, *left_out]
    return reduced_plans


def _writes(plan: PartitionPlan, request: RebuildRequest) -> bool:
    """Whether a file of the partition may be written: one that is there is replaced only where that was asked for."""
    return request.set_aside or any(not boundary.exists for boundary in plan.boundaries)


def _without_states_alone(plan: PartitionPlan) -> PartitionPlan:
    """The plan of a partition for ``stage``: without a snapshot to install, no state is staged that a later replay would begin from."""
    if not plan.boundaries or any(not boundary.exists for boundary in plan.boundaries):
        return plan
    return replace(plan, boundaries=(), min_read_bytes=0, max_read_bytes=0)


def _too_late(plan: PartitionPlan) -> tuple[PartitionPlan, list[Finding]]:
    """A replica without a verdict is not written to."""
    message = "the deadline passed before this replica was checked as a source: its missing snapshots are not rebuilt"
    cause = FindingCause.DEADLINE_PASSED
    return _nothing(plan, message), [Finding("deadline-passed", Severity.FINDING, plan.path, message, cause=cause)]


def _limited(
    plan: PartitionPlan, verdict: SourceVerdict, request: RebuildRequest, reported: list[str]
) -> tuple[PartitionPlan, list[Finding]]:
    """The plan as far as the verdict on its replica goes."""
    path = plan.path
    is_for_broker = request.destination.is_for_broker
    plan = replace(plan, verdict=verdict)
    if verdict.is_rejected:
        finding = verdict.rejection_finding(path)
        if is_for_broker:
            return _nothing(plan, f"{verdict}: {verdict.reason}", verdict), [finding]
        return plan, [replace(finding, severity=Severity.NOTE, message=f"{finding.message}; written elsewhere all the same")]
    if is_for_broker and (refusal := verdict.in_place_refusal(path)) is not None:
        return _nothing(plan, refusal.message, verdict), [refusal]
    # The other disks of a node have no metadata log, and a rebuild describes local bytes.
    severity = Severity.FINDING if is_for_broker and not verdict.lacks_metadata_log_alone else Severity.NOTE
    unknown = verdict.unknown_finding(path, severity, reported)
    is_bare_copy = not is_for_broker and not plan.source.log_dir.is_broker_directory  # which cannot have the evidence
    findings = [] if unknown is None or is_bare_copy else [unknown]
    if not is_for_broker:
        return plan, findings
    # What is staged waits for a clean stop, and is then compared with the segments that it rests on. What is written in place waits for
    # it, too, and is then planned again (``RunLocks.hold_for``).
    destination = request.destination
    waits = destination.installed_later or (destination.locks_log_dirs and plan.source.is_broker_running)
    # Existing snapshots are compared all the same.
    trusted = []
    beyond = []
    for boundary in plan.boundaries:
        reason = None if boundary.exists else reason_for_distrust(plan, boundary.offset, after_clean_stop=waits)
        if reason is None:
            trusted.append(boundary)
        else:
            beyond.append((boundary.offset, reason))
    limited = plan if trusted else _nothing(plan, None, verdict)
    limited = replace(limited, boundaries=tuple(trusted), not_planned=plan.not_planned_with(beyond))
    return limited, [*findings, *not_planned_findings(replace(limited, not_planned=tuple(beyond)))]
