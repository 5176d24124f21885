"""What a verdict on a replica is made from: what its files say of it, and what the cluster, other replicas and the operator say.

Everything may be missing. What is missing is None. A rule that needs it is *not known* where the evidence should be there, and
*not applicable* where this kind of cluster does not have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.file_names import DirectoryForm
from snaprebuild.cluster.metadata.image_model import BrokerRegistration, PartitionRegistration

__all__ = ["ClusterEvidence", "LogDirEvidence", "LogEvidence", "PeerEvidence", "Purpose", "SourceEvidence"]


class Purpose(StrEnum):
    """What a replica is to be the source of."""

    REBUILD = "rebuild"
    """Snapshots beside its own segments: they describe local bytes, whoever is in the ISR."""
    UPLOAD = "upload"
    """Copies of its segments in remote storage, which become the log for everybody."""
    BOOTSTRAP = "bootstrap"
    """The log of another replica."""


@dataclass(frozen=True, slots=True)
class LogDirEvidence:
    """What the small files of a log directory say of the broker that it belongs to.

    Attributes:
        path: of the directory.
        is_broker_directory: a broker was at work here; a bare copy of partitions has no files of one.
        has_meta: ``meta.properties`` was read.
        meta_fault: why it could not be read although it is there.
        node_id: of it, with ``cluster_id`` and ``directory_id`` (16 bytes); None where it does not say.
        has_marker: ``.kafka_cleanshutdown`` is there.
        marker_epoch: the broker epoch in it, None where it has none (brokers before 3.9, or one that stopped before it had registered).
        is_marker_unregistered: the broker stopped before it had registered, and wrote epoch -1.
        is_live: a broker holds the directory.
        live_epoch: its broker epoch as the operator gave it; None otherwise.
        siblings: the other log directories of the same broker that were looked at.
        faults: why small files of it could not be read.
    """

    path: str
    is_broker_directory: bool = True
    has_meta: bool = False
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
    def stopped_epoch(self) -> int | None:
        """The broker epoch under which it was last at work, None where it is not known. A marker on disk overrides the operator."""
        return self.marker_epoch if self.has_marker else self.live_epoch


@dataclass(frozen=True, slots=True)
class LogEvidence:
    """One partition directory.

    Attributes:
        path: of the directory.
        topic: name, with the number of the ``partition``.
        partition: see there.
        form: of the directory's name.
        swapped: a file of an interrupted compaction, or None.
        topic_id: of ``partition.metadata``, 16 bytes; None where that is absent or cannot be read.
        bases: base offsets of the segments, ascending.
        log_end: end of the last whole batch; None where it cannot be read.
        high_watermark: of the checkpoint, as it is written there; None where there is no line. Likewise ``recovery_point``.
        recovery_point: see there.
        log_start: likewise, 0 where there is no line.
        epochs: of the leader epoch checkpoint, in file order; None where that is absent or cannot be read.
        tail_epoch: leader epoch of the last batch; None where no batch was read, -1 for one that has none (message formats 0 and 1).
        tail_timestamp_ms: when the last batches were appended at the latest, ms since 1970; None where that is not known.
        last_stable: the last stable offset, None where the log was not replayed for it.
        is_stable_asked: ``last_stable`` was looked for; None means then that it could not be found.
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
    log_end: int | None = None
    high_watermark: int | None = None
    recovery_point: int | None = None
    log_start: int = 0
    epochs: tuple[LeaderEpochEntry, ...] | None = None
    tail_epoch: int | None = None
    tail_timestamp_ms: int | None = None
    last_stable: int | None = None
    is_stable_asked: bool = False
    is_compacted: bool = False
    faults: tuple[str, ...] = ()
    exists: bool = True

    @property
    def is_empty(self) -> bool:
        """No record is in it; False where nobody can tell."""
        return self.exists and (not self.bases or (self.log_end is not None and self.log_end <= self.bases[0]))

    def closed_below(self, offset: int) -> int:
        """Where the last segment ends that ends at or below an offset: its part of the log is whole."""
        return max((base for base in self.bases if base <= offset), default=0)


@dataclass(frozen=True, slots=True)
class ClusterEvidence:
    """What a metadata log says of a broker and of one partition.

    Attributes:
        origin: its path.
        offset: last one that was taken.
        cluster_id: of the directory that it lies in; None where nothing tells.
        is_own: it lies in a log directory of the broker itself.
        broker: the registration of the broker, None where it has none.
        topic_id: of the topic of that name, 16 bytes; None where there is none.
        partition: None where the topic has no such partition.
        replaced_at: offset at which the broker first registered its log directory, where that was after this partition was given to the
            broker: the disk is another. None where nothing says so.
    """

    origin: str
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


@dataclass(frozen=True, slots=True)
class PeerEvidence:
    """Another replica of the same partition.

    Attributes:
        path: of its directory.
        cluster_id: of its log directory, None where nothing tells.
        topic_id: 16 bytes, None where nothing tells.
        epochs: of its leader epoch checkpoint; None where that is absent or cannot be read.
        log_start: offset of its first segment; None where it has none.
        log_end: end of its last whole batch; None where it cannot be read.
    """

    path: str
    cluster_id: str | None
    topic_id: bytes | None
    epochs: tuple[LeaderEpochEntry, ...] | None
    log_start: int | None
    log_end: int | None


@dataclass(frozen=True, slots=True)
class SourceEvidence:
    """All of it.

    Attributes:
        purpose: what it is to be the source of.
        log: the partition.
        log_dir: the directory that it is in.
        cluster: None where no metadata log was asked.
        cluster_missing: why not.
        is_cluster_unreadable: there is a metadata log, and it could not be asked. Otherwise none is at hand.
        peers: other replicas that were given.
        is_leader_by_word: the operator asserts that this replica is the leader.
    """

    purpose: Purpose
    log: LogEvidence
    log_dir: LogDirEvidence
    cluster: ClusterEvidence | None = None
    cluster_missing: str = "no metadata log was given, and none lies beside the partition"
    is_cluster_unreadable: bool = False
    peers: tuple[PeerEvidence, ...] = ()
    is_leader_by_word: bool = False
