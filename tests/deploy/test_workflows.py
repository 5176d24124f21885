"""The workflows of .github and the hooks of pre-commit, by the programs that know their form. They ran on no server."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from manifests import REPOSITORY

WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))


def test_scripts_that_workflows_and_hooks_call_are_there() -> None:
    called = set()
    for path in (*WORKFLOWS, REPOSITORY / ".pre-commit-config.yaml", REPOSITORY / "CONTRIBUTING.md"):
        called |= set(re.findall(r"(?<![\w/.])(?:scripts|tests|\.ci)/[\w./-]*\w", path.read_text()))
    assert {"scripts/test", "scripts/release/make_release.py", ".ci/run", "tests/test_prose.py"} <= called
    assert not {name for name in called if not (REPOSITORY / name).exists()}


def test_the_supported_versions_of_python_are_the_same_everywhere() -> None:
    """Each one runs in a workflow; the oldest and the newest run in ``.ci/run``, and ``scripts/setup`` finds each."""
    classifiers = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["classifiers"]
    supported = [match[1] for each in classifiers if (match := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each))]
    (matrix,) = re.findall(r"python: \[(.+)\]", (REPOSITORY / ".github" / "workflows" / "tests.yml").read_text())
    assert re.findall(r'"(3\.\d+)"', matrix) == supported
    (candidates,) = re.findall(r"for candidate in .* python3 (.+); do", (REPOSITORY / "scripts" / "setup").read_text())
    assert candidates.split() == [f"python{each}" for each in reversed(supported)]
    assert f"scripts/release/debian-python {supported[-1]}" in (REPOSITORY / ".ci" / "run").read_text()


def test_a_newer_release_of_kafka_fails_a_job_of_its_own() -> None:
    check = "scripts/kafka/release_catalogue.py --newer"
    (page,) = [path.read_text() for path in WORKFLOWS if check in path.read_text()]
    assert "schedule:" in page
    assert "push:" not in page
    assert check not in (REPOSITORY / ".ci" / "run").read_text()


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
