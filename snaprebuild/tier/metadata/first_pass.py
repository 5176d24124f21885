"""What a leader deletes in its first pass after it has read the records: by log start offset, retention and leader epochs.

Source: ``RemoteLogManager.RLMExpirationTask.cleanupExpiredRemoteLogSegments``, ``RemoteLogRetentionHandler``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import RemoteSegment
from snaprebuild.published import Natural, Part, Uuid
from snaprebuild.tier.remote_log import epochs_with_records, is_in_lineage

__all__ = ["DeletionReason", "ExpectedDeletion", "ExpectedLeader", "RetentionSettings", "first_pass"]

NO_LIMIT = -1


class DeletionReason(StrEnum):
    """Why a leader deletes a copy."""

    LOG_START = "log-start"
    """It ends below the log start offset."""
    RETENTION_MS = "retention-ms"
    """Its newest record is older than retention.ms."""
    RETENTION_BYTES = "retention-bytes"
    """The log has more bytes than retention.bytes."""
    LEADER_EPOCHS = "leader-epochs"
    """Its leader epochs are all below the first one of the leader."""


class ExpectedDeletion(Part, frozen=True):
    """A copy that the leader deletes in its first pass."""

    segment_id: Uuid
    start_offset: Natural
    """First offset of the segment."""
    deletion_reason: DeletionReason
    """Why it is deleted."""


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """The retention of a topic.

    Attributes:
        retention_ms: -1 for no limit.
        retention_bytes: -1 for no limit.
    """

    retention_ms: int
    retention_bytes: int


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


def first_pass(
    segments: Sequence[RemoteSegment], leader: ExpectedLeader, settings: RetentionSettings, now_ms: int
) -> list[ExpectedDeletion]:
    """The copies that the first pass deletes, in its order.

    Args:
        segments: all copies that the records name, each finished.
        leader: its log.
        settings: of the topic.
        now_ms: when the pass runs, ms since 1970.
    """
    work = _Pass(segments, leader, settings, now_ms)
    work.delete_by_retention()
    work.delete_by_leader_epochs()
    return work.deletions


@dataclass(slots=True)
class _Pass:
    """One pass.

    Attributes:
        deletions: in the order of the pass.
        deleted_ids: segment ids of the deletions, 16 bytes each.
        excess_bytes: by which the log is larger than its retention, without what is deleted.
    """

    segments: Sequence[RemoteSegment]
    leader: ExpectedLeader
    settings: RetentionSettings
    now_ms: int
    deletions: list[ExpectedDeletion] = field(default_factory=list)
    deleted_ids: set[bytes] = field(default_factory=set)
    excess_bytes: int = 0

    def __post_init__(self) -> None:
        if self.settings.retention_bytes > NO_LIMIT:
            valid = (each.size_bytes for each in self.segments if self._is_valid(each))
            total = self.leader.local_only_bytes + sum(valid)
            self.excess_bytes = max(0, total - self.settings.retention_bytes)

    def delete_by_retention(self) -> None:
        """Goes through the leader epochs of the log, and in each through its copies by offset, until one of them stays."""
        for epoch in sorted(epochs_with_records(self.leader.leader_epochs)):
            own = [each for each in self.segments if any(entry.epoch == epoch for entry in each.leader_epochs)]
            for segment in sorted(own, key=lambda each: each.start_offset):
                if self._is_deleted(segment):
                    continue
                reason = self._reason(segment)
                if reason is not None:
                    self._delete(segment, reason)
                elif self._is_valid(segment):
                    return

    def delete_by_leader_epochs(self) -> None:
        """Deletes copies of the epochs below the first one of the leader."""
        first = self.leader.leader_epochs[0].epoch
        for segment in self.segments:
            if not self._is_deleted(segment) and all(entry.epoch < first for entry in segment.leader_epochs):
                self._delete(segment, DeletionReason.LEADER_EPOCHS)

    def _is_valid(self, segment: RemoteSegment) -> bool:
        return is_in_lineage(segment, self.leader.leader_epochs, self.leader.log_end_offset)

    def _is_deleted(self, segment: RemoteSegment) -> bool:
        return segment.segment_id in self.deleted_ids

    def _reason(self, segment: RemoteSegment) -> DeletionReason | None:
        first = min(epochs_with_records(self.leader.leader_epochs))
        is_old = all(entry.epoch <= first for entry in segment.leader_epochs)
        if is_old and segment.end_offset < self.leader.log_start_offset:
            return DeletionReason.LOG_START
        if not self._is_valid(segment):
            return None
        if self.settings.retention_ms > NO_LIMIT and segment.max_timestamp_ms <= self.now_ms - self.settings.retention_ms:
            self.excess_bytes = max(0, self.excess_bytes - segment.size_bytes)
            return DeletionReason.RETENTION_MS
        if self.excess_bytes > 0 and self.excess_bytes >= segment.size_bytes:
            self.excess_bytes -= segment.size_bytes
            return DeletionReason.RETENTION_BYTES
        return None

    def _delete(self, segment: RemoteSegment, reason: DeletionReason) -> None:
        self.deleted_ids.add(segment.segment_id)
        self.deletions.append(
            ExpectedDeletion(segment_id=uuid_to_text(segment.segment_id), start_offset=segment.start_offset, deletion_reason=reason)
        )
