"""``snaprebuild scan`` as a user runs it."""

import errno
import json
import shlex
import shutil
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from log_dirs import copy_of, snapshot_name
from manifests import FIXTURES
from other_process import live_broker
from refused_reads import refused
from sentences import (
    AGAIN,
    FREES_ALL,
    KEEP_REMOTE_STORAGE_OFF,
    NONE_MISSING,
    ONE_PATH_UNREAD,
    STORAGE_UNKNOWN,
)

from snaprebuild.storage.local.broker_lock import hold


def test_two_seven_in_json() -> None:
    run = in_json("scan", FIXTURES / "kafka27-mixed", "--topic", "mixed")
    partition = run.partition("mixed-0")
    assert run.exit_code == 1
    assert partition["totals"]["missing"] == 12
    assert [each["offset"] for each in partition["boundaries"] if each["state"] == "present"] == [7045, 7637, 8231]
    assert partition["upload"]["blockers"] == [{"blocker": "missing-snapshot", "segments": 12, "freed_by": "rebuild"}]
    assert partition["upload"]["blocked_segments"][0] == {
        "base_offset": 0,
        "next_base_offset": 583,
        "size_bytes": 65512,
        "blockers": ["missing-snapshot"],
    }
    assert partition["next_start"]["loaded_offset"] == 8231
    assert run.codes == {"missing-snapshots": 1, "above-last-stable-offset": 1}
    assert run.document["request"]["paths"] == [str(FIXTURES / "kafka27-mixed")]


def test_the_answer_and_the_next_command_come_first(tmp_path: Path) -> None:
    # The directory's name has a space and is long: the command still runs as printed.
    root = tmp_path / f"data {'x' * 90}"
    root.symlink_to(FIXTURES / "kafka27-mixed")
    run = snaprebuild("scan", root, "--topic", "mixed", "--topic", "logappend")
    answer, more, following, empty, *table = run.stdout.splitlines()
    assert answer == "14 snapshots missing in 2 of 2 partitions. 4 segments waiting."
    assert more == f"1.1 MiB cannot be uploaded. {FREES_ALL}."
    assert empty == ""
    command = shlex.split(following.removeprefix("Next: "))
    assert command[:2] == ["snaprebuild", "plan"]
    planned = in_json(*command[1:])
    assert sum(len(each["boundaries"]) for each in planned.document["partitions"]) == 14
    assert [line.split()[0] for line in table[2:4]] == ["mixed-0", "logappend-0"]
    assert table[2].split() == ["mixed-0", "12", "12", "893.3", "KiB", "0", "no", "snapshot", "[1]"]
    assert max(map(len, (answer, *table))) <= 100
    assert "snapshots are missing" not in run.stderr, "stdout says so"
    verbose = snaprebuild("scan", FIXTURES / "kafka27-mixed", "-v").stderr
    assert "12 of 15 snapshots are missing: 583, 1151, 1662 ... 6390" in verbose


@pytest.mark.parametrize(
    ("name", "options", "answer", "following"),
    [
        ("magicup", (), "`rebuild` frees none of it.", "snaprebuild plan"),
        (
            "txn-state",
            ("--kafka-release", "3.9.2"),
            "No snapshot missing",
            f"snaprebuild verify {shlex.quote(f'{FIXTURES}/txn-state')} --kafka-release 3.9.2",
        ),
        ("damaged/missing-index", (), "removes 2 snapshots. Start, stop, run again.", "start and stop the broker once, then run"),
        ("txn-state", ("--partition", "1"), f"{NONE_MISSING}2 partitions.", "snaprebuild"),
    ],
)
def test_answers(name: str, options: tuple[str, ...], answer: str, following: str) -> None:
    run = snaprebuild("scan", FIXTURES / name, *options)
    first, _, rest = run.text.partition(" Next: ")
    assert answer in first
    assert rest.startswith(following)
    assert (KEEP_REMOTE_STORAGE_OFF in first) == (name == "magicup")


def test_what_a_rebuild_does_not_free_is_named(tmp_path: Path) -> None:
    """Also where it frees a part: remote storage stays off for these topics, and for no other."""
    logs = copy_of("kafka27-mixed", tmp_path)
    shutil.copytree(FIXTURES / "magicup" / "logs" / "magicup-0", logs / "magicup-0")
    first = snaprebuild("scan", logs).text.partition(" Next: ")[0]
    assert "`rebuild` frees 1.1 MiB" in first
    assert f"{KEEP_REMOTE_STORAGE_OFF}magicup until retention deletes the segments." in first


def test_what_could_not_be_read_comes_first(tmp_path: Path) -> None:
    root = copy_of("kafka27-mixed", tmp_path)
    with refused(root / "logappend-0" / "leader-epoch-checkpoint", errno.EACCES, []):
        run = snaprebuild("scan", root)
    assert run.text.startswith(f"{ONE_PATH_UNREAD} 14 snapshots missing in 2 of the 4 partitions that were read. ")
    assert "4 segments waiting." in run.text.partition(" Next: ")[0]
    assert f"Next: {AGAIN}\n" in run.stdout
    assert "UNREAD" in run.stdout


def test_details_print_every_boundary() -> None:
    short = snaprebuild("scan", FIXTURES / "kafka27-mixed", "--topic", "mixed").stdout
    long = snaprebuild("scan", FIXTURES / "kafka27-mixed", "--topic", "mixed", "-v").stdout
    lines = {line.split()[0]: line for line in long.splitlines() if line[:22].strip().isdigit()}
    assert len(lines) == 15
    assert "missing" in lines["583"]
    assert "present, log end, 35 entries, next start: kept" in lines["8231"]
    assert "segment 5821 to 6390 is blocked: missing-snapshot (freed by rebuild)" in long
    assert "5821 to 6390" not in short


def test_running_broker_is_a_note_and_changes_what_the_next_start_means(tmp_path: Path) -> None:
    root = copy_of("kafka27-killed", tmp_path)
    shutil.rmtree(root / "k-compacted-0")
    (root / "k-mixed-0" / snapshot_name(1123)).unlink()
    assert in_json("scan", root, "--topic", "k-mixed").exit_code == 0  # the broker regenerates it: its recovery point is 0
    with live_broker(root) as process_id:
        run = in_json("scan", root, "--topic", "k-mixed")
    (log_dir,) = run.document["log_dirs"]
    assert (log_dir["shutdown"], log_dir["held_by"]) == ("running", process_id)
    assert run.codes == {"running-broker": 1, "missing-snapshots": 1}
    # A running broker that stops cleanly recovers nothing.
    assert run.partition("k-mixed-0")["next_start"]["after"] == "a clean stop"
    assert [each["offset"] for each in run.partition("k-mixed-0")["boundaries"] if each["at_next_start"] == "absent"] == [1123]
    assert run.exit_code == 1


def test_a_holder_that_the_kernel_does_not_show(tmp_path: Path) -> None:
    """A lock that belongs to an open file stands for a broker in another container."""
    root = copy_of("kafka27-killed", tmp_path)
    with hold(root):
        run, text = in_json("scan", root), snaprebuild("scan", root).stdout
    assert [each["held_by"] for each in run.document["log_dirs"]] == [-1]
    assert "a process holds .lock" in text


def test_report_is_the_document(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    run = snaprebuild("scan", FIXTURES / "kafka27-mixed", "--save-json", report)
    document = json.loads(report.read_text())
    assert run.stdout.startswith("14 snapshots missing in 2 of 4 partitions")
    other = in_json("scan", FIXTURES / "kafka27-mixed").document
    del document["run"], other["run"]  # a moment and a command of its own
    assert document == other


def test_the_metadata_log_shows_whether_remote_storage_is_on(tmp_path: Path) -> None:
    """Node 1 of two, without the checkpoint that shows it as well; what else a metadata log may hold is in tests/cluster."""
    logs = Path(shutil.copytree(FIXTURES / "follower-lost-state" / "node1", tmp_path / "node1"))
    (logs / "log-start-offset-checkpoint").unlink()
    states = {each["topic"]: each["remote_storage"] for each in in_json("scan", logs).document["topics"]}
    assert states == {"payments": "on", "__remote_log_metadata": "off", "__cluster_metadata": "off"}
    assert "remote.storage.enable of the topics: on for 1, off for 2" in " ".join(snaprebuild("scan", logs).stdout.split())
    metadata_log = logs / "__cluster_metadata-0" / f"{0:020d}.log"
    metadata_log.write_bytes(metadata_log.read_bytes()[:200] + bytes(100) + metadata_log.read_bytes()[300:])
    run = snaprebuild("scan", logs)
    assert "remote.storage.enable of the topics: off for 2, unknown for 1" in " ".join(run.stdout.split())
    assert "note: " in run.stderr
    assert STORAGE_UNKNOWN in run.stderr
