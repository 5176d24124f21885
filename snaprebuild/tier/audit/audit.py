"""Compares the producer snapshots in remote storage with a replay of the segments there.

The copies of a partition that follow one another are read as a partition directory (``RemoteLogDir``), so that the verdicts are those of
``verify``. Each step takes the result of the one before: listing, manifests, the joined log, what is replayed, verdicts, findings.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import structs

from formats.partition.partition_metadata import uuid_to_text
from formats.remote.local_tier_name import LocalTierFile
from snaprebuild.errors import LimitReachedError, UsageError
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.engine.clock import Clock
from snaprebuild.snapshots.engine.partition_task import Engine
from snaprebuild.snapshots.engine.schedule import run_partitions
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import PartitionSource, Source
from snaprebuild.snapshots.verify import OnBoundary, PartitionVerdict, VerifyOutcome, verify
from snaprebuild.storage.private_keys import NO_KEYS, PrivateKeys
from snaprebuild.storage.remote.listing import TierLayout, TierPartition
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit.reachable import LocalStarts, reachable_windows, whole_window
from snaprebuild.tier.audit.readable_copies import (
    CopyLog,
    ListedPartition,
    PartitionCopies,
    join_copies,
    read_copies,
    read_ends,
    unread_copies,
)
from snaprebuild.tier.audit.result import AuditedPartition, ProvenSnapshots, TierAudit, Verdict
from snaprebuild.tier.audit.stretches import Stretch, stretch_above
from snaprebuild.tier.audit.structure import check_structure, compare_members
from snaprebuild.tier.audit.verdicts import add_findings, add_verdicts, keep_proven, leave_uncompared, leave_unproven
from snaprebuild.tier.audit.window import Window
from snaprebuild.tier.audit.window_outcome import WindowOutcome
from snaprebuild.tier.audit.window_task import WindowTask
from snaprebuild.tier.cost import AuditCost, CopyRead, audit_cost, refuse_cold, refuse_cold_objects
from snaprebuild.tier.inventory import unrecorded_finding, unrecorded_states
from snaprebuild.tier.listing import TierListing, list_store, unreadable_objects
from snaprebuild.tier.remote_log import RemoteLogs
from snaprebuild.tier.zero_ids import zero_id_findings

if TYPE_CHECKING:
    from snaprebuild.cluster.source_check.metadata_read import MetadataRead

__all__ = ["tier_audit"]

MakeEngine = Callable[[int], Engine | None]


RESTARTS_MAX = 8
"""How often the audit of one partition begins again above a damaged segment: each time what is above may be read again."""


@dataclass(frozen=True, slots=True)
class _Replay:
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


def tier_audit(
    root: StorePath,
    run: Run,
    *,
    level: AuditLevel = AuditLevel.FULL,
    selection: Selection | None = None,
    metadata_logs: Sequence[str] = (),
    private_keys: PrivateKeys = NO_KEYS,
    engine: MakeEngine = lambda _: None,
    keep: ProvenSnapshots | None = None,
    announce: Callable[[AuditCost], None] | None = None,
    local_starts: LocalStarts | None = None,
    key_prefix: str = "",
    cluster: MetadataRead | None = None,
) -> TierAudit:
    """Audits every snapshot below a location.

    Args:
        root: of the store, absolute.
        run: entries that a load at the moment of its clock drops are not compared.
        level: how much is read.
        selection: of partitions; its offsets are ignored. None for all.
        metadata_logs: as for ``tier_inventory``.
        private_keys: of segments that are encrypted.
        engine: makes, from the bytes of the segments, what reads and replays in place of worker processes of this machine, or None.
        keep: gets the right snapshot of each copy whose own is wrong, where the log proves it; not with an engine.
        announce: called with what is going to be read, before anything but manifests is.
        local_starts: where logs begin on the disks of their leaders, for the level ``REACHABLE``; None if unknown.
        key_prefix: of the plugin, below the location.
        cluster: its metadata log, with which producer ids are compared; None to leave that out.

    Raises:
        UsageError: nothing of a known layout is there, or the private key is none.
        ReadFailedError: the store cannot be listed.
        RefusedError: a limit of the run ended the listing, or objects are in a cold storage class and no limit was set. A limit that is
            reached later ends no audit: the rest is not read.
    """
    listing = list_store(root, metadata_logs, run.stores, key_prefix)
    listed, findings = _selected(listing, selection or Selection())
    audit = TierAudit(root.path, level, listing.is_whole_log, store_findings=[*listing.findings, *findings])
    if not listed and not audit.store_findings:
        narrowed = " that the selection takes" if selection is not None and (selection.topics or selection.partitions) else ""
        raise UsageError(f"has no copy of a segment{narrowed}", path=root.path)
    refuse_cold_objects((copy for each in listed for copy in each.copies), run.stores.max_read_bytes, root.path)
    found = _read_all(root, listed, private_keys)
    audit.partitions = [each.audited for each in found]
    starts = (local_starts or LocalStarts()).checked({(each.topic, each.partition, each.topic_id) for each in audit.partitions})
    plan = partial(_planned, level=level, clock=run.clock, starts=starts)
    logs = [join_copies(each) if each.ends_are_known else None for each in found]
    replays = [[] if log is None else plan(log) for log in logs]
    reads = (_reads(each, log, due, level) for each, log, due in zip(found, logs, replays, strict=True))
    audit.cost = audit_cost(chain.from_iterable(reads))
    if announce is not None:
        announce(audit.cost)
    refuse_cold(audit.cost, run.stores.max_read_bytes, root.path)
    for number, each in enumerate(found):
        if each.audited.limit is not None:
            continue
        with _until_limit(each.audited):
            if level is AuditLevel.STRUCTURE:
                check_structure(each, logs[number], run.clock)
            elif logs[number] is None:
                joined = logs[number] = join_copies(read_ends(each))
                replays[number] = plan(joined)
    due = list(chain.from_iterable(replays))
    for _ in range(RESTARTS_MAX):
        due = _replay(due, run, engine, keep)
    for each, log in zip(found, logs, strict=True):
        if log is not None and level is not AuditLevel.STRUCTURE:
            _finish(each, log, level, run.clock)
        add_findings(each, level)
    audit.store_findings += _limit_findings(audit)
    if cluster is not None:
        _compare_producer_ids(audit, found, cluster, run.clock)
    return audit


def _read_all(root: StorePath, listed: Sequence[ListedPartition], private_keys: PrivateKeys) -> list[PartitionCopies]:
    """The copies of each partition, after their manifests were read, as far as the limits of the run allow."""
    found: list[PartitionCopies] = []
    limit: str | None = None
    for each in listed:
        if limit is None:
            try:
                found.append(read_copies(root, each, private_keys))
                continue
            except LimitReachedError as error:
                limit = error.message
        found.append(unread_copies(root, each, limit))
    return found


@contextlib.contextmanager
def _until_limit(audited: AuditedPartition) -> Iterator[None]:
    """The limit of the run ends the work on a partition, and what was read so far counts."""
    try:
        yield
    except LimitReachedError as error:
        audited.limit = error.message


def _compare_producer_ids(audit: TierAudit, found: Sequence[PartitionCopies], cluster: MetadataRead, clock: Clock) -> None:
    from snaprebuild.tier.audit.producer_ids import compare_producer_ids  # loads the readers of batches

    try:
        compared = compare_producer_ids(audit.root, found, cluster, clock)
    except LimitReachedError as error:
        message = f"{error.message}: producer ids were not compared"
        audit.store_findings.append(Finding("tier-limit", Severity.FINDING, audit.root, message, is_unread=True))
        return
    audit.foreign_producers = compared.partitions
    audit.store_findings += compared.findings


def _finish(found: PartitionCopies, log: CopyLog, level: AuditLevel, clock: Clock) -> None:
    """Compares what the replays alone did not compare, and adds the findings about the log as a whole."""
    if found.audited.limit is None and (_compares_members(log, level) or found.audited.has_gap):
        with _until_limit(found.audited):
            compare_members(found, log, clock)
    if found.audited.limit is not None:
        leave_uncompared(log)
    leave_unproven(log)
    for stretch in log.stretches:
        hole = stretch.above
        if hole is not None and not hole.is_recorded:
            found.audited.add_finding("tier-gap", Severity.FINDING, f"{hole.why}: the audit begins again above", hole.first_offset)


def _compares_members(log: CopyLog, level: AuditLevel) -> bool:
    """Whether snapshots are compared with each other outside of the replays."""
    return level is AuditLevel.REACHABLE or len(log.stretches) > 1


def _limit_findings(audit: TierAudit) -> Iterator[Finding]:
    """One finding for the limit of the run."""
    limit = next((each.limit for each in audit.partitions if each.limit is not None), None)
    if limit is None:
        return
    for each in audit.partitions:
        if each.limit is not None:
            for copy in each.copies:
                if not copy.why:
                    copy.not_read(f"it was not read: {each.limit}")
    count = sum(copy.verdict is Verdict.NOT_READ for each in audit.partitions for copy in each.copies)
    yield Finding("tier-limit", Severity.FINDING, audit.root, f"{limit}: {pluralize(count, 'snapshot')} not read", is_unread=True)


# ---------------------------------------------------------------------------------------------------------------- partitions


def _selected(listing: TierListing, selection: Selection) -> tuple[list[ListedPartition], list[Finding]]:
    """The partitions that are audited, and what is wrong with the others."""
    logs = listing.logs
    found = list(listing.partitions)
    under_zero = zero_id_findings(listing.root, (each for each in found if selection.takes_partition(each.topic, each.partition)))
    # A store that has none of the partitions is of another cluster.
    if not found or any(each.id in logs.partitions for each in found):
        found += _without_objects(logs, found)
    listed = []
    findings = list[Finding]()
    for each in found:
        if not selection.takes_partition(each.topic, each.partition):
            continue
        unrecorded = list(_unrecorded(listing, each))
        findings += unrecorded
        log = logs.partitions.get(each.id)
        if unrecorded and (log is None or each.id in logs.deletions):
            continue
        listed.append(ListedPartition.of(each, log, listing.unanswered, is_verified=log is not None and listing.is_whole_log))
    return listed, [*under_zero, *findings, *unreadable_objects(listing.root, listing.unknown)]


def _unrecorded(listing: TierListing, found: TierPartition) -> Iterator[Finding]:
    """Copies that are not audited, because the metadata log does not have them."""
    place = f"{listing.root}: {found.topic}-{found.partition} ({uuid_to_text(found.topic_id)})"
    first = {copy.segment_id: copy.base_offset for copy in found.copies}
    states = unrecorded_states(listing.logs, found.id, first, is_whole_log=listing.is_whole_log)
    for state in dict.fromkeys(states.values()):
        if state is not None:
            offsets = [first[each] for each, found_state in states.items() if found_state is state]
            yield unrecorded_finding(listing.logs, found.id, place, state, len(offsets), min(offsets))


def _without_objects(logs: RemoteLogs, listed: Sequence[TierPartition]) -> list[TierPartition]:
    """Partitions of which the metadata log has live copies, and the store has no object."""
    there = {each.id for each in listed}
    layout = listed[0].layout if listed else TierLayout.AIVEN
    return [
        TierPartition(layout, each.topic, each.topic_id, each.partition, ())
        for each, log in logs.partitions.items()
        if each not in there and each not in logs.deletions and any(map(log.is_live, log.segments))
    ]


# ---------------------------------------------------------------------------------------------------------------- what is read


def _planned(log: CopyLog, level: AuditLevel, clock: Clock, starts: LocalStarts) -> list[_Replay]:
    """The parts of one partition that a level replays."""
    audited = log.audited
    if level is AuditLevel.STRUCTURE or not log.stretches:
        return []
    if level is AuditLevel.REACHABLE:
        start = starts.of(audited.topic, audited.partition, audited.topic_id)
        replays = [_Replay(log, stretch, window) for stretch, window in reachable_windows(log, clock, start)]
    else:
        replays = [_whole(log, stretch, clock) for stretch in log.stretches]
    audited.replayed_from = min((each.start_offset for each in replays), default=None)
    return replays


def _whole(log: CopyLog, stretch: Stretch, clock: Clock) -> _Replay:
    return _Replay(log, stretch, None if stretch.is_from_zero else whole_window(log, stretch, clock))


def _reads(found: PartitionCopies, log: CopyLog | None, replays: Sequence[_Replay], level: AuditLevel) -> Iterator[CopyRead]:
    """The reads of a level, apart from the manifests."""
    layout = found.files.layout
    if level is AuditLevel.STRUCTURE:
        for each in found.readable:
            is_timed = log is None and each.max_timestamp_ms is None
            yield CopyRead.of(layout, each.copy, each.facts, snapshots=1, time=is_timed)
        return
    if log is None:
        for each in found.readable:
            yield CopyRead.of(
                layout,
                each.copy,
                each.facts,
                segment=True,
                compared=each.facts.index_hits is not None,
                snapshots=2,
                index=level is AuditLevel.FULL,
                end=each.end_offset is None,
            )
        return
    is_compared: dict[str, bool] = {}
    indexed = set[str]()
    snapshots = Counter[str]()
    for replay in replays:
        directory = replay.source.directory
        names = {each.log.name: each.has_checked_indexes for each in directory.segments[replay.first_index :]}
        is_compared |= names
        # Which transactions were aborted is certain where the log is replayed from offset 0.
        indexed |= set(names) if replay.window is None else set()
        snapshots.update(listed.name for _, listed in directory.snapshots)
    if _compares_members(log, level):
        snapshots.update(found.files.name(each.copy, LocalTierFile.PRODUCER_SNAPSHOT) for each in log.members)
    for each in found.readable:
        name = found.files.name(each.copy)
        yield CopyRead.of(
            layout,
            each.copy,
            each.facts,
            segment=name in is_compared,
            compared=is_compared.get(name, False),
            snapshots=snapshots[found.files.name(each.copy, LocalTierFile.PRODUCER_SNAPSHOT)],
            index=name in indexed,
        )


# ---------------------------------------------------------------------------------------------------------------- replay


def _replay(replays: Sequence[_Replay], run: Run, engine: MakeEngine, keep: ProvenSnapshots | None) -> list[_Replay]:
    """Replays, and takes the verdicts. Gives the replays above damaged segments, which are due now."""
    due = [each for each in replays if each.log.audited.limit is None]
    windows = [(each, each.window, PartitionVerdict(each.source)) for each in due if each.window is not None]
    again = []
    if windows:
        with _limiting([each.log for each, _, _ in windows]):
            reading = structs.replace(run, engine=engine(sum(window.read_bytes for _, window, _ in windows)))
            run_partitions([WindowTask(window, verdict, run.clock) for _, window, verdict in windows], reading)
        for each, _, verdict in windows:
            again += _taken(each, verdict, run.clock)
    whole = {id(each.source): each for each in due if each.window is None and each.log.audited.limit is None}
    if whole:
        on_boundary: OnBoundary | None = None
        if keep is not None:
            on_boundary = lambda source, *boundary: keep_proven(whole[id(source)].log, keep, *boundary)  # noqa: E731
        sources = tuple(each.source for each in whole.values())
        with _limiting([each.log for each in whole.values()]):
            reading = structs.replace(run, engine=engine(sum(source.directory.size_bytes for source in sources)))
            result = verify(Source(sources, ()), reading, on_boundary=on_boundary)
            for each, verdict in zip(whole.values(), result.partitions, strict=True):
                again += _taken(each, verdict, run.clock)
    return again


@contextlib.contextmanager
def _limiting(logs: Sequence[CopyLog]) -> Iterator[None]:
    """An engine refuses what would exceed the limits of the run before it begins."""
    try:
        yield
    except LimitReachedError as error:
        for log in logs:
            log.audited.limit = error.message


def _taken(replay: _Replay, verdict: PartitionVerdict, clock: Clock) -> list[_Replay]:
    """Takes the verdicts of a replay. Gives the replay of what is above a damaged segment, which it did not judge."""
    add_verdicts(replay.log, replay.stretch, verdict, clock, is_from_zero=replay.start_offset == 0)
    resume_at = _resume_at(replay, verdict.outcome)
    if resume_at is None or verdict.outcome.limit is not None:
        return []
    replay.log.audited.has_gap = True
    rest = stretch_above(replay.stretch, resume_at, verdict.outcome.ended or "its records are not as they were written")
    if rest is None:
        return []
    window = whole_window(replay.log, rest, clock)
    least = 0 if replay.window is None else replay.window.least_offset
    return [_Replay(replay.log, rest, dataclasses.replace(window, least_offset=least))]


def _resume_at(replay: _Replay, outcome: VerifyOutcome) -> int | None:
    """Where segments begin that do not follow from those below, because one of those is damaged; None if none is."""
    if isinstance(outcome, WindowOutcome):
        return outcome.resume_at
    unsound = [each.offset for each in outcome.snapshots if each.snapshot_class is SnapshotClass.UNSOUND]
    if outcome.ended is not None:
        # The first segment above the last boundary that was reached is the damaged one.
        unsound.append(max(outcome.reached, default=replay.start_offset) + 1)
    return min(unsound, default=None)
