"""Some runs beside a broker that goes on working; `scripts/live-runs` does a thousand."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
from beside_a_broker import Seen, run
from live_log import MOMENT, LiveLog

pytestmark = pytest.mark.full


def answered(seen: Seen) -> set[str]:
    """Verbs that gave a result at least once."""
    return {verb for verb, code in seen.exit_codes if code in (0, 1)}


def test_each_result_is_the_truth_of_a_moment_or_refused() -> None:
    seen = run(32, met=lambda seen: seen.moved >= 8 and seen.snapshots >= 4 and answered(seen) >= {"scan", "plan"})
    assert seen.wrong == []
    assert seen.moved >= 8, "the broker stood still"
    assert seen.snapshots >= 4
    assert answered(seen) >= {"scan", "plan"}


def test_a_lie_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check compares with the truth of the log, and not with what the program says."""
    import beside_a_broker

    monkeypatch.setattr(beside_a_broker, "entries_in", lambda _: frozenset({("no", "producer")}))
    assert any("is of no moment" in each for each in run(16, met=lambda seen: bool(seen.wrong)).wrong)


def test_the_player_leaves_what_a_broker_leaves(tmp_path: Path) -> None:
    (tmp_path / "moment").write_bytes(bytes(MOMENT.size))
    with (tmp_path / "moment").open("r+b") as file, mmap.mmap(file.fileno(), MOMENT.size) as moment:
        log = LiveLog(7, tmp_path / "logs", moment)
        for _ in range(300):
            log.step()
        left = b"".join(path.read_bytes() for path in sorted(log.directory.glob("*.log")))
        batches = [each for segment in log.truth.segments[log.first : log.active] for each in segment.batches]
        batches += log.truth.segments[log.active].batches[: log.batch]
        assert left == b"".join(each.data for each in batches)
        assert log.first > 0
