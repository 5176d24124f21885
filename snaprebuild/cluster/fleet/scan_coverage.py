"""Brokers of which the scans do not show everything: no scan has them, or their scan was refused or is incomplete."""

from __future__ import annotations

from collections.abc import Collection

from snaprebuild.cluster.fleet.cluster_view import ClusterView
from snaprebuild.cluster.fleet.replicas import ScannedFleet

__all__ = ["unknown_brokers"]


def unknown_brokers(fleet: ScannedFleet, view: ClusterView | None, down: Collection[int]) -> dict[int, str]:
    """The reason for each of them, by node id.

    Args:
        fleet: all brokers that were scanned.
        view: of the metadata log, which has the brokers of all replicas; None without one.
        down: brokers that count as stopped. If they were not scanned, their replicas are unknown, too.
    """
    placements = () if view is None else view.placements.values()
    placed = {node for placement in placements for node in placement.replicas}
    reasons = dict.fromkeys((placed | set(down)) - fleet.brokers.keys(), "no scan has this broker")
    for node, broker in fleet.brokers.items():
        if broker.document in fleet.refused:
            reasons[node] = "its scan was refused"
        elif broker.document in fleet.not_whole:
            reasons[node] = "its scan is incomplete"
    return dict(sorted(reasons.items()))
