"""Rebuilt snapshots, and how each becomes a file: announced, then named."""

from __future__ import annotations

import bisect
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from formats.partition.file_names import snapshot_file_name, snapshot_temporary_file_name
from formats.partition.producer_snapshot import write_entries
from snaprebuild.errors import AlreadyExistsError, BusyError, SnaprebuildError, StorageError
from snaprebuild.findings import Finding, Severity
from snaprebuild.replay.classes import Judgement
from snaprebuild.replay.difference import Comparison
from snaprebuild.snapshots.destination.boundary_result import BoundaryAction, BoundaryResult
from snaprebuild.snapshots.receipts.receipt_lines import WriteAnnounced, WriteEvent, WriteSettled
from snaprebuild.storage.local.fingerprint import Fingerprint
from snaprebuild.storage.local.whole_file import remove_second_name
from snaprebuild.storage.partition_dir import ListedFile
from snaprebuild.storage.store import Ownership, is_object
from snaprebuild.storage.store_path import StorePath

if TYPE_CHECKING:
    from snaprebuild.snapshots.plan.plan_model import BoundaryPlan, PartitionPlan
    from snaprebuild.snapshots.rebuild.rebuild_result import PartitionResult

__all__ = [
    "RebuiltSnapshot",
    "Report",
    "create_or_wait",
    "create_snapshot",
    "log_class",
    "owner_of_snapshot",
    "remove_other_name",
    "segment_of_snapshot",
]

log = logging.getLogger(__name__)

BUSY_SECONDS_MAX = 30.0
"""How long a file is waited for that another run writes into the same ``--out``: a large one on a slow device takes seconds."""

BUSY_STEP_SECONDS = 0.05

Report = Callable[[WriteEvent], None]
"""Takes an event about a file of the partition. An announcement that it cannot record raises, and then the file gets no name."""


class RebuiltSnapshot(msgspec.Struct, frozen=True):
    """The state at a boundary, as a file to write.

    Attributes:
        target: directory that it goes to.
        entries: of ``ENTRY_DTYPE``, by producer id.
        existing_comparison: of the snapshot that is at this boundary in the partition; None without one.
        set_aside_name: of that snapshot, if an earlier attempt of the task has moved it aside.
    """

    boundary: BoundaryPlan
    target: StorePath
    entries: np.ndarray
    judgement: Judgement
    existing_comparison: Comparison | None
    set_aside_name: str | None = None

    @property
    def file(self) -> StorePath:
        """Where it goes."""
        return self.target.below(snapshot_file_name(self.boundary.offset))

    @property
    def path(self) -> str:
        """Path of the file."""
        return self.file.path

    def data(self) -> bytes:
        """The bytes of the snapshot file."""
        return write_entries(self.entries)

    def announcement(self, file: Fingerprint) -> WriteAnnounced:
        """The event before ``file`` gets its name."""
        return WriteAnnounced(self.boundary.offset, self.judgement.snapshot_class, len(self.entries), file)

    def not_written(self, reason: str, action: BoundaryAction = BoundaryAction.REFUSED) -> BoundaryResult:
        """The result of one that is not written: ``refused`` or ``failed``."""
        reasons = (reason, *self.judgement.reasons)
        return BoundaryResult(
            self.boundary.offset,
            self.boundary.is_log_end,
            action,
            self.judgement.snapshot_class,
            reasons,
            len(self.entries),
        )

    def result(self, action: BoundaryAction, *, aside: str | None = None, comparison: Comparison | None = None) -> BoundaryResult:
        """The result of one that is there, or would be."""
        return BoundaryResult(
            offset=self.boundary.offset,
            is_log_end=self.boundary.is_log_end,
            action=action,
            snapshot_class=self.judgement.snapshot_class,
            reasons=self.judgement.reasons,
            entries=len(self.entries),
            path=self.path,
            set_aside_name=aside,
            comparison=comparison,
        )


def log_class(result: PartitionResult, rebuilt: RebuiltSnapshot) -> None:
    """Logs the class of a snapshot before it is written. A class with too little proof is a finding."""
    boundary = rebuilt.boundary
    judgement = rebuilt.judgement
    klass = judgement.snapshot_class
    reasons = "; ".join(judgement.reasons)
    log.info("%s at %d: %s: %s", result.path, boundary.offset, klass.value, reasons)
    if not klass.is_allowed_in_place:
        code = f"{klass.value.lower()}-boundary"
        result.add_finding(code, Severity.FINDING, "; ".join(judgement.reasons[:3]), boundary.offset)


def segment_of_snapshot(partition: PartitionPlan, offset: int) -> ListedFile:
    """The segment that ends at an offset."""
    segments = partition.source.directory.segments
    return segments[max(bisect.bisect_left(segments, offset, key=lambda each: each.base_offset) - 1, 0)].log


def owner_of_snapshot(partition: PartitionPlan, offset: int) -> Ownership:
    """Owner, group and mode of the segment that ends at an offset."""
    return segment_of_snapshot(partition, offset).ownership


def create_snapshot(
    rebuilt: RebuiltSnapshot, owner: Ownership | None, report: Report | None, check: Callable[[], None] = lambda: None
) -> None:
    """Writes the file. It is announced before it has its name.

    Args:
        rebuilt: what is written.
        owner: owner, group and mode; None for the process.
        report: takes the events; None for none.
        check: called before it gets its name; what it raises leaves nothing in place.

    Raises:
        AlreadyExistsError: the name is taken.
        StorageError: as ``Store.create``, or the receipt cannot be written.
    """
    offset = rebuilt.boundary.offset
    data = rebuilt.data()
    announced = False

    def announce(modified_ns: int) -> None:
        nonlocal announced
        check()
        if report is not None:
            report(rebuilt.announcement(Fingerprint.of(data, modified_ns)))
            announced = True

    try:
        rebuilt.file.create(
            data,
            owner=owner,
            temporary_name=snapshot_temporary_file_name(offset),
            before_name=announce,
        )
    except SnaprebuildError as error:
        if report is not None and announced:  # what another attempt at the same file announced is not settled by this one
            report(WriteSettled(offset, error))
        raise
    if report is not None:
        report(WriteSettled(offset))


def create_or_wait(create: Callable[[], None]) -> bool:
    """Creates a file. If another run is writing it, waits for that: most likely it is the same.

    Args:
        create: creates it, as ``Store.create`` does.

    Returns:
        False if its name is taken.

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


def remove_other_name(result: PartitionResult, offset: int) -> None:
    """Removes the temporary name that a killed run left to a whole snapshot. It is harmless, so it is no failure if it stays."""
    name = snapshot_temporary_file_name(offset)
    target = result.plan.target
    if is_object(target):
        return
    try:
        if remove_second_name(target, snapshot_file_name(offset), name):
            log.info("%s: %s was a second name of a whole snapshot, left by a run that was killed: removed", target, name)
    except StorageError as error:
        message = f"{name} is a second name of a whole snapshot, left by a run that was killed, and stays: {error.message}"
        result.findings.append(Finding("left-over-temporary", Severity.NOTE, target, message, offset))
