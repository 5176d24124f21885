"""``inspect records --out`` on Spark: the files and the manifest of an export by this process, whatever happens to its tasks."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from command import Run, snaprebuild
from driver_process import LOCAL, LOCAL_CLUSTER, reported, started_driver, workers_of
from log_dirs import files_below
from manifests import FIXTURES
from waiting import wait_until

from snaprebuild.consume.record_export import exported_columns, make_export_directory
from snaprebuild.consume.record_query import DamageMode, RecordIsolation, RecordQuery
from snaprebuild.consume.record_source import open_record_source
from snaprebuild.snapshots.run import Run as CommandRun
from snaprebuild.spark import job, limited_reads, record_export
from snaprebuild.spark.job import SparkEngine

if TYPE_CHECKING:
    from connect_server import ConnectServer
    from faulty_store import FaultyStore
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.full]

Command = Callable[..., Run]

MIXED = FIXTURES / "kafka4-mixed"
TIERED = FIXTURES / "tiered-local"
SPARK = ("--engine", "spark")


def manifest_of(out: Path) -> Any:
    """The manifest, without the path of the export."""
    return json.loads((out / "manifest.json").read_text().replace(str(out), "OUT"))


def rows_of(out: Path) -> dict[str, Any]:
    """The rows of each file, by its path."""
    return {str(path.relative_to(out)): pq.read_table(path).to_pylist() for path in out.rglob("*.parquet")}


def check_names(out: Path) -> None:
    """No file is there but the manifest and those that it names; only their owner may read them."""
    named = {each["file"]["path"] for each in manifest_of(out)["partitions"] if each["file"] is not None}
    assert {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()} == {"manifest.json", *named}
    for path in (out, *out.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def exported(out: Path, *arguments: object) -> Run:
    return snaprebuild("inspect records", *arguments, "--out", out, "--output", "json")


SOURCES = {
    "logs": (MIXED,),
    "compacted": (FIXTURES / "kafka4-compacted", "--isolation", "all"),
    "internal": (FIXTURES / "txn-state4", "--internal-topics", "--isolation", "read_uncommitted"),
    "a tier": (TIERED / "remote",),
    "both": (TIERED / "remote", TIERED / "logs"),
    "a range": (MIXED, "--from", 100, "--until", 1000),
    "damaged": (FIXTURES / "damaged",),
}


@pytest.mark.parametrize("name", SOURCES)
def test_the_export_of_this_process(spark: SparkSession, tmp_path: Path, name: str) -> None:
    arguments = SOURCES[name]
    here, there = tmp_path / "here", tmp_path / "there"
    own = exported(here, *arguments)
    by_spark = exported(there, *arguments, *SPARK, "--set", "spark_tasks=3")
    assert (by_spark.exit_code, by_spark.stderr) == (own.exit_code, own.stderr)
    assert manifest_of(there) == manifest_of(here)
    assert json.loads(by_spark.stdout) == json.loads((there / "manifest.json").read_text())
    assert rows_of(there) == rows_of(here) != {}
    check_names(there)


def test_waves_of_partitions(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "WAVE_SEGMENTS_MAX", 1)
    exported(tmp_path / "here", MIXED)
    exported(tmp_path / "there", MIXED, *SPARK)
    assert manifest_of(tmp_path / "there") == manifest_of(tmp_path / "here")
    assert rows_of(tmp_path / "there") == rows_of(tmp_path / "here")


def test_a_server_of_connect(connect_server: ConnectServer, tmp_path: Path) -> None:
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    exported(tmp_path / "here", MIXED)
    there = tmp_path / "there"
    isolation = RecordIsolation.READ_COMMITTED
    query = RecordQuery(
        isolation=isolation, mode=DamageMode.DROPMALFORMED, columns=exported_columns(isolation), fails_on_data_loss=False
    )
    source = open_record_source([str(MIXED)], query, CommandRun())
    make_export_directory(str(there))
    session: Any = RemoteSession.builder.remote(connect_server.url).create()
    try:
        partitions = record_export.export_on_spark(SparkEngine(session), source, query, [], str(there))
    finally:
        session.stop()
    assert rows_of(there) == rows_of(tmp_path / "here")
    counted = {each.range.topic_partition: each.records for each in partitions}
    assert counted == {each["topic_partition"]: each["records"] for each in manifest_of(tmp_path / "here")["partitions"]}


def test_objects(spark: SparkSession, faulty: FaultyStore, tmp_path: Path) -> None:
    logs = MIXED / "logs"
    faulty.objects = {f"b/logs/{name}": (logs / name).read_bytes() for name in files_below(logs)}
    line = ("s3://b/logs", "--s3-endpoint-url", faulty.endpoint, "--set", "s3_path_style=true")
    exported(tmp_path / "here", *line)
    run = exported(tmp_path / "there", *line, *SPARK)
    assert run.exit_code == 1
    assert manifest_of(tmp_path / "there") == manifest_of(tmp_path / "here")
    assert rows_of(tmp_path / "there") == rows_of(tmp_path / "here") != {}


@pytest.mark.parametrize("kind", ["max_requests", "max_read_bytes"])
def test_limits(spark: SparkSession, faulty: FaultyStore, tmp_path: Path, kind: str) -> None:
    """The limit that one process needs is enough. With less, tasks use nearly all of it, and never more."""
    logs = MIXED / "logs"
    faulty.objects = {f"b/logs/{name}": (logs / name).read_bytes() for name in files_below(logs)}
    line = ("s3://b/logs", "--s3-endpoint-url", faulty.endpoint, "--set", "s3_path_style=true")

    def used() -> int:
        if kind == "max_requests":
            return len(faulty.seen)
        return sum(bytes_of(*request, faulty) for request in faulty.seen)

    exported(tmp_path / "here", *line)
    needed = used()
    faulty.seen.clear()
    exported(tmp_path / "enough", *line, *SPARK, "--set", f"{kind}={needed}")
    assert used() == needed
    assert manifest_of(tmp_path / "enough") == manifest_of(tmp_path / "here")
    assert rows_of(tmp_path / "enough") == rows_of(tmp_path / "here")
    for limit in (needed - 1, needed * 2 // 3):
        faulty.seen.clear()
        out = tmp_path / str(limit)
        run = exported(out, *line, *SPARK, "--set", f"{kind}={limit}")
        assert (run.exit_code, f"limit of {kind} {limit} is used up" in run.stderr) == (3, True)
        assert 0.9 * limit <= used() <= limit
        assert rows_of(out).items() < rows_of(tmp_path / "here").items()


def bytes_of(method: str, path: str, headers: dict[str, str], store: FaultyStore) -> int:
    """Bytes of an object that a request asks for."""
    if method != "GET" or "?" in path:
        return 0
    size = len(store.objects.get(unquote(path).lstrip("/"), b""))
    if "range" not in headers:
        return size
    first, last = headers["range"].removeprefix("bytes=").split("-")
    return min(int(last) + 1, size) - int(first)


def test_a_session_of_connect_keeps_no_limits(
    spark: SparkSession, faulty: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client may run a job twice."""
    monkeypatch.setattr(limited_reads, "is_remote", lambda _: True)
    logs = MIXED / "logs"
    faulty.objects = {f"b/logs/{name}": (logs / name).read_bytes() for name in files_below(logs)}
    line = ("s3://b/logs", "--s3-endpoint-url", faulty.endpoint, "--set", "s3_path_style=true")
    run = exported(tmp_path / "out", *line, *SPARK, "--set", "max_requests=1000")
    assert (run.exit_code, "cannot be kept with Spark Connect" in run.stderr) == (2, True)
    assert not (tmp_path / "out").exists()


def test_progress_is_that_of_the_bytes_of_segments(spark: SparkSession, tmp_path: Path) -> None:
    isolation = RecordIsolation.READ_COMMITTED
    query = RecordQuery(
        isolation=isolation, mode=DamageMode.DROPMALFORMED, columns=exported_columns(isolation), fails_on_data_loss=False
    )
    source = open_record_source([str(MIXED)], query, CommandRun())
    make_export_directory(str(tmp_path / "out"))
    shown: list[int] = []
    engine = SparkEngine(spark, progress=lambda _, size_bytes: shown.append(size_bytes))
    exported = record_export.export_on_spark(engine, source, query, [], str(tmp_path / "out"))
    partitions = {each.range.topic_partition for each in exported}
    logs = [path for name in partitions for path in (MIXED / "logs" / name).glob("*.log")]
    assert sum(shown) == sum(path.stat().st_size for path in logs) > 0


@pytest.mark.parametrize("is_there", [False, True])
def test_a_directory_that_the_driver_does_not_see(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_there: bool
) -> None:
    """Files that executors write on disks of their own are no export; without the directory they write nothing."""
    elsewhere = tmp_path / "elsewhere"
    if is_there:
        elsewhere.mkdir()
    original = record_export._exported

    def other(engine: SparkEngine, logs: Any, query: RecordQuery, directory: str) -> Any:
        monkeypatch.setattr(record_export, "publish", lambda each, _: published(each, directory))
        return original(engine, logs, query, str(elsewhere))

    published = record_export.publish
    monkeypatch.setattr(record_export, "_exported", other)
    out = tmp_path / "export"
    run = exported(out, MIXED, *SPARK)
    assert run.exit_code == 5
    assert "--out must be a directory that all machines share" in run.stderr
    assert [each["code"] for each in manifest_of(out)["findings"]].count("records-export-unfinished") == 1
    assert rows_of(out) == {}
    assert elsewhere.exists() == is_there


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "need --out"),
        (("--out", "{}/export", "--limit", "5"), "leave out one of the two"),
    ],
)
def test_mistakes(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    run = snaprebuild("inspect records", MIXED, *SPARK, *(each.format(tmp_path) for each in options))
    assert (run.exit_code, run.stdout) == (2, "")
    assert message in run.stderr
    assert not list(tmp_path.iterdir())


# --- what happens to tasks, executors and the driver -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export that one process writes."""
    out = tmp_path_factory.mktemp("own") / "out"
    assert exported(out, MIXED).exit_code == 1
    return out


@pytest.mark.parametrize(
    "happens", [pytest.param("fails", marks=pytest.mark.night), "dies", pytest.param("executor", marks=pytest.mark.night)]
)
def test_a_task_that_is_repeated_after_it_wrote(happens: str, expected: Path, tmp_path: Path) -> None:
    """The files of the first attempt have no result: they are removed."""
    out, signs = tmp_path / "out", tmp_path / "signs"
    signs.mkdir()
    master = LOCAL_CLUSTER if happens == "executor" else LOCAL
    document = reported(started_driver("export_driver.py", (happens, MIXED, out, signs), tmp_path, master=master))
    assert (signs / happens).exists(), "it happened"
    assert document["exit_code"] == 1, document
    assert manifest_of(out) == manifest_of(expected)
    assert rows_of(out) == rows_of(expected)
    check_names(out)


def test_a_driver_that_is_killed_while_tasks_have_written(expected: Path, tmp_path: Path) -> None:
    """No file has the name of an export, and the manifest says that it is not finished."""
    out, signs = tmp_path / "out", tmp_path / "signs"
    signs.mkdir()
    process = started_driver("export_driver.py", ("waits", MIXED, out, signs), tmp_path)
    wait_until(lambda: process.poll() is not None or any(signs.glob("waits-*")), "no task has written")
    assert process.poll() is None, process.communicate()[1][-3000:]
    process.kill()
    process.communicate()
    wait_until(lambda: not workers_of(process.pid), "the tasks go on")
    assert rows_of(out) == {}
    assert [path for path in out.rglob(".records-*") if path.is_file()], "a task had written"
    manifest = manifest_of(out)
    assert (manifest["exit_code"], manifest["partitions"]) == (1, [])
    assert "records-export-unfinished" in [each["code"] for each in manifest["findings"]]
    assert set(manifest["not_read"]) == {each["topic_partition"] for each in manifest_of(expected)["partitions"]}
    again = snaprebuild("inspect records", MIXED, "--out", out)
    assert (again.exit_code, "already exists" in again.stderr) == (3, True)
    shutil.rmtree(out)
    assert exported(out, MIXED).exit_code == 1
