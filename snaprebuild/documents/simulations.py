"""The documents of ``simulate isr`` and ``simulate metadata-log``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from snaprebuild.documents.typed import Document, Natural, Part, Positive, Streamed, one_of

__all__ = [
    "NodeMove",
    "OffsetAndEpoch",
    "PolicyName",
    "PolicyRun",
    "Sample",
    "SearchResult",
    "ShortestHistory",
    "SimulateIsr",
    "SimulateMetadataLog",
    "SimulatedBroker",
    "SimulatedLoss",
    "SimulatedStep",
    "StartMove",
    "Story",
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
    """Broker that begins to lead without them."""
    leader_epoch: int
    first_offset: Natural
    """Of the first of them."""
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
    """Of its registration."""
    fenced: bool
    """By the controller."""
    in_controlled_shutdown: bool
    """It is about to stop."""
    log_end_offset: Natural
    """Of its disk."""
    high_watermark: Natural
    """As it knows it."""
    leads: bool
    """It takes itself for the leader."""


class SimulatedStep(Part, frozen=True):
    """A step, and the cluster after it."""

    number: Positive
    """From 1."""
    step: str
    """Verb and broker."""
    happened: bool
    """False: it could not."""
    text: Sequence[str]
    """What followed, one sentence each; not stable."""
    isr: Sequence[int]
    """In-sync replicas, as the controller has them."""
    leader: int
    """Broker id, or -1."""
    leader_epoch: int
    partition_epoch: int
    committed: Natural
    """Committed records."""
    held: Sequence[str]
    """Messages that have not arrived."""
    brokers: Sequence[SimulatedBroker]


class Story(Part, frozen=True):
    """A story under a mode."""

    story: str
    """Name, or the file."""
    title: str
    mode: ModeName
    """Who sends which broker epoch."""
    losses: Sequence[SimulatedLoss]
    stale_joins: Natural
    """How often a replica joined because of what an earlier process of it had fetched."""
    steps: Sequence[SimulatedStep]
    """None in the overview."""


class ShortestHistory(Part, frozen=True):
    """A history that loses."""

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
    """Who sends which broker epoch."""
    histories: Natural
    """With the continuations."""
    steps: Natural
    """Of all of them."""
    stale_joins: Natural
    """How often a replica joined because of what an earlier process of it had fetched."""
    losses: dict[LossCause, Natural]
    """Histories that lost, by cause."""
    found: Sequence[ShortestHistory]
    """The shortest for each cause."""


class SimulateIsr(Document, frozen=True):
    """What `snaprebuild simulate isr --output json` prints."""

    NAME = "simulate-isr"
    VERSION = 2

    min_insync_replicas: Annotated[int, msgspec.Meta(ge=1, le=3)]
    stories: Sequence[Story]
    seed: Natural | None
    """Of the search; null without one."""
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
    """One sentence for a person; not stable."""
    deleted_segments: Sequence[Natural]
    """Base offsets."""
    deleted_checkpoints: Sequence[OffsetAndEpoch]
    deleted_bytes: Natural


class NodeMove(StartMove, frozen=True):
    """The start of one node moved."""

    time_ms: Natural
    """Since the scenario began."""
    node: str
    """`leader`, or the id of a replica."""
    invalidated: Sequence[str]
    """Replicas that wanted an offset which is deleted now."""
    reloaded: Sequence[str]
    """Listeners of the node that wanted such an offset."""


class Sample(Part, frozen=True):
    """The leader at one moment."""

    time_ms: Natural
    """Since the scenario began."""
    start_offset: Natural
    end_offset: Natural
    size_bytes: Natural
    """Of segments and checkpoints."""


class PolicyRun(Part, frozen=True):
    """One policy."""

    policy: PolicyName
    end_offset: Natural
    """Of the leader at the end."""
    starts: dict[str, OffsetAndEpoch]
    """Of all nodes at the end, by `leader` or id."""
    moves: Natural
    """Of starts, of all nodes."""
    checkpoints: Natural
    """That the leader took."""
    peak_bytes: Natural
    """Most that the leader held, segments and checkpoints."""
    end_bytes: Natural
    """The same at the end."""
    replicas_invalidated: dict[str, Natural]
    """How often the offset that a replica wanted next was deleted, by id."""
    replicas_loaded: dict[str, Natural]
    """How often a replica that was empty began with a checkpoint, by id."""
    listeners_reloaded: dict[str, Natural]
    """How often a listener had to load a checkpoint, by node/name."""
    follower_ahead: Natural
    """Moves after which a follower's start was beyond its leader's."""
    events: Natural
    """Simulated events."""
    samples: Sequence[Sample]
    """Of the leader, equally spaced."""
    steps: Sequence[NodeMove]
    """Moves of starts; of more than 10,000 the first ones."""


class SimulateMetadataLog(Document, frozen=True):
    """What `snaprebuild simulate metadata-log --output json` prints."""

    NAME = "simulate-metadata-log"
    VERSION = 2

    scenario: str
    """The file."""
    title: str
    """From the file."""
    duration_ms: Natural
    followers: Annotated[str, one_of("strict", "literal")]
    """Start of a follower under kafka-14932."""
    policies: Streamed[PolicyRun]
