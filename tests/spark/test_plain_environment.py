"""Scripts and notebooks in a virtual environment that is not activated: `python3` of the PATH is another Python, without our packages."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from command import run_process, snaprebuild
from log_dirs import copy_of, tree
from manifests import partition_fixtures

from snaprebuild.spark.packing import release_of

pytestmark = [pytest.mark.full, pytest.mark.spark]

SECONDS_MAX = 600

HAS_DATA_SOURCES = release_of(pyspark.__version__) >= (4, 0)

BATCHES = sum(segment.batches for each in partition_fixtures() if each.fixture == "kafka27-mixed" for segment in each.segments)
"""By Kafka's own classes."""

SCRIPT = """
import json
import sys

from pyspark.sql import SparkSession

logs = sys.argv[1]
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
session.sparkContext.setLogLevel("OFF")

from snaprebuild.errors import UsageError
from snaprebuild.spark import register
from snaprebuild.spark.notebook import plan, rebuild, scan, verify


def batches():
    return session.read.format("kafka_batch_headers").option("columns", "topic").load(logs).count()


found = {"python": session.sparkContext.pythonExec}
try:
    found["without register"] = batches()
except Exception as error:
    found["without register"] = "DATA_SOURCE_NOT_FOUND" if "[DATA_SOURCE_NOT_FOUND]" in str(error) else str(error)
found["scan"] = repr(scan(session, logs))
if sys.argv[3:] == ["all"]:
    found["plan"] = repr(plan(session, logs, as_of_ms=0))
    rebuilt = rebuild(session, logs, as_of_ms=0)
    found["rebuild"] = repr(rebuilt)
    found["receipt"] = rebuilt.document.receipt
    verified = verify(session, logs, as_of_ms=0)
    found["verify"] = repr(verified)
    found["rows"] = verified.toDF(session).count()
try:
    register(session)
    found["with register"] = batches()
except UsageError as error:
    found["with register"] = str(error)
found["python afterwards"] = session.sparkContext.pythonExec
json.dump(found, open(sys.argv[2], "w"))
"""


@pytest.fixture
def other_python(tmp_path: Path) -> Path:
    """A directory for the front of the PATH, with a `python3` that has the standard library and nothing else."""
    directory = tmp_path / "bin"
    directory.mkdir()
    program = directory / "python3"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys._base_executable)} -S "$@"\n')  # type: ignore[attr-defined]
    program.chmod(0o755)
    lacks = subprocess.run([program, "-c", "import snaprebuild"], cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
    assert "No module named 'snaprebuild'" in lacks.stderr
    return directory


def found_by_script(tmp_path: Path, logs: Path, path: str, *functions: str, **variables: str) -> dict[str, Any]:
    """Results of the script with the interpreter of these tests, which is named by its path only; ``all``: by all functions."""
    (tmp_path / "job.py").write_text(SCRIPT)
    left_out = ("PYSPARK_PYTHON", "PYTHONPATH", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment |= {"PATH": path, "XDG_STATE_HOME": str(tmp_path / "state"), **variables}
    found = tmp_path / "found.json"
    run = run_process(sys.executable, "job.py", logs, found, *functions, cwd=tmp_path, env=environment, timeout=SECONDS_MAX)
    assert run.exit_code == 0, run.stderr
    values = json.loads(found.read_text())
    assert isinstance(values, dict)
    return values


def test_nothing_needs_an_activated_environment(tmp_path: Path, other_python: Path) -> None:
    """All functions, and the data sources after `register`. What Spark looks up by itself, it looks up in `python3`."""
    logs = copy_of("kafka27-mixed", tmp_path)
    before = tree(logs)
    found = found_by_script(tmp_path, logs, f"{other_python}:{os.environ['PATH']}", "all")
    assert found["python"] == found["python afterwards"] == "python3", "the session of the user stays as it was"
    assert found["without register"] == "DATA_SOURCE_NOT_FOUND"
    assert found["scan"].startswith("<scan, exit code 1: 14 snapshots missing in 2 of 4 partitions.")
    assert found["plan"].startswith("<plan, exit code 0: 14 snapshots to write in 2 of 4 partitions;")
    assert found["rebuild"].startswith("<rebuild, exit code 0: 14 snapshots written in 2 of 4 partitions.")
    assert found["verify"].startswith("<verify, exit code 0: 4 partitions: 23 equal.")
    assert found["rows"] == 23
    refused = f"the data sources need Spark 4.0 or newer, and this is {pyspark.__version__}"
    assert found["with register"] == (BATCHES if HAS_DATA_SOURCES else refused)
    assert Path(found["receipt"]).parent == tmp_path / "state" / "snaprebuild"
    assert snaprebuild("undo", found["receipt"]).exit_code == 0
    assert tree(logs).keys() - {".lock"} == before.keys() - {".lock"}


@pytest.mark.skipif(not HAS_DATA_SOURCES, reason="Spark 3.5 has no data sources in Python")
def test_the_variable_that_the_guide_names_is_enough(tmp_path: Path, other_python: Path) -> None:
    """Then Spark itself finds the data sources."""
    logs = copy_of("kafka27-mixed", tmp_path)
    path = f"{other_python}:{os.environ['PATH']}"
    found = found_by_script(tmp_path, logs, path, PYSPARK_PYTHON=sys.executable)
    assert found["python"] == sys.executable
    assert found["without register"] == found["with register"] == BATCHES
    assert found["scan"].startswith("<scan, exit code 1: 14 snapshots missing in 2 of 4 partitions.")
