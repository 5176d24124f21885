"""No restart that ``fleet`` calls a go leaves a partition without a leader that has all acknowledged records.

The judge is a small simulation (``small_cluster``), which shares no code with ``fleet``.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from budgets import scaled
from command import in_json
from hypothesis import given, settings
from hypothesis import strategies as st
from manifests import CLUSTER
from merged_scans import TOPIC_ID, merged, merged_documents, view
from pages import scan_document, scanned
from sentences import NO_REPLICA_LEFT, NO_SCAN_HAS_BROKER
from small_cluster import SmallCluster, SmallPartition, random_cluster

from snaprebuild.cluster.fleet.cluster_view import ClusterView, Placement, read_cluster_view
from snaprebuild.cluster.fleet.leader_standing import LeaderStanding, may_all_lead, standings_of
from snaprebuild.cluster.fleet.merge import FleetResult
from snaprebuild.cluster.fleet.upgrade_steps import Go, StepName
from snaprebuild.errors import UsageError
from snaprebuild.findings import Severity, exit_code_of
from snaprebuild.snapshots.run import Run

CUT = {"cause": "the last leader epochs are gone", "severity": "finding", "remedy": "Copy it"}
DAY_MS = 86_400_000
NOW_MS = 1_795_262_400_000


def replica(topic: str, end: int, mark: int | None, epoch: int | None = 3, start: int | None = 0, **changed: Any) -> dict[str, Any]:
    """A replica of a scan: its log end, high watermark, and last leader epoch with the offset where that begins."""
    partition = scanned(
        topic,
        log_end={"offset": end, "source": "a test", "at_least": end},
        high_watermark=mark,
        leader_epoch=epoch,
        leader_epoch_start_offset=start,
        **changed,
    )
    for segment in partition["segments"]:
        segment["modified_ms"] -= DAY_MS
    return partition


def going(result: FleetResult) -> list[int | None]:
    """The brokers to restart, in order."""
    return [each.node_id for each in result.upgrade if each.kind is StepName.RESTART and each.go is Go.GO]


def held(result: FleetResult) -> dict[int | None, str]:
    """The others, each with the evidence."""
    return {each.node_id: each.evidence for each in result.upgrade if each.kind is StepName.RESTART and each.go is not Go.GO}


def codes(result: FleetResult) -> set[str]:
    return {each.code for each in result.findings if each.severity}


# --------------------------------------------------------------------------------------------------------------- the property


def scans_of(cluster: SmallCluster, nodes: set[int]) -> dict[int, dict[str, Any]]:
    documents = {}
    for node in sorted(nodes):
        replicas = [
            scan_of(each, f"t{number}", node, is_running=node in cluster.running)
            for number, each in enumerate(cluster.partitions)
            if node in each.brokers
        ]
        documents[node] = scan_document(replicas, node_id=node)
        documents[node]["log_dirs"][0]["shutdown"] = "running" if node in cluster.running else "clean"
    return documents


def scan_of(partition: SmallPartition, topic: str, node: int, *, is_running: bool) -> dict[str, Any]:
    end = len(partition.logs[node])
    # A start drops the epochs that begin at the log end or above.
    epochs = {epoch: start for epoch, start in partition.epoch_starts[node].items() if is_running or start < end}
    last = max(epochs, default=None)
    mark = partition.checkpointed[node]
    start = None if last is None else epochs[last]
    mark_epoch = max((epoch for epoch, first in epochs.items() if first < mark), default=None)
    return replica(
        topic, end, mark, last, start, high_watermark_epoch=mark_epoch, must_not_lead=CUT if node in partition.cut else None
    )


def view_of(cluster: SmallCluster) -> ClusterView:
    placements = {
        (f"t{number}", 0, TOPIC_ID): Placement(tuple(each.brokers), frozenset(each.in_sync), each.leader, leader_epoch=each.epoch)
        for number, each in enumerate(cluster.partitions)
    }
    return ClusterView(9, placements)


def check_quick_look(cluster: SmallCluster, result: FleetResult, down: set[int], placed: ClusterView | None) -> None:
    """``may_all_lead`` is right where it says so."""
    for key, replicas in result.fleet.partitions.items():
        placement = None if placed is None else placed.placements[key]
        if may_all_lead(replicas, placement, down):
            standings = standings_of(replicas, placement, down, result.fleet.brokers)
            assert {each.standing for each in standings.values()} == {LeaderStanding.FIT}, cluster


def check_order(cluster: SmallCluster, result: FleetResult, given_nodes: set[int], down: set[int], *, placed: bool) -> None:
    """Restarts the brokers in the simulation, one after the other."""
    order = going(result)
    assert len(order) == len(set(order))
    assert not set(order) & down
    placed_nodes = {node for each in cluster.partitions for node in each.brokers} if placed else set()
    assert set(order) | set(held(result)) == given_nodes | placed_nodes
    for partition in cluster.partitions:
        known = set(partition.brokers) if placed else given_nodes & set(partition.brokers)
        acknowledged = max((partition.checkpointed[node] for node in given_nodes & set(partition.brokers)), default=0)
        logs = {node: partition.has_all(node, acknowledged) for node in partition.brokers}
        for node in order:
            if node not in known or len(known) == 1:
                continue  # an only replica is offline while its broker restarts
            leaders = [other for other in known - down - {node} if logs[other]]
            assert leaders, f"broker {node} leaves nothing of {partition}"
            electable = partition.in_sync & given_nodes - down - {node} if placed and partition.leader == node else set()
            assert not electable & partition.cut, f"the restart of broker {node} may elect a cut replica of {partition}"
            # It is in sync again with one of these before the next one stops.
            logs[node] = node not in partition.cut


@settings(max_examples=scaled(300))
@given(st.integers(0, 2**32), st.booleans())
def test_no_restart_loses_acknowledged_records(seed: int, placed: bool) -> None:
    random = Random(seed)  # no secret
    cluster = random_cluster(random, running_are_in_sync=not placed)
    brokers = {node for each in cluster.partitions for node in each.brokers}
    given_nodes = {node for node in brokers if random.random() < 0.8} or brokers
    down = {node for node in given_nodes if random.random() < 0.2}
    with TemporaryDirectory() as place:
        result = merged_documents(
            Path(place),
            scans_of(cluster, given_nodes),
            view=view_of(cluster) if placed else None,
            down=frozenset(down),
        )
    check_quick_look(cluster, result, down, view_of(cluster).without(down) if placed else None)
    check_order(cluster, result, given_nodes, down, placed=placed)
    if not placed and not down and not any(each.cut for each in cluster.partitions) and cluster.running >= brokers:
        assert held(result) == {}, "a healthy cluster restarts"


# ------------------------------------------------------------------------------------------------------- faults, and healthy forms


FAULTS: dict[str, tuple[dict[int, list[dict[str, Any]]], dict[str, Any], list[int], dict[int, str], set[str]]] = {
    # Replicas by broker, arguments, the brokers that restart, the reason for each other one, and the codes of the findings.
    "the only follower is behind": (
        {1: [replica("a", 500, 500)], 2: [replica("a", 421, 421)]},
        {},
        [2, 1],
        {},
        {"leading-loses-records"},
    ),
    "the only follower is behind, and out of sync": (
        {1: [replica("a", 500, 500)], 2: [replica("a", 421, 421)]},
        {"view": view(a=Placement((1, 2), frozenset({1}), 1))},
        [2, 1],
        {},
        set(),
    ),
    "both lost their ends": (
        {1: [replica("a", 400, 500)], 2: [replica("a", 421, 500)]},
        {},
        [],
        {1: "broker 2 ends at 421, below the high watermark 500 of broker 1", 2: "broker 1 ends at 400, below"},
        {"leading-loses-records", "restart-would-lose"},
    ),
    "the follower forked": (
        {1: [replica("a", 500, 500, epoch=4, start=300)], 2: [replica("a", 600, 300)], 3: [replica("b", 1, 1)]},
        {"down": frozenset({3})},
        [2, 1],
        {3: "counts as stopped"},
        {"leading-loses-records"},
    ),
    "the follower has cut epochs": (
        {1: [replica("a", 500, 500)], 2: [replica("a", 500, 500, must_not_lead=CUT)]},
        {},
        [2],
        {1: "broker 2 must not lead (the last leader epochs are gone)"},
        {"replica-must-not-lead", "restart-would-lose", "stuck-until-elected"},
    ),
    "a follower in sync has cut epochs, another one has all": (
        {
            1: [replica("a", 500, 500)],
            2: [replica("a", 500, 500)],
            3: [replica("a", 500, 500, must_not_lead=CUT)],
        },
        {"view": view(a=Placement((1, 3, 2), frozenset({1, 2, 3}), 1))},
        [2, 3],
        {1: "Kafka may elect broker 3 for a-0, which it must not lead (the last leader epochs are gone)"},
        {"replica-must-not-lead", "restart-would-lose"},
    ),
    "a leader has cut epochs: it restarts last": (
        {1: [replica("a", 500, 500, must_not_lead=CUT)], 2: [replica("a", 500, 500)], 3: [replica("a", 500, 500)]},
        {"view": view(a=Placement((1, 2, 3), frozenset({1, 2, 3}), 1))},
        [2, 3, 1],
        {},
        {"replica-must-not-lead", "stuck-until-elected"},
    ),
    "two stopped ones have cut epochs: one of them restarts": (
        {
            1: [replica("a", 500, 500, must_not_lead=CUT)],
            2: [replica("a", 500, 500)],
            3: [replica("a", 500, 500, must_not_lead=CUT)],
        },
        {},
        [1],
        {2: "broker 1 must not lead", 3: "Kafka may elect broker 1 for a-0, which it must not lead"},
        {"replica-must-not-lead", "restart-would-lose", "stuck-until-elected"},
    ),
    "the follower forked, and its leader restarted since": (
        {
            1: [replica("a", 500, 500, epoch=5, start=500, high_watermark_epoch=4)],
            2: [replica("a", 600, 300, high_watermark_epoch=3)],
            3: [replica("b", 1, 1)],
        },
        {"down": frozenset({3})},
        [2, 1],
        {3: "counts as stopped"},
        {"leading-loses-records"},
    ),
    "all are stopped, and who stopped last starts first": (
        {node: [replica("a", 500, 500)] for node in (1, 2, 3)},
        {"view": view(a=Placement((1, 2, 3), frozenset({3}), None, is_offline=True))},
        [3, 1, 2],
        {},
        set(),
    ),
    "all are stopped, and who stopped last is not to start": (
        {
            1: [replica("a", 500, 500)],
            3: [replica("a", 500, 500), replica("b", 9, 9, must_not_lead={**CUT, "severity": "damaged"})],
        },
        {
            "view": view(
                a=Placement((1, 3), frozenset({3}), None, is_offline=True), b=Placement((3,), frozenset({3}), None, is_offline=True)
            )
        },
        [],
        {1: f"{NO_REPLICA_LEFT}a-0: broker 3 has to start first", 3: "the only replica"},
        {"replica-must-not-lead", "restart-would-lose"},
    ),
    "the others are stopped": (
        {node: [replica("a", 500, 500)] for node in (1, 2, 3)},
        {"down": frozenset({2, 3})},
        [],
        {1: "broker 2 counts as stopped; broker 3 counts as stopped", 2: "counts as stopped", 3: "counts as stopped"},
        {"restart-would-lose"},
    ),
    "who has the end is stopped": (
        {1: [replica("a", 421, 421)], 2: [replica("a", 421, 421)], 3: [replica("a", 549, 549)]},
        {"down": frozenset({3})},
        [],
        {1: "broker 2 ends at 421, below the high watermark 549 of broker 3", 2: "broker 1 ends at 421", 3: "counts as stopped"},
        {"leading-loses-records", "restart-would-lose"},
    ),
    "the only one in sync": (
        {node: [replica("a", 500, 500)] for node in (1, 2)},
        {"view": view(a=Placement((1, 2), frozenset({1}), 1))},
        [2, 1],
        {},
        set(),
    ),
    "an internal topic counts as well": (
        {
            1: [replica("__consumer_offsets", 400, 500, can_be_tiered=False)],
            2: [replica("__consumer_offsets", 421, 500, can_be_tiered=False)],
        },
        {},
        [],
        {1: f"{NO_REPLICA_LEFT}__consumer_offsets-0", 2: "broker 1 ends at 400"},
        {"leading-loses-records", "restart-would-lose"},
    ),
    "an only replica that its start empties": (
        {1: [replica("a", 500, 500, must_not_lead={**CUT, "severity": "damaged"})]},
        {},
        [],
        {1: "the only replica, and the last leader epochs are gone"},
        {"replica-must-not-lead", "restart-would-lose"},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_where_the_order_stops(name: str, tmp_path: Path) -> None:
    brokers, arguments, order, reasons, expected = FAULTS[name]
    result = merged(tmp_path, brokers, **arguments)
    assert going(result) == order
    found = held(result)
    assert found.keys() == reasons.keys()
    for node, reason in reasons.items():
        assert reason in found[node]
    assert codes(result) - {"last-in-sync"} == expected


def running(documents: dict[int, dict[str, Any]], *nodes: int, later_ms: int = 0) -> dict[int, dict[str, Any]]:
    for node in nodes:
        documents[node]["log_dirs"][0]["shutdown"] = "running"
        documents[node]["run"]["at_ms"] = NOW_MS + later_ms
    return documents


HEALTHY: dict[str, tuple[dict[int, list[dict[str, Any]]], ClusterView | None]] = {
    "as they are": ({node: [replica("a", 500, 500)] for node in (1, 2, 3)}, None),
    "a follower one batch behind the leader": ({1: [replica("a", 510, 500)], 2: [replica("a", 500, 500)]}, None),
    "a high watermark that was written before": ({1: [replica("a", 500, 300)], 2: [replica("a", 500, 200)]}, None),
    "no high watermark yet": ({1: [replica("a", 500, None)], 2: [replica("a", 400, None)]}, None),
    "an empty new partition": (
        {node: [replica("a", 0, mark, None, None, segments=1)] for node, mark in ((1, None), (2, 0))},
        None,
    ),
    "compacted": ({node: [replica("a", 500, 500, can_be_tiered=False, is_compacted=True)] for node in (1, 2)}, None),
    "one replica": ({1: [replica("a", 500, 500)], 2: [replica("b", 500, 500)]}, None),
    "one replica, by the metadata log": ({1: [replica("a", 500, 500)]}, view(a=Placement((1,), frozenset({1}), 1))),
    "elected without a record": ({1: [replica("a", 500, 500, 4, 500)], 2: [replica("a", 500, 500)]}, None),
    "elected, and nothing of the epoch is acknowledged": ({1: [replica("a", 510, 500, 4, 500)], 2: [replica("a", 505, 500)]}, None),
    "elected twice without a record": (
        {1: [replica("a", 500, 500, 5, 500, high_watermark_epoch=3)], 2: [replica("a", 500, 500, high_watermark_epoch=3)]},
        None,
    ),
    "a replica that was moved away": (
        {1: [replica("a", 500, 500)], 2: [replica("a", 500, 500)], 3: [replica("a", 900, 900)]},
        view(a=Placement((1, 2), frozenset({1, 2}), 1)),
    ),
    "out of sync, and not needed": (
        {node: [replica("a", end, end)] for node, end in ((1, 500), (2, 500), (3, 90))},
        view(a=Placement((1, 2, 3), frozenset({1, 2}), 1)),
    ),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_brokers_restart_without_a_word(name: str, tmp_path: Path) -> None:
    brokers, placed = HEALTHY[name]
    result = merged(tmp_path, brokers, view=placed)
    assert sorted(node or 0 for node in going(result)) == sorted(brokers)
    assert codes(result) == set()


@pytest.mark.parametrize(
    ("later_ms", "is_behind"),
    [(-DAY_MS // 4, False), (0, False), (60_000, False), (DAY_MS // 4, True)],
)
def test_a_live_follower_that_was_scanned_before_its_leader_is_normal(later_ms: int, is_behind: bool, tmp_path: Path) -> None:
    """The leader wrote more between the two scans. Scanned hours after the leader, the follower should have these records."""
    documents = {node: scan_document([replica("a", end, end)], node_id=node) for node, end in ((1, 500), (2, 421))}
    running(documents, 1)
    running(documents, 2, later_ms=later_ms)
    result = merged_documents(tmp_path, documents)
    assert codes(result) == ({"leading-loses-records"} if is_behind else set())
    assert going(result) == ([2, 1] if is_behind else [1, 2])


@pytest.mark.parametrize(("written_ms", "is_behind"), [(-DAY_MS // 4, True), (0, False)])
def test_a_live_leader_without_what_a_stopped_broker_has(written_ms: int, is_behind: bool, tmp_path: Path) -> None:
    """The records of a stopped broker were written before it stopped."""
    documents = {node: scan_document([replica("a", end, end)], node_id=node) for node, end in ((1, 549), (2, 421))}
    running(documents, 2)
    for segment in documents[1]["partitions"][0]["segments"]:
        segment["modified_ms"] = NOW_MS + written_ms
    result = merged_documents(tmp_path, documents)
    assert codes(result) == ({"leading-loses-records"} if is_behind else set())


def test_a_scan_that_is_missing_is_asked_for(tmp_path: Path) -> None:
    """The order is printed for what is given, and stops where only brokers without a scan would lead."""
    placed = view(a=Placement((1, 2, 3), frozenset({1, 2, 3}), 1), b=Placement((1, 3), frozenset({1, 3}), 1))
    result = merged(tmp_path, {1: [replica("a", 500, 500), replica("b", 5, 5)], 2: [replica("a", 500, 500)]}, view=placed)
    assert going(result) == [2]
    assert held(result) == {
        1: f"{NO_REPLICA_LEFT}b-0: broker 3 has no valid scan",
        3: NO_SCAN_HAS_BROKER,
    }
    (step,) = [each for each in result.upgrade if each.node_id == 1]
    assert step.go is Go.UNKNOWN
    assert step.command == "snaprebuild scan --server-properties FILE --output json"
    (finding,) = [each for each in result.findings if each.code == "restart-would-lose"]
    assert finding.severity is Severity.NOTE
    assert exit_code_of(result.findings) == 0


def test_a_repair_that_must_wait_is_no_step_to_do(tmp_path: Path) -> None:
    """Broker 1 lacks snapshots; the other replica has cut epochs. Where another broker can be repaired, that one is."""
    stuck = {1: [replica("a", 500, 500, missing=1)], 2: [replica("a", 500, 500, missing=1, must_not_lead=CUT)]}
    (step,) = merged(tmp_path, stuck).steps
    assert (step.node_id, step.hold is None) == (1, False)
    assert "broker 2 must not lead" in (step.hold or "")
    more = {
        1: [*stuck[1], replica("b", 500, 500, missing=1)],
        2: stuck[2],
        3: [replica("b", 500, 500, missing=2)],
    }
    steps = merged(tmp_path, more).steps
    assert [(each.node_id, each.hold is None, [key[0] for key in each.keys]) for each in steps] == [
        (3, True, ["b"]),
        (1, False, ["a"]),
    ]


def test_a_broker_that_counts_as_stopped_is_never_elected(tmp_path: Path) -> None:
    placed = view(a=Placement((1, 2, 3), frozenset({1, 2, 3}), 1))
    brokers = {1: [replica("a", 500, 500, missing=1)], 2: [replica("a", 500, 500)], 3: [replica("a", 500, 500)]}
    (partition,) = merged(tmp_path, brokers, view=placed, down=frozenset({2})).partitions
    assert (partition.elect, partition.condition) == (3, None)
    (partition,) = merged(tmp_path, brokers, view=placed, down=frozenset({2, 3})).partitions
    assert partition.condition == "its broker counts as stopped: start it"
    (partition,) = merged(tmp_path, brokers, view=placed, down=frozenset({1})).partitions
    assert partition.elect == 2
    assert partition.placement == replace(placed.placements["a", 0, TOPIC_ID], in_sync=frozenset({2, 3}), leader=None)


def test_a_stopped_broker_must_be_known(tmp_path: Path) -> None:
    brokers = {1: [replica("a", 500, 500)]}
    assert held(merged(tmp_path, brokers, view=view(a=Placement((1, 2), frozenset({1, 2}), 1)), down=frozenset({2})))
    with pytest.raises(UsageError, match="no scan and no metadata log has broker 9"):
        merged(tmp_path, brokers, down=frozenset({9}))


# ----------------------------------------------------------------------------------------------------------- real directories


def scans_of_nodes(place: Path, change: Callable[[Path], object] = lambda _: None) -> dict[int, dict[str, Any]]:
    """Three nodes of Kafka 4.3.1 that were stopped, the disk of the second one changed."""
    changed = Path(shutil.copytree(CLUSTER / "node2", place / "node2"))
    change(changed)
    paths = {1: CLUSTER / "node1", 2: changed, 3: CLUSTER / "node3"}
    return {node: in_json("scan", path).document for node, path in paths.items()}


@pytest.mark.parametrize("placed", [True, False])
def test_stopped_nodes_of_a_healthy_cluster_restart(placed: bool, tmp_path: Path) -> None:
    cluster = read_cluster_view(str(CLUSTER / "node1"), Run()) if placed else None
    result = merged_documents(tmp_path, scans_of_nodes(tmp_path), view=cluster)
    # Node 1 stopped last, so that it alone is eligible to lead: no other node is in sync before it has started.
    assert going(result) == [1, 2, 3]
    assert not codes(result) & {"leading-loses-records", "restart-would-lose"}


def cut_leader_epochs(node: Path) -> None:
    (next(node.rglob("orders-1")) / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")


def test_a_node_with_cut_epochs_is_not_what_a_restart_leaves(tmp_path: Path) -> None:
    documents = scans_of_nodes(tmp_path, cut_leader_epochs)
    assert going(merged_documents(tmp_path, documents)) == [1, 3, 2], "after its restart Kafka may elect broker 2"
    result = merged_documents(tmp_path, documents, down=frozenset({3}))
    assert going(result) == [2]
    assert (
        "of 2 partitions (orders-1, shrink-0): orders-1: broker 2 must not lead (the last leader epochs are gone)"
        in held(result)[1]
    )
