"""The evidence for a verdict on a replica: from its files, the cluster, other replicas and the operator.

Everything may be missing, and is None then. A rule that needs it is *not known* where the evidence should be there, and
*not applicable* where this kind of cluster does not have it.
"""

from __future__ import annotations

import msgspec

from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.file_names import DirectoryForm
from snaprebuild.cluster.metadata.registered_model import (
    BrokerRegistration,
    LeaderRecoveryState,
    PartitionRegistration,
    directory_text,
)
from snaprebuild.snapshots.plan.source_verdict import Purpose
from snaprebuild.storage.log_dir import ClusterKind

__all__ = ["LogDirEvidence", "LogEvidence", "MetadataEvidence", "PeerEvidence", "SourceEvidence"]


class WithFaults:
    """Evidence of which some small files could not be read."""

    __slots__ = ()
    faults: tuple[str, ...]

    def fault_of(self, name: str) -> str | None:
        """Why a file could not be read."""
        return next((fault for fault in self.faults if name in fault), None)


class LogDirEvidence(msgspec.Struct, WithFaults, frozen=True):
    """Facts from the small files of a log directory about the broker that it belongs to.

    Attributes:
        path: of the directory.
        is_broker_directory: a broker was at work here; a bare copy of partitions has no files of one.
        has_meta: ``meta.properties`` was read.
        kind: of its cluster.
        meta_fault: why it could not be read although it is there.
        node_id: of it, with ``cluster_id`` and ``directory_id`` (16 bytes); None if it does not say.
        has_marker: ``.kafka_cleanshutdown`` is there.
        marker_epoch: the broker epoch in it, None if it has none (brokers before 3.9, or one that stopped before it had registered).
        is_marker_unregistered: the broker stopped before it had registered, and wrote epoch -1.
        is_live: a broker holds the directory.
        live_epoch: its broker epoch as the operator gave it; None otherwise.
        siblings: the other log directories of the same broker that were looked at.
        faults: why small files of it could not be read.
    """

    path: str
    is_broker_directory: bool = True
    has_meta: bool = False
    kind: ClusterKind = ClusterKind.UNKNOWN
    meta_fault: str | None = None
    node_id: int | None = None
    cluster_id: str | None = None
    directory_id: bytes | None = None
    has_marker: bool = False
    marker_epoch: int | None = None
    is_marker_unregistered: bool = False
    is_live: bool = False
    live_epoch: int | None = None
    siblings: tuple[LogDirEvidence, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def directory(self) -> str | None:
        """Directory id of the log directory as registrations have it; None without one."""
        return None if self.directory_id is None else directory_text(self.directory_id)

    @property
    def stopped_epoch(self) -> int | None:
        """The broker epoch under which it was last at work, None if it is not known. A marker on disk overrides the operator."""
        return self.marker_epoch if self.has_marker else self.live_epoch


class LogEvidence(msgspec.Struct, WithFaults, frozen=True):
    """One partition directory.

    Attributes:
        path: of the directory.
        topic: name, with the number of the ``partition``.
        form: of the directory's name.
        swapped: a file of an interrupted compaction, or None.
        topic_id: of ``partition.metadata``, 16 bytes; None if that is absent or cannot be read.
        bases: base offsets of the segments, ascending.
        log_end_offset: end of the last whole batch; None if it cannot be read.
        high_watermark: as the checkpoint has it; None if there is no line.
        recovery_point: as the checkpoint has it; None if there is no line.
        log_start_offset: as the checkpoint has it; 0 if there is no line.
        epochs: of the leader epoch checkpoint, in file order; None if that is absent or cannot be read.
        tail_epoch: leader epoch of the last batch; None if no batch was read, -1 for one that has none (message formats 0 and 1).
        is_uncovered: the first leader epochs are gone: batches of message format 2 are below them.
        tail_timestamp_ms: when the last batches were appended at the latest, ms since 1970; None if that is not known.
        last_stable_offset: None if the log was not replayed for it.
        is_stable_asked: ``last_stable_offset`` was looked for; None means then that it could not be found.
        is_compacted: the log cleaner works on it.
        faults: why something of it could not be read.
        exists: False for a replica that is yet to be made: only who gets it is judged.
    """

    path: str
    topic: str
    partition: int
    form: DirectoryForm = DirectoryForm.PLAIN
    swapped: str | None = None
    topic_id: bytes | None = None
    bases: tuple[int, ...] = ()
    log_end_offset: int | None = None
    high_watermark: int | None = None
    recovery_point: int | None = None
    log_start_offset: int = 0
    epochs: tuple[LeaderEpochEntry, ...] | None = None
    tail_epoch: int | None = None
    is_uncovered: bool = False
    tail_timestamp_ms: int | None = None
    last_stable_offset: int | None = None
    is_stable_asked: bool = False
    is_compacted: bool = False
    faults: tuple[str, ...] = ()
    exists: bool = True

    @property
    def is_empty(self) -> bool:
        """No record is in it; False if that is unknown."""
        return self.exists and (not self.bases or (self.log_end_offset is not None and self.log_end_offset <= self.bases[0]))

    def closed_below(self, offset: int) -> int:
        """Where the last segment ends that ends at or below an offset: its part of the log is whole."""
        return max((base for base in self.bases if base <= offset), default=0)


class MetadataEvidence(msgspec.Struct, frozen=True):
    """Facts from a metadata log about a broker and one partition.

    Attributes:
        path: of the metadata log.
        offset: last one that was taken.
        cluster_id: of the directory that it is in; None if unknown.
        is_own: it is in a log directory of the broker itself, found there or named.
        own_epoch: broker epoch in the metadata log of the broker itself, where another one is asked; None if none shows it.
        older: why it says nothing of the broker as it was when it last ran; None if it does.
        unproven: why what it says of the replica is not proven; None if it is, or no proof was asked for.
        epoch_owner: id of the broker that registered with the epoch under which this one last ran; None if no record shows it.
        is_epoch_trimmed: the record of that epoch is below the start of the log.
        is_topic_removed: the topic id of the replica is in an earlier record, and no topic has it at the end. Ids are never used again.
        broker: the registration of the broker, None if it has none.
        topic_id: of the topic of that name, 16 bytes; None if there is none.
        partition: None if the topic has no such partition.
        replaced_at: offset at which the broker first registered its log directory, where that was after this partition was given to the
            broker: the disk is another. None if nothing says so.
    """

    path: str
    offset: int
    cluster_id: str | None
    broker: BrokerRegistration | None
    topic_id: bytes | None
    partition: PartitionRegistration | None
    replaced_at: int | None = None
    is_own: bool = False
    own_epoch: int | None = None
    older: str | None = None
    unproven: str | None = None
    epoch_owner: int | None = None
    is_epoch_trimmed: bool = False
    is_topic_removed: bool = False

    @property
    def broker_epoch(self) -> int | None:
        """Broker epoch of the registration; None without one."""
        return None if self.broker is None else self.broker.epoch

    @property
    def broker_directories(self) -> tuple[str, ...]:
        """Empty if the broker is not registered, or registered none."""
        return () if self.broker is None else self.broker.directories

    @property
    def registered(self) -> PartitionRegistration:
        """The partition; one without replicas if the topic has none of this number."""
        return self.partition or _NO_PARTITION


_NO_PARTITION = PartitionRegistration(
    replicas=(),
    directories=(),
    isr=(),
    removing=(),
    adding=(),
    elr=(),
    last_known_elr=(),
    leader=-1,
    leader_recovery_state=LeaderRecoveryState.RECOVERED,
    leader_epoch=-1,
    partition_epoch=-1,
)
_NOTHING_KNOWN = MetadataEvidence(path="", offset=-1, cluster_id=None, broker=None, topic_id=None, partition=None)


class PeerEvidence(msgspec.Struct, frozen=True):
    """Another replica of the same partition.

    Attributes:
        path: of its directory.
        cluster_id: of its log directory, None if unknown.
        topic_id: 16 bytes, None if unknown.
        epochs: of its leader epoch checkpoint; None if that is absent or cannot be read.
        log_start_offset: offset of its first segment; None if it has none.
        log_end_offset: end of its last whole batch; None if it cannot be read.
    """

    path: str
    cluster_id: str | None
    topic_id: bytes | None
    epochs: tuple[LeaderEpochEntry, ...] | None
    log_start_offset: int | None
    log_end_offset: int | None


class SourceEvidence(msgspec.Struct, frozen=True):
    """All evidence for one replica.

    Attributes:
        purpose: the use as a source.
        log: the partition.
        log_dir: the directory that it is in.
        cluster: None if no metadata log was asked.
        cluster_missing: why not.
        is_cluster_unreadable: there is a metadata log, and it could not be asked. Otherwise none is at hand.
        peers: other replicas that were given.
        i_am_the_leader: the operator asserts that this replica is the leader.
        accept_own_log: the operator accepts that only the broker's own metadata log shows when it registered last.
    """

    purpose: Purpose
    log: LogEvidence
    log_dir: LogDirEvidence
    cluster: MetadataEvidence | None = None
    cluster_missing: str = "no metadata log was given, and there is none next to the partition"
    is_cluster_unreadable: bool = False
    peers: tuple[PeerEvidence, ...] = ()
    i_am_the_leader: bool = False
    accept_own_log: bool = False

    @property
    def has_metadata_log(self) -> bool:
        """A metadata log is at hand, readable or not."""
        return self.cluster is not None or self.is_cluster_unreadable

    @property
    def needs_metadata_log(self) -> bool:
        """Whether what a metadata log would show is missing without one.

        A cluster with ZooKeeper has none, and a directory without any file of a broker is of no cluster.
        """
        own = self.log_dir
        return self.has_metadata_log or (own.is_broker_directory and own.kind is not ClusterKind.ZOOKEEPER)

    @property
    def unknown_reason(self) -> str | None:
        """Why the cluster gives no evidence on the broker as it was when it last ran; None if it does."""
        return self.cluster_missing if self.cluster is None else self.cluster.older

    @property
    def cluster_facts(self) -> MetadataEvidence:
        """The cluster's facts about the broker when it last ran; empty if ``unknown_reason`` has a reason."""
        if self.cluster is None or self.cluster.older is not None:
            return _NOTHING_KNOWN
        return self.cluster

    @property
    def by_records_so_far(self) -> SourceEvidence:
        """The evidence as if the metadata log ended where its records end."""
        assert self.cluster is not None
        return msgspec.structs.replace(self, cluster=msgspec.structs.replace(self.cluster, older=None))

    @property
    def is_run_registered(self) -> bool:
        """The metadata log has the registration under which the broker last ran: a later one makes the disk that of an earlier run."""
        cluster = self.cluster
        own = self.log_dir
        if cluster is None or own.stopped_epoch is None:
            return False
        if cluster.epoch_owner is not None:
            return cluster.epoch_owner == own.node_id
        return own.stopped_epoch == cluster.broker_epoch

    @property
    def unregistered_reason(self) -> str | None:
        """Why the partition as the cluster has it is not known; None if it is."""
        if self.unknown_reason is not None:
            return self.unknown_reason
        if self.cluster_facts.topic_id is None or self.log.topic_id not in (None, self.cluster_facts.topic_id):
            return "the cluster has no topic of this id"
        return "the cluster has no such partition" if self.cluster_facts.partition is None else None

    @property
    def registered(self) -> PartitionRegistration:
        """The partition as the cluster has it; one without replicas where ``unregistered_reason`` has a reason."""
        return _NO_PARTITION if self.unregistered_reason is not None else self.cluster_facts.registered

    def is_of_another_log(self, peer: PeerEvidence) -> bool:
        """Whether a peer is no replica of this partition: of another topic of its name, or of another cluster."""
        ids = (self.log.topic_id, peer.topic_id), (self.log_dir.cluster_id, peer.cluster_id)
        return any(None not in pair and pair[0] != pair[1] for pair in ids)
