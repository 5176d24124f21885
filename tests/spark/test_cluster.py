"""A real standalone cluster on loopback, one master and two workers: the same results, also where a worker is killed in mid-job."""

import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
import pytest
from cluster_driver import AS_OF_MS, READING_TASKS
from command import Run, in_json, run_process
from faulty_store import FaultyStore, faulty_store
from log_dirs import all_bytes, entries_in, files_below, make_log_dir, snapshot_name, truth
from make_partition import Shape, make_partition
from manifests import FIXTURES, REPOSITORY
from object_driver import EXECUTORS, python_workers
from packaging.requirements import Requirement
from plans import make_plan
from waiting import SECONDS_MAX, wait_until

from snaprebuild.snapshots import run as runs
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.spark.session import code_archive

pytestmark = pytest.mark.spark

PARTITIONS = 12
WORKERS = 2
READING, WRITING = READING_TASKS, PARTITIONS
"""Tasks of the two stages, by which they are known."""


@dataclass
class Cluster:
    """A cluster that runs; ``workers`` are process ids."""

    state: Path
    master: str = ""
    workers: list[int] = field(default_factory=list)

    def script(self, *arguments: str) -> list[str]:
        environment = {**os.environ, "SPARK_CLUSTER_STATE": str(self.state), "PYTHON": sys.executable}
        command = [str(REPOSITORY / "scripts" / "servers" / "spark-cluster"), *arguments]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=SECONDS_MAX, check=True)
        self.workers += [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("worker")]
        return done.stdout.splitlines()

    def fill_up(self) -> None:
        """Starts a worker in the place of one that a test has killed."""
        if len(self.workers) < WORKERS:
            self.script("add")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("cluster") / "state")
    try:
        running.master = running.script("start", str(WORKERS))[0]
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
        (root / f"t-{number}" / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n")  # of the batches that are made
    return root


@pytest.fixture(scope="module")
def expected(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files that one process writes."""
    out = tmp_path_factory.mktemp("own")
    rebuild(
        make_plan(RebuildRequest((str(logs),), out=str(out), boundaries="all", replay_from="log-start", as_of_ms=AS_OF_MS)),
        runs.Run(jobs=1),
    )
    found = all_bytes(out)
    assert len(found) == 4 * PARTITIONS
    return found


def around(**more: str) -> dict[str, str]:
    places = ":".join(map(str, (REPOSITORY, REPOSITORY / "tests" / "support")))
    return {**os.environ, "PYTHONPATH": places, "SPARK_LOCAL_IP": "127.0.0.1", **more}


def run(*words: str, **more: str) -> Run:
    return run_process(sys.executable, *words, env=around(**more), timeout=SECONDS_MAX)


def submitted(cluster: Cluster, place: Path, *words: str, **more: str) -> Run:
    """Runs ``spark-submit`` in a directory, without a path to this checkout."""
    submit = Path(pyspark.__path__[0]) / "bin" / "spark-submit"
    environment = {**around(**more), "PYTHONPATH": ""}
    done = run_process(submit, "--master", cluster.master, *words, env=environment, cwd=place, timeout=SECONDS_MAX)
    assert done.exit_code == 0, done.stdout + done.stderr
    return done


@pytest.mark.night
@pytest.mark.parametrize("tasks", [READING, WRITING], ids=["segments are read", "snapshots are written"])
def test_a_worker_that_is_killed(cluster: Cluster, logs: Path, expected: dict[str, bytes], tmp_path: Path, tasks: int) -> None:
    """Segments that it read are read again. Its files are whole, and the task that does its work again finds them there."""
    cluster.fill_up()
    victim = cluster.workers.pop(0)
    driver = str(Path(__file__).parent / "cluster_driver.py")
    done = run(driver, cluster.master, str(logs), str(tmp_path), str(victim), str(tasks), "read" if tasks == READING else "write")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert len(document["killed"]) == 1, "the worker was killed in mid-job"
    assert document["executors"] == 1
    assert all(".zip/snaprebuild/" in each for each in document["code"]), "the code that was shipped"
    refers = f"storage-failed: the Spark job failed: the reason is with {logs}/t-0"
    assert document["after"] == [refers, "storage-failed: the Spark job failed: the session was stopped"]
    assert document["exit_code_after"] == 5
    assert (document["exit_code"], document["findings"]) == (0, [])
    assert document["actions"] == {"written": 4 * PARTITIONS}
    assert all_bytes(tmp_path) == expected


def test_a_second_attempt_while_the_first_one_runs(
    cluster: Cluster, logs: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    """A task never ends after it wrote files. With speculation another host does its work, and finds them there."""
    cluster.fill_up()
    (tmp_path / "signs").mkdir()
    conf = {"spark.speculation": "true", "spark.speculation.quantile": "0.5", "spark.speculation.interval": "50ms"}
    places = ":".join(map(str, (REPOSITORY, REPOSITORY / "tests" / "support", REPOSITORY / "tests" / "spark")))
    words = (
        Path(__file__).with_name("killed_driver.py"),
        "never ends",
        logs,
        *(tmp_path / each for each in ("out", "receipt", "signs")),
    )
    done = run(*map(str, words), TEST_MASTER=cluster.master, TEST_CONF=json.dumps(conf), TEST_KIND="rows", PYTHONPATH=places)
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "signs" / "never ends").exists(), "it happened"
    document = json.loads(done.stdout)
    snapshots = 4 * PARTITIONS
    assert (document["exit_code"], document["findings"], document["actions"]) == (0, [], {"written": snapshots})
    assert all_bytes(tmp_path / "out") == expected, "no part is left, although one task had not ended"
    steps = [json.loads(line) for line in (tmp_path / "receipt").read_text().splitlines()]
    assert sum(each.get("step") == "write" for each in steps) > snapshots, "some were announced twice"
    assert steps[-1]["written"] == snapshots
    undone = in_json("undo", tmp_path / "receipt")
    assert (undone.exit_code, undone.totals) == (0, {"removed": snapshots})
    assert files_below(tmp_path / "out") == set()


def test_spark_submit(cluster: Cluster, tmp_path: Path) -> None:
    """The command is that of docs/guides/spark.md: the driver and the executors have the code from one archive, and no other."""
    archive = code_archive(str(tmp_path))
    out, report = tmp_path / "out", tmp_path / "report.json"
    asked = ("--engine", "spark", "--out", str(out), "--boundaries", "all", "--as-of", str(AS_OF_MS), "--output", "json")
    job = (
        str(REPOSITORY / "scripts/deploy/spark-job.py"),
        "rebuild",
        str(MIXED / "logappend-0"),
        *asked,
        "--save-json",
        str(report),
    )
    done = submitted(cluster, tmp_path, "--py-files", archive, *job, PYSPARK_PYTHON=sys.executable)
    assert json.loads(report.read_text())["totals"] == json.loads(done.stdout)["totals"]
    assert json.loads(done.stdout)["totals"]["written"] == 5
    assert {name: frozenset(entries_in(data)) for name, data in all_bytes(out).items()} == of_kafka("logappend-0")


@pytest.mark.night
def test_local_cluster(tmp_path: Path) -> None:
    """Executors as processes of their own, on this machine. In the full tier: ``test_dynamic_allocation.py``."""
    out = tmp_path / "out"
    asked = ("--out", str(out), "--boundaries", "all", "--as-of", str(AS_OF_MS), "--output", "json")
    engine = ("--engine", "spark", "--master", "local-cluster[2,1,1024]")
    done = run("-m", "snaprebuild", "rebuild", str(MIXED / "logappend-0"), *asked, *engine, PYTHONPATH="")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["totals"]["written"] == 5
    assert {name: frozenset(entries_in(data)) for name, data in all_bytes(out).items()} == of_kafka("logappend-0")


JOB = """
import json
import sys
from pyspark.sql import SparkSession
from snaprebuild.spark.notebook import rebuild

session = SparkSession.builder.getOrCreate()


def prefixes(batches):
    import pyarrow as pa

    for each in batches:
        yield pa.RecordBatch.from_pylist([{"at": sys.prefix}] * each.num_rows)


found = {row.at for row in session.range(8).repartition(8).mapInArrow(prefixes, "at string").collect()}
result = rebuild(session, sys.argv[1], out=sys.argv[2], boundaries="all", as_of_ms=int(sys.argv[3]))
print(json.dumps({"prefixes": sorted(found), "written": result.document.totals.written}))
"""


def needed_packages() -> set[str]:
    """The packages that executors need, and those that these need: all of ``snaprebuild[spark]`` but Spark."""
    found: set[str] = set()
    left = [Requirement(each) for each in importlib.metadata.requires("snaprebuild") or ()]
    while left:
        each = left.pop()
        if each.name in found or each.name == "pyspark" or (each.marker and not each.marker.evaluate({"extra": "spark"})):
            continue
        found.add(each.name)
        left += [Requirement(other) for other in importlib.metadata.requires(each.name) or () if "extra ==" not in other]
    return found


@pytest.mark.night
def test_an_environment_in_an_archive(cluster: Cluster, tmp_path: Path) -> None:
    """The command is that of docs/guides/spark.md. Executors have the packages from the archive, and no others."""
    cluster.fill_up()
    environment, out = tmp_path / "environment", tmp_path / "out"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=SECONDS_MAX)
    (packages,) = environment.glob("lib/*/site-packages")
    for name in needed_packages():
        for file in importlib.metadata.files(name) or ():
            source, target = Path(str(file.locate())), packages / file
            if ".." not in file.parts and "__pycache__" not in file.parts and source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
    for name in ("snaprebuild", "formats"):
        shutil.copytree(REPOSITORY / name, packages / name, ignore=shutil.ignore_patterns("__pycache__"))
    pack = ("venv-pack", "--prefix", environment, "--output", tmp_path / "environment.tar.gz", "--compress-level", "1", "--quiet")
    subprocess.run([Path(sys.executable).with_name(pack[0]), *pack[1:]], check=True, timeout=SECONDS_MAX)
    (tmp_path / "your-job.py").write_text(JOB)
    arguments = (str(MIXED / "logappend-0"), str(out), str(AS_OF_MS))
    job = ("--archives", "environment.tar.gz#environment", "your-job.py", *arguments)
    done = submitted(cluster, tmp_path, *job, PYSPARK_PYTHON="./environment/bin/python", XDG_STATE_HOME=str(tmp_path))
    found = json.loads(done.stdout)
    assert found["written"] == 5
    places = {Path(each).parent for each in found["prefixes"]}
    assert len(places) == WORKERS
    assert all(place.is_relative_to(cluster.state / "work") for place in places)
    assert {name: frozenset(entries_in(data)) for name, data in all_bytes(out).items()} == of_kafka("logappend-0")


def test_settings_of_the_guide_are_known_to_spark() -> None:
    """Also those for Kubernetes, where nothing is run."""
    guide = (REPOSITORY / "docs/guides/spark.md").read_text()
    names = set(re.findall(r"`(spark\.[A-Za-z.]+)`", guide))
    assert "spark.kubernetes.container.image" in names
    own = {name for name in names if name.startswith("spark.snaprebuild.")}
    left = names - own
    for jar in Path(pyspark.__path__[0], "jars").glob("spark-*.jar"):
        with zipfile.ZipFile(jar) as archive:
            for member in archive.namelist():
                if re.search(r"(Config|package|SQLConf|StaticSQLConf|PythonConf)\$?\.class$", member):
                    data = archive.read(member)
                    left -= {name for name in left if name.encode() in data}
    assert left == set()


# ------------------------------------------------------------------------------------------------------------- objects

MIXED = FIXTURES / "kafka27-mixed" / "logs"
MIXED_PARTITIONS = sorted(each.name for each in MIXED.iterdir() if each.is_dir())
MISSING = {"mixed-0": 12, "logappend-0": 2}
"""Snapshots that are not there, by partition."""
ACCESS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


class Drivers:
    """Rebuilds of objects, each by a driver of its own.

    Executors get keys to the store by settings of Spark. Only the environment of the driver has the address of the store.
    """

    def __init__(self, cluster: Cluster, store: FaultyStore) -> None:
        self.cluster, self.store = cluster, store
        self.started: list[subprocess.Popen[str]] = []

    def start(self, asked: dict[str, str], **settings: str) -> subprocess.Popen[str]:
        conf = {f"spark.executorEnv.{name}": value for name, value in ACCESS.items()}
        conf |= {"spark.cores.max": str(EXECUTORS)} | {name.replace("_", "."): value for name, value in settings.items()}
        arguments = " ".join(f"--conf {name}={value}" for name, value in conf.items())
        driver = str(Path(__file__).parent / "object_driver.py")
        self.started.append(
            subprocess.Popen(
                [sys.executable, driver, json.dumps({"master": self.cluster.master, **asked})],
                env=around(PYSPARK_SUBMIT_ARGS=f"{arguments} pyspark-shell", AWS_ENDPOINT_URL_S3=self.store.endpoint, **ACCESS),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return self.started[-1]

    def run(self, asked: dict[str, str], **settings: str) -> dict[str, Any]:
        driver = self.start(asked, **settings)
        reported, errors = driver.communicate(timeout=SECONDS_MAX)
        assert driver.returncode == 0, errors
        document: dict[str, Any] = json.loads(reported)
        return document


@pytest.fixture
def drivers(cluster: Cluster, store: FaultyStore) -> Iterator[Drivers]:
    cluster.fill_up()
    drivers = Drivers(cluster, store)
    yield drivers
    for each in drivers.started:
        each.kill()
        each.communicate()


@pytest.fixture
def store() -> Iterator[FaultyStore]:
    with faulty_store() as running:
        running.objects = {f"b/logs/{name}": (MIXED / name).read_bytes() for name in files_below(MIXED)}
        yield running
        running.released.set()


def of_kafka(*partitions: str) -> dict[str, frozenset[Any]]:
    """Entries of each snapshot by Kafka's own classes; by partition and name."""
    return {f"{each}/{snapshot_name(at)}": entries for each in partitions for at, entries in truth("kafka27-mixed", each).items()}


def missing() -> dict[str, frozenset[Any]]:
    """Entries of the snapshots that are not there."""
    found = {name: entries for name, entries in of_kafka(*MISSING).items() if not (MIXED / name).exists()}
    assert Counter(name.split("/")[0] for name in found) == MISSING
    return found


def added(store: FaultyStore) -> dict[str, frozenset[Any]]:
    """Snapshots that a run put next to the segments."""
    found = {name.removeprefix("b/logs/"): data for name, data in store.objects.items()}
    return {name: frozenset(entries_in(data)) for name, data in found.items() if not (MIXED / name).exists()}


@pytest.mark.night
def test_second_attempts_at_tasks_that_are_slow(drivers: Drivers, store: FaultyStore, tmp_path: Path) -> None:
    """A range and an answer are late by far: other attempts at the same tasks come first, one of them to an object that is there."""
    late: set[str] = set()
    lock = threading.Lock()

    def choose(method: str, path: str, headers: dict[str, str]) -> str:
        kind = {"GET": "/mixed-0/00000000000000003664.log", "PUT": "/mixed-0/00000000000000008231.snapshot"}.get(method)
        with lock:
            if kind is None or not path.endswith(kind) or method in late or (method == "GET" and not is_whole(headers)):
                return ""
            late.add(method)
        return "late"

    def is_whole(headers: dict[str, str]) -> bool:
        return headers.get("range", "").startswith("bytes=0-")

    store.choose, store.late_seconds_max = choose, SECONDS_MAX
    events = tmp_path.as_uri()
    document = drivers.run(
        {"source": "s3://b/logs", "out": "s3://b/out"},
        spark_speculation="true",
        spark_speculation_interval="50ms",
        spark_speculation_quantile="0.5",
        spark_eventLog_enabled="true",
        spark_eventLog_dir=events,
        spark_eventLog_compress="false",
    )
    assert late == {"GET", "PUT"}
    assert (document["exit_code"], document["findings"]) == (0, [])
    assert set(document["actions"].values()) == {"written"}
    lines = [line for path in tmp_path.rglob("events*") for line in path.read_text().splitlines()]
    starts = [json.loads(line) for line in lines if '"SparkListenerTaskStart"' in line]
    again = {(each["Stage ID"], each["Task Info"]["Index"]) for each in starts if each["Task Info"]["Speculative"]}
    assert len({stage for stage, _ in again}) >= 2, "while segments were read, and while snapshots were written"
    out = {name.removeprefix("b/out/"): data for name, data in store.objects.items() if name.startswith("b/out/")}
    assert {name: frozenset(entries_in(data)) for name, data in out.items()} == of_kafka(*MIXED_PARTITIONS)


def sha256_of(store: FaultyStore, name: str) -> str:
    return hashlib.sha256(store.objects[f"b/logs/{name}"]).hexdigest()


def announced(receipt: Path) -> dict[str, str]:
    """Checksums of what a receipt of a run that may have been killed lists, by partition and name."""
    partitions, found = {}, {}
    for line in receipt.read_text().splitlines():
        step = json.loads(line)
        if step.get("step") == "partition":
            partitions[step["number"]] = step["topic_partition"]
        elif step.get("step") == "write":
            found[f"{partitions[step['number']]}/{step['name']}"] = step["sha256"]
    return found


@pytest.mark.night
def test_a_driver_that_is_killed(drivers: Drivers, store: FaultyStore, tmp_path: Path) -> None:
    """In mid-job, with objects on their way: its receipt has the name of the run, which the objects have. A second run does the rest."""
    before = dict(store.objects)
    fine, waiting, go, late = threading.Semaphore(5), threading.Event(), threading.Event(), threading.Semaphore(1)

    def choose(method: str, path: str, _: dict[str, str]) -> str:
        """Five objects are there when the driver is killed, one comes late, and the others are lost with their tasks."""
        if method != "PUT" or not path.endswith(".snapshot") or go.is_set() or fine.acquire(blocking=False):
            return ""
        waiting.set()
        go.wait(SECONDS_MAX)
        return "" if late.acquire(blocking=False) else "drop"

    store.choose = choose
    asked = {"source": "s3://b/logs"}
    first = drivers.start({**asked, "receipt": str(tmp_path / "first")})
    wait_until(lambda: waiting.is_set() or first.poll() is not None, "nothing is written")
    first.kill()
    first.communicate()
    wait_until(lambda: not python_workers(drivers.cluster.workers), "the tasks go on")
    there = added(store)
    assert len(there) == 5
    _, objects = map(json.loads, (tmp_path / "first").read_text().splitlines())
    assert objects["step"] == "objects"
    go.set()
    document = drivers.run({**asked, "receipt": str(tmp_path / "second")})
    assert (document["exit_code"], document["findings"]) == (0, [])
    assert set(document["actions"].values()) == {"written"}
    assert added(store) == missing()
    made_by = {name: store.metadata[f"b/logs/{name}"]["x-amz-meta-snaprebuild-run"] for name in missing()}
    assert {made_by[name] for name in there} == {objects["run"]}
    of_second = {name for name, run in made_by.items() if run not in {made_by[each] for each in there}}
    assert {path.removeprefix("s3://b/logs/") for path in document["actions"]} == of_second
    assert {made_by[name] for name in missing().keys() - of_second} == {objects["run"]}, "what came late, too"
    assert announced(tmp_path / "second") == {name: sha256_of(store, name) for name in of_second}
    assert {name: store.objects[name] for name in before} == before
