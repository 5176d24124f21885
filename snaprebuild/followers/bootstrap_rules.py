"""How an empty follower starts where remote storage ends, instead of replicating what is there already (KIP-1023).

There are two profiles: ``kip-1023`` has the rules of the proposal, ``kafka-4.3`` those of 4.3 and 4.4. They differ if nothing usable is in
remote storage: with ``kafka-4.3`` a follower then retries for ever. ``tests/followers/test_bootstrap_rules.py`` shows every row.

Source: ``AbstractFetcherThread.handleOutOfRangeError`` and ``handleOffsetsMovedToTieredStorage``,
``ReplicaFetcherThread.shouldFetchFromLastTieredOffset``, ``TierStateMachine``, ``LocalLeaderEndPoint``; 4.3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec.structs import replace

from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.remote.remote_log_metadata import RemoteSegment
from snaprebuild.followers import Profile
from snaprebuild.published import Natural, Part
from snaprebuild.replay.leader_epochs import end_of_epoch
from snaprebuild.tier.remote_log import RemoteLog

__all__ = [
    "AuxiliaryState",
    "BootstrapDecision",
    "BootstrapFollower",
    "FollowerAction",
    "LeaderOffsets",
    "NotInRemoteStorageError",
    "Profile",
    "after_reset",
    "auxiliary_state",
    "decide",
    "order_faults",
]

UNKNOWN = -1
NOT_KNOWN_YET = "the leader does not know yet what is in remote storage"


class FollowerAction(StrEnum):
    """The next action of the follower."""

    FETCH = "fetch"
    """Continues to fetch where it is."""
    TRUNCATE_TO_END = "truncate to the leader's end"
    START_EMPTY_AT = "empty the log and start at"
    BUILD_STATE = "build the state from remote storage and start after it"
    RETRY = "retry later"
    RETRY_FOREVER = "retry, and fail each time"


class LeaderOffsets(msgspec.Struct, frozen=True):
    """Offsets that a follower can ask its leader for.

    Attributes:
        log_start_offset: ListOffsets -2.
        local_log_start_offset: -4.
        pending_upload_offset: -6, before it is compared with the log end; -1 where the leader does not know it.
        log_end_offset: -1.
    """

    log_start_offset: int
    local_log_start_offset: int
    pending_upload_offset: int
    log_end_offset: int


class BootstrapFollower(Part, frozen=True):
    """The follower before it fetches; empty unless its log ends above 0."""

    fetch_offset: Natural
    """Offset that it asks for next."""
    log_end_offset: Natural
    """Log end offset of the follower; its log is empty at 0."""
    last_tiered_enabled: bool
    """The setting follower.fetch.last.tiered.offset.enable of the follower."""
    has_remote: bool
    """Remote storage is enabled for the topic, as this broker knows it."""
    metadata_is_ready: bool
    """The follower has read the remote log metadata of the partition."""
    is_compacted: bool
    """The cleanup policy of the topic has compact, and nothing is tiered."""


class BootstrapDecision(Part, frozen=True):
    """The action of the follower."""

    row: Annotated[int, msgspec.Meta(ge=1, le=12)]
    """Row of the table in docs/reference/offsets.md."""
    action: FollowerAction
    """Building the state fails if no copy has what it needs."""
    offset: Natural | None
    """Where it starts, or the end of what remote storage must hold; null where the action has none."""
    log_start_offset: Natural | None
    """Start of its log after the action; null if it does not change."""
    reason: str
    """Not stable."""


def after_reset(
    leader: LeaderOffsets, follower: BootstrapFollower, decision: BootstrapDecision, profile: Profile
) -> BootstrapDecision | None:
    """The decision after row 2 if the offset that it leads to is only in remote storage; else None.

    Args:
        leader: its offsets.
        follower: before the decision.
        decision: the first one.
        profile: whose rules.
    """
    if (
        decision.row != 2
        or decision.offset is None
        or not leader.log_start_offset <= decision.offset < leader.local_log_start_offset
    ):
        return None
    return decide(leader, replace(follower, fetch_offset=decision.offset, log_end_offset=decision.offset), profile)


def order_faults(
    *, local_log_start_offset: int, last_stable_offset: int, log_end_offset: int, log_start_offset: int, highest_remote_offset: int
) -> list[str]:
    """Contradictions to KIP-405's order of offsets, Lz >= Ly >= Lx and Ly >= Ry >= Rx.

    Args:
        local_log_start_offset: local log start offset, Lx of KIP-405.
        last_stable_offset: last stable offset, Ly.
        log_end_offset: log end offset, Lz.
        log_start_offset: first offset in remote storage, Rx.
        highest_remote_offset: last offset in remote storage, Ry; ``log_start_offset`` - 1 where there is nothing.
    """
    faults = []
    if log_end_offset < last_stable_offset:
        faults.append(f"the log end {log_end_offset} is below the last stable offset {last_stable_offset}")
    if last_stable_offset < local_log_start_offset:
        faults.append(f"the last stable offset {last_stable_offset} is below the local start {local_log_start_offset}")
    if last_stable_offset < highest_remote_offset:
        faults.append(f"remote storage reaches to {highest_remote_offset}, beyond the last stable offset {last_stable_offset}")
    if highest_remote_offset < log_start_offset - 1:
        faults.append(f"remote storage ends at {highest_remote_offset}, before it begins at {log_start_offset}")
    if local_log_start_offset > highest_remote_offset + 1 and local_log_start_offset != log_start_offset:
        faults.append(
            f"offsets {highest_remote_offset + 1} to {local_log_start_offset - 1} are neither local nor in remote storage"
        )
    return faults


def decide(leader: LeaderOffsets, follower: BootstrapFollower, profile: Profile = Profile.PROPOSAL) -> BootstrapDecision:
    """The decision of a follower that is about to fetch.

    Args:
        leader: its offsets.
        follower: where it is, and how it is set.
        profile: whose rules.
    """
    start = leader.log_start_offset
    local = leader.local_log_start_offset
    end = leader.log_end_offset
    fetch_offset = follower.fetch_offset
    if local <= fetch_offset <= end:
        return BootstrapDecision(1, FollowerAction.FETCH, fetch_offset, None, f"offset {fetch_offset} is on the leader's disk")
    if end < follower.log_end_offset:
        reason = f"the leader ends at {end}, below the follower's {follower.log_end_offset}"
        return BootstrapDecision(4, FollowerAction.TRUNCATE_TO_END, end, None, reason)
    from_tiered = (
        follower.last_tiered_enabled
        and follower.has_remote
        and not follower.is_compacted
        and follower.log_end_offset == 0
        and end != 0
    )
    if from_tiered:
        return _from_last_tiered(leader, follower, profile)
    if fetch_offset < start or fetch_offset > end:
        reason = f"offset {fetch_offset} is outside of the leader's log, which starts at {start}"
        if start > follower.log_end_offset:
            return BootstrapDecision(2, FollowerAction.START_EMPTY_AT, start, start, reason)
        return BootstrapDecision(
            2,
            FollowerAction.FETCH,
            follower.log_end_offset,
            None,
            f"{reason}; the follower's own end {follower.log_end_offset} is not",
        )
    return _build_state(3, local, leader, follower, f"offsets {fetch_offset} to {local - 1} are only in remote storage")


def _from_last_tiered(leader: LeaderOffsets, follower: BootstrapFollower, profile: Profile) -> BootstrapDecision:
    if profile is Profile.KAFKA:
        return _from_last_tiered_in_kafka(leader, follower)
    start = leader.log_start_offset
    pending = leader.pending_upload_offset
    nothing = f"nothing that can be used is in remote storage: all of the log, from {start} on, is replicated"
    if pending == UNKNOWN:
        if leader.local_log_start_offset != start:
            return BootstrapDecision(7, FollowerAction.RETRY, None, None, NOT_KNOWN_YET)
        return BootstrapDecision(6, FollowerAction.START_EMPTY_AT, start, start, f"nothing was uploaded: {nothing}")
    if pending <= start:
        return BootstrapDecision(8, FollowerAction.START_EMPTY_AT, start, start, nothing)
    row = 9 if pending >= leader.log_end_offset else 5
    return _build_state(row, pending, leader, follower, f"remote storage ends at {pending}")


def _from_last_tiered_in_kafka(leader: LeaderOffsets, follower: BootstrapFollower) -> BootstrapDecision:
    """The decision of brokers of 4.3 and 4.4 (``fetchEarliestPendingUploadOffset``).

    The leader's answer is always a target, even if nothing below it can be in remote storage.
    """
    start = leader.log_start_offset
    pending = leader.pending_upload_offset
    answer = UNKNOWN if pending == UNKNOWN else max(pending, start)
    if answer == UNKNOWN or answer >= leader.log_end_offset:
        row = 6 if answer == UNKNOWN else 9
        if leader.local_log_start_offset == start:
            nothing = f"nothing was uploaded: the leader answers its log start, {start}, which"
            reason = nothing if row == 6 else f"the leader answers -1, and its local start, {start},"
            return _build_state(row, start, leader, follower, f"{reason} is taken for the end of remote storage")
        if row == 9:
            reason = "everything is uploaded, and the active segment is empty: the leader answers -1 until the next record"
            return BootstrapDecision(9, FollowerAction.RETRY, None, None, reason)
        return BootstrapDecision(7, FollowerAction.RETRY, None, None, NOT_KNOWN_YET)
    if pending <= start:
        reason = f"nothing above the log start is in remote storage: the leader answers {start}, which is taken for its end"
        return _build_state(8, start, leader, follower, reason)
    return _build_state(5, pending, leader, follower, f"remote storage ends at {pending}")


def _build_state(row: int, target: int, leader: LeaderOffsets, follower: BootstrapFollower, reason: str) -> BootstrapDecision:
    if not follower.has_remote:
        return BootstrapDecision(
            10, FollowerAction.RETRY, None, None, "this broker does not know of the topic's remote storage yet"
        )
    if not follower.metadata_is_ready:
        return BootstrapDecision(11, FollowerAction.RETRY, None, None, "this broker has not read the remote log metadata yet")
    return BootstrapDecision(row, FollowerAction.BUILD_STATE, target, leader.log_start_offset, reason)


# ---------------------------------------------------------------------------------------------------------------- the state


class NotInRemoteStorageError(Exception):
    """No segment that a follower would find holds the offset right below its target."""


@dataclass(frozen=True, slots=True)
class AuxiliaryState:
    """The state that a follower takes over from remote storage.

    Attributes:
        segment: the copy whose leader epochs and producer snapshot it takes.
        target_epoch: leader epoch of the offset right below the target.
        next_offset: after that segment: where it starts to fetch; above the target if that is inside the segment (row 12).
    """

    segment: RemoteSegment
    target_epoch: int
    next_offset: int


def auxiliary_state(
    target: int, epochs: Sequence[LeaderEpochEntry], log_end_offset: int, target_epoch: int, remote: RemoteLog
) -> AuxiliaryState:
    """The state that a follower takes over to start at a target.

    Args:
        target: end of what remote storage must hold, above 0.
        epochs: of the leader's log.
        log_end_offset: of the leader.
        target_epoch: leader epoch that the leader gave with the target.
        remote: the remote log metadata.

    Raises:
        NotInRemoteStorageError: there is no such segment.
    """
    epoch = target_epoch
    if target_epoch > 0:
        before = end_of_epoch(epochs, target_epoch - 1, log_end_offset)
        if before is not None and before.end_offset > target - 1:
            epoch = before.epoch
    segment = remote.lookup(epoch, target - 1)
    if segment is None:
        raise NotInRemoteStorageError(f"no finished segment holds offset {target - 1} of leader epoch {epoch}")
    return AuxiliaryState(segment, epoch, segment.end_offset + 1)
