"""Findings about replicas that must not lead: their leader epochs are lost or cut, or their next start loses records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from snaprebuild.cluster.fleet.fleet_partition import FleetPartition, partitions_text
from snaprebuild.cluster.fleet.replicas import ScannedFleet, ScannedReplica
from snaprebuild.cluster.fleet.restart_plan import Restart
from snaprebuild.findings import Finding, Severity, pluralize

__all__ = ["start_fault_findings", "unfit_findings"]

UNKNOWN_REMEDY = "`scan` on that broker prints the way out"


def unfit_findings(partitions: Iterable[FleetPartition], fleet: ScannedFleet, steps: Iterable[Restart]) -> Iterator[Finding]:
    """One finding for each broker and cause, and one for each broker that the restarts may elect."""
    restarted = {step.node_id for step in steps}
    by_cause: dict[tuple[int, str, str], list[tuple[FleetPartition, Severity]]] = {}
    elected: dict[int, list[tuple[FleetPartition, Severity]]] = {}
    for partition in partitions:
        for replica in partition.replicas:
            if replica.must_not_lead is None or replica.is_broker_unfit:
                continue
            pair = (partition, replica.must_not_lead.finding_severity)
            by_cause.setdefault((replica.node_id, replica.must_not_lead.cause, replica.must_not_lead.remedy), []).append(pair)
            if _may_be_elected(partition, replica, restarted):
                elected.setdefault(replica.node_id, []).append(pair)
    for (node, cause, remedy), pairs in sorted(by_cause.items()):
        led = [each for each, _ in pairs if each.placement is not None and each.placement.leader == node]
        now = f" It leads {_names(led)} now." if led else ""
        way_out = f"Do not elect it. {remedy or UNKNOWN_REMEDY}"
        message = f"broker {node} must not lead {_names([each for each, _ in pairs])}: {cause}.{now} {way_out}"
        yield Finding("replica-must-not-lead", _worst(pairs), fleet.brokers[node].document, message)
    for node, pairs in sorted(elected.items()):
        message = f"the restarts may elect broker {node} for {_names([each for each, _ in pairs])}, which it must not lead"
        yield Finding("restart-elects-unfit-replica", _worst(pairs), f"broker {node}", f"{message}: correct that replica first")


def start_fault_findings(fleet: ScannedFleet) -> Iterator[Finding]:
    """One finding for each broker that does not start, or whose log directory goes offline: with the worst cause."""
    for node, faults in sorted(fleet.start_faults.items()):
        first = faults[0]
        subject = f"broker {node}" if first.log_dir is None else f"log directory {first.log_dir} of broker {node}"
        more = f" (and {pluralize(len(faults) - 1, 'more cause')})" if len(faults) > 1 else ""
        message = f"{subject} {first.what}: {first.cause}{more}; correct this before any restart. {first.remedy or UNKNOWN_REMEDY}"
        yield Finding("broker-does-not-start", max(fault.severity for fault in faults), fleet.brokers[node].document, message)


def _may_be_elected(partition: FleetPartition, replica: ScannedReplica, restarted: Collection[int]) -> bool:
    """Whether a restart takes the leader away, so that this replica may be the next one. Without a metadata log any broker may lead."""
    placement = partition.placement
    node = replica.node_id
    if placement is None:
        return any(each.node_id in restarted for each in partition.replicas if each.node_id != node)
    return placement.leader != node and placement.leader in restarted and node in placement.in_sync


def _names(partitions: Iterable[FleetPartition]) -> str:
    return partitions_text([partition.name for partition in partitions])


def _worst(pairs: Iterable[tuple[FleetPartition, Severity]]) -> Severity:
    return max(severity for _, severity in pairs)
