"""``rebuild`` on damaged logs, on full disks and as another user: nothing false is written, and a later run finishes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import Run, live_broker
from in_process import in_json, snaprebuild
from log_dirs import (
    Entries,
    changes,
    copy_of,
    cut,
    flip,
    remove_snapshots,
    snapshot_name,
    snapshots_in,
    tree,
    truth,
)
from manifests import FIXTURES, REPOSITORY

LINE = ("--boundaries", "all", "--replay-from", "log-start", "--keep-expired")


# --- damage ------------------------------------------------------------------------------------------------------------------


def below(expected: dict[int, Entries], offset: int) -> dict[int, Entries]:
    return {at: entries for at, entries in expected.items() if at <= offset}


def rebuild_damaged(tmp_path: Path, logs: Path, good_up_to: int, *options: object, code: int = 4) -> Run:
    """Into ``--out`` and in place: what lies below the damage is right, and nothing above it is written."""
    expected = truth("kafka27-mixed", "mixed-0")
    remove_snapshots(logs / "mixed-0")
    out = in_json("rebuild", logs, "--out", tmp_path / "out", *LINE, *options)
    assert out.exit_code == code, out.stderr
    assert snapshots_in(tmp_path / "out" / "mixed-0") == below(expected, good_up_to)
    # The others are not affected.
    for other in ("logappend-0", "plain-0", "deleted-0"):
        assert snapshots_in(tmp_path / "out" / other) == truth("kafka27-mixed", other)
    here = in_json("rebuild", logs, *options)
    assert here.exit_code == code
    assert snapshots_in(logs / "mixed-0") == below(expected, good_up_to)
    assert snapshots_in(logs / "logappend-0") == truth("kafka27-mixed", "logappend-0")
    assert not list(tmp_path.rglob("*.tmp"))
    return out


def test_a_torn_tail_in_an_earlier_segment(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    cut(logs / "mixed-0" / f"{2181:020d}.log", -37)
    run = rebuild_damaged(tmp_path, logs, 2181)
    assert "nothing above it can be rebuilt" in run.messages("damaged-segment")


def test_an_earlier_segment_without_a_byte(tmp_path: Path) -> None:
    """Its batches are gone and no byte says so: the offsets are missing, which compaction does too. UNSOUND, not in place."""
    logs = copy_of("kafka27-mixed", tmp_path)
    remove_snapshots(logs / "mixed-0")
    cut(logs / "mixed-0" / f"{2181:020d}.log", 0)
    out = in_json("rebuild", logs, "--out", tmp_path / "out", *LINE)
    assert out.exit_code in (1, 4)
    here = in_json("rebuild", logs)
    assert here.exit_code in (1, 4)
    assert snapshots_in(logs / "mixed-0") == below(truth("kafka27-mixed", "mixed-0"), 2181)
    assert {each["class"] for each in out.partition("mixed-0")["boundaries"] if each["offset"] > 2181} <= {"UNSOUND", None}


def test_a_flipped_bit_in_a_payload(tmp_path: Path) -> None:
    """The headers are whole, so the state is that of the header replay; above it everything is UNSOUND."""
    logs = copy_of("kafka27-mixed", tmp_path)
    remove_snapshots(logs / "mixed-0")
    flip(logs / "mixed-0" / f"{2181:020d}.log", 61 + 20)
    out = in_json("rebuild", logs, "--out", tmp_path / "out", *LINE)
    assert out.exit_code == 4
    assert out.codes["bad-checksum"] == 1
    assert "byte 0" in out.messages("bad-checksum")
    assert snapshots_in(tmp_path / "out" / "mixed-0") == truth("kafka27-mixed", "mixed-0")
    classes = {each["offset"]: each["class"] for each in out.partition("mixed-0")["boundaries"]}
    assert all(klass == ("EXACT" if offset <= 2181 else "UNSOUND") for offset, klass in classes.items())
    here = in_json("rebuild", logs)
    assert here.exit_code == 4
    assert snapshots_in(logs / "mixed-0") == below(truth("kafka27-mixed", "mixed-0"), 2181)
    skipped = in_json("rebuild", logs, "--crc", "skip")
    assert skipped.exit_code == 0, "asked not to look"
    assert snapshots_in(logs / "mixed-0") == truth("kafka27-mixed", "mixed-0")


def test_a_transaction_index_that_lies(tmp_path: Path) -> None:
    path = copy_of("kafka27-mixed", tmp_path) / "mixed-0" / f"{583:020d}.txnindex"
    path.write_bytes(path.read_bytes()[34:])
    run = in_json("rebuild", path.parent, "--dry-run", *LINE)
    assert (run.exit_code, run.codes) == (1, {"transaction-index-differs": 1})
    assert str(path) in run.messages("transaction-index-differs")


@pytest.fixture
def open_path() -> Iterator[Path]:
    """Where everybody comes; what pytest gives is its user's alone, and is made so again by each run that begins."""
    with tempfile.TemporaryDirectory(prefix="open-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


def as_nobody(tmp_path: Path, *arguments: object) -> Run:
    """Runs the command as a user who owns nothing; only root can become one."""
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    command = [sys.executable, "-c", AS_NOBODY, str(REPOSITORY), *map(str, arguments)]
    state_home = tmp_path / "state"
    state_home.mkdir(exist_ok=True)
    state_home.chmod(0o777)
    environment = {**os.environ, "XDG_STATE_HOME": str(state_home)}
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, timeout=180, env=environment)
    assert "Traceback" not in done.stderr, done.stderr
    return Run(done.returncode, done.stdout, done.stderr)


# Everything is imported as root, because the checkout may stand where nobody else comes.
AS_NOBODY = """
import os, sys
sys.path.insert(0, sys.argv[1])
import numpy, snaprebuild.cli.main, snaprebuild.cli.verbs.rebuild, snaprebuild.cli.render.rebuild, snaprebuild.snapshots.staging.stage
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
sys.argv = ["snaprebuild", *sys.argv[2:]]
snaprebuild.cli.main.main()
"""

IRREGULAR = {
    "directory": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
    "link": lambda path: path.symlink_to(FIXTURES / "kafka4-mixed" / "logs" / "mixed-0" / f"{687:020d}.log"),
    "dangling link": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize(("kind", "base"), [("directory", 2181), ("pipe", 7637), ("link", 2181), ("dangling link", 0)])
def test_a_segment_that_is_no_file(kind: str, base: int, tmp_path: Path) -> None:
    """It neither hangs the run nor is it followed, and the log is not taken for one that has no such segment."""
    logs = copy_of("kafka27-mixed", tmp_path)
    path = logs / "mixed-0" / f"{base:020d}.log"
    path.unlink()
    IRREGULAR[kind](path)
    run = rebuild_damaged(tmp_path, logs, -1, code=5)
    assert f"{path}: is named like a segment and is not a regular file" in run.messages("storage-failed")
    before = tree(logs)
    assert in_json("verify", logs).exit_code == 5
    assert in_json("plan", logs).exit_code == 5
    assert tree(logs) == before


@pytest.mark.root
def test_a_segment_that_we_may_not_read(open_path: Path) -> None:
    """What lies below it is right, the rest of this partition fails, and the others do not."""
    logs = copy_of("kafka27-mixed", open_path)
    remove_snapshots(logs / "mixed-0")
    (logs / "mixed-0" / f"{2181:020d}.log").chmod(0)
    out = open_path / "out"
    out.mkdir(mode=0o777)
    out.chmod(0o777)
    run = as_nobody(open_path, "rebuild", logs, "--out", out, *LINE, "--output", "json")
    assert run.exit_code == 5, run.stderr
    assert "Permission denied" in run.messages("storage-failed")
    assert snapshots_in(out / "mixed-0") == below(truth("kafka27-mixed", "mixed-0"), 2181)
    for other in ("logappend-0", "plain-0", "deleted-0"):
        assert snapshots_in(out / other) == truth("kafka27-mixed", other)


def test_a_snapshot_name_that_is_taken_by_something_else(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "mixed-0" / snapshot_name(583)).mkdir()
    run = in_json("rebuild", logs)
    assert (run.exit_code, run.codes["not-known-to-be-due"]) == (1, 1)
    assert (logs / "mixed-0" / snapshot_name(583)).is_dir()
    (logs / "mixed-0" / snapshot_name(583)).rmdir()
    assert in_json("rebuild", logs).exit_code == 0
    assert snapshots_in(logs / "mixed-0") == truth("kafka27-mixed", "mixed-0")
    assert snapshots_in(logs / "logappend-0") == truth("kafka27-mixed", "logappend-0")


# --- storage that fails --------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """64 KiB of memory as a disk."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    if os.getuid() != 0 or shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a file system")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.root
def test_a_full_disk(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (40 << 10))
    out = small_disk / "out"
    full = in_json("rebuild", "fixtures/kafka4-mixed", "--out", out, *LINE)
    assert full.exit_code == 5
    assert "No space left on device" in full.messages("storage-failed")
    written = {path: snapshots_in(out / path) for path in ("mixed-0", "logappend-0", "deleted-0", "plain-0")}
    assert 0 < sum(map(len, written.values())) < 24
    for partition, snapshots in written.items():
        expected = truth("kafka4-mixed", partition)
        assert snapshots == {offset: expected[offset] for offset in snapshots}
    assert not list(out.rglob("*.tmp"))
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=1m", str(small_disk)], check=True)
    again = in_json("rebuild", "fixtures/kafka4-mixed", "--out", out, *LINE)
    assert again.exit_code == 0
    for partition in written:
        assert snapshots_in(out / partition) == truth("kafka4-mixed", partition)


def with_second_names(directory: Path, *offsets: int) -> list[Path]:
    """As runs leave it that are killed between link and unlink."""
    left = [directory / f"{snapshot_name(offset)}.tmp" for offset in offsets]
    for path in left:
        path.hardlink_to(path.with_suffix(""))
    return left


def test_a_second_name_of_a_whole_snapshot_is_removed(tmp_path: Path) -> None:
    """Of snapshots that are there, so that there is nothing else to do for the partition; nothing but the name changes."""
    logs = copy_of("kafka27-mixed", tmp_path)
    assert in_json("rebuild", logs).exit_code == 0
    before = tree(logs)
    left = with_second_names(logs / "mixed-0", 583, 4168) + with_second_names(logs / "logappend-0", 542)
    assert in_json("scan", logs).codes["left-over-temporary"] == 3
    with_names = tree(logs)
    assert in_json("rebuild", logs, "--dry-run").exit_code == 0
    with live_broker(logs):
        run = in_json("rebuild", logs)
    assert (run.exit_code, run.totals) == (0, {}), "a live broker is left alone, and nothing else is to be done"
    assert tree(logs) == with_names
    run = snaprebuild("rebuild", logs, "-v")
    assert run.exit_code == 0
    assert run.stderr.count("was a second name of a whole snapshot") == len(left)
    assert tree(logs) == before


@pytest.mark.root
def test_a_second_name_that_cannot_be_removed(open_path: Path) -> None:
    """It harms nobody: a note, and the file is as good as without it."""
    out = open_path / "out"
    arguments = ("rebuild", FIXTURES / "kafka27-mixed" / "logs" / "mixed-0", "--out", out, *LINE)
    assert in_json(*arguments).exit_code == 0
    with_second_names(out / "mixed-0", 583)
    out.chmod(0o755)
    before = tree(out)
    run = as_nobody(open_path, *arguments, "--output", "json")
    assert (run.exit_code, run.codes) == (0, {"left-over-temporary": 1})
    assert run.totals == {"equal": 15}
    assert tree(out) == before


@pytest.mark.root
def test_an_owner_that_cannot_be_kept(open_path: Path) -> None:
    """Somebody who may write into the directory, but may not give files to the owner of the segments."""
    logs = copy_of("kafka27-mixed", open_path)
    for path in (logs, *logs.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    (logs / ".lock").write_bytes(b"")
    (logs / ".lock").chmod(0o666)
    before = tree(logs)
    run = as_nobody(open_path, "rebuild", logs, "--output", "json")
    assert run.exit_code == 3, run.stderr
    assert "cannot be given the segment's owner 0" in run.messages("refused")
    assert changes(before, tree(logs)) == (set(), set(), set())


def test_a_second_name_in_out_is_removed(tmp_path: Path) -> None:
    arguments = ("rebuild", "fixtures/kafka27-mixed", "--out", tmp_path, *LINE)
    assert in_json(*arguments).exit_code == 0
    before = tree(tmp_path)
    with_second_names(tmp_path / "mixed-0", 583, 8231)
    with_names = tree(tmp_path)
    assert in_json(*arguments, "--dry-run").totals == {"equal": 23}
    assert tree(tmp_path) == with_names
    assert in_json(*arguments).totals == {"equal": 23}
    assert tree(tmp_path) == before


def test_temporary_names_that_are_no_second_ones_stay(tmp_path: Path) -> None:
    """A copy with equal bytes, a file with a third name, one without a snapshot, a link: who knows whose they are."""
    logs = copy_of("kafka27-mixed", tmp_path)
    assert in_json("rebuild", logs).exit_code == 0
    mixed = logs / "mixed-0"
    shutil.copy2(mixed / snapshot_name(583), mixed / f"{snapshot_name(583)}.tmp")
    with_second_names(mixed, 1151)
    (tmp_path / "a backup").hardlink_to(mixed / snapshot_name(1151))
    (mixed / f"{snapshot_name(999)}.tmp").write_bytes(b"of a broker that takes a snapshot from the tier")
    (mixed / f"{snapshot_name(1662)}.tmp").symlink_to(snapshot_name(1662))
    before = tree(logs)
    assert in_json("rebuild", logs).exit_code == 0
    assert tree(logs) == before
