"""The state of a boundary and of its snapshot in a scan, now and after the next start, and whether it keeps a segment from its upload."""

from __future__ import annotations

from snaprebuild.replay.broker_start import SnapshotOrigin
from snaprebuild.snapshots.scan.scan_result import AtNextStart, BoundaryScan, SnapshotStatus
from snaprebuild.snapshots.scan.snapshot_check import ReadOutcome, SnapshotFile
from snaprebuild.snapshots.scan.upload_preflight import Blocker
from snaprebuild.snapshots.source.boundary_needs import LeftOut, reason_not_needed
from snaprebuild.snapshots.source.source import PartitionSource

__all__ = ["at_next_start", "goes_up_wrong", "snapshot_blocker", "state_of_file", "state_without_file"]


def state_of_file(snapshot: SnapshotFile) -> SnapshotStatus:
    """The state of a snapshot that is there, by its content alone."""
    if snapshot.outcome is ReadOutcome.CORRUPT:
        return SnapshotStatus.CORRUPT
    if snapshot.outcome is ReadOutcome.UNREADABLE:
        return SnapshotStatus.UNREADABLE
    if snapshot.suspicions:
        return SnapshotStatus.SUSPECT
    return SnapshotStatus.PRESENT


def state_without_file(partition: PartitionSource, offset: int, *, is_log_end: bool) -> SnapshotStatus:
    """The state of a boundary without a snapshot that needs none from us.

    Args:
        partition: the partition.
        offset: of the boundary.
        is_log_end: it is the log end offset.
    """
    reason = reason_not_needed(partition, offset, is_log_end=is_log_end)
    if reason is not None and reason.kind is not LeftOut.NOT_NEEDED:
        return SnapshotStatus.REGENERATED
    return SnapshotStatus.NOT_DUE


_AFTER_START = {
    SnapshotOrigin.KEPT: AtNextStart.KEPT,
    SnapshotOrigin.EMPTY: AtNextStart.EMPTY,
    SnapshotOrigin.REBUILT: AtNextStart.REBUILT,
}


def at_next_start(origin: SnapshotOrigin | None, had_file: bool) -> AtNextStart:
    """The snapshot that the next start leaves at a boundary.

    Args:
        origin: of the snapshot that is there afterwards; None without one.
        had_file: a snapshot is there now.
    """
    if origin is not None:
        return _AFTER_START[origin]
    return AtNextStart.REMOVED if had_file else AtNextStart.ABSENT


def snapshot_blocker(boundary: BoundaryScan) -> Blocker | None:
    """How the snapshot of a boundary blocks the upload after the broker has started again: only then do files count."""
    if boundary.state is SnapshotStatus.IRREGULAR:
        return Blocker.IRREGULAR_SNAPSHOT
    if boundary.at_next_start is AtNextStart.REMOVED:
        return Blocker.SNAPSHOT_REMOVED_AT_START
    if boundary.state is SnapshotStatus.MISSING and boundary.at_next_start in (None, AtNextStart.ABSENT):
        return Blocker.MISSING_SNAPSHOT
    return None


def goes_up_wrong(boundary: BoundaryScan) -> bool:
    """Whether a snapshot is uploaded from there that does not parse, cannot be true, or was written without a look at the log."""
    if boundary.at_next_start in (AtNextStart.REBUILT, AtNextStart.REMOVED):
        return False
    is_bad = boundary.state in (SnapshotStatus.CORRUPT, SnapshotStatus.SUSPECT)
    return is_bad or boundary.at_next_start is AtNextStart.EMPTY
