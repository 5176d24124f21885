"""The tiers of the tests: what each takes, how a run is divided, and its closing line."""

import re
import tomllib

from manifests import REPOSITORY
from run_plan import NEEDS, tier_of_marks
from source_files import python_files


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
    for path in python_files(REPOSITORY / "tests"):
        used |= set(re.findall(r"pytest\.mark\.(\w+)", path.read_text()))
    assert used - {"parametrize", "skipif", "usefixtures", "filterwarnings", "xdist_group"} <= {*NEEDS, "full", "night"}
