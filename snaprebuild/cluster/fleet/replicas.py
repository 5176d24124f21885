"""Scans of many brokers, read one partition at a time. Each replica is kept as the facts that decide about uploads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from snaprebuild.broker.fates import StartFate
from snaprebuild.broker.leadership import MustNotLead
from snaprebuild.broker.releases import Release, parse_release
from snaprebuild.broker.start_facts import Shutdown
from snaprebuild.broker.status import StatusCounts
from snaprebuild.cluster.fleet.start_faults import StartFault, start_fault_of
from snaprebuild.errors import UsageError
from snaprebuild.findings import ReportedFinding, pluralize
from snaprebuild.published import Natural, Part
from snaprebuild.snapshots.scan.scan_parts import BrokerSettings, ScannedLogDir, ScannedPartition, Upload
from snaprebuild.snapshots.scan.scan_result import BoundaryScan, EpochSource
from snaprebuild.snapshots.scan.snapshot_check import NewestSnapshot
from snaprebuild.storage.partition_names import TopicKind

__all__ = [
    "FleetBroker",
    "FleetLogDir",
    "FleetReplica",
    "PartitionKey",
    "ReplicaReadiness",
    "ScanDocument",
    "ScannedBroker",
    "ScannedFleet",
    "ScannedReplica",
    "read_scans",
]

NOT_LOOKED_AT = frozenset({"storage", "refused"})
"""Severities of findings about what a scan could not read."""

FIRST_CHARACTERS_MAX = 400
"""Characters that are kept of the first finding: a document may hold a text of any length."""

PartitionKey = tuple[str, int, str | None]
"""Topic, partition, topic id."""


class ScanDocument(Protocol):
    """A saved document of ``scan``."""

    @property
    def path(self) -> str:
        """Path of the file."""
        ...

    def members(self) -> Iterator[tuple[str, Any]]:
        """The members that a merge needs, by name; lists element by element.

        Raises:
            UsageError: the document is damaged, or lacks one.
            ReadFailedError: it cannot be read.
        """
        ...


class ReplicaReadiness(StrEnum):
    """Whether a leader with this replica's files can upload every rolled segment, and after what."""

    READY = "ready"
    """The leader can now: no snapshot is missing."""
    START = "start"
    """The leader can after a start of the broker, which writes what is missing."""
    REBUILD = "rebuild"
    """The leader can after ``rebuild`` and a start."""
    SUSPECT = "suspect"
    """The leader can, and some snapshots do not parse or cannot be correct: ``rebuild --set-aside`` replaces the wrong ones."""
    BLOCKED = "blocked"
    """The leader cannot: only retention, or an operator by hand, removes some segments that block it. Or the replica must not lead
    (``ScannedReplica.must_not_lead``)."""


class FleetLogDir(Part, frozen=True):
    """A log directory."""

    path: str
    shutdown: Shutdown


class FleetBroker(Part, frozen=True):
    """A broker."""

    node_id: Natural
    document: str
    log_dirs: Sequence[FleetLogDir]
    replicas: Natural
    size_bytes: Natural


class ScannedBroker(FleetBroker, frozen=True):
    """One broker, from its scan.

    Attributes:
        scanned_ms: when the scan was taken, ms since 1970.
        directory_ids: of its log directories, where they have one.
        newest_ms: when a segment of it was last changed, ms since 1970; 0 for none.
        is_kraft: it is a node of a KRaft cluster, which has a metadata log.
        release: of Kafka that ran when it was scanned; None if that is not known.
        free_bytes: by log directory, of its file system; without those that were not scanned on their machine.
        settings: of its ``server.properties``; None if the scan was not given that file.
    """

    scanned_ms: int
    directory_ids: frozenset[str] = frozenset()
    newest_ms: int = 0
    is_kraft: bool = False
    release: Release | None = None
    free_bytes: Mapping[str, int] = msgspec.field(default_factory=dict)
    settings: BrokerSettings | None = None

    @property
    def paths(self) -> list[str]:
        """Paths of its log directories, ascending."""
        return [log_dir.path for log_dir in self.log_dirs]

    @property
    def is_running(self) -> bool:
        """Whether it was at work when it was scanned."""
        return any(log_dir.shutdown is Shutdown.RUNNING for log_dir in self.log_dirs)


class FleetReplica(Part, frozen=True):
    """A replica of a partition."""

    node_id: Natural
    state: ReplicaReadiness
    """The uploads of which a leader with its files would be capable (docs/guides/fleet.md)."""
    log_start_offset: Natural
    log_end_offset: Natural | None
    """Null if the scan does not have it."""
    log_end_at_least: Natural
    high_watermark: Natural | None
    leader_epoch: Natural | None
    size_bytes: Natural
    missing: Natural
    """Boundaries without a snapshot."""
    suspect: Natural
    """Snapshots that do not parse or cannot be correct."""
    blocked_segments: Natural
    stuck_bytes: Natural
    replay_bytes: Natural
    """The most bytes that are read to rebuild the missing snapshots."""
    must_not_lead: MustNotLead | None = None
    """Why no advice names it as a leader; null if nothing shows that it must not lead."""


class ScannedReplica(FleetReplica, frozen=True):
    """A replica of a partition that can be uploaded, with the facts that decide which one leads.

    Attributes:
        is_broker_unfit: ``must_not_lead`` is about its broker or log directory, which has one finding for all of its replicas.
        is_running: its broker was at work when it was scanned.
        log_dir: its log directory, as the scan names it.
        leader_epoch_start_offset: offset at which ``leader_epoch`` began; None if that is not known.
        high_watermark_epoch: leader epoch of the last record below ``high_watermark``; None if that is not known.
        is_down: the operator counts its broker as stopped.
        rolled_bytes: of the segments that can be uploaded, or could be if nothing blocked them.
        newest_snapshot: what it knows; None without any, or if it does not parse.
    """

    is_broker_unfit: bool = False
    is_running: bool = False
    log_dir: str = ""
    leader_epoch_start_offset: int | None = None
    high_watermark_epoch: int | None = None
    is_down: bool = False
    rolled_bytes: int = 0
    newest_snapshot: NewestSnapshot | None = None

    @property
    def is_empty(self) -> bool:
        """Whether its segments hold no byte."""
        return self.size_bytes == 0


@dataclass(slots=True)
class ScannedFleet:
    """All brokers that were scanned.

    Attributes:
        cluster_id: of all of them; None if no scan has it.
        brokers: by node id.
        partitions: replicas of partitions that can be uploaded, by topic, partition and topic id.
        not_whole: documents that do not list everything that their brokers have, each with the reasons.
        unread: those of them whose scan could not read something.
        refused: documents that contradict the metadata log or the other scans, with the reason: their replicas are left out.
        never_uploaded: replicas of the others, which are internal or compacted: they have leaders, too.
        with_id: brokers of a ZooKeeper cluster with a replica that has a topic id, by topic and id.
        without_id: brokers of a ZooKeeper cluster with a replica that has none, by topic.
        under_id_zero: brokers by topic that would upload it under topic id zero.
        start_faults: by broker, why it does not start or which of its log directories go offline; the worst first.
        counts: of the first lines of the scans, by document. A document of an earlier version has none.
    """

    cluster_id: str | None = None
    brokers: dict[int, ScannedBroker] = field(default_factory=dict)
    partitions: dict[PartitionKey, list[ScannedReplica]] = field(default_factory=dict)
    not_whole: dict[str, list[str]] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    never_uploaded: dict[PartitionKey, list[ScannedReplica]] = field(default_factory=dict)
    with_id: dict[str, dict[str, set[int]]] = field(default_factory=dict)
    without_id: dict[str, set[int]] = field(default_factory=dict)
    under_id_zero: dict[str, set[int]] = field(default_factory=dict)
    start_faults: dict[int, list[StartFault]] = field(default_factory=dict)
    counts: dict[str, StatusCounts] = field(default_factory=dict)
    _cluster_from: str = ""

    def take_cluster(self, cluster_id: str | None, path: str) -> None:
        """Makes sure that all scans are of one cluster."""
        if cluster_id is None:
            return
        if self.cluster_id is None:
            self.cluster_id = cluster_id
            self._cluster_from = path
        elif self.cluster_id != cluster_id:
            raise UsageError(
                f"is of another cluster: expected {self.cluster_id}, as {self._cluster_from}; found {cluster_id}", path=path
            )

    def refuse(self, broker: ScannedBroker, reason: str) -> None:
        """Leaves the replicas of a scan out."""
        self.refused[broker.document] = reason
        self.start_faults.pop(broker.node_id, None)
        for partitions in (self.partitions, self.never_uploaded):
            for key, replicas in list(partitions.items()):
                partitions[key] = [replica for replica in replicas if replica.node_id != broker.node_id]
                if not partitions[key]:
                    del partitions[key]

    def count_as_down(self, nodes: Collection[int]) -> None:
        """Marks the replicas of brokers that the operator counts as stopped."""
        for partitions in (self.partitions, self.never_uploaded):
            for replicas in partitions.values():
                replicas[:] = [replace(replica, is_down=True) if replica.node_id in nodes else replica for replica in replicas]

    def sorted_partitions(self) -> Iterator[tuple[PartitionKey, list[ScannedReplica]]]:
        """By topic, partition and topic id; the replicas of each by node id."""
        for key in sorted(self.partitions, key=lambda key: (key[0], key[1], key[2] or "")):
            yield key, sorted(self.partitions[key], key=lambda replica: replica.node_id)


def read_scans(
    scans: Sequence[ScanDocument],
    placed: Iterable[PartitionKey],
    registered: Mapping[int, frozenset[str]],
    contradiction: Callable[[int, int | None, bool], str | None],
) -> ScannedFleet:
    """Reads the documents of ``scan``, each of one or several brokers, each broker once.

    Args:
        scans: the documents.
        placed: partitions as the metadata log has them, which gives replicas without a topic id theirs.
        registered: ids of the log directories that each broker registered with: replicas in others are left out.
        contradiction: why the scan of a broker with an epoch is not of the broker that is registered: its replicas are left out. The third
            argument: the epoch is that of its own metadata log, not of its clean-shutdown marker.

    Raises:
        UsageError: a document is damaged, lacks what the merge needs, or does not name the broker of its log directories. The scans are
            of different clusters. A broker or a replica is there twice.
        ReadFailedError: one cannot be read.
    """
    fleet = ScannedFleet()
    for scan in scans:
        _ScanReader(scan, fleet, registered, contradiction).read()
    placed = list(placed)
    for partitions in (fleet.partitions, fleet.never_uploaded):
        if fleet.start_faults:
            for replicas in partitions.values():
                replicas[:] = [_with_start_faults(replica, fleet.start_faults.get(replica.node_id, [])) for replica in replicas]
        _join_unnamed(partitions, placed)
    return fleet


class _ScanReader:
    """Adds the facts of one document to a fleet."""

    def __init__(
        self,
        scan: ScanDocument,
        fleet: ScannedFleet,
        registered: Mapping[int, frozenset[str]],
        contradiction: Callable[[int, int | None, bool], str | None],
    ) -> None:
        self._scan = scan
        self._path = scan.path
        self._fleet = fleet
        self._registered = registered
        self._contradiction = contradiction
        self._scanned_ms = 0
        self._free_bytes: dict[str, int] = {}
        self._replaced: dict[str, str] = {}
        self._node_of: dict[str, int] = {}
        self._sizes_bytes: dict[int, list[int]] = {}
        self._newest_ms: dict[int, int] = {}
        self._seen: set[tuple[int, str, int]] = set()

    def read(self) -> None:
        faults: list[ReportedFinding] = []
        fates: list[StartFate] = []
        single: dict[str, Any] = {}
        for name, value in self._scan.members():
            if name == "log_dirs":
                self._take_log_dir(value)
            elif name == "partitions":
                self._take_partition(value)
            elif name == "fates":
                fates.append(value)
            elif name == "counts":
                self._fleet.counts[self._path] = value
            elif name == "run":
                self._scanned_ms = value.at_ms
                self._free_bytes = {each.path: each.free_bytes for each in value.free_space}
            elif name != "findings":
                single[name] = value
            elif value.severity in NOT_LOOKED_AT:
                faults.append(value)
        for fate in fates:
            self._take_fate(fate)
        for node in set(self._node_of.values()):
            sizes_bytes = self._sizes_bytes.get(node, [])
            self._fleet.brokers[node] = replace(
                self._fleet.brokers[node],
                replicas=len(sizes_bytes),
                size_bytes=sum(sizes_bytes),
                newest_ms=self._newest_ms.get(node, 0),
                settings=single.get("settings"),
            )
        reasons = [*self._unread(faults, single["unread_paths"]), *self._replaced.values()]
        request = single["request"]
        if request.topics or request.partitions or request.topic_partitions:
            reasons.append("it covers selected topics or partitions only")
        if reasons:
            self._fleet.not_whole[self._path] = reasons

    def _unread(self, faults: Sequence[ReportedFinding], unread_paths: Sequence[str]) -> Iterator[str]:
        """Reasons why the scan is not a whole one. A partition that was deleted during the run is none of its ``unread_paths``."""
        if not self._node_of:
            yield "it has no log directory of any broker"
        if faults or unread_paths:
            self._fleet.unread.add(self._path)
        if faults:
            first = f"{faults[0].path}: {faults[0].message}"[:FIRST_CHARACTERS_MAX]
            yield f"{pluralize(len(faults), 'place')} could not be looked at, first {first}"
        elif unread_paths:
            first = unread_paths[0][:FIRST_CHARACTERS_MAX]
            yield f"{pluralize(len(unread_paths), 'path was', 'paths were')} not read, or not to the end, first {first}"

    def _take_log_dir(self, log_dir: ScannedLogDir) -> None:
        path = log_dir.path
        node_id = log_dir.node_id
        if node_id is None:
            message = f"does not show the broker of {path}: it has no meta.properties; scan the log directory of the broker itself"
            raise UsageError(message, path=self._path)
        self._fleet.take_cluster(log_dir.cluster_id, self._path)
        broker = self._fleet.brokers.get(node_id)
        if broker is None:
            broker = ScannedBroker(
                node_id=node_id, document=self._path, log_dirs=(), replicas=0, size_bytes=0, scanned_ms=self._scanned_ms
            )
        if broker.document != self._path:
            raise UsageError(f"is of broker {node_id}, as {broker.document}: name one scan of each broker", path=self._path)
        directory_id = log_dir.directory_id
        if directory_id is not None and directory_id in broker.directory_ids:
            raise UsageError(f"has the directory id {directory_id} twice: one is a copy of the other, {path}", path=self._path)
        others = [each for each in broker.log_dirs if each.path != path]
        directory_ids = broker.directory_ids
        if directory_id is not None:
            directory_ids |= {directory_id}
        release = broker.release
        if log_dir.kafka_release is not None:
            release = parse_release(log_dir.kafka_release)
        self._fleet.brokers[node_id] = replace(
            broker,
            log_dirs=sorted((*others, FleetLogDir(path=path, shutdown=log_dir.shutdown)), key=lambda each: each.path),
            directory_ids=directory_ids,
            is_kraft=broker.is_kraft or log_dir.cluster_kind == "kraft",
            release=release,
            free_bytes={name: free for name, free in self._free_bytes.items() if name in {path, *broker.free_bytes}},
        )
        reason = self._contradiction(node_id, log_dir.broker_epoch, log_dir.broker_epoch_source is EpochSource.METADATA_LOG)
        if reason is not None:
            self._fleet.refused.setdefault(self._path, f"{path}: {reason}")
        ids = self._registered.get(node_id, frozenset())
        if ids and directory_id not in ids:
            self._replaced[path] = (
                f"{path} has directory id {directory_id or 'none'}, and broker {node_id} registered with {', '.join(sorted(ids))}: "
                "its disk was replaced, or the metadata log is older, and its replicas were left out"
            )
        self._node_of[path] = node_id

    def _take_partition(self, partition: ScannedPartition) -> None:
        if partition.log_dir not in self._node_of:
            raise UsageError(f"is damaged: {partition.path} is in no log directory that it lists", path=self._path)
        node_id = self._node_of[partition.log_dir]
        key = (node_id, partition.topic, partition.partition)
        if key in self._seen:
            raise UsageError(
                f"has {partition.topic_partition} twice for broker {node_id}, now in {partition.path}", path=self._path
            )
        self._seen.add(key)
        if partition.log_dir in self._replaced or self._path in self._fleet.refused:
            return
        broker = self._fleet.brokers[node_id]
        newest_ms = max((segment.modified_ms for segment in partition.segments), default=0)
        self._newest_ms[node_id] = max(self._newest_ms.get(node_id, 0), newest_ms)
        self._sizes_bytes.setdefault(node_id, []).append(partition.totals.size_bytes)
        name = (partition.topic, partition.partition, partition.topic_id)
        replica = _replica_of(partition, node_id, is_running=broker.is_running)
        if partition.can_be_tiered:
            self._fleet.partitions.setdefault(name, []).append(replica)
            self._take_topic_id(partition, broker)
        elif partition.topic_kind is not TopicKind.CLUSTER_METADATA:  # that has a quorum, and no high watermark on disk
            self._fleet.never_uploaded.setdefault(name, []).append(replica)

    def _take_fate(self, fate: StartFate) -> None:
        match = start_fault_of(fate, self._node_of)
        if match is None or self._path in self._fleet.refused:
            return
        nodes, fault = match
        if any(fate.path == each or fate.path.startswith(f"{each}/") for each in self._replaced):
            return
        for node in nodes:
            self._fleet.start_faults.setdefault(node, []).append(fault)

    def _take_topic_id(self, partition: ScannedPartition, broker: ScannedBroker) -> None:
        if partition.uploads_under_id_zero:
            self._fleet.under_id_zero.setdefault(partition.topic, set()).add(broker.node_id)
        if broker.is_kraft:
            return
        if partition.topic_id is None:
            self._fleet.without_id.setdefault(partition.topic, set()).add(broker.node_id)
        else:
            by_id = self._fleet.with_id.setdefault(partition.topic, {})
            by_id.setdefault(partition.topic_id, set()).add(broker.node_id)


def _replica_of(partition: ScannedPartition, node_id: int, *, is_running: bool) -> ScannedReplica:
    upload = partition.upload
    log_start_offset = partition.log_start_offset
    missing = [
        boundary.offset
        for boundary in partition.boundaries
        if boundary.offset > log_start_offset
        and (boundary.state in ("missing", "irregular") or boundary.at_next_start == "removed")
    ]
    suspect = sum(_is_suspect(boundary, log_start_offset) for boundary in partition.boundaries)
    blocked = len(upload.blocked_segments)
    unfit = _unfit(partition)
    state = ReplicaReadiness.BLOCKED
    if unfit is None:
        state = _state_of(upload, suspect, blocked)
    end = max(missing, default=0)
    return ScannedReplica(
        node_id=node_id,
        state=state,
        log_start_offset=log_start_offset,
        # A replica that lost its disk has no segment: nothing is missing, and nothing is there.
        log_end_offset=partition.log_end.offset if partition.segments else log_start_offset,
        log_end_at_least=partition.log_end.at_least,
        high_watermark=partition.high_watermark,
        leader_epoch=partition.leader_epoch,
        size_bytes=partition.totals.size_bytes,
        missing=len(missing),
        suspect=suspect,
        blocked_segments=blocked,
        stuck_bytes=upload.stuck_bytes,
        replay_bytes=sum(segment.size_bytes for segment in partition.segments if segment.base_offset < end),
        is_running=is_running,
        must_not_lead=unfit,
        log_dir=partition.log_dir,
        leader_epoch_start_offset=partition.leader_epoch_start_offset,
        high_watermark_epoch=partition.high_watermark_epoch,
        newest_snapshot=partition.newest_snapshot,
        rolled_bytes=sum(segment.size_bytes for segment in upload.rolled_segments),
    )


def _with_start_faults(replica: ScannedReplica, faults: Iterable[StartFault]) -> ScannedReplica:
    """A reason of the replica itself comes before one of its broker."""
    fault = next((each for each in faults if each.concerns(replica.log_dir)), None)
    if fault is None:
        return replica
    if replica.must_not_lead is not None:
        return replace(replica, state=ReplicaReadiness.BLOCKED)
    return replace(replica, state=ReplicaReadiness.BLOCKED, must_not_lead=fault.unfit(), is_broker_unfit=True)


def _unfit(partition: ScannedPartition) -> MustNotLead | None:
    """Why it must not lead. Earlier scans show only that a rolled segment has no leader epoch."""
    if partition.must_not_lead is not None:
        return partition.must_not_lead
    is_lost = any(blocker.blocker == "leader-epochs-lost" for blocker in partition.upload.blockers)
    return MustNotLead("no leader epochs", "damaged") if is_lost else None


def _is_suspect(boundary: BoundaryScan, log_start_offset: int) -> bool:
    """Whether the snapshot is uploaded, and is not what it should be."""
    if boundary.offset <= log_start_offset or boundary.at_next_start in ("rebuilt", "removed"):
        return False
    return boundary.state in ("corrupt", "suspect") or boundary.at_next_start == "empty"


def _state_of(upload: Upload, suspect: int, blocked: int) -> ReplicaReadiness:
    if not blocked:
        return ReplicaReadiness.SUSPECT if suspect else ReplicaReadiness.READY
    if upload.stuck_bytes_after_rebuild:
        return ReplicaReadiness.BLOCKED
    freed_by = {blocker.freed_by for blocker in upload.blockers}
    return ReplicaReadiness.START if freed_by == {"broker start"} else ReplicaReadiness.REBUILD


def _join_unnamed(partitions: dict[PartitionKey, list[ScannedReplica]], placed: Iterable[PartitionKey]) -> None:
    """A broker of 2.7 writes no topic id: its replica is that of the metadata log's topic, or of the one that others know by its id."""
    unnamed = {key[:2]: key for key in partitions if key[2] is None}
    scanned: dict[tuple[str, int], list[PartitionKey]] = {}
    for key in partitions:
        if key[2] is not None and key[:2] in unnamed:
            scanned.setdefault(key[:2], []).append(key)
    joined = {name: keys[0] for name, keys in scanned.items() if len(keys) == 1}
    joined |= {key[:2]: key for key in placed if key[:2] in unnamed}
    for name, key in joined.items():
        partitions.setdefault(key, []).extend(partitions.pop(unnamed[name]))
