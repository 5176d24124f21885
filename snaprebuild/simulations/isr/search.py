"""Random histories of the simulated cluster, and the shortest one of them that loses committed records.

Each step of a history is drawn from all that can happen at that moment. Histories differ as clusters do. A history has some of the faults
and not others. Each kind of step is rare or frequent, requests of leaders take longer or not, and some brokers are less reliable than
others. A history that comes into danger (``Danger``) is continued in several ways from there, each with its own probabilities: few of them
lose. Nothing else leads towards a loss.

A history that loses is shortened as long as it still loses for the same cause (delta debugging). Steps are left out: first many together,
then each one, then each two. A step that cannot happen any more is removed, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, combinations

from snaprebuild.simulations.isr import Mode
from snaprebuild.simulations.isr.simulator import Cluster
from snaprebuild.simulations.isr.steps import BROKERS, POSSIBLE_STEPS, Cause, Danger, Loss, Step, Verb

__all__ = ["SEARCHED_VERBS", "Found", "SearchResult", "random_history", "search", "shortened"]

FAULTS = (
    Verb.HOLD_FETCHES,
    Verb.HOLD_METADATA,
    Verb.CRASH,
    Verb.SHUT_DOWN,
    Verb.LOSE_TAIL,
    Verb.REPLACE_DISK,
    Verb.EXPIRE,
    Verb.FAIL_OVER,
)
"""Steps that do not happen by themselves as long as all is well."""

SEARCHED_VERBS = tuple(verb for verb in Verb if verb is not Verb.OLD_FETCH)
"""All but what makes a broker one of before the KIP."""

PACE = 2
"""Power of two: in a history each kind of step is at most 2^PACE times as frequent, or as rare, as in the mean."""

FAULT_PACE = 0.3
"""Faults are rarer than all else by that."""

LATENESS = 5
"""Power of two: in a history AlterPartition requests take at most 2^LATENESS times as long."""

RELIABILITY = 3
"""Power of two: a broker has at most 2^RELIABILITY times as many, or as few, faults as if all had the same."""

CONTINUATIONS = {Danger.OUTDATED: 5, Danger.THIN: 20}
"""How many times a history is continued from the first moment of each danger."""

SHORTENED_MAX = 5
"""Histories that are shortened for each cause; the shortest result counts."""

PAIRS_MAX = 40
"""Steps of a history of which any two are tried to be left out."""

_DRAWN_AT_ONCE = 64
_DRAWS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Found:
    """A history that loses.

    Attributes:
        run: number of the random history, from 0.
        length: its steps until the loss.
        steps: the shortened history.
        loss: at its end.
    """

    run: int
    length: int
    steps: tuple[Step, ...]
    loss: Loss


@dataclass(slots=True)
class SearchResult:
    """The result of a search.

    Attributes:
        mode: of epochs.
        min_insync_replicas: of the topic.
        histories: how many there were, continuations included.
        steps: of all of them.
        losses: how many histories lost, by cause.
        stale_joins: how often a replica joined for what an earlier process of it had fetched, with or without a loss.
        found: the shortest loss for each cause.
    """

    mode: Mode
    min_insync_replicas: int = 1
    histories: int = 0
    steps: int = 0
    losses: dict[Cause, int] = field(default_factory=lambda: dict.fromkeys(Cause, 0))
    stale_joins: int = 0
    found: dict[Cause, Found] = field(default_factory=dict)

    def take(self, run: int, cluster: Cluster, history: Sequence[Step], *, already: int = 0) -> None:
        """Counts a history, and shortens it where it loses and is one of the first that do."""
        self.histories += 1
        self.steps += len(history) - already
        self.stale_joins += 0 if already else cluster.stale_joins
        if not cluster.losses:
            return
        cause = cluster.losses[0].cause
        self.losses[cause] += 1
        if self.losses[cause] <= SHORTENED_MAX:
            short = shortened(self.mode, history, cause, min_insync_replicas=self.min_insync_replicas)
            new = Found(run, len(history), *short)
            old = self.found.get(cause)
            if old is None or len(new.steps) < len(old.steps):
                self.found[cause] = new


def random_history(cluster: Cluster, length: int, random_: random.Random) -> Iterator[Step]:
    """Lets random steps happen, and yields each."""
    steps, weights = _weather(random_)
    drawn: Iterator[Step] = iter(())
    for _ in range(length):
        for _ in range(_DRAWS_MAX):
            step = next(drawn, None)
            if step is None:
                drawn = iter(random_.choices(steps, cum_weights=weights, k=_DRAWN_AT_ONCE))
            elif cluster.why_not(step) is None:
                break
        else:
            return  # what could happen is not of this history
        assert step is not None
        cluster.do(step)
        yield step


def _weather(random_: random.Random) -> tuple[list[Step], list[float]]:
    """The steps of a history, and how likely each is, added up."""
    absent = {verb for verb in FAULTS if random_.random() < 0.5}
    pace: dict[Verb, float] = {
        verb: 2 ** random_.uniform(-PACE, PACE) * (FAULT_PACE if verb in FAULTS else 1) for verb in SEARCHED_VERBS
    }
    pace[Verb.DELIVER_ALTER] /= 2 ** random_.uniform(0, LATENESS)
    unreliable = {broker: 2 ** random_.uniform(-RELIABILITY, RELIABILITY) for broker in BROKERS}
    mean = sum(unreliable.values()) / len(BROKERS)
    steps = [step for step in POSSIBLE_STEPS if step.verb in pace and step.verb not in absent]
    weights = [pace[step.verb] * (unreliable.get(step.broker, 1) / mean if step.verb in FAULTS else 1) for step in steps]
    return steps, list(accumulate(weights))


def search(mode: Mode, *, runs: int, steps: int, seed: int, min_insync_replicas: int = 1) -> SearchResult:
    """Looks for losses in random histories.

    Args:
        mode: of epochs.
        runs: histories.
        steps: of each; it ends with the first loss.
        seed: of the randomness; the same gives the same.
        min_insync_replicas: of the topic, 1 to 3.
    """
    random_ = random.Random(seed)  # noqa: S311  no secret
    result = SearchResult(mode, min_insync_replicas)
    fresh = partial(Cluster, mode, min_insync_replicas=min_insync_replicas)
    for run in range(runs):
        # Histories to be gone on with: what happened so far, and the danger that it is in.
        begun: list[tuple[list[Step], Danger]] = [([], Danger.NONE)]
        while begun:
            before, danger = begun.pop()
            cluster = fresh()
            history = list(before)
            for step in before:
                cluster.do(step)
            for step in random_history(cluster, steps - len(before), random_):
                history.append(step)
                if cluster.losses:
                    break
                if cluster.danger > danger:
                    danger = cluster.danger
                    begun += [(list(history), danger)] * CONTINUATIONS[danger]
            result.take(run, cluster, history, already=len(before))
    return result


def shortened(mode: Mode, history: Sequence[Step], cause: Cause, *, min_insync_replicas: int = 1) -> tuple[tuple[Step, ...], Loss]:
    """A history that loses for the same cause, of which no step and no two steps can be left out, and what it loses.

    Args:
        mode: of epochs.
        history: that loses for the cause.
        cause: of the loss.
        min_insync_replicas: of the topic.
    """
    fresh = partial(Cluster, mode, min_insync_replicas=min_insync_replicas)
    best = _replayed(fresh, history, cause)
    assert best is not None
    size = len(best[0]) // 2
    while size:
        shorter = _first_losing(fresh, _without_runs(best[0], size), cause)
        best, size = (best, size // 2) if shorter is None else (shorter, size)
    while len(best[0]) <= PAIRS_MAX:
        shorter = _first_losing(fresh, _without_pairs(best[0]), cause)
        if shorter is None:
            break
        best = shorter
    return best


def _without_runs(history: Sequence[Step], size: int) -> Iterator[Sequence[Step]]:
    """The history without each run of ``size`` steps, the last run first."""
    for start in range(len(history) - 1, -1, -size):
        yield (*history[: max(0, start - size + 1)], *history[start + 1 :])


def _without_pairs(history: Sequence[Step]) -> Iterator[Sequence[Step]]:
    for left_out in combinations(range(len(history)), 2):
        yield [step for place, step in enumerate(history) if place not in left_out]


def _first_losing(
    fresh: Callable[[], Cluster], histories: Iterator[Sequence[Step]], cause: Cause
) -> tuple[tuple[Step, ...], Loss] | None:
    return next((lost for each in histories if (lost := _replayed(fresh, each, cause)) is not None), None)


def _replayed(fresh: Callable[[], Cluster], history: Sequence[Step], cause: Cause) -> tuple[tuple[Step, ...], Loss] | None:
    """The steps of a history that can happen, up to a loss for a cause; None if it has none, or another one before."""
    cluster = fresh()
    happened = []
    for step in history:
        if cluster.why_not(step) is not None:
            continue
        cluster.do(step)
        happened.append(step)
        if cluster.losses:
            loss = cluster.losses[-1]
            return (tuple(happened), loss) if loss.cause is cause else None
    return None
