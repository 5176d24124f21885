"""Directories that somebody made to do harm: nothing hangs, nothing outside is read or touched, nothing odd reaches the terminal.

Odd files and names in the trees of all verbs are in `test_hostile_verbs.py`; damaged bytes are in `tests/fuzz`.
"""

import os
import shutil
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from log_dirs import changes, remove_snapshots, tree
from manifests import FIXTURES

HEALTHY = FIXTURES / "damaged" / "healthy" / "log"
AS_OF = ("--as-of", "1795266500000")
SECRET = "what nobody who asks for a log directory should be shown"
FILES_MANY = 100_000
HOLE_BYTES = 2**43


def name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


@pytest.mark.parametrize("verb", [("scan",), ("verify", *AS_OF)], ids=lambda verb: str(verb[0]))
def test_what_is_reported_next_to_what_is_no_partition(tmp_path: Path, verb: tuple[str, ...]) -> None:
    """A partition of pipes, one with a link for a snapshot, and links that lead nowhere: the others are reported, and not all is well."""
    logs = tmp_path / "logs"
    shutil.copytree(HEALTHY, logs)
    (tmp_path / "secret").write_text(SECRET)
    (logs / "pipes-0").mkdir()
    for each in (name(0, ".log"), name(0, ".index"), name(10, ".snapshot"), "leader-epoch-checkpoint", "partition.metadata"):
        os.mkfifo(logs / "pipes-0" / each)
    shutil.copytree(logs / "payments-0", logs / "links-0")
    remove_snapshots(logs / "links-0", 116)
    (logs / "links-0" / name(116, ".snapshot")).symlink_to("../../secret")
    (logs / "loop-0").symlink_to(logs)
    (logs / "itself-0").symlink_to("itself-0")
    before = tree(tmp_path)
    run = in_json(verb[0], logs, *verb[1:])
    assert run.exit_code in (1, 3, 4, 5), run.stderr
    assert SECRET not in run.stdout + run.stderr
    reported = {each["topic_partition"] for each in run.document["partitions"]}
    assert "payments-0" in reported
    assert not reported & {"loop-0", "itself-0"}
    assert tree(tmp_path) == before


def test_files_with_holes_of_terabytes(tmp_path: Path) -> None:
    """A segment, a snapshot that would be set aside, files that we wrote and that were made larger since: no byte of a hole is read."""
    logs, receipt = tmp_path / "logs", tmp_path / "receipt.jsonl"
    shutil.copytree(HEALTHY, logs)
    payments = logs / "payments-0"
    remove_snapshots(payments, 56)
    assert snaprebuild("rebuild", logs, *AS_OF, "--receipt", receipt).exit_code == 0
    os.truncate(payments / name(56, ".snapshot"), HOLE_BYTES)
    before = {path.name: path.stat().st_mtime_ns for path in payments.iterdir()}
    run = snaprebuild("verify", "--written-by", receipt, "--output", "json")
    assert (run.exit_code, run.totals, run.codes) == (1, {"replaced": 1}, {"lost-snapshot": 1})
    run = in_json("undo", receipt)
    assert (run.exit_code, run.totals) == (1, {"left": 1})
    assert f"has {HOLE_BYTES} bytes" in run.document["files"][0]["reason"]
    run = in_json("rebuild", logs, *AS_OF, "--set-aside", "--receipt", tmp_path / "second")
    assert (run.exit_code, run.codes) == (5, {"storage-failed": 1, "source-unknown": 1})
    assert {path.name: path.stat().st_mtime_ns for path in payments.iterdir()} == before
    remove_snapshots(payments, 56)
    os.truncate(payments / name(56, ".log"), HOLE_BYTES)
    for verb, *options in (
        ("scan",),
        ("plan", *AS_OF),
        ("verify", *AS_OF),
        ("inspect stats", *AS_OF),
        ("inspect transactions", *AS_OF),
    ):
        assert in_json(verb, logs, *options).exit_code in (0, 1, 4), verb


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    """Operators move partitions to another disk so: they are read, and what is there is not taken for the broker's own."""
    logs, other = tmp_path / "logs", tmp_path / "other"
    shutil.copytree(HEALTHY, logs)
    shutil.copytree(HEALTHY / "payments-0", other)
    remove_snapshots(other)
    (logs / "moved-0").symlink_to(other)
    before = tree(tmp_path)
    run = in_json("rebuild", logs, *AS_OF, "--receipt", tmp_path / "receipt")
    assert (run.exit_code, set(run.codes)) == (1, {"not-known-to-be-due"})
    assert changes(before, tree(tmp_path))[0] <= {"logs/.lock"}
