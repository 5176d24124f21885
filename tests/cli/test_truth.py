"""Titles and totals say what was done, and no more."""

import re
import shutil
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from log_dirs import EMPTY_SNAPSHOT, batch, copy_of, cut, make_log_dir, remove_snapshots, snapshot_name, tree, write_partition
from manifests import FIXTURES
from other_process import live_broker
from sentences import (
    BROKER_HOLDS,
    NONE_MISSING,
    NOTHING_BELOW,
    NOTHING_TO_REBUILD,
    ONE_PATH_DAMAGED,
    ONE_PROVEN_WRONG,
)

MIXED = "fixtures/kafka27-mixed"
SCAN = f"Next: snaprebuild scan {MIXED}\n\n"


def title(stdout: str) -> str:
    return stdout.split("\n", 1)[0]


def test_a_rebuild_that_wrote(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    run = snaprebuild("rebuild", logs, "--topic", "logappend", "--offsets", "542")
    deleted = "Kafka 2.7 and older delete such files within a minute."
    one = "1 snapshot written in 1 of 1 partition. The new one takes effect when the broker next starts."
    assert run.text.startswith(f"{one} {deleted} Next: ")
    assert re.search(r"logappend-0 +542 +1 written +1 proven", run.stdout), "one boundary is no range"
    run = snaprebuild("rebuild", logs)
    answer = "13 snapshots written in 2 of 4 partitions. The new ones take effect when the broker next starts."
    assert run.text.startswith(f"{answer} {deleted} Next: snaprebuild verify --written-by ")
    assert "\nUndo: snaprebuild undo " in run.stdout
    assert re.search(r"mixed-0 +583 \.\. 6390 +12 written +12 proven", run.stdout)
    run = snaprebuild("rebuild", logs)
    assert run.stdout == f"Nothing was written; {NOTHING_TO_REBUILD}4 partitions.\nNext: snaprebuild verify {logs}\n\n"


def test_no_warning_of_old_brokers_where_a_newer_one_wrote(tmp_path: Path) -> None:
    """Brokers of 2.8 and newer write ``partition.metadata``, and keep each snapshot."""
    logs = copy_of("kafka4-mixed", tmp_path)
    for snapshot in sorted((logs / "mixed-0").glob("*.snapshot"))[:-1]:
        snapshot.unlink()
    run = snaprebuild("rebuild", logs, "--topic", "mixed")
    assert re.search(r"^\d+ snapshots written in 1 of 1 partition\. The new ones take effect", run.stdout)
    assert "2.7" not in run.stdout.partition("Next: ")[0]


def test_a_rebuild_elsewhere_takes_no_effect(tmp_path: Path) -> None:
    run = snaprebuild("rebuild", MIXED, "--out", tmp_path / "out")
    assert title(run.stdout) == "14 snapshots written in 2 of 4 partitions."
    assert "take effect" not in run.stdout
    again = snaprebuild("rebuild", MIXED, "--out", tmp_path / "out")
    assert title(again.stdout) == "Nothing was written; 14 equal in 2 of 4 partitions."


def test_a_dry_run(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    before = tree(logs)
    run = snaprebuild("rebuild", logs, "--dry-run")
    assert title(run.stdout) == "Dry run: nothing was written; 14 would be written in 2 of 4 partitions."
    assert tree(logs) == before


def test_a_plan_that_would_be_refused(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    with live_broker(logs):
        for verb, option in (("plan", ()), ("rebuild", ("--dry-run",))):
            run = snaprebuild(verb, logs, *option)
            assert f" {BROKER_HOLDS}{logs}. Next: snaprebuild stage {logs} --to {logs.parent}/snaprebuild-staged" in run.text
            assert "stop it first" not in run.text
            assert "live broker" not in snaprebuild(verb, logs, *option, "--out", tmp_path / "out").text


def test_a_rebuild_that_failed_in_part(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    cut(logs / "mixed-0" / f"{2181:020d}.log", -7)
    run = snaprebuild("rebuild", logs)
    assert run.exit_code == 4
    written = len(list(logs.rglob("*.snapshot"))) - 9
    assert 0 < written < 14
    assert run.text.startswith(f"{ONE_PATH_DAMAGED} {written} snapshots written in 2 of 4 partitions; {14 - written} failed. ")
    assert f"{logs / 'mixed-0'}" in run.stderr


def test_what_was_set_aside(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "mixed-0" / snapshot_name(7045)).write_bytes(EMPTY_SNAPSHOT)
    reported = "1 wrong snapshot set aside next to the new one, as <offset>.snapshot.set-aside.<number>"
    assert reported not in snaprebuild("rebuild", logs, "--set-aside", "--dry-run").text
    assert reported in snaprebuild("rebuild", logs, "--set-aside").text
    assert (logs / "mixed-0" / f"{snapshot_name(7045)}.set-aside.1").exists()


def test_plan_and_rebuild_say_the_same_of_what_is_not_planned() -> None:
    """A bare copy: nothing shows whether the snapshots at the log ends are due. That is a finding of both."""
    reason = "refused: 2 boundaries of bad-crc-0, torn-tail-0: this is not a broker's log directory: meta.properties and "
    damaged = "fixtures/damaged/logs"
    plan, rebuild = snaprebuild("plan", damaged), snaprebuild("rebuild", damaged, "--dry-run")
    for run in (plan, rebuild):
        assert run.exit_code == 1
        assert reason in run.text
        assert run.stderr == "", "stdout says so"
    verbose = [snaprebuild(*words, damaged, "-v").stderr for words in (("plan",), ("rebuild", "--dry-run"))]
    findings = [{line for line in text.splitlines() if line.startswith("finding: ")} for text in verbose]
    assert len(findings[0]) == 2
    assert findings[0] == findings[1]
    assert plan.stdout.startswith("2 snapshots are missing in 2 partitions, and none of them is written.\n")
    assert rebuild.stdout.startswith(
        "Dry run: nothing was written; 2 snapshots are missing in 2 partitions, and none of them is written.\n"
    )
    codes = in_json("plan", "fixtures/damaged/logs").codes
    assert codes == in_json("rebuild", "fixtures/damaged/logs", "--dry-run").codes == {"not-known-to-be-due": 2}


def test_a_partition_that_cannot_be_planned(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "plain-0" / f"{0:020d}.log").rename(tmp_path / "segment")
    (logs / "plain-0" / f"{0:020d}.log").symlink_to(tmp_path / "segment")
    for verb, options in (("plan", ()), ("rebuild", ("--dry-run",))):
        run = snaprebuild(verb, logs, *options)
        assert run.exit_code == 5
        assert "failed: 1 partition that cannot be read (named on stderr)\n" in run.stdout
        assert "plain-0/" in run.stderr


def test_verify_begins_with_the_verdict(tmp_path: Path) -> None:
    assert title(snaprebuild("verify", "fixtures/kafka4-mixed").stdout) == "4 partitions: 24 equal. 4 segments waiting."
    assert title(snaprebuild("verify", MIXED).stdout) == "4 partitions: 9 equal. 14 snapshots are missing. 4 segments waiting."
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "mixed-0" / snapshot_name(7045)).write_bytes(EMPTY_SNAPSHOT)
    remove_snapshots(logs / "plain-0")
    run = snaprebuild("verify", logs)
    assert title(run.stdout) == f"{ONE_PROVEN_WRONG}. 15 snapshots are missing. 4 segments waiting."
    assert run.text.partition(" Next: ")[0].endswith(" 4 partitions: 7 equal, 1 false empty.")
    assert re.search(r"mixed-0 +7045 +false empty +0 +34 +the log contradicts", run.stdout)
    assert "Wrong snapshots\n" in run.stdout
    assert "could not be checked" not in run.stdout
    assert "Every snapshot\n" in snaprebuild("verify", logs, "-v").stdout


def test_verify_does_not_claim_what_it_did_not_judge() -> None:
    run = snaprebuild("verify", "fixtures/damaged/logs")
    assert run.exit_code == 4
    assert "1 partition not judged to the end." in run.text
    assert "(1 such batch in this segment)" in run.stderr


def test_verify_expects_nothing_where_it_has_nothing_to_compare_with() -> None:
    run = snaprebuild("verify", "fixtures/follower-lost-state/node1")
    assert re.search(rf"payments-0 +456 +unverifiable +11 +- +{NOTHING_BELOW}", run.text)


@pytest.mark.parametrize("verb", ["plan", "verify", "inspect stats"])
def test_two_partitions_of_one_name_are_distinguished(verb: str, tmp_path: Path) -> None:
    for node in ("a", "b"):
        shutil.copytree(FIXTURES / "kafka27-mixed" / "logs", tmp_path / node)
    shutil.rmtree(tmp_path / "b" / "logappend-0")
    run = snaprebuild(verb, tmp_path / "a", tmp_path / "b")
    first_words = [line.split()[0] for line in run.stdout.splitlines() if line.startswith(" ")]
    assert {"a/mixed-0", "b/mixed-0"} <= set(first_words)
    assert "logappend-0" in first_words, "this name is the only one of its kind"


def test_scan_of_health() -> None:
    run = snaprebuild("scan", "fixtures/kafka4-mixed")
    assert run.stdout.splitlines()[:2] == [
        f"{NONE_MISSING}4 partitions. 4 segments waiting.",
        "Next: snaprebuild verify fixtures/kafka4-mixed",
    ]
    assert "`scan` checks no contents; `verify` does." in run.stdout
    assert "takes effect" not in run.stdout
    one = snaprebuild("scan", "fixtures/kraft-metadata")
    assert "At its next start the broker removes 1 existing snapshot.\n" in one.stdout
    assert "1 snapshot without a segment: 396" in one.stderr


@pytest.mark.parametrize(
    ("verb", "reported", "following"),
    [
        ("scan", "No partition was read. 1 finding: ", SCAN),
        ("plan", "No partition was read. stderr shows why.\n", SCAN),
        ("rebuild", "No partition was read. stderr shows why.\n", SCAN),
        ("verify", "No partition was read. 1 finding: ", SCAN),
        ("inspect stats", "No partition was read. stderr shows why.\n", SCAN),
    ],
)
def test_nothing_found(verb: str, reported: str, following: str) -> None:
    """No table of nothing; the name of the directory in the first line is cut if it is long."""
    run = snaprebuild(verb, MIXED, "--topic", "no-such-topic")
    assert run.exit_code == 1
    assert run.stdout.startswith(reported)
    assert run.stdout.endswith(following)
    assert "nothing-found" in run.stderr


def test_decisions_are_reported_in_words(tmp_path: Path) -> None:
    logs = make_log_dir(tmp_path / "logs")
    write_partition(logs / "t-0", {0: batch(0, producer_id=7), 1: batch(1, producer_id=7)})
    run = snaprebuild("rebuild", logs, "--out", tmp_path / "out", "-v")
    assert f"I {logs}/t-0 at 1: EXACT: every batch from offset 0 was replayed\n" in run.stderr


LOGS = str(FIXTURES / "kafka27-mixed" / "logs")


@pytest.mark.parametrize("arguments", [["plan", LOGS], ["rebuild", LOGS, "--dry-run"]], ids=lambda words: words[0])
def test_classes(arguments: list[str]) -> None:
    assert "12 proven" in snaprebuild(*arguments).stdout
    for words in (["-v", *arguments], [*arguments, "--verbose"]):
        text = snaprebuild(*words).stdout
        assert "12 EXACT" in text
        assert "proven" not in text
