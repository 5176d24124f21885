"""``simulate isr``: scenarios of KIP-903 as steps of the simulated cluster, played under modes of epochs, and their findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from formats import limits
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.simulations.isr import Mode
from snaprebuild.simulations.isr.messages import MessageLog, SentMessage
from snaprebuild.simulations.isr.search import SearchResult
from snaprebuild.simulations.isr.simulator import Cluster
from snaprebuild.simulations.isr.steps import Loss, Step, StepError, View, parse_steps
from snaprebuild.storage.local.regular_file import read_small_file

__all__ = [
    "SCENARIOS",
    "Played",
    "Scenario",
    "Scene",
    "play",
    "play_scenarios",
    "played_findings",
    "read_scenario",
    "search_findings",
]


@dataclass(frozen=True, slots=True)
class Scenario:
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
    def steps(self) -> tuple[Step, ...]:
        """The steps."""
        return parse_steps(self.text.splitlines())


@dataclass(frozen=True, slots=True)
class Scene:
    """A step that has happened.

    Attributes:
        number: from 1.
        step: what happened.
        reported: what followed from it, in words; for a step that could not happen, why.
        happened: it could.
        view: of the cluster after it.
        messages: requests and responses that were sent in it; none unless they are asked for.
    """

    number: int
    step: Step
    reported: tuple[str, ...]
    happened: bool
    view: View
    messages: tuple[SentMessage, ...] = ()


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
        Scenario(
            "race",
            "A replica comes back with an empty disk before the request that it may join arrives (KIP-903, KAFKA-14139).",
            ALONE + CATCHES_UP + NEW_DISK + NEW_PROCESS + "deliver-alter 1\n" + LEADER_GONE,
        ),
        Scenario(
            "before-fencing",
            "The request arrives while the broker is down and not yet fenced: it joins, and leaves when it is fenced.",
            ALONE + CATCHES_UP + NEW_DISK + "deliver-alter 1\n" + NEW_PROCESS + "fetch 2\ndeliver-alter 1\n" + LEADER_GONE,
        ),
        Scenario(
            "while-fenced",
            "The request arrives between fencing and unfencing: no fenced broker may join, with epochs or without.",
            ALONE + CATCHES_UP + NEW_DISK + "fence 2\nstart 2\ndeliver-alter 1\nunfence 2\n" + LEADER_GONE,
        ),
        Scenario(
            "after-new-fetch",
            "The new process catches up and joins with its own epoch.",
            "produce 1\nfetch 2\nshrink 1\ndeliver-alter 1\n" + NEW_DISK + NEW_PROCESS + "fetch 2\ndeliver-alter 1\n" + LEADER_GONE,
        ),
        Scenario(
            "no-epoch-in-fetch",
            "The follower fetches as before version 15: its epoch is -1, which passes every check.",
            "old-fetch 2\n" + ALONE + CATCHES_UP + NEW_DISK + NEW_PROCESS + "deliver-alter 1\n" + LEADER_GONE,
        ),
        Scenario(
            "last-member",
            "The only one in sync comes back with an empty disk: it stays in sync and leads, which the KIP accepts.",
            ALONE + "crash 1\nreplace-disk 1\nfence 1\nstart 1\nunfence 1\n",
        ),
        Scenario(
            "metadata-lag",
            "The leader does not know of the new process yet, so the epoch of its Fetch shows nothing. It asks when it knows.",
            ALONE
            + "hold-metadata 1\ncrash 2\n"
            + NEW_PROCESS
            + "fetch 2\nrelease-metadata 1\nfetch 2\ndeliver-alter 1\n"
            + LEADER_GONE,
        ),
        Scenario(
            "late-fetch",
            "A Fetch of the old process arrives late: the epoch that the metadata have by then is not that of who fetched.",
            "produce 1\nfetch 2\nshrink 1\ndeliver-alter 1\nhold-fetches 2\nfetch 2\n"
            + NEW_DISK
            + NEW_PROCESS
            + "release-fetches 2\ndeliver-alter 1\n"
            + LEADER_GONE,
        ),
        Scenario(
            "lost-tail",
            "The broker loses no disk but what was not flushed: the same race.",
            ALONE + CATCHES_UP + "crash 2\nlose-tail 2\n" + NEW_PROCESS + "deliver-alter 1\n" + LEADER_GONE,
        ),
        Scenario(
            "clean-restart",
            "The broker stops cleanly and keeps its log: the request by its old epoch is refused although nothing would be lost.",
            ALONE
            + CATCHES_UP
            + "shut-down 2\nstop 2\nstart 2\nunfence 2\ndeliver-alter 1\nfetch 2\ndeliver-alter 1\n"
            + LEADER_GONE,
        ),
        Scenario(
            "session-alive",
            "The broker is back before its session has ended, and registers when it has, without being fenced: the same race.",
            ALONE + CATCHES_UP + NEW_DISK + "start 2\nexpire 2\nunfence 2\ndeliver-alter 1\n" + LEADER_GONE,
        ),
        Scenario(
            "third-in-sync",
            "A third replica is in sync and has the record, as min.insync.replicas 2 asks for: it follows the one that lost its disk.",
            THIRD_IN_SYNC + CATCHES_UP + NEW_DISK + NEW_PROCESS + "deliver-alter 1\n" + LEADER_GONE,
        ),
        Scenario(
            "controller-fails",
            "The controller fails while the request is late: it is sent again to the next one, as it was. The same race.",
            ALONE + CATCHES_UP + NEW_DISK + NEW_PROCESS + "fail-over\ndeliver-alter 1\n" + LEADER_GONE,
        ),
        Scenario(
            "shutting-down",
            "The request arrives while the broker shuts down: a broker that shuts down may not join.",
            ALONE + CATCHES_UP + "shut-down 2\ndeliver-alter 1\nstop 2\n" + LEADER_GONE,
        ),
    )
}
"""By name, in the order in which they are shown."""


def play(cluster: Cluster, steps: Iterable[Step]) -> Iterator[Scene]:
    """Lets steps happen, one by one. A step that needs a message that only another mode sends is reported and left out."""
    for number, step in enumerate(steps, 1):
        why = cluster.why_not(step)
        if why is None:
            cluster.do(step)
        reported = tuple(cluster.reported) if why is None else (f"cannot happen: {why}",)
        messages = () if why is not None or cluster.messages is None else tuple(cluster.messages.sent)
        yield Scene(
            number=number,
            step=step,
            reported=reported,
            happened=why is None,
            view=cluster.view(),
            messages=messages,
        )


@dataclass(frozen=True, slots=True)
class Played:
    """A scenario that was played.

    Attributes:
        scenario: its steps.
        cluster: as it is at the end.
        scenes: what happened at each step.
    """

    scenario: Scenario
    cluster: Cluster
    scenes: tuple[Scene, ...]


def read_scenario(path: str) -> Scenario:
    """Steps of a file, as a scenario of its name.

    Raises:
        UsageError: there is no such file, or a line in it is no step.
        ReadFailedError: it cannot be read, or is larger than ``limits.ISR_SCENARIO_BYTES_MAX``.
    """
    data = read_small_file(path, limits.ISR_SCENARIO_BYTES_MAX)
    if data is None:
        raise UsageError("does not exist", path=path)
    scenario = Scenario(path, "", data.decode(errors="replace"))
    try:
        _ = scenario.steps
    except StepError as error:
        raise UsageError(str(error), path=path) from None
    return scenario


def play_scenarios(
    scenarios: Iterable[Scenario], modes: Sequence[Mode], min_insync_replicas: int, *, with_messages: bool = False
) -> list[Played]:
    """Plays each under each mode; ``with_messages`` keeps the requests and responses of each step."""
    played = []
    for scenario in scenarios:
        for mode in modes:
            messages = MessageLog(mode) if with_messages else None
            cluster = Cluster(mode, min_insync_replicas=min_insync_replicas, reports=True, messages=messages)
            played.append(Played(scenario, cluster, tuple(play(cluster, scenario.steps))))
    return played


def played_findings(played: Iterable[Played], *, of_steps: bool) -> Iterator[Finding]:
    """One for each loss; what the KIP accepts is a note.

    Args:
        played: scenarios.
        of_steps: report, too, how many steps could not happen.
    """
    for each in played:
        mode = each.cluster.mode
        for loss in each.cluster.losses:
            what = f"{pluralize(len(loss.records), 'committed record')} from offset {loss.first_offset} on"
            yield _of_loss(loss, each.scenario.name, f"{mode}: {what}, when broker {loss.leader} begins to lead")
        left_out = sum(not scene.happened for scene in each.scenes)
        if left_out and of_steps:
            message = f"{mode}: {pluralize(left_out, 'step')} left out, which could not happen"
            yield Finding("isr-step-left-out", Severity.NOTE, each.scenario.name, message)


def search_findings(found: Iterable[SearchResult]) -> Iterator[Finding]:
    """One for each mode and cause."""
    for result in found:
        for cause, each in result.found.items():
            lost = f"{result.losses[cause]} of {pluralize(result.histories, 'history', 'histories')}"
            shortest = f"the shortest has {pluralize(len(each.steps), 'step')}"
            yield _of_loss(each.loss, "--search", f"{result.mode}: committed records, in {lost}, of which {shortest}")


def _of_loss(loss: Loss, path: str, what: str) -> Finding:
    if loss.is_accepted:
        return Finding("isr-loss-accepted", Severity.NOTE, path, f"{what}, are lost ({loss.cause}), which KIP-903 accepts")
    return Finding("isr-loss", Severity.FINDING, path, f"{what}, are lost ({loss.cause})")
