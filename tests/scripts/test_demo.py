"""The demonstrations, as anybody can repeat them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from manifests import REPOSITORY
from object_store import missing
from transcripts import answers

pytestmark = pytest.mark.night


def run(name: str, tmp_path: Path, *options: str) -> str:
    """Runs a demonstration and returns its output; it leaves no file."""
    environment = {**os.environ, "SNAPREBUILD_PYTHON": sys.executable, "TMPDIR": str(tmp_path)}
    command = [REPOSITORY / "scripts" / "demo" / name, *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
    return done.stdout


def skip_without_store() -> None:
    """Skips the test where there is no object store."""
    why = missing()
    if why is not None:
        pytest.skip(f"NOT RUN: a real object store (marker s3): {why}")


@pytest.mark.s3
def test_everything_around_remote_storage(tmp_path: Path) -> None:
    skip_without_store()
    assert run("tier", tmp_path, "-q").endswith("\n34 steps, each as expected\n")


def test_what_the_records_of_the_cluster_say(tmp_path: Path) -> None:
    assert run("cluster", tmp_path, "-q").endswith("\n20 steps, each as expected\n")


WITH_STORE = "remote-storage"
RECORDED = {
    "readme": (("readme_steps.py",), "\n8 steps, 26 checks, each as expected, "),
    "install": (("install_scenario.py",), "\n6 steps, 30 checks, each as expected, "),
    WITH_STORE: (("remote_storage.py",), "\n11 steps, 55 checks, each as expected, "),
    "stuck-topic": (("stuck_topic.py", "--to", "4.3.1", "--follower"), "\n10 steps, 49 checks, each as expected, "),
}
"""The command of each transcript in docs/examples, and what it ends with."""


@pytest.mark.broker
@pytest.mark.parametrize(
    "name", [name for name in RECORDED if name != WITH_STORE] + [pytest.param(WITH_STORE, marks=pytest.mark.s3)]
)
def test_a_recorded_transcript_is_that_of_a_run_of_now(name: str, tmp_path: Path) -> None:
    """The words that a user compares. Numbers, ids and times are those of the run."""
    if name == WITH_STORE:
        skip_without_store()
    (script, *options), end = RECORDED[name]
    recorded = (REPOSITORY / "docs" / "examples" / f"{name}.txt").read_text()
    assert recorded.startswith(f"$ scripts/demo/{' '.join((script, *options))}\n")
    now = run(script, tmp_path, *options)
    assert end in now
    assert answers(now) == answers(recorded), f"run scripts/demo/record {name}"
    assert answers(now), "it shows commands"
