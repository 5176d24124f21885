"""Jobs with ``--cache``: a second run reads what is new, and its results are those of a run that reads everything."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command import Run, snaprebuild
from documents import check
from log_dirs import all_bytes, batch, make_log_dir, tree, write_partition
from manifests import FIXTURES
from object_store import ObjectStore
from plans import make_plan
from same_result import OF_ONE_RUN, without

import snaprebuild as library
from snaprebuild.errors import UsageError
from snaprebuild.snapshots import run as runs
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild.run import rebuild

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOW = "1795270000000"
ALL = ("--boundaries", "all", "--replay-from", "log-start", "--keep-expired")
OPTIONS = ("--as-of", NOW, "--output", "json", "--engine", "spark")
Command = Callable[..., Run]


def document(run: Run, *places: Path) -> dict[str, Any]:
    """The document without what differs from run to run, and with one name for each of the places."""
    check(json.loads(run.stdout))
    text = run.stdout
    for place in places:
        text = text.replace(str(place), "PLACE")
    found: dict[str, Any] = without(json.loads(text), (*OF_ONE_RUN, "cache"))
    for each in found["partitions"]:
        each["bytes"] = each.pop("read_bytes") + each.pop("cache_hits")["size_bytes"]
    return found


def reported(run: Run) -> tuple[int, int]:
    """Bytes that were read, and segments that came from kept effects."""
    partitions = run.document["partitions"]
    effects = run.document["cache"]
    assert effects["segments"] == sum(each["cache_hits"]["segments"] for each in partitions)
    assert effects["size_bytes"] == sum(each["cache_hits"]["size_bytes"] for each in partitions)
    return sum(each["read_bytes"] for each in partitions), effects["segments"]


KEPT = ("kafka27-mixed", "damaged/logs", "kafka4-compacted")
"""Sound segments, damaged ones, which are read again, and segments with gaps."""


def test_a_second_run_and_a_verification(spark: SparkSession, command: Command, tmp_path: Path) -> None:
    """A verification takes what a rebuild has kept, but for segments with a snapshot inside."""
    places, kept, line = [FIXTURES / each for each in KEPT], ("--cache", tmp_path / "effects"), (*ALL, *OPTIONS)
    plain = command("rebuild", *places, "--out", tmp_path / "plain", *line)
    assert json.loads(plain.stdout)["cache"] is None
    runs = [command("rebuild", *places, "--out", tmp_path / name, *kept, *line) for name in ("one", "two")]
    for name, run in zip(("one", "two"), runs, strict=True):
        assert all_bytes(tmp_path / name) == all_bytes(tmp_path / "plain")
        assert document(run, tmp_path / name) == document(plain, tmp_path / "plain")
        assert (run.exit_code, run.stderr.count("read again")) == (plain.exit_code, 0)
    first, second = map(reported, runs)
    assert first[1] == 0 < second[1]
    assert runs[1].document["cache"]["path"] == str(tmp_path / "effects")
    # What is left to read: last segments, and what is damaged.
    assert second[0] + runs[1].document["cache"]["size_bytes"] == first[0]
    for each in runs[1].document["partitions"]:
        sizes = [each["size_bytes"] for each in each["inputs"]]
        most = sum(sizes) if "/damaged/" in each["path"] or "compacted" in each["path"] else sizes[-1] if sizes else 0
        assert each["read_bytes"] <= most, each["path"]
    plain, with_effects = (command("verify", *places, *more, *OPTIONS) for more in ((), kept))
    assert document(with_effects) == document(plain)
    assert (with_effects.exit_code, with_effects.stderr) == (plain.exit_code, plain.stderr)
    assert reported(with_effects)[1] > 20


SEGMENTS = {
    base: b"".join(batch(at, producer_id=at % 7, payload_bytes=50) for at in range(base, base + 10)) for base in range(0, 60, 10)
}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A partition of six segments of one size, but for the first."""
    write_partition(make_log_dir(tmp_path / "logs") / "t-0", SEGMENTS)
    return tmp_path / "logs"


@pytest.fixture
def run(spark: SparkSession, command: Command, logs: Path, tmp_path: Path) -> Callable[..., tuple[int, int]]:
    """Rebuilds as one without effects does; returns what was read and what was kept."""

    def rebuilt(*options: object, effects: object = tmp_path / "effects") -> tuple[int, int]:
        out = tmp_path / "out"
        shutil.rmtree(out, ignore_errors=True)
        own = rebuild(make_plan(request_of(logs, tmp_path / "own")), runs.Run(jobs=1))
        found = command("rebuild", logs, "--out", out, "--cache", effects, *options, *ALL, *OPTIONS)
        assert found.exit_code == 0, found.stderr
        assert all_bytes(out) == all_bytes(tmp_path / "own")
        assert len(own.partitions[0].boundaries) == len(list((logs / "t-0").glob("*.log")))
        shutil.rmtree(tmp_path / "own")
        return reported(found)

    return rebuilt


def request_of(logs: Path, out: Path) -> RebuildRequest:
    return RebuildRequest((str(logs),), out=str(out), boundaries="all", replay_from="log-start", as_of_ms=int(NOW))


def test_only_what_is_new_is_read(run: Callable[..., tuple[int, int]], logs: Path) -> None:
    paths = [logs / "t-0" / f"{base:020d}.log" for base in SEGMENTS]
    sizes = [path.stat().st_size for path in paths]
    assert run() == (sum(sizes), 0)
    assert run() == (sizes[5], 5)
    # A new segment: the one before it is rolled now.
    new = b"".join(batch(at, producer_id=9) for at in range(60, 63))
    paths[0].with_name(f"{60:020d}.log").write_bytes(new)
    assert run() == (sizes[5] + len(new), 5)
    # One that is replaced by another of the same size and time.
    status = paths[2].stat()
    aside = logs / "aside"  # while the old one is there, so that the inode is another one
    aside.write_bytes(SEGMENTS[20])
    aside.replace(paths[2])
    os.utime(paths[2], ns=(status.st_atime_ns, status.st_mtime_ns))
    assert paths[2].stat().st_ino != status.st_ino
    assert run() == (sizes[2] + len(new), 5)


@pytest.mark.s3
@pytest.mark.night
def test_in_an_object_store(
    spark: SparkSession, command: Command, object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Source and effects: objects never change, so that nothing at all is read. A run with a limit does not use the effects."""
    for name in (name for name in os.environ if name.startswith("AWS_")):
        monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])  # the workers' own
    bucket = object_store.bucket()
    source = object_store.upload(FIXTURES / "kafka27-mixed" / "logs", f"s3://{bucket}/a/logs")
    effects = f"s3://{bucket}/effects/of a"
    before = object_store.files(source)
    options = ("--cache", effects, "--set", "s3_path_style=true", *ALL, *OPTIONS)
    runs = [command("rebuild", source, "--out", tmp_path / str(name), *options) for name in range(2)]
    assert not runs[0].exit_code, runs[0].stderr
    assert not runs[1].exit_code, runs[1].stderr
    limited = command("rebuild", source, "--out", tmp_path / "2", "--set", "max_read_bytes=200000", *options)
    assert limited.exit_code == 3
    assert {each["code"] for each in limited.document["findings"]} == {"boundary-not-reached"}
    assert reported(runs[0])[1] == 0
    assert reported(runs[1])[0] == 0
    assert runs[1].document["cache"]["size_bytes"] > 200_000
    assert all_bytes(tmp_path / "0") == all_bytes(tmp_path / "1") != {}
    assert object_store.files(source) == before
    assert all(name.startswith("effects-") for name in object_store.files(effects))
    # The same bytes put once more are another object, as far as anybody can tell by its time.
    object_store.put(f"{source}/mixed-0/{2181:020d}.log", before[f"mixed-0/{2181:020d}.log"][:-1] + b"!")
    changed = command("rebuild", source, "--out", tmp_path / "3", *options)
    assert 0 < reported(changed)[0] <= 2 * len(before[f"mixed-0/{2181:020d}.log"])


def test_where_effects_may_not_go(spark: SparkSession, command: Command, logs: Path, tmp_path: Path) -> None:
    before = tree(logs)
    refused = command("verify", logs, "--cache", logs / "t-0" / "effects", *OPTIONS)
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert "--cache leads into" in refused.stderr
    wrong = command("verify", logs, "--cache", tmp_path / "effects", "--engine", "auto")
    assert wrong.exit_code == 2
    assert "--cache needs --engine spark" in wrong.stderr
    assert command("rebuild", logs, "--cache", "", *OPTIONS).exit_code == 2
    assert tree(logs) == before
    assert not (tmp_path / "effects").exists()


def test_a_notebook_has_the_verbs_of_the_command(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    """With the answers of this process: the same documents, tables and next commands."""
    from snaprebuild.spark import notebook

    options: Any = {"out": tmp_path / "out", "boundaries": "all"}
    planned = notebook.plan(spark, logs, **options)
    assert not (tmp_path / "out").exists()
    scanned = notebook.scan(spark, [logs])
    here = library.scan([logs])
    assert without(json.loads(scanned.to_json()), OF_ONE_RUN) == without(json.loads(here.to_json()), OF_ONE_RUN)
    assert scanned.next_command == here.next_command
    assert (planned.next_command or "").endswith(" --engine spark")
    receipt = tmp_path / "receipt.jsonl"
    result = notebook.rebuild(
        spark, logs, results=tmp_path / "rows.jsonl", cache=str(tmp_path / "effects"), receipt=receipt, **options
    )
    assert result.partitions[0].cache_hits.segments == 0
    written = sum(len(partition.boundaries) for partition in planned)
    assert (result.document.totals.written, result.document.receipt) == (written, str(receipt))
    assert repr(result).startswith(f"<rebuild, exit code 0: {written} snapshots written in 1 of 1 partition.")
    rows = [json.loads(row) for row in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert rows == [{name: row[name] for name in rows[0]} for row in result.rows()]
    frame = result.toDF(spark)
    assert [row.asDict() for row in frame.collect()] == result.rows()
    again = notebook.rebuild(spark, logs, cache=str(tmp_path / "effects"), dry_run=True, **options)
    assert again.partitions[0].cache_hits.segments == 5
    verified = notebook.verify(spark, logs)
    wanted = library.verify(logs)
    assert verified.rows() == wanted.rows()
    assert verified.answer == wanted.answer
    for each in (scanned, planned, verified):
        of_spark = each.toDF(spark)
        assert of_spark.columns == list(each.columns)
        assert [row.asDict() for row in of_spark.collect()] == each.rows()
    assert scanned.rows() != [] != planned.rows()
    assert verified.rows() == [], "there is no snapshot to compare"
    nothing = library.rebuild(logs, topics="none", dry_run=True).toDF(spark)
    assert (nothing.count(), nothing.columns) == (0, frame.columns)


def test_a_notebook_rebuilds_with_a_receipt_by_default(
    spark: SparkSession, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the place of the command, whose `undo` takes the files back."""
    from snaprebuild.spark import notebook

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    before = tree(logs)
    result = notebook.rebuild(spark, logs, as_of_ms=0)
    assert result.document.totals.written > 0
    (receipt,) = (tmp_path / "state" / "snaprebuild").iterdir()
    assert result.document.receipt == str(receipt)
    assert snaprebuild("undo", receipt).exit_code == 0
    assert tree(logs).keys() - {".lock"} == before.keys() - {".lock"}


def test_a_notebook_carries_out_a_plan(spark: SparkSession, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of this session, and one from a file; what the plan carries is not given again. The tasks share a limit of bytes a second."""
    from snaprebuild.spark import notebook
    from snaprebuild.spark.task_services import TaskServices

    rates = []
    wrap = TaskServices.wrap

    def noted(services: TaskServices, function: Any, tasks: int) -> Any:
        rates.append(services.io_limits.bytes_per_second)
        return wrap(services, function, tasks)

    monkeypatch.setattr(TaskServices, "wrap", noted)
    planned = notebook.plan(spark, logs, out=tmp_path / "out", boundaries="all")
    planned.save(tmp_path / "plan")
    written = sum(len(partition.boundaries) for partition in planned)
    rates.clear()
    for plan, dry_run, action in ((planned, True, "would_write"), (tmp_path / "plan", False, "written"), (planned, False, "equal")):
        result = notebook.rebuild(spark, plan=plan, dry_run=dry_run, max_read_rate=1 << 30)
        assert getattr(result.document.totals, action) == written
    assert rates
    assert set(rates) == {1 << 30}
    for more in ({"source": logs}, {"out": tmp_path}, {"check_crc": False}, {"as_of_ms": 1}):
        with pytest.raises(UsageError, match=f"give {next(iter(more))} to plan"):
            notebook.rebuild(spark, plan=planned, **more)
    with pytest.raises(UsageError, match="max_read_rate: expected 1 or more, found 0"):
        notebook.rebuild(spark, logs, max_read_rate=0)
