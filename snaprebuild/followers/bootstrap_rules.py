"""How an empty follower starts where remote storage ends, instead of replicating what is there already (KIP-1023).

There are two profiles: ``kip-1023`` has the rules of the proposal, ``kafka-4.3`` those of 4.3 and 4.4. They differ if nothing usable is in
remote storage: with ``kafka-4.3`` a follower then retries for ever. ``tests/followers/test_bootstrap_rules.py`` shows every row.

Source: ``AbstractFetcherThread.handleOutOfRangeError`` and ``handleOffsetsMovedToTieredStorage``,
``ReplicaFetcherThread.shouldFetchFromLastTieredOffset``, ``TierStateMachine``, ``LocalLeaderEndPoint``; 4.3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.remote.remote_log_metadata import RemoteSegment
from snaprebuild.followers import Profile
from snaprebuild.replay.leader_epochs import end_of_epoch
from snaprebuild.tier.remote_log import RemoteLog

__all__ = [
    "Action",
    "AuxiliaryState",
    "Decision",
    "Follower",
    "Leader",
    "NotInRemoteStorageError",
    "Profile",
    "after_reset",
    "auxiliary_state",
    "decide",
    "order_faults",
]

UNKNOWN = -1
NOT_KNOWN_YET = "the leader does not know yet what is in remote storage"


class Action(StrEnum):
    """The next action of the follower."""

    FETCH = "fetch"
    """Continues to fetch where it is."""
    TRUNCATE_TO_END = "truncate to the leader's end"
    START_EMPTY_AT = "empty the log and start at"
    BUILD_STATE = "build the state from remote storage and start after it"
    RETRY = "retry later"
    RETRY_FOREVER = "retry, and fail each time"


@dataclass(frozen=True, slots=True)
class Leader:
    """Offsets that a follower can ask its leader for.

    Attributes:
        log_start: ListOffsets -2.
        local_start: -4.
        pending_upload: -6, before it is compared with the log end; -1 where the leader does not know it.
        log_end: -1.
    """

    log_start: int
    local_start: int
    pending_upload: int
    log_end: int


@dataclass(frozen=True, slots=True)
class Follower:
    """The follower.

    Attributes:
        fetch_offset: that it asks for next.
        log_end: its log end offset: 0 is what an empty follower means.
        last_tiered_enabled: ``follower.fetch.last.tiered.offset.enable``.
        has_remote: remote storage is enabled for the topic, as this broker knows it.
        metadata_is_ready: it has read the remote log metadata of the partition.
        is_compacted: the topic's cleanup policy has compact, and nothing is tiered.
    """

    fetch_offset: int = 0
    log_end: int = 0
    last_tiered_enabled: bool = True
    has_remote: bool = True
    metadata_is_ready: bool = True
    is_compacted: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of a follower.

    Attributes:
        row: of the table.
        action: building the state fails if ``auxiliary_state`` finds nothing.
        offset: of the action: where it starts, or the end of what remote storage must hold; None where it has none.
        log_start: of the follower's log afterwards; None where it does not change.
        why: in words.
    """

    row: int
    action: Action
    offset: int | None
    log_start: int | None
    why: str


def after_reset(leader: Leader, follower: Follower, decision: Decision, profile: Profile) -> Decision | None:
    """The decision after row 2 if the offset that it leads to is only in remote storage; else None.

    Args:
        leader: its offsets.
        follower: before the decision.
        decision: the first one.
        profile: whose rules.
    """
    if decision.row != 2 or decision.offset is None or not leader.log_start <= decision.offset < leader.local_start:
        return None
    return decide(leader, replace(follower, fetch_offset=decision.offset, log_end=decision.offset), profile)


def order_faults(*, local_start: int, last_stable: int, log_end: int, log_start: int, highest_remote: int) -> list[str]:
    """Contradictions to KIP-405's order of offsets, Lz >= Ly >= Lx and Ly >= Ry >= Rx.

    Args:
        local_start: local log start offset, Lx of KIP-405.
        last_stable: last stable offset, Ly.
        log_end: log end offset, Lz.
        log_start: first offset in remote storage, Rx.
        highest_remote: last offset in remote storage, Ry; ``log_start`` - 1 where there is nothing.
    """
    faults = []
    if log_end < last_stable:
        faults.append(f"the log end {log_end} is below the last stable offset {last_stable}")
    if last_stable < local_start:
        faults.append(f"the last stable offset {last_stable} is below the local start {local_start}")
    if last_stable < highest_remote:
        faults.append(f"remote storage reaches to {highest_remote}, beyond the last stable offset {last_stable}")
    if highest_remote < log_start - 1:
        faults.append(f"remote storage ends at {highest_remote}, before it begins at {log_start}")
    if local_start > highest_remote + 1 and local_start != log_start:
        faults.append(f"offsets {highest_remote + 1} to {local_start - 1} are neither local nor in remote storage")
    return faults


def decide(leader: Leader, follower: Follower, profile: Profile = Profile.PROPOSAL) -> Decision:
    """The decision of a follower that is about to fetch.

    Args:
        leader: its offsets.
        follower: where it is, and how it is set.
        profile: whose rules.
    """
    start = leader.log_start
    local = leader.local_start
    end = leader.log_end
    asked = follower.fetch_offset
    if local <= asked <= end:
        return Decision(1, Action.FETCH, asked, None, f"offset {asked} is on the leader's disk")
    if end < follower.log_end:
        why = f"the leader ends at {end}, below the follower's {follower.log_end}"
        return Decision(4, Action.TRUNCATE_TO_END, end, None, why)
    from_tiered = (
        follower.last_tiered_enabled and follower.has_remote and not follower.is_compacted and follower.log_end == 0 and end != 0
    )
    if from_tiered:
        return _from_last_tiered(leader, follower, profile)
    if asked < start or asked > end:
        why = f"offset {asked} is outside of the leader's log, which starts at {start}"
        if start > follower.log_end:
            return Decision(2, Action.START_EMPTY_AT, start, start, why)
        return Decision(2, Action.FETCH, follower.log_end, None, f"{why}; the follower's own end {follower.log_end} is not")
    return _built(3, local, leader, follower, f"offsets {asked} to {local - 1} are only in remote storage")


def _from_last_tiered(leader: Leader, follower: Follower, profile: Profile) -> Decision:
    if profile is Profile.KAFKA:
        return _as_kafka_does(leader, follower)
    start = leader.log_start
    pending = leader.pending_upload
    nothing = f"nothing that can be used is in remote storage: all of the log, from {start} on, is replicated"
    if pending == UNKNOWN:
        if leader.local_start != start:
            return Decision(7, Action.RETRY, None, None, NOT_KNOWN_YET)
        return Decision(6, Action.START_EMPTY_AT, start, start, f"nothing was uploaded: {nothing}")
    if pending <= start:
        return Decision(8, Action.START_EMPTY_AT, start, start, nothing)
    row = 9 if pending >= leader.log_end else 5
    return _built(row, pending, leader, follower, f"remote storage ends at {pending}")


def _as_kafka_does(leader: Leader, follower: Follower) -> Decision:
    """The leader's answer is always a target, even if nothing below it can be in remote storage (``fetchEarliestPendingUploadOffset``)."""
    start = leader.log_start
    pending = leader.pending_upload
    answer = UNKNOWN if pending == UNKNOWN else max(pending, start)
    if answer == UNKNOWN or answer >= leader.log_end:
        row = 6 if answer == UNKNOWN else 9
        if leader.local_start == start:
            nothing = f"nothing was uploaded: the leader answers its log start, {start}, which"
            why = nothing if row == 6 else f"the leader answers -1, and its local start, {start},"
            return _built(row, start, leader, follower, f"{why} is taken for the end of remote storage")
        if row == 9:
            why = "everything is uploaded, and the active segment is empty: the leader answers -1 until the next record"
            return Decision(9, Action.RETRY, None, None, why)
        return Decision(7, Action.RETRY, None, None, NOT_KNOWN_YET)
    if pending <= start:
        why = f"nothing above the log start is in remote storage: the leader answers {start}, which is taken for its end"
        return _built(8, start, leader, follower, why)
    return _built(5, pending, leader, follower, f"remote storage ends at {pending}")


def _built(row: int, target: int, leader: Leader, follower: Follower, why: str) -> Decision:
    if not follower.has_remote:
        return Decision(10, Action.RETRY, None, None, "this broker does not know of the topic's remote storage yet")
    if not follower.metadata_is_ready:
        return Decision(11, Action.RETRY, None, None, "this broker has not read the remote log metadata yet")
    return Decision(row, Action.BUILD_STATE, target, leader.log_start, why)


# ---------------------------------------------------------------------------------------------------------------- the state


class NotInRemoteStorageError(Exception):
    """No segment that a follower would find holds the offset right below its target."""


@dataclass(frozen=True, slots=True)
class AuxiliaryState:
    """The state that a follower takes over from remote storage.

    Attributes:
        segment: whose leader epochs and producer snapshot it takes.
        epoch: leader epoch of the offset right below the target.
        next_offset: after that segment: where it starts to fetch; above the target if that is inside the segment (row 12).
        log_start: of its log.
    """

    segment: RemoteSegment
    epoch: int
    next_offset: int
    log_start: int


def auxiliary_state(
    target: int, log_start: int, epochs: Sequence[LeaderEpochEntry], log_end: int, target_epoch: int, remote: RemoteLog
) -> AuxiliaryState:
    """The state that a follower takes over to start at a target.

    Args:
        target: end of what remote storage must hold, above 0.
        log_start: of the leader.
        epochs: of the leader's log.
        log_end: of it.
        target_epoch: leader epoch that the leader gave with the target.
        remote: the remote log metadata.

    Raises:
        NotInRemoteStorageError: there is no such segment.
    """
    epoch = target_epoch
    if target_epoch > 0:
        before = end_of_epoch(epochs, target_epoch - 1, log_end)
        if before is not None and before.end_offset > target - 1:
            epoch = before.epoch
    segment = remote.lookup(epoch, target - 1)
    if segment is None:
        raise NotInRemoteStorageError(f"no finished segment holds offset {target - 1} of leader epoch {epoch}")
    return AuxiliaryState(segment, epoch, segment.end_offset + 1, log_start)
