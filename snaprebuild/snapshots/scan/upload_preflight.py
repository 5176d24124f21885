"""Preflight of the upload to tiered storage: each closed segment with what will become of it, and what a broker tries next.

Source: ``RemoteLogManager.RLMCopyTask.copyLogSegmentsToRemote`` and ``candidateLogSegments``: a leader begins behind what it uploaded last,
at the log start offset if it uploaded nothing, and takes each segment whose successor begins at or below the last stable offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, pairwise

from snaprebuild.snapshots.scan.copy_attempt import CopyOutcome, copy_outcomes
from snaprebuild.snapshots.scan.snapshot_check import CheckedSnapshot
from snaprebuild.snapshots.scan.upload_blockers import BlockedSegment, Blocker
from snaprebuild.storage.partition_dir import SegmentFiles

__all__ = ["NextAttempt", "Preflight", "SegmentRun", "StableBound", "UploadState", "preflight", "stable_bound"]

NOTHING_UPLOADED = "nothing of the partition was uploaded before"
ALL_BELOW_UPLOADED = "remote storage is on: everything below was uploaded before, and this was not"
BELOW_STABLE = "it lies below the last stable offset, which these files do not tell"


class UploadState(StrEnum):
    """What becomes of a closed segment once its broker was started again."""

    UPLOADABLE = "uploadable"
    BAD_SNAPSHOT = "uploadable-with-bad-snapshot"
    """Nothing stops it, and with it goes a snapshot that does not parse, cannot be true, or was written empty without a look at the log."""
    BLOCKED = "blocked"
    BEHIND_BLOCKED = "behind-blocked"
    """Nothing is wrong with it, and one before it is blocked: segments go up in order."""
    WAITS = "waits"
    """A transaction is open below its end, or it is not replicated yet."""
    NOT_KNOWN = "not-known"
    """Nothing is wrong with it; whether it lies below the last stable offset is not known."""


@dataclass(frozen=True, slots=True)
class StableBound:
    """What is known of the last stable offset.

    Attributes:
        exact: the offset, or None.
        at_least: it is not below this one.
        at_most: it is not above this one, after a clean stop: the high watermark, or where a transaction is open; None where nothing tells.
        known_by: what tells the offset, or its lower bound; None where nothing does.
    """

    exact: int | None
    at_least: int
    at_most: int | None
    known_by: str | None

    @property
    def ceiling(self) -> int | None:
        """Nothing above it is uploaded; None where that is not known."""
        return self.at_most if self.exact is None else self.exact


@dataclass(frozen=True, slots=True)
class SegmentRun:
    """Closed segments that follow one another and share their fate.

    Attributes:
        base_offset: of the first; ``next_base_offset`` behind the last.
        segments: count, with their ``size_bytes``.
        state: what becomes of them.
        blockers: every reason, where they are blocked.
    """

    base_offset: int
    next_base_offset: int
    segments: int
    size_bytes: int
    state: UploadState
    blockers: tuple[Blocker, ...]


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """The first segment that a leader tries in vain, once it was started with the files that are there now, or else tries first.

    Attributes:
        base_offset, next_base_offset, size_bytes: of the segment.
        uploads_before: segments that it uploads before it comes to this one.
        assumes: what these files do not tell.
        outcomes: what happens, by version.
    """

    base_offset: int
    next_base_offset: int
    size_bytes: int
    uploads_before: int
    assumes: tuple[str, ...]
    outcomes: tuple[CopyOutcome, ...]

    @property
    def fails(self) -> bool:
        """Whether every version throws."""
        return all(outcome.exception is not None for outcome in self.outcomes)


@dataclass(frozen=True, slots=True)
class Preflight:
    """What the upload comes to.

    Attributes:
        bound: what is known of the last stable offset.
        runs: all closed segments above the log start offset, ascending.
        next_attempt: None where there is nothing to try.
    """

    bound: StableBound
    runs: tuple[SegmentRun, ...]
    next_attempt: NextAttempt | None


def stable_bound(
    checked: Sequence[CheckedSnapshot], log_end: int | None, high_watermark: int | None, *, is_clean: bool
) -> StableBound:
    """What the snapshots tell of the last stable offset.

    It is exact after a clean stop with everything replicated, where the snapshot at the log end names every open transaction. Else it is
    not below where the newest snapshot at or below the high watermark saw it: a transaction that ended below that snapshot has its marker
    there, so that it is replicated; and it never goes back. A transaction whose marker is not replicated yet holds it, too
    (``ProducerStateManager.firstUnstableOffset``), so that nothing more is known.

    Args:
        checked: the snapshots.
        log_end: log end offset, as far as it is known.
        high_watermark: of ``replication-offset-checkpoint``; None where it has none.
        is_clean: the broker was stopped cleanly, so that the checkpoint is not older than the stop.
    """
    trusted = [each for each in checked if each.parses and not each.why]
    at_end = next((_stable_at(each) for each in trusted if is_clean and each.offset == log_end), None)
    at_most = min((offset for offset in (high_watermark, at_end) if is_clean and offset is not None), default=None)
    if at_end is not None and (high_watermark is None or high_watermark >= (log_end or 0)):
        return StableBound(at_end, at_end, at_most, "the snapshot at the log end, of a clean stop")
    replicated = [each for each in trusted if high_watermark is not None and each.offset <= high_watermark]
    newest = max(replicated, key=lambda each: each.offset, default=None)
    if newest is None:
        return StableBound(None, 0, at_most, None)
    return StableBound(None, _stable_at(newest), at_most, f"the snapshot at {newest.offset}, below the high watermark")


def _stable_at(snapshot: CheckedSnapshot) -> int:
    return snapshot.offset if snapshot.first_open_offset is None else snapshot.first_open_offset


def preflight(
    segments: tuple[SegmentFiles, ...],
    log_start: int,
    blocked: Sequence[BlockedSegment],
    bad_snapshots: frozenset[int],
    bound: StableBound,
    *,
    is_tiered: bool,
) -> Preflight:
    """Tells of each closed segment what becomes of it, and what is tried next.

    Args:
        segments: all of the partition, by base offset.
        log_start: segments wholly below it are no candidates.
        blocked: those that cannot be uploaded, ascending.
        bad_snapshots: offsets at which a snapshot stands, or will, that is uploaded and wrong.
        bound: what is known of the last stable offset.
        is_tiered: remote storage is on.
    """
    fates = list(_fates(segments, log_start, blocked, bad_snapshots, bound))
    runs = []
    for (state, blockers), group in groupby(fates, key=lambda fate: fate[2:]):
        same = list(group)
        size = sum(segment.size_bytes for segment, *_ in same)
        runs.append(SegmentRun(same[0][0].base_offset, same[-1][1], len(same), size, state, blockers))
    return Preflight(bound, tuple(runs), _next_attempt(fates, bound, is_tiered=is_tiered))


_Fate = tuple[SegmentFiles, int, UploadState, tuple[Blocker, ...]]
"""A closed segment, its next base offset, and what becomes of it."""


def _fates(
    segments: tuple[SegmentFiles, ...],
    log_start: int,
    blocked: Sequence[BlockedSegment],
    bad_snapshots: frozenset[int],
    bound: StableBound,
) -> Iterator[_Fate]:
    blockers = {each.base_offset: each.blockers for each in blocked}
    first_blocked = blocked[0].base_offset if blocked else None
    ceiling = bound.ceiling
    for segment, following in pairwise(segments):
        next_base = following.base_offset
        if next_base <= log_start:
            continue
        state = UploadState.UPLOADABLE
        if segment.base_offset in blockers:
            state = UploadState.BLOCKED
        elif ceiling is not None and next_base > ceiling:
            state = UploadState.WAITS
        elif first_blocked is not None and segment.base_offset > first_blocked:
            state = UploadState.BEHIND_BLOCKED
        elif bound.exact is None and next_base > bound.at_least:
            state = UploadState.NOT_KNOWN
        elif next_base in bad_snapshots:
            state = UploadState.BAD_SNAPSHOT
        yield segment, next_base, state, blockers.get(segment.base_offset, ())


_WITHOUT_SNAPSHOT = frozenset((Blocker.MISSING_SNAPSHOT, Blocker.SNAPSHOT_REMOVED_AT_START, Blocker.IRREGULAR_SNAPSHOT))


def _next_attempt(fates: Sequence[_Fate], bound: StableBound, *, is_tiered: bool) -> NextAttempt | None:
    """How far a log was uploaded stands in remote storage: where it is on, all below the first blocked segment is taken for there."""
    candidates = [fate for fate in fates if bound.ceiling is None or fate[1] <= bound.ceiling]
    blocked = next((index for index, fate in enumerate(candidates) if fate[2] is UploadState.BLOCKED), None)
    if not candidates or (is_tiered and blocked is None):
        return None
    segment, next_base, _, blockers = candidates[blocked or 0]
    assumes = [ALL_BELOW_UPLOADED if is_tiered else NOTHING_UPLOADED]
    if bound.exact is None and next_base > bound.at_least:
        assumes.append(BELOW_STABLE)
    outcomes = copy_outcomes(
        has_snapshot=_WITHOUT_SNAPSHOT.isdisjoint(blockers),
        has_leader_epochs=Blocker.NO_LEADER_EPOCHS not in blockers,
        is_too_large=Blocker.SEGMENT_TOO_LARGE in blockers,
    )
    before = 0 if is_tiered else blocked or 0
    return NextAttempt(segment.base_offset, next_base, segment.size_bytes, before, tuple(assumes), outcomes)
