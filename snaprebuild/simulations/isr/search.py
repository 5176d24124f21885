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

from snaprebuild.published import Natural, Part, Positive
from snaprebuild.simulations.isr import Mode
from snaprebuild.simulations.isr.simulator import Cluster
from snaprebuild.simulations.isr.steps import (
    BROKERS,
    POSSIBLE_STEPS,
    ClusterStep,
    Danger,
    SimulatedLoss,
    SimulatedLossCause,
    StepVerb,
)

__all__ = ["SEARCHED_VERBS", "SearchResult", "ShortestHistory", "random_history", "search_histories", "shortened"]

FAULTS = (
    StepVerb.HOLD_FETCHES,
    StepVerb.HOLD_METADATA,
    StepVerb.CRASH,
    StepVerb.SHUT_DOWN,
    StepVerb.LOSE_TAIL,
    StepVerb.REPLACE_DISK,
    StepVerb.EXPIRE,
    StepVerb.FAIL_OVER,
)
"""Steps that do not happen by themselves as long as all is well."""

SEARCHED_VERBS = tuple(verb for verb in StepVerb if verb is not StepVerb.OLD_FETCH)
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


class ShortestHistory(Part, frozen=True):
    """A history with a loss."""

    number: Natural
    """Number of the random history, from 0."""
    length: Positive
    """Steps until the loss."""
    steps: tuple[str, ...]
    """The shortened history, as --scenario reads it."""
    loss: SimulatedLoss


class SearchResult(Part, frozen=True):
    """A search under a mode."""

    mode: Mode
    """How broker epochs are sent."""
    histories: Natural
    """Number of histories, with the continuations."""
    steps: Natural
    """Steps of all of them."""
    stale_joins: Natural
    """How often a replica joined because of fetches of its earlier process."""
    losses: dict[SimulatedLossCause, Natural]
    """Histories with a loss, by cause."""
    shortest: tuple[ShortestHistory, ...]
    """The shortest for each cause."""


@dataclass(slots=True)
class _SearchTotals:
    """Counts histories, and keeps the shortest loss of each cause."""

    mode: Mode
    min_insync_replicas: int
    histories: int = 0
    steps: int = 0
    stale_joins: int = 0
    losses: dict[SimulatedLossCause, int] = field(default_factory=lambda: dict.fromkeys(SimulatedLossCause, 0))
    shortest: dict[SimulatedLossCause, ShortestHistory] = field(default_factory=dict)

    def take(self, run: int, cluster: Cluster, history: Sequence[ClusterStep], *, already: int = 0) -> None:
        """Counts a history, and shortens it if it is one of the first with a loss."""
        self.histories += 1
        self.steps += len(history) - already
        self.stale_joins += 0 if already else cluster.stale_joins
        if not cluster.losses:
            return
        cause = cluster.losses[0].cause
        self.losses[cause] += 1
        if self.losses[cause] <= SHORTENED_MAX:
            steps, loss = shortened(self.mode, history, cause, min_insync_replicas=self.min_insync_replicas)
            old = self.shortest.get(cause)
            if old is None or len(steps) < len(old.steps):
                self.shortest[cause] = ShortestHistory(run, len(history), tuple(map(str, steps)), loss)

    def result(self) -> SearchResult:
        """The search so far."""
        return SearchResult(
            mode=self.mode,
            histories=self.histories,
            steps=self.steps,
            stale_joins=self.stale_joins,
            losses=self.losses,
            shortest=tuple(self.shortest.values()),
        )


def random_history(cluster: Cluster, length: int, random_: random.Random) -> Iterator[ClusterStep]:
    """Lets random steps happen, and yields each."""
    steps, weights = _weather(random_)
    drawn: Iterator[ClusterStep] = iter(())
    for _ in range(length):
        for _ in range(_DRAWS_MAX):
            step = next(drawn, None)
            if step is None:
                drawn = iter(random_.choices(steps, cum_weights=weights, k=_DRAWN_AT_ONCE))
            elif cluster.prevention(step) is None:
                break
        else:
            return  # what could happen is not of this history
        assert step is not None
        cluster.do(step)
        yield step


def _weather(random_: random.Random) -> tuple[list[ClusterStep], list[float]]:
    """The steps of a history, and how likely each is, added up."""
    absent = {verb for verb in FAULTS if random_.random() < 0.5}
    pace: dict[StepVerb, float] = {
        verb: 2 ** random_.uniform(-PACE, PACE) * (FAULT_PACE if verb in FAULTS else 1) for verb in SEARCHED_VERBS
    }
    pace[StepVerb.DELIVER_ALTER] /= 2 ** random_.uniform(0, LATENESS)
    unreliable = {broker: 2 ** random_.uniform(-RELIABILITY, RELIABILITY) for broker in BROKERS}
    mean = sum(unreliable.values()) / len(BROKERS)
    steps = [step for step in POSSIBLE_STEPS if step.verb in pace and step.verb not in absent]
    weights = [pace[step.verb] * (unreliable.get(step.broker, 1) / mean if step.verb in FAULTS else 1) for step in steps]
    return steps, list(accumulate(weights))


def search_histories(mode: Mode, *, runs: int, steps: int, seed: int, min_insync_replicas: int = 1) -> SearchResult:
    """Searches random histories for losses.

    Args:
        mode: of epochs.
        runs: histories.
        steps: of each; it ends with the first loss.
        seed: of the randomness; the same gives the same.
        min_insync_replicas: of the topic, 1 to 3.
    """
    random_ = random.Random(seed)  # noqa: S311  no secret
    totals = _SearchTotals(mode, min_insync_replicas)
    fresh = partial(Cluster, mode, min_insync_replicas=min_insync_replicas)
    for run in range(runs):
        # Histories to be gone on with: what happened so far, and the danger that it is in.
        begun: list[tuple[list[ClusterStep], Danger]] = [([], Danger.NONE)]
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
            totals.take(run, cluster, history, already=len(before))
    return totals.result()


def shortened(
    mode: Mode, history: Sequence[ClusterStep], cause: SimulatedLossCause, *, min_insync_replicas: int = 1
) -> tuple[tuple[ClusterStep, ...], SimulatedLoss]:
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


def _without_runs(history: Sequence[ClusterStep], size: int) -> Iterator[Sequence[ClusterStep]]:
    """The history without each run of ``size`` steps, the last run first."""
    for start in range(len(history) - 1, -1, -size):
        yield (*history[: max(0, start - size + 1)], *history[start + 1 :])


def _without_pairs(history: Sequence[ClusterStep]) -> Iterator[Sequence[ClusterStep]]:
    for left_out in combinations(range(len(history)), 2):
        yield [step for place, step in enumerate(history) if place not in left_out]


def _first_losing(
    fresh: Callable[[], Cluster], histories: Iterator[Sequence[ClusterStep]], cause: SimulatedLossCause
) -> tuple[tuple[ClusterStep, ...], SimulatedLoss] | None:
    return next((lost for history in histories if (lost := _replayed(fresh, history, cause)) is not None), None)


def _replayed(
    fresh: Callable[[], Cluster], history: Sequence[ClusterStep], cause: SimulatedLossCause
) -> tuple[tuple[ClusterStep, ...], SimulatedLoss] | None:
    """The steps of a history that can happen, up to a loss for a cause; None if it has none, or another one before."""
    cluster = fresh()
    happened = []
    for step in history:
        if cluster.prevention(step) is not None:
            continue
        cluster.do(step)
        happened.append(step)
        if cluster.losses:
            loss = cluster.losses[-1]
            return (tuple(happened), loss) if loss.cause is cause else None
    return None
