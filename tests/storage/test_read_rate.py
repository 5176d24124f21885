"""A budget of bytes a second, held against a clock that the tests move."""

import multiprocessing
import threading

import pytest

from snaprebuild.storage.io_limits.policy import (
    RATE_WITH_BROKER_BYTES,
    UNUSED_SECONDS_MAX,
    IoLimits,
    ReadRate,
    current_limits,
    limited_io,
)


class Clock:
    """Time that passes only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds
        self.slept += seconds


@pytest.mark.parametrize("piece", [70, 4096, 100_000])
def test_the_rate_is_kept(piece: int) -> None:
    clock = Clock()
    rate = ReadRate(10_000, clock, clock.sleep)
    taken = 0
    while taken < 300_000:
        rate.take(piece)
        taken += piece
        # A read begins when what was read before it is paid for; at the very begin a tenth of a second is free.
        assert taken - piece <= 10_000 * (clock.now - 1000.0 + UNUSED_SECONDS_MAX) + 1e-3
    # And no slower: all but the last piece, and what is free.
    assert clock.slept == pytest.approx((taken - piece) / 10_000 - UNUSED_SECONDS_MAX, abs=piece / 10_000 + 1e-3)


def test_time_that_was_not_used_is_mostly_lost() -> None:
    clock = Clock()
    rate = ReadRate(1000, clock, clock.sleep)
    rate.take(500)
    clock.now += 3600
    began = clock.now
    for _ in range(50):
        rate.take(100)
    assert clock.now - began == pytest.approx(49 * 0.1 - UNUSED_SECONDS_MAX)


def test_pieces_are_small_beside_the_rate() -> None:
    assert [ReadRate(rate).piece_bytes for rate in (1, 64 << 20, 1 << 40)] == [64 << 10, 1 << 20, 1 << 20]
    assert current_limits().piece_bytes(4 << 20) == 4 << 20
    with limited_io(IoLimits(bytes_per_second=64 << 20)) as limits:
        assert (limits.piece_bytes(4 << 20), limits.piece_bytes(10)) == (1 << 20, 10)


def test_anyone_who_shares_it_has_one_budget() -> None:
    clock = Clock()
    first, second = ReadRate(1000, clock, clock.sleep), ReadRate(1000, clock, clock.sleep)
    first.take(100)
    second.adopt(first.share(multiprocessing.get_context("spawn")))
    for _ in range(10):
        first.take(100)
        second.take(100)
    assert clock.slept == pytest.approx(20 * 0.1 - UNUSED_SECONDS_MAX)


def test_a_lock_that_no_one_gives_back_stops_no_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snaprebuild.storage.io_limits.policy.LOCK_SECONDS_MAX", 0.01)
    clock = Clock()
    rate = ReadRate(1000, clock, clock.sleep)
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with rate._lock:
            taken.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait()
    rate.take(1000)
    rate.take(1000)
    done.set()
    holder.join()
    assert clock.slept == pytest.approx(1.0 - UNUSED_SECONDS_MAX)


def test_workers_read_as_who_started_them() -> None:
    context = multiprocessing.get_context("spawn")
    asked = IoLimits(leaves_page_cache=True, bytes_per_second=5000)
    with limited_io(asked):
        shared = current_limits().share(context, 2)
    assert current_limits().io == IoLimits()
    with limited_io(IoLimits()):
        current_limits().adopt(shared)
        assert current_limits().io == asked
        assert current_limits().share(context, 2)[1] is shared[1]
    assert current_limits().io == IoLimits()
    assert current_limits().share(context, 2) == (IoLimits(), None)


def test_what_is_left_open_is_settled_next_to_a_broker() -> None:
    open_ = IoLimits(adapts_to_broker=True, priority_is_automatic=True)
    assert open_.with_live_broker(3) == IoLimits(bytes_per_second=3 * RATE_WITH_BROKER_BYTES, at_idle_priority=True)
    assert open_.with_live_broker(0).bytes_per_second == RATE_WITH_BROKER_BYTES
    asked = IoLimits(adapts_to_broker=True, bytes_per_second=7)
    assert asked.with_live_broker(3) == IoLimits(bytes_per_second=7)
    assert IoLimits().with_live_broker(3) == IoLimits()


def test_who_cannot_share_has_a_part() -> None:
    whole = IoLimits(leaves_page_cache=True, bytes_per_second=1000, at_idle_priority=True, readers_per_disk=2)
    assert whole.share_of(8) == IoLimits(leaves_page_cache=True, bytes_per_second=125)
    assert whole.share_of(5000).bytes_per_second == 1
    assert IoLimits().share_of(8) == IoLimits()
