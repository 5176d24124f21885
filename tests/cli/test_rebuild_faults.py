"""``rebuild`` on damaged logs, on full disks and as another user: nothing false is written, and a later run finishes."""

from __future__ import annotations

from pathlib import Path

from command import live_broker
from in_process import in_json, snaprebuild
from log_dirs import copy_of, cut, flip, remove_snapshots, snapshot_name, snapshots_in, tree, truth

LINE = ("--boundaries", "all", "--replay-from", "log-start", "--keep-expired")


def test_a_torn_tail_in_an_earlier_segment(tmp_path: Path) -> None:
    """Into ``--out`` and in place: what lies below the damage is right, nothing above it is written, and the others are done."""
    logs = copy_of("kafka27-mixed", tmp_path)
    remove_snapshots(logs / "mixed-0")
    cut(logs / "mixed-0" / f"{2181:020d}.log", -37)
    below = {at: entries for at, entries in truth("kafka27-mixed", "mixed-0").items() if at <= 2181}
    out = in_json("rebuild", logs, "--out", tmp_path / "out", *LINE)
    here = in_json("rebuild", logs)
    for run, place in ((out, tmp_path / "out"), (here, logs)):
        assert run.exit_code == 4
        assert "nothing above it can be rebuilt" in run.messages("damaged-segment")
        assert snapshots_in(place / "mixed-0") == below
        assert snapshots_in(place / "logappend-0") == truth("kafka27-mixed", "logappend-0")
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_flipped_bit_in_a_payload(tmp_path: Path) -> None:
    """The headers are whole. In place nothing is written above it, unless asked not to look."""
    logs = copy_of("kafka27-mixed", tmp_path)
    remove_snapshots(logs / "mixed-0")
    flip(logs / "mixed-0" / f"{2181:020d}.log", 61 + 20)
    run = in_json("rebuild", logs)
    assert (run.exit_code, run.codes["bad-checksum"], max(snapshots_in(logs / "mixed-0"))) == (4, 1, 2181)
    assert "byte 0" in run.messages("bad-checksum")
    assert in_json("rebuild", logs, "--crc", "skip").exit_code == 0
    assert snapshots_in(logs / "mixed-0") == truth("kafka27-mixed", "mixed-0")


def test_a_segment_that_is_no_file(tmp_path: Path) -> None:
    """It is not taken for a log that has no such segment. tests/faults/test_hostile_verbs.py has pipes, links and devices."""
    logs = copy_of("kafka27-mixed", tmp_path)
    path = logs / "mixed-0" / f"{2181:020d}.log"
    path.unlink()
    path.mkdir()
    for verb in ("rebuild", "verify", "plan"):
        run = in_json(verb, logs)
        assert run.exit_code == 5
        assert f"{path}: is named like a segment and is not a regular file" in run.messages("storage-failed")
    assert sorted(snapshots_in(logs / "mixed-0")) == [7045, 7637, 8231]


def test_a_snapshot_name_that_is_taken_by_a_directory(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "mixed-0" / snapshot_name(583)).mkdir()
    run = in_json("rebuild", logs)
    assert (run.exit_code, run.codes["not-known-to-be-due"], run.totals) == (1, 1, {"written": 13})
    assert (logs / "mixed-0" / snapshot_name(583)).is_dir()


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
