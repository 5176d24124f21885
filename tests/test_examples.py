"""The examples beside the documentation do what they say."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from log_dirs import copy_of, entries_in, snapshot_name, truth
from manifests import REPOSITORY

EXAMPLES = REPOSITORY / "docs" / "examples"


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    """A directory with the command under its own name."""
    directory = tmp_path / "bin"
    directory.mkdir()
    command = directory / "snaprebuild"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {sys.executable} -m snaprebuild "$@"\n')
    command.chmod(0o755)
    return directory


def environment(bin_dir: Path, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{bin_dir}:{os.environ['PATH']}",
        "XDG_STATE_HOME": str(bin_dir.parent / "state"),
        **more,
    }


def assert_prepared(logs: Path) -> None:
    for partition in ("mixed-0", "logappend-0", "plain-0"):
        for offset, entries in truth("kafka27-mixed", partition).items():
            assert entries_in((logs / partition / snapshot_name(offset)).read_bytes()) == entries


def settings_of(unit: str) -> list[tuple[str, str]]:
    return re.findall(r"(?m)^(\w+)=(.*)$", unit)


@pytest.fixture
def unit(tmp_path: Path, bin_dir: Path) -> Path:
    """The unit, with paths of this machine for those that everybody replaces."""
    copy_of("kafka27-mixed", tmp_path)
    (tmp_path / "server.properties").write_text(f"log.dirs={tmp_path / 'kafka27-mixed'}\n")
    (bin_dir / "kafka-server-start.sh").write_text("#!/bin/sh\n")
    (bin_dir / "kafka-server-start.sh").chmod(0o755)
    text = (EXAMPLES / "kafka.service").read_text()
    for path, here in (
        ("/usr/local/bin/snaprebuild", bin_dir / "snaprebuild"),
        ("/etc/kafka/server.properties", tmp_path / "server.properties"),
        ("/opt/kafka/bin/kafka-server-start.sh", bin_dir / "kafka-server-start.sh"),
    ):
        assert path in text
        text = text.replace(path, str(here))
    file = tmp_path / "kafka.service"
    file.write_text(text)
    return file


def test_the_unit_prepares_before_it_starts(unit: Path, bin_dir: Path) -> None:
    settings = settings_of(unit.read_text())
    assert [name for name, _ in settings if name.startswith("Exec")] == ["ExecStartPre", "ExecStart"]
    named = dict(settings)
    command = named["ExecStartPre"]
    assert command.startswith("-"), "the broker starts whatever happens"
    deadline = int(re.findall(r"--deadline (\d+)", command)[0])
    assert int(named["TimeoutStartSec"]) > deadline
    done = subprocess.run(shlex.split(command[1:]), env=environment(bin_dir), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "14 snapshots written" in done.stderr
    assert_prepared(unit.parent / "kafka27-mixed")


def test_systemd_understands_the_unit(unit: Path) -> None:
    """Where systemd is; the test above reads the unit everywhere."""
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        done = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
        about = [line for line in (done.stdout + done.stderr).splitlines() if unit.name in line]
        assert (done.returncode, about) == (0, [])


def test_the_entry_point_becomes_the_broker(tmp_path: Path, bin_dir: Path) -> None:
    one, two = copy_of("kafka27-mixed", tmp_path), copy_of("kafka4-mixed", tmp_path)
    command = [EXAMPLES / "entrypoint.sh", "sh", "-c", 'echo "$$ $1"; exit 7', "sh", "two words, and a comma"]
    variables = environment(bin_dir, KAFKA_LOG_DIRS=f"{one},{two}")
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        printed, told = process.communicate(timeout=60)
    assert (process.returncode, printed) == (7, f"{process.pid} two words, and a comma\n")
    assert "14 snapshots written" in told
    assert_prepared(one)


def test_the_entry_point_wants_to_know_the_directories(bin_dir: Path) -> None:
    variables = {name: value for name, value in environment(bin_dir).items() if name != "KAFKA_LOG_DIRS"}
    done = subprocess.run([EXAMPLES / "entrypoint.sh", "true"], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "KAFKA_LOG_DIRS" in done.stderr


def right_snapshot(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, EXAMPLES / "right-snapshot", *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, capture_output=True, check=False)


def test_the_program_that_a_plugin_asks(tmp_path: Path) -> None:
    mixed = copy_of("kafka27-mixed", tmp_path) / "mixed-0"
    done = right_snapshot(mixed, 1151, 60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert entries_in(done.stdout) == truth("kafka27-mixed", "mixed-0")[1151]
    for arguments, code, said in (
        ((mixed, 1152), 2, b"neither the base offset"),
        ((mixed, 1151, 0), 3, b"deadline"),
        ((mixed,), 1, b"usage: right-snapshot"),
        ((mixed, "x"), 1, b"usage: right-snapshot"),
    ):
        refused = right_snapshot(*arguments)
        assert (refused.returncode, refused.stdout) == (code, b"")
        assert said in refused.stderr
