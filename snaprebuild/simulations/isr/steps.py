"""The steps that can happen in the simulated cluster, and their effects as seen from outside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple

from snaprebuild.simulations.isr.controller import PartitionState

__all__ = [
    "BROKERS",
    "NO_BROKER",
    "POSSIBLE_STEPS",
    "STEPS_MAX",
    "Cause",
    "Danger",
    "Loss",
    "ReplicaView",
    "Step",
    "StepError",
    "Verb",
    "View",
    "parse_steps",
]

BROKERS = (1, 2, 3)

STEPS_MAX = 1_000
"""Steps of a scenario, at most. The effects of each are kept, with the cluster after it; a new replica compares all committed records."""

NO_BROKER = 0
"""The broker id of a step that concerns no broker."""


class Verb(StrEnum):
    """A step of a broker, or of the controller."""

    PRODUCE = "produce"
    """A producer writes a record to it, as it leads."""
    FETCH = "fetch"
    """It fetches from its leader until it has all and knows so; where its requests are held, it sends one."""
    SHRINK = "shrink"
    """As a leader it asks to remove replicas that lag from the in-sync replicas."""
    DELIVER_ALTER = "deliver-alter"
    """The oldest AlterPartition of it arrives at the controller; until then it is under way."""
    HOLD_FETCHES = "hold-fetches"
    """Fetch requests of it are late from now on."""
    RELEASE_FETCHES = "release-fetches"
    """They arrive at the leader to whom they were sent."""
    HOLD_METADATA = "hold-metadata"
    """It gets neither metadata nor answers of the controller from now on, as long as its process runs."""
    RELEASE_METADATA = "release-metadata"
    """It gets them."""
    CRASH = "crash"
    """Its process is gone; the disk stays."""
    SHUT_DOWN = "shut-down"
    """It reports to the controller that it is about to stop (controlled shutdown)."""
    STOP = "stop"
    """It goes after that, and is fenced."""
    LOSE_TAIL = "lose-tail"
    """While it is down, the last record turns out not to have reached its disk."""
    REPLACE_DISK = "replace-disk"
    """While it is down, it gets an empty disk."""
    START = "start"
    """A new process starts, and registers as soon as the one before has no session any more."""
    EXPIRE = "expire"
    """The controller has had no heartbeat of it for the session timeout."""
    FENCE = "fence"
    """The controller fences it: its session has ended, or ends as its process is gone."""
    UNFENCE = "unfence"
    """It has caught up with the metadata, says so, and is unfenced."""
    OLD_FETCH = "old-fetch"
    """From now on it fetches as before version 15, without its broker epoch."""
    FAIL_OVER = "fail-over"
    """Another controller takes over: requests of brokers are sent again to it, and every broker that is not fenced has a new session. The
    only one that names no broker."""


class Step(NamedTuple):
    """One thing that happens to one broker, or to none; its text is ``VERB BROKER``, or ``VERB``."""

    verb: Verb
    broker: int

    def __str__(self) -> str:
        return str(self.verb) if self.broker == NO_BROKER else f"{self.verb} {self.broker}"


POSSIBLE_STEPS = (
    *(Step(verb, broker) for verb in Verb if verb is not Verb.FAIL_OVER for broker in BROKERS),
    Step(Verb.FAIL_OVER, NO_BROKER),
)
"""All of them."""


class StepError(Exception):
    """A step that cannot happen, or is none.

    Attributes:
        number: of the step, from 1.
        text: of it.
        why: in words.
    """

    def __init__(self, number: int, text: str, why: str) -> None:
        super().__init__(f"step {number}, {text}: {why}")
        self.number = number
        self.text = text
        self.why = why


def parse_steps(lines: Iterable[str]) -> tuple[Step, ...]:
    """Steps from text: one a line, ``#`` begins a comment.

    Raises:
        StepError: a line that is none, or more than ``STEPS_MAX``.
    """
    steps: list[Step] = []
    known = {str(step): step for step in POSSIBLE_STEPS}
    for line in lines:
        text = " ".join(line.partition("#")[0].split())
        if not text:
            continue
        if text not in known:
            verbs = ", ".join(sorted(verb for verb in Verb if verb is not Verb.FAIL_OVER))
            brokers = ", ".join(map(str, BROKERS))
            why = f"expected VERB BROKER, with one of {verbs} and one of {brokers}, or {Verb.FAIL_OVER}"
            raise StepError(len(steps) + 1, text[:80], why)
        if len(steps) == STEPS_MAX:
            raise StepError(len(steps) + 1, text, f"more than {STEPS_MAX} steps")
        steps.append(known[text])
    return tuple(steps)


class Cause(StrEnum):
    """Why a broker led without a committed record."""

    STALE_EPOCH = "stale-epoch"
    """It had joined the in-sync replicas for what an earlier process of it had fetched: what KIP-903 forbids."""
    LAST_MEMBER = "last-member"
    """It was the last in-sync replica and came back without its log. No other replica is known to have it; the KIP accepts that."""
    OTHER = "other"
    """Nothing of that: the replication itself would be wrong."""


class Danger(IntEnum):
    """How near a loss is."""

    NONE = 0
    """No message names a replica as in sync that is not."""
    OUTDATED = 1
    """A message in flight is about a process that is gone, and its replica lacks committed records by now."""
    THIN = 2
    """An in-sync replica that runs and may lead lacks committed records that another one has."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Committed records that are lost.

    Attributes:
        leader: broker id of who begins to lead without them.
        leader_epoch: in which.
        first_offset: of the first of them.
        records: their numbers.
        cause: why it could.
    """

    leader: int
    leader_epoch: int
    first_offset: int
    records: tuple[int, ...]
    cause: Cause

    @property
    def is_accepted(self) -> bool:
        """The KIP leaves it so."""
        return self.cause is Cause.LAST_MEMBER


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A broker in its present state.

    Attributes:
        broker: id.
        is_running: there is a process.
        epoch: registered broker epoch.
        fenced: as the controller has it.
        in_controlled_shutdown: as the controller has it.
        log_end: of its disk.
        high_watermark: as it knows it.
        leads: it takes itself for the leader.
    """

    broker: int
    is_running: bool
    epoch: int
    fenced: bool
    in_controlled_shutdown: bool
    log_end: int
    high_watermark: int
    leads: bool


@dataclass(frozen=True, slots=True)
class View:
    """The cluster in its present state.

    Attributes:
        partition: as the controller has it.
        replicas: the brokers.
        committed: how many records are.
        held: messages that have not arrived, and who gets none, in words.
    """

    partition: PartitionState
    replicas: tuple[ReplicaView, ...]
    committed: int
    held: tuple[str, ...]
