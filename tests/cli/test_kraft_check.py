"""``cluster check`` as a user runs it, also beside a node that deletes what it has just listed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from in_process import in_json, snaprebuild
from log_dirs import tree
from manifests import FIXTURES, REPOSITORY
from metadata_dirs import BROKEN, BUNDLED, checkpoint_name, metadata_copy, remove

from snaprebuild.cluster.metadata.log import MetadataLog, open_metadata_log
from snaprebuild.cluster.quorum import facts as reading
from snaprebuild.cluster.quorum.check import CODES, kraft_check
from snaprebuild.cluster.quorum.rules import Rule, RuleOutcome
from snaprebuild.findings import exit_code_of
from snaprebuild.storage.store import S3Settings

NODES = [BUNDLED[f"node{number}"] for number in (1, 2, 3)]


def test_three_nodes() -> None:
    before = tree(FIXTURES / "kraft-cluster3")
    run = in_json("cluster check", *NODES)
    assert run.exit_code == 0
    assert run.codes == {"metadata-left-overs": 1, "nodes-disagree": 1}
    one, two, three = run.document["nodes"]
    assert [each["is_leader"] for each in run.document["nodes"]] == [True, False, False]
    assert [each["node_id"] for each in run.document["nodes"]] == [1, 2, 3]
    assert (one["start"], two["start"]) == ({"offset": 0, "epoch": 0}, {"offset": 234, "epoch": 4})
    assert {each["end_offset"] for each in (one, two, three)} == {348}
    for each in (one, two, three):
        assert list(dict.fromkeys(result["rule"] for result in each["rules"])) == [rule.name for rule in Rule]
        assert {result["text"] for result in each["rules"]} == {rule.value for rule in Rule}
    assert in_json("cluster check", *NODES, "--followers", "strict").exit_code == 1
    assert in_json("cluster check", *NODES, "--followers", "literal", "--leader", NODES[1]).exit_code == 0, (
        "nobody is above that one"
    )
    assert tree(FIXTURES / "kraft-cluster3") == before


def test_the_table() -> None:
    run = snaprebuild("cluster", "check", FIXTURES / "kraft-metadata-moved")
    assert (run.exit_code, run.stderr) == (0, "")
    assert "640 (epoch 4)" in run.stdout
    assert "812 (epoch 4)" in run.stdout
    assert run.stdout.splitlines()[-1] == "1 node: 14 rules held; 1 info"


def test_a_broken_one_is_told_with_its_rule(tmp_path: Path) -> None:
    (directory,) = BROKEN["K8"](tmp_path)
    run = in_json("cluster check", directory)
    assert (run.exit_code, run.codes) == (4, {"bad-checkpoint": 1})
    assert run.messages("bad-checkpoint").startswith(f"{directory / checkpoint_name(484, 3)}: K8: byte ")
    told = snaprebuild("cluster", "check", directory)
    assert "damaged: " in told.stderr
    assert "(bad-checkpoint)" in told.stderr


def test_every_rule_has_a_documented_finding() -> None:
    assert list(CODES) == list(Rule)
    page = (REPOSITORY / "docs" / "reference" / "findings.md").read_text()
    guide = (REPOSITORY / "docs" / "reference" / "cluster-rules.md").read_text()
    for rule, code in CODES.items():
        assert f"| `{code}` |" in page
        assert f"| {rule.name} | {rule.value} |" in guide


def test_damage_of_the_log_is_told_and_the_rest_is_judged(tmp_path: Path) -> None:
    """A flipped bit in the middle segment, below the latest checkpoint: Kafka cuts the log there (tests/broker)."""
    directory = metadata_copy("kraft-metadata", tmp_path)
    path = directory / f"{171:020d}.log"
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    run = in_json("cluster check", directory)
    assert (run.exit_code, run.codes) == (4, {"damaged-file": 1, "metadata-gap": 1})
    assert "cuts the log there, and begins anew at its latest checkpoint, 484; later records are lost" in run.messages(
        "metadata-gap"
    )
    assert run.document["nodes"][0]["end_offset"] == 531


def test_a_torn_tail_is_no_damage(tmp_path: Path) -> None:
    directory = metadata_copy("kraft-metadata", tmp_path)
    with (directory / f"{357:020d}.log").open("ab") as file:
        file.write(b"\0\0\0\0\0\0\2\x13\0\0\1")
    run = in_json("cluster check", directory)
    assert (run.exit_code, run.codes) == (0, {"torn-tail": 1})


def test_an_empty_directory_and_one_of_checkpoints_alone(tmp_path: Path) -> None:
    """A follower that has downloaded a checkpoint and nothing else yet: its log is emptied at the next start, which is no defect."""
    directory = metadata_copy("node2", tmp_path)
    remove(directory, "*.log", "*.index", "*.timeindex", "leader-epoch-checkpoint")
    run = in_json("cluster check", directory)
    assert run.exit_code == 0
    assert run.document["nodes"][0]["first_base_offset"] is None


# ------------------------------------------------------------------------------------------------------------------- live nodes


def test_what_is_deleted_after_the_listing_is_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cleaner of a live node goes by twice: once it takes checkpoints, once a segment with those below it."""
    directory = metadata_copy("kraft-metadata-moved", tmp_path)
    steps = [
        [checkpoint_name(640, 4), checkpoint_name(660, 4)],
        [f"{538:020d}.log", *(checkpoint_name(at, 4) for at in (680, 700))],
    ]

    def listed(location: str, settings: S3Settings) -> MetadataLog:
        log = open_metadata_log(location, settings)
        if steps:
            for name in steps.pop(0):
                os.unlink(directory / name)
            epoch = "0\n1\n4 680\n" if steps else "0\n1\n4 720\n"
            (directory / "leader-epoch-checkpoint").write_text(epoch)
        return log

    monkeypatch.setattr(reading, "open_metadata_log", listed)
    check = kraft_check([str(directory)])
    assert check.findings == []
    (node,) = check.nodes
    assert [each.id.offset for each in node.node.facts.checkpoints] == [720, 740, 760, 812]
    assert (node.node.facts.start_offset, node.node.facts.first_base_offset) == (720, 720)
    assert {each.outcome for each in node.results} == {RuleOutcome.HELD, RuleOutcome.NOT_JUDGED}


def test_what_vanishes_each_time_is_left_out_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = metadata_copy("kraft-metadata", tmp_path)
    path = directory / checkpoint_name(42, 1)
    data = path.read_bytes()

    def listed(location: str, settings: S3Settings) -> MetadataLog:
        path.write_bytes(data)
        log = open_metadata_log(location, settings)
        path.unlink()
        return log

    monkeypatch.setattr(reading, "open_metadata_log", listed)
    check = kraft_check([str(directory)])
    assert [each.code for each in check.findings] == ["checkpoint-vanished"]
    assert exit_code_of(check.findings) == 0
    assert len(check.nodes[0].node.facts.checkpoints) == 11


def test_a_checkpoint_that_vanishes_before_it_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = metadata_copy("node1", tmp_path), metadata_copy("node3", tmp_path)
    read_node = reading.read_node

    def then_deleted(location: str, settings: S3Settings) -> reading.NodeFacts:
        node = read_node(location, settings)
        (Path(location) / checkpoint_name(76, 1)).unlink()
        return node

    monkeypatch.setattr("snaprebuild.cluster.quorum.check.read_node", then_deleted)
    check = kraft_check([str(one), str(other)])
    assert check.findings == []
    assert "was deleted while it was read" in "".join(each.evidence for node in check.nodes for each in node.results)
