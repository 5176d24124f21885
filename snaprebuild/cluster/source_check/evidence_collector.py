"""Collects the evidence on the partitions of a run: of each replica, its log directory, its broker's metadata log and its peers.

The order is that of the types: ``EvidenceCollector.register`` gives the brokers, ``RegisteredBrokers.compare`` gives the evidence that
``source_verdicts`` judges. So no replica is judged before all replicas of the run were compared with the metadata log.

A metadata log may be older than the replicas. A broker epoch is an offset of this log, its records count leader epochs, and it has a
record at least each ``metadata.max.idle.interval.ms``, 500 ms (``QuorumController`` of 4.3.1).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from formats.broker.broker_files import MetaProperties, Properties
from formats.errors import FormatError
from formats.partition.file_names import DirectoryForm
from snaprebuild.cluster.metadata.registered_model import METADATA_DIRECTORY
from snaprebuild.cluster.source_check.evidence import LogDirEvidence, LogEvidence, MetadataEvidence, PeerEvidence, SourceEvidence
from snaprebuild.cluster.source_check.evidence_reader import brokers_of, log_dir_evidence, peer_evidence
from snaprebuild.cluster.source_check.metadata_logs import BrokerMetadata, MetadataLogs
from snaprebuild.errors import DeadlinePassedError, SnaprebuildError, UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error
from snaprebuild.snapshots.plan.source_verdict import Purpose
from snaprebuild.snapshots.run import RunFacts
from snaprebuild.snapshots.source.broker_properties import log_dirs_of, metadata_dir_of
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.storage.log_dir import ClusterKind, LogDirState, find_partitions, kind_of
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.store import S3Settings, is_object

if TYPE_CHECKING:
    from snaprebuild.cluster.source_check.metadata_read import MetadataRead

__all__ = [
    "ComparedReplicas",
    "EvidenceCollector",
    "Peers",
    "RegisteredBrokers",
    "SourceRequest",
    "is_judged",
    "older_than_broker",
    "older_than_replica",
    "read_peers",
]

CLOCKS_APART_MS = 5_000
"""Brokers, controllers and producers have clocks of their own, and a controller may be idle for half a second."""


def older_than_broker(cluster: MetadataEvidence, own: LogDirEvidence) -> str | None:
    """Why a metadata log ends before the broker registered last; None if nothing shows that."""
    epoch = own.stopped_epoch
    if epoch is None:
        return None
    if epoch > cluster.offset:
        return f"the metadata log ends at {cluster.offset}, before the broker registered with epoch {epoch}: a later one is needed"
    if not own.has_marker or cluster.broker is None or epoch <= cluster.broker.epoch or cluster.epoch_owner is not None:
        return None
    epochs = (
        f"the metadata log has broker epoch {cluster.broker.epoch} of node {own.node_id}, and the clean-shutdown marker {epoch}"
    )
    if cluster.is_epoch_trimmed:
        return f"{epochs}: the record of that registration is below the start of the log, so whose it is is not known"
    return f"{epochs}, with which no broker registered there: it is not a log of this disk's cluster, or a later one is needed"


def older_than_replica(cluster: MetadataEvidence, timestamp_ms: int, log: LogEvidence) -> str | None:
    """Why a metadata log ends before the last batches of a replica were written; None if nothing shows that.

    Args:
        cluster: what it says of the partition.
        timestamp_ms: greatest in it, ms since 1970; negative for none.
        log: the replica.
    """
    partition = cluster.partition
    is_same_topic = log.topic_id is None or log.topic_id == cluster.topic_id
    if partition is not None and is_same_topic and log.epochs and log.epochs[-1].epoch > partition.leader_epoch:
        return (
            f"the metadata log ends at {cluster.offset}, in leader epoch {partition.leader_epoch} of {log.topic}-{log.partition}, and "
            f"{log.path} has leader epoch {log.epochs[-1].epoch}: a later one is needed"
        )
    appended_ms = log.tail_timestamp_ms
    if appended_ms is not None and timestamp_ms >= 0 and appended_ms > timestamp_ms + CLOCKS_APART_MS:
        seconds = (appended_ms - timestamp_ms) / 1000
        return f"the metadata log ends {seconds:.1f} s before the last batch of {log.path} was written: a later one is needed"
    return None


class Peers(msgspec.Struct, frozen=True):
    """The evidence of other replicas, by the name of their partition, and findings about files that cannot be read.

    ``replicas`` are the listings, by path, with the small files of their log directories.
    """

    known: dict[str, tuple[PeerEvidence, ...]] = msgspec.field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    replicas: dict[str, tuple[PartitionDir, LogDirState]] = msgspec.field(default_factory=dict)

    def of(self, topic_partition: str, path: str) -> tuple[PeerEvidence, ...]:
        """The other replicas of a partition, without the one at ``path``."""
        return tuple(peer for peer in self.known.get(topic_partition, ()) if peer.path != path)


class SourceRequest(msgspec.Struct, frozen=True):
    """The evidence for the verdicts of a run.

    Attributes:
        purpose: use of the replicas as sources.
        logs: metadata logs.
        log_dirs: all of the run; some may be of one broker.
        named: paths that were named: equal ids make them directories of one broker, as before 3.7 there are no directory ids.
        properties: of the broker to which some of the directories belong: its ``log.dirs``, and ``metadata.log.dir``, which need be none of
            them.
        peers: other replicas.
        broker_epoch: of a live broker, as the operator asserts.
        i_am_the_leader: the operator asserts that the replicas lead.
        accept_own_log: the operator accepts that only a broker's own metadata log shows when it registered last.
        locks: show which brokers run; None to assume that all are stopped.
    """

    purpose: Purpose
    logs: MetadataLogs
    log_dirs: Sequence[LogDirState] = ()
    named: Sequence[str] = ()
    properties: Properties | None = None
    peers: Peers = msgspec.field(default_factory=Peers)
    broker_epoch: int | None = None
    i_am_the_leader: bool = False
    accept_own_log: bool = False
    locks: RunFacts | None = msgspec.field(default_factory=RunFacts)


class EvidenceCollector(msgspec.Struct):
    """Collects the evidence on the replicas of a run.

    Attributes:
        request: what the verdicts rest on.
        findings: what could not be read; each once.
    """

    request: SourceRequest
    findings: list[Finding] = msgspec.field(default_factory=list)
    _siblings: dict[str, tuple[LogDirState, ...]] = msgspec.field(default_factory=dict)
    _metadata_dirs: dict[str, str] = msgspec.field(default_factory=dict)
    _older: dict[str, str] = msgspec.field(default_factory=dict)
    _missing_reasons: dict[str, str] = msgspec.field(default_factory=dict)

    def register(self) -> RegisteredBrokers:
        """Takes note of the log directories of the run, and which of them are of one broker (``brokers_of``)."""
        request = self.request
        properties = self.request.properties
        log_dirs = _real([] if properties is None else log_dirs_of(properties))
        self._siblings |= brokers_of(request.log_dirs, log_dirs, _real(request.named))
        metadata_dir = None if properties is None else metadata_dir_of(properties)
        if metadata_dir is not None and os.path.realpath(metadata_dir) not in log_dirs:
            self._metadata_dirs |= dict.fromkeys(log_dirs, metadata_dir)
        return RegisteredBrokers(self)

    def _metadata_of(self, state: LogDirState) -> BrokerMetadata:
        """The metadata log that has evidence on the broker of a log directory."""
        elsewhere = self._metadata_dirs.get(state.path)
        metadata = self.request.logs.of((state, *self._own_siblings(state)), elsewhere)
        if metadata.read is not None and metadata.read.is_own and os.path.dirname(metadata.read.path) == elsewhere:
            message = "the metadata log of metadata.log.dir is used for the replicas in the broker's log.dirs"
            self._add(Finding("source-metadata-dir", Severity.NOTE, metadata.read.path, message))
        return metadata

    def _add(self, finding: Finding) -> None:
        if finding not in self.findings:
            self.findings.append(finding)

    def _own_siblings(self, state: LogDirState) -> tuple[LogDirState, ...]:
        """The siblings that are known to be of the same broker."""
        return tuple(each for each in self._siblings.get(state.path, ()) if each.meta is not None)

    def _compare(self, replicas: Iterable[tuple[LogDirState, LogEvidence]]) -> None:
        for state, log in replicas:
            read = self._metadata_of(state).read
            if log.form is not DirectoryForm.PLAIN or read is None or state.path in self._older:
                continue
            own = log_dir_evidence(state, live_epoch=self.request.broker_epoch, locks=None)
            try:
                cluster = read.facts(log, own.node_id, own.stopped_epoch)
            except DeadlinePassedError:
                raise
            except (SnaprebuildError, FormatError):  # which is a finding where the replica is judged
                continue
            reason = cluster.older or self._lost_end(read, state, own) or older_than_broker(cluster, own)
            if (
                reason is None and self.request.logs.requested_offset is None
            ):  # at an earlier moment replicas were not yet what they are
                reason = older_than_replica(cluster, read.latest_ms, log)
            if reason is not None:
                self._older |= dict.fromkeys((state.path, *(sibling.path for sibling in self._own_siblings(state))), reason)
                message = f"{reason}. The cluster's state of the replicas in {state.path} is unknown"
                self._add(Finding("source-metadata-older", Severity.FINDING, read.path, message))

    def _evidence_for(self, state: LogDirState, log: LogEvidence, peers: tuple[PeerEvidence, ...]) -> SourceEvidence:
        self._compare([(state, log)])
        own = log_dir_evidence(state, self._siblings.get(state.path, ()), self.request.broker_epoch, locks=self.request.locks)
        metadata = self._metadata_of(state)
        cluster = None
        missing = metadata.missing_reason
        is_unreadable = metadata.is_unreadable
        if metadata.read is None and not is_unreadable:
            missing = self._missing_reason(state, missing)
        if metadata.read is not None:
            try:
                cluster = self._cluster(metadata.read, state, own, log)
            except DeadlinePassedError:
                raise
            except (SnaprebuildError, FormatError) as error:
                missing = f"the history of the metadata log cannot be read: {error}"
                is_unreadable = True
                self._add(finding_of_error(error, metadata.read.path))
        return SourceEvidence(
            purpose=self.request.purpose,
            log=log,
            log_dir=own,
            cluster=cluster,
            cluster_missing=missing,
            is_cluster_unreadable=is_unreadable,
            peers=peers,
            i_am_the_leader=self.request.i_am_the_leader,
            accept_own_log=self.request.accept_own_log,
        )

    def _missing_reason(self, state: LogDirState, otherwise: str) -> str:
        if state.path not in self._missing_reasons:
            self._missing_reasons[state.path] = _missing_metadata_reason(state, otherwise)
        return self._missing_reasons[state.path]

    def _is_live(self, state: LogDirState) -> bool:
        return log_dir_evidence(state, live_epoch=self.request.broker_epoch, locks=self.request.locks).is_live

    def _cluster(self, read: MetadataRead, state: LogDirState, own: LogDirEvidence, log: LogEvidence) -> MetadataEvidence:
        if self.request.purpose is Purpose.UPLOAD:
            self._add(Finding("source-metadata-proof", Severity.NOTE, read.path, read.summary))
        own_epoch = None
        is_own = self._is_own(read, state)
        if not is_own and own.stopped_epoch is None:
            own_epoch = self.request.logs.own_epoch((state, *self._own_siblings(state)), own.node_id)
        replaced_at = read.replaced_at(log, own.node_id, own.directory_id)
        facts = read.facts(log, own.node_id, own.stopped_epoch)
        older = self._older.get(state.path, facts.older)
        is_removed = log.topic_id != facts.topic_id and read.is_topic_removed(log.topic_id)
        return replace(facts, replaced_at=replaced_at, own_epoch=own_epoch, older=older, is_own=is_own, is_topic_removed=is_removed)

    def _is_own(self, read: MetadataRead, state: LogDirState) -> bool:
        """Whether a metadata log is that of the broker of a log directory, also if it was named."""
        places = [state.path, *(sibling.path for sibling in self._own_siblings(state)), self._metadata_dirs.get(state.path)]
        return read.is_own or os.path.dirname(read.path) in _real(place for place in places if place is not None)

    def _lost_end(self, read: MetadataRead, state: LogDirState, own: LogDirEvidence) -> str | None:
        """Why the broker's own metadata log is not known to be all that it had; None if nothing shows that.

        A marker of the broker in any of its directories shows that it stopped cleanly. Without one, a batch that is not whole was lost.
        """
        if not self._is_own(read, state):
            return None
        if read.end.is_torn and not own.has_marker and not self._is_live(state):
            return (
                f"the broker's own metadata log ends at {read.end.end_offset} with a batch that is not whole: a later one is needed"
            )
        return read.end.reason(was_stopped_cleanly=own.has_marker)


class RegisteredBrokers(msgspec.Struct, frozen=True):
    """The brokers of a run, whose replicas are yet to be compared with their metadata logs."""

    _collector: EvidenceCollector

    def metadata_of(self, state: LogDirState) -> BrokerMetadata:
        """The metadata log that has evidence on the broker of a log directory."""
        return self._collector._metadata_of(state)

    def compare(self, replicas: Iterable[tuple[LogDirState, LogEvidence]]) -> ComparedReplicas:
        """Looks for replicas that are newer than the metadata log of their broker: then it is no evidence on any replica of that broker.

        Args:
            replicas: all of the run, with their log directories.

        Raises:
            DeadlinePassedError: the deadline of the metadata logs has passed; nothing may be judged.
        """
        self._collector._compare(replicas)
        return ComparedReplicas(self._collector)


class ComparedReplicas(msgspec.Struct, frozen=True):
    """The evidence of a run, after its replicas were compared with the metadata logs of their brokers."""

    _collector: EvidenceCollector

    @property
    def findings(self) -> list[Finding]:
        """About metadata logs that cannot be read, or are no evidence; each once, and more as replicas are judged."""
        return [*self._collector.request.logs.findings, *self._collector.findings]

    def metadata_of(self, state: LogDirState) -> BrokerMetadata:
        """The metadata log that has evidence on the broker of a log directory."""
        return self._collector._metadata_of(state)

    def evidence_for(self, state: LogDirState, log: LogEvidence, peers: tuple[PeerEvidence, ...] = ()) -> SourceEvidence:
        """All that is known of a replica.

        Args:
            state: the small files of its log directory.
            log: its own files, as they are now: what is newer than the metadata log is seen again.
            peers: other replicas.
        """
        return self._collector._evidence_for(state, log, peers)


def _real(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(path if is_object(path) else os.path.realpath(path) for path in paths)


def is_judged(directory: PartitionDir) -> bool:
    """The metadata log is no topic of the cluster: its verbs judge it (``cluster check``)."""
    return directory.name.topic != "__cluster_metadata"


def read_peers(paths: Sequence[str], selection: Selection, stores: S3Settings) -> Peers:
    """The replicas below some places.

    Args:
        paths: of log directories, or above them; none for no peers.
        selection: of partitions.
        stores: how object stores are reached.

    Raises:
        UsageError: a path leads nowhere, or to no selected partition.
    """
    findings: list[Finding] = []
    peers: dict[str, tuple[PeerEvidence, ...]] = {}
    replicas: dict[str, tuple[PartitionDir, LogDirState]] = {}
    for path in paths:
        discovery = find_partitions([path], stores)
        findings += [finding_of_error(error, error.path or "", may_vanish=True) for error in discovery.faults]
        directories = [partition for log_dir in discovery.log_dirs for partition in log_dir.partitions]
        if not discovery.faults and not any(map(selection.takes, directories)):
            raise UsageError(f"--peer: {selection.why_nothing(directories)}", path=path)
        for log_dir in discovery.log_dirs:
            for directory in log_dir.partitions:
                if directory.name.form is DirectoryForm.PLAIN and selection.takes(directory) and is_judged(directory):
                    known = peers.get(directory.topic_partition, ())
                    if all(peer.path != directory.path for peer in known):
                        peers[directory.topic_partition] = (*known, peer_evidence(directory, log_dir.state))
                        replicas[directory.path] = directory, log_dir.state
    return Peers(peers, tuple(findings), replicas)


NEIGHBOURS_MAX = 64
"""Directories next to a log directory that are looked into: disks are mounted side by side."""


def _missing_metadata_reason(state: LogDirState, otherwise: str) -> str:
    """Why there is no metadata log for a log directory.

    Args:
        state: of the log directory, in which there is none.
        otherwise: the reason for one whose ``meta.properties`` names no KRaft node.
    """
    meta = state.meta
    if meta is None or kind_of(meta) is not ClusterKind.KRAFT:
        return otherwise
    node = "a KRaft node" if meta.node_id is None else f"KRaft node {meta.node_id}"
    place = _neighbour(state, meta)
    where = f"it is in {place}" if place is not None else "name the log directory that has it"
    return f"this is a disk of {node} without its {METADATA_DIRECTORY}, and no metadata log was given (--metadata): {where}"


def _neighbour(state: LogDirState, meta: MetaProperties) -> str | None:
    """The directory next to this one with the metadata log of the same node; None if there is none, or none can be read."""
    from snaprebuild.cluster.metadata.log import (
        meta_around,  # with all records and images, which a run without such a disk does not need
    )

    if not state.store.is_local:
        return None
    above = os.path.dirname(state.path)
    try:
        names = sorted(state.place.at(above).names())[:NEIGHBOURS_MAX]
    except SnaprebuildError:
        return None
    for name in names:
        path = os.path.join(above, name, METADATA_DIRECTORY)
        if os.path.join(above, name) == state.path or not os.path.isdir(path):
            continue
        try:
            other = meta_around(state.place.at(path))
        except (SnaprebuildError, FormatError):
            continue
        if other is not None and other.names_node_of(meta):
            return os.path.dirname(path)
    return None
