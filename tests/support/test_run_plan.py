"""The tiers of the tests: what each takes, how a run is divided, and its closing line."""

import ast
import re
import tomllib

from manifests import REPOSITORY
from run_plan import FILE_SECONDS, NEEDS, SHARED, Plan, tier_of_marks
from source_files import python_files

QUOTES = "'\""
"""Around an annotation of what is imported for types alone."""

MADE_FOR_A_RUN = {
    "spark: SparkSession": "the Spark session",
    "connect_server: ConnectServer": "the Spark session",
    "release: Path": "the release",
    "one_file: Path": "the release",
    "oracle: Oracle": "Kafka's classes",
}
"""Arguments of tests, and their groups."""


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


def test_what_takes_long_to_make_is_made_in_one_process() -> None:
    """Each process that runs such a test makes a release, or starts Spark, or Java with Kafka's classes."""
    groups: dict[str, list[str]] = {}
    for path in python_files(REPOSITORY / "tests"):
        text = path.read_text()
        if not path.name.startswith("test_") or re.search(r"\b(spark|connect_server|release|one_file|oracle): ", text) is None:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                arguments = {
                    f"{each.arg}: {ast.unparse(each.annotation).strip(QUOTES)}" for each in node.args.args if each.annotation
                }
                for argument in arguments & MADE_FOR_A_RUN.keys():
                    file = path.relative_to(REPOSITORY).as_posix()
                    groups.setdefault(argument, []).append(Plan({}).group_of(f"{file}::{node.name}"))
    assert {argument: set(found) for argument, found in groups.items()} == {
        argument: {group} for argument, group in MADE_FOR_A_RUN.items()
    }
    assert set(MADE_FOR_A_RUN.values()) == SHARED.keys()


def test_files_whose_length_is_known_are_there() -> None:
    assert not [name for name in FILE_SECONDS if not (REPOSITORY / name).is_file()]
