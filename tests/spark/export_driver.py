"""A driver for tests: exports records on the master ``TEST_MASTER``, and something happens to the tasks that write (``killed_driver``).

Arguments: what happens, a log directory, where to write, and a directory for signs. Prints one JSON document.
"""

import json
import os
import sys

from command import snaprebuild
from killed_driver import change_tasks

from snaprebuild.spark.session import opened_session

TASKS = 2
"""Both run at once."""


def main(happens: str, logs: str, out: str, signs: str) -> None:
    with opened_session(os.environ["TEST_MASTER"], json.loads(os.environ["TEST_CONF"])):
        change_tasks(happens, signs)
        # The command finds the session that runs.
        run = snaprebuild("inspect records", logs, "--out", out, "--engine", "spark", "--set", f"spark_tasks={TASKS}")
    sys.stdout.write(json.dumps({"exit_code": run.exit_code, "errors": run.stderr}))


if __name__ == "__main__":
    main(*sys.argv[1:])
