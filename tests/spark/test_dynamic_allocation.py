"""A cluster that has no executors when the run begins, and gets them for the tasks that wait."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from command import run_process
from log_dirs import all_bytes, make_log_dir
from make_partition import Shape, make_partition
from waiting import SECONDS_MAX

import snaprebuild as library

pytestmark = [pytest.mark.full, pytest.mark.spark]

NOW = 1_795_270_000_000
PARTITIONS = 12
TASKS = 7
SETTINGS = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.initialExecutors": "0",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.executor.memory": "1024m",
    "spark.driver.memory": "1g",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


def events_of(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in directory.iterdir() if path.is_file() for line in path.read_text().splitlines()]


def test_the_tasks_do_not_follow_the_first_executors(tmp_path: Path) -> None:
    logs = make_log_dir(tmp_path / "logs")
    for number in range(PARTITIONS):
        make_partition(logs / f"t-{number}", Shape(2048, 1 << 20, segment_bytes=512 << 10, producers=40), seed=number)
    (tmp_path / "events").mkdir()
    words = ["rebuild", str(logs), "--out", str(tmp_path / "there"), "--boundaries", "all", "--as-of", str(NOW), "--output", "json"]
    words += ["--engine", "spark", "--master", "local-cluster[2,2,1024]", "--set", f"spark_tasks={TASKS}"]
    for key, value in {**SETTINGS, "spark.eventLog.dir": (tmp_path / "events").as_uri()}.items():
        words += ["--set", f"spark_conf={key}={value}"]
    # Executors have no path to the code: it comes from the driver.
    environment = {**os.environ, "PYTHONPATH": "", "SPARK_LOCAL_IP": "127.0.0.1"}
    done = run_process(sys.executable, "-m", "snaprebuild", *words, env=environment, timeout=SECONDS_MAX)
    assert done.exit_code == 0, done.stderr
    library.rebuild(logs, out=tmp_path / "here", boundaries="all", as_of_ms=NOW, receipt=tmp_path / "receipt.jsonl")
    assert all_bytes(tmp_path / "there") == all_bytes(tmp_path / "here") != {}
    events = events_of(tmp_path / "events")
    stages = [each["Stage Info"]["Number of Tasks"] for each in events if each["Event"] == "SparkListenerStageCompleted"]
    first = next(at for at, each in enumerate(events) if each["Event"] == "SparkListenerStageSubmitted")
    added = [at for at, each in enumerate(events) if each["Event"] == "SparkListenerExecutorAdded"]
    assert added, "executors came"
    assert first < added[0], "and after the first tasks were waiting"
    assert stages.count(TASKS) >= 2, f"what reads, and sends the jobs on; and what replays: {stages}"
