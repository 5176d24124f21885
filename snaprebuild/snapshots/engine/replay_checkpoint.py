"""Where a replay resumes, and the state that is given to it."""

from __future__ import annotations

from bisect import bisect_left

import msgspec
from msgspec.structs import replace

from snaprebuild.replay.classes import Judgement, ReplayRecord, SnapshotClass
from snaprebuild.replay.running_effect import RunningEffect
from snaprebuild.replay.segment_effect import SegmentEffect
from snaprebuild.storage.partition_dir import PartitionDir, SegmentFiles
from snaprebuild.storage.store import FileIdentity

__all__ = ["InitialState", "ReplayCheckpoint", "base_and_identity"]


class ReplayCheckpoint(msgspec.Struct, frozen=True, eq=False):
    """A replay at a boundary. Another replay resumes from it, exactly as if it had read everything below.

    Attributes:
        offset: the boundary, base offset of a segment.
        first_offset: base offset of the first segment that was replayed.
        before: base offset and identity of the segment that ends here.
    """

    offset: int
    first_offset: int
    before: tuple[int, FileIdentity]
    _prefix: RunningEffect
    _record: ReplayRecord

    @property
    def state(self) -> SegmentEffect:
        """Everything that was replayed up to here, as one effect: the large part of this value."""
        return self._prefix.total()

    def with_state(self, state: SegmentEffect) -> ReplayCheckpoint:
        """The same with another state. With ``IDENTITY`` it is small, and can be sent apart from its own state."""
        return replace(self, _prefix=RunningEffect(state))

    def index_in(self, directory: PartitionDir) -> int | None:
        """Index of the segment that begins here; None if the log is not the one that was replayed.

        A log is cut at its end (``UnifiedLog.truncateTo``), and then the cut segment is another file. If the segment that ends here is
        unchanged, so are those before it.
        """
        segments = directory.segments
        index = bisect_left(segments, self.offset, key=lambda segment: segment.base_offset)
        if not 0 < index < len(segments) or segments[index].base_offset != self.offset:
            return None
        return index if base_and_identity(segments[index - 1]) == self.before else None


def base_and_identity(segment: SegmentFiles) -> tuple[int, FileIdentity]:
    """Base offset of a segment, and which file it is."""
    return segment.base_offset, segment.log.identity


class InitialState(msgspec.Struct, frozen=True, eq=False):
    """The state before the first segment on disk, known from elsewhere. Nothing replayed on it gets a better class than it has."""

    effect: SegmentEffect
    judgement: Judgement

    @property
    def is_complete(self) -> bool:
        """No producer is missing, also none whose batches were all deleted."""
        return self.judgement.snapshot_class is SnapshotClass.EXACT

    def on_top(self, judged: Judgement) -> Judgement:
        """The judgement of a boundary above it; ``judged`` is what it would be if this state were proven."""
        if judged.snapshot_class is not SnapshotClass.EXACT:
            return judged
        return Judgement(self.judgement.snapshot_class, (*self.judgement.reasons, "replayed from there"))
