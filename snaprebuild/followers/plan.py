"""How an empty follower of a leader would start (KIP-1023): the row of the table, the calls, the state in between, and what it costs.

Source: ``AbstractFetcherThread.fetchOffsetAndTruncate`` and ``handleOffsetsMovedToTieredStorage``, ``TierStateMachine``,
``RemoteLeaderEndPoint``; 4.3.1.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
from msgspec.structs import replace

from formats.errors import FormatError
from formats.log.batch_headers import HeaderReader
from formats.partition.checkpoint_file import LeaderEpochEntry, read_leader_epoch_checkpoint
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.object_names import LocalTierFile
from snaprebuild.broker.status import StatusCounts, StatusWord, status_of
from snaprebuild.errors import ReadFailedError, SnaprebuildError, UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error, pluralize, unread_paths
from snaprebuild.followers import Profile
from snaprebuild.followers.bootstrap_rules import (
    BootstrapDecision,
    BootstrapFollower,
    FollowerAction,
    LeaderOffsets,
    NotInRemoteStorageError,
    after_reset,
    auxiliary_state,
    decide,
    order_faults,
)
from snaprebuild.followers.leader_view import PartitionView, ViewedPartition, view_partitions
from snaprebuild.followers.list_offsets import (
    Isolation,
    ListedOffset,
    LogOffsets,
    SpecialTimestamp,
    list_offset,
    pending_upload_of_proposal,
)
from snaprebuild.followers.offsets import log_offsets_of
from snaprebuild.published import Document, EpochOrNone, Natural, OffsetOrNone, Part, Uuid, members_of_base, one_of
from snaprebuild.replay.leader_epochs import EpochEnd, end_of_epoch, epoch_of
from snaprebuild.snapshots.last_stable import KnownOffset, last_stable_offsets
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import Source
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.tier.remote_store import Tier

__all__ = [
    "BootstrapStep",
    "FollowerPlan",
    "LeaderAssumptions",
    "LeaderRequest",
    "PlannedBootstrap",
    "ReplicationShare",
    "RestoredState",
    "plan_followers",
]

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class LeaderAssumptions:
    """Values that replace those of the leader's files; None to take the value of the files.

    Attributes:
        log_start: log start offset.
        log_end: log end offset.
        highest_remote: last offset that the leader knows to be in remote storage; -1 if it knows of none.
        high_watermark: offsets below are committed.
        last_stable: last stable offset.
        remote_storage: whether remote storage is on for the topic.
    """

    log_start: int | None = None
    log_end: int | None = None
    highest_remote: int | None = None
    high_watermark: int | None = None
    last_stable: int | None = None
    remote_storage: bool | None = None


class LeaderRequest(Part, frozen=True):
    """A request of the follower, and the answer of the leader."""

    api: Annotated[str, one_of("ListOffsets", "OffsetsForLeaderEpoch")]
    argument: str
    """Timestamp with its name, or leader epoch."""
    offset: OffsetOrNone
    """-1 if there is none."""
    leader_epoch: EpochOrNone


class RestoredState(Part, frozen=True):
    """The state that the follower takes from remote storage."""

    segment_id: Uuid
    start_offset: Natural
    end_offset: Natural
    target_epoch: EpochOrNone
    """Leader epoch of the offset right below the target."""
    next_offset: Natural
    """Next offset that it fetches."""
    leader_epochs: tuple[LeaderEpochEntry, ...]
    """Leader epochs of the copy."""


class BootstrapStep(Part, frozen=True):
    """The follower's log after a step."""

    event: str
    """The actions of the follower."""
    log_start_offset: Natural
    local_log_start_offset: Natural
    log_end_offset: Natural
    leader_epochs: tuple[LeaderEpochEntry, ...]


class ReplicationShare(Part, frozen=True):
    """How much the follower replicates."""

    replicated_bytes: Natural | None
    """Null if the follower does not start."""
    local_bytes: Natural
    """Bytes of the leader's segments, which it would replicate without the feature."""
    all_bytes: Natural
    """The bytes of the leader's segments and of the copies below them."""


class PlannedBootstrap(ViewedPartition, frozen=True):
    """A partition and how a follower of it starts."""

    last_stable: KnownOffset
    pending_upload_offset: OffsetOrNone
    """Offset that the leader uses; -1 if it does not know it."""
    order_faults: Sequence[str]
    """Contradictions to log end >= last stable >= local start, and to last stable >= highest remote >= log start."""
    follower: BootstrapFollower
    decision: BootstrapDecision
    then: BootstrapDecision | None
    """The decision right after row 2, if that leads to an offset that is only in remote storage."""
    requests: Sequence[LeaderRequest]
    """Requests that the follower sends, in their order."""
    restored_state: RestoredState | None
    """Null if it takes nothing from remote storage."""
    steps: Sequence[BootstrapStep]
    share: ReplicationShare
    drawback: str | None
    """Drawback of the follower as a leader; null if there is none."""

    @property
    def last(self) -> BootstrapDecision:
        """The decision that it ends with."""
        return self.decision if self.then is None else self.then


class FollowerPlan(Document, frozen=True):
    """The JSON document of `snaprebuild follower plan`."""

    NAME = "follower-plan"
    VERSION = 3

    location: str
    """Path or URL of the objects."""
    verified: bool
    """A metadata log that could be read whole has the states of the copies."""
    profile: Profile
    partitions: Sequence[PlannedBootstrap]
    unknown_objects: Natural = 0
    """Objects in the store whose layout this version does not know."""
    status: StatusWord = StatusWord.HEALTHY
    """The worst of the counts, in the order of StatusWord."""
    counts: StatusCounts = StatusCounts()
    """Copies that are damaged, and followers whose start is unknown."""


def plan_followers(
    source: Source,
    tier: Tier,
    follower: BootstrapFollower,
    profile: Profile,
    assumptions: LeaderAssumptions,
    run: Run,
) -> tuple[FollowerPlan, list[Finding]]:
    """How a follower of each partition would start, with the findings about all of them.

    Args:
        source: from ``open_source``: directories of the leader.
        tier: the store.
        follower: where it is, and how it is set; the cleaner's checkpoint shows compacted topics, too.
        profile: whose rules.
        assumptions: replace values of the leader's files.
        run: its clock decides which snapshot at the first offset is trusted.

    Raises:
        RefusedError: a limit of the run is used up.
        UsageError: the assumptions contradict each other.
    """
    views, findings = view_partitions(source, tier, assumptions.remote_storage)
    views = [_assumed(each, assumptions) for each in views]
    # Of others it is unknown which copies are their own, and a finding.
    leaders = [view for view in views if not view.remote_storage_setting.enabled or view.remote is not None]
    if assumptions.last_stable is None:
        stable, damage = last_stable_offsets([(view.source, view.log_start.offset, view.high_watermark) for view in leaders], run)
        findings += damage
    else:
        stable = {
            view.path: KnownOffset(min(assumptions.last_stable, view.high_watermark.offset), "--assume last_stable", assumed=False)
            for view in leaders
        }
    partitions = []
    for view in leaders:
        if view.path not in stable:
            continue  # damaged, and a finding
        own = replace(
            follower,
            has_remote=follower.has_remote and view.remote_storage_setting.enabled,
            is_compacted=follower.is_compacted or view.source.is_compacted,
        )
        try:
            planned, faults = _plan_bootstrap(view, own, profile, stable[view.path])
        except (FormatError, SnaprebuildError) as error:
            findings.append(finding_of_error(error, view.path))
        else:
            partitions.append(planned)
            findings += faults
    status = status_of(
        (),
        wrong=0,
        suspect=0,
        missing=0,
        waiting=0,
        unread=len(unread_paths(findings)),
        damaged=len({each.segment_id for view in leaders if view.remote is not None for each in view.remote.incomplete}),
        unproven=len(source.partitions) - len(partitions),
    )
    document = FollowerPlan(
        location=tier.base.path,
        verified=tier.verified,
        profile=profile,
        partitions=partitions,
        unknown_objects=tier.unknown.count,
        status=status.word,
        counts=status.counts,
    )
    return document, findings


def _assumed(view: PartitionView, assumptions: LeaderAssumptions) -> PartitionView:
    """The view with the assumed offsets."""
    if assumptions.log_end is not None:
        view = replace(
            view,
            log_end=KnownOffset(assumptions.log_end, "--assume log_end", assumed=False),
            high_watermark=replace(view.high_watermark, offset=min(view.high_watermark.offset, assumptions.log_end)),
        )
    if assumptions.log_start is not None:
        log_start = KnownOffset(assumptions.log_start, "--assume log_start", assumed=False)
        if view.local_log_start.offset < assumptions.log_start:
            view = replace(view, local_log_start=log_start)
        view = replace(
            view,
            log_start=log_start,
            high_watermark=replace(view.high_watermark, offset=max(view.high_watermark.offset, assumptions.log_start)),
        )
    if assumptions.highest_remote is not None and view.remote_storage_setting.enabled:
        view = replace(view, highest_remote=KnownOffset(assumptions.highest_remote, "--assume highest_remote", assumed=False))
    if view.log_end.offset < view.local_log_start.offset:
        raise UsageError(
            f"the log would end at {view.log_end.offset}, below its start {view.local_log_start.offset}", path=view.path
        )
    return view.with_high_watermark(assumptions.high_watermark)


class _Leader(msgspec.Struct, frozen=True):
    """The leader of one partition, as its follower sees it.

    Attributes:
        view: with the assumed offsets.
        offsets: what the follower can ask it for.
        log: what decides its answers.
        profile: whose rules.
    """

    view: PartitionView
    offsets: LeaderOffsets
    log: LogOffsets
    profile: Profile

    @property
    def has_remote(self) -> bool:
        """Whether remote storage is on for the topic."""
        return self.view.remote_storage_setting.enabled


class _Restoration(msgspec.Struct, frozen=True):
    """The state from remote storage that a decision leads to.

    Attributes:
        decision: which changes if remote storage does not have what the follower needs.
        state: that the follower takes; None where it takes nothing.
        findings: objects that are missing.
    """

    decision: BootstrapDecision
    state: RestoredState | None = None
    findings: tuple[Finding, ...] = ()


def _plan_bootstrap(
    view: PartitionView, follower: BootstrapFollower, profile: Profile, stable: KnownOffset
) -> tuple[PlannedBootstrap, list[Finding]]:
    highest = UNKNOWN if view.highest_remote is None else view.highest_remote.offset
    offsets = LeaderOffsets(
        log_start_offset=view.log_start.offset,
        local_log_start_offset=view.local_log_start.offset,
        pending_upload_offset=UNKNOWN if highest == UNKNOWN else highest + 1,
        log_end_offset=view.log_end.offset,
    )
    log, _ = log_offsets_of(view, stable.offset, None)
    leader = _Leader(view, offsets, log, profile)
    decision = decide(offsets, follower, profile)
    then = after_reset(offsets, follower, decision, profile) if leader.has_remote else None
    last = _restored(leader, decision if then is None else then)
    state = last.state
    if then is None:
        requests = list(_requests(leader, last, follower))
    else:
        requests = list(_requests(leader, _Restoration(decision, state), follower))
        assert decision.offset is not None, "row 2 leads to an offset"
        landed = replace(follower, fetch_offset=decision.offset, log_end_offset=decision.offset)
        requests += _requests(leader, last, landed)
    share = share_of(view, _start_of(last))
    steps = list[BootstrapStep]()
    why_not = None
    if state is not None:
        steps += _steps(leader, state)
        why_not = drawback(view, share, offsets.log_start_offset, state.next_offset)
    planned = PlannedBootstrap(
        **members_of_base(ViewedPartition, view),
        last_stable=stable,
        pending_upload_offset=offsets.pending_upload_offset,
        order_faults=_order_faults(view, stable.offset, highest),
        follower=follower,
        decision=last.decision if then is None else decision,
        then=None if then is None else last.decision,
        requests=requests,
        restored_state=state,
        steps=steps,
        share=share,
        drawback=why_not,
    )
    findings = [*last.findings]
    findings += (Finding("offsets-out-of-order", Severity.FINDING, view.path, fault) for fault in planned.order_faults)
    if last.decision.action is FollowerAction.RETRY_FOREVER:
        message = f"row {last.decision.row}: the follower never starts: {last.decision.reason}"
        findings.append(Finding("bootstrap-never-ends", Severity.FINDING, view.path, message, last.decision.offset))
    return planned, findings


def _order_faults(view: PartitionView, last_stable_offset: int, highest: int) -> list[str]:
    if not view.remote_storage_setting.enabled or view.highest_remote is None:
        return []
    first = view.log_start.offset
    local = view.local_log_start.offset
    if highest < first:
        highest = local - 1 if highest == UNKNOWN else first - 1  # a leader that has none yet does not know where they end
    return order_faults(
        local_log_start_offset=local,
        last_stable_offset=last_stable_offset,
        log_end_offset=view.log_end.offset,
        log_start_offset=first,
        highest_remote_offset=highest,
    )


def _restored(leader: _Leader, decision: BootstrapDecision) -> _Restoration:
    """Looks up the state for the target of a decision that leads to remote storage."""
    if decision.action is not FollowerAction.BUILD_STATE:
        return _Restoration(decision)
    log = leader.log
    remote = leader.view.remote
    assert decision.offset is not None
    assert remote is not None
    epoch = epoch_of(log.leader_epochs, decision.offset)
    try:
        state = auxiliary_state(
            decision.offset, log.leader_epochs, log.log_end_offset, UNKNOWN if epoch is None else epoch, remote.log
        )
    except NotInRemoteStorageError as error:
        reason = f"{decision.reason}; {error}: it begins anew each time"
        return _Restoration(replace(decision, action=FollowerAction.RETRY_FOREVER, reason=reason))
    if state.next_offset > decision.offset and decision.row in (5, 9):
        reason = f"{decision.reason}; {decision.offset} is inside of a copy, so that the follower starts after it"
        decision = replace(decision, row=12, reason=reason)
    try:
        data = remote.read_file(state.segment, LocalTierFile.LEADER_EPOCHS)
    except ReadFailedError as error:
        message = f"{error.message}: the follower fails and tries again each time"
        if state.segment.segment_id in remote.reported_lost:  # that finding does not say what follows for this follower
            return _Restoration(replace(decision, reason=f"{decision.reason}; {message}"))
        return _Restoration(decision, None, (Finding("tier-lost", Severity.DAMAGED, remote.place, message),))
    restored = RestoredState(
        segment_id=uuid_to_text(state.segment.segment_id),
        start_offset=state.segment.start_offset,
        end_offset=state.segment.end_offset,
        target_epoch=state.target_epoch,
        next_offset=state.next_offset,
        leader_epochs=read_leader_epoch_checkpoint(data, file=remote.place),
    )
    return _Restoration(decision, restored)


def _requests(leader: _Leader, restoration: _Restoration, follower: BootstrapFollower) -> Iterator[LeaderRequest]:
    """The requests of a follower up to its next fetch, and the leader's answers."""
    decision = restoration.decision
    offsets = leader.offsets
    log = leader.log
    if decision.row == 1:
        return
    is_below = offsets.log_start_offset <= follower.fetch_offset < offsets.local_log_start_offset and leader.has_remote
    from_tiered = (
        follower.last_tiered_enabled
        and follower.has_remote
        and not follower.is_compacted
        and follower.log_end_offset == 0
        and offsets.log_end_offset
    )
    # Brokers ask for the end before they choose (shouldFetchFromLastTieredOffset) and for the lag (TierStateMachine.start).
    is_kafka = leader.profile is Profile.KAFKA
    if not is_below or is_kafka:
        yield _list_offsets(leader, SpecialTimestamp.LATEST)
        if decision.row == 4:
            return
    yield _list_offsets(leader, SpecialTimestamp.EARLIEST)
    if from_tiered:
        pending = _list_offsets(leader, SpecialTimestamp.EARLIEST_PENDING_UPLOAD)
        yield pending
        if pending.offset == UNKNOWN:
            yield _list_offsets(leader, SpecialTimestamp.EARLIEST_LOCAL)
    elif is_below:
        yield _list_offsets(leader, SpecialTimestamp.EARLIEST_LOCAL)
    if decision.action in (FollowerAction.BUILD_STATE, FollowerAction.RETRY_FOREVER) and decision.offset is not None:
        epoch = epoch_of(log.leader_epochs, decision.offset)
        if epoch:
            end = end_of_epoch(log.leader_epochs, epoch - 1, log.log_end_offset) or EpochEnd(UNKNOWN, UNKNOWN)
            yield LeaderRequest("OffsetsForLeaderEpoch", f"leader epoch {epoch - 1}", end.end_offset, end.epoch)
        if restoration.state is not None and (is_below or is_kafka):
            yield _list_offsets(leader, SpecialTimestamp.LATEST)


def _list_offsets(leader: _Leader, timestamp: SpecialTimestamp) -> LeaderRequest:
    answer: ListedOffset
    if timestamp is SpecialTimestamp.EARLIEST_PENDING_UPLOAD and leader.profile is Profile.PROPOSAL:
        answer = pending_upload_of_proposal(leader.log)
    else:
        answer = list_offset(leader.log, timestamp, Isolation.REPLICA, _NoSearch())
    return LeaderRequest(
        "ListOffsets", f"{int(timestamp)} {timestamp.name.lower().replace('_', ' ')}", answer.offset, answer.leader_epoch
    )


class _NoSearch:
    """For questions that look for no record."""

    def local(self, timestamp: int, start_offset: int) -> None:
        """Never asked."""

    def remote(self, timestamp: int, start_offset: int) -> None:
        """Never asked."""

    def greatest(self) -> None:
        """Never asked."""


def _start_of(restoration: _Restoration) -> int | None:
    """Where the follower begins to replicate; None where it does not."""
    decision = restoration.decision
    if decision.action is FollowerAction.BUILD_STATE:
        return None if restoration.state is None else restoration.state.next_offset
    if decision.action in (FollowerAction.START_EMPTY_AT, FollowerAction.FETCH):
        return decision.offset
    return None


def _steps(leader: _Leader, state: RestoredState) -> Iterator[BootstrapStep]:
    """KIP-1023's example step by step: the log is emptied, the state is built, the leader's log follows."""
    begin = state.next_offset
    start = leader.offsets.log_start_offset
    end = leader.offsets.log_end_offset
    yield BootstrapStep("the log is emptied", start, begin, begin, ())
    yield BootstrapStep("leader epochs and producer snapshot are taken over", start, begin, begin, state.leader_epochs)
    # A follower learns a leader epoch with the first batch of it: an epoch without a batch never reaches it.
    later = tuple(entry for entry in leader.view.leader_epochs if begin <= entry.start_offset < end)
    yield BootstrapStep("everything is fetched", start, begin, end, (*state.leader_epochs, *later))


# ---------------------------------------------------------------------------------------------------------------- what it replicates


def drawback(view: PartitionView, share: ReplicationShare, log_start_offset: int, next_offset: int) -> str | None:
    """The drawback that KIP-1023 names: the follower has few segments on disk. None where it has what the leader has.

    Args:
        view: the leader's.
        share: of the same start.
        log_start_offset: of the follower.
        next_offset: where it begins on disk.
    """
    segments = view.directory.segments
    segment_count = sum(segment.base_offset >= next_offset for segment in segments)
    if share.replicated_bytes is None or segment_count == len(segments):
        return None
    return (
        f"it has {segment_count} of the leader's {pluralize(len(segments), 'segment')} on disk. When it leads, or consumers fetch from it "
        f"as their closest replica, reads of {log_start_offset} to {next_offset - 1} go to remote storage, "
        f"{share.local_bytes - share.replicated_bytes} bytes of them from the leader's disk today"
    )


def share_of(view: PartitionView, start: int | None) -> ReplicationShare:
    """The share of a follower that starts at an offset, None for one that does not.

    Raises:
        ReadFailedError: a segment cannot be read.
    """
    segments = view.directory.segments
    local_bytes = sum(segment.size_bytes for segment in segments)
    bytes_below = 0
    if view.remote is not None and segments:
        first = segments[0].base_offset
        bytes_below = sum(
            copy.size_bytes for copy in view.remote.live if copy.start_offset < first and copy.end_offset >= view.log_start.offset
        )
    replicated_bytes = None if start is None else local_bytes - _bytes_below(view.directory, start)
    return ReplicationShare(replicated_bytes, local_bytes, local_bytes + bytes_below)


def _bytes_below(directory: PartitionDir, offset: int) -> int:
    """Bytes of the batches on disk that end below an offset."""
    segments = directory.segments
    index = bisect.bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    if index < 0:
        return 0
    whole = sum(segment.size_bytes for segment in segments[:index])
    if segments[index].base_offset == offset:
        return whole
    with directory.open_segment(segments[index]) as source:
        reader = HeaderReader(
            source, columns=("base_offset", "last_offset_delta", "length"), read_markers=False, block_bytes=1 << 20
        )
        for block in reader:
            reaches = block.column("base_offset") + block.column("last_offset_delta") >= offset
            if reaches.any():
                return whole + int(block.position_bytes[int(np.argmax(reaches))])
        assert reader.tail is not None
        return whole + reader.tail.position_bytes
