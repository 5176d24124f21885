"""Writes snapshots to another place (``--out``): everything that was asked for, and never over what stands there."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from formats.errors import FormatError
from formats.partition.producer_snapshot import read_entries, snapshot_size
from snaprebuild.errors import AlreadyExistsError, BusyError, WriteFailedError
from snaprebuild.findings import Severity
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.window import same_when_loaded
from snaprebuild.snapshots.engine.partition_replay import Clock
from snaprebuild.snapshots.plan.plan_model import Request
from snaprebuild.snapshots.rebuild.result import EQUAL, KEPT, WOULD_WRITE, WRITTEN, BoundaryResult, PartitionResult
from snaprebuild.snapshots.rebuild.writer import RebuiltSnapshot, SnapshotWriter, create_snapshot, remove_other_name, tell_class
from snaprebuild.snapshots.receipts.receipt import ReceiptSink

__all__ = ["OutWriter", "create_in_turn"]

BUSY_SECONDS_MAX = 30.0
"""How long a file is waited for that another run writes into the same ``--out``: a large one on a slow device takes seconds."""

BUSY_STEP_SECONDS = 0.05


class OutWriter(SnapshotWriter):
    """Writes the snapshots of one partition to its directory below ``--out``, which is made when the first one is there."""

    def __init__(
        self, result: PartitionResult, request: Request, clock: Clock, receipt: ReceiptSink | None, *, dry_run: bool
    ) -> None:
        """Takes what decides.

        Args:
            result: of the partition; findings go there.
            request: what was asked for.
            clock: expiry, for comparing with what is there.
            receipt: gets what is written; None leaves none.
            dry_run: write nothing.
        """
        self._result = result
        self._takes_unsound = request.boundaries == "all"
        self._clock = clock
        self._receipt = receipt
        self._dry_run = dry_run
        self._names: frozenset[str] | None = None
        self._names_lock = threading.Lock()

    def write(self, rebuilt: RebuiltSnapshot) -> BoundaryResult:
        """As ``SnapshotWriter.write``."""
        tell_class(self._result, rebuilt)
        if rebuilt.judgement.snapshot_class is SnapshotClass.UNSOUND and not self._takes_unsound:
            return rebuilt.not_written("an UNSOUND snapshot is written with --boundaries all only")
        is_equal = self._is_equal_there(rebuilt) if self._may_be_there(rebuilt) else None
        if is_equal is None:
            if self._dry_run:
                return rebuilt.result(WOULD_WRITE)
            if create_in_turn(lambda: create_snapshot(rebuilt, None, self._result.plan, self._receipt)):
                return rebuilt.result(WRITTEN)
            is_equal = self._is_equal_there(rebuilt)  # another run was faster
            if is_equal is None:
                raise WriteFailedError("the store says that its name is taken, and has nothing there", path=rebuilt.path)
        elif not self._dry_run:
            remove_other_name(self._result, rebuilt.wanted.offset)
        if is_equal:
            return rebuilt.result(EQUAL)
        self._result.say("different-file", Severity.FINDING, f"{rebuilt.path} is there and differs: kept", rebuilt.wanted.offset)
        return rebuilt.result(KEPT)

    def _may_be_there(self, rebuilt: RebuiltSnapshot) -> bool:
        """Of objects one listing tells; one that appears behind it is found when its name turns out to be taken."""
        if rebuilt.store.is_local:
            return True
        with self._names_lock:
            if self._names is None:
                self._names = rebuilt.store.names_in(rebuilt.target)
            return os.path.basename(rebuilt.path) in self._names

    def _is_equal_there(self, rebuilt: RebuiltSnapshot) -> bool | None:
        """Whether the file that is there is equal as a map, after one expiry filter on both sides; None when there is none."""
        # A file that is larger by far is not read to be compared.
        bytes_max = snapshot_size(2 * len(rebuilt.entries) + 1_000_000)
        data = rebuilt.store.read_small(rebuilt.path, bytes_max)
        if data is None:
            return None
        try:
            found = read_entries(data, file=rebuilt.path)
        except FormatError:
            return False
        return same_when_loaded(found, rebuilt.entries, self._clock.as_of_ms, self._clock.expiration_ms)


def create_in_turn(create: Callable[[], None]) -> bool:
    """Creates a file. One that another run writes now is waited for: most likely it is the same.

    Args:
        create: creates it, as ``Store.create`` does.

    Returns:
        False where its name is taken.

    Raises:
        StorageError: as ``create``.
    """
    deadline = time.monotonic() + BUSY_SECONDS_MAX
    while True:
        try:
            create()
        except AlreadyExistsError:
            return False
        except BusyError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(BUSY_STEP_SECONDS)
        else:
            return True
