"""The answers of a leader to ListOffsets: a function of the log's offsets, and of two searches by time.

Six negative timestamps ask for an offset by name:

======  =======================  ===========  ===============================================================
-1      latest                   version 1    where the next record that may be fetched goes
-2      earliest                 version 1    log start offset, wherever those records are
-3      maximum timestamp        version 7    KIP-734; among local segments only
-4      earliest local           version 8    KIP-405; first offset on the leader's disk
-5      latest tiered            version 9    KIP-1005; last offset in remote storage
-6      earliest pending upload  version 11   KIP-1023; first offset that is not
======  =======================  ===========  ===============================================================

The draft of KIP-405 used -3 for what became -4.

Source: ``UnifiedLog.fetchOffsetByTimestamp``, ``Partition.fetchOffsetForTimestamp``, ``ReplicaManager.fetchOffset`` and its
``timestampMinSupportedVersion``, ``RemoteLogManager.findOffsetByTimestamp``; 4.3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Protocol

from formats.partition.checkpoint_file import LeaderEpochEntry
from snaprebuild.replay.leader_epochs import epoch_of

__all__ = [
    "OFFSETS_VERSION_MAX",
    "Isolation",
    "ListedOffset",
    "LogOffsets",
    "OffsetError",
    "SpecialTimestamp",
    "TimestampAndOffset",
    "TimestampSearch",
    "list_offset",
    "pending_upload_of_proposal",
]

UNKNOWN = -1
OFFSETS_VERSION_MAX = 11
"""Newest version of the request (4.2)."""


class SpecialTimestamp(IntEnum):
    """Timestamps that ask for an offset by name."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


VERSION_LEAST = {
    SpecialTimestamp.LATEST: 1,
    SpecialTimestamp.EARLIEST: 1,
    SpecialTimestamp.MAX_TIMESTAMP: 7,
    SpecialTimestamp.EARLIEST_LOCAL: 8,
    SpecialTimestamp.LATEST_TIERED: 9,
    SpecialTimestamp.EARLIEST_PENDING_UPLOAD: 11,
}
"""First version of the request that knows each."""


class Isolation(StrEnum):
    """The requester: a follower, or a consumer by its ``isolation.level``."""

    REPLICA = "replica"
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class OffsetError(StrEnum):
    """Errors of the answer, as the protocol names them."""

    UNSUPPORTED_VERSION = "UNSUPPORTED_VERSION"
    LEADER_NOT_AVAILABLE = "LEADER_NOT_AVAILABLE"
    OFFSET_NOT_AVAILABLE = "OFFSET_NOT_AVAILABLE"


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """The leader's log.

    Attributes:
        has_remote: ``remote.storage.enable`` of the topic, and of the cluster.
        log_start_offset: where the log starts, wherever those records are.
        local_log_start_offset: first offset on the leader's disk.
        highest_remote_offset: last offset that the leader knows to be in remote storage; -1 if it knows of none. A new leader knows of
            none until its first copy task (since 4.4 its first expiration task).
        high_watermark: offsets below are committed.
        last_stable_offset: below it every transaction is decided.
        log_end_offset: where the next record goes.
        leader_epochs: of the leader epoch checkpoint, ascending.
        leader_epoch: of today.
        epoch_start_offset: offset at which it began; above ``high_watermark`` right after an election.
    """

    has_remote: bool
    log_start_offset: int
    local_log_start_offset: int
    highest_remote_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    leader_epochs: Sequence[LeaderEpochEntry]
    leader_epoch: int
    epoch_start_offset: int = 0


@dataclass(frozen=True, slots=True)
class TimestampAndOffset:
    """A record that a search has found.

    Attributes:
        timestamp: ms since 1970.
        offset: of the record.
        leader_epoch: of its batch; None for batches of before 0.11.
    """

    timestamp: int
    offset: int
    leader_epoch: int | None


class TimestampSearch(Protocol):
    """Searches a log by time."""

    def local(self, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
        """Searches the first local segment whose greatest timestamp is ``timestamp`` or more.

        Returns:
            Its first record of such a timestamp at or above ``start_offset``; None where there is none in that very segment.
        """

    def remote(self, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
        """Searches the segments in remote storage, by leader epoch, the way ``RemoteLogManager.findOffsetByTimestamp`` does.

        Returns:
            The first record of such a timestamp at or above ``start_offset``, also of a local segment where the remote one is on disk as
            well; None where there is none.
        """

    def greatest(self) -> TimestampAndOffset | None:
        """The first record with the greatest timestamp of all local segments; None for an empty log."""


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """The answer of a leader to ListOffsets.

    Attributes:
        offset: -1 where there is none.
        timestamp: of the record, -1 where the answer is no record.
        leader_epoch: -1 where it is not known; versions of the request below 4 have no room for it.
        error: or None.
        reason: the rule that gave it.
    """

    offset: int
    timestamp: int
    leader_epoch: int
    error: OffsetError | None
    reason: str


def list_offset(
    log: LogOffsets, timestamp: int, isolation: Isolation, search: TimestampSearch, version: int = OFFSETS_VERSION_MAX
) -> ListedOffset:
    """The answer of the leader.

    Args:
        log: its offsets.
        timestamp: asked for, ms since 1970, or a ``SpecialTimestamp``.
        isolation: who asks.
        search: of its records by time.
        version: of the request.
    """
    least = {int(special): first for special, first in VERSION_LEAST.items()}.get(timestamp, 1 if timestamp >= 0 else None)
    if least is None:
        return _refused(OffsetError.UNSUPPORTED_VERSION, "no version of the request knows this timestamp")
    if version < least:
        return _refused(OffsetError.UNSUPPORTED_VERSION, f"known since version {least} of the request, asked with {version}")
    fetchable = {
        Isolation.REPLICA: log.log_end_offset,
        Isolation.READ_UNCOMMITTED: log.high_watermark,
        Isolation.READ_COMMITTED: log.last_stable_offset,
    }[isolation]
    # KIP-207: the high watermark of a new leader may be below offsets that the old one has handed out. It is known for certain only
    # when it has reached an offset of the new epoch.
    is_lagging = isolation is not Isolation.REPLICA and log.epoch_start_offset > log.high_watermark
    not_yet = OffsetError.OFFSET_NOT_AVAILABLE if version >= 5 else OffsetError.LEADER_NOT_AVAILABLE
    if timestamp == SpecialTimestamp.LATEST:
        if is_lagging:
            return _refused(not_yet, "the leader is new, and its high watermark has not reached its own epoch yet")
        return ListedOffset(fetchable, UNKNOWN, log.leader_epoch, None, f"the end of what {_requester(isolation)} may fetch")
    answer = _before_the_limit(log, timestamp, search)
    is_search = timestamp >= 0 or timestamp == SpecialTimestamp.MAX_TIMESTAMP
    if is_lagging and is_search and answer.offset == UNKNOWN:
        return _refused(not_yet, "no record was found, and the leader is new: one may come to be committed")
    # ``Partition.fetchOffsetForTimestamp`` compares every other answer with the limit.
    if timestamp in (SpecialTimestamp.EARLIEST, SpecialTimestamp.EARLIEST_LOCAL) or answer.offset < fetchable:
        return answer
    if is_lagging:
        return _refused(not_yet, f"{answer.offset} is not known to be committed yet: the leader is new")
    reason = f"{answer.offset} ({answer.reason}) is not below {fetchable}, the end of what {_requester(isolation)} may fetch"
    return ListedOffset(UNKNOWN, UNKNOWN, UNKNOWN, None, reason)


def _requester(isolation: Isolation) -> str:
    return "a follower" if isolation is Isolation.REPLICA else f"a consumer ({isolation.value})"


def _refused(error: OffsetError, reason: str) -> ListedOffset:
    return ListedOffset(UNKNOWN, UNKNOWN, UNKNOWN, error, reason)


def _at_offset(log: LogOffsets, offset: int, reason: str) -> ListedOffset:
    epoch = epoch_of(log.leader_epochs, offset)
    return ListedOffset(offset, UNKNOWN, UNKNOWN if epoch is None else epoch, None, reason)


def _before_the_limit(log: LogOffsets, timestamp: int, search: TimestampSearch) -> ListedOffset:
    """The answer before it is compared with what may be fetched."""
    nothing = ListedOffset(UNKNOWN, UNKNOWN, UNKNOWN, None, "the topic has no remote storage")
    match timestamp:
        case SpecialTimestamp.EARLIEST:
            return _earliest(log)
        case SpecialTimestamp.EARLIEST_LOCAL:
            if not log.has_remote:
                return _earliest(log)
            return _at_offset(log, log.local_log_start_offset, "the first offset on the leader's disk")
        case SpecialTimestamp.LATEST_TIERED:
            if not log.has_remote:
                return nothing
            return _at_offset(log, log.highest_remote_offset, "the last offset in remote storage")
        case SpecialTimestamp.EARLIEST_PENDING_UPLOAD:
            return _pending_upload(log) if log.has_remote else nothing
        case SpecialTimestamp.MAX_TIMESTAMP:
            return _of_record(search.greatest(), "the greatest timestamp of all local segments")
    if log.has_remote and log.log_end_offset > log.log_start_offset:
        remote = search.remote(timestamp, log.log_start_offset)
        if remote is not None:
            return _of_record(remote, "found by the search that begins in remote storage")
        return _of_record(
            search.local(timestamp, log.local_log_start_offset), "nothing in remote storage: found on the leader's disk"
        )
    return _of_record(search.local(timestamp, log.log_start_offset), "found on the leader's disk")


def _earliest(log: LogOffsets) -> ListedOffset:
    # Batches of before message format 2 have no epoch, so the first one may begin above the log start.
    first = log.leader_epochs[0] if log.leader_epochs else None
    epoch = first.epoch if first is not None and first.start_offset <= log.log_start_offset else UNKNOWN
    return ListedOffset(log.log_start_offset, UNKNOWN, epoch, None, "the log start offset")


def _pending_upload(log: LogOffsets) -> ListedOffset:
    if log.highest_remote_offset != UNKNOWN:
        pending = max(log.highest_remote_offset + 1, log.log_start_offset)
        return _at_offset(log, pending, "after the last offset in remote storage, but not below the log start offset")
    if log.local_log_start_offset == log.log_start_offset:
        return _earliest(log)
    return ListedOffset(UNKNOWN, UNKNOWN, UNKNOWN, None, "the leader does not know yet what is in remote storage")


def pending_upload_of_proposal(log: LogOffsets) -> ListedOffset:
    """The answer to -6 as KIP-1023 describes it: neither raised to the log start offset nor compared with what may be fetched."""
    if not log.has_remote:
        return ListedOffset(UNKNOWN, UNKNOWN, UNKNOWN, None, "the topic has no remote storage")
    if log.highest_remote_offset != UNKNOWN:
        return _at_offset(log, log.highest_remote_offset + 1, "right after the last offset in remote storage")
    return ListedOffset(UNKNOWN, UNKNOWN, UNKNOWN, None, "nothing was uploaded: the follower asks for -4 next")


def _of_record(record: TimestampAndOffset | None, reason: str) -> ListedOffset:
    if record is None:
        return ListedOffset(UNKNOWN, UNKNOWN, UNKNOWN, None, "no record of such a timestamp")
    epoch = UNKNOWN if record.leader_epoch is None else record.leader_epoch
    return ListedOffset(record.offset, record.timestamp, epoch, None, reason)
