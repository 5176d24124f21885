"""What ``rebuild`` takes and what it says: usage, documents, tables, readers that go away."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from in_process import in_json, snaprebuild
from log_dirs import batch, changes, copy_of, make_log_dir, tree, write_partition


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
