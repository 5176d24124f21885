"""The smallest set of brokers equals what trying every set finds."""

import math
from collections.abc import Collection, Mapping
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from snaprebuild.cluster.fleet.restart_plan import smallest_cover

BROKERS = st.frozensets(st.integers(0, 7), min_size=1, max_size=4)
COSTS = st.lists(st.integers(0, 9), min_size=8, max_size=8)


def by_trying(partitions: Collection[frozenset[int]], costs: Mapping[int, int]) -> tuple[int, int]:
    """Size and cost of the cheapest among the smallest sets that hit every partition."""
    brokers = sorted(set().union(*partitions))
    for size in range(len(brokers) + 1):
        hits = [chosen for chosen in combinations(brokers, size) if all(not each.isdisjoint(chosen) for each in partitions)]
        if hits:
            return size, min(sum(costs[broker] for broker in chosen) for chosen in hits)
    raise AssertionError("all of them hit everything")


@given(st.lists(BROKERS, max_size=24), COSTS)
def test_as_by_trying_every_set(partitions: list[frozenset[int]], costs: list[int]) -> None:
    priced = dict(enumerate(costs))
    cover = smallest_cover(partitions, priced)
    assert cover.is_smallest
    assert cover.brokers_at_least == len(cover.brokers)
    assert all(not each.isdisjoint(cover.brokers) for each in partitions)
    assert (len(cover.brokers), sum(priced[each] for each in cover.brokers)) == by_trying(partitions, priced)


@given(st.lists(BROKERS, min_size=1, max_size=24), COSTS)
def test_the_bound_holds_where_the_search_is_ended(partitions: list[frozenset[int]], costs: list[int]) -> None:
    priced = dict(enumerate(costs))
    cover = smallest_cover(partitions, priced, work_max=0)
    smallest, _ = by_trying(partitions, priced)
    assert not cover.is_smallest
    assert all(not each.isdisjoint(cover.brokers) for each in partitions)
    assert cover.brokers_at_least <= smallest <= len(cover.brokers)
    most = max(sum(broker in each for each in set(partitions)) for broker in cover.brokers)
    assert len(cover.brokers) <= smallest * sum(1 / number for number in range(1, most + 1)) + 1e-9, "as greedy choices promise"
    assert all(any(each & set(cover.brokers) == {broker} for each in partitions) for broker in cover.brokers), "none is needless"


def test_known_ones() -> None:
    assert smallest_cover([], {}).brokers == ()
    ring = [frozenset({number, (number + 1) % 9}) for number in range(9)]
    assert len(smallest_cover(ring, dict.fromkeys(range(9), 1)).brokers) == 5, "a ring of 9 needs 5"
    every = [frozenset(each) for each in combinations(range(12), 3)]
    assert len(smallest_cover(every, dict.fromkeys(range(12), 1)).brokers) == 10, "all but two"
    # Johnson's trap for greedy choices: two rows hit everything, and the columns look better.
    columns = [frozenset({row, 2 + int(math.log2(index + 1))}) for row in (0, 1) for index in range(15)]
    assert smallest_cover(columns, dict.fromkeys(range(8), 1)).brokers == (0, 1)


def test_many_brokers_of_which_few_are_old() -> None:
    """100 brokers, of which 12 hold what was written before 2.8: exact at once."""
    old = [frozenset({number % 12, (number * 7 + 3) % 12, (number * 5 + 1) % 12}) for number in range(4000)]
    cover = smallest_cover(old, dict.fromkeys(range(100), 1))
    assert cover.is_smallest
    assert len(cover.brokers) == by_trying(set(old), dict.fromkeys(range(100), 1))[0]
