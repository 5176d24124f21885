#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: kafka spark
"""Compares the speed of the replay with Kafka's own, on the same files in one run.

Everything is measured in turn, several times over; the least time of each counts. Kafka's classes replay in two Java processes. One has
seen the partition before ("warm", the compiler at its best), the other has just started, as that of a broker has. The broker's start on
the same directory after an unclean stop is what its log shows about the partition. Our replay runs in one process, and by one and two
workers that have started. It also runs in a fresh process (the command, with its start), and on Spark on this machine (the job, without
the start of Java).

Nothing is written for the boundaries by either side: the command runs with `--dry-run`. Kafka's recovery writes indexes anew.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kafka_classpath import KAFKA_VERSION, java_program, kafka_classpath
from kafka_node import KafkaNode
from make_partition import Shape, make_partition
from replay_speed import Bench, headers_of, refaults, workers

TOPIC = "bench"
PARTITION = "bench-0"
START_SECONDS = 900.0


@dataclass(frozen=True)
class Goal:
    """How many times faster ours shall be."""

    what: str
    kafka: str
    ours: str
    times: dict[str, float]


COMMAND = "rebuild, whole command"
GOALS = (
    Goal("headers, two workers, to Kafka's warm replay", "Kafka rebuild, warm", "headers, 2 workers", {"16 KiB": 6, "350 B": 24}),
    Goal("with CRC, two workers, to Kafka's warm recovery", "Kafka recover, warm", "CRC, 2 workers", {"16 KiB": 3, "350 B": 15}),
    Goal(
        "headers, whole command, to Kafka's whole process", "Kafka rebuild, whole process", COMMAND, {"16 KiB": 1.8, "350 B": 1.8}
    ),
    Goal("headers, whole command, to Kafka's warm replay", "Kafka rebuild, warm", COMMAND, {"350 B": 4}),
    Goal("dump, to kafka-dump-log", "kafka-dump-log of a segment", "dump of a segment", {"16 KiB": 10, "350 B": 10}),
)


def shapes(mib: int) -> dict[str, Shape]:
    """The partitions: of large batches four times as much, since they are read so much faster."""
    segment = min(128 << 20, max((mib << 20) // 4, 1 << 20))
    return {"16 KiB": Shape(16 << 10, 4 * mib << 20, 2 * segment), "350 B": Shape(350, mib << 20, segment)}


class Kafka:
    """A Java process that replays on demand."""

    def __init__(self) -> None:
        *command, main = java_program("ReplaySpeed")
        command = [each for each in command if not each.startswith("-XX:")]  # Java as a broker has it, with all its compilers
        self.process = subprocess.Popen([*command, "-Xmx1g", main], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._line()

    def seconds(self, what: str, directory: Path) -> float:
        """Seconds of one pass over a directory."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what} {directory}\n")
        self.process.stdin.flush()
        nanoseconds, producers, _ = map(int, self._line().split())
        assert producers, "Kafka found no producers"
        return nanoseconds / 1e9

    def peak_bytes(self) -> int:
        """Most memory that it had resident."""
        return peak_bytes(self.process.pid)

    def close(self) -> None:
        """Ends it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the Java process ended")
        return line


def peak_bytes(pid: int) -> int:
    """Most memory that a running process had resident."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(dict(line.split(":", 1) for line in status.splitlines() if ":" in line)["VmHWM"].split()[0]) << 10


def timed_command(command: Sequence[str | Path]) -> tuple[float, int]:
    """Seconds of a command whose output goes nowhere, and most memory that it was seen to have resident."""
    peak = 0
    with tempfile.TemporaryFile() as output:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=output)
        while process.poll() is None:
            with contextlib.suppress(OSError, KeyError):  # it has just ended
                peak = max(peak, peak_bytes(process.pid))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
        seconds = time.perf_counter() - begin
        output.seek(0)
        if process.returncode:
            raise SystemExit(f"{command}: exit {process.returncode}: {output.read().decode(errors='replace')[-2000:]}")
    return seconds, peak


def linked_copy(directory: Path, target: Path) -> Path:
    """A copy with hard links to the logs and with indexes of its own, which Kafka may write."""
    target.mkdir(parents=True)
    for path in directory.iterdir():
        if path.suffix == ".log":
            os.link(path, target / path.name)
        else:
            shutil.copy(path, target / path.name)
    return target


def broker_start(directory: Path, scratch: Path) -> float:
    """Seconds that a real broker says it took to load the partition after an unclean stop."""
    with KafkaNode(scratch / "broker", settings={"num.recovery.threads.per.data.dir": 1}) as node:
        node.start()
        node.create_topic(TOPIC, {})
        node.stop()
        target = node.log_dir / PARTITION
        for path in [*target.glob("*.log"), *target.glob("*index"), *target.glob("*.snapshot")]:
            path.unlink()
        linked = linked_copy(directory, scratch / "unclean")
        for path in linked.iterdir():
            path.rename(target / path.name)
        # The broker continues with the last one.
        last = max(target.glob("*.log"))
        shutil.copy(last, last.with_suffix(".own"))
        last.with_suffix(".own").replace(last)
        (node.log_dir / ".kafka_cleanshutdown").unlink()
        (node.log_dir / "recovery-point-offset-checkpoint").write_text("0\n0\n")
        mark = node.start()
        completed = rf"Completed load of Log\(dir=\S*/{PARTITION}, .*\) with (\d+) segments.* in (\d+)\s?ms"
        match = re.search(completed, node.log_since(mark))
        if match is None:
            raise SystemExit("the broker does not say how long it loaded the partition")
        assert int(match[1]) >= len(list(directory.glob("*.log")))
        return int(match[2]) / 1000


def spark_seconds(directory: Path, passes: int) -> float:
    """The least of some rebuilds on two cores in one session, from a process of its own."""
    program = (
        "import json, sys, time\n"
        "from snaprebuild.cluster.source_check.plan_gate import judge_plans\n"
        "from snaprebuild.snapshots.plan.plan_request import RebuildRequest\n"
        "from snaprebuild.snapshots.plan.planner import make_plan\n"
        "from snaprebuild.snapshots.rebuild.run import rebuild\n"
        "from snaprebuild.snapshots.run import Run\n"
        "from snaprebuild.spark.job import SparkEngine\n"
        "from snaprebuild.spark.session import opened_session\n"
        "found = []\n"
        "with opened_session('local[2]') as session:\n"
        "    for _ in range(int(sys.argv[2])):\n"
        "        options = {'out': sys.argv[1] + '.out', 'boundaries': 'all', 'replay_from': 'log-start'}\n"
        "        request = RebuildRequest((sys.argv[1],), as_of_ms=1, **options)\n"
        "        plan = make_plan(request, judge_plans)\n"
        "        begin = time.perf_counter()\n"
        "        rebuild(plan, Run(engine=SparkEngine(session)), dry_run=True)\n"
        "        found.append(time.perf_counter() - begin)\n"
        "print(json.dumps(min(found)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(directory), str(passes)], stdout=subprocess.PIPE, check=True, text=True
    )
    return float(json.loads(done.stdout))


def measure(bench: Bench, scratch: Path, passes: int, *, broker: bool, spark: bool) -> dict[str, int]:
    """Takes all times; gives peaks of memory."""
    memory: dict[str, int] = {}
    copy = linked_copy(bench.directory, scratch / "copy" / PARTITION)
    warm = Kafka()
    try:
        for _ in range(passes):
            replays(bench, copy, warm)
            for name, command in commands(bench, scratch).items():
                seconds, memory[name] = timed_command(command)
                bench.take(name, seconds)
        memory["Kafka rebuild, warm"] = warm.peak_bytes()
    finally:
        warm.close()
    if broker:
        bench.take("a broker's start after an unclean stop", broker_start(bench.directory, scratch))
    if spark:
        bench.take("Spark, two cores, with CRC", spark_seconds(bench.directory.parent, passes + 1))
    return memory


def replays(bench: Bench, copy: Path, warm: Kafka) -> None:
    """One round of Kafka's and ours in turn."""
    for what, mine in (("rebuild", "headers"), ("recover", "CRC")):
        begin = time.perf_counter()
        fresh = Kafka()
        bench.take(f"Kafka {what}, first pass of a fresh JVM", fresh.seconds(what, copy))
        bench.take(f"Kafka {what}, whole process", time.perf_counter() - begin)
        fresh.close()
        for _ in range(3):
            bench.take(f"Kafka {what}, warm", warm.seconds(what, copy))
        for _ in range(2):
            for name, pool in (("in process", None), ("1 worker", bench.pools[1]), ("2 workers", bench.pools[2])):
                bench.timed(f"{mine}, {name}", partial(bench.rebuild, index=True, crc=mine == "CRC", pool=pool))


def commands(bench: Bench, scratch: Path) -> dict[str, list[str | Path]]:
    """Ours and Kafka's, each a process of its own."""
    largest = max(bench.logs, key=os.path.getsize)
    ours: list[str | Path] = [sys.executable, "-m", "snaprebuild"]
    options = ("--boundaries", "all", "--replay-from", "log-start", "--keep-expired")
    rebuild = [*ours, "rebuild", bench.directory, "--out", scratch / "out", "--dry-run", *options]
    java = ["java", "-cp", kafka_classpath(KAFKA_VERSION), "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    return {
        COMMAND: [*rebuild, "--crc", "skip"],
        "rebuild with CRC, whole command": rebuild,
        "dump of a segment": [*ours, "inspect", "dump", largest],
        "kafka-dump-log of a segment": [*java, "org.apache.kafka.tools.DumpLogSegments", "--files", largest],
    }


def show(bench: Bench, memory: dict[str, int]) -> bool:
    """Prints the table and the goals; whether all are met."""
    print(f"\n{bench.name}: {bench.batches:,} batches, {bench.bytes / 2**20:,.0f} MiB, {len(bench.logs)} segments")
    slow = bench.best["Kafka rebuild, warm"], bench.best["Kafka recover, warm"]
    print(f"  {'':42} {'seconds':>8} {'ns/batch':>9} {'MB/s':>8} {'x rebuild':>10} {'x recover':>10} {'MiB':>6}")
    for name, seconds in bench.best.items():
        at = seconds / bench.batches * 1e9
        rate = bench.bytes / seconds / 1e6
        numbers = "".join(f"{each / seconds:>11.2f}" for each in slow)
        part = name.endswith("of a segment")  # one of many
        figures = f"{'':>9} {'':>8}{'':>22}" if part else f"{at:>9.0f} {rate:>8,.0f}{numbers}"
        print(f"  {name:42} {seconds:>8.3f} {figures} {f'{memory[name] >> 20:>6}' if name in memory else ''}".rstrip())
    met = True
    for goal in GOALS:
        if bench.name not in goal.times:
            continue
        times = bench.best[goal.kafka] / bench.best[goal.ours]
        goal_seconds = goal.times[bench.name]
        met &= times >= goal_seconds
        print(f"  {goal.what:48} {times:6.1f} times  (>= {goal_seconds:g})  {'ok' if times >= goal_seconds else 'MISSED'}")
    return met


@contextlib.contextmanager
def place(directory: Path | None) -> Iterator[Path]:
    """Where partitions are generated, and whatever else is written."""
    with tempfile.TemporaryDirectory(prefix="compare-speed-", dir=directory) as scratch:
        yield Path(scratch)


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench/kafka_speed.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=1024, help="of small batches; of those of 16 KiB four times as much (1024)")
    parser.add_argument("--passes", type=int, default=4, help="rounds (4)")
    parser.add_argument("--only", action="append", choices=list(shapes(1)), help="measure this partition only")
    parser.add_argument("--directory", type=Path, help="keep the generated partitions here, and use them again")
    parser.add_argument("--no-broker", action="store_true", help="start no broker")
    parser.add_argument("--no-spark", action="store_true", help="start no Spark")
    parser.add_argument("--check", action="store_true", help="fail where a goal is missed")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """The tables."""
    parsed = options(arguments)
    pools = {count: workers(count) for count in (1, 2)}
    met = True
    before = refaults()
    print(f"Kafka {KAFKA_VERSION}; load {os.getloadavg()[0]:.1f}")
    for name, shape in shapes(parsed.mib).items():
        if parsed.only and name not in parsed.only:
            continue
        with place(parsed.directory) as scratch:
            directory = (parsed.directory or scratch) / f"speed-{name.replace(' ', '-')}-{parsed.mib}" / PARTITION
            if not directory.exists():
                make_partition(directory, shape)
            batches = sum(len(block) for path in sorted(directory.glob("*.log")) for block in headers_of(path))
            bench = Bench(name, directory, batches, None, pools)
            memory = measure(bench, scratch, parsed.passes, broker=not parsed.no_broker, spark=not parsed.no_spark)
            met &= show(bench, memory)
    for pool in pools.values():
        pool.shutdown()
    print(f"\npages that the system read again meanwhile: {refaults() - before:,}")
    return 0 if met or not parsed.check else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
