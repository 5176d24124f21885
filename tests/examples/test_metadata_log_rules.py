"""Rules K1 to K13: each has a broken copy of a real directory that violates it and no other; healthy directories violate none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from log_dirs import flip
from manifests import FIXTURES
from metadata_dirs import BROKEN, BUNDLED, DIRECTORY, checkpoint_name, metadata_copy, with_bytes_replaced

from snaprebuild.cluster.log_start_rules import Followers, Grade, Outcome, Rule
from snaprebuild.operations.findings import exit_code_of
from snaprebuild.operations.kraft.check import KraftCheck, kraft_check

CLUSTER: dict[str, Any] = json.loads((FIXTURES / "kraft-cluster3" / "manifest.json").read_text())


def violations(check: KraftCheck) -> set[tuple[str, Grade | None]]:
    return {(each.rule.name, each.grade) for node in check.nodes for each in node.results if each.outcome is Outcome.VIOLATED}


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
    ("K12", Grade.WARNING, 1, "00000000000000000171.snapshot holds 1 producers"),
    ("K13", Grade.ERROR, 1, "1 record only there (1 FeatureLevelRecord); 1 record only here (1 FeatureLevelRecord)"),
]


@pytest.mark.parametrize(
    ("rule", "grade", "exit_code", "evidence"), TABLE, ids=[f"{rule} {Rule[rule].value}" for rule, *_ in TABLE]
)
def test_broken(tmp_path: Path, rule: str, grade: Grade, exit_code: int, evidence: str) -> None:
    check = kraft_check([str(each) for each in BROKEN[rule](tmp_path)])
    assert violations(check) == {(rule, grade)}
    found = [each for node in check.nodes for each in node.results if each.outcome is Outcome.VIOLATED]
    assert any(evidence in each.evidence for each in found), found
    assert exit_code_of(check.findings) == exit_code
    others = [each.rule.name for node in check.nodes for each in node.results if each.outcome is Outcome.NOT_JUDGED]
    assert set(others) <= ({"K2", "K3", "K11", "K13"} if rule == "K1" else {"K13"}), "what one rule tells, others do not tell again"


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
    assert violations(kraft_check([str(directory)])) == (set() if grade is None else {("K10", grade)})


def test_the_latest_checkpoint_matters_most(tmp_path: Path) -> None:
    """Damage to it keeps a node from starting, an epoch later than the log's empties the log; older ones nobody loads."""
    old = metadata_copy("kraft-metadata", tmp_path / "old")
    flip(old / checkpoint_name(332, 2), 1000)
    header = metadata_copy("kraft-metadata", tmp_path / "header")
    flip(header / checkpoint_name(332, 2), 70)
    later = metadata_copy("kraft-metadata", tmp_path / "later")
    (later / checkpoint_name(484, 3)).rename(later / checkpoint_name(484, 4))
    graded = [(old, "K8", Grade.ERROR), (header, "K8", Grade.DAMAGE), (later, "K7", Grade.DAMAGE)]
    for directory, rule, grade in graded:
        check = kraft_check([str(directory)])
        assert violations(check) == {(rule, grade)}
    assert "takes it for later than the log, and drops offsets 484 to 530" in check.findings[0].message


def test_there_is_a_broken_copy_for_each_rule() -> None:
    assert [rule for rule, *_ in TABLE] == list(BROKEN) == [rule.name for rule in Rule]


# ------------------------------------------------------------------------------------------------------------------ healthy ones

LEFT_OVER = {"kraft-metadata-moved", "node2"}
"""Segments that are being deleted lie there: the first manifest says so, and the second node was wiped and began at a checkpoint."""


@pytest.mark.parametrize("name", BUNDLED)
def test_healthy(name: str) -> None:
    check = kraft_check([str(BUNDLED[name])])
    assert violations(check) == ({("K9", Grade.INFO)} if name in LEFT_OVER else set())
    assert exit_code_of(check.findings) == 0


def test_healthy_nodes_agree() -> None:
    """Also with old copies of their disks; the node that was wiped starts above its leader, which Kafka leaves to chance."""
    nodes = [str(BUNDLED[name]) for name in BUNDLED if "node" in name]
    check = kraft_check(nodes)
    assert violations(check) == {("K9", Grade.INFO), ("K13", Grade.INFO)}
    assert [each.is_leader for each in check.nodes] == [True] + [False] * 6, "node 1, in epoch 4"
    for mode in (Followers.STRICT, Followers.LITERAL):
        assert ("K13", Grade.ERROR) in violations(kraft_check(nodes, mode))


def test_the_facts_are_those_of_the_manifests() -> None:
    for name, start, base in (("kraft-metadata", 0, 0), ("kraft-metadata-moved", 640, 538)):
        (node,) = kraft_check([str(BUNDLED[name])]).nodes
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
        (node,) = kraft_check([str(BUNDLED[f"node{number}"])]).nodes
        assert node.node.facts.end_offset == CLUSTER["last_offset_of_node"][number] + 1
        latest = node.node.facts.checkpoints[-1].id
        assert checkpoint_name(latest.offset, latest.epoch) == CLUSTER["checkpoint_used_of_node"][number]
        assert node.node.node_id == int(number)
        assert node.node.cluster_id == CLUSTER["directories"][f"node{number}"]["cluster_id"]


# ---------------------------------------------------------------------------------------------------------------- several nodes


def test_configurations_of_deleted_topics_are_no_difference(tmp_path: Path) -> None:
    """They stand under names that no topic has; a topic that is there has its configurations, or the checkpoints differ."""
    one, other = metadata_copy("node1", tmp_path), metadata_copy("node3", tmp_path)
    rename_configs(one / checkpoint_name(76, 1), b"\x07single", b"\x07aaaaaa")
    check = kraft_check([str(one), str(other)])
    assert violations(check) == {("K13", Grade.ERROR)}
    assert "1 record only here (1 ConfigRecord)" in check.findings[0].message
    rename_configs(other / checkpoint_name(76, 1), b"\x07single", b"\x07bbbbbb")
    assert violations(kraft_check([str(one), str(other)])) == set()


def rename_configs(path: Path, old: bytes, new: bytes) -> None:
    """In ``ConfigRecord`` (key 4) of topics (type 2) alone."""
    with_bytes_replaced(path, b"\x01\x04\x00\x02" + old, b"\x01\x04\x00\x02" + new)


def test_a_literal_follower_may_stand_at_its_leaders_start(tmp_path: Path) -> None:
    """It has no checkpoint there, and is told the epoch by its leader; strictly it may not, nor where its leader is elsewhere."""
    leader = metadata_copy("node2", tmp_path)
    follower = metadata_copy("node3", tmp_path)
    (follower / "leader-epoch-checkpoint").write_text("0\n1\n4 234\n")
    places = [str(leader), str(follower)]
    assert ("K2", Grade.WARNING) in violations(kraft_check(places, Followers.STRICT, leader=str(leader)))
    assert ("K2", Grade.WARNING) not in violations(kraft_check(places, Followers.LITERAL, leader=str(leader)))
    (follower / "leader-epoch-checkpoint").write_text("0\n1\n4 230\n")
    assert ("K2", Grade.WARNING) in violations(kraft_check(places, Followers.LITERAL, leader=str(leader)))


def test_nodes_of_two_clusters(tmp_path: Path) -> None:
    one, other = metadata_copy("node1", tmp_path), metadata_copy("kraft-metadata", tmp_path)
    check = kraft_check([str(one), str(other)])
    assert violations(check) == {("K13", Grade.ERROR)}
    assert "of 2 clusters" in "".join(each.message for each in check.findings)
