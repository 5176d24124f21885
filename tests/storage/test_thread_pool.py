"""Work done by several threads: in order, bounded, and never waiting for itself."""

import threading
import time
from itertools import islice

import pytest

from snaprebuild.errors import RefusedError
from snaprebuild.storage import thread_pool


def test_results_come_in_order_and_little_is_held() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        time.sleep(0.002 * (number % 3))
        return number

    results = thread_pool.map_in_threads(work, range(200), lambda _: 20 << 20)
    for number, found in enumerate(results):
        assert found == number
        assert len(begun) <= number + 2 + thread_pool.AHEAD_BYTES_MAX // (20 << 20)
    small = thread_pool.map_in_threads(work, range(200))
    begun.clear()
    assert next(small) == 0
    assert len(begun) <= thread_pool.AHEAD_MAX + 1
    assert list(small) == list(range(1, 200))


def test_work_in_work_ends() -> None:
    """More callers than threads, each in the pool and in need of it."""
    alive: set[int] = set()

    def innermost(number: int) -> int:
        alive.add(threading.get_ident())
        return number

    def inner(number: int) -> int:
        return sum(thread_pool.map_in_threads(innermost, range(number)))

    def outer(number: int) -> int:
        return sum(thread_pool.map_in_threads(inner, range(number)))

    expected = [sum(sum(range(each)) for each in range(number)) for number in range(2 * thread_pool.THREADS)]
    assert list(thread_pool.map_in_threads(outer, range(2 * thread_pool.THREADS))) == expected
    assert len(alive) <= thread_pool.THREADS + 1


def test_what_an_item_raises_is_raised_where_it_is_due() -> None:
    done: list[int] = []

    def work(number: int) -> int:
        if number == 3:
            raise RefusedError("enough")
        time.sleep(0.001)
        done.append(number)
        return number

    results = thread_pool.map_in_threads(work, range(10_000))
    assert list(islice(results, 3)) == [0, 1, 2]
    with pytest.raises(RefusedError):
        next(results)
    assert len(done) < 100
    assert list(thread_pool.map_in_threads(abs, [-1])) == [1], "the pool goes on"
