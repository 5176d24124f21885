"""The demonstrations, as anybody can repeat them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from manifests import REPOSITORY
from object_store import missing

pytestmark = pytest.mark.night


def run(name: str, tmp_path: Path) -> str:
    """What it prints, without what its commands print; it leaves no file."""
    environment = {**os.environ, "SNAPREBUILD_PYTHON": sys.executable, "TMPDIR": str(tmp_path)}
    command = [REPOSITORY / "scripts" / name, "-q"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
    return done.stdout


@pytest.mark.s3
def test_everything_around_remote_storage(tmp_path: Path) -> None:
    why = missing()
    if why is not None:
        pytest.skip(f"NOT RUN: a real object store (marker s3): {why}")
    assert run("demo-tier", tmp_path).endswith("\n34 steps, each as expected\n")


def test_what_the_records_of_the_cluster_say(tmp_path: Path) -> None:
    assert run("demo-cluster", tmp_path).endswith("\n20 steps, each as expected\n")


@pytest.mark.broker
def test_the_commands_of_the_readme_while_the_protocol_is_old(tmp_path: Path) -> None:
    assert "\n8 steps, 26 checks, each as expected, " in run("demo-readme", tmp_path)
