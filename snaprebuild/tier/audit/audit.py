"""Compares the producer snapshots in remote storage with a replay of the segments there.

The copies of a partition that follow one another are read as a partition directory (``RemoteLogDir``), so that the verdicts are those of
``verify``. Each step takes the result of the one before: listing, manifests, the joined log, what is replayed, verdicts, findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from formats.partition.partition_metadata import uuid_to_text
from formats.remote.local_tier_name import LocalTierFile
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding
from snaprebuild.snapshots.engine.partition_task import Engine
from snaprebuild.snapshots.engine.schedule import run_partitions
from snaprebuild.snapshots.engine.window_proof import Clock
from snaprebuild.snapshots.source.source import PartitionSource, Selection, Source
from snaprebuild.snapshots.verify import OnBoundary, PartitionVerdict, verify
from snaprebuild.storage.private_keys import NO_KEYS, PrivateKeys
from snaprebuild.storage.remote.listing import TierLayout, TierPartition
from snaprebuild.storage.store import S3Settings, Store
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit.reachable import LocalStarts, reachable_window, whole_window
from snaprebuild.tier.audit.readable_copies import CopyLog, ListedPartition, PartitionCopies, join_copies, read_copies, read_ends
from snaprebuild.tier.audit.result import ProvenSnapshots, TierAudit
from snaprebuild.tier.audit.structure import check_structure
from snaprebuild.tier.audit.verdicts import add_findings, add_verdicts, keep_proven
from snaprebuild.tier.audit.window import Window, WindowTask
from snaprebuild.tier.cost import AuditCost, CopyRead, audit_cost, refuse_cold, refuse_cold_objects
from snaprebuild.tier.inventory import unrecorded_finding, unrecorded_states
from snaprebuild.tier.listing import TierListing, list_store, unreadable_objects
from snaprebuild.tier.remote_log import RemoteLogs

__all__ = ["tier_audit"]

MakeEngine = Callable[[int], Engine | None]


@dataclass(frozen=True, slots=True)
class _Replay:
    """The part of one partition that is replayed.

    Attributes:
        source: the partition, with all of its segments.
        window: the part of it; None for all, from offset 0 on.
    """

    log: CopyLog
    source: PartitionSource
    window: Window | None

    @property
    def first_index(self) -> int:
        """Index of the first segment that is read."""
        return 0 if self.window is None else self.window.first_index


def tier_audit(
    store: Store,
    root: str,
    clock: Clock,
    *,
    level: AuditLevel = AuditLevel.FULL,
    selection: Selection | None = None,
    metadata_logs: Sequence[str] = (),
    private_keys: PrivateKeys = NO_KEYS,
    settings: S3Settings | None = None,
    jobs: int | None = None,
    engine: MakeEngine = lambda _: None,
    keep: ProvenSnapshots | None = None,
    announce: Callable[[AuditCost], None] | None = None,
    local_starts: LocalStarts | None = None,
    key_prefix: str = "",
) -> TierAudit:
    """Audits every snapshot below a location.

    Args:
        store: that holds it.
        root: the location, absolute.
        clock: for expiry: entries that a load at that moment drops are not compared.
        level: how much is read.
        selection: of partitions; its offsets are ignored. None for all.
        metadata_logs: as for ``tier_inventory``.
        private_keys: of segments that are encrypted.
        settings: of object stores that ``metadata_logs`` are in.
        jobs: worker processes, None for as many as processors.
        engine: makes, from the bytes of the segments, what reads and replays in place of worker processes of this machine, or None.
        keep: gets the right snapshot of each copy whose own is wrong, where the log proves it; not with an engine.
        announce: called with what is going to be read, before anything but manifests is.
        local_starts: where logs begin on the disks of their leaders, for the level ``REACHABLE``; None if unknown.
        key_prefix: of the plugin, below the location.

    Raises:
        UsageError: nothing of a known layout is there, or the private key is none.
        ReadFailedError: the store cannot be listed.
        RefusedError: a limit of the run is used up, or objects are in a cold storage class and no limit was set.
    """
    listing = list_store(store, root, metadata_logs, settings, key_prefix)
    listed, findings = _selected(listing, selection or Selection())
    audit = TierAudit(root, level, listing.has_metadata, store_findings=[*listing.findings, *findings])
    if not listed and not audit.store_findings:
        narrowed = " that the selection takes" if selection is not None and (selection.topics or selection.partitions) else ""
        raise UsageError(f"has no copy of a segment{narrowed}", path=root)
    refuse_cold_objects((copy for each in listed for copy in each.copies), settings, root)
    found = [read_copies(store, root, each, private_keys) for each in listed]
    audit.partitions = [each.audited for each in found]
    starts = (local_starts or LocalStarts()).checked({(each.topic, each.partition, each.topic_id) for each in audit.partitions})
    plan = partial(_planned, level=level, clock=clock, starts=starts)
    logs = [join_copies(each) if each.ends_are_known else None for each in found]
    replays = [None if log is None else plan(log) for log in logs]
    audit.cost = audit_cost(read for each, replay in zip(found, replays, strict=True) for read in _reads(each, replay, level))
    if announce is not None:
        announce(audit.cost)
    refuse_cold(audit.cost, settings, root)
    if level is AuditLevel.STRUCTURE:
        for each, log in zip(found, logs, strict=True):
            check_structure(each, log, clock)
    else:
        needs_times = level is AuditLevel.REACHABLE
        for number, each in enumerate(found):
            if logs[number] is None:
                replays[number] = plan(join_copies(read_ends(each, needs_times=needs_times)))
        _replay([each for each in replays if each is not None], clock, jobs, engine, keep)
    for each in found:
        add_findings(each, level)
    return audit


# ---------------------------------------------------------------------------------------------------------------- partitions


def _selected(listing: TierListing, selection: Selection) -> tuple[list[ListedPartition], list[Finding]]:
    """The partitions that are audited, and what is wrong with the others."""
    logs, found = listing.logs, list(listing.partitions)
    # A store that has none of the partitions is of another cluster.
    if not found or any(each.id in logs.partitions for each in found):
        found += _without_objects(logs, found)
    listed, findings = [], list[Finding]()
    for each in found:
        if not selection.takes_partition(each.topic, each.partition):
            continue
        unrecorded = list(_unrecorded(listing, each))
        findings += unrecorded
        log = logs.partitions.get(each.id)
        if unrecorded and (log is None or each.id in logs.deletions):
            continue
        listed.append(ListedPartition.of(each, log, is_verified=log is not None and listing.is_whole_log))
    return listed, [*findings, *unreadable_objects(listing.root, listing.unknown)]


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


def _planned(log: CopyLog, level: AuditLevel, clock: Clock, starts: LocalStarts) -> _Replay | None:
    """The part of one partition that a level replays; None for nothing."""
    audited, window = log.audited, None
    if level is AuditLevel.REACHABLE:
        window = reachable_window(log, clock, starts.of(audited.topic, audited.partition, audited.topic_id))
        if window is None:
            return None
    if level is AuditLevel.STRUCTURE or log.source is None:
        return None
    if level is AuditLevel.FULL and log.source.directory.segments[0].base_offset:
        window = whole_window(log, log.source, clock)
    replay = _Replay(log, log.source if window is None else window.source, window)
    audited.replayed_from = replay.source.directory.segments[replay.first_index].base_offset
    return replay


def _reads(found: PartitionCopies, replay: _Replay | None, level: AuditLevel) -> Iterator[CopyRead]:
    """The reads of a level, apart from the manifests."""
    layout = found.files.layout
    if level is AuditLevel.STRUCTURE:
        yield from (CopyRead.of(layout, each.copy, each.facts, snapshot=True) for each in found.readable)
    elif not found.ends_are_known:
        for each in found.readable:
            yield CopyRead.of(
                layout,
                each.copy,
                each.facts,
                segment=True,
                compared=each.facts.index_hits is not None,
                snapshot=True,
                index=level is AuditLevel.FULL,
                end=each.end_offset is None,
            )
    elif replay is not None:
        directory = replay.source.directory
        is_compared = {each.log.name: each.has_checked_indexes for each in directory.segments[replay.first_index :]}
        snapshots = {listed.name for _, listed in directory.snapshots}
        for each in found.readable:
            name = found.files.name(each.copy)
            is_read = name in is_compared
            yield CopyRead.of(
                layout,
                each.copy,
                each.facts,
                segment=is_read,
                compared=is_compared.get(name, False),
                snapshot=found.files.name(each.copy, LocalTierFile.PRODUCER_SNAPSHOT) in snapshots,
                # Which transactions were aborted is certain where the log is replayed from offset 0.
                index=is_read and replay.window is None,
            )


# ---------------------------------------------------------------------------------------------------------------- replay


def _replay(replays: Sequence[_Replay], clock: Clock, jobs: int | None, engine: MakeEngine, keep: ProvenSnapshots | None) -> None:
    """Replays, and takes the verdicts."""
    windows = [(each.log, each.window, PartitionVerdict(each.source)) for each in replays if each.window is not None]
    if windows:
        reader = engine(sum(window.read_bytes for _, window, _ in windows))
        run_partitions([WindowTask(window, verdict, clock) for _, window, verdict in windows], jobs, reader)
        for log, _, verdict in windows:
            add_verdicts(log, verdict)
    whole = {id(each.source): each for each in replays if each.window is None}
    if not whole:
        return
    on_boundary: OnBoundary | None = None
    if keep is not None:
        on_boundary = lambda source, *boundary: keep_proven(whole[id(source)].log, keep, *boundary)  # noqa: E731
    sources = tuple(each.source for each in whole.values())
    reader = engine(sum(source.directory.size_bytes for source in sources))
    result = verify(Source(sources, ()), clock, jobs=jobs, engine=reader, on_boundary=on_boundary)
    for each, verdict in zip(whole.values(), result.partitions, strict=True):
        add_verdicts(each.log, verdict)
