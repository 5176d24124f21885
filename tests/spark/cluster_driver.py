"""A driver for tests: rebuilds on a cluster, and kills one of its workers when a stage of this many tasks is in its middle.

Arguments: the master's URL, a log directory, where to write, the process id of the worker, the count of tasks, and what these do, which
is ``read`` or ``write``. Prints one JSON document.
"""

import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from frame_class import frame_class
from pyspark.sql import DataFrame, SparkSession

from snaprebuild.cluster.source_check.plan_gate import judge_plans
from snaprebuild.findings import exit_code_of
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.planner import make_plan
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.run import Run
from snaprebuild.spark.arrow_tables import ddl
from snaprebuild.spark.chunks import RESULT_SCHEMA
from snaprebuild.spark.job import SparkEngine
from snaprebuild.spark.session import opened_session
from snaprebuild.spark.summary_rows import SCHEMA

AS_OF_MS = 1_795_270_000_000
READING_TASKS = 20
JOB_TASKS_MAX = 4
FREE_TASKS = 2
"""Tasks of the stage that are not held: the others wait until the worker is killed."""

MapInArrow = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def executors(session: SparkSession) -> int:
    return int(session.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def kill_with_children(pid: int) -> None:
    """The worker and its executor, at once and for good."""
    children = [int(child) for tasks in Path(f"/proc/{pid}/task").glob("*/children") for child in tasks.read_text().split()]
    assert children, "the worker runs no executor"
    for each in (pid, *children):
        os.kill(each, signal.SIGKILL)


def is_stage_of(count: int, tasks: int) -> bool:
    """Whether a stage of this many tasks is that of ``tasks``: in addition to those that read, a few hand in the jobs."""
    return tasks <= count <= tasks + JOB_TASKS_MAX


def gated(function: MapInArrow, gate: str) -> MapInArrow:
    """The function of tasks of which the first that begin go on, and the others wait until ``open`` is in the directory ``gate``."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in range(FREE_TASKS):
            with contextlib.suppress(FileExistsError):
                open(f"{gate}/begun-{number}", "x").close()
                break
        else:
            while not os.path.exists(f"{gate}/open"):
                time.sleep(0.02)
        yield from function(batches)

    return task


def gate_stages(schema: str, gate: str) -> None:
    """From now on tasks with rows of this schema as their results are gated."""
    of_driver = frame_class()
    original = of_driver.mapInArrow

    def map_in_arrow(frame: DataFrame, function: MapInArrow, found: str, *arguments: object) -> DataFrame:
        return original(frame, gated(function, gate) if found == schema else function, found, *arguments)  # type: ignore[arg-type]

    of_driver.mapInArrow = map_in_arrow  # type: ignore[assignment, method-assign]


def kill_in_the_middle(session: SparkSession, pid: int, tasks: int, killed: list[str], over: threading.Event, gate: str) -> None:
    tracker = session.sparkContext.statusTracker()
    while not over.is_set():
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is None or not is_stage_of(info.numTasks, tasks):
                continue
            if 0 < info.numCompletedTasks < tasks // 2 and info.numActiveTasks:
                kill_with_children(pid)
                Path(gate, "open").touch()
                killed.append(f"{info.numCompletedTasks} of {tasks} tasks were done")
                return
        time.sleep(0.002)


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import snaprebuild

    for each in batches:
        yield pa.RecordBatch.from_pylist([{"at": snaprebuild.__file__}] * each.num_rows)


def wait_for_executors(session: SparkSession, count: int) -> None:
    deadline = time.monotonic() + 300
    while executors(session) < count:
        assert time.monotonic() < deadline, "the executors do not come"
        time.sleep(0.1)


def main(master: str, logs: str, out: str, pid: str, tasks: str, stage: str) -> None:
    plan = make_plan(RebuildRequest((logs,), out=out, boundaries="all", replay_from="log-start", as_of_ms=AS_OF_MS), judge_plans)
    killed: list[str] = []
    over = threading.Event()
    with opened_session(master) as session, tempfile.TemporaryDirectory() as gate:
        wait_for_executors(session, 2)
        code = {row.at for row in session.range(8).repartition(8).mapInArrow(where, "at string").collect()}
        killer = threading.Thread(target=kill_in_the_middle, args=(session, int(pid), int(tasks), killed, over, gate))
        gate_stages(ddl(RESULT_SCHEMA if stage == "write" else SCHEMA), gate)
        killer.start()
        result = rebuild(plan, Run(engine=SparkEngine(session, tasks=READING_TASKS)))
        over.set()
        killer.join()
        left = executors(session)
    # The session is gone now.
    after = rebuild(plan, Run(engine=SparkEngine(session)), dry_run=True)
    document = {
        "killed": killed,
        "executors": left,
        "code": sorted(code),
        "exit_code": exit_code_of(result.findings),
        "actions": Counter(each.action for partition in result.partitions for each in partition.boundaries),
        "findings": [str(each) for each in result.findings],
        "after": sorted({f"{each.code}: {each.message}" for each in after.findings if each.code != "boundary-not-reached"}),
        "exit_code_after": exit_code_of(after.findings),
    }
    sys.stdout.write(json.dumps(document))


if __name__ == "__main__":
    main(*sys.argv[1:])
