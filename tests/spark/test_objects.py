"""Jobs over objects, at a store that fails: whatever a request meets, no object is wrong, none is replaced, and what is told is true."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from command import Run
from faulty_store import FaultyStore, faulty_store
from log_dirs import Entries, entries_in, files_below, snapshot_name, truth
from manifests import FIXTURES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LOGS = FIXTURES / "kafka27-mixed" / "logs"
PARTITIONS = ("mixed-0", "logappend-0", "deleted-0", "plain-0")
OPTIONS = ("--as-of", "1795270000000", "--s3-path-style", "--output", "json", "--engine", "spark")
ALL = ("--boundaries", "all", "--replay-from", "log-start")
Rebuild = Callable[..., Run]


@pytest.fixture
def store(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    """One broker's directory in a bucket; the driver and the Python workers have keys to it."""
    access = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in access.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    with faulty_store() as running:
        running.objects = {f"b/logs/{name}": (LOGS / name).read_bytes() for name in files_below(LOGS)}
        yield running


@pytest.fixture
def rebuild(store: FaultyStore, command: Callable[..., Run]) -> Rebuild:
    return lambda *options: command("rebuild", "s3://b/logs", *options, "--s3-endpoint-url", store.endpoint, *OPTIONS)


class Once:
    """The first request for each of some objects fails; which way, goes round."""

    def __init__(self, kind: str, suffix: str, faults: list[str]) -> None:
        self.kind, self.suffix, self.faults = kind, suffix, faults
        self.met: dict[str, str] = {}
        self.lock = threading.Lock()

    def __call__(self, method: str, path: str, headers: dict[str, str]) -> str:
        if method != self.kind or not path.endswith(self.suffix):
            return ""
        with self.lock:
            if path in self.met:
                return ""
            self.met[path] = self.faults[len(self.met) % len(self.faults)]
            return self.met[path]


def lasting(faults: dict[str, str], kind: str, suffix: str) -> Callable[[str, str, dict[str, str]], str]:
    """Every request for some objects of a partition fails in the same way."""

    def choose(method: str, path: str, headers: dict[str, str]) -> str:
        partition = next((each for each in faults if f"/{each}/" in path), None)
        return faults[partition] if partition is not None and method == kind and path.endswith(suffix) else ""

    return choose


def snapshots(store: FaultyStore, below: str) -> dict[str, Entries]:
    """Entries of each snapshot below a prefix, by partition and name."""
    found = {name.removeprefix(below): data for name, data in store.objects.items() if name.startswith(below)}
    return {name: frozenset(entries_in(data)) for name, data in found.items() if name.endswith(".snapshot")}


def expected() -> dict[str, Entries]:
    """As Kafka's own classes have it."""
    return {f"{each}/{snapshot_name(at)}": entries for each in PARTITIONS for at, entries in truth("kafka27-mixed", each).items()}


def actions(run: Run) -> dict[str, Counter[str]]:
    partitions: list[dict[str, Any]] = run.document["partitions"]
    return {each["topic_partition"]: Counter(one["action"] for one in each["boundaries"]) for each in partitions}


def test_each_request_may_fail_once(store: FaultyStore, rebuild: Rebuild) -> None:
    """Segments, then snapshots; what the run wrote is told as written, also where the answer to that was lost."""
    before = dict(store.objects)
    reading = store.choose = Once("GET", ".log", ["503", "", "reset", "", "short", "", "drop", "", "500"])
    run = rebuild("--out", "s3://b/read", *ALL)
    assert (run.exit_code, run.document["totals"]) == (0, {"written": 23})
    assert set(reading.met.values()) == set(reading.faults)
    writing = store.choose = Once("PUT", ".snapshot", ["503", "409", "lost", "", "500", "drop", "lost", ""])
    run = rebuild("--out", "s3://b/written", *ALL)
    assert (run.exit_code, run.document["totals"]) == (0, {"written": 23})
    assert len(writing.met) == 23
    assert snapshots(store, "b/read/") == snapshots(store, "b/written/") == expected()
    assert {name: store.objects[name] for name in before} == before


def test_segments_that_cannot_be_read(store: FaultyStore, rebuild: Rebuild) -> None:
    """Each partition says what it met; the one that met nothing is rebuilt."""
    store.choose = lasting({"mixed-0": "short", "logappend-0": "etag", "deleted-0": "403"}, "GET", f"{0:020d}.log")
    run = rebuild("--out", "s3://b/out", *ALL)
    assert run.exit_code == 5
    told = "; ".join(each["message"] for each in run.document["findings"])
    for text in (
        "the answer breaks off every time",
        "changed since it was listed",
        "the store answers 403 AccessDenied",
    ):
        assert text in told
    found = actions(run)
    assert found["plain-0"].keys() == {"written"}
    assert all(found[each].keys() == {"left_out"} for each in PARTITIONS if each != "plain-0")
    right = {name: entries for name, entries in expected().items() if name.startswith("plain-0/")}
    assert snapshots(store, "b/out/") == right


def test_snapshots_that_cannot_be_written(store: FaultyStore, rebuild: Rebuild) -> None:
    """Beside the segments. What was not written is not there, and each says why; once the store is well, a second run does the rest."""
    before = dict(store.objects)
    faults = ("409", "500", "412", "503", "403", "")
    store.choose = lambda method, path, _: faults[hash_of(path) % 6] if method == "PUT" and path.endswith(".snapshot") else ""
    run = rebuild()
    fine = {name for name in store.objects if name not in before}
    assert {hash_of(name) % 6 for name in fine} == {5}
    assert (run.exit_code, run.document["totals"]) == (5, {"left_out": 14 - len(fine), "written": len(fine)})
    told = [each["message"] for each in run.document["findings"]]
    for text in (
        "another run writes this very object now",
        "whether it was written is not known",
        "appeared while the snapshot was rebuilt",
        "503 SlowDown",
        "403 AccessDenied",
    ):
        assert [each for each in told if text in each], (text, told)
    store.choose = lambda *_: ""
    run = rebuild()
    assert (run.exit_code, run.document["totals"]) == (0, {"written": 14 - len(fine)})
    assert {name: store.objects[name] for name in before} == before
    found = snapshots(store, "b/logs/")
    assert {name: expected()[name] for name in found} == found
    assert len(store.objects) == len(before) + 14


def hash_of(path: str) -> int:
    return int(path[-13:-9]) // 7  # of the offset


def test_an_answer_that_is_lost_and_cannot_be_looked_for(store: FaultyStore, rebuild: Rebuild) -> None:
    """Whether it was written stays unknown, and it was: the next run finds it, and has nothing to do."""
    before = dict(store.objects)
    puts = Once("PUT", ".snapshot", ["lost"])

    def choose(method: str, path: str, headers: dict[str, str]) -> str:
        return puts(method, path, headers) or ("403" if method == "GET" and path in puts.met else "")

    store.choose = choose
    run = rebuild()
    assert run.exit_code == 5
    assert run.document["totals"] == {"left_out": 14}
    unknown = [each["message"] for each in run.document["findings"] if "whether it was written is not known" in each["message"]]
    assert len(unknown) == 14
    store.choose = lambda *_: ""
    after = dict(store.objects)
    run = rebuild()
    assert (run.exit_code, run.document["totals"]) == (0, {})
    assert store.objects == after
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 14
    found = snapshots(store, "b/logs/")
    assert {name: expected()[name] for name in found} == found
