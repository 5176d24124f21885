"""What every test may use: the Hypothesis profiles, and the bundled log directories by the name of an argument.

``HYPOTHESIS_PROFILE`` chooses the profile: ``default`` is quick, ``CI`` (also chosen by ``CI=true``) looks at more examples and always at
the same ones, ``thorough`` is for a night.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from header_engines import HEADER_ENGINES
from hypothesis import HealthCheck, settings
from manifests import REPOSITORY, partition_fixtures
from work_groups import GroupScheduling, place_of

if TYPE_CHECKING:
    from object_store import ObjectStore

SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile("default", max_examples=100, deadline=None, suppress_health_check=SLOW_IS_FINE)
settings.register_profile(
    "CI", max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW_IS_FINE
)
settings.register_profile("thorough", max_examples=5000, deadline=None, suppress_health_check=SLOW_IS_FINE)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("CI" if os.environ.get("CI") == "true" else "default"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for what a shell starts in the background: commands would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout."""
    return REPOSITORY


@pytest.fixture(scope="session", autouse=True)
def state_home() -> Generator[Path, None, None]:
    """Receipts of runs in place go here, and not to the home of whoever tests; some tests run the command as another user."""
    with tempfile.TemporaryDirectory(prefix="state-") as directory:
        Path(directory).chmod(0o1777)
        before = os.environ.get("XDG_STATE_HOME")
        os.environ["XDG_STATE_HOME"] = directory
        yield Path(directory)
        if before is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = before


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Generator[ObjectStore, None, None]:
    """A real object store, one for each process that runs tests. With CI=true its absence is a failure, as of every part."""
    from object_store import missing, running  # the SDK takes its time, and few tests need it

    why = missing()
    if why is not None:
        pytest.skip(f"NOT RUN: a real object store (marker s3): {why}")
    with running(tmp_path_factory.mktemp("s3") / "server") as store:
        yield store


@pytest.fixture(params=HEADER_ENGINES.values(), ids=HEADER_ENGINES)
def read_headers(request: pytest.FixtureRequest) -> object:
    """Each of the two readers of batch headers."""
    return request.param


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with an argument ``partition_fixture`` runs once for each partition of each manifest."""
    if "partition_fixture" in metafunc.fixturenames:
        metafunc.parametrize("partition_fixture", partition_fixtures(), ids=str)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=place_of)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Without it a process of pytest-xdist grew to gigabytes, whose tests run the command by a call."""
    assert gc.isenabled(), f"{item.nodeid} has left the collector of cycles off"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For ``--dist loadgroup``: our groups (work_groups.py)."""
    if config.getvalue("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


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
