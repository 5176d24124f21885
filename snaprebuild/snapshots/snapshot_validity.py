"""Whether a snapshot is the right one for a boundary, as the library's door tells it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from snaprebuild.replay.classes import Judgement, SnapshotClass
from snaprebuild.replay.difference import Comparison, SnapshotStatus
from snaprebuild.snapshots.engine.partition_replay import BoundaryState, ReplayPoint

__all__ = ["ValidatedSnapshot", "Validity", "judged"]


class Validity(Enum):
    """What a snapshot is."""

    EQUAL = "equal"
    """The one that belongs there: the log proves it, but for entries that a broker drops when it loads them now."""
    FALSE_EMPTY = "false_empty"
    """Has no entries although the log fixes live ones: whoever starts from it forgets producers and open transactions."""
    MISSING_PRODUCERS = "missing_producers"
    WRONG = "wrong"
    """Holds what the log contradicts: an older state of a producer, or a producer that never was."""
    CORRUPT = "corrupt"
    """Does not parse, or holds what no snapshot of this offset can hold."""
    UNPROVEN = "unproven"
    """Nothing contradicts it, and the log does not prove it."""


@dataclass(frozen=True, slots=True)
class ValidatedSnapshot:
    """What the log says of a snapshot.

    Attributes:
        offset: the boundary that it was held against.
        validity: what it is.
        reasons: why, the first one the most important.
        snapshot_class: of the replay that it was held against (docs/evidence.md); None where that was not needed or did not get there.
        entries: count of producers in it; None where it does not parse.
        expected_entries: by replay; None where there was none.
        costs: what a broker would do that starts from it, for each producer that differs, the certain ones first, at most 1,000.
        bytes_read: of segments, to tell.
        point: where the replay stood, for the next call (``after``); nothing to look into. None where nothing can go on from here.
    """

    offset: int
    validity: Validity
    reasons: tuple[str, ...]
    snapshot_class: SnapshotClass | None = None
    entries: int | None = None
    expected_entries: int | None = None
    costs: tuple[str, ...] = ()
    bytes_read: int = 0
    point: ReplayPoint | None = field(default=None, repr=False, compare=False)


_VALIDITIES = {
    SnapshotStatus.EQUAL: Validity.EQUAL,
    SnapshotStatus.EQUAL_AFTER_EXPIRY: Validity.EQUAL,
    SnapshotStatus.UNVERIFIABLE: Validity.UNPROVEN,
    SnapshotStatus.EXTRA: Validity.WRONG,
    SnapshotStatus.MISSING_ENTRIES: Validity.MISSING_PRODUCERS,
    SnapshotStatus.STALE: Validity.WRONG,
    SnapshotStatus.FALSE_EMPTY: Validity.FALSE_EMPTY,
    SnapshotStatus.CORRUPT: Validity.CORRUPT,
}


def judged(state: BoundaryState, comparison: Comparison, bytes_read: int, point: ReplayPoint | None) -> ValidatedSnapshot:
    """The verdict on a snapshot that was held against the replay at a boundary."""
    return ValidatedSnapshot(
        offset=state.offset,
        validity=_validity(comparison, state.judgement),
        reasons=(comparison.reason, *state.judgement.reasons),
        snapshot_class=state.judgement.snapshot_class,
        entries=comparison.found_entries,
        expected_entries=comparison.expected_entries,
        costs=tuple(f"producer {each.producer_id}: {each.consequence}" for each in comparison.differences),
        bytes_read=bytes_read,
        point=point,
    )


def _validity(comparison: Comparison, judgement: Judgement) -> Validity:
    validity = _VALIDITIES[comparison.status]
    if validity is Validity.EQUAL:
        # Equal to a replay that proves nothing itself.
        trusted = judgement.snapshot_class not in (SnapshotClass.UNPROVEN, SnapshotClass.UNSOUND)
        return Validity.EQUAL if trusted else Validity.UNPROVEN
    return validity if comparison.proven_wrong else Validity.UNPROVEN
