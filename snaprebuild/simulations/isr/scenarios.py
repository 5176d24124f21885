"""``simulate isr``: scenarios of KIP-903 as steps of the simulated cluster, played under modes of epochs, and their findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from formats import limits
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.published import Natural, Part, Positive
from snaprebuild.simulations.isr import Mode
from snaprebuild.simulations.isr.messages import MessageLog, SimulatedMessage
from snaprebuild.simulations.isr.search import SearchResult
from snaprebuild.simulations.isr.simulator import Cluster
from snaprebuild.simulations.isr.steps import ClusterStep, SimulatedBroker, SimulatedLoss, StepError, parse_steps
from snaprebuild.storage.local.regular_file import read_small_file

__all__ = [
    "SCENARIOS",
    "IsrScenario",
    "PlayedScenario",
    "SimulatedStep",
    "play",
    "play_scenarios",
    "read_scenario",
    "scenario_findings",
    "search_findings",
]


@dataclass(frozen=True, slots=True)
class IsrScenario:
    """Steps with a name.

    Attributes:
        name: words joined by dashes.
        title: one sentence.
        text: the steps, one a line.
    """

    name: str
    title: str
    text: str

    @property
    def steps(self) -> tuple[ClusterStep, ...]:
        """The steps."""
        return parse_steps(self.text.splitlines())


class SimulatedStep(Part, frozen=True):
    """A step, and the cluster after it."""

    number: Positive
    """From 1."""
    step: str
    """Action and broker."""
    happened: bool
    """False: it was not possible."""
    effects: tuple[str, ...]
    """One sentence each; not stable. For a step that was not possible: the reason."""
    isr: tuple[int, ...]
    """In-sync replicas of the controller."""
    leader: int
    """Broker id, or -1."""
    leader_epoch: int
    partition_epoch: int
    committed: Natural
    """Committed records."""
    pending_messages: tuple[str, ...]
    """Messages that have not arrived."""
    brokers: tuple[SimulatedBroker, ...]
    messages: tuple[SimulatedMessage, ...] = ()
    """Requests and responses, in the order in which they are sent; none without `--show-messages`."""


ALONE = """
produce 1
shrink 1            # 2 and 3 have not fetched it
deliver-alter 1     # broker 1 is in sync alone
"""

THIRD_IN_SYNC = """
produce 1
fetch 3
shrink 1            # 2 has not fetched it
deliver-alter 1
"""

CATCHES_UP = """
fetch 2             # broker 2 has caught up: broker 1 asks for it to join, and the request is late
"""

NEW_DISK = """
crash 2
replace-disk 2
"""

NEW_PROCESS = """
fence 2
start 2
unfence 2
"""

LEADER_GONE = """
crash 1
fence 1
"""

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        IsrScenario(
            "race",
            "A replica comes back with an empty disk before the request that it may join arrives (KIP-903, KAFKA-14139).",
            ALONE + CATCHES_UP + NEW_DISK + NEW_PROCESS + "deliver-alter 1\n" + LEADER_GONE,
        ),
        IsrScenario(
            "before-fencing",
            "The request arrives while the broker is down and not yet fenced: it joins, and leaves when it is fenced.",
            ALONE + CATCHES_UP + NEW_DISK + "deliver-alter 1\n" + NEW_PROCESS + "fetch 2\ndeliver-alter 1\n" + LEADER_GONE,
        ),
        IsrScenario(
            "while-fenced",
            "The request arrives between fencing and unfencing: no fenced broker may join, with epochs or without.",
            ALONE + CATCHES_UP + NEW_DISK + "fence 2\nstart 2\ndeliver-alter 1\nunfence 2\n" + LEADER_GONE,
        ),
        IsrScenario(
            "after-new-fetch",
            "The new process catches up and joins with its own epoch.",
            "produce 1\nfetch 2\nshrink 1\ndeliver-alter 1\n" + NEW_DISK + NEW_PROCESS + "fetch 2\ndeliver-alter 1\n" + LEADER_GONE,
        ),
        IsrScenario(
            "no-epoch-in-fetch",
            "The follower fetches as before version 15: its epoch is -1, which passes every check.",
            "old-fetch 2\n" + ALONE + CATCHES_UP + NEW_DISK + NEW_PROCESS + "deliver-alter 1\n" + LEADER_GONE,
        ),
        IsrScenario(
            "last-member",
            "The only one in sync comes back with an empty disk: it stays in sync and leads, which the KIP accepts.",
            ALONE + "crash 1\nreplace-disk 1\nfence 1\nstart 1\nunfence 1\n",
        ),
        IsrScenario(
            "metadata-lag",
            "The leader does not know of the new process yet, so the epoch of its Fetch shows nothing. It asks when it knows.",
            ALONE
            + "hold-metadata 1\ncrash 2\n"
            + NEW_PROCESS
            + "fetch 2\nrelease-metadata 1\nfetch 2\ndeliver-alter 1\n"
            + LEADER_GONE,
        ),
        IsrScenario(
            "late-fetch",
            "A Fetch of the old process arrives late: the epoch that the metadata have by then is not that of who fetched.",
            "produce 1\nfetch 2\nshrink 1\ndeliver-alter 1\nhold-fetches 2\nfetch 2\n"
            + NEW_DISK
            + NEW_PROCESS
            + "release-fetches 2\ndeliver-alter 1\n"
            + LEADER_GONE,
        ),
        IsrScenario(
            "lost-tail",
            "The broker loses no disk but what was not flushed: the same race.",
            ALONE + CATCHES_UP + "crash 2\nlose-tail 2\n" + NEW_PROCESS + "deliver-alter 1\n" + LEADER_GONE,
        ),
        IsrScenario(
            "clean-restart",
            "The broker stops cleanly and keeps its log: the request by its old epoch is refused although nothing would be lost.",
            ALONE
            + CATCHES_UP
            + "shut-down 2\nstop 2\nstart 2\nunfence 2\ndeliver-alter 1\nfetch 2\ndeliver-alter 1\n"
            + LEADER_GONE,
        ),
        IsrScenario(
            "session-alive",
            "The broker is back before its session has ended, and registers when it has, without being fenced: the same race.",
            ALONE + CATCHES_UP + NEW_DISK + "start 2\nexpire 2\nunfence 2\ndeliver-alter 1\n" + LEADER_GONE,
        ),
        IsrScenario(
            "third-in-sync",
            "A third replica is in sync and has the record, as min.insync.replicas 2 asks for: it follows the one that lost its disk.",
            THIRD_IN_SYNC + CATCHES_UP + NEW_DISK + NEW_PROCESS + "deliver-alter 1\n" + LEADER_GONE,
        ),
        IsrScenario(
            "controller-fails",
            "The controller fails while the request is late: it is sent again to the next one, as it was. The same race.",
            ALONE + CATCHES_UP + NEW_DISK + NEW_PROCESS + "fail-over\ndeliver-alter 1\n" + LEADER_GONE,
        ),
        IsrScenario(
            "shutting-down",
            "The request arrives while the broker shuts down: a broker that shuts down may not join.",
            ALONE + CATCHES_UP + "shut-down 2\ndeliver-alter 1\nstop 2\n" + LEADER_GONE,
        ),
    )
}
"""By name, in the order in which they are shown."""


def play(cluster: Cluster, steps: Iterable[ClusterStep]) -> Iterator[SimulatedStep]:
    """Lets steps happen, one by one. A step that needs a message that only another mode sends is reported and left out."""
    for number, step in enumerate(steps, 1):
        prevention = cluster.prevention(step)
        effects: tuple[str, ...] = (f"cannot happen: {prevention}",)
        messages: tuple[SimulatedMessage, ...] = ()
        if prevention is None:
            cluster.do(step)
            effects = tuple(cluster.effects)
            if cluster.messages is not None:
                messages = tuple(each.published() for each in cluster.messages.sent)
        state = cluster.state()
        yield SimulatedStep(
            number=number,
            step=str(step),
            happened=prevention is None,
            effects=effects,
            isr=state.partition.isr,
            leader=state.partition.leader,
            leader_epoch=state.partition.leader_epoch,
            partition_epoch=state.partition.partition_epoch,
            committed=state.committed,
            pending_messages=state.pending_messages,
            brokers=state.brokers,
            messages=messages,
        )


class PlayedScenario(Part, frozen=True):
    """A scenario under a mode."""

    scenario: str
    """Name of the built-in one, or of the file."""
    title: str
    mode: Mode
    """How broker epochs are sent."""
    losses: tuple[SimulatedLoss, ...]
    stale_joins: Natural
    """How often a replica joined because of fetches of its earlier process."""
    steps: tuple[SimulatedStep, ...]
    """None in the overview."""


def read_scenario(path: str) -> IsrScenario:
    """Steps of a file, as a scenario of its name.

    Raises:
        UsageError: there is no such file, or a line in it is no step.
        ReadFailedError: it cannot be read, or is larger than ``limits.ISR_SCENARIO_BYTES_MAX``.
    """
    data = read_small_file(path, limits.ISR_SCENARIO_BYTES_MAX)
    if data is None:
        raise UsageError("does not exist", path=path)
    scenario = IsrScenario(path, "", data.decode(errors="replace"))
    try:
        _ = scenario.steps
    except StepError as error:
        raise UsageError(str(error), path=path) from None
    return scenario


def play_scenarios(
    scenarios: Iterable[IsrScenario],
    modes: Sequence[Mode],
    min_insync_replicas: int,
    *,
    with_steps: bool = True,
    with_messages: bool = False,
) -> list[PlayedScenario]:
    """Plays each scenario under each mode.

    Args:
        scenarios: to play.
        modes: of epochs.
        min_insync_replicas: of the topic, 1 to 3.
        with_steps: keep the steps of each.
        with_messages: keep the requests and responses of each step.
    """
    results = []
    for scenario in scenarios:
        for mode in modes:
            messages = MessageLog(mode) if with_messages else None
            cluster = Cluster(mode, min_insync_replicas=min_insync_replicas, reports=True, messages=messages)
            steps = tuple(play(cluster, scenario.steps))
            results.append(
                PlayedScenario(
                    scenario=scenario.name,
                    title=scenario.title,
                    mode=mode,
                    losses=tuple(cluster.losses),
                    stale_joins=cluster.stale_joins,
                    steps=steps if with_steps else (),
                )
            )
    return results


def scenario_findings(scenarios: Iterable[PlayedScenario]) -> Iterator[Finding]:
    """One finding for each loss, and one for steps that were not possible. A loss that the KIP accepts is a note."""
    for scenario in scenarios:
        for loss in scenario.losses:
            records = f"{pluralize(len(loss.records), 'committed record')} from offset {loss.first_offset} on"
            yield _loss_finding(loss, scenario.scenario, f"{scenario.mode}: {records}, when broker {loss.leader} begins to lead")
        left_out = sum(not step.happened for step in scenario.steps)
        if left_out:
            message = f"{scenario.mode}: {pluralize(left_out, 'step')} left out, which could not happen"
            yield Finding("isr-step-left-out", Severity.NOTE, scenario.scenario, message)


def search_findings(results: Iterable[SearchResult]) -> Iterator[Finding]:
    """One finding for each mode and cause."""
    for result in results:
        for each in result.shortest:
            lost = f"{result.losses[each.loss.cause]} of {pluralize(result.histories, 'history', 'histories')}"
            shortest = f"the shortest has {pluralize(len(each.steps), 'step')}"
            yield _loss_finding(each.loss, "--search", f"{result.mode}: committed records, in {lost}, of which {shortest}")


def _loss_finding(loss: SimulatedLoss, path: str, records: str) -> Finding:
    if loss.is_accepted:
        return Finding("isr-loss-accepted", Severity.NOTE, path, f"{records}, are lost ({loss.cause}), which KIP-903 accepts")
    return Finding("isr-loss", Severity.FINDING, path, f"{records}, are lost ({loss.cause})")
