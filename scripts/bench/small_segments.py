"""Many small segments, and many partitions: what each costs a command, next to a loop that only makes the system calls."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from make_partition import Shape, make_partition

SEGMENTS = 2048
SEGMENT_BYTES = 16 << 10
PARTITIONS = 20_000
"""Partitions of three segments of 4 KiB."""


@dataclass(frozen=True)
class Row:
    """One command and what it is compared with.

    Attributes:
        goal_ms: of each segment, or partition.
        floor: makes the system calls only.
    """

    name: str
    command: tuple[str, ...]
    items: int
    goal_ms: float
    floor: Callable[[], None]
    prepare: Callable[[], None] = lambda: None


def read_all(paths: list[Path]) -> None:
    """Opens, checks, reads and closes each file."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fstat(fd)
        os.read(fd, 1 << 20)
        os.fstat(fd)
        os.close(fd)


def list_all(directory: Path) -> None:
    """Lists each partition, and asks for the size of each segment."""
    for each in os.scandir(directory):
        with os.scandir(each.path) as listing:
            for entry in listing:
                if entry.name.endswith(".log"):
                    entry.stat()


def write_all(directory: Path, count: int, data: bytes) -> None:
    """Writes, syncs and names as many files."""
    directory.mkdir()
    for number in range(count):
        temporary = directory / f"{number}.tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, data)
        os.fsync(fd)
        os.close(fd)
        os.link(temporary, directory / str(number))
        os.unlink(temporary)


def many_partitions(directory: Path) -> Path:
    """Copies of one partition, with what a broker keeps next to its segments."""
    make_partition(directory / "one-0", Shape(350, 3 * (4 << 10), 4 << 10, producers=5))
    files = {path.name: path.read_bytes() for path in (directory / "one-0").iterdir()}
    files |= {name.replace(".log", ".timeindex"): b"" for name in files if name.endswith(".log")}
    files["leader-epoch-checkpoint"] = b"0\n1\n7 0\n"
    shutil.rmtree(directory / "one-0")
    for number in range(PARTITIONS):
        partition = directory / f"topic{number // 50}-{number % 50}"
        partition.mkdir()
        for name, data in files.items():
            (partition / name).write_bytes(data)
    return directory


def rows(scratch: Path) -> Iterator[Row]:
    """Yields the measured commands. A directory is made when its row is due."""
    bare = scratch / "bare"
    whole = scratch / "whole"
    out = scratch / "out"
    make_partition(bare / "small-0", Shape(350, SEGMENTS * SEGMENT_BYTES, SEGMENT_BYTES, producers=100))
    logs = sorted(bare.glob("*/*.log"))

    def no_out() -> None:
        # Renamed, not removed: for some seconds ext4 passes over the inodes of removed files one by one, which takes half of the time.
        for directory in (out, scratch / "floor"):
            if directory.exists():
                directory.rename(scratch / f"old-{directory.name}-{time.time_ns()}")

    rebuild = ("rebuild", str(bare), "--out", str(out))
    yield Row("rebuild --out", rebuild, SEGMENTS, 0.5, lambda: write_all(scratch / "floor", SEGMENTS, bytes(4096)), no_out)
    shutil.copytree(bare, whole)
    for path in out.glob("*/*.snapshot"):
        shutil.copy(path, whole / "small-0")
    files = [*logs, *sorted(whole.glob("*/*.snapshot"))]
    yield Row("verify", ("verify", str(whole)), SEGMENTS, 0.3, lambda: read_all(files))
    yield Row("plan", ("plan", str(bare)), SEGMENTS, 0.3, lambda: list_all(bare))
    many = many_partitions(scratch / "many")
    yield Row("plan, of each partition", ("plan", str(many)), PARTITIONS, 0.2, lambda: list_all(many))
    yield Row("scan, of each partition", ("scan", str(many)), PARTITIONS, 0.1, lambda: list_all(many))
    segments = 3 * PARTITIONS
    small = sorted(many.glob("*/*.log"))
    yield Row("verify, of each segment of these", ("verify", str(many)), segments, 0.3, lambda: read_all(small))


def small_rows(scratch: Path, repeat: int) -> bool:
    """Prints what each segment or partition costs, by the whole command; whether all goals are met."""
    print(f"\n{SEGMENTS:,} segments of {SEGMENT_BYTES >> 10} KiB in one partition, and {PARTITIONS:,} partitions of three segments")
    ok = True
    environment = os.environ | {"XDG_STATE_HOME": str(scratch / "state")}
    for row in rows(scratch):
        took = []
        floor = []
        peak = 0
        for _ in range(repeat):
            row.prepare()
            begin = time.perf_counter()
            # The exit code is that of what was found; any other one is a failure.
            command = [sys.executable, "-m", "snaprebuild", *row.command]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
            _, status, used = os.wait4(process.pid, 0)
            took.append(time.perf_counter() - begin)
            assert os.waitstatus_to_exitcode(status) in (0, 1), row.command
            peak = max(peak, used.ru_maxrss >> 10)
            begin = time.perf_counter()
            row.floor()
            floor.append(time.perf_counter() - begin)
        each = min(took) / row.items * 1e3
        ok &= each <= row.goal_ms
        verdict = "ok" if each <= row.goal_ms else "MISSED"
        print(
            f"  {row.name:34} {min(took):6.2f} s {each:6.2f} ms (<= {row.goal_ms})  {verdict:6}"
            f"  {min(took) / min(floor):5.1f} x the calls alone, {peak} MiB"
        )
    sys.stdout.flush()
    return ok
