"""Builds snapshots outside of the log directories (``--stage``), as they would be written in place: whole, synced, with the right owner."""

from __future__ import annotations

import os

from snaprebuild.errors import ReadFailedError, WriteFailedError
from snaprebuild.operations.findings import Severity
from snaprebuild.operations.planned import Request
from snaprebuild.operations.rebuild_result import EQUAL, KEPT, WOULD_WRITE, WRITTEN, BoundaryResult, PartitionResult
from snaprebuild.operations.receipt import ReceiptSink
from snaprebuild.operations.snapshot_writer import (
    RebuiltSnapshot,
    SnapshotWriter,
    create_snapshot,
    owner_of_snapshot,
    tell_class,
    too_little_proven,
)
from snaprebuild.operations.write_out import create_in_turn
from snaprebuild.storage.atomic_file import Ownership
from snaprebuild.storage.durable_directory import make_directories
from snaprebuild.storage.fingerprint import Fingerprint, fingerprint_at

__all__ = ["StageWriter"]


class StageWriter(SnapshotWriter):
    """Writes the snapshots of one partition to its directory below ``--stage``, and tells a list of them what is there."""

    def __init__(self, result: PartitionResult, request: Request, staged: ReceiptSink | None, *, dry_run: bool) -> None:
        """Takes what decides.

        Args:
            result: of the partition; findings go there.
            request: what was asked for.
            staged: gets what is there in the end, also what an earlier run has left.
            dry_run: write nothing.
        """
        self._result = result
        self._request = request
        self._staged = staged
        self._dry_run = dry_run

    def write(self, rebuilt: RebuiltSnapshot) -> BoundaryResult:
        """As ``SnapshotWriter.write``."""
        tell_class(self._result, rebuilt)
        too_little = too_little_proven(rebuilt, allow_unproven=self._request.allow_unproven)
        if too_little is not None:
            return rebuilt.left_out(too_little)
        if self._dry_run:
            return rebuilt.result(WOULD_WRITE)
        plan = self._result.plan
        try:
            make_directories(rebuilt.target)
        except OSError as error:
            raise WriteFailedError(f"cannot be created: {error.strerror}", path=rebuilt.target, errno=error.errno) from error
        owner = owner_of_snapshot(plan, rebuilt.wanted.offset)
        if create_in_turn(lambda: create_snapshot(rebuilt, owner, plan, self._staged)):
            return rebuilt.result(WRITTEN)
        return self._there(rebuilt)

    def _there(self, rebuilt: RebuiltSnapshot) -> BoundaryResult:
        """What an earlier run has left is taken where it has the same bytes, owner and mode."""
        plan, offset = self._result.plan, rebuilt.wanted.offset
        try:
            found = fingerprint_at(rebuilt.path)
            owner = Ownership.of(os.lstat(rebuilt.path))
        except (OSError, ReadFailedError) as error:
            raise ReadFailedError(f"an earlier run left it, and it cannot be read: {error}", path=rebuilt.path) from error
        wanted = Fingerprint.of(rebuilt.data(), found.mtime_ns)
        if found != wanted or owner != owner_of_snapshot(plan, offset):
            message = f"{rebuilt.path} is there and differs: kept, and not staged; stage into another directory"
            self._result.say("different-file", Severity.FINDING, message, offset)
            return rebuilt.result(KEPT)
        if self._staged is not None:
            klass = rebuilt.judgement.snapshot_class.value
            self._staged.announce(plan, offset, klass, len(rebuilt.entries), found)
            self._staged.settle(plan, offset)
        return rebuilt.result(EQUAL)
