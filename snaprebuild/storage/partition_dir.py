"""One listing of a partition directory: its segments, snapshots and everything else, by name, size and identity.

No file is opened here. A directory is listed once, and only files whose size or identity matters (segments, snapshots, indexes of
segments) are looked at with ``stat``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field

from formats.file_names import FileKind, FileSuffix, PartitionDirectoryName, PartitionFileName, parse_file_name
from snaprebuild.errors import ReadFailedError
from snaprebuild.storage.atomic_file import Ownership

__all__ = ["FileIdentity", "ListedFile", "PartitionDir", "SegmentFiles", "list_partition_dir", "partition_dir_of_entries"]

ENTRIES_MAX = 2_000_000
"""Files of one directory: 100,000 segments with their indexes are 400,000; more than this is no partition."""


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What tells that a file has changed: size in bytes, modification time in ns, inode."""

    size_bytes: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileIdentity:
        """From a ``stat`` result."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A regular file of the listing.

    Attributes:
        name: inside the directory.
        identity: size, modification time, inode.
        ownership: owner, group, mode.
    """

    name: str
    identity: FileIdentity
    ownership: Ownership


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The files of one segment.

    Attributes:
        base_offset: int64.
        log: the segment itself.
        offset_index: bytes of ``.index``, None when it is absent; likewise ``time_index`` and ``transaction_index``.
    """

    base_offset: int
    log: ListedFile
    offset_index: int | None = None
    time_index: int | None = None
    transaction_index: int | None = None

    @property
    def size_bytes(self) -> int:
        """Size of the segment."""
        return self.log.identity.size_bytes


@dataclass(frozen=True, slots=True)
class PartitionDir:
    """A partition directory as it was listed.

    Attributes:
        path: of the directory.
        name: topic, partition and form, from the directory's name.
        device: number of the device that holds it.
        segments: by base offset, ascending.
        snapshots: genuine snapshots by offset, ascending.
        misnamed: files ending in ``.snapshot``, ``.log`` and so on that no broker wrote; some keep a broker from loading the log.
        swapped: files ending in ``.swap`` or ``.cleaned``: a compaction was interrupted.
        deleted: files ending in ``.deleted``, which the next start of a broker removes.
        temporary: left-over temporary files of snapshots.
        unreadable: names of segments or snapshots that are no regular files (links, pipes, directories).
        lone_indexes: index files without a segment.
        has_leader_epochs: whether ``leader-epoch-checkpoint`` is there; likewise ``has_metadata``.
        others: count of files with names that neither Kafka nor this program knows.
        sub_directories: names of directories inside, which keep a broker from nothing but do not belong there.
    """

    path: str
    name: PartitionDirectoryName
    device: int
    segments: tuple[SegmentFiles, ...] = ()
    snapshots: tuple[tuple[int, ListedFile], ...] = ()
    misnamed: tuple[str, ...] = ()
    swapped: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    temporary: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    lone_indexes: tuple[str, ...] = ()
    has_leader_epochs: bool = False
    has_metadata: bool = False
    others: int = 0
    sub_directories: tuple[str, ...] = ()
    inode: int = field(default=0, compare=False)

    @property
    def topic_partition(self) -> str:
        """``<topic>-<partition>``, without any mark of deletion."""
        return f"{self.name.topic}-{self.name.partition}"

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self.segments)

    def file_path(self, name: str) -> str:
        """Path of a file inside."""
        return os.path.join(self.path, name)

    def snapshot_at(self, offset: int) -> ListedFile | None:
        """The snapshot file of this offset, if there is one."""
        return next((file for at, file in self.snapshots if at == offset), None)


def list_partition_dir(path: str, name: PartitionDirectoryName) -> PartitionDir:
    """Lists a partition directory.

    Raises:
        ReadFailedError: it cannot be listed, or has more than ``ENTRIES_MAX`` entries.
    """
    entries: list[os.DirEntry[str]] = []
    try:
        with os.scandir(path) as listing:
            for entry in listing:
                entries.append(entry)
                if len(entries) > ENTRIES_MAX:
                    raise ReadFailedError(f"has more than {ENTRIES_MAX} files", path=path)
    except OSError as error:
        raise ReadFailedError(f"cannot be listed: {error.strerror}", path=path, errno=error.errno) from error
    return partition_dir_of_entries(path, name, entries)


def partition_dir_of_entries(path: str, name: PartitionDirectoryName, entries: Iterable[os.DirEntry[str]]) -> PartitionDir:
    """Sorts the entries of one listing.

    Raises:
        ReadFailedError: a file cannot be looked at.
    """
    try:
        status = os.stat(path)
        return _Sorter(path, name, status).sorted(entries)
    except OSError as error:
        raise ReadFailedError(f"cannot be looked at: {error.strerror}", path=path, errno=error.errno) from error


class _Sorter:
    """Puts each entry of a listing where it belongs."""

    def __init__(self, path: str, name: PartitionDirectoryName, status: os.stat_result) -> None:
        self.path = path
        self.name = name
        self.status = status
        self.logs: dict[int, ListedFile] = {}
        self.indexes: dict[FileKind, dict[int, tuple[str, int]]] = {
            kind: {} for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)
        }
        self.snapshots: list[tuple[int, ListedFile]] = []
        self.lists: dict[str, list[str]] = {
            key: [] for key in ("misnamed", "swapped", "deleted", "temporary", "unreadable", "sub_directories")
        }
        self.flags: set[FileKind] = set()
        self.others = 0

    def sorted(self, entries: Iterable[os.DirEntry[str]]) -> PartitionDir:
        for entry in entries:
            known = parse_file_name(entry.name)
            if known is None:
                if entry.is_dir(follow_symlinks=False):
                    self.lists["sub_directories"].append(entry.name)
                else:
                    self.others += 1
            else:
                self._known(entry, known)
        segments = tuple(self._segment(base_offset) for base_offset in sorted(self.logs))
        lone = [file for index in self.indexes.values() for base_offset, (file, _) in index.items() if base_offset not in self.logs]
        return PartitionDir(
            path=self.path,
            name=self.name,
            device=self.status.st_dev,
            segments=segments,
            snapshots=tuple(sorted(self.snapshots, key=lambda item: item[0])),
            lone_indexes=tuple(sorted(lone)),
            has_leader_epochs=FileKind.LEADER_EPOCH_CHECKPOINT in self.flags,
            has_metadata=FileKind.PARTITION_METADATA in self.flags,
            others=self.others,
            inode=self.status.st_ino,
            **{key: tuple(sorted(names)) for key, names in self.lists.items()},
        )

    def _known(self, entry: os.DirEntry[str], known: PartitionFileName) -> None:
        if known.suffix is FileSuffix.DELETED:
            self.lists["deleted"].append(entry.name)
        elif known.suffix is not FileSuffix.NONE:
            self.lists["swapped"].append(entry.name)
        elif known.kind in (FileKind.MISNAMED_SNAPSHOT, FileKind.MISNAMED_SEGMENT_FILE):
            self.lists["misnamed"].append(entry.name)
        elif known.kind is FileKind.PRODUCER_SNAPSHOT_TEMPORARY:
            self.lists["temporary"].append(entry.name)
        elif known.kind in (FileKind.LOG, FileKind.PRODUCER_SNAPSHOT) or known.kind in self.indexes:
            self._measured(entry, known)
        else:
            self.flags.add(known.kind)

    def _measured(self, entry: os.DirEntry[str], known: PartitionFileName) -> None:
        assert known.offset is not None
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return  # a live broker deleted it since the listing
        if not stat.S_ISREG(status.st_mode):
            self.lists["unreadable"].append(entry.name)
            return
        if known.kind in self.indexes:
            self.indexes[known.kind][known.offset] = (entry.name, status.st_size)
            return
        listed = ListedFile(entry.name, FileIdentity.of(status), Ownership.of(status))
        if known.kind is FileKind.LOG:
            self.logs[known.offset] = listed
        else:
            self.snapshots.append((known.offset, listed))

    def _segment(self, base_offset: int) -> SegmentFiles:
        sizes = {kind: index[base_offset][1] if base_offset in index else None for kind, index in self.indexes.items()}
        return SegmentFiles(
            base_offset,
            self.logs[base_offset],
            sizes[FileKind.OFFSET_INDEX],
            sizes[FileKind.TIME_INDEX],
            sizes[FileKind.TRANSACTION_INDEX],
        )
