"""What ``rebuild`` takes and what it says: usage, documents, tables, readers that go away."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command import COMMAND, in_json, snaprebuild
from log_dirs import (
    batch,
    changes,
    copy_of,
    files_below,
    make_log_dir,
    snapshot_name,
    tree,
    write_partition,
)
from manifests import REPOSITORY

LINE = ("--boundaries", "all", "--replay-from", "log-start", "--keep-expired")


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
    run = (
        snaprebuild("rebuild", *arguments, "--out", tmp_path / "out")
        if arguments[:1] != ("--plan",)
        else snaprebuild("rebuild", *arguments)
    )
    assert (run.exit_code, run.stdout) == (2, ""), run
    assert run.stderr
    assert not (tmp_path / "out").exists()


def test_an_unknown_path_is_named() -> None:
    run = snaprebuild("rebuild", "fixtures/nowhere", "--dry-run")
    assert run.exit_code == 2
    assert "fixtures/nowhere: does not exist" in run.stderr


@pytest.mark.full
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
    options = f"--dry-run --boundaries all --output json --out {tmp_path}/o"
    shell = f"{sys.executable} -m snaprebuild rebuild fixtures/kafka27-mixed {options} | head -n 2"
    done = subprocess.run(["bash", "-c", shell], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["{", '  "schema": "snaprebuild.rebuild/2",']
    assert done.stderr == ""


def test_a_report(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    run = in_json("rebuild", "fixtures/magicup", "--out", tmp_path / "out", "--save-json", report)
    assert json.loads(report.read_text()) == run.document
    lost = snaprebuild("rebuild", "fixtures/magicup", "--out", tmp_path / "out", "--save-json", "/proc/report", "--output", "json")
    assert lost.exit_code == 5
    assert json.loads(lost.stdout)["totals"]["equal"] == 4, "the result is not lost with the report"


def test_names_that_a_terminal_would_take_for_markup(tmp_path: Path) -> None:
    odd = tmp_path / "[bold]x[/] :smile: [/red]"
    logs = make_log_dir(odd / "logs")
    write_partition(logs / "t-0", {0: batch(0, producer_id=7)})
    for verb in ("rebuild", "plan", "verify"):
        run = snaprebuild(verb, logs, *(() if verb == "verify" else ("--out", odd / "out")))
        assert run.exit_code == 0, run.stderr
    assert "[bold]x[/] :smile: [/red]/out" in snaprebuild("plan", logs, "--out", odd / "out", "--boundaries", "all").stdout
    assert files_below(odd / "out") == {f"t-0/{snapshot_name(1)}"}


def test_names_that_are_no_text(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    logs = make_log_dir(odd / "logs")
    write_partition(logs / "t-0", {0: batch(0, producer_id=7)})
    for output in ("table", "json"):
        # A terminal that takes nothing but text.
        environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
        command = [*COMMAND, "rebuild", os.fsencode(logs), "--out", os.fsencode(odd / "out"), "--output", output]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=False, env=environment)
        assert b"Traceback" not in done.stderr, done.stderr
        assert done.returncode == 0


def test_the_table_for_people(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    run = snaprebuild("rebuild", logs)
    assert run.exit_code == 0
    answer = "14 snapshots written in 2 of 4 partitions. They take effect when the broker next starts.\n"
    assert run.stdout.startswith(f"{answer}Next: snaprebuild verify --receipt ")
    assert "\nUndo: snaprebuild undo " in run.stdout
    assert re.search(r"mixed-0 +583 \.\. 6390 +12 written +12 proven", run.stdout)
    assert run.stderr == ""


def test_the_first_help_line_says_that_it_writes() -> None:
    help_text = snaprebuild("rebuild", "--help").stdout
    assert "WRITES" in help_text.split("Options")[0]
    for verb in ("scan", "plan", "verify"):
        assert "Reads only" in snaprebuild(verb, "--help").stdout.split("Options")[0]


def test_a_report_that_may_not_be_written_there_is_refused_before_the_work(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    before = tree(logs)
    ran = snaprebuild("rebuild", logs, "--save-json", logs / "mixed-0" / "report.json")
    assert ran.exit_code == 3, ran.stderr
    assert changes(before, tree(logs)) == (set(), set(), set())
