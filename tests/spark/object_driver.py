"""A driver for tests: one rebuild, from objects to objects, on a cluster. Its argument is a JSON document, and it prints one.

It has the ``master``, the ``source``, and where it is to write (``out``, or next to the segments) and to
keep its ``receipt``, if anywhere.
"""

import json
import sys
from pathlib import Path

from cluster_driver import AS_OF_MS, READING_TASKS, wait_for_executors

from snaprebuild.cluster.source_check.plan_gate import judge_plans
from snaprebuild.findings import exit_code_of
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.planner import make_plan
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.receipts.receipt import Receipt
from snaprebuild.snapshots.run import Run
from snaprebuild.spark.job import SparkEngine
from snaprebuild.spark.session import opened_session
from snaprebuild.storage.store import S3Settings

EXECUTORS = 2


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


def main(asked: dict[str, str]) -> None:
    settings = S3Settings(path_style=True)
    mode = {"out": asked["out"], "boundaries": "all", "replay_from": "log-start"} if "out" in asked else {}
    with opened_session(asked["master"]) as session:
        wait_for_executors(session, EXECUTORS)
        plan = make_plan(RebuildRequest((asked["source"],), as_of_ms=AS_OF_MS, s3=settings, **mode), judge_plans)
        receipt = Receipt(asked["receipt"], plan) if "receipt" in asked else None
        result = rebuild(plan, Run(engine=SparkEngine(session, tasks=READING_TASKS)), receipt=receipt)
        document = {
            "exit_code": exit_code_of(result.findings),
            "findings": [f"{each.code}: {each.message}" for each in result.findings],
            "actions": {str(each.path): each.action for partition in result.partitions for each in partition.boundaries},
        }
    sys.stdout.write(json.dumps(document))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
