"""Directories that somebody made to do harm: nothing hangs, nothing outside is read or touched, nothing odd reaches the terminal.

What changes while it is read is in `test_live_log.py`; damaged bytes are in `tests/fuzz`.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path

import pytest
from command import Run, in_json, snaprebuild
from log_dirs import changes, remove_snapshots, tree
from manifests import FIXTURES

HEALTHY = FIXTURES / "damaged" / "healthy" / "log"
AS_OF = ("--as-of", "1795266500000")
SECRET = "what nobody who asks for a log directory should be shown"
READING = (
    ("scan",),
    ("plan", *AS_OF),
    ("verify", *AS_OF),
    ("inspect stats", *AS_OF),
    ("inspect transactions", *AS_OF),
    ("inspect explain", "--producer-id", "1", *AS_OF),
    ("follower offsets",),
)
FILES_MANY = 100_000
HOLE_BYTES = 2**43


def name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A log directory with a partition in health, and everything that is not one around it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text(SECRET)
    (outside / name(0, ".log")).write_text(SECRET)
    logs = tmp_path / "logs"
    shutil.copytree(HEALTHY, logs)
    healthy = logs / "payments-0"

    links = logs / "links-0"
    shutil.copytree(healthy, links)
    (links / name(116, ".snapshot")).unlink()
    for offset, suffix in ((116, ".snapshot"), (200, ".log"), (200, ".index"), (300, ".snapshot.tmp")):
        (links / name(offset, suffix)).symlink_to(outside / "secret")
    (links / name(400, ".snapshot")).symlink_to("../../outside/secret")
    (links / name(500, ".log")).symlink_to(links)
    os.link(outside / "secret", links / name(90, ".snapshot"))

    pipes = logs / "pipes-0"
    pipes.mkdir()
    for each in (name(0, ".log"), name(0, ".index"), name(10, ".snapshot"), "leader-epoch-checkpoint", "partition.metadata"):
        os.mkfifo(pipes / each)
    half = logs / "half-0"
    shutil.copytree(healthy, half)
    (half / name(116, ".log")).unlink()
    os.mkfifo(half / name(116, ".log"))

    devices = logs / "devices-0"
    devices.mkdir()
    if os.getuid() == 0:
        os.mknod(devices / name(0, ".log"), 0o020666, os.makedev(1, 5))  # endless zeros
    (devices / name(10, ".log")).symlink_to("/dev/zero")
    (devices / name(10, ".snapshot")).symlink_to("/dev/stdin")
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.open(devices, os.O_RDONLY)
        try:
            listening.bind(f"/proc/self/fd/{here}/{name(20, '.log')}")
        finally:
            os.close(here)

    (logs / "elsewhere-0").symlink_to(outside)
    (logs / "loop-0").symlink_to(logs)
    (logs / "itself-0").symlink_to("itself-0")
    for odd in (
        b"-rf-0",
        b"--output-1",
        b"a\nb-0",
        b"\x1b[31mred-0",
        b"\xff\xfe-0",
        b"..-0",
        b"x" * 240 + b"-0",
        b"$(reboot)-0",
        b"a b;c-0",
    ):
        shutil.copytree(os.fsencode(healthy), os.path.join(os.fsencode(logs), odd))
    for odd in (b"\xff.snapshot", b"a\nb.snapshot", b"\x1b[2J", b"..snapshot", b"x" * 255, name(7, ".log").encode() + b"\n"):
        Path(os.fsdecode(os.path.join(os.fsencode(healthy), odd))).write_bytes(b"?")
    return tmp_path


def check_told(run: Run) -> None:
    """No byte of what lies outside, and nothing that a terminal would obey."""
    for text in (run.stdout, run.stderr):
        assert SECRET not in text
        assert not {each for each in text if (each < " " and each not in "\n\r") or "\x7f" <= each < "\xa0"}, repr(text)[:3000]


@pytest.mark.parametrize("verb", READING, ids=lambda verb: str(verb[0]))
def test_reading(place: Path, verb: tuple[str, ...]) -> None:
    before = tree(place)
    run = in_json(verb[0], place / "logs", *verb[1:])
    assert run.exit_code in (1, 3, 4, 5), run.stderr
    check_told(snaprebuild(verb[0], place / "logs", *verb[1:]))
    assert SECRET not in run.stdout
    if "partitions" in run.document:
        told = {each["topic_partition"] for each in run.document["partitions"]}
        assert "payments-0" in told
        assert not told & {"loop-0", "itself-0"}
    assert tree(place) == before


def test_dump(place: Path) -> None:
    """Every name by itself: what is no regular file is refused, and not opened."""
    before = tree(place)
    paths = [path for path in sorted((place / "logs").rglob("*")) if path.is_symlink() or not path.is_dir()]
    odd = [path for path in paths if path.is_symlink() or path.is_fifo() or path.is_socket() or path.is_char_device()]
    assert len(odd) >= 12
    for path in odd:
        run = snaprebuild("inspect", "dump", path)
        assert run.exit_code in (1, 2, 3, 4, 5), (path, run)
        check_told(run)
    assert tree(place) == before


def test_writing_beside_it(place: Path) -> None:
    before = tree(place)
    run = in_json("rebuild", place / "logs", *AS_OF, "--boundaries", "all", "--out", place / "out", "--receipt", place / "receipt")
    assert run.exit_code in (1, 3, 4, 5)
    written = {path for path in (place / "out").rglob("*") if path.is_file()}
    assert written
    assert all(path.suffix == ".snapshot" and not path.is_symlink() for path in written)
    assert all(path.resolve().is_relative_to(place / "out") for path in written)
    after = {path: what for path, what in tree(place).items() if path != "receipt" and path.split("/")[0] != "out"}
    assert after == before


def test_writing_into_it(place: Path) -> None:
    """In place: what is written is written where it was found, and nowhere else."""
    remove_snapshots(place / "logs" / "-rf-0")
    before = tree(place)
    run = in_json("rebuild", place / "logs", *AS_OF, "--receipt", place / "receipt", "--set-aside")
    assert run.exit_code in (1, 3, 4, 5)
    check_told(snaprebuild("rebuild", place / "logs", *AS_OF, "--dry-run"))
    added, gone, changed = changes(before, tree(place))
    files = {each for each in added if not each.endswith((".lock", "receipt"))}
    assert files
    assert all(each.startswith("logs/") and each.endswith((".snapshot", ".set-aside.1")) for each in files), files
    assert not gone
    assert not {each for each in changed if each.startswith("outside")}
    assert (place / "outside" / "secret").read_text() == SECRET


def test_files_with_holes_of_terabytes(tmp_path: Path) -> None:
    """A segment, a snapshot that would be set aside, files that we wrote and that were made larger since: no byte of a hole is read."""
    logs, receipt = tmp_path / "logs", tmp_path / "receipt.jsonl"
    shutil.copytree(HEALTHY, logs)
    payments = logs / "payments-0"
    remove_snapshots(payments, 56)
    assert snaprebuild("rebuild", logs, *AS_OF, "--receipt", receipt).exit_code == 0
    os.truncate(payments / name(56, ".snapshot"), HOLE_BYTES)
    before = {path.name: path.stat().st_mtime_ns for path in payments.iterdir()}
    run = snaprebuild("verify", "--receipt", receipt, "--output", "json")
    assert (run.exit_code, run.totals, run.codes) == (1, {"replaced": 1}, {"lost-snapshot": 1})
    run = in_json("undo", receipt)
    assert (run.exit_code, run.totals) == (1, {"left": 1})
    assert f"has {HOLE_BYTES} bytes" in run.document["files"][0]["reason"]
    run = in_json("rebuild", logs, *AS_OF, "--set-aside", "--receipt", tmp_path / "second")
    assert (run.exit_code, run.codes) == (5, {"storage-failed": 1})
    assert {path.name: path.stat().st_mtime_ns for path in payments.iterdir()} == before
    remove_snapshots(payments, 56)
    os.truncate(payments / name(56, ".log"), HOLE_BYTES)
    for verb, *options in (
        ("scan",),
        ("plan", *AS_OF),
        ("verify", *AS_OF),
        ("inspect stats", *AS_OF),
        ("inspect transactions", *AS_OF),
    ):
        assert in_json(verb, logs, *options).exit_code in (0, 1, 4), verb


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    """Operators move partitions to another disk so: they are read, and what lies there is not taken for the broker's own."""
    logs, other = tmp_path / "logs", tmp_path / "other"
    shutil.copytree(HEALTHY, logs)
    shutil.copytree(HEALTHY / "payments-0", other)
    remove_snapshots(other)
    (logs / "moved-0").symlink_to(other)
    before = tree(tmp_path)
    run = in_json("rebuild", logs, *AS_OF, "--receipt", tmp_path / "receipt")
    assert (run.exit_code, set(run.codes)) == (1, {"not-known-to-be-due"})
    assert changes(before, tree(tmp_path))[0] <= {"logs/.lock"}


@pytest.mark.full
def test_a_hundred_thousand_files(tmp_path: Path) -> None:
    """Names that are none of Kafka's, and stray snapshots: the partition is judged as it is without them."""
    logs = tmp_path / "logs"
    shutil.copytree(HEALTHY, logs)
    directory = logs / "payments-0"
    here = os.open(directory, os.O_RDONLY)
    try:
        for number in range(FILES_MANY):
            odd = f"{number:020d}.snapshot.old" if number % 100 else f"{1_000_000 + number:020d}.timeindex.bak"
            os.close(os.open(odd, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=here))
    finally:
        os.close(here)
    run, healthy = in_json("scan", logs), in_json("scan", HEALTHY)
    assert run.exit_code == healthy.exit_code == 0
    (here_told,), (there,) = run.document["partitions"], healthy.document["partitions"]
    assert here_told["files"].pop("unknown") == FILES_MANY
    assert there["files"].pop("unknown") == 0
    assert json.dumps(here_told).replace(str(logs), "") == json.dumps(there).replace(str(HEALTHY), "")
