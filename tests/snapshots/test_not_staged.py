"""A partition of which nothing could be staged: an install says what it still lacks, until a later run stages it."""

import shutil
from pathlib import Path

from log_dirs import snapshot_name
from manifests import bundled
from sentences import STAGE_AGAIN
from staged_logs import installed, running, staged

from snaprebuild.snapshots.install import missing_snapshots
from snaprebuild.snapshots.staging.staged_plan import load_staged_plan

FIRST = "00000000000000000000.log"
MISSING = 12
"""Boundaries between two segments of ``mixed-0`` that Kafka 2.7 left without a snapshot."""


def damaged(directory: Path) -> None:
    """Breaks the first batch."""
    with (directory / FIRST).open("r+b") as file:
        file.seek(8)
        file.write((1).to_bytes(4, "big"))


def test_install_lists_what_was_not_staged(tmp_path: Path) -> None:
    logs = running(Path(shutil.copytree(bundled("kafka27-mixed") / "logs", tmp_path / "logs")))
    damaged(logs / "mixed-0")
    staged(logs, tmp_path / "staged")
    (left_out,) = load_staged_plan(str(tmp_path / "staged" / "plan.jsonl")).not_staged
    assert left_out.path == str(logs / "mixed-0")
    assert len(missing_snapshots(left_out)) == MISSING

    run = installed(tmp_path / "staged", tmp_path / "receipt.jsonl", "--dry-run")
    assert run.exit_code == 1
    assert f"{MISSING} {STAGE_AGAIN}" in run.messages("not-staged")

    (logs / "mixed-0" / snapshot_name(583)).write_bytes(b"")
    assert len(missing_snapshots(left_out)) == MISSING - 1, "what is there now is not missing"


def test_a_later_run_that_stages_it_takes_it_off_the_list(tmp_path: Path) -> None:
    logs = running(Path(shutil.copytree(bundled("kafka27-mixed") / "logs", tmp_path / "logs")))
    damaged(logs / "mixed-0")
    staged(logs, tmp_path / "staged")
    shutil.copy(bundled("kafka27-mixed") / "logs" / "mixed-0" / FIRST, logs / "mixed-0")
    plan = str(tmp_path / "staged" / "plan.jsonl")

    staged(logs, tmp_path / "staged", "--topic", "logappend")
    assert [each.path for each in load_staged_plan(plan).not_staged] == [str(logs / "mixed-0")], "a run that did not look at it"
    staged(logs, tmp_path / "staged")
    assert not load_staged_plan(plan).not_staged
    assert not installed(tmp_path / "staged", tmp_path / "receipt.jsonl", "--dry-run").exit_code
