"""The scenarios of KIP-903: what is lost under which mode, and what the controller says.

What is expected is the KIP's own account of the race and of its alternatives, and the table of variants that follows from it.
"""

from typing import Any

import pytest

from snaprebuild.simulations.isr import Mode
from snaprebuild.simulations.isr.scenarios import SCENARIOS, SimulatedStep, play
from snaprebuild.simulations.isr.simulator import Cluster
from snaprebuild.simulations.isr.steps import (
    NO_BROKER,
    STEPS_MAX,
    ClusterStep,
    SimulatedLossCause,
    StepError,
    StepVerb,
    parse_steps,
)

NO, KIP, METADATA, BUMP = Mode.NO_EPOCHS, Mode.KIP_903, Mode.EPOCHS_FROM_METADATA, Mode.BUMP_LEADER_EPOCHS
STALE, LAST = SimulatedLossCause.STALE_EPOCH, SimulatedLossCause.LAST_MEMBER

# Scenario, and for each mode the cause of a loss, and what the controller refused the request of the race with.
OUTCOMES: dict[str, dict[Mode, tuple[SimulatedLossCause | None, str | None]]] = {
    "race": {
        NO: (STALE, None),
        KIP: (None, "INELIGIBLE_REPLICA"),
        METADATA: (None, "INELIGIBLE_REPLICA"),
        BUMP: (None, "FENCED_LEADER_EPOCH"),
    },
    "before-fencing": dict.fromkeys(Mode, (None, None)),
    "while-fenced": {**dict.fromkeys(Mode, (None, "INELIGIBLE_REPLICA")), BUMP: (None, "FENCED_LEADER_EPOCH")},
    "after-new-fetch": dict.fromkeys(Mode, (None, None)),
    # -1 passes with the KIP, too: a follower of an older version is not protected.
    "no-epoch-in-fetch": {NO: (STALE, None), KIP: (STALE, None)},
    "last-member": dict.fromkeys(Mode, (LAST, None)),
    # The leader asks with the epoch that it knows, which is past.
    "metadata-lag": {**dict.fromkeys(Mode, (None, None)), METADATA: (None, "INELIGIBLE_REPLICA")},
    # Why the epoch must be that of the Fetch: metadata know the new process when the old one's request arrives.
    "late-fetch": {NO: (STALE, None), KIP: (None, None), METADATA: (STALE, None), BUMP: (None, None)},
    "lost-tail": {NO: (STALE, None), KIP: (None, "INELIGIBLE_REPLICA")},
    "clean-restart": {NO: (None, None), KIP: (None, "INELIGIBLE_REPLICA")},
    "session-alive": {NO: (STALE, None), KIP: (None, "INELIGIBLE_REPLICA")},
    "third-in-sync": {NO: (STALE, None), KIP: (None, "INELIGIBLE_REPLICA")},
    "controller-fails": {NO: (STALE, None), KIP: (None, "INELIGIBLE_REPLICA"), BUMP: (None, "FENCED_LEADER_EPOCH")},
    "shutting-down": dict.fromkeys(Mode, (None, "INELIGIBLE_REPLICA")),
}


def played(scenario: str, mode: Mode) -> tuple[Cluster, list[SimulatedStep]]:
    cluster = Cluster(mode, reports=True)
    return cluster, list(play(cluster, SCENARIOS[scenario].steps))


def after(mode: Mode, *steps: str, **options: Any) -> Cluster:
    """Three fresh brokers, and what happened then."""
    cluster = Cluster(mode, **options)
    for step in parse_steps(steps):
        cluster.do(step)
    return cluster


def test_a_scenario_has_an_end() -> None:
    """Results of each step are kept: 256 KiB of steps took 190 MiB, and a minute."""
    steps = ["produce 1", "fetch 2", "# and again"] * (STEPS_MAX // 2)
    assert len(parse_steps(steps)) == STEPS_MAX
    with pytest.raises(StepError, match="step 1001, produce 1: more than 1000 steps"):
        parse_steps([*steps, "produce 1"])


def test_every_scenario_is_expected() -> None:
    assert OUTCOMES.keys() == SCENARIOS.keys()


@pytest.mark.parametrize(("scenario", "mode"), [(scenario, mode) for scenario, modes in OUTCOMES.items() for mode in modes])
def test_what_is_lost(scenario: str, mode: Mode) -> None:
    cause, error = OUTCOMES[scenario][mode]
    cluster, scenes = played(scenario, mode)
    assert [loss.cause for loss in cluster.losses] == ([] if cause is None else [cause])
    assert [loss.is_accepted for loss in cluster.losses] == ([] if cause is None else [cause is LAST])
    refused = [text.split(":")[0].rsplit(maxsplit=1)[1] for scene in scenes for text in scene.effects if "refuses it" in text]
    assert refused == ([] if error is None else [error])


def test_the_race_step_by_step() -> None:
    """KIP-903's list: the request is late, the replica fails, its disk is replaced, it registers anew, the request arrives."""
    cluster, scenes = played("race", NO)
    assert all(scene.happened for scene in scenes)
    by_step = {scene.step: scene for scene in scenes}
    assert by_step["fetch 2"].isr == (1,)
    assert by_step["fetch 2"].pending_messages == ("AlterPartition of broker 1 (in sync: 1, 2)",)
    registered = by_step["start 2"].brokers[1]
    assert (registered.fenced, registered.log_end_offset) == (True, 0)
    assert registered.epoch > by_step["fetch 2"].brokers[1].epoch
    arrived = [scene for scene in scenes if scene.step == "deliver-alter 1"][-1]
    assert arrived.isr == (1, 2)
    (loss,) = cluster.losses
    assert (loss.leader, loss.first_offset, loss.records) == (2, 0, (1,))


def test_with_epochs_the_request_names_those_of_the_fetches() -> None:
    _, scenes = played("race", KIP)
    (held,) = next(scene.pending_messages for scene in scenes if scene.step == "fetch 2")
    epochs = {broker.node_id: broker.epoch for broker in scenes[0].brokers}
    assert held == f"AlterPartition of broker 1 (in sync: 1 with epoch {epochs[1]}, 2 with epoch {epochs[2]})"


def test_before_fencing_it_joins_and_leaves_when_it_is_fenced() -> None:
    _, scenes = played("before-fencing", KIP)
    isrs = [scene.isr for scene in scenes]
    fenced = next(number for number, scene in enumerate(scenes) if scene.step == "fence 2")
    assert isrs[fenced - 1] == (1, 2)
    assert isrs[fenced] == (1,)


def test_metadata_lag_the_leader_does_not_ask() -> None:
    """It asks only when the epoch of the Fetch is that of its metadata."""
    _, scenes = played("metadata-lag", KIP)
    texts = [(scene.step, scene.pending_messages) for scene in scenes]
    asked = [(step, held) for step, held in texts if any("AlterPartition" in each and "2 with" in each for each in held)]
    assert [step for step, _ in asked] == ["fetch 2"]
    first, second = (held for step, held in texts if step == "fetch 2")
    assert "metadata for broker 1" in first
    assert not any("AlterPartition" in each for each in first)
    assert any("AlterPartition" in each for each in second)


def test_bump_costs_an_epoch_each_time_a_broker_registers() -> None:
    """This speaks against the alternative: a leader that has nothing to do with it has to begin anew."""
    plain, raised = (after(mode, "crash 3", "fence 3", "start 3", "unfence 3").state().partition for mode in (KIP, BUMP))
    assert (plain.leader, plain.leader_epoch) == (1, 0)
    assert (raised.leader, raised.leader_epoch) == (1, 1)


def test_with_min_insync_replicas_nothing_is_committed_by_too_few() -> None:
    """``Partition``: no record is taken and the high watermark does not advance while fewer are in sync than are wanted."""
    cluster = after(KIP, "produce 1", "shrink 1", "deliver-alter 1", min_insync_replicas=2)
    assert (cluster.state().partition.isr, cluster.state().committed) == ((1,), 0)
    assert "NOT_ENOUGH_REPLICAS" in (cluster.prevention(ClusterStep(StepVerb.PRODUCE, 1)) or "")
    cluster.do(ClusterStep(StepVerb.FETCH, 2))
    assert cluster.state().committed == 0, "a replica that is only asked for does not count"
    cluster.do(ClusterStep(StepVerb.DELIVER_ALTER, 1))
    assert (cluster.state().partition.isr, cluster.state().committed) == ((1, 2), 1)
    assert cluster.prevention(ClusterStep(StepVerb.PRODUCE, 1)) is None


@pytest.mark.parametrize("scenario", ["race", "third-in-sync"])
def test_min_insync_replicas_do_not_help(scenario: str) -> None:
    """The leader counts what the process before had fetched, and the first of the replicas is elected."""
    for mode, causes in ((NO, [STALE]), (KIP, [])):
        cluster = Cluster(mode, min_insync_replicas=2)
        for _ in play(cluster, SCENARIOS[scenario].steps):
            pass
        assert [loss.cause for loss in cluster.losses] == causes


def test_a_new_controller_gives_sessions_to_each_that_is_not_fenced() -> None:
    """``ClusterControlManager.activate``: a dead one has one, too, and its next process waits for the end of it; a fenced one has none."""
    cluster = after(KIP, "crash 2", "expire 2", "crash 3", "fence 3", "fail-over", "start 2", "start 3")
    registered = {each.node_id: each.epoch for each in cluster.state().brokers}
    assert registered[2] == 2, "the old one"
    assert registered[3] > 3
    cluster.do(ClusterStep(StepVerb.EXPIRE, 2))
    assert cluster.state().brokers[1].epoch > 3


def test_a_request_whose_answer_is_lost_with_its_controller_is_sent_again() -> None:
    """``AlterPartitionManager`` keeps what it asked for until there is an answer. The next controller knows that it was done."""
    cluster = after(KIP, "produce 1", "hold-metadata 1", "shrink 1", "deliver-alter 1", reports=True)
    assert (cluster.state().partition.isr, cluster.state().pending_messages) == ((1,), ("metadata for broker 1",))
    cluster.do(ClusterStep(StepVerb.FAIL_OVER, NO_BROKER))
    assert cluster.state().pending_messages == ("AlterPartition of broker 1 (in sync: 1 with epoch 1)", "metadata for broker 1")
    cluster.do(ClusterStep(StepVerb.DELIVER_ALTER, 1))
    assert any("INVALID_UPDATE_VERSION" in text for text in cluster.effects)
    cluster.do(ClusterStep(StepVerb.RELEASE_METADATA, 1))
    assert cluster.state().committed == 1


def test_what_a_dead_broker_sent_is_lost_with_the_controller() -> None:
    """No one is left who would send it again."""
    assert after(KIP, "produce 1", "shrink 1", "crash 1", "fail-over").state().pending_messages == ()


@pytest.mark.parametrize("line", ["fail-over 1", "produce", "produce 4", "explode 1", "produce 1 2"])
def test_a_line_that_is_no_step(line: str) -> None:
    with pytest.raises(StepError, match=r"step 2, .*expected VERB BROKER"):
        parse_steps(["fetch 2  # fine", "", line])
