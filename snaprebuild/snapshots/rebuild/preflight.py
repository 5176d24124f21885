"""Reasons to refuse a run, found before anything is read or written: by `plan`, by a dry run, and by the run itself.

All of them call ``with_preflight``, so that they have one answer. Each write is guarded as well: much can happen after the check.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from formats.partition.file_names import snapshot_file_name
from snaprebuild.errors import HeldError, RefusedError, SnaprebuildError, WriteFailedError
from snaprebuild.findings import Finding, Severity, finding_of_error, pluralize
from snaprebuild.snapshots.destination.boundary_result import BoundaryAction
from snaprebuild.snapshots.destination.rebuilt_snapshot import owner_of_snapshot
from snaprebuild.snapshots.plan.plan_model import Blocked, BoundaryPlan, PartitionPlan, Plan
from snaprebuild.snapshots.source.boundary_needs import LeftOut, LeftOutReason
from snaprebuild.storage.local.broker_lock import check_hold
from snaprebuild.storage.local.write_advice import DENIED, advice_on_directory, nearest_existing
from snaprebuild.storage.local.write_checks import check_new_files, check_owner, check_room
from snaprebuild.storage.store import Ownership, is_object

__all__ = [
    "blocked_by",
    "blocked_in_place",
    "denied_finding",
    "is_denied",
    "with_preflight",
    "without_blocked",
]


def with_preflight(plan: Plan, *, is_rehearsal: bool = False) -> Plan:
    """The plan with what keeps each partition from being written to. Changes nothing.

    Args:
        plan: that would be carried out.
        is_rehearsal: a broker may hold the log directories now, and is stopped before the run, as for `plan`.
    """
    locks = _Locks(is_rehearsal=is_rehearsal)
    obstacles = [_obstacle(each, plan, locks) for each in plan.partitions]
    counts = Counter[str]()
    for each, obstacle in zip(plan.partitions, obstacles, strict=True):
        if obstacle is not None:
            counts[obstacle.place] += len(each.all_boundaries)
    partitions = [
        each if obstacle is None else replace(each, blocked=_blocked(each, obstacle, counts[obstacle.place]))
        for each, obstacle in zip(plan.partitions, obstacles, strict=True)
    ]
    return replace(plan, partitions=tuple(_with_room(partitions, plan)))


def without_blocked(plan: Plan) -> Plan:
    """The plan of ``with_preflight`` as `plan` shows it: what this process cannot write is not counted as to be written."""
    blocked = [each.blocked.finding for each in plan.partitions if each.blocked is not None and each.boundaries]
    partitions = tuple(map(_shown, plan.partitions))
    return replace(plan, partitions=partitions, findings=tuple(dict.fromkeys((*plan.findings, *blocked))))


def _shown(plan: PartitionPlan) -> PartitionPlan:
    blocked = plan.blocked
    if blocked is None:
        return plan
    reason = LeftOutReason(LeftOut.NOT_WRITABLE, blocked.text)
    left_out = [(each.offset, reason) for each in plan.boundaries]
    return replace(
        plan,
        boundaries=(),
        not_planned=plan.not_planned_with(left_out),
        min_read_bytes=0,
        max_read_bytes=0,
        retention_frees_ms=None,
    )


class _Obstacle(NamedTuple):
    """A reason that keeps a partition from being written to.

    Attributes:
        error: because of which nothing of it is written.
        directory: that cannot be written to.
        has_owner: the snapshots must have the owner of their segments.
    """

    error: RefusedError | WriteFailedError
    directory: str
    has_owner: bool = True

    @property
    def place(self) -> str:
        """The directory that exists: one finding is about all snapshots that would go there."""
        return nearest_existing(self.directory)


def _blocked(plan: PartitionPlan, obstacle: _Obstacle, count: int) -> Blocked:
    return blocked_by(plan, obstacle.error, obstacle.directory, has_owner=obstacle.has_owner, count=count)


def blocked_by(
    plan: PartitionPlan, error: SnaprebuildError, directory: str, *, has_owner: bool = True, count: int | None = None
) -> Blocked:
    """The error that keeps a partition from being written to, for its finding and its boundaries.

    Args:
        plan: of the partition.
        error: because of which nothing of it is written.
        directory: that cannot be written to.
        has_owner: the snapshots must have the owner of their segments.
        count: of the snapshots that the directory would get, of all partitions; None for those of this one.
    """
    if is_denied(error, directory):
        owner = owner_of_snapshot(plan, plan.all_boundaries[0].offset) if has_owner else None
        finding = denied_finding(directory, len(plan.all_boundaries) if count is None else count, owner)
    else:
        finding = finding_of_error(error, plan.path)
    action = BoundaryAction.REFUSED if isinstance(error, RefusedError) else BoundaryAction.FAILED
    return Blocked(finding=finding, text=str(error), action=action)


def blocked_in_place(plan: PartitionPlan, offsets: Iterable[int]) -> Blocked | None:
    """The reason why no snapshot can be written into the directory of a partition; None if they can.

    Args:
        plan: of the partition.
        offsets: of the snapshots that need an owner of their own: a hard link has that of its file.
    """
    error = _error_in_place(plan, offsets)
    return None if error is None else blocked_by(plan, error, plan.path)


def _error_in_place(plan: PartitionPlan, offsets: Iterable[int]) -> RefusedError | WriteFailedError | None:
    try:
        check_new_files(plan.path)
        for owner in {owner_of_snapshot(plan, offset) for offset in offsets}:
            check_owner(plan.path, owner)
    except (WriteFailedError, RefusedError) as error:
        return error
    return None


class _Locks:
    """Whether the log directories could be locked. Each is asked for once."""

    def __init__(self, *, is_rehearsal: bool) -> None:
        self._is_rehearsal = is_rehearsal
        self._errors: dict[str, RefusedError | WriteFailedError | None] = {}

    def error_of(self, plan: PartitionPlan) -> RefusedError | WriteFailedError | None:
        log_dir = plan.source.log_dir.path
        if log_dir not in self._errors:
            self._errors[log_dir] = None
            try:
                check_hold(log_dir, plan.source.directory.segments[0].log.ownership)
            except HeldError as error:
                if not self._is_rehearsal:
                    self._errors[log_dir] = error
            except (RefusedError, WriteFailedError) as error:
                self._errors[log_dir] = error
        return self._errors[log_dir]


def _new(plan: PartitionPlan, whole: Plan) -> list[BoundaryPlan]:
    """The boundaries that get a file, or may get one in the place of a wrong one. Elsewhere each of them gets one."""
    request = whole.request
    is_for_each = request.set_aside or not request.destination.writes_into_log_dirs
    return [each for each in plan.boundaries if is_for_each or not each.exists]


def _obstacle(plan: PartitionPlan, whole: Plan, locks: _Locks) -> _Obstacle | None:
    destination = whole.request.destination
    if not plan.boundaries or is_object(plan.target):
        return None
    log_dir = plan.source.log_dir
    if destination.locks_log_dirs and log_dir.is_broker_directory and log_dir.store.is_local:
        error = locks.error_of(plan)
        if error is not None:
            return _Obstacle(error, log_dir.path)
    new = _new(plan, whole)
    if not new:
        return None
    if destination.writes_into_log_dirs:
        error = _error_in_place(plan, [each.offset for each in new])
        return None if error is None else _Obstacle(error, plan.path)
    try:
        check_new_files(plan.target)
        if destination.is_for_broker:
            for owner in {owner_of_snapshot(plan, each.offset) for each in new}:
                check_owner(plan.target, owner)
    except (WriteFailedError, RefusedError) as error:
        if _lacking(plan, new):
            return _Obstacle(error, plan.target, has_owner=destination.is_for_broker)
    return None


def _lacking(plan: PartitionPlan, new: Sequence[BoundaryPlan]) -> int:
    """How many of the files an earlier run has not left there: those are compared, and nothing is written."""
    try:
        names = set(os.listdir(plan.target))
    except OSError:
        return len(new)
    return sum(snapshot_file_name(each.offset) not in names for each in new)


def _with_room(partitions: list[PartitionPlan], whole: Plan) -> list[PartitionPlan]:
    """The partitions, with those that are on a file system without room for all new files."""
    by_device: dict[int, list[PartitionPlan]] = {}
    for plan in partitions:
        if plan.blocked is None and not is_object(plan.target) and _new(plan, whole):
            device = os.stat(nearest_existing(os.path.abspath(plan.target))).st_dev
            by_device.setdefault(device, []).append(plan)
    without_room: dict[str, Blocked] = {}
    for plans in by_device.values():
        error = _no_room(plans, whole)
        if error is not None:
            without_room |= {plan.path: blocked_by(plan, error, plan.target) for plan in plans if _lacking(plan, _new(plan, whole))}
    return [replace(each, blocked=without_room[each.path]) if each.path in without_room else each for each in partitions]


def _no_room(plans: Sequence[PartitionPlan], whole: Plan) -> WriteFailedError | None:
    """Why the new files of some partitions do not fit on the one file system that all of them go to."""
    place = plans[0].target
    error = _error_of_room(place, sum(len(_new(plan, whole)) for plan in plans))
    if error is not None:  # some may be there already
        error = _error_of_room(place, sum(_lacking(plan, _new(plan, whole)) for plan in plans))
    return error


def _error_of_room(place: str, files: int) -> WriteFailedError | None:
    try:
        check_room(place, files)
    except WriteFailedError as error:
        return error
    return None


def is_denied(error: BaseException, directory: str) -> bool:
    """Whether this user may not write to a directory. An error about a receipt elsewhere is none of these."""
    if not isinstance(error, WriteFailedError) or error.path is None:
        return False
    return error.errno in DENIED and directory in (error.path, os.path.dirname(error.path))


def denied_finding(directory: str, count: int, owner: Ownership | None) -> Finding:
    """One for all snapshots of a directory that this user may not write, with the user that may.

    Args:
        directory: that was to be written to, and may be missing.
        count: of the snapshots.
        owner: that they must have; None for that of the process.
    """
    directory = nearest_existing(directory)
    advice = advice_on_directory(directory, owner)
    message = f"permission denied: {pluralize(count, 'snapshot')} not written. {advice}"
    return Finding("storage-failed", Severity.STORAGE, directory, message)
