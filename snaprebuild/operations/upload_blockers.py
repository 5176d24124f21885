"""Which closed segments a broker could not upload to tiered storage, and why, as far as names, sizes and small files tell.

Source: ``RemoteLogManager.RLMCopyTask.copyLogSegmentsToRemote`` and ``copyLogSegment``. Segments go up in order, so the first one that
fails holds back every later one of its partition, and local retention frees nothing that is not uploaded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from snaprebuild.storage.partition_dir import SegmentFiles

__all__ = ["BlockedSegment", "Blocker", "FreedBy", "blocked_segments"]

SEGMENT_BYTES_MAX = 2**31 - 1
"""``RemoteLogSegmentMetadata`` holds the size as an int32."""


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
    """Larger than 2^31 - 1 bytes."""

    @property
    def freed_by(self) -> FreedBy:
        """What helps."""
        return _FREED_BY[self]


_FREED_BY = {
    Blocker.MISSING_SNAPSHOT: FreedBy.REBUILD,
    Blocker.SNAPSHOT_REMOVED_AT_START: FreedBy.REBUILD,
    Blocker.IRREGULAR_SNAPSHOT: FreedBy.HAND,
    Blocker.MISSING_OFFSET_INDEX: FreedBy.BROKER_START,
    Blocker.MISSING_TIME_INDEX: FreedBy.BROKER_START,
    Blocker.NO_LEADER_EPOCHS: FreedBy.RETENTION,
    Blocker.SEGMENT_TOO_LARGE: FreedBy.RETENTION,
}


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

    def freed_with(self, helps: Collection[FreedBy]) -> bool:
        """Whether these measures remove every reason."""
        return all(blocker.freed_by in helps for blocker in self.blockers)


def blocked_segments(
    segments: tuple[SegmentFiles, ...],
    log_start: int,
    snapshot_blockers: dict[int, Blocker],
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
        blockers = []
        if next_base in snapshot_blockers:
            blockers.append(snapshot_blockers[next_base])
        if segment.offset_index is None:
            blockers.append(Blocker.MISSING_OFFSET_INDEX)
        if segment.time_index is None:
            blockers.append(Blocker.MISSING_TIME_INDEX)
        # The epoch that began before the segment, or any that begins inside it.
        if first_epoch_offset is None or first_epoch_offset >= next_base:
            blockers.append(Blocker.NO_LEADER_EPOCHS)
        if segment.size_bytes > SEGMENT_BYTES_MAX:
            blockers.append(Blocker.SEGMENT_TOO_LARGE)
        if blockers:
            yield BlockedSegment(segment.base_offset, next_base, segment.size_bytes, tuple(blockers))
