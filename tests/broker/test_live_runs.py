"""Some runs beside a real broker at work; `scripts/live-runs --broker 4.3.1` does a thousand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from beside_a_live_broker import VERBS, judged, observed
from kafka_classpath import KAFKA_VERSION
from oracle import Oracle

pytestmark = pytest.mark.broker


def test_each_result_is_the_truth_of_a_moment_or_refused(tmp_path: Path, oracle: Oracle) -> None:
    what = observed(tmp_path, KAFKA_VERSION, len(VERBS))
    seen = judged(what, oracle, tmp_path / "scratch")
    assert (seen.wrong, seen.complaints) == ([], [])
    assert seen.moved >= len(VERBS) // 2, "the broker stood still"
    assert {verb for verb, code in seen.exit_codes if code in (0, 1)} >= {"scan", "transactions", "stats"}
    assert seen.happened["segments rolled"] > 0
    assert seen.happened["segments deleted by retention"] > 0
    assert seen.checked["snapshots written"] > 0

    # The judge compares with what the broker wrote, and not with what the program says.
    (first, *_) = (each for each in what.said if each.snapshots)
    name, snapshots = next(pair for pair in first.snapshots.items() if any(pair[1].values()))
    lie = {offset: frozenset(sorted(entries, key=repr)[1:]) for offset, entries in snapshots.items()}
    found = judged(replace(what, said=[replace(first, snapshots={name: lie})]), oracle, tmp_path / "scratch").wrong
    assert any("is of no moment" in each for each in found)
