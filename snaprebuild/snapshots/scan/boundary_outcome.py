"""What becomes of the snapshot at a boundary: at the next start of the broker, and in the upload."""

from __future__ import annotations

from snaprebuild.replay.broker_start import SnapshotOrigin
from snaprebuild.snapshots.scan.result import AtNextStart, BoundaryScan, SnapshotStatus
from snaprebuild.snapshots.scan.upload_preflight import Blocker

__all__ = ["at_next_start", "goes_up_wrong", "snapshot_blocker"]

_AFTER_START = {
    SnapshotOrigin.KEPT: AtNextStart.KEPT,
    SnapshotOrigin.EMPTY: AtNextStart.EMPTY,
    SnapshotOrigin.REBUILT: AtNextStart.REBUILT,
}


def at_next_start(origin: SnapshotOrigin | None, had_file: bool) -> AtNextStart:
    """What the next start leaves at a boundary.

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
