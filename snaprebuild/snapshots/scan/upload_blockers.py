"""Which closed segments a broker could not upload to tiered storage, and why, as far as names, sizes and small files tell.

Source: ``RemoteLogManager.RLMCopyTask.copyLogSegmentsToRemote`` and ``copyLogSegment``. Segments go up in order, so the first one that
fails holds back every later one of its partition, and local retention frees nothing that is not uploaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from formats.limits import SEGMENT_BYTES_MAX
from snaprebuild.storage.partition_dir import SegmentFiles

__all__ = ["BlockedSegment", "Blocker", "FreedBy", "blocked_segments"]


class FreedBy(Enum):
    """What makes a blocked segment go up."""

    REBUILD = "rebuild"
    """``snaprebuild rebuild``, and a start of the broker afterwards."""
    BROKER_START = "broker start"
    """The broker makes what is missing when it loads the log."""
    HAND = "hand"
    """Somebody must move what stands in the way."""
    RETENTION = "retention"
    """Nothing can be done but wait until the segment is deleted."""


class Blocker(Enum):
    """Why a closed segment does not go up."""

    # There is one object for each member. The default hashes the name, in Python, and a large scan asks half a million times.
    __hash__ = object.__hash__

    MISSING_SNAPSHOT = "missing-snapshot"
    """No snapshot at the next base offset: the upload ends with a NullPointerException (KAFKA-15195)."""
    SNAPSHOT_REMOVED_AT_START = "snapshot-removed-at-start"
    """There is one, but the next start of the broker removes it and writes none in its place."""
    IRREGULAR_SNAPSHOT = "irregular-snapshot"
    """What has the snapshot's name is no regular file."""
    MISSING_OFFSET_INDEX = "missing-offset-index"
    """No ``.index``: the broker recovers the segment when it loads the log, and drops the snapshots above it."""
    MISSING_TIME_INDEX = "missing-time-index"
    """No ``.timeindex``: the broker makes an empty one when it loads the log."""
    NO_LEADER_EPOCHS = "no-leader-epochs"
    """No leader epoch covers it, as in logs of message format 0 and 1: ``RemoteLogSegmentMetadata`` refuses it."""
    SEGMENT_TOO_LARGE = "segment-too-large"
    """Larger than 2^31 - 1 bytes: ``RemoteLogSegmentMetadata`` holds the size as an int32."""

    @property
    def freed_by(self) -> FreedBy:
        """What helps."""
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
    Blocker.SEGMENT_TOO_LARGE: FreedBy.RETENTION,
}
_ALONE = {blocker: (blocker,) for blocker in Blocker}


@dataclass(frozen=True, slots=True)
class BlockedSegment:
    """A closed segment that would not be uploaded.

    Attributes:
        base_offset: of the segment; ``next_base_offset`` of the one behind it.
        size_bytes: of the segment.
        blockers: every reason.
    """

    base_offset: int
    next_base_offset: int
    size_bytes: int
    blockers: tuple[Blocker, ...]


def blocked_segments(
    segments: tuple[SegmentFiles, ...],
    log_start: int,
    snapshot_blockers: dict[int, tuple[Blocker, ...]],
    first_epoch_offset: int | None,
) -> Iterator[BlockedSegment]:
    """The closed segments above the log start that something holds back.

    Args:
        segments: all of the partition, by base offset.
        log_start: segments wholly below it are no candidates.
        snapshot_blockers: what is wrong with the snapshot at an offset; an absent key is a good one.
        first_epoch_offset: start offset of the first leader epoch; -1 where that is not known.
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
            blockers += Blocker.NO_LEADER_EPOCHS.alone
        size_bytes = segment.log.identity.size_bytes
        if size_bytes > SEGMENT_BYTES_MAX:
            blockers += Blocker.SEGMENT_TOO_LARGE.alone
        if blockers:
            yield BlockedSegment(segment.base_offset, next_base, size_bytes, blockers)
