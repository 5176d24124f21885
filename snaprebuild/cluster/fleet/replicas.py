"""Scans of many brokers, read one partition at a time: of each replica stays what tells whether it can be uploaded from, no more."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from snaprebuild.documents.saved_documents import members_of, read_head
from snaprebuild.documents.typed import Natural, Part, part_of
from snaprebuild.errors import UsageError
from snaprebuild.findings import counted

__all__ = ["BROKERS_MAX", "Broker", "Fleet", "PartitionKey", "Replica", "ReplicaState", "read_scans"]

BROKERS_MAX = 500

SCAN_VERSION = 1

NOT_LOOKED_AT = frozenset({"storage", "refused"})
"""Severities of findings about what a scan could not read."""

FIRST_CHARACTERS_MAX = 400
"""Of the first of them; a document may say anything."""

PartitionKey = tuple[str, int, str | None]
"""Topic, partition, topic id."""


class ReplicaState(Enum):
    """What a leader with this replica's files could upload, once it was started with them."""

    READY = "ready"
    """Every closed segment: no snapshot is missing."""
    START = "start"
    """So it is after a start of the broker, which makes what is missing."""
    REBUILD = "rebuild"
    """So it is after ``rebuild`` and a start."""
    DOUBTED = "doubted"
    """Every closed segment, some with snapshots that do not parse or cannot be true: ``rebuild --set-aside`` replaces what is wrong."""
    HELPLESS = "helpless"
    """Some segments only retention, or an operator, gets out of the way."""


@dataclass(slots=True)
class Broker:
    """One broker, as its scan tells.

    Attributes:
        node_id: of the broker.
        document: path of the scan.
        log_dirs: its log directories, with how it stopped.
        directory_ids: of those, where they have one.
        replicas, size_bytes: of all partitions, also those that are never uploaded.
    """

    node_id: int
    document: str
    log_dirs: dict[str, str] = field(default_factory=dict)
    directory_ids: set[str] = field(default_factory=set)
    replicas: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica of a partition that can be uploaded.

    Attributes:
        node_id: of its broker.
        state: what a leader with its files could upload.
        log_start: log start offset.
        log_end: log end offset, None if the scan does not know; ``at_least``: a lower bound.
        high_watermark: as it was checkpointed; None if that is not known.
        leader_epoch: last one of its checkpoint; None without any.
        size_bytes: of its segments.
        missing: boundaries without a snapshot; ``doubted``: snapshots that do not parse or cannot be true.
        blocked_segments, stuck_bytes: as in the scan.
        replay_bytes: of the segments below the last boundary that lacks a snapshot: at most so much is read to rebuild all.
    """

    node_id: int
    state: ReplicaState
    log_start: int
    log_end: int | None
    at_least: int
    high_watermark: int | None
    leader_epoch: int | None
    size_bytes: int
    missing: int
    doubted: int
    blocked_segments: int
    stuck_bytes: int
    replay_bytes: int

    @property
    def is_empty(self) -> bool:
        """Whether its segments hold no byte."""
        return self.size_bytes == 0


@dataclass(slots=True)
class Fleet:
    """All brokers that were scanned.

    Attributes:
        cluster_id: of all of them; None if no scan tells.
        brokers: by node id.
        partitions: replicas of partitions that can be uploaded, by topic, partition and topic id.
        not_whole: documents that do not tell of all that their brokers have, each with the reasons.
        unread: those of them whose scan could not read something.
    """

    cluster_id: str | None = None
    brokers: dict[int, Broker] = field(default_factory=dict)
    partitions: dict[PartitionKey, list[Replica]] = field(default_factory=dict)
    not_whole: dict[str, list[str]] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    _cluster_from: str = ""

    def take_cluster(self, cluster_id: str | None, path: str) -> None:
        """Makes sure that all scans are of one cluster."""
        if cluster_id is None:
            return
        if self.cluster_id is None:
            self.cluster_id, self._cluster_from = cluster_id, path
        elif self.cluster_id != cluster_id:
            raise UsageError(
                f"is of another cluster: expected {self.cluster_id}, as {self._cluster_from}; found {cluster_id}", path=path
            )

    def sorted_partitions(self) -> Iterator[tuple[PartitionKey, list[Replica]]]:
        """By topic, partition and topic id; the replicas of each by node id."""
        for key in sorted(self.partitions, key=lambda each: (each[0], each[1], each[2] or "")):
            yield key, sorted(self.partitions[key], key=lambda each: each.node_id)


def read_scans(
    paths: list[str], known: Iterable[PartitionKey] = (), registered: Mapping[int, frozenset[str]] | None = None
) -> Fleet:
    """Reads the documents of ``scan``, each of one or several brokers, each broker once.

    Args:
        paths: of the documents.
        known: partitions as the metadata log has them, which gives replicas without a topic id theirs.
        registered: ids of the log directories that each broker registered with: replicas in others are left out.

    Raises:
        UsageError: no document, too many, one that is named twice, is no scan, is damaged or of another version, lacks what the merge
            needs, does not say whose log directories they are; scans of different clusters; a broker or a replica twice.
        ReadFailedError: one cannot be read.
    """
    if not paths:
        raise UsageError("name at least one document of scan")
    if len(paths) > BROKERS_MAX:
        raise UsageError(f"expected at most {BROKERS_MAX} documents, found {len(paths)}")
    seen: set[str] = set()
    for path in paths:
        if (real := os.path.realpath(path)) in seen:
            raise UsageError("is named twice", path=path)
        seen.add(real)
        read_head(path, {"scan": SCAN_VERSION})
    fleet = Fleet()
    for path in paths:
        _Scan(path, fleet, registered or {}).read()
    _join_unnamed(fleet, known)
    return fleet


class _LogDir(Part, frozen=True, kw_only=True):
    path: str
    node_id: Natural | None
    cluster_id: str | None
    directory_id: str | None
    shutdown: str


class _Boundary(Part, frozen=True, kw_only=True):
    offset: Natural
    state: str
    at_next_start: str | None

    @property
    def is_missing(self) -> bool:
        return self.state in ("missing", "irregular") or self.at_next_start == "removed"

    @property
    def is_unproven(self) -> bool:
        """Whether what is there is uploaded, and is not what it should be."""
        if self.at_next_start in ("rebuilt", "removed"):
            return False
        return self.state in ("corrupt", "suspect") or self.at_next_start == "empty"


class _Blocker(Part, frozen=True, kw_only=True):
    freed_by: str


class _Upload(Part, frozen=True, kw_only=True):
    blocked_segments: list[Any]
    blockers: dict[str, _Blocker]
    stuck_bytes: Natural
    stuck_bytes_after_rebuild: Natural


class _LogEnd(Part, frozen=True, kw_only=True):
    offset: Natural | None
    at_least: Natural


class _Segments(Part, frozen=True, kw_only=True):
    base_offsets: list[Natural]
    sizes_bytes: list[Natural]


class _Counts(Part, frozen=True, kw_only=True):
    size_bytes: Natural


class _Partition(Part, frozen=True, kw_only=True):
    topic: str
    partition: Natural
    topic_id: str | None
    path: str
    log_dir: str
    can_be_tiered: bool
    log_start_offset: Natural
    log_end: _LogEnd
    high_watermark: Natural | None
    leader_epoch: Natural | None
    counts: _Counts
    segments: _Segments
    boundaries: list[_Boundary]
    upload: _Upload | None


class _Inputs(Part, frozen=True, kw_only=True):
    topics: list[Any]
    partitions: list[Any]


class _FindingSeen(Part, frozen=True, kw_only=True):
    severity: str
    path: str
    message: str


_NEWER = {"log_dirs": "directory_id", "partitions": "segments"}
"""Members that scans of older versions lack."""


class _Scan:
    """One document."""

    def __init__(self, path: str, fleet: Fleet, registered: Mapping[int, frozenset[str]]) -> None:
        self._path = path
        self._fleet = fleet
        self._registered = registered
        self._replaced: dict[str, str] = {}
        self._node_of: dict[str, int] = {}
        self._seen: set[tuple[int, str, int]] = set()

    def read(self) -> None:
        count, unread, reasons = 0, list[_FindingSeen](), list[str]()
        needed = ("log_dirs", "partitions", "findings")
        for name, value in members_of(self._path, needed, needed):
            what = f"{name}[{count}]"
            if isinstance(value, dict) and _NEWER.get(name, "findings") not in {*value, "findings"}:
                raise self._wrong("was written by an older snaprebuild, whose scans lack what a merge needs: scan again")
            if name == "log_dirs":
                self._take_log_dir(part_of(_LogDir, value, path=self._path, what=what))
            elif name == "partitions":
                self._take_partition(part_of(_Partition, value, path=self._path, what=what))
                count += 1
            elif name == "findings":
                unread.append(part_of(_FindingSeen, value, path=self._path, what=what))
            elif name == "inputs":
                inputs = part_of(_Inputs, value, path=self._path, what=name)
                reasons = ["it was made of chosen topics or partitions alone"] if inputs.topics or inputs.partitions else []
        unread = [each for each in unread if each.severity in NOT_LOOKED_AT]
        reasons = [*self._replaced.values(), *reasons]
        if unread:
            self._fleet.unread.add(self._path)
            first = f"{unread[0].path}: {unread[0].message}"[:FIRST_CHARACTERS_MAX]
            reasons.insert(0, f"{counted(len(unread), 'place')} could not be looked at, first {first}")
        if not self._node_of:
            reasons.insert(0, "it has no log directory of any broker")
        if reasons:
            self._fleet.not_whole[self._path] = reasons

    def _wrong(self, message: str) -> UsageError:
        return UsageError(message, path=self._path)

    def _take_log_dir(self, log_dir: _LogDir) -> None:
        path, node_id, directory_id = log_dir.path, log_dir.node_id, log_dir.directory_id
        if node_id is None:
            raise self._wrong(
                f"does not tell whose {path} is: it has no meta.properties; scan the log directory of the broker itself"
            )
        self._fleet.take_cluster(log_dir.cluster_id, self._path)
        broker = self._fleet.brokers.setdefault(node_id, Broker(node_id, self._path))
        if broker.document != self._path:
            raise self._wrong(f"is of broker {node_id}, as {broker.document}: name one scan of each broker")
        if directory_id in broker.directory_ids:
            raise self._wrong(f"has the directory id {directory_id} twice: one is a copy of the other, {path}")
        broker.log_dirs[path] = log_dir.shutdown
        broker.directory_ids |= {directory_id} if directory_id is not None else set()
        ids = self._registered.get(node_id, frozenset())
        if ids and directory_id not in ids:
            self._replaced[path] = (
                f"{path} has directory id {directory_id or 'none'}, and broker {node_id} registered with {', '.join(sorted(ids))}: "
                "its disk was replaced, or the metadata log is older, and its replicas were left out"
            )
        self._node_of[path] = node_id

    def _take_partition(self, scanned: _Partition) -> None:
        node_id = self._node_of.get(scanned.log_dir)
        if node_id is None:
            raise self._wrong(f"is damaged: {scanned.path} is in {scanned.log_dir}, which is none of its log directories")
        topic, number = scanned.topic, scanned.partition
        if (node_id, topic, number) in self._seen:
            raise self._wrong(f"has {topic}-{number} twice for broker {node_id}, now in {scanned.path}")
        self._seen.add((node_id, topic, number))
        if scanned.log_dir in self._replaced:
            return
        broker = self._fleet.brokers[node_id]
        broker.replicas += 1
        broker.size_bytes += scanned.counts.size_bytes
        if scanned.can_be_tiered:
            if scanned.upload is None or len(scanned.segments.base_offsets) != len(scanned.segments.sizes_bytes):
                raise self._wrong(f"is damaged: {scanned.path}: upload or segments are missing")
            replica = _replica_of(scanned, scanned.upload, node_id)
            self._fleet.partitions.setdefault((topic, number, scanned.topic_id), []).append(replica)


def _replica_of(scanned: _Partition, upload: _Upload, node_id: int) -> Replica:
    above = [each for each in scanned.boundaries if each.offset > scanned.log_start_offset]
    missing = [each.offset for each in above if each.is_missing]
    unproven = sum(each.is_unproven for each in above)
    bases, end = scanned.segments.base_offsets, max(missing, default=0)
    return Replica(
        node_id=node_id,
        state=_state_of(upload, unproven),
        log_start=scanned.log_start_offset,
        # A replica that lost its disk has no segment: nothing is missing, and nothing is there.
        log_end=scanned.log_end.offset if bases else scanned.log_start_offset,
        at_least=scanned.log_end.at_least,
        high_watermark=scanned.high_watermark,
        leader_epoch=scanned.leader_epoch,
        size_bytes=scanned.counts.size_bytes,
        missing=len(missing),
        doubted=unproven,
        blocked_segments=len(upload.blocked_segments),
        stuck_bytes=upload.stuck_bytes,
        replay_bytes=sum(size for base, size in zip(bases, scanned.segments.sizes_bytes, strict=True) if base < end),
    )


def _state_of(upload: _Upload, unproven: int) -> ReplicaState:
    if not upload.blocked_segments:
        return ReplicaState.DOUBTED if unproven else ReplicaState.READY
    if upload.stuck_bytes_after_rebuild:
        return ReplicaState.HELPLESS
    freed_by = {each.freed_by for each in upload.blockers.values()}
    return ReplicaState.START if freed_by == {"broker start"} else ReplicaState.REBUILD


def _join_unnamed(fleet: Fleet, known: Iterable[PartitionKey]) -> None:
    """A broker of 2.7 writes no topic id: its replica is that of the metadata log's topic, or of the one that others know by its id."""
    unnamed = {key[:2]: key for key in fleet.partitions if key[2] is None}
    scanned: dict[tuple[str, int], list[PartitionKey]] = {}
    for key in fleet.partitions:
        if key[2] is not None and key[:2] in unnamed:
            scanned.setdefault(key[:2], []).append(key)
    joined = {name: keys[0] for name, keys in scanned.items() if len(keys) == 1}
    joined |= {key[:2]: key for key in known if key[:2] in unnamed}
    for name, key in joined.items():
        fleet.partitions.setdefault(key, []).extend(fleet.partitions.pop(unnamed[name]))
