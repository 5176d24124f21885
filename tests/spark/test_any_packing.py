"""Whatever Spark does with the rows, the snapshots and everything that is reported are those of one process."""

import json
import os
import random
import shutil
import struct
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from budgets import each_seed, scaled
from engine_results import outcomes_of
from log_dirs import EMPTY_SNAPSHOT, all_bytes, copy_of, cut, flip, make_log_dir, snapshot_bytes, snapshot_name
from manifests import FIXTURES
from plans import make_plan
from replays import Case, case_of
from simulated_broker import EXPIRATION_MS
from without_spark import WithoutSpark

from snaprebuild.findings import exit_code_of
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.destination.boundary_result import BoundaryAction
from snaprebuild.snapshots.engine.partition_task import Engine
from snaprebuild.snapshots.plan.plan_model import PartitionPlan, Plan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild.rebuild_result import RebuildResult
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.receipts.announcements import Announcements
from snaprebuild.snapshots.receipts.receipt import Receipt
from snaprebuild.snapshots.receipts.receipt_lines import WriteEvent
from snaprebuild.snapshots.receipts.receipt_reader import load_receipt
from snaprebuild.snapshots.receipts.undo import undo
from snaprebuild.snapshots.receipts.verify_receipt import verify_receipt
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.snapshots.verify import verify
from snaprebuild.spark import summary_rows

pytestmark = pytest.mark.full

NOW_MS = 1_795_270_000_000


def rebuilt(request: RebuildRequest, engine: Engine | None) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """The outcomes of a rebuild, and the files that it writes, which are removed."""
    assert request.out is not None
    out = Path(request.out)
    found = outcomes_of(rebuild(make_plan(request), Run(jobs=1, engine=engine)))
    files = all_bytes(out)
    shutil.rmtree(out, ignore_errors=True)
    return found, files


def write_aged_log(seed: int, directory: Path) -> Case:
    """A log that became old in its middle, with the time indexes that tell it, and a snapshot that survived."""
    case = case_of(seed)
    case.broker.write(directory, {case.witness: case.live(case.witness).values()}, deleted=case.deleted)
    for segment in case.broker.segments[case.deleted : -1]:
        if segment.largest_timestamp >= 0:
            (directory / f"{segment.base_offset:020d}.timeindex").write_bytes(struct.pack(">qi", segment.largest_timestamp, 0))
    return case


@pytest.fixture
def small_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that every segment with some producers takes several rows, and several batches of them."""
    monkeypatch.setattr(summary_rows, "PART_PRODUCERS", 2)
    monkeypatch.setattr(summary_rows, "ROWS_PER_BATCH", 3)


def spoil(directory: Path, rng: random.Random) -> str:
    """A bit flipped, an end torn off, or a segment gone; or nothing."""
    paths = sorted(directory.glob("*.log"))
    path = rng.choice(paths)
    size = path.stat().st_size
    what = rng.choice(("nothing", "nothing", "nothing", "flip", "cut", "gap"))
    if what == "flip" and size:
        flip(path, rng.randrange(size))
    elif what == "cut" and size:
        cut(path, rng.randrange(size))
    elif what == "gap" and len(paths) > 2:
        path.unlink()
    return what


def put_snapshots(directory: Path, case: Case, rng: random.Random) -> None:
    """Some that are right, some that are wrong, at boundaries and inside segments, below the first one and above the end."""
    bases = case.bases
    for offset in rng.sample(range(bases[0], bases[-1] + 40), 6) + rng.sample(bases, min(len(bases), 3)):
        wrong = (EMPTY_SNAPSHOT, b"no snapshot")
        right = snapshot_bytes(case.broker.folded(offset, case.deleted).values())
        (directory / snapshot_name(offset)).write_bytes(rng.choice((right, right, *wrong)))


def put_first_snapshot(directory: Path, case: Case) -> None:
    """That of a log whose beginning was deleted: the replay waits for a later snapshot."""
    first = case.bases[0]
    (directory / snapshot_name(first)).write_bytes(snapshot_bytes(case.broker.folded(first).values()))


@pytest.mark.usefixtures("small_rows")
def test_any_packing_of_any_logs(tmp_path: Path) -> None:
    """Simulated brokers, whose logs are whole or spoilt somewhere, in every mode, in chunks of any size."""
    reached: Counter[str] = Counter()
    wanted = (
        *("flip", "cut", "gap", "log-start, in chunks", "auto, in chunks", "verified in chunks"),
        *("bad-checksum", "damaged-segment", "unsound-boundary"),
        *("wrong-snapshot", "transaction-index-differs", "snapshot-above-log-end", "waits for a later snapshot"),
    )

    @each_seed(scaled(24), met=lambda: all(reached[each] for each in wanted))
    def holds(seed: int) -> None:
        rng = random.Random(seed)
        logs = make_log_dir(tmp_path / "logs")
        cases = []
        for number in range(rng.randrange(1, 4)):
            directory = logs / f"t-{number}"
            cases.append(write_aged_log(rng.randrange(1 << 60), directory))
            if rng.random() < 0.5:
                put_snapshots(directory, cases[-1], rng)
            if cases[-1].deleted and rng.random() < 0.5:
                put_first_snapshot(directory, cases[-1])
                reached["waits for a later snapshot"] += 1
            reached[spoil(directory, rng)] += 1
        mode = rng.choice(("log-start", "log-start", "auto", "auto", "window"))
        request = RebuildRequest(
            (str(logs),),
            out=str(tmp_path / "out"),
            boundaries=rng.choice(("missing", "all")),
            replay_from=mode,
            # What is late in the log may be found from the window.
            offset_from=cases[0].first_wanted if rng.random() < 0.7 else None,
            drop_expired=rng.random() < 0.3,
            as_of_ms=cases[0].as_of_ms,
            expiration_ms=EXPIRATION_MS,
        )
        engine = WithoutSpark(rng.randrange(1 << 60))
        try:
            expected = rebuilt(request, None)
            assert rebuilt(request, engine) == expected
            reached[f"{mode}, in chunks"] += engine.chunks > 0
            engine = WithoutSpark(rng.randrange(1 << 60))
            clock = Clock(cases[0].as_of_ms, EXPIRATION_MS)
            found, judged = (verify(open_source([str(logs)]), Run(clock=clock, jobs=1, engine=each)) for each in (engine, None))
            assert found == judged
        finally:
            shutil.rmtree(logs)
        reached["verified in chunks"] += engine.chunks > 0
        reached.update({finding.code for partition in judged.partitions for finding in partition.findings} if engine.chunks else ())

    holds()
    for each in wanted:
        assert reached[each], (each, reached)


@pytest.mark.usefixtures("small_rows")
@pytest.mark.parametrize(("seed", "rounds"), [(8, 2), (121, 6)])
def test_a_replay_that_goes_back(tmp_path: Path, seed: int, rounds: int) -> None:
    """Each time that the evidence asks for more segments, another round reads those and no others."""
    logs = make_log_dir(tmp_path / "logs")
    case = write_aged_log(seed, logs / "t-0")
    request = RebuildRequest(
        (str(logs),),
        out=str(tmp_path / "out"),
        boundaries="all",
        offset_from=case.first_wanted,
        as_of_ms=case.as_of_ms,
        expiration_ms=EXPIRATION_MS,
    )
    engine = WithoutSpark(seed)
    assert rebuilt(request, engine) == rebuilt(request, None)
    assert engine.rounds == rounds
    assert len(set(engine.read)) == len(engine.read), "none is read twice"


@pytest.mark.night
@pytest.mark.usefixtures("small_rows")
def test_any_packing_of_bundled_directories(tmp_path: Path) -> None:
    """Rebuilt, and then verified: sound, damaged, compacted. All of them, on Spark, from the log start: ``test_engine.py``."""
    places = tuple(str(FIXTURES / each) for each in ("kafka4-mixed", "damaged/logs", "kafka4-compacted"))
    plan = RebuildRequest(places, out=str(tmp_path / "out"), boundaries="all", replay_from="auto", as_of_ms=NOW_MS)
    assert rebuilt(plan, WithoutSpark(1)) == rebuilt(plan, None)
    clock = make_plan(RebuildRequest(places, as_of_ms=NOW_MS)).clock
    found, expected = (verify(open_source(places), Run(clock=clock, jobs=1, engine=each)) for each in (WithoutSpark(2), None))
    assert found == expected


@pytest.mark.parametrize(("is_in_place", "boundaries"), [(True, "missing"), (False, "all")], ids=["in place", "out, all"])
def test_a_task_that_runs_again(tmp_path: Path, is_in_place: bool, boundaries: str) -> None:
    """Its second attempt finds what the first one wrote: it is reported, and in the receipt, as if there had been one attempt."""
    outcomes = []
    for name, engine in (("plain", None), ("again", WithoutSpark(7, attempts=2))):
        root = tmp_path / name
        plan = plan_to_write(root, is_in_place=is_in_place, boundaries=boundaries)
        result = rebuild(plan, Run(jobs=1, engine=engine), receipt=Receipt(str(root / "receipt"), plan))
        steps = [json.loads(line) for line in (root / "receipt").read_text().splitlines()]
        files = sorted({(each["number"], each["offset"], each["sha256"]) for each in steps if each.get("step") == "write"})
        actions = Counter(boundary.action for partition in result.partitions for boundary in partition.boundaries)
        outcomes.append((actions, files, [finding.code for finding in result.findings]))
        assert len(files) == actions["written"] > 10
        assert not verify_receipt(load_receipt(str(root / "receipt"))).findings
        undone = undo(load_receipt(str(root / "receipt")))
        assert Counter(each.action for each in undone.files) == {"removed": actions["written"]}
    assert outcomes[0] == outcomes[1]


def plan_to_write(root: Path, *, is_in_place: bool, boundaries: str) -> Plan:
    """A plan for a copy of a bundled directory."""
    logs = shutil.copytree(FIXTURES / "kafka27-mixed" / "logs", root / "logs")
    for snapshot in logs.rglob("*.snapshot"):
        if boundaries == "missing":
            snapshot.unlink()
    out = None if is_in_place else str(root / "out")
    return make_plan(RebuildRequest((str(logs),), out=out, boundaries=boundaries, as_of_ms=NOW_MS))


@pytest.mark.parametrize("is_in_place", [True, False], ids=["in place", "out"])
def test_a_driver_that_is_killed_has_a_receipt_of_all_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_in_place: bool
) -> None:
    """At every moment at which a task waits for the driver, with attempts that follow one another: an undo would take all of it back."""
    plan = plan_to_write(tmp_path, is_in_place=is_in_place, boundaries="missing")
    target = tmp_path / ("logs" if is_in_place else "out")
    counts: list[int] = []
    looking = threading.Lock()

    record = Announcements.record
    receipt = str(tmp_path / "receipt")

    def look(lines: Announcements, number: int, partition: PartitionPlan, event: WriteEvent) -> None:
        with looking:
            record(lines, number, partition, event)
            there = {str(path) for path in target.rglob("*.snapshot")}
            would = {each.path for each in undo(load_receipt(receipt), dry_run=True).files if each.action == "would_remove"}
            # Others go on meanwhile, and what they write is in the receipt before it is there.
            assert there <= would
            counts.append(len(there))

    monkeypatch.setattr(Announcements, "record", look)
    rebuild(plan, Run(jobs=1, engine=WithoutSpark(11, attempts=2)), receipt=Receipt(receipt, plan))
    assert counts[0] == 0
    assert counts[-1] > 10
    assert len(counts) > 3 * counts[-1]


def test_equal_files_of_another_run_are_not_taken_for_those_of_an_earlier_attempt(tmp_path: Path) -> None:
    request = RebuildRequest(
        (str(FIXTURES / "kafka27-mixed"),), out=str(tmp_path), boundaries="all", topics=("deleted",), as_of_ms=NOW_MS
    )
    actions = []
    for _ in range(2):
        result = rebuild(make_plan(request), Run(jobs=1, engine=WithoutSpark(3)))
        actions.append({boundary.action for partition in result.partitions for boundary in partition.boundaries})
    assert actions == [{"written"}, {"equal"}]


# ------------------------------------------------------------------------------------------------------------ what goes wrong


def same_where_it_goes_wrong(request: RebuildRequest, spoil: Callable[[], None]) -> RebuildResult:
    """Spoils the source between plan and run; both engines report the same."""
    plan = make_plan(request)
    spoil()
    own, by_spark = (rebuild(plan, Run(jobs=1, engine=engine), dry_run=True) for engine in (None, WithoutSpark(5)))
    assert outcomes_of(by_spark) == outcomes_of(own)
    assert exit_code_of(by_spark.findings) == exit_code_of(own.findings)
    return by_spark


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _truncated(path: Path) -> None:
    os.truncate(path, 100)


def _replaced(path: Path) -> None:
    data = path.read_bytes()
    path.with_suffix(".kept").hardlink_to(path)
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "exit_code", "action"), [(_fifo, 5, BoundaryAction.FAILED), (_truncated, 3, BoundaryAction.REFUSED)]
)
def test_a_segment_that_cannot_be_read(tmp_path: Path, spoil: Callable[[Path], None], exit_code: int, action: str) -> None:
    """Its partition ends after what is before it; the three others are rebuilt."""
    logs = copy_of("kafka27-mixed", tmp_path)
    request = RebuildRequest((str(logs),), out=str(tmp_path / "out"), boundaries="all", replay_from="log-start", as_of_ms=NOW_MS)
    result = same_where_it_goes_wrong(request, lambda: spoil(logs / "mixed-0" / f"{2181:020d}.log"))
    assert exit_code_of(result.findings) == exit_code
    actions = {each.plan.source.directory.topic_partition: {one.action for one in each.boundaries} for each in result.partitions}
    assert actions.pop("mixed-0") == {BoundaryAction.WOULD_WRITE, action}
    assert set(map(frozenset, actions.values())) == {frozenset({BoundaryAction.WOULD_WRITE})}


@pytest.mark.parametrize(("spoil", "exit_code", "unsound"), [(Path.unlink, 1, 11), (_replaced, 0, 0)])
def test_a_segment_that_is_gone(tmp_path: Path, spoil: Callable[[Path], None], exit_code: int, unsound: int) -> None:
    """Its partition is listed again: without the segment nothing above the hole is proven, and another file is read instead."""
    logs = copy_of("kafka27-mixed", tmp_path)
    request = RebuildRequest((str(logs),), out=str(tmp_path / "out"), boundaries="all", replay_from="log-start", as_of_ms=NOW_MS)
    result = same_where_it_goes_wrong(request, lambda: spoil(logs / "mixed-0" / f"{2181:020d}.log"))
    assert exit_code_of(result.findings) == exit_code
    (mixed,) = [each for each in result.partitions if each.plan.source.directory.topic_partition == "mixed-0"]
    assert [each.snapshot_class is SnapshotClass.UNSOUND for each in mixed.boundaries] == [False] * (15 - unsound) + [
        True
    ] * unsound
    assert {one.action for each in result.partitions for one in each.boundaries} == {BoundaryAction.WOULD_WRITE}
