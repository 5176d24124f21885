"""Remote storage to which nothing was uploaded yet: a state, and no mistake of the user."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from in_process import in_json, snaprebuild
from log_dirs import make_log_dir, write_partition
from manifests import FIXTURES

TIERED = FIXTURES / "tiered-local" / "logs"


def empty(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


def test_offsets(tmp_path: Path) -> None:
    """As with a metadata log without a record: both mean that nothing was uploaded (``ListOffsets`` answers -1 for -5)."""
    store = empty(tmp_path)
    run = in_json("follower offsets", TIERED, store, "--topic", "mixed")
    assert (run.exit_code, run.codes) == (0, {"tier-empty": 1})
    assert "the store is empty: nothing was uploaded, or it is another store" in run.messages("tier-empty")
    found = {each["timestamp_ms"]: each["offset"] for each in run.document["partitions"][0]["answers"]}
    assert (found[-5], found[-4], found[-2]) == (-1, 0, 0)
    log = write_partition(make_log_dir(tmp_path / "logs") / "__remote_log_metadata-0", {0: b""}).parent
    told = in_json("follower offsets", TIERED, store, "--topic", "mixed", "--metadata-log", log)
    assert told.document["partitions"][0]["answers"] == run.document["partitions"][0]["answers"]
    table = snaprebuild("follower", "offsets", TIERED, store, "--topic", "mixed").stdout
    assert "the store has no copy: nothing was uploaded" in " ".join(table.split())


@pytest.mark.parametrize(
    ("verb", "options"),
    [("follower fetch-path", ("--offset", "700")), ("follower plan", ()), ("follower plan", ("--profile", "kip-1023"))],
)
def test_other_questions(tmp_path: Path, verb: str, options: tuple[str, ...]) -> None:
    run = in_json(verb, TIERED, empty(tmp_path), "--topic", "mixed", *options)
    assert (run.exit_code, run.codes) == (0, {"tier-empty": 1})


def test_an_empty_store_of_a_log_whose_beginning_was_uploaded(tmp_path: Path) -> None:
    """The disk begins above the log start, so that something must have been uploaded: it is the wrong store."""
    logs = Path(shutil.copytree(FIXTURES / "follower-lost-state" / "node1", tmp_path / "logs"))
    bases = sorted(path.stem for path in (logs / "payments-0").glob("*.log"))
    for path in (logs / "payments-0").glob(f"{bases[0]}.*"):
        path.unlink()
    (logs / "log-start-offset-checkpoint").write_text("0\n1\npayments 0 0\n")
    run = in_json("follower offsets", logs, empty(tmp_path), "--topic", "payments", "--assume", "remote_storage=on")
    assert (run.exit_code, run.codes["remote-part-missing"]) == (1, 1)
