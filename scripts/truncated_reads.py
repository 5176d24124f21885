"""The command, with workers that announce to another process what they look at, so that it can truncate just that (bench_truncations)."""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import sys
from pathlib import Path

from snaprebuild.snapshots.engine.segment_reader import Pieces, ReadTask, read_segment
from snaprebuild.storage.local.segment_file import SegmentFile

__all__ = ["MOMENTS", "SETTINGS", "UNLIMITED", "command", "read_announced"]

SETTINGS = "TRUNCATED_READS"
"""Environment variable: file with a JSON object. ``socket``: where moments are announced; ``moments``: by path of a segment;
``deaths``: file that gets the count of workers that died of SIGBUS; ``limit``: of such deaths, None for that of the command."""

MOMENTS = ("opening", "looking", "race", "ending", "after")
"""Before it is opened, with the first bytes mapped or before they are read, the same without a wait, before it is checked, afterwards."""

UNLIMITED = 1 << 30
_at: dict[str, str] = {}
"""The moment of the segment that is read now, by its path; empty once it is announced."""


@functools.cache
def _settings() -> dict[str, object]:
    found: dict[str, object] = json.loads(Path(os.environ[SETTINGS]).read_text())
    return found


def _announce(path: str, *moments: str) -> None:
    """Waits until the other process has done what it does then. In a race it does not wait."""
    if (moment := _at.get(path)) not in moments:
        return
    del _at[path]
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(str(_settings()["socket"]))
        other.sendall(os.fsencode(path) + b"\n")
        if moment != "race":
            other.recv(1)


def read_announced(task: ReadTask) -> Pieces:
    """As ``read_segment``, in a worker."""
    moments = _settings()["moments"]
    assert isinstance(moments, dict)
    if task.path in moments:
        _at[task.path] = moments[task.path]
    _announce(task.path, "opening")
    pieces = read_segment(task)
    _announce(task.path, "after")
    return pieces


def _patch_files() -> None:
    window, read_into, check_unchanged = SegmentFile.window, SegmentFile.read_into, SegmentFile.check_unchanged

    def announced_window(file: SegmentFile, position_bytes: int, count: int) -> memoryview | None:
        found = window(file, position_bytes, count)
        if found is not None:
            _announce(file.name, "looking", "race")
        return found

    def announced_read(file: SegmentFile, position_bytes: int, buffer: memoryview) -> int:
        _announce(file.name, "looking", "race")
        return read_into(file, position_bytes, buffer)

    def announced_check(file: SegmentFile) -> None:
        _announce(file.name, "ending")
        check_unchanged(file)

    SegmentFile.window, SegmentFile.read_into, SegmentFile.check_unchanged = announced_window, announced_read, announced_check  # type: ignore[method-assign]


_patch_files()


def command() -> None:
    """Runs the command with the arguments of this program."""
    from snaprebuild.cli.main import main
    from snaprebuild.snapshots.engine import schedule

    deaths = Path(str(_settings()["deaths"]))
    sort_lost = schedule._Pool._sort_lost

    def counting(pool: schedule._Pool) -> None:
        died = sum(worker.exitcode == -signal.SIGBUS for worker in pool.workers.values())
        deaths.write_text(str(int(deaths.read_text() or 0) + died))
        sort_lost(pool)

    deaths.write_text("")
    schedule._Pool._sort_lost = counting  # type: ignore[method-assign]
    schedule.read_segment = read_announced  # type: ignore[attr-defined]
    if _settings()["limit"] is not None:
        schedule.MAPPED_DEATHS_MAX = int(str(_settings()["limit"]))
    main()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    from truncated_reads import command as run  # workers find its functions under this name

    run()
