"""``rebuild`` on damaged logs, on full disks and as another user: nothing false is written, and a later run finishes."""

from __future__ import annotations

from pathlib import Path

from command import live_broker
from in_process import in_json, snaprebuild
from log_dirs import copy_of, flip, remove_snapshots, snapshot_name, snapshots_in, tree, truth

LINE = ("--boundaries", "all", "--replay-from", "log-start", "--keep-expired")


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
