"""How much each tier of the tests searches. The tier comes from ``TEST_TIER`` (``scripts/test`` sets it): quick, full or night.

In the quick and the full tier every search is the same in each run: Hypothesis derives its examples from the test, and `each_seed` gives
the same seeds. Only the night tier looks at new examples each time.
"""

import functools
import os
import random
from collections.abc import Callable, Iterable

import hypothesis
import pytest
from hypothesis import HealthCheck, settings

TIERS = ("quick", "full", "night")
TIER = os.environ.get("TEST_TIER") or "quick"
assert TIER in TIERS, f"TEST_TIER is {TIER!r}: expected one of {TIERS}"

FACTORS = {"quick": 0.1, "full": 0.3, "night": 20.0}
ROUNDS_MAX = 40
"""Rounds of a search that has to meet certain cases. Each looks at other examples, so that the last one is hardly ever begun."""

_COMMON = settings(deadline=None, suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large))
_STEADY = settings(_COMMON, derandomize=True, database=None)
for _tier in TIERS:
    settings.register_profile(_tier, _COMMON if _tier == "night" else _STEADY, max_examples=round(150 * FACTORS[_tier]))
settings.load_profile(TIER)


def scaled(count: int) -> int:
    """The number of examples in this tier, where the full tier looks at three tenths of ``count``."""
    return max(round(count * FACTORS[TIER]), 1)


EXAMPLES = 60 if TIER == "quick" else scaled(300)
"""Examples of a property of whole logs: enough that each kind of log is among them. In the quick tier this count notices each
broken rule."""
FEWER_EXAMPLES = EXAMPLES // 3 if TIER == "quick" else EXAMPLES
"""Examples of such a property in a file that `broken_rule_runs` does not need."""


def notices_broken_rules(test: Callable[..., None]) -> Callable[..., None]:
    """A property (above ``@given``) in a file that `broken_rule_runs` needs: in the quick tier twice the usual examples."""
    return settings(max_examples=EXAMPLES // 2)(test)


def by_turns(values: Iterable[object], every: int = 2, tier: str = "full") -> list[object]:
    """The values of an argument of a test: all but each ``every``-th belong to a later tier."""
    mark = getattr(pytest.mark, tier)
    return [each if number % every == 0 else pytest.param(each, marks=mark) for number, each in enumerate(values)]


def first_of(values: Iterable[object], tier: str = "full") -> list[object]:
    """Leaves the first value in the tier of the test; the others belong to ``tier``."""
    (first, *others) = values
    return [first, *(pytest.param(each, marks=getattr(pytest.mark, tier)) for each in others)]


def each_seed(
    count: int = EXAMPLES, met: Callable[[], bool] = lambda: True, start: int = 20
) -> Callable[[Callable[[int], None]], Callable[[], None]]:
    """Runs a check for ``count`` seeds of 64 bits, which are the same in each run. The seed of a failure is in its traceback.

    For checks that make everything from one number. Hypothesis could not shrink it, and how often a case is met would be up to luck.
    Where a test asserts afterwards which cases were met, the search continues until they were, up to ``ROUNDS_MAX`` times ``count``.
    Another ``start`` leads to other seeds.
    """

    def decorate(check: Callable[[int], None]) -> Callable[[], None]:
        @functools.wraps(check, assigned=("__name__", "__qualname__", "__doc__"))
        def run() -> None:
            seeds = random.Random(start)
            for number in range(count * ROUNDS_MAX):
                if number >= count and met():
                    return
                seed = seeds.getrandbits(64)
                try:
                    check(seed)
                except BaseException as error:
                    error.add_note(f"seed {seed} (number {number} from {start})")
                    raise

        del run.__wrapped__
        return run

    return decorate


def search_until(check: Callable[[], None], met: Callable[[], bool]) -> None:
    """Runs a property (a function with ``@given``) and then continues with other examples until every case was met.

    Which examples Hypothesis makes differs from version to version, so that no fixed number of them is sure to meet a rare case. The caller
    asserts afterwards what was met: after `ROUNDS_MAX` rounds the search gives up.
    """
    check()
    for number in range(ROUNDS_MAX):
        if met():
            return
        hypothesis.seed(number)(check)()
