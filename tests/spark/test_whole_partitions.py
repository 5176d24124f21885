"""Small partitions that one task does: they end as in a run on one machine, each by itself, and large ones stay with several tasks."""

from __future__ import annotations

import os
import pickle
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from engine_results import outcomes_of
from log_dirs import all_bytes, batch, copy_of, make_log_dir, write_partition
from manifests import FIXTURES
from msgspec.structs import replace
from plans import make_plan
from simulated_broker import EXPIRATION_MS
from test_any_packing import write_aged_log

from formats.errors import FormatError
from snaprebuild.errors import SnaprebuildError
from snaprebuild.snapshots.destination.boundary_result import BoundaryAction
from snaprebuild.snapshots.engine.partition_replay import PartitionReplay
from snaprebuild.snapshots.engine.partition_task import Job, PartitionTask, TaskOutcome
from snaprebuild.snapshots.engine.segment_reader import ReadTask, read_tasks
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.receipts.receipt import Receipt
from snaprebuild.snapshots.receipts.receipt_parts import end_own_parts
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.snapshots.verify import verify
from snaprebuild.spark import read_rows, whole_partitions
from snaprebuild.spark.whole_partitions import SEGMENTS_MAX, WholePartition, placed_by_cost, placed_whole, run_whole
from snaprebuild.storage.thread_pool import ThreadPool

pytestmark = pytest.mark.full

NOW_MS = 1_795_270_000_000


class WithoutSpark:
    """A ``partition_task.Engine``: all partitions by one task function, ``attempts`` times before the outcome counts."""

    def __init__(self, attempts: int = 1) -> None:
        """Nothing was done yet."""
        self.attempts = attempts
        self.whole: list[WholePartition] = []

    def __call__(self, tasks: Sequence[PartitionTask]) -> None:
        """Runs them."""
        self.whole = [WholePartition.of(number, task, task.job(), task.tasks()) for number, task in enumerate(tasks)]
        sent = read_rows.table_of(self.whole, [0] * len(tasks))
        for _ in range(self.attempts):
            done = {row["partition"]: row["done"] for each in run_whole(sent.to_batches()) for row in each.to_pylist()}
            end_own_parts()
        assert sorted(done) == list(range(len(tasks)))
        for number, task in enumerate(tasks):
            task.adopt(pickle.loads(done[number]))


def plan_of(out: Path, *places: Path, **options: Any) -> Any:
    return make_plan(RebuildRequest(tuple(map(str, places)), out=str(out), boundaries="all", as_of_ms=NOW_MS, **options))


@pytest.mark.parametrize("attempts", [1, 2])
def test_files_and_outcomes_are_those_of_one_machine(tmp_path: Path, attempts: int) -> None:
    """Also if the task is repeated: it finds its own files."""
    places = [FIXTURES / name / "logs" for name in ("kafka27-mixed", "txn-state4", "damaged")]
    found = {}
    for name, engine in (("own", None), ("whole", WithoutSpark(attempts))):
        plan = plan_of(tmp_path / name, *places, replay_from="log-start")
        receipt = Receipt(str(tmp_path / f"{name}.jsonl"), plan)
        result = rebuild(plan, Run(jobs=1, engine=engine), receipt=receipt)
        found[name] = [str(each).replace(str(tmp_path / name), "PLACE") for each in outcomes_of(result)]
    assert found["whole"] == found["own"]
    snapshots = {name: {at: data for at, data in all_bytes(tmp_path / name).items() if "part" not in str(at)} for name in found}
    assert snapshots["whole"] == snapshots["own"]
    assert len(snapshots["own"]) > 30


@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("ahead_seconds", [0, 3600, -3600])
def test_a_server_of_files_with_another_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_seconds: int, attempts: int
) -> None:
    """Files of an earlier run stay its own, and a task that is repeated finds those of its first attempt."""
    logs = FIXTURES / "kafka27-mixed" / "logs"
    sync = os.fsync

    def by_its_clock(descriptor: int) -> None:
        sync(descriptor)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            at_ns = time.time_ns() + ahead_seconds * 10**9
            os.utime(descriptor, ns=(at_ns, at_ns))

    monkeypatch.setattr(os, "fsync", by_its_clock)
    actions = []
    for number in range(2):
        plan = plan_of(tmp_path / "out", logs, replay_from="log-start")
        receipt = Receipt(str(tmp_path / f"receipt{number}.jsonl"), plan)
        result = rebuild(plan, Run(jobs=1, engine=WithoutSpark(attempts)), receipt=receipt)
        assert not result.findings
        actions.append({boundary.action for partition in result.partitions for boundary in partition.boundaries})
    assert actions == [{BoundaryAction.WRITTEN}, {BoundaryAction.EQUAL}]


def test_a_verification(tmp_path: Path) -> None:
    source = open_source([str(copy_of("kafka27-mixed", tmp_path))])
    plan = plan_of(tmp_path / "out", FIXTURES / "kafka27-mixed")
    own, whole = (verify(source, Run(clock=plan.clock, jobs=1, engine=engine)) for engine in (None, WithoutSpark()))
    assert whole == own


def test_a_replay_that_goes_back_reads_more_in_its_task(tmp_path: Path) -> None:
    """It counts with all its segments, not with those that it reads first."""
    logs = make_log_dir(tmp_path / "logs")
    case = write_aged_log(8, logs / "t-0")
    request = RebuildRequest(
        (str(logs),), boundaries="all", as_of_ms=case.as_of_ms, expiration_ms=EXPIRATION_MS, out=str(tmp_path / "out")
    )
    request = replace(request, offset_from=case.first_wanted)
    engine = WithoutSpark()
    found, expected = (rebuild(make_plan(request), Run(jobs=1, engine=each), dry_run=True) for each in (engine, None))
    assert outcomes_of(found) == outcomes_of(expected)
    assert "extended back" in found.partitions[0].outcome.replay_reason
    (segments,) = ([*(logs / "t-0").glob("*.log")],)
    assert (engine.whole[0].segments, engine.whole[0].size_bytes) == (len(segments), sum(each.stat().st_size for each in segments))


def test_progress_shows_what_is_read_first(tmp_path: Path) -> None:
    """On one machine it is the same: segments to which a replay may go back are no work until it does."""
    logs = make_log_dir(tmp_path / "logs")
    case = write_aged_log(14, logs / "t-0")
    request = RebuildRequest(
        (str(logs),), boundaries="all", as_of_ms=case.as_of_ms, expiration_ms=EXPIRATION_MS, out=str(tmp_path / "out")
    )
    plan = make_plan(replace(request, offset_from=case.first_wanted))
    shown: list[int] = []
    own = rebuild(plan, Run(jobs=1), dry_run=True, progress=lambda _, size_bytes: shown.append(size_bytes))
    engine = WithoutSpark()
    rebuild(plan, Run(jobs=1, engine=engine), dry_run=True)
    _, read_bytes = placed_whole(engine.whole, None)
    assert sum(read_bytes) == sum(shown) == own.partitions[0].outcome.read_bytes
    assert sum(read_bytes) < engine.whole[0].size_bytes == sum(each.stat().st_size for each in (logs / "t-0").glob("*.log"))


@pytest.mark.parametrize(("partitions", "segments", "tasks"), [(256, 1, 2), (64, 2, 1), (64, 4, 2), (100, 64, 50), (1, 64, 1)])
def test_a_task_opens_no_more_segments_than_the_guide_says(partitions: int, segments: int, tasks: int) -> None:
    """docs/guides/spark.md: one task for 128 segments or partitions, where their bytes do not matter."""
    small = [WholePartition(number, FailingJob((), None), segments, 100, 100) for number in range(partitions)]
    placed, read_bytes = placed_whole(small, None)
    assert len(read_bytes) == tasks
    assert max(placed.count(task) for task in range(tasks)) * segments <= 128


def test_the_cost_of_a_segment_is_packed_and_not_read() -> None:
    """Four partitions of 10 bytes, of which one has 300 segments: it has a task of its own."""
    placed, read_bytes = placed_by_cost([10, 10, 10, 10], [1, 300, 1, 1], 2)
    assert [task == placed[1] for task in placed] == [False, True, False, False]
    assert sorted(read_bytes) == [10, 30]


# ------------------------------------------------------------------------------------------------------------------ what goes wrong


class Failing(PartitionTask):
    """Fails where its fault says."""

    def __init__(self, wanted: Sequence[ReadTask], fault: str | None) -> None:
        self.left = [*wanted]
        self.fault = fault
        self.outcome = TaskOutcome()

    def tasks(self) -> list[ReadTask]:
        self._raise("tasks")
        left, self.left = self.left, []
        return left

    def take(self, summary: Any) -> bool:
        self._raise("take")
        self.outcome.read_bytes += summary.facts.batches
        return self.fault != "wants no more"

    def finish(self) -> None:
        self._raise("finish")

    def fail(self, error: SnaprebuildError | FormatError) -> None:
        if self.fault == "fail":
            raise ZeroDivisionError(self.fault)
        self.outcome.ended = str(error)

    def settle(self) -> None:
        self._raise("settle")

    def _raise(self, where: str) -> None:
        if self.fault == where or (self.fault == "fail" and where == "take"):
            raise ZeroDivisionError(where)


@dataclass(frozen=True)
class FailingJob(Job):
    wanted: tuple[ReadTask, ...]
    fault: str | None

    @contextmanager
    def started(self, replay: PartitionReplay | None = None, threads: ThreadPool | None = None) -> Iterator[Failing]:
        if self.fault == "started":
            raise ZeroDivisionError(self.fault)
        yield Failing(self.wanted, self.fault)


@pytest.fixture
def job_of(tmp_path: Path) -> Callable[[int, str | None], WholePartition]:
    """A partition of that number of segments, with a batch in each."""

    def make(count: int, fault: str | None) -> WholePartition:
        (source,) = open_source([str(write_partition(tmp_path / f"t-{count}", {at: batch(at) for at in range(count)}))]).partitions
        wanted = tuple(read_tasks(source.directory, range(count), check_crc=True))
        size_bytes = sum(each.identity.size_bytes for each in wanted)
        return WholePartition(count, FailingJob(wanted, fault), count, size_bytes, size_bytes)

    return make


def outcomes(some: Sequence[WholePartition]) -> dict[int, Any]:
    done = run_whole(read_rows.table_of(some, [0] * len(some)).to_batches())
    return {row["partition"]: pickle.loads(row["done"]) for each in done for row in each.to_pylist()}


@pytest.mark.parametrize("segments_max", [1, 32])
def test_an_error_ends_its_partition_only(
    job_of: Callable[[int, str | None], WholePartition], monkeypatch: pytest.MonkeyPatch, segments_max: int
) -> None:
    """Wherever it is raised, and whether partitions are read together or one by one."""
    monkeypatch.setattr(whole_partitions, "ReadBudget", lambda: whole_partitions_budget(segments_max))
    faults = {1: "started", 2: None, 3: "tasks", 4: "take", 5: "finish", 6: "settle", 7: "fail", 8: "wants no more", 9: None}
    found = outcomes([job_of(count, fault) for count, fault in faults.items()])
    assert {number: str(found[number]) for number in (1, 6, 7)} == {
        1: "unforeseen ZeroDivisionError: started",
        6: "unforeseen ZeroDivisionError: settle",
        7: "unforeseen ZeroDivisionError: fail",
    }
    assert {number: found[number].ended for number in (3, 4, 5)} == {
        number: f"unforeseen ZeroDivisionError: {faults[number]}" for number in (3, 4, 5)
    }
    assert {number: found[number].read_bytes for number in (2, 8, 9)} == {2: 2, 8: 1, 9: 9}


def whole_partitions_budget(segments_max: int) -> Any:
    from snaprebuild.snapshots.engine.partition_task import ReadBudget

    return ReadBudget(segments=segments_max)


def test_a_segment_that_cannot_be_read(job_of: Callable[[int, str | None], WholePartition], tmp_path: Path) -> None:
    """It ends its partition with the path of the file, and its neighbours are read."""
    some = [job_of(count, None) for count in (2, 3, 4)]
    gone = next((tmp_path / "t-3").glob("*1.log"))
    gone.unlink()
    found = outcomes(some)
    assert str(gone) in found[3].ended
    assert {number: found[number].ended for number in (2, 4)} == {2: None, 4: None}
    assert {number: found[number].read_bytes for number in (2, 4)} == {2: 2, 4: 4}


def test_what_is_small() -> None:
    """Neither more bytes than a task reads without being split, nor more segments."""
    job = FailingJob((), None)
    assert WholePartition(0, job, SEGMENTS_MAX, 100, 100).is_small(100)
    assert not WholePartition(0, job, SEGMENTS_MAX, 101, 101).is_small(100)
    assert not WholePartition(0, job, SEGMENTS_MAX + 1, 100, 100).is_small(100)
