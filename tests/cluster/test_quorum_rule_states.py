"""Rules K1 to K20 by their states: each has rows of faults and of healthy forms, and says which states it never has.

The expected states and grades come from what Kafka does with such a directory, as ``tests/broker/test_metadata_log_start.py`` sees it
do, and as the page of the rules says. Rows without a directory are facts of a metadata log.
"""

import re
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from metadata_dirs import BROKEN, BUNDLED

from formats.log.control_record import Voter
from formats.metadata.quorum_state import QuorumState
from snaprebuild.cluster.metadata.log_end import LogEndEvidence
from snaprebuild.cluster.quorum.agreement import agreement
from snaprebuild.cluster.quorum.check import check_quorum
from snaprebuild.cluster.quorum.facts import read_node
from snaprebuild.cluster.quorum.log_facts import BatchBelow, BatchColumns, CheckpointFacts, LogFacts
from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch
from snaprebuild.cluster.quorum.rules import Followers, QuorumRule, judge_log, judge_starts
from snaprebuild.cluster.rule_result import Grade, RuleState

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cluster-rules.md"
HERE = Path(__file__).parent
Mark = tuple[RuleState, Grade | None]
HOLDS: Mark = (RuleState.HOLDS, None)
UNKNOWN: Mark = (RuleState.UNKNOWN, None)
NOT_APPLICABLE: Mark = (RuleState.NOT_APPLICABLE, None)
INFO, WARNING, ERROR, DAMAGE = ((RuleState.BROKEN, grade) for grade in (Grade.INFO, Grade.WARNING, Grade.ERROR, Grade.DAMAGE))


def checkpoint(offset: int, epoch: int, **changes: Any) -> CheckpointFacts:
    """One that agrees with the log."""
    below = BatchBelow(offset - 10, offset - 1, epoch, 1_000)
    found = CheckpointFacts(OffsetAndEpoch(offset, epoch), f"/d/m/{offset}-{epoch}.checkpoint", 500, None, 1_000, below)
    return replace(found, **changes)


FIRST, LATEST = checkpoint(100, 1), checkpoint(300, 2)
STATE = QuorumState(data_version=1, leader_id=1, leader_epoch=2, voted_id=-1)
FACTS = LogFacts(
    path="/d/m",
    first_base_offset=0,
    start_offset=0,
    first_epoch=1,
    end_offset=400,
    last_epoch=2,
    below_start=None,
    gaps=(),
    checkpoints=(FIRST, LATEST),
    batches=BatchColumns(array("q", [0, 100, 200, 300]), array("q", [1, 1, 2, 2]), array("q", [0, 0, 0, 0])),
    leaders={1: 1, 2: 1},
    quorum_state=STATE,
    end=LogEndEvidence(400),
    has_marker=True,
)
MOVED: dict[str, Any] = {"first_base_offset": 100, "start_offset": 100}
NO_CHECKPOINT: dict[str, Any] = {**MOVED, "checkpoints": ()}
CUT: dict[str, Any] = {"cut_offset": 350}
BAD = "its checksum is wrong"
VOTERS = ((Voter(1, None), Voter(2, None)),)

Row = tuple[QuorumRule, Mark, str, dict[str, Any]]
ROWS: list[Row] = [
    (QuorumRule.K1, HOLDS, "a log from 0 on", {"checkpoints": ()}),
    (QuorumRule.K1, HOLDS, "a checkpoint where it begins", MOVED),
    (QuorumRule.K1, HOLDS, "a checkpoint above", {**MOVED, "first_base_offset": 50}),
    (QuorumRule.K1, DAMAGE, "no checkpoint", NO_CHECKPOINT),
    (QuorumRule.K1, DAMAGE, "only one below", {**MOVED, "first_base_offset": 350}),
    (QuorumRule.K2, HOLDS, "0", {}),
    (QuorumRule.K2, HOLDS, "where a checkpoint ends", MOVED),
    (QuorumRule.K2, WARNING, "elsewhere", {"start_offset": 150, "below_start": BatchBelow(140, 149, 1, 0)}),
    (QuorumRule.K2, UNKNOWN, "K1 has reported it", NO_CHECKPOINT),
    (QuorumRule.K3, HOLDS, "0", {}),
    (QuorumRule.K3, HOLDS, "by the checkpoint", MOVED),
    (QuorumRule.K3, HOLDS, "by the log", {"start_offset": 150, "below_start": BatchBelow(140, 149, 1, 0)}),
    (QuorumRule.K3, WARNING, "by nothing", {"start_offset": 150}),
    (QuorumRule.K3, WARNING, "leader epochs that begin earlier", {**MOVED, "first_epoch": 0}),
    (QuorumRule.K3, UNKNOWN, "K1 has reported it", NO_CHECKPOINT),
    (QuorumRule.K4, HOLDS, "0", {"checkpoints": (LATEST,)}),
    (QuorumRule.K4, HOLDS, "a later one", MOVED),
    (QuorumRule.K4, INFO, "the only one", {**MOVED, "checkpoints": (FIRST,)}),
    (QuorumRule.K5, HOLDS, "below the end", {}),
    (QuorumRule.K5, HOLDS, "a follower that has downloaded one", {"end_offset": 0, "last_epoch": 0}),
    (QuorumRule.K5, WARNING, "above the end", {"end_offset": 200, "last_epoch": 1}),
    (QuorumRule.K5, UNKNOWN, "K11 has reported it", {**CUT, "end_offset": 200}),
    (QuorumRule.K6, HOLDS, "between batches", {}),
    (QuorumRule.K6, HOLDS, "the log begins there", {"checkpoints": (checkpoint(100, 1, below=None),)}),
    (QuorumRule.K6, ERROR, "inside of a batch", {"checkpoints": (checkpoint(100, 1, below=BatchBelow(90, 100, 1, 1_000)), LATEST)}),
    (QuorumRule.K7, HOLDS, "the epoch of the record", {}),
    (QuorumRule.K7, HOLDS, "a record that the log does not hold", {"checkpoints": (checkpoint(100, 7, below=None), LATEST)}),
    (
        QuorumRule.K7,
        ERROR,
        "another epoch",
        {"checkpoints": (replace(FIRST, below=BatchBelow(90, 99, 0, 1_000)), LATEST)},
    ),
    (
        QuorumRule.K7,
        DAMAGE,
        "the latest, of a later epoch than the log",
        {"checkpoints": (FIRST, checkpoint(300, 3, below=BatchBelow(290, 299, 2, 1_000)))},
    ),
    (QuorumRule.K8, HOLDS, "whole", {}),
    (QuorumRule.K8, INFO, "another time than its last record", {"checkpoints": (replace(FIRST, timestamp_ms=5), LATEST)}),
    (QuorumRule.K8, ERROR, "an older one", {"checkpoints": (replace(FIRST, fault=BAD), LATEST)}),
    (
        QuorumRule.K8,
        DAMAGE,
        "an older one without a header",
        {"checkpoints": (replace(FIRST, fault=BAD, timestamp_ms=None), LATEST)},
    ),
    (QuorumRule.K8, DAMAGE, "the latest", {"checkpoints": (FIRST, replace(LATEST, fault=BAD))}),
    (QuorumRule.K9, HOLDS, "none", {}),
    (QuorumRule.K9, INFO, "a part", {"left_overs": ("1-1.checkpoint.part",)}),
    (QuorumRule.K10, HOLDS, "Kafka's", {}),
    (QuorumRule.K10, HOLDS, "a name that Kafka does not look at", {"strange_names": ("notes.txt",)}),
    (QuorumRule.K10, INFO, "removed", {"strange_names": ("12.timeindex",)}),
    (QuorumRule.K10, ERROR, "the cleaner fails", {"strange_names": ("00000000000000000464_0000000003.checkpoint",)}),
    (QuorumRule.K10, DAMAGE, "taken for a segment", {"strange_names": ("12.log",)}),
    (QuorumRule.K10, INFO, "being deleted, whatever its name", {"strange_names": ("x.log.deleted",)}),
    (QuorumRule.K10, DAMAGE, "no number", {"strange_names": ("x.index",)}),
    (QuorumRule.K10, DAMAGE, "no start", {"strange_names": ("464-3.checkpoint",)}),
    (QuorumRule.K11, HOLDS, "no gap", {}),
    (QuorumRule.K11, HOLDS, "it begins where a checkpoint ends", MOVED),
    (QuorumRule.K11, DAMAGE, "a gap above the checkpoints", {"gaps": ((320, 340),)}),
    (QuorumRule.K11, ERROR, "a gap below a checkpoint", {"gaps": ((120, 140),)}),
    (QuorumRule.K11, DAMAGE, "damage", CUT),
    (
        QuorumRule.K11,
        DAMAGE,
        "the checkpoint before the first segment is not whole",
        {**MOVED, "first_base_offset": 300, "start_offset": 300, "checkpoints": (FIRST, replace(LATEST, fault=BAD))},
    ),
    (QuorumRule.K11, UNKNOWN, "K1 has reported it", NO_CHECKPOINT),
    (QuorumRule.K12, HOLDS, "empty", {}),
    (QuorumRule.K12, WARNING, "a producer", {"bad_snapshots": (("1.snapshot", "holds 1 producers"),)}),
    (QuorumRule.K14, HOLDS, "ascending", {}),
    (
        QuorumRule.K14,
        ERROR,
        "descending",
        {"batches": BatchColumns(array("q", [0, 100, 200]), array("q", [1, 2, 1]), array("q", [0, 0, 0]))},
    ),
    (QuorumRule.K15, HOLDS, "as the log says", {}),
    (QuorumRule.K15, HOLDS, "it knows a later epoch", {"quorum_state": replace(STATE, leader_epoch=5, leader_id=3)}),
    (QuorumRule.K15, HOLDS, "no leader yet", {"quorum_state": replace(STATE, leader_id=-1)}),
    (
        QuorumRule.K15,
        HOLDS,
        "never started",
        {"quorum_state": None, "end_offset": 0, "last_epoch": 0, "checkpoints": (checkpoint(0, 0, below=None),)},
    ),
    (QuorumRule.K15, HOLDS, "the voters of the log", {"quorum_state": replace(STATE, voters=(2, 1)), "voter_sets": VOTERS}),
    (QuorumRule.K15, ERROR, "absent", {"quorum_state": None}),
    (QuorumRule.K15, ERROR, "an older epoch", {"quorum_state": replace(STATE, leader_epoch=1)}),
    (QuorumRule.K15, ERROR, "another leader", {"quorum_state": replace(STATE, leader_id=3)}),
    (QuorumRule.K15, ERROR, "other voters", {"quorum_state": replace(STATE, voters=(1, 9)), "voter_sets": VOTERS}),
    (QuorumRule.K15, UNKNOWN, "it cannot be read", {"quorum_state": None, "is_quorum_state_bad": True}),
    (QuorumRule.K17, HOLDS, "all is there", {}),
    (
        QuorumRule.K17,
        HOLDS,
        "killed, and not closed",
        {"end": LogEndEvidence(400, unclosed="no snapshot at the end"), "has_marker": False},
    ),
    (
        QuorumRule.K17,
        HOLDS,
        "formatted, and never started",
        {
            "first_base_offset": None,
            "end_offset": 0,
            "last_epoch": 0,
            "first_epoch": None,
            "checkpoints": (checkpoint(0, 0, below=None),),
            "quorum_state": None,
            "end": LogEndEvidence(0),
        },
    ),
    (QuorumRule.K17, ERROR, "a snapshot above the end", {"end": LogEndEvidence(400, lost="ends at 400")}),
    (QuorumRule.K17, ERROR, "leader epochs above the end, after a clean stop", {"end": LogEndEvidence(400, ahead="ends at 400")}),
    (QuorumRule.K17, WARNING, "the same of a running node", {"end": LogEndEvidence(400, ahead="ends at 400"), "has_marker": False}),
    (QuorumRule.K17, WARNING, "not closed, after a clean stop", {"end": LogEndEvidence(400, unclosed="no snapshot at the end")}),
    (QuorumRule.K17, ERROR, "no segment", {"first_base_offset": None, "end_offset": 0, "last_epoch": 0, "end": LogEndEvidence(0)}),
    (QuorumRule.K17, UNKNOWN, "K11 has reported it", CUT),
    (QuorumRule.K18, HOLDS, "its own topic id", {}),
    (QuorumRule.K18, DAMAGE, "another topic id", {"topic_fault": "has another topic id"}),
    (QuorumRule.K19, HOLDS, "a node", {}),
    (QuorumRule.K19, DAMAGE, "no node", {"node_fault": "names no node"}),
    (QuorumRule.K19, NOT_APPLICABLE, "a bare copy", {"is_bare": True, "node_fault": "there is none"}),
]
OF_DIRECTORIES: list[tuple[QuorumRule, Mark, str, tuple[str, ...]]] = [
    (QuorumRule.K13, HOLDS, "current disks that agree", ("node1", "node3")),
    (QuorumRule.K13, NOT_APPLICABLE, "one directory", ("node1",)),
    (QuorumRule.K16, HOLDS, "checkpoints of a real log", ("node1",)),
    (QuorumRule.K20, HOLDS, "two nodes", ("node1", "node3")),
    (QuorumRule.K20, NOT_APPLICABLE, "one directory", ("node1",)),
]
"""Rules with bundled directories in which they have a state."""
BROKEN_DIRECTORIES = [(QuorumRule.K13, ERROR), (QuorumRule.K16, ERROR), (QuorumRule.K20, WARNING)]
"""Rules that directories of ``metadata_dirs`` violate."""
ELSEWHERE = {
    (QuorumRule.K13, INFO): "test_a_follower_that_starts_beyond_its_leader",
    (QuorumRule.K13, UNKNOWN): "test_without_a_leader_no_start_is_judged",
    (QuorumRule.K13, WARNING): "test_quorum_rules.test_a_tail_that_diverged_names_the_offset_and_the_node_with_the_highest_epoch",
    (QuorumRule.K16, UNKNOWN): "test_quorum_check.test_a_checkpoint_that_vanishes_before_it_is_compared",
    (QuorumRule.K19, WARNING): "test_a_bare_copy_next_to_other_nodes",
}
"""Rows that are tests of their own."""
NEVER_UNKNOWN = {
    **dict.fromkeys((QuorumRule.K1, QuorumRule.K4, QuorumRule.K9, QuorumRule.K10, QuorumRule.K12), "a listing has all names"),
    **dict.fromkeys((QuorumRule.K6, QuorumRule.K7), "it is judged where the log holds the batch"),
    QuorumRule.K8: "a checkpoint that cannot be read is not whole",
    QuorumRule.K14: "damaged batches are no batches",
    **dict.fromkeys((QuorumRule.K18, QuorumRule.K19), "a file that cannot be read keeps the node from starting"),
    QuorumRule.K20: "ids that cannot be read are K19's",
}
ALWAYS_APPLY = set(QuorumRule) - {QuorumRule.K13, QuorumRule.K19, QuorumRule.K20}
"""Each directory has a log, names and checkpoints."""
NAMES = {
    RuleState.HOLDS: "held",
    RuleState.BROKEN: "violated",
    RuleState.UNKNOWN: "not-judged",
    RuleState.NOT_APPLICABLE: "not-applicable",
}
"""States in the words of the document of ``cluster check``."""
IDS = [f"{rule.name} {mark[0]}{'' if mark[1] is None else f' {mark[1]}'}: {text}" for rule, mark, text, _ in ROWS]


@pytest.mark.parametrize(("rule", "mark", "text", "changes"), ROWS, ids=IDS)
def test_each_state(rule: QuorumRule, mark: Mark, text: str, changes: dict[str, Any]) -> None:
    results = [each for each in judge_log(replace(FACTS, **changes)) if each.rule is rule]
    assert {(each.state, each.grade) for each in results} == {mark}, text
    assert {each.state_name for each in results} == {NAMES[mark[0]]}
    assert all(each.path.startswith("/d") for each in results)
    assert all(each.evidence for each in results if mark != HOLDS)


def test_a_healthy_log_breaks_none() -> None:
    assert {(each.state, each.grade) for each in judge_log(FACTS)} == {HOLDS}


@pytest.mark.parametrize(
    ("rule", "mark", "text", "names"), OF_DIRECTORIES, ids=[f"{row[0].name} {row[2]}" for row in OF_DIRECTORIES]
)
def test_states_of_directories(rule: QuorumRule, mark: Mark, text: str, names: tuple[str, ...]) -> None:
    check = check_quorum([str(BUNDLED[name]) for name in names])
    found = {(each.state, each.grade) for node in check.nodes for each in node.results if each.rule is rule}
    assert found == {mark}, text


@pytest.mark.parametrize(("rule", "mark"), BROKEN_DIRECTORIES, ids=[rule.name for rule, _ in BROKEN_DIRECTORIES])
def test_broken_directories(rule: QuorumRule, mark: Mark, tmp_path: Path) -> None:
    check = check_quorum([str(each) for each in BROKEN[rule.name](tmp_path)])
    assert mark in {(each.state, each.grade) for node in check.nodes for each in node.results if each.rule is rule}


def test_a_literal_follower_may_start_where_its_leader_does() -> None:
    facts = replace(FACTS, start_offset=150, below_start=BatchBelow(140, 149, 1, 0))
    (strict,) = [each for each in judge_log(facts) if each.rule is QuorumRule.K2]
    (literal,) = [each for each in judge_log(facts, OffsetAndEpoch(150, 1)) if each.rule is QuorumRule.K2]
    assert (strict.state, literal.state) == (RuleState.BROKEN, RuleState.HOLDS)


def test_a_follower_that_starts_beyond_its_leader() -> None:
    """Kafka leaves it to chance; KAFKA-14932 does not allow it."""
    ahead = replace(FACTS, **MOVED)
    for mode, grade in ((Followers.KAFKA, Grade.INFO), (Followers.STRICT, Grade.ERROR), (Followers.LITERAL, Grade.ERROR)):
        (found,) = judge_starts(FACTS, [FACTS, ahead], mode)
        assert (found.rule, found.state, found.grade) == (QuorumRule.K13, RuleState.BROKEN, grade)


def test_an_epoch_has_one_leader() -> None:
    """Raft elects one leader in an epoch (KIP-595); the logs of two nodes name two."""
    one, other = (read_node(str(BUNDLED[name])) for name in ("node1", "node3"))
    epoch, leader = max(other.facts.leaders.items())
    assert one.facts.leaders[epoch] == leader
    assert [each for each in agreement([one, other], one, Followers.KAFKA) if each.grade is Grade.ERROR] == []
    changed = replace(other, facts=replace(other.facts, leaders={**other.facts.leaders, epoch: leader + 1}))
    (found,) = [each for each in agreement([one, changed], one, Followers.KAFKA) if each.grade is Grade.ERROR]
    assert (found.rule, found.state) == (QuorumRule.K13, RuleState.BROKEN)
    assert f"as the leader of epoch {epoch}" in found.evidence


def test_without_a_leader_no_start_is_judged() -> None:
    (found,) = judge_starts(None, [FACTS], Followers.KAFKA)
    assert (found.rule, found.state) == (QuorumRule.K13, RuleState.UNKNOWN)


def test_a_bare_copy_next_to_other_nodes(tmp_path: Path) -> None:
    """Whose it is is not known there, and a copy of nothing else needs no owner."""
    (tmp_path / "__cluster_metadata-0").symlink_to(BUNDLED["node3"] / "__cluster_metadata-0")
    for others, mark in (([], NOT_APPLICABLE), ([str(BUNDLED["node1"])], (RuleState.BROKEN, Grade.WARNING))):
        check = check_quorum([str(tmp_path / "__cluster_metadata-0"), *others])
        assert {(each.state, each.grade) for each in check.nodes[0].results if each.rule is QuorumRule.K19} == {mark}


def test_each_rule_has_a_row_for_each_of_its_states() -> None:
    """A new rule has none, and fails here."""
    have = {(rule, mark) for rule, mark, *_ in (*ROWS, *OF_DIRECTORIES, *BROKEN_DIRECTORIES)} | ELSEWHERE.keys()
    assert len(set(IDS)) == len(IDS)
    for rule in QuorumRule:
        states = {state for of, (state, _) in have if of is rule}
        assert {RuleState.HOLDS, RuleState.BROKEN} <= states, rule
        assert (RuleState.UNKNOWN in states) == (rule not in NEVER_UNKNOWN), rule
        assert (RuleState.NOT_APPLICABLE in states) == (rule not in ALWAYS_APPLY), rule
    for name in ELSEWHERE.values():
        module, _, function = name.rpartition(".")
        text = (HERE / f"{module or Path(__file__).stem}.py").read_text()
        assert f"def {function}(" in text


def test_the_page_has_the_rules_with_their_grades() -> None:
    have = {(rule, mark) for rule, mark, *_ in (*ROWS, *BROKEN_DIRECTORIES)} | ELSEWHERE.keys()
    section = PAGE.read_text().partition("## Rules of cluster check")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| (K\d+) \| (.*?) \| (.*?) \| .*\|$", section, re.MULTILINE)
    assert [(number, text) for number, text, _ in rows] == [(rule.name, rule.value) for rule in QuorumRule]
    for number, _, otherwise in rows:
        grades = {grade.value for of, (_, grade) in have if of is QuorumRule[number] and grade is not None}
        assert set(re.findall(r"\b(info|warning|error|damage)\b", otherwise)) == grades, number
