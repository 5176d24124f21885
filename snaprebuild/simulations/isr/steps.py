"""The steps that can happen in the simulated cluster, and their effects as seen from outside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple

from snaprebuild.cluster.metadata.registered_model import PartitionRegistration
from snaprebuild.published import Natural, Part

__all__ = [
    "BROKERS",
    "NO_BROKER",
    "POSSIBLE_STEPS",
    "STEPS_MAX",
    "ClusterState",
    "ClusterStep",
    "Danger",
    "SimulatedBroker",
    "SimulatedLoss",
    "SimulatedLossCause",
    "StepError",
    "StepVerb",
    "parse_steps",
]

BROKERS = (1, 2, 3)

STEPS_MAX = 1_000
"""Steps of a scenario, at most. The effects of each are kept, with the cluster after it; a new replica compares all committed records."""

NO_BROKER = 0
"""The broker id of a step that concerns no broker."""


class StepVerb(StrEnum):
    """A step of a broker, or of the controller."""

    PRODUCE = "produce"
    """A producer writes a record to it, as it leads."""
    FETCH = "fetch"
    """The broker fetches from its leader until it has all records and their high watermark; if its requests are held, it sends one."""
    SHRINK = "shrink"
    """If it leads, it asks the controller to remove replicas that lag from the in-sync replicas."""
    DELIVER_ALTER = "deliver-alter"
    """The oldest AlterPartition of it arrives at the controller; until then it is under way."""
    HOLD_FETCHES = "hold-fetches"
    """Fetch requests of it are late from now on."""
    RELEASE_FETCHES = "release-fetches"
    """Fetch requests that were held arrive at the leader to whom they were sent."""
    HOLD_METADATA = "hold-metadata"
    """The broker gets neither metadata nor answers of the controller from now on, as long as its process runs."""
    RELEASE_METADATA = "release-metadata"
    """The broker gets the metadata and answers that were held."""
    CRASH = "crash"
    """The process of the broker is gone; the disk stays."""
    SHUT_DOWN = "shut-down"
    """The broker reports to the controller that it is about to stop (controlled shutdown)."""
    STOP = "stop"
    """The broker stops after a controlled shutdown, and is fenced."""
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
    """The broker has caught up with the metadata, says so, and is unfenced."""
    OLD_FETCH = "old-fetch"
    """From now on it fetches as before version 15, without its broker epoch."""
    FAIL_OVER = "fail-over"
    """Another controller takes over: requests of brokers are sent again to it, and every broker that is not fenced has a new session. The
    only one that names no broker."""


class ClusterStep(NamedTuple):
    """One event of one broker, or of the controller; its text is ``VERB BROKER``, or ``VERB``."""

    verb: StepVerb
    broker: int

    def __str__(self) -> str:
        return str(self.verb) if self.broker == NO_BROKER else f"{self.verb} {self.broker}"


POSSIBLE_STEPS = (
    *(ClusterStep(verb, broker) for verb in StepVerb if verb is not StepVerb.FAIL_OVER for broker in BROKERS),
    ClusterStep(StepVerb.FAIL_OVER, NO_BROKER),
)
"""Each step of each broker, and the failover of the controller."""


class StepError(Exception):
    """A step that cannot happen, or is none.

    Attributes:
        number: of the step, from 1.
        text: of it.
        reason: one sentence.
    """

    def __init__(self, number: int, text: str, reason: str) -> None:
        super().__init__(f"step {number}, {text}: {reason}")
        self.number = number
        self.text = text
        self.reason = reason


def parse_steps(lines: Iterable[str]) -> tuple[ClusterStep, ...]:
    """Steps from text: one a line, ``#`` begins a comment.

    Raises:
        StepError: a line that is none, or more than ``STEPS_MAX``.
    """
    steps: list[ClusterStep] = []
    step_of = {str(step): step for step in POSSIBLE_STEPS}
    for line in lines:
        text = " ".join(line.partition("#")[0].split())
        if not text:
            continue
        if text not in step_of:
            verbs = ", ".join(sorted(verb for verb in StepVerb if verb is not StepVerb.FAIL_OVER))
            brokers = ", ".join(map(str, BROKERS))
            expected = f"expected VERB BROKER, with one of {verbs} and one of {brokers}, or {StepVerb.FAIL_OVER}"
            raise StepError(len(steps) + 1, text[:80], expected)
        if len(steps) == STEPS_MAX:
            raise StepError(len(steps) + 1, text, f"more than {STEPS_MAX} steps")
        steps.append(step_of[text])
    return tuple(steps)


class SimulatedLossCause(StrEnum):
    """Why a broker led without a committed record."""

    STALE_EPOCH = "stale-epoch"
    """The broker had joined the in-sync replicas for what an earlier process of it had fetched: what KIP-903 forbids."""
    LAST_MEMBER = "last-member"
    """The broker was the last in-sync replica and came back without its log. No other replica is known to have it; the KIP accepts that."""
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


class SimulatedLoss(Part, frozen=True):
    """Committed records that are lost."""

    leader: int
    """Broker that becomes leader without them."""
    leader_epoch: int
    first_offset: Natural
    """Offset of the first of them."""
    records: tuple[int, ...]
    """Numbers of the lost records."""
    cause: SimulatedLossCause
    is_accepted: bool
    """KIP-903 does not prevent it."""


class SimulatedBroker(Part, frozen=True):
    """A broker after the step."""

    node_id: int
    """Id of the broker."""
    is_running: bool
    """There is a process."""
    epoch: int
    """Epoch of its registration."""
    fenced: bool
    """Fenced by the controller."""
    in_controlled_shutdown: bool
    """The broker is about to stop."""
    log_end_offset: Natural
    """Log end on its disk."""
    high_watermark: Natural
    """High watermark that it knows."""
    leads: bool
    """The broker regards itself as the leader."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The cluster in its present state.

    Attributes:
        partition: registration of the partition.
        brokers: all of them, by id.
        committed: count of committed records.
        pending_messages: messages that have not arrived, and brokers that get no metadata, one text each.
    """

    partition: PartitionRegistration
    brokers: tuple[SimulatedBroker, ...]
    committed: int
    pending_messages: tuple[str, ...]
