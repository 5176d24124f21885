"""The outcome for each rolled segment when a broker uploads to tiered storage, as far as names, sizes and small files show.

Source: ``RemoteLogManager.RLMCopyTask.copyLogSegmentsToRemote``, ``candidateLogSegments`` and ``copyLogSegment`` (``RLMTask`` before 3.9)
and ``ProducerStateManager.fetchSnapshot``. These were read in 3.6.0, 3.6.2, 3.7.0, 3.7.1, 3.8.0, 3.9.2, 4.1.0 and 4.3.1, and brokers of
3.6.2, 3.9.2 and 4.3.1 were run. 4.4.0 does the same.

A leader begins after the segment that it uploaded last, or at the log start offset if it uploaded nothing. It takes each segment whose
successor begins at or below the last stable offset. Segments are uploaded in order. An exception is logged, the task ends, and the next
task begins with the same segment. The first segment that fails therefore blocks every later one, and local retention frees nothing that
is not uploaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import groupby, pairwise

import msgspec

from formats.limits import SEGMENT_BYTES_MAX
from snaprebuild.published import Natural, Part, Positive
from snaprebuild.snapshots.scan.snapshot_check import SnapshotFile
from snaprebuild.snapshots.scan.upload_attempts import CopyOutcome, copy_outcomes
from snaprebuild.storage.partition_dir import SegmentFiles

__all__ = [
    "NO_PREFLIGHT",
    "BlockedSegment",
    "Blocker",
    "FreedBy",
    "LagWait",
    "NextAttempt",
    "Preflight",
    "RolledSegments",
    "SegmentUploadState",
    "StableBound",
    "blocked_segments",
    "preflight",
    "stable_bound",
]

# ------------------------------------------------------------------------------------------------------ what blocks a segment


class FreedBy(StrEnum):
    """The action after which a blocked segment can be uploaded."""

    REBUILD = "rebuild"
    """``snaprebuild rebuild``, and a start of the broker afterwards."""
    BROKER_START = "broker start"
    """The broker makes what is missing when it loads the log."""
    HAND = "hand"
    """An operator must move the file that has the name."""
    RETENTION = "retention"
    """Nothing can be done but wait until the segment is deleted."""


class Blocker(StrEnum):
    """Why a rolled segment does not go up."""

    MISSING_SNAPSHOT = "missing-snapshot"
    """No snapshot at the next base offset: the upload ends with a NullPointerException (KAFKA-15195)."""
    SNAPSHOT_REMOVED_AT_START = "snapshot-removed-at-start"
    """There is one, but the next start of the broker removes it and writes none in its place."""
    IRREGULAR_SNAPSHOT = "irregular-snapshot"
    """The file with the snapshot's name is not a regular file."""
    MISSING_OFFSET_INDEX = "missing-offset-index"
    """No ``.index``: the broker recovers the segment when it loads the log, and drops the snapshots above it."""
    MISSING_TIME_INDEX = "missing-time-index"
    """No ``.timeindex``: the broker makes an empty one when it loads the log."""
    NO_LEADER_EPOCHS = "no-leader-epochs"
    """No leader epoch covers it, as in logs of message format 0 and 1: ``RemoteLogSegmentMetadata`` refuses it."""
    LEADER_EPOCHS_LOST = "leader-epochs-lost"
    """No leader epoch covers it, and its batches are of format 2: ``leader-epoch-checkpoint`` is empty, missing or cut."""
    SEGMENT_TOO_LARGE = "segment-too-large"
    """Larger than 2^31 - 1 bytes: ``RemoteLogSegmentMetadata`` holds the size as an int32."""

    @property
    def freed_by(self) -> FreedBy:
        """The action that helps."""
        return _FREED_BY[self]

    @property
    def alone(self) -> tuple[Blocker, ...]:
        """This reason only; always the same object, because most blocked segments share it."""
        return _ALONE[self]


_FREED_BY = {
    Blocker.MISSING_SNAPSHOT: FreedBy.REBUILD,
    Blocker.SNAPSHOT_REMOVED_AT_START: FreedBy.REBUILD,
    Blocker.IRREGULAR_SNAPSHOT: FreedBy.HAND,
    Blocker.MISSING_OFFSET_INDEX: FreedBy.BROKER_START,
    Blocker.MISSING_TIME_INDEX: FreedBy.BROKER_START,
    Blocker.NO_LEADER_EPOCHS: FreedBy.RETENTION,
    Blocker.LEADER_EPOCHS_LOST: FreedBy.HAND,
    Blocker.SEGMENT_TOO_LARGE: FreedBy.RETENTION,
}
_ALONE = {blocker: (blocker,) for blocker in Blocker}


class BlockedSegment(Part, frozen=True):
    """A rolled segment that would not be uploaded."""

    base_offset: Natural
    next_base_offset: Natural
    size_bytes: Natural
    blockers: tuple[Blocker, ...]
    """Every reason."""


def blocked_segments(
    segments: tuple[SegmentFiles, ...],
    log_start: int,
    snapshot_blockers: dict[int, tuple[Blocker, ...]],
    first_epoch_offset: int | None,
    without_epochs: Blocker = Blocker.NO_LEADER_EPOCHS,
) -> Iterator[BlockedSegment]:
    """The rolled segments above the log start that something holds back.

    Args:
        segments: all of the partition, by base offset.
        log_start: segments wholly below it are no candidates.
        snapshot_blockers: what is wrong with the snapshot at an offset; an absent key is a good one.
        first_epoch_offset: start offset of the first leader epoch; -1 where that is not known.
        without_epochs: why no leader epoch covers a segment below it.
    """
    for segment, following in pairwise(segments):
        next_base = following.base_offset
        if next_base <= log_start:
            continue
        blockers = snapshot_blockers.get(next_base, ())
        if segment.offset_index is None:
            blockers += Blocker.MISSING_OFFSET_INDEX.alone
        if segment.time_index is None:
            blockers += Blocker.MISSING_TIME_INDEX.alone
        # The epoch that began before the segment, or any that begins inside it.
        if first_epoch_offset is None or first_epoch_offset >= next_base:
            blockers += without_epochs.alone
        size_bytes = segment.log.identity.size_bytes
        if size_bytes > SEGMENT_BYTES_MAX:
            blockers += Blocker.SEGMENT_TOO_LARGE.alone
        if blockers:
            yield BlockedSegment(segment.base_offset, next_base, size_bytes, blockers)


# ------------------------------------------------------------------------------------------------------ each rolled segment

NOTHING_UPLOADED = "nothing of the partition was uploaded before"
ALL_BELOW_UPLOADED = "remote storage is on: everything below was uploaded before, and this was not"
BELOW_STABLE = "it is below the last stable offset, which these files do not show"


class SegmentUploadState(StrEnum):
    """The outcome for a rolled segment after its broker was started again."""

    UPLOADABLE = "uploadable"
    BAD_SNAPSHOT = "uploadable-with-bad-snapshot"
    """Nothing stops it, and its snapshot does not parse, cannot be true, or was written empty without a look at the log."""
    BLOCKED = "blocked"
    AFTER_BLOCKED = "after-blocked"
    """Nothing is wrong with it, and one before it is blocked: segments go up in order."""
    WAITS = "waits"
    """A transaction is open below its end, or it is not replicated yet."""
    WAITS_FOR_LAG = "waits-for-lag"
    """Nothing is wrong with it, and ``remote.copy.lag.*`` (4.4) lets it wait on purpose."""
    NOT_KNOWN = "not-known"
    """Nothing is wrong with it; whether it is below the last stable offset is not known."""


class StableBound(msgspec.Struct, frozen=True):
    """The known bounds of the last stable offset.

    Attributes:
        exact: the offset, or None.
        at_least: it is not below this one.
        at_most: it is not above this one, after a clean stop: the high watermark, or where a transaction is open; None if unknown.
        source: file that shows the offset, or its lower bound; None if none does.
    """

    exact: int | None
    at_least: int
    at_most: int | None
    source: str | None

    @property
    def ceiling(self) -> int | None:
        """Nothing above it is uploaded; None where that is not known."""
        return self.at_most if self.exact is None else self.exact


class RolledSegments(Part, frozen=True):
    """Consecutive rolled segments with the same state."""

    base_offset: Natural
    """Base offset of the first segment."""
    next_base_offset: Natural
    """End offset of the last segment."""
    segments: Positive
    size_bytes: Natural
    state: SegmentUploadState
    blockers: tuple[Blocker, ...]
    """Every reason, if they are blocked."""


class NextAttempt(Part, frozen=True):
    """The first segment at which the upload of a leader fails, after a start with the present files; else the first one."""

    base_offset: Natural
    next_base_offset: Natural
    size_bytes: Natural
    uploads_before: Natural
    """Segments that are uploaded before it."""
    assumes: tuple[str, ...]
    """Facts that these files do not show."""
    outcomes: tuple[CopyOutcome, ...]
    """Outcomes by versions of brokers."""

    @property
    def fails(self) -> bool:
        """Whether every version throws."""
        return all(outcome.exception is not None for outcome in self.outcomes)


class LagWait(Part, frozen=True):
    """The rolled segments that remote.copy.lag.ms and remote.copy.lag.bytes (4.4) let wait; nothing is wrong with them."""

    lag_ms: int
    """-1 for none."""
    lag_bytes: int
    """-1 for none."""
    base_offset: Natural
    """Base offset of the first one."""
    segments: Positive
    size_bytes: Natural
    due_ms: int | None
    """When the first one is due, ms since 1970; null if its age does not matter."""
    due_bytes: Natural | None
    """Bytes to be written until it is due; null if they do not matter."""


class Preflight(msgspec.Struct, frozen=True):
    """The outcome of the upload of a partition.

    Attributes:
        bound: what is known of the last stable offset.
        rolled_segments: all above the log start offset, ascending, in groups of one state.
        next_attempt: None where there is nothing to try.
        copy_lag: segments that wait on purpose; None if there is none, or the settings are not known.
    """

    bound: StableBound
    rolled_segments: tuple[RolledSegments, ...]
    next_attempt: NextAttempt | None
    copy_lag: LagWait | None = None

    @property
    def waiting_segments(self) -> int:
        """Rolled segments that are uploaded later, without any action."""
        return sum(
            each.segments
            for each in self.rolled_segments
            if each.state in (SegmentUploadState.WAITS, SegmentUploadState.WAITS_FOR_LAG)
        )

    @property
    def waiting_unknown_segments(self) -> int:
        """Rolled segments of which the files do not show whether they wait: the last stable offset is not known."""
        return sum(each.segments for each in self.rolled_segments if each.state is SegmentUploadState.NOT_KNOWN)

    @property
    def attempt_waits(self) -> bool:
        """The next attempt is not due yet."""
        wait = self.copy_lag
        attempt = self.next_attempt
        return wait is not None and attempt is not None and attempt.base_offset >= wait.base_offset


NO_PREFLIGHT = Preflight(StableBound(None, 0, None, None), (), None)
"""The preflight of a partition whose uploads were not looked at."""


def stable_bound(
    checked: Sequence[SnapshotFile], log_end: int | None, high_watermark: int | None, *, is_clean: bool
) -> StableBound:
    """The bounds of the last stable offset, from the snapshots.

    It is exact after a clean stop with everything replicated: then the snapshot at the log end names every open transaction. Otherwise its
    lower bound is its value at the newest snapshot at or below the high watermark. A transaction that ended below that snapshot has its
    marker there, so the marker is replicated; and the offset never decreases. A transaction whose marker is not replicated yet also
    holds the offset back (``ProducerStateManager.firstUnstableOffset``), so nothing more is known.

    Args:
        checked: the snapshots.
        log_end: log end offset, as far as it is known.
        high_watermark: of ``replication-offset-checkpoint``; None where it has none.
        is_clean: the broker was stopped cleanly, so that the checkpoint is not older than the stop.
    """
    trusted = [each for each in checked if each.parses and not each.suspicions]
    at_end = next((_stable_at(each) for each in trusted if is_clean and each.offset == log_end), None)
    at_most = min((offset for offset in (high_watermark, at_end) if is_clean and offset is not None), default=None)
    if at_end is not None and (high_watermark is None or high_watermark >= (log_end or 0)):
        return StableBound(at_end, at_end, at_most, "the snapshot at the log end, of a clean stop")
    replicated = [each for each in trusted if high_watermark is not None and each.offset <= high_watermark]
    newest = max(replicated, key=lambda each: each.offset, default=None)
    if newest is None:
        return StableBound(None, 0, at_most, None)
    return StableBound(None, _stable_at(newest), at_most, f"the snapshot at {newest.offset}, below the high watermark")


def _stable_at(snapshot: SnapshotFile) -> int:
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
    """The outcome for each rolled segment, and the next attempt.

    Args:
        segments: all of the partition, by base offset.
        log_start: segments wholly below it are no candidates.
        blocked: those that cannot be uploaded, ascending.
        bad_snapshots: offsets of snapshots that are there, or will be, that are uploaded and wrong.
        bound: what is known of the last stable offset.
        is_tiered: remote storage is on.
    """
    fates = list(_fates(segments, log_start, blocked, bad_snapshots, bound))
    rolled = []
    for (state, blockers), group in groupby(fates, key=lambda fate: fate[2:]):
        same = list(group)
        size = sum(segment.size_bytes for segment, *_ in same)
        rolled.append(RolledSegments(same[0][0].base_offset, same[-1][1], len(same), size, state, blockers))
    return Preflight(bound, tuple(rolled), _next_attempt(fates, bound, is_tiered=is_tiered))


_Fate = tuple[SegmentFiles, int, SegmentUploadState, tuple[Blocker, ...]]
"""A rolled segment, its next base offset, its state, and why it is blocked."""


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
        state = SegmentUploadState.UPLOADABLE
        if segment.base_offset in blockers:
            state = SegmentUploadState.BLOCKED
        elif ceiling is not None and next_base > ceiling:
            state = SegmentUploadState.WAITS
        elif first_blocked is not None and segment.base_offset > first_blocked:
            state = SegmentUploadState.AFTER_BLOCKED
        elif bound.exact is None and next_base > bound.at_least:
            state = SegmentUploadState.NOT_KNOWN
        elif next_base in bad_snapshots:
            state = SegmentUploadState.BAD_SNAPSHOT
        yield segment, next_base, state, blockers.get(segment.base_offset, ())


_WITHOUT_SNAPSHOT = frozenset((Blocker.MISSING_SNAPSHOT, Blocker.SNAPSHOT_REMOVED_AT_START, Blocker.IRREGULAR_SNAPSHOT))


_WITHOUT_EPOCHS = frozenset((Blocker.NO_LEADER_EPOCHS, Blocker.LEADER_EPOCHS_LOST))


def _next_attempt(fates: Sequence[_Fate], bound: StableBound, *, is_tiered: bool) -> NextAttempt | None:
    """Only remote storage shows how far a log was uploaded: where it is on, all below the first blocked segment counts as uploaded."""
    candidates = [fate for fate in fates if bound.ceiling is None or fate[1] <= bound.ceiling]
    blocked = next((index for index, fate in enumerate(candidates) if fate[2] is SegmentUploadState.BLOCKED), None)
    if not candidates or (is_tiered and blocked is None):
        return None
    segment, next_base, _, blockers = candidates[blocked or 0]
    assumes = [ALL_BELOW_UPLOADED if is_tiered else NOTHING_UPLOADED]
    if bound.exact is None and next_base > bound.at_least:
        assumes.append(BELOW_STABLE)
    outcomes = copy_outcomes(
        has_snapshot=_WITHOUT_SNAPSHOT.isdisjoint(blockers),
        has_leader_epochs=_WITHOUT_EPOCHS.isdisjoint(blockers),
        is_too_large=Blocker.SEGMENT_TOO_LARGE in blockers,
    )
    before = 0 if is_tiered else blocked or 0
    return NextAttempt(segment.base_offset, next_base, segment.size_bytes, before, tuple(assumes), outcomes)
