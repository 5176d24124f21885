"""Log directories: finding partitions below any path, and the content of the small files of a broker.

A path may be a partition directory, a log directory, or any ancestor of such. A broker may have several log directories (JBOD).
Directories are recognised by their names and content.
Each is listed once, and one that is reached twice (by two paths or a link) counts once.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from formats import limits
from formats.broker.broker_files import CleanShutdown, MetaProperties, read_clean_shutdown, read_meta_properties
from formats.errors import FormatError
from formats.partition.checkpoint_file import LeaderEpochEntry, read_leader_epoch_checkpoint, read_offset_checkpoint
from formats.partition.file_names import (
    BROKER_FILES,
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    is_loadable_dir_name,
    parse_partition_dir_name,
)
from formats.partition.partition_metadata import read_partition_metadata
from snaprebuild.errors import ChangedFileError, GonePartitionError, ReadFailedError, UsageError
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.partition_dir import (
    REMOTE_LOG_INDEX_CACHE,
    PartitionDir,
    entries_of,
    gone_partition,
    is_partition,
    leads_to_directory,
    list_partition_dir,
    partition_dir_of_entries,
)
from snaprebuild.storage.s3.object_tree import find_objects
from snaprebuild.storage.store import USUAL_S3, S3Settings, Store, absolute
from snaprebuild.storage.store_path import StorePath, path_of
from snaprebuild.storage.thread_pool import map_in_threads

__all__ = [
    "ClusterKind",
    "Discovery",
    "ListedLogDir",
    "LogDirState",
    "directory_fault",
    "find_partitions",
    "foreign_directories",
    "is_log_dir",
    "kind_of",
    "known_topic_id",
    "listed_again",
    "read_leader_epochs",
    "read_log_dir",
    "read_topic_id",
]

DEPTH_MAX = 32
"""Directories between a path and a partition below it."""


class LogDirState(msgspec.Struct, frozen=True):
    """The content of the small files of a log directory.

    Attributes:
        path: of the directory.
        is_broker_directory: it has at least one file that only a broker writes; a bare copy of partitions has none.
        clean_shutdown: None unless the broker stopped cleanly.
        meta: ``meta.properties``, None when it is absent or unreadable.
        recovery_points: by topic-partition: below these offsets everything was flushed. None when the file is absent.
        log_starts: by topic-partition. None when the file is absent.
        high_watermarks: by topic-partition. None when the file is absent.
        cleaner_points: by topic-partition: how far the log cleaner is; only compacted topics have one. None when the file is
            absent.
        faults: messages about files that could not be read or parsed.
        malformed: names of the files that were read and do not parse.
        unreadable: names of the files that could not be read.
        is_cleaner_known: False if the cleaner's checkpoint exists but cannot be read, so that any topic may be compacted.
        store: that holds it.
    """

    path: str
    is_broker_directory: bool = False
    clean_shutdown: CleanShutdown | None = None
    meta: MetaProperties | None = None
    recovery_points: dict[str, int] | None = None
    log_starts: dict[str, int] | None = None
    high_watermarks: dict[str, int] | None = None
    cleaner_points: dict[str, int] | None = None
    faults: tuple[str, ...] = ()
    malformed: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    is_cleaner_known: bool = True
    store: Store = LOCAL

    @property
    def place(self) -> StorePath:
        """The directory, to be read."""
        return StorePath(self.store, self.path)

    @property
    def node_id(self) -> int | None:
        """Node id in ``meta.properties``; None if the file is unknown or names none."""
        return None if self.meta is None else self.meta.node_id

    @property
    def cluster_id(self) -> str | None:
        """Cluster id in ``meta.properties``; None if the file is unknown or names none."""
        return None if self.meta is None else self.meta.cluster_id

    @property
    def directory_id(self) -> bytes | None:
        """Directory id in ``meta.properties``, 16 bytes; None if the file is unknown or names none."""
        return None if self.meta is None else self.meta.directory_id

    @property
    def marked_epoch(self) -> int | None:
        """Broker epoch of the clean-shutdown marker; None without the marker, and where it names none."""
        clean = self.clean_shutdown
        if clean is None or clean.broker_epoch is None or clean.broker_epoch < 0:
            return None
        return clean.broker_epoch

    @property
    def was_shut_down_cleanly(self) -> bool:
        """Whether the broker that used this directory stopped cleanly."""
        return self.clean_shutdown is not None


class ListedLogDir(msgspec.Struct, frozen=True):
    """A log directory and its requested partitions."""

    state: LogDirState
    partitions: tuple[PartitionDir, ...]


class Discovery(msgspec.Struct):
    """Everything found below the paths.

    Attributes:
        log_dirs: ordered by path.
        named: partition directories that were named themselves, not found below a path.
        duplicates: paths to a directory that an earlier path had led to.
        faults: errors of directories that could not be listed; the others are not affected.
        gone: directories that were deleted or moved since the one above was listed.
        left_out: prefixes with keys that cannot be files below a directory, and a message with one of these keys.
    """

    log_dirs: list[ListedLogDir] = msgspec.field(default_factory=list)
    named: set[str] = msgspec.field(default_factory=set)
    duplicates: list[str] = msgspec.field(default_factory=list)
    faults: list[ReadFailedError] = msgspec.field(default_factory=list)
    gone: list[str] = msgspec.field(default_factory=list)
    left_out: list[tuple[str, str]] = msgspec.field(default_factory=list)


def find_partitions(paths: Iterable[str], stores: S3Settings = USUAL_S3) -> Discovery:
    """Finds the partitions below the given paths.

    Args:
        paths: directories, or prefixes of object stores.
        stores: how object stores are reached.

    Raises:
        UsageError: a path does not exist, is no directory, or is the root of the file system.
        ReadFailedError: an object store cannot be listed.
    """
    discovery = Discovery()
    by_log_dir: dict[str, list[PartitionDir]] = {}
    identities: set[tuple[int, int] | str] = set()
    for path in paths:
        root = path_of(absolute(path), stores)
        if root.is_local and (fault := directory_fault(path)) is not None:
            where = ": name the directory that the file is in" if os.path.isfile(path) else ""
            raise UsageError(f"{fault}{where}", path=path)
        if root.is_local and os.path.realpath(root.path) == os.sep:
            # /proc, backups and every other copy of a log directory are below it.
            raise UsageError("is the root of the file system: name a log directory, or a directory of log directories", path=path)
        listed = _walk(root.path, discovery) if root.is_local else _objects(root, discovery)
        for partition, log_dir in listed:
            identity = (partition.device, partition.inode) if root.is_local else partition.path
            if identity in identities:
                discovery.duplicates.append(partition.path)
                continue
            identities.add(identity)
            if partition.path == root.path:
                discovery.named.add(partition.path)
            by_log_dir.setdefault(log_dir, []).append(partition)
    places = [path_of(place, stores) for place in sorted(by_log_dir)]
    each_of = map if all(place.is_local for place in places) else map_in_threads
    for place, state in zip(places, each_of(read_log_dir, places), strict=True):
        partitions = sorted(by_log_dir[place.path], key=lambda each: (each.name.topic, each.name.partition, each.path))
        discovery.log_dirs.append(ListedLogDir(state, tuple(partitions)))
    return discovery


def _objects(root: StorePath, discovery: Discovery) -> list[tuple[PartitionDir, str]]:
    """The partition directories in a bucket (``_walk`` is for disks); none if it cannot be listed, so that other paths are still read."""
    try:
        objects = find_objects(root)
    except ReadFailedError as error:
        discovery.faults.append(error)
        return []
    discovery.faults += objects.faults
    if objects.left_out is not None:
        discovery.left_out.append((root.path, objects.left_out))
    return [(each, os.path.dirname(each.path)) for each in objects.partitions]


def listed_again(directory: PartitionDir) -> PartitionDir:
    """A partition directory as it is now.

    Raises:
        ReadFailedError: it cannot be listed.
        GonePartitionError: it is gone.
    """
    if directory.store.is_local:
        try:
            return list_partition_dir(directory.path, directory.name)
        except ReadFailedError as error:
            if error.errno != errno.ENOENT:
                raise
            raise gone_partition(directory.path) from error
    assert isinstance(directory.store, Store), "objects that were listed"
    for now in find_objects(StorePath(directory.store, directory.path)).partitions:
        return now
    raise GonePartitionError("is gone", path=directory.path)


def directory_fault(path: str) -> str | None:
    """Why a path leads to no directory, None if it leads to one. Does not check whether it can be listed."""
    try:
        return None if stat.S_ISDIR(os.stat(path).st_mode) else "is no directory"
    except (FileNotFoundError, ValueError):  # a path contains no null byte
        return "does not exist"
    except OSError as error:
        return f"cannot be accessed: {error.strerror}"


def _walk(root: str, discovery: Discovery) -> Iterator[tuple[PartitionDir, str]]:
    """Partition directories at or below ``root``, each with the directory whose lock and checkpoints concern it.

    A link to a directory is followed; ``visited`` ends loops. The log directory is the real one, whatever links lead there.
    """
    pending = [(root, 0, os.path.islink(root))]
    visited: set[tuple[int, int]] = set()
    real: dict[str, str] = {}
    while pending:
        path, depth, is_link = pending.pop()
        try:
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in visited:
                continue
            visited.add((status.st_dev, status.st_ino))
            entries = entries_of(path, "entries")
            name = parse_partition_dir_name(os.path.basename(path))
            if name is not None and is_partition(entries):
                partition = partition_dir_of_entries(StorePath(LOCAL, path), name, entries, status)
                above = os.path.dirname(path)
                if above not in real:
                    real[above] = os.path.realpath(above)
                yield partition, os.path.dirname(os.path.realpath(path)) if is_link else real[above]
                continue
            below = [
                (entry.path, depth + 1, entry.is_symlink())
                for entry in entries
                if entry.name != REMOTE_LOG_INDEX_CACHE and leads_to_directory(entry)
            ]
        except (FileNotFoundError, GonePartitionError):
            if depth or parse_partition_dir_name(os.path.basename(path)) is not None:
                discovery.gone.append(path)
            else:
                discovery.faults.append(ReadFailedError("is gone", path=path, errno=errno.ENOENT))
            continue
        except OSError as error:
            discovery.faults.append(ReadFailedError.from_os_error(error, "cannot be listed", path))
            continue
        except ReadFailedError as error:
            discovery.faults.append(error)
            continue
        if depth >= DEPTH_MAX and below:
            discovery.faults.append(ReadFailedError(f"directories are nested more than {DEPTH_MAX} deep", path=path))
            continue
        pending.extend(sorted(below, reverse=True))


def foreign_directories(log_dir: LogDirState) -> list[str]:
    """Directories inside a broker's log directory of which none is named like a partition, so that the broker does not start.

    Source: ``LogManager.loadLogs`` and ``LocalLog.parseTopicPartitionName``, which throws at the first one.

    Returns:
        Their names, sorted; none if the log directory cannot be listed: other checks report that.
    """
    if not (log_dir.is_broker_directory and log_dir.store.is_local):
        return []
    try:
        names = [entry.name for entry in entries_of(log_dir.path, "entries") if leads_to_directory(entry)]
    except (OSError, ReadFailedError):
        return []
    return sorted(name for name in names if name != REMOTE_LOG_INDEX_CACHE and not is_loadable_dir_name(name))


def is_log_dir(place: StorePath) -> bool:
    """Whether a directory has at least one file that only a broker writes, as far as it can be read."""
    try:
        return bool(place.present(BROKER_FILES))
    except ReadFailedError:
        return False


def read_log_dir(place: StorePath) -> LogDirState:
    """Reads the small files of a log directory. A file that cannot be read or parsed becomes a fault and counts as absent."""
    faults: list[str] = []
    malformed: list[str] = []
    unreadable: list[str] = []
    present: frozenset[str] = frozenset()
    try:
        present = place.present(BROKER_FILES)
    except ReadFailedError as error:
        faults.append(str(error))

    def small(name: str) -> bytes | None:
        try:
            return place.below(name).read_small(limits.TEXT_FILE_BYTES_MAX) if name in present else None
        except (ReadFailedError, ChangedFileError) as error:
            faults.append(str(error))
            unreadable.append(name)
            return None

    def checkpoint(name: str) -> dict[str, int] | None:
        data = small(name)
        if data is None:
            return None
        try:
            entries = read_offset_checkpoint(data, file=os.path.join(place.path, name))
        except FormatError as error:
            faults.append(str(error))
            malformed.append(name)
            return None
        return {f"{entry.topic}-{entry.partition}": entry.offset for entry in entries}

    meta_data = small(META_PROPERTIES)
    clean = small(CLEAN_SHUTDOWN)
    meta: MetaProperties | None = None
    if meta_data is not None:
        try:
            meta = read_meta_properties(meta_data, file=os.path.join(place.path, META_PROPERTIES))
        except FormatError as error:
            faults.append(str(error))
            malformed.append(META_PROPERTIES)
    cleaner_points = checkpoint(CLEANER_OFFSET_CHECKPOINT)
    recovery_points = checkpoint(RECOVERY_POINT_CHECKPOINT)
    log_starts = checkpoint(LOG_START_OFFSET_CHECKPOINT)
    high_watermarks = checkpoint(REPLICATION_OFFSET_CHECKPOINT)
    return LogDirState(
        path=place.path,
        is_broker_directory=bool(present),
        clean_shutdown=None if clean is None else read_clean_shutdown(clean),
        meta=meta,
        recovery_points=recovery_points,
        log_starts=log_starts,
        high_watermarks=high_watermarks,
        cleaner_points=cleaner_points,
        is_cleaner_known=cleaner_points is not None or CLEANER_OFFSET_CHECKPOINT not in present,
        faults=tuple(faults),
        malformed=tuple(malformed),
        unreadable=tuple(unreadable),
        store=place.store,
    )


def read_leader_epochs(partition: PartitionDir) -> tuple[LeaderEpochEntry, ...] | None:
    """The lines of the leader epoch checkpoint; None when it is absent.

    Raises:
        ReadFailedError: it cannot be read.
        FormatError: it does not parse.
    """
    if not partition.has_leader_epochs:
        return None
    path = partition.file_path(LEADER_EPOCH_CHECKPOINT)
    data = partition.store.read_small(path, limits.TEXT_FILE_BYTES_MAX)
    if data is None:
        return None
    return read_leader_epoch_checkpoint(data, file=path)


def read_topic_id(partition: PartitionDir) -> bytes | None:
    """The topic id of a partition directory, 16 bytes; None where ``partition.metadata`` is absent, as before 2.8.

    Raises:
        ReadFailedError: it cannot be read.
        FormatError: it does not parse.
    """
    if not partition.has_partition_metadata:
        return None
    path = partition.file_path(PARTITION_METADATA)
    data = partition.store.read_small(path, limits.TEXT_FILE_BYTES_MAX)
    return None if data is None else read_partition_metadata(data, file=path).topic_id


def known_topic_id(partition: PartitionDir) -> bytes | None:
    """The topic id of a partition directory, 16 bytes; None where ``read_topic_id`` gives none or fails."""
    try:
        return read_topic_id(partition)
    except (FormatError, ReadFailedError):
        return None


class ClusterKind(StrEnum):
    """The kind of cluster that a log directory is of, by its ``meta.properties``."""

    KRAFT = "kraft"
    """``version`` 1 or 2, or a ``node.id``: each node of such a cluster has a metadata log."""
    ZOOKEEPER = "zookeeper"
    """``version`` 0 with a ``broker.id``."""
    UNKNOWN = "unknown"
    """The file is missing, or cannot be read, or names neither."""


def kind_of(meta: MetaProperties | None) -> ClusterKind:
    """The kind of cluster by the ids of a log directory (``MetaPropertiesVersion``).

    Args:
        meta: None if the file is missing or cannot be read.
    """
    if meta is None:
        return ClusterKind.UNKNOWN
    if meta.is_kraft:
        return ClusterKind.KRAFT
    return ClusterKind.UNKNOWN if meta.node_id is None else ClusterKind.ZOOKEEPER
