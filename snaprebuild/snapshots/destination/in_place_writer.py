"""Writes snapshots into the log directory: only those that a broker would keep, and never over an existing file."""

from __future__ import annotations

import bisect
import contextlib
import os
from typing import TYPE_CHECKING

from formats.partition.file_names import snapshot_file_name
from snaprebuild.errors import AlreadyExistsError, RefusedError, SnaprebuildError, StorageError, WriteFailedError
from snaprebuild.findings import FindingCause, Severity
from snaprebuild.replay.difference import ComparisonStatus
from snaprebuild.snapshots.destination.boundary_result import BoundaryAction, BoundaryResult
from snaprebuild.snapshots.destination.placement_rules import reason_against_class, reason_for_distrust, reason_of_fate
from snaprebuild.snapshots.destination.rebuilt_snapshot import (
    RebuiltSnapshot,
    Report,
    create_snapshot,
    log_class,
    owner_of_snapshot,
)
from snaprebuild.snapshots.receipts.receipt_lines import SetAsideAnnounced
from snaprebuild.storage.local.broker_lock import HeldLock
from snaprebuild.storage.local.fingerprint import fingerprint_at
from snaprebuild.storage.local.whole_file import aside_name, set_aside
from snaprebuild.storage.store import FileIdentity

if TYPE_CHECKING:
    from snaprebuild.snapshots.plan.plan_request import RebuildRequest
    from snaprebuild.snapshots.rebuild.result import PartitionResult

__all__ = ["InPlaceWriter", "NextToBrokerWriter"]

ASIDE_NUMBERS_MAX = 100
"""Snapshots of one offset that may be set aside."""


class InPlaceWriter:
    """Writes the snapshots of one partition into its own directory."""

    def __init__(
        self, result: PartitionResult, request: RebuildRequest, lock: HeldLock | None, report: Report | None, *, dry_run: bool
    ) -> None:
        """Takes what decides.

        Args:
            result: of the partition; findings go there.
            request: what was asked for.
            lock: on the log directory; None in a dry run, and where there is no broker's directory (nothing is written then).
            report: takes the events; None for none.
            dry_run: write nothing.
        """
        self._result = result
        self._directory = result.plan.source.directory
        self._request = request
        self._lock = lock
        self._report = report
        self._dry_run = dry_run

    def write(self, rebuilt: RebuiltSnapshot) -> BoundaryResult:
        """Writes a snapshot if it is due. Several may be written at once.

        Raises:
            AlreadyExistsError: a file of this name appeared meanwhile.
            StorageError: it cannot be written, or what is there cannot be read.
            RefusedError: nothing may be written here any more.
        """
        boundary = rebuilt.boundary
        comparison = rebuilt.existing_comparison
        if comparison is not None and not comparison.proven_wrong:
            same = comparison.status in (ComparisonStatus.EQUAL, ComparisonStatus.EQUAL_AFTER_EXPIRY)
            return rebuilt.result(BoundaryAction.EQUAL if same else BoundaryAction.KEPT, comparison=comparison)
        if comparison is not None and not self._request.set_aside:
            return rebuilt.result(BoundaryAction.KEPT, comparison=comparison)
        plan = self._result.plan
        not_now = (
            self._request.destination.reason_against(self._request, plan.source, boundary.offset, is_log_end=boundary.is_log_end)
            or reason_for_distrust(plan, boundary.offset)
            or (None if plan.keeps_files is None else reason_of_fate(plan.keeps_files))
        )
        if not_now is not None:
            reason = None if comparison is None else comparison.status.reason
            self._result.add_finding(
                "wrong-snapshot",
                Severity.FINDING,
                f"wrong, and not replaced: {not_now.text}",
                boundary.offset,
                reason,
                cause=FindingCause.WRONG_SNAPSHOT,
            )
            return rebuilt.not_written(not_now.text)
        log_class(self._result, rebuilt)
        too_little = reason_against_class(rebuilt.judgement.snapshot_class, allow_unproven=self._request.allow_unproven)
        if too_little is not None:
            return rebuilt.not_written(too_little)
        if self._dry_run:
            return rebuilt.result(BoundaryAction.WOULD_WRITE, comparison=comparison)
        self._check_lock()
        aside = self._set_aside(boundary.offset) if comparison is not None else None
        try:
            create_snapshot(
                rebuilt, owner_of_snapshot(plan, boundary.offset), self._report, lambda: self._check_before_name(boundary.offset)
            )
        except SnaprebuildError:
            if aside is not None:
                self._put_back(boundary.offset, aside)
            raise
        return rebuilt.result(BoundaryAction.WRITTEN, aside=aside, comparison=comparison)

    def _check_lock(self) -> None:
        if self._lock is not None:
            self._lock.verify()

    def _check_before_name(self, offset: int) -> None:
        """Checks that a whole file may get its name.

        Raises:
            RefusedError: it may not.
        """
        self._check_lock()

    def _set_aside(self, offset: int) -> str:
        for number in range(1, ASIDE_NUMBERS_MAX + 1):
            name = aside_name(offset, number)
            if os.path.lexists(self._directory.file_path(name)):
                continue
            if self._report is not None:
                existing = fingerprint_at(self._directory.file_path(snapshot_file_name(offset)))
                self._report(SetAsideAnnounced(offset, name, existing))
            with contextlib.suppress(AlreadyExistsError):
                set_aside(self._directory.path, snapshot_file_name(offset), name)
                return name
        raise WriteFailedError(
            f"{ASIDE_NUMBERS_MAX} snapshots of offset {offset} were set aside already", path=self._directory.path
        )

    def _put_back(self, offset: int, aside: str) -> None:
        """The new file could not be written: the old one, wrong as it is, gets its name back, or a finding says where it is."""
        try:
            set_aside(self._directory.path, aside, snapshot_file_name(offset))
        except StorageError as error:
            message = (
                f"was set aside as {aside}, its successor could not be written, and it could not be moved back: {error.message}"
            )
            self._result.add_finding("left-set-aside", Severity.STORAGE, message, offset)


class NextToBrokerWriter(InPlaceWriter):
    """Writes the snapshots of one partition into its own directory while its broker runs, which holds the lock."""

    def _check_before_name(self, offset: int) -> None:
        """A running broker deletes, renames and cuts segments: both that meet at the offset must be what they were when they were read.

        Raises:
            RefusedError: they are not.
        """
        directory = self._directory
        above = bisect.bisect_left(directory.segments, offset, key=lambda each: each.base_offset)
        for segment in directory.segments[above - 1 : above + 1]:
            path = directory.file_path(segment.log.name)
            try:
                is_same = FileIdentity.of(os.lstat(path)) == segment.log.identity
            except OSError as error:
                raise RefusedError(
                    f"{segment.log.name} is gone ({error.strerror}): the log changed during the run", path=directory.path
                ) from error
            if not is_same:
                raise RefusedError(
                    f"{segment.log.name} changed since it was read: the log changed during the run", path=directory.path
                )
