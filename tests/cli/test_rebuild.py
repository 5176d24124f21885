"""``rebuild`` as a user runs it: every bundled directory, in place, and where a snapshot that is there is wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from log_dirs import (
    EMPTY_SNAPSHOT,
    Entries,
    changes,
    copy_of,
    entries_in,
    files_below,
    remove_snapshots,
    snapshot_bytes,
    snapshot_name,
    snapshots_in,
    tree,
    truth,
)
from manifests import FIXTURES, REPOSITORY, bundled, partition_fixtures

from formats.partition.producer_snapshot import ProducerEntry

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
    # Directories that no broker serves (-stray).
    "kraft-cluster3": 1,
    # A compacted internal topic.
    "txn-state": 1,
}

NODES = ("follower-lost-state", "kraft-cluster3")
"""Log directories of several brokers, whose manifests tell of no partition: the tests of their own below do."""

MISSING_IN_MIXED = {
    "mixed-0": (583, 1151, 1662, 2181, 2596, 3089, 3664, 4168, 4695, 5247, 5821, 6390),
    "logappend-0": (542, 1015),
}


def out_of(fixture: str, out: Path) -> dict[str, dict[int, Entries]]:
    """What a rebuild of a bundled directory must leave in ``out``: entries by directory and boundary, from the manifest."""
    if fixture in NODES:
        return {str(path.relative_to(out)): snapshots_in(path) for path in {file.parent for file in out.rglob("*.snapshot")}}
    return {
        each.partition: {segment.snapshot_offset: segment.entries for segment in each.segments}
        for each in partition_fixtures()
        if each.fixture == fixture
    }


# --- every bundled directory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [(), ("--jobs", 1)], ids=["parallel", "sequential"])
@pytest.mark.parametrize("fixture", BUNDLED)
def test_every_boundary_of_a_bundled_directory(fixture: str, jobs: tuple[object, ...], tmp_path: Path) -> None:
    before = tree(bundled(fixture))
    run = in_json("rebuild", bundled(fixture).relative_to(REPOSITORY), "--out", tmp_path, *LINE, *jobs)
    assert run.exit_code == EXIT_CODES.get(fixture, 0), run.stderr
    expected = out_of(fixture, tmp_path)
    assert expected
    found = {str(path.relative_to(tmp_path)): snapshots_in(path) for path in tmp_path.rglob("*") if path.is_dir()}
    if fixture not in (*NODES, "tiered-local"):
        assert found == expected
    for partition, boundaries in expected.items():
        assert found[partition] == boundaries
    written = sum(len(snapshots) for snapshots in found.values())
    assert run.totals == {"written": written}
    assert len(files_below(tmp_path)) == written, "nothing but snapshots"
    assert tree(bundled(fixture)) == before


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


def test_the_nodes_of_a_cluster_wrote_the_same(tmp_path: Path) -> None:
    """Nothing was ever removed from their logs: a replay gives what the brokers knew at each boundary where they left a snapshot."""
    assert in_json("rebuild", "fixtures/kraft-cluster3", "--out", tmp_path, *LINE).exit_code == 1
    compared = 0
    for path in {each.parent for each in tmp_path.rglob("*.snapshot")}:
        rebuilt, theirs = snapshots_in(path), snapshots_in(FIXTURES / "kraft-cluster3" / path.relative_to(tmp_path))
        both = rebuilt.keys() & theirs.keys()
        assert {offset: rebuilt[offset] for offset in both} == {offset: theirs[offset] for offset in both}
        compared += len(both)
    assert compared > 150


def test_written_files_are_canonical(tmp_path: Path) -> None:
    """Sorted by producer id: equal states are equal bytes."""
    snaprebuild("rebuild", "fixtures/kafka4-mixed", "--out", tmp_path, *LINE)
    for partition, boundaries in (
        (name, truth("kafka4-mixed", name)) for name in ("mixed-0", "deleted-0", "plain-0", "logappend-0")
    ):
        for offset, entries in boundaries.items():
            data = (tmp_path / partition / snapshot_name(offset)).read_bytes()
            assert data == snapshot_bytes(sorted(entries, key=lambda entry: entry.producer_id))


def test_a_log_directory_and_a_partition_can_be_named_too(tmp_path: Path) -> None:
    for number, path in enumerate(("fixtures/kafka27-mixed/logs", "fixtures/kafka27-mixed/logs/mixed-0")):
        run = in_json("rebuild", path, "--out", tmp_path / str(number), *LINE)
        assert run.exit_code == 0
        assert snapshots_in(tmp_path / str(number) / "mixed-0") == truth("kafka27-mixed", "mixed-0")


@pytest.mark.parametrize("as_of", ["0", "1795270000000", "2200-01-01T00:00:00Z"])
@pytest.mark.parametrize("replay_from", ["auto", "window"])
def test_kept_expired_entries_do_not_depend_on_the_clock(as_of: str, replay_from: str, tmp_path: Path) -> None:
    run = in_json(
        "rebuild",
        "fixtures/kafka27-mixed/logs/mixed-0",
        "--out",
        tmp_path,
        "--boundaries",
        "all",
        "--replay-from",
        replay_from,
        "--as-of",
        as_of,
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
    # The lock that keeps a broker out meanwhile is a file that brokers leave behind themselves.
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
    assert "nothing to rebuild in 4 partitions" in table.stdout


def test_in_place_all_boundaries_again(tmp_path: Path) -> None:
    """Those that are there are compared, none is touched."""
    logs = copy_of("kafka27-mixed", tmp_path)
    before = tree(logs)
    run = in_json("rebuild", logs, "--boundaries", "all")
    assert run.exit_code == 0
    assert run.totals == {"written": 14, "equal": 9}
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
    reasons = {each["reason"] for each in run.partition("k-mixed-0")["not_planned"]}
    assert any("not shut down cleanly: above its recovery point 0" in reason for reason in reasons)
    assert any("it writes the one at the log end itself" in reason for reason in reasons)


@pytest.mark.parametrize(
    "fixture", ["txn-state", "txn-state4", "kafka27-compacted", "kafka4-compacted", "kraft-metadata", "kraft-metadata-moved"]
)
@pytest.mark.parametrize("options", [(), ("--boundaries", "all", "--set-aside", "--allow-unproven")], ids=["default", "everything"])
def test_in_place_never_in_internal_compacted_or_metadata_partitions(
    fixture: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    logs = copy_of(fixture, tmp_path)
    if not options:
        for partition in logs.iterdir():
            if partition.is_dir():
                remove_snapshots(partition)
    before = tree(logs)
    run = in_json("rebuild", logs, *options)
    assert changes(before, tree(logs)) == (set() if not run.totals else {".lock"}, set(), set())
    assert run.exit_code == 0
    assert "written" not in run.totals
    if not options:
        assert all(partition["not_planned"] for partition in run.document["partitions"])


@pytest.mark.parametrize(
    ("fixture", "log_start", "written"), [("kafka27-mixed", 298, [477, 997]), ("kafka4-mixed", 454, [648, 1127, 1487])]
)
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
        assert [each["offset"] for each in run.partition("deleted-0")["not_planned"]] == [
            offset for offset in written if offset <= start
        ]


def test_in_place_the_log_end_after_a_clean_stop(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    remove_snapshots(logs / "mixed-0", 8231)
    (logs / ".kafka_cleanshutdown").unlink()
    run = in_json("rebuild", logs, "--topic", "mixed")
    assert 8231 in {each["offset"] for each in run.partition("mixed-0")["not_planned"]}
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
    assert here.totals == {"would_write": 15, "equal": 8}
    there = in_json("rebuild", logs, "--dry-run", "--out", out, "--boundaries", "all")
    assert there.totals == {"would_write": 23}
    assert tree(logs) == before
    assert not out.exists()


# --- wrong snapshots ---------------------------------------------------------------------------------------------------------


WRONG = {
    "false_empty": EMPTY_SNAPSHOT,
    "torn": snapshot_bytes(truth("kafka27-mixed", "mixed-0")[7045])[:-20],
    "bad checksum": snapshot_bytes(truth("kafka27-mixed", "mixed-0")[7045])[:-1] + b"\x07",
    "no bytes": b"",
    # That of the boundary before, under this name.
    "stale": snapshot_bytes(truth("kafka27-mixed", "mixed-0")[6390]),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("as_of", ["1795261244275", "2200-01-01"])
def test_wrong_snapshots(kind: str, as_of: str, tmp_path: Path) -> None:
    """The one at 7045 is wrong; 7637 and 8231 are healthy. What is certain does not depend on the clock here."""
    logs = copy_of("kafka27-mixed", tmp_path)
    wrong = logs / "mixed-0" / snapshot_name(7045)
    wrong.write_bytes(WRONG[kind])
    before = tree(logs)
    run = in_json("rebuild", logs, "--as-of", as_of)
    assert run.exit_code == 1
    told = run.messages("corrupt-snapshot") + run.messages("wrong-snapshot")
    assert "--set-aside" in told
    assert kind not in ("false_empty", "stale") or kind.replace("_", " ") in told or as_of != "1795261244275"
    appeared, vanished, changed = changes(before, tree(logs))
    assert (len(appeared), vanished, changed) == (15, set(), set())
    assert wrong.read_bytes() == WRONG[kind], "kept, byte for byte"

    replaced = in_json("rebuild", logs, "--set-aside", "--as-of", as_of)
    assert replaced.exit_code == 0, replaced.stderr
    assert snapshots_in(logs / "mixed-0") == truth("kafka27-mixed", "mixed-0")
    aside = logs / "mixed-0" / f"{snapshot_name(7045)}.set-aside.1"
    assert aside.read_bytes() == WRONG[kind]
    assert replaced.totals == {"equal": 22, "written": 1}
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
    assert run.messages("wrong-snapshot").count("false empty") == 3
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


@pytest.mark.parametrize(
    ("fixture", "as_of"), [("kafka27-mixed", "0"), ("kafka4-mixed", "now"), ("magicup", "now"), ("tiered-local", "2200-01-01")]
)
def test_healthy_snapshots_are_never_set_aside(fixture: str, as_of: str, tmp_path: Path) -> None:
    logs = copy_of(fixture, tmp_path)
    before = tree(logs)
    run = in_json("rebuild", logs, "--set-aside", "--boundaries", "all", "--as-of", as_of)
    assert run.exit_code == 0
    assert changes(before, tree(logs))[1:] == (set(), set())
    assert not list(logs.rglob("*set-aside*"))
