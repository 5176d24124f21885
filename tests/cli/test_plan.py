"""``plan`` as a user runs it, and plans that are saved, carried out, and refused when the disk has moved on."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from log_dirs import EMPTY_SNAPSHOT, batch, changes, copy_of, remove_snapshots, snapshot_name, snapshots_in, tree, truth
from manifests import FIXTURES
from sentences import PLAN_IS_STALE

MISSING = {"mixed-0": 12, "logappend-0": 2, "deleted-0": 0, "plain-0": 0}


def test_what_is_not_planned_has_a_reason(tmp_path: Path) -> None:
    """After a crash, and in a bare copy, where nothing shows whether the snapshot at the log end is due."""
    logs = copy_of("kafka27-killed", tmp_path)
    remove_snapshots(logs / "k-mixed-0")
    run = in_json("plan", logs)
    reasons = {each["reason"] for each in run.partition("k-mixed-0")["not_planned"]}
    assert run.exit_code == 0
    assert any("not shut down cleanly: above its recovery point 0" in reason for reason in reasons)
    assert any("it writes the one at the log end itself" in reason for reason in reasons)
    assert in_json("plan", "fixtures/damaged").exit_code == 4, "as scan: brokers of some of these directories do not start"


def test_what_a_plan_says() -> None:
    run = in_json("plan", "fixtures/kafka27-mixed", "--as-of", "1795270000000")
    document = run.document
    counts = {each["topic_partition"]: len(each["boundaries"]) for each in document["partitions"]}
    assert counts == MISSING
    mixed = run.partition("mixed-0")
    segments = FIXTURES / "kafka27-mixed" / "logs" / "mixed-0"
    assert mixed["log_end_offset"] == 8231
    assert mixed["segments"] == 15
    assert mixed["replay_from_offset"] == 0
    assert mixed["replay_reason"]
    assert mixed["min_read_bytes"] == sum(path.stat().st_size for path in segments.glob("*.log"))
    assert {each["expected_class"] for each in mixed["boundaries"]} == {"EXACT"}
    assert document["min_read_bytes"] == sum(each["min_read_bytes"] for each in document["partitions"])
    assert document["rate_bytes_per_second"] > 0
    assert document["estimated_seconds"] == pytest.approx(document["min_read_bytes"] / document["rate_bytes_per_second"], abs=0.01)


def test_when_mere_waiting_would_free_a_partition(tmp_path: Path) -> None:
    """The newest rolled segment that lacks its snapshot, and the retention: 168 hours by default. No date if remote storage may be on."""
    logs = copy_of("kafka27-mixed", tmp_path)
    (tmp_path / "server.properties").write_text(f"log.dirs={logs}\n")
    run = in_json("plan", "--server-properties", tmp_path / "server.properties")
    assert run.document["retention_ms"] == 168 * 3_600_000
    # The one that ends at 1015: its greatest timestamp is in the manifest.
    manifest = json.loads((FIXTURES / "kafka27-mixed" / "manifest.json").read_text())
    newest = next(
        each["max_timestamp"] for each in manifest["partitions"]["logappend-0"]["segments"] if each["next_offset"] == 1015
    )
    assert run.partition("logappend-0")["retention_frees_ms"] == newest + 168 * 3_600_000
    assert run.partition("plain-0")["retention_frees_ms"] is None

    for text, retention in (
        ("log.retention.minutes=7", 420_000),
        ("log.retention.ms=5\nlog.retention.hours=9", 5),
        ("log.retention.ms=-1", -1),
        ("log.retention.hours=-1", -1),
    ):
        (tmp_path / "server.properties").write_text(f"log.dirs={logs}\n{text}\n")
        run = in_json("plan", "--server-properties", tmp_path / "server.properties")
        assert run.document["retention_ms"] == retention
        assert run.partition("logappend-0")["retention_frees_ms"] == (None if retention < 0 else newest + retention)
    (tmp_path / "server.properties").write_text(f"log.dirs={logs}\nlog.retention.ms=1_000\n")
    refused = snaprebuild("plan", "--server-properties", tmp_path / "server.properties")
    assert (refused.exit_code, "log.retention.ms: expected a number from 1" in refused.stderr) == (2, True)


def _remote_storage_off(logs: Path) -> str:
    return "remote.log.storage.system.enable=false\n"


def _remote_storage_unknown(logs: Path) -> str:
    return "remote.log.storage.system.enable=true\n"


def _remote_storage_on(logs: Path) -> str:
    """A broker checkpoints a log start at its first segment only with remote storage."""
    (logs / "log-start-offset-checkpoint").write_text("0\n2\nmixed 0 0\nlogappend 0 0\n")
    return "remote.log.storage.system.enable=true\n"


@pytest.mark.parametrize(
    ("change", "as_of", "expected", "date"),
    [
        (_remote_storage_off, "2026-11-21T12:00:00Z", "retention deletes these segments at that date", "2026-11-28 11:40:44Z "),
        (
            _remote_storage_off,
            "2026-12-21T12:00:00Z",
            "Remote storage is off, and 2 of these dates are past, by Kafka's default of 168 hours.",
            "2026-11-28 11:40:44Z, past ",
        ),
        (_remote_storage_unknown, "2026-11-21T12:00:00Z", "retention: no date, because the broker has remote storage", None),
        (_remote_storage_on, "2026-11-21T12:00:00Z", "a broker keeps segments that are not uploaded", None),
    ],
)
def test_the_date_of_retention(change: Callable[[Path], str], as_of: str, expected: str, date: str | None, tmp_path: Path) -> None:
    """UnifiedLog of 3.6 to 4.3: remote storage off, on and copying, and what is not known."""
    logs = copy_of("kafka27-mixed", tmp_path)
    (tmp_path / "server.properties").write_text(f"log.dirs={logs}\n{change(logs)}")
    run = snaprebuild("plan", "--server-properties", tmp_path / "server.properties", "--as-of", as_of)
    assert expected in run.text
    if date is None:
        assert "2026-11-28" not in run.stdout
        assert "retention deletes it" not in run.stdout
    else:
        assert date in run.stdout


def test_the_table(tmp_path: Path) -> None:
    run = snaprebuild("plan", "fixtures/kafka27-mixed")
    assert run.exit_code == 0
    assert re.match(r"14 snapshots to write in 2 of 4 partitions; 1\.2 MiB to read in about [0-9.]+ s\.\n", run.stdout)
    assert re.search(r"mixed-0 +12 .*12 proven ", run.stdout)
    assert "retention: no date, because it is unknown whether remote storage is on (--server-properties shows it)." in run.text
    assert "retention deletes" not in run.text
    assert run.stderr == ""
    assert "Nothing to rebuild in 1 partition.\n" in snaprebuild("plan", "fixtures/kafka27-mixed", "--topic", "plain").stdout
    logs = copy_of("txn-state", tmp_path)
    remove_snapshots(logs / "__consumer_offsets-0")
    assert re.search("skipped: 1 boundary of [^ ]+: an internal topic is never uploaded", snaprebuild("plan", logs).text)


# --- saved -----------------------------------------------------------------------------------------------------------------


def saved_plan(logs: Path, tmp_path: Path, *options: object) -> Path:
    plan = tmp_path / "plan.json"
    run = in_json("plan", logs, "--save", plan, *options)
    assert run.exit_code == 0
    return plan


def test_a_saved_plan_is_carried_out(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    plan = saved_plan(logs, tmp_path, "--topic", "mixed", "--as-of", "1795270000000", "--expiration-ms", 7000)
    reported = snaprebuild("plan", logs, "--topic", "mixed", "--save", tmp_path / "my plan.json")
    assert f"\nNext: snaprebuild rebuild --plan '{tmp_path}/my plan.json'\n" in reported.stdout
    before = tree(logs)
    dry = in_json("rebuild", "--plan", plan, "--dry-run")
    assert dry.totals == {"would_write": 12}
    assert tree(logs) == before
    run = in_json("rebuild", "--plan", plan)
    assert run.exit_code == 0
    assert run.totals == {"written": 12}
    assert (run.document["as_of_ms"], run.document["expiration_ms"]) == (1795270000000, 7000)
    assert snapshots_in(logs / "mixed-0") == truth("kafka27-mixed", "mixed-0")
    assert sorted(snapshots_in(logs / "logappend-0")) == [1617, 2280, 2315], "not in the selection"
    again = snaprebuild("rebuild", "--plan", plan)
    assert again.exit_code == 3, "what it planned is done: the disk has moved on"
    assert PLAN_IS_STALE in again.stderr


def grown(logs: Path) -> None:
    with (logs / "mixed-0" / f"{7637:020d}.log").open("ab") as file:
        file.write(batch(8231))


MOVES = {
    "grown": grown,
    "snapshot appeared": lambda logs: (logs / "mixed-0" / snapshot_name(583)).write_bytes(EMPTY_SNAPSHOT),
    "partition vanished": lambda logs: shutil.rmtree(logs / "plain-0"),
    "broker was killed": lambda logs: (logs / ".kafka_cleanshutdown").unlink(),
}
"""tests/snapshots/test_saved_plan.py compares every field."""


def test_a_stale_plan_names_a_partition_that_has_something_to_write(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    plan = saved_plan(logs, tmp_path)
    for name in ("deleted-0", "plain-0", "mixed-0"):  # the first and the second have nothing to write
        segment = sorted((logs / name).glob("*.log"))[0]
        os.utime(segment, ns=(0, 1_600_000_000_000_000_001))
    run = snaprebuild("rebuild", "--plan", plan)
    assert run.error.startswith(
        f"snaprebuild: {logs / 'mixed-0'}: {PLAN_IS_STALE}: 3 of 4 partitions changed, this one: segments: "
    )
    assert "and again at 2020-09-13 12:26:40.000000001Z. Nothing was written." in run.error
    assert "modified_ns" not in run.error
    assert "inode" not in run.error
    other = saved_plan(logs, tmp_path)
    os.utime(sorted((logs / "plain-0").glob("*.log"))[0])
    needless = snaprebuild("rebuild", "--plan", other)
    assert f"{logs / 'plain-0'}: {PLAN_IS_STALE}: 1 of 4 partitions changed, " in needless.error
    assert "; none of them has anything to write. Nothing was written." in needless.error


@pytest.mark.parametrize(
    "words", ["scan", "verify", "plan", "rebuild --dry-run", "stage --dry-run --to {}/staged", "before-start --dry-run"]
)
def test_every_command_counts_the_fates_that_it_does_not_name(words: str, tmp_path: Path) -> None:
    logs = copy_of("kafka4-mixed", tmp_path)
    (logs / "plain-0" / "partition.metadata").write_text("garbage\n")
    (logs / "logappend-0" / "leader-epoch-checkpoint").write_text("0\n0\n")
    remove_snapshots(logs / "mixed-0", 1805)
    verb, *options = words.format(tmp_path).split()
    run = snaprebuild(verb, logs, *options)
    assert "goes offline at the start: plain-0, malformed partition.metadata." in run.text
    assert "Also: 1 other fate" in run.text


@pytest.mark.parametrize("move", MOVES)
def test_a_stale_plan_is_refused(move: str, tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    plan = saved_plan(logs, tmp_path)
    MOVES[move](logs)
    before = tree(logs)
    run = snaprebuild("rebuild", "--plan", plan, "--output", "json")
    assert (run.exit_code, run.stdout) == (3, "")
    assert PLAN_IS_STALE in run.stderr
    assert changes(before, tree(logs)) == (set(), set(), set())


@pytest.mark.parametrize(
    "options",
    [
        ("--out", "DIR"),
        ("--set-aside",),
        ("--boundaries", "all"),
        ("--crc", "skip"),
        ("--as-of", "0"),
        ("--topic", "x"),
        ("--offsets", "1"),
        ("--allow-unproven",),
        ("--accept-topic-id-zero",),
        ("fixtures/magic0",),
    ],
    ids=" ".join,
)
def test_a_plan_carries_what_was_asked_for(options: tuple[str, ...], tmp_path: Path) -> None:
    """Another option would be lost, and ``--out`` would write in place."""
    logs = copy_of("magicup", tmp_path)
    remove_snapshots(logs / "magicup-0")
    plan = saved_plan(logs, tmp_path)
    before = tree(tmp_path)
    run = snaprebuild("rebuild", "--plan", plan, *(str(tmp_path / "out") if option == "DIR" else option for option in options))
    assert (run.exit_code, run.stdout) == (2, "")
    assert "--plan carries" in run.stderr
    assert tree(tmp_path) == before


def test_a_plan_that_cannot_be_saved() -> None:
    # A directory that is there, and in which no one makes a file.
    run = snaprebuild("plan", "fixtures/magicup", "--save", "/proc/plan.json")
    assert run.exit_code == 5
    assert "/proc/plan.json: cannot be written" in run.stderr
