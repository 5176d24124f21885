"""How an empty follower of a leader would start (KIP-1023): the row of the table, the calls, the state in between, and what it costs.

Source: ``AbstractFetcherThread.fetchOffsetAndTruncate`` and ``handleOffsetsMovedToTieredStorage``, ``TierStateMachine``,
``RemoteLeaderEndPoint``; 4.3.1.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from msgspec.structs import replace

from formats.errors import FormatError
from formats.log.batch_headers import HeaderReader
from formats.partition.checkpoint_file import LeaderEpochEntry, read_leader_epoch_checkpoint
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.local_tier_name import LocalTierFile
from snaprebuild.errors import ReadFailedError, SnaprebuildError, UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error, pluralize
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
from snaprebuild.followers.leader_view import PartitionView, view_partitions
from snaprebuild.followers.list_offsets import (
    Isolation,
    ListedOffset,
    LogOffsets,
    SpecialTimestamp,
    list_offset,
    pending_upload_of_proposal,
)
from snaprebuild.followers.offsets import log_offsets_of
from snaprebuild.published import EpochOrNone, Natural, OffsetOrNone, Part, Uuid, one_of
from snaprebuild.replay.leader_epochs import end_of_epoch, epoch_of
from snaprebuild.snapshots.last_stable import KnownOffset, last_stable_offsets
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import Source
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.tier.remote_partition import Tier

__all__ = [
    "BootstrapPlan",
    "BootstrapStep",
    "LeaderAssumptions",
    "LeaderRequest",
    "PlannedBootstrap",
    "ReplicationShare",
    "RestoredState",
    "plan_bootstrap",
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
    """What the follower has done."""
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


@dataclass(slots=True)
class PlannedBootstrap:
    """One partition.

    Attributes:
        view: with the assumed offsets.
        high_watermark: that is used.
        last_stable: that is used.
        leader: what the follower can ask it for.
        order_faults: what contradicts KIP-405's order of offsets.
        follower: before it fetches.
        decision: the row.
        then: the row that follows at once, where that one leads to what is only in remote storage; else None.
        requests: of the follower, in their order.
        restored_state: what it takes from remote storage; None where it takes nothing.
        steps: its log in between.
        share: what is replicated.
        drawback: of the follower as a leader, or None.
    """

    view: PartitionView
    high_watermark: KnownOffset
    last_stable: KnownOffset
    leader: LeaderOffsets
    order_faults: list[str]
    follower: BootstrapFollower
    decision: BootstrapDecision
    then: BootstrapDecision | None
    share: ReplicationShare
    requests: list[LeaderRequest] = field(default_factory=list)
    restored_state: RestoredState | None = None
    steps: list[BootstrapStep] = field(default_factory=list)
    drawback: str | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def last(self) -> BootstrapDecision:
        """The decision that it ends with."""
        return self.decision if self.then is None else self.then

    @last.setter
    def last(self, decision: BootstrapDecision) -> None:
        if self.then is None:
            self.decision = decision
        else:
            self.then = decision


@dataclass(slots=True)
class BootstrapPlan:
    """All partitions, with their findings."""

    profile: Profile
    follower: BootstrapFollower
    partitions: list[PlannedBootstrap] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def plan_bootstrap(
    source: Source,
    tier: Tier,
    follower: BootstrapFollower,
    profile: Profile,
    assumptions: LeaderAssumptions,
    run: Run,
) -> BootstrapPlan:
    """How a follower of each partition would start.

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
    plan = BootstrapPlan(profile, follower, findings=findings)
    marked = []
    for view in views:
        _assume(view, assumptions)
        # Else which of the copies are its own is unknown, and a finding.
        if not view.remote_storage_setting.enabled or view.remote is not None:
            marked.append((view, view.high_watermark_of(assumptions.high_watermark)))
    if assumptions.last_stable is None:
        stable, damage = last_stable_offsets([(view.source, view.log_start.offset, mark) for view, mark in marked], run)
        plan.findings += damage
    else:
        stable = {
            view.directory.path: KnownOffset(min(assumptions.last_stable, mark.offset), "--assume last_stable", assumed=False)
            for view, mark in marked
        }
    for view, mark in marked:
        path = view.directory.path
        if path not in stable:
            continue  # damaged, and a finding
        own = replace(
            follower,
            has_remote=follower.has_remote and view.remote_storage_setting.enabled,
            is_compacted=follower.is_compacted or view.source.is_compacted,
        )
        try:
            planned = _plan_bootstrap(view, own, profile, mark, stable[path])
        except (FormatError, SnaprebuildError) as error:
            plan.findings.append(finding_of_error(error, path))
        else:
            plan.partitions.append(planned)
            plan.findings += planned.findings
    return plan


def _assume(view: PartitionView, assumptions: LeaderAssumptions) -> None:
    """Replaces offsets of a view with the assumed ones."""
    if assumptions.log_end is not None:
        view.log_end = KnownOffset(assumptions.log_end, "--assume log_end", assumed=False)
        view.high_watermark = replace(view.high_watermark, offset=min(view.high_watermark.offset, assumptions.log_end))
    if assumptions.log_start is not None:
        view.log_start = KnownOffset(assumptions.log_start, "--assume log_start", assumed=False)
        if view.local_log_start.offset < assumptions.log_start:
            view.local_log_start = view.log_start
        view.high_watermark = replace(view.high_watermark, offset=max(view.high_watermark.offset, assumptions.log_start))
    if assumptions.highest_remote is not None and view.remote_storage_setting.enabled:
        view.highest_remote = KnownOffset(assumptions.highest_remote, "--assume highest_remote", assumed=False)
    if view.log_end.offset < view.local_log_start.offset:
        raise UsageError(
            f"the log would end at {view.log_end.offset}, below its start {view.local_log_start.offset}", path=view.directory.path
        )


def _plan_bootstrap(
    view: PartitionView, follower: BootstrapFollower, profile: Profile, mark: KnownOffset, stable: KnownOffset
) -> PlannedBootstrap:
    highest = UNKNOWN if view.highest_remote is None else view.highest_remote.offset
    leader = LeaderOffsets(
        log_start_offset=view.log_start.offset,
        local_log_start_offset=view.local_log_start.offset,
        pending_upload_offset=UNKNOWN if highest == UNKNOWN else highest + 1,
        log_end_offset=view.log_end.offset,
    )
    decision = decide(leader, follower, profile)
    planned = PlannedBootstrap(
        view=view,
        high_watermark=mark,
        last_stable=stable,
        leader=leader,
        order_faults=_order_faults(view, stable.offset, highest),
        follower=follower,
        decision=decision,
        then=after_reset(leader, follower, decision, profile) if view.remote_storage_setting.enabled else None,
        share=ReplicationShare(None, 0, 0),
    )
    log, _ = log_offsets_of(view, mark.offset, stable.offset, None)
    if planned.last.action is FollowerAction.BUILD_STATE:
        _restore_state(planned, log)
    planned.requests = list(_requests(planned, planned.decision, follower, profile, log))
    if planned.then is not None:
        assert decision.offset is not None, "row 2 leads to an offset"
        landed = replace(follower, fetch_offset=decision.offset, log_end_offset=decision.offset)
        planned.requests += _requests(planned, planned.then, landed, profile, log)
    planned.steps = list(_steps(planned))
    planned.share = share_of(view, _start_of(planned))
    if planned.restored_state is not None:
        planned.drawback = drawback(view, planned.share, leader.log_start_offset, planned.restored_state.next_offset)
    path = view.directory.path
    last = planned.last
    planned.findings += (Finding("offsets-out-of-order", Severity.FINDING, path, fault) for fault in planned.order_faults)
    if last.action is FollowerAction.RETRY_FOREVER:
        message = f"row {last.row}: the follower never starts: {last.reason}"
        planned.findings.append(Finding("bootstrap-never-ends", Severity.FINDING, path, message, last.offset))
    return planned


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


def _restore_state(planned: PlannedBootstrap, log: LogOffsets) -> None:
    """Looks up the state for the target of the decision, which changes if remote storage does not have what the follower needs."""
    view = planned.view
    decision = planned.last
    assert decision.offset is not None
    assert view.remote is not None
    epoch = epoch_of(log.leader_epochs, decision.offset)
    try:
        state = auxiliary_state(
            decision.offset, log.leader_epochs, log.log_end_offset, UNKNOWN if epoch is None else epoch, view.remote.log
        )
    except NotInRemoteStorageError as error:
        reason = f"{decision.reason}; {error}: it begins anew each time"
        planned.last = replace(decision, action=FollowerAction.RETRY_FOREVER, reason=reason)
        return
    if state.next_offset > decision.offset and decision.row in (5, 9):
        reason = f"{decision.reason}; {decision.offset} is inside of a copy, so that the follower starts after it"
        planned.last = replace(decision, row=12, reason=reason)
    place = view.remote.place
    try:
        data = view.remote.read_file(state.segment, LocalTierFile.LEADER_EPOCHS)
    except ReadFailedError as error:
        message = f"{error.message}: the follower fails and tries again each time"
        planned.findings.append(Finding("tier-lost", Severity.DAMAGED, place, message))
        return
    planned.restored_state = RestoredState(
        segment_id=uuid_to_text(state.segment.segment_id),
        start_offset=state.segment.start_offset,
        end_offset=state.segment.end_offset,
        target_epoch=state.target_epoch,
        next_offset=state.next_offset,
        leader_epochs=read_leader_epoch_checkpoint(data, file=place),
    )


def _requests(
    planned: PlannedBootstrap, decision: BootstrapDecision, follower: BootstrapFollower, profile: Profile, log: LogOffsets
) -> Iterator[LeaderRequest]:
    """The requests of a follower up to its next fetch, and the leader's answers."""
    leader = planned.leader
    if decision.row == 1:
        return
    is_below = (
        leader.log_start_offset <= follower.fetch_offset < leader.local_log_start_offset
        and planned.view.remote_storage_setting.enabled
    )
    from_tiered = (
        follower.last_tiered_enabled
        and follower.has_remote
        and not follower.is_compacted
        and follower.log_end_offset == 0
        and leader.log_end_offset
    )
    # Brokers ask for the end before they choose (shouldFetchFromLastTieredOffset) and for the lag (TierStateMachine.start).
    is_kafka = profile is Profile.KAFKA
    if not is_below or is_kafka:
        yield _list_offsets(log, SpecialTimestamp.LATEST, profile)
        if decision.row == 4:
            return
    yield _list_offsets(log, SpecialTimestamp.EARLIEST, profile)
    if from_tiered:
        pending = _list_offsets(log, SpecialTimestamp.EARLIEST_PENDING_UPLOAD, profile)
        yield pending
        if pending.offset == UNKNOWN:
            yield _list_offsets(log, SpecialTimestamp.EARLIEST_LOCAL, profile)
    elif is_below:
        yield _list_offsets(log, SpecialTimestamp.EARLIEST_LOCAL, profile)
    if decision.action in (FollowerAction.BUILD_STATE, FollowerAction.RETRY_FOREVER) and decision.offset is not None:
        epoch = epoch_of(log.leader_epochs, decision.offset)
        if epoch:
            end = end_of_epoch(log.leader_epochs, epoch - 1, log.log_end_offset)
            yield LeaderRequest(
                "OffsetsForLeaderEpoch",
                f"leader epoch {epoch - 1}",
                UNKNOWN if end is None else end.end_offset,
                UNKNOWN if end is None else end.epoch,
            )
        if planned.restored_state is not None and (is_below or is_kafka):
            yield _list_offsets(log, SpecialTimestamp.LATEST, profile)


def _list_offsets(log: LogOffsets, timestamp: SpecialTimestamp, profile: Profile) -> LeaderRequest:
    answer: ListedOffset
    if timestamp is SpecialTimestamp.EARLIEST_PENDING_UPLOAD and profile is Profile.PROPOSAL:
        answer = pending_upload_of_proposal(log)
    else:
        answer = list_offset(log, timestamp, Isolation.REPLICA, _NoSearch())
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


def _start_of(planned: PlannedBootstrap) -> int | None:
    """Where the follower begins to replicate; None where it does not."""
    decision = planned.last
    if decision.action is FollowerAction.BUILD_STATE:
        return None if planned.restored_state is None else planned.restored_state.next_offset
    return decision.offset if decision.action in (FollowerAction.START_EMPTY_AT, FollowerAction.FETCH) else None


def _steps(planned: PlannedBootstrap) -> Iterator[BootstrapStep]:
    """KIP-1023's example step by step: the log is emptied, the state is built, the leader's log follows."""
    state = planned.restored_state
    leader = planned.leader
    if state is None:
        return
    begin = state.next_offset
    yield BootstrapStep("the log is emptied", leader.log_start_offset, begin, begin, ())
    yield BootstrapStep(
        "leader epochs and producer snapshot are taken over", leader.log_start_offset, begin, begin, state.leader_epochs
    )
    # A follower learns a leader epoch with the first batch of it: an epoch without a batch never reaches it.
    later = tuple(entry for entry in planned.view.leader_epochs if begin <= entry.start_offset < leader.log_end_offset)
    yield BootstrapStep(
        "everything is fetched", leader.log_start_offset, begin, leader.log_end_offset, (*state.leader_epochs, *later)
    )


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
