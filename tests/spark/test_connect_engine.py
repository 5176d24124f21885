"""The engine through a server of Spark Connect: the documents and files of a run in this process, also for damaged input."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from log_dirs import all_bytes, tree
from manifests import AIVEN, FIXTURES
from same_result import OF_ONE_RUN, RUN_AND_FILES, without

import snaprebuild as library
from snaprebuild.library.verb_result import Result
from snaprebuild.spark import job, notebook

if TYPE_CHECKING:
    from connect_server import ConnectServer
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOW = 1_795_270_000_000
MORE = (*OF_ONE_RUN, *RUN_AND_FILES, "command", "rate_bytes_per_second", "estimated_seconds", "answer", "next")
"""Also what names the engine, or has a time of reading in words."""


@pytest.fixture
def connected(connect_server: ConnectServer) -> Iterator[SparkSession]:
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    session = RemoteSession.builder.remote(connect_server.url).create()
    yield session  # type: ignore[misc]
    session.stop()


def document(result: Result[Any, Any], *places: Path) -> Any:
    """The document without what differs from run to run, and with one name for each of the places."""
    text = result.to_json()
    for place in places:
        text = text.replace(str(place), "PLACE")
    return without(json.loads(text), MORE)


WHOLE, ROWS = ("kafka27-mixed", "txn-state"), ("kafka4-compacted", "damaged")
"""Log directories whose small partitions are done in each way. At night both ways do all; ``test_engine.py`` has both without Connect."""


@pytest.mark.usefixtures("by_executors", "small_partitions")
@pytest.mark.parametrize(
    ("name", "small_partitions"),
    [
        *((name, "whole") for name in WHOLE),
        *((name, "rows") for name in ROWS),
        *(pytest.param(name, "rows", marks=pytest.mark.night) for name in WHOLE),
        *(pytest.param(name, "whole", marks=pytest.mark.night) for name in ROWS),
    ],
    indirect=["small_partitions"],
)
def test_the_results_of_this_process(connected: SparkSession, tmp_path: Path, name: str) -> None:
    logs = FIXTURES / name
    before = tree(logs)
    options: Any = {"boundaries": "all", "as_of_ms": NOW, "replay_from": "log-start"}
    here = library.rebuild(logs, out=tmp_path / "here", receipt=tmp_path / "here.jsonl", **options)
    there = notebook.rebuild(connected, logs, out=tmp_path / "there", receipt=tmp_path / "there.jsonl", **options)
    assert all_bytes(tmp_path / "there") == all_bytes(tmp_path / "here") != {}
    assert document(there, tmp_path / "there", tmp_path / "there.jsonl") == document(
        here, tmp_path / "here", tmp_path / "here.jsonl"
    )
    assert there.exit_code == here.exit_code
    assert document(notebook.scan(connected, logs)) == document(library.scan(logs))
    assert document(notebook.verify(connected, logs, as_of_ms=NOW)) == document(library.verify(logs, as_of_ms=NOW))
    assert [str(each) for each in notebook.plan(connected, logs, as_of_ms=NOW)] == [
        str(each) for each in library.plan(logs, as_of_ms=NOW)
    ]
    assert tree(logs) == before


def no_memory(batches: Iterable[Any], **options: object) -> Iterator[Any]:
    """In place of what reads: the job fails, however often it is repeated."""
    del batches, options
    raise RuntimeError("no memory is left")
    yield


no_memory.__module__ = "__main__"  # so that the function itself is sent: the server has no tests


@pytest.mark.usefixtures("small_partitions")
def test_a_job_that_fails(connected: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One finding has the reason and the others refer to its partition. Nothing is written, and the session goes on."""
    logs = FIXTURES / "kafka27-mixed" / "logs"
    options: Any = {"boundaries": "all", "as_of_ms": NOW}
    with monkeypatch.context() as patched:
        patched.setattr(job, "read_segments", no_memory)
        patched.setattr(job, "run_whole", no_memory)
        result = notebook.rebuild(connected, logs, out=tmp_path / "out", receipt=tmp_path / "receipt.jsonl", **options)
    assert result.exit_code == 5
    failed = [each for each in result.findings if each.code == "storage-failed"]
    assert [each.message for each in failed] == [
        "the Spark job failed: RuntimeError: no memory is left",
        *[f"the Spark job failed: the reason is with {failed[0].path}"] * 3,
    ]
    assert not list((tmp_path / "out").rglob("*.snapshot"))
    again = notebook.rebuild(connected, logs, out=tmp_path / "out", receipt=tmp_path / "again.jsonl", **options)
    assert (again.exit_code, again.document.totals.written) == (0, 23)


@pytest.mark.usefixtures("as_large")
@pytest.mark.parametrize("tasks", [1, 3])
def test_the_number_of_tasks(connected: SparkSession, tmp_path: Path, tasks: int) -> None:
    """The server reports how many tasks read, and each byte is counted once."""
    seen: list[tuple[str, int]] = []
    result = notebook.verify(
        connected,
        FIXTURES / "kafka27-mixed" / "logs",
        as_of_ms=NOW,
        tasks=tasks,
        progress=lambda what, size: seen.append((what, size)),
    )
    assert seen[-1][0] == ("1 of 1 task read" if tasks == 1 else "3 of 3 tasks read")
    assert sum(size for _, size in seen) == sum(each.read_bytes for each in result.partitions) > 0
    assert document(result) == document(library.verify(FIXTURES / "kafka27-mixed" / "logs", as_of_ms=NOW))


AUDITS: dict[str, tuple[list[Path], dict[str, Any]]] = {
    "all variants of the plugin": (sorted(AIVEN.glob("*/store")), {"private_key": [AIVEN / "keys" / "key1.private.pem"]}),
    "LocalTieredStorage": ([FIXTURES / "tiered-local" / "remote"], {}),
    "LocalTieredStorage, reachable": (
        [FIXTURES / "tiered-local" / "remote"],
        {"level": "reachable", "local_log_start": "mixed-0=1500"},
    ),
    "LocalTieredStorage, live copies known": (
        [FIXTURES / "tiered-local" / "remote"],
        {"metadata_log": FIXTURES / "tiered-local" / "logs"},
    ),
}


@pytest.mark.parametrize("name", AUDITS)
def test_the_audit_of_this_process(connected: SparkSession, tmp_path: Path, name: str) -> None:
    """Equal documents: verdicts, reasons, counts, estimate and findings."""
    stores, arguments = AUDITS[name]
    for each in stores:
        shutil.copytree(each, tmp_path / "store", dirs_exist_ok=True)
    before = tree(tmp_path)
    options: Any = {**arguments, "as_of_ms": NOW}
    here = library.audit(tmp_path / "store", **options)
    there = notebook.audit(connected, tmp_path / "store", **options)
    assert document(there) == document(here)
    assert (there.exit_code, there.findings, there.answer) == (here.exit_code, here.findings, here.answer)
    assert len(there.rows()) >= 12
    assert [row.asDict() for row in there.toDF(connected).collect()] == here.rows()
    assert there.document.run.command == here.document.run.command.replace("tier audit", "tier audit --engine spark")
    assert tree(tmp_path) == before


def test_effects_are_kept(connected: SparkSession, tmp_path: Path) -> None:
    logs = FIXTURES / "kafka27-mixed"
    options: Any = {"boundaries": "all", "as_of_ms": NOW, "replay_from": "log-start", "cache": tmp_path / "effects"}
    first, again = (notebook.rebuild(connected, logs, out=tmp_path / name, **options) for name in ("first", "again"))
    assert all_bytes(tmp_path / "again") == all_bytes(tmp_path / "first") != {}
    assert sum(each.cache_hits.segments for each in first.partitions) == 0
    assert sum(each.cache_hits.segments for each in again.partitions) > 10
