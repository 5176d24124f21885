"""One listing of a partition directory: its segments, snapshots and everything else, by name, size and identity.

No file is opened here. A directory is listed once. ``stat`` is called only for files whose size or identity matters (segments,
snapshots, transaction indexes). A broker has some hundred thousand files, and that system call is most of the cost of a listing.
"""

from __future__ import annotations

import bisect
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import msgspec
import numpy as np

from formats import limits
from formats.limits import INT64_MAX
from formats.partition.file_names import (
    BROKER_FILES,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    FileKind,
    FileSuffix,
    PartitionDirectoryName,
    parse_file_name,
)
from formats.partition.offset_index import positions_hint
from formats.partition.time_index import TIME_INDEX_ENTRY_BYTES, TimeIndexEntry, last_entry_hint
from snaprebuild.errors import ChangedFileError, GonePartitionError, ReadFailedError
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.store import FileIdentity, ObjectStatus, OpenBytes, Ownership, ReadStore, Status
from snaprebuild.storage.store_path import ReadPath, StorePath

__all__ = [
    "ENTRIES_MAX",
    "REMOTE_LOG_INDEX_CACHE",
    "Entry",
    "ListedFile",
    "ObjectEntry",
    "PartitionDir",
    "SegmentFiles",
    "entries_of",
    "gone_partition",
    "is_partition",
    "leads_to_directory",
    "list_partition_dir",
    "partition_dir_of_entries",
    "read_last_entry_hint",
    "read_last_timestamp_hint",
    "read_positions_hint",
]

ENTRIES_MAX = 2_000_000
"""Files of one directory: 100,000 segments with their indexes are 400,000; more than this is no partition."""

REMOTE_LOG_INDEX_CACHE = "remote-log-index-cache"
"""The broker's own cache of remote indexes; nothing in it is a partition."""


class ListedFile(msgspec.Struct, frozen=True):
    """A regular file of the listing.

    Attributes:
        name: inside the directory.
        identity: size, modification time, inode.
        ownership: owner, group, mode.
    """

    name: str
    identity: FileIdentity
    ownership: Ownership


class SegmentFiles(msgspec.Struct, frozen=True):
    """The files of one segment.

    Attributes:
        base_offset: int64.
        log: the segment itself.
        offset_index: name of ``.index``, None when it is absent.
        time_index: name of ``.timeindex``, None when it is absent.
        transaction_index: bytes of ``.txnindex``, None when it is absent: most segments have none.
        until_offset: batches from this offset on belong to another log, or are also in the next segment; None if all of it counts.
        index_hits: for a copy in remote storage, the hits of its indexes (``replay.segment_summary``) if they agree with the segment;
            None if they are not compared.
        compared_bytes: stored bytes of the small files that are compared with it.
    """

    base_offset: int
    log: ListedFile
    offset_index: str | None = None
    time_index: str | None = None
    transaction_index: int | None = None
    until_offset: int | None = None
    index_hits: int | None = None
    compared_bytes: tuple[int, ...] = ()

    @property
    def has_checked_indexes(self) -> bool:
        """Whether its indexes are compared with it: all of its batches are read, and count."""
        return self.index_hits is not None and self.until_offset is None

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
        has_leader_epochs: whether ``leader-epoch-checkpoint`` is there.
        has_partition_metadata: whether ``partition.metadata`` is there.
        others: count of files with names that neither Kafka nor this program knows.
        sub_directories: names of directories inside, which keep a broker from nothing but do not belong there.
        store: that holds them all.
        log_end_offset: of the log, if another source than its last segment gives it; else None.
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
    has_partition_metadata: bool = False
    others: int = 0
    sub_directories: tuple[str, ...] = ()
    inode: int = field(default=0, compare=False)
    store: ReadStore = LOCAL
    log_end_offset: int | None = None

    @property
    def topic_partition(self) -> str:
        """``<topic>-<partition>``, without any suffix of deletion."""
        return f"{self.name.topic}-{self.name.partition}"

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def base_offsets(self) -> list[int]:
        """Base offsets of the segments, ascending."""
        return [segment.base_offset for segment in self.segments]

    @property
    def snapshot_offsets(self) -> list[int]:
        """Offsets of the snapshots, ascending; one that several files have is there for each of them."""
        return [offset for offset, _ in self.snapshots]

    def file_path(self, name: str) -> str:
        """Path of a file inside."""
        return f"{self.path}{os.sep}{name}"

    def file(self, name: str) -> ReadPath:
        """A file inside, to be read."""
        return ReadPath(self.store, self.file_path(name))

    def segment_at(self, base_offset: int) -> SegmentFiles | None:
        """The segment with this base offset, if there is one."""
        index = bisect.bisect_left(self.segments, base_offset, key=lambda segment: segment.base_offset)
        segment = self.segments[index] if index < len(self.segments) else None
        if segment is not None and segment.base_offset == base_offset:
            return segment
        return None

    def base_offset_after(self, index: int) -> int | None:
        """Base offset of the segment after the one with this index; None for the last one."""
        return self.segments[index + 1].base_offset if index + 1 < len(self.segments) else None

    def transaction_index_path(self, base_offset: int) -> str:
        """Path of the ``.txnindex`` of the segment at this base offset, whether the file exists or not."""
        index = bisect.bisect_left(self.segments, base_offset, key=lambda segment: segment.base_offset)
        return self.file_path(self.segments[index].log.name.removesuffix(_LOG) + _TRANSACTION_INDEX)

    def open_segment(self, segment: SegmentFiles, deadline: float | None = None) -> OpenBytes:
        """Opens the bytes of one of its segments (``Store.open_bytes``)."""
        is_active = segment.base_offset == self.segments[-1].base_offset
        return self.store.open_bytes(self.file_path(segment.log.name), segment.log.identity, deadline, is_active)

    def snapshot_at(self, offset: int) -> ListedFile | None:
        """The snapshot file of this offset, if there is one."""
        return next(self.snapshots_at(offset), None)

    def snapshots_at(self, offset: int) -> Iterator[ListedFile]:
        """All of them: a directory has one at most, remote storage may have several."""
        index = bisect.bisect_left(self.snapshots, offset, key=lambda snapshot: snapshot[0])
        while index < len(self.snapshots) and self.snapshots[index][0] == offset:
            yield self.snapshots[index][1]
            index += 1


def list_partition_dir(path: str, name: PartitionDirectoryName) -> PartitionDir:
    """Lists a partition directory of the file system.

    Raises:
        ReadFailedError: it cannot be listed (``errno`` is ENOENT if it is absent), or has more than ``ENTRIES_MAX`` entries.
        GonePartitionError: it was deleted, or created again, meanwhile.
    """
    try:
        status = os.stat(path)
        entries = entries_of(path, "files")
    except OSError as error:
        raise ReadFailedError.from_os_error(error, "cannot be listed", path) from error
    return partition_dir_of_entries(StorePath(LOCAL, path), name, entries, status)


_DELETED = re.compile(r"(.+)-([0-9]+)\.([0-9a-f]{32})-delete", re.DOTALL)
"""``LocalLog.logDeleteDirName``: topic, partition, and a UUID without hyphens."""

_NAME_BYTES_MAX = 255
"""To which Kafka cuts the topic in that name."""


def gone_partition(path: str) -> GonePartitionError:
    """The error of a directory that was listed and is gone. A broker renames a partition before it deletes its files."""
    above, own_name = os.path.split(path.rstrip("/"))
    if _DELETED.fullmatch(own_name):
        return GonePartitionError("was deleted during the run, as its name announced", path=path, is_deleted=True)
    topic, _, partition = own_name.rpartition("-")
    try:
        names = [entry.name for entry in os.scandir(above or ".")]
    except OSError:
        names = []
    for name in names:
        match = _DELETED.fullmatch(name)
        if match is None or match[2] != partition:
            continue
        if match[1] == topic or (len(name) == _NAME_BYTES_MAX and topic.startswith(match[1])):
            return GonePartitionError("was deleted during the run, by its broker", path=path, is_deleted=True)
    return GonePartitionError("was deleted or moved during the run, and no broker marked it for deletion", path=path)


def entries_of(path: str, what: str) -> list[os.DirEntry[str]]:
    """The entries of a directory, ``what`` in a message.

    Raises:
        OSError: it cannot be listed.
        ReadFailedError: it has more than ``ENTRIES_MAX`` entries.
    """
    with os.scandir(path) as listing:
        entries = list(islice(listing, ENTRIES_MAX + 1))
    if len(entries) > ENTRIES_MAX:
        raise ReadFailedError(f"has more than {ENTRIES_MAX} {what}", path=path)
    return entries


_DIRECTORY = ObjectStatus(0, 0, "", st_mode=stat.S_IFDIR | 0o755)


class ObjectEntry(msgspec.Struct, frozen=True):
    """An object or directory of a listing, like ``os.DirEntry``; a directory has no status of its own."""

    name: str
    status: Status | None = None

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether keys continue below it."""
        return self.status is None

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is an object."""
        return self.status is not None

    def stat(self, *, follow_symlinks: bool = True) -> Status:
        """The status of the entry in the listing."""
        return _DIRECTORY if self.status is None else self.status


Entry = os.DirEntry[str] | ObjectEntry
"""One name of a listing."""


def is_partition(entries: Collection[Entry]) -> bool:
    """Whether a directory named like a partition is one: it has a file of one, or is empty; ``data-1`` may be a disk of a broker."""
    names = {entry.name for entry in entries}
    if not names.isdisjoint(BROKER_FILES):
        return False
    if any(parse_file_name(name) is not None for name in names):
        return True
    return not any(leads_to_directory(entry) for entry in entries)


def leads_to_directory(entry: Entry) -> bool:
    """Whether to look inside. A link to nothing, or in a circle, hides only itself."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def partition_dir_of_entries(
    place: StorePath,
    name: PartitionDirectoryName,
    entries: Iterable[Entry],
    status: os.stat_result | None = None,
) -> PartitionDir:
    """Sorts the entries of one listing.

    Args:
        place: the directory.
        name: what its name shows.
        entries: of the listing.
        status: of a local directory, from before the listing; None for objects.

    Raises:
        ReadFailedError: the status of a file cannot be read.
        GonePartitionError: the directory is gone, or was created again, since it was listed.
    """
    path = place.path
    try:
        sorter = _Sorter(place, name, status)
        directory = sorter.sorted(entries)
        # If a directory was renamed for its deletion, all of its files are gone: that is no empty partition.
        is_same = not sorter.has_lost or status is None or os.path.samestat(status, os.stat(path))
    except FileNotFoundError as error:
        raise gone_partition(path) from error
    except OSError as error:
        raise ReadFailedError.from_os_error(error, "cannot be accessed", path) from error
    if not is_same:
        raise gone_partition(path)
    return directory


_STEM_CHARACTERS = 20
_LOG = FileKind.LOG.value
_SNAPSHOT = FileKind.PRODUCER_SNAPSHOT.value
_TRANSACTION_INDEX = FileKind.TRANSACTION_INDEX.value
_OFFSET_INDEX = FileKind.OFFSET_INDEX.value
_TIME_INDEX = FileKind.TIME_INDEX.value
_INDEXES = (_OFFSET_INDEX, _TIME_INDEX, _TRANSACTION_INDEX)
_FREQUENT = (_LOG, *_INDEXES, _SNAPSHOT)
_LAST_NAME = f"{INT64_MAX:0{_STEM_CHARACTERS}d}~"
"""Length of the offset that begins a name."""


class _Sorter:
    """Sorts the entries of a listing by kind.

    The frequent names (20 digits and one of five endings) are recognised by slicing. All others go through ``parse_file_name``,
    which gives the same result for the frequent ones, too, but slowly.
    """

    def __init__(self, place: StorePath, name: PartitionDirectoryName, status: os.stat_result | None) -> None:
        self.place = place
        self.name = name
        self.status = status
        self.frequent: dict[str, dict[str, Entry]] = {ending: {} for ending in _FREQUENT}
        self.owners: dict[tuple[int, int, int], Ownership] = {}
        self.misnamed: list[str] = []
        self.swapped: list[str] = []
        self.deleted: list[str] = []
        self.temporary: list[str] = []
        self.unreadable: list[str] = []
        self.sub_directories: list[str] = []
        self.known: set[str] = set()
        self.others = 0
        self.has_lost = False

    def sorted(self, entries: Iterable[Entry]) -> PartitionDir:
        frequent = self.frequent
        for entry in entries:
            name = entry.name
            of_ending = frequent.get(name[_STEM_CHARACTERS:])
            if of_ending is None:
                self._rare(entry)
            elif name in of_ending and entry.is_dir():  # for objects: keys continue below one
                self.sub_directories.append(name)
            else:
                of_ending[name] = entry
        # An index needs no ``stat`` as long as its segment has a genuine name.
        for ending in (_LOG, _SNAPSHOT):
            self._only_genuine(frequent[ending])
        segments = tuple(self._segments())
        for ending in _INDEXES:
            self._only_genuine(frequent[ending])
        lone = [name for ending in _INDEXES for name in frequent[ending]]
        return PartitionDir(
            path=self.place.path,
            name=self.name,
            device=0 if self.status is None else self.status.st_dev,
            segments=segments,
            snapshots=tuple(self._listed(_SNAPSHOT)),
            lone_indexes=tuple(sorted(lone)),
            has_leader_epochs=LEADER_EPOCH_CHECKPOINT in self.known,
            has_partition_metadata=PARTITION_METADATA in self.known,
            others=self.others,
            inode=0 if self.status is None else self.status.st_ino,
            store=self.place.store,
            misnamed=tuple(sorted(self.misnamed)),
            swapped=tuple(sorted(self.swapped)),
            deleted=tuple(sorted(self.deleted)),
            temporary=tuple(sorted(self.temporary)),
            unreadable=tuple(sorted(self.unreadable)),
            sub_directories=tuple(sorted(self.sub_directories)),
        )

    def _only_genuine(self, entries: dict[str, Entry]) -> None:
        """Removes names that have a frequent ending and no offset before it."""
        # isdecimal alone knows the digits of other scripts. Equal lengths compare as numbers do.
        for name in [
            name for name in entries if not (name[:_STEM_CHARACTERS].isdecimal() and name.isascii() and name <= _LAST_NAME)
        ]:
            self._rare(entries.pop(name))

    def _rare(self, entry: Entry) -> None:
        parsed = parse_file_name(entry.name)
        if parsed is None:
            if entry.is_dir(follow_symlinks=False):
                self.sub_directories.append(entry.name)
            else:
                self.others += 1
        elif parsed.suffix is FileSuffix.DELETED:
            self.deleted.append(entry.name)
        elif parsed.suffix is not FileSuffix.NONE:
            self.swapped.append(entry.name)
        elif parsed.kind in (FileKind.MISNAMED_SNAPSHOT, FileKind.MISNAMED_SEGMENT_FILE):
            self.misnamed.append(entry.name)
        elif parsed.kind is FileKind.PRODUCER_SNAPSHOT_TEMPORARY:
            self.temporary.append(entry.name)
        else:
            self.known.add(entry.name)

    def _segments(self) -> Iterator[SegmentFiles]:
        """Segments by base offset. Takes their indexes out of the listing, so that only indexes without a segment remain."""
        offset_indexes = self.frequent[_OFFSET_INDEX]
        time_indexes = self.frequent[_TIME_INDEX]
        transaction_indexes = self.frequent[_TRANSACTION_INDEX]
        for base_offset, log in self._listed(_LOG):
            stem = log.name[:_STEM_CHARACTERS]
            offset_index = offset_indexes.pop(stem + _OFFSET_INDEX, None)
            time_index = time_indexes.pop(stem + _TIME_INDEX, None)
            if transaction_indexes:
                transaction_index = transaction_indexes.pop(stem + _TRANSACTION_INDEX, None)
            else:
                transaction_index = None
            yield SegmentFiles(
                base_offset,
                log,
                self._name_of_file(offset_index),
                self._name_of_file(time_index),
                None if transaction_index is None else self._size(transaction_index),
            )

    def _name_of_file(self, entry: Entry | None) -> str | None:
        """The name of an index; None without one, and for what is no regular file."""
        if entry is not None and self._is_file(entry):
            return entry.name
        return None

    def _listed(self, ending: str) -> Iterator[tuple[int, ListedFile]]:
        """Files of one kind by offset, with identity and owner. Equal digits are equally long, so their order is that of the offsets."""
        for name, entry in sorted(self.frequent[ending].items()):
            status = self._status(entry)
            if status is not None:
                yield int(name[:_STEM_CHARACTERS]), ListedFile(name, FileIdentity.of(status), self._owner(status))

    def _owner(self, status: Status) -> Ownership:
        # One value for all files: nearly every file of a partition has the same owner and mode.
        key = (status.st_uid, status.st_gid, status.st_mode)
        owner = self.owners.get(key)
        if owner is None:
            owner = self.owners[key] = Ownership.of(status)
        return owner

    def _is_file(self, entry: Entry) -> bool:
        """Asks the listing, which costs no system call where the file system lists the kinds of files."""
        return entry.is_file(follow_symlinks=False) or self._status(entry) is not None

    def _size(self, entry: Entry) -> int | None:
        status = self._status(entry)
        return None if status is None else status.st_size

    def _status(self, entry: Entry) -> Status | None:
        """None if it is no regular file, or a live broker has deleted it since the listing."""
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            self.has_lost = True
            return None
        if stat.S_ISREG(status.st_mode):
            return status
        self.unreadable.append(entry.name)
        return None


# ------------------------------------------------------------------------------- hints from indexes; nothing relies on them

TIME_INDEX_TAIL_ENTRIES = 64
"""More than one entry, so that a fault at the very end does not hide the entries before it."""


def read_positions_hint(index: ReadPath, segment_bytes: int) -> np.ndarray | None:
    """Positions of batches from an offset index, as a hint; None when it is absent or cannot be read."""
    try:
        data = index.read_small(limits.INDEX_BYTES_MAX)
    except (ReadFailedError, ChangedFileError):
        return None  # a hint only: without it the segment is walked from its start
    return None if data is None else positions_hint(data, segment_bytes)


def read_last_entry_hint(time_index: ReadPath) -> TimeIndexEntry | None:
    """The last entry of a rolled segment's time index, as a hint; None if it is absent or useless.

    Only the end of the file is read: a broker may have hundreds of thousands of these.
    """
    try:
        # One entry more, because the file may end with a part of one.
        tail = time_index.read_end((TIME_INDEX_TAIL_ENTRIES + 1) * TIME_INDEX_ENTRY_BYTES)
    except (ReadFailedError, ChangedFileError):
        return None  # a hint only: the segment counts as young
    if tail is None:
        return None
    size_bytes, end = tail
    whole = len(end) - size_bytes % TIME_INDEX_ENTRY_BYTES
    return last_entry_hint(end[max(whole - TIME_INDEX_TAIL_ENTRIES * TIME_INDEX_ENTRY_BYTES, 0) : max(whole, 0)])


def read_last_timestamp_hint(time_index: ReadPath) -> int | None:
    """The timestamp of ``read_last_entry_hint``, ms."""
    entry = read_last_entry_hint(time_index)
    return None if entry is None else entry.timestamp
