"""What rebuilt snapshots are handed to; ``write_in_place`` and ``write_out`` are the two ways to write them."""

from __future__ import annotations

import bisect
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from formats.partition.file_names import snapshot_file_name, snapshot_temporary_file_name
from formats.partition.producer_snapshot import write_entries
from snaprebuild.errors import SnaprebuildError, StorageError
from snaprebuild.findings import Finding, Severity
from snaprebuild.replay.classes import Judgement, SnapshotClass
from snaprebuild.replay.difference import Comparison
from snaprebuild.snapshots.plan.plan_model import BoundaryPlan, PartitionPlan
from snaprebuild.snapshots.rebuild.result import REFUSED, BoundaryResult, PartitionResult
from snaprebuild.snapshots.receipts.receipt import ReceiptSink
from snaprebuild.storage.local.fingerprint import Fingerprint
from snaprebuild.storage.local.whole_file import remove_second_name
from snaprebuild.storage.partition_dir import ListedFile
from snaprebuild.storage.store import Ownership, Store, is_object

__all__ = [
    "RebuiltSnapshot",
    "SnapshotWriter",
    "create_snapshot",
    "owner_of_snapshot",
    "remove_other_name",
    "segment_of_snapshot",
    "tell_class",
    "too_little_proven",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RebuiltSnapshot:
    """What the replay gave for a wanted boundary.

    Attributes:
        wanted: the boundary.
        target: directory that the snapshot goes to.
        store: that holds it.
        entries: of ``ENTRY_DTYPE``, by producer id.
        judgement: class and reasons.
        found: the snapshot that stands at this boundary in the partition, beside the replay; None without one.
    """

    wanted: BoundaryPlan
    target: str
    store: Store
    entries: np.ndarray
    judgement: Judgement
    found: Comparison | None

    @property
    def path(self) -> str:
        """Where it goes."""
        return os.path.join(self.target, snapshot_file_name(self.wanted.offset))

    def data(self) -> bytes:
        """Its bytes."""
        return write_entries(self.entries)

    def not_written(self, why: str, action: str = REFUSED) -> BoundaryResult:
        """The result of one that is not written: ``refused`` or ``failed``."""
        reasons = (why, *self.judgement.reasons)
        return BoundaryResult(
            self.wanted.offset,
            self.wanted.is_log_end,
            action,
            self.judgement.snapshot_class,
            reasons,
            len(self.entries),
        )

    def result(self, action: str, *, aside: str | None = None, comparison: Comparison | None = None) -> BoundaryResult:
        """The result of one that is there, or is to be."""
        return BoundaryResult(
            self.wanted.offset,
            self.wanted.is_log_end,
            action,
            self.judgement.snapshot_class,
            self.judgement.reasons,
            len(self.entries),
            self.path,
            aside,
            comparison,
        )


class SnapshotWriter(Protocol):
    """Writes the snapshots of one partition. Several are written at once, each by a call of its own."""

    def write(self, rebuilt: RebuiltSnapshot) -> BoundaryResult:
        """Gives a rebuilt snapshot its name where that is due, and tells what became of it.

        Raises:
            AlreadyExistsError: a file of this name appeared meanwhile.
            StorageError: it cannot be written, or what is there cannot be read.
            RefusedError: nothing may be written here any more.
        """
        ...


def tell_class(result: PartitionResult, rebuilt: RebuiltSnapshot) -> None:
    """Logs the class of a snapshot that is to be written; one that proves too little is a finding."""
    wanted, judgement = rebuilt.wanted, rebuilt.judgement
    klass, reasons = judgement.snapshot_class, "; ".join(judgement.reasons)
    log.info("%s at %d: %s: %s", result.plan.source.directory.path, wanted.offset, klass.value, reasons)
    if not klass.may_go_in_place:
        code = f"{klass.value.lower()}-boundary"
        result.say(code, Severity.FINDING, "; ".join(judgement.reasons[:3]), wanted.offset)


def too_little_proven(rebuilt: RebuiltSnapshot, *, allow_unproven: bool) -> str | None:
    """Why its class keeps a snapshot from log directories, or None."""
    klass = rebuilt.judgement.snapshot_class
    if klass is SnapshotClass.UNSOUND:
        return "an UNSOUND snapshot is never written into a log directory"
    if klass is SnapshotClass.UNPROVEN and not allow_unproven:
        return "an UNPROVEN snapshot is written with --allow-unproven only"
    return None


def segment_of_snapshot(partition: PartitionPlan, offset: int) -> ListedFile:
    """The segment that ends at an offset."""
    segments = partition.source.directory.segments
    return segments[max(bisect.bisect_left(segments, offset, key=lambda each: each.base_offset) - 1, 0)].log


def owner_of_snapshot(partition: PartitionPlan, offset: int) -> Ownership:
    """Owner, group and mode of the segment that ends at an offset."""
    return segment_of_snapshot(partition, offset).ownership


def create_snapshot(
    rebuilt: RebuiltSnapshot,
    owner: Ownership | None,
    partition: PartitionPlan,
    receipt: ReceiptSink | None,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Writes the file, which stands in the receipt before it has its name.

    Args:
        rebuilt: what is written.
        owner: owner, group and mode; None for the process.
        partition: that it belongs to.
        receipt: is told of it.
        check: called before it gets its name; what it raises leaves nothing behind.

    Raises:
        AlreadyExistsError: the name is taken.
        StorageError: as ``Store.create``, or the receipt cannot be written.
    """
    offset, data = rebuilt.wanted.offset, rebuilt.data()

    def announce(mtime_ns: int) -> None:
        check()
        if receipt is not None:
            made = Fingerprint.of(data, mtime_ns)
            receipt.announce(partition, offset, rebuilt.judgement.snapshot_class.value, len(rebuilt.entries), made)

    try:
        rebuilt.store.create(
            rebuilt.target,
            snapshot_file_name(offset),
            data,
            owner=owner,
            temporary_name=snapshot_temporary_file_name(offset),
            before_name=announce,
        )
    except SnaprebuildError as error:
        if receipt is not None:
            receipt.settle(partition, offset, error)
        raise
    if receipt is not None:
        receipt.settle(partition, offset)


def remove_other_name(result: PartitionResult, offset: int) -> None:
    """Removes the temporary name that a killed run left to a whole snapshot. It harms nobody, so that it is no failure where it stays."""
    name, target = snapshot_temporary_file_name(offset), result.plan.target
    if is_object(target):
        return
    try:
        if remove_second_name(target, snapshot_file_name(offset), name):
            log.info("%s: %s was a second name of a whole snapshot, left by a run that was killed: removed", target, name)
    except StorageError as error:
        message = f"{name} is a second name of a whole snapshot, left by a run that was killed, and stays: {error.message}"
        result.findings.append(Finding("left-over-temporary", Severity.NOTE, target, message, offset))
