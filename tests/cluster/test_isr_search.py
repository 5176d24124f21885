"""Random histories from three fresh brokers: without epochs they lose, with them they do not, but for the last in-sync replica."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from snaprebuild.cluster.isr_mode import Mode
from snaprebuild.cluster.isr_search import SEARCHED_VERBS, search, shortened
from snaprebuild.cluster.isr_simulator import Cluster
from snaprebuild.cluster.isr_steps import BROKERS, Cause, Step, Verb, parse_steps
from snaprebuild.cluster.isr_stories import STORIES

RUNS, STEPS, SEED = 1700, 60, 1
SAFE = (Mode.KIP_903, Mode.BUMP_LEADER_EPOCHS)


def losses_of(mode: Mode, steps: tuple[Step, ...]) -> list[Cause]:
    cluster = Cluster(mode)
    for step in steps:
        if cluster.why_not(step) is None:
            cluster.do(step)
    return [loss.cause for loss in cluster.losses]


def test_without_epochs_the_search_finds_the_race_by_itself() -> None:
    result = search(Mode.NO_EPOCHS, runs=RUNS, steps=STEPS, seed=SEED)
    found = result.found[Cause.STALE_EPOCH]
    assert result.losses[Cause.OTHER] == 0
    assert len(found.steps) <= 16
    assert losses_of(Mode.NO_EPOCHS, found.steps) == [Cause.STALE_EPOCH]
    assert losses_of(Mode.KIP_903, found.steps) == []
    for place in range(len(found.steps)):
        assert losses_of(Mode.NO_EPOCHS, found.steps[:place] + found.steps[place + 1 :]) != [Cause.STALE_EPOCH], (
            "it is not shortest"
        )


@pytest.mark.parametrize("mode", SAFE)
def test_with_epochs_it_finds_the_last_member_alone(mode: Mode) -> None:
    """The same randomness; not even a join without a loss."""
    result = search(mode, runs=RUNS, steps=STEPS, seed=SEED)
    assert result.losses[Cause.LAST_MEMBER] > 10
    assert result.losses[Cause.STALE_EPOCH] == result.losses[Cause.OTHER] == result.stale_joins == 0
    steps = result.found[Cause.LAST_MEMBER].steps
    assert losses_of(Mode.KIP_903, steps) == [Cause.LAST_MEMBER]


def test_the_same_seed_gives_the_same() -> None:
    first, second = (search(Mode.KIP_903, runs=60, steps=STEPS, seed=7) for _ in range(2))
    assert first == second
    assert first != search(Mode.KIP_903, runs=60, steps=STEPS, seed=8)


def test_what_has_nothing_to_do_with_the_loss_is_left_out() -> None:
    """The race of the KIP among other things; what is left are its own twelve steps."""
    race = STORIES["race"].steps
    noise = parse_steps(["fetch 3", "crash 3", "start 3", "hold-metadata 3"])
    history = (race[0], *noise, *race[1:])
    steps, loss = shortened(Mode.NO_EPOCHS, history, Cause.STALE_EPOCH)
    assert len(steps) <= len(race) == 12
    assert set(steps) <= {*race, *noise}
    assert loss.cause is Cause.STALE_EPOCH


class AnyHistory(RuleBasedStateMachine):
    """Any step that can happen may; each keeps what must always hold."""

    mode = Mode.KIP_903

    @initialize()
    def three_fresh_brokers(self) -> None:
        self.cluster = Cluster(self.mode)

    @invariant()
    def nothing_is_lost_but_by_the_last_member(self) -> None:
        assert [loss.cause for loss in self.cluster.losses if not loss.is_accepted] == []

    @invariant()
    def no_stale_epoch_joins(self) -> None:
        assert self.cluster.stale_joins == 0

    @invariant()
    def the_partition_is_whole(self) -> None:
        view = self.cluster.view()
        partition, brokers = view.partition, {each.broker: each for each in view.replicas}
        assert set(partition.isr) <= set(partition.replicas)
        assert partition.isr
        assert partition.leader == -1 or partition.leader in partition.isr
        if len(partition.isr) > 1:
            assert not any(brokers[each].fenced for each in partition.isr), "the fenced leave, if others remain"


def _add_rules() -> None:
    for verb in SEARCHED_VERBS:

        def possible(self: AnyHistory, verb: Verb = verb) -> bool:
            return any(self.cluster.why_not(Step(verb, broker)) is None for broker in BROKERS)

        def happens(self: AnyHistory, data: st.DataObject, verb: Verb = verb) -> None:
            can = [broker for broker in BROKERS if self.cluster.why_not(Step(verb, broker)) is None]
            self.cluster.do(Step(verb, data.draw(st.sampled_from(can))))

        happens.__name__ = verb.name.lower()
        setattr(AnyHistory, happens.__name__, precondition(possible)(rule(data=st.data())(happens)))


_add_rules()


@pytest.mark.parametrize("mode", SAFE)
def test_any_history_keeps_what_is_committed(mode: Mode) -> None:
    machine = type("AnyHistoryOf", (AnyHistory,), {"mode": mode})
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)),
    )
