"""Prepares the log directories of a broker before it starts: the missing snapshots are written in place, the most blocked partition first.

It is ``rebuild`` with another aim: a broker waits for it before it starts. Therefore it may end at a deadline with the snapshots written
so far, and findings that do not concern the start of the broker are notes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from msgspec.structs import replace

from snaprebuild.broker.fates import Fate
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding, FindingCause, Severity, exit_code_of
from snaprebuild.snapshots.destination.boundary_result import NOT_DONE, BoundaryAction
from snaprebuild.snapshots.destination.placement_rules import (
    reason_against_writing_in_place,
)
from snaprebuild.snapshots.plan.plan_model import Plan, SourceGate
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.planner import make_plan
from snaprebuild.snapshots.rebuild.rebuild_result import PartitionResult, RebuildResult
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.receipts.receipt import Receipt, default_receipt_path
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.broker_properties import log_dirs_of
from snaprebuild.snapshots.source.source import PartitionSource, Source
from snaprebuild.storage.store import is_object

__all__ = ["Preparation", "PreparationState", "PreparedPartition", "blocked_bytes", "prepare_log_dirs"]

HELD = "a broker, or another run, uses this log directory"

MADE_BY_MKFS = {"lost+found"}

PLANNING_SHARE = 0.5
"""Part of the time until the deadline that planning may take. The partitions planned by then are rebuilt in the rest."""


class PreparationState(StrEnum):
    """How far a partition came."""

    PREPARED = "prepared"
    """Each snapshot that is due is there; only findings are about the content of those that were there before."""
    PARTLY = "partly"
    """Some were written, some not."""
    NOT_PREPARED = "not-prepared"
    """None was written, and some are due."""


@dataclass(frozen=True, slots=True)
class PreparedPartition:
    """A partition.

    Attributes:
        result: of the rebuild.
        blocked_bytes: of the first rolled segment whose snapshot was missing and of every later rolled one, before the run.
        bytes_blocked_left: the same, after it.
    """

    result: PartitionResult
    blocked_bytes: int
    bytes_blocked_left: int

    @property
    def left_out(self) -> int:
        """Number of boundaries that are left out, and that a broker may need. It needs none of an old replica."""
        return sum(reason.may_be_needed for _, reason in self.result.plan.not_planned)

    def count(self, *actions: str) -> int:
        """Number of boundaries with one of these actions."""
        return sum(boundary.action in actions for boundary in self.result.boundaries)

    @property
    def state(self) -> PreparationState:
        """How far it came."""
        plan = self.result.plan
        is_whole = plan.fault is None and not self.left_out
        if is_whole and not self.count(*NOT_DONE):
            return PreparationState.PREPARED
        if self.count(BoundaryAction.WRITTEN, BoundaryAction.WOULD_WRITE):
            return PreparationState.PARTLY
        return PreparationState.NOT_PREPARED


@dataclass(frozen=True, slots=True)
class Preparation:
    """The result for the log directories of a broker.

    Attributes:
        rebuilt: by the rebuild.
        partitions: in the order in which they were worked on.
        findings: of the rebuild; those that are no concern of the broker's start weigh nothing.
        seconds: that it took.
    """

    rebuilt: RebuildResult
    partitions: tuple[PreparedPartition, ...]
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def exit_code(self) -> int:
        """Exit code of the worst finding."""
        return exit_code_of(self.findings)


def prepare_log_dirs(
    request: RebuildRequest,
    gate: SourceGate,
    run: Run,
    *,
    by_blocked_bytes: bool = True,
    dry_run: bool = False,
    receipt: str | None = None,
    starts_on_exit_code: bool = False,
    source: Source | None = None,
    fates: Sequence[Fate] | None = None,
) -> Preparation:
    """Writes the missing snapshots of all partitions in place. A failure in one partition does not stop the others.

    Args:
        request: what is asked for; ``out`` is None.
        gate: judges whether the replicas may be written to.
        run: its jobs and its deadline.
        by_blocked_bytes: the partition first that blocks most; else in the order of their paths.
        dry_run: replay and judge, write nothing.
        receipt: path of the receipt, None for the usual place.
        starts_on_exit_code: the broker starts only after exit code 0. That topics have no id is a note then: the start loses nothing.
        source: of the request, where the caller has opened it; None to open it here.
        fates: of the next start, which the caller reports; None to judge them where something is written.

    Raises:
        UsageError: nothing to read from, or no place for a receipt.
        RefusedError: the receipt would be among the files of a broker, or its name is taken.
        StorageError: the receipt cannot be written where it is wanted.
    """
    started = time.perf_counter()
    for path in request.paths:
        if is_object(path):
            raise UsageError("no broker starts on an object store: name its log directories", path=path)
    now = time.monotonic()
    deadline = run.deadline
    planned_by = None if deadline is None else now + (deadline - now) * PLANNING_SHARE
    most_first = blocked_bytes if by_blocked_bytes else None
    not_ready = Severity.NOTE if starts_on_exit_code else Severity.FINDING
    planning = replace(run, deadline=planned_by)
    plan = make_plan(
        request,
        gate,
        planning,
        most_first=most_first,
        judged_by=deadline,
        not_ready=not_ready,
        known_fates=fates,
        source=source,
    )
    rebuilt = rebuild(plan, run, dry_run=dry_run, receipt=_receipt(plan, receipt), is_rehearsal=dry_run)
    partitions = tuple(PreparedPartition(each, blocked_bytes(each.plan.source), _bytes_left(each)) for each in rebuilt.partitions)
    findings = tuple(_weighed(finding, plan, run, dry_run=dry_run) for finding in rebuilt.findings)
    return Preparation(rebuilt, partitions, findings, time.perf_counter() - started)


def _receipt(plan: Plan, path: str | None) -> Receipt | None:
    """Where nothing is missing none is needed: so a broker whose user can write nowhere is refused nothing on an ordinary day."""
    if not any(partition.boundaries for partition in plan.partitions):
        return None
    return Receipt(default_receipt_path(None) if path is None else path, plan)


def blocked_bytes(source: PartitionSource) -> int:
    """Bytes of the first rolled segment whose snapshot is missing and of every later rolled one, by the listing.

    Segments are uploaded in order.
    """
    return _bytes_from(source, _missing(source))


def _missing(source: PartitionSource) -> list[int]:
    """Base offsets at which a snapshot is due that is not there."""
    directory = source.directory
    listed = set(directory.snapshot_offsets)
    bases = directory.base_offsets[1:]
    reasons = {base: reason_against_writing_in_place(source, base, is_log_end=False) for base in bases if base not in listed}
    return [base for base, reason in reasons.items() if reason is None or reason.may_be_needed]


def _bytes_left(result: PartitionResult) -> int:
    source = result.plan.source
    missing = set(_missing(result.plan.source))
    if result.plan.fault is None:
        missing &= {each.offset for each in result.boundaries if each.action in NOT_DONE} | {
            offset for offset, _ in result.plan.not_planned
        }
    return _bytes_from(source, sorted(missing))


def _bytes_from(source: PartitionSource, missing: list[int]) -> int:
    if not missing:
        return 0
    pairs = pairwise(source.directory.segments)
    return sum(segment.size_bytes for segment, following in pairs if following.base_offset >= missing[0])


def _weighed(finding: Finding, plan: Plan, run: Run, *, dry_run: bool) -> Finding:
    """The finding with its severity here. A running broker is refused even if nothing is missing and its lock was not asked for."""
    if finding.cause is FindingCause.LIVE_BROKER and not dry_run:
        is_asked = any(each.boundaries and each.source.log_dir.path == finding.path for each in plan.partitions)
        if is_asked:
            return finding
        return replace(finding, code="refused", severity=Severity.REFUSED, message=HELD)
    is_new_broker = finding.cause is FindingCause.NOTHING_FOUND and _is_new_broker(plan.request, run)
    is_no_concern = finding.cause is FindingCause.WITHOUT_CONCERN or is_new_broker
    return replace(finding, severity=Severity.NOTE) if is_no_concern else finding


def _is_new_broker(request: RebuildRequest, run: Run) -> bool:
    """Whether all partitions were asked for, of directories in which nothing is: a broker that never ran."""
    if request.selection.is_narrowed:
        return False
    properties = run.facts.properties_if_given(request.server_properties)
    log_dirs = [] if properties is None else [path for path in log_dirs_of(properties) if os.path.isdir(path)]
    return all(set(os.listdir(path)) <= MADE_BY_MKFS for path in (*request.paths, *log_dirs))
