"""What a rebuild on Spark costs on this machine: the session, a task, and how reading scales from one core to two, all in one run.

Each measurement is a session of its own, one core and two cores in turn, several times over; the least time of each counts. Beside them
the same plan is carried out by worker processes, without Spark. Files come from the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from make_partition import Shape, make_partition

from snaprebuild.operations.plan import Plan, Request, make_plan
from snaprebuild.operations.rebuild import rebuild

HERE = Path(__file__).resolve().parent
TASKS = 200
SCALING_MIN = 0.85
WANTED_BOUNDARIES = 5
DRIVER_MEMORY = "512m"
BATCH_BYTES_MIN, BATCHES_OF_A_PRODUCER = 100, 4


def seconds(do: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.perf_counter()
    do()
    return time.perf_counter() - started


def plan_of(directory: str, replay_from: str) -> Plan:
    """All boundaries, nothing to be written."""
    return make_plan(
        Request((directory,), out=os.path.join(directory, "out"), boundaries="all", replay_from=replay_from, as_of_ms=1)
    )


def measure(cores: int, directory: str) -> dict[str, float]:
    """In a process of its own: one session."""
    from snaprebuild.spark.job import SparkEngine
    from snaprebuild.spark.session import opened_session

    found: dict[str, float] = {}
    started = time.perf_counter()
    with opened_session(f"local[{cores}]") as session:
        found["session"] = time.perf_counter() - started
        engine = SparkEngine(session)
        found["first job"] = seconds(lambda: engine.each(str, [1]))
        few, many = (min(seconds(partial(spread, session, tasks)) for _ in range(3)) for tasks in (cores, TASKS))
        found["a task"] = (many - few) / (TASKS - cores)
        plan = plan_of(directory, "log-start")
        with watched_memory() as peak:
            found["rebuild"] = min(seconds(lambda: rebuild(plan, engine=engine, dry_run=True)) for _ in range(2))
        found["peak MiB of a Python worker"] = peak["pyspark.daemon"] / 1024
        window = plan_of(directory, "window")
        found["rebuild, window"] = seconds(lambda: rebuild(window, engine=engine, dry_run=True))
    return found


def spread(session: object, tasks: int) -> None:
    """So many tasks of Python that do nothing."""
    session.range(0, tasks, 1, tasks).mapInArrow(lambda batches: batches, "id long").collect()  # type: ignore[attr-defined]


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
    found = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(each) for each in listed.read_text().split()]
        except OSError:
            continue  # it ended
    return found + [each for child in found for each in children_of(child)]


def measure_memory(directory: str, chunk_bytes: int | None) -> None:
    """In a process of its own: a partition of many segments and producers, whose last boundaries are wanted."""
    from snaprebuild.spark.job import SparkEngine
    from snaprebuild.spark.session import opened_session

    logs = sorted(Path(directory).rglob("*.log"))
    with tempfile.TemporaryDirectory() as out, opened_session("local[2]") as session:
        first = int(logs[1 - WANTED_BOUNDARIES].stem)
        request = Request((directory,), out=out, boundaries="all", replay_from="log-start", offset_from=first, as_of_ms=1)
        engine = SparkEngine(session) if chunk_bytes is None else SparkEngine(session, chunk_bytes=chunk_bytes)
        started = time.perf_counter()
        with watched_memory() as peak:
            (partition,) = rebuild(make_plan(request), engine=engine).partitions
        taken = time.perf_counter() - started
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    written = [each.entries for each in partition.boundaries if each.action == "written"]
    peaks = {"a Python worker": peak["pyspark.daemon"], "the JVM": peak["java"], "the driver's Python": own}
    print(f"{len(logs)} segments, {max(written, default=0)} producers, {len(written)} boundaries: {taken:.1f} s")
    print("peaks: " + ", ".join(f"{who} {size // 1024} MiB" for who, size in peaks.items()))


def child(directory: Path, *arguments: str, **environment: str) -> str:
    """What this script prints in a process of its own."""
    command = [sys.executable, str(HERE / "bench_spark.py"), "--directory", str(directory), *arguments]
    variables = {**os.environ, "PYTHONPATH": str(HERE.parent), **environment}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=variables).stdout


def memory(directory: str | None, segments: int, producers: int) -> None:
    """What a large partition takes with a driver of little memory: in chunks, and in one task."""
    with tempfile.TemporaryDirectory(dir=directory) as place:
        logs = Path(place) / "logs"
        segment_bytes = BATCHES_OF_A_PRODUCER * producers * BATCH_BYTES_MIN // segments
        make_partition(logs / "t-0", Shape(BATCH_BYTES_MIN, segments * segment_bytes, segment_bytes, producers=producers))
        print(f"driver: {DRIVER_MEMORY}, two cores")
        for name, arguments in (("in chunks", ()), ("in one task", ("--chunk-bytes", str(sys.maxsize)))):
            found = child(
                logs, "--child", "memory", *arguments, PYSPARK_SUBMIT_ARGS=f"--driver-memory {DRIVER_MEMORY} pyspark-shell"
            )
            print(f"{name}: {found.strip()}")


def least(of_rounds: list[dict[str, float]]) -> dict[str, float]:
    """Of each measurement the least."""
    return {name: min(each[name] for each in of_rounds) for name in of_rounds[0]}


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=4096, help="size of the partition (4096)")
    parser.add_argument("--batch-bytes", type=int, default=16 << 10, help="mean size of a batch (16384)")
    parser.add_argument("--segment-mib", type=int, default=1024, help="size of a segment (1024)")
    parser.add_argument("--repeat", type=int, default=2, help="sessions of each kind (2)")
    parser.add_argument("--directory", help="where to generate; default: a temporary directory")
    parser.add_argument("--check", action="store_true", help=f"fail where two cores reach less than {SCALING_MIN} of twice one")
    parser.add_argument(
        "--memory", action="store_true", help="measure instead what a partition of many segments and producers takes"
    )
    parser.add_argument("--segments", type=int, default=10_000, help="of that partition (10000)")
    parser.add_argument("--producers", type=int, default=1_000_000, help="of that partition (1000000)")
    parser.add_argument("--chunk-bytes", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child == "memory":
        measure_memory(asked.directory, asked.chunk_bytes)
        return
    if asked.child is not None:
        print(json.dumps(measure(int(asked.child), asked.directory)))
        return
    if asked.memory:
        memory(asked.directory, asked.segments, asked.producers)
        return
    with tempfile.TemporaryDirectory(dir=asked.directory) as place:
        logs = Path(place) / "logs"
        make_partition(logs / "t-0", Shape(asked.batch_bytes, asked.mib << 20, asked.segment_mib << 20))
        plan = plan_of(str(logs), "log-start")
        rounds: dict[int, list[dict[str, float]]] = {1: [], 2: []}
        own: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(asked.repeat):
            for cores in (1, 2):
                own[cores].append(seconds(lambda jobs=cores: rebuild(plan, jobs=jobs, dry_run=True)))  # type: ignore[misc]
                rounds[cores].append(json.loads(child(logs, "--child", str(cores))))
    one, two = (least(rounds[cores]) for cores in (1, 2))
    print(
        f"{asked.mib} MiB in batches of {asked.batch_bytes} bytes, segments of {asked.segment_mib} MiB; least of {asked.repeat} sessions"
    )
    print(f"{'':34}{'1 core':>12}{'2 cores':>12}")
    for name in one:
        digits, unit, factor = (1, "ms", 1000) if name == "a task" else (0, "", 1) if "MiB" in name else (2, "s", 1)
        print(f"{name:34}{one[name] * factor:>10.{digits}f} {unit:2}{two[name] * factor:>9.{digits}f} {unit}")
    print(f"{'rebuild by worker processes':34}{min(own[1]):>10.2f} s {min(own[2]):>9.2f} s")
    scaling = one["rebuild"] / two["rebuild"] / 2
    print(
        f"two cores reach {scaling:.2f} of twice one ({SCALING_MIN} asked for); worker processes {min(own[1]) / min(own[2]) / 2:.2f}"
    )
    print(f"peak of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")
    if asked.check and scaling < SCALING_MIN:
        sys.exit(1)


if __name__ == "__main__":
    main()
