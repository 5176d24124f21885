"""Measures the memory of Spark's processes for a large partition (scripts/bench/spark_speed.py --memory)."""

from __future__ import annotations

import os
import resource
import shutil
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import make_partition as make_partition_module
from make_partition import START_MS, Shape, make_partition
from msgspec.structs import replace

from snaprebuild.cluster.source_check.plan_gate import judge_plans
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.planner import make_plan
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.run import Run

WANTED_BOUNDARIES = 5
DRIVER_MEMORY = "512m"
BATCH_BYTES_MIN = 100
BATCHES_OF_A_PRODUCER = 4
EXPIRATION_MS = 1000
AS_OF_MS = 1_700_000_000_000  # the moment when the generated logs begin: nothing in them has expired

Child = Callable[..., str]
"""Runs spark_speed.py in a process of its own, with a directory, arguments, and variables of the environment; what it prints."""


class watched_memory:  # noqa: N801
    """Greatest resident sizes in KiB of the Python workers and of the JVM below this process, while the block runs."""

    def __enter__(self) -> dict[str, int]:
        self.peak, self.over = {"pyspark.daemon": 0, "java": 0}, threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self.peak

    def _watch(self) -> None:
        while not self.over.wait(0.1):
            for child in children_of(os.getpid()):
                try:
                    command = Path(f"/proc/{child}/cmdline").read_bytes().decode(errors="replace")
                    status = Path(f"/proc/{child}/status").read_text()
                    size = int(dict(line.split(":", 1) for line in status.splitlines() if ":" in line)["VmHWM"].split()[0])
                except (OSError, KeyError, ValueError):
                    continue  # it ended
                for name in self.peak:
                    if name in command:
                        self.peak[name] = max(self.peak[name], size)
                        break

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()


def children_of(pid: int) -> list[int]:
    """All processes below one."""
    children = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children += [int(each) for each in listed.read_text().split()]
        except OSError:
            continue  # it ended
    return children + [each for child in children for each in children_of(child)]


def make_provable(logs: Path) -> int:
    """Adds what makes a replay of the last nine tenths possible: time indexes, and the snapshot at the log end. Returns the as-of, ms."""
    segments = sorted((logs / "t-0").glob("*.log"))
    for path, after in zip(segments, [*segments[1:], None], strict=True):
        last = int(path.stem) if after is None else int(after.stem) - 1
        path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", START_MS + last // 100, last - int(path.stem)))
    with tempfile.TemporaryDirectory() as out:
        request = RebuildRequest((str(logs),), out=out, boundaries="all", replay_from="log-start", as_of_ms=AS_OF_MS)
        plan = make_plan(request, judge_plans)
        (partition,) = plan.partitions
        last_only = replace(plan, partitions=(replace(partition, boundaries=partition.boundaries[-1:]),))
        (written,) = rebuild(last_only).partitions[0].boundaries
        shutil.copy(str(written.path), logs / "t-0")
    return START_MS + int(segments[len(segments) // 10].stem) // 100 + EXPIRATION_MS


def measure_memory(directory: str, chunk_bytes: int | None, as_of_ms: int | None) -> None:
    """In a process of its own: a partition of many segments and producers, whose last boundaries are wanted."""
    from snaprebuild.spark.job import SparkEngine
    from snaprebuild.spark.session import opened_session

    logs = sorted(Path(directory).rglob("*.log"))
    with tempfile.TemporaryDirectory() as out, opened_session("local[2]") as session:
        first = int(logs[1 - WANTED_BOUNDARIES].stem)
        request = RebuildRequest((directory,), out=out, boundaries="all", replay_from="log-start", offset_from=first, as_of_ms=1)
        if as_of_ms is not None:
            request = replace(request, replay_from="auto", as_of_ms=as_of_ms, expiration_ms=EXPIRATION_MS)
        engine = SparkEngine(session) if chunk_bytes is None else SparkEngine(session, chunk_bytes=chunk_bytes)
        started = time.perf_counter()
        with watched_memory() as peak:
            (partition,) = rebuild(make_plan(request, judge_plans), Run(engine=engine)).partitions
        seconds = time.perf_counter() - started
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    written = [each.entries for each in partition.boundaries if each.action == "written"]
    peaks = {"a Python worker": peak["pyspark.daemon"], "the JVM": peak["java"], "the driver's Python": own}
    print(
        f"{len(logs)} segments, {max((each or 0 for each in written), default=0)} producers, {len(written)} boundaries: {seconds:.1f} s"
    )
    print(f"replay from segment {partition.outcome.replay_index}: {partition.outcome.replay_reason}")
    print("peaks: " + ", ".join(f"{who} {size // 1024} MiB" for who, size in peaks.items()))


def memory(child: Child, directory: str | None, segments: int, producers: int, *, is_proven: bool) -> None:
    """Rebuilds a large partition with a driver of little memory: in chunks, and in one task."""
    with tempfile.TemporaryDirectory(dir=directory) as place:
        logs = Path(place) / "logs"
        batches = BATCHES_OF_A_PRODUCER
        if is_proven:  # each producer must have a batch in the window, and transactions in it would only lead back
            batches = 5 * BATCHES_OF_A_PRODUCER
            make_partition_module.TRANSACTIONAL_SHARE = 0.0
        segment_bytes = batches * producers * BATCH_BYTES_MIN // segments
        make_partition(logs / "t-0", Shape(BATCH_BYTES_MIN, segments * segment_bytes, segment_bytes, producers=producers))
        more = ("--as-of-ms", str(make_provable(logs))) if is_proven else ()
        print(f"driver: {DRIVER_MEMORY}, two cores")
        for name, arguments in (("in chunks", ()), ("in one task", ("--chunk-bytes", str(sys.maxsize)))):
            output = child(
                logs, "--child", "memory", *arguments, *more, PYSPARK_SUBMIT_ARGS=f"--driver-memory {DRIVER_MEMORY} pyspark-shell"
            )
            print(f"{name}: {output.strip()}")
