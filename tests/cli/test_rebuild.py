"""``rebuild`` as a user runs it: every bundled directory, in place and elsewhere, beside live brokers, on damaged logs and full disks."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import COMMAND, Run, in_json, live_broker, snaprebuild
from log_dirs import (
    EMPTY_SNAPSHOT,
    Entries,
    batch,
    changes,
    copy_of,
    cut,
    entries_in,
    flip,
    make_log_dir,
    remove_snapshots,
    snapshot_bytes,
    snapshot_name,
    snapshots_in,
    tree,
    truth,
    write_partition,
)
from manifests import FIXTURES, REPOSITORY, partition_fixtures

from formats.producer_snapshot import ProducerEntry

LINE = ("--boundaries", "all", "--replay-from", "log-start", "--keep-expired")
BUNDLED = sorted(path.parent.name for path in FIXTURES.glob("*/manifest.json"))

EXIT_CODES = {
    # Two partitions with a disease each: a flipped bit (4) and a torn tail, which is normal.
    "damaged": 4,
    # What the cleaner took cannot be replayed: UNSOUND.
    "kafka27-compacted": 1,
    "kafka4-compacted": 1,
    # Has a compacted partition, too.
    "kafka27-killed": 1,
    # A compacted internal topic.
    "txn-state": 1,
}

MISSING_IN_MIXED = {
    "mixed-0": (583, 1151, 1662, 2181, 2596, 3089, 3664, 4168, 4695, 5247, 5821, 6390),
    "logappend-0": (542, 1015),
}


def out_of(fixture: str, out: Path) -> dict[str, dict[int, Entries]]:
    """What a rebuild of a bundled directory must leave in ``out``: entries by directory and boundary, from the manifest."""
    if fixture == "follower-lost-state":
        return {str(path.relative_to(out)): snapshots_in(path) for path in {file.parent for file in out.rglob("*.snapshot")}}
    return {
        each.partition: {segment.snapshot_offset: segment.entries for segment in each.segments}
        for each in partition_fixtures()
        if each.fixture == fixture
    }


def files_below(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


# --- every bundled directory -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [(), ("--jobs", 1)], ids=["parallel", "sequential"])
@pytest.mark.parametrize("fixture", BUNDLED)
def test_every_boundary_of_a_bundled_directory(fixture: str, jobs: tuple[object, ...], tmp_path: Path) -> None:
    before = tree(FIXTURES / fixture)
    run = in_json("rebuild", f"fixtures/{fixture}", "--out", tmp_path, *LINE, *jobs)
    assert run.exit_code == EXIT_CODES.get(fixture, 0), run.stderr
    expected = out_of(fixture, tmp_path)
    assert expected
    found = {str(path.relative_to(tmp_path)): snapshots_in(path) for path in tmp_path.rglob("*") if path.is_dir()}
    if fixture not in ("follower-lost-state", "tiered-local"):
        assert found == expected
    for partition, boundaries in expected.items():
        assert found[partition] == boundaries
    written = sum(len(snapshots) for snapshots in found.values())
    assert run.document["totals"] == {"written": written}
    assert len(files_below(tmp_path)) == written, "nothing but snapshots"
    assert tree(FIXTURES / fixture) == before


def test_the_same_partition_on_two_nodes(tmp_path: Path) -> None:
    """Where names are not unique every partition stands below its path. The first offsets on disk differ, and so does the state."""
    run = in_json("rebuild", "fixtures/follower-lost-state", "--out", tmp_path, *LINE)
    assert run.exit_code == 0
    manifest = json.loads((FIXTURES / "follower-lost-state" / "manifest.json").read_text())
    whole = {int(offset): about["right_entries"] for offset, about in manifest["per_snapshot_offset"].items()}
    for node, bases in (("node1", manifest["leader"]["segments"]), ("node2", manifest["follower"]["segments"])):
        found = snapshots_in(tmp_path / node / "payments-0")
        assert sorted(found) == [*bases[1:], manifest["log_end_offset"]]
        for offset in found.keys() & whole.keys():
            right = {ProducerEntry(**entry) for entry in whole[offset]}
            # Whoever wrote at or above the first offset on disk is fixed by it; the others cannot be known from here.
            retained = {entry for entry in right if entry.last_offset >= bases[0]}
            assert retained <= found[offset]
            assert {entry.producer_id for entry in found[offset]} <= {entry.producer_id for entry in right}


def test_written_files_are_canonical(tmp_path: Path) -> None:
    """Sorted by producer id: equal states are equal bytes."""
    snaprebuild("rebuild", "fixtures/kafka4-mixed", "--out", tmp_path, *LINE)
    for partition, boundaries in ((name, truth("kafka4-mixed", name)) for name in ("mixed-0", "deleted-0", "plain-0", "logappend-0")):
        for offset, entries in boundaries.items():
            data = (tmp_path / partition / snapshot_name(offset)).read_bytes()
            assert data == snapshot_bytes(sorted(entries, key=lambda entry: entry.producer_id))


def test_a_log_directory_and_a_partition_can_be_named_too(tmp_path: Path) -> None:
    for number, path in enumerate(("fixtures/kafka27-mixed/logs", "fixtures/kafka27-mixed/logs/mixed-0")):
        run = in_json("rebuild", path, "--out", tmp_path / str(number), *LINE)
        assert run.exit_code == 0
        assert snapshots_in(tmp_path / str(number) / "mixed-0") == truth("kafka27-mixed", "mixed-0")


@pytest.mark.parametrize("as_of", ["0", "1795270000000", "2200-01-01T00:00:00Z", "now"])
@pytest.mark.parametrize("replay_from", ["auto", "window", "log-start"])
def test_kept_expired_entries_do_not_depend_on_the_clock(as_of: str, replay_from: str, tmp_path: Path) -> None:
    run = in_json(
        "rebuild", "fixtures/kafka27-mixed/logs/mixed-0", "--out", tmp_path, "--boundaries", "all", "--replay-from", replay_from, "--as-of", as_of
    )
    expected = truth("kafka27-mixed", "mixed-0")
    found = snapshots_in(tmp_path / "mixed-0")
    classes = {each["offset"]: each["class"] for each in run.partition("mixed-0")["boundaries"]}
    for offset, entries in found.items():
        if classes[offset].startswith("EXACT"):
            assert entries == expected[offset]
    if replay_from != "window":
        assert run.exit_code == 0
        assert found == expected


# --- in place --------------------------------------------------------------------------------------------------------------


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
    # The lock that keeps a broker out meanwhile is a file that brokers leave behind themselves.
    assert appeared == snapshots | {".lock"}
    assert (vanished, changed) == (set(), set())
    for name in sorted(snapshots):
        assert after[name][:3] == ("-rw-r-----", *ids)
    assert after[".lock"][:3] == ("-rw-r--r--", *ids)
    for partition in MISSING_IN_MIXED:
        assert snapshots_in(logs / partition) == truth("kafka27-mixed", partition)
    assert first.document["totals"] == {"written": 14}
    assert {each["class"] for name in MISSING_IN_MIXED for each in first.partition(name)["boundaries"]} == {"EXACT"}

    second = in_json("rebuild", logs)
    assert second.exit_code == 0
    assert second.document["totals"] == {}
    assert sum(partition["bytes_read"] for partition in second.document["partitions"]) == 0
    assert tree(logs) == after
    table = snaprebuild("rebuild", logs)
    assert table.exit_code == 0
    assert "4 partitions: nothing to do" in table.stdout


def test_in_place_all_boundaries_again(tmp_path: Path) -> None:
    """Those that are there are compared, none is touched."""
    logs = copy_of("kafka27-mixed", tmp_path)
    before = tree(logs)
    run = in_json("rebuild", logs, "--boundaries", "all")
    assert run.exit_code == 0
    assert run.document["totals"] == {"written": 14, "equal": 9}
    assert changes(before, tree(logs))[1:] == (set(), set())


def test_in_place_in_an_unclean_directory_nothing_above_the_recovery_point(tmp_path: Path) -> None:
    logs = copy_of("kafka27-killed", tmp_path)
    for partition in logs.iterdir():
        if partition.is_dir():
            remove_snapshots(partition)
    before = tree(logs)
    run = in_json("rebuild", logs)
    appeared, vanished, changed = changes(before, tree(logs))
    # k-magicup-0 alone has a recovery point above 0: 2516, which is a boundary.
    points = [407, 810, 1239, 1680, 2516]
    assert appeared == {f"k-magicup-0/{snapshot_name(offset)}" for offset in points} | {".lock"}
    assert (vanished, changed) == (set(), set())
    assert run.exit_code == 0
    assert snapshots_in(logs / "k-magicup-0") == {offset: truth("kafka27-killed", "k-magicup-0")[offset] for offset in points}
    reasons = {each["reason"] for each in run.partition("k-mixed-0")["left_out"]}
    assert any("not shut down cleanly: above its recovery point 0" in reason for reason in reasons)
    assert any("it writes the one at the log end itself" in reason for reason in reasons)


@pytest.mark.parametrize("fixture", ["txn-state", "txn-state4", "kafka27-compacted", "kafka4-compacted", "kraft-metadata", "kraft-metadata-moved"])
@pytest.mark.parametrize("options", [(), ("--boundaries", "all", "--set-aside", "--allow-unproven")], ids=["default", "everything"])
def test_in_place_never_in_internal_compacted_or_metadata_partitions(fixture: str, options: tuple[str, ...], tmp_path: Path) -> None:
    logs = copy_of(fixture, tmp_path)
    if not options:
        for partition in logs.iterdir():
            if partition.is_dir():
                remove_snapshots(partition)
    before = tree(logs)
    run = in_json("rebuild", logs, *options)
    assert changes(before, tree(logs)) == (set() if not run.document["totals"] else {".lock"}, set(), set())
    assert run.exit_code == 0
    assert "written" not in run.document["totals"]
    if not options:
        assert all(partition["left_out"] for partition in run.document["partitions"])


@pytest.mark.parametrize(("fixture", "log_start", "written"), [("kafka27-mixed", 298, [477, 997]), ("kafka4-mixed", 454, [648, 1127, 1487])])
def test_in_place_behind_a_log_start(fixture: str, log_start: int, written: list[int], tmp_path: Path) -> None:
    """The log start lies inside the first segment, or on a boundary, or above one: a broker deletes snapshots at or below it."""
    logs = copy_of(fixture, tmp_path)
    assert f"deleted 0 {log_start}" in (logs / "log-start-offset-checkpoint").read_text()
    for start, expected in ((log_start, written), (written[0], written[1:]), (written[0] + 1, written[1:])):
        remove_snapshots(logs / "deleted-0")
        (logs / "log-start-offset-checkpoint").write_text(f"0\n1\ndeleted 0 {start}\n")
        run = in_json("rebuild", logs, "--topic", "deleted")
        assert run.exit_code == 0
        assert snapshots_in(logs / "deleted-0") == {offset: truth(fixture, "deleted-0")[offset] for offset in expected}
        assert [each["offset"] for each in run.partition("deleted-0")["left_out"]] == [offset for offset in written if offset <= start]


def test_in_place_the_log_end_after_a_clean_stop(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    remove_snapshots(logs / "mixed-0", 8231)
    (logs / ".kafka_cleanshutdown").unlink()
    run = in_json("rebuild", logs, "--topic", "mixed")
    assert 8231 in {each["offset"] for each in run.partition("mixed-0")["left_out"]}
    assert 8231 not in snapshots_in(logs / "mixed-0")
    (logs / ".kafka_cleanshutdown").write_bytes(b"")
    run = in_json("rebuild", logs, "--topic", "mixed")
    assert run.actions("mixed-0") == {8231: "written"}
    assert snapshots_in(logs / "mixed-0") == truth("kafka27-mixed", "mixed-0")


def test_a_proven_empty_snapshot_is_no_finding(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    remove_snapshots(logs / "plain-0")
    run = in_json("rebuild", logs, "--topic", "plain")
    assert (run.exit_code, run.document["findings"]) == (0, [])
    assert (logs / "plain-0" / snapshot_name(559)).read_bytes() == EMPTY_SNAPSHOT


def test_dry_run_writes_nothing_anywhere(tmp_path: Path) -> None:
    logs, out = copy_of("kafka27-mixed", tmp_path), tmp_path / "out"
    (logs / "mixed-0" / snapshot_name(8231)).write_bytes(EMPTY_SNAPSHOT)
    before = tree(logs)
    here = in_json("rebuild", logs, "--dry-run", "--set-aside")
    assert here.document["dry_run"] is True
    assert here.document["totals"] == {"would_write": 15, "equal": 8}
    there = in_json("rebuild", logs, "--dry-run", "--out", out, "--boundaries", "all")
    assert there.document["totals"] == {"would_write": 23}
    assert tree(logs) == before
    assert not out.exists()


# --- live brokers ----------------------------------------------------------------------------------------------------------


def test_a_live_broker_is_refused(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / ".lock").write_bytes(b"")
    before = tree(logs)
    with live_broker(logs) as process_id:
        run = in_json("rebuild", logs)
    assert run.exit_code == 3
    assert f"is held by process {process_id}" in run.messages("refused")
    assert run.document["totals"] == {"left_out": 14}
    assert tree(logs) == before


def test_readers_run_beside_a_live_broker(tmp_path: Path) -> None:
    logs, out = copy_of("kafka27-mixed", tmp_path), tmp_path / "out"
    (logs / ".lock").write_bytes(b"")
    before = tree(logs)
    with live_broker(logs):
        dry = in_json("rebuild", logs, "--dry-run")
        elsewhere = in_json("rebuild", logs, "--out", out)
        verified = in_json("verify", logs)
        planned = in_json("plan", logs)
        told = snaprebuild("rebuild", logs, "--dry-run", "-v")
    assert [run.exit_code for run in (dry, elsewhere, verified, planned, told)] == [0] * 5
    for run in (dry, elsewhere):
        assert "a live broker holds this log directory" in run.messages("live-broker")
    assert "note: " in told.stderr
    assert "a live broker holds" in told.stderr
    assert len(files_below(out)) == 14
    assert tree(logs) == before


def test_a_lock_file_alone_means_nothing(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / ".lock").write_bytes(b"")
    run = in_json("rebuild", logs)
    assert (run.exit_code, run.document["totals"]) == (0, {"written": 14})


def test_a_live_broker_on_one_disk_does_not_stop_the_other(tmp_path: Path) -> None:
    one, other = copy_of("kafka27-mixed", tmp_path), copy_of("kafka4-mixed", tmp_path)
    for partition in other.iterdir():
        if partition.is_dir():
            remove_snapshots(partition)
    with live_broker(one):
        run = in_json("rebuild", tmp_path)
    assert run.exit_code == 3
    assert snapshots_in(other / "mixed-0") == truth("kafka4-mixed", "mixed-0")
    assert sorted(snapshots_in(one / "mixed-0")) == [7045, 7637, 8231]


# --- where it goes ---------------------------------------------------------------------------------------------------------


def test_out_inside_a_log_directory_is_refused(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    (tmp_path / "link").symlink_to(logs)
    before = tree(logs)
    for out in (logs, logs / "out", logs / "mixed-0", logs / "a" / "b", tmp_path / "link" / "out"):
        run = snaprebuild("rebuild", logs, "--out", out)
        assert (run.exit_code, run.stdout) == (3, "")
        assert "lies in the log directory" in run.stderr
    assert tree(logs) == before


def test_out_beside_a_bare_partition(tmp_path: Path) -> None:
    """Without the files of a broker the directory around is no log directory."""
    partition = Path(shutil.copytree(FIXTURES / "kafka27-mixed" / "logs" / "mixed-0", tmp_path / "mixed-0"))
    run = in_json("rebuild", partition, "--out", tmp_path / "out", "--boundaries", "all")
    assert run.exit_code == 0
    assert snapshots_in(tmp_path / "out" / "mixed-0") == truth("kafka27-mixed", "mixed-0")
    assert snaprebuild("rebuild", partition, "--out", partition / "out").exit_code == 3


def test_out_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("text")
    run = snaprebuild("rebuild", "fixtures/magic0", "--out", tmp_path / "out")
    assert (run.exit_code, run.stdout) == (2, "")
    assert (tmp_path / "out").read_text() == "text"


def test_existing_files_in_out(tmp_path: Path) -> None:
    target = tmp_path / "mixed-0"
    target.mkdir()
    right, wrong = truth("kafka27-mixed", "mixed-0")[583], truth("kafka27-mixed", "mixed-0")[1151]
    # Equal as a map, in an order of its own; and one producer less; and no snapshot at all.
    (target / snapshot_name(583)).write_bytes(snapshot_bytes(sorted(right, key=lambda entry: -entry.producer_id)))
    (target / snapshot_name(1151)).write_bytes(snapshot_bytes(sorted(wrong, key=lambda entry: entry.producer_id)[1:]))
    (target / snapshot_name(1662)).write_bytes(b"garbage")
    before = tree(tmp_path)
    run = in_json("rebuild", "fixtures/kafka27-mixed/logs/mixed-0", "--out", tmp_path, *LINE, "--as-of", "1795261244275")
    assert run.exit_code == 1
    assert {offset: action for offset, action in run.actions("mixed-0").items() if offset <= 1662} == {583: "equal", 1151: "kept", 1662: "kept"}
    assert run.codes == {"different-file": 2}
    assert changes(before, tree(tmp_path))[1:] == (set(), set())
    again = in_json("rebuild", "fixtures/kafka27-mixed/logs/mixed-0", "--out", tmp_path, *LINE, "--as-of", "1795261244275")
    assert again.document["totals"] == {"equal": 13, "kept": 2}


def test_the_second_run_into_out_finds_everything_done(tmp_path: Path) -> None:
    for totals in ({"written": 23}, {"equal": 23}):
        run = in_json("rebuild", "fixtures/kafka27-mixed", "--out", tmp_path, *LINE)
        assert (run.exit_code, run.document["totals"]) == (0, totals)
        before = tree(tmp_path) if totals == {"written": 23} else before
    assert tree(tmp_path) == before


def test_one_topic_partition_in_two_log_directories(tmp_path: Path) -> None:
    for disk in ("disk1", "disk2"):
        (tmp_path / "host" / disk).mkdir(parents=True)
        shutil.copytree(FIXTURES / "kafka27-mixed" / "logs", tmp_path / "host" / disk / "logs")
    out = tmp_path / "out"
    run = in_json("rebuild", tmp_path / "host", "--out", out, *LINE)
    assert run.exit_code == 0
    for disk in ("disk1", "disk2"):
        assert snapshots_in(out / disk / "logs" / "mixed-0") == truth("kafka27-mixed", "mixed-0")
        # For all, not only for those that collide.
        assert snapshots_in(out / disk / "logs" / "plain-0") == truth("kafka27-mixed", "plain-0")


def test_two_roots_that_would_collide(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for root in (one, other):
        write_partition(make_log_dir(root) / "t-0", {0: batch(0)})
    run = snaprebuild("rebuild", one, other, "--out", tmp_path / "out")
    assert (run.exit_code, run.stdout) == (2, "")
    assert "would be written to the same place" in run.stderr
    assert not (tmp_path / "out").exists()


def test_the_same_partition_twice(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    (tmp_path / "link").symlink_to(logs)
    run = in_json("rebuild", logs, logs / "mixed-0", tmp_path / "link", "--out", tmp_path / "out", "--boundaries", "all")
    assert run.exit_code == 0
    assert run.document["totals"] == {"written": 23}
    assert run.codes == {"duplicate-path": 5}
    assert snapshots_in(tmp_path / "out" / "mixed-0") == truth("kafka27-mixed", "mixed-0")


def test_several_log_directories(tmp_path: Path) -> None:
    run = in_json("rebuild", "fixtures/kafka27-mixed/logs", "fixtures/magic0/logs", "fixtures/magicup/logs", "--out", tmp_path, *LINE)
    assert run.exit_code == 0
    for fixture, partition in (("kafka27-mixed", "mixed-0"), ("magic0", "magic0-0"), ("magicup", "magicup-0")):
        assert snapshots_in(tmp_path / partition) == truth(fixture, partition)


# --- selection and configuration -------------------------------------------------------------------------------------------


def test_selection(tmp_path: Path) -> None:
    def rebuilt(*options: object) -> set[tuple[str, int]]:
        run = in_json("rebuild", "fixtures/kafka27-mixed", "--dry-run", "--out", tmp_path, "--boundaries", "all", *options)
        assert run.exit_code == 0
        return {(each["topic_partition"], at["offset"]) for each in run.document["partitions"] for at in each["boundaries"]}

    everything = {(each.partition, s.snapshot_offset) for each in partition_fixtures() if each.fixture == "kafka27-mixed" for s in each.segments}
    assert rebuilt() == everything
    assert rebuilt("--topic", "m*") == {(name, at) for name, at in everything if name == "mixed-0"}
    assert rebuilt("--topic", "plain", "--topic", "del*") == {(name, at) for name, at in everything if name in ("plain-0", "deleted-0")}
    assert rebuilt("--partition", 0) == everything
    assert rebuilt("--partition", 1) == set()
    assert rebuilt("--offsets", "583:1151") == {("mixed-0", 583), ("mixed-0", 1151), ("logappend-0", 1015), ("deleted-0", 997)}
    assert rebuilt("--offsets", "7045") == {("mixed-0", 7045)}
    assert rebuilt("--offsets", ":542") == {("logappend-0", 542), ("deleted-0", 477)}
    assert rebuilt("--offsets", "8000:") == {("mixed-0", 8231)}


@pytest.mark.parametrize("offset", [583, 4168, 7637, 8231])
@pytest.mark.parametrize("replay_from", ["auto", "log-start"])
def test_one_boundary_alone(offset: int, replay_from: str, tmp_path: Path) -> None:
    options = ("--offsets", offset, "--boundaries", "all", "--replay-from", replay_from)
    in_json("rebuild", "fixtures/kafka27-mixed", "--topic", "mixed", "--out", tmp_path, *options)
    assert snapshots_in(tmp_path / "mixed-0") == {offset: truth("kafka27-mixed", "mixed-0")[offset]}


def test_server_properties(tmp_path: Path) -> None:
    one, other = copy_of("kafka27-mixed", tmp_path), copy_of("magic0", tmp_path)
    remove_snapshots(other / "magic0-0")
    properties = tmp_path / "server.properties"
    properties.write_text(f"broker.id=1\nlog.dirs={one}, \\\n   {other}\nproducer.id.expiration.ms=3600000\n")
    run = in_json("rebuild", "--server-properties", properties)
    assert run.exit_code == 0
    assert run.document["expiration_ms"] == 3_600_000
    assert snapshots_in(one / "mixed-0") == truth("kafka27-mixed", "mixed-0")
    assert snapshots_in(other / "magic0-0") == truth("magic0", "magic0-0")
    overruled = in_json("rebuild", "--server-properties", properties, "--expiration-ms", 5000, "--dry-run")
    assert overruled.document["expiration_ms"] == 5000


def live_at(entries: Entries, as_of_ms: int, expiration_ms: int) -> Entries:
    """What a broker keeps when it loads them (``ProducerStateManager.isProducerExpired``): equality expires, open transactions never."""
    return frozenset(e for e in entries if e.current_txn_first_offset >= 0 or as_of_ms - e.timestamp < expiration_ms)


def test_drop_expired(tmp_path: Path) -> None:
    expected = truth("kafka27-mixed", "mixed-0")
    newest = sorted(entry.timestamp for entry in expected[8231])
    as_of = newest[len(newest) // 2] + 3_600_000
    options = ("--drop-expired", "--as-of", as_of, "--expiration-ms", 3_600_000)
    run = in_json("rebuild", "fixtures/kafka27-mixed/logs/mixed-0", "--out", tmp_path, "--boundaries", "all", *options)
    assert run.exit_code == 0
    assert snapshots_in(tmp_path / "mixed-0") == {at: live_at(entries, as_of, 3_600_000) for at, entries in expected.items()}
    last = run.partition("mixed-0")["boundaries"][-1]
    dropped = len(expected[8231]) - last["entries"]
    assert 0 < dropped < len(expected[8231])
    assert last["class"] == "LOAD_EQUIVALENT"
    assert last["reasons"][0] == f"{dropped} expired entries were left out as asked"
    assert run.document["request"]["drop_expired"] is True
    # By the same filter the full ones are equal to these.
    again = in_json("rebuild", "fixtures/kafka27-mixed/logs/mixed-0", "--out", tmp_path, "--boundaries", "all", *options[1:])
    assert again.document["totals"] == {"equal": 15}


def test_drop_expired_in_the_far_future(tmp_path: Path) -> None:
    """Nothing but the two hanging transactions is left."""
    run = in_json(
        "rebuild", "fixtures/kafka27-mixed/logs/mixed-0", "--out", tmp_path, "--boundaries", "all", "--drop-expired", "--as-of", "2200-01-01"
    )
    assert run.exit_code == 0
    last = snapshots_in(tmp_path / "mixed-0")[8231]
    assert {entry.current_txn_first_offset for entry in last} == {6913, 8226}
    assert last == {entry for entry in truth("kafka27-mixed", "mixed-0")[8231] if entry.current_txn_first_offset >= 0}


# --- wrong snapshots -------------------------------------------------------------------------------------------------------


def stale_one(directory: Path) -> bytes:
    """A snapshot of the boundary before, under the name of this one."""
    return snapshot_bytes(truth("kafka27-mixed", "mixed-0")[6390])


WRONG = {
    "false_empty": EMPTY_SNAPSHOT,
    "torn": snapshot_bytes(truth("kafka27-mixed", "mixed-0")[7045])[:-20],
    "bad checksum": snapshot_bytes(truth("kafka27-mixed", "mixed-0")[7045])[:-1] + b"\x07",
    "no bytes": b"",
    "stale": snapshot_bytes(truth("kafka27-mixed", "mixed-0")[6390]),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("as_of", ["1795261244275", "now", "2200-01-01"])
def test_wrong_snapshots(kind: str, as_of: str, tmp_path: Path) -> None:
    """The one at 7045 is wrong; 7637 and 8231 are healthy. Where everything but open transactions has expired a stale one is right again."""
    logs = copy_of("kafka27-mixed", tmp_path)
    wrong = logs / "mixed-0" / snapshot_name(7045)
    wrong.write_bytes(WRONG[kind])
    before = tree(logs)
    run = in_json("rebuild", logs, "--as-of", as_of)
    assert run.exit_code == 1
    told = run.messages("corrupt-snapshot") + run.messages("wrong-snapshot")
    assert "--set-aside" in told
    assert kind not in ("false_empty", "stale") or kind in told or as_of != "1795261244275"
    appeared, vanished, changed = changes(before, tree(logs))
    assert (len(appeared), vanished, changed) == (15, set(), set())
    assert wrong.read_bytes() == WRONG[kind], "kept, byte for byte"

    replaced = in_json("rebuild", logs, "--set-aside", "--as-of", as_of)
    assert replaced.exit_code == 0, replaced.stderr
    assert snapshots_in(logs / "mixed-0") == truth("kafka27-mixed", "mixed-0")
    aside = logs / "mixed-0" / f"{snapshot_name(7045)}.set-aside.1"
    assert aside.read_bytes() == WRONG[kind]
    assert replaced.document["totals"] == {"equal": 22, "written": 1}
    (boundary,) = [each for each in replaced.partition("mixed-0")["boundaries"] if each["offset"] == 7045]
    assert boundary["set_aside"] == aside.name
    assert changes(before, tree(logs))[0] == appeared | {f"mixed-0/{aside.name}"}
    assert in_json("rebuild", logs, "--as-of", as_of).exit_code == 0


def test_the_empty_snapshots_that_a_broker_writes_where_it_found_none(tmp_path: Path) -> None:
    """4.3.1 writes three 10-byte files at the last two bases and the log end, without replay, and forgets two hanging transactions."""
    logs = copy_of("kafka27-mixed", tmp_path)
    for offset in (7045, 7637, 8231):
        (logs / "mixed-0" / snapshot_name(offset)).write_bytes(EMPTY_SNAPSHOT)
    run = in_json("rebuild", logs)
    assert run.exit_code == 1
    assert run.codes["wrong-snapshot"] == 3
    assert run.messages("wrong-snapshot").count("false_empty") == 3
    replaced = in_json("rebuild", logs, "--set-aside")
    assert replaced.exit_code == 0
    assert snapshots_in(logs / "mixed-0") == truth("kafka27-mixed", "mixed-0")
    for offset in (7045, 7637, 8231):
        assert (logs / "mixed-0" / f"{snapshot_name(offset)}.set-aside.1").read_bytes() == EMPTY_SNAPSHOT
        # `ProducerStateManager.listSnapshotFiles` takes every name that ends in .snapshot.
    assert not [path for path in (logs / "mixed-0").iterdir() if path.name.endswith(".snapshot") and len(path.name) != 29]


def test_set_aside_twice(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    wrong = logs / "mixed-0" / snapshot_name(7045)
    for number in (1, 2):
        wrong.unlink()
        wrong.write_bytes(EMPTY_SNAPSHOT)
        assert in_json("rebuild", logs, "--set-aside").exit_code == 0
        assert (logs / "mixed-0" / f"{wrong.name}.set-aside.{number}").read_bytes() == EMPTY_SNAPSHOT
    assert entries_in(wrong.read_bytes()) == truth("kafka27-mixed", "mixed-0")[7045]


@pytest.mark.parametrize("fixture", ["kafka27-mixed", "kafka4-mixed", "magic1", "magicup", "tiered-local"])
@pytest.mark.parametrize("as_of", ["0", "now", "2200-01-01"])
def test_healthy_snapshots_are_never_set_aside(fixture: str, as_of: str, tmp_path: Path) -> None:
    logs = copy_of(fixture, tmp_path)
    before = tree(logs)
    run = in_json("rebuild", logs, "--set-aside", "--boundaries", "all", "--as-of", as_of)
    assert run.exit_code == 0
    assert changes(before, tree(logs))[1:] == (set(), set())
    assert not list(logs.rglob("*set-aside*"))


# --- forms of directories --------------------------------------------------------------------------------------------------

UNIQUE = "0123456789abcdef0123456789abcdef"
FORMS = {"delete": f"mixed-0.{UNIQUE}-delete", "stray": f"mixed-0.{UNIQUE}-stray", "future": f"mixed-0.{UNIQUE}-future"}


@pytest.mark.parametrize("form", FORMS)
def test_a_directory_that_a_broker_gave_up(form: str, tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    odd = Path(shutil.copytree(logs / "mixed-0", logs / FORMS[form]))
    before = tree(odd)
    run = in_json("rebuild", logs)
    assert run.exit_code == 1
    assert str(odd) in run.messages(f"{form}-directory")
    assert run.document["totals"] == {"written": 14}
    named = in_json("rebuild", odd, "--out", tmp_path / "out")
    assert named.exit_code == 3
    assert named.document["partitions"] == []
    assert tree(odd) == before
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", [f"{583:020d}.log.swap", f"{583:020d}.log.cleaned", f"{583:020d}.index.cleaned"])
def test_an_interrupted_compaction(name: str, tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "mixed-0" / name).write_bytes(b"")
    run = in_json("rebuild", logs)
    assert run.exit_code == 1
    assert name in run.messages("interrupted-compaction")
    assert run.document["totals"] == {"written": 2}
    assert sorted(snapshots_in(logs / "mixed-0")) == [7045, 7637, 8231]
    assert in_json("rebuild", logs / "mixed-0").exit_code == 3
    assert sorted(snapshots_in(logs / "mixed-0")) == [7045, 7637, 8231]


def test_partitions_without_anything_to_say(tmp_path: Path) -> None:
    """No segment; log end 0; an empty segment that is the only one; an empty last segment."""
    logs = make_log_dir(tmp_path / "logs")
    (logs / "none-0").mkdir()
    write_partition(logs / "zero-0", {0: b""})
    write_partition(logs / "moved-0", {100: b""})
    write_partition(logs / "rolled-0", {0: batch(0, producer_id=7), 1: b""})
    out = tmp_path / "out"
    run = in_json("rebuild", logs, "--out", out, *LINE)
    assert run.exit_code == 0
    assert {each["topic_partition"] for each in run.document["partitions"]} == {"none-0", "zero-0", "moved-0", "rolled-0"}
    assert run.codes == {"no-segment": 1}
    assert files_below(out) == {f"moved-0/{snapshot_name(100)}", f"rolled-0/{snapshot_name(1)}"}
    assert (out / "moved-0" / snapshot_name(100)).read_bytes() == EMPTY_SNAPSHOT
    assert snapshots_in(out / "rolled-0") == {1: {ProducerEntry(7, 0, 0, 0, 0, 1000)}}
    here = in_json("rebuild", logs)
    assert here.exit_code == 0
    assert files_below(logs / "rolled-0") == {f"{0:020d}.log", f"{1:020d}.log", snapshot_name(1)}
    # 100 is its log start, too: a broker deletes a snapshot there.
    assert files_below(logs / "moved-0") == {f"{100:020d}.log"}


@pytest.mark.parametrize("rest", [b"\0" * 5000, batch(2)[:30], batch(2)[:-1], b"\0" * 3], ids=["preallocated", "torn header", "torn batch", "zeros"])
@pytest.mark.parametrize("where", ["in place", "elsewhere"])
def test_a_last_segment_without_a_whole_batch(rest: bytes, where: str, tmp_path: Path) -> None:
    """Its base offset is the log end, once."""
    logs = make_log_dir(tmp_path / "logs")
    write_partition(logs / "t-0", {0: batch(0, producer_id=7), 1: batch(1, producer_id=7, sequence=1), 2: rest})
    out = () if where == "in place" else ("--out", tmp_path / "out")
    run = in_json("rebuild", logs, *out)
    assert run.exit_code == 0, run.stderr
    expected = {1: {ProducerEntry(7, 0, 0, 0, 0, 1000)}, 2: {ProducerEntry(7, 0, 1, 1, 0, 1000)}}
    assert snapshots_in(logs / "t-0" if where == "in place" else tmp_path / "out" / "t-0") == expected
    assert run.actions("t-0") == {1: "written", 2: "written"}
    assert [each["offset"] for each in run.partition("t-0")["boundaries"]] == [1, 2]


def test_a_gap_in_the_middle(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    remove_snapshots(logs / "mixed-0")
    for suffix in ("log", "index", "timeindex", "txnindex"):
        (logs / "mixed-0" / f"{2181:020d}.{suffix}").unlink()
    out = tmp_path / "out"
    run = in_json("rebuild", logs, "--topic", "mixed", "--out", out, *LINE)
    assert run.exit_code == 1
    classes = {each["offset"]: each["class"] for each in run.partition("mixed-0")["boundaries"]}
    assert {klass for offset, klass in classes.items() if offset <= 1662} == {"EXACT"}
    assert {klass for offset, klass in classes.items() if offset > 1662} == {"UNSOUND"}
    assert 2181 not in classes
    assert {at: entries for at, entries in snapshots_in(out / "mixed-0").items() if at <= 1662} == {
        at: entries for at, entries in truth("kafka27-mixed", "mixed-0").items() if at <= 1662
    }
    here = in_json("rebuild", logs, "--topic", "mixed")
    assert here.exit_code == 1
    assert sorted(snapshots_in(logs / "mixed-0")) == [583, 1151, 1662]


# --- damage ----------------------------------------------------------------------------------------------------------------


def test_a_torn_tail_in_the_last_segment(tmp_path: Path) -> None:
    run = in_json("rebuild", "fixtures/damaged/logs/torn-tail-0", "--out", tmp_path, *LINE)
    assert run.exit_code == 0
    assert snapshots_in(tmp_path / "torn-tail-0") == truth("damaged", "torn-tail-0")
    last = run.partition("torn-tail-0")["boundaries"][-1]
    assert (last["offset"], last["is_log_end"], last["class"]) == (2236, True, "EXACT")
    assert any("the last segment ends with torn bytes" in reason for reason in last["reasons"])


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


@pytest.mark.parametrize(
    ("field", "mask"),
    [(8, 0x80), (8, 0x01), (10, 0x20), (11, 0x01), (16, 0x40), (16, 0x02), (16, 0x80)],
    ids=["negative length", "huge length", "long length", "odd length", "magic 66", "magic 0", "negative magic"],
)
def test_a_flipped_bit_in_a_header(field: int, mask: int, tmp_path: Path) -> None:
    """In the first batch of the segment at 2181: the walk ends there, or goes astray and ends soon."""
    logs = copy_of("kafka27-mixed", tmp_path)
    flip(logs / "mixed-0" / f"{2181:020d}.log", field, mask)
    rebuild_damaged(tmp_path, logs, 2181)


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


def test_a_batch_on_which_every_broker_throws(tmp_path: Path) -> None:
    """A batch outside of the transaction that its producer has open (``InvalidTxnStateException``)."""
    logs = make_log_dir(tmp_path / "logs")
    poison = batch(1, producer_id=7, sequence=1)
    segments = {0: batch(0, producer_id=7, attributes=0x10), 1: poison, 2: batch(2, producer_id=8), 3: batch(3)}
    write_partition(logs / "t-0", segments)
    for where, target in ((("--out", tmp_path / "out"), tmp_path / "out" / "t-0"), ((), logs / "t-0")):
        run = in_json("rebuild", logs, "--boundaries", "all", *where)
        assert run.exit_code == 4
        assert snapshots_in(target) == {1: {ProducerEntry(7, 0, 0, 0, 0, 1000, -1, 0)}}
        assert "InvalidTxnStateException" in run.messages("damaged-segment")


IRREGULAR = {
    "directory": lambda path: path.mkdir(),
    "pipe": lambda path: os.mkfifo(path),
    "link": lambda path: path.symlink_to(FIXTURES / "kafka4-mixed" / "logs" / "mixed-0" / f"{687:020d}.log"),
    "dangling link": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("kind", IRREGULAR)
@pytest.mark.parametrize("base", [0, 2181, 7637], ids=["first", "middle", "last"])
def test_a_segment_that_is_no_file(kind: str, base: int, tmp_path: Path) -> None:
    """It neither hangs the run nor is it followed, and nothing above it is made up."""
    logs = copy_of("kafka27-mixed", tmp_path)
    path = logs / "mixed-0" / f"{base:020d}.log"
    path.unlink()
    IRREGULAR[kind](path)
    rebuild_damaged(tmp_path, logs, base, code=5)


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_segment_that_we_may_not_read(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "mixed-0" / f"{2181:020d}.log").chmod(0)
    rebuild_damaged(tmp_path, logs, 2181, code=5)


def test_a_snapshot_name_that_is_taken_by_something_else(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "mixed-0" / snapshot_name(583)).mkdir()
    run = in_json("rebuild", logs)
    assert run.exit_code in (3, 5)
    assert (logs / "mixed-0" / snapshot_name(583)).is_dir()
    assert snapshots_in(logs / "logappend-0") == truth("kafka27-mixed", "logappend-0")


# --- storage that fails, runs that are killed ------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """64 KiB of memory as a disk."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    if os.getuid() != 0 or shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a file system can be mounted by root only")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


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


@pytest.mark.parametrize("written_before", [1, 4, 9])
def test_a_run_that_is_killed_between_files(written_before: int, tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    before = tree(logs)
    killed = subprocess.Popen([*COMMAND, "rebuild", str(logs), "--jobs", "1"], cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while len(list(logs.rglob("*.snapshot"))) < 9 + written_before and killed.poll() is None and time.monotonic() < deadline:
        pass
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    appeared, vanished, changed = changes(before, tree(logs))
    assert (vanished, changed) == (set(), set())
    assert len(appeared) >= written_before
    for partition in MISSING_IN_MIXED:
        expected = truth("kafka27-mixed", partition)
        assert all(entries == expected[offset] for offset, entries in snapshots_in(logs / partition).items()), "no half file"
    again = in_json("rebuild", logs)
    assert again.exit_code == 0
    for partition in MISSING_IN_MIXED:
        assert snapshots_in(logs / partition) == truth("kafka27-mixed", partition)
    assert not list(logs.rglob("*.tmp")), "what the killed run left over is gone"


def test_left_over_temporary_files_are_no_obstacle(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "mixed-0" / f"{snapshot_name(583)}.tmp").write_bytes(b"half a fi")
    assert in_json("rebuild", logs).exit_code == 0
    assert snapshots_in(logs / "mixed-0") == truth("kafka27-mixed", "mixed-0")
    assert not list(logs.rglob("*.tmp"))


@pytest.mark.skipif(os.getuid() == 0, reason="root may give files away")
def test_an_owner_that_cannot_be_kept(tmp_path: Path) -> None:
    """Another group, which an ordinary user may not give away."""
    pytest.skip("needs a second account")


def test_an_owner_that_cannot_be_kept_as_nobody(tmp_path: Path) -> None:
    """Somebody who may write into the directory, but may not give files to the owner of the segments."""
    if os.getuid() != 0:
        pytest.skip("needs root to become somebody else")
    logs = copy_of("kafka27-mixed", tmp_path)
    for path in (tmp_path, logs, *logs.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    for parent in tmp_path.parents:
        if parent != Path("/") and not parent.stat().st_mode & 0o001:
            pytest.skip(f"{parent} is closed to others")
    before = tree(logs)
    code = (
        "import os,sys; os.setgroups([]); os.setresgid(65534,65534,65534); os.setresuid(65534,65534,65534);"
        "sys.argv=['snaprebuild','rebuild',sys.argv[1],'--jobs','1']; sys.path.insert(0, sys.path[0] or '.');"
        "from snaprebuild.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, str(logs)], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if "PermissionError" in done.stderr or "ModuleNotFoundError" in done.stderr:
        pytest.skip("this checkout is closed to others")
    assert done.returncode == 3, done.stderr
    assert "cannot be given the segment's owner 0" in done.stderr or "cannot be given the directory" in done.stderr or "owner 0" in done.stderr
    assert changes(before, tree(logs)) == (set(), set(), set())


# --- usage, output ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nowhere",),
        ("README.md",),
        ("fixtures/magic0", "nowhere"),
        ("--server-properties", "nowhere"),
        ("--plan", "nowhere"),
        ("--plan", "README.md"),
        ("fixtures/magic0", "--plan", "README.md"),
        ("fixtures/magic0", "--as-of", "yesterday"),
        ("fixtures/magic0", "--as-of", "²"),
        ("fixtures/magic0", "--as-of", "9" * 40),
        ("fixtures/magic0", "--as-of", "-1"),
        ("fixtures/magic0", "--expiration-ms", "0"),
        ("fixtures/magic0", "--expiration-ms", "9" * 30),
        ("fixtures/magic0", "--offsets", "a:b"),
        ("fixtures/magic0", "--offsets", "1:2:3"),
        ("fixtures/magic0", "--jobs", "0"),
        ("fixtures/magic0", "--boundaries", "some"),
        ("fixtures/magic0", "--unknown"),
    ],
    ids=" ".join,
)
def test_usage(arguments: tuple[str, ...], tmp_path: Path) -> None:
    run = snaprebuild("rebuild", *arguments, "--out", tmp_path / "out") if arguments[:1] != ("--plan",) else snaprebuild("rebuild", *arguments)
    assert (run.exit_code, run.stdout) == (2, ""), run
    assert run.stderr
    assert not (tmp_path / "out").exists()


def test_an_unknown_path_is_named() -> None:
    run = snaprebuild("rebuild", "fixtures/nowhere", "--dry-run")
    assert run.exit_code == 2
    assert "fixtures/nowhere: does not exist" in run.stderr


@pytest.mark.parametrize("output", ["json", "table"])
@pytest.mark.parametrize("verb", ["rebuild", "plan", "verify"])
def test_a_reader_that_goes_away(verb: str, output: str, tmp_path: Path) -> None:
    """``snaprebuild ... | true``: no traceback, and the work was done."""
    where = ["--out", str(tmp_path), "--boundaries", "all"] if verb != "verify" else []
    command = [*COMMAND, verb, "fixtures/kafka27-mixed", "--output", output, *where]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, cwd=REPOSITORY, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.returncode in (0, 1)
    if verb == "rebuild":
        assert len(files_below(tmp_path)) == 23


def test_a_large_document_into_head(tmp_path: Path) -> None:
    shell = f"{sys.executable} -m snaprebuild rebuild fixtures/kafka27-mixed --dry-run --boundaries all --output json --out {tmp_path}/o | head -n 2"
    done = subprocess.run(["bash", "-c", shell], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["{", '  "schema": "snaprebuild.rebuild/1",']
    assert done.stderr == ""


def test_a_report(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    run = in_json("rebuild", "fixtures/magicup", "--out", tmp_path / "out", "--report", report)
    assert json.loads(report.read_text()) == run.document
    lost = snaprebuild("rebuild", "fixtures/magicup", "--out", tmp_path / "out", "--report", tmp_path / "no" / "where", "--output", "json")
    assert lost.exit_code == 5
    assert json.loads(lost.stdout)["totals"] == {"equal": 4}, "the result is not lost with the report"


def test_names_that_a_terminal_would_take_for_markup(tmp_path: Path) -> None:
    odd = tmp_path / "[bold]x[/] :smile: [/red]"
    logs = make_log_dir(odd / "logs")
    write_partition(logs / "t-0", {0: batch(0, producer_id=7)})
    for verb in ("rebuild", "plan", "verify"):
        run = snaprebuild(verb, logs, *(() if verb == "verify" else ("--out", odd / "out")))
        assert run.exit_code == 0, run.stderr
    assert "[bold]x[/] :smile: [/red]/out/t-0" in re.sub(r"\s*\n\s*", "", snaprebuild("rebuild", logs, "--out", odd / "out").stdout)
    assert files_below(odd / "out") == {f"t-0/{snapshot_name(1)}"}


def test_names_that_are_no_text(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    logs = make_log_dir(odd / "logs")
    write_partition(logs / "t-0", {0: batch(0, producer_id=7)})
    for output in ("table", "json"):
        command = [*COMMAND, "rebuild", os.fsencode(logs), "--out", os.fsencode(odd / "out"), "--output", output]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=False)
        assert b"Traceback" not in done.stderr, done.stderr
        assert done.returncode == 0


def test_the_table_for_people(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    run = snaprebuild("rebuild", logs)
    assert run.exit_code == 0
    assert "4 partitions: 14 written" in run.stdout
    assert "The snapshots take effect when the broker next starts." in run.stdout
    assert re.search(r"mixed-0 +583 \.\. 6390 +12 written +12 EXACT", run.stdout)
    assert run.stderr == ""


def test_the_first_help_line_says_that_it_writes() -> None:
    help_text = snaprebuild("rebuild", "--help").stdout
    assert "WRITES" in help_text.split("Options")[0]
    for verb in ("plan", "verify"):
        assert "Reads only" in snaprebuild(verb, "--help").stdout.split("Options")[0]
