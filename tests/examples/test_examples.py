"""The examples of the documentation do what they say."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from command import snaprebuild
from log_dirs import copy_of, entries_in, snapshot_name, truth
from manifests import FIXTURES, REPOSITORY
from sentences import STARTED_ALL_THE_SAME

EXAMPLES = REPOSITORY / "docs" / "examples"


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    """A directory with the command under its own name."""
    directory = tmp_path / "bin"
    directory.mkdir()
    command = directory / "snaprebuild"
    root, python = shlex.quote(str(REPOSITORY)), shlex.quote(sys.executable)
    command.write_text(f'#!/bin/sh\nPYTHONPATH={root} exec {python} -m snaprebuild "$@"\n')
    command.chmod(0o755)
    return directory


def environment(bin_dir: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{bin_dir}:{os.environ['PATH']}", "XDG_STATE_HOME": str(bin_dir.parent / "state"), **more}


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


@pytest.mark.full
def test_the_unit_prepares_and_becomes_the_broker(unit: Path, bin_dir: Path) -> None:
    settings = settings_of(unit.read_text().replace("\\\n", ""))
    named = dict(settings)
    assert [name for name, _ in settings if name.startswith(("Exec", "TimeoutStart"))] == ["ExecStart"]
    assert (named["Type"], named["OOMPolicy"]) == ("exec", "continue")
    (bin_dir / "kafka-server-start.sh").write_text('#!/bin/sh\necho "$$ $1"; exit 7\n')
    command = shlex.split(named["ExecStart"])
    with subprocess.Popen(command, env=environment(bin_dir), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        printed, reported = process.communicate(timeout=180)
    assert (process.returncode, printed) == (7, f"{process.pid} {unit.parent / 'server.properties'}\n")
    assert "14 snapshots written" in reported
    assert_prepared(unit.parent / "kafka27-mixed")
    # Whatever happens before.
    shutil.rmtree(unit.parent / "kafka27-mixed")
    done = subprocess.run(command, env=environment(bin_dir), capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert STARTED_ALL_THE_SAME in done.stderr


def test_systemd_understands_the_unit(unit: Path) -> None:
    """Where systemd is; the test above reads the unit everywhere."""
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        done = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
        about = [line for line in (done.stdout + done.stderr).splitlines() if unit.name in line]
        assert (done.returncode, about) == (0, [])


STARTED = ("sh", "-c", 'echo "$$ $1"; exit 7', "sh", "two words, and a comma")


def enter(bin_dir: Path, **variables: str) -> str:
    """Runs the entry point, which becomes the broker; what it says before."""
    known = {name: value for name, value in environment(bin_dir).items() if not name.startswith(("KAFKA_", "SNAPREBUILD_"))}
    known.pop("XDG_STATE_HOME")
    with subprocess.Popen(
        [EXAMPLES / "entrypoint.sh", *STARTED],
        env={**known, "HOME": "/proc/none", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        printed, reported = process.communicate(timeout=180)
    assert (process.returncode, printed) == (7, f"{process.pid} two words, and a comma\n"), reported
    return reported


def test_the_entry_point_becomes_the_broker(tmp_path: Path, bin_dir: Path) -> None:
    """With a home that no one can write to, a blank after the comma, a directory that is missing, and a deadline in minutes."""
    one, two = copy_of("kafka27-mixed", tmp_path), copy_of("kafka4-mixed", tmp_path)
    reported = enter(bin_dir, KAFKA_LOG_DIRS=f"{one}, {two} , {tmp_path / 'missing'}", SNAPREBUILD_DEADLINE="5m")
    assert "14 snapshots written" in reported
    assert f"{tmp_path / 'missing'} is no directory: it is skipped" in reported
    assert "SNAPREBUILD_DEADLINE: expected seconds, at most 604800, found 5m: 300 are taken" in reported
    assert_prepared(one)
    (receipt,) = (tmp_path / "snaprebuild").iterdir()
    assert f"receipt {receipt}" in reported
    again = enter(bin_dir, KAFKA_LOG_DIRS=f"{one},{two}", SNAPREBUILD_DEADLINE="604801")
    assert "0 snapshots written" in again
    assert list((tmp_path / "snaprebuild").iterdir()) == [receipt]


@pytest.mark.full
@pytest.mark.parametrize("place", ["logs/receipts", "link/receipts"])
def test_the_entry_point_makes_nothing_in_a_log_directory(place: str, tmp_path: Path, bin_dir: Path) -> None:
    """A broker does not start with an unknown directory in it: the receipt goes to the default place."""
    logs = copy_of("kafka27-mixed", tmp_path).rename(tmp_path / "logs")
    (tmp_path / "link").symlink_to(logs)
    before = {path.name for path in logs.rglob("*") if path.is_dir()}
    reported = enter(
        bin_dir,
        KAFKA_LOG_DIRS=f"{tmp_path / 'missing'},{logs}",
        SNAPREBUILD_RECEIPTS=str(tmp_path / place),
        XDG_STATE_HOME=str(tmp_path / "state"),
    )
    assert f"entrypoint: {tmp_path / place} is in a log directory: receipts go to the default place" in reported
    assert "14 snapshots written" in reported
    assert {path.name for path in logs.rglob("*") if path.is_dir()} == before
    assert len(list((tmp_path / "state" / "snaprebuild").iterdir())) == 1


@pytest.mark.full
def test_the_entry_point_reads_the_configuration_of_the_broker(tmp_path: Path, bin_dir: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    properties = tmp_path / "server.properties"
    properties.write_text(f"broker.id=1\nlog.dirs = {logs}, {tmp_path / 'missing'}\n")
    reported = enter(bin_dir, KAFKA_SERVER_PROPERTIES=str(properties), SNAPREBUILD_RECEIPTS=str(tmp_path / "kept"))
    assert "14 snapshots written" in reported
    assert_prepared(logs)
    assert len(list((tmp_path / "kept").iterdir())) == 1
    assert STARTED_ALL_THE_SAME in enter(bin_dir, KAFKA_SERVER_PROPERTIES=str(tmp_path / "no-such-file"))


def test_the_entry_point_starts_where_nothing_is(tmp_path: Path, bin_dir: Path) -> None:
    assert "there is nothing to prepare" in enter(bin_dir, KAFKA_LOG_DIRS=str(tmp_path / "missing"))


def test_the_entry_point_wants_to_know_the_directories(bin_dir: Path) -> None:
    variables = {name: value for name, value in environment(bin_dir).items() if not name.startswith("KAFKA_")}
    done = subprocess.run([EXAMPLES / "entrypoint.sh", "true"], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "KAFKA_LOG_DIRS" in done.stderr


def right_snapshot(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, EXAMPLES / "right-snapshot", *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, capture_output=True, check=False)


@pytest.mark.full
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


def test_the_loop_of_an_uploader(tmp_path: Path) -> None:
    """The program of the guide, typed as it is there, with another body of the function that everybody replaces."""
    guide = (REPOSITORY / "docs" / "guides" / "uploader.md").read_text()
    code = re.search(r"(?s)```python\n(.*?)```", guide)
    assert code is not None
    assert guide.index(code[0]) < guide.index("\n## "), "on the first screen"
    mixed = copy_of("kafka4-mixed", tmp_path) / "mixed-0"
    assert "fixtures/kafka4-mixed/logs/mixed-0" in guide[: guide.index("\n## ")]
    before = {path: path.read_bytes() for path in mixed.iterdir()}
    (tmp_path / "uploader.py").write_text(code[1])
    command = [sys.executable, tmp_path / "uploader.py", mixed]
    done = subprocess.run(command, env=environment_of_python(), capture_output=True, text=True, check=False)
    expected = truth("kafka4-mixed", "mixed-0")
    (stable, *_) = sorted(each.current_txn_first_offset for each in expected[max(expected)] if each.current_txn_first_offset >= 0)
    segments = sorted(mixed.glob("*.log"))
    stable_segments = [each for each, following in pairwise(segments) if int(following.stem) <= stable]
    assert 2 < len(stable_segments) < len(segments) - 1, "a transaction is open at the log end"
    assert [line.split()[0] for line in done.stdout.splitlines()] == [str(each) for each in stable_segments]
    assert done.returncode == 1
    assert done.stderr.startswith(f"stopped at offset {int(segments[len(stable_segments)].stem)}: above-last-stable-offset: ")
    names: dict[str, Any] = {"__name__": "uploader"}
    exec(code[1], names)
    given: list[Any] = []
    names["send"] = given.append
    with pytest.raises(SystemExit):
        names["upload_partition"](str(mixed))
    assert [Path(upload.log_path) for upload in given] == stable_segments
    for upload in given:
        assert entries_in(upload.snapshot.data) <= expected[upload.end_offset + 1]  # expired ones may be left out
        assert upload.snapshot.data
    assert {path: path.read_bytes() for path in mixed.iterdir()} == before
    (mixed / segments[2].name).write_bytes(segments[2].read_bytes()[:-10])
    given.clear()
    with pytest.raises(SystemExit, match=rf"stopped at offset {int(segments[2].stem)}: damaged"):
        names["upload_partition"](str(mixed))
    assert len(given) == 2, "it stops where the log is damaged"


def environment_of_python() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY)}


def test_the_configuration_of_the_page_is_accepted(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "reference" / "configuration.md").read_text()
    example = re.search(r"(?s)```toml\n(.*?)```", page)
    assert example is not None
    (tmp_path / "config.toml").write_text(example[1])
    run = snaprebuild("scan", FIXTURES / "kafka27-mixed", "--config", tmp_path / "config.toml", "-v")
    assert run.exit_code == 1
    settings = re.findall(r"setting: (\w+) = .* \(from .*config.toml\)", run.stderr)
    assert sorted(settings) == sorted(tomllib.loads(example[1]))
