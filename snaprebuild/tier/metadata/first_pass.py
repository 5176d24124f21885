"""What a leader deletes in its first pass after it has read the records: by log start offset, retention and leader epochs.

Source: ``RemoteLogManager.RLMExpirationTask.cleanupExpiredRemoteLogSegments``, ``RemoteLogRetentionHandler``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import RemoteSegment
from snaprebuild.published import Natural, Part, Uuid
from snaprebuild.tier.remote_log import LogLineage, epochs_with_records

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


class _Pass:
    """One pass, which looks at each copy once.

    Attributes:
        deletions: in the order of the pass.
    """

    def __init__(self, segments: Sequence[RemoteSegment], leader: ExpectedLeader, settings: RetentionSettings, now_ms: int) -> None:
        self.deletions: list[ExpectedDeletion] = []
        self._deleted_ids: set[bytes] = set()
        self._segments = segments
        self._settings = settings
        self._newest_expired_ms = now_ms - settings.retention_ms
        self._log_start_offset = leader.log_start_offset
        self._epochs = sorted(epochs_with_records(leader.leader_epochs))
        self._first_epoch = leader.leader_epochs[0].epoch
        lineage = LogLineage(leader.leader_epochs, leader.log_end_offset)
        self._valid_ids = {each.segment_id for each in segments if lineage.holds(each)}
        """Ids of the copies that belong to the log."""
        self._excess_bytes = 0
        """Bytes by which the log is larger than its retention, without what is deleted."""
        if settings.retention_bytes > NO_LIMIT:
            valid_bytes = sum(each.size_bytes for each in segments if self._is_valid(each))
            self._excess_bytes = max(0, leader.local_only_bytes + valid_bytes - settings.retention_bytes)

    def delete_by_retention(self) -> None:
        """Goes through the leader epochs of the log, and in each through its copies by offset, until one of them stays.

        A copy of several epochs is listed in each of them. One look is enough: a copy that is neither deleted nor valid stays so.
        """
        copies = _copies_by_epoch(self._segments)
        seen_ids: set[bytes] = set()
        for epoch in self._epochs:
            for segment in copies[epoch]:
                if segment.segment_id in seen_ids:
                    continue
                seen_ids.add(segment.segment_id)
                reason = self._reason(segment)
                if reason is not None:
                    self._delete(segment, reason)
                elif self._is_valid(segment):
                    return

    def delete_by_leader_epochs(self) -> None:
        """Deletes copies of the epochs below the first one of the leader."""
        for segment in self._segments:
            is_deleted = segment.segment_id in self._deleted_ids
            if not is_deleted and all(entry.epoch < self._first_epoch for entry in segment.leader_epochs):
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
        self._deleted_ids.add(segment.segment_id)
        self.deletions.append(
            ExpectedDeletion(segment_id=uuid_to_text(segment.segment_id), start_offset=segment.start_offset, deletion_reason=reason)
        )


def _copies_by_epoch(segments: Sequence[RemoteSegment]) -> dict[int, list[RemoteSegment]]:
    """The copies of each leader epoch, by their first offsets."""
    copies: dict[int, list[RemoteSegment]] = defaultdict(list)
    for segment in sorted(segments, key=lambda each: each.start_offset):
        for epoch in {entry.epoch for entry in segment.leader_epochs}:
            copies[epoch].append(segment)
    return copies
