"""The order of restarts: one broker at a time, the quickest gain first, controllers last and the active one behind all.

As brokers are restarted one after the other, each when the one before is in sync again, two replicas of a partition are never down
together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from snaprebuild.cluster.fleet.replicas import PartitionKey, Replica, ReplicaState

__all__ = ["Step", "restart_order"]


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
