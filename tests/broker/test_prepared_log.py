"""Kafka's own loader on a log of 2.7.2, before and behind ``before-start``: which snapshots an upload would find."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kafka_classpath import java_program
from log_dirs import copy_of, entries_in, truth
from manifests import REPOSITORY

pytestmark = pytest.mark.kafka

SECONDS = 120
LOG_END, OPEN_FROM = 8231, 6913
LEFT = {7045, 7637}
"""Boundaries of segments whose snapshots 2.7.2 left."""


@pytest.fixture(scope="module")
def loader() -> list[str]:
    """The command that loads a log."""
    return java_program("KnownSnapshots")


def asked(command: list[str], *arguments: object) -> tuple[dict[int, str], int]:
    """Bytes of each snapshot that the log knows of, in hex, by the next base offset; and the last stable offset."""
    done = subprocess.run(
        [*command, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert done.returncode == 0, done.stderr
    *lines, last = [line.split() for line in done.stdout.splitlines()]
    return {int(offset): known for offset, known in lines}, int(last[-1])


def test_a_broker_that_was_prepared_knows_every_snapshot(loader: list[str], tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    untouched = Path(shutil.copytree(logs, tmp_path / "untouched"))
    before, _ = asked(loader, untouched / "mixed-0", LOG_END)
    assert {offset for offset, known in before.items() if known != "null"} == LEFT
    assert len(before) == 14

    hook = [sys.executable, "-m", "snaprebuild", "before-start", str(logs), "--receipt", str(tmp_path / "receipt.jsonl"), "--"]
    known, last_stable = asked([*hook, *loader], logs / "mixed-0", LOG_END)
    expected = truth("kafka27-mixed", "mixed-0")
    assert {offset: entries_in(bytes.fromhex(data)) for offset, data in known.items()} == {
        offset: expected[offset] for offset in known
    }
    assert (len(known), last_stable) == (14, OPEN_FROM)


def test_files_that_come_behind_the_load_are_not_seen(loader: list[str], tmp_path: Path) -> None:
    """Why there is a hook before the start, and none beside a running broker."""
    logs = copy_of("kafka27-mixed", tmp_path)
    command = [sys.executable, "-m", "snaprebuild", "rebuild", str(logs / "mixed-0"), "--out", str(tmp_path / "late")]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([*command, "--receipt", str(tmp_path / "receipt.jsonl")], check=True, capture_output=True, env=environment)
    late = tmp_path / "late" / "mixed-0"
    assert len(list(late.iterdir())) == 12
    known, _ = asked(loader, logs / "mixed-0", LOG_END, late)
    assert {offset for offset, data in known.items() if data != "null"} == LEFT
    assert len(list((logs / "mixed-0").glob("*.snapshot"))) == 15
