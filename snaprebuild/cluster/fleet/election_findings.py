"""Fleet: whether the elections and restarts of an answer can delete data (KAFKA-20732)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from snaprebuild.broker.releases import Release
from snaprebuild.cluster.fleet.cluster_view import ClusterView
from snaprebuild.cluster.fleet.election_risk import ElectionRisk, Risk, TopicStorage, election_risk
from snaprebuild.cluster.fleet.fleet_partition import FleetPartition, grouped, partitions_text
from snaprebuild.cluster.fleet.replicas import ScannedFleet
from snaprebuild.cluster.fleet.restart_plan import Restart
from snaprebuild.cluster.fleet.restart_safety import RestartOrder, RestartSafety
from snaprebuild.findings import Finding, Severity

__all__ = [
    "ElectionRisks",
    "held_restart_findings",
    "lost_record_findings",
]


@dataclass(frozen=True, slots=True)
class ElectionRisks:
    """Whether elections can delete data (KAFKA-20732), by all that is known of the brokers.

    Attributes:
        view: what the metadata log says; None without one.
        release: of all brokers, as it was stated; None without a statement.
        releases: of brokers that ran when they were scanned, by node id.
        retention_bytes: ``log.retention.bytes`` as it was stated; None without a statement.
    """

    view: ClusterView | None
    release: Release | None
    releases: Mapping[int, Release]
    retention_bytes: int | None

    def _risk_of(self, topic: str, broker: int, size_bytes: int) -> ElectionRisk:
        release = self.releases.get(broker) if self.release is None else self.release
        if self.view is None:
            return election_risk(topic, broker, size_bytes, None, self.retention_bytes, release, None)
        by_broker = self.view.retention_bytes
        retention_bytes = by_broker.get(broker, by_broker.get(None, self.retention_bytes))
        storage = self.view.topics.get(topic, TopicStorage())
        level = self.view.levels.get(broker)
        return election_risk(topic, broker, size_bytes, storage, retention_bytes, release, level)

    def added_to(self, partition: FleetPartition) -> FleetPartition:
        """A partition with the risk of its election, if one is needed."""
        broker = partition.elect
        leader = None if partition.placement is None else partition.placement.leader
        sizes = [replica.size_bytes for replica in partition.replicas if replica.node_id == broker]
        if broker is None or broker == leader:
            return partition
        return replace(partition, election_risk=self._risk_of(partition.key[0], broker, *sizes))

    def of_elections(self, partitions: Iterable[FleetPartition]) -> Iterator[Finding]:
        """One finding for each reason, not for each partition."""
        risks = [(partition.election_risk, partition.name) for partition in partitions if partition.election_risk is not None]
        affected = [name for risk, name in risks if risk.outcome is Risk.AFFECTED]
        if affected:
            size_bytes = sum(risk.size_bytes or 0 for risk, _ in risks)
            message = (
                f"electing the leaders of {partitions_text(affected)} may delete data within retention, remotely and on all "
                f"replicas (KAFKA-20732): {size_bytes} bytes of local logs may be counted twice. Upgrade to 4.3.2, or set "
                "retention.bytes=-1 for these topics, before you elect"
            )
            yield Finding("election-may-delete-data", Severity.FINDING, affected[0], message)
        commands = {risk.reason: risk.command for risk, _ in reversed(risks)}
        unknown = grouped((risk.reason, name) for risk, name in risks if risk.outcome is Risk.UNKNOWN)
        for reason, names in unknown.items():
            message = (
                f"whether electing the leaders of {partitions_text(names)} may delete data (KAFKA-20732) is not known: "
                f"{reason}. To find out: {commands[reason]}"
            )
            yield Finding("election-risk-unknown", Severity.NOTE, names[0], message)

    def of_restarts(self, steps: Iterable[Restart], view: ClusterView) -> Iterator[Finding]:
        """A restart makes another broker the leader of each partition that the restarted one leads."""
        restarted = {step.node_id for step in steps}
        affected: list[str] = []
        unknown: list[str] = []
        for (topic, number, _), placement in view.sorted_placements():
            if placement.leader in restarted:
                outcomes = {self._risk_of(topic, node, 0).outcome for node in placement.in_sync if node != placement.leader}
                if Risk.AFFECTED in outcomes:
                    affected.append(f"{topic}-{number}")
                elif Risk.UNKNOWN in outcomes:
                    unknown.append(f"{topic}-{number}")
        if affected:
            message = f"the restarts elect other leaders of {partitions_text(affected)}, which may delete data (KAFKA-20732): see fleet.md"
            yield Finding("restart-may-delete-data", Severity.FINDING, affected[0], message)
        if unknown:
            message = (
                f"whether the restarts may delete data of {partitions_text(unknown)} (KAFKA-20732) is not known: state "
                "--kafka-release and --assume retention_bytes"
            )
            yield Finding("restart-risk-unknown", Severity.NOTE, unknown[0], message)


def lost_record_findings(safety: RestartSafety, fleet: ScannedFleet) -> Iterator[Finding]:
    """One finding for each broker with replicas whose logs end below the high watermark of another one."""
    short: dict[int, list[tuple[str, str]]] = {}
    for leaders, standing in safety.short_logs:
        short.setdefault(standing.node_id, []).append((leaders.name, standing.detail))
    for node, several in sorted(short.items()):
        names = sorted(name for name, _ in several)
        name, detail = min(several)
        message = (
            f"if broker {node} leads {partitions_text(names)}, consumers lose records that they may have read: in {name} it {detail}. "
            "Let it catch up before it leads"
        )
        yield Finding("leading-loses-records", Severity.FINDING, fleet.brokers[node].document, message)


def held_restart_findings(order: RestartOrder) -> Iterator[Finding]:
    """The brokers at which the order of restarts stops, without those that another finding names."""
    for node, hold in order.holds.items():
        if not hold.is_reported:
            severity = Severity.NOTE if hold.is_unknown else Severity.FINDING
            message = f"do not restart it yet: {hold.reason}. To find out: {hold.command}"
            yield Finding("restart-would-lose", severity, f"broker {node}", message)
