"""How an empty follower of a leader would start (KIP-1023): the row of the table, the calls, the state in between, and what it costs.

Source: ``AbstractFetcherThread.fetchOffsetAndTruncate`` and ``handleOffsetsMovedToTieredStorage``, ``TierStateMachine``,
``RemoteLeaderEndPoint``; 4.3.1.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from formats.errors import FormatError
from formats.log.batch_headers import HeaderReader
from formats.partition.checkpoint_file import LeaderEpochEntry, read_leader_epoch_checkpoint
from formats.remote.local_tier_name import LocalTierFile
from snaprebuild.errors import ReadFailedError, SnaprebuildError, UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error, pluralize
from snaprebuild.followers import Profile
from snaprebuild.followers.bootstrap_rules import (
    Action,
    AuxiliaryState,
    Decision,
    Follower,
    Leader,
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
from snaprebuild.replay.leader_epochs import end_of_epoch, epoch_of
from snaprebuild.snapshots.last_stable import Known, last_stable_offsets
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import Source
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.tier.remote_partition import Tier

__all__ = ["BootstrapPlan", "Call", "PlannedBootstrap", "Share", "Step", "Supposed", "plan_bootstrap"]

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Supposed:
    """Values that replace those of the leader's files; None for those. Attributes as of ``PartitionView``."""

    log_start: int | None = None
    log_end: int | None = None
    highest_remote: int | None = None
    high_watermark: int | None = None
    last_stable: int | None = None
    remote_storage: bool | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A request of the follower, and the answer: -1 where it is none."""

    api: str
    asks: str
    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Step:
    """The follower's log in between."""

    after: str
    log_start: int
    local_start: int
    log_end: int
    epochs: tuple[LeaderEpochEntry, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """The bytes that are replicated.

    Attributes:
        replicated: from where the follower starts; None where it does not start.
        local: of all segments on the leader's disk: what it replicates without the feature.
        everything: and of the copies below them.
    """

    replicated: int | None
    local: int
    everything: int


@dataclass(slots=True)
class PlannedBootstrap:
    """One partition.

    Attributes:
        view: with what was supposed.
        high_watermark: that is used, as ``last_stable``.
        leader: what the follower can ask it for.
        faults: what contradicts KIP-405's order of offsets.
        follower: as it is taken to be.
        decision: the row.
        then: the row that follows at once, where that one leads to what is only in remote storage; else None.
        calls: of the follower, in their order.
        state: what it takes from remote storage, with the leader epochs of the copy; None where it takes nothing.
        steps: its log in between.
        share: what is replicated.
        drawback: of the follower as a leader, or None.
    """

    view: PartitionView
    high_watermark: Known
    last_stable: Known
    leader: Leader
    faults: list[str]
    follower: Follower
    decision: Decision
    then: Decision | None
    share: Share
    calls: list[Call] = field(default_factory=list)
    state: AuxiliaryState | None = None
    state_epochs: tuple[LeaderEpochEntry, ...] = ()
    steps: list[Step] = field(default_factory=list)
    drawback: str | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def last(self) -> Decision:
        """The decision that it ends with."""
        return self.decision if self.then is None else self.then

    @last.setter
    def last(self, decision: Decision) -> None:
        if self.then is None:
            self.decision = decision
        else:
            self.then = decision


@dataclass(slots=True)
class BootstrapPlan:
    """All partitions, with their findings."""

    profile: Profile
    follower: Follower
    partitions: list[PlannedBootstrap] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def plan_bootstrap(
    source: Source,
    tier: Tier,
    follower: Follower,
    profile: Profile,
    supposed: Supposed,
    run: Run,
) -> BootstrapPlan:
    """How a follower of each partition would start.

    Args:
        source: from ``open_source``: directories of the leader.
        tier: the store.
        follower: where it is, and how it is set; the cleaner's checkpoint shows compacted topics, too.
        profile: whose rules.
        supposed: replaces values of the leader's files.
        run: its clock decides which snapshot at the first offset is trusted.

    Raises:
        RefusedError: a limit of the run is used up.
        UsageError: what is supposed contradicts itself.
    """
    found, findings = view_partitions(source, tier, supposed.remote_storage)
    plan = BootstrapPlan(profile, follower, findings=findings)
    known = [_supposed(view, supposed) for view in found]
    # Else which of the copies are its own is unknown, and a finding.
    views = [
        (view, view.high_watermark_of(supposed.high_watermark)) for view in known if not view.has_remote or view.remote is not None
    ]
    if supposed.last_stable is None:
        stable, damage = last_stable_offsets([(view.source, view.log_start.value, mark) for view, mark in views], run)
        plan.findings += damage
    else:
        stable = {view.directory.path: Known(min(supposed.last_stable, mark.value), "--assume last_stable") for view, mark in views}
    for view, mark in views:
        path = view.directory.path
        if path not in stable:
            continue  # damaged, and a finding
        own = replace(
            follower,
            has_remote=follower.has_remote and view.has_remote,
            is_compacted=follower.is_compacted or view.source.is_compacted,
        )
        try:
            planned = _planned(view, own, profile, mark, stable[path])
        except (FormatError, SnaprebuildError) as error:
            plan.findings.append(finding_of_error(error, path))
        else:
            plan.partitions.append(planned)
            plan.findings += planned.findings
    return plan


def _supposed(view: PartitionView, supposed: Supposed) -> PartitionView:
    if supposed.log_end is not None:
        view.log_end = Known(supposed.log_end, "--assume log_end")
        view.high_watermark = replace(view.high_watermark, value=min(view.high_watermark.value, supposed.log_end))
    if supposed.log_start is not None:
        view.log_start = Known(supposed.log_start, "--assume log_start")
        if view.local_start.value < supposed.log_start:
            view.local_start = view.log_start
        view.high_watermark = replace(view.high_watermark, value=max(view.high_watermark.value, supposed.log_start))
    if supposed.highest_remote is not None and view.has_remote:
        view.highest_remote = Known(supposed.highest_remote, "--assume highest_remote")
    if view.log_end.value < view.local_start.value:
        raise UsageError(
            f"the log would end at {view.log_end.value}, below its start {view.local_start.value}", path=view.directory.path
        )
    return view


def _planned(view: PartitionView, follower: Follower, profile: Profile, mark: Known, stable: Known) -> PlannedBootstrap:
    highest = UNKNOWN if view.highest_remote is None else view.highest_remote.value
    pending = UNKNOWN if highest == UNKNOWN else highest + 1
    leader = Leader(view.log_start.value, view.local_start.value, pending, view.log_end.value)
    decision = decide(leader, follower, profile)
    faults = _order_faults(view, stable.value, highest)
    then = after_reset(leader, follower, decision, profile) if view.has_remote else None
    planned = PlannedBootstrap(view, mark, stable, leader, faults, follower, decision, then, Share(None, 0, 0))
    log, _ = log_offsets_of(view, mark.value, stable.value, None)
    if planned.last.action is Action.BUILD_STATE:
        _take_state(planned, log)
    planned.calls = list(_calls(planned, planned.decision, follower, profile, log))
    if planned.then is not None:
        assert decision.offset is not None, "row 2 leads to an offset"
        landed = replace(follower, fetch_offset=decision.offset, log_end=decision.offset)
        planned.calls += _calls(planned, planned.then, landed, profile, log)
    planned.steps = list(_steps(planned))
    planned.share = share_of(view, _start_of(planned))
    if planned.state is not None:
        planned.drawback = drawback(view, planned.share, planned.state.log_start, planned.state.next_offset)
    path = view.directory.path
    last = planned.last
    planned.findings += (Finding("offsets-out-of-order", Severity.FINDING, path, fault) for fault in planned.faults)
    if last.action is Action.RETRY_FOREVER:
        message = f"row {last.row}: the follower never starts: {last.why}"
        planned.findings.append(Finding("bootstrap-never-ends", Severity.FINDING, path, message, last.offset))
    return planned


def _order_faults(view: PartitionView, last_stable: int, highest: int) -> list[str]:
    if not view.has_remote or view.highest_remote is None:
        return []
    first = view.log_start.value
    local = view.local_start.value
    if highest < first:
        highest = local - 1 if highest == UNKNOWN else first - 1  # a leader that has none yet does not know where they end
    return order_faults(
        local_start=local, last_stable=last_stable, log_end=view.log_end.value, log_start=first, highest_remote=highest
    )


def _take_state(planned: PlannedBootstrap, log: LogOffsets) -> None:
    """Finds what remote storage has for the target of the decision, which changes if that is not what the follower needs."""
    view = planned.view
    decision = planned.last
    assert decision.offset is not None
    assert view.remote is not None
    epoch = epoch_of(log.epochs, decision.offset)
    try:
        state = auxiliary_state(
            decision.offset, log.log_start, log.epochs, log.log_end, UNKNOWN if epoch is None else epoch, view.remote.log
        )
    except NotInRemoteStorageError as error:
        why = f"{decision.why}; {error}: it begins anew each time"
        planned.last = replace(decision, action=Action.RETRY_FOREVER, why=why)
        return
    if state.next_offset > decision.offset and decision.row in (5, 9):
        why = f"{decision.why}; {decision.offset} is inside of a copy, so that the follower starts after it"
        planned.last = replace(decision, row=12, why=why)
    place = view.remote.place
    try:
        data = view.remote.file(state.segment, LocalTierFile.LEADER_EPOCHS)
    except ReadFailedError as error:
        message = f"{error.message}: the follower fails and tries again each time"
        planned.findings.append(Finding("tier-lost", Severity.DAMAGED, place, message))
        return
    planned.state_epochs = read_leader_epoch_checkpoint(data, file=place)
    planned.state = state


def _calls(planned: PlannedBootstrap, decision: Decision, follower: Follower, profile: Profile, log: LogOffsets) -> Iterator[Call]:
    """The requests of a follower up to its next fetch, and the leader's answers."""
    leader = planned.leader
    if decision.row == 1:
        return
    is_below = leader.log_start <= follower.fetch_offset < leader.local_start and planned.view.has_remote
    from_tiered = (
        follower.last_tiered_enabled
        and follower.has_remote
        and not follower.is_compacted
        and follower.log_end == 0
        and leader.log_end
    )
    # Brokers ask for the end before they choose (shouldFetchFromLastTieredOffset) and for the lag (TierStateMachine.start).
    is_kafka = profile is Profile.KAFKA
    if not is_below or is_kafka:
        yield _asked(log, SpecialTimestamp.LATEST, profile)
        if decision.row == 4:
            return
    yield _asked(log, SpecialTimestamp.EARLIEST, profile)
    if from_tiered:
        pending = _asked(log, SpecialTimestamp.EARLIEST_PENDING_UPLOAD, profile)
        yield pending
        if pending.offset == UNKNOWN:
            yield _asked(log, SpecialTimestamp.EARLIEST_LOCAL, profile)
    elif is_below:
        yield _asked(log, SpecialTimestamp.EARLIEST_LOCAL, profile)
    if decision.action in (Action.BUILD_STATE, Action.RETRY_FOREVER) and decision.offset is not None:
        epoch = epoch_of(log.epochs, decision.offset)
        if epoch:
            end = end_of_epoch(log.epochs, epoch - 1, log.log_end)
            found = (UNKNOWN, UNKNOWN) if end is None else (end.end_offset, end.epoch)
            yield Call("OffsetsForLeaderEpoch", f"leader epoch {epoch - 1}", *found)
        if planned.state is not None and (is_below or is_kafka):
            yield _asked(log, SpecialTimestamp.LATEST, profile)


def _asked(log: LogOffsets, timestamp: SpecialTimestamp, profile: Profile) -> Call:
    found: ListedOffset
    if timestamp is SpecialTimestamp.EARLIEST_PENDING_UPLOAD and profile is Profile.PROPOSAL:
        found = pending_upload_of_proposal(log)
    else:
        found = list_offset(log, timestamp, Isolation.REPLICA, _NoSearch())
    return Call("ListOffsets", f"{int(timestamp)} {timestamp.name.lower().replace('_', ' ')}", found.offset, found.leader_epoch)


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
    if decision.action is Action.BUILD_STATE:
        return None if planned.state is None else planned.state.next_offset
    return decision.offset if decision.action in (Action.START_EMPTY_AT, Action.FETCH) else None


def _steps(planned: PlannedBootstrap) -> Iterator[Step]:
    """KIP-1023's example step by step: the log is emptied, the state is built, the leader's log follows."""
    state = planned.state
    leader = planned.leader
    if state is None:
        return
    yield Step("the log is emptied", state.log_start, state.next_offset, state.next_offset, ())
    yield Step(
        "leader epochs and producer snapshot are taken over",
        state.log_start,
        state.next_offset,
        state.next_offset,
        planned.state_epochs,
    )
    # A follower learns a leader epoch with the first batch of it: an epoch without a batch never reaches it.
    following = tuple(entry for entry in planned.view.epochs if state.next_offset <= entry.start_offset < leader.log_end)
    yield Step("everything is fetched", state.log_start, state.next_offset, leader.log_end, (*planned.state_epochs, *following))


# ---------------------------------------------------------------------------------------------------------------- what it replicates


def drawback(view: PartitionView, share: Share, log_start: int, next_offset: int) -> str | None:
    """The drawback that KIP-1023 names: the follower has few segments on disk. None where it has what the leader has.

    Args:
        view: the leader's.
        share: of the same start.
        log_start: of the follower.
        next_offset: where it begins on disk.
    """
    segments = view.directory.segments
    kept = sum(segment.base_offset >= next_offset for segment in segments)
    if share.replicated is None or kept == len(segments):
        return None
    return (
        f"it has {kept} of the leader's {pluralize(len(segments), 'segment')} on disk. When it leads, or consumers fetch from it as their "
        f"closest replica, reads of {log_start} to {next_offset - 1} go to remote storage, "
        f"{share.local - share.replicated} bytes of them from the leader's disk today"
    )


def share_of(view: PartitionView, start: int | None) -> Share:
    """The share of a follower that starts at an offset, None for one that does not.

    Raises:
        ReadFailedError: a segment cannot be read.
    """
    segments = view.directory.segments
    local = sum(segment.size_bytes for segment in segments)
    below = 0
    if view.remote is not None and segments:
        first = segments[0].base_offset
        below = sum(
            copy.size_bytes for copy in view.remote.live if copy.start_offset < first and copy.end_offset >= view.log_start.value
        )
    return Share(None if start is None else local - _bytes_below(view.directory, start), local, local + below)


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
