"""The workflows of .github and the hooks of pre-commit, by the programs that know their form. They ran on no server."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from manifests import REPOSITORY

WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))


def test_scripts_that_workflows_and_hooks_call_are_there() -> None:
    called = set()
    for path in (*WORKFLOWS, REPOSITORY / ".pre-commit-config.yaml", REPOSITORY / "CONTRIBUTING.md"):
        called |= set(re.findall(r"(?<![\w/.])(?:scripts|tests|\.ci)/[\w./-]*\w", path.read_text()))
    assert {"scripts/test", "scripts/release", ".ci/run", "tests/test_prose.py"} <= called
    assert not {name for name in called if not (REPOSITORY / name).exists()}


def test_no_job_may_write_to_the_repository() -> None:
    for path in WORKFLOWS:
        text = path.read_text()
        assert "permissions: {contents: read}" in text
        assert ": write" not in text.replace("id-token: write", "")


@pytest.mark.night
def test_actionlint_finds_nothing() -> None:
    program = shutil.which("actionlint") or shutil.which("actionlint", path=str(Path.home() / "go" / "bin"))
    if program is None:
        pytest.skip("NOT RUN: go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.7")
    done = subprocess.run([program, *WORKFLOWS], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
