"""Scans that contradict the metadata log or the other scans: of an old copy of a disk, or taken too long ago.

With KRaft the epoch in a broker's clean-shutdown marker is that of its registration.

With ZooKeeper nothing shows which copy of a disk is the present one. A scan is refused if it was taken long before the others. It is also
refused if the broker was down, its data is old, and its logs end below the high watermarks of others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from snaprebuild.cluster.fleet.replicas import ScannedBroker, ScannedFleet, ScannedReplica
from snaprebuild.findings import Finding, Severity

__all__ = [
    "AGE_MAX_MS",
    "contradicts_registration",
    "missing_metadata_findings",
    "refuse_outdated",
    "refused_findings",
]

AGE_MAX_MS = 86_400_000
"""A day: scans of one fleet are taken within hours, and a broker that was down longer is scanned again when it is back."""


def contradicts_registration(node_id: int, epoch: int | None, epochs: Mapping[int, int], *, is_by_log: bool) -> str | None:
    """Why a scan is not of the broker as the cluster has it registered; None if nothing shows that.

    Args:
        node_id: of the broker.
        epoch: of its clean-shutdown marker, or of its own metadata log; None without one.
        epochs: of the registrations of all brokers; empty if they are not known.
        is_by_log: the epoch is that of its own metadata log.
    """
    if not epochs:
        return None
    if node_id not in epochs:
        return f"broker {node_id} is not registered by the metadata log"
    registered = epochs[node_id]
    if epoch is None or epoch == registered:
        return None
    has = "has" if is_by_log else "stopped with"
    own = f"broker {node_id} {has} broker epoch {epoch}" + (" in its own metadata log" if is_by_log else "")
    if epoch > registered:
        return f"{own}, and the metadata log has {registered}: name a later metadata log"
    return f"{own}, and is registered with {registered}: this is the scan of an old copy, or the broker has started since. Scan it again"


def refuse_outdated(fleet: ScannedFleet) -> None:
    """Takes the replicas of scans out of a fleet that are older than the other scans show.

    Args:
        fleet: of a cluster without a metadata log.
    """
    latest_ms = max((each.scanned_ms for each in fleet.brokers.values()), default=0)
    newest_ms = max((each.newest_ms for each in fleet.brokers.values()), default=0)
    for node_id, broker in sorted(fleet.brokers.items()):
        reason = None
        if broker.scanned_ms + AGE_MAX_MS < latest_ms:
            reason = f"was taken {(latest_ms - broker.scanned_ms) / 3_600_000:.0f} hours before the latest one: scan again"
        elif broker.newest_ms + AGE_MAX_MS < newest_ms and not broker.is_running and (short := _short_logs(fleet, broker)):
            reason = (
                f"was taken while broker {node_id} was down, with data that is "
                f"{(newest_ms - broker.newest_ms) / 3_600_000:.0f} hours older than that of others. {short} of its logs end below the "
                "high watermarks of others: an old copy of its disk, or down for long. Scan again when it is in sync"
            )
        if reason is not None:
            fleet.refuse(broker, reason)


def _short_logs(fleet: ScannedFleet, broker: ScannedBroker) -> int:
    """How many logs of a broker end below the high watermark of another replica."""
    return sum(_is_short(replicas, broker.node_id) for replicas in fleet.partitions.values())


def _is_short(replicas: list[ScannedReplica], node_id: int) -> bool:
    own = [replica for replica in replicas if replica.node_id == node_id]
    committed = max((replica.high_watermark or 0 for replica in replicas if replica.node_id != node_id), default=0)
    return bool(own) and own[0].log_end_offset is not None and own[0].log_end_offset < committed


def refused_findings(fleet: ScannedFleet) -> Iterator[Finding]:
    """Findings of the scans whose replicas were left out."""
    for path, reason in fleet.refused.items():
        yield Finding("scan-refused", Severity.REFUSED, path, f"{reason}. Its replicas were left out")


def missing_metadata_findings(fleet: ScannedFleet, *, has_metadata: bool) -> Iterator[Finding]:
    """Without the metadata log of a cluster that has one, the leaders and the brokers without a scan are unknown."""
    kraft = sorted(node for node, broker in fleet.brokers.items() if broker.is_kraft)
    if kraft and not has_metadata:
        message = (
            "this is a KRaft cluster, and no metadata log was given: which replicas exist, and who leads, is unknown. "
            "Name the log of a node with --metadata"
        )
        yield Finding("fleet-without-metadata", Severity.FINDING, fleet.brokers[kraft[0]].document, message)
