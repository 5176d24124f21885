"""The start of a metadata log, and how it moves: the log as what decides about that sees it.

A KRaft log begins at 0, or where some checkpoint (Kafka's word in code: snapshot) ends. It moves in one way only: the log is told to delete
what lies before a checkpoint. Segments that lie whole below the new start go, and so do older checkpoints.

Source: ``KafkaRaftLog.deleteBeforeSnapshot`` and ``UnifiedLog.deleteOldSegments`` of 4.3.1.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import total_ordering

__all__ = ["CheckpointOfLog", "DeletedBefore", "LogStart", "MetadataLogModel", "OffsetAndEpoch", "SegmentOfLog"]


@total_ordering
@dataclass(frozen=True, slots=True)
class OffsetAndEpoch:
    """An end offset (exclusive, int64) and the leader epoch of the record before it (int32).

    Ordered as Kafka orders the ids of checkpoints: by epoch, then by offset.
    """

    offset: int
    epoch: int

    def __lt__(self, other: OffsetAndEpoch) -> bool:
        """Epoch first."""
        return (self.epoch, self.offset) < (other.epoch, other.offset)

    def __str__(self) -> str:
        return f"{self.offset} (epoch {self.epoch})"


LogStart = OffsetAndEpoch
"""``startOffsetAndEpoch``: the start of a log, with the epoch of the record before it. At 0 the epoch is 0."""


@dataclass(frozen=True, slots=True)
class CheckpointOfLog:
    """A checkpoint.

    Attributes:
        id: where it ends.
        size_bytes: of its file.
        timestamp_ms: of the last record that it contains, as its header says; what Kafka counts its age from.
    """

    id: OffsetAndEpoch
    size_bytes: int
    timestamp_ms: int


@dataclass(slots=True)
class SegmentOfLog:
    """A segment: base offset, and bytes so far."""

    base_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class DeletedBefore:
    """What went when the start moved: segments by base offset, checkpoints by id, and the bytes of both."""

    segments: tuple[int, ...]
    checkpoints: tuple[OffsetAndEpoch, ...]
    size_bytes: int


class MetadataLogModel:
    """A metadata log: start, segments, checkpoints. Everything is amortised constant time, but for looking a checkpoint up.

    Attributes:
        start: see ``LogStart``.
        end_offset: the next offset that is written.
        segments: by base offset; the last one is active and is never deleted.
        checkpoints: by id. In a log that Kafka wrote, offsets and times ascend with the ids.
        log_bytes: of all segments.
        checkpoint_bytes: of all checkpoints.
    """

    __slots__ = ("checkpoint_bytes", "checkpoints", "end_offset", "log_bytes", "segments", "start")

    def __init__(
        self, start: LogStart, end_offset: int, segments: Iterable[SegmentOfLog] = (), checkpoints: Iterable[CheckpointOfLog] = ()
    ) -> None:
        self.start = start
        self.end_offset = end_offset
        self.segments = deque(segments) or deque((SegmentOfLog(start.offset, 0),))
        self.checkpoints = sorted(checkpoints, key=lambda each: each.id)
        self.log_bytes = sum(each.size_bytes for each in self.segments)
        self.checkpoint_bytes = sum(each.size_bytes for each in self.checkpoints)

    @property
    def latest(self) -> CheckpointOfLog | None:
        """The checkpoint with the highest id."""
        return self.checkpoints[-1] if self.checkpoints else None

    @property
    def size_bytes(self) -> int:
        """Of segments and checkpoints."""
        return self.log_bytes + self.checkpoint_bytes

    def append(self, batches: int, records: int, size_bytes: int, segment_bytes: int) -> None:
        """Appends equal batches, each of so many records and bytes; a batch that does not fit begins a segment.

        As ``UnifiedLog.maybeRoll``: a segment that is not empty is closed where the batch would make it larger than ``segment_bytes``.
        """
        left = batches
        while left:
            active = self.segments[-1]
            fit = max(0, (segment_bytes - active.size_bytes) // size_bytes)
            if fit == 0:
                if active.size_bytes:
                    self.segments.append(SegmentOfLog(self.end_offset, 0))
                    continue
                fit = 1
            taken = min(left, fit)
            active.size_bytes += taken * size_bytes
            self.log_bytes += taken * size_bytes
            self.end_offset += taken * records
            left -= taken

    def add_checkpoint(self, checkpoint: CheckpointOfLog) -> bool:
        """Takes a new checkpoint in; False where there is one of this id, or it ends below the start."""
        at = bisect_left(self.checkpoints, checkpoint.id, key=lambda each: each.id)
        is_there = at < len(self.checkpoints) and self.checkpoints[at].id == checkpoint.id
        if is_there or checkpoint.id.offset < self.start.offset:
            return False
        self.checkpoints.insert(at, checkpoint)
        self.checkpoint_bytes += checkpoint.size_bytes
        return True

    def newest_at_or_below(self, offset: int) -> CheckpointOfLog | None:
        """The newest checkpoint that ends at an offset or below it, and above the start."""
        at = bisect_right(self.checkpoints, offset, key=lambda each: each.id.offset)
        found = self.checkpoints[at - 1] if at else None
        return found if found is not None and found.id.offset > self.start.offset else None

    def newest_not_after(self, timestamp_ms: int) -> CheckpointOfLog | None:
        """The newest checkpoint of a time or before it, and above the start."""
        at = bisect_right(self.checkpoints, timestamp_ms, key=lambda each: each.timestamp_ms)
        found = self.checkpoints[at - 1] if at else None
        return found if found is not None and found.id.offset > self.start.offset else None

    def delete_before(self, checkpoint: OffsetAndEpoch) -> DeletedBefore | None:
        """Moves the start to where a checkpoint ends; None where that may not be, and nothing happens.

        It must be there, lie above the start, and not beyond the latest one or the end of the log (the high watermark, which Kafka
        asks for too, is taken to be there).
        """
        latest = self.latest
        at = bisect_left(self.checkpoints, checkpoint, key=lambda each: each.id)
        if latest is None or at == len(self.checkpoints) or self.checkpoints[at].id != checkpoint:
            return None
        if not self.start.offset < checkpoint.offset <= min(latest.id.offset, self.end_offset):
            return None
        return self._moved_to(checkpoint, at)

    def start_at(self, start: LogStart) -> DeletedBefore | None:
        """The same for a start at which there need be no checkpoint, as a follower may take over its leader's."""
        if not self.start.offset < start.offset <= self.end_offset:
            return None
        return self._moved_to(start, bisect_left(self.checkpoints, start, key=lambda each: each.id))

    def _moved_to(self, start: LogStart, forgotten: int) -> DeletedBefore:
        before = self.size_bytes
        self.start = start
        segments = []
        while len(self.segments) > 1 and self.segments[1].base_offset <= start.offset:
            gone = self.segments.popleft()
            segments.append(gone.base_offset)
            self.log_bytes -= gone.size_bytes
        checkpoints = self.checkpoints[:forgotten]
        del self.checkpoints[:forgotten]
        self.checkpoint_bytes -= sum(each.size_bytes for each in checkpoints)
        return DeletedBefore(tuple(segments), tuple(each.id for each in checkpoints), before - self.size_bytes)

    def copy(self) -> MetadataLogModel:
        """A log of its own, as it is now."""
        segments = [SegmentOfLog(each.base_offset, each.size_bytes) for each in self.segments]
        return MetadataLogModel(self.start, self.end_offset, segments, self.checkpoints)

    def restart_at(self, checkpoint: CheckpointOfLog) -> None:
        """Everything goes, and the log begins anew where a downloaded checkpoint ends (``truncateFullyAndStartAt``)."""
        self.start = checkpoint.id
        self.end_offset = checkpoint.id.offset
        self.segments = deque((SegmentOfLog(checkpoint.id.offset, 0),))
        self.checkpoints = [checkpoint]
        self.log_bytes, self.checkpoint_bytes = 0, checkpoint.size_bytes
