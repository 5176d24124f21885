"""The state of a boundary or a partition on the page, as one word and one colour, for lists, filters and cards."""

from __future__ import annotations

from enum import StrEnum
from functools import cache

from snaprebuild.replay.difference import ComparisonStatus
from snaprebuild.snapshots.scan.scan_result import AtNextStart, SnapshotStatus
from snaprebuild.tier.audit.partition_audit import SnapshotVerdict

__all__ = ["NOT_JUDGED", "PROVEN_RIGHT", "BoundaryTone", "PartitionTone", "boundary_tone"]

PROVEN_RIGHT = frozenset((*(each.value for each in ComparisonStatus if each.is_right), SnapshotVerdict.RIGHT.value))
"""Statuses of a snapshot that a replay proves."""

NOT_JUDGED = frozenset((SnapshotVerdict.UNREACHABLE.value,))
"""Verdicts on snapshots that nobody reads."""

CONSISTENT = SnapshotVerdict.CONSISTENT.value


class BoundaryTone(StrEnum):
    """The state of a boundary, the worst first."""

    WRONG = "wrong"
    """The log proves that the snapshot is wrong, or it does not parse."""
    SUSPECT = "suspect"
    """The snapshot parses, something contradicts it, and no replay settles it."""
    MISSING = "missing"
    """One is needed, and there is none."""
    REMOVED = "removed"
    """The next start of the broker removes it, or writes an empty one."""
    UNVERIFIABLE = "unverifiable"
    """The snapshot was read or compared, and is proven neither right nor wrong."""
    WRITTEN = "written"
    """A run wrote it."""
    QUIET = "quiet"
    """None is needed, or nobody reads it."""
    FINE = "fine"
    """The snapshot is there, and nothing contradicts it."""


class PartitionTone(StrEnum):
    """The worst of a partition."""

    WRONG = "wrong"
    """A fate of the next start, a wrong snapshot, or a finding with another exit code than 1."""
    MISSING = "missing"
    """A missing snapshot, or segments that cannot be uploaded."""
    CONCERN = "concern"
    """A suspect snapshot, another finding, or something that was not read."""
    UNKNOWN = "unknown"
    """A snapshot that is proven neither right nor wrong. That is no finding."""
    FINE = "fine"
    """Nothing was found."""


@cache
def boundary_tone(
    state: str | None, status: str | None, at_next_start: str | None, *, is_written: bool, proven_wrong: bool
) -> BoundaryTone:
    """The state of a boundary by the facts of all documents. A page has very many boundaries and few kinds of them.

    Args:
        state: by ``scan``; None without one.
        status: of the comparison of ``verify``, or the verdict of an audit; None without one.
        at_next_start: by ``scan``, if it is not what is there now; else None.
        is_written: a run wrote or announced it.
        proven_wrong: a document proves the snapshot wrong.
    """
    if proven_wrong:
        return BoundaryTone.WRONG
    if state in (SnapshotStatus.MISSING, SnapshotStatus.IRREGULAR):
        return BoundaryTone.MISSING
    if is_suspect(state, status):
        return BoundaryTone.SUSPECT
    if at_next_start in (AtNextStart.REMOVED, AtNextStart.EMPTY):
        return BoundaryTone.REMOVED
    if state == SnapshotStatus.UNREADABLE:
        return BoundaryTone.UNVERIFIABLE
    if status is not None and status not in PROVEN_RIGHT and status not in NOT_JUDGED and status != CONSISTENT:
        return BoundaryTone.UNVERIFIABLE
    if is_written:
        return BoundaryTone.WRITTEN
    if state in (SnapshotStatus.NOT_DUE, SnapshotStatus.REGENERATED) or status in NOT_JUDGED:
        return BoundaryTone.QUIET
    return BoundaryTone.FINE


def is_suspect(state: str | None, status: str | None) -> bool:
    """Suspect to a scan or an audit, and not proven right by a replay."""
    return "suspect" in (state, status) and status not in PROVEN_RIGHT
