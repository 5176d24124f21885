"""Stories of KIP-903, as steps of the simulated cluster: the race itself, and what lies near it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from snaprebuild.simulations.isr.simulator import Cluster
from snaprebuild.simulations.isr.steps import Step, View, parse_steps

__all__ = ["STORIES", "Scene", "Story", "play"]


@dataclass(frozen=True, slots=True)
class Story:
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
        told: what followed from it, in words; for a step that could not happen, why.
        happened: it could.
        view: of the cluster behind it.
    """

    number: int
    step: Step
    told: tuple[str, ...]
    happened: bool
    view: View


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

STORIES = {
    story.name: story
    for story in (
        Story(
            "race",
            "A replica comes back with an empty disk before the request that it may join arrives (KIP-903, KAFKA-14139).",
            ALONE + CATCHES_UP + NEW_DISK + NEW_PROCESS + "deliver-alter 1\n" + LEADER_GONE,
        ),
        Story(
            "before-fencing",
            "The request arrives while the broker is down and not yet fenced: it joins, and leaves when it is fenced.",
            ALONE + CATCHES_UP + NEW_DISK + "deliver-alter 1\n" + NEW_PROCESS + "fetch 2\ndeliver-alter 1\n" + LEADER_GONE,
        ),
        Story(
            "while-fenced",
            "The request arrives between fencing and unfencing: nobody fenced may join, with epochs or without.",
            ALONE + CATCHES_UP + NEW_DISK + "fence 2\nstart 2\ndeliver-alter 1\nunfence 2\n" + LEADER_GONE,
        ),
        Story(
            "after-new-fetch",
            "The new process catches up and joins with its own epoch.",
            "produce 1\nfetch 2\nshrink 1\ndeliver-alter 1\n" + NEW_DISK + NEW_PROCESS + "fetch 2\ndeliver-alter 1\n" + LEADER_GONE,
        ),
        Story(
            "no-epoch-in-fetch",
            "The follower fetches as before version 15: -1 stands for its epoch, and passes every check.",
            "old-fetch 2\n" + ALONE + CATCHES_UP + NEW_DISK + NEW_PROCESS + "deliver-alter 1\n" + LEADER_GONE,
        ),
        Story(
            "last-member",
            "The only one in sync comes back with an empty disk: it stays in sync and leads, which the KIP accepts.",
            ALONE + "crash 1\nreplace-disk 1\nfence 1\nstart 1\nunfence 1\n",
        ),
        Story(
            "metadata-lag",
            "The leader has not heard of the new process, so that the epoch of its Fetch tells it nothing: it asks when it has.",
            ALONE
            + "hold-metadata 1\ncrash 2\n"
            + NEW_PROCESS
            + "fetch 2\nrelease-metadata 1\nfetch 2\ndeliver-alter 1\n"
            + LEADER_GONE,
        ),
        Story(
            "late-fetch",
            "A Fetch of the old process arrives late: the epoch that the metadata have by then is not that of who fetched.",
            "produce 1\nfetch 2\nshrink 1\ndeliver-alter 1\nhold-fetches 2\nfetch 2\n"
            + NEW_DISK
            + NEW_PROCESS
            + "release-fetches 2\ndeliver-alter 1\n"
            + LEADER_GONE,
        ),
        Story(
            "lost-tail",
            "The broker loses no disk but what was not flushed: the same race.",
            ALONE + CATCHES_UP + "crash 2\nlose-tail 2\n" + NEW_PROCESS + "deliver-alter 1\n" + LEADER_GONE,
        ),
        Story(
            "clean-restart",
            "The broker stops cleanly and keeps its log: the request by its old epoch is refused although nothing would be lost.",
            ALONE
            + CATCHES_UP
            + "shut-down 2\nstop 2\nstart 2\nunfence 2\ndeliver-alter 1\nfetch 2\ndeliver-alter 1\n"
            + LEADER_GONE,
        ),
        Story(
            "session-alive",
            "The broker is back before its session has ended, and registers when it has, without being fenced: the same race.",
            ALONE + CATCHES_UP + NEW_DISK + "start 2\nexpire 2\nunfence 2\ndeliver-alter 1\n" + LEADER_GONE,
        ),
        Story(
            "third-in-sync",
            "A third replica is in sync and has the record, as min.insync.replicas 2 asks for: it follows the one that lost its disk.",
            THIRD_IN_SYNC + CATCHES_UP + NEW_DISK + NEW_PROCESS + "deliver-alter 1\n" + LEADER_GONE,
        ),
        Story(
            "controller-fails",
            "The controller fails while the request is late: it is sent again to the next one, as it was. The same race.",
            ALONE + CATCHES_UP + NEW_DISK + NEW_PROCESS + "fail-over\ndeliver-alter 1\n" + LEADER_GONE,
        ),
        Story(
            "shutting-down",
            "The request arrives while the broker is about to go: nobody who goes may join.",
            ALONE + CATCHES_UP + "shut-down 2\ndeliver-alter 1\nstop 2\n" + LEADER_GONE,
        ),
    )
}
"""By name, in the order in which they are told."""


def play(cluster: Cluster, steps: Iterable[Step]) -> Iterator[Scene]:
    """Lets steps happen, one by one; one that cannot, as it needs a message that only another mode sends, is told and left out."""
    for number, step in enumerate(steps, 1):
        why = cluster.why_not(step)
        if why is None:
            cluster.do(step)
        yield Scene(number, step, tuple(cluster.told) if why is None else (f"cannot happen: {why}",), why is None, cluster.view())
