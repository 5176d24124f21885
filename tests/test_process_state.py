"""State of the process: no `global` statement, and every module that keeps state is listed with its reason."""

import re

from manifests import REPOSITORY

PAGE = REPOSITORY / "docs" / "internals" / "architecture.md"
NO_STATE = {"log", "_log", "app", "_crc32c", "_json_text", "_printable_key"}
"""Names of loggers, of the command, and of functions that are values."""

VARIABLE = re.compile(r"^([a-z_][a-z0-9_]*)(?:: [^=\n]+)? = ", re.MULTILINE)
"""A variable of a module: constants have names of capitals, and types begin with one."""

MODULES = {
    str(path.relative_to(REPOSITORY)).removeprefix("snaprebuild/"): path.read_text()
    for package in ("formats", "snaprebuild")
    for path in sorted((REPOSITORY / package).rglob("*.py"))
}


def test_no_module_changes_a_variable_of_its_own() -> None:
    found = [name for name, text in MODULES.items() if re.search(r"^\s+global [a-z_]", text, re.MULTILINE)]
    assert found == [], "an object can keep what a run, or the process, has"


def test_a_verb_with_stores_makes_its_run_of_them() -> None:
    """Else something that the run reaches would be looked for in the usual store. The request of a rebuild has its own stores."""
    runs = {name: text for name, text in MODULES.items() if name.startswith("cli/runs/") and "s3: S3Options" in text}
    without_stores = {name for name, text in runs.items() if re.search(r"\bRun\(|\brun_of\((?!s3\b)", text)}
    assert without_stores <= {f"cli/runs/{name}.py" for name in ("plan", "rebuild", "rebuild_request", "stage", "run_settings")}
    assert len(runs) > 15


def test_modules_with_state_are_listed_with_reasons() -> None:
    section = PAGE.read_text().partition("These belong to the process")[2].partition("\n\nPriority")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`([a-z0-9_/]+\.py)`", row)}
    variables = {name: set(VARIABLE.findall(text)) - NO_STATE for name, text in MODULES.items()}
    assert {name for name, found in variables.items() if any(not each.startswith("__") for each in found)} == listed
