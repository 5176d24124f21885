"""Rules K1 to K20: each has a broken copy of a real directory that violates it and no other; healthy directories violate none."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from budgets import TIER
from log_dirs import EMPTY_SNAPSHOT, flip, snapshot_name
from manifests import FIXTURES
from metadata_dirs import (
    BROKEN,
    BUNDLED,
    DIRECTORY,
    change_batch,
    checkpoint_name,
    cut_last_batches,
    metadata_copy,
    remove,
    rename_feature,
    with_bytes_replaced,
)

from snaprebuild.cluster.quorum.check import QuorumCheck, check_quorum
from snaprebuild.cluster.quorum.rules import Followers, QuorumRule
from snaprebuild.cluster.rule_result import Grade, RuleState
from snaprebuild.findings import exit_code_of

CLUSTER: dict[str, Any] = json.loads((FIXTURES / "kraft-cluster3" / "manifest.json").read_text())


def violations(check: QuorumCheck) -> set[tuple[str, Grade | None]]:
    return {(each.rule.name, each.grade) for node in check.nodes for each in node.results if each.state is RuleState.BROKEN}


TABLE = [
    ("K1", Grade.DAMAGE, 4, "the first segment begins at 538, and no checkpoint ends there or above: there is none"),
    ("K2", Grade.WARNING, 1, "the log starts at 640, and no checkpoint ends there"),
    ("K3", Grade.WARNING, 1, "leader-epoch-checkpoint begins with epoch 3 at 234, and offset 233 has epoch 4"),
    ("K4", Grade.INFO, 0, "the only checkpoint is the one at the start, 234"),
    ("K5", Grade.WARNING, 1, "ends beyond the log, which ends at 357"),
    ("K6", Grade.ERROR, 1, "ends inside of the batch 234 to 235"),
    ("K7", Grade.ERROR, 1, "its name has epoch 1, and offset 352 has epoch 2"),
    ("K8", Grade.DAMAGE, 4, "its checksum"),
    ("K9", Grade.INFO, 0, "1 left over, which the next start removes: 00000000000000000500-0000000003-1234567.checkpoint.part"),
    ("K10", Grade.DAMAGE, 4, "464-3.checkpoint ends like a file of Kafka and is not named like one"),
    ("K11", Grade.DAMAGE, 4, "offsets 171 to 356 are missing, and the latest checkpoint that is whole ends at 157"),
    ("K12", Grade.WARNING, 1, "00000000000000000171.snapshot holds 1 producer"),
    ("K13", Grade.ERROR, 1, "from offset 318 on: epoch 4 here, 4 there"),
    ("K14", Grade.ERROR, 1, "offset 318 has epoch 3, and the batch before it has epoch 4"),
    ("K15", Grade.ERROR, 1, "may vote a second time in epoch 4"),
    ("K16", Grade.ERROR, 1, "differs from the log up to offset 75: features (2)"),
    ("K17", Grade.ERROR, 1, "ends at 347, and 00000000000000000348.snapshot was written when it ended at 348"),
    ("K18", Grade.DAMAGE, 4, "has topic id kJEH2V5MQ3qe3pGZOsqMwA, and the metadata log has AAAAAAAAAAAAAAAAAAAAAQ"),
    ("K19", Grade.DAMAGE, 4, "meta.properties names no node; a node does not start"),
    ("K20", Grade.WARNING, 1, "node 3 has another directory here"),
]


@pytest.mark.parametrize(
    ("rule", "grade", "exit_code", "evidence"), TABLE, ids=[f"{rule} {QuorumRule[rule].value}" for rule, *_ in TABLE]
)
def test_broken(tmp_path: Path, rule: str, grade: Grade, exit_code: int, evidence: str) -> None:
    check = check_quorum([str(each) for each in BROKEN[rule](tmp_path)])
    assert violations(check) == {(rule, grade)}
    found = [each for node in check.nodes for each in node.results if each.state is RuleState.BROKEN]
    assert any(evidence in each.evidence for each in found), found
    assert exit_code_of(check.findings) == exit_code
    others = [each.rule.name for node in check.nodes for each in node.results if each.state is RuleState.UNKNOWN]
    known = {"K1": {"K2", "K3", "K11"}, "K11": {"K17"}}.get(rule, set())
    assert set(others) <= {"K13", *known}, "what one rule tells, others do not tell again"


@pytest.mark.parametrize(
    ("name", "grade"),
    [
        ("464-3.checkpoint", Grade.DAMAGE),
        ("x.snapshot", Grade.DAMAGE),
        ("12.log", Grade.DAMAGE),
        ("00000000000000000464_0000000003.checkpoint", Grade.ERROR),
        ("12.timeindex", Grade.INFO),
        ("00000000000000000464_0000000003.checkpoint.deleted", Grade.INFO),
        ("notes.txt", None),
    ],
)
def test_names_by_what_kafka_does_with_them(tmp_path: Path, name: str, grade: Grade | None) -> None:
    """tests/broker asks Kafka about these and more."""
    directory = metadata_copy("node3", tmp_path)
    (directory / name).write_bytes(b"")
    assert violations(check_quorum([str(directory)])) == (set() if grade is None else {("K10", grade)})


def test_the_latest_checkpoint_matters_most(tmp_path: Path) -> None:
    """Damage to it keeps a node from starting, an epoch later than the log's empties the log; older ones no one loads."""
    old = metadata_copy("kraft-metadata", tmp_path / "old")
    flip(old / checkpoint_name(332, 2), 1000)
    header = metadata_copy("kraft-metadata", tmp_path / "header")
    flip(header / checkpoint_name(332, 2), 70)
    later = metadata_copy("kraft-metadata", tmp_path / "later")
    (later / checkpoint_name(484, 3)).rename(later / checkpoint_name(484, 4))
    graded = [(old, "K8", Grade.ERROR), (header, "K8", Grade.DAMAGE), (later, "K7", Grade.DAMAGE)]
    for directory, rule, grade in graded:
        check = check_quorum([str(directory)])
        assert violations(check) == {(rule, grade)}
    assert "takes it for later than the log, and drops offsets 484 to 530" in check.findings[0].message


def test_there_is_a_broken_copy_for_each_rule() -> None:
    assert [rule for rule, *_ in TABLE] == list(BROKEN) == [rule.name for rule in QuorumRule]


# ------------------------------------------------------------------------------------------------------------------ healthy ones

LEFT_OVER = {"kraft-metadata-moved", "node2"}
"""Segments that are being deleted lie there: the first manifest says so, and the second node was wiped and began at a checkpoint."""


@pytest.mark.parametrize("name", BUNDLED)
def test_healthy(name: str) -> None:
    check = check_quorum([str(BUNDLED[name])])
    assert violations(check) == ({("K9", Grade.INFO)} if name in LEFT_OVER else set())
    assert exit_code_of(check.findings) == 0


def test_healthy_nodes_agree() -> None:
    """The node that was wiped starts above its leader, which Kafka leaves to chance. Old copies of their disks agree with them, too."""
    current = [str(BUNDLED[f"node{number}"]) for number in (1, 2, 3)]
    assert violations(check_quorum(current)) == {("K9", Grade.INFO), ("K13", Grade.INFO)}
    nodes = [str(BUNDLED[name]) for name in BUNDLED if "node" in name]
    check = check_quorum(nodes)
    assert violations(check) == {("K9", Grade.INFO), ("K13", Grade.INFO), ("K20", Grade.WARNING)}
    assert [each.is_leader for each in check.nodes] == [True] + [False] * 6, "node 1, in epoch 4"
    for mode in (Followers.STRICT, Followers.LITERAL):
        assert ("K13", Grade.ERROR) in violations(check_quorum(nodes, mode))


def test_the_facts_are_those_of_the_manifests() -> None:
    for name, start, base in (("kraft-metadata", 0, 0), ("kraft-metadata-moved", 640, 538)):
        (node,) = check_quorum([str(BUNDLED[name])]).nodes
        manifest = json.loads((FIXTURES / name / "manifest.json").read_text())["partitions"][DIRECTORY]
        segments = manifest["segments"]
        facts = node.node.facts
        assert (facts.start_offset, facts.first_base_offset, facts.end_offset) == (start, base, manifest["end_offset"])
        found = [(each.base_offset, each.size_bytes) for each in node.node.segments]
        assert found == [(each["base_offset"], each["bytes"]) for each in segments]
        assert node.node.last_timestamp_ms == segments[-1]["max_timestamp"]
        names = {path.name for path in (BUNDLED[name] / DIRECTORY).glob("*.checkpoint")}
        assert {checkpoint_name(each.id.offset, each.id.epoch) for each in facts.checkpoints} == names
    for number in "123":
        (node,) = check_quorum([str(BUNDLED[f"node{number}"])]).nodes
        assert node.node.facts.end_offset == CLUSTER["last_offset_of_node"][number] + 1
        latest = node.node.facts.checkpoints[-1].id
        assert checkpoint_name(latest.offset, latest.epoch) == CLUSTER["checkpoint_used_of_node"][number]
        assert node.node.node_id == int(number)
        assert node.node.cluster_id == CLUSTER["directories"][f"node{number}"]["cluster_id"]


# ---------------------------------------------------------------------------------------------------------------- several nodes


def test_configurations_of_deleted_topics_are_no_difference(tmp_path: Path) -> None:
    """They have names that no topic has; a topic that is there has its configurations, or the checkpoints differ."""
    one, other = metadata_copy("node1", tmp_path), metadata_copy("node3", tmp_path)
    rename_configs(one / checkpoint_name(76, 1), b"\x07single", b"\x07aaaaaa")
    check = check_quorum([str(one), str(other)])
    assert violations(check) == {("K13", Grade.ERROR), ("K16", Grade.ERROR)}, "its own log has the configuration, too"
    assert "1 record only here (1 ConfigRecord)" in "".join(each.message for each in check.findings)
    rename_configs(other / checkpoint_name(76, 1), b"\x07single", b"\x07bbbbbb")
    assert violations(check_quorum([str(one), str(other)])) == {("K16", Grade.ERROR)}, "the checkpoints no longer differ"


def rename_configs(path: Path, old: bytes, new: bytes) -> None:
    """In ``ConfigRecord`` (key 4) of topics (type 2) alone."""
    with_bytes_replaced(path, b"\x01\x04\x00\x02" + old, b"\x01\x04\x00\x02" + new)


def test_a_literal_follower_may_stand_at_its_leaders_start(tmp_path: Path) -> None:
    """It has no checkpoint there, and gets the epoch from its leader; strictly it may not, nor where its leader is elsewhere."""
    leader = metadata_copy("node2", tmp_path)
    follower = metadata_copy("node3", tmp_path)
    (follower / "leader-epoch-checkpoint").write_text("0\n1\n4 234\n")
    places = [str(leader), str(follower)]
    assert ("K2", Grade.WARNING) in violations(check_quorum(places, Followers.STRICT, leader=str(leader)))
    assert ("K2", Grade.WARNING) not in violations(check_quorum(places, Followers.LITERAL, leader=str(leader)))
    (follower / "leader-epoch-checkpoint").write_text("0\n1\n4 230\n")
    assert ("K2", Grade.WARNING) in violations(check_quorum(places, Followers.LITERAL, leader=str(leader)))


def test_nodes_of_two_clusters(tmp_path: Path) -> None:
    one, other = metadata_copy("node1", tmp_path), metadata_copy("kraft-metadata", tmp_path)
    check = check_quorum([str(one), str(other)])
    assert violations(check) == {("K13", Grade.ERROR)}
    assert "of 2 clusters" in "".join(each.message for each in check.findings)


@pytest.mark.parametrize(("name", "checkpoints"), [("node1", 4), ("node2", 1)], ids=["begins at 0", "begins at 234"])
def test_a_log_that_was_overwritten_with_zeros(name: str, checkpoints: int, tmp_path: Path) -> None:
    """The tail that a node cuts off is the whole log: the checkpoints above it tell that it was longer."""
    directory = metadata_copy(name, tmp_path)
    (log,) = directory.glob("*.log")
    log.write_bytes(bytes(log.stat().st_size))
    check = check_quorum([str(directory)])
    beyond = [each for each in check.nodes[0].results if each.rule is QuorumRule.K5 and each.state is RuleState.BROKEN]
    assert len(beyond) == checkpoints
    assert exit_code_of(check.findings) == 1


def test_quorum_states_of_one_epoch_that_name_other_voters(tmp_path: Path) -> None:
    """The log of node 2 begins above the last election, so that only the other node's file contradicts."""
    one, other = metadata_copy("node1", tmp_path), metadata_copy("node2", tmp_path)
    path = other / "quorum-state"
    state = json.loads(path.read_text())
    state["currentVoters"] = [{"voterId": 1}, {"voterId": 2}, {"voterId": 9}]
    path.write_text(json.dumps(state))
    check = check_quorum([str(one), str(other)])
    assert ("K13", Grade.ERROR) in violations(check)
    assert "names voters 1, 2, 9, and that of node 1" in "".join(each.message for each in check.findings)
    path.write_text(json.dumps({**state, "leaderEpoch": state["leaderEpoch"] + 1}))
    assert ("K13", Grade.ERROR) not in violations(check_quorum([str(one), str(other)])), (
        "the voters were changed with the later epoch"
    )


def test_a_checkpoint_that_differs_from_node_to_node(tmp_path: Path) -> None:
    one, other = metadata_copy("node1", tmp_path), metadata_copy("node3", tmp_path)
    rename_feature(other, checkpoint_name(76, 1))
    check = check_quorum([str(one), str(other)])
    assert violations(check) == {("K13", Grade.ERROR), ("K16", Grade.ERROR)}
    reported = "".join(each.message for each in check.findings)
    assert "1 record only there (1 FeatureLevelRecord); 1 record only here (1 FeatureLevelRecord)" in reported


def test_a_checkpoint_against_the_log_of_another_node(tmp_path: Path) -> None:
    """Node 2 begins at its checkpoint, so its own log proves nothing of it; node 3 has no checkpoint there, and its log reaches to it."""
    one, other = metadata_copy("node2", tmp_path), metadata_copy("node3", tmp_path)
    remove(one, checkpoint_name(315, 4))
    assert {rule for rule, grade in violations(check_quorum([str(one), str(other)])) if grade is Grade.ERROR} == set()
    rename_feature(one, checkpoint_name(234, 4))
    check = check_quorum([str(one), str(other)])
    assert ("K13", Grade.ERROR) in violations(check)
    assert f"differs from the log of node 3 ({other}) up to offset 233" in "".join(each.message for each in check.findings)


def test_a_tail_that_diverged_names_the_offset_and_the_node_with_the_highest_epoch(tmp_path: Path) -> None:
    """Node 3 led epoch 5 for one record that no other node has, and node 1 then wrote in epoch 6: Raft allows it, and node 3 drops it."""
    one, other = metadata_copy("node1", tmp_path), metadata_copy("node3", tmp_path)
    for directory, epoch, leader in ((one, 6, 1), (other, 5, 3)):
        change_batch(directory, 347, "leader_epoch", epoch)
        state = (
            (directory / "quorum-state")
            .read_text()
            .replace('"leaderId":1,"leaderEpoch":4', f'"leaderId":{leader},"leaderEpoch":{epoch}')
        )
        (directory / "quorum-state").write_text(state)
    check = check_quorum([str(one), str(other)])
    assert violations(check) == {("K13", Grade.WARNING)}
    (finding,) = check.findings
    assert finding.offset == 347
    assert "from offset 347 on: epoch 5 here, 6 there; node 1 (" in finding.message
    assert "has the highest epoch, 6" in finding.message
    assert "drops offsets 347 to 347" in finding.message
    assert exit_code_of(check.findings) == 1


def test_two_leaders_of_one_epoch(tmp_path: Path) -> None:
    """Each log agrees with its own quorum-state: the epoch began when neither had written in it."""
    nodes = [metadata_copy(name, tmp_path) for name in ("node1", "node3")]
    for directory, leader in zip(nodes, (1, 3), strict=True):
        path = directory / "quorum-state"
        path.write_text(path.read_text().replace('"leaderId":1,"leaderEpoch":4', f'"leaderId":{leader},"leaderEpoch":5'))
    check = check_quorum([str(each) for each in nodes])
    assert violations(check) == {("K13", Grade.ERROR)}
    (finding,) = check.findings
    assert "quorum-state names node 3 as the leader of epoch 5, and that of node 1 (" in finding.message


@pytest.mark.parametrize("is_stopped", [False, True], ids=["running", "stopped"])
@pytest.mark.parametrize("name", ["node1", "node3"])
def test_a_leader_that_is_shorter_than_a_follower(tmp_path: Path, name: str, is_stopped: bool) -> None:
    """Node 1 led the last epoch: what node 3 has of it, node 1 wrote. Of a quorum that runs it may have been copied first."""
    nodes = {each: metadata_copy(each, tmp_path) for each in ("node1", "node3")}
    cut_last_batches(nodes[name], 1)
    remove(nodes[name], snapshot_name(348), "*index")  # the index is written to its end when the log is closed
    if is_stopped:
        (nodes[name].parent / ".kafka_cleanshutdown").write_bytes(b"")
        (nodes[name] / snapshot_name(347)).write_bytes(EMPTY_SNAPSHOT)
    check = check_quorum([str(each) for each in nodes.values()])
    grade = Grade.WARNING if is_stopped else Grade.INFO
    assert violations(check) == ({("K13", grade)} if name == "node1" else set())
    for finding in check.findings:
        assert (finding.path, finding.offset) == (str(nodes["node1"]), 347)
        assert "led epoch 4 and ends at 347, and node 3" in finding.message
    assert exit_code_of(check.findings) == (is_stopped and name == "node1")


@pytest.mark.parametrize(
    ("old", "new", "evidence"),
    [
        ('"leaderEpoch":4', '"leaderEpoch":3', "has epoch 3, and the log or a checkpoint has epoch 4"),
        ('"leaderId":1', '"leaderId":2', "names node 2 as the leader of epoch 4, and the log names node 1"),
        ('{"voterId":3}', '{"voterId":5}', "names voters 1, 2, 5, and the log names 1, 2, 3"),
    ],
)
def test_a_quorum_state_that_contradicts_the_log(tmp_path: Path, old: str, new: str, evidence: str) -> None:
    directory = metadata_copy("node1", tmp_path)
    path = directory / "quorum-state"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    check = check_quorum([str(directory)])
    assert violations(check) == {("K15", Grade.ERROR)}
    assert evidence in check.findings[0].message


def test_a_node_that_never_started_has_no_quorum_state(tmp_path: Path) -> None:
    """``kafka-storage format`` writes a checkpoint at 0 and nothing else."""
    directory = metadata_copy("kraft-metadata", tmp_path)
    kept = checkpoint_name(0, 0)
    for path in directory.iterdir():
        if path.name != kept:
            path.unlink()
    assert violations(check_quorum([str(directory)])) == set()


def test_a_quorum_state_that_does_not_parse(tmp_path: Path) -> None:
    directory = metadata_copy("node1", tmp_path)
    os.truncate(directory / "quorum-state", 10)
    check = check_quorum([str(directory)])
    assert ([each.code for each in check.findings], exit_code_of(check.findings)) == (["damaged-file"], 4)


def test_a_checkpoint_with_the_content_of_an_older_one(tmp_path: Path) -> None:
    directory = metadata_copy("node1", tmp_path)
    oldest, *_, newest = sorted(directory.glob("*.checkpoint"))
    newest.write_bytes(oldest.read_bytes())
    assert violations(check_quorum([str(directory)])) == {("K8", Grade.INFO), ("K16", Grade.ERROR)}


# -------------------------------------------------------------------------------------------------------------------- elections


def standing(*names: str) -> list[tuple[int | None, str, bool]]:
    check = check_quorum([str(BUNDLED[name]) for name in names])
    return [(each.node_id, each.can_win.value, each.has_most) for each in check.election.directories]


def test_who_can_be_elected() -> None:
    assert standing("node1", "node2", "node3") == [(1, "yes", True), (2, "yes", True), (3, "yes", True)]
    assert standing("node1", "node3-old-topic") == [(1, "yes", True), (3, "unknown", False)], "it depends on node 2"
    assert standing("node2-killed", "node3-clean-stopped") == [(2, "yes", True), (3, "unknown", False)]
    assert standing("node1", "node2-killed", "node3-clean-stopped") == [(1, "yes", True), (2, "yes", False), (3, "no", False)]
    assert standing("node2") == [(2, "unknown", True)]
    assert check_quorum([str(BUNDLED["node2"])]).election.voters_not_given == (1, 3)


def test_a_damaged_voter_and_one_of_another_disk_elect_no_one(tmp_path: Path) -> None:
    damaged = metadata_copy("node3", tmp_path)
    flip(damaged / checkpoint_name(304, 4), 1000)
    check = check_quorum([str(BUNDLED["node1"]), str(damaged)])
    assert [each.can_win.value for each in check.election.directories] == ["unknown", "unknown"]
    other = metadata_copy("kraft-metadata", tmp_path)
    path = other.parent / "meta.properties"
    path.write_text(re.sub("directory.id=.*", "directory.id=AAAAAAAAAAAAAAAAAAAAAQ", path.read_text()))
    (one,) = check_quorum([str(other)]).election.directories
    assert (one.can_win.value, one.reason) == ("no", "voter 1 votes with another directory: its disk was replaced")


# -------------------------------------------------------------------------------------------------------- the majority decides


def three_nodes(to: Path) -> dict[str, Path]:
    """Node 2 begins at a checkpoint; what is below it, only the other two have."""
    return {name: metadata_copy(name, to) for name in ("node1", "node2", "node3")}


def change_leader(directory: Path) -> None:
    path = directory / "quorum-state"
    path.write_text(path.read_text().replace('"leaderId":1', '"leaderId":2'))


ODD: dict[str, Callable[[Path], object]] = {
    "one record of a batch": lambda directory: change_batch(directory, 318, "base_timestamp", 1_700_000_000_000),
    "the epoch of a batch": lambda directory: change_batch(directory, 318, "leader_epoch", 3),
    "the leader in quorum-state": change_leader,
    "a checkpoint of the same id": lambda directory: rename_feature(directory, max(directory.glob("*.checkpoint")).name),
}


@pytest.mark.parametrize("odd", ["node1", "node2", "node3"])
@pytest.mark.parametrize("change", ODD)
def test_the_majority_decides_who_is_odd(tmp_path: Path, change: str, odd: str) -> None:
    """Whichever of the three it is, and in whatever order they are named: only its directory is blamed.

    The quick tier names them in one order for node 1, and in the other one for nodes 2 and 3.
    """
    nodes = three_nodes(tmp_path)
    if change == "a checkpoint of the same id":
        for each in ("node2", "node3"):
            shutil.copy(nodes["node1"] / checkpoint_name(315, 4), nodes[each] / checkpoint_name(315, 4))
    ODD[change](nodes[odd])
    orders = [list(nodes.values()), list(nodes.values())[::-1]]
    for places in [orders[odd != "node1"]] if TIER == "quick" else orders:
        check = check_quorum([str(each) for each in places])
        blamed = {
            each.node.node_id
            for each in check.nodes
            if any(result.rule is QuorumRule.K13 and result.grade is Grade.ERROR for result in each.results)
        }
        assert blamed == {int(odd[-1])}


def test_a_copy_of_the_metadata_log_alone(tmp_path: Path) -> None:
    """Alone it is no fault, next to nodes that have their ``meta.properties`` it is one; a log directory must have it."""
    nodes = three_nodes(tmp_path)
    remove(nodes["node3"].parent, "meta.properties")
    assert violations(check_quorum([str(nodes["node3"])])) == set()
    assert ("K19", Grade.WARNING) in violations(check_quorum([str(each) for each in nodes.values()]))
    (nodes["node3"].parent / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    assert violations(check_quorum([str(nodes["node3"])])) == {("K19", Grade.DAMAGE)}


@pytest.mark.parametrize("data", [b"", b"version: 0\n", b"\0garbage", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"])
def test_a_damaged_partition_metadata_of_the_metadata_log(tmp_path: Path, data: bytes) -> None:
    """``tests/broker`` starts a node with each."""
    directory = metadata_copy("node1", tmp_path)
    (directory / "partition.metadata").write_bytes(data)
    assert violations(check_quorum([str(directory)])) == {("K18", Grade.DAMAGE)}
