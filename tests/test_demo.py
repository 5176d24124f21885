"""The demonstration of everything around remote storage, as anybody can repeat it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from manifests import REPOSITORY
from object_store import missing

pytestmark = pytest.mark.s3


def test_every_step_is_as_expected(tmp_path: Path) -> None:
    why = missing()
    if why is not None:
        pytest.skip(f"NOT RUN: a real object store (marker s3): {why}")
    environment = {**os.environ, "SNAPREBUILD_PYTHON": sys.executable, "TMPDIR": str(tmp_path)}
    command = [REPOSITORY / "scripts" / "demo-tier", "-q"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("\n33 steps, each as expected\n")
    assert list(tmp_path.iterdir()) == []
