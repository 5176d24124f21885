"""Real Kafka: where Java or Maven is missing, these tests say so, and fail where ``CI=true``."""

import os
from collections import Counter
from collections.abc import Iterator

import pytest
from kafka_classpath import missing_tools
from oracle import Oracle

PARTS = {"kafka": "Kafka's own classes as oracle", "broker": "real brokers on loopback"}
NOT_RUN = pytest.StashKey[Counter[str]]()


def pytest_runtest_setup(item: pytest.Item) -> None:
    parts = [part for part in PARTS if item.get_closest_marker(part) is not None]
    if not parts or not (missing := missing_tools()):
        return
    reason = f"NOT RUN: {PARTS[parts[-1]]} (marker {parts[-1]}): not on PATH: {', '.join(missing)}"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; CI=true, so this is a failure", pytrace=False)
    item.config.stash.setdefault(NOT_RUN, Counter())[reason] += 1
    pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    not_run = terminalreporter.config.stash.get(NOT_RUN, None)
    if not_run:
        terminalreporter.section("real Kafka")
        for reason, tests in not_run.items():
            terminalreporter.write_line(f"{reason} - {tests} tests")


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    with Oracle() as running:
        yield running
