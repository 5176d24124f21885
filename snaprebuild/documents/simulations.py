"""The documents of ``simulate isr`` and ``simulate metadata-log``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from snaprebuild.published import Document, Natural, Part, Positive, Streamed, one_of

__all__ = [
    "NodeMove",
    "OffsetAndEpoch",
    "PolicyName",
    "PolicyRun",
    "Sample",
    "Scenario",
    "SearchResult",
    "ShortestHistory",
    "SimulateIsr",
    "SimulateMetadataLog",
    "SimulatedBroker",
    "SimulatedLoss",
    "SimulatedMessage",
    "SimulatedStep",
    "StartMove",
]

ModeName = Annotated[str, one_of("no-epochs", "kip-903", "epochs-from-metadata", "bump-leader-epochs")]
LossCause = Annotated[str, one_of("stale-epoch", "last-member", "other")]
PolicyName = Annotated[str, one_of("immediate", "retention", "kafka-14932")]
StartCause = Annotated[
    str, one_of("newer-checkpoint", "retention-bytes", "retention-ms", "all-read-past", "lag-time-max", "leader-moved")
]


class SimulatedLoss(Part, frozen=True):
    """Committed records that are lost."""

    leader: int
    """Broker that becomes leader without them."""
    leader_epoch: int
    first_offset: Natural
    """Offset of the first of them."""
    records: Sequence[int]
    """Their numbers."""
    cause: LossCause
    is_accepted: bool
    """KIP-903 does not prevent it."""


class SimulatedBroker(Part, frozen=True):
    """A broker after the step."""

    broker: int
    """Its id."""
    is_running: bool
    """There is a process."""
    epoch: int
    """Epoch of its registration."""
    fenced: bool
    """Fenced by the controller."""
    in_controlled_shutdown: bool
    """It is about to stop."""
    log_end_offset: Natural
    """Log end on its disk."""
    high_watermark: Natural
    """High watermark that it knows."""
    leads: bool
    """It regards itself as the leader."""


class SimulatedMessage(Part, frozen=True):
    """A request or response that was sent in the step."""

    name: Annotated[str, one_of("AlterPartitionRequest", "AlterPartitionResponse", "FetchRequest", "FetchResponse")]
    """Kafka's name of the message."""
    version: Natural
    """Version of the message."""
    sender: str
    """`broker 1`, or `controller`."""
    receiver: str
    """The same of the receiver."""
    body: dict[str, Any]
    """The message as Kafka prints it in JSON."""


class SimulatedStep(Part, frozen=True):
    """A step, and the cluster after it."""

    number: Positive
    """From 1."""
    step: str
    """Action and broker."""
    happened: bool
    """False: it was not possible."""
    text: Sequence[str]
    """Effects, one sentence each; not stable."""
    isr: Sequence[int]
    """In-sync replicas of the controller."""
    leader: int
    """Broker id, or -1."""
    leader_epoch: int
    partition_epoch: int
    committed: Natural
    """Committed records."""
    held: Sequence[str]
    """Messages that have not arrived."""
    brokers: Sequence[SimulatedBroker]
    messages: Sequence[SimulatedMessage] = ()
    """Requests and responses, in the order in which they are sent; none without `--show-messages`."""


class Scenario(Part, frozen=True):
    """A scenario under a mode."""

    scenario: str
    """Name of the built-in one, or of the file."""
    title: str
    mode: ModeName
    """How broker epochs are sent."""
    losses: Sequence[SimulatedLoss]
    stale_joins: Natural
    """How often a replica joined because of fetches of its earlier process."""
    steps: Sequence[SimulatedStep]
    """None in the overview."""


class ShortestHistory(Part, frozen=True):
    """A history with a loss."""

    run: Natural
    """Number of the random history, from 0."""
    length: Positive
    """Its steps until the loss."""
    steps: Sequence[str]
    """The shortened history, as --scenario reads it."""
    loss: SimulatedLoss


class SearchResult(Part, frozen=True):
    """A search under a mode."""

    mode: ModeName
    """How broker epochs are sent."""
    histories: Natural
    """Number of histories, with the continuations."""
    steps: Natural
    """Steps of all of them."""
    stale_joins: Natural
    """How often a replica joined because of fetches of its earlier process."""
    losses: dict[LossCause, Natural]
    """Histories with a loss, by cause."""
    found: Sequence[ShortestHistory]
    """The shortest for each cause."""


class SimulateIsr(Document, frozen=True):
    """What `snaprebuild simulate isr --output json` prints."""

    NAME = "simulate-isr"
    VERSION = 2

    min_insync_replicas: Annotated[int, msgspec.Meta(ge=1, le=3)]
    scenarios: Sequence[Scenario]
    seed: Natural | None
    """Seed of the search; null without one."""
    searches: Sequence[SearchResult]


class OffsetAndEpoch(Part, frozen=True):
    """An offset, and the leader epoch of the record before it."""

    offset: Natural
    """Exclusive end."""
    epoch: Natural


class StartMove(Part, frozen=True):
    """A start that moves."""

    before: OffsetAndEpoch = msgspec.field(name="from")
    after: OffsetAndEpoch = msgspec.field(name="to")
    cause: StartCause
    reason: str
    """One sentence for the user; not stable."""
    deleted_segments: Sequence[Natural]
    """Base offsets of the deleted segments."""
    deleted_checkpoints: Sequence[OffsetAndEpoch]
    deleted_bytes: Natural


class NodeMove(StartMove, frozen=True):
    """The start of one node moved."""

    time_ms: Natural
    """Time since the scenario began."""
    node: str
    """`leader`, or the id of a replica."""
    invalidated: Sequence[str]
    """Replicas whose next offset is now deleted."""
    reloaded: Sequence[str]
    """Listeners of the node whose next offset is now deleted."""


class Sample(Part, frozen=True):
    """The leader at one moment."""

    time_ms: Natural
    """Time since the scenario began."""
    start_offset: Natural
    end_offset: Natural
    size_bytes: Natural
    """Bytes of segments and checkpoints."""


class PolicyRun(Part, frozen=True):
    """One policy."""

    policy: PolicyName
    end_offset: Natural
    """Log end of the leader at the end."""
    starts: dict[str, OffsetAndEpoch]
    """Log starts of all nodes at the end, by `leader` or id."""
    moves: Natural
    """Moves of log starts, of all nodes."""
    checkpoints: Natural
    """Checkpoints that the leader took."""
    peak_bytes: Natural
    """Most bytes of the leader's segments and checkpoints."""
    end_bytes: Natural
    """The same at the end."""
    replicas_invalidated: dict[str, Natural]
    """How often the next offset of a replica was deleted, by id."""
    replicas_loaded: dict[str, Natural]
    """How often a replica that was empty began with a checkpoint, by id."""
    listeners_reloaded: dict[str, Natural]
    """How often a listener had to load a checkpoint, by node/name."""
    follower_ahead: Natural
    """Moves after which a follower's start was beyond its leader's."""
    events: Natural
    """Simulated events."""
    samples: Sequence[Sample]
    """Samples of the leader, equally spaced."""
    steps: Sequence[NodeMove]
    """Moves of log starts; the first 10,000."""


class SimulateMetadataLog(Document, frozen=True):
    """What `snaprebuild simulate metadata-log --output json` prints."""

    NAME = "simulate-metadata-log"
    VERSION = 2

    scenario: str
    """Path of the file."""
    title: str
    """From the file."""
    duration_ms: Natural
    followers: Annotated[str, one_of("strict", "literal")]
    """Start of a follower under kafka-14932."""
    policies: Streamed[PolicyRun]
