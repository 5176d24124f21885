"""The nodes of a simulated metadata quorum: their logs, and the progress of the readers of these logs."""

from __future__ import annotations

from bisect import bisect_left

from snaprebuild.cluster.quorum.log_start import CheckpointOfLog, MetadataLogModel, OffsetAndEpoch, Progress
from snaprebuild.errors import UsageError
from snaprebuild.simulations.metadata_log.scenario import NodeSettings, ScenarioListener, ScenarioReplica

__all__ = ["CHECKPOINTS_MAX", "Position", "SimulatedFollower", "SimulatedLeader", "SimulatedNode"]

CHECKPOINTS_MAX = 100_000
"""Checkpoints of one node at a time. Kafka takes one an hour, and one for 20 MiB: where retention is off these are eleven years."""

PIECES = 64
"""Parts of a segment: a follower appends what it copies at once in parts of that size, so that its segments are about as large."""


class Position:
    """How far a reader is. It is only asked for when something depends on it, so a reader costs nothing in between."""

    __slots__ = ("_from_ms", "_from_offset", "is_down", "is_stuck", "offset", "reader")

    def __init__(self, reader: ScenarioListener | ScenarioReplica) -> None:
        self.reader = reader
        self.offset = 0
        self.is_down = False
        self.is_stuck = False
        self._from_ms = 0
        self._from_offset = 0

    @property
    def progress(self) -> Progress:
        """Name and next offset."""
        return Progress(self.reader.name, self.offset)

    def settle(self, now_ms: int, end_offset: int) -> None:
        """Goes as far as it can until now; ``end_offset`` is that of the log it reads."""
        if self.is_down or self.is_stuck:
            self.jump(now_ms, self.offset)
            return
        target = max(self.offset, end_offset - self.reader.lag_records)
        rate = self.reader.records_per_second
        within = target if not rate else self._from_offset + (now_ms - self._from_ms) * rate // 1000
        if within >= target:
            self.jump(now_ms, target)
        else:
            self.offset = max(self.offset, within)

    def turn(self, now_ms: int) -> None:
        """Stops or continues, by its spans; it is settled until now."""
        self.is_down = any(span.begin_ms <= now_ms < span.end_ms for span in self.reader.down)
        self.is_stuck = any(span.begin_ms <= now_ms < span.end_ms for span in self.reader.stuck)
        self.jump(now_ms, self.offset)

    def jump(self, now_ms: int, offset: int) -> None:
        """Continues from an offset."""
        self.offset = self._from_offset = offset
        self._from_ms = now_ms


class SimulatedNode:
    """A log, its checkpoints, and listeners.

    Attributes:
        listeners: of this node.
        taken: checkpoints so far.
        checkpoint_ms: when the last one was taken.
        bytes_at_checkpoint: what was written until then.
        written_bytes: what was ever written here.
    """

    def __init__(self, settings: NodeSettings, listeners: tuple[ScenarioListener, ...]) -> None:
        self.settings = settings
        self.log = MetadataLogModel(OffsetAndEpoch(0, 0), 0)
        self.listeners = [Position(listener) for listener in listeners]
        self.taken = 0
        self.checkpoint_ms = 0
        self.bytes_at_checkpoint = 0
        self.written_bytes = 0

    def take_checkpoint(self, now_ms: int, timestamp_ms: int, epoch: int) -> bool:
        """Takes a checkpoint of everything; False where there is nothing new."""
        self.checkpoint_ms = now_ms
        self.bytes_at_checkpoint = self.written_bytes
        if len(self.log.checkpoints) >= CHECKPOINTS_MAX:
            raise UsageError(
                f"the scenario keeps more than {CHECKPOINTS_MAX} checkpoints: take them less often, or let retention delete them"
            )
        size = self.settings.checkpoint_bytes + self.taken * self.settings.checkpoint_growth_bytes
        checkpoint = CheckpointOfLog(OffsetAndEpoch(self.log.end_offset, epoch), size, timestamp_ms)
        is_new = self.log.end_offset > 0 and self.log.add_checkpoint(checkpoint)
        self.taken += is_new
        return is_new

    def listener_progress(self, now_ms: int) -> list[Progress]:
        """How far its listeners are."""
        for listener in self.listeners:
            listener.settle(now_ms, self.log.end_offset)
        return [listener.progress for listener in self.listeners]

    def reload_listeners(self, now_ms: int) -> list[str]:
        """Gives the latest checkpoint to the listeners below the start, and returns their names (``updateListenersProgress``)."""
        reloaded: list[str] = []
        for listener in self.listeners:
            listener.settle(now_ms, self.log.end_offset)
            if listener.offset < self.log.start.offset and self.log.latest is not None:
                listener.jump(now_ms, self.log.latest.id.offset)
                reloaded.append(listener.reader.name)
        return reloaded


class SimulatedLeader(SimulatedNode):
    """A node that leads: it knows where leader epochs begin.

    Attributes:
        epochs: first offsets of the epochs 1, 2, ...
        append_ms: when the last batch was appended.
    """

    def __init__(self, settings: NodeSettings, listeners: tuple[ScenarioListener, ...]) -> None:
        super().__init__(settings, listeners)
        self.epochs = [0]
        self.append_ms = 0

    def elect(self, _now_ms: int) -> None:
        """Begins a leader epoch."""
        self.epochs.append(self.log.end_offset)

    def epoch_before(self, offset: int) -> int:
        """The epoch of the record before an offset."""
        return bisect_left(self.epochs, offset)


class SimulatedFollower(SimulatedNode):
    """A replica that copies the leader's log.

    Attributes:
        position: how far.
        is_invalid: what it wants next is gone, and it was stopped or stuck when it went.
        invalidated: how often what it wanted next went.
        loaded: how often it began with a checkpoint because it was empty, whatever the policy.
    """

    def __init__(self, reader: ScenarioReplica, settings: NodeSettings, listeners: tuple[ScenarioListener, ...]) -> None:
        super().__init__(settings, listeners)
        self.position = Position(reader)
        self.checkpoint_ms = reader.checkpoint_shift_ms
        self.is_invalid = False
        self.invalidated = 0
        self.loaded = 0

    def settle(self, now_ms: int, leader: SimulatedLeader) -> None:
        """Copies what it can until now. An empty one gets the latest checkpoint (``tryCompleteFetchRequest``)."""
        fetches = not (self.position.is_down or self.position.is_stuck)
        if fetches and not self.position.offset and leader.log.latest is not None:
            self.loaded += 1
            self._load(now_ms, leader)
        elif fetches and (self.is_invalid or self.position.offset < leader.log.start.offset):
            self.is_invalid = False
            self._load(now_ms, leader)
        self.position.settle(now_ms, leader.log.end_offset)
        records = self.position.offset - self.log.end_offset
        if records:
            missing = leader.log.end_offset - self.log.end_offset
            self._copy(records, (leader.written_bytes - self.written_bytes) * records // missing)

    def _copy(self, records: int, size_bytes: int) -> None:
        """Appends ``records`` records with ``size_bytes`` bytes, the leader's bytes in proportion."""
        self.written_bytes += size_bytes
        pieces = min(records, 1 + size_bytes * PIECES // self.settings.segment_bytes)
        each_records = records // pieces
        each_bytes = max(1, size_bytes // pieces)
        self.log.append(pieces - 1, each_records, each_bytes, self.settings.segment_bytes)
        rest = size_bytes - (pieces - 1) * each_bytes
        self.log.append(1, records - (pieces - 1) * each_records, max(1, rest), self.settings.segment_bytes)

    def invalidate(self, now_ms: int, leader: SimulatedLeader) -> bool:
        """Looks whether what it wants next is gone, now that the leader's start has moved."""
        self.position.settle(now_ms, leader.log.end_offset)
        if self.is_invalid or not 0 < self.position.offset < leader.log.start.offset:
            return False
        self.is_invalid = True
        self.invalidated += 1
        return True

    def _load(self, now_ms: int, leader: SimulatedLeader) -> None:
        latest = leader.log.latest
        if latest is None:  # pragma: no cover - a start above 0 has one
            return
        self.log.restart_at(latest)
        self.position.jump(now_ms, latest.id.offset)
        self.checkpoint_ms = now_ms
        self.written_bytes = self.bytes_at_checkpoint = leader.bytes_at_checkpoint
