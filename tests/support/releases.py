"""A release, as scripts/release/make_release.py makes it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from manifests import REPOSITORY

EPOCH = 1_700_000_000
"""Seconds since 1970 of everything that carries a time."""


def missing() -> str | None:
    """The reason for which no release can be made here; None if one can."""
    cc = shutil.which("cc")
    if cc is None:
        return "there is no C compiler"
    found = subprocess.run([cc, "-print-file-name=libz.a"], capture_output=True, text=True, check=True).stdout.strip()
    if not Path(found).exists():
        return "there is no static zlib"
    headers = Path("/usr/include").glob("python3*/Python.h")
    return None if "PYTHON" in os.environ or any(headers) else "there is no Python.h (Debian: python3-dev)"


def build_release(out: Path, *options: str) -> Path:
    """Makes one in an empty directory."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH)}
    command = ["scripts/release/make_release.py", "--out", str(out), *options]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    return out
