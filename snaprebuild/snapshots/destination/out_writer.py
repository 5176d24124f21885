"""Writes snapshots below a directory that no broker reads (``--out``)."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from formats.errors import FormatError
from formats.partition.producer_snapshot import read_entries, snapshot_size
from snaprebuild.errors import WriteFailedError
from snaprebuild.findings import Severity
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.window import Clock, same_when_loaded
from snaprebuild.snapshots.destination.boundary_result import BoundaryAction, BoundaryResult
from snaprebuild.snapshots.destination.rebuilt_snapshot import (
    RebuiltSnapshot,
    Report,
    create_or_wait,
    create_snapshot,
    log_class,
    remove_other_name,
)

if TYPE_CHECKING:
    from snaprebuild.snapshots.plan.plan_request import RebuildRequest
    from snaprebuild.snapshots.rebuild.result import PartitionResult

__all__ = ["OutWriter"]


class OutWriter:
    """Writes the snapshots of one partition to its directory below ``--out``, which is made when the first one is there."""

    def __init__(
        self, result: PartitionResult, request: RebuildRequest, clock: Clock, report: Report | None, *, dry_run: bool
    ) -> None:
        """Takes what decides.

        Args:
            result: of the partition; findings go there.
            request: what was asked for.
            clock: expiry, for comparing with what is there.
            report: takes the events; None for none.
            dry_run: write nothing.
        """
        self._result = result
        self._takes_unsound = request.boundaries == "all"
        self._clock = clock
        self._report = report
        self._dry_run = dry_run
        self._names: frozenset[str] | None = None
        self._names_lock = threading.Lock()

    def write(self, rebuilt: RebuiltSnapshot) -> BoundaryResult:
        """Writes a snapshot unless its name is taken. Several may be written at once.

        Raises:
            StorageError: it cannot be written, or what is there cannot be read.
        """
        log_class(self._result, rebuilt)
        if rebuilt.judgement.snapshot_class is SnapshotClass.UNSOUND and not self._takes_unsound:
            return rebuilt.not_written("an UNSOUND snapshot is written with --boundaries all only")
        is_equal = self._is_equal_there(rebuilt) if self._may_be_there(rebuilt) else None
        if is_equal is None:
            if self._dry_run:
                return rebuilt.result(BoundaryAction.WOULD_WRITE)
            if create_or_wait(lambda: create_snapshot(rebuilt, None, self._report)):
                return rebuilt.result(BoundaryAction.WRITTEN)
            is_equal = self._is_equal_there(rebuilt)  # another run was faster
            if is_equal is None:
                raise WriteFailedError("the store reports that its name is taken, and has no such object", path=rebuilt.path)
        elif not self._dry_run:
            remove_other_name(self._result, rebuilt.boundary.offset)
        if is_equal:
            return rebuilt.result(BoundaryAction.EQUAL)
        self._result.add_finding(
            "different-file", Severity.FINDING, f"{rebuilt.path} is there and differs: kept", rebuilt.boundary.offset
        )
        return rebuilt.result(BoundaryAction.KEPT)

    def _may_be_there(self, rebuilt: RebuiltSnapshot) -> bool:
        """For objects, one listing is made. One that appears after it is found when its name turns out to be taken."""
        if rebuilt.target.is_local:
            return True
        with self._names_lock:
            if self._names is None:
                self._names = rebuilt.target.names()
            return os.path.basename(rebuilt.path) in self._names

    def _is_equal_there(self, rebuilt: RebuiltSnapshot) -> bool | None:
        """Whether the file that is there is equal as a map, after one expiry filter on both sides; None when there is none."""
        # A file that is larger by far is not read to be compared.
        bytes_max = snapshot_size(2 * len(rebuilt.entries) + 1_000_000)
        data = rebuilt.file.read_small(bytes_max)
        if data is None:
            return None
        try:
            existing = read_entries(data, file=rebuilt.path)
        except FormatError:
            return False
        return same_when_loaded(existing, rebuilt.entries, self._clock.as_of_ms, self._clock.expiration_ms)
