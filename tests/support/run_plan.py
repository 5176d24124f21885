"""Which tests a run takes, which process of pytest-xdist gets them and in which order, and the closing line of the run.

Tiers: a test with the mark ``night``, or ``full``, or that needs something which a plain machine may lack, belongs to that tier. All
others are quick. ``TEST_TIER`` names the tier of a run (budgets.py); without it every test that was asked for runs.

Order: each run records how long each test took. The next one begins with the groups that take longest, so that no process waits for
another one at the end. A group is what one process must run: a file that makes something once for all its tests, or all tests of what
is made once for a run (`SHARED`).
"""

import ast
import functools
import os
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from budgets import TIERS
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).resolve().parents[2]
NEEDS = {
    "kafka": "Kafka's classes",
    "broker": "real brokers",
    "s3": "an S3 server",
    "spark": "Spark",
    "browser": "Chromium",
    "shells": "zsh and fish",
    "strace": "strace",
    "root": "root",
    "prometheus": "Prometheus",
    "release": "the release tools",
}
"""Marks of what a plain machine may lack. Their tests belong to the full tier."""
DURATIONS = "snaprebuild/durations"
CHUNK_SECONDS = 20.0
"""A file without anything made once for all its tests is divided into groups of about this length."""
UNKNOWN_SECONDS = {"quick": 0.05, "full": 2.0, "night": 2.0}
"""Assumed seconds of a test that was never timed here, by its tier."""
UNKNOWN_SECONDS_OF = {"broker": 20.0, "kafka": 5.0, "spark": 5.0, "release": 5.0}
"""Assumed seconds of a test with such a mark that was never timed here, unless its tier has more."""
FILE_SECONDS = {
    "tests/broker/test_beside_broker.py": 65.0,
    "tests/broker/test_hard_records.py": 130.0,
    "tests/broker/test_live_runs.py": 85.0,
    "tests/broker/test_produced_records.py": 75.0,
    "tests/broker/test_records_of_a_cluster.py": 105.0,
    "tests/broker/test_release_4_4.py": 65.0,
    "tests/browser/test_documentation_site.py": 100.0,
    "tests/browser/test_page_layout.py": 40.0,
    "tests/cli/test_undo_killed.py": 40.0,
    "tests/deploy/test_ansible.py": 180.0,
    "tests/deploy/test_python_packages.py": 40.0,
    "tests/faults/test_s3_faults.py": 140.0,
    "tests/spark/test_cluster.py": 60.0,
    "tests/spark/test_dynamic_allocation.py": 20.0,
    "tests/spark/test_interrupts.py": 20.0,
    "tests/spark/test_killed_runs.py": 120.0,
    "tests/spark/test_plain_environment.py": 40.0,
    "tests/tier/test_copy_states.py": 55.0,
    "tests/tier/test_ledger_turns.py": 30.0,
    "tests/tier/test_limited_audit.py": 40.0,
    "tests/tier/test_repair_after_retention.py": 40.0,
    "tests/tier/test_tier_repair.py": 50.0,
}
"""About what a file takes in the full tier, where its tests and their marks suggest much less. In a new checkout nothing else shows it:
such a file would begin last, and nothing would run next to it."""
MADE_ONCE = re.compile(r'scope="(module|class|package|session)"')
SHARED = {
    "the Spark session": re.compile(r"\bspark: SparkSession\b|\bconnect_server: \"?ConnectServer\b"),
    "the release": re.compile(r"\b(release|one_file): Path\b"),
    "Kafka's classes": re.compile(r"\boracle: Oracle\b"),
}
"""Things that take long to make or to start, with the argument of the tests that use them. One process runs all of these tests."""


def tier_of_marks(marks: Sequence[str]) -> str:
    """The tier of a test by the names of its marks."""
    if "night" in marks:
        return "night"
    return "full" if "full" in marks or not NEEDS.keys().isdisjoint(marks) else "quick"


def selected(tier: str) -> tuple[str, ...]:
    """The tiers whose tests a run of ``tier`` takes."""
    return TIERS[: TIERS.index(tier) + 1]


@functools.cache
def _module_marks(path: Path) -> tuple[str, ...]:
    """The marks of a whole file (``pytestmark = ...``), read without importing it: what it imports may be absent."""
    text = path.read_bytes()
    if b"pytestmark" not in text:
        return ()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and any(isinstance(each, ast.Name) and each.id == "pytestmark" for each in node.targets):
            return tuple(re.findall(r"pytest\.mark\.(\w+)", ast.unparse(node.value)))
    return ()


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


@functools.cache
def _text(file: str) -> str:
    return (ROOT / file).read_text()


@functools.cache
def _shared_by(file: str) -> str | None:
    """The thing that the tests of a file share with those of other files."""
    if not (ROOT / file).exists():
        return None
    return next((name for name, argument in SHARED.items() if argument.search(_text(file))), None)


def _unknown_seconds(item: pytest.Item, tests_of_file: int) -> float:
    """About what a test takes that was never timed here."""
    if (of_file := FILE_SECONDS.get(_file_of(item.nodeid))) is not None:
        return of_file / tests_of_file
    marks = [mark.name for mark in item.iter_markers()]
    tier = tier_of_marks(marks)
    if tier == "quick":
        return UNKNOWN_SECONDS[tier]
    return max(UNKNOWN_SECONDS[tier], *(UNKNOWN_SECONDS_OF.get(name, 0.0) for name in marks))


class Plan:
    """Groups of tests and their order, from the durations of earlier runs.

    Args:
        durations: seconds of each test by its node id.
    """

    def __init__(self, durations: Mapping[str, float]) -> None:
        self._durations = durations
        self._chunks: dict[str, str] = {}
        spent: defaultdict[str, float] = defaultdict(float)
        for nodeid, seconds in durations.items():
            file = _file_of(nodeid)
            if not self._is_whole(file):
                self._chunks[nodeid] = f"{file}#{int(spent[file] // CHUNK_SECONDS)}"
                spent[file] += seconds

    @staticmethod
    @functools.cache
    def _is_whole(file: str) -> bool:
        return not (ROOT / file).exists() or MADE_ONCE.search(_text(file)) is not None

    def group_of(self, nodeid: str) -> str:
        """The tests with the same answer go to the same process."""
        file = _file_of(nodeid)
        return _shared_by(file) or self._chunks.get(nodeid, file)

    def ordered(self, items: Sequence[pytest.Item], shuffle: str | None = None) -> list[pytest.Item]:
        """The longest groups first, each as it was collected. With ``shuffle`` groups and tests are in an order that it decides."""
        spent: defaultdict[str, float] = defaultdict(float)
        tests = Counter(_file_of(item.nodeid) for item in items)
        for item in items:
            seconds = self._durations.get(item.nodeid)
            if seconds is None:
                seconds = _unknown_seconds(item, tests[_file_of(item.nodeid)])
            spent[self.group_of(item.nodeid)] += seconds
        if shuffle is not None:
            rng = random.Random(shuffle)
            place = {group: rng.random() for group in sorted(spent)}
            shuffled = rng.sample(items, len(items))
            return sorted(shuffled, key=lambda item: place[self.group_of(item.nodeid)])
        return sorted(items, key=lambda item: (-spent[self.group_of(item.nodeid)], self.group_of(item.nodeid)))


class GroupScheduling(LoadScopeScheduling):
    """Hands out whole groups, in the order of collection."""

    def __init__(self, config: pytest.Config, log: object, plan: Plan) -> None:
        super().__init__(config, log)
        self._plan = plan

    def _split_scope(self, nodeid: str) -> str:
        return self._plan.group_of(nodeid)


class RunPlan:
    """The plugin: one in each process of a run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tier = os.environ.get("TEST_TIER") or None
        self._worker = getattr(config, "workerinput", None)
        self._cache = getattr(config, "cache", None)  # None with `-p no:cacheprovider`
        self._known = self._recorded()
        self._plan = Plan(self._known)
        self._took: defaultdict[str, float] = defaultdict(float)
        self._outcomes: Counter[str] = Counter()
        self._why_skipped: Counter[str] = Counter()
        self._left: Counter[str] = Counter()
        self._began = time.monotonic()

    def _recorded(self) -> dict[str, float]:
        if self._worker is not None:
            return self._worker["durations"]
        return self._cache.get(DURATIONS, {}) if self._cache is not None else {}

    # Selection and order.

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """A file of another tier is not imported."""
        if self._tier is None or not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
            return None
        tier = tier_of_marks(_module_marks(collection_path))
        if tier in selected(self._tier):
            return None
        self._left[f"files of {tier}"] += 1
        return True

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leaves out the tests of other tiers and orders the rest."""
        kept = []
        left_out = []
        for item in items:
            tier = tier_of_marks([mark.name for mark in item.iter_markers()])
            if self._tier is None or tier in selected(self._tier):
                kept.append(item)
            else:
                left_out.append(item)
                self._left[f"tests of {tier}"] += 1
        self._config.hook.pytest_deselected(items=left_out)
        items[:] = self._plan.ordered(kept, os.environ.get("TEST_SHUFFLE")) if self._worker is not None else kept

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: object) -> GroupScheduling | None:
        """For ``--dist loadgroup``: our groups."""
        if config.getvalue("dist") != "loadgroup":
            return None
        config.option.loadscopereorder = False
        return GroupScheduling(config, log, self._plan)

    # What workers and the process that leads them say to each other.

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        """All processes plan by the same durations."""
        node.workerinput["durations"] = dict(self._known)  # type: ignore[attr-defined]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Each worker leaves out the same tests."""
        self._left |= Counter(getattr(node, "workeroutput", {}).get("left", {}))

    def pytest_sessionfinish(self) -> None:
        """Keeps the durations for the next run."""
        if self._worker is not None:
            self._config.workeroutput["left"] = dict(self._left)  # type: ignore[attr-defined]
        elif self._took and self._cache is not None:
            recorded = self._known | {nodeid: round(seconds, 3) for nodeid, seconds in self._took.items()}
            self._cache.set(DURATIONS, recorded)

    # The closing line.

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """In the process that leads: of every worker."""
        self._took[report.nodeid] += report.duration
        if report.when == "call" or report.outcome != "passed":
            self._outcomes["failed" if report.failed else report.outcome] += 1
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self._why_skipped[reason.removeprefix("Skipped: ").removeprefix("NOT RUN: ")] += 1

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Prints the tests that ran, those that did not, and how to run them."""
        if self._worker is None and self._tier is not None and self._outcomes:
            line = closing_line(self._tier, self._outcomes, self._why_skipped, self._left, time.monotonic() - self._began) + "\n"
            if path := os.environ.get("TEST_CLOSING_LINE"):  # scripts/test prints it last
                Path(path).write_text(line)
            else:
                sys.stdout.write(line)


def closing_line(
    tier: str, outcomes: Mapping[str, int], why_skipped: Mapping[str, int], left: Mapping[str, int], seconds: float
) -> str:
    """One line: the tests that ran, those that were skipped here and why, and the tiers that were left out."""
    ran = ", ".join(f"{outcomes[name]} {name}" for name in ("passed", "failed", "skipped") if outcomes.get(name))
    parts = [f"{tier} tier: {ran} in {int(seconds // 60)} min {int(seconds % 60)} s"]
    if why_skipped:
        parts.append("Skipped here: " + "; ".join(f"{reason} ({count})" for reason, count in sorted(why_skipped.items())))
    for other in TIERS[TIERS.index(tier) + 1 :]:
        count = [f"{left[f'{what} of {other}']} {what}" for what in ("files", "tests") if left.get(f"{what} of {other}")]
        about = f" ({', '.join(NEEDS.values())}, long searches)" if other == "full" else " (thorough searches, every Kafka release)"
        parts.append(f"Not run: {' and '.join(count) or 'the long searches'} of the {other} tier{about}: scripts/test --{other}")
    return ". ".join(parts)
