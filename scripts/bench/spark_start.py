#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: spark
"""How long the command's own session of Spark takes to start, and to end after Ctrl-C in the middle of a job.

The start is that of ``opened_session`` in a new process, and of a first job with one task. Ctrl-C comes when the first file
is written, while tasks read under a rate.
The time ends when no process of the command is left. Then each file that the run wrote is in its receipt, and ``undo`` takes it back.
The least and the greatest time of the repeats are printed.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from driver_process import workers_of
from make_partition import Shape, make_partition

START = """
import time
began = time.perf_counter()
from snaprebuild.spark.session import opened_session
with opened_session("local[2]") as session:
    started = time.perf_counter()
    session.range(1).mapInArrow(lambda batches: batches, "id long").collect()
    print(started - began, time.perf_counter() - started)
"""
PARTITIONS = 16
RATE = 1 << 20
SECONDS_MAX = 600


def wait_until(holds: Callable[[], object]) -> None:
    """Waits for a condition.

    Raises:
        TimeoutError: it does not hold in time.
    """
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the run does not come so far")
        time.sleep(0.01)


def interrupted(logs: Path, place: Path) -> tuple[float, int]:
    """Seconds from Ctrl-C to the end of the last process, and how many files were taken back."""
    place.mkdir()
    out, receipt = place / "out", place / "receipt.jsonl"
    words = [
        "rebuild",
        logs,
        "--out",
        out,
        "--receipt",
        receipt,
        "--boundaries",
        "all",
        "--engine",
        "spark",
        "--master",
        "local[2]",
    ]
    program = [sys.executable, "-m", "snaprebuild"]
    command = [*program, *map(str, words), "--set", f"max_read_rate={RATE}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True, text=True) as process:
        wait_until(lambda: next(out.rglob("*.snapshot"), None) or process.poll() is not None)
        assert process.poll() is None, process.communicate()[1]
        began = time.perf_counter()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS_MAX)
        wait_until(lambda: not workers_of(process.pid))
        seconds = time.perf_counter() - began
    assert process.returncode == 130, process.returncode
    files = sum(1 for _ in out.rglob("*.snapshot"))
    # What was being written has the name of a temporary file: a snapshot that has its name is whole.
    others = {each.name for each in out.rglob("*") if each.is_file() and each.suffix not in (".snapshot", ".jsonl", ".tmp")}
    assert not others, others
    subprocess.run(
        [*program, "verify", "--written-by", str(receipt)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    subprocess.run([*program, "undo", str(receipt)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert not list(out.rglob("*.snapshot"))
    return seconds, files


def main() -> None:
    """Prints the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    # A shell that starts this in the background lets it ignore Ctrl-C, and the commands below would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    starts: list[tuple[float, float]] = []
    for _ in range(repeats):
        done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True)
        start, first_job = map(float, done.stdout.split())
        starts.append((start, first_job))
    for what, times in (("the session starts", [each for each, _ in starts]), ("its first job", [each for _, each in starts])):
        print(f"{what}: {min(times):.2f} to {max(times):.2f} s", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        logs = Path(directory, "logs")
        for number in range(PARTITIONS):
            make_partition(logs / f"t-{number}", Shape(2048, 2 << 20, segment_bytes=1 << 20, producers=20), seed=number)
        ends = [interrupted(logs, Path(directory, f"{number}")) for number in range(repeats)]
    times = [seconds for seconds, _ in ends]
    written = sum(files for _, files in ends)
    print(f"from Ctrl-C to the end of the last process: {min(times):.2f} to {max(times):.2f} s")
    print(f"{written} files were written before, each whole, and undo took all of them back")


if __name__ == "__main__":
    main()
