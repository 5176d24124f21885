"""Where a fetch is served from: the leader's disk, a copy in remote storage, or nothing; and what DeleteRecords removes below its offset.

Source: ``UnifiedLog.read``, ``LocalLog.read``, ``ReplicaManager.handleOffsetOutOfRangeError``, ``RemoteLogManager.read``,
``Partition.deleteRecordsOnLeader``, ``UnifiedLog.deleteLogStartOffsetBreachedSegments``, ``RemoteLogManager.RLMExpirationTask``; 4.3.1.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import RemoteSegment, SegmentState
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import Finding, Severity
from snaprebuild.followers.leader_view import PartitionView, view_partitions
from snaprebuild.replay.leader_epochs import epoch_of
from snaprebuild.snapshots.last_stable import Known
from snaprebuild.snapshots.source.source import Source
from snaprebuild.snapshots.source.topic_kind import TopicKind
from snaprebuild.storage.partition_dir import SegmentFiles
from snaprebuild.tier.remote_log import RemoteLog, is_in_lineage
from snaprebuild.tier.remote_partition import Tier

__all__ = ["Deletion", "Fetch", "FetchPathResult", "PartitionFetchPath", "Served", "fetch_path"]


class Served(StrEnum):
    """How a fetch ends."""

    LOCAL = "local"
    """From a segment on the leader's disk."""
    NOT_YET = "not-yet"
    """On disk, or at the end, and nothing is handed out before more is committed, or written."""
    REMOTE = "remote"
    """By the leader, out of a copy in remote storage."""
    MOVED_TO_TIERED_STORAGE = "offset-moved-to-tiered-storage"
    """With this error: a follower builds its state from remote storage."""
    OUT_OF_RANGE = "offset-out-of-range"
    """With this error."""
    UNKNOWN = "unknown"
    """No store was named, and the offset is not on disk."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """How the fetch of one who asks ends.

    Attributes:
        served: how.
        source: the segment, or the id of the copy; None for neither.
        why: in words.
        key: of the object with the copy's segment, below the root of the store; None without one.
        is_lost: objects of the copy are missing, so that the fetch fails.
    """

    served: Served
    source: str | None
    why: str
    key: str | None = None
    is_lost: bool = False


@dataclass(slots=True)
class Deletion:
    """The effect of DeleteRecords up to an offset.

    Attributes:
        error: as the protocol names it, or None.
        log_start: afterwards.
        why: in words.
        segments: that go from disk, at the next look of the retention.
        copies: that go from remote storage, at the next expiration task; those that were announced and never finished, too.
    """

    error: str | None
    log_start: int
    why: str
    segments: list[SegmentFiles] = field(default_factory=list)
    copies: list[RemoteSegment] = field(default_factory=list)

    @property
    def finished(self) -> list[RemoteSegment]:
        """Those of the copies that have objects: the others were announced, and nothing more."""
        return [copy for copy in self.copies if copy.state is SegmentState.COPY_SEGMENT_FINISHED]


@dataclass(slots=True)
class PartitionFetchPath:
    """One partition, and the high watermark that is used."""

    view: PartitionView
    high_watermark: Known
    consumer: Fetch
    follower: Fetch
    deletion: Deletion


@dataclass(slots=True)
class FetchPathResult:
    """All partitions, with their findings."""

    offset: int
    partitions: list[PartitionFetchPath] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def fetch_path(
    source: Source, tier: Tier | None, offset: int, high_watermark: int | None = None, remote_storage: bool | None = None
) -> FetchPathResult:
    """Where an offset is in each partition.

    Args:
        source: from ``open_source``.
        tier: the store, or None.
        offset: asked for, 0 or above.
        high_watermark: of the leader; None for that of the checkpoint.
        remote_storage: whether remote storage is on; None to take it from checkpoints and copies.

    Raises:
        RefusedError: a limit of the run is used up.
    """
    views, findings = view_partitions(source, tier, remote_storage)
    result = FetchPathResult(offset, findings=findings)
    for view in views:
        known = view.high_watermark_of(high_watermark)
        consumer = _fetch(view, offset, known.value, is_consumer=True)
        follower = _fetch(view, offset, known.value, is_consumer=False)
        place = PartitionFetchPath(view, known, consumer, follower, _deletion(view, offset, known.value))
        result.findings += _findings(place, offset)
        result.partitions.append(place)
    return result


def _fetch(view: PartitionView, offset: int, high_watermark: int, *, is_consumer: bool) -> Fetch:
    start = view.log_start.value
    end = view.log_end.value
    if not start <= offset <= end:
        return Fetch(Served.OUT_OF_RANGE, None, f"the log goes from {start} to {end}")
    segments = view.directory.segments
    index = bisect.bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    if index >= 0:
        name = segments[index].log.name
        limit, what = (high_watermark, "the high watermark") if is_consumer else (end, "the log end")
        if offset >= limit:
            return Fetch(Served.NOT_YET, name, f"nothing is handed out from {what} on, {limit}")
        return Fetch(Served.LOCAL, name, f"the disk holds {view.local_start.value} and what follows")
    if offset == end and offset >= view.local_start.value:
        return Fetch(Served.NOT_YET, None, "the log is empty")
    if not view.has_remote or offset >= view.local_start.value:
        return Fetch(Served.OUT_OF_RANGE, None, "no segment on disk holds it, and the topic has no remote storage")
    if not is_consumer:
        why = f"the disk begins at {view.local_start.value}: the follower takes its state from remote storage"
        return Fetch(Served.MOVED_TO_TIERED_STORAGE, None, why)
    if view.remote is None:
        return Fetch(
            Served.UNKNOWN, None, f"the disk begins at {view.local_start.value}, and the content of remote storage is unknown"
        )
    return _remote_fetch(view, offset)


def _remote_fetch(view: PartitionView, offset: int) -> Fetch:
    assert view.remote is not None
    epoch = epoch_of(view.epochs, offset)
    copy = None if epoch is None else view.remote.log.lookup(epoch, offset)
    if copy is None:
        what = "no leader epoch of the log" if epoch is None else f"leader epoch {epoch}, of which no finished copy holds it"
        return Fetch(Served.OUT_OF_RANGE, None, f"it was written in {what}")
    name = uuid_to_text(copy.segment_id)
    try:
        objects = view.remote.complete_copy(copy)
    except ReadFailedError as error:
        return Fetch(Served.REMOTE, name, f"{error.message}: the fetch fails", is_lost=True)
    key = view.remote.files.name(objects)
    return Fetch(Served.REMOTE, name, f"the copy of {copy.start_offset} to {copy.end_offset}, by leader epoch {epoch}", key)


def _findings(place: PartitionFetchPath, offset: int) -> list[Finding]:
    fetch = place.consumer
    view = place.view
    if fetch.is_lost:
        assert view.remote is not None
        return [Finding("tier-lost", Severity.DAMAGED, view.remote.place, fetch.why, offset)]
    if fetch.served is Served.OUT_OF_RANGE and view.log_start.value <= offset <= view.log_end.value:
        message = f"a consumer gets OFFSET_OUT_OF_RANGE inside of the log: {fetch.why}"
        return [Finding("offset-lost", Severity.FINDING, view.directory.path, message, offset)]
    return []


# ---------------------------------------------------------------------------------------------------------------- DeleteRecords


def _deletion(view: PartitionView, offset: int, high_watermark: int) -> Deletion:
    start = view.log_start.value
    if view.source.topic_kind is TopicKind.INTERNAL:
        return Deletion("INVALID_TOPIC_EXCEPTION", start, "brokers delete no records of internal topics on request")
    if view.source.is_compacted:
        why = "the topic is compacted: brokers refuse, unless its cleanup.policy has delete, too, which these files do not show"
        return Deletion("POLICY_VIOLATION", start, why)
    if offset > high_watermark:
        return Deletion("OFFSET_OUT_OF_RANGE", start, f"only records below the high watermark {high_watermark} can be deleted")
    if offset <= start:
        return Deletion(None, start, f"the log starts at {start} already")
    segments = view.directory.segments
    following = [segment.base_offset for segment in segments[1:]]
    gone = list(segments[: bisect.bisect_right(following, offset)])
    copies = [] if view.remote is None else _breached(view.remote.log, view.epochs, offset, view.log_end.value)
    why = "whole segments below the new log start are deleted; the one that holds it stays, and readers skip the records below"
    if view.has_remote and view.remote is None:
        why += "; without a STORE the deleted copies are unknown"
    return Deletion(None, offset, why, gone, copies)


def _breached(log: RemoteLog, epochs: tuple[LeaderEpochEntry, ...], offset: int, log_end: int) -> list[RemoteSegment]:
    """The copies that the expiration task removes because of a new log start, apart from what retention removes.

    The leader epochs are cut at the log start first. The task visits the copies of each epoch, and stops at the first one that is of this
    log and stays. Then it removes those of which every epoch is older than the log.
    """
    first = epoch_of(epochs, offset)
    own = [entry for entry in epochs if entry.start_offset > offset]
    if first is not None:
        own.insert(0, LeaderEpochEntry(first, offset))
    gone: dict[bytes, RemoteSegment] = {}
    for copy in _until_one_stays(log, own, offset, log_end):
        gone[copy.segment_id] = copy
    for copy in log.segments.values():
        if own and all(entry.epoch < own[0].epoch for entry in copy.leader_epochs):
            gone[copy.segment_id] = copy
    kept = (SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED)
    return sorted(
        (copy for copy in gone.values() if copy.state in kept), key=lambda copy: (copy.start_offset, copy.event_timestamp_ms)
    )


def _until_one_stays(log: RemoteLog, own: list[LeaderEpochEntry], offset: int, log_end: int) -> list[RemoteSegment]:
    gone = []
    for entry, after in pairwise((*own, None)):
        assert entry is not None
        if after is not None and after.start_offset == entry.start_offset:
            continue  # nothing was written in it
        for copy in log.listed(entry.epoch):
            if copy.state not in (SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED):
                continue
            if copy.end_offset < offset and all(each.epoch <= own[0].epoch for each in copy.leader_epochs):
                gone.append(copy)
            elif is_in_lineage(copy, own, log_end):
                return gone
    return gone
