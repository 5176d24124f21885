"""Which leader is elected, before and after a restart, and in which files."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from budgets import scaled
from hypothesis import given, settings
from hypothesis import strategies as st
from merged_scans import TOPIC_ID, merged
from pages import scanned
from sentences import ELECT_WHEN_IN_SYNC

from snaprebuild.cluster.fleet.cluster_view import ClusterView, Placement
from snaprebuild.cluster.fleet.election_risk import TopicStorage
from snaprebuild.cluster.fleet.elections import write_elections
from snaprebuild.cluster.fleet.fleet_partition import FleetOutcome
from snaprebuild.cluster.fleet.merge import FleetResult
from snaprebuild.cluster.fleet.replicas import PartitionKey
from snaprebuild.errors import RefusedError, UsageError
from snaprebuild.findings import Severity


def test_who_is_elected_now_and_behind_a_restart(tmp_path: Path) -> None:
    def key(name: str) -> PartitionKey:
        return (name, 0, TOPIC_ID)

    everybody = frozenset({1, 2})
    view = ClusterView(
        9,
        {
            key("free"): Placement((1, 2), everybody, 1),
            key("first"): Placement((2, 1), everybody, 1),
            key("repaired"): Placement((2, 1), everybody, 2),
            key("lags"): Placement((1, 2), frozenset({1}), 1),
            key("moves"): Placement((1, 2), everybody, 1, is_reassigned=True),
            key("slow"): Placement((2, 1), frozenset({2}), 2),
            key("leads"): Placement((2, 1), everybody, 2),
        },
    )
    result = merged(
        tmp_path,
        {
            1: [scanned(name, missing=2) for name in ("free", "first", "repaired", "lags", "moves", "slow", "leads")],
            2: [
                scanned("repaired", missing=3),
                scanned("slow", missing=3),
                *(scanned(name) for name in ("free", "first", "lags", "moves", "leads")),
            ],
        },
        view=view,
    )
    moments = result.elections()
    assert moments is not None
    assert [(each.after_step, each.name) for each in moments] == [(None, "now"), (1, "step-1")]
    reported = {each.topic: (each.replicas, each.replicas_before) for moment in moments for each in moment.partitions}
    # One that leads and is the preferred leader stays; one that lags, repaired or not, or is moved, waits.
    assert [step.node_id for step in result.steps] == [1]
    conditions = {each.key[0]: each.condition for each in result.partitions}
    assert conditions["lags"] == conditions["slow"] == ELECT_WHEN_IN_SYNC
    assert conditions["repaired"] is None
    assert reported == {"free": ((2, 1), (1, 2)), "first": ((2, 1), (2, 1)), "repaired": ((1, 2), (2, 1))}
    assert merged(tmp_path, {1: [scanned("free", missing=2)]}).elections() is None
    files = {Path(path).name: json.loads(Path(path).read_text()) for path in write_elections(moments, str(tmp_path / "files"))}
    free = {"topic": "free", "partition": 0}
    assert files == {
        "now-reassignment.json": {"version": 1, "partitions": [free | {"replicas": [2, 1]}]},
        "now-election.json": {"partitions": [{"topic": "first", "partition": 0}, free]},
        "now-reassignment-back.json": {"version": 1, "partitions": [free | {"replicas": [1, 2]}]},
        "step-1-reassignment.json": {"version": 1, "partitions": [{"topic": "repaired", "partition": 0, "replicas": [1, 2]}]},
        "step-1-election.json": {"partitions": [{"topic": "repaired", "partition": 0}]},
        "step-1-reassignment-back.json": {"version": 1, "partitions": [{"topic": "repaired", "partition": 0, "replicas": [2, 1]}]},
    }


CLUSTER = frozenset({1, 2, 3})


def test_a_broker_that_lost_its_replica_never_leads(tmp_path: Path) -> None:
    """Broker 4 was down while orders-0 was moved away from it: its old directory would be the cheapest to rebuild."""
    view = ClusterView(9, {("orders", 0, TOPIC_ID): Placement((1, 2, 3), CLUSTER, 1)})
    brokers = {node: [scanned("orders", missing=3)] for node in (1, 2, 3)} | {4: [scanned("orders", missing=1), scanned("gone")]}
    result = merged(tmp_path, brokers, view=view)
    (partition,) = [each for each in result.partitions if each.key[0] == "orders"]
    assert (partition.outcome, partition.elect, partition.condition) == (FleetOutcome.REPAIR, 1, None), "what is stuck is repaired"
    assert [each.node_id for each in partition.replicas] == [1, 2, 3]
    assert [(step.node_id, step.missing) for step in result.steps] == [(1, 3)]
    (reported,) = [each for each in result.findings if each.code == "replica-not-assigned"]
    assert (reported.severity, reported.path) == (Severity.NOTE, str(tmp_path / "4.json"))
    assert reported.message.startswith("broker 4 has files of 1 partition (orders-0)")
    assert elected_again(result) == [], "broker 1 leads, and is the first"


def test_files_of_nothing_but_lost_replicas_are_reported_and_left_out(tmp_path: Path) -> None:
    view = ClusterView(9, {("orders", 0, TOPIC_ID): Placement((1, 2, 3), CLUSTER, 1)})
    result = merged(tmp_path, {4: [scanned("orders", missing=1)]}, view=view)
    assert [(each.outcome, each.replicas) for each in result.partitions] == [(FleetOutcome.NOT_SCANNED, ())]
    assert (result.steps, result.elections()) == ((), ())
    assert [each.code for each in result.findings] == ["replica-not-assigned", "partition-not-scanned"]


def elected_again(result: FleetResult) -> list[tuple[str, int, tuple[int, ...], tuple[int, ...]]]:
    moments = result.elections()
    assert moments is not None
    return [(each.topic, each.partition, each.replicas, each.replicas_before) for moment in moments for each in moment.partitions]


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(1, 4), min_size=1, unique=True),  # replicas, as the metadata log has them
            st.frozensets(st.integers(1, 4)),  # of which are in sync
            st.dictionaries(
                st.integers(1, 4), st.tuples(st.integers(0, 3), st.booleans()), min_size=1
            ),  # scanned: lacks, has an id
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=scaled(150))
def test_a_reassignment_has_the_replicas_that_the_metadata_log_has(
    partitions: list[tuple[list[int], frozenset[int], dict[int, tuple[int, bool]]]],
) -> None:
    placements = {
        ("t", number, TOPIC_ID): Placement(tuple(replicas), in_sync & set(replicas), replicas[-1])
        for number, (replicas, in_sync, _) in enumerate(partitions)
    }
    brokers: dict[int, list[dict[str, Any]]] = {}
    for number, (_, _, scans) in enumerate(partitions):
        for node, (missing, has_id) in scans.items():
            brokers.setdefault(node, []).append(
                scanned("t", number, missing=missing, topic_id=TOPIC_ID if has_id else None, path=f"/kafka/t-{number}")
            )
    with TemporaryDirectory() as place:
        found = elected_again(merged(Path(place), brokers, view=ClusterView(9, placements)))
    assert len({each[:2] for each in found}) == len(found), "no partition twice"
    for topic, number, order, before in found:
        placement = placements[topic, number, TOPIC_ID]
        assert before == placement.replicas
        assert sorted(order) == sorted(before)
        assert order[0] in placement.in_sync
        assert order[0] in partitions[number][2], "of which there is a scan"


def test_a_replica_without_a_topic_id_is_of_the_topic_that_the_metadata_log_has(tmp_path: Path) -> None:
    """Three scans, three keys of one name: only one is the cluster's, and it is elected once."""
    other = "1c1GoXd6QF-vQBe4uplTrw"
    view = ClusterView(9, {("a", 0, TOPIC_ID): Placement((1, 2, 3), CLUSTER, 1)})
    brokers = {1: [scanned("a", missing=1)], 2: [scanned("a", topic_id=None)], 3: [scanned("a", topic_id=other)]}
    result = merged(tmp_path, brokers, view=view)
    reported = [(each.key[2], [one.node_id for one in each.replicas], each.placement is None) for each in result.partitions]
    assert reported == [(other, [3], True), (TOPIC_ID, [1, 2], False)]
    assert elected_again(result) == [("a", 0, (2, 1, 3), (1, 2, 3))]
    # Also where no scan knows the id, or only one that is not the cluster's.
    brokers = {2: [scanned("a", topic_id=None)], 3: [scanned("a", topic_id=other)]}
    assert [(each.key[2], len(each.replicas)) for each in merged(tmp_path, brokers, view=view).partitions] == [
        (other, 1),
        (TOPIC_ID, 1),
    ]


def test_elections_lie_nowhere_in_a_log_directory(tmp_path: Path) -> None:
    log_dir, copy = tmp_path / "log", tmp_path / "copy" / "orders-0"
    (log_dir / "orders-0").mkdir(parents=True)
    (log_dir / "meta.properties").write_text("version=1\n")
    copy.mkdir(parents=True)
    (copy / "00000000000000000000.log").touch()
    (tmp_path / "link").symlink_to(log_dir)
    before = sorted(tmp_path.rglob("*"))
    for inside in ("log/a", "log/a/b", "log/a/b/c", "log/orders-0/a/b", "link/a/b", "copy/orders-0/a", "copy/orders-0/a/b"):
        with pytest.raises(RefusedError):
            write_elections([], str(tmp_path / inside))
        assert sorted(tmp_path.rglob("*")) == before, inside
    with pytest.raises(UsageError, match="is not a directory"):
        write_elections([], str(log_dir / "meta.properties" / "a"))
    assert write_elections([], str(tmp_path / "new" / "a" / "b")) == []
    assert (tmp_path / "new" / "a" / "b").is_dir()


# --- what cannot be merged -------------------------------------------------------------------------------------------------


def test_elections_that_may_delete_data_are_in_no_file(tmp_path: Path) -> None:
    """KAFKA-20732: one finding for each kind, whatever the number of partitions; nothing for those that are not affected."""
    names = ("off", "unlimited", "sized", "unstated", "upgraded")
    placements = {(name, 0, TOPIC_ID): Placement((1, 2), frozenset({1, 2}), 1) for name in names}
    topics = {name: TopicStorage(name != "off", {"unlimited": -1, "unstated": None}.get(name, 1 << 30)) for name in names}
    brokers = {1: [scanned(name, missing=2) for name in names], 2: [scanned(name) for name in names]}
    result = merged(tmp_path, brokers, view=ClusterView(9, placements, topics=topics, levels={2: 21}))
    risks = {each.key[0]: each.election_risk.outcome.value for each in result.partitions if each.election_risk is not None}
    assert risks == {
        "off": "not-affected",
        "unlimited": "not-affected",
        "sized": "affected",
        "upgraded": "affected",
        "unstated": "unknown",
    }
    messages = {each.code: each.message for each in result.findings}
    assert "2 partitions (sized-0, upgraded-0)" in messages["election-may-delete-data"]
    assert "kafka-configs.sh" in messages["election-risk-unknown"]
    assert [each.code for each in result.findings].count("election-risk-unknown") == 1

    def elected(found: FleetResult) -> set[str]:
        return {each.topic for moment in found.elections() or () for each in moment.partitions}

    assert elected(result) == {"off", "unlimited"}
    view = ClusterView(9, placements, topics=topics, levels={2: 21})
    assert elected(merged(tmp_path, brokers, view=view, allows_risk=True)) == set(names)
    fixed = merged(tmp_path, brokers, view=ClusterView(9, placements, topics=topics, levels={2: 33}))
    assert elected(fixed) == set(names)
    assert not any("KAFKA-20732" in each.message for each in fixed.findings)


def test_a_restart_elects_other_leaders(tmp_path: Path) -> None:
    """Broker 1 has to be restarted for one partition, and leads another one, which is affected."""
    everybody = frozenset({1, 2})
    placements = {(name, 0, TOPIC_ID): Placement((1, 2), everybody, 1) for name in ("stuck", "tiered")}
    brokers = {1: [scanned("stuck", missing=1), scanned("tiered")], 2: [scanned("stuck", missing=5), scanned("tiered")]}
    sized = {"tiered": TopicStorage(is_remote=True, retention_bytes=5)}
    for levels, code in (({2: 29}, "restart-may-delete-data"), ({}, "restart-risk-unknown"), ({2: 33}, None)):
        result = merged(tmp_path, brokers, view=ClusterView(9, placements, topics=sized, levels=levels))
        found = [each.code for each in result.findings if each.code.startswith("restart-")]
        assert found == ([] if code is None else [code])
