"""Jobs over objects, at a store that fails: whatever a request meets, no object is wrong, none is replaced, and each report is true."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from budgets import first_of
from command import Run
from faulty_store import FaultyStore
from log_dirs import Entries, entries_in, files_below, snapshot_name, truth
from manifests import FIXTURES
from same_result import OF_ONE_RUN, without

from snaprebuild.errors import RefusedError, SnaprebuildError
from snaprebuild.library.call_options import RebuildOptions
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.storage.store import S3Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LOGS = FIXTURES / "kafka27-mixed" / "logs"
PARTITIONS = ("mixed-0", "logappend-0", "deleted-0", "plain-0")
AS_OF = ("--as-of", "1795270000000")
OPTIONS = (*AS_OF, "--set", "s3_path_style=true", "--output", "json", "--engine", "spark")
ALL = ("--boundaries", "all", "--replay-from", "log-start")
Rebuild = Callable[..., Run]


@pytest.fixture
def store(faulty: FaultyStore) -> FaultyStore:
    """One broker's directory in a bucket."""
    faulty.objects = {f"b/logs/{name}": (LOGS / name).read_bytes() for name in files_below(LOGS)}
    return faulty


@pytest.fixture
def rebuild(store: FaultyStore, command: Callable[..., Run]) -> Rebuild:
    return lambda *options: command("rebuild", "s3://b/logs", *options, "--s3-endpoint-url", store.endpoint, *OPTIONS)


def snapshots(store: FaultyStore, below: str) -> dict[str, Entries]:
    """Entries of each snapshot below a prefix, by partition and name."""
    found = {name.removeprefix(below): data for name, data in store.objects.items() if name.startswith(below)}
    return {name: frozenset(entries_in(data)) for name, data in found.items() if name.endswith(".snapshot")}


def expected() -> dict[str, Entries]:
    """Entries of each snapshot by Kafka's own classes."""
    return {f"{each}/{snapshot_name(at)}": entries for each in PARTITIONS for at, entries in truth("kafka27-mixed", each).items()}


@pytest.mark.night
def test_snapshots_that_cannot_be_written(store: FaultyStore, rebuild: Rebuild) -> None:
    """Next to the segments. What was not written is not there, and each says why; a lost answer is looked for, and found.

    Once the store is well, a second run does the rest.
    """
    before = dict(store.objects)
    faults = ("409", "500", "412", "503", "403", "")
    lost: set[str] = set()

    def fault_of(path: str) -> str:
        return faults[int(path[-13:-9]) // 7 % len(faults)]  # by the offset

    def choose(method: str, path: str, _: dict[str, str]) -> str:
        if method != "PUT" or not path.endswith(".snapshot"):
            return ""
        if fault_of(path) or path in lost:
            return fault_of(path)
        lost.add(path)
        return "lost"

    store.choose = choose
    run = rebuild()
    fine = {name for name in store.objects if name not in before}
    assert fine == lost
    first = run.totals
    assert run.exit_code == 5
    reported = [each["message"] for each in run.document["findings"]]
    for text in (
        "another run writes this very object now",
        "it is not known whether it was written",
        "appeared while the snapshot was rebuilt",
        "503 SlowDown",
        "403 AccessDenied",
    ):
        assert [each for each in reported if text in each], (text, reported)
    store.choose = lambda *_: ""
    run = rebuild()
    assert (run.exit_code, run.totals) == (0, {"written": 14 - len(fine)})
    action_of = {"": "written", "412": "refused"}
    assert first == Counter(action_of.get(fault_of(name), "failed") for name in store.objects if name not in before)
    assert {name: store.objects[name] for name in before} == before
    found = snapshots(store, "b/logs/")
    assert {name: expected()[name] for name in found} == found
    assert len(store.objects) == len(before) + 14


@pytest.mark.parametrize("verb", first_of(["scan", "rebuild"], "night"))
def test_a_limit_is_one_of_the_whole_run(store: FaultyStore, command: Callable[..., Run], verb: str) -> None:
    """Whether the driver or its tasks send the requests: those that a run takes suffice, and with one less no more are sent."""
    before = dict(store.objects)
    options = ("--set", "s3_path_style=true", "--s3-endpoint-url", store.endpoint, "--output", "json", "--engine", "spark")
    options += {"scan": (), "rebuild": (*AS_OF, "--out", "s3://b/out", *ALL)}[verb]

    def run_with(most: int) -> Run:
        store.objects = dict(before)
        store.seen.clear()
        return command(verb, "s3://b/logs", *options, "--set", f"max_requests={most}")

    whole = run_with(100_000)
    needed = len(store.seen)
    assert needed > 20
    enough = run_with(needed)
    assert (enough.exit_code, enough.stderr, len(store.seen)) == (whole.exit_code, whole.stderr, needed)
    few = run_with(needed - 1)
    assert few.exit_code == 3
    assert f"max_requests {needed - 1} " in few.stderr
    assert len(store.seen) < needed
    assert {name: store.objects[name] for name in before} == before


COPIES = {
    "ü=1+1&x#y?z %41/a blank/日本語/'q\"<t>/logs": PARTITIONS,
    "l": PARTITIONS,
    " ": ("deleted-0",),
    "l-1": ("deleted-0",),
    "l\x01\n\x7f": ("deleted-0",),
    "/".join("abcdefghijklmnopqrstuvwxyz" * 2): ("plain-0",),
}
"""Partitions of one broker's directory that were copied, by prefix."""


def odd_bucket() -> dict[str, bytes]:
    """A bucket with names that no file system has, and with those that tools leave in buckets."""
    found = {
        f"b/{copy}/{partition}/{name}": (LOGS / partition / name).read_bytes()
        for copy, partitions in COPIES.items()
        for partition in partitions
        for name in files_below(LOGS / partition)
    }
    segment = f"{0:020d}.log"
    found |= dict.fromkeys(("b/l/", "b/l/mixed-0/", "b/l/gone-0/", "b/empty/", "b/l_$folder$", "b/l!"), b"")
    found |= dict.fromkeys(("b/l", "b/l/mixed-0", f"b/l/mixed-0/{segment}/", f"b/l/mixed-0/{segment}/x"), b"also a directory")
    found |= dict.fromkeys(("b//lead/t-0/x", f"b/a//t-0/{segment}", f"b/../t-0/{segment}", "b/l/./x"), b"")
    found |= {f"b/l/mixed-0/junk-{number:04d}": b"" for number in range(1100)}
    outside = ("b/README", f"b/{segment}", f"b/x/{segment}", "b/x-y/0.log", f"b/l/plain-0/{segment}.deleted")
    found |= dict.fromkeys((*outside, f"b/l/marker-0/{segment}/", f"b/l/t-0.{'0' * 32}-delete/{segment}"), b"")
    return {**found, f"b/l/swapped-0/{segment}.swap": b""}


def test_a_bucket_with_odd_keys(store: FaultyStore, command: Callable[..., Run], tmp_path: Path) -> None:
    """Every copy is rebuilt, below its prefix; what is no file below a directory is reported, and what is no segment refused."""
    store.objects = before = odd_bucket()
    place = ("--set", "s3_path_style=true", "--s3-endpoint-url", store.endpoint)
    options = (*AS_OF, *place, "--output", "json", *ALL)
    runs = {}
    for engine in ("process", "spark"):
        out = tmp_path / engine
        run = command("rebuild", "s3://b", "--out", out, *options, "--engine", engine)
        document = without(json.loads(run.stdout.replace(str(out), "OUT")), OF_ONE_RUN)
        runs[engine] = run.exit_code, document, run.stderr, {name: (out / name).read_bytes() for name in files_below(out)}
    assert runs["spark"] == runs["process"]
    exit_code, document, _, files = runs["spark"]
    codes = Counter((each["code"], each["path"].removeprefix("s3://b/")) for each in document["findings"])
    assert codes == {
        ("odd-keys", "s3://b"): 1,
        ("no-segment", "l/gone-0"): 1,
        ("interrupted-compaction", "l/swapped-0"): 1,
        ("delete-directory", f"l/t-0.{'0' * 32}-delete"): 1,
        ("storage-failed", f"l/marker-0/{0:020d}.log"): 1,
    }
    assert exit_code == 5, "a segment that is no object"
    wanted = {
        f"{copy}/{name}": entries
        for copy, partitions in COPIES.items()
        for name, entries in expected().items()
        if name.partition("/")[0] in partitions
    }
    assert {name: frozenset(entries_in(data)) for name, data in files.items()} == wanted
    assert store.objects == before


def test_a_notebook_asks_as_the_command_does(spark: SparkSession, store: FaultyStore, tmp_path: Path) -> None:
    """Each option has the name that it has in a request; limits count for planning, too; what makes no sense is refused."""
    from snaprebuild.spark import notebook

    own = {"dry_run", "receipt", "results", "impact", "max_read_rate"}
    of_other_name = {"paths", "stage"}  # the source; and what `stage` does
    assert RebuildOptions.__annotations__.keys() - own == set(RebuildRequest.__struct_fields__) - of_other_name
    settings = S3Settings(endpoint_url=store.endpoint, path_style=True)
    options = {"out": str(tmp_path), "boundaries": "all", "replay_from": "log-start", "as_of_ms": 1_795_270_000_000}
    result = notebook.rebuild(spark, "s3://b/logs/", s3=settings, offset_from=500, offset_to=600, partitions=[0], **options)
    found = {name: frozenset(entries_in((tmp_path / name).read_bytes())) for name in files_below(tmp_path)}
    assert found == {name: each for name, each in expected().items() if 500 <= int(name[-29:-9]) <= 600}
    assert not result.findings
    with pytest.raises(RefusedError, match="max_requests 9"):
        notebook.rebuild(spark, "s3://b/logs", s3=replace(settings, max_requests=9), **options)
    for wrong, reported in (
        ({"set_aside": True}, "and out does not change those"),
        ({"out": None, "set_aside": True}, "objects are never renamed"),
        ({"boundaries": "some"}, "expected missing, all, found 'some'"),
        ({"replay_from": "start"}, "expected auto, window, log-start"),
        ({"out": ""}, "out: the path is empty"),
        ({"out": "s3a://b/out"}, "s3a://...: expected a path, or s3://BUCKET/PREFIX"),
        ({"metadata": str(tmp_path / "nowhere")}, "nowhere"),
    ):
        with pytest.raises(SnaprebuildError, match=reported):
            notebook.rebuild(spark, "s3://b/logs", s3=settings, **{**options, **wrong})
