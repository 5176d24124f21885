"""``tier audit --ledger`` under a clock that was wrong: a moment in a ledger orders nothing that the order of the runs contradicts."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from generated_stores import generated_store
from test_ledger_turns import Turns, codes, copies_of, needed_bytes, proven_of, written

from snaprebuild.findings import exit_code_of

YEAR_MS = 365 * 86_400_000
NOW_MS = 1_800_000_000_000
SetClock = Callable[[int], None]


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Sets the clock of the ledger to ms since 1970; each reading is 1 ms later."""
    now = [NOW_MS]

    def read() -> float:
        now[0] += 1
        return now[0] / 1000

    def set_to(moment_ms: int) -> None:
        now[0] = moment_ms

    monkeypatch.setattr("snaprebuild.snapshots.run.time", SimpleNamespace(time=read))
    return set_to


@pytest.fixture
def turns(tmp_path: Path) -> Turns:
    store = generated_store(3)
    return written(tmp_path, store, store.states, 0, None)


def segment_name(turns: Turns, number: int) -> str:
    return sorted(path.name for path in turns.root.rglob("*.log"))[number]


@pytest.mark.parametrize("first_ms", [NOW_MS - YEAR_MS, NOW_MS, NOW_MS + YEAR_MS])
@pytest.mark.parametrize("then_ms", [NOW_MS - YEAR_MS, NOW_MS, NOW_MS + YEAR_MS])
def test_a_failed_read_is_reported_until_the_next_good_one(set_clock: SetClock, turns: Turns, first_ms: int, then_ms: int) -> None:
    set_clock(first_ms)
    turns.turn()
    set_clock(then_ms)
    assert exit_code_of(turns.turn(fails_at=segment_name(turns, 4)).findings) == 5
    set_clock(first_ms)
    limited = turns.turn(max_read_bytes=1)
    assert exit_code_of(limited.findings) == 5
    assert proven_of(limited) < len(copies_of(limited))
    set_clock(then_ms)
    healed = turns.turn()
    assert (proven_of(healed), exit_code_of(healed.findings), codes(healed)) == (len(copies_of(healed)), 0, [])
    set_clock(first_ms)
    again = turns.turn(max_read_bytes=1)
    assert proven_of(again) == len(copies_of(again))


@pytest.mark.parametrize("ahead_ms", [YEAR_MS, 5])
def test_what_was_read_in_the_future_is_read_again(set_clock: SetClock, turns: Turns, ahead_ms: int) -> None:
    """Otherwise a year goes by without a look at it. Rounds end, and each byte is read once in each."""
    set_clock(NOW_MS + ahead_ms)
    turns.turn()
    set_clock(NOW_MS)
    for _ in range(3):
        turns.requests.clear()
        reached = 0
        while reached < 12:
            reached += 1
            audit = turns.turn(needed_bytes(turns.root))
            assert proven_of(audit) == len(copies_of(audit))
            assert audit.ledger is not None
            if not audit.ledger.due_segments:
                break
        assert reached < 12
        # A segment is opened once; its end may be read by another request.
        logs = [count for name, count in turns.requests.items() if name.endswith(".log")]
        assert len(logs) == len(copies_of(audit))
        assert max(logs) <= 2
    assert audit.ledger.since_ms is not None
    assert NOW_MS <= audit.ledger.since_ms < NOW_MS + YEAR_MS


def test_a_moment_in_the_future_is_not_shown(set_clock: SetClock, turns: Turns) -> None:
    set_clock(NOW_MS + YEAR_MS)
    turns.turn()
    set_clock(NOW_MS)
    ledger = turns.turn(max_read_bytes=1).ledger
    assert ledger is not None
    assert ledger.since_ms is not None
    assert ledger.since_ms <= NOW_MS + 1000
