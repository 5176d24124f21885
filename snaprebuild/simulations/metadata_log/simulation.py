"""The moves of the start of a metadata log under each policy, in a scenario.

Time moves from one event to the next. Events are a batch, or all equal batches before another event; a checkpoint; a look at the start; and
a replica that stops. Readers of the log cost nothing between events. Memory does not grow with the length of the scenario, except for
``MOVES_MAX`` moves of the start.

Assumed: everything that is written is committed at once, and one node stays the leader (an election begins an epoch).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial

from msgspec.structs import asdict

from snaprebuild.cluster.quorum.log_start import (
    CheckpointSettings,
    FollowerMode,
    OffsetAndEpoch,
    Policy,
    StartMove,
    advance_follower,
    advance_leader,
    immediate,
    is_checkpoint_due,
    retention,
)
from snaprebuild.errors import UsageError
from snaprebuild.published import Natural, Part
from snaprebuild.simulations.metadata_log.nodes import Position, SimulatedFollower, SimulatedLeader, SimulatedNode
from snaprebuild.simulations.metadata_log.scenario import LEADER, Append, MetadataLogScenario, ScenarioListener

__all__ = ["EVENTS_MAX", "MOVES_MAX", "LeaderSample", "NodeMove", "PolicyRun", "simulate", "simulate_policies"]


EVENTS_MAX = 5_000_000
"""Half a minute or so for each policy. A year of Kafka's cleaner, which looks every minute, is half a million."""

MOVES_MAX = 10_000
"""Moves of the start that are listed one by one; further ones are counted."""


class _Kind(IntEnum):
    """Events of one moment happen in this order."""

    ELECTION = 0
    BOUNDARY = 1
    APPEND = 2
    CHECKPOINT = 3
    CLEAN = 4
    SAMPLE = 5


class NodeMove(StartMove, frozen=True):
    """The start of one node moved."""

    time_ms: Natural
    """Time since the scenario began."""
    node: str
    """`leader`, or the id of a replica."""
    invalidated: tuple[str, ...]
    """Replicas whose next offset is now deleted."""
    reloaded: tuple[str, ...]
    """Listeners of the node whose next offset is now deleted."""


class LeaderSample(Part, frozen=True):
    """The leader at one moment."""

    time_ms: Natural
    """Time since the scenario began."""
    start_offset: Natural
    end_offset: Natural
    size_bytes: Natural
    """Bytes of segments and checkpoints."""


class PolicyRun(Part, frozen=True):
    """One policy."""

    policy: Policy
    end_offset: Natural
    """Log end of the leader at the end."""
    starts: dict[str, OffsetAndEpoch]
    """Log starts of all nodes at the end, by `leader` or id."""
    move_count: Natural
    """Moves of log starts, of all nodes."""
    checkpoints: Natural
    """Checkpoints that the leader took."""
    peak_bytes: Natural
    """Most bytes of the leader's segments and checkpoints."""
    end_bytes: Natural
    """Bytes of the leader's segments and checkpoints at the end."""
    replicas_invalidated: dict[str, Natural]
    """How often the next offset of a replica was deleted, by id."""
    replicas_loaded: dict[str, Natural]
    """How often a replica that was empty began with a checkpoint, by id."""
    listeners_reloaded: dict[str, Natural]
    """How often a listener had to load a checkpoint, by node/name."""
    follower_ahead: Natural
    """Moves after which a follower's start was beyond its leader's."""
    events: Natural
    """Simulated events."""
    samples: tuple[LeaderSample, ...]
    """Samples of the leader, equally spaced."""
    moves: tuple[NodeMove, ...]
    """Moves of log starts; the first 10,000."""


@dataclass(slots=True)
class _Counts:
    """Counters of a scenario."""

    listeners_reloaded: dict[str, int]
    moves: list[NodeMove] = field(default_factory=list)
    move_count: int = 0
    samples: list[LeaderSample] = field(default_factory=list)
    peak_bytes: int = 0
    follower_ahead: int = 0
    events: int = 0


def simulate(
    scenario: MetadataLogScenario, policy: Policy, mode: FollowerMode = FollowerMode.STRICT, samples: int = 72
) -> PolicyRun:
    """Plays a scenario.

    Args:
        scenario: to play.
        policy: of all nodes.
        mode: of followers under ``kafka-14932``.
        samples: how many.

    Raises:
        UsageError: the scenario has more than ``EVENTS_MAX`` events, or keeps too many checkpoints.
    """
    return _Simulation(scenario, policy, mode, samples).run()


class _Simulation:
    def __init__(self, scenario: MetadataLogScenario, policy: Policy, mode: FollowerMode, samples: int) -> None:
        self._scenario = scenario
        self._mode = mode
        self._policy = policy
        self._leader = SimulatedLeader(scenario.nodes, _listeners(scenario, LEADER))
        self._followers = {
            replica.name: SimulatedFollower(replica, scenario.nodes, _listeners(scenario, replica.name))
            for replica in scenario.replicas
        }
        self._counts = _Counts({f"{listener.node}/{listener.name}": 0 for listener in scenario.listeners})
        self._events: list[tuple[int, _Kind, int, Callable[[int], None]]] = []
        self._pushed = 0
        for number in range(1, samples + 1):
            self._push(scenario.duration_ms * number // samples, _Kind.SAMPLE, self._sample)
        for time_ms in scenario.elections:
            self._push(time_ms, _Kind.ELECTION, self._leader.elect)
        for append in scenario.appends:
            self._push(append.begin_ms, _Kind.APPEND, partial(self._append, append))
        if policy is not Policy.IMMEDIATE:
            self._push(scenario.nodes.clean_interval_ms, _Kind.CLEAN, self._clean)
        for node in (self._leader, *self._followers.values()):
            for position in node.listeners:
                self._push_spans(position, partial(_turn_listener, node, position))
        for follower in self._followers.values():
            self._push(follower.checkpoint_ms + self._interval_ms(), _Kind.CHECKPOINT, partial(self._follower_checkpoint, follower))
            self._push_spans(follower.position, partial(self._turn_follower, follower))

    def _push(self, time_ms: int, kind: _Kind, action: Callable[[int], None]) -> None:
        if time_ms <= self._scenario.duration_ms:
            self._pushed += 1
            heapq.heappush(self._events, (time_ms, kind, self._pushed, action))

    def _push_spans(self, position: Position, action: Callable[[int], None]) -> None:
        for span in (*position.reader.down, *position.reader.stuck):
            self._push(span.begin_ms, _Kind.BOUNDARY, action)
            self._push(span.end_ms, _Kind.BOUNDARY, action)

    def _interval_ms(self) -> int:
        """The time between two checks whether a follower takes a checkpoint; the cleaner's interval if only bytes decide."""
        return self._scenario.nodes.checkpoint_interval_ms or self._scenario.nodes.clean_interval_ms

    def run(self) -> PolicyRun:
        counts = self._counts
        log = self._leader.log
        while self._events:
            time_ms, _, _, action = heapq.heappop(self._events)
            counts.events += 1
            if counts.events > EVENTS_MAX:
                raise UsageError(
                    f"the scenario has more than {EVENTS_MAX} events: make it shorter, or let things happen less often"
                )
            action(time_ms)
        return PolicyRun(
            policy=self._policy,
            end_offset=log.end_offset,
            starts={LEADER: log.start} | {name: each.log.start for name, each in self._followers.items()},
            move_count=counts.move_count,
            checkpoints=self._leader.taken,
            peak_bytes=counts.peak_bytes,
            end_bytes=log.size_bytes,
            replicas_invalidated={name: each.invalidated for name, each in self._followers.items()},
            replicas_loaded={name: each.loaded for name, each in self._followers.items()},
            listeners_reloaded=counts.listeners_reloaded,
            follower_ahead=counts.follower_ahead,
            events=counts.events,
            samples=tuple(counts.samples),
            moves=tuple(counts.moves),
        )

    def _turn_follower(self, follower: SimulatedFollower, time_ms: int) -> None:
        """A follower stops or continues; first it copies what it could until now."""
        self._settle(time_ms, follower)
        follower.position.turn(time_ms)
        self._settle(time_ms, follower)

    def _settle(self, time_ms: int, follower: SimulatedFollower) -> None:
        """Lets a follower copy; where it was given a checkpoint, its listeners may have to load it."""
        before = follower.log.start
        follower.settle(time_ms, self._leader)
        if follower.log.start != before:
            self._count_reloads(follower, time_ms)

    def _append(self, append: Append, time_ms: int) -> None:
        """Appends as many batches as come before the next event, up to the one that makes the leader take a checkpoint."""
        leader = self._leader
        nodes = self._scenario.nodes
        last_ms: int = append.end_ms - 1
        if self._events:
            next_ms, kind = self._events[0][:2]
            last_ms = min(last_ms, next_ms if kind > _Kind.APPEND else next_ms - 1)
        count = max(1, (last_ms - time_ms) // append.every_ms + 1)
        missing_bytes = nodes.checkpoint_record_bytes - (leader.written_bytes - leader.bytes_at_checkpoint)
        count = min(count, max(1, -(-missing_bytes // append.size_bytes)))
        if nodes.checkpoint_interval_ms:
            wait_ms = leader.checkpoint_ms + nodes.checkpoint_interval_ms - time_ms
            count = min(count, max(1, -(-wait_ms // append.every_ms) + 1))
        leader.log.append(count, append.records, append.size_bytes, nodes.segment_bytes)
        leader.written_bytes += count * append.size_bytes
        leader.append_ms = time_ms + (count - 1) * append.every_ms
        if leader.append_ms + append.every_ms < append.end_ms:
            self._push(leader.append_ms + append.every_ms, _Kind.APPEND, partial(self._append, append))
        if self._is_due(leader, leader.append_ms):
            self._take_checkpoint(leader.append_ms, LEADER, leader)

    def _is_due(self, node: SimulatedNode, now_ms: int) -> bool:
        """``SnapshotGenerator``: enough bytes since the last one, or enough time; asked when something new was read."""
        nodes = self._scenario.nodes
        settings = CheckpointSettings(nodes.checkpoint_interval_ms, nodes.checkpoint_record_bytes)
        return is_checkpoint_due(settings, node.written_bytes - node.bytes_at_checkpoint, now_ms - node.checkpoint_ms)

    def _take_checkpoint(self, now_ms: int, name: str, node: SimulatedNode) -> None:
        epoch = self._leader.epoch_before(node.log.end_offset)
        if node.take_checkpoint(now_ms, min(now_ms, self._leader.append_ms), epoch) and self._policy is Policy.IMMEDIATE:
            self._counts.peak_bytes = max(self._counts.peak_bytes, self._leader.log.size_bytes)
            move = immediate(node.log)
            self._count(now_ms, name, node, () if move is None else (move,))

    def _follower_checkpoint(self, follower: SimulatedFollower, now_ms: int) -> None:
        wait_ms: int = self._scenario.nodes.clean_interval_ms
        if not (follower.position.is_down or follower.position.is_stuck):
            self._settle(now_ms, follower)
            latest = follower.log.latest
            is_new = latest is None or latest.id.offset < follower.log.end_offset
            if is_new and self._is_due(follower, now_ms):
                self._take_checkpoint(now_ms, follower.position.reader.name, follower)
                wait_ms = self._interval_ms()
        self._push(now_ms + wait_ms, _Kind.CHECKPOINT, partial(self._follower_checkpoint, follower))

    def _clean(self, now_ms: int) -> None:
        """Runs the cleaner of each node, the leader's first."""
        leader = self._leader
        settings = self._scenario.settings
        self._push(now_ms + self._scenario.nodes.clean_interval_ms, _Kind.CLEAN, self._clean)
        self._counts.peak_bytes = max(self._counts.peak_bytes, leader.log.size_bytes)
        for follower in self._followers.values():
            self._settle(now_ms, follower)
        running = [(name, each) for name, each in self._followers.items() if not each.position.is_down]
        if self._policy is Policy.RETENTION:
            for name, node in ((LEADER, leader), *running):
                self._count(now_ms, name, node, retention(node.log, now_ms, settings))
            return
        live = [each.position.progress for _, each in running if each.position.offset]
        while (move := advance_leader(leader.log, now_ms, settings, live, leader.listener_progress(now_ms))) is not None:
            self._count(now_ms, LEADER, leader, (move,))
        for name, follower in running:
            move = advance_follower(follower.log, leader.log.start, follower.listener_progress(now_ms), self._mode)
            self._count(now_ms, name, follower, () if move is None else (move,))

    def _count(self, now_ms: int, name: str, node: SimulatedNode, moves: Iterable[StartMove]) -> None:
        """Counts moves of a start, and the readers that have to load a checkpoint because of them."""
        counts = self._counts
        for move in moves:
            invalidated = []
            if node is self._leader:
                invalidated = [each for each, follower in self._followers.items() if follower.invalidate(now_ms, self._leader)]
            elif node.log.start.offset > self._leader.log.start.offset:
                counts.follower_ahead += 1
            reloaded = self._count_reloads(node, now_ms)
            counts.move_count += 1
            if len(counts.moves) < MOVES_MAX:
                node_move = NodeMove(
                    **asdict(move), time_ms=now_ms, node=name, invalidated=tuple(invalidated), reloaded=tuple(reloaded)
                )
                counts.moves.append(node_move)

    def _count_reloads(self, node: SimulatedNode, now_ms: int) -> list[str]:
        names = node.reload_listeners(now_ms)
        where = next((name for name, each in self._followers.items() if each is node), LEADER)
        for name in names:
            self._counts.listeners_reloaded[f"{where}/{name}"] += 1
        return names

    def _sample(self, time_ms: int) -> None:
        log = self._leader.log
        self._counts.peak_bytes = max(self._counts.peak_bytes, log.size_bytes)
        self._counts.samples.append(LeaderSample(time_ms, log.start.offset, log.end_offset, log.size_bytes))


def _turn_listener(node: SimulatedNode, position: Position, time_ms: int) -> None:
    """A listener gets stuck or continues."""
    position.settle(time_ms, node.log.end_offset)
    position.turn(time_ms)


def _listeners(scenario: MetadataLogScenario, node: str) -> tuple[ScenarioListener, ...]:
    return tuple(listener for listener in scenario.listeners if listener.node == node)


def simulate_policies(
    scenario: MetadataLogScenario, policies: Sequence[Policy], mode: FollowerMode, samples: int
) -> list[PolicyRun]:
    """One run for each policy.

    Raises:
        UsageError: the scenario has more than ``EVENTS_MAX`` events, or keeps too many checkpoints.
    """
    return [simulate(scenario, policy, mode, samples) for policy in policies]
