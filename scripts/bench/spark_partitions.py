#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: spark
"""A plan and a rebuild of many small partitions on Spark, paired with worker processes of this machine and with bare workers.

All work in turn on the same files in the page cache, with as many cores. The least time of the repeats counts. The first turn is not
measured: it starts Java's classes and the workers. Each turn writes all snapshots, with a receipt.

* `processes`: the engine of this machine.
* `bare workers`: the functions of Spark's tasks, with the same rows, in plain processes without Spark.
* `spark`: the engine on Spark, with its session started before.

With --commands the commands are timed as well, from their start to their end: with the start of Spark's session.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
from make_partition import Shape, make_partition
from spark_memory import watched_memory
from spark_speed import processor_seconds, used_since

from snaprebuild.cluster.source_check.plan_gate import judge_plans
from snaprebuild.snapshots.engine.partition_task import Engine, PartitionTask
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.planner import make_plan
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.receipts.receipt import Receipt
from snaprebuild.snapshots.receipts.receipt_parts import end_own_parts
from snaprebuild.snapshots.run import Run
from snaprebuild.spark import read_rows
from snaprebuild.spark.job import SparkEngine
from snaprebuild.spark.packing import pack
from snaprebuild.spark.session import opened_session
from snaprebuild.spark.whole_partitions import OUTCOME_SCHEMA, WholePartition, run_whole
from snaprebuild.storage.thread_pool import ParallelMap

AS_OF_MS = 1_700_000_000_000
SEGMENTS = 3
SEGMENT_BYTES = 60 << 10
RATIO_MAX = 1.5


@dataclass
class Turn:
    """Seconds that one turn took, and the processor time by who used it."""

    plan: float
    rebuild: float
    used: dict[str, float]

    @property
    def whole(self) -> float:
        """Plan and rebuild."""
        return self.plan + self.rebuild


@dataclass(frozen=True)
class BareWorkers:
    """Runs the function of the tasks, with the rows that Spark would send, in plain processes."""

    pool: ProcessPoolExecutor
    cores: int

    def __call__(self, tasks: Sequence[PartitionTask]) -> None:
        """Runs tasks as an engine does."""
        whole = [WholePartition.of(number, task, task.job(), task.tasks()) for number, task in enumerate(tasks)]
        placed = pack([each.cost_bytes for each in whole], self.cores)
        table = read_rows.table_of(whole, placed)
        sent = [table.filter(pa.compute.equal(table["slot"], slot)).combine_chunks() for slot in range(self.cores)]
        for done in self.pool.map(run_bare, sent):
            for row in done.to_pylist():
                tasks[row["partition"]].adopt(unpickled(row["done"]))


def unpickled(done: bytes) -> object:
    """The outcome of a partition."""
    import pickle

    return pickle.loads(done)


def run_bare(table: pa.Table) -> pa.Table:
    """In a plain process."""
    done = pa.Table.from_batches(run_whole(table.to_batches()), schema=OUTCOME_SCHEMA)
    end_own_parts()
    return done


@dataclass
class Way:
    """One way to do the work, and its turns."""

    engine: Engine | None
    parallel_map: ParallelMap | None = None
    turns: list[Turn] = field(default_factory=list)

    def least(self, of: Callable[[Turn], float]) -> float:
        """The least of some time, without the first turn."""
        return min(map(of, self.turns[1:]))


def turn(logs: Path, scratch: Path, cores: int, way: Way) -> Turn:
    """Plans and rebuilds."""
    out = Path(tempfile.mkdtemp(dir=scratch))
    request = RebuildRequest((str(logs),), out=str(out), boundaries="all", replay_from="log-start", as_of_ms=AS_OF_MS)
    before = processor_seconds()
    started = time.perf_counter()
    plan = make_plan(request, judge_plans, parallel_map=way.parallel_map)
    planned = time.perf_counter()
    receipt = Receipt(str(out / "receipt.jsonl"), plan)
    result = rebuild(plan, Run(jobs=cores, engine=way.engine), receipt=receipt)
    ended = time.perf_counter()
    used = used_since(before)
    assert not result.findings, result.findings[0]
    written = sum(len(each.boundaries) for each in result.partitions)
    assert len(list(out.rglob("*.snapshot"))) == written > 0
    shutil.rmtree(out)
    return Turn(planned - started, ended - planned, used)


def command(logs: Path, scratch: Path, *engine: str) -> float:
    """Seconds of a command."""
    out = tempfile.mkdtemp(dir=scratch)
    line = ("rebuild", str(logs), "--out", out, "--boundaries", "all", "--replay-from", "log-start", "--as-of", str(AS_OF_MS))
    environment = {**os.environ, "XDG_STATE_HOME": out}
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "snaprebuild", *line, *engine],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    ended = time.perf_counter()
    shutil.rmtree(out)
    return ended - started


def show(name: str, way: Way) -> None:
    """A line."""
    used = min((each.used for each in way.turns[1:]), key=lambda each: sum(each.values()))
    parts = ", ".join(f"{who} {spent:.2f}" for who, spent in used.items() if spent)
    print(
        f"{name:>13}: plan {way.least(lambda each: each.plan):.2f} s, rebuild {way.least(lambda each: each.rebuild):.2f} s, "
        f"both {way.least(lambda each: each.whole):.2f} s; processor time {sum(used.values()):.2f} s ({parts})"
    )


def main() -> int:
    """Prints the times. Exit code 1 if Spark takes more than one and a half times as long."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--commands", action="store_true", help="time the commands as well")
    parser.add_argument("--directory", help="where to generate; default: a temporary directory")
    parser.add_argument("--reuse", metavar="DIR", help="generate the partitions in DIR and leave them there, or take what is there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as place:
        scratch = Path(place)
        logs = Path(arguments.reuse or place, "logs")
        for number in range(arguments.partitions):
            directory = logs / f"t-{number}"
            if not directory.exists():
                make_partition(directory, Shape(2048, SEGMENTS * SEGMENT_BYTES, SEGMENT_BYTES, producers=10), seed=number)
        with (
            opened_session(f"local[{arguments.cores}]") as session,
            ProcessPoolExecutor(arguments.cores, mp_context=get_context("spawn")) as pool,
        ):
            engine = SparkEngine(session)
            ways = {
                "processes": Way(None),
                "bare workers": Way(BareWorkers(pool, arguments.cores)),
                "spark": Way(engine, engine.parallel_map),
            }
            with watched_memory() as peak:
                for _ in range(arguments.repeats + 1):
                    for way in ways.values():
                        way.turns.append(turn(logs, scratch, arguments.cores, way))
                        print(f"{way.turns[-1].whole:.1f} s", end=" ", file=sys.stderr, flush=True)
        print(f"{arguments.partitions} partitions of {SEGMENTS} segments, {arguments.cores} cores; load {os.getloadavg()[0]:.1f}")
        for name, way in ways.items():
            show(name, way)
        print(f"peak of a Python worker {peak['pyspark.daemon'] >> 10} MiB, of Java {peak['java'] >> 10} MiB")
        processes, bare, spark = (way.least(lambda each: each.whole) for way in ways.values())
        print(
            f"Spark takes {spark / processes:.2f} times as long as worker processes, and reaches {bare / spark:.2f} of bare workers"
        )
        if arguments.commands:
            options = ((), ("--engine", "spark", "--master", f"local[{arguments.cores}]"))
            times = [[command(logs, scratch, *each) for each in options] for _ in range(arguments.repeats)]
            own, by_spark = (min(each) for each in zip(*times, strict=True))
            print(f"commands, with Spark's start: {own:.2f} s and {by_spark:.2f} s, {by_spark / own:.2f} times as long")
    return int(spark / processes > RATIO_MAX)


if __name__ == "__main__":
    sys.exit(main())
