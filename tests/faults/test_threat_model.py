"""Each line of docs/internals/threat-model.md names the test that shows it: these tests are there."""

import ast
import re

from manifests import REPOSITORY

PAGE = (REPOSITORY / "docs" / "internals" / "threat-model.md").read_text()


def names_in(file: str) -> set[str]:
    tree = ast.parse((REPOSITORY / file).read_text())
    return {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")}


def test_every_line_is_shown_by_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| who | can")]
    assert len(rows) >= 20
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row.split("|")[-2])
        assert named, row
        for file, test in named:
            assert test in names_in(file), f"{file} has no {test}"
