"""A metadata log directory, listed once, and its batches in order: the one walker that all verbs on ``__cluster_metadata-0`` share.

Nothing is held but one batch. Checksums are proven, offsets must follow each other without a gap (nothing compacts this log), and the log
ends where its last segment holds no further whole batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from formats import limits
from formats.batch_headers import HEADER_COLUMNS, HeaderReader, Tail, TailKind
from formats.checkpoint_file import LeaderEpochEntry, read_leader_epoch_checkpoint
from formats.cluster_metadata import ClusterMetadataRecord, read_cluster_metadata_record
from formats.control_record import ControlRecord, SnapshotFooter, SnapshotHeader, parse_control_record
from formats.errors import BadChecksumError, BadValueError, FormatError, LimitExceededError, TruncatedError
from formats.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    QUORUM_STATE,
    FileKind,
    FileSuffix,
    parse_file_name,
    parse_partition_dir_name,
)
from formats.quorum_state import QuorumState, read_quorum_state
from formats.record_batch import BatchHeader, Record
from formats.records import LogRecord, read_records
from snaprebuild.cluster.metadata_batch import MetadataBatch, MetadataRecord, UnreadRecord
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.storage.log_dir import directory_fault, find_partitions, store_of
from snaprebuild.storage.partition_dir import ENTRIES_MAX
from snaprebuild.storage.store import USUAL_S3, FileIdentity, OpenBytes, S3Settings, Store, absolute

__all__ = [
    "METADATA_DIRECTORY",
    "MetadataCheckpoint",
    "MetadataLog",
    "MetadataSegment",
    "MetadataWalk",
    "open_metadata_log",
]

Content = TypeVar("Content")

METADATA_TOPIC = "__cluster_metadata"
METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"


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
        """As ``OffsetAndEpoch`` compares: the epoch first."""
        return self.epoch, self.end_offset


@dataclass(frozen=True, slots=True)
class MetadataLog:
    """A metadata log directory as it was listed; values of small files are read with it.

    Attributes:
        path: of the directory.
        segments: by base offset, ascending.
        checkpoints: in Kafka's order, the newest last.
        part_files: names of checkpoints that were being written.
        deleted_files: names ending in ``.deleted``.
        misnamed_files: names that end like a segment's or checkpoint's file and are none.
        unreadable_files: names of segments and checkpoints that are no regular files.
        producer_snapshots: names of ``.snapshot`` files, which hold no entry here and no metadata.
        other_files: names that neither Kafka nor this program knows.
        leader_epochs: of ``leader-epoch-checkpoint``; None where it is absent.
        leader_epochs_fault: why that cannot be read.
        quorum_state: of ``quorum-state``; None where it is absent.
        quorum_state_fault: why that cannot be read.
        store: that holds them all.
    """

    path: str
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
    store: Store

    @property
    def first_base_offset(self) -> int | None:
        """Base offset of the first segment: where a node that starts here begins. None without segments."""
        return self.segments[0].base_offset if self.segments else None

    @property
    def start_offset(self) -> int | None:
        """Where the log began before the node stopped: the first leader epoch has its start there. The first base offset without it."""
        return self.leader_epochs[0].start_offset if self.leader_epochs else self.first_base_offset

    def walk(self, from_offset: int = 0, *, records: bool = True) -> MetadataWalk:
        """The batches that hold an offset or lie behind it.

        Args:
            from_offset: least offset; a batch that begins before and reaches it comes first.
            records: else batches come without their records, faster; control batches have them all the same.
        """
        return MetadataWalk(self, from_offset, records)

    def checkpoint_batches(self, checkpoint: MetadataCheckpoint, *, records: bool = True) -> Iterator[MetadataBatch]:
        """The batches of a checkpoint, all of it checked: whole, between its header and footer.

        Raises:
            FormatError: it is damaged; what comes before that was handed out.
            ReadFailedError: it cannot be read.
        """
        first = last = None
        with _opened(self, checkpoint.path, checkpoint.identity) as source:
            batches = _Batches(source, checkpoint.path, records)
            for batch in batches:
                first, last = first or batch, batch
                yield batch
        _check_tail(batches.tail, checkpoint.path)
        if not _is_control_of(first, 0, SnapshotHeader):
            raise BadValueError("checkpoint", file=checkpoint.path, position=0, expected="a snapshot header first", found="none")
        if not _is_control_of(last, -1, SnapshotFooter):
            end = checkpoint.identity.size_bytes
            raise TruncatedError("checkpoint", file=checkpoint.path, position=end, expected="a snapshot footer last", found="none")

    def checkpoint_fault(self, checkpoint: MetadataCheckpoint) -> FormatError | None:
        """Why a checkpoint is none, or None where it is one. Its records are not decoded.

        Raises:
            ReadFailedError: it cannot be read.
        """
        try:
            for _ in self.checkpoint_batches(checkpoint, records=False):
                pass
        except FormatError as error:
            return error
        return None

    def newest_valid_checkpoint(self, at_most: int | None = None) -> MetadataCheckpoint | None:
        """The newest checkpoint that is whole, or None.

        Args:
            at_most: greatest end offset; None for any.

        Raises:
            ReadFailedError: one cannot be read.
        """
        wanted = (each for each in reversed(self.checkpoints) if at_most is None or each.end_offset <= at_most)
        return next((each for each in wanted if self.checkpoint_fault(each) is None), None)

    def log_end_offset(self) -> int:
        """Offset behind the last whole batch of the last segment; 0 without segments.

        Raises:
            FormatError, ReadFailedError: as ``walk``.
        """
        if not self.segments:
            return 0
        walk = self.walk(self.segments[-1].base_offset, records=False)
        for _ in walk:
            pass
        return walk.end_offset


class MetadataWalk:
    """An iteration over the batches of a metadata log; iterate it once.

    Raises, while it is iterated:
        FormatError: damage, with file and position; what comes before it was handed out.
        ReadFailedError: a segment cannot be read (``errno`` is ENOENT where it has gone since the listing).

    Attributes:
        end_offset: behind the last batch that was read.
        torn_tail: what stands behind the last whole batch of the log, once the iteration has ended; a broker cuts it off.
    """

    def __init__(self, log: MetadataLog, from_offset: int, records: bool) -> None:
        """See ``MetadataLog.walk``."""
        self._log = log
        self._from_offset = from_offset
        self._records = records
        self.end_offset = log.segments[0].base_offset if log.segments else 0
        self.torn_tail: Tail | None = None

    def __iter__(self) -> Iterator[MetadataBatch]:
        segments = self._log.segments
        first = max((number for number, each in enumerate(segments) if each.base_offset <= self._from_offset), default=0)
        for segment in segments[first:]:
            if segment is segments[first]:
                self.end_offset = segment.base_offset
            elif segment.base_offset != self.end_offset:
                what = "base offset of a segment"
                raise BadValueError(what, file=segment.path, position=0, expected=self.end_offset, found=segment.base_offset)
            yield from self._segment(segment, is_last=segment is segments[-1])

    def _segment(self, segment: MetadataSegment, is_last: bool) -> Iterator[MetadataBatch]:
        with _opened(self._log, segment.path, segment.identity) as source:
            batches = _Batches(source, segment.path, self._records, self._from_offset)
            for batch in batches:
                if batch.base_offset != self.end_offset or batch.last_offset < batch.base_offset:
                    found = batch.base_offset if batch.base_offset != self.end_offset else batch.last_offset
                    what = "offset of a batch of the metadata log"
                    raise BadValueError(
                        what, file=segment.path, position=batch.position_bytes, expected=self.end_offset, found=found
                    )
                self.end_offset = batch.last_offset + 1
                if batch.last_offset >= self._from_offset:
                    yield batch
        if is_last and batches.tail is not None and batches.tail.kind in (TailKind.TORN, TailKind.ZERO_FILLED):
            self.torn_tail = batches.tail
        else:
            _check_tail(batches.tail, segment.path)


class _Batches:
    """The batches of one open file; ``tail`` tells how they end."""

    def __init__(self, source: OpenBytes, path: str, records: bool, from_offset: int = 0) -> None:
        self._source = source
        self._path = path
        self._records = records
        self._from_offset = from_offset
        self.tail: Tail | None = None

    def __iter__(self) -> Iterator[MetadataBatch]:
        reader = HeaderReader(self._source, check_crc=True, read_markers=False)
        for block in reader:
            bad = int(block.bad_crc[0]) if len(block.bad_crc) else None
            columns = zip(block.position_bytes.tolist(), *(block.column(name).tolist() for name in HEADER_COLUMNS), strict=True)
            for row, (position, *fields) in enumerate(columns):
                header = BatchHeader(*fields)
                if row == bad:
                    raise BadChecksumError("batch", file=self._path, position=position, expected="its checksum", found="another")
                if header.record_count != header.last_offset_delta + 1:
                    what, expected = "count of records of a batch of the metadata log", header.last_offset_delta + 1
                    raise BadValueError(what, file=self._path, position=position, expected=expected, found=header.record_count)
                is_wanted = (
                    self._records or header.is_control
                ) and header.base_offset + header.last_offset_delta >= self._from_offset
                yield _batch(self._source, self._path, header, position, records=is_wanted)
        self.tail = reader.tail


def _batch(source: OpenBytes, path: str, header: BatchHeader, position: int, *, records: bool) -> MetadataBatch:
    return MetadataBatch(
        base_offset=header.base_offset,
        last_offset=header.base_offset + header.last_offset_delta,
        leader_epoch=header.partition_leader_epoch,
        append_timestamp_ms=header.max_timestamp,
        is_control=header.is_control,
        position_bytes=position,
        size_bytes=header.size_bytes,
        records=tuple(_records(source, path, header, position)) if records else (),
    )


def _records(source: OpenBytes, path: str, header: BatchHeader, position: int) -> Iterator[MetadataRecord]:
    if header.magic != 2:
        raise BadValueError("magic of a batch of the metadata log", file=path, position=position, expected=2, found=header.magic)
    if header.codec:
        raise BadValueError("codec of a batch of the metadata log", file=path, position=position, expected=0, found=header.codec)
    if header.size_bytes > limits.METADATA_BATCH_BYTES_MAX:
        expected = f"at most {limits.METADATA_BATCH_BYTES_MAX} bytes"
        raise LimitExceededError("batch", file=path, position=position, expected=expected, found=header.size_bytes)
    data = bytearray(header.size_bytes)
    source.read_into(position, memoryview(data))
    try:
        for record in read_records(header, bytes(data), position=position):
            yield MetadataRecord(record.offset, _content(path, header, record, position))
    except FormatError as error:
        raise error.in_file(path) from None


def _content(
    path: str, header: BatchHeader, record: LogRecord, position: int
) -> ClusterMetadataRecord | ControlRecord | UnreadRecord:
    try:
        if header.is_control:
            return parse_control_record(Record(0, 0, record.key, record.value))
        if record.value is None:
            raise BadValueError("value of a metadata record", expected="bytes", found="null")
        return read_cluster_metadata_record(record.value)
    except FormatError as error:
        error.position = position  # of the batch, which can be found; inside of it, nothing is counted from the start of a record
        return UnreadRecord(record.value, error.in_file(path))


def _is_control_of(batch: MetadataBatch | None, record: int, kind: type) -> bool:
    if batch is None or not batch.is_control or not batch.records:
        return False
    content = batch.records[record].content
    return isinstance(content, ControlRecord) and isinstance(content.value, kind)


def _check_tail(tail: Tail | None, path: str) -> None:
    if tail is not None and tail.error is not None:
        raise tail.error.in_file(path)


def _opened(log: MetadataLog, path: str, identity: FileIdentity) -> OpenBytes:
    return log.store.open_bytes(path, identity)


# ---------------------------------------------------------------------------------------------------------------------- listing


def open_metadata_log(location: str, settings: S3Settings = USUAL_S3) -> MetadataLog:
    """Lists a metadata log.

    Args:
        location: ``__cluster_metadata-0``, a copy of it under any name, or a directory above, that holds one such log.
        settings: of object stores.

    Raises:
        UsageError: there is no such directory, it holds no metadata log or several, or is the partition of another topic.
        ReadFailedError: it cannot be listed.
    """
    store = store_of(location, settings)
    if store.is_local and (fault := directory_fault(location)) is not None:
        raise UsageError(fault, path=location)
    return _list(_found(absolute(location), store, settings), store)


def _found(path: str, store: Store, settings: S3Settings) -> str:
    """The directory itself."""
    own_name = parse_partition_dir_name(os.path.basename(path))
    if any(_is_of_metadata_log(name) for name in store.names_in(path)):
        if own_name is not None and own_name.topic != METADATA_TOPIC:
            raise UsageError(f"is a partition of {own_name.topic}, not {METADATA_DIRECTORY}", path=path)
        return path
    below = os.path.join(path, METADATA_DIRECTORY)
    if store.names_in(below):
        return below
    found = [
        each.path
        for log_dir in find_partitions([path], settings).log_dirs
        for each in log_dir.partitions
        if each.name.topic == METADATA_TOPIC
    ]
    if not found:
        raise UsageError(f"holds no {METADATA_DIRECTORY}", path=path)
    if len(found) > 1:
        raise UsageError(f"holds several metadata logs, name one of them: {', '.join(found[:5])}", path=path)
    return found[0]


def _is_of_metadata_log(name: str) -> bool:
    known = parse_file_name(name)
    return known is not None and known.kind in (FileKind.LOG, FileKind.KRAFT_CHECKPOINT, FileKind.QUORUM_STATE)


def _list(path: str, store: Store) -> MetadataLog:
    segments: list[MetadataSegment] = []
    checkpoints: list[MetadataCheckpoint] = []
    names: dict[str, list[str]] = {kind: [] for kind in ("part", "deleted", "misnamed", "snapshot", "other", "unreadable")}
    regular = {name: status for name, status in store.list_below(path) if "/" not in name}
    everything = store.names_in(path)
    if len(everything) > ENTRIES_MAX:
        raise ReadFailedError(f"has more than {ENTRIES_MAX} files", path=path)
    for name in sorted(everything):
        known, status = parse_file_name(name), regular.get(name)
        place = os.path.join(path, name)
        if known is None:
            names["misnamed" if name.endswith((".checkpoint", ".checkpoint.part")) else "other"].append(name)
        elif known.suffix is not FileSuffix.NONE:
            names["deleted" if known.suffix is FileSuffix.DELETED else "misnamed"].append(name)
        elif known.kind in (FileKind.LOG, FileKind.KRAFT_CHECKPOINT):
            if status is None:
                names["unreadable"].append(name)
            elif known.kind is FileKind.LOG:
                assert known.offset is not None
                segments.append(MetadataSegment(known.offset, place, FileIdentity.of(status)))
            else:
                assert known.offset is not None
                assert known.epoch is not None
                checkpoints.append(MetadataCheckpoint(known.offset, known.epoch, place, FileIdentity.of(status)))
        elif known.kind in _KINDS:
            names[_KINDS[known.kind]].append(name)
    epochs, epochs_fault = _small_file(store, path, LEADER_EPOCH_CHECKPOINT, read_leader_epoch_checkpoint)
    state, state_fault = _small_file(store, path, QUORUM_STATE, read_quorum_state)
    return MetadataLog(
        path=path,
        segments=tuple(segments),
        checkpoints=tuple(sorted(checkpoints, key=lambda each: each.order)),
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
        store=store,
    )


def _small_file(store: Store, directory: str, name: str, read: Callable[..., Content]) -> tuple[Content | None, FormatError | None]:
    """What a file says, None where it is absent; and why it cannot be read."""
    path = os.path.join(directory, name)
    data = store.read_small(path, limits.TEXT_FILE_BYTES_MAX)
    try:
        return None if data is None else read(data, file=path), None
    except FormatError as error:
        return None, error


_KINDS = {
    FileKind.KRAFT_CHECKPOINT_PART: "part",
    FileKind.PRODUCER_SNAPSHOT: "snapshot",
    FileKind.PRODUCER_SNAPSHOT_TEMPORARY: "other",
    FileKind.MISNAMED_SNAPSHOT: "misnamed",
    FileKind.MISNAMED_SEGMENT_FILE: "misnamed",
}
