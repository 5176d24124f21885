"""Plans, in this process: log ends from indexes that may lie, where replay begins, what may go where."""

from pathlib import Path

import pytest
from log_dirs import EMPTY_SNAPSHOT, batch, copy_of, make_log_dir, snapshot_name, write_partition
from manifests import partition_fixtures
from plans import planned

from snaprebuild.errors import RefusedError
from snaprebuild.findings import Severity, exit_code_of
from snaprebuild.snapshots.plan import planner
from snaprebuild.snapshots.plan.plan_model import PartitionPlan, Plan


def the_one(plan: Plan) -> PartitionPlan:
    (partition,) = plan.partitions
    return partition


def test_boundaries_and_log_ends_of_every_bundled_partition() -> None:
    for fixture in partition_fixtures():
        plan = the_one(planned(fixture.directory, out="/nowhere/at/all", boundaries="all"))
        assert [boundary.offset for boundary in plan.boundaries] == [segment.snapshot_offset for segment in fixture.segments]
        assert plan.log_end_offset == fixture.manifest["end_offset"]
        assert [boundary.is_log_end for boundary in plan.boundaries] == [False] * (len(plan.boundaries) - 1) + [True]
        present = {int(path.stem) for path in fixture.directory.glob("*.snapshot")}
        assert {boundary.offset for boundary in plan.boundaries if boundary.exists} == present & {b.offset for b in plan.boundaries}


def test_findings_from_before_an_error_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot that does not parse is reported, also if the planning of its partition ends with an error after that."""
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "mixed-0" / snapshot_name(7045)).write_bytes(b"no snapshot")

    def refuse(*_: object) -> int:
        raise RefusedError("a limit of the run is used up")

    monkeypatch.setattr(planner, "replay_window", refuse)
    codes = {finding.code for finding in planned(logs / "mixed-0").findings}
    assert {"corrupt-snapshot", "refused"} <= codes


# --- the log end -----------------------------------------------------------------------------------------------------------

ENTRY_BYTES = 8


def indexed(tmp_path: Path, *entries: tuple[int, int]) -> Path:
    """Ten batches of 100 offsets each in one segment that begins at 1000, and an offset index with these (offset, position)."""
    data = b"".join(batch(1000 + 100 * n, count=100, records=[]) for n in range(10))
    partition = write_partition(tmp_path / "t-0", {1000: data})
    index = b"".join((offset - 1000).to_bytes(4, "big") + position.to_bytes(4, "big") for offset, position in entries)
    (partition / f"{1000:020d}.index").write_bytes(index)
    return partition


SIZE = len(batch(0, records=[]))


@pytest.mark.parametrize(
    "entries",
    [
        (),
        ((1499, 4 * SIZE),),
        ((1499, 4 * SIZE + 1),),
        ((1499, 4 * SIZE - 1),),
        ((1499, 10 * SIZE),),
        ((1499, 2**31 - 1),),
        ((1099, 0), (1000, 0), (1000, 0)),
        ((1499, 12),),
    ],
    ids=["none", "middle", "behind a batch", "before a batch", "the end", "far away", "preallocated", "inside a batch"],
)
def test_the_log_end_whatever_the_index_says(entries: tuple[tuple[int, int], ...], tmp_path: Path) -> None:
    assert the_one(planned(indexed(tmp_path, *entries))).log_end_offset == 2000


@pytest.mark.parametrize("tail", [b"\0", b"\0" * 4096, batch(2000, count=5)[:-1], batch(2000)[:11], b"\xff" * 5])
def test_the_log_end_before_a_torn_tail(tail: bytes, tmp_path: Path) -> None:
    partition = indexed(tmp_path, (1899, 8 * SIZE))
    with (partition / f"{1000:020d}.log").open("ab") as file:
        file.write(tail)
    assert the_one(planned(partition)).log_end_offset == 2000


def test_no_log_end_no_file(tmp_path: Path) -> None:
    logs = make_log_dir(tmp_path / "logs")
    (logs / "a-0").mkdir()
    write_partition(logs / "b-0", {0: b""})
    write_partition(logs / "c-0", {0: b"\0" * 100})
    write_partition(logs / "d-0", {5: b""})
    write_partition(logs / "e-0", {0: batch(0), 1: b""})
    plans = {
        each.source.directory.topic_partition: each
        for each in planned(logs, out=str(tmp_path / "out"), boundaries="all").partitions
    }
    assert {name: [b.offset for b in plan.boundaries] for name, plan in plans.items()} == {
        "a-0": [],
        "b-0": [],
        "c-0": [],
        "d-0": [5],
        "e-0": [1],
    }
    assert [plan.log_end_offset for plan in plans.values()] == [None, 0, 0, 5, 1]


def test_a_segment_that_is_no_file(tmp_path: Path) -> None:
    logs = make_log_dir(tmp_path / "logs")
    for name in ("a-0", "b-0"):
        write_partition(logs / name, {0: batch(0)})
    (logs / "a-0" / f"{1:020d}.log").mkdir()
    plan = planned(logs)
    worst = [(each.severity, each.path) for each in plan.findings if each.severity is not Severity.NOTE]
    assert worst == [(Severity.STORAGE, str(logs / "a-0" / f"{1:020d}.log"))]
    assert [[b.offset for b in each.boundaries] for each in plan.partitions] == [[], [1]]


# --- where replay begins ---------------------------------------------------------------------------------------------------


def aged(tmp_path: Path, *timestamps: int | None) -> Path:
    """One segment for each timestamp, which its time index names; None for no index."""
    logs = make_log_dir(tmp_path / "logs")
    partition = write_partition(
        logs / "t-0", {n: batch(n, producer_id=7, sequence=n, timestamp=at or 0) for n, at in enumerate(timestamps)}
    )
    for n, at in enumerate(timestamps):
        if at is not None:
            (partition / f"{n:020d}.timeindex").write_bytes(at.to_bytes(8, "big") + bytes(4))
    return partition


@pytest.mark.parametrize(
    ("timestamps", "window"),
    [
        ((1000, 2000, 3000, 4000), 2),
        ((1000, 1000, 1000, 1000), 3),
        ((9000, 1000, 1000, 1000), 0),
        ((1000, 2501, 1000, 4000), 1),
        ((1000, 2500, 1000, 4000), 3),
        ((1000, None, 1000, 4000), 1),
    ],
    ids=["ordered", "all old", "the first is young", "young in between", "equality expires", "unknown is young"],
)
def test_the_window_begins_at_the_earliest_young_segment(timestamps: tuple[int | None, ...], window: int, tmp_path: Path) -> None:
    """The last segment counts as young: its index is not up to date."""
    plan = the_one(planned(aged(tmp_path, *timestamps), replay_from="window", as_of_ms=5000, expiration_ms=2500))
    assert (plan.window_index, plan.replay_index) == (window, window)
    assert plan.replay_reason == (
        "requested: the first segment within the expiration" if window else "the window reaches to the first segment on disk"
    )


def test_auto_goes_to_the_first_segment_for_a_boundary_below_the_window(tmp_path: Path) -> None:
    plan = the_one(planned(aged(tmp_path, 1000, 2000, 3000, 4000), as_of_ms=5000, expiration_ms=2500))
    assert (plan.window_index, plan.replay_index) == (2, 0)
    assert "boundary 1 is older than one expiration" in plan.replay_reason


def test_auto_begins_at_the_window_where_a_snapshot_behind_may_prove_it(tmp_path: Path) -> None:
    partition = aged(tmp_path, 1000, 2000, 3000, 4000)
    options = {"as_of_ms": 5000, "expiration_ms": 2500, "offset_from": 3}
    assert the_one(planned(partition, **options)).replay_index == 0, "nothing could prove it"
    (partition / snapshot_name(4)).write_bytes(EMPTY_SNAPSHOT)
    plan = the_one(planned(partition, **options))
    assert plan.replay_index == 2
    assert plan.min_read_bytes < plan.max_read_bytes
    assert the_one(planned(partition, **options, replay_from="log-start")).replay_index == 0


def test_a_range_of_boundaries_reads_no_more_than_it_needs(tmp_path: Path) -> None:
    partition = aged(tmp_path, 1000, 2000, 3000, 4000)
    plan = the_one(planned(partition, offset_to=2, replay_from="log-start"))
    assert [boundary.offset for boundary in plan.boundaries] == [1, 2]
    assert plan.stop_index == 2


# --- what goes where -------------------------------------------------------------------------------------------------------


def test_nothing_is_wanted_where_all_is_there(tmp_path: Path) -> None:
    logs = copy_of("kafka4-mixed", tmp_path)
    plan = planned(logs)
    assert all(partition.boundaries == () and partition.min_read_bytes == 0 for partition in plan.partitions)
    assert plan.findings == ()


def test_a_corrupt_snapshot_is_reported_by_the_plan(tmp_path: Path) -> None:
    logs = copy_of("kafka4-mixed", tmp_path)
    (logs / "mixed-0" / snapshot_name(687)).write_bytes(b"torn")
    plan = planned(logs)
    assert [(each.code, each.offset) for each in plan.findings if each.severity] == [("corrupt-snapshot", 687)]
    assert exit_code_of(plan.findings) == 1
    assert [each for each in planned(logs, set_aside=True).findings if each.severity] == []


def test_targets_below_out(tmp_path: Path) -> None:
    for log_dir in ("a", "b"):
        write_partition(make_log_dir(tmp_path / "host" / log_dir) / "t-0", {0: batch(0)})
    write_partition(tmp_path / "host" / "a" / "u-0", {0: batch(0)})
    out = str(tmp_path / "out")
    one = planned(tmp_path / "host" / "a", out=out)
    assert [Path(each.target).relative_to(out).as_posix() for each in one.partitions] == ["t-0", "u-0"]
    both = planned(tmp_path / "host", out=out)
    assert [Path(each.target).relative_to(out).as_posix() for each in both.partitions] == ["a/t-0", "a/u-0", "b/t-0"]
    # Named one by one they are distinguished as below their common ancestor, and so are single partitions.
    named = planned(tmp_path / "host" / "a", tmp_path / "host" / "b", out=out)
    assert [each.target for each in named.partitions] == [each.target for each in both.partitions]
    alone = planned(tmp_path / "host" / "a" / "t-0", tmp_path / "host" / "b" / "t-0", out=out)
    assert [Path(each.target).relative_to(out).as_posix() for each in alone.partitions] == ["a/t-0", "b/t-0"]
    selected = planned(tmp_path / "host", out=out, topics=("u",))
    assert [Path(each.target).relative_to(out).as_posix() for each in selected.partitions] == ["u-0"]
    # In place nothing can collide.
    assert [each.target for each in planned(tmp_path / "host").partitions] == [
        each.source.directory.path for each in both.partitions
    ]
