"""The answers that a leader would give to ListOffsets, from its directory and the store: each with the rule that gave it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from formats.errors import FormatError
from snaprebuild.errors import SnaprebuildError
from snaprebuild.findings import Finding, finding_of_error
from snaprebuild.followers import Profile
from snaprebuild.followers.leader_view import PartitionView, ViewedPartition, view_partitions
from snaprebuild.followers.list_offsets import (
    OFFSETS_VERSION_MAX,
    Isolation,
    LogOffsets,
    OffsetError,
    SpecialTimestamp,
    list_offset,
    pending_upload_of_proposal,
)
from snaprebuild.followers.time_search import LogSearch
from snaprebuild.published import Document, EpochOrNone, Int64, OffsetOrNone, Part, members_of_base
from snaprebuild.snapshots.last_stable import KnownOffset, last_stable_offsets
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import Source
from snaprebuild.tier.remote_store import Tier

__all__ = [
    "CurrentLeaderEpoch",
    "FollowerOffsets",
    "OffsetAnswer",
    "OffsetsRequest",
    "PartitionOffsets",
    "list_offsets",
    "log_offsets_of",
]

UNSETTLED = (SpecialTimestamp.LATEST_TIERED, SpecialTimestamp.EARLIEST_PENDING_UPLOAD)
"""The special timestamps whose answer depends on remote storage."""

UNCOMPARED = (SpecialTimestamp.EARLIEST, SpecialTimestamp.EARLIEST_LOCAL)
"""The special timestamps whose answer is not compared with what may be fetched."""


@dataclass(frozen=True, slots=True)
class OffsetsRequest:
    """A ListOffsets request, and the facts that decide the answers.

    Attributes:
        timestamps: ms since 1970, or special ones.
        isolation: who asks.
        api_version: of the request.
        profile: whose rules for -6.
        leader_epoch: of today's leader; None for the last one in the checkpoint, of a leader that has settled.
        high_watermark: None for that of the checkpoint.
        remote_storage: whether remote storage is on; None to take it from checkpoints and copies.
    """

    timestamps: tuple[int, ...]
    isolation: Isolation
    api_version: int
    profile: Profile
    leader_epoch: int | None = None
    high_watermark: int | None = None
    remote_storage: bool | None = None


class CurrentLeaderEpoch(Part, frozen=True):
    """The current leader epoch and its source."""

    epoch: EpochOrNone
    source: str
    """File or option from which it was taken."""
    assumed: bool
    """No file contains it."""


class OffsetAnswer(Part, frozen=True):
    """The answer to a timestamp."""

    timestamp_ms: Int64
    """The requested timestamp: milliseconds since 1970, or special (below 0)."""
    offset: OffsetOrNone | None
    """-1 if there is none; null if it is not known."""
    record_timestamp_ms: OffsetOrNone | None
    """Timestamp of the record, milliseconds since 1970; -1 if the answer is no record."""
    leader_epoch: EpochOrNone | None
    error: OffsetError | None
    found_in: str | None
    """Segment or copy in which a search ended."""
    reason: str
    """The rule that gave it, or why it is not known; not stable."""


class PartitionOffsets(ViewedPartition, frozen=True):
    """A partition and the answers of its leader."""

    last_stable: KnownOffset | None
    """Null if the request is not for committed records only, or it is not known."""
    current_leader_epoch: CurrentLeaderEpoch
    answers: Sequence[OffsetAnswer]
    """In the order of the request."""


class FollowerOffsets(Document, frozen=True):
    """The JSON document of `snaprebuild follower offsets`."""

    NAME = "follower-offsets"
    VERSION = 3

    location: str | None
    """Path or URL of the objects; null if none was named."""
    verified: bool
    """A metadata log that could be read whole has the states of the copies."""
    isolation: Isolation
    api_version: Annotated[int, msgspec.Meta(ge=0, le=OFFSETS_VERSION_MAX)]
    """Version of the request."""
    profile: Profile
    partitions: Sequence[PartitionOffsets]


def list_offsets(source: Source, tier: Tier | None, request: OffsetsRequest, run: Run) -> tuple[FollowerOffsets, list[Finding]]:
    """The answers that the leader of each partition would give, with the findings about all of them.

    Args:
        source: from ``open_source``.
        tier: the store, or None.
        request: the timestamps, and the facts that decide the answers.
        run: its clock decides which snapshot at the first offset is trusted.

    Raises:
        RefusedError: a limit of the run is used up.
    """
    views, findings = view_partitions(source, tier, request.remote_storage)
    views = [view.with_high_watermark(request.high_watermark) for view in views]
    stable = dict[str, KnownOffset]()
    if request.isolation is Isolation.READ_COMMITTED:
        stable, damage = last_stable_offsets([(view.source, view.log_start.offset, view.high_watermark) for view in views], run)
        findings += damage
    partitions = []
    for view in views:
        try:
            offsets, faults = _offsets_of(view, request, stable.get(view.path))
        except (FormatError, SnaprebuildError) as error:
            findings.append(finding_of_error(error, view.path))
        else:
            partitions.append(offsets)
            findings += faults
    document = FollowerOffsets(
        location=None if tier is None else tier.base.path,
        verified=tier is not None and tier.verified,
        isolation=request.isolation,
        api_version=request.api_version,
        profile=request.profile,
        partitions=partitions,
    )
    return document, findings


def _offsets_of(view: PartitionView, request: OffsetsRequest, stable: KnownOffset | None) -> tuple[PartitionOffsets, list[Finding]]:
    last_stable_offset = view.high_watermark.offset if stable is None else stable.offset
    log, epoch = log_offsets_of(view, last_stable_offset, request.leader_epoch)
    answers = []
    findings = []
    search = LogSearch(view)
    for timestamp in request.timestamps:
        try:
            answer = _answer(view, log, timestamp, request, search, has_stable=stable is not None)
        except (FormatError, SnaprebuildError) as error:
            findings.append(finding_of_error(error, view.path))
            message = error.message if isinstance(error, FormatError) else str(error)
            answer = _unknown_answer(timestamp, f"the search ended: {message}", search.found_in)
        answers.append(answer)
    members = members_of_base(ViewedPartition, view)
    offsets = PartitionOffsets(**members, last_stable=stable, current_leader_epoch=epoch, answers=answers)
    return offsets, findings


def log_offsets_of(view: PartitionView, last_stable_offset: int, leader_epoch: int | None) -> tuple[LogOffsets, CurrentLeaderEpoch]:
    """The offsets of a partition for ``list_offset``, and its leader epoch with the source."""
    last = view.leader_epochs[-1] if view.leader_epochs else None
    if leader_epoch is None:
        epoch = -1 if last is None else last.epoch
        current = CurrentLeaderEpoch(epoch, "the last leader epoch of the checkpoint, whose leader has settled", assumed=True)
        start = 0
    else:
        current = CurrentLeaderEpoch(leader_epoch, "--assume leader_epoch", assumed=False)
        start = last.start_offset if last is not None and last.epoch == leader_epoch else view.log_end.offset
    log = LogOffsets(
        has_remote=view.remote_storage_setting.enabled,
        log_start_offset=view.log_start.offset,
        local_log_start_offset=view.local_log_start.offset,
        highest_remote_offset=-1 if view.highest_remote is None else view.highest_remote.offset,
        high_watermark=view.high_watermark.offset,
        last_stable_offset=last_stable_offset,
        log_end_offset=view.log_end.offset,
        leader_epochs=view.leader_epochs,
        leader_epoch=current.epoch,
        epoch_start_offset=start,
    )
    return log, current


def _answer(
    view: PartitionView,
    log: LogOffsets,
    timestamp: int,
    request: OffsetsRequest,
    search: LogSearch,
    *,
    has_stable: bool,
) -> OffsetAnswer:
    if request.isolation is Isolation.READ_COMMITTED and not has_stable and timestamp not in UNCOMPARED:
        return _unknown_answer(timestamp, "the last stable offset is unknown, because the log on disk is damaged")
    asks_remote = timestamp in UNSETTLED or (timestamp >= 0 and log.log_end_offset > log.log_start_offset)
    if asks_remote and view.remote_storage_setting.enabled and view.remote is None:
        return _unknown_answer(timestamp, "remote storage is on for the topic, and its content is unknown: name the store")
    search.found_in = None
    listed = list_offset(log, timestamp, request.isolation, search, request.api_version)
    if timestamp == SpecialTimestamp.EARLIEST_PENDING_UPLOAD and request.profile is Profile.PROPOSAL and listed.error is None:
        listed = pending_upload_of_proposal(log)
    return OffsetAnswer(
        timestamp_ms=timestamp,
        offset=listed.offset,
        record_timestamp_ms=listed.timestamp,
        leader_epoch=listed.leader_epoch,
        error=listed.error,
        found_in=search.found_in if listed.offset >= 0 else None,
        reason=listed.reason,
    )


def _unknown_answer(timestamp: int, reason: str, found_in: str | None = None) -> OffsetAnswer:
    return OffsetAnswer(
        timestamp_ms=timestamp,
        offset=None,
        record_timestamp_ms=None,
        leader_epoch=None,
        error=None,
        found_in=found_in,
        reason=reason,
    )
