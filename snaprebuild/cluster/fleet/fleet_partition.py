"""Fleet: a partition over all brokers that were scanned, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar

import msgspec

from snaprebuild.cluster.fleet.cluster_view import Placement
from snaprebuild.cluster.fleet.election_risk import ElectionRisk
from snaprebuild.cluster.fleet.replicas import PartitionKey, ScannedReplica
from snaprebuild.findings import pluralize

__all__ = ["FleetOutcome", "FleetPartition", "grouped", "partitions_text"]

Key = TypeVar("Key")
Value = TypeVar("Value")


class FleetOutcome(StrEnum):
    """The action for a partition."""

    HEALTHY = "healthy"
    """Nothing: any leader uploads it."""
    ELECT = "elect"
    """A replica has all its snapshots: elect it, and nothing has to be rebuilt."""
    REPAIR = "repair"
    """No replica has: one must be rebuilt, or its broker started again."""
    VERIFY = "verify"
    """Nothing is stuck, and snapshots of every replica are unproven, or the only replica is empty."""
    WAIT = "wait"
    """No replica can be rebuilt so that all goes up: retention, or an operator."""
    NOT_SCANNED = "not_scanned"
    """Not judged: no scan has the replica of its leader."""
    GONE = "gone"
    """Not judged: the metadata log has no topic of this id. It was deleted or made again, or it is newer than the log."""


class FleetPartition(msgspec.Struct, frozen=True):
    """A partition over all brokers that were scanned.

    Attributes:
        key: topic, partition, topic id.
        replicas: by node id; with a metadata log at most those that it gives to the partition.
        outcome: what to do.
        elect: broker whose replica should lead; None if any may lead, or none helps.
        condition: what must be so before ``elect`` can lead; None if nothing speaks against it.
        placement: what the metadata log says of it; None without one.
        not_scanned: brokers that hold a replica and whose scan is not here, as the metadata log has it.
        not_assigned: brokers that were scanned with files of it, and have no replica of it, as the metadata log has it: they never lead.
        election_risk: of electing ``elect``; None if no election is needed.
    """

    key: PartitionKey
    replicas: tuple[ScannedReplica, ...]
    outcome: FleetOutcome
    elect: int | None = None
    condition: str | None = None
    placement: Placement | None = None
    not_scanned: tuple[int, ...] = ()
    not_assigned: tuple[int, ...] = ()
    election_risk: ElectionRisk | None = None

    @property
    def name(self) -> str:
        """``<topic>-<partition>``."""
        return f"{self.key[0]}-{self.key[1]}"

    @property
    def stuck_bytes(self) -> int:
        """Bytes of segments that cannot be uploaded: of the leader if it is known, else of the replica with most."""
        if self.placement is not None:
            of_leader = [replica.stuck_bytes for replica in self.replicas if replica.node_id == self.placement.leader]
            if of_leader:
                return of_leader[0]
        return max((replica.stuck_bytes for replica in self.replicas), default=0)


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """The values of each key, in the order of the pairs."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def partitions_text(names: list[str]) -> str:
    """How many partitions, and the names of the first three."""
    return f"{pluralize(len(names), 'partition')} ({', '.join(names[:3])}{' ...' if len(names) > 3 else ''})"
