"""The start of a metadata log: a model of the log, and three policies for when the start moves and how far.

A KRaft log begins at 0, or where some checkpoint (Kafka's word in code: snapshot) ends. The start moves in one way only: the log deletes
what is before a checkpoint. Segments that are completely below the new start are deleted, and so are older checkpoints.

* ``immediate``: as soon as there is a newer checkpoint, to it (the first version of KIP-630 in Kafka, pull request 9816).
* ``retention``: Kafka since 3.3, every minute: from the oldest checkpoint on, while everything together is larger than
  ``metadata.max.retention.bytes``, then while the oldest is older than ``metadata.max.retention.ms``. Readers of the log do not count.
* ``kafka-14932``: the heuristic of KAFKA-14932. A leader waits until all live followers have fetched past a checkpoint and all of its
  listeners have read past it. It also moves when the checkpoint is older than ``metadata.start.offset.lag.time.max.ms``. A follower never
  moves ahead of its leader.

Source: ``KafkaRaftLog.deleteBeforeSnapshot`` and ``maybeClean``, ``UnifiedLog.deleteOldSegments`` of 4.3.1; KAFKA-14932; KIP-630 ("When to
Increase the LogStartOffset").
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import total_ordering

import msgspec

from snaprebuild.published import Natural, Part

__all__ = [
    "DEFAULT_CHECKPOINT_INTERVAL_MS",
    "DEFAULT_CHECKPOINT_RECORD_BYTES",
    "DEFAULT_LAG_TIME_MAX_MS",
    "DEFAULT_RETENTION_BYTES",
    "DEFAULT_RETENTION_MS",
    "CheckpointOfLog",
    "CheckpointSettings",
    "DeletedBefore",
    "FollowerMode",
    "MetadataLogModel",
    "OffsetAndEpoch",
    "Policy",
    "Progress",
    "SegmentOfLog",
    "StartCause",
    "StartMove",
    "StartSettings",
    "advance_follower",
    "advance_leader",
    "immediate",
    "is_checkpoint_due",
    "retention",
]


@total_ordering
class OffsetAndEpoch(Part, frozen=True):
    """An offset, and the leader epoch of the record before it. Kafka orders the ids of checkpoints by epoch, then by offset."""

    offset: Natural
    """Exclusive end."""
    epoch: Natural

    def __lt__(self, other: OffsetAndEpoch) -> bool:
        """Epoch first."""
        return (self.epoch, self.offset) < (other.epoch, other.offset)

    def __str__(self) -> str:
        return f"{self.offset} (epoch {self.epoch})"


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
    """Files that were deleted when the start moved: segments by base offset, checkpoints by id, and the bytes of both."""

    segments: tuple[int, ...]
    checkpoints: tuple[OffsetAndEpoch, ...]
    size_bytes: int


class MetadataLogModel:
    """A metadata log: start, segments, checkpoints. Everything is amortised constant time, but for looking a checkpoint up.

    Attributes:
        start: ``startOffsetAndEpoch``, the start of the log and the epoch of the record before it. At 0 the epoch is 0.
        end_offset: the next offset that is written.
        segments: by base offset; the last one is active and is never deleted.
        checkpoints: by id. In a log that Kafka wrote, offsets and times ascend with the ids.
        log_bytes: of all segments.
        checkpoint_bytes: of all checkpoints.
    """

    __slots__ = ("checkpoint_bytes", "checkpoints", "end_offset", "log_bytes", "segments", "start")

    def __init__(
        self,
        start: OffsetAndEpoch,
        end_offset: int,
        segments: Iterable[SegmentOfLog] = (),
        checkpoints: Iterable[CheckpointOfLog] = (),
    ) -> None:
        self.start = start
        self.end_offset = end_offset
        self.segments = deque(segments) or deque((SegmentOfLog(start.offset, 0),))
        self.checkpoints = sorted(checkpoints, key=lambda checkpoint: checkpoint.id)
        self.log_bytes = sum(segment.size_bytes for segment in self.segments)
        self.checkpoint_bytes = sum(checkpoint.size_bytes for checkpoint in self.checkpoints)

    @property
    def latest(self) -> CheckpointOfLog | None:
        """The checkpoint with the highest id."""
        return self.checkpoints[-1] if self.checkpoints else None

    @property
    def size_bytes(self) -> int:
        """Bytes of segments and checkpoints."""
        return self.log_bytes + self.checkpoint_bytes

    def append(self, batches: int, records: int, size_bytes: int, segment_bytes: int) -> None:
        """Appends equal batches; ``records`` and ``size_bytes`` are those of one. A batch that does not fit begins a segment.

        As ``UnifiedLog.maybeRoll``: a segment that is not empty is rolled where the batch would make it larger than ``segment_bytes``.
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
            count = min(left, fit)
            active.size_bytes += count * size_bytes
            self.log_bytes += count * size_bytes
            self.end_offset += count * records
            left -= count

    def add_checkpoint(self, checkpoint: CheckpointOfLog) -> bool:
        """Takes a new checkpoint in; False where there is one of this id, or it ends below the start."""
        at = bisect_left(self.checkpoints, checkpoint.id, key=lambda each: each.id)
        # ``KafkaMetadataLog.createNewSnapshot`` refuses both.
        is_there = at < len(self.checkpoints) and self.checkpoints[at].id == checkpoint.id
        if is_there or checkpoint.id.offset < self.start.offset:
            return False
        self.checkpoints.insert(at, checkpoint)
        self.checkpoint_bytes += checkpoint.size_bytes
        return True

    def newest_at_or_below(self, offset: int) -> CheckpointOfLog | None:
        """The newest checkpoint that ends at an offset or below it, and above the start."""
        return self._above_start(bisect_right(self.checkpoints, offset, key=lambda each: each.id.offset) - 1)

    def newest_not_after(self, timestamp_ms: int) -> CheckpointOfLog | None:
        """The newest checkpoint of a time or before it, and above the start."""
        return self._above_start(bisect_right(self.checkpoints, timestamp_ms, key=lambda each: each.timestamp_ms) - 1)

    def _above_start(self, at: int) -> CheckpointOfLog | None:
        if at >= 0 and self.checkpoints[at].id.offset > self.start.offset:
            return self.checkpoints[at]
        return None

    def delete_before(self, checkpoint: OffsetAndEpoch) -> DeletedBefore | None:
        """Moves the start to where a checkpoint ends; does nothing and returns None if that is not allowed.

        The checkpoint must exist, above the start and not beyond the latest one or the end of the log. Kafka also requires that it is
        not above the high watermark, which is taken to be at the end of the log here.
        """
        latest = self.latest
        at = bisect_left(self.checkpoints, checkpoint, key=lambda each: each.id)
        if latest is None or at == len(self.checkpoints) or self.checkpoints[at].id != checkpoint:
            return None
        if not self.start.offset < checkpoint.offset <= min(latest.id.offset, self.end_offset):
            return None
        return self._moved_to(checkpoint, at)

    def start_at(self, start: OffsetAndEpoch) -> DeletedBefore | None:
        """Moves the start to an offset without a checkpoint, such as the start of the leader; None if that is not allowed."""
        if not self.start.offset < start.offset <= self.end_offset:
            return None
        return self._moved_to(start, bisect_left(self.checkpoints, start, key=lambda each: each.id))

    def _moved_to(self, start: OffsetAndEpoch, forgotten: int) -> DeletedBefore:
        before = self.size_bytes
        self.start = start
        segments = []
        while len(self.segments) > 1 and self.segments[1].base_offset <= start.offset:
            gone = self.segments.popleft()
            segments.append(gone.base_offset)
            self.log_bytes -= gone.size_bytes
        checkpoints = self.checkpoints[:forgotten]
        del self.checkpoints[:forgotten]
        self.checkpoint_bytes -= sum(checkpoint.size_bytes for checkpoint in checkpoints)
        return DeletedBefore(tuple(segments), tuple(checkpoint.id for checkpoint in checkpoints), before - self.size_bytes)

    def copy(self) -> MetadataLogModel:
        """A log of its own, as it is now."""
        segments = [SegmentOfLog(segment.base_offset, segment.size_bytes) for segment in self.segments]
        return MetadataLogModel(self.start, self.end_offset, segments, self.checkpoints)

    def restart_at(self, checkpoint: CheckpointOfLog) -> None:
        """Everything goes, and the log begins anew where a downloaded checkpoint ends (``truncateFullyAndStartAt``)."""
        self.start = checkpoint.id
        self.end_offset = checkpoint.id.offset
        self.segments = deque((SegmentOfLog(checkpoint.id.offset, 0),))
        self.checkpoints = [checkpoint]
        self.log_bytes = 0
        self.checkpoint_bytes = checkpoint.size_bytes


DEFAULT_RETENTION_BYTES = 100 << 20
DEFAULT_RETENTION_MS = 7 * 86_400_000
DEFAULT_LAG_TIME_MAX_MS = 7 * 86_400_000
DEFAULT_CHECKPOINT_INTERVAL_MS = 3_600_000
DEFAULT_CHECKPOINT_RECORD_BYTES = 20 << 20


class Policy(StrEnum):
    """The rule that moves the start."""

    IMMEDIATE = "immediate"
    RETENTION = "retention"
    KAFKA_14932 = "kafka-14932"


class FollowerMode(StrEnum):
    """Where a follower goes when its leader has moved, under ``kafka-14932``.

    The heuristic leaves this open. ``strict``: to the newest checkpoint of its own that is not beyond the leader's start, so that its
    start, too, is the end of a checkpoint. ``literal``: to the leader's start itself, whose epoch the leader must then send.
    """

    STRICT = "strict"
    LITERAL = "literal"


class StartCause(StrEnum):
    """Why the start of a log moved."""

    NEWER_CHECKPOINT = "newer-checkpoint"
    SIZE = "retention-bytes"
    AGE = "retention-ms"
    ALL_PAST = "all-read-past"
    LAG_TIME = "lag-time-max"
    LEADER_MOVED = "leader-moved"


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """When a node takes a checkpoint.

    Attributes:
        interval_ms: ``metadata.log.max.snapshot.interval.ms``; 0 is off.
        record_bytes: ``metadata.log.max.record.bytes.between.snapshots``.
    """

    interval_ms: int = DEFAULT_CHECKPOINT_INTERVAL_MS
    record_bytes: int = DEFAULT_CHECKPOINT_RECORD_BYTES


@dataclass(frozen=True, slots=True)
class StartSettings:
    """Kafka's settings; negative retention is off.

    Attributes:
        retention_bytes: ``metadata.max.retention.bytes``.
        retention_ms: ``metadata.max.retention.ms``.
        lag_time_max_ms: ``metadata.start.offset.lag.time.max.ms``, which no release has.
        checkpoints: when the checkpoints are taken that the start may move to.
    """

    retention_bytes: int = DEFAULT_RETENTION_BYTES
    retention_ms: int = DEFAULT_RETENTION_MS
    lag_time_max_ms: int = DEFAULT_LAG_TIME_MAX_MS
    checkpoints: CheckpointSettings = CheckpointSettings()


class Progress(Part, frozen=True):
    """A reader of the log."""

    name: str
    """Name of the listener, or id of the replica."""
    offset: Natural
    """Next offset that it reads."""


class StartMove(Part, frozen=True):
    """A start that moves."""

    before: OffsetAndEpoch = msgspec.field(name="from")
    after: OffsetAndEpoch = msgspec.field(name="to")
    cause: StartCause
    reason: str
    """One sentence for the user; not stable."""
    deleted_segments: tuple[Natural, ...]
    """Base offsets of the deleted segments."""
    deleted_checkpoints: tuple[OffsetAndEpoch, ...]
    deleted_bytes: Natural


def is_checkpoint_due(settings: CheckpointSettings, record_bytes: int, age_ms: int | None) -> bool:
    """Whether a node takes a checkpoint when it reads the next record, as ``SnapshotGenerator.publishLogDelta``.

    Args:
        settings: of the node.
        record_bytes: of the batches that it has read since the last checkpoint.
        age_ms: time since it took that one, or since it started; None if that is not known.
    """
    return record_bytes >= settings.record_bytes or (age_ms is not None and 0 < settings.interval_ms <= age_ms)


def _moved(log: MetadataLogModel, to: CheckpointOfLog, cause: StartCause, reason: str) -> StartMove | None:
    before = log.start
    deleted = log.delete_before(to.id)
    return None if deleted is None else _start_move(before, to.id, cause, reason, deleted)


def _start_move(before: OffsetAndEpoch, after: OffsetAndEpoch, cause: StartCause, reason: str, deleted: DeletedBefore) -> StartMove:
    return StartMove(
        before=before,
        after=after,
        cause=cause,
        reason=reason,
        deleted_segments=deleted.segments,
        deleted_checkpoints=deleted.checkpoints,
        deleted_bytes=deleted.size_bytes,
    )


def immediate(log: MetadataLogModel) -> StartMove | None:
    """Moves the start to the latest checkpoint."""
    latest = log.latest
    if latest is None:
        return None
    return _moved(log, latest, StartCause.NEWER_CHECKPOINT, f"a checkpoint at {latest.id} exists")


def retention(log: MetadataLogModel, now_ms: int, settings: StartSettings) -> Iterator[StartMove]:
    """Moves the start as one run of Kafka's cleaner does; one advance for each checkpoint that goes. At least one checkpoint stays.

    The log moves while this is iterated.
    """
    while 0 <= settings.retention_bytes < log.size_bytes:
        sizes = f"log of {log.log_bytes} bytes and checkpoints of {log.checkpoint_bytes} bytes"
        advance = _next(log, StartCause.SIZE, f"{sizes} are more than {settings.retention_bytes}")
        if advance is None:
            break
        yield advance
    while settings.retention_ms >= 0 and log.checkpoints:
        age_ms = now_ms - log.checkpoints[0].timestamp_ms
        if age_ms <= settings.retention_ms:
            break
        advance = _next(
            log,
            StartCause.AGE,
            f"the checkpoint at {log.checkpoints[0].id} is {age_ms} ms old, more than {settings.retention_ms} ms",
        )
        if advance is None:
            break
        yield advance


def _next(log: MetadataLogModel, cause: StartCause, reason: str) -> StartMove | None:
    """To the second checkpoint; None if Kafka's cleaner would end its walk."""
    # ``KafkaMetadataLog.cleanSnapshots`` walks over pairs: a checkpoint goes only if a newer one can take its place.
    if len(log.checkpoints) < 2:
        return None
    advance = _moved(log, log.checkpoints[1], cause, reason)
    if advance is not None and (advance.deleted_segments or advance.deleted_checkpoints):
        return advance
    return None


def advance_leader(
    log: MetadataLogModel, now_ms: int, settings: StartSettings, live_replicas: Sequence[Progress], listeners: Sequence[Progress]
) -> StartMove | None:
    """Moves a leader's start once.

    Args:
        log: of the leader.
        now_ms: the time, ms since 1970.
        settings: the longest wait.
        live_replicas: followers, voters or not, that fetch.
        listeners: of this node.
    """
    readers = (*live_replicas, *listeners)
    slowest = min(readers, key=lambda reader: reader.offset, default=None)
    reached = log.newest_at_or_below(log.end_offset if slowest is None else slowest.offset)
    if reached is not None:
        detail = "the log has no readers"
        if slowest is not None:
            detail = f"all have read past it; the slowest, {slowest.name}, is at {slowest.offset}"
        return _moved(log, reached, StartCause.ALL_PAST, detail)
    aged = log.newest_not_after(now_ms - settings.lag_time_max_ms)
    if aged is None:
        return None
    age_ms = now_ms - aged.timestamp_ms
    waited = "" if slowest is None else f", and {slowest.name} is still at {slowest.offset}"
    return _moved(log, aged, StartCause.LAG_TIME, f"it is {age_ms} ms old, not less than {settings.lag_time_max_ms} ms{waited}")


def advance_follower(
    log: MetadataLogModel, leader_start: OffsetAndEpoch, listeners: Sequence[Progress], mode: FollowerMode
) -> StartMove | None:
    """Moves a follower's start once, after its leader's.

    Its listeners must have read past the leader's start, and a checkpoint of its own must lie above it: it may become the leader.
    """
    latest = log.latest
    if latest is None or latest.id.offset <= leader_start.offset or log.start.offset >= leader_start.offset:
        return None
    if any(listener.offset < leader_start.offset for listener in listeners):
        return None
    before = log.start
    reason = f"the leader's log starts at {leader_start}"
    if mode is FollowerMode.LITERAL:
        deleted = log.start_at(leader_start)
        if deleted is None:
            return None
        return _start_move(before, leader_start, StartCause.LEADER_MOVED, reason, deleted)
    own = log.newest_at_or_below(leader_start.offset)
    return None if own is None else _moved(log, own, StartCause.LEADER_MOVED, reason)
