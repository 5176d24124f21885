"""Decisions of a merge about partitions with a scan of each replica, and the order of restarts."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifests import FIXTURES
from merged_scans import TOPIC_ID, merged, outcomes, view
from pages import scan_document, scanned, segments_of, totals_of, written
from sentences import ELECT_WHEN_IN_SYNC, UNDER_ID_ZERO

from snaprebuild.cluster.fleet.cluster_view import ClusterView, Placement, view_of
from snaprebuild.cluster.fleet.election_risk import TopicStorage
from snaprebuild.cluster.fleet.fleet_partition import FleetOutcome
from snaprebuild.cluster.fleet.merge import merge_scans
from snaprebuild.cluster.fleet.outdated import AGE_MAX_MS
from snaprebuild.cluster.fleet.replicas import PartitionKey, ReplicaReadiness, ScannedReplica
from snaprebuild.cluster.fleet.restart_plan import restart_order
from snaprebuild.cluster.metadata.image_model import ConfigResource, MetadataImage, ResourceType
from snaprebuild.cluster.metadata.image_reader import read_image
from snaprebuild.documents.saved_scans import saved_scans
from snaprebuild.errors import UsageError
from snaprebuild.findings import Severity


def not_freed(name: str) -> dict[str, Any]:
    partition = scanned(name, missing=2)
    partition["upload"] |= {
        "blockers": [{"blocker": "no-leader-epochs", "segments": 2, "freed_by": "retention"}],
        "stuck_bytes_after_rebuild": 7,
    }
    return partition


def started(name: str) -> dict[str, Any]:
    partition = scanned(name, missing=2)
    partition["upload"] |= {"blockers": [{"blocker": "missing-time-index", "segments": 2, "freed_by": "broker start"}]}
    return partition


def doubted(name: str) -> dict[str, Any]:
    partition = scanned(name)
    partition["boundaries"][1]["state"] = "suspect"
    return partition


def test_what_to_do_about_each(tmp_path: Path) -> None:
    result = merged(
        tmp_path,
        {
            1: [
                scanned("fine"),
                scanned("free", missing=3),
                scanned("both", missing=3),
                not_freed("never"),
                doubted("odd"),
                started("index"),
            ],
            2: [
                scanned("fine"),
                scanned("free"),
                scanned("both", missing=1),
                not_freed("never"),
                doubted("odd"),
                not_freed("index"),
            ],
        },
    )
    assert outcomes(result) == {
        "fine-0": (FleetOutcome.HEALTHY, None),
        "free-0": (FleetOutcome.ELECT, 2),
        "both-0": (FleetOutcome.REPAIR, 1),
        "never-0": (FleetOutcome.WAIT, None),
        "odd-0": (FleetOutcome.VERIFY, None),
        "index-0": (FleetOutcome.REPAIR, 1),
    }
    assert result.repair_cover.brokers == (1,), "broker 2 costs less for one of them, and cannot help the other"
    (step,) = result.steps
    assert (step.node_id, step.needs_rebuild, step.missing) == (1, True, 3 + 2)
    assert step.replay_bytes == (3 + 2) << 20, "the segments below the last boundary that lacks a snapshot"
    assert {each.code for each in result.findings if each.severity} == {
        "stuck-until-repaired",
        "stuck-until-elected",
        "stuck-for-good",
        "every-replica-suspect",
    }


def test_a_start_is_enough_where_only_an_index_is_missing(tmp_path: Path) -> None:
    partition = started("index")
    for boundary in partition["boundaries"]:
        boundary |= {"state": "present", "at_next_start": "kept"}
    (step,) = merged(tmp_path, {1: [partition]}).steps
    assert (step.needs_rebuild, step.missing, step.replay_bytes) == (False, 0, 0)


def test_the_cheaper_of_two_brokers_and_the_rate(tmp_path: Path) -> None:
    result = merged(
        tmp_path,
        {1: [scanned("a", segments=9, missing=8)], 2: [scanned("a", segments=9, missing=2)]},
        rate_bytes_per_second=1 << 20,
    )
    assert result.repair_cover.brokers == (2,)
    assert [(step.replay_bytes, step.estimated_seconds, step.freed_bytes) for step in result.steps] == [(2 << 20, 2.0, 8 << 20)]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"leader_epoch": 2}, "it had leader epoch 2 when it was scanned, another one 3"),
        ({"log_end": {"offset": 400, "source": "x", "at_least": 400}}, "its log ended at 400 when it was scanned, below 500"),
        ({}, None),
    ],
)
def test_a_replica_that_lagged_leads_only_when_it_is_in_sync(tmp_path: Path, changed: dict[str, Any], said: str | None) -> None:
    (partition,) = merged(tmp_path, {1: [scanned("a", missing=1)], 2: [scanned("a", **changed)]}).partitions
    assert (partition.outcome, partition.elect) == (FleetOutcome.ELECT, 2)
    assert partition.condition is None if said is None else said in str(partition.condition)


def test_what_the_metadata_log_adds(tmp_path: Path) -> None:
    placed = view(
        leads=Placement((1, 2), frozenset({1, 2}), 2),
        out=Placement((1, 2), frozenset({1}), 1),
        more=Placement((1, 2, 9), frozenset({1}), 1),
    )
    result = merged(
        tmp_path,
        {
            1: [scanned("leads", missing=1), scanned("out", missing=1), scanned("more", missing=1)],
            2: [scanned("leads"), scanned("out"), scanned("more", missing=1)],
        },
        view=placed,
    )
    by_name = {each.name: each for each in result.partitions}
    assert by_name["leads-0"].outcome is FleetOutcome.HEALTHY, "who leads has every snapshot"
    assert (by_name["out-0"].elect, by_name["out-0"].condition) == (2, ELECT_WHEN_IN_SYNC)
    assert by_name["more-0"].not_scanned == (9,)
    codes = {each.code: each.message for each in result.findings}
    assert "replica-not-scanned" in codes
    assert "is the only one in sync for 2 partitions (more-0, out-0)" in codes["last-in-sync"]
    assert result.steps[0].node_id == 1, "with as much to read, who is no controller"


def test_controllers_come_last_and_the_active_one_behind_all(tmp_path: Path) -> None:
    brokers = {node: [scanned(f"own{node}", segments=node + 2, missing=1)] for node in (1, 2, 3, 4)}
    assert [step.node_id for step in merged(tmp_path, brokers).steps] == [4, 3, 2, 1], "who frees most for as much reading"
    alone = {f"own{node}": Placement((node,), frozenset({node}), node) for node in brokers}
    steps = merged(tmp_path, brokers, view=view(**alone)).steps
    assert [(step.node_id, step.is_controller) for step in steps] == [(4, False), (1, False), (2, True), (3, True)]
    assert [step.node_id for step in merged(tmp_path, brokers, controllers=frozenset({4})).steps] == [3, 2, 1, 4]


class RepairedPartition:
    def __init__(self, number: int, stuck_bytes: int) -> None:
        self.key: PartitionKey = ("t", number, None)
        self.stuck_bytes = stuck_bytes


def replica(node: int, replay_bytes: int) -> ScannedReplica:
    return ScannedReplica(node, ReplicaReadiness.REBUILD, 0, 9, 9, 9, 0, 9, 1, 0, 1, 9, replay_bytes)


@given(
    st.lists(st.tuples(st.frozensets(st.integers(0, 5), min_size=1), st.integers(0, 99), st.integers(0, 99)), max_size=12),
    st.frozensets(st.integers(0, 5)),
    st.none() | st.integers(0, 5),
)
def test_each_partition_once_in_any_order(
    partitions: list[tuple[frozenset[int], int, int]], controllers: frozenset[int], leader: int | None
) -> None:
    choices = [
        (RepairedPartition(number, stuck), {node: replica(node, read) for node in nodes})
        for number, (nodes, stuck, read) in enumerate(partitions)
    ]
    brokers = sorted({node for nodes, _, _ in partitions for node in nodes})
    steps = restart_order(brokers, choices, controllers, leader, 10)
    assert sorted(step.node_id for step in steps) == brokers, "each is restarted once, and no two at a time"
    repaired = [key for step in steps for key in step.keys]
    assert sorted(repaired) == [("t", number, None) for number in range(len(partitions))]
    for step in steps:
        assert all(step.node_id in partitions[key[1]][0] for key in step.keys)
        assert step.freed_bytes == sum(partitions[key[1]][1] for key in step.keys)
        assert step.estimated_seconds == step.replay_bytes / 10
    flags = [(step.node_id == leader, step.is_controller) for step in steps]
    assert flags == sorted(flags)


# --- what cannot be merged -------------------------------------------------------------------------------------------------


def refused(place: Path, *documents: dict[str, Any]) -> str:
    paths = [str(written(each, place / f"{number}.json")) for number, each in enumerate(documents)]
    with pytest.raises(UsageError) as caught:
        merge_scans(saved_scans(paths))
    return str(caught.value).replace(str(place), "")


def of_cluster(cluster_id: str, node_id: int) -> dict[str, Any]:
    document = scan_document([scanned("a")], node_id=node_id)
    document["log_dirs"][0]["cluster_id"] = cluster_id
    return document


def nothing_in(name: str) -> dict[str, Any]:
    """A replica with one empty segment."""
    empty = scanned(name, segments=1, high_watermark=0, log_end={"offset": 0, "source": None, "at_least": 0})
    empty["segments"] = segments_of([0])
    empty["boundaries"], empty["totals"] = [], totals_of(1, 0)
    return empty


def test_an_only_replica_that_is_empty_is_not_called_healthy(tmp_path: Path) -> None:
    """Nothing in a scan shows whether it was never written to, or lost with its disk."""
    result = merged(tmp_path, {1: [nothing_in("alone"), nothing_in("both")], 2: [nothing_in("both"), scanned("full")]})
    assert outcomes(result) == {
        "alone-0": (FleetOutcome.VERIFY, None),
        "both-0": (FleetOutcome.HEALTHY, None),
        "full-0": (FleetOutcome.HEALTHY, None),
    }
    assert [(each.code, each.path) for each in result.findings if each.severity] == [("only-replica-empty", "alone")]


@pytest.mark.parametrize(("leader_epoch", "outcome"), [(0, FleetOutcome.HEALTHY), (1, FleetOutcome.VERIFY)])
def test_an_only_replica_of_which_no_other_was_elected_was_never_written_to(
    leader_epoch: int, outcome: FleetOutcome, tmp_path: Path
) -> None:
    placed = view(alone=Placement((1,), frozenset({1}), 1, leader_epoch=leader_epoch))
    assert outcomes(merged(tmp_path, {1: [nothing_in("alone")]}, view=placed)) == {"alone-0": (outcome, None)}


def test_the_scan_of_a_replaced_disk_is_not_the_brokers(tmp_path: Path) -> None:
    """Its directory id is none of those that the broker registered with: its replicas are left out, and that is a finding."""
    placed = view(a=Placement((1, 2), frozenset({1, 2}), 1))
    scans = {1: [scanned("a")], 2: [scanned("a", missing=1)]}
    assert outcomes(merged(tmp_path, scans, view=placed)) == {"a-0": (FleetOutcome.HEALTHY, 1)}
    replaced = ClusterView(9, placed.placements, placed.controllers, 3, {1: frozenset({TOPIC_ID})})
    result = merged(tmp_path, scans, view=replaced)
    assert outcomes(result) == {"a-0": (FleetOutcome.NOT_SCANNED, None)}, "broker 1 leads it, and its present disk was not scanned"
    (finding,) = [each for each in result.findings if each.code == "scan-not-whole"]
    assert "has directory id none, and broker 1 registered with" in finding.message


OFFLINE = {"code": "offline-log-dir", "severity": "storage", "path": "/disk2", "message": "is gone", "offset": None, "reason": None}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"log_dirs": []}, "it has no log directory of any broker"),
        ({"findings": [OFFLINE, OFFLINE]}, "2 places could not be looked at, first /disk2: is gone"),
        (
            {"request": {"paths": [], "server_properties": None, "topics": ["o*"], "partitions": []}},
            "it covers selected topics or partitions only",
        ),
    ],
)
def test_a_scan_that_is_not_whole_is_reported(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    whole = written(scan_document([scanned("orders")]), tmp_path / "1.json")
    assert merge_scans(saved_scans([str(whole)])).findings == ()
    partitions = [] if "log_dirs" in changed else [scanned("orders")]
    other = written({**scan_document(partitions, node_id=2), **changed}, tmp_path / "2.json")
    (reported,) = merge_scans(saved_scans([str(whole), str(other)])).findings
    assert (reported.code, reported.severity, reported.path) == ("scan-not-whole", Severity.FINDING, str(other))
    assert said in reported.message


def test_partitions_that_no_one_scanned_are_reported(tmp_path: Path) -> None:
    here, there = Placement((1, 2), frozenset({1}), 1), Placement((8, 9), frozenset({8}), 8)
    result = merged(tmp_path, {1: [scanned("here")]}, view=view(here=here, there=there, __consumer_offsets=there))
    (reported,) = [each for each in result.findings if each.code == "partition-not-scanned"]
    assert (reported.severity, reported.path) == (Severity.FINDING, "brokers 8")
    assert outcomes(result) == {"here-0": (FleetOutcome.HEALTHY, None), "there-0": (FleetOutcome.NOT_SCANNED, None)}
    assert "1 partition (there-0)" in reported.message


def test_what_does_not_go_together(tmp_path: Path) -> None:
    assert (
        refused(tmp_path, of_cluster("x", 1), of_cluster("y", 2))
        == "/1.json: is of another cluster: expected x, as /0.json; found y"
    )
    twice = scan_document([scanned("a")], node_id=3)
    assert refused(tmp_path, twice, twice) == "/1.json: is of broker 3, as /0.json: name one scan of each broker"
    assert "has a-0 twice for broker 1" in refused(tmp_path, scan_document([scanned("a"), scanned("a", path="/kafka2/a-0")]))
    nobody = scan_document([scanned("a")])
    nobody["log_dirs"][0]["node_id"] = None
    assert "does not show the broker of /kafka: it has no meta.properties" in refused(tmp_path, nobody)
    less = scan_document([scanned("a")])
    del less["partitions"][0]["segments"]
    assert refused(tmp_path, less) == "/0.json: is damaged: partitions[0]: object missing required field `segments`"
    less = scan_document([scanned("a")])
    del less["log_dirs"][0]["directory_id"]
    assert "log_dirs[0]: object missing required field `directory_id`" in refused(tmp_path, less)
    older = refused(tmp_path, scan_document([]) | {"schema": "snaprebuild.scan/1"})
    assert (
        "is of another version: expected snaprebuild.scan/4, found snaprebuild.scan/1 of snaprebuild '0.1.0'; scan again" in older
    )
    copied = scan_document([])
    copied["log_dirs"] = [{**copied["log_dirs"][0], "path": path, "directory_id": "d"} for path in ("/kafka", "/copy")]
    assert "has the directory id d twice: one is a copy of the other, /copy" in refused(tmp_path, copied)
    damaged = scan_document([scanned("a")])
    damaged["partitions"][0]["upload"] = None
    assert refused(tmp_path, damaged) == "/0.json: is damaged: partitions[0]: expected `object`, found `null` at `.upload`"
    with pytest.raises(UsageError, match="name at least one document"):
        merge_scans(saved_scans([]))
    copied["log_dirs"] = copied["log_dirs"][:1]  # one that has an id of its own
    one = written(copied, tmp_path / "one.json")
    (tmp_path / "link.json").symlink_to(one)
    for again in ("one.json", "link.json"):
        with pytest.raises(UsageError, match=f"{again}: is named twice"):
            merge_scans(saved_scans([str(one), str(tmp_path / again)]))


def test_topics_that_were_made_again_and_brokers_without_topic_ids(tmp_path: Path) -> None:
    other = "1c1GoXd6QF-vQBe4uplTrw"
    result = merged(
        tmp_path,
        {1: [scanned("a", missing=1)], 2: [scanned("a", topic_id=other)], 3: [scanned("b", topic_id=None)], 4: [scanned("b")]},
    )
    assert [(each.name, each.key[2], len(each.replicas)) for each in result.partitions] == [
        ("a-0", other, 1),
        ("a-0", TOPIC_ID, 1),
        ("b-0", TOPIC_ID, 2),
    ]
    assert "several-topic-ids" in {each.code for each in result.findings}


def test_internal_and_compacted_topics_do_not_count(tmp_path: Path) -> None:
    result = merged(tmp_path, {1: [scanned("a", missing=3, can_be_tiered=False), scanned("b")]})
    assert [each.name for each in result.partitions] == ["b-0"]
    assert result.fleet.brokers[1].replicas == 2


def test_what_the_metadata_log_says_of_storage() -> None:
    configs = {
        ConfigResource(ResourceType.TOPIC, "t"): {"remote.storage.enable": "true", "retention.bytes": "77"},
        ConfigResource(ResourceType.TOPIC, "u"): {"retention.ms": "5"},
        ConfigResource(ResourceType.BROKER, ""): {"log.retention.bytes": "9"},
        ConfigResource(ResourceType.BROKER, "2"): {"log.retention.bytes": "-1"},
    }
    view = view_of(MetadataImage(configs=configs))
    assert view.topics == {"t": TopicStorage(True, 77), "u": TopicStorage()}
    assert view.retention_bytes == {None: 9, 2: -1}
    node = view_of(read_image(str(FIXTURES / "kraft-cluster3" / "node1")).fold.image())
    assert set(node.levels.values()) == {30}, "4.3.1"


def of_zookeeper_with(found: dict[int, list[dict[str, Any]]], tmp_path: Path) -> dict[str, tuple[str, str]]:
    """Path and message of each finding about topic ids."""
    result = merged(tmp_path, found)
    return {each.code: (each.path, each.message) for each in result.findings if each.code.startswith("topic-id-")}


def test_topic_ids_are_compared_across_brokers(tmp_path: Path) -> None:
    """A broker below protocol 2.8 has none of the ids that the others have."""
    differing = {1: [scanned("a"), scanned("b")], 2: [scanned("a", topic_id=None), scanned("b", topic_id=None)], 3: [scanned("a")]}
    found = of_zookeeper_with(differing, tmp_path)
    assert set(found) == {"topic-id-not-everywhere"}
    where, message = found["topic-id-not-everywhere"]
    assert where == "broker 2"
    assert "2 topics (a, b) without a topic id here" in message
    alike = {1: [scanned("a"), scanned("b")], 2: [scanned("a"), scanned("b")]}
    assert of_zookeeper_with(alike, tmp_path) == {}
    none = {1: [scanned("a", topic_id=None)], 2: [scanned("a", topic_id=None)]}
    assert of_zookeeper_with(none, tmp_path) == {}, "a cluster below protocol 2.8 without remote storage"


def test_partitions_of_one_topic_with_different_ids_are_named_once(tmp_path: Path) -> None:
    """Each partition by itself looks well: no other broker has a replica of it."""
    other = "1c1GoXd6QF-vQBe4uplTrw"
    several = {1: [scanned("a"), scanned("b")], 2: [scanned("a", 1, topic_id=other, path="/kafka/a-1"), scanned("b")]}
    (found,) = [each for each in merged(tmp_path, several).findings if each.code == "several-topic-ids"]
    assert found.path == "a"
    assert f"{other} on broker 2" in found.message
    alike = {1: [scanned("a")], 2: [scanned("a", 1, path="/kafka/a-1")]}
    assert not [each for each in merged(tmp_path, alike).findings if each.code == "several-topic-ids"]
    replicas = {1: [scanned("a")], 2: [scanned("a", topic_id=other)]}
    assert [each.path for each in merged(tmp_path, replicas).findings if each.code == "several-topic-ids"] == ["a-0"]


def test_a_refused_scan_has_no_say_in_topic_ids(tmp_path: Path) -> None:
    """It was taken long before the others, when no topic had an id."""
    paths = []
    for node, partition in ((1, scanned("a", topic_id=None)), (2, scanned("a"))):
        document = scan_document([partition], node_id=node)
        document["run"]["at_ms"] += node * 2 * AGE_MAX_MS
        paths.append(str(written(document, tmp_path / f"{node}.json")))
    result = merge_scans(saved_scans(paths))
    assert list(result.fleet.refused) == paths[:1]
    assert not [each for each in result.findings if each.code == "topic-id-not-everywhere"]


def test_a_broker_that_would_upload_under_id_zero_is_named(tmp_path: Path) -> None:
    zero = {"topic_id": None, "uploads_under_id_zero": True}
    found = of_zookeeper_with({1: [scanned("a")], 2: [scanned("a", **zero)], 3: [scanned("a", **zero)]}, tmp_path)
    assert set(found) == {"topic-id-zero"}, "one cause, one line"
    where, message = found["topic-id-zero"]
    assert where == "brokers 2, 3"
    assert f"1 topic (a) would be uploaded {UNDER_ID_ZERO}" in message


def test_a_broker_of_kraft_without_a_topic_id_is_another_matter(tmp_path: Path) -> None:
    paths = []
    for node, partition in ((1, scanned("a")), (2, scanned("a", topic_id=None))):
        document = scan_document([partition], node_id=node)
        document["log_dirs"][0]["cluster_kind"] = "kraft"
        paths.append(str(written(document, tmp_path / f"{node}.json")))
    assert not {each.code for each in merge_scans(saved_scans(paths)).findings} & {"topic-id-zero", "topic-id-not-everywhere"}
