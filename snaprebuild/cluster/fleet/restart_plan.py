"""The brokers to repair, and the order of their restarts.

The brokers are the smallest set that holds a replica of each partition: a hitting set, which is a set cover with the roles exchanged.
It is exact by branch and bound up to a limit of work; beyond it, a greedy choice, with a bound below which no set can be.

One broker restarts at a time: the quickest gain first, controllers last and the active one after all others. Each waits until the one
before is in sync again, so that two replicas of a partition are never down together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Protocol

from snaprebuild.cluster.fleet.replicas import PartitionKey, ReplicaReadiness, ScannedReplica
from snaprebuild.published import Natural, Part, Seconds

__all__ = ["RepairCover", "Restart", "RestartStep", "restart_order", "smallest_cover"]


WORK_MAX = 30_000_000
"""Partitions that the search looks at, each as often as it comes by: some seconds."""

SUBSETS_OF_MAX = 10
"""Partitions with more brokers are not looked for among the subsets of others: no cluster has them, and there are 2^n."""


class RepairCover(Part, frozen=True):
    """Brokers to repair: together they hold a replica of each partition that must be repaired."""

    brokers: Sequence[Natural]
    """Node ids, ascending."""
    is_smallest: bool
    """No smaller set holds a replica of each partition that must be repaired, and none of this size costs less reading."""
    brokers_at_least: Natural
    """No set with fewer brokers does."""


def smallest_cover(partitions: Collection[frozenset[int]], costs: Mapping[int, int], work_max: int = WORK_MAX) -> RepairCover:
    """Finds the smallest set of brokers of which each partition has one.

    Args:
        partitions: the brokers of each.
        costs: of each broker, from 0 on: among sets of one size the cheapest is wanted.
        work_max: how much is looked at before the search ends.

    Returns:
        The set; whether it is the smallest, and what is proven where it need not be.
    """
    distinct = set(partitions)
    # A set that hits a partition hits all those whose brokers include its brokers.
    needed = sorted((each for each in distinct if not _has_part(each, distinct)), key=lambda each: (len(each), sorted(each)))
    hits = Counter(broker for each in needed for broker in each)
    # One more broker costs more than all others together, so that the cheapest set is among the smallest.
    dearest = 1 + sum(costs[broker] for broker in hits)
    search = _Search({broker: dearest + costs[broker] for broker in hits}, needed, work_max)
    # A greedy cover is at most H(d) times the smallest, d being the most partitions that a broker has (Johnson, Lovász 1974).
    ratio = sum(1 / number for number in range(1, max(hits.values(), default=1) + 1))
    bound = math.ceil(len(search.greedy) / ratio - 1e-9)
    brokers_at_least = len(search.best) if search.is_done else max(len(_disjoint(needed)), bound)
    return RepairCover(tuple(sorted(search.best)), search.is_done, brokers_at_least)


def _has_part(brokers: frozenset[int], partitions: set[frozenset[int]]) -> bool:
    sizes = range(1, len(brokers) if len(brokers) <= SUBSETS_OF_MAX else 1)
    return any(frozenset(part) in partitions for size in sizes for part in combinations(brokers, size))


def _disjoint(partitions: list[frozenset[int]]) -> list[frozenset[int]]:
    """Partitions that share no broker: each needs one of its own."""
    brokers: set[int] = set()
    disjoint = []
    for partition in sorted(partitions, key=len):
        if brokers.isdisjoint(partition):
            brokers |= partition
            disjoint.append(partition)
    return disjoint


class _Search:
    """Branch and bound: the partition with the fewest brokers left must be hit by one of them.

    Attributes:
        greedy: what a greedy choice finds.
        best: the cheapest set.
        is_done: no set is cheaper.
    """

    def __init__(self, costs: dict[int, int], partitions: list[frozenset[int]], work_max: int) -> None:
        self._costs = costs
        self._work_left = work_max
        self.is_done = True
        self.greedy = self.best = self._greedy_cover(partitions)
        self._best_cost = sum(costs[broker] for broker in self.best)
        self._visit(partitions, frozenset(), 0)

    def _greedy_cover(self, partitions: list[frozenset[int]]) -> frozenset[int]:
        chosen: frozenset[int] = frozenset()
        left = partitions
        while left:
            hits = Counter(broker for each in left for broker in each)
            best = max(sorted(hits), key=lambda broker: (hits[broker], -self._costs[broker]))
            chosen |= {best}
            left = [each for each in left if best not in each]
        for broker in sorted(chosen):  # what was chosen early may be needless by now
            if not any(partition & chosen == {broker} for partition in partitions):
                chosen -= {broker}
        return chosen

    def _visit(self, left: list[frozenset[int]], chosen: frozenset[int], cost: int) -> None:
        """Tries all that can be added to what is chosen. ``left``: partitions that are not hit yet, of brokers that are not ruled out."""
        self._work_left -= len(left) + 1
        if self._work_left < 0:
            self.is_done = False
        elif not left and cost < self._best_cost:
            self.best = chosen
            self._best_cost = cost
        elif left and cost + sum(min(map(self._costs.__getitem__, each)) for each in _disjoint(left)) < self._best_cost:
            narrowest = min(left, key=len)
            hits = Counter(broker for each in left for broker in each & narrowest)
            ruled_out: set[int] = set()
            for broker in sorted(narrowest, key=lambda broker: (-hits[broker], self._costs[broker], broker)):
                # What was tried before is ruled out: sets with it have been looked at.
                rest = [each - ruled_out for each in left if broker not in each]
                if all(rest):
                    self._visit(rest, chosen | {broker}, cost + self._costs[broker])
                ruled_out.add(broker)


class RepairedPartition(Protocol):
    """A partition that is repaired on one of its brokers."""

    @property
    def key(self) -> PartitionKey:
        """Key of the partition."""
        ...

    @property
    def stuck_bytes(self) -> int:
        """Freed when it is repaired."""
        ...


class RestartStep(Part, frozen=True):
    """The restart of a broker."""

    node_id: Natural
    is_controller: bool
    needs_rebuild: bool
    """Otherwise a start is enough."""
    partitions: Natural
    """Partitions that are ready after this step, but not before."""
    missing: Natural
    """Snapshots to rebuild."""
    replay_bytes: Natural
    estimated_seconds: Seconds | None
    freed_bytes: Natural
    hold: str | None = None
    """Why the order stops before this step; null for a step that may be done. Not stable."""


class Restart(RestartStep, frozen=True):
    """One broker: stop it, rebuild, start it, wait until it is in sync.

    Attributes:
        keys: the partitions that are ready after this step, but not before.
    """

    keys: tuple[PartitionKey, ...] = ()


def restart_order(
    brokers: Sequence[int],
    choices: Iterable[tuple[RepairedPartition, Mapping[int, ScannedReplica]]],
    controllers: frozenset[int],
    quorum_leader: int | None,
    rate_bytes_per_second: int | None,
    ranks: Mapping[int, int] | None = None,
) -> tuple[Restart, ...]:
    """Puts the brokers to repair in order, and gives each partition to the first of them that holds it.

    Args:
        brokers: to be repaired; each partition has one of them.
        choices: partitions with their replicas that can be repaired, by broker.
        controllers: node ids.
        quorum_leader: the active controller, None if that is not known.
        rate_bytes_per_second: per second.
        ranks: of each broker, the lowest first, where the order is known; None where it is that of the gain.
    """
    repairs: dict[int, list[tuple[RepairedPartition, ScannedReplica]]] = {node: [] for node in brokers}
    nodes_of: dict[PartitionKey, tuple[int, ...]] = {}
    freed = dict.fromkeys(brokers, 0)
    replayed = dict.fromkeys(brokers, 0)
    for partition, replicas in choices:
        nodes_of[partition.key] = tuple(node for node in replicas if node in freed)
        for node in nodes_of[partition.key]:
            repairs[node].append((partition, replicas[node]))
            freed[node] += partition.stuck_bytes
            replayed[node] += replicas[node].replay_bytes
    by_node = {node: {partition.key: replica for partition, replica in each} for node, each in repairs.items()}
    steps: list[Restart] = []
    while repairs:
        # What frees most for each byte that is read comes first; who is a controller waits for those who are none.
        if ranks is not None:
            node = min(repairs, key=lambda node_id: ranks[node_id])
        else:
            node = min(
                repairs,
                key=lambda node_id: (
                    node_id == quorum_leader,
                    node_id in controllers,
                    -freed[node_id] / (replayed[node_id] + 1),
                    node_id,
                ),
            )
        own = [(partition, replica) for partition, replica in repairs.pop(node) if partition.key in nodes_of]
        for partition, _ in own:
            for other in nodes_of.pop(partition.key):
                freed[other] -= partition.stuck_bytes
                replayed[other] -= by_node[other][partition.key].replay_bytes
        steps.append(_restart(node, own, node in controllers, rate_bytes_per_second))
    return tuple(steps)


def _restart(
    node: int, repairs: Sequence[tuple[RepairedPartition, ScannedReplica]], is_controller: bool, rate_bytes_per_second: int | None
) -> Restart:
    replay_bytes = sum(replica.replay_bytes for _, replica in repairs)
    return Restart(
        node_id=node,
        partitions=len(repairs),
        freed_bytes=sum(partition.stuck_bytes for partition, _ in repairs),
        replay_bytes=replay_bytes,
        missing=sum(replica.missing for _, replica in repairs),
        estimated_seconds=None if rate_bytes_per_second is None else replay_bytes / rate_bytes_per_second,
        is_controller=is_controller,
        needs_rebuild=any(replica.state is not ReplicaReadiness.START for _, replica in repairs),
        keys=tuple(partition.key for partition, _ in repairs),
    )
