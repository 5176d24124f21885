"""A driver for tests: one rebuild, from objects to objects, on a cluster. Its argument is a JSON document, and it prints one.

Where ``begin`` names a directory, it plans, leaves a file there with its process id, and goes on once ``go`` is there, too. Where ``kill``
lists process ids of Spark's workers, one of the Python workers below them is killed while the segments are read.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from cluster_driver import AS_OF_MS, TASKS_PER_CORE, executors, is_stage_of, wait_for_executors
from pyspark.sql import SparkSession

from snaprebuild.cluster.source_check.plan_gate import judge_plans
from snaprebuild.findings import exit_code_of
from snaprebuild.snapshots.plan.plan_model import Request
from snaprebuild.snapshots.plan.planner import make_plan
from snaprebuild.snapshots.rebuild.rebuild import rebuild
from snaprebuild.snapshots.receipts.receipt import Receipt
from snaprebuild.spark import job
from snaprebuild.spark.job import SparkEngine
from snaprebuild.spark.session import opened_session
from snaprebuild.storage.store import S3Settings

STOPPED_SECONDS = 1.0


def parents() -> dict[int, int]:
    """The parent of each process."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it ended
    return found


def python_workers(below: list[int]) -> list[int]:
    """Processes of Python below those, but for the daemon that each is forked from."""
    of = parents()

    def lies_below(pid: int) -> bool:
        while pid > 1 and pid not in below:
            pid = of.get(pid, 0)
        return pid in below

    daemons = []
    for pid in of:
        try:
            if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes() and lies_below(pid):
                daemons.append(pid)
        except OSError:
            continue
    return [pid for pid in daemons if of[pid] in daemons]


def kill_a_python_worker(session: SparkSession, below: list[int], killed: list[int], over: threading.Event) -> None:
    """Stops one first, so that it has a task when it is killed: an executor of one core hands it the next."""
    tracker = session.sparkContext.statusTracker()
    while not over.wait(0.002):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None and is_stage_of(info.numTasks, 2 * TASKS_PER_CORE) and 0 < info.numCompletedTasks < TASKS_PER_CORE:
                pid = python_workers(below)[0]
                os.kill(pid, signal.SIGSTOP)
                time.sleep(STOPPED_SECONDS)
                os.kill(pid, signal.SIGKILL)
                while not over.wait(0.01):
                    now = tracker.getStageInfo(stage)
                    if now is not None and now.numFailedTasks:
                        killed += [pid, now.numFailedTasks]
                        return
                return


def main(asked: dict[str, object]) -> None:
    job.TASKS_PER_CORE, job.TASK_BYTES_MIN = TASKS_PER_CORE, 1
    out, endpoint = asked.get("out"), asked.get("endpoint")
    settings = S3Settings(endpoint_url=None if endpoint is None else str(endpoint), path_style=True)
    mode = {"boundaries": "all", "replay_from": "log-start"} if out is not None else {}
    killed: list[int] = []
    over = threading.Event()
    with opened_session(str(asked["master"])) as session:
        wait_for_executors(session, int(str(asked["executors"])))
        request = Request((str(asked["source"]),), out=None if out is None else str(out), as_of_ms=AS_OF_MS, s3=settings, **mode)
        plan = make_plan(request, judge_plans)
        if "begin" in asked:
            begin = Path(str(asked["begin"]))
            (begin / f"{os.getpid()}.ready").touch()
            while not (begin / "go").exists():
                time.sleep(0.01)
        threads = []
        if "kill" in asked:
            threads = [threading.Thread(target=kill_a_python_worker, args=(session, asked["kill"], killed, over))]
        for each in threads:
            each.start()
        receipt = Receipt(str(asked["receipt"]), plan) if "receipt" in asked else None
        result = rebuild(plan, engine=SparkEngine(session), receipt=receipt)
        over.set()
        for each in threads:
            each.join()
        document = {
            "exit_code": exit_code_of(result.findings),
            "findings": [f"{each.code}: {each.message}" for each in result.findings],
            "actions": {str(each.path): each.action for partition in result.partitions for each in partition.boundaries},
            "not_written": sum(each.path is None for partition in result.partitions for each in partition.boundaries),
            "killed": killed,
            "executors": executors(session),
        }
    sys.stdout.write(json.dumps(document))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
