"""The document of ``follower plan``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from snaprebuild.documents.followers import EpochOrNone, KnownOffset, OrNone, Profile, ViewedPartition
from snaprebuild.published import Document, Natural, Part, Uuid, one_of
from snaprebuild.tier.remote_copy import LeaderEpoch

__all__ = ["Call", "Decision", "EmptyFollower", "FollowerPlan", "PlanPartition", "RestoredState", "Share", "Step"]


class EmptyFollower(Part, frozen=True):
    """The follower as it was given."""

    fetch_offset: Natural
    log_end_offset: Natural
    last_tiered_enabled: bool
    """Its setting follower.fetch.last.tiered.offset.enable."""
    has_remote: bool
    metadata_is_ready: bool
    is_compacted: bool


class Decision(Part, frozen=True):
    """The action of the follower."""

    row: Annotated[int, msgspec.Meta(ge=1, le=12)]
    """Row of the table in docs/reference/offsets.md."""
    action: Annotated[
        str,
        one_of(
            "fetch",
            "truncate to the leader's end",
            "empty the log and start at",
            "build the state from remote storage and start after it",
            "retry later",
            "retry, and fail each time",
        ),
    ]
    offset: Natural | None
    log_start_offset: Natural | None
    """Start of its log after the action; null if it does not change."""
    reason: str
    """Not stable."""


class Call(Part, frozen=True):
    """A request of the follower."""

    api: Annotated[str, one_of("ListOffsets", "OffsetsForLeaderEpoch")]
    asks: str
    offset: OrNone
    leader_epoch: EpochOrNone


class RestoredState(Part, frozen=True):
    """The state that the follower takes from remote storage."""

    segment_id: Uuid
    start_offset: Natural
    end_offset: Natural
    epoch: EpochOrNone
    next_offset: Natural
    """Next offset that it fetches."""
    leader_epochs: Sequence[LeaderEpoch]


class Step(Part, frozen=True):
    """The follower's log after a step."""

    after: str
    log_start_offset: Natural
    local_start_offset: Natural
    log_end_offset: Natural
    leader_epochs: Sequence[LeaderEpoch]


class Share(Part, frozen=True):
    """How much the follower replicates."""

    replicated_bytes: Natural | None
    """Null if the follower does not start."""
    local_bytes: Natural
    """Bytes of the leader's segments, which it would replicate without the feature."""
    all_bytes: Natural
    """The same, with the bytes of the copies below them."""


class PlanPartition(ViewedPartition, frozen=True):
    """A partition and how a follower of it starts."""

    last_stable: KnownOffset
    pending_upload_offset: OrNone
    """Offset that the leader uses; -1 if it does not know it."""
    order_faults: Sequence[str]
    """Contradictions to log end >= last stable >= local start, and to last stable >= highest remote >= log start."""
    follower: EmptyFollower
    decision: Decision
    then: Decision | None
    """The decision right after row 2, if that leads to an offset that is only in remote storage."""
    calls: Sequence[Call]
    """Requests that the follower sends, in their order."""
    state: RestoredState | None
    """Null if it takes nothing from remote storage."""
    steps: Sequence[Step]
    share: Share
    drawback: str | None
    """Drawback of the follower as a leader; null if there is none."""


class FollowerPlan(Document, frozen=True):
    """What `snaprebuild follower plan --output json` prints."""

    NAME = "follower-plan"
    VERSION = 2

    store: str
    """Location of the objects."""
    verified: bool
    """A metadata log has the live copies, and all of it could be read."""
    profile: Profile
    partitions: Sequence[PlanPartition]
    unknown_objects: Natural = 0
    """Objects in the store whose layout this version does not know."""
