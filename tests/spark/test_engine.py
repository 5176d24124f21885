"""Real jobs on two cores of this machine: the files and documents of a run in process, and whatever goes wrong stays where it is."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from cluster_driver import where
from command import Run
from documents import check
from event_logs import new_tasks, reading_tasks
from log_dirs import (
    EMPTY_SNAPSHOT,
    all_bytes,
    batch,
    copy_of,
    make_log_dir,
    remove_snapshots,
    snapshot_name,
    snapshots_in,
    tree,
    write_partition,
)
from manifests import FIXTURES, partition_fixtures
from same_result import OF_ONE_RUN, RUN_AND_FILES, without

import snaprebuild
from formats.errors import FormatError
from snaprebuild.errors import ReadFailedError, SnaprebuildError, StorageError
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine.partition_replay import PartitionReplay
from snaprebuild.snapshots.engine.partition_task import Job, PartitionTask, TaskOutcome
from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.spark import arrow_tables, calls, chunks, job, notebook, packing, read_rows
from snaprebuild.spark.job import SparkEngine
from snaprebuild.storage.thread_pool import ThreadPool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOW = "1795270000000"
SPARK = ("--engine", "spark")
MIXED = FIXTURES / "kafka27-mixed" / "logs"
OF_SPEED = ("rate_bytes_per_second", "estimated_seconds", "answer")
"""The answer of a plan has the time of reading in words."""
Command = Callable[..., Run]


def reported(run: Run, *places: Path) -> dict[str, Any]:
    """The document without what differs from run to run, and with one name for each of the places."""
    text = run.stdout
    for place in places:
        text = text.replace(str(place), "PLACE")
    check(json.loads(run.stdout))
    document: dict[str, Any] = without(json.loads(text), RUN_AND_FILES)
    return document


# ------------------------------------------------------------------------------------------------------------- bundled directories


@pytest.mark.usefixtures("small_partitions")
def test_every_boundary_of_every_bundled_directory(spark: SparkSession, command: Command, tmp_path: Path) -> None:
    """All at once, as Kafka's own classes have it."""
    before = tree(FIXTURES)
    line = ("--boundaries", "all", "--replay-from", "log-start", "--keep-expired", "--as-of", NOW, "--output", "json")
    run = command("rebuild", FIXTURES, "--out", tmp_path / "spark", *line, *SPARK)
    assert run.exit_code == 4, "one directory has a flipped bit"
    found = 0
    for each in partition_fixtures():
        if each.fixture == "follower-lost-state":
            continue  # its manifest reports states that its segments no longer hold
        directory = tmp_path / "spark" / each.fixture / "logs" / each.partition
        expected = {segment.snapshot_offset: segment.entries for segment in each.segments}
        assert snapshots_in(directory) == expected
        found += len(expected)
    assert found > 130
    own = command("rebuild", FIXTURES, "--out", tmp_path / "own", *line)
    assert all_bytes(tmp_path / "spark") == all_bytes(tmp_path / "own")
    assert reported(run, tmp_path / "spark") == reported(own, tmp_path / "own")
    assert tree(FIXTURES) == before


@pytest.mark.usefixtures("by_executors")
@pytest.mark.parametrize("verb", ["scan", "plan"])
def test_what_only_looks(spark: SparkSession, command: Command, verb: str) -> None:
    options = ("--as-of", NOW) if verb == "plan" else ()
    own, by_spark = (command(verb, FIXTURES / "kafka27-mixed", *options, "--output", "json", *engine) for engine in ((), SPARK))
    for run in (own, by_spark):
        check(json.loads(run.stdout))
    documents = [without(json.loads(run.stdout), (*OF_ONE_RUN, *OF_SPEED)) for run in (own, by_spark)]
    assert documents[0] == documents[1]
    assert (by_spark.exit_code, by_spark.stderr) == (own.exit_code, own.stderr)


@pytest.mark.usefixtures("by_executors")
def test_what_looks_at_partitions_fails_as_here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "CALL_BYTES_AT_ONCE", 1000)
    with pytest.raises(ReadFailedError, match=r"^/p: no$"):
        SparkEngine(spark).parallel_map(_raise, [1, 2])
    assert SparkEngine(spark).parallel_map(str, range(100)) == [str(number) for number in range(100)]
    assert SparkEngine(spark).parallel_map(_raise, []) == []


def _raise(_: int) -> None:
    raise ReadFailedError("no", path="/p")


def test_modules_are_exempt_from_the_collection_after_each_task(spark: SparkSession) -> None:
    engine = SparkEngine(spark)
    engine.parallel_map(_exempt, range(8))
    assert max(engine.parallel_map(_exempt, range(8))) > 50_000


def _exempt(_: int) -> int:
    return gc.get_freeze_count()


@pytest.mark.usefixtures("small_partitions")
def test_a_verification(spark: SparkSession, command: Command, tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "mixed-0" / snapshot_name(7045)).write_bytes(EMPTY_SNAPSHOT)
    (logs / "mixed-0" / snapshot_name(99_999)).write_bytes(b"\0")
    own, by_spark = (command("verify", logs, "--as-of", NOW, "--output", "json", *engine) for engine in ((), SPARK))
    assert reported(by_spark) == reported(own)
    assert (by_spark.exit_code, by_spark.stderr) == (own.exit_code, own.stderr) == (1, own.stderr)


@pytest.mark.usefixtures("small_partitions")
def test_in_place(spark: SparkSession, command: Command, tmp_path: Path) -> None:
    """On copies, one of whose snapshots is wrong; the lock is held where the command runs, and the receipt is put together there."""
    runs = {}
    for name, engine in (("own", ()), ("spark", SPARK)):
        logs, receipt = copy_of("kafka27-mixed", tmp_path / name), tmp_path / name / "receipt"
        remove_snapshots(logs / "deleted-0")
        (logs / "mixed-0" / snapshot_name(7045)).write_bytes(EMPTY_SNAPSHOT)
        run = command(
            "rebuild", logs, "--boundaries", "all", "--set-aside", "--receipt", receipt, "--as-of", NOW, "--output", "json", *engine
        )
        kinds = [json.loads(line).get("step") for line in receipt.read_text().splitlines()]
        assert {"parts", "joined"} & set(kinds) == ({"parts", "joined"} if name == "spark" else set())
        counts = Counter(kind for kind in kinds if kind not in ("parts", "joined"))
        assert sorted(path.name for path in receipt.parent.iterdir()) == [logs.name, receipt.name]
        runs[name] = (run.exit_code, reported(run, tmp_path / name), all_bytes(logs), counts)
    assert runs["spark"] == runs["own"]
    assert command("verify", "--written-by", tmp_path / "spark" / "receipt").exit_code == 0


def test_the_code_that_the_workers_import(spark: SparkSession) -> None:
    assert {row.at for row in spark.range(2).mapInArrow(where, "at string").collect()} == {snaprebuild.__file__}


# ------------------------------------------------------------------------------------------------------------------ what goes wrong


class Counts(PartitionTask):
    """Counts batches elsewhere, or raises there."""

    def __init__(self, directory: Path, fault: str | None = None) -> None:
        (source,) = open_source([str(directory)]).partitions
        self.source = source
        self.listing = source.directory
        self.path = source.directory.path
        self.fault = fault
        self.count: int | None = None
        self.error: Exception | None = None

    def tasks(self) -> list[ReadTask]:
        from snaprebuild.snapshots.engine.segment_reader import read_tasks

        return read_tasks(self.listing, range(len(self.listing.segments)), check_crc=True)

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        assert self.error is None
        self.error = error

    def job(self) -> CountJob:
        return CountJob(tuple(self.tasks()), self.fault)

    def adopt(self, outcome: TaskOutcome) -> None:
        if self.fault == "not adopted":
            raise StorageError(self.fault)
        self.count = outcome.read_bytes


class Unpicklable:
    def __reduce__(self) -> tuple[object, ...]:
        raise ValueError("cannot be pickled")


class Counting(PartitionTask):
    """Its outcome has the count of batches as bytes."""

    def __init__(self, wanted: Sequence[ReadTask], fault: str | None) -> None:
        self.left, self.fault, self.outcome = [*wanted], fault, TaskOutcome()

    def tasks(self) -> list[ReadTask]:
        left, self.left = self.left, []
        return left

    def take(self, summary: SegmentSummary) -> bool:
        self.outcome.read_bytes += summary.facts.batches
        return True

    def settle(self) -> None:
        if self.fault == "unpicklable":
            self.outcome = cast(TaskOutcome, Unpicklable())


@dataclass(frozen=True)
class CountJob(Job):
    wanted: tuple[ReadTask, ...]
    fault: str | None

    @contextlib.contextmanager
    def started(self, replay: PartitionReplay | None = None, threads: ThreadPool | None = None) -> Iterator[Counting]:
        if self.fault is not None and self.fault.startswith("waits "):
            place = Path(self.fault.removeprefix("waits "))
            (place / "runs").touch()
            while not (place / "go").exists():
                time.sleep(0.05)
        if self.fault is not None and self.fault.startswith("marks "):
            tempfile.mkstemp(dir=self.fault.removeprefix("marks "))
        if self.fault == "raises":
            raise ZeroDivisionError(self.fault)
        yield Counting(self.wanted, self.fault)


@pytest.fixture
def counted(tmp_path: Path) -> Callable[[int], Path]:
    """Partitions of this many batches, one in each segment."""
    logs = make_log_dir(tmp_path / "logs")

    numbers = itertools.count()

    def make(count: int) -> Path:
        return write_partition(logs / f"t-{next(numbers)}", {at: batch(at) for at in range(count)})

    return make


@pytest.mark.usefixtures("small_partitions")
def test_a_job_that_raises_ends_its_partition_only(spark: SparkSession, counted: Callable[[int], Path]) -> None:
    faults = (None, "raises", None, "unpicklable", "not adopted", None)
    works = [Counts(counted(number + 1), fault) for number, fault in enumerate(faults)]
    SparkEngine(spark)(works)
    assert [work.count for work in works] == [1, None, 3, None, None, 6]
    errors = [str(work.error) if work.error else None for work in works]
    assert errors[1] == "unforeseen ZeroDivisionError: raises"
    assert errors[3] == "unforeseen ValueError: cannot be pickled"
    assert errors[4] == "not adopted"
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize(
    ("module", "limits"),
    [(job, {"WAVE_SEGMENTS_MAX": 3}), (chunks, {"PARTITIONS_AT_ONCE": 3}), (chunks, {"PARTITIONS_AT_ONCE": 3, "COLLECT_BYTES": 1})],
    ids=["waves", "results", "large results"],
)
def test_some_at_a_time(
    spark: SparkSession,
    counted: Callable[[int], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    limits: dict[str, int],
) -> None:
    """Where there are more segments than the driver takes at once, or more results: each job is carried out once all the same."""
    for limit, value in limits.items():
        monkeypatch.setattr(module, limit, value)
    (tmp_path / "marks").mkdir()
    works = [Counts(counted(count), f"marks {tmp_path / 'marks'}") for count in (2, 5, 1, 2, 1)]
    SparkEngine(spark)(works)
    assert [(work.count, work.error) for work in works] == [(2, None), (5, None), (1, None), (2, None), (1, None)]
    assert len(list((tmp_path / "marks").iterdir())) == len(works)
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()


@pytest.mark.usefixtures("small_partitions")
def test_settings_of_the_session_are_left_as_they_were(spark: SparkSession, counted: Callable[[int], Path]) -> None:
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"
    for before in ("77", None):
        spark.conf.unset(key) if before is None else spark.conf.set(key, before)
        default = spark.conf.get(key)
        SparkEngine(spark)([Counts(counted(1))])
        assert spark.conf.get(key) == default


# ------------------------------------------------------------------------------------------------------------------------- balance


@pytest.mark.usefixtures("as_large")
def test_reading_is_balanced(spark: SparkSession, event_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of sizes as in a Zipf law: Spark's own log shows how many each task was given, and the packing which they are."""
    sizes = [40_000 // rank + 100 for rank in range(1, 201)]
    logs = make_log_dir(tmp_path / "logs")
    write_partition(logs / "t-0", {at: batch(at, payload_bytes=size) for at, size in enumerate(sizes)})
    packed: list[tuple[Sequence[int], list[int]]] = []
    pack = packing.pack

    def recorded(items: Sequence[int], tasks: int) -> list[int]:
        packed.append((items, pack(items, tasks)))
        return packed[-1][1]

    monkeypatch.setattr(job, "pack", recorded)
    monkeypatch.setattr(arrow_tables, "WITH_FUNCTION_BYTES", -1)  # so that Spark sends the rows, and counts them
    monkeypatch.setattr(read_rows, "ROWS_TOGETHER", 1)  # so that records of Spark are segments
    work = Counts(logs / "t-0")
    with new_tasks(spark, event_log) as ended:
        SparkEngine(spark, tasks=8)([work])
    assert work.count == len(sizes)
    ((items, placed),) = packed
    assert sum(items) >= sum(sizes)
    counts = [each["Task Metrics"]["Shuffle Read Metrics"]["Total Records Read"] for each in reading_tasks(ended)]
    assert [count for count in counts if count] == np.bincount(placed).tolist(), "one more task hands in the job"
    load = np.bincount(placed, weights=items)
    assert len(load) == 8
    assert load.max() / load.mean() <= 1.5


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("tasks", [1, 3])
def test_the_number_of_tasks_is_that_of_the_setting(spark: SparkSession, event_log: Path, command: Command, tasks: int) -> None:
    """The setting rules the step that reads, of the command and of a call; without it there is one task for so little."""
    with new_tasks(spark, event_log) as of_command:
        run = command("verify", MIXED, "--as-of", NOW, "--output", "json", *SPARK, "--set", f"spark_tasks={tasks}")
    assert run.exit_code == 0, run.stderr
    with new_tasks(spark, event_log) as of_call:
        result = notebook.verify(spark, str(MIXED), as_of_ms=int(NOW), tasks=tasks)
    assert result.exit_code == 0
    with new_tasks(spark, event_log) as by_default:
        command("verify", MIXED, "--as-of", NOW, "--output", "json", *SPARK)
    assert [len(reading_tasks(each)) for each in (of_command, of_call, by_default)] == [tasks, tasks, 1]


# ------------------------------------------------------------------------------------------------------------------------- stopped


@pytest.mark.usefixtures("small_partitions")
def test_a_cancelled_job(spark: SparkSession, counted: Callable[[int], Path], tmp_path: Path) -> None:
    """Somebody cancels it while it runs: each partition that was not done shows it, and nothing is raised."""
    works = [Counts(counted(1), f"waits {tmp_path}"), Counts(counted(2))]
    running = threading.Thread(target=SparkEngine(spark), args=(works,))
    running.start()
    while not (tmp_path / "runs").exists():
        assert running.is_alive()
        time.sleep(0.05)
    spark.sparkContext.cancelAllJobs()
    running.join(300)
    (tmp_path / "go").touch()
    assert not running.is_alive()
    for work in works:
        assert isinstance(work.error, StorageError)
        assert str(work.error).startswith("the Spark job failed: ")
    assert "cancelled" in str(works[0].error)
    assert str(works[1].error) == f"the Spark job failed: the reason is with {works[0].path}"
    after = Counts(counted(3))
    SparkEngine(spark)([after])
    assert after.count == 3
