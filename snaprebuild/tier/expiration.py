"""Deletions of a leader in remote storage in one pass of its expiration task: by log start offset, retention and leader epochs.

Source: ``RemoteLogManager.RLMExpirationTask.cleanupExpiredRemoteLogSegments``, ``RemoteLogRetentionHandler``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import RemoteSegment, SegmentState
from snaprebuild.published import Natural, Part, Uuid
from snaprebuild.tier.remote_log import LogLineage, RemoteLog, epochs_with_records

__all__ = [
    "UNLIMITED",
    "DeletionReason",
    "ExpectedDeletion",
    "ExpectedLeader",
    "ExpiredCopy",
    "RetentionSettings",
    "expired_copies",
]

NO_LIMIT = -1

PRESENT = (SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED)
"""States of copies that the task looks at: it has begun to delete the others before."""


class DeletionReason(StrEnum):
    """Why a leader deletes a copy."""

    LOG_START = "log-start"
    """The copy ends below the log start offset."""
    RETENTION_MS = "retention-ms"
    """The newest record of the copy is older than retention.ms."""
    RETENTION_BYTES = "retention-bytes"
    """The log has more bytes than retention.bytes."""
    LEADER_EPOCHS = "leader-epochs"
    """The leader epochs of the copy are all below the first one of the leader."""


class ExpectedDeletion(Part, frozen=True):
    """A copy that the leader deletes in its first pass."""

    segment_id: Uuid
    start_offset: Natural
    """First offset of the segment."""
    deletion_reason: DeletionReason
    """Why it is deleted."""


@dataclass(frozen=True, slots=True)
class ExpiredCopy:
    """A copy that the task deletes, and why."""

    segment: RemoteSegment
    reason: DeletionReason

    def document(self) -> ExpectedDeletion:
        """The copy in documents."""
        segment = self.segment
        return ExpectedDeletion(
            segment_id=uuid_to_text(segment.segment_id), start_offset=segment.start_offset, deletion_reason=self.reason
        )


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """The retention of a topic.

    Attributes:
        retention_ms: -1 for no limit.
        retention_bytes: -1 for no limit.
    """

    retention_ms: int
    retention_bytes: int


UNLIMITED = RetentionSettings(NO_LIMIT, NO_LIMIT)
"""The retention of a topic that keeps everything."""


@dataclass(frozen=True, slots=True)
class ExpectedLeader:
    """The log of a leader.

    Attributes:
        log_start_offset: of the log.
        log_end_offset: of the log.
        leader_epochs: of the log, ascending, not empty.
        local_only_bytes: of the segments on disk that the leader does not know to be in a copy.
    """

    log_start_offset: int
    log_end_offset: int
    leader_epochs: tuple[LeaderEpochEntry, ...]
    local_only_bytes: int


def expired_copies(log: RemoteLog, leader: ExpectedLeader, settings: RetentionSettings, now_ms: int) -> list[ExpiredCopy]:
    """The copies that one pass deletes, in its order.

    Args:
        log: the copies as brokers have them.
        leader: its log.
        settings: of the topic.
        now_ms: when the pass runs, ms since 1970.
    """
    work = _Pass(log, leader, settings, now_ms)
    work.delete_by_retention()
    work.delete_by_leader_epochs()
    return work.expired


class _Pass:
    """One pass, which looks at each copy once.

    Attributes:
        expired: in the order of the pass.
    """

    def __init__(self, log: RemoteLog, leader: ExpectedLeader, settings: RetentionSettings, now_ms: int) -> None:
        self.expired: list[ExpiredCopy] = []
        self._expired_ids: set[bytes] = set()
        self._log = log
        self._present = [each for each in log.segments.values() if each.state in PRESENT]
        self._settings = settings
        self._newest_expired_ms = now_ms - settings.retention_ms
        self._log_start_offset = leader.log_start_offset
        self._epochs = sorted(epochs_with_records(leader.leader_epochs))
        self._first_epoch = leader.leader_epochs[0].epoch
        lineage = LogLineage(leader.leader_epochs, leader.log_end_offset)
        self._valid_ids = {each.segment_id for each in self._present if lineage.holds(each)}
        """Ids of the copies that belong to the log."""
        self._excess_bytes = 0
        """Bytes by which the log is larger than its retention, without what is deleted."""
        if settings.retention_bytes > NO_LIMIT:
            valid_bytes = sum(each.size_bytes for each in self._present if self._is_valid(each))
            self._excess_bytes = max(0, leader.local_only_bytes + valid_bytes - settings.retention_bytes)

    def delete_by_retention(self) -> None:
        """Goes through the leader epochs of the log, and in each through its copies by offset, until one of them stays.

        A copy of several epochs is listed in each of them. One look is enough: a copy that is neither deleted nor valid stays so.
        """
        seen_ids: set[bytes] = set()
        for epoch in self._epochs:
            for segment in self._log.listed(epoch):
                if segment.state not in PRESENT or segment.segment_id in seen_ids:
                    continue
                seen_ids.add(segment.segment_id)
                reason = self._reason(segment)
                if reason is not None:
                    self._delete(segment, reason)
                elif self._is_valid(segment):
                    return

    def delete_by_leader_epochs(self) -> None:
        """Deletes copies of the epochs below the first one of the leader."""
        for segment in self._present:
            is_expired = segment.segment_id in self._expired_ids
            if not is_expired and all(entry.epoch < self._first_epoch for entry in segment.leader_epochs):
                self._delete(segment, DeletionReason.LEADER_EPOCHS)

    def _is_valid(self, segment: RemoteSegment) -> bool:
        return segment.segment_id in self._valid_ids

    def _reason(self, segment: RemoteSegment) -> DeletionReason | None:
        is_old = all(entry.epoch <= self._epochs[0] for entry in segment.leader_epochs)
        if is_old and segment.end_offset < self._log_start_offset:
            return DeletionReason.LOG_START
        if not self._is_valid(segment):
            return None
        if self._settings.retention_ms > NO_LIMIT and segment.max_timestamp_ms <= self._newest_expired_ms:
            self._excess_bytes = max(0, self._excess_bytes - segment.size_bytes)
            return DeletionReason.RETENTION_MS
        if self._excess_bytes > 0 and self._excess_bytes >= segment.size_bytes:
            self._excess_bytes -= segment.size_bytes
            return DeletionReason.RETENTION_BYTES
        return None

    def _delete(self, segment: RemoteSegment, reason: DeletionReason) -> None:
        self._expired_ids.add(segment.segment_id)
        self.expired.append(ExpiredCopy(segment, reason))
