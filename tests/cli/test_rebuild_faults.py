"""``rebuild`` on damaged logs, on full disks and as another user: nothing false is written, and a later run finishes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command import Run, live_broker
from in_process import in_json, snaprebuild
from log_dirs import (
    Entries,
    copy_of,
    cut,
    flip,
    remove_snapshots,
    snapshot_name,
    snapshots_in,
    tree,
    truth,
)
from manifests import FIXTURES

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
