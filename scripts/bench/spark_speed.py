#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: spark
"""Measures a rebuild on Spark on this machine, all in one run: the session, a task, and how reading scales from one core to two.

Each measurement is a session of its own, one core and two cores in turn, several times over; the least time of each counts. One core is one
processor for all of it: driver, Java and the Python worker. A session with one worker at a time (`local[1]`) on two processors is measured,
too. Its Java works on the other processor, so it has more than one core. Two more runs show what the machine itself gains from a second
core. In one, worker processes carry out the same plan without Spark. In the other, bare processes that share nothing read the same
segments. Files come from the page cache.

With --s3 the same partition is read from an object store on loopback, too. Three other readers use as many processes:

* the usual loop with the SDK, which gets ranges of 8 MiB in four threads each and drops them;
* the quickest loop that we know of, which reads one long range after the other straight into memory that it uses again;
* the store's reader with the replay of headers and all checksums, without Spark.

So the figures show whether time is lost in the reader, in the replay, or in Spark. Server, readers and JVM share the processors.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import boto3
from make_partition import Shape, make_partition
from spark_memory import AS_OF_MS, children_of, measure_memory, memory, watched_memory

from snaprebuild.cluster.source_check.plan_gate import judge_plans
from snaprebuild.snapshots.engine.segment_reader import ReadTask, read_segment
from snaprebuild.snapshots.plan.plan_model import Plan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.planner import make_plan
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.run import Run
from snaprebuild.spark.packing import TASK_BYTES_MAX
from snaprebuild.storage.s3.object_bytes import AHEAD, PIECE_BYTES, RANGE_BYTES
from snaprebuild.storage.s3.requests import reading
from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import FileIdentity, S3Settings

ROOT = Path(__file__).resolve().parents[2]
TASKS = 200
LONG_RANGE_BYTES = 128 << 20
SCALING_MIN = 0.85
S3_RATE_MIN = 0.8
SCHEDULING_MAX = 0.05
OF_OBJECTS = ("bare loop, long ranges", "reader and replay alone", "rebuild of objects")


def seconds(do: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.perf_counter()
    do()
    return time.perf_counter() - started


def plan_of(location: str, replay_from: str, *, check_crc: bool) -> Plan:
    """All boundaries, nothing to be written."""
    out = os.path.join(location, "out")
    return make_plan(
        RebuildRequest((location,), out=out, boundaries="all", replay_from=replay_from, as_of_ms=AS_OF_MS, check_crc=check_crc),
        judge_plans,
    )


def measure(cores: int, place: Path, bucket: str | None, *, check_crc: bool) -> dict[str, float]:
    """In a process of its own: one session."""
    from snaprebuild.spark.job import SparkEngine
    from snaprebuild.spark.session import opened_session

    times: dict[str, float] = {}
    times["bare processes"] = bare_processes(cores, place / "logs", check_crc=check_crc)
    started = time.perf_counter()
    with opened_session(f"local[{cores}]") as session:
        times["session"] = time.perf_counter() - started
        engine = SparkEngine(session)
        times["first job"] = seconds(lambda: spread(session, 1))
        few, many = (min(seconds(partial(spread, session, tasks)) for _ in range(3)) for tasks in (cores, TASKS))
        times["a task"] = (many - few) / (TASKS - cores)
        tiny = plan_of(str(place / "tiny"), "log-start", check_crc=check_crc)
        times["rebuild of nearly nothing"] = min(seconds(lambda: rebuild(tiny, Run(engine=engine), dry_run=True)) for _ in range(3))
        plan = plan_of(str(place / "logs"), "log-start", check_crc=check_crc)
        with watched_memory() as peak:
            times["rebuild"] = min(seconds(lambda: rebuild(plan, Run(engine=engine), dry_run=True)) for _ in range(3))
        times["peak MiB of a Python worker"] = peak["pyspark.daemon"] / 1024
        window = plan_of(str(place / "logs"), "window", check_crc=check_crc)
        assert sum(each.min_read_bytes for each in window.partitions) == sum(each.min_read_bytes for each in plan.partitions)
        times["rebuild, window mode"] = min(seconds(lambda: rebuild(window, Run(engine=engine), dry_run=True)) for _ in range(3))
        if bucket is not None:
            remote_plan = plan_of(f"s3://{bucket}", "log-start", check_crc=check_crc)
            with watched_memory() as peak:
                times["rebuild of objects"] = min(
                    seconds(lambda: rebuild(remote_plan, Run(engine=engine), dry_run=True)) for _ in range(3)
                )
            times["peak MiB of a worker, objects"] = peak["pyspark.daemon"] / 1024
    if bucket is not None:
        times["bare loop, 8 MiB ranges"] = bare_loop(cores, bucket, get_ranges, RANGE_BYTES)
        times["bare loop, long ranges"] = bare_loop(cores, bucket, stream_ranges, LONG_RANGE_BYTES)
        times["reader and replay alone"] = bare_reader(cores, bucket, check_crc=check_crc)
    return times


def bare_processes(cores: int, logs: Path, *, check_crc: bool) -> float:
    """Seconds in which this many processes read all segments, each its own share, and give nothing back."""
    with bare_readers(cores, logs, check_crc=check_crc) as read:
        return min(seconds(read) for _ in range(3))


@contextlib.contextmanager
def bare_readers(cores: int, logs: Path, *, check_crc: bool) -> Iterator[Callable[[], object]]:
    """Processes that read segments with ``preadv``; reads all of them."""
    tasks = [
        ReadTask(str(path), str(path.with_suffix(".index")), int(path.stem), FileIdentity.of(path.stat()), check_crc=check_crc)
        for path in sorted(logs.rglob("*.log"))
    ]
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        list(pool.map(read_all, [tasks[:1]] * cores))  # started, and everything imported
        yield lambda: list(pool.map(read_all, [tasks[number::cores] for number in range(cores)]))


def measure_share(place: Path, rounds: int, *, check_crc: bool) -> None:
    """In a process of its own: a rebuild in a session of two cores and two bare processes, in turn."""
    from snaprebuild.spark.job import SparkEngine
    from snaprebuild.spark.session import opened_session

    plan = plan_of(str(place / "logs"), "log-start", check_crc=check_crc)
    size_mib = sum(each.min_read_bytes for each in plan.partitions) >> 20
    with contextlib.ExitStack() as stack:
        before = processor_seconds()
        read = stack.enter_context(bare_readers(2, place / "logs", check_crc=check_crc))
        starts = {"bare": sum(used_since(before).values())}
        before = processor_seconds()
        session = stack.enter_context(opened_session("local[2]"))
        starts["spark"] = sum(used_since(before).values())
        engine = SparkEngine(session)
        ways: dict[str, Callable[[], object]] = {"bare": read, "spark": partial(rebuild, plan, Run(engine=engine), dry_run=True)}
        times: dict[str, list[float]] = {name: [] for name in ways}
        used: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
        threads: dict[str, float] = {}
        for _ in range(rounds + 1):
            for name, way in ways.items():
                before = processor_seconds()
                of_java = java_threads()
                times[name].append(seconds(way))
                used[name].append(used_since(before))
                if name == "spark":
                    threads = {kind: spent - of_java.get(kind, 0.0) for kind, spent in java_threads().items()}
    bare, spark = (min(values[1:]) for values in times.values())  # the first round warms up
    alone, whole = (min(map(sum, (each.values() for each in rounds_[1:]))) for rounds_ in used.values())
    parts = min(used["spark"][1:], key=lambda each: sum(each.values()))
    print(
        f"{size_mib} MiB, checksums {'computed' if check_crc else 'not computed'}: bare processes {bare:.2f} s, Spark {spark:.2f} s. "
        f"It reaches {bare / spark:.2f} of them; load {os.getloadavg()[0]:.1f}.\n"
        f"Processor time: bare processes {alone:.2f} s, Spark {whole:.2f} s. It reaches {alone / whole:.2f} of them: "
        + ", ".join(f"{who} {spent:.2f} s" for who, spent in parts.items())
    )
    most = sorted(threads.items(), key=lambda each: -each[1])[:6]
    print("Java in the last round: " + ", ".join(f"{kind} {spent * 1000:.0f} ms" for kind, spent in most))
    alone, whole = (starts[name] + sum(used[name][0].values()) for name in ways)
    print(f"With the start of all processes, and their first round: {alone:.2f} s and {whole:.2f} s, {alone / whole:.2f} of them.")


def java_threads() -> dict[str, float]:
    """Seconds of a processor that each kind of thread of Java has used, of those that run."""
    used: dict[str, float] = {}
    for child in children_of(os.getpid()):
        with contextlib.suppress(OSError):  # it ended
            if Path(f"/proc/{child}/comm").read_text() != "java\n":
                continue
            for task in Path(f"/proc/{child}/task").iterdir():
                kind = re.sub(r"[-#]?\d+", "", (task / "comm").read_text().strip())
                used[kind] = used.get(kind, 0.0) + int((task / "schedstat").read_text().split()[0]) / 1e9
    return used


def used_since(before: dict[tuple[str, int], float]) -> dict[str, float]:
    """Processor seconds of the driver, Java and workers since ``before``. A worker that has ended meanwhile counts nothing."""
    used = {"driver": 0.0, "Java": 0.0, "workers": 0.0}
    for (who, number), spent in processor_seconds().items():
        used[who] += max(spent - before.get((who, number), 0.0), 0.0)
    return used


def processor_seconds() -> dict[tuple[str, int], float]:
    """Processor seconds of this process and those below it, by who and number; 0 for those that were waited for."""
    used = {
        ("driver", os.getpid()): sum(resource.getrusage(resource.RUSAGE_SELF)[:2]),
        ("workers", 0): sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]),
    }
    for child in children_of(os.getpid()):
        try:
            name, _, rest = Path(f"/proc/{child}/stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue  # it ended
        used["Java" if name == "java" else "workers", child] = sum(map(int, rest.split()[11:13])) / os.sysconf("SC_CLK_TCK")
    return used


def link_copies(directory: Path, copies: int) -> None:
    """Further partitions with the same files, so that more is read than fits into memory."""
    for number in range(1, copies):
        other = directory.with_name(f"t-{number}")
        other.mkdir(exist_ok=True)
        for path in directory.iterdir():
            if not (other / path.name).exists():
                (other / path.name).hardlink_to(path)


def read_all(tasks: list[ReadTask]) -> None:
    """In a process."""
    for task in tasks:
        read_segment(task)


def bare_loop(cores: int, bucket: str, get: Callable[[list[Range]], None], range_bytes: int) -> float:
    """Seconds in which this many processes get all ranges of all segments and look at none; connected before."""
    ranges = [
        Range(bucket, key, at, min(range_bytes, size - at))
        for key, size in segments_in(bucket)
        for at in range(0, size, range_bytes)
    ]
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        mine = [ranges[number::cores] for number in range(cores)]
        list(pool.map(get, [each[:AHEAD] for each in mine]))
        return min(seconds(lambda: list(pool.map(get, mine))) for _ in range(3))


def segments_in(bucket: str) -> list[tuple[str, int]]:
    """Keys and sizes."""
    objects = boto3.client("s3").list_objects_v2(Bucket=bucket)["Contents"]
    return [(each["Key"], each["Size"]) for each in objects if each["Key"].endswith(".log")]


class Range(NamedTuple):
    """A range of an object."""

    bucket: str
    key: str
    at: int
    size: int


def body_of(client: Any, one: Range) -> Any:
    """The answer to a request for it."""
    return client.get_object(Bucket=one.bucket, Key=one.key, Range=f"bytes={one.at}-{one.at + one.size - 1}")["Body"]


def get_ranges(ranges: list[Range]) -> None:
    """In a process: several at once, as the SDK gives them."""
    client = boto3.client("s3")

    def get(one: Range) -> None:
        body = body_of(client, one)
        while body.read(PIECE_BYTES):
            pass

    with ThreadPoolExecutor(AHEAD) as pool:
        list(pool.map(get, ranges))


def stream_ranges(ranges: list[Range]) -> None:
    """In a process: one after the other, into the same memory."""
    client = boto3.client("s3")
    buffer = memoryview(bytearray(PIECE_BYTES))
    for one in ranges:
        left = one.size
        with reading(body_of(client, one)) as read_into:
            while left:
                left -= read_into(buffer[:left])


def bare_reader(cores: int, bucket: str, *, check_crc: bool) -> float:
    """Seconds in which this many processes read all segments through the storage port, and give nothing back."""
    store = S3Store(S3Settings(path_style=True))
    tasks = []
    for key, _ in segments_in(bucket):
        identity = store.identity(f"s3://{bucket}/{key}")
        assert identity is not None
        tasks.append(ReadTask(f"s3://{bucket}/{key}", None, int(Path(key).stem), identity, check_crc=check_crc, store=store))
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        list(pool.map(read_all, [tasks[:1]] * cores))
        return min(seconds(lambda: list(pool.map(read_all, [tasks[number::cores] for number in range(cores)]))) for _ in range(3))


@contextlib.contextmanager
def object_store(place: Path) -> Iterator[str]:
    """A real one, which holds the logs; gives its bucket, and the environment leads to it."""
    environment = {**os.environ, "S3_SERVER_STATE": str(place / "server")}
    with (place / "exports").open("w") as exports:  # a pipe would stay open as long as the server runs
        subprocess.run([ROOT / "scripts" / "servers" / "s3-server", "start"], env=environment, stdout=exports, check=True)
    try:
        os.environ.update(dict(each.split("=", 1) for each in (place / "exports").read_text().split()[1:]))
        client = boto3.client("s3")
        client.create_bucket(Bucket="bench")
        for path in sorted((place / "logs").rglob("*")):
            if path.is_file():
                client.upload_file(str(path), "bench", path.relative_to(place / "logs").as_posix())
        yield "bench"
    finally:
        subprocess.run([ROOT / "scripts" / "servers" / "s3-server", "stop"], env=environment, check=True)


def spread(session: object, tasks: int) -> None:
    """Runs tasks of Python that do nothing."""
    session.range(0, tasks, 1, tasks).mapInArrow(lambda batches: batches, "id long").collect()  # type: ignore[attr-defined]


def child(directory: Path, *arguments: str, **environment: str) -> str:
    """Runs this script in a process of its own and returns its output."""
    command = [sys.executable, __file__, "--directory", str(directory), *arguments]
    variables = {**os.environ, **environment}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=variables).stdout


class Kind(NamedTuple):
    """A kind of session: workers at a time, and whether all of it is bound to one processor."""

    cores: int
    is_bound: bool


ONE = Kind(1, True)
ONE_OF_TWO = Kind(1, False)
TWO = Kind(2, False)
COLUMNS = {ONE: "1 core", ONE_OF_TWO: "local[1] on 2", TWO: "2 cores"}


def session(kind: Kind, place: Path, bucket: str | None, *, check_crc: bool) -> dict[str, float]:
    """Runs ``measure`` in a process of its own and returns its times."""
    more = [*(() if bucket is None else ("--bucket", bucket)), *(() if check_crc else ("--no-crc",))]
    more += ["--bound"] if kind.is_bound else []
    times: dict[str, float] = json.loads(child(place, "--child", str(kind.cores), *more))
    return times


def least(of_rounds: list[dict[str, float]]) -> dict[str, float]:
    """The least time of each measurement."""
    return {name: min(each[name] for each in of_rounds) for name in of_rounds[0]}


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=4096, help="size of the partition (4096)")
    parser.add_argument("--batch-bytes", type=int, default=16 << 10, help="mean size of a batch (16384)")
    parser.add_argument("--segment-mib", type=int, default=1024, help="size of a segment (1024)")
    parser.add_argument("--repeat", type=int, default=2, help="sessions of each kind (2)")
    parser.add_argument("--directory", help="where to generate; default: a temporary directory")
    parser.add_argument("--reuse", metavar="DIR", help="generate in DIR, leave it there, and take what an earlier run has left")
    parser.add_argument(
        "--check",
        action="store_true",
        help=f"fail if two cores reach less than {SCALING_MIN} of bare processes. Or if the start of a task takes {SCHEDULING_MAX:.0%} "
        f"of its time or more, or objects are read at less than {S3_RATE_MIN:.0%} of the rate of the bare loop".replace("%", "%%"),
    )
    parser.add_argument(
        "--share", action="store_true", help="measure only what a session of two cores reaches of two bare processes"
    )
    parser.add_argument("--copies", type=int, default=1, help="partitions that are links to the same files (1)")
    parser.add_argument("--no-crc", action="store_true", help="compute no checksums of batches")
    parser.add_argument(
        "--s3", action="store_true", help="read from an object store on loopback, too (scripts/servers/s3-server, built by Go)"
    )
    parser.add_argument(
        "--memory", action="store_true", help="measure instead what a partition of many segments and producers takes"
    )
    parser.add_argument("--proven", action="store_true", help="of that partition only what the snapshot at its end proves")
    parser.add_argument("--segments", type=int, default=10_000, help="of that partition (10000)")
    parser.add_argument("--producers", type=int, default=1_000_000, help="of that partition (1000000)")
    parser.add_argument("--chunk-bytes", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--as-of-ms", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--bound", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--bucket", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure_child(arguments: argparse.Namespace, *, check_crc: bool) -> None:
    """One measurement, in a process of its own."""
    if arguments.child == "memory":
        measure_memory(arguments.directory, arguments.chunk_bytes, arguments.as_of_ms)
        return
    if arguments.child == "share":
        measure_share(Path(arguments.directory), arguments.repeat, check_crc=check_crc)
        return
    if arguments.bound:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(json.dumps(measure(int(arguments.child), Path(arguments.directory), arguments.bucket, check_crc=check_crc)))


def generated(arguments: argparse.Namespace, stack: contextlib.ExitStack) -> Path:
    """The place of the partitions that are read."""
    place = Path(arguments.reuse or stack.enter_context(tempfile.TemporaryDirectory(dir=arguments.directory)))
    if not (place / "tiny").exists():
        make_partition(place / "logs" / "t-0", Shape(arguments.batch_bytes, arguments.mib << 20, arguments.segment_mib << 20))
        make_partition(place / "tiny" / "t-0", Shape(arguments.batch_bytes, 1 << 20, 1 << 20))
    link_copies(place / "logs" / "t-0", arguments.copies)
    arguments.mib = sum(path.stat().st_size for path in (place / "logs").rglob("*.log")) >> 20
    return place


def main() -> None:
    """The table."""
    arguments = options()
    crc = not arguments.no_crc
    if arguments.child is not None:
        measure_child(arguments, check_crc=crc)
        return
    if arguments.memory:
        memory(child, arguments.directory, arguments.segments, arguments.producers, is_proven=arguments.proven)
        return
    with contextlib.ExitStack() as stack:
        place = generated(arguments, stack)
        if arguments.share:
            more = () if crc else ("--no-crc",)
            print(child(place, "--child", "share", "--repeat", str(arguments.repeat), *more).strip())
            return
        bucket = stack.enter_context(object_store(place)) if arguments.s3 else None
        plan = plan_of(str(place / "logs"), "log-start", check_crc=crc)
        rounds: dict[Kind, list[dict[str, float]]] = {kind: [] for kind in COLUMNS}
        own: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(arguments.repeat):
            for jobs, times in own.items():
                times.append(seconds(partial(rebuild, plan, Run(jobs=jobs), dry_run=True)))
            for kind, results in rounds.items():
                results.append(session(kind, place, bucket, check_crc=crc))
    of_kinds = {kind: least(results) for kind, results in rounds.items()}
    one = of_kinds[ONE]
    two = of_kinds[TWO]
    print(
        f"{arguments.mib} MiB in batches of {arguments.batch_bytes} bytes, segments of {arguments.segment_mib} MiB, "
        f"checksums {'computed' if crc else 'not computed'}; least of {arguments.repeat} sessions; load {os.getloadavg()[0]:.1f}"
    )
    print(" " * 34 + "".join(f"{head:>15}" for head in COLUMNS.values()))
    for name in one:
        digits, unit, factor = (1, "ms", 1000) if name == "a task" else (0, "", 1) if "MiB" in name else (2, "s", 1)
        print(f"{name:34}" + "".join(f"{of_kinds[kind][name] * factor:>12.{digits}f} {unit:2}" for kind in COLUMNS))
    print(f"rebuild by worker processes: one {min(own[1]):.2f} s, two {min(own[2]):.2f} s")
    machine = one["bare processes"] / two["bare processes"] / 2
    scaling = of_kinds[ONE]["rebuild"] / two["rebuild"] / 2
    other_scaling = of_kinds[ONE_OF_TWO]["rebuild"] / two["rebuild"] / 2
    met = scaling / machine >= SCALING_MIN
    print(f"two cores reach {scaling:.2f} of twice one, and {other_scaling:.2f} of twice local[1] on two")
    print(f"bare processes, the ideal of this machine: {machine:.2f}; of that {scaling / machine:.2f} ({SCALING_MIN} asked for)")
    for number, of_cores in ((1, one), (2, two)):
        share = of_cores["rebuild of nearly nothing"] / of_cores["rebuild"]
        whole = TASK_BYTES_MAX * number * of_cores["rebuild"] / (arguments.mib << 20)
        rate = arguments.mib / 1024 / of_cores["rebuild"] / number
        print(
            f"cores {number}: {rate:.2f} GiB/s a core; what a job costs is {share:.0%} of it; "
            f"to start a task is {of_cores['a task'] / whole:.1%} of one of {TASK_BYTES_MAX >> 30} GiB"
        )
        met &= of_cores["a task"] / whole < SCHEDULING_MAX
        if bucket is not None:
            of_loop = {name: of_cores["bare loop, 8 MiB ranges"] / of_cores[name] for name in OF_OBJECTS}
            met &= of_loop["rebuild of objects"] >= S3_RATE_MIN
            speed = (arguments.mib << 20) / of_cores["rebuild of objects"] / 1e6
            shares = ", ".join(f"{name} {share:.0%}" for name, share in of_loop.items())
            print(f"cores {number}: objects are read at {speed:.0f} MB/s; of the bare loop: {shares} ({S3_RATE_MIN:.0%} asked for)")
    print(f"peak of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")
    if arguments.check and not met:
        sys.exit(1)


if __name__ == "__main__":
    main()
