"""Random histories from three fresh brokers: without epochs they lose, with them they do not, but for the last in-sync replica."""

import random

import pytest
from budgets import scaled
from played_steps import losses_of

from snaprebuild.simulations.isr import Mode
from snaprebuild.simulations.isr.scenarios import SCENARIOS
from snaprebuild.simulations.isr.search import SearchResult, random_history, search_histories, shortened
from snaprebuild.simulations.isr.simulator import Cluster
from snaprebuild.simulations.isr.steps import ClusterStep, SimulatedLossCause, parse_steps

pytestmark = pytest.mark.full

RUNS, STEPS, SEED = 1000, 60, 1
SAFE = (Mode.KIP_903, Mode.BUMP_LEADER_EPOCHS)


def shortest_steps(result: SearchResult, cause: SimulatedLossCause) -> tuple[ClusterStep, ...]:
    (shortest,) = (each for each in result.shortest if each.loss.cause is cause)
    return parse_steps(shortest.steps)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.night), pytest.param(3, marks=pytest.mark.night)])
def test_without_epochs_the_search_finds_the_race_by_itself(seed: int) -> None:
    """With a third of the default effort."""
    result = search_histories(Mode.NO_EPOCHS, runs=RUNS, steps=STEPS, seed=seed)
    steps = shortest_steps(result, SimulatedLossCause.STALE_EPOCH)
    assert result.losses[SimulatedLossCause.OTHER] == 0
    assert len(steps) <= 20
    assert losses_of(Mode.NO_EPOCHS, steps) == [SimulatedLossCause.STALE_EPOCH]
    assert losses_of(Mode.KIP_903, steps) == []
    for place in range(len(steps)):
        assert losses_of(Mode.NO_EPOCHS, steps[:place] + steps[place + 1 :]) != [SimulatedLossCause.STALE_EPOCH], (
            "it is not shortest"
        )


@pytest.mark.parametrize("mode", SAFE)
def test_with_epochs_it_finds_the_last_member_alone(mode: Mode) -> None:
    """The randomness is that of the other modes; there is not even a join without a loss."""
    result = search_histories(mode, runs=RUNS, steps=STEPS, seed=SEED)
    assert result.losses[SimulatedLossCause.LAST_MEMBER] > 10
    assert result.losses[SimulatedLossCause.STALE_EPOCH] == result.losses[SimulatedLossCause.OTHER] == result.stale_joins == 0
    steps = shortest_steps(result, SimulatedLossCause.LAST_MEMBER)
    assert losses_of(Mode.KIP_903, steps) == [SimulatedLossCause.LAST_MEMBER]


@pytest.mark.parametrize("mode", [Mode.NO_EPOCHS, Mode.KIP_903])
def test_in_any_history_the_partition_stays_whole(mode: Mode) -> None:
    """Members of the ISR are replicas, one of them leads, and the fenced leave if others remain."""
    random_ = random.Random(SEED)
    for _ in range(scaled(200)):
        cluster = Cluster(mode)
        for _ in random_history(cluster, STEPS, random_):
            state = cluster.state()
            partition, brokers = state.partition, {each.node_id: each for each in state.brokers}
            assert partition.isr
            assert set(partition.isr) <= set(partition.replicas)
            assert partition.leader == -1 or partition.leader in partition.isr
            assert len(partition.isr) == 1 or not any(brokers[each].fenced for each in partition.isr)


def test_the_same_seed_gives_the_same() -> None:
    first, second = (search_histories(Mode.KIP_903, runs=60, steps=STEPS, seed=7) for _ in range(2))
    assert first == second
    assert first != search_histories(Mode.KIP_903, runs=60, steps=STEPS, seed=8)


def test_what_has_nothing_to_do_with_the_loss_is_left_out() -> None:
    """The race of the KIP among other things; what is left are its own twelve steps."""
    race = SCENARIOS["race"].steps
    noise = parse_steps(["fetch 3", "crash 3", "start 3", "hold-metadata 3"])
    history = (race[0], *noise, *race[1:])
    steps, loss = shortened(Mode.NO_EPOCHS, history, SimulatedLossCause.STALE_EPOCH)
    assert len(steps) <= len(race) == 12
    assert set(steps) <= {*race, *noise}
    assert loss.cause is SimulatedLossCause.STALE_EPOCH
