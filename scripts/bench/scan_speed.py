#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: python
"""Times `snaprebuild scan` on a tree of empty segments against a bare listing with stat, and reports its memory."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMAND = str(Path(__file__).resolve().parents[1] / "snaprebuild")
EMPTY_SNAPSHOT = bytes.fromhex("000148674bc700000000")
ENDINGS = (".log", ".index", ".timeindex")
FORMS = {"table": (), "json": ("--output", "json")}
SECONDS_MAX, MEMORY_BYTES_MAX = 10.0, 300 << 20


def make(root: str, partitions: int, segments: int, snapshots: int) -> None:
    """A tree of partitions with sparse segments."""
    for number in range(partitions):
        directory = os.path.join(root, f"topic{number % 40}-{number // 40}")
        os.mkdir(directory)
        files = {f"{index * 1000:020d}{ending}": b"" for index in range(segments) for ending in ENDINGS}
        files |= {f"{(segments - 1 - index) * 1000:020d}.snapshot": EMPTY_SNAPSHOT for index in range(min(snapshots, segments - 1))}
        for name, data in {**files, "leader-epoch-checkpoint": b"0\n1\n0 0\n"}.items():
            with open(os.path.join(directory, name), "wb", buffering=0) as file:
                file.write(data)
                if name.endswith(".log"):
                    file.truncate(1 << 20)


def bare(root: str) -> float:
    """Seconds of a listing that looks at every file."""
    begin = time.perf_counter()
    for directory in os.scandir(root):
        for entry in os.scandir(directory.path):
            entry.stat()
    return time.perf_counter() - begin


def scan(root: str, *options: str) -> tuple[float, int]:
    """Seconds of the command, its start included, and the most memory that it held: anonymous, and pages of files that it maps."""
    begin = time.perf_counter()
    process = subprocess.Popen([COMMAND, "scan", root, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (0, 1), process.returncode
    return time.perf_counter() - begin, usage.ru_maxrss << 10


def main() -> int:
    """Prints the times; exit code 1 with ``--check`` if a promise is not kept."""
    parser = argparse.ArgumentParser(prog="scripts/bench/scan_speed.py", description=__doc__)
    parser.add_argument("partitions", nargs="?", type=int, default=4000, help="4000")
    parser.add_argument("segments", nargs="?", type=int, default=50, help="of each: 50")
    parser.add_argument("snapshots", nargs="?", type=int, default=3, help="of each: 3")
    parser.add_argument("--check", action="store_true", help="fails above 10 s or 300 MiB")
    arguments = parser.parse_args()
    is_kept = True
    with tempfile.TemporaryDirectory() as root:
        make(root, arguments.partitions, arguments.segments, arguments.snapshots)
        subprocess.run([COMMAND, "--version"], stdout=subprocess.DEVNULL, check=True)
        listing = min(bare(root) for _ in range(3))
        size = f"{arguments.partitions} partitions x {arguments.segments} segments, {arguments.snapshots} snapshots each"
        print(f"{size}, warm cache, best of 3")
        print(f"listing with stat        {listing:6.2f} s")
        for form, options in FORMS.items():
            runs = [scan(root, *options) for _ in range(3)]
            seconds = min(each for each, _ in runs)
            memory = max(each for _, each in runs)
            is_kept &= seconds <= SECONDS_MAX and memory <= MEMORY_BYTES_MAX
            print(f"scan, {form:<18} {seconds:6.2f} s, ratio {seconds / listing:.2f}, at most {memory / 2**20:.0f} MiB")
    return 1 if arguments.check and not is_kept else 0


if __name__ == "__main__":
    sys.exit(main())
