"""The engine through a server of Spark Connect: the documents and files of a run in this process, also for damaged input."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from engine_results import all_bytes
from log_dirs import tree
from manifests import FIXTURES
from same_result import OF_ONE_RUN, RUN_AND_FILES, without

import snaprebuild as library
from snaprebuild.library.verb_result import Result
from snaprebuild.spark import notebook

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


@pytest.mark.usefixtures("by_executors", "small_partitions")
@pytest.mark.parametrize("name", ["kafka27-mixed", "kafka4-compacted", "damaged", "txn-state"])
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


def test_effects_are_kept(connected: SparkSession, tmp_path: Path) -> None:
    logs = FIXTURES / "kafka27-mixed"
    options: Any = {"boundaries": "all", "as_of_ms": NOW, "replay_from": "log-start", "cache": tmp_path / "effects"}
    first, again = (notebook.rebuild(connected, logs, out=tmp_path / name, **options) for name in ("first", "again"))
    assert all_bytes(tmp_path / "again") == all_bytes(tmp_path / "first") != {}
    assert sum(each.cache_hits.segments for each in first.partitions) == 0
    assert sum(each.cache_hits.segments for each in again.partitions) > 10
