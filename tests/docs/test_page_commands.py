"""The commands that README.md and docs show without their output run as they are typed, in a copy of what a checkout has."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import readme_output
from manifests import REPOSITORY
from runbook_page import blocks

pytestmark = pytest.mark.full

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
TYPED = "scripts/snaprebuild "
SHOWN = {
    "docs/guides/first-repair.md": r"false empty.*35 ",
    "docs/guides/cluster-metadata.md": r"elected-new-disk",
}
"""A pattern in the output of the commands, as the page has it."""

REFUSES = "docs/concepts/one-disk.md"
"""Its command shows a replica that is rejected: exit code 3."""


def lines_of(page: Path) -> list[str]:
    """The lines of all blocks of a page that run a command on what a checkout has, and those before them in the same block."""
    found = []
    for each in blocks(page.read_text()):
        if each.language == "sh" and any(line.startswith(TYPED) for line in each.lines):
            found.extend(each.lines)
    return found


WITH_COMMANDS = [page for page in PAGES if lines_of(page)]


def test_pages_with_such_commands_are_found() -> None:
    assert sum(line.startswith(TYPED) for page in WITH_COMMANDS for line in lines_of(page)) >= 15


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.stem)
def test_each_command_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    place = tmp_path / "checkout"
    place.mkdir()
    text = page.read_text()
    readme_output.prepare(place, text)
    name = page.relative_to(REPOSITORY).as_posix()
    made = re.findall(r"^(?:cp -r \S+|mkdir) (\S+)$", "\n".join(lines_of(page)), re.MULTILINE)
    for directory in made:  # the page makes it itself
        subprocess.run(["rm", "-r", place / directory], check=True)
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    printed = []
    for line in lines_of(page):
        command = line.replace(TYPED, f"{sys.executable} -m snaprebuild ")
        done = subprocess.run(["bash", "-c", command], cwd=place, env=environment, capture_output=True, text=True, check=False)
        codes = (3,) if name == REFUSES else (0, 1)
        assert done.returncode in (codes if line.startswith(TYPED) else (0,)), f"{line}: {done.stderr}"
        assert "Traceback" not in done.stderr
        assert done.stdout or not line.startswith(TYPED), f"{line} prints nothing"
        printed.append(done.stdout)
    if name in SHOWN:
        assert re.search(SHOWN[name], "\n".join(printed), re.DOTALL), "\n".join(printed)
