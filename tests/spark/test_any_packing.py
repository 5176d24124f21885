"""Whatever Spark does with the rows, the snapshots and everything that is told are those of one process."""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_dirs import cut, flip, make_log_dir
from manifests import FIXTURES
from replays import SEEDS, Case, case_of
from simulated_broker import EXPIRATION_MS
from without_spark import WithoutSpark

from snaprebuild.operations.plan import Request, make_plan
from snaprebuild.operations.rebuild import rebuild
from snaprebuild.operations.rebuild_result import RebuildResult
from snaprebuild.operations.receipt import Receipt, load_receipt
from snaprebuild.operations.schedule import Engine
from snaprebuild.operations.source import open_source
from snaprebuild.operations.verify import verify
from snaprebuild.operations.verify_receipt import verify_receipt
from snaprebuild.spark import summary_rows

NOW_MS = 1_795_270_000_000


def told(result: RebuildResult) -> list[object]:
    """Everything but the time that it took."""
    return [(each.boundaries, each.findings, each.bytes_read, each.replay_index, each.replay_reason) for each in result.partitions]


def rebuilt(request: Request, engine: Engine | None) -> tuple[list[object], dict[str, bytes]]:
    """What a rebuild tells, and the files it writes, which are removed."""
    assert request.out is not None
    out = Path(request.out)
    found = told(rebuild(make_plan(request), jobs=1, engine=engine))
    files = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
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


@pytest.mark.usefixtures("small_rows")
def test_any_packing_of_any_logs(tmp_path: Path) -> None:
    """Simulated brokers, whose logs are whole, torn or flipped somewhere, in every mode."""
    reached: Counter[str] = Counter()

    @settings(max_examples=40)
    @given(SEEDS)
    def holds(seed: int) -> None:
        rng = random.Random(seed)
        logs = make_log_dir(tmp_path / "logs")
        cases = []
        for number in range(rng.randrange(1, 4)):
            directory = logs / f"t-{number}"
            cases.append(write_aged_log(rng.randrange(1 << 60), directory))
            path = rng.choice(sorted(directory.glob("*.log")))
            size = path.stat().st_size
            damage = rng.randrange(8)
            if damage == 0 and size:
                flip(path, rng.randrange(size))
            elif damage == 1 and size:
                cut(path, rng.randrange(size))
            reached[f"damage {damage}"] += 1
        mode = rng.choice(("log-start", "auto", "auto", "window"))
        request = Request(
            (str(logs),),
            out=str(tmp_path / "out"),
            boundaries=rng.choice(("missing", "all")),
            replay_from=mode,
            # What lies late may be found from the window.
            offset_from=cases[0].first_wanted if rng.random() < 0.7 else None,
            drop_expired=rng.random() < 0.3,
            as_of_ms=cases[0].as_of_ms,
            expiration_ms=EXPIRATION_MS,
        )
        engine = WithoutSpark(rng.randrange(1 << 60))
        try:
            assert rebuilt(request, engine) == rebuilt(request, None)
        finally:
            shutil.rmtree(logs)
        reached[mode] += 1

    holds()
    assert reached["damage 0"]
    assert reached["damage 1"]


@pytest.mark.usefixtures("small_rows")
@pytest.mark.parametrize(("seed", "rounds"), [(1, 3), (8, 2), (36, 5), (80, 4), (121, 6)])
def test_a_replay_that_goes_back(tmp_path: Path, seed: int, rounds: int) -> None:
    """Each time that the evidence asks for more segments, another round reads those and no others."""
    logs = make_log_dir(tmp_path / "logs")
    case = write_aged_log(seed, logs / "t-0")
    request = Request(
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


@pytest.mark.usefixtures("small_rows")
@settings(max_examples=3)
@given(st.integers(0, 1 << 60))
def test_any_packing_of_the_bundled_directories(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    request = Request((str(FIXTURES),), out=str(tmp_path_factory.mktemp("out")), boundaries="all", as_of_ms=NOW_MS)
    request = replace(request, replay_from=random.Random(seed).choice(("log-start", "auto", "window")))
    assert rebuilt(request, WithoutSpark(seed)) == rebuilt(request, None)


@pytest.mark.usefixtures("small_rows")
@settings(max_examples=3)
@given(st.integers(0, 1 << 60))
def test_any_packing_of_a_verification(seed: int) -> None:
    source = open_source([str(FIXTURES)])
    clock = make_plan(Request((str(FIXTURES),), as_of_ms=NOW_MS)).clock
    found, expected = (verify(source, clock, jobs=1, engine=engine) for engine in (WithoutSpark(seed), None))
    assert found == expected


@pytest.mark.parametrize("is_in_place", [True, False], ids=["in place", "out"])
def test_a_task_that_runs_again(tmp_path: Path, is_in_place: bool) -> None:
    """Its second attempt finds what the first one wrote: it is told, and in the receipt, as if there had been one attempt."""
    outcomes = []
    for engine in (None, WithoutSpark(7, attempts=2)):
        root = tmp_path / ("plain" if engine is None else "again")
        logs = shutil.copytree(FIXTURES / "kafka27-mixed" / "logs", root / "logs")
        for snapshot in logs.rglob("*.snapshot"):
            snapshot.unlink()
        out = None if is_in_place else str(root / "out")
        plan = make_plan(Request((str(logs),), out=out, as_of_ms=NOW_MS))
        result = rebuild(plan, jobs=1, engine=engine, receipt=Receipt(str(root / "receipt"), plan))
        steps = [json.loads(line) for line in (root / "receipt").read_text().splitlines()]
        files = sorted((each["partition"], each["offset"], each["sha256"]) for each in steps if each.get("step") == "write")
        actions = Counter(boundary.action for partition in result.partitions for boundary in partition.boundaries)
        outcomes.append((actions, files, [finding.code for finding in result.findings]))
        assert len(files) == actions["written"] > 10
        assert not verify_receipt(load_receipt(str(root / "receipt"))).findings
    assert outcomes[0] == outcomes[1]


def test_equal_files_of_another_run_are_not_taken_for_those_of_an_earlier_attempt(tmp_path: Path) -> None:
    request = Request((str(FIXTURES / "kafka27-mixed"),), out=str(tmp_path), boundaries="all", as_of_ms=NOW_MS)
    actions = []
    for _ in range(2):
        result = rebuild(make_plan(request), jobs=1, engine=WithoutSpark(3))
        actions.append({boundary.action for partition in result.partitions for boundary in partition.boundaries})
    assert actions == [{"written"}, {"equal"}]
