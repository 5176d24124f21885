#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: package
"""Counts with the kernel, page by page, which pages verbs leave in the page cache and which they push out of it.

Of each partition the last segment and the first one are in the cache before a run, as a broker and a consumer leave them; all others are
not. Three figures are reported. The first is the pages of the others in the cache, at most while it runs, and afterwards. The second is the
pages of the hot segments that are gone. The third is the growth of the cache of the whole machine (``Cached`` of /proc/meminfo), which
includes all other work of the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from make_partition import FIRST_PRODUCER_ID, Shape, make_partition
from resident_pages import resident_bytes

GROWTH_BYTES_MAX = 64 << 20
PUSHED_BYTES_MAX = 1 << 20
"""The kernel itself may need a page for something else meanwhile."""
PARTITIONS = 2
LOOKS_SECONDS = 0.02
MIB = 1 << 20
START = "from snaprebuild.cli.main import main; main()"
OLD_KERNEL = f"from snaprebuild.storage.io_limits import page_cache; page_cache._dontcache_is_trusted = lambda: False; {START}"
"""Behaves as a kernel before 6.16 in one process, because workers would not know."""
WAYS = {
    "as it is": (START, ()),
    "older kernels": (OLD_KERNEL, ("--jobs", "1")),
    "fill_page_cache": (START, ("--set", "fill_page_cache=true")),
}
WITHOUT_JOBS = ("plan", "scan", "inspect dump")


def verbs(logs: Path) -> dict[str, tuple[str, ...]]:
    """Name and arguments of what is measured."""
    clock = ("--as-of", "2023-11-15", "--expiration-ms", "86400000")
    log = str(sorted(logs.glob("*/*.log"))[1])
    return {
        "scan": ("scan", str(logs)),
        "plan": ("plan", str(logs), *clock),
        "rebuild --dry-run": ("rebuild", str(logs), "--out", str(logs.parent / "out"), "--dry-run", *clock),
        "verify": ("verify", str(logs), *clock),
        "inspect stats": ("inspect", "stats", str(logs), *clock),
        "inspect explain": ("inspect", "explain", str(logs), "--producer-id", str(FIRST_PRODUCER_ID), *clock),
        "inspect dump": ("inspect", "dump", log),
    }


def file_system(path: Path) -> str:
    """Type and mount point of the file system that holds a path."""
    mounts = [line.split()[:3] for line in Path("/proc/mounts").read_text().splitlines()]
    holding = [(place, kind) for _, place, kind in mounts if path.resolve().is_relative_to(place)]
    place, kind = max(holding, key=lambda each: len(each[0]))
    return f"{kind} at {place}"


def set_cached(path: Path, *, is_hot: bool) -> None:
    """Reads a file into the cache, or drops it from there."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    while is_hot and os.read(fd, 4 * MIB):
        pass
    os.close(fd)


def cached_of_machine() -> int:
    """Bytes in the page cache of everything."""
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("Cached:"))


def measured(arguments: tuple[str, ...], code: str, hot: list[Path], cold: list[Path]) -> tuple[float, int, int, int, int]:
    """Seconds of a run; in bytes: growth at most while it ran, and in the end, what was pushed out, growth of the machine."""
    for path in (*cold, *hot):
        set_cached(path, is_hot=path in hot)
    before = sum(resident_bytes(str(path))[0] for path in hot), sum(resident_bytes(str(path))[0] for path in cold)
    machine = cached_of_machine()
    begin = time.perf_counter()
    most = before[1]
    with (
        tempfile.TemporaryFile() as reported,
        subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.DEVNULL, stderr=reported) as process,
    ):
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LOOKS_SECONDS)
                break
            most = max(most, sum(resident_bytes(str(path))[0] for path in cold))
        seconds = time.perf_counter() - begin
        reported.seek(0)
        assert process.returncode in (0, 1), reported.read().decode()
    after = sum(resident_bytes(str(path))[0] for path in hot), sum(resident_bytes(str(path))[0] for path in cold)
    growth = after[1] - before[1]
    return seconds, max(most - before[1], growth), growth, before[0] - after[0], cached_of_machine() - machine


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=512, help="of each of two partitions; default: 512")
    parser.add_argument("--directory", type=Path, default=Path.cwd(), help="on the disk that is measured; default: this one")
    parser.add_argument(
        "--check", action="store_true", help="fail where a run has, or leaves, more than 64 MiB there, or pushes anything out"
    )
    options = parser.parse_args()
    ok = True
    with tempfile.TemporaryDirectory(prefix="bench-cache-", dir=options.directory) as scratch:
        logs = Path(scratch) / "logs"
        for number in range(PARTITIONS):
            make_partition(logs / f"bench-{number}", Shape(1000, options.mib * MIB, max(options.mib * MIB // 8, MIB)))
        segments = [sorted((logs / f"bench-{number}").glob("*.log")) for number in range(PARTITIONS)]
        hot = [path for paths in segments for path in (paths[0], paths[-1])]
        cold = [path for path in (*logs.glob("*/*.log"), *logs.glob("*/*.index")) if path not in hot]
        total = sum(path.stat().st_size for path in (*hot, *cold))
        print(
            f"{file_system(logs)}, Linux {os.uname().release}; {total / MIB:.0f} MiB, {sum(map(os.path.getsize, hot)) / MIB:.0f} hot"
        )
        print(f"\n{'verb':20} {'way':20} {'s':>6} {'at most, MiB':>12} {'left':>12} {'pushed out':>12} {'machine':>12}")
        for verb, arguments in verbs(logs).items():
            for way, (code, further) in WAYS.items():
                added = () if further[:1] == ("--jobs",) and verb in WITHOUT_JOBS else further
                seconds, most, left, pushed, machine = measured((*arguments, *added), code, hot, cold)
                figures = " ".join(f"{each / MIB:12.1f}" for each in (most, left, pushed, machine))
                print(f"{verb:20} {way:20} {seconds:6.2f} {figures}", flush=True)
                ok &= way == "fill_page_cache" or (most <= GROWTH_BYTES_MAX and pushed <= PUSHED_BYTES_MAX)
    return 0 if ok or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
