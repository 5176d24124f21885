"""The tiers of the tests: what each takes, how a run is divided, and its closing line."""

from __future__ import annotations

import re
import tomllib

import pytest
from manifests import REPOSITORY
from run_plan import NEEDS, closing_line, selected, tier_of_marks


def test_a_tier_takes_the_smaller_ones_too() -> None:
    assert [selected(tier) for tier in ("quick", "full", "night")] == [("quick",), ("quick", "full"), ("quick", "full", "night")]


def test_what_a_plain_machine_may_lack_is_not_quick() -> None:
    declared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    names = {each.partition(":")[0] for each in declared}
    assert names == {*NEEDS, "full", "night"}
    for name in names:
        assert tier_of_marks(["parametrize", name]) == ("night" if name == "night" else "full")
    assert tier_of_marks(["broker", "night"]) == "night"
    assert tier_of_marks(["parametrize"]) == "quick"


def test_every_external_part_belongs_to_a_tier_that_runs_it() -> None:
    """An unknown mark would leave its tests in the quick tier; pytest refuses it (--strict-markers)."""
    used = set()
    for path in (REPOSITORY / "tests").rglob("*.py"):
        used |= set(re.findall(r"pytest\.mark\.(\w+)", path.read_text()))
    assert used - {"parametrize", "skipif", "usefixtures", "filterwarnings", "xdist_group"} <= {*NEEDS, "full", "night"}


@pytest.mark.parametrize("tier", ["quick", "full", "night"])
def test_the_closing_line_names_what_did_not_run(tier: str) -> None:
    outcomes = {"passed": 7, "failed": 1, "skipped": 2}
    left = {"tests of full": 3, "files of full": 4, "tests of night": 5}
    line = closing_line(tier, outcomes, {"Spark: no Java": 2}, left, 125.0)
    assert line.startswith(f"{tier} tier: 7 passed, 1 failed, 2 skipped in 2 min 5 s. Skipped here: Spark: no Java (2)")
    assert ("scripts/test --full" in line, "scripts/test --night" in line) == (tier == "quick", tier != "night")
    assert ("4 files and 3 tests of the full tier" in line) == (tier == "quick")
    assert "\n" not in line
