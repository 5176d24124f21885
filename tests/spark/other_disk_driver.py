"""A driver for tests, whose executors see something else at the path of the log directory.

Arguments: the log directory. Prints one JSON document: for each function its exit code with findings, or the error that it raised.
For each data source it has the number of rows, or the error.
"""

import json
import os
import sys

from pyspark.errors import PySparkException

from snaprebuild.errors import SnaprebuildError
from snaprebuild.spark import job, notebook, register, whole_partitions
from snaprebuild.spark.session import opened_session

NOW_MS = 1_795_270_000_000


def main(logs: str) -> None:
    answers: dict[str, str] = {}
    job.HERE_SECONDS = job.HERE_SECONDS_MAX = -1.0  # so that executors make all calls
    with opened_session(os.environ["TEST_MASTER"]) as session:
        for name in ("scan", "plan", "verify", "verify by rows"):
            whole_partitions.SEGMENTS_MAX = 0 if "rows" in name else 64
            arguments = {} if name == "scan" else {"as_of_ms": NOW_MS}
            try:
                result = getattr(notebook, name.partition(" ")[0])(session, logs, **arguments)
                answers[name] = "\n".join(map(str, (result.exit_code, *result.findings)))
            except SnaprebuildError as error:
                answers[name] = f"{error.exit_code}\n{error}"
        register(session)
        for name in ("kafka_batch_headers", "kafka_producer_snapshot", "kafka_records"):
            try:
                answers[name] = str(session.read.format(name).load(logs).count())
            except PySparkException as error:
                answers[name] = f"5\n{error}"
    sys.stdout.write(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
