"""The producer snapshots in remote storage, each held against a replay of the segments there.

The copies of a partition that follow one another are read as if they were a partition directory, through the same port as one
(``storage.remote.store``), so that the judgement is that of ``verify``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import TopicIdPartition
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding
from snaprebuild.snapshots.engine.partition_task import Engine
from snaprebuild.snapshots.engine.schedule import run_partitions
from snaprebuild.snapshots.engine.window_proof import Clock
from snaprebuild.snapshots.source.source import PartitionSource, Selection, Source
from snaprebuild.snapshots.verify import PartitionVerdict, verify
from snaprebuild.storage.private_keys import NO_KEYS, PrivateKeys
from snaprebuild.storage.remote.listing import TierLayout, TierPartition, UnknownObjects
from snaprebuild.storage.store import S3Settings, Store
from snaprebuild.tier.audit.local_starts import LocalStarts
from snaprebuild.tier.audit.partition import AuditChain
from snaprebuild.tier.audit.proven_snapshots import ProvenSnapshots
from snaprebuild.tier.audit.result import TierAudit
from snaprebuild.tier.audit.window import Window, WindowTask
from snaprebuild.tier.copies import listed_partitions
from snaprebuild.tier.cost import AuditCost, audit_cost, refuse_cold, refuse_cold_objects
from snaprebuild.tier.inventory import read_remote_logs, unknown_objects, unrecorded_finding, unrecorded_states
from snaprebuild.tier.levels import AuditLevel
from snaprebuild.tier.remote_log import RemoteLogs

__all__ = ["tier_audit"]


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
    engine: Callable[[int], Engine | None] = lambda _: None,
    keep: ProvenSnapshots | None = None,
    announce: Callable[[AuditCost], None] | None = None,
    local_starts: LocalStarts | None = None,
    key_prefix: str = "",
) -> TierAudit:
    """Looks at every snapshot below a location.

    Args:
        store: that holds it.
        root: the location, absolute.
        clock: for expiry: entries that a load at that moment drops are not compared.
        level: how much is read.
        selection: of partitions; of offsets nothing. None for all.
        metadata_logs: as for ``tier_inventory``.
        private_keys: of segments that are encrypted.
        settings: of object stores that ``metadata_logs`` lead into.
        jobs: worker processes, None for as many as processors.
        engine: told the bytes of the segments, gives what reads and replays in place of worker processes of this machine, or None.
        keep: gets the right snapshot of each copy whose own is wrong, where the log proves it; not with an engine.
        announce: told what is going to be read, before anything but manifests is.
        local_starts: where logs begin on the disks of their leaders, for the level ``REACHABLE``; None where nobody tells.
        key_prefix: of the plugin, below the location.

    Raises:
        UsageError: nothing of a known layout is there, or the private key is none.
        ReadFailedError: the store cannot be listed.
        RefusedError: a limit of the run is used up, or objects are in a cold storage class and no limit was set.
    """
    audit, starts = TierAudit(root, level, bool(metadata_logs)), local_starts or LocalStarts()
    chains = _chains(audit, store, selection or Selection(), metadata_logs, private_keys, settings, keep, key_prefix)
    refuse_cold_objects((copy for chain in chains for copy in chain.copies), settings, root)
    for chain in chains:
        chain.look()
    audit.partitions = [chain.audited for chain in chains]
    starts = starts.checked({(each.topic, each.partition, each.topic_id) for each in audit.partitions})
    windows = dict[int, Window | None]()
    if level is AuditLevel.REACHABLE:
        windows = {id(chain): _window(chain, clock, starts) for chain in chains if chain.ends_are_known}
    audit.cost = audit_cost(each for chain in chains for each in chain.reads(windows.get(id(chain))))
    if announce is not None:
        announce(audit.cost)
    refuse_cold(audit.cost, settings, root)
    if level is AuditLevel.STRUCTURE:
        for chain in chains:
            chain.read_snapshots(clock)
    elif level is AuditLevel.FULL:
        _replay(chains, clock, jobs, engine, has_keeper=keep is not None)
    else:
        _replay_windows(chains, clock, jobs, engine, starts)
    for chain in chains:
        chain.tell()
    return audit


def _chains(
    audit: TierAudit,
    store: Store,
    selection: Selection,
    metadata_logs: Sequence[str],
    private_keys: PrivateKeys,
    settings: S3Settings | None,
    keep: ProvenSnapshots | None,
    key_prefix: str,
) -> list[AuditChain]:
    """The partitions of the store, with what the metadata log says of them."""
    root = audit.root
    logs = read_remote_logs(metadata_logs, settings or S3Settings(), audit.findings)
    known = {(each.topic_id, each.partition): each for each in logs.partitions}
    knows_all = audit.has_metadata and not audit.findings
    chains, unknown = list[AuditChain](), UnknownObjects()
    listed = listed_partitions(store, root, unknown, known, key_prefix)
    if not listed or any((each.topic_id, each.partition) in known for each in listed):  # else the store is of another cluster
        listed += _without_objects(logs, listed)
    for found in listed:
        partition = known.get((found.topic_id, found.partition))
        if not selection.takes_partition(found.topic if partition is None else partition.topic, found.partition):
            continue
        log = None if partition is None else logs.partitions[partition]
        findings = _unrecorded(root, found, partition, logs, knows_all=knows_all)
        audit.findings += findings
        if findings and (log is None or partition in logs.deletions):
            continue
        chain = AuditChain(audit, store, found, partition, log, private_keys, keep)
        chain.audited.is_verified = log is not None and knows_all
        chains.append(chain)
    audit.findings += unknown_objects(root, unknown, 0)
    if not chains and not audit.findings:
        narrowed = " that the selection takes" if selection.topics or selection.partitions else ""
        raise UsageError(f"no copy of a segment{narrowed} lies below it", path=root)
    return chains


def _unrecorded(
    root: str, found: TierPartition, partition: TopicIdPartition | None, logs: RemoteLogs, *, knows_all: bool
) -> list[Finding]:
    """Copies that are not audited, because the metadata log does not have them."""
    named = partition or TopicIdPartition(found.topic, found.topic_id, found.partition)
    place = f"{root}: {named.topic}-{named.partition} ({uuid_to_text(named.topic_id)})"
    first = {copy.segment_id: copy.base_offset for copy in found.copies}
    states = unrecorded_states(logs, named, first, is_recorded=partition is not None, knows_all=knows_all)
    told = []
    for state in dict.fromkeys(states.values()):
        offsets = [first[each] for each, found_state in states.items() if found_state is state]
        if state is not None:
            told.append(unrecorded_finding(logs, named, place, state, len(offsets), min(offsets)))
    return told


def _without_objects(logs: RemoteLogs, listed: Sequence[TierPartition]) -> list[TierPartition]:
    """Partitions of which the metadata log has live copies, and the store has no object."""
    there = {(each.topic_id, each.partition) for each in listed}
    layout = listed[0].layout if listed else TierLayout.AIVEN
    return [
        TierPartition(layout, each.topic, each.topic_id, each.partition, ())
        for each, log in logs.partitions.items()
        if (each.topic_id, each.partition) not in there and each not in logs.deletions and any(map(log.is_live, log.segments))
    ]


def _replay(
    chains: Sequence[AuditChain],
    clock: Clock,
    jobs: int | None,
    engine: Callable[[int], Engine | None],
    *,
    has_keeper: bool,
) -> None:
    """Holds the snapshots against a replay of all segments."""
    due: list[tuple[AuditChain, PartitionSource]] = []
    windows: list[tuple[AuditChain, Window]] = []
    for chain in chains:
        if not chain.ends_are_known:
            chain.find_ends()
        source = chain.source()
        if source is not None and source.directory.segments[0].base_offset == 0:
            due.append((chain, source))
        elif source is not None:
            windows.append((chain, chain.whole(source, clock)))
    _judge_windows(windows, clock, jobs, engine)
    if not due:
        return
    by_source = {id(source): chain for chain, source in due}
    on_boundary = (lambda place, *state: by_source[id(place)].keep_proven(*state)) if has_keeper else None
    reader = engine(sum(source.directory.size_bytes for _, source in due))
    result = verify(Source(tuple(source for _, source in due), ()), clock, jobs=jobs, engine=reader, on_boundary=on_boundary)
    for (chain, _), verdict in zip(due, result.partitions, strict=True):
        chain.take(verdict)


def _replay_windows(
    chains: Sequence[AuditChain],
    clock: Clock,
    jobs: int | None,
    engine: Callable[[int], Engine | None],
    local_starts: LocalStarts,
) -> None:
    """Holds the snapshots that a follower may start from against a replay of one window."""
    due: list[tuple[AuditChain, Window]] = []
    for chain in chains:
        if not chain.ends_are_known:
            chain.find_ends()
        window = _window(chain, clock, local_starts)
        if window is not None:
            due.append((chain, window))
    _judge_windows(due, clock, jobs, engine)


def _judge_windows(
    due: Sequence[tuple[AuditChain, Window]], clock: Clock, jobs: int | None, engine: Callable[[int], Engine | None]
) -> None:
    """Replays windows, and takes what they prove."""
    if not due:
        return
    tasks = [(chain, PartitionVerdict(window.source), window) for chain, window in due]
    reader = engine(sum(window.read_bytes for _, window in due))
    run_partitions([WindowTask(window, verdict, clock) for _, verdict, window in tasks], jobs, reader)
    for chain, verdict, _ in tasks:
        chain.take(verdict)


def _window(chain: AuditChain, clock: Clock, local_starts: LocalStarts) -> Window | None:
    audited = chain.audited
    return chain.window(clock, local_starts.of(audited.topic, audited.partition, audited.topic_id))
