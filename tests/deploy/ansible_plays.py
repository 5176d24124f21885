"""Runs the plays of ``scripts/deploy/ansible`` with an inventory of this machine: every host is a directory on it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from manifests import REPOSITORY

PLAYS = REPOSITORY / "scripts" / "deploy" / "ansible"
SECONDS_MAX = 1800.0
SNAPREBUILD = [sys.executable, "-m", "snaprebuild"]


def program(name: str) -> str | None:
    """Path of a program: that of this environment, else the first on PATH; None if there is none."""
    return shutil.which(name, path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))


def write_inventory(
    path: Path, hosts: dict[str, dict[str, Any]], variables: dict[str, Any], everywhere: dict[str, Any] | None = None
) -> None:
    """An inventory with the group ``kafka``; hosts keep their order. ``everywhere``: variables that hold for this machine, too."""
    usual = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "snaprebuild_command": SNAPREBUILD,
        "snaprebuild_local_command": SNAPREBUILD,
    }
    groups = {"all": {"vars": everywhere or {}}, "kafka": {"hosts": hosts, "vars": {**usual, **variables}}}
    path.write_text(json.dumps(groups, indent=1))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run_play(name: str, inventory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs a play to its end, one of ours or a path; its state and temporary files are next to the inventory."""
    playbook = program("ansible-playbook")
    assert playbook is not None, "ansible-playbook is not installed"
    home = inventory.parent / "ansible-home"
    environment = {
        **os.environ,
        "ANSIBLE_HOME": str(home),
        "ANSIBLE_LOCAL_TEMP": str(home / "local"),
        "ANSIBLE_REMOTE_TEMP": str(home / "remote"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
        "ANSIBLE_PIPELINING": "1",
        "PYTHONPATH": os.pathsep.join(str(REPOSITORY / each) for each in (".", "tests/support", "tests/broker")),
        "XDG_STATE_HOME": str(home / "state"),
    }
    environment.pop("PYTHONWARNINGS", None)
    command = [playbook, "-i", str(inventory), *options, str(PLAYS / name)]
    return subprocess.run(
        command, cwd=inventory.parent, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
