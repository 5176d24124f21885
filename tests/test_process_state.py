"""State of the process: no `global` statement, and every module that keeps state is listed with its reason."""

import re

from manifests import REPOSITORY
from source_files import python_files

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


OF_ALL_THREADS = re.compile(
    r"active_count\(|threading\.enumerate\(|active_children\(|/proc/self/(?:fd|task)[\"')]"
    r"|(?:setattr|patch\.object)\((?:builtins|gc|random|socket|threading|time), "
)
"""All threads, children and descriptors of the process, and functions of Python that are replaced for every thread."""

ITS_OWN = {
    "cli/test_hook_run.py": "of a program that the hook starts",
    "formats/test_records.py": "compared with the threads of before",
    "library/test_hooks.py": "of a process of its own",
    "snapshots/test_schedule.py": "ends what hangs",
    "spark/test_session.py": "of a process of its own",
    "support/file_calls.py": "counts only what is below one directory",
    "support/open_files.py": "looks only at what is below one directory",
}
"""Where a test uses them, and why what other threads do is no matter."""


def test_a_test_judges_nothing_that_other_threads_change() -> None:
    """Threads that earlier tests left in the process open files, end, and ask for the time at any moment."""
    tests = REPOSITORY / "tests"
    found = {
        path.relative_to(tests).as_posix()
        for path in python_files(tests)
        if path.name != "test_process_state.py" and OF_ALL_THREADS.search(path.read_text())
    }
    assert found == set(ITS_OWN)
