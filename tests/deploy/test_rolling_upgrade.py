"""``roll.yml`` on three real brokers with clients at work: from 2.7.2 to 3.9.2, then the protocol, then remote storage."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_plays import program
from manifests import REPOSITORY

pytestmark = [pytest.mark.night, pytest.mark.broker]

SECONDS_MAX = 3600.0


def test_the_whole_upgrade(tmp_path: Path) -> None:
    lacking = [each for each in ("java", "mvn", "ansible-playbook") if program(each) is None]
    if lacking:
        pytest.skip(f"NOT RUN: a rolling upgrade of real brokers (marker broker): not on PATH: {', '.join(lacking)}")
    environment = {**os.environ, "SNAPREBUILD_PYTHON": sys.executable, "TMPDIR": str(tmp_path)}
    command = [REPOSITORY / "scripts" / "demo-rolling-upgrade", "-q"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "each as expected" in done.stdout.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []
