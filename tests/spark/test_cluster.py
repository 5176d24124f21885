"""A real standalone cluster on loopback, one master and two workers: the same results, also where a worker is killed in mid-job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cluster_driver import AS_OF_MS, TASKS_PER_CORE
from log_dirs import make_log_dir
from manifests import FIXTURES, REPOSITORY

from snaprebuild.operations.plan import Request, make_plan
from snaprebuild.operations.rebuild import rebuild

sys.path.insert(0, str(REPOSITORY / "scripts"))
from make_partition import Shape, make_partition

pytestmark = pytest.mark.spark

SECONDS_MAX = 600
PARTITIONS = 12
READING, WRITING = 2 * TASKS_PER_CORE, PARTITIONS
"""Tasks of the two stages, by which they are known."""


def all_bytes(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@dataclass
class Cluster:
    """A cluster that runs; ``workers`` are process ids."""

    state: Path
    master: str = ""
    workers: list[int] = field(default_factory=list)

    def script(self, *arguments: str) -> list[str]:
        environment = {**os.environ, "SPARK_CLUSTER_STATE": str(self.state), "PYTHON": sys.executable}
        command = [str(REPOSITORY / "scripts" / "spark-cluster"), *arguments]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=SECONDS_MAX, check=True)
        self.workers += [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("worker")]
        return done.stdout.splitlines()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("cluster") / "state")
    try:
        running.master = running.script("start", "2")[0]
        yield running
    finally:
        running.script("stop")
        assert not running.state.exists()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Partitions of four segments with some producers."""
    root = make_log_dir(tmp_path_factory.mktemp("made") / "logs")
    for number in range(PARTITIONS):
        make_partition(root / f"t-{number}", Shape(2048, 2 << 20, segment_bytes=512 << 10, producers=40), seed=number)
    return root


@pytest.fixture(scope="module")
def expected(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one process writes."""
    out = tmp_path_factory.mktemp("own")
    rebuild(make_plan(Request((str(logs),), out=str(out), boundaries="all", replay_from="log-start", as_of_ms=AS_OF_MS)), jobs=1)
    found = all_bytes(out)
    assert len(found) == 4 * PARTITIONS
    return found


def run(*command: str) -> subprocess.CompletedProcess[str]:
    places = ":".join(map(str, (REPOSITORY, REPOSITORY / "tests")))
    environment = {**os.environ, "PYTHONPATH": places, "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(
        [sys.executable, *command],
        env=environment,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def test_every_bundled_directory(cluster: Cluster, tmp_path: Path) -> None:
    """By the command, whose workers have no code but what is shipped to them."""
    options = ("--boundaries", "all", "--replay-from", "log-start", "--as-of", str(AS_OF_MS), "--output", "json")
    documents, told = [], []
    for engine in ((), ("--engine", "spark", "--master", cluster.master)):
        out = tmp_path / f"out{len(engine)}"
        done = run("-m", "snaprebuild", "rebuild", str(FIXTURES), "--out", str(out), *options, *engine)
        assert done.returncode == 4, done.stderr
        document = json.loads(done.stdout.replace(str(out), "OUT"))
        for each in (document, *document["partitions"]):
            for name in ("seconds", "receipt"):
                each.pop(name, None)
        documents.append((document, all_bytes(out)))
        told.append(done.stderr.replace(str(out), "OUT"))
    assert documents[0] == documents[1]
    assert told[0] == told[1]


def driven(cluster: Cluster, logs: Path, out: Path, tasks: int) -> dict[str, Any]:
    victim = cluster.workers.pop(0)
    driver = str(Path(__file__).parent / "cluster_driver.py")
    done = run(driver, cluster.master, str(logs), str(out), str(victim), str(tasks))
    assert done.returncode == 0, done.stderr
    cluster.script("add")
    document: dict[str, Any] = json.loads(done.stdout)
    assert len(document["killed"]) == 1, "the worker was killed in mid-job"
    assert document["executors"] == 1
    assert all(".zip/snaprebuild/" in each for each in document["code"]), "the code that was shipped"
    assert document["after"] == ["storage-failed: the Spark job failed: the session was stopped"]
    assert document["exit_code_after"] == 5
    return document


def test_a_worker_that_is_killed_while_segments_are_read(
    cluster: Cluster, logs: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    document = driven(cluster, logs, tmp_path, READING)
    assert (document["exit_code"], document["findings"]) == (0, [])
    assert document["actions"] == {"written": 4 * PARTITIONS}
    assert all_bytes(tmp_path) == expected


def test_a_worker_that_is_killed_while_snapshots_are_written(
    cluster: Cluster, logs: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    """What it wrote is whole; whoever does its work again finds it there."""
    document = driven(cluster, logs, tmp_path, WRITING)
    assert (document["exit_code"], document["findings"]) == (0, [])
    assert document["actions"] == {"written": 4 * PARTITIONS}
    assert all_bytes(tmp_path) == expected
