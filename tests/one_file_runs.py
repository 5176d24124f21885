"""Runs of the one file, with an environment that has nothing in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import click
import typer
from log_dirs import snapshots_in, truth
from manifests import FIXTURES

from snaprebuild.cli.main import app
from snaprebuild.snapshots.engine.schedule import IN_PROCESS_BYTES_MAX

FIXTURE = "kafka27-mixed"
SECONDS_MAX = 180
CHROOT = shutil.which("chroot", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def run(
    file: Path, cache: Path, *arguments: object, before: tuple[object, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """With an environment that has nothing in it, no PATH either, but where to unpack."""
    command = [*map(str, before), str(file), *map(str, arguments)]
    variables = {"SNAPREBUILD_CACHE_DIR": str(cache), "HOME": str(cache), "PATH": ""} | environment
    return subprocess.run(command, env=variables, cwd=cache, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)


def unpacked(cache: Path) -> Path:
    (found,) = (path for path in cache.iterdir() if re.fullmatch("[0-9a-f]{32}", path.name))
    return found


def many_bytes(root: Path) -> Path:
    """Copies of a segment: more than one process reads alone."""
    whole = {segment.stat().st_size: segment for segment in (FIXTURES / FIXTURE / "logs").rglob("*.log")}
    for number in range(IN_PROCESS_BYTES_MAX // max(whole) + 2):
        partition = root / f"copy-{number}"
        partition.mkdir(parents=True)
        shutil.copy(whole[max(whole)], partition)
    return root


def all_verbs() -> dict[str, click.Command]:
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    found = {}
    for name, command in root.commands.items():
        inner = {"": command} if not isinstance(command, click.Group) else command.commands
        found |= {f"{name} {own}".strip(): each for own, each in inner.items()}
    assert len(found) >= 29
    return found


def assert_as_kafka_says(out: Path) -> None:
    partitions = sorted(each.name for each in (FIXTURES / FIXTURE / "logs").iterdir() if each.is_dir())
    assert {each: snapshots_in(out / each) for each in partitions} == {each: truth(FIXTURE, each) for each in partitions}
