#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: spark
"""A plan and a rebuild of many small partitions on Spark, paired with worker processes of this machine.

Both engines work in turn on the same files in the page cache, on as many cores. The least time of the repeats counts. The first turn of
Spark is not measured: it starts Java's classes and the Python workers.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from make_partition import Shape, make_partition

from snaprebuild.cluster.source_check.plan_gate import judge_plans
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.planner import make_plan
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.run import Run
from snaprebuild.spark.job import SparkEngine
from snaprebuild.spark.session import opened_session

AS_OF_MS = 1_700_000_000_000
SEGMENTS = 3
SEGMENT_BYTES = 60 << 10
RATIO_MAX = 1.5


def turn(logs: str, cores: int, engine: SparkEngine | None) -> tuple[float, float]:
    """Seconds of the plan and of the rebuild, of which nothing is written."""
    request = RebuildRequest((logs,), out=f"{logs}-out", boundaries="all", replay_from="log-start", as_of_ms=AS_OF_MS)
    started = time.perf_counter()
    plan = make_plan(request, judge_plans, parallel_map=None if engine is None else engine.parallel_map)
    planned = time.perf_counter()
    result = rebuild(plan, Run(jobs=cores, engine=engine), dry_run=True)
    ended = time.perf_counter()
    assert not result.findings, result.findings[0]
    assert all(each.boundaries for each in result.partitions)
    return planned - started, ended - planned


def main() -> int:
    """Prints the times. Exit code 1 if Spark takes more than one and a half times as long."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        logs = Path(place, "logs")
        for number in range(arguments.partitions):
            make_partition(logs / f"t-{number}", Shape(2048, SEGMENTS * SEGMENT_BYTES, SEGMENT_BYTES, producers=10), seed=number)
        times: dict[str, list[tuple[float, float]]] = {"processes": [], "spark": []}
        with opened_session(f"local[{arguments.cores}]") as session:
            engine = SparkEngine(session)
            turn(str(logs), arguments.cores, engine)
            for _ in range(arguments.repeats):
                times["processes"].append(turn(str(logs), arguments.cores, None))
                times["spark"].append(turn(str(logs), arguments.cores, engine))
    print(f"{arguments.partitions} partitions of {SEGMENTS} segments, {arguments.cores} cores")
    totals = {}
    for name, each in times.items():
        totals[name] = min(map(sum, each))
        print(
            f"{name:>10}: plan {min(one for one, _ in each):.2f} s, rebuild {min(one for _, one in each):.2f} s, {totals[name]:.2f} s"
        )
    ratio = totals["spark"] / totals["processes"]
    print(f"Spark takes {ratio:.2f} times as long")
    return int(ratio > RATIO_MAX)


if __name__ == "__main__":
    sys.exit(main())
