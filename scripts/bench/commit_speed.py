#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: package
"""Times the default commands of two checkouts of this project in turn, on the same generated log directories.

    git worktree add ../before COMMIT && (cd ../before && bash scripts/setup)
    scripts/bench/commit_speed.py --before ../before

Each command runs in a fresh process of either checkout, one after the other, ``--rounds`` times. The least of each counts: seconds by
the clock, and seconds of all processors (the command and its workers). The last two columns are the quotients of the two checkouts: above
1 the second one is slower. Both must end with the same exit code. ``--check`` fails if a quotient of processor time is above
``MOST_SLOWER``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from make_partition import Shape, make_partition

MIB = 1 << 20
MOST_SLOWER = 1.05
ROOT = Path(__file__).resolve().parents[2]

UPLOAD_HOOK = """
import sys
from pathlib import Path
from snaprebuild.hooks import ensure_snapshot
partition = Path(sys.argv[1])
newest = max(int(path.stem) for path in partition.glob("*.log"))
ensure_snapshot(partition, newest, out=Path(sys.argv[2]))
"""


@dataclass(frozen=True)
class Case:
    """One command.

    Attributes:
        arguments: after ``python``; ``{out}`` is replaced by a directory that does not exist yet.
    """

    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Taken:
    """Times of one process, in seconds, and its exit code."""

    clock: float
    processor: float
    exit_code: int


def cases(scratch: Path) -> list[Case]:
    """Makes the log directories, and names the commands."""
    large = scratch / "large"
    dense = scratch / "dense"
    small = scratch / "small"
    many = scratch / "many"
    make_partition(large / "large-0", Shape(16 << 10, 768 * MIB))
    make_partition(dense / "dense-0", Shape(350, 256 * MIB))
    make_partition(small / "small-0", Shape(350, 2048 * (16 << 10), 16 << 10, producers=100))
    for number in range(1000):
        make_partition(many / f"many-{number}", Shape(350, 3 * (4 << 10), 4 << 10, producers=5), seed=number)
    snaprebuild = ("-m", "snaprebuild")
    named = []
    for directory in (large, dense, small, many):
        name = directory.name
        named.append(Case(f"rebuild --out, {name}", (*snaprebuild, "rebuild", str(directory), "--out", "{out}")))
        named.append(Case(f"verify, {name}", (*snaprebuild, "verify", str(directory))))
    for directory in (small, many):
        named.append(Case(f"plan, {directory.name}", (*snaprebuild, "plan", str(directory))))
        named.append(Case(f"scan, {directory.name}", (*snaprebuild, "scan", str(directory))))
    named.append(Case("rebuild --crc skip, large", (*snaprebuild, "rebuild", str(large), "--out", "{out}", "--crc", "skip")))
    named.append(Case("ensure_snapshot, dense", ("-c", UPLOAD_HOOK, str(dense / "dense-0"), "{out}")))
    named.append(Case("--help", (*snaprebuild, "--help")))
    return named


def run(checkout: Path, case: Case, scratch: Path) -> Taken:
    """Runs the command of one checkout in a fresh process.

    Raises:
        RuntimeError: it ended by a signal or as a wrong call, so that its time says nothing.
    """
    out = Path(tempfile.mkdtemp(dir=scratch)) / "out"
    arguments = [str(out) if argument == "{out}" else argument for argument in case.arguments]
    environment = os.environ | {"XDG_STATE_HOME": str(scratch / "state")}
    began = time.perf_counter()
    process = subprocess.Popen(
        [checkout / ".venv/bin/python", *arguments],
        cwd=checkout,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    clock = time.perf_counter() - began
    exit_code = os.waitstatus_to_exitcode(status)
    if exit_code not in (0, 1):
        raise RuntimeError(f"{case.name} in {checkout}: exit {exit_code}; expected 0, or 1 for findings")
    shutil.rmtree(out.parent)
    return Taken(clock, used.ru_utime + used.ru_stime, exit_code)


def main() -> int:
    """Prints a row for each command. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="the other checkout, set up with scripts/setup")
    parser.add_argument("--after", type=Path, default=ROOT, help="default: this one")
    parser.add_argument("--rounds", type=int, default=10, help="runs of each command in each checkout (default: 10)")
    parser.add_argument("--only", default="", help="only commands whose name contains this text")
    parser.add_argument("--check", action="store_true", help=f"fail if processor time rose to more than {MOST_SLOWER} times")
    options = parser.parse_args()
    before = options.before.resolve()
    after = options.after.resolve()
    is_slower = False
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        print(f"{'':28} {'clock, s':>17} {'processor, s':>17} {'clock':>7} {'processor':>9}")
        for case in cases(scratch):
            if options.only not in case.name:
                continue
            earlier = []
            later = []
            for _ in range(options.rounds):
                earlier.append(run(before, case, scratch))
                later.append(run(after, case, scratch))
            codes = {each.exit_code for each in (*earlier, *later)}
            if len(codes) > 1:
                print(f"{case.name}: the exit codes differ: {sorted(codes)}")
            clocks = min(each.clock for each in earlier), min(each.clock for each in later)
            processors = min(each.processor for each in earlier), min(each.processor for each in later)
            quotient = processors[1] / processors[0]
            is_slower |= quotient > MOST_SLOWER
            print(
                f"{case.name:28} {clocks[0]:8.2f} {clocks[1]:8.2f} {processors[0]:8.2f} {processors[1]:8.2f}"
                f" {clocks[1] / clocks[0]:7.2f} {quotient:9.2f}",
                flush=True,
            )
    return 1 if options.check and is_slower else 0


if __name__ == "__main__":
    sys.exit(main())
