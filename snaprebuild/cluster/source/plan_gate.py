"""The gate of ``plan`` and ``rebuild``: a verdict on each replica that would be written to, before anything is."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from formats.errors import FormatError
from snaprebuild.cluster.source.evidence import LogEvidence, Purpose
from snaprebuild.cluster.source.evidence_reader import log_evidence
from snaprebuild.cluster.source.metadata_logs import ClusterTruth, MetadataRead
from snaprebuild.cluster.source.verdict import Rule, SourceVerdict, judge
from snaprebuild.cluster.source.verifier import Judges, damaged_finding, rejection, unknown_finding
from snaprebuild.errors import DeadlinePassedError, SnaprebuildError
from snaprebuild.findings import Finding, Severity, finding_of_error
from snaprebuild.snapshots.engine.log_facts import check_deadline
from snaprebuild.snapshots.plan.placement_rules import not_planned_findings, why_not_trusted
from snaprebuild.snapshots.plan.plan_model import PartitionPlan, Request, empty_plan
from snaprebuild.snapshots.source.source import Source, with_new_listings
from snaprebuild.storage.parallel_map import Each

__all__ = ["judged_plans"]


def judged_plans(
    plans: list[PartitionPlan],
    busy: list[PartitionPlan],
    request: Request,
    source: Source,
    each: Each,
    findings: list[Finding],
    deadline: float | None = None,
    *,
    holds_locks: bool = False,
) -> list[PartitionPlan]:
    """The plans with a verdict on each replica that is ``busy``; those that are rejected write nothing in place.

    Args:
        plans: of all partitions.
        busy: those of them for which something would be written.
        request: what is asked for.
        source: the partitions with their log directories.
        each: judges the partitions.
        findings: gets what is to be told.
        deadline: a replica that was not judged once ``time.monotonic()`` is past it is not written to; None for none.
        holds_locks: the caller holds the locks of the log directories, so that no broker does.

    Raises:
        UsageError: the metadata log that was named is none.
        RefusedError: it is damaged.
        StorageError: it cannot be read.
    """
    truth = ClusterTruth(request.metadata, request.s3, deadline=deadline)
    with contextlib.suppress(DeadlinePassedError):  # of which each partition tells
        truth.named()
    judges = Judges(Purpose.REBUILD, truth, asks_locks=not holds_locks)
    judges.meet(source.log_dirs, request.paths, source.properties)
    judged: dict[str, PartitionPlan] = {}
    read = []
    asked = []
    for plan in busy:
        try:
            check_deadline(deadline, plan.source.directory.path)
            asked.append((plan, isinstance(judges.metadata_of(plan.source.log_dir), MetadataRead), deadline))
        except DeadlinePassedError:
            judged[plan.source.directory.path], late = _too_late(plan)
            findings += late
    for plan, log, error in each(_read, asked):
        path = plan.source.directory.path
        if isinstance(error, DeadlinePassedError):
            judged[path], late = _too_late(plan)
            findings += late
        elif error is not None:  # of this partition alone
            judged[path] = empty_plan(plan.source, plan.target, str(error))
            findings.append(finding_of_error(error, path))
        else:
            assert log is not None
            read.append((plan, log))
    with contextlib.suppress(DeadlinePassedError):
        judges.compare((plan.source.log_dir, log) for plan, log in read)
    found: list[Finding] = []
    for plan, log in read:
        try:
            check_deadline(deadline, plan.source.directory.path)
            verdict = judge(judges.evidence(plan.source.log_dir, log))
        except DeadlinePassedError:
            judged[plan.source.directory.path], late = _too_late(plan)
            found += late
            continue
        reported = [each.message for each in (*findings, *truth.findings, *judges.findings)]
        judged[plan.source.directory.path], told = _limited(plan, verdict, request, reported)
        found += told
    findings += [*found, *truth.findings, *judges.findings]
    return [judged.get(plan.source.directory.path, plan) for plan in plans]


def _read(
    asked: tuple[PartitionPlan, bool, float | None],
) -> tuple[PartitionPlan, LogEvidence | None, SnaprebuildError | FormatError | None]:
    """The files of a replica, in a worker. Its tail is read again only where there is a metadata log that may be older."""
    plan, has_tail, deadline = asked
    directory = plan.source.directory
    try:
        check_deadline(deadline, directory.path)
        end = None if has_tail else plan.log_end_offset
        return plan, with_new_listings(lambda now: log_evidence(now.directory, now.log_dir, log_end=end), plan.source), None
    except (SnaprebuildError, FormatError) as error:
        return plan, None, error


def _too_late(plan: PartitionPlan) -> tuple[PartitionPlan, list[Finding]]:
    """What nobody has judged is not written to: haste is no evidence."""
    message = "the deadline has passed before it was judged whether this replica may be the source: what it lacks is not rebuilt"
    path = plan.source.directory.path
    nothing = empty_plan(plan.source, plan.target, message, plan.log_end_offset)
    return replace(nothing, not_planned=plan.not_planned), [Finding("deadline-passed", Severity.FINDING, path, message)]


def _limited(
    plan: PartitionPlan, verdict: SourceVerdict, request: Request, reported: list[str]
) -> tuple[PartitionPlan, list[Finding]]:
    """The plan as far as the verdict on its replica goes."""
    directory, in_place, is_staged = plan.source.directory, request.out is None, bool(request.stage)
    if verdict.is_rejected:
        finding = rejection(verdict, directory.path)
        if not in_place:
            told = replace(finding, severity=Severity.NOTE, message=f"{finding.message}; written elsewhere all the same")
            return replace(plan, verdict=verdict), [told]
        nothing = empty_plan(plan.source, plan.target, f"{verdict}: {verdict.why}", plan.log_end_offset)
        return replace(nothing, not_planned=plan.not_planned, verdict=verdict), [finding]
    if in_place and verdict.damaged:
        finding = damaged_finding(verdict, directory.path)
        nothing = empty_plan(plan.source, plan.target, finding.message, plan.log_end_offset)
        return replace(nothing, not_planned=plan.not_planned, verdict=verdict), [finding]
    unknown = unknown_finding(verdict, directory.path, Severity.FINDING if in_place else Severity.NOTE, reported)
    if not in_place and not plan.source.log_dir.is_broker_directory:
        unknown = None  # a bare copy cannot have the evidence
    found = [] if unknown is None else [unknown]
    # What is staged waits for a clean stop, and is then held against the segments that it rests on.
    below = verdict.limit_without(Rule.R9) if is_staged else verdict.offset
    if not in_place or below is None:
        return replace(plan, verdict=verdict), found
    # What is there is compared all the same: whoever wants it right is to know that it is wrong.
    plan = replace(plan, verdict=verdict)
    beyond = tuple(
        (each.offset, why)
        for each in plan.boundaries
        if not each.exists and each.offset > below and (why := why_not_trusted(plan, each.offset))
    )
    kept = tuple(each for each in plan.boundaries if each.exists or each.offset <= below)
    not_planned = tuple(sorted((*plan.not_planned, *beyond)))
    if not kept:
        plan = empty_plan(plan.source, plan.target, None, plan.log_end_offset)
    limited = replace(plan, boundaries=kept, not_planned=not_planned, verdict=verdict)
    return limited, [*found, *not_planned_findings(replace(limited, not_planned=beyond))]
