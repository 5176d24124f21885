"""A release, as scripts/release makes it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from manifests import REPOSITORY

EPOCH = 1_700_000_000
"""Seconds since 1970 of everything that carries a time."""


def missing() -> str | None:
    """What a release lacks here."""
    cc = shutil.which("cc")
    if cc is None:
        return "there is no C compiler"
    found = subprocess.run([cc, "-print-file-name=libz.a"], capture_output=True, text=True, check=True).stdout.strip()
    return None if Path(found).exists() else "there is no static zlib"


def build_release(out: Path, *options: str) -> Path:
    """Makes one in an empty directory, with what is installed here already."""
    tools = Path(sys.executable).parent  # not of what it resolves to
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH), "PATH": f"{tools}:{os.environ['PATH']}"}
    command = [sys.executable, "scripts/release.py", "--out", str(out), *options]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    return out
