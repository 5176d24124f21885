"""``rebuild`` as a user runs it: bundled directories, in place, wrong snapshots, damage, and what is left out."""

import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest
from command import in_json, snaprebuild
from log_dirs import (
    EMPTY_SNAPSHOT,
    changes,
    copy_of,
    files_below,
    flip,
    remove_snapshots,
    snapshot_bytes,
    snapshot_name,
    snapshots_in,
    tree,
    truth,
)
from manifests import FIXTURES, REPOSITORY, bundled, partition_fixtures
from other_process import live_broker
from sentences import DIRECTORY_HAS, NOTHING_TO_REBUILD, PROCESS_HAS, SEGMENTS_HAVE

from snaprebuild.snapshots.rebuild.preflight import denied_finding
from snaprebuild.storage.local.file_calls import FileCalls
from snaprebuild.storage.local.write_advice import ProcessUser
from snaprebuild.storage.store import Ownership

LINE = ("--boundaries", "all", "--replay-from", "log-start", "--keep-expired")


MISSING_IN_MIXED = {"mixed-0": (583, 1151, 1662, 2181, 2596, 3089, 3664, 4168, 4695, 5247, 5821, 6390), "logappend-0": (542, 1015)}


# --- every bundled directory -------------------------------------------------------------------------------------------------


EXIT_CODES = {
    "kafka27-mixed": 0,
    # Two partitions with one thing wrong each: a flipped bit (4) and a torn tail, which is normal.
    "damaged": 4,
    # What the cleaner took cannot be replayed: UNSOUND.
    "kafka4-compacted": 1,
}
"""tests/snapshots/test_replay_partition.py replays every bundled partition."""


@pytest.mark.parametrize("fixture", EXIT_CODES)
def test_every_boundary_of_a_bundled_directory(fixture: str, tmp_path: Path) -> None:
    before = tree(bundled(fixture))
    run = in_json("rebuild", bundled(fixture).relative_to(REPOSITORY), "--out", tmp_path, *LINE)
    assert run.exit_code == EXIT_CODES[fixture], run.stderr
    expected = {
        each.partition: {segment.snapshot_offset: segment.entries for segment in each.segments}
        for each in partition_fixtures()
        if each.fixture == fixture
    }
    assert {path.name: snapshots_in(path) for path in tmp_path.iterdir()} == expected
    written = sum(map(len, expected.values()))
    assert run.totals == {"written": written}
    assert len(files_below(tmp_path)) == written, "nothing but snapshots"
    assert tree(bundled(fixture)) == before


# --- in place ----------------------------------------------------------------------------------------------------------------


def other_owner(root: Path) -> tuple[int, int]:
    """Gives everything to somebody else where that is possible, and modes that no umask makes."""
    ids = (4711, 4712) if os.getuid() == 0 else (os.getuid(), os.getgid())
    for path in (root, *root.rglob("*")):
        os.chown(path, *ids)
        path.chmod(0o750 if path.is_dir() else 0o640)
    return ids


def test_in_place_exactly_the_missing_files_appear(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    ids = other_owner(logs)
    before = tree(logs)
    first = in_json("rebuild", logs)
    assert first.exit_code == 0, first.stderr
    appeared, vanished, changed = changes(before, after := tree(logs))
    snapshots = {f"{name}/{snapshot_name(offset)}" for name, offsets in MISSING_IN_MIXED.items() for offset in offsets}
    # The lock that keeps a broker out meanwhile is a file that brokers leave there themselves.
    assert appeared == snapshots | {".lock"}
    assert (vanished, changed) == (set(), set())
    for name in sorted(snapshots):
        assert after[name][:3] == ("-rw-r-----", *ids)
    assert after[".lock"][:3] == ("-rw-r--r--", *ids)
    for partition in MISSING_IN_MIXED:
        assert snapshots_in(logs / partition) == truth("kafka27-mixed", partition)
    assert first.totals == {"written": 14}
    assert {each["class"] for name in MISSING_IN_MIXED for each in first.partition(name)["boundaries"]} == {"EXACT"}

    second = in_json("rebuild", logs)
    assert second.exit_code == 0
    assert second.totals == {}
    assert sum(partition["read_bytes"] for partition in second.document["partitions"]) == 0
    assert tree(logs) == after
    table = snaprebuild("rebuild", logs)
    assert table.exit_code == 0
    assert f"{NOTHING_TO_REBUILD}4 partitions" in table.stdout


def test_dry_run_writes_nothing_anywhere(tmp_path: Path) -> None:
    logs, out = copy_of("kafka27-mixed", tmp_path), tmp_path / "out"
    (logs / "mixed-0" / snapshot_name(8231)).write_bytes(EMPTY_SNAPSHOT)
    before = tree(logs)
    here = in_json("rebuild", logs, "--dry-run", "--set-aside")
    assert here.document["dry_run"] is True
    assert here.totals == {"would_write": 15, "equal": 8, "set_aside": 1}
    there = in_json("rebuild", logs, "--dry-run", "--out", out, "--boundaries", "all")
    assert there.totals == {"would_write": 23}
    assert tree(logs) == before
    assert not out.exists()


# --- wrong snapshots ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "reason", "data"),
    [
        ("wrong-snapshot", "false empty", EMPTY_SNAPSHOT),
        pytest.param("corrupt-snapshot", "", snapshot_bytes(truth("kafka27-mixed", "mixed-0")[7045])[:-20], marks=pytest.mark.full),
        pytest.param("wrong-snapshot", "stale", snapshot_bytes(truth("kafka27-mixed", "mixed-0")[6390]), marks=pytest.mark.full),
    ],
    ids=["false empty", "torn", "of the boundary before"],
)
def test_wrong_snapshots(code: str, reason: str, data: bytes, tmp_path: Path) -> None:
    """The one at 7045 is wrong; 7637 and 8231 are healthy."""
    logs = copy_of("kafka27-mixed", tmp_path)
    wrong = logs / "mixed-0" / snapshot_name(7045)
    wrong.write_bytes(data)
    before = tree(logs)
    run = in_json("rebuild", logs, "--as-of", "1795261244275")
    assert run.exit_code == 1
    assert "--set-aside" in run.messages(code)
    assert reason in run.messages(code)
    appeared, vanished, changed = changes(before, tree(logs))
    assert (len(appeared), vanished, changed) == (15, set(), set())
    assert wrong.read_bytes() == data, "kept, byte for byte"

    replaced = in_json("rebuild", logs, "--set-aside", "--as-of", "1795261244275")
    assert replaced.exit_code == 0, replaced.stderr
    assert snapshots_in(logs / "mixed-0") == truth("kafka27-mixed", "mixed-0")
    aside = logs / "mixed-0" / f"{snapshot_name(7045)}.set-aside.1"
    assert aside.read_bytes() == data
    assert replaced.totals == {"equal": 22, "written": 1, "set_aside": 1}
    (boundary,) = [each for each in replaced.partition("mixed-0")["boundaries"] if each["offset"] == 7045]
    assert boundary["set_aside_name"] == aside.name
    assert changes(before, tree(logs))[0] == appeared | {f"mixed-0/{aside.name}"}


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
    """Adds second names, as runs leave them that are killed between link and unlink."""
    left = [directory / f"{snapshot_name(offset)}.tmp" for offset in offsets]
    for path in left:
        path.hardlink_to(path.with_suffix(""))
    return left


def test_a_second_name_of_a_whole_snapshot_is_removed(tmp_path: Path) -> None:
    """The snapshots are there, so that there is nothing else to do for the partition; nothing but the name changes."""
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


def test_permission_problems_are_one_line_for_each_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    real = FileCalls.open

    def denied(calls: FileCalls, name: str, flags: int, *arguments: Any, **options: Any) -> int:
        if name.endswith(".snapshot.tmp"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(calls, name, flags, *arguments, **options)

    monkeypatch.setattr(FileCalls, "open", denied)
    process = ProcessUser(4711, 0, frozenset({0}))
    monkeypatch.setattr(ProcessUser, "current", lambda: process)
    for each in ("mixed-0", "logappend-0"):
        (logs / each).chmod(0o700)
    ran = snaprebuild("rebuild", logs, "--jobs", 1, "--receipt", tmp_path / "receipt")
    assert ran.exit_code == 5
    assert "Nothing was written; 14 failed in 2 of 4 partitions." in ran.stdout
    uid, gid = os.getuid(), os.getgid()
    owner = (
        f"{PROCESS_HAS}4711, gid 0; {SEGMENTS_HAVE}{uid}, gid {gid}; "
        f"{DIRECTORY_HAS}{uid}, gid {gid}, mode 0700. Run as uid {uid}, gid {gid} (of a container: --user {uid}:{gid})"
    )
    if uid != 0:
        owner += ", or as root"
    for line in (
        f"storage: {logs / 'mixed-0'}: permission denied: 12 snapshots not written. {owner} (storage-failed)",
        f"storage: {logs / 'logappend-0'}: permission denied: 2 snapshots not written. {owner} (storage-failed)",
    ):
        assert ran.stderr.splitlines().count(line) == 1
    assert ran.stderr.count("storage: ") == 2


def test_an_owner_who_may_not_write_is_not_sent_to_the_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o555)
    uid, gid = 4711, 4712
    monkeypatch.setattr(ProcessUser, "current", lambda: ProcessUser.owner_of(uid, gid))
    message = denied_finding(str(tmp_path), 2, Ownership(uid, gid, 0o644)).message
    tmp_path.chmod(0o755)
    assert message == (
        f"permission denied: 2 snapshots not written. {PROCESS_HAS}4711, gid 4712; {SEGMENTS_HAVE}4711, gid 4712; "
        f"{DIRECTORY_HAS}{os.getuid()}, gid {os.getgid()}, mode 0555. Run chown 4711:4712 {tmp_path} as root"
    )


def test_unsound_snapshots_need_all_boundaries(tmp_path: Path) -> None:
    """Without its compaction known, a compacted log looks like one that lost batches."""
    source = FIXTURES / "damaged/logs"
    run = snaprebuild("rebuild", source, "--out", tmp_path / "some", "--replay-from", "log-start", "--keep-expired")
    every = snaprebuild(
        "rebuild", source, "--out", tmp_path / "all", "--replay-from", "log-start", "--keep-expired", "--boundaries", "all"
    )
    written = {path.name for path in (tmp_path / "some").rglob("*.snapshot")}
    more = {path.name for path in (tmp_path / "all").rglob("*.snapshot")} - written
    assert more
    assert "UNSOUND" not in run.text.partition("Next: ")[0]
    assert re.search(r"UNSOUND: do not use (it|them)\.", every.text.partition("Next: ")[0])
    assert (run.exit_code, every.exit_code) == (4, 4)
