"""A replay that waits for a later snapshot shows in chunks what it shows as a whole, whatever the proof leads to."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from budgets import each_seed, scaled
from engine_results import outcomes_of
from log_dirs import EMPTY_SNAPSHOT, make_log_dir, snapshot_bytes, snapshot_name
from msgspec.structs import replace
from plans import make_plan
from simulated_broker import EXPIRATION_MS
from test_any_packing import put_snapshots, rebuilt, spoil, write_aged_log
from without_spark import WithoutSpark

from snaprebuild.snapshots.engine.chunked_proof import SettledStart
from snaprebuild.snapshots.plan.plan_model import Request
from snaprebuild.snapshots.rebuild.rebuild import rebuild
from snaprebuild.spark import proof_tasks, summary_rows
from snaprebuild.spark.job import SparkEngine
from snaprebuild.spark.proof_tasks import NextStep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.full

WANTED = (
    *("proven window", "unproven window", "goes back", "looks below", "from the first segment", "damage after what was taken"),
    *("first snapshot confirmed", "first snapshot refused", "nothing was known below"),
)

HELD = [["unproven window"], ["first snapshot confirmed"], ["first snapshot refused"]]
"""Last steps after which damage does not end the taking of segments."""


def kind_of(step: NextStep) -> str:
    """What a step of a proof is."""
    if isinstance(step, str):
        return step
    if not isinstance(step, SettledStart):
        return "looks below" if step.looks_below else "goes back"
    if step.is_window:
        return "proven window" if step.fault is None else "unproven window"
    if step.has_base:
        return "first snapshot confirmed"
    return "from the first segment" if step.note is None else "first snapshot refused"


def test_proofs_in_chunks_of_some_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated brokers: whole or spoilt, with a snapshot at the first offset or without, with right and with wrong ones inside."""
    monkeypatch.setattr(summary_rows, "PART_PRODUCERS", 2)
    reached: Counter[str] = Counter()

    @each_seed(scaled(40), met=lambda: all(reached[each] for each in WANTED))
    def holds(seed: int) -> None:
        rng = random.Random(seed)
        logs = make_log_dir(tmp_path / "logs")
        case = write_aged_log(rng.randrange(1 << 60), logs / "t-0")
        if rng.random() < 0.4:
            put_snapshots(logs / "t-0", case, rng)
        if case.deleted and rng.random() < 0.6:
            first = case.bases[0]
            data = snapshot_bytes(case.broker.folded(first).values()) if rng.random() < 0.7 else EMPTY_SNAPSHOT
            (logs / "t-0" / snapshot_name(first)).write_bytes(data)
        spoilt = spoil(logs / "t-0", rng)
        request = Request(
            (str(logs),),
            out=str(tmp_path / "out"),
            boundaries="all",
            replay_from=rng.choice(("auto", "auto", "auto", "window")),
            offset_from=case.first_wanted if rng.random() < 0.8 else None,
            as_of_ms=case.as_of_ms,
            expiration_ms=EXPIRATION_MS,
        )
        engine = WithoutSpark(rng.randrange(1 << 60), chunk_bytes=rng.choice((1, 1 << 21)))
        try:
            expected = rebuilt(request, None)
            assert rebuilt(request, engine) == expected
        finally:
            shutil.rmtree(logs)
        assert len(set(engine.read)) == len(engine.read), "none is read twice"
        kinds = [kind_of(step) for step in engine.steps]
        reached.update(kinds)
        lost = [each for one in expected[0] for each in one["boundaries"] if each.action == "failed"]
        reached["damage after what was taken"] += spoilt == "flip" and len(lost) > 1 and kinds[-1:] in HELD
        reached["nothing was known below"] += "unproven window" in kinds and request.replay_from == "window"

    holds()
    for each in WANTED:
        assert reached[each], (each, reached)


def aged_request(tmp_path: Path, seed: int) -> Request:
    """Everything wanted of a log whose window does not reach to its begin."""
    case = write_aged_log(seed, make_log_dir(tmp_path / "logs") / "t-0")
    request = Request((str(tmp_path / "logs"),), boundaries="all", as_of_ms=case.as_of_ms, expiration_ms=EXPIRATION_MS)
    return replace(request, offset_from=case.first_wanted, out=str(tmp_path / "out"))


def test_a_state_of_which_a_part_is_missing_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither while chunks are compared, where a task then does all of it, nor while they are replayed."""
    plan = make_plan(aged_request(tmp_path, 8))
    engine = WithoutSpark(1, chunk_bytes=1)
    found = rebuild(plan, jobs=1, engine=engine, dry_run=True)
    rows_of_job = proof_tasks.rows_of_job
    lost = {"total": proof_tasks.TOTAL}

    def without_states(partition, job, base_offset, state, number=0):  # type: ignore[no-untyped-def]
        return rows_of_job(partition, job, base_offset, state.chosen([0]) if number == lost["total"] else state, number)

    monkeypatch.setattr(proof_tasks, "rows_of_job", without_states)
    again = WithoutSpark(1, chunk_bytes=1)
    assert outcomes_of(rebuild(plan, jobs=1, engine=again, dry_run=True)) == outcomes_of(found)
    assert proof_tasks.AS_A_WHOLE in again.steps
    assert proof_tasks.AS_A_WHOLE not in engine.steps


@pytest.mark.spark
@pytest.mark.parametrize("seed", [8, 121])
def test_proofs_on_spark(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """With rounds that read nothing, and one that reads below the window."""
    plan = make_plan(aged_request(tmp_path, seed))
    found, expected = (rebuild(plan, jobs=1, engine=engine, dry_run=True) for engine in (SparkEngine(spark, chunk_bytes=1), None))
    assert outcomes_of(found) == outcomes_of(expected)
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()
