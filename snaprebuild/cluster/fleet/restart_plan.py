"""Which brokers to treat, and in which order to restart them.

The brokers are the smallest set that holds a replica of each partition: a hitting set, which is a set cover with the roles exchanged.
It is exact by branch and bound up to a limit of work; beyond it, a greedy choice, with a bound below which no set can be.

One broker restarts at a time: the quickest gain first, controllers last and the active one after all others. Each waits until the one
before is in sync again, so that two replicas of a partition are never down together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from snaprebuild.cluster.fleet.replicas import PartitionKey, Replica, ReplicaState

__all__ = ["Cover", "Step", "restart_order", "smallest_cover"]


WORK_MAX = 30_000_000
"""Partitions that the search looks at, each as often as it comes by: some seconds."""

SUBSETS_OF_MAX = 10
"""Partitions with more brokers are not looked for among the subsets of others: no cluster has them, and there are 2^n."""


@dataclass(frozen=True, slots=True)
class Cover:
    """Brokers that together hold a replica of each partition.

    Attributes:
        brokers: ascending.
        at_least: no set with fewer brokers does.
        is_smallest: none does with fewer, and of those with as many none costs less.
    """

    brokers: tuple[int, ...]
    at_least: int
    is_smallest: bool


def smallest_cover(partitions: Collection[frozenset[int]], costs: Mapping[int, int], work_max: int = WORK_MAX) -> Cover:
    """Finds the smallest set of brokers of which each partition has one.

    Args:
        partitions: the brokers of each, at least one.
        costs: of each broker, from 0 on: among sets of one size the cheapest is wanted.
        work_max: how much is looked at before the search ends.

    Returns:
        The set; whether it is the smallest, and what is proven where it need not be.
    """
    brokers = sorted({broker for partition in partitions for broker in partition})
    bits = {broker: 1 << index for index, broker in enumerate(brokers)}
    masks = _needed({sum(bits[broker] for broker in partition) for partition in partitions})
    dearest = 1 + sum(costs[broker] for broker in brokers)
    # One broker more is dearer than all else, so that the cheapest set is among the smallest.
    search = _Search([dearest + costs[broker] for broker in brokers], masks, work_max)
    best = search.run()
    found = tuple(broker for broker in brokers if best & bits[broker])
    at_least = len(found) if search.is_done else max(search.at_least, _greedy_bound(search.greedy_count, masks))
    return Cover(found, at_least, search.is_done)


def _needed(masks: set[int]) -> list[int]:
    """Without those of which another is a part, the smallest first."""
    return sorted((mask for mask in masks if not _has_part(mask, masks)), key=lambda mask: (mask.bit_count(), mask))


def _has_part(mask: int, masks: set[int]) -> bool:
    if mask.bit_count() > SUBSETS_OF_MAX:
        return False
    part = (mask - 1) & mask
    while part:
        if part in masks:
            return True
        part = (part - 1) & mask
    return False


def _greedy_bound(count: int, masks: list[int]) -> int:
    """A greedy cover is at most H(d) times the smallest, d being the partitions of the broker that has most (Johnson, Lovász 1974)."""
    most = max((sum(mask >> index & 1 for mask in masks) for index in range(max(masks).bit_length())), default=0) if masks else 0
    harmonic = sum(1 / number for number in range(1, most + 1))
    return -(-count * 1_000_000 // int(harmonic * 1_000_000 + 1)) if count else 0


class _Search:
    """Branch and bound: the partition with the fewest brokers left must be hit by one of them."""

    def __init__(self, costs: list[int], masks: list[int], work_max: int) -> None:
        self._costs = costs
        self._masks = masks
        self._work_left = work_max
        self.is_done = True
        self.at_least = len(_disjoint(masks))
        self.greedy_count = 0
        self._best = 0
        self._best_cost = 0

    def run(self) -> int:
        self._best = self._greedy()
        self.greedy_count = self._best.bit_count()
        self._best_cost = self._cost_of(self._best)
        self._visit(self._masks, 0, 0)
        return self._best

    def _cost_of(self, chosen: int) -> int:
        return sum(self._costs[index] for index in _indices(chosen))

    def _greedy(self) -> int:
        chosen, left = 0, self._masks
        while left:
            counts = [0] * len(self._costs)
            for mask in left:
                for index in _indices(mask):
                    counts[index] += 1
            best = max(range(len(counts)), key=lambda index: (counts[index], -self._costs[index]))
            chosen |= 1 << best
            left = [mask for mask in left if not mask >> best & 1]
        for index in _indices(chosen):  # what was chosen early may be needless by now
            if all(mask & chosen & ~(1 << index) for mask in self._masks):
                chosen &= ~(1 << index)
        return chosen

    def _visit(self, left: list[int], chosen: int, cost: int) -> None:
        """Tries all that can be added to what is chosen. ``left``: partitions that nobody hits yet, of brokers that are not ruled out."""
        self._work_left -= len(left) + 1
        if self._work_left < 0:
            self.is_done = False
            return
        if not left:
            if cost < self._best_cost:
                self._best, self._best_cost = chosen, cost
            return
        if cost + sum(self._cheapest(mask) for mask in _disjoint(left)) >= self._best_cost:
            return
        narrowest = min(left, key=int.bit_count)
        ruled_out = 0
        for index in self._most_hit_first(narrowest, left):
            bit = 1 << index
            # What was tried before is ruled out: sets with it have been looked at.
            rest = [mask & ~ruled_out for mask in left if not mask & bit]
            if 0 not in rest:
                self._visit(rest, chosen | bit, cost + self._costs[index])
            ruled_out |= bit

    def _cheapest(self, mask: int) -> int:
        return min(self._costs[index] for index in _indices(mask))

    def _most_hit_first(self, mask: int, left: list[int]) -> list[int]:
        hits = {index: sum(other >> index & 1 for other in left) for index in _indices(mask)}
        return sorted(hits, key=lambda index: (-hits[index], self._costs[index]))


def _indices(mask: int) -> list[int]:
    """Of the bits that are set, ascending."""
    indices = []
    while mask:
        lowest = mask & -mask
        indices.append(lowest.bit_length() - 1)
        mask ^= lowest
    return indices


def _disjoint(masks: list[int]) -> list[int]:
    """Partitions that share no broker: each needs one of its own."""
    taken, found = 0, []
    for mask in sorted(masks, key=int.bit_count):
        if not mask & taken:
            taken |= mask
            found.append(mask)
    return found


class Treated(Protocol):
    """A partition that is treated on one of its brokers."""

    @property
    def key(self) -> PartitionKey:
        """Of it."""
        ...

    @property
    def stuck_bytes(self) -> int:
        """Freed when it is treated."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """One broker: stop it, rebuild, start it, wait until it is in sync.

    Attributes:
        node_id: of the broker.
        partitions: that are ready behind this step, and were not before.
        freed_bytes: of those, what was stuck.
        replay_bytes: of those, to read at most.
        missing: snapshots to rebuild.
        seconds: at the stated rate; None without one.
        is_controller: the broker is known to be one, too.
        needs_rebuild: otherwise the start alone gets them ready.
    """

    node_id: int
    partitions: tuple[PartitionKey, ...]
    freed_bytes: int
    replay_bytes: int
    missing: int
    seconds: float | None
    is_controller: bool
    needs_rebuild: bool


def restart_order(
    brokers: Sequence[int],
    choices: Iterable[tuple[Treated, Mapping[int, Replica]]],
    controllers: frozenset[int],
    quorum_leader: int | None,
    rate_bytes: int | None,
) -> tuple[Step, ...]:
    """Puts the brokers to treat in order, and gives each partition to the first of them that holds it.

    Args:
        brokers: to be treated; each partition has one of them.
        choices: partitions with their replicas that can be treated, by broker.
        controllers: node ids.
        quorum_leader: the active controller, None where that is not known.
        rate_bytes: per second.
    """
    held: dict[int, list[tuple[Treated, Replica]]] = {node: [] for node in brokers}
    nodes_of: dict[PartitionKey, tuple[int, ...]] = {}
    freed, replayed = dict.fromkeys(brokers, 0), dict.fromkeys(brokers, 0)
    for partition, replicas in choices:
        nodes_of[partition.key] = tuple(node for node in replicas if node in freed)
        for node in nodes_of[partition.key]:
            held[node].append((partition, replicas[node]))
            freed[node] += partition.stuck_bytes
            replayed[node] += replicas[node].replay_bytes
    by_node = {node: {partition.key: replica for partition, replica in each} for node, each in held.items()}
    steps: list[Step] = []
    while held:
        # What frees most for each byte that is read comes first; who is a controller waits for those who are none.
        node = min(held, key=lambda each: (each == quorum_leader, each in controllers, -freed[each] / (replayed[each] + 1), each))
        taken = [(partition, replica) for partition, replica in held.pop(node) if partition.key in nodes_of]
        for partition, _ in taken:
            for other in nodes_of.pop(partition.key):
                freed[other] -= partition.stuck_bytes
                replayed[other] -= by_node[other][partition.key].replay_bytes
        steps.append(_step(node, taken, node in controllers, rate_bytes))
    return tuple(steps)


def _step(node: int, taken: Sequence[tuple[Treated, Replica]], is_controller: bool, rate_bytes: int | None) -> Step:
    replay_bytes = sum(replica.replay_bytes for _, replica in taken)
    return Step(
        node_id=node,
        partitions=tuple(partition.key for partition, _ in taken),
        freed_bytes=sum(partition.stuck_bytes for partition, _ in taken),
        replay_bytes=replay_bytes,
        missing=sum(replica.missing for _, replica in taken),
        seconds=None if rate_bytes is None else replay_bytes / rate_bytes,
        is_controller=is_controller,
        needs_rebuild=any(replica.state is not ReplicaState.START for _, replica in taken),
    )
