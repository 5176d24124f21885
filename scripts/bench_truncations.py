"""Truncates segments while workers look at them, a thousand in one run: results stay right, and the time that is lost is printed.

Each partition has rolled segments, which workers map, and an active one. A worker announces when it is about to look at a segment. Then
this process cuts the file: at a batch boundary, inside a batch, or inside its last page. Part of the segments is cut before they are
opened, before they are checked, after they were read, or at the same time as they are read.

One run is as users run it: after three deaths of workers nothing is mapped. Another has no such limit. Every snapshot must be that of a run
that only reads. A partition may be refused for a segment that was cut, with an error that has the two sizes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from make_partition import Shape, make_partition
from truncated_reads import MOMENTS, SETTINGS

HERE = Path(__file__).resolve().parent
SECONDS_MAX = 900
"""Of a run: a longer one hangs."""

DEATH = " a file became shorter while it was read: "
"""What the command logs for each group of workers of which one died of SIGBUS."""

INTACT_SHARE = 10
"""For each ten partitions with a segment that is cut there is one that stays as it is."""

WEIGHTS = {"opening": 1, "looking": 6, "race": 2, "ending": 1, "after": 1}
"""How often a segment is cut at each of the moments."""
assert tuple(WEIGHTS) == MOMENTS

UNLIMITED = 1 << 30

MAY_BE_READ = frozenset({"race", "after"})
"""Moments at which a worker may have read all of the segment."""


@dataclass(frozen=True)
class Cut:
    """What happens to a segment: when, and its sizes before and after."""

    moment: str
    before_bytes: int
    after_bytes: int


@dataclass(frozen=True)
class Ended:
    """The end of a run: seconds of the whole command, exit code, document, and how often workers died of SIGBUS."""

    seconds: float
    exit_code: int
    document: dict[str, object]
    deaths: int


def make_partitions(root: Path, numbers: Iterator[int] | range, seed: int) -> None:
    """Partitions of two or three rolled segments of 64 to 512 KiB, and an active one. The same bytes for the same number."""
    for number in numbers:
        own = random.Random(seed + number)
        segment = own.randrange(64 << 10, 512 << 10)
        shape = Shape(own.choice((8 << 10, 16 << 10)), own.choice((3, 4)) * segment, segment, producers=50)
        shutil.rmtree(root / f"t-{number}", ignore_errors=True)
        make_partition(root / f"t-{number}", shape, seed + number)


def batch_ends(path: Path) -> list[int]:
    """Where each batch ends, by the lengths in the file."""
    data, at, ends = path.read_bytes(), 0, []
    while at < len(data):
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        ends.append(at)
    return ends


def planned_cuts(root: Path, count: int, chance: random.Random) -> dict[str, Cut]:
    """One rolled segment of each of the first ``count`` partitions."""
    cuts = {}
    for number in range(count):
        path = chance.choice(sorted((root / f"t-{number}").glob("*.log"))[:-1])
        size, ends = path.stat().st_size, batch_ends(path)
        last_page = (size - 1) // 4096 * 4096
        lengths = (0, chance.choice(ends[:-1]), chance.randrange(size), chance.randrange(last_page, size))
        (moment,) = chance.choices(MOMENTS, [*WEIGHTS.values()])
        cuts[str(path)] = Cut(moment, size, chance.choices(lengths, (1, 4, 4, 1))[0])
    return cuts


class Truncator(socketserver.ThreadingUnixStreamServer):
    """Cuts a segment once a worker announces it."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: Path, cuts: dict[str, Cut]) -> None:
        super().__init__(str(path), _Announcement)
        self.cuts, self.done = cuts, dict[str, Cut]()

    def announce(self, path: str) -> None:
        """The first time; a segment that is read again stays as it is."""
        if path in self.cuts and path not in self.done:
            self.done[path] = self.cuts[path]
            with open(path, "r+b") as file:
                file.truncate(self.cuts[path].after_bytes)


class _Announcement(socketserver.StreamRequestHandler):
    server: Truncator

    def handle(self) -> None:
        self.server.announce(os.fsdecode(self.rfile.readline().rstrip(b"\n")))
        with contextlib.suppress(OSError):  # a worker that does not wait, or was killed
            self.wfile.write(b"\n")


def run(scratch: Path, out: Path, settings: dict[str, object] | None, *options: str) -> Ended:
    """Rebuilds all partitions; without ``settings`` it is the plain command."""
    shutil.rmtree(out, ignore_errors=True)
    (scratch / "receipt.jsonl").unlink(missing_ok=True)
    kept = scratch / "settings.json"
    kept.write_text(json.dumps(settings))
    program = ["-m", "snaprebuild"] if settings is None else [str(HERE / "truncated_reads.py")]
    words = ["rebuild", str(scratch / "logs"), "--out", str(out), "--receipt", str(scratch / "receipt.jsonl"), "--crc", "skip"]
    words += ["--boundaries", "all", "--replay-from", "log-start", "--output", "json", "-v", *options]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), SETTINGS: str(kept)}
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *program, *words],
        cwd=scratch,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    seconds = time.perf_counter() - begin
    return Ended(seconds, done.returncode, json.loads(done.stdout), done.stderr.count(DEATH))


def snapshots(out: Path) -> dict[str, bytes]:
    """Every file below a directory, by its path there."""
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def faults(ended: Ended, found: dict[str, bytes], expected: dict[str, bytes], cuts: dict[str, Cut]) -> tuple[list[str], set[str]]:
    """What is wrong with a run, and the paths of the segments for which it refused their partitions.

    Args:
        ended: the run.
        found: its files.
        expected: those of a run that only reads, of whole segments.
        cuts: what was done to segments meanwhile.
    """
    wrong = [f"{name}: not the bytes of a run that reads" for name, data in found.items() if expected.get(name) != data]
    findings = ended.document["findings"]
    assert isinstance(findings, list)
    refused: dict[str, str] = {}
    for each in findings:
        cut = cuts.get(each["path"])
        if cut is not None and f": expected {cut.before_bytes} bytes, found {cut.after_bytes} " in each["message"]:
            refused[Path(each["path"]).parent.name] = each["path"]
        elif each["code"] != "boundary-not-reached":
            wrong.append(f"{each['path']}: {each['message']}")
    for name in expected.keys() - found.keys():
        directory, file = name.split("/")
        if directory not in refused or int(Path(file).stem) <= int(Path(refused[directory]).stem):
            wrong.append(f"{name}: is missing, and no segment below it was cut")
    read = (path for path, cut in cuts.items() if cut.moment not in MAY_BE_READ and path not in refused.values())
    wrong += [f"{path}: a result, though it was cut before it was read" for path in read]
    if ended.exit_code != (3 if refused else 0):
        wrong.append(f"exit code {ended.exit_code}")
    return wrong, set(refused.values())


def truncated_run(scratch: Path, cuts: dict[str, Cut], limit: int | None) -> tuple[Ended, dict[str, Cut]]:
    """A run of two workers while another process cuts segments. Returns its end, and what was cut."""
    socket = scratch / "socket"
    socket.unlink(missing_ok=True)
    with Truncator(socket, cuts) as truncator:
        threading.Thread(target=truncator.serve_forever, daemon=True).start()
        moments = {path: cut.moment for path, cut in cuts.items()}
        settings: dict[str, object] = {"socket": str(socket), "moments": moments, "limit": limit}
        ended = run(scratch, scratch / "mapped", settings, "--jobs", "2")
        truncator.shutdown()
    return ended, truncator.done


def left_over(scratch: Path) -> list[str]:
    """Core files, and temporary files."""
    return [f"{path}: left over" for path in scratch.rglob("*") if path.name.startswith("core") or path.name.endswith(".tmp")]


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truncations", type=int, default=1000, help="in each run; default: 1000")
    parser.add_argument("--rounds", type=int, default=1, help="of three runs with truncations; default: 1")
    parser.add_argument("--seed", type=int, default=1, help="of segments, moments and lengths; default: 1")
    parser.add_argument("--directory", type=Path, default=Path.cwd(), help="on ext4, XFS or tmpfs; default: this one")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
    partitions = options.truncations + -(-options.truncations // INTACT_SHARE)
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bench-truncations-", dir=options.directory) as made:
        scratch = Path(made)
        logs = scratch / "logs"
        make_partitions(logs, range(partitions), options.seed)
        cuts = planned_cuts(logs, options.truncations, random.Random(options.seed))
        run(scratch, scratch / "read", None, "--jobs", "1")
        expected = snapshots(scratch / "read")
        sizes = [path.stat().st_size for path in logs.rglob("*.log")]
        print(
            f"{partitions} partitions, {len(sizes)} segments, {sum(sizes) / 2**20:,.0f} MiB, {len(expected)} snapshots; two workers"
        )
        print(f"{'truncations':40} {'done':>5} {'deaths':>7} {'refused':>8} {'faults':>7} {'seconds':>8}")

        def row(name: str, cuts: dict[str, Cut], limit: int | None = None, *, kills: bool = False) -> tuple[float, set[str]]:
            ended, done = truncated_run(scratch, cuts, limit)
            found, refused = faults(ended, snapshots(scratch / "mapped"), expected, done)
            found += left_over(scratch)
            found += [] if len(done) == len(cuts) else ["not every segment was cut"]
            found += [] if bool(ended.deaths) == kills else [f"{ended.deaths} deaths"]
            wrong.extend(found)
            print(f"{name:40} {len(done):5} {ended.deaths:7} {len(refused):8} {len(found):7} {ended.seconds:8.1f}", flush=True)
            make_partitions(logs, range(options.truncations), options.seed)
            return ended.seconds, refused

        lost: list[tuple[float, float]] = []
        row("none", {})
        for _ in range(options.rounds):
            seconds, refused = row("while segments are read", cuts, kills=True)
            unlimited, _ = row("while they are read, any count of deaths", cuts, UNLIMITED, kills=True)
            # The same snapshots are written: the difference is what dead workers cost.
            early = {path: replace(cuts[path], moment="opening") for path in refused}
            alive, _ = row("of refused ones, before they are opened", early)
            lost.append((seconds - alive, unlimited - alive))
        usual, unlimited = (statistics.median(each) for each in zip(*lost, strict=True))
        print(f"lost by dead workers, median: {usual:.1f} s, with any count of deaths {unlimited:.1f} s")
    print("\n".join(wrong[:20]), end="\n" if wrong else "", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
