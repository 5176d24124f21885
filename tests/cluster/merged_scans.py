"""Scans of many brokers, merged as ``fleet`` does it."""

from pathlib import Path
from typing import Any

from pages import scan_document, written

from snaprebuild.cluster.fleet.cluster_view import ClusterView, Placement
from snaprebuild.cluster.fleet.fleet_partition import FleetOutcome
from snaprebuild.cluster.fleet.merge import FleetResult, merge_scans
from snaprebuild.documents.saved_scans import saved_scans

TOPIC_ID = "TbEpDujbR1a9Y_KYwm3sPQ"


def merged(place: Path, brokers: dict[int, list[dict[str, Any]]], **options: Any) -> FleetResult:
    paths = [str(written(scan_document(each, node_id=node), place / f"{node}.json")) for node, each in brokers.items()]
    return merge_scans(saved_scans(paths), **options)


def outcomes(result: FleetResult) -> dict[str, tuple[FleetOutcome, int | None]]:
    return {each.name: (each.outcome, each.elect) for each in result.partitions}


def view(**placements: Placement) -> ClusterView:
    return ClusterView(9, {(name, 0, TOPIC_ID): each for name, each in placements.items()}, frozenset({2, 3}), 3)


def merged_documents(place: Path, documents: dict[int, dict[str, Any]], **options: Any) -> FleetResult:
    """Merges documents that `scan` wrote."""
    return merge_scans(saved_scans([str(written(each, place / f"{node}.json")) for node, each in documents.items()]), **options)


def is_elected(result: FleetResult, node: int) -> bool:
    """Whether any file of ``--elections`` makes a broker the preferred leader."""
    return any(each.replicas[0] == node for moment in result.elections() or () for each in moment.partitions)
