"""Guards against holding a broker down by mistake: the file that switches all checks off, and the units, charts and images we
ship."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from command import Run, run_process
from manifests import REPOSITORY
from sentences import NOTHING_CHECKED
from stopped_broker import last_segment, made

SWITCHED = """
import sys
import snaprebuild.__main__ as program
program.START_ANYWAY_FILE = sys.argv.pop(1)
program.main()
"""
"""The program, with the file of the switch at another place: a test may not write to /run."""


def run_with_switch(switch: Path, *words: object) -> Run:
    environment = {name: value for name, value in os.environ.items() if name != "SNAPREBUILD_START_ANYWAY"}
    return run_process(sys.executable, "-c", SWITCHED, switch, *words, env=environment)


@pytest.mark.parametrize("options", [["--fail-closed"], pytest.param(["--no-such-option"], marks=pytest.mark.full)])
def test_the_file_starts_the_command_and_nothing_is_checked(tmp_path: Path, options: list[str]) -> None:
    directory = made(tmp_path)
    os.truncate(last_segment(directory), 0)
    switch = tmp_path / "start-anyway"
    words = ("before-start", directory.parent, *options, "--", "echo", "started", "--", "again")
    held = run_with_switch(switch, *words)
    assert (held.exit_code == 3, held.stdout) == (
        options == ["--fail-closed"],
        "" if held.exit_code == 3 else "started -- again\n",
    )
    switch.touch()
    done = run_with_switch(switch, *words)
    assert (done.exit_code, done.stdout) == (0, "started -- again\n")
    assert done.stderr == f"{NOTHING_CHECKED}{switch} exists.\n"


def test_the_place_of_the_file_is_the_one_that_pages_name() -> None:
    from snaprebuild.__main__ import START_ANYWAY, START_ANYWAY_FILE

    assert START_ANYWAY_FILE == "/run/snaprebuild/start-anyway"
    launcher = (REPOSITORY / "scripts" / "release" / "one_file_command.h").read_text()
    assert f'#define START_ANYWAY "{START_ANYWAY}"' in launcher
    assert f'#define START_ANYWAY_FILE "{START_ANYWAY_FILE}"' in launcher
    for page in ("docs/troubleshooting/safe-to-start.md", "docs/guides/deploy.md", "docs/examples/kafka.service"):
        assert START_ANYWAY_FILE in (REPOSITORY / page).read_text(), page


SHIPPED = [
    path
    for place in ("docs/examples", "scripts/deploy")
    for path in sorted((REPOSITORY / place).rglob("*"))
    if path.is_file() and b"before-start" in path.read_bytes()
]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_what_we_ship_does_not_hold_a_broker_by_default(path: Path) -> None:
    lines = [line.partition("#")[0] for line in path.read_text().splitlines()]
    assert not [line for line in lines if "--fail" in line]
    is_unit = any(line.startswith("ExecStart=") and "before-start" in line for line in lines)
    if is_unit:
        assert "RestartPreventExitStatus=3" in lines, "held on purpose: the next start would find the same"


def test_units_are_among_them() -> None:
    assert {"kafka.service", "before-start.conf", "before-start.yaml", "entrypoint.sh"} <= {path.name for path in SHIPPED}
