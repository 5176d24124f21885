"""Facts that decide what a broker does at its next start, as values: of a partition, a log directory, and the broker."""

from __future__ import annotations

from enum import StrEnum
from typing import TypedDict

import msgspec

from formats.log.batch_headers import TailKind
from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.file_names import DirectoryForm
from snaprebuild.broker.releases import ALL_RELEASES, ReleaseRange
from snaprebuild.storage.log_dir import ClusterKind

__all__ = [
    "Assignment",
    "BrokerFacts",
    "LogDirFacts",
    "LogDirPlace",
    "LogRead",
    "PartitionFacts",
    "RemoteStorage",
    "SegmentEnd",
    "Shutdown",
    "SmallFile",
    "TopicIdFile",
    "TransactionIndexFault",
]


class Shutdown(StrEnum):
    """How the broker stopped last, as far as known. This decides the actions of its next start."""

    CLEAN = "clean"
    UNCLEAN = "unclean"
    RUNNING = "running"
    """A process holds the directory; what its next start does is shown for a clean stop."""
    UNKNOWN = "unknown"
    """No file of a broker is there: a copy of partitions."""


class RemoteStorage(StrEnum):
    """Whether brokers upload the segments of a topic, as far as the files show; only a metadata log has ``remote.storage.enable``."""

    ON = "on"
    """A broker wrote a log start offset that it writes only where remote storage is on (``PartitionSource.is_tiered``).
    Or a metadata log has true."""
    OFF = "off"
    """The topic is internal or compacted, ``remote.log.storage.system.enable`` of the broker is not true, or a metadata log has no true."""
    UNKNOWN = "unknown"


class SmallFile(StrEnum):
    """The state of a small file of a broker."""

    ABSENT = "absent"
    EMPTY = "empty"
    """No byte, or a version line alone."""
    WITHOUT_NODE_ID = "without-node-id"
    """Lines of a ``meta.properties``, and none with the id of a node: for a broker the same as an empty file."""
    MALFORMED = "malformed"
    NEGATIVE = "negative"
    """A leader epoch or its start offset is negative: IllegalArgumentException."""
    UNREADABLE = "unreadable"
    """This process could not read it: nothing is known."""
    DIRECTORY = "directory"
    """A directory is in its place: IOException. Known of ``meta.properties`` only."""
    PRESENT = "present"


class LogDirPlace(StrEnum):
    """The kind of file at the path of a log directory."""

    DIRECTORY = "directory"
    MISSING = "missing"
    OTHER = "other"
    """A file."""
    UNKNOWN = "unknown"
    """This process may not look."""


class TopicIdFile(StrEnum):
    """The state of ``partition.metadata``, by what ``PartitionMetadataFile`` does with it."""

    ABSENT = "absent"
    LINE_MISSING = "line-missing"
    """No byte, or one line: NullPointerException."""
    NO_UUID = "no-uuid"
    """IllegalArgumentException."""
    ZERO = "zero"
    """IOException."""
    MALFORMED = "malformed"
    """IOException."""
    UNREADABLE = "unreadable"
    """This process could not read it: nothing is known."""
    NEWER_VERSION = "newer-version"
    """The version of the file is above 0. 3.7 and later read it."""
    PRESENT = "present"


class TransactionIndexFault(StrEnum):
    """The fault that ``TransactionIndex.sanityCheck`` finds in a ``.txnindex``."""

    BELOW_BASE = "below-base"
    """An entry ends below the base offset of the segment: CorruptIndexException, and the segment is recovered."""
    VERSION = "version"
    """The first byte of an entry is 1 to 127: KafkaException, which nothing catches."""
    VERSION_OF_TWO_BYTES = "version-of-two-bytes"
    """The first two bytes of an entry are not 0, and nothing above: 4.4 throws as at a version, earlier releases read on."""


class SegmentEnd(msgspec.Struct, frozen=True):
    """The end of the last segment.

    Attributes:
        offset: end of the last whole batch; base offset of the segment where it has none.
        position_bytes: where that batch ends in the file.
        size_bytes: of the file.
        kind: how the batches end.
        throws: whether a broker that did not recover the segment throws at the bytes after the last whole batch.
        leader_epoch: of the last whole batch; None where there is none, -1 for message formats 0 and 1.
    """

    offset: int
    position_bytes: int
    size_bytes: int
    kind: TailKind = TailKind.CLEAN
    throws: bool = False
    leader_epoch: int | None = None

    @property
    def bytes_after(self) -> int:
        """Bytes after the last whole batch."""
        return self.size_bytes - self.position_bytes


class LogRead(msgspec.Struct, frozen=True, kw_only=True):
    """Facts from the batches that a start reads.

    These are, after a crash, all from the segment of the recovery point on, and after a clean stop those above the newest snapshot.

    Attributes:
        end_offset: of the log after the recovery; that of the last whole batch where nothing is recovered.
        cut_bytes: what the recovery removes: the rest of the first damaged segment, and all later ones.
        cut_segments: count of the later segments, which are deleted.
        plain_write: (offset, producer id) of the first batch outside of a transaction while its producer has one open; None without one.
        descending: base offsets of the segments whose index is made anew while they are loaded, and whose offsets descend.
    """

    end_offset: int
    cut_bytes: int = 0
    cut_segments: int = 0
    plain_write: tuple[int, int] | None = None
    descending: tuple[int, ...] = ()


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """A partition in an image of the metadata log (KRaft) of the same node.

    Attributes:
        topic_id: of the topic with this name, 16 bytes; None if the image has no such topic.
        is_replica: this node is one of the replicas of the partition.
        is_current: the leader epoch of the image is at least that of the last batch: the image is newer than the batch.
        in_sync: ids of the other replicas that are in sync.
        age: last offset of the image, and its time.
        directory_id: of the log directory of this node that has the replica, 16 bytes; None where it is not known (before 3.7).
        lost_topic_id: the id that a lost ``partition.metadata`` had, 16 bytes; None unless the history of the cluster proves it.
    """

    topic_id: bytes | None
    is_replica: bool
    is_current: bool
    in_sync: tuple[int, ...] = ()
    age: str = ""
    directory_id: bytes | None = None
    lost_topic_id: bytes | None = None


class FatePlace(TypedDict):
    """Members of a ``Fate`` as arguments: what it is about."""

    subject: str
    path: str


class PartitionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one partition directory.

    Attributes:
        topic_partition: ``<topic>-<partition>``.
        path: of the directory.
        shutdown: how its broker stopped.
        base_offsets: of the segments, ascending.
        segment_sizes: bytes of each.
        end: of the last segment; None where it was not read, or could not be.
        checkpointed_log_start_offset: of ``log-start-offset-checkpoint``; None without an entry.
        recovery_point: of ``recovery-point-offset-checkpoint``; None without an entry.
        high_watermark: of ``replication-offset-checkpoint``; None without an entry.
        snapshots: offsets of the snapshot files, ascending.
        has_lone_indexes: an index without a segment is there.
        topic_id_file: state of ``partition.metadata``; ``topic_id`` its id of 16 bytes.
        epochs_file: state of ``leader-epoch-checkpoint``; ``leader_epochs`` its lines, as a broker loads them.
        uncovered_magic: message format of the last batches below the first leader epoch; None where there are none, or it is unknown.
        transaction_index_faults: (base offset, fault) of each ``.txnindex`` that fails, ascending; two where releases do not agree.
        without_index: base offsets of segments without ``.index``.
        unloadable_names: files with a name that makes a broker throw.
        unreadable_names: files that the broker's user may not read.
        remote_storage: whether it is on for the topic.
        is_served: ``LogManager`` loads it; false for ``__cluster_metadata``.
        form: of the name of the directory: the partition itself, a future copy, a stray, or one that is marked for deletion.
        directory_id: of the log directory (``meta.properties``), 16 bytes; None without one.
        has_swapped: files of an interrupted compaction or split are there.
        swap_range: the offsets that ``.swap`` files of an interrupted compaction or split cover, [first, end); None without such files.
        log_read: what the batches show that the start reads; None where they were not read.
        assignment: of the metadata log of this node; None if there is none, or it was not read.
    """

    topic_partition: str
    path: str
    shutdown: Shutdown
    base_offsets: tuple[int, ...] = ()
    segment_sizes: tuple[int, ...] = ()
    end: SegmentEnd | None = None
    checkpointed_log_start_offset: int | None = None
    recovery_point: int | None = None
    high_watermark: int | None = None
    snapshots: tuple[int, ...] = ()
    has_lone_indexes: bool = False
    topic_id_file: TopicIdFile = TopicIdFile.PRESENT
    topic_id: bytes | None = None
    epochs_file: SmallFile = SmallFile.PRESENT
    leader_epochs: tuple[LeaderEpochEntry, ...] = ()
    uncovered_magic: int | None = None
    transaction_index_faults: tuple[tuple[int, TransactionIndexFault], ...] = ()
    without_index: tuple[int, ...] = ()
    unloadable_names: tuple[str, ...] = ()
    unreadable_names: tuple[str, ...] = ()
    remote_storage: RemoteStorage = RemoteStorage.UNKNOWN
    is_served: bool = True
    form: DirectoryForm = DirectoryForm.PLAIN
    directory_id: bytes | None = None
    has_swapped: bool = False
    swap_range: tuple[int, int] | None = None
    log_read: LogRead | None = None
    assignment: Assignment | None = None

    @property
    def place(self) -> FatePlace:
        """The partition and its directory, as a fate names them."""
        return {"subject": self.topic_partition, "path": self.path}

    @property
    def is_deleted(self) -> bool:
        """Whether the directory is marked for deletion: its files are loaded, and then removed."""
        return self.form is DirectoryForm.DELETE

    @property
    def first_recovered(self) -> int:
        """Index of the segment with which a recovery begins: that of the recovery point (``LogSegments.values``)."""
        point = self.recovery_point or 0
        return max((index for index, base in enumerate(self.base_offsets) if base <= point), default=0)

    @property
    def log_start(self) -> int:
        """The lowest offset that this directory is known to have: the checkpoint, or the first segment."""
        first = self.base_offsets[0] if self.base_offsets else 0
        return max(first, self.checkpointed_log_start_offset or 0)

    @property
    def has_records(self) -> bool:
        """Whether records are in the segments, as far as their sizes show."""
        return any(self.segment_sizes)

    @property
    def checkpointed_end(self) -> int:
        """The log reached this offset, by the recovery point and the high watermark; 0 without both."""
        return max(self.recovery_point or 0, self.high_watermark or 0)


class LogDirFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one log directory.

    Attributes:
        path: of the directory.
        shutdown: how its broker stopped.
        meta: state of ``meta.properties``.
        cluster_id: of it; None without one.
        node_id: of it; None without one.
        malformed_checkpoints: names of the offset checkpoints that do not parse.
        unreadable_files: names of the small files that could not be read.
        foreign_directories: names of directories that no partition has.
        strays: names of the directories that end with ``-stray``.
        has_index_cache: ``remote-log-index-cache`` is in it.
        has_metadata_log: ``__cluster_metadata-0`` is in it.
        directory_id: of ``meta.properties``, 16 bytes; None without one.
        place: what is at the path.
        partitions: how many are in it.
    """

    path: str
    shutdown: Shutdown
    meta: SmallFile = SmallFile.PRESENT
    cluster_id: str | None = None
    node_id: int | None = None
    malformed_checkpoints: tuple[str, ...] = ()
    unreadable_files: tuple[str, ...] = ()
    foreign_directories: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()
    has_index_cache: bool = False
    has_metadata_log: bool = False
    directory_id: bytes | None = None
    place: LogDirPlace = LogDirPlace.DIRECTORY
    partitions: int = 0


class BrokerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a broker that concern all of its directories.

    Attributes:
        cluster_kind: of its cluster.
        releases: that may start it.
        deletes_topic_ids: a ZooKeeper broker with a protocol below 2.8, which deletes ``partition.metadata`` when it loads a log.
        log_dirs: count of its log directories; 0 where only some of them are known.
        metadata_dir: real path of the directory that has the metadata log by the configuration; None without one.
    """

    cluster_kind: ClusterKind = ClusterKind.UNKNOWN
    releases: ReleaseRange = ALL_RELEASES
    deletes_topic_ids: bool = False
    log_dirs: int = 0
    metadata_dir: str | None = None
