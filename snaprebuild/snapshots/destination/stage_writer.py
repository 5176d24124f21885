"""Builds snapshots outside of the log directories (``stage``), as they would be written in place: whole, synced, with the right owner."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING

from snaprebuild.errors import ReadFailedError, WriteFailedError
from snaprebuild.snapshots.destination.boundary_result import BoundaryAction, BoundaryResult
from snaprebuild.snapshots.destination.placement_rules import reason_against_class
from snaprebuild.snapshots.destination.rebuilt_snapshot import (
    RebuiltSnapshot,
    Report,
    create_or_wait,
    create_snapshot,
    log_class,
    owner_of_snapshot,
)
from snaprebuild.snapshots.receipts.receipt_lines import WriteSettled
from snaprebuild.storage.local.directories import make_directories
from snaprebuild.storage.local.fingerprint import Fingerprint, fingerprint_at
from snaprebuild.storage.local.whole_file import remove_file
from snaprebuild.storage.store import Ownership

if TYPE_CHECKING:
    from snaprebuild.snapshots.plan.plan_request import RebuildRequest
    from snaprebuild.snapshots.rebuild.result import PartitionResult

__all__ = ["StageWriter"]

log = logging.getLogger(__name__)

ROUNDS_MAX = 3
"""One run at a time stages into a directory: a file is removed once, unless another program makes it again."""


class StageWriter:
    """Writes the snapshots of one partition to its directory below ``--to``, and lists them for the staged plan.

    A snapshot that an earlier run staged at the same boundary is used again if it is equal, else replaced.
    """

    def __init__(self, result: PartitionResult, request: RebuildRequest, report: Report | None, *, dry_run: bool) -> None:
        """Takes what decides.

        Args:
            result: of the partition; findings go there.
            request: what was asked for.
            report: takes the events, also of what an earlier run has left.
            dry_run: write nothing.
        """
        self._result = result
        self._request = request
        self._report = report
        self._dry_run = dry_run

    def write(self, rebuilt: RebuiltSnapshot) -> BoundaryResult:
        """Writes a snapshot. Several may be written at once.

        Raises:
            StorageError: it cannot be written.
        """
        log_class(self._result, rebuilt)
        too_little = reason_against_class(rebuilt.judgement.snapshot_class, allow_unproven=self._request.allow_unproven)
        if too_little is not None:
            return rebuilt.not_written(too_little)
        if self._dry_run:
            return rebuilt.result(BoundaryAction.WOULD_WRITE)
        owner = owner_of_snapshot(self._result.plan, rebuilt.boundary.offset)
        try:
            make_directories(rebuilt.target.path, owner)
        except OSError as error:
            raise WriteFailedError(f"cannot be created: {error.strerror}", path=rebuilt.target.path, errno=error.errno) from error
        for _ in range(ROUNDS_MAX):
            if create_or_wait(lambda: create_snapshot(rebuilt, owner, self._report)):
                return rebuilt.result(BoundaryAction.WRITTEN)
            if self._is_equal_there(rebuilt, owner):
                return rebuilt.result(BoundaryAction.EQUAL)
            # Removed, not overwritten: an install may have linked the file into a log directory. If the run is killed now, the earlier plan
            # names a file that is gone, and no install takes another one for it.
            with contextlib.suppress(FileNotFoundError):
                remove_file(rebuilt.target.path, os.path.basename(rebuilt.path), lambda _fd: True)
        raise WriteFailedError("another program keeps making this file", path=rebuilt.path)

    def _is_equal_there(self, rebuilt: RebuiltSnapshot, owner: Ownership) -> bool:
        """Whether the file that an earlier run left has the same bytes, owner and mode. It is staged then."""
        try:
            existing = fingerprint_at(rebuilt.path)
            if existing != Fingerprint.of(rebuilt.data(), existing.modified_ns) or Ownership.of(os.lstat(rebuilt.path)) != owner:
                return False
        except (OSError, ReadFailedError) as error:
            log.info("%s: an earlier run left it, and it cannot be read: %s", rebuilt.path, error)
            return False
        if self._report is not None:
            self._report(rebuilt.announcement(existing))
            self._report(WriteSettled(rebuilt.boundary.offset))
        return True
