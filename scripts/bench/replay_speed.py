#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: package
"""Compares the speed of replay with small C programs that do the least possible work (scripts/bench/floor.c), all in one run.

Everything is measured in turn, several times over, and the least time of each counts: these are the times without whatever else the
machine was doing. Ratios of such times are what --check compares with what was promised.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from make_partition import Shape, make_partition
from msgspec.structs import replace
from several_disks import disk_rows
from small_segments import small_rows

from formats.limits import HEADER_BLOCK_BYTES
from formats.log.batch_headers import HeaderReader
from formats.partition.file_names import PartitionDirectoryName
from formats.partition.producer_snapshot import ENTRY_DTYPE, read_entries, write_entries
from snaprebuild.replay.block_effect import effect_of_block
from snaprebuild.replay.segment_summary import BLOCK_ROWS, SUMMARY_COLUMNS
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine.partition_replay import PartitionReplay, ReplayFrom
from snaprebuild.snapshots.engine.segment_reader import Pieces, ReadTask, read_group, read_segment, read_tasks
from snaprebuild.storage.io_limits.policy import IoLimits, limited_io
from snaprebuild.storage.local.publish import create_file
from snaprebuild.storage.local.segment_file import SegmentFile
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.partition_dir import PartitionDir, list_partition_dir, read_positions_hint
from snaprebuild.storage.store_path import ReadPath

HERE = Path(__file__).resolve().parent
NOISE_MAX = 1.4
"""Median to least time: above it a miss is not judged."""
MEMORY_MAX_BYTES = 128 << 20
BYTES_A_PRODUCER_MAX = 200


@dataclass(frozen=True)
class Promise:
    """A ratio of two least times that must not be exceeded (or, with ``at_least``, must be reached)."""

    what: str
    measured: str
    against: str
    limit: float
    at_least: bool = False


COLD_LOOP = "cold: loop that only reads, cache left"
COLD = {"headers": "cold: rebuild index, cache left", "CRC": "cold: rebuild index crc, cache left"}
COLD_SHARE_MIN = 0.85
COLD_BYTES_PER_SECOND_MAX = 600e6
"""The share of the loop counts on disks up to this rate: above it one processor, and not the disk, decides."""
TWO = "rebuild index 2 workers"
PROMISES = {
    "16 KiB": (
        Promise("headers, two workers, to two that copy", TWO, "copy 2 workers", 1.5),
        Promise("headers, one process, to C that copies", "rebuild index", "C copy", 2.0),
        Promise("with CRC, two workers, to two that copy", "rebuild index crc 2 workers", "copy 2 workers", 1.11),
        Promise("one worker to two, with CRC", "rebuild index crc 1 worker", "rebuild index crc 2 workers", 1.6, at_least=True),
    ),
    "350 B": (
        Promise("headers, two workers, to C walk of blocks", TWO, "C read", 2.2),
        Promise("headers, one process, to C walk of blocks", "rebuild index", "C read", 4.0),
        Promise("headers, without .index, to C walk of blocks", "rebuild", "C read", 6.0),
        Promise("one worker to two", "rebuild index 1 worker", TWO, 1.6, at_least=True),
        Promise("one worker to two, with CRC", "rebuild index crc 1 worker", "rebuild index crc 2 workers", 1.6, at_least=True),
    ),
}
DISKS = "disks"
DISK_BYTES_MAX = 1 << 30
"""Reading several disks at once (several_disks.py), and so much of each: seven seconds, of which the start of workers is some tenths."""
SMALL = "small segments"
SNAPSHOT_PROMISES_S = {"read": 0.150, "write": 0.500}
SNAPSHOT_PRODUCERS = 1_000_000


def shapes(total_bytes: int) -> dict[str, Shape]:
    """The partitions. Names that begin alike are variants of one shape."""
    segment = min(128 << 20, max(total_bytes // 4, 1 << 20))
    return {
        "16 KiB": Shape(16 << 10, 4 * total_bytes, 2 * segment),
        "350 B": Shape(350, total_bytes, segment),
        "350 B, an epoch for each transaction": Shape(350, total_bytes, segment, bumps=True),
        "350 B, 100,000 producers": Shape(350, total_bytes, segment, producers=100_000),
    }


@dataclass
class Bench:
    """One partition and the least time of everything that was measured on it."""

    name: str
    directory: Path
    batches: int
    floor: Path | None
    pools: dict[int, ProcessPoolExecutor]
    best: dict[str, float] = field(default_factory=dict)
    seen: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.listing: PartitionDir = list_partition_dir(str(self.directory), PartitionDirectoryName(topic="bench", partition=0))
        self.logs = [self.listing.file_path(segment.log.name) for segment in self.listing.segments]
        self.bytes = sum(segment.size_bytes for segment in self.listing.segments)

    def take(self, name: str, seconds: float) -> None:
        """Keeps the least time, and how far the others were from it."""
        self.seen.setdefault(name, []).append(seconds)
        self.best[name] = min(seconds, self.best.get(name, seconds))

    def is_noisy(self, name: str) -> bool:
        """Whether half of the times are far from the least one: then that one may be as far from what a quiet machine needs."""
        times = sorted(self.seen[name])
        return times[len(times) // 2] > NOISE_MAX * times[0]

    def timed(self, name: str, call: Callable[[], object]) -> None:
        """Measures one call."""
        begin = time.perf_counter()
        call()
        self.take(name, time.perf_counter() - begin)

    def round(self) -> None:
        """Everything once, C and Python in turn."""
        for kind in ("mmap", "read", "crc", "copy"):
            if self.floor is not None:
                done = subprocess.run([self.floor, kind, *self.logs], capture_output=True, text=True, check=True)
                nanoseconds, batches, _ = map(int, done.stdout.split())
                assert batches == (0 if kind == "copy" else self.batches), f"C finds {batches} batches of {self.batches}"
                self.take(f"C {kind}", nanoseconds / 1e9)
            if kind == "mmap":
                self.headers()
            self.timed("rebuild index", lambda: self.rebuild(index=True))
            if kind != "read":
                self.timed("rebuild index crc", lambda: self.rebuild(index=True, crc=True))
            if kind != "crc":
                self.timed("rebuild", lambda: self.rebuild(index=False))
        self.timed("rebuild crc", lambda: self.rebuild(index=False, crc=True))
        for crc in (False, True):
            for workers, pool in self.pools.items():
                name = f"rebuild index{' crc' if crc else ''} {workers} worker{'s' if workers > 1 else ''}"
                self.timed(name, lambda crc=crc, pool=pool: self.rebuild(index=True, crc=crc, pool=pool))  # type: ignore[misc]
        for count, pool in self.pools.items():
            self.timed(f"copy {count} worker{'s' if count > 1 else ''}", lambda pool=pool: list(pool.map(copied, self.logs)))  # type: ignore[misc]

    def cold(self) -> None:
        """Times rebuilds with none of the files in the page cache, next to a loop that only reads; leaves none in it."""
        calls = (
            ("cold: loop that only reads", self.loop),
            ("cold: rebuild index", lambda: self.rebuild(index=True)),
            ("cold: rebuild index crc", lambda: self.rebuild(index=True, crc=True)),
        )
        for name, call in calls:
            for leaves_page_cache, named in ((False, name), (True, f"{name}, cache left")):
                for path in self.logs:
                    fd = os.open(path, os.O_RDONLY)
                    os.fsync(fd)
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                    os.close(fd)
                with limited_io(IoLimits(leaves_page_cache=leaves_page_cache)):
                    self.timed(named, call)

    def loop(self) -> None:
        """Reads everything."""
        for path in self.logs:
            copied(path)

    def headers(self) -> None:
        """The walk alone, with its columns, and with the effects: what ``rebuild index`` is made of."""
        for name, columns in (("walk", ()), ("columns", SUMMARY_COLUMNS), ("effect", SUMMARY_COLUMNS)):
            begin = time.perf_counter()
            for path in self.logs:
                with SegmentFile(path) as source:
                    index = ReadPath(LOCAL, path[: -len("log")] + "index")
                    hint = read_positions_hint(index, source.size_bytes)
                    for block in HeaderReader(source, hint=hint, block_rows=BLOCK_ROWS, columns=columns):
                        if name == "effect":
                            effect_of_block(block)
            self.take(name, time.perf_counter() - begin)

    def rebuild(self, *, index: bool, crc: bool = False, pool: ProcessPoolExecutor | None = None) -> int:
        """The bytes of the snapshot at every boundary, by the library's own replay. Returns their count."""
        clock = Clock(as_of_ms=0, expiration_ms=1)
        segments = len(self.listing.segments)
        replay = PartitionReplay(
            directory=self.listing, mode=ReplayFrom.LOG_START, clock=clock, window_index=0, stop_index=segments, first_wanted=0
        )
        segment_indexes = replay.begin()
        tasks = [task if index else without_index(task) for task in read_tasks(self.listing, segment_indexes, check_crc=crc)]
        summaries = map(read_segment, tasks) if pool is None else pool.map(read_as_worker, tasks)
        boundaries = 0
        for at, (summary,) in zip(segment_indexes, summaries, strict=True):
            assert summary.facts.bad_crc_count == 0
            for state in replay.take(at, summary):
                write_entries(state.entries)
                boundaries += 1
        assert boundaries == segments, (boundaries, segments, replay.damage)
        return boundaries


def read_as_worker(task: ReadTask) -> Pieces:
    """The pieces of one segment, read in this process by the reader of the workers; its error is raised."""
    (outcome,) = read_group([task])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def copied(path: str) -> None:
    """Reads everything in blocks, and looks at nothing."""
    buffer = memoryview(bytearray(HEADER_BLOCK_BYTES))
    with SegmentFile(path) as source:
        for position in range(0, source.size_bytes, len(buffer)):
            source.read_into(position, buffer[: source.size_bytes - position])


def without_index(task: ReadTask) -> ReadTask:
    """The task as for a segment that has no offset index."""
    return replace(task, index_path=None)


def workers(count: int) -> ProcessPoolExecutor:
    """Workers that have been started and have imported everything."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["snaprebuild.snapshots.engine.segment_reader"])
    pool = ProcessPoolExecutor(count, mp_context=context)
    list(pool.map(time.sleep, [0.2] * count))
    return pool


def anonymous_bytes() -> int:
    """Anonymous memory of this process."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon"))


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """The most anonymous memory while the block runs, looked at every millisecond; what the process had before counts too."""
    peak = [anonymous_bytes()]
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.001):
            peak[0] = max(peak[0], anonymous_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        is_over.set()
        watcher.join()


def memory_of(directory: Path) -> int:
    """Peak of a fresh process that rebuilds a partition with checksums; runs there."""
    with peak_memory() as peak:
        Bench("", directory, 0, None, {}).rebuild(index=True, crc=True)
    return peak[0]


def snapshot_times(repeat: int, directory: Path) -> dict[str, float]:
    """Seconds to read, and to write safely, a snapshot of a million producers."""
    entries = np.zeros(SNAPSHOT_PRODUCERS, dtype=ENTRY_DTYPE)
    entries["producer_id"] = np.arange(SNAPSHOT_PRODUCERS)
    entries["last_offset"] = np.arange(SNAPSHOT_PRODUCERS) * 7
    best = {"read": 1e9, "write": 1e9, "write and fsync of as many bytes, bare": 1e9}
    for number in range(repeat):
        name = f"{10**9 + number:020d}.snapshot"
        begin = time.perf_counter()
        create_file(directory, name, write_entries(entries), owner=None, temporary_name=f"{name}.tmp")
        best["write"] = min(best["write"], time.perf_counter() - begin)
        begin = time.perf_counter()
        copy = read_entries((directory / name).read_bytes())
        best["read"] = min(best["read"], time.perf_counter() - begin)
        assert copy.tobytes() == entries.tobytes()
        data = bytes(copy.nbytes)
        begin = time.perf_counter()
        with open(directory / "bare", "wb") as file:
            file.write(data)
            os.fsync(file.fileno())
        best["write and fsync of as many bytes, bare"] = min(
            best["write and fsync of as many bytes, bare"], time.perf_counter() - begin
        )
    return best


def compiled_floor(directory: Path) -> Path | None:
    """The C programs, or None where there is no compiler."""
    compiler = next((program_path for name in ("cc", "gcc", "clang") if (program_path := shutil.which(name))), None)
    if compiler is None:
        return None
    program = directory / "floor"
    subprocess.run([compiler, "-O2", "-o", program, HERE / "floor.c"], check=True)
    return program


def refaults() -> int:
    """Pages that the system had to read again because it had thrown them out of its cache."""
    with open("/proc/vmstat") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("workingset_refault_file"))


def show(bench: Bench) -> None:
    """Prints the least times of a partition."""
    print(f"\n{bench.name}: {bench.batches:,} batches, {bench.bytes / 2**20:,.0f} MiB, {len(bench.logs)} segments")
    for name, seconds in bench.best.items():
        print(
            f"  {name:42} {seconds:8.3f} s {seconds / bench.batches * 1e9:8.0f} ns/batch {bench.bytes / seconds / 1e6:9,.0f} MB/s"
        )


def print_promises(bench: Bench, margin: float) -> bool:
    """Prints the ratios of a partition and the promised ones; whether all are kept, within the margin."""
    ok = True
    for promise in PROMISES.get(bench.name, ()):
        if promise.against not in bench.best or promise.measured not in bench.best:
            print(f"  not measured: {promise.what}")
            continue
        ratio = bench.best[promise.measured] / bench.best[promise.against]
        is_kept = ratio >= promise.limit / margin if promise.at_least else ratio <= promise.limit * margin
        is_met = ratio >= promise.limit if promise.at_least else ratio <= promise.limit
        is_noisy = not is_kept and (bench.is_noisy(promise.measured) or bench.is_noisy(promise.against))
        ok &= is_kept or is_noisy
        missed = "too noisy to judge" if is_noisy else "MISSED" if not is_kept else "missed, within the margin"
        sign = ">=" if promise.at_least else "<="
        verdict = "ok" if is_met else missed
        print(f"  {promise.what:50} {ratio:5.2f}  ({sign} {promise.limit})  {verdict}")
    return print_cold_promises(bench, margin) and ok


def print_cold_promises(bench: Bench, margin: float) -> bool:
    """Prints what is got of a disk next to a loop that only reads; whether it is enough, where the disk decides."""
    ok = True
    loop = bench.best[COLD_LOOP]
    rate = bench.bytes / loop
    for what, name in COLD.items():
        share = loop / bench.best[name]
        is_held = rate <= COLD_BYTES_PER_SECOND_MAX
        is_met = share >= COLD_SHARE_MIN
        ok &= not is_held or share >= COLD_SHARE_MIN / margin
        verdict = "ok" if is_met else "MISSED" if is_held else f"the disk is too quick to be held to {COLD_SHARE_MIN}"
        print(f"  cold, {what + ', to a loop that only reads':44} {share:5.2f}  of {rate / 1e6:,.0f} MB/s  {verdict}")
    return ok


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--mib", type=int, default=1126, help="size of each partition of small batches; those of 16 KiB are four times as large"
    )
    parser.add_argument("--repeat", type=int, default=5, help="rounds; the least time of each measurement counts")
    parser.add_argument(
        "--only", action="append", choices=[*shapes(1), DISKS, SMALL], help="measure this (may be given several times)"
    )
    parser.add_argument("--directory", type=Path, help="keep the generated partitions here, and use them again")
    parser.add_argument("--check", action="store_true", help="fail when a ratio is worse than promised")
    parser.add_argument("--margin", type=float, default=1.0, help="factor that --check allows on top")
    parser.add_argument("--memory-of", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        print(memory_of(options.memory_of))
        return 0
    with tempfile.TemporaryDirectory(prefix="snaprebuild-bench-", dir=options.directory) as scratch:
        return run(options, Path(scratch))


def run(options: argparse.Namespace, scratch: Path) -> int:
    """Generates, measures and prints everything that was asked for. Returns the exit code."""
    floor = compiled_floor(scratch)
    if floor is None:
        print("no C compiler: nothing to compare with")
        if options.check:
            return 2
    pools = {count: workers(count) for count in (1, 2)}
    ok = True
    before = refaults()
    for name, shape in shapes(options.mib << 20).items():
        if options.only and name not in options.only:
            continue
        directory = (options.directory or scratch) / f"{name.replace(' ', '-').replace(',', '')}-{options.mib}"
        if not directory.exists():
            make_partition(directory, shape)
        batches = sum(len(block) for path in sorted(directory.glob("*.log")) for block in headers_of(path))
        bench = Bench(name, directory, batches, floor, pools)
        for _ in range(options.repeat):
            bench.round()
        for _ in range(options.repeat):
            bench.cold()
        show(bench)
        peak = int(
            subprocess.run([sys.executable, __file__, "--memory-of", directory], capture_output=True, text=True, check=True).stdout
        )
        limit = MEMORY_MAX_BYTES + BYTES_A_PRODUCER_MAX * shape.producers
        ok &= peak <= limit
        print(f"  peak anonymous memory {peak / 2**20:.0f} MiB (<= {limit / 2**20:.0f} MiB)  {'ok' if peak <= limit else 'MISSED'}")
        ok &= print_promises(bench, options.margin)
        if options.directory is None:
            shutil.rmtree(directory)
    if not options.only or DISKS in options.only:
        ok &= disk_rows(scratch, min(options.mib << 20, DISK_BYTES_MAX), min(options.repeat, 2))
    if not options.only or SMALL in options.only:
        with tempfile.TemporaryDirectory(dir=scratch) as place:
            ok &= small_rows(Path(place), min(options.repeat, 3))
    print(f"\na snapshot of {SNAPSHOT_PRODUCERS:,} producers")
    for name, seconds in snapshot_times(options.repeat, scratch).items():
        promised = SNAPSHOT_PROMISES_S.get(name)
        verdict = "" if promised is None else f" (<= {promised} s)  {'ok' if seconds <= promised else 'missed'}"
        print(f"  {name:42} {seconds:8.3f} s{verdict}")
    for pool in pools.values():
        pool.shutdown()
    print(f"\npages that the system read again meanwhile: {refaults() - before:,}")
    return 0 if ok or not options.check else 1


def headers_of(path: Path) -> HeaderReader:
    """Reads the file once, which also warms the cache."""
    return HeaderReader(SegmentFile(str(path)), columns=())


if __name__ == "__main__":
    sys.exit(main())
