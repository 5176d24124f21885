"""Writes snapshots into the log directory: only where a broker would keep them, and never over what stands there."""

from __future__ import annotations

import bisect
import contextlib
import os

from formats.file_names import snapshot_file_name
from snaprebuild.errors import AlreadyExistsError, SnaprebuildError, StorageError, WriteFailedError
from snaprebuild.operations.due_in_place import not_due_in_place, not_trusted
from snaprebuild.operations.findings import Severity
from snaprebuild.operations.planned import Request
from snaprebuild.operations.rebuild_result import EQUAL, KEPT, WOULD_WRITE, WRITTEN, BoundaryResult, PartitionResult
from snaprebuild.operations.receipt import ReceiptSink
from snaprebuild.operations.snapshot_writer import RebuiltSnapshot, SnapshotWriter, create_snapshot, tell_class
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import SnapshotStatus
from snaprebuild.storage.broker_lock import HeldLock
from snaprebuild.storage.fingerprint import fingerprint_at
from snaprebuild.storage.whole_file import aside_name, set_aside

__all__ = ["InPlaceWriter"]

ASIDE_NUMBERS_MAX = 100
"""Snapshots of one offset that are set aside side by side."""


class InPlaceWriter(SnapshotWriter):
    """Writes the snapshots of one partition into its own directory."""

    def __init__(
        self, result: PartitionResult, request: Request, lock: HeldLock | None, receipt: ReceiptSink | None, *, dry_run: bool
    ) -> None:
        """Takes what decides.

        Args:
            result: of the partition; findings go there.
            request: what was asked for.
            lock: on the log directory; None in a dry run, and where there is no broker's directory (nothing is written then).
            receipt: gets what is written; None leaves none.
            dry_run: write nothing.
        """
        self._result = result
        self._directory = result.plan.source.directory
        self._request = request
        self._lock = lock
        self._receipt = receipt
        self._dry_run = dry_run

    def write(self, rebuilt: RebuiltSnapshot) -> BoundaryResult:
        """As ``SnapshotWriter.write``."""
        wanted, comparison = rebuilt.wanted, rebuilt.found
        if comparison is not None and not comparison.proven_wrong:
            same = comparison.status in (SnapshotStatus.EQUAL, SnapshotStatus.EQUAL_AFTER_EXPIRY)
            return rebuilt.result(EQUAL if same else KEPT, comparison=comparison)
        if comparison is not None and not self._request.set_aside:
            return rebuilt.result(KEPT, comparison=comparison)
        plan = self._result.plan
        not_due = not_due_in_place(plan.source, wanted.offset, is_log_end=wanted.is_log_end) or not_trusted(plan, wanted.offset)
        if not_due is not None:
            reason = None if comparison is None else comparison.status.reason
            self._result.say("wrong-snapshot", Severity.FINDING, f"wrong, and not replaced: {not_due}", wanted.offset, reason)
            return rebuilt.left_out(not_due)
        tell_class(self._result, rebuilt)
        klass = rebuilt.judgement.snapshot_class
        if klass is SnapshotClass.UNSOUND:
            return rebuilt.left_out("an UNSOUND snapshot is never written into a log directory")
        if klass is SnapshotClass.UNPROVEN and not self._request.allow_unproven:
            return rebuilt.left_out("an UNPROVEN snapshot is written with --allow-unproven only")
        if self._dry_run:
            return rebuilt.result(WOULD_WRITE, comparison=comparison)
        if self._lock is not None:
            self._lock.verify()
        aside = self._set_aside(wanted.offset) if comparison is not None else None
        segments = self._directory.segments
        segment = segments[max(bisect.bisect_left(segments, wanted.offset, key=lambda each: each.base_offset) - 1, 0)]
        try:
            create_snapshot(rebuilt, segment.log.ownership, plan, self._receipt)
        except SnaprebuildError:
            if aside is not None:
                self._put_back(wanted.offset, aside)
            raise
        return rebuilt.result(WRITTEN, aside=aside, comparison=comparison)

    def _set_aside(self, offset: int) -> str:
        for number in range(1, ASIDE_NUMBERS_MAX + 1):
            name = aside_name(offset, number)
            if os.path.lexists(self._directory.file_path(name)):
                continue
            if self._receipt is not None:
                found = fingerprint_at(self._directory.file_path(snapshot_file_name(offset)))
                self._receipt.announce_set_aside(self._result.plan, offset, name, found)
            with contextlib.suppress(AlreadyExistsError):
                set_aside(self._directory.path, snapshot_file_name(offset), name)
                return name
        raise WriteFailedError(
            f"{ASIDE_NUMBERS_MAX} snapshots of offset {offset} were set aside already", path=self._directory.path
        )

    def _put_back(self, offset: int, aside: str) -> None:
        """The new file could not be written: the old one, wrong as it is, returns to its name, or the finding says where it lies."""
        try:
            set_aside(self._directory.path, aside, snapshot_file_name(offset))
        except StorageError as error:
            message = (
                f"was set aside as {aside}, its successor could not be written, and it could not be moved back: {error.message}"
            )
            self._result.say("left-set-aside", Severity.STORAGE, message, offset)
