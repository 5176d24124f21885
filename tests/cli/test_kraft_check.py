"""``cluster check`` as a user runs it, also next to a node that deletes what it has just listed."""

from __future__ import annotations

from pathlib import Path

from in_process import in_json, snaprebuild
from log_dirs import flip, tree
from manifests import FIXTURES, REPOSITORY
from metadata_dirs import BROKEN, BUNDLED, checkpoint_name, metadata_copy

from snaprebuild.cluster.quorum.check import CODES
from snaprebuild.cluster.quorum.rules import Rule

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
    flip(path, 5000)
    run = in_json("cluster check", directory)
    assert (run.exit_code, run.codes) == (4, {"damaged-file": 1, "metadata-gap": 1})
    assert "cuts the log there, and begins anew at its latest checkpoint, 484; later records are lost" in run.messages(
        "metadata-gap"
    )
    assert run.document["nodes"][0]["end_offset"] == 531
