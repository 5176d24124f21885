"""The quick tier fails for each broken rule of the replays and each broken step of publishing a file."""

import importlib.util
import re
from pathlib import Path

import pytest
from broken_rule_runs import BROKEN_RULES, BROKEN_STEPS, answers, check_unbroken, files_of, shortfalls

from snaprebuild.cluster.quorum.rules import QuorumRule
from snaprebuild.cluster.source_check.rules import SourceRule

EVERY = (*BROKEN_RULES, *BROKEN_STEPS)
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "internals" / "testing.md"


def test_each_can_be_broken() -> None:
    """Its text occurs once, so that the list follows the code. Each has tests that may notice."""
    names = [each.name for each in EVERY]
    assert len(set(names)) == len(names)
    for each in EVERY:
        spec = importlib.util.find_spec(each.module)
        assert spec is not None
        assert spec.origin is not None
        assert Path(spec.origin).read_text().count(each.right) == 1, each.name
    assert all((ROOT / "tests" / file).is_file() for file in files_of(EVERY))


def test_each_rule_of_the_cluster_has_a_broken_decision() -> None:
    """A new rule has none, and fails here."""
    names = {tuple(each.name.split(": ")[:2]) for each in BROKEN_STEPS}
    expected = [("source rule", rule.name) for rule in SourceRule] + [("quorum rule", rule.name) for rule in QuorumRule]
    assert [each for each in expected if each not in names] == []


def test_the_page_has_the_numbers() -> None:
    rows = re.findall(r"`(tests/\S+)` \| (\d+) \|", PAGE.read_text())
    assert rows == [
        ("tests/broker/broken_replays.diff", str(len(BROKEN_RULES))),
        ("tests/faults/broken_steps.diff", str(len(BROKEN_STEPS))),
    ]


@pytest.mark.night
def test_the_quick_tier_sees_them() -> None:
    check_unbroken(EVERY)
    found = list(answers(EVERY))
    assert shortfalls(found) == []
    section = PAGE.read_text().partition("## Which broken rules only the full tier sees")[2].partition("\n## ")[0]
    only_full = {each.broken.name for each in found if each.quick is None and each.full is not None}
    assert only_full == set(re.findall(r"^\* `(.+)`$", section, re.MULTILINE))
