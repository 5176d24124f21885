"""Which brokers may be restarted, in which order, so that each partition keeps a leader that has all acknowledged records.

A broker restarts when the one before is in sync again: then the replicas of that one have caught up. A restart does not mend leader
epochs that are lost or cut. Brokers that count as stopped, or do not start, lead nothing.

Kafka elects any broker in sync when a leader stops. So a leader is not restarted while a replica that must not lead is in sync.

Source: ``PartitionChangeBuilder.electLeader`` of Kafka 4.3.1, ``PartitionLeaderElectionAlgorithms`` of 3.9 with ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from snaprebuild.cluster.fleet.cluster_view import Placement
from snaprebuild.cluster.fleet.leader_standing import LeaderStanding, ReplicaStanding, may_all_lead, standings_of
from snaprebuild.cluster.fleet.replicas import PartitionKey, ScannedBroker, ScannedReplica
from snaprebuild.cluster.fleet.start_faults import StartFault
from snaprebuild.findings import Severity, first_of, pluralize

__all__ = ["Hold", "LeaderSet", "RestartOrder", "RestartSafety"]

UNDER_REPLICATED = "kafka-topics.sh --bootstrap-server HOST:PORT --describe --under-replicated-partitions"
SCAN_AGAIN = "snaprebuild scan --server-properties FILE --output json"

ANY_LEADER = -1
"""Without a metadata log each broker may lead."""


@dataclass(frozen=True, slots=True)
class LeaderSet:
    """A partition with its replicas, also one that is never uploaded.

    Attributes:
        key: topic, partition, topic id.
        replicas: that were scanned; with a metadata log at most those that it gives to the partition.
        placement: of the metadata log; None without one.
    """

    key: PartitionKey
    replicas: tuple[ScannedReplica, ...]
    placement: Placement | None

    @property
    def name(self) -> str:
        """``<topic>-<partition>``."""
        return f"{self.key[0]}-{self.key[1]}"


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a broker is not to be restarted.

    Attributes:
        reason: one sentence, with the evidence.
        command: what shows more, or mends it.
        partitions: names of the partitions concerned; empty if it is the broker itself.
        is_unknown: more scans may show that it may be restarted.
        is_wait: it may be restarted when other replicas have caught up; nothing has to be corrected.
        is_reported: another finding, or the operator, names the cause.
    """

    reason: str
    command: str
    partitions: tuple[str, ...] = ()
    is_unknown: bool = False
    is_wait: bool = False
    is_reported: bool = False


@dataclass(frozen=True, slots=True)
class RestartOrder:
    """The order for what is given.

    Attributes:
        brokers: to be restarted one after the other, each when the one before is in sync again.
        holds: the brokers at which the order stops, each with the reason.
    """

    brokers: tuple[int, ...]
    holds: Mapping[int, Hold]

    def with_unknown(self, unknown: Mapping[int, str]) -> RestartOrder:
        """The order, with a hold for each broker of which the scans do not show everything, by node id with the reason."""
        holds = {node: Hold(reason, SCAN_AGAIN, is_unknown=True, is_reported=True) for node, reason in unknown.items()}
        return RestartOrder(self.brokers, holds | dict(self.holds))


class _Partition:
    """One partition while brokers restart.

    Attributes:
        name: ``<topic>-<partition>``.
        standings: by node id, as scanned.
        fit: brokers that may lead now.
        damaged: by node id, why its own start or leadership loses records.
        unfit: by node id, why it must not lead, and catching up does not help.
        first: brokers of which one starts before all others, because the partition has no leader; empty for one that has.
    """

    __slots__ = ("_leader", "_unfit_in_sync", "damaged", "first", "fit", "name", "standings", "unfit")

    def __init__(self, leaders: LeaderSet, down: Collection[int], brokers: Mapping[int, ScannedBroker]) -> None:
        self.name = leaders.name
        self.standings = standings_of(leaders.replicas, leaders.placement, down, brokers)
        self.fit = {node for node, each in self.standings.items() if each.standing is LeaderStanding.FIT}
        self.damaged = {
            replica.node_id: replica.must_not_lead.cause
            for replica in leaders.replicas
            if replica.must_not_lead is not None and replica.must_not_lead.finding_severity is Severity.DAMAGED
        }
        # A broker that does not start is held for that, and a log directory that goes offline elects nothing.
        unfit = {
            replica.node_id: replica
            for replica in leaders.replicas
            if replica.must_not_lead is not None and not replica.is_broker_unfit
        }
        self.unfit = {
            node: each.must_not_lead.cause for node, each in unfit.items() if each.must_not_lead is not None and node not in down
        }
        placement = leaders.placement
        self._leader = ANY_LEADER if placement is None else placement.leader
        self._unfit_in_sync = {
            node for node in self.unfit if (unfit[node].is_running if placement is None else node in placement.in_sync)
        }

        running = {replica.node_id for replica in leaders.replicas if replica.is_running}
        is_offline = placement is not None and placement.is_offline and not running & placement.in_sync
        self.first = self.fit if is_offline else set()

    def others(self, node: int) -> list[ReplicaStanding]:
        return [each for other, each in self.standings.items() if other != node]

    def catches_up_without(self, node: int) -> bool:
        """Whether a replica of another broker can catch up."""
        return any(each.standing.catches_up for each in self.others(node))

    def is_safe_without(self, node: int, restarted: Collection[int]) -> bool:
        """Whether another replica may lead while a broker restarts, and none that must not lead is elected."""
        return self.has_leader_without(node, restarted) and self.elects_unfit(node, restarted) is None

    def elects_unfit(self, node: int, restarted: Collection[int]) -> int | None:
        """The broker that must not lead, and that Kafka may elect when this one stops; None for none.

        Args:
            node: the broker that restarts.
            restarted: brokers that restarted before, and are in sync again. If the leader is one of them, any broker may lead by now.
        """
        if self._leader not in (ANY_LEADER, node, *restarted):
            return None
        in_sync = self._unfit_in_sync.union(self.unfit.keys() & set(restarted))
        return min(in_sync - {node}, default=None)

    def has_leader_without(self, node: int, restarted: Collection[int]) -> bool:
        """Whether another replica may lead while a broker restarts.

        An only replica is offline during that time, and loses nothing by it, unless its own start does.

        Args:
            node: the broker that restarts.
            restarted: brokers that restarted before, and are in sync again.
        """
        if len(self.standings) == 1:
            return node not in self.damaged
        if self.first:
            # The start of a stopped broker takes no leader away, and the others follow it.
            return node in self.first or not self.first.isdisjoint(restarted)
        caught_up = (each.node_id for each in self.others(node) if each.node_id in restarted and each.standing.catches_up)
        return bool(self.fit - {node}) or next(caught_up, None) is not None


class RestartSafety:
    """The state of a cluster while its brokers restart one after the other."""

    def __init__(
        self,
        partitions: Iterable[LeaderSet],
        faults: Mapping[int, Sequence[StartFault]],
        down: Collection[int],
        brokers: Mapping[int, ScannedBroker],
    ) -> None:
        """The state before the first restart.

        Args:
            partitions: all that have a leader, with their replicas.
            faults: by node id, why a broker does not start, or which of its log directories go offline.
            down: brokers that count as stopped.
            brokers: that were scanned, by node id.
        """
        self._faults = faults
        self._down = frozenset(down)
        self._unsafe: dict[int, list[_Partition]] = {node: [] for node in brokers}
        self._with_unfit: dict[int, list[_Partition]] = {}
        self._short_logs: list[tuple[LeaderSet, ReplicaStanding]] = []
        for leaders in partitions:
            if may_all_lead(leaders.replicas, leaders.placement, self._down):
                continue
            partition = _Partition(leaders, down, brokers)
            self._short_logs += [
                (leaders, replica) for replica in partition.standings.values() if replica.standing is LeaderStanding.SHORT
            ]
            for node in partition.standings:
                if node in self._unsafe and not partition.is_safe_without(node, ()):
                    self._unsafe[node].append(partition)
                if partition.unfit:
                    self._with_unfit.setdefault(node, []).append(partition)

    @property
    def short_logs(self) -> Sequence[tuple[LeaderSet, ReplicaStanding]]:
        """The replicas that would lose acknowledged records if they led."""
        return self._short_logs

    def order(self, preferred: Sequence[int]) -> RestartOrder:
        """An order of these brokers in which no restart loses records.

        Brokers with replicas that must not lead come last: after their restart Kafka may elect these replicas.

        Args:
            preferred: brokers in the order that is wanted: the first that may be restarted is, each time.
        """
        stopped = [node for node in preferred if node in self._down]
        left = sorted((node for node in preferred if node not in self._down), key=self._has_unfit)
        unsafe = {node: dict.fromkeys(self._unsafe.get(node, [])) for node in left}
        restarted: list[int] = []
        while True:
            following = None
            for node in left:
                unsafe[node] = dict.fromkeys(each for each in unsafe[node] if not each.is_safe_without(node, restarted))
                if not unsafe[node] and not self._faults.get(node):
                    following = node
                    break
            if following is None:
                holds = {node: self._hold(node, list(unsafe[node]), restarted) for node in left}
                holds |= {node: Hold("counts as stopped", UNDER_REPLICATED, is_reported=True) for node in stopped}
                return RestartOrder(tuple(restarted), holds)
            left.remove(following)
            restarted.append(following)
            # A restart makes others safe, except where a replica must not lead: it may be elected now.
            for partition in self._with_unfit.get(following, []):
                for node in left:
                    if node in partition.standings:
                        unsafe[node][partition] = None

    def _has_unfit(self, node: int) -> bool:
        return any(node in each.unfit for each in self._with_unfit.get(node, []))

    def _hold(self, node: int, unsafe: Sequence[_Partition], restarted: Collection[int]) -> Hold:
        faults = self._faults.get(node)
        if faults:
            first = faults[0]
            subject = f"broker {node}" if first.log_dir is None else f"log directory {first.log_dir}"
            return Hold(f"{subject} {first.what}: {first.cause}", SCAN_AGAIN, is_reported=True)
        leaderless = [each for each in unsafe if not each.has_leader_without(node, restarted)]
        if not leaderless:
            return _hold_for_unfit(node, unsafe, restarted)
        # What a scan may still show comes last: the first reason is the one to act on.
        ordered = sorted(leaderless, key=lambda each: _is_unknown(each, node))
        names = tuple(each.name for each in ordered)
        first_partition = ordered[0]
        several = _partitions_text(names)
        cause, command = _reason(first_partition, node)
        detail = cause if len(names) == 1 else f"{first_partition.name}: {cause}"
        reason = f"no replica that may lead would be left of {several}: {detail}"
        is_wait = leaderless == unsafe and all(each.catches_up_without(node) for each in unsafe)
        return Hold(reason, command, names, is_unknown=_is_unknown(first_partition, node), is_wait=is_wait)


def _hold_for_unfit(node: int, unsafe: Sequence[_Partition], restarted: Collection[int]) -> Hold:
    """Other replicas may lead, and Kafka may elect one that must not. The reason names the first of these brokers."""
    by_broker: dict[int, list[_Partition]] = {}
    for partition in unsafe:
        other = partition.elects_unfit(node, restarted)
        if other is not None:
            by_broker.setdefault(other, []).append(partition)
    first = min(by_broker)
    names = [each.name for each in by_broker[first]]
    several = _partitions_text(names)
    reason = f"Kafka may elect broker {first} for {several}, which it must not lead ({by_broker[first][0].unfit[first]})"
    return Hold(reason, SCAN_AGAIN, tuple(each.name for each in unsafe))


def _partitions_text(names: Sequence[str]) -> str:
    """A partition by its name; several by their number, with the first names."""
    if len(names) == 1:
        return names[0]
    return f"{pluralize(len(names), 'partition')} ({first_of(names)})"


def _is_unknown(partition: _Partition, node: int) -> bool:
    others = partition.others(node)
    return bool(others) and any(each.standing.is_unknown for each in others)


def _reason(partition: _Partition, node: int) -> tuple[str, str]:
    others = partition.others(node)
    if not others:
        return f"the only replica, and {partition.damaged[node]}", SCAN_AGAIN
    reason = "; ".join(f"broker {each.node_id} {each.detail or 'has to start first'}" for each in others)
    standings = {each.standing for each in others}
    catch_up = standings & {LeaderStanding.SHORT, LeaderStanding.NOT_IN_SYNC}
    scan_shows = standings & {LeaderStanding.NOT_SCANNED, LeaderStanding.END_UNKNOWN, LeaderStanding.UNFIT}
    return reason, SCAN_AGAIN if scan_shows and not catch_up else UNDER_REPLICATED
