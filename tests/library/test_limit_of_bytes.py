"""The limit of bytes of a call of the library, when a broker deletes segments during the replay."""

from dataclasses import replace
from pathlib import Path

import pytest
from log_dirs import copy_of, remove_snapshots, truth

from snaprebuild import ReplayOptions, SnapshotRefusedError, ensure_snapshot
from snaprebuild.errors import GoneFileError
from snaprebuild.snapshots import ensure_snapshot as ensure_snapshot_module
from snaprebuild.snapshots.engine import schedule
from snaprebuild.snapshots.ensure_snapshot import OneBoundaryTask
from snaprebuild.snapshots.run import Run

EARLY = ReplayOptions(as_of_ms=0)
"""A time at which nothing had expired."""


def test_each_byte_counts_once_against_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment goes twice during the replay: three reads of it are allowed as many bytes as three reads are."""
    mixed = copy_of("kafka27-mixed", tmp_path) / "mixed-0"
    remove_snapshots(mixed)
    offset = sorted(truth("kafka27-mixed", "mixed-0"))[-2]
    options = replace(EARLY, replay_from="log-start")
    once = ensure_snapshot(mixed, offset, options=options).read_bytes
    lost: list[str] = []

    def run_behind_retention(works: list[OneBoundaryTask], run: Run) -> None:
        schedule.run_tasks(works, run)
        if len(lost) < 2:
            lost.append(works[0].path)
            works[0].failure = GoneFileError("is gone", path=works[0].path)

    monkeypatch.setattr(ensure_snapshot_module, "run_tasks", run_behind_retention)
    assert ensure_snapshot(mixed, offset, options=options, max_bytes=3 * once).read_bytes == once
    assert len(lost) == 2
    lost.clear()
    with pytest.raises(SnapshotRefusedError, match="max_bytes"):
        ensure_snapshot(mixed, offset, options=options, max_bytes=3 * once - 1)
