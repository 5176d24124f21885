"""Registrations that hold a feature back: logs of real controllers of 4.3.1 and 4.4.0, and each kind of registration next to healthy ones.

Controllers of the cluster of ``kraft-leftover-registrations`` refused requests before the registrations went. Their messages:

"Broker 3 only supports versions 7-30", "Controller 2 only supports versions 7-30".

"The current MetadataVersion is too old to support controller unregistration."
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from archives import unpack
from budgets import by_turns
from command import in_json, snaprebuild
from manifests import FIXTURES
from metadata_dirs import BUNDLED
from pages import scan_document, written

from formats.log.control_record import Voter
from snaprebuild.cluster.metadata.feature_levels import HoldingNode, NodeState, feature_levels, held_back_findings
from snaprebuild.cluster.metadata.image_model import ControllerRegistration, MetadataImage, QuorumView, TopicImage
from snaprebuild.cluster.metadata.registered_model import (
    MIGRATING_DIRECTORY,
    BrokerRegistration,
    FeatureLevels,
    LeaderRecoveryState,
    PartitionRegistration,
)
from snaprebuild.findings import Severity, exit_code_of

LOGS = ("before", "broker-and-controller", "controller", "unregistered")
LEVEL = "metadata.version"
OLD, NEW = 30, 33


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("leftover")
    unpack(FIXTURES / "kraft-leftover-registrations" / "logs.tar.gz", to)
    return to


# -------------------------------------------------------------------------------------------------------------- real controllers

HELD_BACK = {
    "before": [],
    "broker-and-controller": [("broker", 3, "fenced-without-replicas"), ("controller", 2, "observer")],
    "controller": [("controller", 2, "observer")],
    "unregistered": [],
}


@pytest.mark.parametrize("name", LOGS)
def test_cluster_check_names_the_leftover_registrations(name: str, logs: Path) -> None:
    run = in_json("cluster check", logs / name)
    features = {each["name"]: each for each in run.document["features"]}
    level = features[LEVEL]
    assert sorted((each["kind"], each["node_id"], each["state"]) for each in level["held_back_by"]) == HELD_BACK[name]
    assert {each["max_level"] for each in level["held_back_by"]} <= {OLD}
    of_all, of_any = (OLD if HELD_BACK[name] else level["max_of_any"]), (OLD if name == "before" else NEW)
    assert (level["max_of_all"], level["max_of_any"]) == (of_all, of_any)
    assert (run.exit_code, run.codes.get("features-held-back", 0)) == (1 if HELD_BACK[name] else 0, len(HELD_BACK[name]))


def test_the_way_out_is_what_the_cluster_did(logs: Path) -> None:
    """Controller 2 was started once more as 4.4.0, the level was raised, and then it could be unregistered."""
    run = snaprebuild("cluster check", logs / "controller")
    text = " ".join((run.stdout + run.stderr).split())
    assert "controller 2 supports metadata.version up to 30 (others 33)" in text
    assert "All nodes support metadata.version 30 (now 30)" in text
    assert "It is not a voter" in text
    assert "needs metadata.version 33 (4.4), which this registration prevents" in text
    assert "Start a controller of the new release with this node id once" in text
    assert "no violation; features held back by 1 registration" in text


@pytest.mark.parametrize("name", LOGS)
def test_fleet_names_them_too(name: str, logs: Path, tmp_path: Path) -> None:
    (cluster_id,) = re.findall(r"^cluster\.id=(.*)$", (logs / name / "meta.properties").read_text(), re.MULTILINE)
    document = scan_document([], node_id=1)
    document["log_dirs"][0]["cluster_id"] = cluster_id
    document["run"]["cluster_ids"] = [cluster_id]
    scan = written(document, tmp_path / "1.json")
    run = in_json("fleet", scan, "--metadata", logs / name)
    assert run.codes.get("features-held-back", 0) == len(HELD_BACK[name])


@pytest.mark.parametrize("name", by_turns(sorted(BUNDLED), 3))
def test_other_clusters_hold_nothing_back(name: str) -> None:
    assert "features-held-back" not in in_json("cluster check", BUNDLED[name]).codes


def test_registrations_of_a_controller_are_read_and_printed(logs: Path) -> None:
    """``UnregisterControllerRecord``, which only 4.4 writes."""
    history = in_json("cluster history", logs / "unregistered", "--broker", 2).document["broker"]
    assert [each["changes"] for each in history["entries"]] == [
        ["controller registered, metadata.version up to 30"],
        ["controller registered, metadata.version up to 33"],
        ["controller unregistered"],
    ]
    image = in_json("cluster image", logs / "unregistered").document
    assert [each["node_id"] for each in image["controllers"]] == [1]


# -------------------------------------------------------------------------------------------- each kind of registration, one at a time


@dataclass(frozen=True)
class Case:
    """A registration next to those of node 1, which supports everything.

    Attributes:
        level: greatest metadata.version that it supports; None for a node that does not name the feature.
        cluster: metadata.version of the cluster.
        voters: None where no record names them; ``static`` are those of quorum-state.
        state: None for a node that holds nothing back.
        words: that the message must have.
    """

    kind: str = "controller"
    level: int | None = OLD
    cluster: int = OLD
    voters: tuple[int, ...] | None = (1,)
    static: tuple[int, ...] | None = None
    fenced: bool = False
    replicas: tuple[int, ...] = (1,)
    state: NodeState | None = NodeState.OBSERVER
    severity: Severity = Severity.FINDING
    words: tuple[str, ...] = ()


NOTE = Severity.NOTE
CASES = {
    "leftover controller": Case(words=("not a voter", "this registration prevents")),
    "leftover controller of 4.4 in a later cluster": Case(level=NEW, cluster=NEW, words=("which the cluster has",)),
    "controller that knows no feature": Case(level=None),
    "older voter": Case(
        voters=(1, 2), state=NodeState.VOTER, severity=NOTE, words=("a voter", "stopped, or gone; these look alike")
    ),
    "older voter of quorum-state": Case(voters=None, static=(1, 2), state=NodeState.VOTER, severity=NOTE),
    "no voter of quorum-state": Case(voters=None, static=(1,)),
    "voters are not known": Case(
        voters=None,
        state=NodeState.CONTROLLER,
        severity=NOTE,
        words=("Whether it is a voter is not known", "A stopped voter looks"),
    ),
    "leftover broker": Case(
        "broker", fenced=True, state=NodeState.FENCED_WITHOUT_REPLICAS, words=("no replica", "unregister --id 2", "2.8 and later")
    ),
    "broker that restarts during an upgrade": Case(
        "broker", fenced=True, replicas=(1, 2), state=NodeState.FENCED, severity=NOTE, words=("does not show which",)
    ),
    "broker that is not upgraded yet": Case("broker", state=NodeState.ACTIVE, severity=NOTE, words=("it runs: upgrade it",)),
    "healthy controller": Case(level=NEW + 1, state=None),
    "healthy broker, stopped": Case("broker", level=NEW + 1, fenced=True, state=None),
    "before controllers register": Case(cluster=14, state=None),
}


INCARNATION = "A" * 22


def registered(case: Case) -> MetadataImage:
    def features(level: int | None) -> dict[str, FeatureLevels]:
        return {} if level is None else {LEVEL: FeatureLevels(7, level), "kraft.version": FeatureLevels(0, level % 2)}

    newest = features(NEW + 1)
    brokers = {1: BrokerRegistration(1, 5, INCARNATION, False, False, (), None, None, (), newest)}
    controllers = {1: ControllerRegistration(1, INCARNATION, (), newest)}
    if case.kind == "broker":
        brokers[2] = BrokerRegistration(2, 6, INCARNATION, case.fenced, False, (), None, None, (), features(case.level))
    else:
        controllers[2] = ControllerRegistration(2, INCARNATION, (), features(case.level))
    partition = PartitionRegistration(
        leader=1,
        leader_epoch=0,
        leader_recovery_state=LeaderRecoveryState.RECOVERED,
        partition_epoch=0,
        replicas=case.replicas,
        directories=(MIGRATING_DIRECTORY,) * len(case.replicas),
        isr=(1,),
        elr=(),
        last_known_elr=(),
        adding=(),
        removing=(),
    )
    topic_id = bytes(range(16))
    voters = None if case.voters is None else tuple(Voter(each, None, (), 0, 1) for each in case.voters)
    return MetadataImage(
        brokers=brokers,
        controllers=controllers,
        topics={topic_id: TopicImage("t", topic_id, {0: partition})},
        features={LEVEL: case.cluster},
        quorum=QuorumView(voters=voters),
    )


@pytest.mark.parametrize("name", CASES)
def test_each_kind_of_registration(name: str) -> None:
    case = CASES[name]
    (level,) = feature_levels(registered(case), case.static)
    findings = held_back_findings("log", [level])
    if case.state is None:
        assert (level.held_back_by, level.max_of_all, level.max_of_any, findings) == ((), NEW + 1, NEW + 1, [])
        return
    assert level.held_back_by == (HoldingNode(case.state.kind, 2, case.level or 0, case.state),)
    assert (level.finalized_level, level.max_of_all, level.max_of_any) == (case.cluster, case.level or 0, NEW + 1)
    (finding,) = findings
    assert (finding.severity, exit_code_of(findings)) == (case.severity, int(case.severity))
    assert all(words in finding.message for words in case.words), finding.message
