"""The verdict on a snapshot that a caller of the library has."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from snaprebuild.replay.classes import Judgement, SnapshotClass
from snaprebuild.replay.difference import Comparison, ComparisonStatus
from snaprebuild.snapshots.engine.partition_replay import BoundaryState, ReplayCheckpoint

__all__ = ["ValidatedSnapshot", "Validity", "judge_snapshot"]


class Validity(Enum):
    """Whether a snapshot is the right one for its boundary."""

    EQUAL = "equal"
    """The one that belongs there: the log proves it, but for entries that a broker drops when it loads them now."""
    FALSE_EMPTY = "false_empty"
    """Has no entries although the log fixes live ones: a broker that starts from it forgets producers and open transactions."""
    MISSING_PRODUCERS = "missing_producers"
    WRONG = "wrong"
    """Holds what the log contradicts: an older state of a producer, or a producer that never was."""
    CORRUPT = "corrupt"
    """Does not parse, or holds what no snapshot of this offset can hold."""
    UNPROVEN = "unproven"
    """Nothing contradicts it, and the log does not prove it."""


@dataclass(frozen=True, slots=True)
class ValidatedSnapshot:
    """A snapshot, compared with the log.

    Attributes:
        offset: the boundary that it was compared at.
        reasons: the most important one first.
        snapshot_class: of the replay (docs/concepts/confidence.md); None if that was not needed or did not get there.
        entries: count of producers in it; None if it does not parse.
        expected_entries: by replay; None without one.
        costs: what a broker would do that starts from it, for each producer that differs, the certain ones first, at most 1,000.
        read_bytes: of segments.
        point: opaque; the next call resumes from it (``after``). None if none can.
    """

    offset: int
    validity: Validity
    reasons: tuple[str, ...]
    snapshot_class: SnapshotClass | None = None
    entries: int | None = None
    expected_entries: int | None = None
    costs: tuple[str, ...] = ()
    read_bytes: int = 0
    point: ReplayCheckpoint | None = field(default=None, repr=False, compare=False)


VALIDITIES = {
    ComparisonStatus.EQUAL: Validity.EQUAL,
    ComparisonStatus.EQUAL_AFTER_EXPIRY: Validity.EQUAL,
    ComparisonStatus.UNVERIFIABLE: Validity.UNPROVEN,
    ComparisonStatus.EXTRA: Validity.WRONG,
    ComparisonStatus.MISSING_ENTRIES: Validity.MISSING_PRODUCERS,
    ComparisonStatus.STALE: Validity.WRONG,
    ComparisonStatus.FALSE_EMPTY: Validity.FALSE_EMPTY,
    ComparisonStatus.CORRUPT: Validity.CORRUPT,
}


def judge_snapshot(
    state: BoundaryState, comparison: Comparison, read_bytes: int, point: ReplayCheckpoint | None
) -> ValidatedSnapshot:
    """The verdict on a snapshot that was compared with the replay at a boundary."""
    return ValidatedSnapshot(
        offset=state.offset,
        validity=_validity(comparison, state.judgement),
        reasons=(comparison.reason, *state.judgement.reasons),
        snapshot_class=state.judgement.snapshot_class,
        entries=comparison.found_entries,
        expected_entries=comparison.expected_entries,
        costs=tuple(f"producer {each.producer_id}: {each.consequence}" for each in comparison.differences),
        read_bytes=read_bytes,
        point=point,
    )


def _validity(comparison: Comparison, judgement: Judgement) -> Validity:
    validity = VALIDITIES[comparison.status]
    if validity is Validity.EQUAL:
        # Equal to a replay that proves nothing itself.
        return Validity.EQUAL if judgement.snapshot_class.is_allowed_in_place else Validity.UNPROVEN
    return validity if comparison.proven_wrong else Validity.UNPROVEN
