#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: spark
"""Measures the costs and savings of `--cache` on Spark: with our own files, and with a table of Parquet that Spark itself writes.

Both keep the same rows of summaries. Our tasks write files while they read; Spark writes a table in a job of its own. The next run looks
segments up: ours in the small columns of the files, Spark by a join with the keys. The least time of the repeats counts. The session is
started before, and each way has one run that is not measured.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from make_partition import Shape, make_partition
from spark_speed import plan_of, processor_seconds, used_since

from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.run import Run
from snaprebuild.spark import job, summary_rows, whole_partitions
from snaprebuild.spark.arrow_tables import DataFrame, TaskFunction, data_frame
from snaprebuild.spark.effect_files import EffectCache, key_of
from snaprebuild.spark.job import SentJobs, SparkEngine
from snaprebuild.spark.session import opened_session
from snaprebuild.spark.task_services import TaskServices

KEYS_SCHEMA = pa.schema([("key", pa.binary()), ("of", pa.int32()), ("at", pa.int64())])


@dataclass(frozen=True)
class WithTable(SparkEngine):
    """Keeps the rows in a table of Spark's."""

    table: str = ""

    def _read(
        self,
        requested: Mapping[int, Sequence[ReadTask]],
        services: TaskServices,
        function: TaskFunction,
        sent_jobs: SentJobs | None = None,
    ) -> tuple[DataFrame, list[int]]:
        """The rows of the table, which is made first if there is none."""
        assert sent_jobs is None, "the rows of a table have no jobs"
        keys = [(key_of(task), number, task.base_offset) for number, tasks in requested.items() for task in tasks]
        columns = dict(zip(KEYS_SCHEMA.names, zip(*keys, strict=True), strict=True))
        wanted = data_frame(self.session, pa.Table.from_pydict(columns, schema=KEYS_SCHEMA)).hint("broadcast")
        sizes = [0]
        if not os.path.exists(self.table):
            read, sizes = SparkEngine._read(self, requested, services, function)
            here = (read["partition"] == wanted["of"]) & (read["base_offset"] == wanted["at"])
            read.join(wanted, here).drop("of", "at").write.mode("append").parquet(self.table)
        kept = self.session.read.parquet(self.table).drop("partition").join(wanted, "key")
        return kept.withColumnRenamed("of", "partition").select(*summary_rows.SCHEMA.names), sizes


def measured(do: Callable[[], Any]) -> tuple[float, float]:
    """Seconds, and seconds of processors."""
    before = processor_seconds()
    started = time.perf_counter()
    do()
    return time.perf_counter() - started, sum(used_since(before).values())


def size_mib(directory: str) -> float:
    """Size of all files of a directory."""
    return sum(path.stat().st_size for path in Path(directory).rglob("*") if path.is_file()) / 2**20


def main() -> None:
    """Prints the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--segments", type=int, default=16, help="of each partition (16)")
    parser.add_argument("--segment-kib", type=int, default=2048)
    parser.add_argument("--producers", type=int, default=1000, help="of each partition (1000)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--directory", help="where to generate; default: a temporary directory")
    arguments = parser.parse_args()
    # All ways move the same rows, with a query that reads and another one that replays.
    whole_partitions.SEGMENTS_MAX = 0
    job.may_go_back = lambda job: True  # noqa: ARG005  the name of the argument is that of the function
    with tempfile.TemporaryDirectory(dir=arguments.directory) as place, opened_session("local[2]") as session:
        for number in range(arguments.partitions):
            size = arguments.segment_kib << 10
            shape = Shape(350, arguments.segments * size, size, producers=arguments.producers)
            make_partition(Path(place, "logs", f"t-{number}"), shape, seed=number)
        plan = plan_of(os.path.join(place, "logs"), "log-start", check_crc=True)
        read = sum(each.min_read_bytes for each in plan.partitions) >> 20
        print(f"{arguments.partitions} partitions of {arguments.segments} segments, {read} MiB; load {os.getloadavg()[0]:.1f}")

        def engine_of(name: str, turn: int) -> tuple[SparkEngine, str]:
            directory = os.path.join(place, f"{name}-{turn}")
            if name == "own files":
                os.mkdir(directory)
                return SparkEngine(session, cache=EffectCache.at(directory)), directory
            return (WithTable(session, table=directory) if name == "Spark's table" else SparkEngine(session)), directory

        times: dict[str, list[tuple[float, float]]] = {}
        for turn in range(arguments.repeats + 1):
            for name in ("no cache", "own files", "Spark's table"):
                engine, directory = engine_of(name, turn)
                for step in ("first run", "next run"):
                    found: list[Any] = []
                    took = measured(lambda: found.append(rebuild(plan, Run(engine=engine), dry_run=True)))  # noqa: B023
                    assert not found[0].findings, found[0].findings[0]
                    if turn:
                        times.setdefault(f"{name}, {step}", []).append(took)
                if turn == arguments.repeats and os.path.isdir(directory):
                    print(f"{name}: {size_mib(directory):.1f} MiB on disk")
    for name, each in times.items():
        seconds, used = (min(column) for column in zip(*each, strict=True))
        print(f"{name:>25}: {seconds:.2f} s, processor time {used:.2f} s", flush=True)


if __name__ == "__main__":
    main()
