"""A driver of Spark as a process of its own, mostly on ``local-cluster``, whose executors are processes too."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from manifests import REPOSITORY
from waiting import SECONDS_MAX

LOCAL_CLUSTER = "local-cluster[2,1,1024]"
LOCAL = "local[2,4]"
"""Two tasks at once, each up to four times. Its executor is the driver's Java: enough where Python processes alone are killed."""
CONF = {"spark.task.maxFailures": "4", "spark.executor.memory": "512m", "spark.ui.enabled": "false"}


def started_driver(
    program: str,
    words: Sequence[object],
    place: Path,
    *,
    master: str = LOCAL_CLUSTER,
    environment: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Starts a program of this directory, in a session of its own so that all of it can be found.

    Args:
        program: name of its file.
        words: its arguments.
        place: its working directory.
        master: of Spark, ``TEST_MASTER`` for the program.
        environment: more of it.
        conf: more settings of Spark, ``TEST_CONF`` for the program, with ``_`` in place of dots.
    """
    places = ":".join(map(str, (REPOSITORY, REPOSITORY / "tests" / "support", REPOSITORY / "tests" / "spark")))
    settings = {**CONF, **{name.replace("_", "."): value for name, value in (conf or {}).items()}}
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))},
        "PYTHONPATH": places,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "TEST_MASTER": master,
        "TEST_CONF": json.dumps(settings),
        **(environment or {}),
    }
    return subprocess.Popen(
        [sys.executable, str(REPOSITORY / "tests" / "spark" / program), *map(str, words)],
        env=variables,
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def reported(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The document that a driver prints at its end."""
    output, errors = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, errors[-3000:]
    document: dict[str, Any] = json.loads(output)
    return document


def workers_of(leader: int) -> list[int]:
    """Processes of the session that a driver leads, and Python workers, which have a process group of their own."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue  # it ended
        if int(session) == leader and state != "Z":
            found.append(int(stat.parent.name))
    return found
