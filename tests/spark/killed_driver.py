"""A driver for tests: rebuilds on the master ``TEST_MASTER``, and something happens to the tasks that write.

Arguments: what happens, a log directory, where to write, the receipt, and a directory for signs. Prints one JSON document.

* ``nothing``
* ``fails``: the first task that has written everything fails; the next attempt finds its files
* ``dies``: its Python worker is killed instead
* ``executor``: its executor is killed
* ``never ends``: it does nothing more, so that with speculation another attempt at it runs at the same time
* ``waits``: every task that has written everything waits until a file ``open`` is there: the driver is killed meanwhile
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from frame_class import frame_class
from plans import planned
from pyspark.sql import DataFrame

from snaprebuild.findings import exit_code_of
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.receipts.receipt import Receipt
from snaprebuild.snapshots.run import Run
from snaprebuild.spark.arrow_tables import ddl
from snaprebuild.spark.chunks import RESULT_SCHEMA
from snaprebuild.spark.job import SparkEngine
from snaprebuild.spark.session import opened_session
from snaprebuild.spark.summary_rows import SCHEMA
from snaprebuild.spark.whole_partitions import OUTCOME_SCHEMA
from snaprebuild.storage.io_limits.policy import IoLimits, limited_io

SECONDS_MAX = 300
TASKS = 4
"""Tasks of each stage: two run at once. The segments of a partition are read by several."""

OF_WRITERS = (RESULT_SCHEMA, OUTCOME_SCHEMA)
"""Schemas of the rows of tasks that write."""

MapInArrow = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def is_first(sign: str) -> bool:
    """Whether no other task has made this sign."""
    with contextlib.suppress(FileExistsError):
        open(sign, "x").close()
        return True
    return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def afterwards(function: MapInArrow, happens: str, signs: str) -> MapInArrow:
    """The function of tasks that write, with what happens after the files have their names and before Spark has the rows."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = list(function(batches))
        if not rows or rows[0].schema not in OF_WRITERS:
            yield from rows
            return
        if happens == "waits":
            is_first(f"{signs}/waits-{os.getpid()}")
            while not os.path.exists(f"{signs}/open"):
                time.sleep(0.05)
        elif happens != "nothing" and is_first(f"{signs}/{happens}"):
            if happens == "fails":
                raise RuntimeError("after it wrote")
            if happens == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if happens == "executor":
                os.kill(parent_of(os.getppid()), signal.SIGKILL)
            time.sleep(SECONDS_MAX)
        yield from rows

    return task


def timed(function: MapInArrow, signs: str) -> MapInArrow:
    """The function of tasks that read. Each leaves when it began and when it ended."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        began = time.time()
        yield from function(batches)
        Path(signs, f"read-{os.getpid()}-{time.time_ns()}").write_text(f"{began} {time.time()}")

    return task


def change_tasks(happens: str, signs: str) -> None:
    of_driver = frame_class()
    original = of_driver.mapInArrow

    def map_in_arrow(frame: DataFrame, function: MapInArrow, schema: str, *arguments: object) -> DataFrame:
        if schema in map(ddl, OF_WRITERS):
            function = afterwards(function, happens, signs)
        elif schema == ddl(SCHEMA):
            function = timed(function, signs)
        return original(frame, function, schema, *arguments)  # type: ignore[arg-type]

    of_driver.mapInArrow = map_in_arrow  # type: ignore[assignment, method-assign]


def main(happens: str, logs: str, out: str, receipt: str, signs: str) -> None:
    plan = planned(logs, out=out, boundaries="all", replay_from="log-start")
    with opened_session(os.environ["TEST_MASTER"], json.loads(os.environ["TEST_CONF"])) as session:
        change_tasks(happens, signs)
        rate = os.environ.get("TEST_RATE")
        with limited_io(IoLimits(bytes_per_second=None if rate is None else int(rate))):
            tasks = None if os.environ["TEST_KIND"] == "whole" else TASKS
            result = rebuild(plan, Run(engine=SparkEngine(session, tasks=tasks)), receipt=Receipt(receipt, plan))
    document = {
        "exit_code": exit_code_of(result.findings),
        "findings": [str(each) for each in result.findings],
        "actions": Counter(each.action for partition in result.partitions for each in partition.boundaries),
        "receipt": result.receipt,
    }
    sys.stdout.write(json.dumps(document))


if __name__ == "__main__":
    main(*sys.argv[1:])
