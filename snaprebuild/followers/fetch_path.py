"""Where a fetch is served from: the leader's disk, a copy in remote storage, or nothing; and what DeleteRecords removes below its offset.

Source: ``UnifiedLog.read``, ``LocalLog.read``, ``ReplicaManager.handleOffsetOutOfRangeError``, ``RemoteLogManager.read``,
``Partition.deleteRecordsOnLeader``, ``UnifiedLog.deleteLogStartOffsetBreachedSegments``, ``RemoteLogManager.RLMExpirationTask``; 4.3.1.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from enum import StrEnum

from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import RemoteSegment, SegmentState
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import Finding, Severity
from snaprebuild.followers.leader_view import PartitionView, ViewedPartition, view_partitions
from snaprebuild.published import Document, Natural, OffsetOrNone, Part, Uuid, members_of_base
from snaprebuild.replay.leader_epochs import epoch_of
from snaprebuild.snapshots.source.source import Source
from snaprebuild.storage.partition_names import TopicKind
from snaprebuild.tier.expiration import UNLIMITED, ExpectedLeader, expired_copies
from snaprebuild.tier.remote_log import RemoteLog
from snaprebuild.tier.remote_store import Tier

__all__ = [
    "DeleteError",
    "DeletedCopy",
    "DeletedSegment",
    "FetchOutcome",
    "FollowerFetchPath",
    "PartitionFetchPath",
    "RecordDeletion",
    "Served",
    "fetch_path",
]


class Served(StrEnum):
    """How a fetch ends."""

    LOCAL = "local"
    """From a segment on the leader's disk."""
    NOT_YET = "not-yet"
    """On disk, or at the end, and nothing is handed out before more is committed, or written."""
    REMOTE = "remote"
    """By the leader, out of a copy in remote storage."""
    MOVED_TO_TIERED_STORAGE = "offset-moved-to-tiered-storage"
    """The fetch ends with this error: a follower builds its state from remote storage."""
    OUT_OF_RANGE = "offset-out-of-range"
    """The fetch ends with this error."""
    UNKNOWN = "unknown"
    """No store was named, and the offset is not on disk."""


class DeleteError(StrEnum):
    """Errors of DeleteRecords, by their names in the protocol."""

    OFFSET_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
    INVALID_TOPIC_EXCEPTION = "INVALID_TOPIC_EXCEPTION"
    POLICY_VIOLATION = "POLICY_VIOLATION"


class FetchOutcome(Part, frozen=True):
    """How a fetch at the offset ends."""

    served: Served
    served_from: str | None
    """The segment, or the id of the copy; null for neither."""
    object_key: str | None
    """Key of the copy's segment below the location of the store; null without one."""
    reason: str
    """Not stable."""

    @property
    def is_lost(self) -> bool:
        """Objects of the copy are missing, so that the fetch fails."""
        return self.served is Served.REMOTE and self.object_key is None


class DeletedSegment(Part, frozen=True):
    """A segment that would be deleted."""

    base_offset: Natural
    size_bytes: Natural


class DeletedCopy(Part, frozen=True):
    """A copy that would be deleted."""

    segment_id: Uuid
    start_offset: Natural
    end_offset: OffsetOrNone
    size_bytes: Natural
    phantom: bool
    """Announced, and never finished."""


class RecordDeletion(Part, frozen=True):
    """The effect of DeleteRecords up to the offset."""

    error: DeleteError | None
    log_start_offset: Natural
    """Log start after the deletion."""
    segments: tuple[DeletedSegment, ...]
    """Segments on disk."""
    segment_bytes: Natural
    copies: tuple[DeletedCopy, ...]
    """Copies in remote storage."""
    copy_bytes: Natural
    """Bytes of the copies that were finished: the others have no objects."""
    reason: str
    """Not stable."""

    @property
    def finished(self) -> list[DeletedCopy]:
        """The copies that have objects: the others were announced, and nothing more."""
        return [copy for copy in self.copies if not copy.phantom]


class PartitionFetchPath(ViewedPartition, frozen=True):
    """A partition, and the segment or copy that contains the offset."""

    consumer: FetchOutcome
    follower: FetchOutcome
    delete_records: RecordDeletion


class FollowerFetchPath(Document, frozen=True):
    """The JSON document of `snaprebuild follower fetch-path`."""

    NAME = "follower-fetch-path"
    VERSION = 3

    location: str | None
    """Path or URL of the objects; null if none was named."""
    verified: bool
    """A metadata log that could be read whole has the states of the copies."""
    offset: Natural
    """The requested offset."""
    partitions: Sequence[PartitionFetchPath]


def fetch_path(
    source: Source, tier: Tier | None, offset: int, high_watermark: int | None = None, remote_storage: bool | None = None
) -> tuple[FollowerFetchPath, list[Finding]]:
    """The source of a fetch at an offset in each partition, and the records that DeleteRecords up to it removes; with the findings.

    Args:
        source: from ``open_source``.
        tier: the store, or None.
        offset: of the fetch, 0 or above.
        high_watermark: of the leader; None for that of the checkpoint.
        remote_storage: whether remote storage is on; None to take it from checkpoints and copies.

    Raises:
        RefusedError: a limit of the run is used up.
    """
    views, findings = view_partitions(source, tier, remote_storage)
    partitions = []
    for view in (each.with_high_watermark(high_watermark) for each in views):
        consumer = _fetch(view, offset, is_consumer=True)
        findings += _findings(view, consumer, offset)
        partitions.append(
            PartitionFetchPath(
                **members_of_base(ViewedPartition, view),
                consumer=consumer,
                follower=_fetch(view, offset, is_consumer=False),
                delete_records=_deletion(view, offset),
            )
        )
    document = FollowerFetchPath(
        location=None if tier is None else tier.base.path,
        verified=tier is not None and tier.verified,
        offset=offset,
        partitions=partitions,
    )
    return document, findings


def _fetch(view: PartitionView, offset: int, *, is_consumer: bool) -> FetchOutcome:
    start = view.log_start.offset
    end = view.log_end.offset
    if not start <= offset <= end:
        return FetchOutcome(Served.OUT_OF_RANGE, None, None, f"the log goes from {start} to {end}")
    segments = view.directory.segments
    index = bisect.bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    if index >= 0:
        name = segments[index].log.name
        # Followers read above the high watermark: it moves on when they have.
        if is_consumer:
            limit = view.high_watermark.offset
            what = "the high watermark"
        else:
            limit = end
            what = "the log end"
        if offset >= limit:
            return FetchOutcome(Served.NOT_YET, name, None, f"nothing is handed out from {what} on, {limit}")
        return FetchOutcome(Served.LOCAL, name, None, f"the disk holds {view.local_log_start.offset} and what follows")
    if offset == end and offset >= view.local_log_start.offset:
        return FetchOutcome(Served.NOT_YET, None, None, "the log is empty")
    if not view.remote_storage_setting.enabled or offset >= view.local_log_start.offset:
        return FetchOutcome(Served.OUT_OF_RANGE, None, None, "no segment on disk holds it, and the topic has no remote storage")
    if not is_consumer:
        reason = f"the disk begins at {view.local_log_start.offset}: the follower takes its state from remote storage"
        return FetchOutcome(Served.MOVED_TO_TIERED_STORAGE, None, None, reason)
    if view.remote is None:
        return FetchOutcome(
            Served.UNKNOWN,
            None,
            None,
            f"the disk begins at {view.local_log_start.offset}, and the content of remote storage is unknown",
        )
    return _remote_fetch(view, offset)


def _remote_fetch(view: PartitionView, offset: int) -> FetchOutcome:
    assert view.remote is not None
    epoch = epoch_of(view.leader_epochs, offset)
    copy = None if epoch is None else view.remote.log.lookup(epoch, offset)
    if copy is None:
        if epoch is None:
            what = "no leader epoch of the log"
        else:
            what = f"leader epoch {epoch}, of which no finished copy holds it"
        return FetchOutcome(Served.OUT_OF_RANGE, None, None, f"it was written in {what}")
    name = uuid_to_text(copy.segment_id)
    try:
        objects = view.remote.complete_copy(copy)
    except ReadFailedError as error:
        return FetchOutcome(Served.REMOTE, name, None, f"{error.message}: the fetch fails")
    key = view.remote.file_name(objects)
    return FetchOutcome(Served.REMOTE, name, key, f"the copy of {copy.start_offset} to {copy.end_offset}, by leader epoch {epoch}")


def _findings(view: PartitionView, fetch: FetchOutcome, offset: int) -> list[Finding]:
    """The findings about the fetch of a consumer."""
    if fetch.is_lost:
        assert view.remote is not None
        if fetch.served_from in [uuid_to_text(each) for each in view.remote.reported_lost]:
            return []
        return [Finding("tier-lost", Severity.DAMAGED, view.remote.place, fetch.reason, offset)]
    if fetch.served is Served.OUT_OF_RANGE and view.log_start.offset <= offset <= view.log_end.offset:
        message = f"a consumer gets OFFSET_OUT_OF_RANGE inside of the log: {fetch.reason}"
        return [Finding("offset-lost", Severity.FINDING, view.directory.path, message, offset)]
    return []


# ---------------------------------------------------------------------------------------------------------------- DeleteRecords


def _deletion(view: PartitionView, offset: int) -> RecordDeletion:
    high_watermark = view.high_watermark.offset
    start = view.log_start.offset
    if view.source.topic_kind is TopicKind.INTERNAL:
        return _no_deletion(DeleteError.INVALID_TOPIC_EXCEPTION, start, "brokers delete no records of internal topics on request")
    if view.source.is_compacted:
        reason = "the topic is compacted: brokers refuse, unless its cleanup.policy has delete, too, which these files do not show"
        return _no_deletion(DeleteError.POLICY_VIOLATION, start, reason)
    if offset > high_watermark:
        return _no_deletion(
            DeleteError.OFFSET_OUT_OF_RANGE, start, f"only records below the high watermark {high_watermark} can be deleted"
        )
    if offset <= start:
        return _no_deletion(None, start, f"the log starts at {start} already")
    segments = view.directory.segments
    # ``UnifiedLog.deleteLogStartOffsetBreachedSegments``: a segment goes if the next one begins at the new start or below it, so that
    # the active one stays.
    following = [segment.base_offset for segment in segments[1:]]
    deleted = segments[: bisect.bisect_right(following, offset)]
    if view.remote is None:
        copies = []
    else:
        copies = _breached(view.remote.log, view.leader_epochs, offset, view.log_end.offset)
    reason = "whole segments below the new log start are deleted; the one that holds it stays, and readers skip the records below"
    if view.remote_storage_setting.enabled and view.remote is None:
        reason += "; without a STORE the deleted copies are unknown"
    return RecordDeletion(
        error=None,
        log_start_offset=offset,
        segments=tuple(DeletedSegment(segment.base_offset, segment.size_bytes) for segment in deleted),
        segment_bytes=sum(segment.size_bytes for segment in deleted),
        copies=tuple(
            DeletedCopy(
                segment_id=uuid_to_text(copy.segment_id),
                start_offset=copy.start_offset,
                end_offset=copy.end_offset,
                size_bytes=copy.size_bytes,
                phantom=copy.state is SegmentState.COPY_SEGMENT_STARTED,
            )
            for copy in copies
        ),
        copy_bytes=sum(copy.size_bytes for copy in copies if copy.state is SegmentState.COPY_SEGMENT_FINISHED),
        reason=reason,
    )


def _no_deletion(error: DeleteError | None, log_start_offset: int, reason: str) -> RecordDeletion:
    return RecordDeletion(
        error=error,
        log_start_offset=log_start_offset,
        segments=(),
        segment_bytes=0,
        copies=(),
        copy_bytes=0,
        reason=reason,
    )


def _breached(log: RemoteLog, epochs: tuple[LeaderEpochEntry, ...], offset: int, log_end: int) -> list[RemoteSegment]:
    """The copies that the expiration task removes because of a new log start, apart from what retention removes.

    The leader epochs are cut at the log start first.
    """
    first = epoch_of(epochs, offset)
    own = [entry for entry in epochs if entry.start_offset > offset]
    if first is not None:
        own.insert(0, LeaderEpochEntry(first, offset))
    if not own:
        return []
    leader = ExpectedLeader(log_start_offset=offset, log_end_offset=log_end, leader_epochs=tuple(own), local_only_bytes=0)
    deleted = [each.segment for each in expired_copies(log, leader, UNLIMITED, now_ms=0)]
    return sorted(deleted, key=lambda copy: (copy.start_offset, copy.event_timestamp_ms))
