"""From where ``rebuild`` reads, to where it writes, and what it refuses there."""

import json
import os
import shlex
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from log_dirs import (
    Entries,
    batch,
    changes,
    copy_of,
    make_log_dir,
    remove_snapshots,
    snapshot_bytes,
    snapshot_name,
    snapshots_in,
    tree,
    truth,
    write_partition,
)
from other_process import live_broker
from sentences import BROKER_HOLDS, HELD_BY_PROCESS, NOTHING_TO_REBUILD

LINE = ("--boundaries", "all", "--replay-from", "log-start", "--keep-expired")


# --- live brokers ------------------------------------------------------------------------------------------------------------


def test_a_live_broker_is_refused(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / ".lock").write_bytes(b"")
    before = tree(logs)
    with live_broker(logs) as process_id:
        run = in_json("rebuild", logs)
    assert run.exit_code == 3
    assert f"{HELD_BY_PROCESS} {process_id}" in run.messages("refused")
    assert run.totals == {"refused": 14}
    assert tree(logs) == before


def test_a_refusal_names_the_ways_that_work(tmp_path: Path) -> None:
    """The answer and the next commands come first, and these run as they are printed."""
    logs = copy_of("kafka27-mixed", tmp_path)
    with live_broker(logs):
        refused = snaprebuild("rebuild", logs)
        lines = refused.stdout.splitlines()
        assert refused.exit_code == 3
        assert refused.text.startswith(f"Nothing was written; 14 refused in 2 of 4 partitions. {BROKER_HOLDS}{logs}. Next: ")
        commands = [shlex.split(line.partition("snaprebuild ")[2]) for line in lines if "snaprebuild " in line]
        assert [words[0] for words in commands] == ["stage"], "2.7 wrote this, and deletes what is written next to it"
        assert f"fuser -v {logs}/.lock" in refused.stdout
        staged = snaprebuild(*commands[0])
        assert staged.exit_code == 0
        install = shlex.split(staged.stdout.partition("Next: stop the broker.\nThen: snaprebuild ")[2].splitlines()[0])
        assert install[0] == "install"
        assert snaprebuild(*install).exit_code == 3, "the broker runs"
    assert snaprebuild(*install).text.startswith("14 snapshots installed in 2 partitions.")
    assert snaprebuild("rebuild", logs).text.startswith(f"Nothing was written; {NOTHING_TO_REBUILD}4 partitions.")


def test_a_broker_that_writes_topic_ids_may_run_meanwhile(tmp_path: Path) -> None:
    logs = copy_of("kafka4-mixed", tmp_path)
    remove_snapshots(logs / "mixed-0")
    with live_broker(logs):
        refused = snaprebuild("rebuild", logs)
        commands = [
            shlex.split(line.partition("snaprebuild ")[2]) for line in refused.stdout.splitlines() if "snaprebuild " in line
        ]
    assert [words[0] for words in commands] == ["stage", "rebuild"]
    assert commands[1][-1] == "--broker-running"


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


# --- where it goes -----------------------------------------------------------------------------------------------------------


def test_out_inside_a_log_directory_is_refused(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    (tmp_path / "link").symlink_to(logs)
    before = tree(logs)
    for out in (logs, logs / "out", logs / "mixed-0", logs / "a" / "b", tmp_path / "link" / "out"):
        run = snaprebuild("rebuild", logs, "--out", out)
        assert (run.exit_code, run.stdout) == (3, "")
        assert "--out leads into" in run.stderr
    assert tree(logs) == before


def test_existing_files_in_out(tmp_path: Path) -> None:
    target = tmp_path / "mixed-0"
    target.mkdir()
    right, wrong = truth("kafka27-mixed", "mixed-0")[583], truth("kafka27-mixed", "mixed-0")[1151]
    # Equal as a map, in an order of its own; and one producer less; and no snapshot at all.
    (target / snapshot_name(583)).write_bytes(snapshot_bytes(sorted(right, key=lambda entry: -entry.producer_id)))
    (target / snapshot_name(1151)).write_bytes(snapshot_bytes(sorted(wrong, key=lambda entry: entry.timestamp)[:-1]))
    (target / snapshot_name(1662)).write_bytes(b"garbage")
    before = tree(tmp_path)
    run = in_json("rebuild", "fixtures/kafka27-mixed/logs/mixed-0", "--out", tmp_path, *LINE, "--as-of", "1795261244275")
    assert run.exit_code == 1
    assert {offset: action for offset, action in run.actions("mixed-0").items() if offset <= 1662} == {
        583: "equal",
        1151: "kept",
        1662: "kept",
    }
    assert run.codes == {"different-file": 2}
    assert changes(before, tree(tmp_path))[1:] == (set(), set())
    again = in_json("rebuild", "fixtures/kafka27-mixed/logs/mixed-0", "--out", tmp_path, *LINE, "--as-of", "1795261244275")
    assert again.totals == {"equal": 13, "kept": 2}


# --- selection and configuration ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--topic", "plain", "--topic", "del*", "--offsets", "500:1000"), {("plain-0", 559), ("deleted-0", 997)}),
        (("--partition", 0, "--offsets", "7045"), {("mixed-0", 7045)}),
        (("--offsets", ":542"), {("logappend-0", 542), ("deleted-0", 477)}),
        (("--offsets", "8000:"), {("mixed-0", 8231)}),
    ],
)
def test_selection(options: tuple[object, ...], expected: set[tuple[str, int]], tmp_path: Path) -> None:
    run = in_json("rebuild", "fixtures/kafka27-mixed", "--dry-run", "--out", tmp_path, "--boundaries", "all", *options)
    assert run.exit_code == 0
    assert {(each["topic_partition"], at["offset"]) for each in run.document["partitions"] for at in each["boundaries"]} == expected


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
    """Entries that a broker keeps when it loads them (``ProducerStateManager.isProducerExpired``): equality expires, open
    transactions never."""
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
    assert last["reasons"][0] == f"{dropped} expired entries were dropped as asked"
    assert run.document["request"]["drop_expired"] is True
    # By the same filter the full ones are equal to these.
    again = in_json("rebuild", "fixtures/kafka27-mixed/logs/mixed-0", "--out", tmp_path, "--boundaries", "all", *options[1:])
    assert again.totals == {"equal": 15}


# --- forms of directories ----------------------------------------------------------------------------------------------------


def test_a_report(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    run = in_json("rebuild", "fixtures/magicup", "--out", tmp_path / "out", "--save-json", report)
    assert json.loads(report.read_text()) == run.document


@pytest.mark.parametrize("output", ["table", "json"])
def test_names_that_are_no_text(output: str, tmp_path: Path) -> None:
    """stdout is a stream that takes nothing but text."""
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    logs = make_log_dir(odd / "logs")
    write_partition(logs / "t-0", {0: batch(0, producer_id=7)})
    assert snaprebuild("rebuild", logs, "--out", odd / "out", "--output", output).exit_code == 0


def test_a_report_that_may_not_be_written_there_is_refused_before_the_work(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    before = tree(logs)
    ran = snaprebuild("rebuild", logs, "--save-json", logs / "mixed-0" / "report.json")
    assert ran.exit_code == 3, ran.stderr
    assert changes(before, tree(logs)) == (set(), set(), set())
