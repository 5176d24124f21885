"""Things that scans do not show: old copies of disks, brokers without a scan, deleted topics. Faults are next to healthy forms."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from manifests import CLUSTER, FIXTURES
from merged_scans import TOPIC_ID, outcomes
from pages import scan_document, scanned, written

from snaprebuild.cluster.fleet.cluster_view import ClusterView, Placement, read_cluster_view
from snaprebuild.cluster.fleet.fleet_partition import FleetOutcome
from snaprebuild.cluster.fleet.merge import FleetResult, merge_scans
from snaprebuild.documents.saved_scans import saved_scans
from snaprebuild.errors import UsageError
from snaprebuild.findings import Severity, exit_code_of
from snaprebuild.snapshots.run import Run

EVERYBODY = frozenset({1, 2, 3})
TOPICS = ("a", "b", "c")
EPOCHS = {1: 15, 2: 273, 3: 233}
VIEW = ClusterView(
    offset=400,
    placements={
        (topic, 0, TOPIC_ID): Placement((1, 2, 3), EVERYBODY, leader, leader_epoch=4) for leader, topic in enumerate(TOPICS, 1)
    },
    epochs=EPOCHS,
)
"""Each of three brokers leads one of three topics."""

DAY_MS = 86_400_000
Documents = dict[int, dict[str, Any]]
Change = Callable[[Documents], object]


def documents(*, missing_on: int | None = None) -> Documents:
    """A scan of each broker; one of them may lack snapshots."""
    return {
        node: scan_document([scanned(topic, missing=2 if node == missing_on else 0) for topic in TOPICS], node_id=node)
        for node in EPOCHS
    }


def marked(node: int, epoch: int) -> Change:
    return lambda scans: scans[node]["log_dirs"][0].update(cluster_kind="kraft", broker_epoch=epoch)


def registered_by_its_log(node: int, epoch: int) -> Change:
    """Without a clean-shutdown marker."""
    state = {"shutdown": "unclean", "cluster_kind": "kraft", "broker_epoch": epoch, "broker_epoch_source": "metadata-log"}
    return lambda scans: scans[node]["log_dirs"][0].update(state)


def left_out(*nodes: int) -> Change:
    return lambda scans: [scans.pop(node) for node in nodes]


def without_topic(node: int, topic: str) -> Change:
    def change(scans: Documents) -> None:
        scans[node]["partitions"] = [each for each in scans[node]["partitions"] if each["topic"] != topic]

    return change


def merged_from(place: Path, scans: Documents, view: ClusterView | None = VIEW) -> FleetResult:
    return merge_scans(saved_scans([str(written(each, place / f"{node}.json")) for node, each in scans.items()]), view)


FAULTS: dict[str, tuple[Change, set[str], dict[str, FleetOutcome]]] = {
    # The codes of the findings above notes, and the partitions that are not judged.
    "an old copy of broker 1": (marked(1, 9), {"scan-refused", "partition-not-scanned"}, {"a-0": FleetOutcome.NOT_SCANNED}),
    "an old copy of broker 1, without a marker": (
        registered_by_its_log(1, 9),
        {"scan-refused", "partition-not-scanned"},
        {"a-0": FleetOutcome.NOT_SCANNED},
    ),
    "a log older than broker 2": (marked(2, 300), {"scan-refused", "partition-not-scanned"}, {"b-0": FleetOutcome.NOT_SCANNED}),
    "the disk of another broker": (marked(3, 273), {"scan-refused", "partition-not-scanned"}, {"c-0": FleetOutcome.NOT_SCANNED}),
    "one of three scanned": (
        left_out(2, 3),
        {"partition-not-scanned"},
        {"b-0": FleetOutcome.NOT_SCANNED, "c-0": FleetOutcome.NOT_SCANNED},
    ),
    "two of three scanned": (left_out(3), {"partition-not-scanned"}, {"c-0": FleetOutcome.NOT_SCANNED}),
    "the leader's replica is in no scan": (
        without_topic(2, "b"),
        {"partition-not-scanned"},
        {"b-0": FleetOutcome.NOT_SCANNED},
    ),
    "a partition that no scan has": (
        lambda scans: [without_topic(node, "c")(scans) for node in EPOCHS],
        {"partition-not-scanned"},
        {"c-0": FleetOutcome.NOT_SCANNED},
    ),
    "a broker that is not registered": (
        lambda scans: scans.update({9: scan_document([scanned("a")], node_id=9)}),
        {"scan-refused"},
        {},
    ),
}
HEALTHY: dict[str, Change] = {
    "as they are": lambda _: None,
    "stopped cleanly": lambda scans: [marked(node, epoch)(scans) for node, epoch in EPOCHS.items()],
    "running": lambda scans: [each["log_dirs"][0].update(shutdown="running") for each in scans.values()],
    "one stopped cleanly": marked(2, 273),
    "killed, with its own metadata log": registered_by_its_log(2, 273),
    "killed": lambda scans: scans[1]["log_dirs"][0].update(shutdown="unclean", cluster_kind="kraft"),
    "a replica that does not lead is in no scan": without_topic(3, "a"),
    "an internal topic": lambda scans: scans[1]["partitions"].append(scanned("__consumer_offsets", can_be_tiered=False)),
    "a topic that was deleted": lambda scans: scans[1]["partitions"].append(scanned("gone", missing=3)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_was_not_scanned_is_not_judged(tmp_path: Path, fault: str) -> None:
    """It is a row and a finding, and the rest is judged all the same."""
    change, codes, not_judged = FAULTS[fault]
    scans = documents()
    change(scans)
    result = merged_from(tmp_path, scans)
    assert {each.code for each in result.findings if each.severity} == codes
    assert exit_code_of(result.findings) == (3 if "scan-refused" in codes else 1)
    found = {name: outcome for name, (outcome, _) in outcomes(result).items()}
    assert found == {f"{topic}-0": FleetOutcome.HEALTHY for topic in TOPICS} | not_judged


@pytest.mark.parametrize("form", HEALTHY)
def test_healthy_forms_raise_no_alarm(tmp_path: Path, form: str) -> None:
    scans = documents()
    HEALTHY[form](scans)
    result = merged_from(tmp_path, scans)
    assert [each.message for each in result.findings if each.severity] == []
    found = {name: outcome for name, (outcome, _) in outcomes(result).items()}
    gone = {"gone-0": FleetOutcome.GONE} if form == "a topic that was deleted" else {}
    assert found == {f"{topic}-0": FleetOutcome.HEALTHY for topic in TOPICS} | gone, "a deleted topic does not count as healthy"


def test_the_counts_of_the_tables() -> None:
    assert (len(FAULTS), len(HEALTHY)) == (9, 9)


@pytest.mark.parametrize("epoch", [9, None])
def test_no_election_rests_on_the_scan_of_an_old_copy(tmp_path: Path, epoch: int | None) -> None:
    """Broker 1 would lead all topics: broker 2 and 3 lack snapshots. The scan of its old copy elects no one."""
    scans = documents()
    for node in (2, 3):
        scans[node] = scan_document([scanned(topic, missing=2) for topic in TOPICS], node_id=node)
    if epoch is not None:
        marked(1, epoch)(scans)
    result = merged_from(tmp_path, scans)
    elected = {each.topic: each.replicas[0] for moment in result.elections() or () for each in moment.partitions}
    if epoch is None:
        assert elected == {"b": 1, "c": 1}, "of which it is not the leader yet"
        return
    assert 1 not in {*elected.values(), *(each.elect for each in result.partitions), *(step.node_id for step in result.steps)}
    assert result.steps, "what was scanned is repaired all the same"


@pytest.mark.parametrize(
    ("changed", "shutdown", "condition"),
    [
        ({"leader_epoch": 5}, "clean", "it has leader epoch 5, and the metadata log 4: name a later one"),
        (
            {"log_end": {"offset": 400, "source": "x", "at_least": 400}},
            "unclean",
            "its log ended at 400 when it was scanned, below 500",
        ),
        ({"log_end": {"offset": 400, "source": "x", "at_least": 400}}, "running", None),
        ({}, "unclean", None),
    ],
)
def test_who_is_in_sync_by_the_log_and_is_not_by_the_scan(
    tmp_path: Path, changed: dict[str, Any], shutdown: str, condition: str | None
) -> None:
    """A broker that runs was scanned a moment before the others."""
    scans = {1: scan_document([scanned("a", missing=1)]), 2: scan_document([scanned("a", **changed)], node_id=2)}
    scans[2]["log_dirs"][0]["shutdown"] = shutdown
    view = ClusterView(400, {("a", 0, TOPIC_ID): Placement((1, 2), frozenset({1, 2}), 1, leader_epoch=4)})
    (partition,) = merged_from(tmp_path, scans, view).partitions
    assert (partition.outcome, partition.elect) == (FleetOutcome.ELECT, 2)
    assert partition.condition is None if condition is None else condition in str(partition.condition)
    moments = merged_from(tmp_path, scans, view).elections()
    assert bool(moments) == (condition is None)


# ---------------------------------------------------------------------------------------------------------------- without a log


def test_kraft_without_a_metadata_log_is_unknown(tmp_path: Path) -> None:
    scans = documents()
    assert exit_code_of(merged_from(tmp_path, scans, None).findings) == 0, "with ZooKeeper there is none"
    marked(1, 15)(scans)
    result = merged_from(tmp_path, scans, None)
    assert [each.code for each in result.findings if each.severity] == ["fleet-without-metadata"]
    assert {outcome for outcome, _ in outcomes(result).values()} == {FleetOutcome.HEALTHY}


def aged(node: int, days: float, *, taken: bool = False, behind: bool = True, shutdown: str = "clean") -> Change:
    """The scan, or only its data, is older than the others; its logs end lower."""

    def change(scans: Documents) -> None:
        scan = scans[node]
        if taken:
            scan["run"]["at_ms"] -= int(days * DAY_MS)
        scan["log_dirs"][0]["shutdown"] = shutdown
        for partition in scan["partitions"]:
            for segment in partition["segments"]:
                segment["modified_ms"] -= int(days * DAY_MS)
            if behind:
                partition["log_end"] = {"offset": 400, "source": "x", "at_least": 400}

    return change


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        (aged(1, 2, taken=True, behind=False), "hours before the latest one"),
        (aged(1, 2), "was taken while broker 1 was down, with data that is 48 hours older"),
        (aged(1, 0.5, taken=True), None),
        (aged(1, 0.5), None),
        (aged(1, 2, behind=False), None),
        (aged(1, 2, shutdown="running"), None),
    ],
    ids=["old scan", "old data", "scan of today", "data of today", "idle", "running"],
)
def test_with_zookeeper_age_and_log_ends_show_an_old_copy(tmp_path: Path, change: Change, refused: str | None) -> None:
    scans = documents(missing_on=2)
    change(scans)
    result = merged_from(tmp_path, scans, None)
    found = [each for each in result.findings if each.code == "scan-refused"]
    assert len(found) == (refused is not None)
    if refused is not None:
        assert (found[0].severity, refused in found[0].message) == (Severity.REFUSED, True), found[0].message
        assert all(replica.node_id != 1 for each in result.partitions for replica in each.replicas)


def test_without_a_leader_all_that_may_lead_must_be_scanned(tmp_path: Path) -> None:
    """After a clean stop of the whole cluster no broker leads, and the last members are eligible leaders."""
    key = ("a", 0, TOPIC_ID)
    view = replace(VIEW, placements={key: Placement((1, 2, 3), frozenset({1, 2}), None, leader_epoch=4)})
    scans = {1: scan_document([scanned("a")])}
    assert outcomes(merged_from(tmp_path, scans, view)) == {"a-0": (FleetOutcome.NOT_SCANNED, None)}, "broker 2 may lead"
    scans[2] = scan_document([scanned("a")], node_id=2)
    assert outcomes(merged_from(tmp_path, scans, view)) == {"a-0": (FleetOutcome.HEALTHY, None)}
    scans = {3: scan_document([scanned("a")], node_id=3)}
    assert outcomes(merged_from(tmp_path, scans, view)) == {"a-0": (FleetOutcome.NOT_SCANNED, None)}


def test_a_metadata_log_of_another_cluster_is_no_evidence(tmp_path: Path) -> None:
    """By the ids in `meta.properties`: a copy of the metadata log alone has none."""
    scan = scan_document([scanned("a")], node_id=1)
    scan["log_dirs"][0]["cluster_id"] = "Zx4kQm3BTyGd1rPq7sVwYA"
    path = str(written(scan, tmp_path / "1.json"))
    other = read_cluster_view(str(FIXTURES / "follower-lost-state" / "node1"), Run())
    with pytest.raises(
        UsageError, match=r"is of another cluster: expected Zx4kQm3BTyGd1rPq7sVwYA, as .*; found Pq2wE8rTSkGz6xYb1nMc3A"
    ):
        merge_scans(saved_scans([path]), other)
    assert (
        merge_scans(saved_scans([path]), read_cluster_view(str(CLUSTER / "node1"), Run())).fleet.cluster_id
        == scan["log_dirs"][0]["cluster_id"]
    )
    merge_scans(saved_scans([path]), replace(other, cluster_id=None))
