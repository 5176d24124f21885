"""A broker of three disks one of which is gone: what was not read is said first, and the repair of the others goes on."""

import errno
import shlex
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from log_dirs import copy_of
from refused_reads import refused
from sentences import AGAIN, GO_ON_WITHOUT_IT, ONE_PATH_UNREAD

MISSING = 14
"""Snapshots that the two disks lack."""


@pytest.fixture
def properties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Properties of a stopped broker whose disk `d3` is not mounted."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    first = copy_of("kafka27-mixed", tmp_path / "d1")
    second = tmp_path / "d2" / "logs"
    second.mkdir(parents=True)
    for name in (".kafka_cleanshutdown", "meta.properties"):
        (second / name).write_bytes((first / name).read_bytes())
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={first},{second},{tmp_path / 'd3'}\n")
    return file


@pytest.mark.parametrize("words", ["scan", "plan", "rebuild --dry-run", "verify", "before-start --dry-run", "stage --to {}/staged"])
def test_the_next_command_goes_on_with_the_other_disks(words: str, properties: Path, tmp_path: Path) -> None:
    command = [*words.format(tmp_path).split(), "--server-properties", str(properties)]
    run = snaprebuild(*command)
    assert run.exit_code == 5
    assert run.text.startswith(ONE_PATH_UNREAD)
    assert f"{tmp_path / 'd3'}: does not exist: this log directory is left out" in run.stderr
    lines = run.stdout.splitlines()
    at = lines.index(f"Next: {GO_ON_WITHOUT_IT}.")
    assert lines[at + 1].startswith("Then: snaprebuild ")
    following = shlex.split(lines[at + 1].removeprefix("Then: snaprebuild "))
    assert following != command
    assert snaprebuild(*following).exit_code == 5, "the disk is still gone, and nothing is refused"


def test_the_whole_repair_of_the_other_disks(properties: Path, tmp_path: Path) -> None:
    assert in_json("scan", "--server-properties", properties).document["totals"]["missing"] == MISSING
    snaprebuild("stage", "--server-properties", properties, "--to", tmp_path / "staged")
    installed = in_json("install", "--plan", tmp_path / "staged" / "plan.jsonl")
    assert (installed.exit_code, installed.totals["written"]) == (5, MISSING)
    assert installed.document["next_command"].startswith("snaprebuild verify --written-by ")
    verified = in_json("verify", "--server-properties", properties)
    assert (verified.exit_code, verified.document["totals"]["missing"]) == (5, 0)
    assert verified.document["next_command"] is None


def test_any_other_path_is_corrected_first(properties: Path, tmp_path: Path) -> None:
    """A broker does not continue without a file that it cannot read."""
    file = next((tmp_path / "d1").rglob("logappend-0")) / "leader-epoch-checkpoint"
    with refused(file, errno.EACCES, []):
        run = snaprebuild("scan", "--server-properties", properties)
    assert AGAIN in run.stdout
    assert "\nThen: " not in run.stdout
