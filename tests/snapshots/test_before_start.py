"""The preparation of log directories with a deadline."""

import itertools
import math
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from log_dirs import blocked_bytes, copy_of, entries_in, missing_boundaries, remove_snapshots, snapshot_name, tree, truth
from manifests import FIXTURES
from plans import make_plan

import snaprebuild.snapshots.before_start as hook_run_module
from formats.metadata.cluster_metadata import ClusterMetadataRecord
from snaprebuild.cluster.metadata import batches
from snaprebuild.cluster.source_check.plan_gate import judge_plans
from snaprebuild.findings import Severity
from snaprebuild.snapshots.before_start import prepare_log_dirs
from snaprebuild.snapshots.engine import log_facts
from snaprebuild.snapshots.plan import planner as plan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.run import Run
from snaprebuild.storage.local import segment_file
from snaprebuild.storage.partition_dir import PartitionDir


@pytest.fixture
def logs(tmp_path: Path, own_state_home: Path) -> Path:
    return copy_of("kafka27-mixed", tmp_path)


def test_a_deadline_in_the_middle_leaves_what_is_whole(logs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The clock jumps after some reads: what is written by then is the beginning of what is due, each file right and none torn."""
    due = missing_boundaries(logs / "mixed-0")
    right = {snapshot_name(offset): entries for offset, entries in truth("kafka27-mixed", "mixed-0").items()}
    reached = set()
    far = time.monotonic() + 3600
    planning = itertools.count()
    monkeypatch.setattr(segment_file, "time", SimpleNamespace(monotonic=lambda: 0.0 * next(planning)))
    make_plan(RebuildRequest(paths=(str(logs),), as_of_ms=0), Run(deadline=far))
    planned = next(planning)
    for reads in (1, 4, 7, 10, 13):
        copy = Path(shutil.copytree(logs, tmp_path / f"copy{reads}"))
        clock = (0.0 if number < planned + reads else math.inf for number in itertools.count())
        monkeypatch.setattr(segment_file, "time", SimpleNamespace(monotonic=lambda clock=clock: next(clock)))
        request = RebuildRequest(paths=(str(copy),), as_of_ms=0)
        result = prepare_log_dirs(request, judge_plans, Run(jobs=1, deadline=far), receipt=str(tmp_path / f"receipt{reads}.jsonl"))
        first = result.partitions[0]
        written = [each.offset for each in first.result.boundaries if each.action == "written"]
        assert written == due[: len(written)]
        for offset in written:
            assert entries_in((copy / "mixed-0" / snapshot_name(offset)).read_bytes()) == right[snapshot_name(offset)]
        assert not list(copy.rglob("*.tmp"))
        assert first.count("failed", "refused", "skipped") == len(due) - len(written)
        assert first.bytes_blocked_left == blocked_bytes(copy / "mixed-0", due[len(written) :])
        (reported,) = [each for each in result.findings if each.path == first.result.plan.source.directory.path]
        is_done = len(written) == len(due)
        assert (reported.code, reported.offset) == ("deadline-passed", None if is_done else due[len(written)])
        assert (reported.severity is Severity.NOTE) == is_done
        assert result.exit_code == 1
        reached.add(len(written))
    assert len(due) in reached
    assert len(reached) > 3


def test_a_slow_look_at_the_logs_leaves_time_for_the_most_blocked(
    logs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first look at a log ends within half of the time that there is, the second one does not: one is looked into, and done."""
    clock = SimpleNamespace(now=0.0)

    def slow(directory: PartitionDir, deadline: float | None = None) -> int:
        clock.now += 1.5
        return log_facts.log_end_offset(directory, deadline)

    for module in (hook_run_module, log_facts, segment_file):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now, perf_counter=time.perf_counter))
    monkeypatch.setattr(plan, "log_end_offset", slow)
    hooked = prepare_log_dirs(
        RebuildRequest(paths=(str(logs),), as_of_ms=0),
        judge_plans,
        Run(jobs=1, deadline=4),
        receipt=str(tmp_path / "receipt.jsonl"),
    )
    assert clock.now == 3.0, "nothing was begun that could not end in time"
    first, *others = hooked.partitions
    assert (first.result.plan.source.directory.topic_partition, first.state.value, first.bytes_blocked_left) == (
        "mixed-0",
        "prepared",
        0,
    )
    assert others[-1].state.value == "not-prepared"
    assert others[-1].result.plan.fault is not None
    assert hooked.exit_code == 1
    assert {each.code for each in hooked.findings if each.severity} == {"deadline-passed"}
    for offset, entries in truth("kafka27-mixed", "mixed-0").items():
        if offset:
            assert entries_in((logs / "mixed-0" / snapshot_name(offset)).read_bytes()) == entries


def test_the_deadline_bounds_the_fold_of_the_metadata_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A second passes with each record of it: what no one has judged in time is not written to."""
    node = Path(shutil.copytree(FIXTURES / "kraft-cluster3" / "node1", tmp_path / "node"))
    for directory in node.glob("orders-*"):
        remove_snapshots(directory)
    clock = SimpleNamespace(now=0.0)
    read = batches.read_cluster_metadata_record

    def slow(value: bytes) -> ClusterMetadataRecord:
        clock.now += 1
        return read(value)

    for module in (hook_run_module, log_facts, segment_file):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now, perf_counter=time.perf_counter))
    monkeypatch.setattr(batches, "read_cluster_metadata_record", slow)
    before = tree(node)
    request = RebuildRequest(paths=(str(node),), topics=("orders",), as_of_ms=0)
    late = prepare_log_dirs(request, judge_plans, Run(jobs=1, deadline=20), receipt=str(tmp_path / "late.jsonl"))
    assert 20 < clock.now < 40, "no batch of it has so many records"
    assert ({each.state.value for each in late.partitions}, late.exit_code) == ({"not-prepared"}, 1)
    reported = [each.message for each in late.findings if each.code == "deadline-passed"]
    assert len(reported) == 3
    assert all("before this replica was checked as a source" in each for each in reported)
    assert {path: about for path, about in tree(node).items() if path != ".lock"} == before
    clock.now = 0.0
    in_time = prepare_log_dirs(request, judge_plans, Run(jobs=1, deadline=10_000), receipt=str(tmp_path / "receipt.jsonl"))
    assert clock.now > 40
    assert ({each.state.value for each in in_time.partitions}, in_time.exit_code) == ({"prepared"}, 0)
