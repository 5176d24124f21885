"""Findings about restarts and leaders that lose records which consumers have read."""

from __future__ import annotations

from collections.abc import Iterator

from snaprebuild.cluster.fleet.fleet_partition import partitions_text
from snaprebuild.cluster.fleet.replicas import ScannedFleet
from snaprebuild.cluster.fleet.restart_safety import RestartOrder, RestartSafety
from snaprebuild.findings import Finding, Severity

__all__ = ["held_restart_findings", "lost_record_findings"]


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
