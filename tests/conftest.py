"""Fixtures for every test: the bundled log directories by the name of an argument, an object store, a place for receipts."""

from __future__ import annotations

import gc
import os
import re
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from header_engines import HEADER_ENGINES
from manifests import partition_fixtures
from run_plan import RunPlan

if TYPE_CHECKING:
    from faulty_store import FaultyStore
    from object_store import ObjectStore

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for what a shell starts in the background: commands would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as below nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.umask(0o022)  # not that of the shell: tests look at the modes of files


gc.set_threshold(10_000)  # syntax trees, examples and documents are many objects without cycles
SETTINGS = re.compile(
    r"(?i:(http|https|ftp|all|no)_proxy)|(AWS|KAFKA|SPARK|PYSPARK|SNAPREBUILD)_.*|COLUMNS|LINES|NO_COLOR|PYTHONWARNINGS"
)
"""Variables that change what the command does."""
for _name in [each for each in os.environ if SETTINGS.fullmatch(each)]:
    del os.environ[_name]
os.environ |= {"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent"}


@pytest.fixture(scope="session", autouse=True)
def state_home() -> Generator[Path, None, None]:
    """Receipts of runs in place go here, and not to the home of anyone who tests; some tests run the command as another user."""
    with tempfile.TemporaryDirectory(prefix="state-") as directory:
        Path(directory).chmod(0o1777)
        before = os.environ.get("XDG_STATE_HOME")
        os.environ["XDG_STATE_HOME"] = directory
        yield Path(directory)
        if before is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = before


@pytest.fixture
def own_state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Receipts of this test alone go here: a run finds none of another test."""
    directory = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(directory))
    return directory


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Generator[ObjectStore, None, None]:
    """A real object store, one for each process that runs tests. With CI=true its absence is a failure, as of every part."""
    from object_store import missing, running  # the SDK takes its time, and few tests need it

    why = missing()
    if why is not None:
        pytest.skip(f"NOT RUN: a real object store (marker s3): {why}")
    with running(tmp_path_factory.mktemp("s3") / "server") as store:
        yield store


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release, built once for each process that runs tests. It takes a minute."""
    from releases import build_release, missing

    why = missing()
    if why is not None:
        pytest.skip(f"NOT RUN: a release (marker release): {why}")
    return build_release(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="session")
def one_file(release: Path) -> Path:
    """The program as one file, of this machine's architecture."""
    (found,) = release.glob(f"snaprebuild-*-linux-{os.uname().machine}")
    return found


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The launcher of the one file with a small tree, whose command prints how it was started."""
    from launcher_runs import small_release

    return small_release(tmp_path_factory.mktemp("launcher"), "one")


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Generator[FaultyStore, None, None]:
    """An object store that fails on demand, and whose clients do not wait before they try again."""
    from faulty_store import faulty_store  # as above

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr("snaprebuild.storage.s3.requests.PAUSE_SECONDS", 0.001)
    monkeypatch.setattr("snaprebuild.storage.s3.store._probed", set())
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
    with faulty_store() as store:
        yield store


@pytest.fixture(params=HEADER_ENGINES.values(), ids=HEADER_ENGINES)
def read_headers(request: pytest.FixtureRequest) -> object:
    """Each of the two readers of batch headers."""
    return request.param


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with an argument ``partition_fixture`` runs once for each partition of each manifest."""
    if "partition_fixture" in metafunc.fixturenames:
        metafunc.parametrize("partition_fixture", partition_fixtures(), ids=str)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All modules and tests stay until the end: the collector of cycles does not look at them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(RunPlan(config), "run-plan")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Without it a process of pytest-xdist grew to gigabytes, whose tests run the command by a call."""
    assert gc.isenabled(), f"{item.nodeid} has left the collector of cycles off"


# With CI=true a part that did not run is a failure, but for tests of which one of two runs wherever they are.
MAY_SKIP_IN_CI = re.compile("only root|root may (give files to every user|read everything|list everything)|not a git checkout")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not MAY_SKIP_IN_CI.search(reason):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} did not run, which is a failure with CI=true: {reason}"
    return report
