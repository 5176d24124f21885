"""Segments that ``remote.copy.lag.*`` of 4.4 lets wait, by the rules of ``RemoteLogManager`` (4.4.0); real brokers are in
``tests/broker/test_copy_lag_of_a_broker.py``."""

import shutil
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from log_dirs import copy_of, snapshot_name
from manifests import FIXTURES
from plans import make_plan
from scan_results import preflighted, rolled_segments

from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.scan.copy_lag import CopyLag, copy_lag, with_copy_lag
from snaprebuild.snapshots.scan.scan import scan_source
from snaprebuild.snapshots.source.source import open_source

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS
FIRST_MS = 1_795_261_000_000
LAG = {"remote.copy.lag.ms": "-1", "remote.copy.lag.bytes": "-1"}

SETTINGS: dict[str, tuple[dict[str, str], dict[str, str], CopyLag | None]] = {
    "the defaults: at once": ({}, {}, CopyLag(0, -1)),
    "of the topic": ({"remote.copy.lag.ms": "5000", "remote.copy.lag.bytes": "9"}, {}, CopyLag(5000, 9)),
    "of the broker": ({}, {"log.remote.copy.lag.ms": "5000", "log.remote.copy.lag.bytes": "9"}, CopyLag(5000, 9)),
    "the topic before the broker": ({"remote.copy.lag.ms": "1"}, {"log.remote.copy.lag.ms": "5000"}, CopyLag(1, -1)),
    "-1 is the local retention": ({**LAG, "local.retention.ms": "7", "local.retention.bytes": "8"}, {}, CopyLag(7, 8)),
    "-1 is the local retention of the broker": (
        LAG,
        {"log.local.retention.ms": "7", "log.local.retention.bytes": "8"},
        CopyLag(7, 8),
    ),
    "which may be the retention": ({**LAG, "retention.ms": "7", "retention.bytes": "8"}, {}, CopyLag(7, 8)),
    "or that of the broker": (LAG, {"log.retention.hours": "2", "log.retention.bytes": "8"}, CopyLag(7_200_000, 8)),
    "minutes before hours": (LAG, {"log.retention.hours": "2", "log.retention.minutes": "1"}, CopyLag(60_000, -1)),
    "ms before minutes": (LAG, {"log.retention.ms": "3", "log.retention.minutes": "1"}, CopyLag(3, -1)),
    "by default a week": (LAG, {}, CopyLag(WEEK_MS, -1)),
    "or without a limit": ({**LAG, "retention.ms": "-1"}, {}, CopyLag(-1, -1)),
    "no number": ({"remote.copy.lag.ms": "soon"}, {}, None),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_lag_of_a_topic(name: str) -> None:
    topic, broker, expected = SETTINGS[name]
    assert copy_lag(topic, broker) == expected


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """mixed-0 of kafka27-mixed, rebuilt: 14 rolled segments, of which 12 may be uploaded. Each is a minute younger than the one before."""
    logs = copy_of("kafka27-mixed", tmp_path_factory.mktemp("whole"))
    rebuild(make_plan(RebuildRequest((str(logs / "mixed-0"),), as_of_ms=1_795_270_000_000)), Run(jobs=1))
    for number, base in enumerate(bases(logs / "mixed-0")):
        (logs / "mixed-0" / f"{base:020d}.timeindex").write_bytes(struct.pack(">qi", FIRST_MS + number * 60_000, 1))
    return logs / "mixed-0"


def newest_ms(path: Path, base: int) -> int:
    """The timestamp of the newest record of a segment."""
    return FIRST_MS + bases(path).index(base) * 60_000


def bases(path: Path) -> list[int]:
    return sorted(int(each.stem) for each in path.glob("*.log"))


def test_segments_wait_until_they_are_old_enough(whole: Path) -> None:
    partition = preflighted(whole)
    third, fourth = bases(whole)[2:4]
    lag = CopyLag(DAY_MS, -1)
    due_ms = newest_ms(whole, third) + DAY_MS
    waits = with_copy_lag(partition, lag, due_ms - 1)
    assert rolled_segments(waits) == [(0, third, "uploadable"), (third, 6390, "waits-for-lag"), (6390, 7637, "waits")]
    wait = waits.preflight.copy_lag
    assert wait is not None
    assert (wait.base_offset, wait.segments, wait.due_ms, wait.due_bytes) == (third, 12, due_ms, None)
    total_bytes = sum(run.size_bytes for run in partition.preflight.rolled_segments)
    assert sum(run.size_bytes for run in waits.preflight.rolled_segments) == total_bytes
    assert sum(run.segments for run in waits.preflight.rolled_segments) == 14
    assert rolled_segments(with_copy_lag(partition, lag, due_ms))[:2] == [
        (0, fourth, "uploadable"),
        (fourth, 6390, "waits-for-lag"),
    ]


def test_segments_wait_until_enough_was_written_after_them(whole: Path) -> None:
    partition = preflighted(whole)
    sizes = {base: (whole / f"{base:020d}.log").stat().st_size for base in bases(whole)}
    for base, following in pairwise(bases(whole)[:-1]):
        after = sum(size for each, size in sizes.items() if each > base)
        enough, more = (with_copy_lag(partition, CopyLag(-1, lag), 0).preflight.copy_lag for lag in (after, after + 1))
        assert enough is not None
        assert more is not None
        assert (enough.base_offset, more.base_offset, more.due_bytes) == (following, base, 1)


WAITS_FOR_NOTHING = {
    "no lag by time": CopyLag(0, 10**12),
    "no lag by size": CopyLag(10**12, 0),
    "old enough, whatever was written": CopyLag(1, 10**12),
    "enough was written, however young": CopyLag(10**12, 1),
}


@pytest.mark.parametrize("name", WAITS_FOR_NOTHING)
def test_one_condition_is_enough(name: str, whole: Path) -> None:
    partition = preflighted(whole)
    assert with_copy_lag(partition, WAITS_FOR_NOTHING[name], newest_ms(whole, bases(whole)[-2]) + 1) == partition


def test_records_of_the_future_do_not_wait(whole: Path) -> None:
    partition = preflighted(whole)
    assert with_copy_lag(partition, CopyLag(DAY_MS, -1), newest_ms(whole, 0) - 1).preflight.copy_lag is None


def test_without_any_limit_they_wait_for_good(whole: Path) -> None:
    wait = with_copy_lag(preflighted(whole), CopyLag(-1, -1), 0).preflight.copy_lag
    assert wait is not None
    assert (wait.base_offset, wait.segments, wait.due_ms, wait.due_bytes) == (0, 14, None, None)


def test_a_missing_snapshot_stays_a_finding_and_its_attempt_waits(whole: Path, tmp_path: Path) -> None:
    logs = shutil.copytree(whole.parent, tmp_path / "logs")
    path = logs / "mixed-0"
    fifth, sixth = bases(path)[4:6]
    (path / snapshot_name(sixth)).unlink()
    partition = preflighted(path)
    assert not partition.preflight.attempt_waits
    now_ms = newest_ms(path, fifth) + 1
    waits = with_copy_lag(partition, CopyLag(DAY_MS, -1), now_ms)
    assert waits.preflight.attempt_waits
    assert (waits.missing_offsets, waits.findings, waits.totals) == (
        partition.missing_offsets,
        partition.findings,
        partition.totals,
    )
    assert [run.state.value for run in waits.preflight.rolled_segments] == ["waits-for-lag", "blocked", "after-blocked", "waits"]
    assert not with_copy_lag(partition, CopyLag(1, -1), now_ms).preflight.attempt_waits


def test_topics_that_are_never_uploaded_do_not_wait() -> None:
    partitions = scan_source(open_source([str(FIXTURES / "kafka4-compacted" / "logs")])).partitions
    assert partitions
    for partition in partitions:
        assert with_copy_lag(partition, CopyLag(-1, -1), 0).preflight.copy_lag is None or partition.source.can_be_tiered
