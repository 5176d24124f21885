"""A metadata log directory as it was listed, and its batches in order: the one walker that all verbs on ``__cluster_metadata-0`` share.

Nothing is held but one batch. Checksums are proven, offsets must follow each other without a gap (nothing compacts this log), and the log
ends where its last segment holds no further whole batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from formats import limits
from formats.broker.broker_files import MetaProperties, read_meta_properties
from formats.errors import BadValueError, FormatError, TruncatedError
from formats.log.batch_headers import Tail, TailKind
from formats.log.control_record import ControlRecord, SnapshotFooter, SnapshotHeader
from formats.metadata.quorum_state import QuorumState, read_quorum_state
from formats.partition.checkpoint_file import LeaderEpochEntry, read_leader_epoch_checkpoint
from formats.partition.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    QUORUM_STATE,
    FileKind,
    FileSuffix,
    parse_file_name,
    parse_partition_dir_name,
    segment_file_name,
)
from snaprebuild.cluster.metadata.batches import FileBatches, MetadataBatch, check_tail
from snaprebuild.cluster.metadata.registered_model import METADATA_DIRECTORY, METADATA_TOPIC
from snaprebuild.cluster.metadata.unknown_contents import UnknownContentsCounter
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.storage.log_dir import directory_fault, find_partitions
from snaprebuild.storage.partition_dir import ENTRIES_MAX
from snaprebuild.storage.store import USUAL_S3, FileIdentity, OpenBytes, S3Settings, absolute
from snaprebuild.storage.store_path import StorePath, path_of

if TYPE_CHECKING:
    from snaprebuild.snapshots.run import Run

__all__ = [
    "LogPosition",
    "MetadataCheckpoint",
    "MetadataLog",
    "MetadataSegment",
    "MetadataWalk",
    "meta_around",
    "open_metadata_log",
]


@dataclass(frozen=True, slots=True)
class MetadataSegment:
    """A segment.

    Attributes:
        base_offset: int64.
        path: of its ``.log``.
        identity: size, modification time and inode or ETag.
    """

    base_offset: int
    path: str
    identity: FileIdentity


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Where the next batch begins, so that a log that has grown is read on from there.

    Attributes:
        base_offset: of the segment.
        position_bytes: in its file.
        offset: of the batch.
    """

    base_offset: int
    position_bytes: int
    offset: int


@dataclass(frozen=True, slots=True)
class MetadataCheckpoint:
    """A checkpoint: everything below an offset.

    Attributes:
        end_offset: first offset that it does not hold.
        epoch: of the record below that.
        path: of the file.
        identity: size, modification time and inode or ETag.
    """

    end_offset: int
    epoch: int
    path: str
    identity: FileIdentity

    @property
    def order(self) -> tuple[int, int]:
        """The key by which Kafka orders checkpoints: the epoch first."""
        return self.epoch, self.end_offset


@dataclass(frozen=True, slots=True)
class MetadataLog:
    """A metadata log directory as it was listed; values of small files are read with it.

    Attributes:
        directory: that was listed.
        segments: by base offset, ascending.
        checkpoints: in Kafka's order, the newest last.
        part_files: names of checkpoints that were being written.
        deleted_files: names ending in ``.deleted``.
        misnamed_files: names that end like a segment's or checkpoint's file and are none.
        unreadable_files: names of segments and checkpoints that are no regular files.
        producer_snapshots: names of ``.snapshot`` files, which hold no entry here and no metadata.
        other_files: names that neither Kafka nor this program knows.
        leader_epochs: of ``leader-epoch-checkpoint``; None if it is absent.
        leader_epochs_fault: why that cannot be read.
        quorum_state: of ``quorum-state``; None if it is absent.
        quorum_state_fault: why that cannot be read.
        orphan_index_bases: base offsets of offset and time indexes whose segment is not there, ascending.
        deadline: nothing of segments and checkpoints is read once ``time.monotonic()`` is past it; None for none.
        unknown: what this version does not know of the records that were decoded so far.
    """

    directory: StorePath
    segments: tuple[MetadataSegment, ...]
    checkpoints: tuple[MetadataCheckpoint, ...]
    part_files: tuple[str, ...]
    deleted_files: tuple[str, ...]
    misnamed_files: tuple[str, ...]
    unreadable_files: tuple[str, ...]
    producer_snapshots: tuple[str, ...]
    other_files: tuple[str, ...]
    leader_epochs: tuple[LeaderEpochEntry, ...] | None
    leader_epochs_fault: FormatError | None
    quorum_state: QuorumState | None
    quorum_state_fault: FormatError | None
    deadline: float | None = None
    orphan_index_bases: tuple[int, ...] = ()
    unknown: UnknownContentsCounter = field(default_factory=UnknownContentsCounter, compare=False)

    @property
    def path(self) -> str:
        """Path of the directory."""
        return self.directory.path

    @property
    def first_base_offset(self) -> int | None:
        """Base offset of the first segment: where a node that starts here begins. None without segments."""
        return self.segments[0].base_offset if self.segments else None

    @property
    def start_offset(self) -> int | None:
        """Where the log began before the node stopped: the first leader epoch has its start there. The first base offset without it."""
        return self.leader_epochs[0].start_offset if self.leader_epochs else self.first_base_offset

    def walk(self, from_offset: int = 0, *, records: bool = True) -> MetadataWalk:
        """The batches that hold an offset or lie after it.

        Args:
            from_offset: least offset; a batch that begins before and reaches it comes first.
            records: else batches come without their records, faster; control batches have them all the same.
        """
        return MetadataWalk(self, from_offset, records)

    def walk_on(self, start: LogPosition) -> MetadataWalk:
        """The batches from a position on, where an earlier walk of this log ended.

        Raises:
            BadValueError: the log does not reach to it any more. While it is iterated: another batch begins there.
        """
        segment = next((each for each in self.segments if each.base_offset == start.base_offset), None)
        if segment is None or segment.identity.size_bytes < start.position_bytes:
            what = "position in the metadata log at which it was read before"
            found = "no such segment" if segment is None else segment.identity.size_bytes
            raise BadValueError(what, file=self.path, expected=f"at least {start.position_bytes}", found=found)
        return MetadataWalk(self, start.offset, records=True, start=start)

    def checkpoint_batches(self, checkpoint: MetadataCheckpoint, *, records: bool = True) -> Iterator[MetadataBatch]:
        """The batches of a checkpoint, all of it checked: whole, between its header and footer.

        Raises:
            FormatError: it is damaged; what comes before that was handed out.
            ReadFailedError: it cannot be read.
        """
        first = last = None
        # It is whole between its header and its footer, or damaged, whatever was listed; only an object needs its identity to be read.
        listed = None if self.directory.is_local else checkpoint.identity
        with _opened(self, checkpoint.path, listed) as source:
            batches = FileBatches(source, checkpoint.path, records, deadline=self.deadline, unknown=self.unknown)
            for batch in batches:
                first = first or batch
                last = batch
                yield batch
        check_tail(batches.tail, checkpoint.path)
        if not _is_control_of(first, 0, SnapshotHeader):
            raise BadValueError("checkpoint", file=checkpoint.path, position=0, expected="a snapshot header first", found="none")
        if not _is_control_of(last, -1, SnapshotFooter):
            end = checkpoint.identity.size_bytes
            raise TruncatedError("checkpoint", file=checkpoint.path, position=end, expected="a snapshot footer last", found="none")

    def checkpoint_fault(self, checkpoint: MetadataCheckpoint) -> FormatError | None:
        """Why a checkpoint is none, or None if it is one. Its records are not decoded.

        Raises:
            ReadFailedError: it cannot be read.
        """
        try:
            for _ in self.checkpoint_batches(checkpoint, records=False):
                pass
        except FormatError as error:
            return error
        return None

    def newest_valid_checkpoint(self) -> MetadataCheckpoint | None:
        """The newest checkpoint that is whole, or None.

        Raises:
            ReadFailedError: one cannot be read.
        """
        return next((each for each in reversed(self.checkpoints) if self.checkpoint_fault(each) is None), None)

    def log_end_offset(self) -> int:
        """Offset after the last whole batch of the last segment; 0 without segments.

        Raises:
            FormatError, ReadFailedError: as ``walk``.
        """
        return self.walk_to_end().end_offset

    def walk_to_end(self) -> MetadataWalk:
        """The walk of the last segment, ended: its ``end_offset`` and ``torn_tail`` are those of the log.

        Raises:
            FormatError, ReadFailedError: as ``walk``.
        """
        walk = self.walk(self.segments[-1].base_offset if self.segments else 0, records=False)
        for _ in walk:
            pass
        return walk


class MetadataWalk:
    """An iteration over the batches of a metadata log; iterate it once.

    Raises, while it is iterated:
        FormatError: damage, with file and position; what comes before it was handed out.
        GoneFileError: a segment is gone since the listing.
        ReadFailedError: a segment cannot be read.
        DeadlinePassedError: the deadline of the log has passed.

    Attributes:
        end_offset: after the last batch that was read.
        torn_tail: what follows the last whole batch of the log, once the iteration has ended; a broker cuts it off.
        position: after the last batch that was read; None before the first.
    """

    def __init__(self, log: MetadataLog, from_offset: int, records: bool, start: LogPosition | None = None) -> None:
        """One pass over the batches of a log, from an offset (``MetadataLog.walk``) or a position (``MetadataLog.walk_on``)."""
        self._log = log
        self._from_offset = from_offset
        self._records = records
        self.end_offset = log.segments[0].base_offset if log.segments else 0
        self.torn_tail: Tail | None = None
        self.position = start

    def until(self) -> closing[Generator[MetadataBatch, None, None]]:
        """The batches for a reader that may stop early: at the end it still learns whether the segment that it was in has changed."""
        return closing(iter(self))

    def __iter__(self) -> Generator[MetadataBatch, None, None]:
        segments = self._log.segments
        first = max((number for number, each in enumerate(segments) if each.base_offset <= self._from_offset), default=0)
        for segment in segments[first:]:
            start_bytes = 0
            if segment is segments[first]:
                self.end_offset = segment.base_offset
                if self.position is not None and self.position.base_offset == segment.base_offset:
                    self.end_offset = self.position.offset
                    start_bytes = self.position.position_bytes
            elif segment.base_offset != self.end_offset:
                what = "base offset of a segment"
                raise BadValueError(what, file=segment.path, position=0, expected=self.end_offset, found=segment.base_offset)
            yield from self._segment(segment, start_bytes, is_last=segment is segments[-1])

    def _segment(self, segment: MetadataSegment, start_bytes: int, *, is_last: bool) -> Iterator[MetadataBatch]:
        with _opened(self._log, segment.path, segment.identity, may_grow=is_last) as source:
            batches = FileBatches(
                source,
                segment.path,
                self._records,
                self._from_offset,
                self._log.deadline,
                start_bytes=start_bytes,
                unknown=self._log.unknown,
            )
            for batch in batches:
                if batch.base_offset != self.end_offset or batch.last_offset < batch.base_offset:
                    found = batch.base_offset if batch.base_offset != self.end_offset else batch.last_offset
                    what = "offset of a batch of the metadata log"
                    raise BadValueError(
                        what, file=segment.path, position=batch.position_bytes, expected=self.end_offset, found=found
                    )
                self.end_offset = batch.last_offset + 1
                self.position = LogPosition(segment.base_offset, batch.position_bytes + batch.size_bytes, self.end_offset)
                if batch.last_offset >= self._from_offset:
                    yield batch
        if is_last and batches.tail is not None and batches.tail.kind in (TailKind.TORN, TailKind.ZERO_FILLED):
            self.torn_tail = batches.tail
        else:
            check_tail(batches.tail, segment.path)


def _is_control_of(batch: MetadataBatch | None, record: int, kind: type) -> bool:
    if batch is None or not batch.is_control or not batch.records:
        return False
    content = batch.records[record].content
    return isinstance(content, ControlRecord) and isinstance(content.value, kind)


def _opened(log: MetadataLog, path: str, identity: FileIdentity | None, *, may_grow: bool = False) -> OpenBytes:
    return log.directory.at(path).open(identity, log.deadline, may_grow=may_grow)


Content = TypeVar("Content")


def meta_around(directory: StorePath) -> MetaProperties | None:
    """``meta.properties`` of the log directory that has a metadata log; None if there is none.

    Raises:
        FormatError: it is damaged.
        ReadFailedError: it cannot be read.
    """
    file = directory.at(os.path.join(os.path.dirname(directory.path), META_PROPERTIES))
    data = file.read_small(limits.TEXT_FILE_BYTES_MAX)
    return None if data is None else read_meta_properties(data, file=file.path)


def open_metadata_log(location: str, run: Run | None = None) -> MetadataLog:
    """Lists a metadata log.

    Args:
        location: ``__cluster_metadata-0``, a copy of it under any name, or a directory above, that holds one such log.
        run: how object stores are reached, and the deadline of what is read of it later (``MetadataLog.deadline``); None for the usual
            stores, and no deadline.

    Raises:
        UsageError: there is no such directory, it holds no metadata log or several, or is the partition of another topic.
        ReadFailedError: it cannot be listed.
    """
    stores = USUAL_S3 if run is None else run.stores
    directory = path_of(absolute(location), stores)
    if directory.is_local and (fault := directory_fault(location)) is not None:
        raise UsageError(fault, path=location)
    return _list(_found(directory, stores), None if run is None else run.deadline)


def _found(directory: StorePath, stores: S3Settings) -> StorePath:
    """The directory itself."""
    path = directory.path
    own_name = parse_partition_dir_name(os.path.basename(path))
    if any(_is_of_metadata_log(name) for name in directory.names()):
        if own_name is not None and own_name.topic != METADATA_TOPIC:
            raise UsageError(f"is a partition of {own_name.topic}, not {METADATA_DIRECTORY}", path=path)
        return directory
    below = directory.below(METADATA_DIRECTORY)
    if below.names():
        return below
    paths = [
        partition.path
        for log_dir in find_partitions([path], stores).log_dirs
        for partition in log_dir.partitions
        if partition.name.topic == METADATA_TOPIC
    ]
    if not paths:
        raise UsageError(f"holds no {METADATA_DIRECTORY}: name a log directory of a KRaft node, or its metadata.log.dir", path=path)
    if len(paths) > 1:
        raise UsageError(f"holds several metadata logs, name one of them: {', '.join(paths[:5])}", path=path)
    return directory.at(paths[0])


def _is_of_metadata_log(name: str) -> bool:
    file_name = parse_file_name(name)
    return file_name is not None and file_name.kind in (FileKind.LOG, FileKind.KRAFT_CHECKPOINT, FileKind.QUORUM_STATE)


def _list(directory: StorePath, deadline: float | None) -> MetadataLog:
    segments: list[MetadataSegment] = []
    checkpoints: list[MetadataCheckpoint] = []
    orphan_index_bases: set[int] = set()
    names: dict[str, list[str]] = {kind: [] for kind in ("part", "deleted", "misnamed", "snapshot", "other", "unreadable")}
    regular = {name: status for name, status in directory.list_below() if "/" not in name}
    path = directory.path
    everything = directory.names()
    if len(everything) > ENTRIES_MAX:
        raise ReadFailedError(f"has more than {ENTRIES_MAX} files", path=path)
    for name in sorted(everything):
        file_name = parse_file_name(name)
        status = regular.get(name)
        place = os.path.join(path, name)
        if file_name is None:
            names["misnamed" if name.endswith((".checkpoint", ".checkpoint.part")) else "other"].append(name)
        elif file_name.suffix is not FileSuffix.NONE:
            names["deleted" if file_name.suffix is FileSuffix.DELETED else "misnamed"].append(name)
        elif file_name.kind in (FileKind.LOG, FileKind.KRAFT_CHECKPOINT):
            if status is None:
                names["unreadable"].append(name)
            elif file_name.kind is FileKind.LOG:
                assert file_name.offset is not None
                segments.append(MetadataSegment(file_name.offset, place, FileIdentity.of(status)))
            else:
                assert file_name.offset is not None
                assert file_name.epoch is not None
                checkpoints.append(MetadataCheckpoint(file_name.offset, file_name.epoch, place, FileIdentity.of(status)))
        elif file_name.kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
            assert file_name.offset is not None
            if segment_file_name(file_name.offset) not in everything:
                orphan_index_bases.add(file_name.offset)
        elif file_name.kind in _KINDS:
            names[_KINDS[file_name.kind]].append(name)
    epochs, epochs_fault = _small_file(directory.below(LEADER_EPOCH_CHECKPOINT), read_leader_epoch_checkpoint)
    state, state_fault = _small_file(directory.below(QUORUM_STATE), read_quorum_state)
    return MetadataLog(
        directory=directory,
        segments=tuple(segments),
        checkpoints=tuple(sorted(checkpoints, key=lambda checkpoint: checkpoint.order)),
        part_files=tuple(names["part"]),
        deleted_files=tuple(names["deleted"]),
        misnamed_files=tuple(names["misnamed"]),
        unreadable_files=tuple(names["unreadable"]),
        producer_snapshots=tuple(names["snapshot"]),
        other_files=tuple(names["other"]),
        leader_epochs=epochs,
        leader_epochs_fault=epochs_fault,
        quorum_state=state,
        quorum_state_fault=state_fault,
        deadline=deadline,
        orphan_index_bases=tuple(sorted(orphan_index_bases)),
    )


def _small_file(file: StorePath, read: Callable[..., Content]) -> tuple[Content | None, FormatError | None]:
    """The content of a file, None if it is absent; and the error if it cannot be read."""
    data = file.read_small(limits.TEXT_FILE_BYTES_MAX)
    try:
        return None if data is None else read(data, file=file.path), None
    except FormatError as error:
        return None, error


_KINDS = {
    FileKind.KRAFT_CHECKPOINT_PART: "part",
    FileKind.PRODUCER_SNAPSHOT: "snapshot",
    FileKind.PRODUCER_SNAPSHOT_TEMPORARY: "other",
    FileKind.MISNAMED_SNAPSHOT: "misnamed",
    FileKind.MISNAMED_SEGMENT_FILE: "misnamed",
}
