"""Compares the producer snapshots in remote storage with a replay of the segments there.

The copies of a partition that follow one another are read as a partition directory (``RemotePartition``), so that the verdicts are those of
``verify``. Each step takes the result of the one before: listing, manifests, the joined log, what is replayed, verdicts, findings.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from formats.remote.object_names import LocalTierFile
from formats.remote.remote_log_metadata import TopicIdPartition
from snaprebuild.errors import LimitReachedError
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import Comparison
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine.crosscheck import ListedDifferences
from snaprebuild.snapshots.engine.partition_task import Engine, PartitionTask
from snaprebuild.snapshots.engine.schedule import run_partitions
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.second_look import LISTINGS_MAX
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.snapshots.verify import OnBoundary, PartitionVerdict, VerifyOutcome, verify_task
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit.copy_log import CopyLog, Stretch, join_copies, stretch_above
from snaprebuild.tier.audit.partition_audit import (
    CopyAudit,
    PartitionAudit,
    SnapshotVerdict,
    StoreAudit,
    add_findings,
    read_copies,
    read_ends,
)
from snaprebuild.tier.audit.proven_snapshots import ProvenSnapshots
from snaprebuild.tier.audit.record_check import check_records
from snaprebuild.tier.audit.structure import check_structure, compare_members
from snaprebuild.tier.audit.window import LocalStarts, Window, WindowOutcome, reachable_windows, whole_window
from snaprebuild.tier.audit.window_task import WindowTask
from snaprebuild.tier.cost import AuditCost, CopyRead, audit_cost, cold_bytes, refuse_cold
from snaprebuild.tier.ledger.ledger_file import AuditLedger
from snaprebuild.tier.ledger.turn import LedgerTurn, ReplayedPart
from snaprebuild.tier.remote_log import RemoteLogs
from snaprebuild.tier.remote_partition import RemotePartition, unreadable_objects
from snaprebuild.tier.remote_store import (
    StoreAccess,
    Tier,
    list_store,
    refuse_without_copies,
    unrecorded_finding,
    unrecorded_states,
    zero_id_findings,
)

if TYPE_CHECKING:
    from snaprebuild.cluster.source_check.metadata_read import MetadataRead

__all__ = ["selected_partitions", "tier_audit"]

MakeEngine = Callable[[int], Engine | None]


RESTARTS_MAX = 8
"""How often the audit of one partition begins again above a damaged segment: each time what is above may be read again."""


@dataclass(frozen=True, slots=True)
class _PlannedReplay:
    """The part of one partition that is replayed.

    Attributes:
        stretch: that it is in.
        window: the part of it; None for all, from offset 0 on.
    """

    log: CopyLog
    stretch: Stretch
    window: Window | None

    @property
    def source(self) -> PartitionSource:
        """The copies, with all of their segments."""
        return self.stretch.source if self.window is None else self.window.source

    @property
    def first_index(self) -> int:
        """Index of the first segment that is read."""
        return 0 if self.window is None else self.window.first_index

    @property
    def start_offset(self) -> int:
        """Base offset of the first segment that is read."""
        return self.source.directory.segments[self.first_index].base_offset

    @property
    def read_bytes(self) -> int:
        """Bytes of the segments that are read."""
        return self.source.directory.size_bytes if self.window is None else self.window.read_bytes


@dataclass(slots=True)
class _PartitionWork:
    """The work on one partition.

    Attributes:
        audit: the result.
        level: how much is read.
        clock: for expiry.
        starts: where logs begin on the disks of their leaders.
        log: that its copies make; None as long as the ends of some are unknown.
        replays: of the log.
    """

    audit: PartitionAudit
    level: AuditLevel
    clock: Clock
    starts: LocalStarts
    log: CopyLog | None = None
    replays: list[_PlannedReplay] = field(default_factory=list)

    def join(self, readable: Sequence[CopyAudit]) -> None:
        """Joins copies whose ends are known, and plans what is replayed of them."""
        self.log = join_copies(self.audit, readable)
        self.replays = self._plan_replays(self.log)
        if self.replays:
            self.audit.replayed_from_offset = min(each.start_offset for each in self.replays)

    def _plan_replays(self, log: CopyLog) -> list[_PlannedReplay]:
        """The parts of the log that the level replays."""
        if self.level is AuditLevel.STRUCTURE or not log.stretches:
            return []
        if self.level is AuditLevel.REACHABLE:
            start = self.starts.of(self.audit.remote.id)
            return [_PlannedReplay(log, stretch, window) for stretch, window in reachable_windows(log, self.clock, start)]
        replays = []
        for stretch in log.stretches:
            window = None if stretch.is_from_zero else whole_window(log, stretch, self.clock)
            replays.append(_PlannedReplay(log, stretch, window))
        return replays

    def finish(self) -> None:
        """Compares what the replays alone did not compare, and adds the findings about the log as a whole."""
        log = self.log
        if log is None or self.level is AuditLevel.STRUCTURE:
            return
        audit = self.audit
        if audit.limit is None and (self._compares_members(log) or audit.has_gap):
            with _until_limit(audit):
                compare_members(log, self.clock)
        if audit.limit is not None:
            log.leave_uncompared()
        log.leave_unproven()
        audit.begins_by_retention = log.begins_by_retention
        for stretch in log.stretches:
            hole = stretch.above
            if hole is not None and not hole.is_recorded:
                audit.add_finding("tier-gap", Severity.FINDING, f"{hole.reason}: the audit begins again above", hole.first_offset)

    def _compares_members(self, log: CopyLog) -> bool:
        """Whether snapshots are compared with each other outside of the replays."""
        return self.level is AuditLevel.REACHABLE or len(log.stretches) > 1

    def reads(self) -> Iterator[CopyRead]:
        """The reads of the level, apart from the manifests."""
        for read in self._reads_of_replay():
            if self.level is AuditLevel.RECORDS:
                read.add_segment()
            yield read

    def _reads_of_replay(self) -> Iterator[CopyRead]:
        """The reads of the level without its check of records."""
        if self.level is AuditLevel.STRUCTURE:
            for each in self.audit.readable:
                is_timed = self.log is None and each.copy.max_timestamp_ms is None
                yield CopyRead.of(each.copy, snapshots=1, time=is_timed)
        elif self.log is None:
            for each in self.audit.readable:
                yield CopyRead.of(
                    each.copy,
                    segment=True,
                    compared=each.copy.facts.index_hits is not None,
                    snapshots=2,
                    index=self.level.replays_everything,
                    end=each.copy.end_offset is None,
                )
        else:
            yield from self._replayed_reads(self.log)

    def _replayed_reads(self, log: CopyLog) -> Iterator[CopyRead]:
        remote = self.audit.remote
        is_compared: dict[str, bool] = {}
        indexed = set[str]()
        snapshots = Counter[str]()
        for replay in self.replays:
            directory = replay.source.directory
            names = {each.log.name: each.has_checked_indexes for each in directory.segments[replay.first_index :]}
            is_compared |= names
            # Which transactions were aborted is certain where the log is replayed from offset 0.
            indexed |= set(names) if replay.window is None else set()
            snapshots.update(listed.name for _, listed in directory.snapshots)
        if self._compares_members(log):
            snapshots.update(remote.file_name(each.copy, LocalTierFile.PRODUCER_SNAPSHOT) for each in log.members)
        for each in self.audit.readable:
            name = remote.file_name(each.copy)
            yield CopyRead.of(
                each.copy,
                segment=name in is_compared,
                compared=is_compared.get(name, False),
                snapshots=snapshots[remote.file_name(each.copy, LocalTierFile.PRODUCER_SNAPSHOT)],
                index=name in indexed,
            )


def tier_audit(
    access: StoreAccess,
    run: Run,
    *,
    level: AuditLevel = AuditLevel.FULL,
    selection: Selection | None = None,
    engine: MakeEngine = lambda _: None,
    keep: ProvenSnapshots | None = None,
    announce: Callable[[AuditCost], None] | None = None,
    local_starts: LocalStarts | None = None,
    cluster: MetadataRead | None = None,
    ledger: AuditLedger | None = None,
) -> StoreAudit:
    """Audits every snapshot below a location.

    Args:
        access: to the store.
        run: entries that a load at the moment of its clock drops are not compared.
        level: how much is read.
        selection: of partitions; its offsets are ignored. None for all.
        engine: makes, from the bytes of the segments, what reads and replays in place of worker processes of this machine, or None.
        keep: gets the right snapshot of each copy whose own is wrong, where the log proves it; not with an engine. With a ledger nothing
            is read again that the ledger has.
        announce: called with what is going to be read, before anything but manifests is. With a ledger the ends of segments that only
            their batches have are read before it, too: they decide what is due.
        local_starts: where logs begin on the disks of their leaders, for the level ``REACHABLE``; None if unknown.
        cluster: its metadata log, with which producer ids are compared; None to leave that out.
        ledger: of earlier runs, for the level ``FULL``: what these have read is not read again, and a limit of the run ends no audit.

    Raises:
        UsageError: nothing of a known layout is there that the selection takes, or the private key is none, or the ledger is damaged.
        ReadFailedError: the store cannot be listed.
        RefusedError: a limit of the run ended the listing, or objects are in a cold storage class and no limit was set. A limit that is
            reached later ends no audit: the rest is not read.
    """
    root = access.root
    tier = list_store(access, run.stores)
    turn = None if ledger is None else LedgerTurn.begun(ledger, run, tier, begins_rounds=keep is None)
    selection = selection or Selection()
    audits, findings = selected_partitions(tier, selection)
    audit = StoreAudit(root.path, level, tier.verified, audits, [*tier.findings, *findings])
    if not audits:
        refuse_without_copies(tier, audit.store_findings, selection)
    audit.store_findings += selection.absent_findings(tier.partition_names, root.path, are_others_read=bool(audits))
    # Before even a manifest is read.
    listed = cold_bytes(copy.copy.objects for each in audits for copy in each.copies)
    refuse_cold(listed, run.stores.max_read_bytes, root.path)
    _read_manifests(audits)
    starts = LocalStarts() if local_starts is None else local_starts.checked({each.remote.id for each in audits})
    work = _planned_work(audits, level, run.clock, starts)
    if turn is None:
        audit.cost = audit_cost(read for each in work for read in each.reads())
        if announce is not None:
            announce(audit.cost)
        refuse_cold(audit.cost.cold, run.stores.max_read_bytes, root.path)
    _read_without_replay(work, run.clock)
    if turn is not None:
        audit.cost = turn.plan(_replayed_parts(work))
        if announce is not None:
            announce(audit.cost)
        turn.read(engine)
    _replay_present(work, audits, run, engine if turn is None else turn.judging, keep)
    for each in work:
        each.finish()
        if turn is not None:
            turn.settle(each.audit)
    if level is AuditLevel.RECORDS:
        check_records(audits, run, engine)
    for partition in audits:
        add_findings(partition, level)
    if turn is None:
        audit.store_findings += _limit_findings(audit)
    else:
        audit.store_findings += turn.end(root.path, audits)
        audit.ledger = turn.progress(audits)
    if cluster is not None:
        _compare_producer_ids(audit, cluster, run.clock)
    return audit


def _without_deleted(work: list[_PartitionWork], audits: list[PartitionAudit]) -> list[_PartitionWork]:
    """New work on the partitions of which copies were deleted while they were read, in the place of the old one.

    Args:
        work: on all partitions.
        audits: their results, in the same order.
    """
    again = []
    for place, old in enumerate(work):
        audit = old.audit
        if not audit.lost_file or audit.limit is not None:
            continue
        audit.lost_file = False
        if not audit.leave_out_deleted(audit.readable):
            continue
        fresh = PartitionAudit(audit.remote, [CopyAudit(each.copy) for each in audit.copies if each.copy.objects.by_kind])
        read_copies(fresh)
        work[place] = _PartitionWork(fresh, old.level, old.clock, old.starts)
        audits[place] = fresh
        if fresh.ends_are_known:
            work[place].join(fresh.readable)
        again.append(work[place])
    return again


def _planned_work(audits: Sequence[PartitionAudit], level: AuditLevel, clock: Clock, starts: LocalStarts) -> list[_PartitionWork]:
    """The work on each partition. It is planned where the ends of all copies are known before anything but manifests is read."""
    work = [_PartitionWork(each, level, clock, starts) for each in audits]
    for each in work:
        if each.audit.ends_are_known:
            each.join(each.audit.readable)
    return work


def _read_without_replay(work: Sequence[_PartitionWork], clock: Clock) -> None:
    """Compares the snapshots of the level ``STRUCTURE``. For other levels, reads the ends of segments that are still unknown."""
    for each in work:
        if each.audit.limit is not None:
            continue
        with _until_limit(each.audit):
            if each.level is AuditLevel.STRUCTURE:
                check_structure(each.audit, each.log, clock)
            elif each.log is None:
                each.join(read_ends(each.audit))


def _replayed_parts(work: Sequence[_PartitionWork]) -> Iterator[ReplayedPart]:
    """The parts of partitions that are going to be replayed, for a ledger."""
    for each in work:
        for replay in each.replays:
            yield ReplayedPart(replay.log.audit, replay.source, replay.first_index)


def _replay_all(work: Sequence[_PartitionWork], run: Run, engine: MakeEngine, keep: ProvenSnapshots | None) -> None:
    """Replays what is planned, and takes the verdicts."""
    due = [replay for each in work for replay in each.replays]
    for _ in range(RESTARTS_MAX):
        due = _replay(due, run, engine, keep)
    run.facts.forget_free_locks()


def _replay_present(
    work: list[_PartitionWork],
    audits: list[PartitionAudit],
    run: Run,
    engine: MakeEngine,
    keep: ProvenSnapshots | None,
) -> None:
    """Replays what is planned, and again the partitions of which copies were deleted meanwhile, without these."""
    _replay_all(work, run, engine, keep)
    for _ in range(LISTINGS_MAX - 1):
        again = _without_deleted(work, audits)
        if not again:
            return
        _read_without_replay(again, run.clock)
        _replay_all(again, run, engine, keep)


def _read_manifests(audits: Sequence[PartitionAudit]) -> None:
    """Reads the manifests of each partition, as far as the limits of the run allow."""
    limit: str | None = None
    for each in audits:
        if limit is None:
            try:
                read_copies(each)
            except LimitReachedError as error:
                limit = error.message
        each.limit = limit


@contextlib.contextmanager
def _until_limit(*audits: PartitionAudit) -> Iterator[None]:
    """The limit of the run ends the work on partitions, and what was read so far counts."""
    try:
        yield
    except LimitReachedError as error:
        for each in audits:
            each.limit = error.message


def _compare_producer_ids(audit: StoreAudit, cluster: MetadataRead, clock: Clock) -> None:
    from snaprebuild.tier.audit.producer_ids import compare_producer_ids  # loads the readers of batches

    try:
        compared = compare_producer_ids(audit, cluster, clock)
    except LimitReachedError as error:
        message = f"{error.message}: producer ids were not compared"
        audit.store_findings.append(Finding("tier-limit", Severity.FINDING, audit.location, message, is_unread=True))
        return
    audit.foreign_producers = compared.partitions
    audit.store_findings += compared.findings


def _limit_findings(audit: StoreAudit) -> Iterator[Finding]:
    """One finding for the limit of the run."""
    limit = next((each.limit for each in audit.partitions if each.limit is not None), None)
    if limit is None:
        return
    for each in audit.partitions:
        if each.limit is not None:
            for copy in each.copies:
                if not copy.reason:
                    copy.not_read(f"it was not read: {each.limit}")
    count = sum(copy.verdict is SnapshotVerdict.NOT_READ for each in audit.partitions for copy in each.copies)
    yield Finding(
        "tier-limit", Severity.FINDING, audit.location, f"{limit}: {pluralize(count, 'snapshot')} not read", is_unread=True
    )


# ---------------------------------------------------------------------------------------------------------------- partitions


def selected_partitions(tier: Tier, selection: Selection) -> tuple[list[PartitionAudit], list[Finding]]:
    """The partitions that are audited, and what is wrong with the others."""
    logs = tier.logs
    listed = tier.partitions.values()
    under_zero = zero_id_findings(
        tier.base.path, (each for each in listed if selection.takes_partition(each.topic, each.partition))
    )
    ids = list(tier.partitions)
    # A store that has none of the partitions is of another cluster.
    if not ids or any(each in logs.partitions for each in ids):
        ids += _without_objects(tier)
    audits = []
    findings = list[Finding]()
    for each in ids:
        if not selection.takes_partition(each.topic, each.partition):
            continue
        remote = tier.listed_partition(each)
        unrecorded = list(_unrecorded(remote, logs))
        findings += unrecorded
        if unrecorded and (each not in logs.partitions or each in logs.deletions):
            continue
        # Copies with objects that are live, or may be. Those without objects are added when the manifests are read.
        copies = [copy for copy in remote.copies.values() if copy.objects.by_kind and remote.may_be_live(copy)]
        audits.append(PartitionAudit(remote, [CopyAudit(copy) for copy in copies]))
    return audits, [*under_zero, *findings, *unreadable_objects(tier.base.path, tier.unknown)]


def _unrecorded(remote: RemotePartition, logs: RemoteLogs) -> Iterator[Finding]:
    """Copies that are not audited, because the metadata log does not have them."""
    first = {copy.segment_id: copy.start_offset for copy in remote.copies.values() if copy.objects.by_kind}
    states = unrecorded_states(logs, remote.id, first, verified=remote.verified)
    for state in dict.fromkeys(states.values()):
        if state is not None:
            offsets = [first[segment_id] for segment_id, other in states.items() if other is state]
            yield unrecorded_finding(logs, remote.id, remote.place, state, len(offsets), min(offsets))


def _without_objects(tier: Tier) -> list[TopicIdPartition]:
    """Partitions of which the metadata log has live copies, and the store has no object."""
    logs = tier.logs
    return [
        each
        for each, log in logs.partitions.items()
        if each not in tier.partitions and each not in logs.deletions and any(map(log.is_live, log.segments))
    ]


# ---------------------------------------------------------------------------------------------------------------- replay


def _replay(replays: Sequence[_PlannedReplay], run: Run, engine: MakeEngine, keep: ProvenSnapshots | None) -> list[_PlannedReplay]:
    """Replays, and takes the verdicts. Gives the replays above damaged segments, which are due now."""
    again = []
    for is_window in (True, False):
        due = [each for each in replays if (each.window is not None) == is_window and each.log.audit.limit is None]
        if not due:
            continue
        verdicts = [PartitionVerdict(each.source) for each in due]
        listed = ListedDifferences()
        with _until_limit(*(each.log.audit for each in due)):  # an engine refuses at once what would exceed the limit
            reading = structs.replace(run, engine=engine(sum(each.read_bytes for each in due)))
            tasks = []
            for place, (each, verdict) in enumerate(zip(due, verdicts, strict=True)):
                tasks.append(_task_of(each, verdict, run.clock, keep, partial(listed.add, place)))
            run_partitions(tasks, reading)
        for each, verdict in zip(due, verdicts, strict=True):
            again += _taken(each, verdict, run.clock, keep)
    return again


def _task_of(
    replay: _PlannedReplay,
    verdict: PartitionVerdict,
    clock: Clock,
    keep: ProvenSnapshots | None,
    list_differences: Callable[[int, Comparison], None],
) -> PartitionTask:
    """The task of a replay, which adds to the verdict."""
    if replay.window is not None:
        return WindowTask(dataclasses.replace(replay.window, keeps_proven=keep is not None), verdict, clock)
    on_boundary: OnBoundary | None = None
    if keep is not None:
        on_boundary = lambda _, *boundary: replay.log.keep_proven(keep, *boundary)  # noqa: E731
    return verify_task(verdict, clock, list_differences, on_boundary=on_boundary)


def _taken(replay: _PlannedReplay, verdict: PartitionVerdict, clock: Clock, keep: ProvenSnapshots | None) -> list[_PlannedReplay]:
    """Takes the verdicts of a replay. Gives the replay of what is above a damaged segment, which it did not judge."""
    replay.log.take_verdicts(replay.stretch, verdict, clock, is_from_zero=replay.start_offset == 0)
    if isinstance(verdict.outcome, WindowOutcome):
        replay.log.take_standings(verdict.outcome.consistent, verdict.outcome.suspect, verdict.outcome.noted)
        replay.log.take_proven(verdict.outcome, keep)
    replay.log.take_right(verdict.outcome)
    resume_at = _resume_at(replay, verdict.outcome)
    if resume_at is None or verdict.outcome.limit is not None:
        return []
    replay.log.audit.has_gap = True
    rest = stretch_above(replay.stretch, resume_at, verdict.outcome.ended or "its records are not as they were written")
    if rest is None:
        return []
    window = whole_window(replay.log, rest, clock)
    least = 0 if replay.window is None else replay.window.least_offset
    return [_PlannedReplay(replay.log, rest, dataclasses.replace(window, least_offset=least))]


def _resume_at(replay: _PlannedReplay, outcome: VerifyOutcome) -> int | None:
    """Where segments begin that do not follow from those below, because one of those is damaged; None if none is."""
    if isinstance(outcome, WindowOutcome):
        return outcome.resume_at
    unsound = [each.offset for each in outcome.snapshots if each.snapshot_class is SnapshotClass.UNSOUND]
    if outcome.ended is not None:
        # The first segment above the last boundary that was reached is the damaged one.
        unsound.append(max(outcome.reached, default=replay.start_offset) + 1)
    return min(unsound, default=None)
