"""Everything that goes to remote storage with one rolled segment: read, compared with one another, and checked again before it is complete.

Source: ``RemoteLogManager.RLMCopyTask.copyLogSegment``, ``LogSegmentData``, ``RemoteLogSegmentMetadata``; KIP-405.
"""

from __future__ import annotations

import contextlib
import errno
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from formats import limits
from formats.errors import FormatError
from formats.limits import INT64_MAX
from formats.partition.checkpoint_file import LeaderEpochEntry, read_leader_epoch_checkpoint, write_leader_epoch_checkpoint
from formats.partition.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    FileKind,
    offset_index_file_name,
    parse_file_name,
    time_index_file_name,
    transaction_index_file_name,
)
from formats.partition.partition_metadata import ZERO_UUID, read_partition_metadata, uuid_from_text, uuid_to_text
from snaprebuild.errors import (
    ChangedFileError,
    DeadlinePassedError,
    GoneFileError,
    GonePartitionError,
    ReadFailedError,
    RefusalReason,
    RefusedError,
    SnapshotRefusedError,
    UploadRefusalReason,
    UploadRefusedError,
    UsageError,
)
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.ensure_snapshot import EnsuredSnapshot
from snaprebuild.snapshots.refusals import is_being_deleted
from snaprebuild.snapshots.source.second_look import with_new_listings
from snaprebuild.snapshots.source.source import PartitionSource, opened_partition
from snaprebuild.storage.partition_dir import SegmentFiles
from snaprebuild.storage.store import FileIdentity, OpenBytes, absolute
from snaprebuild.storage.store_path import ReadPath
from snaprebuild.tier.upload.checks import SegmentIndexes, check_indexes, check_stable

if TYPE_CHECKING:
    from snaprebuild.snapshots.run import Run

__all__ = ["PreparedUpload", "candidates", "prepare_segment", "topic_id_of"]

Ensure = Callable[[PartitionSource, int], EnsuredSnapshot]
"""Gives the snapshot at an offset of a partition, or refuses (``snaprebuild.ensure_snapshot``)."""


@dataclass(frozen=True, slots=True)
class PreparedUpload:
    """A rolled segment and what belongs to it, of one moment.

    Attributes:
        topic: name.
        topic_id: 16 bytes.
        partition: number.
        start_offset: base offset of the segment.
        end_offset: next base offset - 1.
        log_identity: size, modification time, inode or ETag of it.
        max_timestamp_ms: greatest of its batches; of a segment without timestamps the modification time, as a broker takes it.
        offset_index: the whole ``.index``; so is ``time_index``.
        transaction_index: the whole ``.txnindex``; None without one, as for most segments.
        leader_epoch_checkpoint: text of every leader epoch that began below the next base offset.
        leader_epochs: those over the range of the segment, the first one moved to its start: what the metadata record holds.
        snapshot: the producer snapshot at the next base offset; ``snapshot.data`` is what is sent.
    """

    topic: str
    topic_id: bytes
    partition: int
    start_offset: int
    end_offset: int
    log_identity: FileIdentity
    max_timestamp_ms: int
    offset_index: bytes = field(repr=False)
    time_index: bytes = field(repr=False)
    transaction_index: bytes | None = field(repr=False)
    leader_epoch_checkpoint: bytes
    leader_epochs: tuple[LeaderEpochEntry, ...]
    snapshot: EnsuredSnapshot
    _log: ReadPath = field(repr=False)
    _files: tuple[tuple[ReadPath, FileIdentity | None], ...] = field(repr=False)

    @property
    def size_bytes(self) -> int:
        """Bytes of the segment."""
        return self.log_identity.size_bytes

    @property
    def log_path(self) -> str:
        """Path of the segment, which is not read into memory."""
        return self._log.path

    @property
    def txn_index_empty(self) -> bool:
        """No transaction was aborted in it: a field of the metadata record since Kafka 4.0."""
        return not self.transaction_index

    def open_log(self) -> OpenBytes:
        """Opens the segment, to be sent.

        Raises:
            UploadRefusedError: it is no longer the one that was read.
            ReadFailedError: it cannot be opened.
        """
        try:
            return self._log.open(self.log_identity)
        except RefusedError as error:
            raise UploadRefusedError(error.message, path=self.log_path, reason=UploadRefusalReason.CHANGED) from error

    def check_unchanged(self) -> None:
        """Makes sure that every file is still the one that was read; to be called again just before an upload is complete.

        Raises:
            UploadRefusedError: one is not.
            ReadFailedError: one cannot be opened.
        """
        for file, identity in self._files:
            if file.identity() != identity:
                message = "changed while it was read: another program writes here"
                raise UploadRefusedError(message, path=file.path, reason=UploadRefusalReason.CHANGED)


@contextlib.contextmanager
def _deadline_as_refusal() -> Iterator[None]:
    """A deadline that passes between two reads is the same refusal as one that passes in the replay."""
    try:
        yield
    except DeadlinePassedError as error:
        raise SnapshotRefusedError(error.message, path=error.path, reason=RefusalReason.DEADLINE) from error


@_deadline_as_refusal()
def prepare_segment(
    log: str,
    ensure: Ensure,
    *,
    topic_id: str | None,
    high_watermark: int | None,
    run: Run,
    source: PartitionSource | None,
) -> PreparedUpload:
    """Puts together what belongs to a segment.

    Args:
        log: path of its ``.log``.
        ensure: gives the snapshot.
        topic_id: Kafka's text of it, if there is no ``partition.metadata``; else it must be the same.
        high_watermark: everything below it is replicated; None for the checkpoint of the log directory.
        run: its deadline, and how object stores are reached.
        source: the segment's directory, already listed; None to list it.

    Raises:
        UploadRefusedError: it may not be uploaded, or not yet.
        UsageError: there is no such segment.
        SnapshotRefusedError: the deadline has passed.
        ReadFailedError: a file cannot be read.
        SnaprebuildError: whatever ``ensure`` raises.
    """
    location = absolute(log)
    path, name = os.path.split(location)
    parsed = parse_file_name(name)
    if parsed is None or parsed.kind is not FileKind.LOG or parsed.offset is None:
        raise UsageError("expected the path of a segment, <20 digits>.log", path=log)
    try:
        partition = opened_partition(path, run) if source is None else source
    except RefusedError as error:
        reason = UploadRefusalReason.GONE if is_being_deleted(path) else UploadRefusalReason.NO_SOURCE
        raise UploadRefusedError(error.message, path=path, reason=reason) from error
    base = parsed.offset
    segments = partition.directory.segments
    if partition.directory.path == path and segments and base < segments[0].base_offset:
        message = f"was deleted: the log start offset is {partition.log_start_offset}"
        raise UploadRefusedError(message, path=log, reason=UploadRefusalReason.BELOW_LOG_START)
    if partition.directory.path != path or _number_of(partition, base) is None:
        raise UsageError("does not exist, or is not a regular file", path=log)

    def prepared(listed: PartitionSource) -> PreparedUpload:
        number = _number_of(listed, base)
        if number is None:
            message = f"was deleted while it was read: the log start offset is {listed.log_start_offset} now"
            raise UploadRefusedError(message, path=log, reason=UploadRefusalReason.BELOW_LOG_START)
        try:
            return _Preparation(listed, number, run.deadline).prepared(ensure, topic_id, high_watermark)
        except (UploadRefusedError, SnapshotRefusedError) as error:
            # Retention renames a segment first, and removes its leader epochs, indexes and snapshot after that.
            if ReadPath(listed.directory.store, location).identity() is None:
                raise GoneFileError("was deleted while it was read", path=log) from error
            raise

    try:
        return with_new_listings(prepared, partition)
    except ChangedFileError as error:
        reason = UploadRefusalReason.GONE if isinstance(error, GonePartitionError) else UploadRefusalReason.CHANGED
        raise UploadRefusedError(error.message, path=error.path, reason=reason) from error


def _number_of(partition: PartitionSource, base_offset: int) -> int | None:
    """The index of the segment with this base offset, None if there is none."""
    bases = partition.directory.base_offsets
    number = bisect_left(bases, base_offset)
    return number if base_offset in bases[number : number + 1] else None


def candidates(partition: PartitionSource) -> tuple[SegmentFiles, ...]:
    """The rolled segments that hold offsets at or above the log start, in the order of a broker's uploads."""
    segments = partition.directory.segments
    start = partition.log_start_offset
    return tuple(segment for segment, following in pairwise(segments) if following.base_offset > start)


def topic_id_of(partition: PartitionSource, given: str | None) -> bytes:
    """The topic id of a partition directory.

    Args:
        partition: the directory.
        given: Kafka's text of it, if there is no ``partition.metadata``.

    Raises:
        UploadRefusedError: it is unknown, or another one than was given.
        ReadFailedError: the file cannot be read.
    """
    file = partition.directory.file(PARTITION_METADATA)
    return _checked_topic_id(file.read_small(limits.TEXT_FILE_BYTES_MAX), given, file.path)


def _checked_topic_id(data: bytes | None, given: str | None, path: str) -> bytes:
    try:
        known = None if data is None else read_partition_metadata(data).topic_id
        wanted = None if given is None else uuid_from_text(given)
    except FormatError as error:
        raise UploadRefusedError(error.message, path=path, reason=UploadRefusalReason.NO_TOPIC_ID) from error
    if wanted == ZERO_UUID:
        message = "the topic id that was given is zero, which no topic has"
        raise UploadRefusedError(message, path=path, reason=UploadRefusalReason.NO_TOPIC_ID)
    if known is not None and wanted not in (None, known):
        message = f"has the topic id {uuid_to_text(known)}, not the one that was given"
        raise UploadRefusedError(message, path=path, reason=UploadRefusalReason.OTHER_TOPIC_ID)
    found = wanted if known is None else known
    if found is None:
        message = "does not exist, as in directories of brokers before 2.8: the topic id must be given"
        raise UploadRefusedError(message, path=path, reason=UploadRefusalReason.NO_TOPIC_ID)
    return found


class _Preparation:
    """One segment, file by file."""

    def __init__(self, partition: PartitionSource, number: int, deadline: float | None) -> None:
        self._partition = partition
        self._directory = partition.directory
        self._number = number
        self._segment = partition.directory.segments[number]
        self._log = partition.directory.file(self._segment.log.name)
        self._deadline = deadline
        self._files: list[tuple[ReadPath, FileIdentity | None]] = []

    def prepared(self, ensure: Ensure, topic_id: str | None, high_watermark: int | None) -> PreparedUpload:
        next_base = self._next_base()
        watermark = self._watermark(next_base, high_watermark)
        base = self._segment.base_offset
        metadata = self._read(PARTITION_METADATA, limits.TEXT_FILE_BYTES_MAX)
        known_id = _checked_topic_id(metadata, topic_id, self._directory.file_path(PARTITION_METADATA))
        epochs = self._epochs(next_base)
        offset_index = self._needed(
            offset_index_file_name(base), self._segment.offset_index, UploadRefusalReason.MISSING_OFFSET_INDEX
        )
        time_index = self._needed(time_index_file_name(base), self._segment.time_index, UploadRefusalReason.MISSING_TIME_INDEX)
        transaction_index = self._read(transaction_index_file_name(base), limits.INDEX_BYTES_MAX)
        indexes = SegmentIndexes(base, next_base, offset_index, time_index, transaction_index)
        try:
            source = self._directory.open_segment(self._segment, self._deadline)
        except GoneFileError:
            raise  # the directory is listed again
        except RefusedError as error:
            raise self._refused(error.message, UploadRefusalReason.CHANGED, self._log.path) from error
        with source:
            self._files.append((self._log, source.identity))
            max_timestamp = check_indexes(source, indexes, self._directory.path)
        snapshot = self._ensured(ensure, next_base)
        if snapshot.index_fault is not None:
            path = self._directory.transaction_index_path(base)
            raise self._refused(snapshot.index_fault, UploadRefusalReason.INDEX_CONTRADICTS_LOG, path)
        check_stable(self._partition, self._number, snapshot, watermark, self._deadline)
        if max_timestamp < 0:  # no record has one
            max_timestamp = self._segment.log.identity.modified_ns // 1_000_000
        upload = PreparedUpload(
            topic=self._directory.name.topic,
            topic_id=known_id,
            partition=self._directory.name.partition,
            start_offset=base,
            end_offset=next_base - 1,
            log_identity=self._segment.log.identity,
            max_timestamp_ms=max_timestamp,
            offset_index=offset_index,
            time_index=time_index,
            transaction_index=transaction_index,
            leader_epoch_checkpoint=write_leader_epoch_checkpoint(each for each in epochs if each.start_offset < next_base),
            leader_epochs=_trimmed(epochs, base, next_base),
            snapshot=snapshot,
            _log=self._log,
            _files=tuple(self._files),
        )
        upload.check_unchanged()
        return upload

    def _refused(self, message: str, reason: UploadRefusalReason, path: str | None = None) -> UploadRefusedError:
        return UploadRefusedError(message, path=path or self._directory.path, reason=reason)

    def _next_base(self) -> int:
        """Where the segment ends, if it is one that a broker would upload."""
        partition = self._partition
        segments = self._directory.segments
        size = self._segment.size_bytes
        is_active = self._number + 1 == len(segments)
        next_base = INT64_MAX if is_active else segments[self._number + 1].base_offset
        start = partition.log_start_offset
        largest = limits.SEGMENT_BYTES_MAX
        log = self._log.path
        if not partition.can_be_tiered:
            raise self._refused("internal and compacted topics never go to remote storage", UploadRefusalReason.NEVER_TIERED)
        if not partition.log_dir.is_cleaner_known:
            message = "whether the topic is compacted is unknown: cleaner-offset-checkpoint cannot be read"
            raise self._refused(message, UploadRefusalReason.UNKNOWN_CLEANER)
        if is_active:
            raise self._refused("is the active segment, which is still written to", UploadRefusalReason.ACTIVE_SEGMENT, log)
        if next_base <= start:
            message = f"ends below the log start offset {start}: its records are deleted"
            raise self._refused(message, UploadRefusalReason.BELOW_LOG_START, log)
        if size > largest:
            message = f"has {size} bytes, and the metadata of a segment has room for {largest}"
            raise self._refused(message, UploadRefusalReason.SEGMENT_TOO_LARGE, log)
        if size == 0:
            raise self._refused("is rolled and has no bytes", UploadRefusalReason.EMPTY_SEGMENT, log)
        return next_base

    def _ensured(self, ensure: Ensure, next_base: int) -> EnsuredSnapshot:
        """A follower that started from remote storage may have lost the producers of what it does not hold, and writes such snapshots."""
        remote_from = self._partition.remote_from
        cause = None
        try:
            snapshot = ensure(self._partition, next_base)
            if remote_from is None or snapshot.snapshot_class is not SnapshotClass.UNPROVEN:
                return snapshot
        except SnapshotRefusedError as error:
            if remote_from is None or error.snapshot_class != SnapshotClass.UNPROVEN.value:
                raise
            cause = error
        message = (
            f"what producers did from the log start offset {remote_from} up to {self._directory.segments[0].base_offset}, which only "
            "remote storage holds, is unknown here: its snapshots may lack them"
        )
        raise self._refused(message, UploadRefusalReason.UNKNOWN_PRODUCERS) from cause

    def _watermark(self, next_base: int, given: int | None) -> int:
        found = (self._partition.log_dir.high_watermarks or {}).get(self._directory.topic_partition)
        watermark = found if given is None else given
        if watermark is None:
            message = "no replication-offset-checkpoint has the high watermark, up to which records are replicated"
            raise self._refused(message, UploadRefusalReason.UNKNOWN_HIGH_WATERMARK)
        if next_base > watermark:
            message = f"ends at {next_base - 1}, and the high watermark is {watermark}: the rest may not be replicated"
            raise self._refused(message, UploadRefusalReason.ABOVE_HIGH_WATERMARK, self._log.path)
        return watermark

    def _epochs(self, next_base: int) -> tuple[LeaderEpochEntry, ...]:
        path = self._directory.file_path(LEADER_EPOCH_CHECKPOINT)
        try:
            entries = read_leader_epoch_checkpoint(
                self._read(LEADER_EPOCH_CHECKPOINT, limits.TEXT_FILE_BYTES_MAX) or b"", file=path
            )
        except FormatError as error:
            raise self._refused(error.message, UploadRefusalReason.BAD_LEADER_EPOCHS, path) from error
        ascending = pairwise(entries)
        if not all(one.epoch < other.epoch and one.start_offset < other.start_offset for one, other in ascending):
            raise self._refused("its leader epochs or their offsets do not ascend", UploadRefusalReason.BAD_LEADER_EPOCHS, path)
        if not _trimmed(entries, self._segment.base_offset, next_base):
            message = (
                f"no leader epoch covers the offsets {self._segment.base_offset} to {next_base - 1}: brokers refuse such a segment"
            )
            raise self._refused(message, UploadRefusalReason.NO_LEADER_EPOCHS, path)
        return entries

    def _needed(self, name: str, listed: str | None, reason: UploadRefusalReason) -> bytes:
        data = None if listed is None else self._read(name, limits.INDEX_BYTES_MAX)
        if data is None and listed is not None:
            raise GoneFileError("is gone since it was listed", path=self._directory.file_path(name))
        if data is None:
            raise self._refused("is missing; the broker makes one when it loads the log", reason, self._directory.file_path(name))
        return data

    def _read(self, name: str, bytes_max: int) -> bytes | None:
        """A whole file, whose identity is kept; None where there is none."""
        file = self._directory.file(name)
        try:
            source = file.open(may_grow=True)
        except ReadFailedError as error:
            if error.errno != errno.ENOENT:
                raise
            self._files.append((file, None))
            return None
        with source:
            if source.size_bytes > bytes_max:
                raise ReadFailedError(f"has {source.size_bytes} bytes, more than the limit of {bytes_max}", path=file.path)
            data = bytearray(source.size_bytes)
            if source.read_into(0, memoryview(data)) != len(data):
                raise self._refused("became shorter while it was read", UploadRefusalReason.CHANGED, file.path)
            self._files.append((file, source.identity))
        return bytes(data)


def _trimmed(entries: tuple[LeaderEpochEntry, ...], base: int, next_base: int) -> tuple[LeaderEpochEntry, ...]:
    """The epochs over a range of offsets; the one that began before it, moved to its start (``LeaderEpochFileCache``)."""
    before = [entry for entry in entries if entry.start_offset <= base]
    within = tuple(entry for entry in entries if base < entry.start_offset < next_base)
    return (*(LeaderEpochEntry(entry.epoch, base) for entry in before[-1:]), *within)
