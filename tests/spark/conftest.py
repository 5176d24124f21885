"""Spark: one session for all tests (run_plan.py: in one process)."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import Run, snaprebuild
from faulty_store import FaultyStore, faulty_store
from manifests import REPOSITORY
from quick_java import with_archive

if TYPE_CHECKING:
    from connect_server import ConnectServer
    from pyspark.sql import SparkSession

OF_PYSPARK_3 = (
    "ignore:distutils Version classes are deprecated:DeprecationWarning",
    "ignore:unclosed <socket.socket:ResourceWarning",  # to its gateway
    "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning",
)
TESTS = Path(__file__).resolve().parent
DATA_SOURCE_MODULES = [
    *("test_data_source_faults.py", "test_data_source_options.py", "test_data_sources.py", "test_pushed_filters.py"),
    *("test_record_source.py", "test_segment_parts.py", "test_spark_sql.py", "test_connect.py"),
]
"""They import Spark's Python data source API, which 3.5 lacks. There ``test_plain_environment.py`` tests the refusal."""


def _release_of_pyspark() -> tuple[int, int] | None:
    """The first two numbers of its version; None if it is not installed."""
    try:
        major, minor, *_ = importlib.metadata.version("pyspark").split(".")
    except importlib.metadata.PackageNotFoundError:
        return None
    return int(major), int(minor)


RELEASE = _release_of_pyspark()
collect_ignore = DATA_SOURCE_MODULES if RELEASE is not None and RELEASE < (4, 0) else []


@pytest.fixture(autouse=True)
def readers_that_take_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 4.0, which passes no filters, the tests of readers pass their own (``spark_filters``)."""
    if RELEASE == (4, 0):
        monkeypatch.setattr("snaprebuild.spark.data_sources.WITH_FILTERS", RELEASE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark") is not None:
            for each in OF_PYSPARK_3:
                item.add_marker(pytest.mark.filterwarnings(each))


def missing() -> str | None:
    """The reason for which Spark cannot run here; None if it can."""
    from snaprebuild.errors import UsageError

    try:
        from snaprebuild.spark.session import check_java

        check_java()
    except (ImportError, UsageError) as error:
        return str(error)
    return None


_java_options = functools.cache(with_archive)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("spark") is None:
        return
    if why := missing():
        pytest.skip(f"NOT RUN: jobs of Apache Spark (marker spark): {why}")  # with CI=true a failure (tests/conftest.py)
    # Here and not in a fixture: those of a module or a session start Java, too.
    os.environ["JDK_JAVA_OPTIONS"] = _java_options()


def pytest_runtest_teardown() -> None:
    os.environ.pop("JDK_JAVA_OPTIONS", None)


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of Spark's event logs."""
    return tmp_path_factory.mktemp("event-log")


@pytest.fixture(scope="session")
def spark(event_log: Path) -> Iterator[SparkSession]:
    """Two cores of this machine. Its Python workers import the code of this checkout, and the tests."""
    from snaprebuild.spark.session import opened_session

    settings = {"enabled": "true", "dir": event_log.as_uri(), "compress": "false", "rolling.enabled": "false"}
    conf = " ".join(f"--conf spark.eventLog.{name}={value}" for name, value in settings.items())
    places = (REPOSITORY, TESTS.parent / "support", TESTS, *filter(None, os.environ.get("PYTHONPATH", "").split(":")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"{conf} --driver-memory 1g pyspark-shell")
        patch.setenv("PYTHONPATH", ":".join(map(str, places)))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        with opened_session("local[2]") as session:
            yield session


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A real server of Spark Connect with two cores of this machine."""
    import connect_server

    why = connect_server.missing()
    if why is not None:
        pytest.skip(f"NOT RUN: clients of Spark Connect (marker spark): {why}")  # with CI=true a failure
    with connect_server.running(tmp_path_factory.mktemp("connect")) as server:
        yield server


@pytest.fixture
def by_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors make all calls of a ``parallel_map``, however quick they are."""
    from snaprebuild.spark import job

    monkeypatch.setattr(job, "HERE_SECONDS", -1)
    monkeypatch.setattr(job, "HERE_SECONDS_MAX", -1)


@pytest.fixture(params=["whole", pytest.param("rows", marks=pytest.mark.full)])
def small_partitions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How small partitions are done: each by one task, or as large ones, whose segments are read by several."""
    if request.param == "rows":
        never_whole(monkeypatch)
    return str(request.param)


@pytest.fixture
def as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small partitions are done as large ones."""
    never_whole(monkeypatch)


def never_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """No partition is done by one task."""
    from snaprebuild.spark import whole_partitions

    monkeypatch.setattr(whole_partitions, "SEGMENTS_MAX", 0)


@pytest.fixture
def faulty(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    """An object store that fails as a test wants it; the driver and the Python workers have keys to it."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-east-1")
        monkeypatch.setitem(spark.sparkContext.environment, name, "us-east-1")
    with faulty_store() as running:
        yield running


@pytest.fixture
def command() -> Callable[..., Run]:
    """Runs the command in this process, where ``--engine spark`` finds the session that runs."""
    return snaprebuild
