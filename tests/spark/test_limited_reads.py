"""Shares of a limit: whatever tasks fail, are repeated or run twice, the store never gets more requests than the run may send."""

import pickle
import random
import secrets
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from faulty_store import FaultyStore, faulty_store
from log_dirs import files_below
from manifests import FIXTURES

from snaprebuild.errors import LimitReachedError, RefusedError, UsageError
from snaprebuild.snapshots.engine.partition_task import PartitionTask
from snaprebuild.snapshots.engine.segment_reader import ReadTask, read_segment
from snaprebuild.spark import limited_reads
from snaprebuild.spark.job import SparkEngine
from snaprebuild.spark.limited_reads import ShareCounter, SharedReads, read_with_shares, shared_segments, shares_of
from snaprebuild.spark.run_limits import needs_of
from snaprebuild.spark.task_services import TaskServices
from snaprebuild.storage.io_limits.policy import NO_IO_LIMITS
from snaprebuild.storage.s3.request_limits import BYTES, OPTIONS, REQUESTS, meter_of, meters
from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import FileIdentity, ReadStore, S3Settings

pytestmark = pytest.mark.full

LOGS = FIXTURES / "kafka27-mixed" / "logs" / "mixed-0"
ATTEMPTS_MAX = 4


def test_shares_fit_into_what_is_left() -> None:
    """Each is what its task needs, and a quarter more if there is room."""
    chance = random.Random(1)
    for _ in range(300):
        needs = [(chance.randrange(9), chance.randrange(1 << 20)) for _ in range(chance.randrange(1, 9))]
        needed = [sum(each[kind] for each in needs) for kind in (REQUESTS, BYTES)]
        for room in (0, 1, 3, 1 << 30):
            left = (needed[REQUESTS] + room, needed[BYTES] + room)
            shares = shares_of(needs, left)
            for kind in (REQUESTS, BYTES):
                assert all(share[kind] >= need[kind] for share, need in zip(shares, needs, strict=True))
                assert sum(share[kind] for share in shares) <= left[kind]
        assert shares == shares_of(needs, (None, None))
        assert all(share[0] == need[0] + need[0] // 4 + 2 for share, need in zip(shares, needs, strict=True))


def test_after_its_end_a_share_is_used_up() -> None:
    """A thread of a reader may be late: what the task has reported stays true."""
    counter = ShareCounter((3, 100))
    counter("run", REQUESTS, 2, 9, "max_requests")
    with pytest.raises(LimitReachedError, match="limit of max_read_bytes 999 is used up"):
        counter("run", BYTES, 101, 999, "max_read_bytes")
    assert counter.end() == (2, 0)
    with pytest.raises(LimitReachedError, match="limit of max_requests 9 is used up"):
        counter("run", REQUESTS, 1, 9, "max_requests")


class Session:
    """Runs each task in this process, some of them more than once, as a cluster does whose executors die."""

    def __init__(self, chance: random.Random, fails: Callable[[int, int], bool], *, speculates: bool = False) -> None:
        self.chance, self.fails, self.speculates = chance, fails, speculates
        self.conf = SimpleNamespace(get=lambda name, default: str(speculates).lower() if name == "spark.speculation" else default)
        self.attempt = 0
        self.jobs = 0

    def range(self, start: int, end: int, step: int, partitions: int) -> "Session":
        assert (start, step, partitions) == (0, 1, end), "one row for each task"
        self.count = end
        return self

    def mapInArrow(self, function: Any, schema: str) -> "Session":  # noqa: N802  Spark's name
        assert "number" in schema
        self.function = pickle.dumps(function)
        return self

    def collect(self) -> list[Any]:
        self.jobs += 1
        rows: list[Any] = []
        for task in self.chance.sample(range(self.count), self.count):
            rows += self.of_task(task)
            meters.counter = None  # the driver is another process
        return rows

    def of_task(self, task: int) -> list[Any]:
        for attempt in range(ATTEMPTS_MAX):
            self.attempt = attempt
            found = []
            is_failing = self.fails(task, attempt)
            stop_after = self.chance.randrange(4)
            for batch in pickle.loads(self.function)([pa.RecordBatch.from_pylist([{"id": task}])]):
                found += [SimpleNamespace(**row) for row in batch.to_pylist()]
                if is_failing and len(found) > stop_after:
                    break
            if not is_failing:
                return found
        raise RuntimeError("the job is aborted")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    with faulty_store() as running:
        running.objects = {f"b/t-0/{name}": (LOGS / name).read_bytes() for name in files_below(LOGS) if name.endswith(".log")}
        yield running
    meters.counter = None


def test_a_task_without_a_share_sends_nothing(store: FaultyStore) -> None:
    """Only a task that reads with shares may use what is limited."""
    settings = S3Settings(endpoint_url=store.endpoint, path_style=True, max_requests=9)

    def read(batches: Any) -> Iterator[Any]:
        S3Store(settings).read_small("s3://b/k", 10)
        yield from batches

    with pytest.raises(RefusedError, match="has no share of max_requests"):
        list(TaskServices(NO_IO_LIMITS, 1).wrap(read, 1)([]))
    assert store.seen == []


def reads_of(store: FaultyStore, settings: S3Settings) -> list[ReadTask]:
    tasks = []
    for path in sorted(store.objects):
        identity = S3Store(settings).identity(f"s3://{path}")
        assert identity is not None
        tasks.append(ReadTask(f"s3://{path}", None, int(path[-24:-4]), identity, False, store=S3Store(settings)))
    return tasks


def outcomes_of(session: Session, settings: S3Settings, reads: SharedReads[Any]) -> list[Any]:
    found = list(read_with_shares(session, lambda function, _: function, settings, reads))  # type: ignore[arg-type]
    assert sorted(number for number, _ in found) == list(range(len(reads.items))), "each item has one outcome"
    return [outcome for _, outcome in sorted(found, key=lambda each: each[0])]


def as_read(outcome: Any) -> Any:
    return pickle.dumps(outcome)


@pytest.mark.parametrize("kind", [REQUESTS, BYTES], ids=OPTIONS)
def test_never_more_than_the_limit(store: FaultyStore, monkeypatch: pytest.MonkeyPatch, kind: int) -> None:
    """Without failures a run may use the whole limit; with them it ends in time, or has read everything."""
    free = S3Settings(endpoint_url=store.endpoint, path_style=True)
    reads = reads_of(store, free)
    whole = [as_read(read_segment(each)) for each in reads]
    needed = sum(needs_of(each)[kind] for each in reads)
    for seed in range(24):
        chance = random.Random(seed)
        share_of_failures = chance.choice((0.0, 0.0, 0.2, 0.5))
        spare = chance.choice((-1, 0, 1, needed // 3, 5 * needed))
        settings = S3Settings(
            endpoint_url=store.endpoint, path_style=True, run=secrets.token_hex(8), **{OPTIONS[kind]: needed + spare}
        )
        session = Session(chance, lambda _, attempt: chance.random() < share_of_failures and attempt < 3)  # noqa: B023
        monkeypatch.setattr(
            limited_reads,
            "TaskContext",
            SimpleNamespace(get=lambda: SimpleNamespace(attemptNumber=lambda: session.attempt)),  # noqa: B023
        )
        monkeypatch.setattr(limited_reads, "TASKS_MAX", chance.choice((1, 3, 64)))
        store.seen.clear()
        mine = [ReadTask(each.path, None, each.base_offset, each.identity, False, store=S3Store(settings)) for each in reads]
        outcomes = outcomes_of(session, settings, shared_segments(mine))
        meters.counter = None
        sent = len(store.seen)
        if kind == BYTES:
            sent = sum(len(store.objects[path.lstrip("/")]) for method, path, _ in store.seen if method == "GET")
        assert sent <= needed + spare
        counted = meter_of(settings.run).requests if kind == REQUESTS else meter_of(settings.run).read_bytes
        assert sent <= counted <= needed + spare
        failed = [each for each in outcomes if isinstance(each, Exception)]
        assert all(isinstance(each, LimitReachedError) and "is used up" in each.message for each in failed)
        if not share_of_failures:
            assert counted == sent
            assert bool(failed) is (spare < 0)
        right = [at for at, outcome in enumerate(outcomes) if not isinstance(outcome, Exception)]
        assert [as_read(outcomes[at]) for at in right] == [whole[at] for at in right]


def test_estimates_that_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever an item was said to need: enough is enough without failures, and with less nearly everything is used, in order."""
    for seed in range(200):
        chance = random.Random(seed)
        costs = [chance.randrange(1, 9) for _ in range(chance.randrange(1, 12))]
        estimates = [(max(cost + chance.randrange(-1, 5), 0), 0) for cost in costs]
        share_of_failures = chance.choice((0.0, 0.0, 0.2, 0.5))
        wasted = sum(costs) if any(estimate < cost for cost, (estimate, _) in zip(costs, estimates, strict=True)) else 0
        limit = max(sum(costs) + wasted + chance.choice((-3, -1, 0, 9)), 1)
        settings = S3Settings(run=secrets.token_hex(8), max_requests=limit)
        session = Session(chance, lambda _, attempt: chance.random() < share_of_failures and attempt < 3)  # noqa: B023
        context = SimpleNamespace(attemptNumber=lambda: session.attempt)  # noqa: B023
        monkeypatch.setattr(limited_reads, "TaskContext", SimpleNamespace(get=lambda: context))  # noqa: B023
        monkeypatch.setattr(limited_reads, "TASKS_MAX", chance.choice((1, 3, 64)))
        items = [(settings, cost) for cost in costs]
        outcomes = outcomes_of(session, settings, SharedReads(_spend, items, estimates, costs, are_estimates=True))
        assert (counted := meter_of(settings.run).requests) <= limit
        failed = [isinstance(each, LimitReachedError) for each in outcomes]
        assert [each for each in outcomes if not isinstance(each, Exception)] == [
            cost for cost, is_failed in zip(costs, failed, strict=True) if not is_failed
        ]
        if any(failed):
            assert counted == limit
        elif not share_of_failures:
            assert counted >= sum(costs)
        if not share_of_failures and limit >= sum(costs) + wasted:
            assert not any(failed), seed


def _spend(item: tuple[S3Settings, int]) -> int:
    settings, cost = item
    for _ in range(cost):
        meter_of(settings.run).request(settings.max_requests)
    return cost


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_that_does_not_fit_leaves_out_only_itself(store: FaultyStore, monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    """Segments after it may need less, and local ones need nothing."""
    context = SimpleNamespace(attemptNumber=lambda: 0)
    monkeypatch.setattr(limited_reads, "TaskContext", SimpleNamespace(get=lambda: context))
    settings = S3Settings(endpoint_url=store.endpoint, path_style=True, run=secrets.token_hex(8), max_requests=1)
    free = S3Settings(endpoint_url=store.endpoint, path_style=True)
    first = reads_of(store, free)[0]
    one = ReadTask(first.path, None, first.base_offset, first.identity, False, store=S3Store(settings))
    large = ReadTask("s3://b/large", None, 0, FileIdentity(1 << 30, 0, 0, "e"), False, store=S3Store(settings))
    file = LOGS / first.path.rpartition("/")[2]
    reads = [one, ReadTask(str(file), None, first.base_offset, FileIdentity.of(file.stat()), False)]
    reads.insert(place, large)
    outcomes = outcomes_of(Session(random.Random(1), lambda *_: False), settings, shared_segments(reads))
    assert [isinstance(each, LimitReachedError) for each in outcomes] == [at == place for at in range(3)]
    assert not any(isinstance(each, Exception) for each in outcomes[:place] + outcomes[place + 1 :])


def test_a_session_of_connect_has_no_limits() -> None:
    """Its client may send a job again, whose tasks would use their shares twice. Nothing is sent to it."""
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()

    class Limited(PartitionTask):
        def __init__(self) -> None:
            pass

        def stores(self) -> tuple[ReadStore, ...]:
            return (S3Store(S3Settings(max_read_bytes=9)),)

    with pytest.raises(UsageError, match="max_requests and max_read_bytes cannot be kept with Spark Connect"):
        SparkEngine(session)([Limited()])
