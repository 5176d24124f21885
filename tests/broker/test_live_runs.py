"""Some runs next to a real broker at work; `scripts/kafka/live_runs.py --broker 4.3.1` does a thousand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from beside_a_live_broker import VERBS, Said, judged, observed
from kafka_classpath import KAFKA_VERSION
from live_truth import Truth
from oracle import Oracle

pytestmark = pytest.mark.broker


def _have_results(said: Sequence[Said]) -> bool:
    """Not refused each time, as every single run may be that meets a segment on its way out."""
    through = {each.verb for each in said if each.code in (0, 1)}
    return through >= {"scan", "inspect transactions", "inspect stats"} and any(
        any(found.values()) for each in said for found in each.snapshots.values()
    )


def test_each_result_is_the_truth_of_a_moment_or_refused(tmp_path: Path, oracle: Oracle) -> None:
    what = observed(tmp_path, KAFKA_VERSION, len(VERBS), enough=_have_results)
    truth = Truth(what.archive, oracle, tmp_path / "scratch")
    seen = judged(what, truth)
    assert (seen.wrong, seen.complaints) == ([], [])
    assert _have_results(what.said), "a run was refused each time"
    assert seen.moved > 0, "the broker stood still"
    assert seen.happened["segments rolled"] > 0
    assert seen.happened["segments deleted by retention"] > 0
    assert seen.checked["snapshots written"] > 0

    # The judge compares with what the broker wrote, and not with what the program says.
    first = next(each for each in what.said if any(any(found.values()) for found in each.snapshots.values()))
    name, snapshots = next(pair for pair in first.snapshots.items() if any(pair[1].values()))
    lie = {
        offset: frozenset(msgspec.structs.replace(entry, last_offset=entry.last_offset + 1) for entry in entries)
        for offset, entries in snapshots.items()
    }
    found = judged(replace(what, said=[replace(first, snapshots={name: lie})]), truth).wrong
    assert any("is of no moment" in each or "is called EXACT and is not" in each for each in found)
