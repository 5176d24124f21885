"""Reads the facts of a partition that decide its start: small files, ``.txnindex``, and the end of the last segment."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray

from formats import limits
from formats.errors import BadValueError, FormatError
from formats.partition.checkpoint_file import LeaderEpochEntry, has_negative_leader_epoch
from formats.partition.file_names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, FileKind, parse_file_name
from formats.partition.partition_metadata import PartitionMetadataFault, partition_metadata_fault, read_partition_metadata
from formats.partition.transaction_index import ABORTED_TRANSACTION
from snaprebuild.broker.log_reading import first_magic, leader_epoch_below, read_log, read_segment_end, read_swap_range
from snaprebuild.broker.start_facts import (
    LogRead,
    PartitionFacts,
    RemoteStorage,
    SegmentEnd,
    Shutdown,
    SmallFile,
    TopicIdFile,
    TransactionIndexFault,
)
from snaprebuild.errors import ReadFailedError, SnaprebuildError
from snaprebuild.storage.log_dir import LogDirState, read_leader_epochs
from snaprebuild.storage.partition_dir import PartitionDir, SegmentFiles
from snaprebuild.storage.store import Ownership

__all__ = ["LAST_SEGMENT", "LEADER_EPOCHS", "TOPIC_ID", "FactsReader", "may_read"]

LEADER_EPOCHS = LEADER_EPOCH_CHECKPOINT
TOPIC_ID = PARTITION_METADATA
LAST_SEGMENT = ""
"""Keys of ``FactsReader.errors``."""

ENTRY_BYTES = ABORTED_TRANSACTION.sizeof()
_TRANSACTION = np.dtype(
    {
        "names": ["version", "version_of_two_bytes", "last_offset"],
        "formats": ["i1", ">i2", ">i8"],
        "offsets": [0, 0, 18],
        "itemsize": ENTRY_BYTES,
    }
)
"""``AbortedTxn.version`` reads one byte, and from 4.4 on two."""

_TOPIC_ID_FILES = {
    PartitionMetadataFault.LINE_MISSING: TopicIdFile.LINE_MISSING,
    PartitionMetadataFault.NO_UUID: TopicIdFile.NO_UUID,
    PartitionMetadataFault.ZERO: TopicIdFile.ZERO,
    PartitionMetadataFault.MALFORMED: TopicIdFile.MALFORMED,
}


class FactsReader:
    """Reads the facts of one partition.

    Attributes:
        errors: why something could not be read, by ``LEADER_EPOCHS``, ``TOPIC_ID``, ``LAST_SEGMENT``, or the name of a ``.txnindex``.
        epoch_error: what is wrong with ``leader-epoch-checkpoint``; None if it parses, or is absent.
        topic_id_error: what is wrong with ``partition.metadata``; None if it parses, or is absent.
    """

    def __init__(self, directory: PartitionDir, log_dir: LogDirState, shutdown: Shutdown) -> None:
        self.directory = directory
        self.log_dir = log_dir
        self.shutdown = shutdown
        self.errors: dict[str, SnaprebuildError] = {}
        self.epoch_error: FormatError | None = None
        self.topic_id_error: FormatError | None = None

    def read(
        self,
        remote_storage: RemoteStorage = RemoteStorage.UNKNOWN,
        *,
        is_served: bool = True,
        reads_log: bool = False,
    ) -> PartitionFacts:
        """Reads all facts. What cannot be read is in ``errors``.

        Args:
            remote_storage: whether it is on for the topic.
            is_served: ``LogManager`` loads the partition.
            reads_log: read the batches that the start reads, too (``LogRead``). After a crash these may be many GiB.

        Raises:
            ChangedFileError: a file changed while it was read.
        """
        directory = self.directory
        log_dir = self.log_dir
        name = directory.topic_partition
        segments = directory.segments
        epochs_file, epochs = self._leader_epochs()
        topic_id_file, topic_id = self._topic_id()
        log_start = (log_dir.log_starts or {}).get(name)
        # A running broker changes the rest, and what is no broker's directory has no start.
        is_stopped = self.shutdown in (Shutdown.CLEAN, Shutdown.UNCLEAN) and directory.store.is_local
        faults = self._transaction_index_faults() if is_stopped else ()
        facts = PartitionFacts(
            topic_partition=name,
            path=directory.path,
            shutdown=self.shutdown,
            base_offsets=tuple(segment.base_offset for segment in segments),
            segment_sizes=tuple(segment.log.identity.size_bytes for segment in segments),
            end=self._end() if is_stopped and segments else None,
            checkpointed_log_start_offset=log_start,
            recovery_point=(log_dir.recovery_points or {}).get(name),
            high_watermark=(log_dir.high_watermarks or {}).get(name),
            snapshots=tuple(directory.snapshot_offsets),
            has_lone_indexes=bool(directory.lone_indexes),
            topic_id_file=topic_id_file,
            topic_id=topic_id,
            epochs_file=epochs_file,
            leader_epochs=epochs,
            uncovered_magic=self._uncovered_magic(epochs_file, epochs, log_start) if directory.store.is_local else None,
            transaction_index_faults=faults,
            without_index=tuple(segment.base_offset for segment in segments if segment.offset_index is None),
            unloadable_names=_unloadable(directory),
            unreadable_names=_unreadable(directory),
            remote_storage=remote_storage,
            is_served=is_served,
            form=directory.name.form,
            directory_id=log_dir.directory_id,
            has_swapped=bool(directory.swapped),
            swap_range=self._swap_range() if is_stopped and directory.swapped else None,
        )
        if not (reads_log and is_stopped and segments and is_served) or facts.is_deleted or directory.swapped:
            return facts
        return msgspec.structs.replace(facts, log_read=self._log_read(facts))

    def _log_read(self, facts: PartitionFacts) -> LogRead | None:
        try:
            return read_log(self.directory, facts)
        except ReadFailedError as error:
            self.errors[LAST_SEGMENT] = error
            return None

    def _swap_range(self) -> tuple[int, int] | None:
        try:
            return read_swap_range(self.directory)
        except ReadFailedError as error:
            self.errors[LAST_SEGMENT] = error
            return None

    def uncovered_magic(self, epochs: tuple[LeaderEpochEntry, ...]) -> int | None:
        """Message format of the last batches below the first leader epoch; None where there are none, or it is unknown.

        Args:
            epochs: of the checkpoint, at least one.
        """
        if not self.directory.store.is_local:
            return None
        log_start = (self.log_dir.log_starts or {}).get(self.directory.topic_partition)
        return self._uncovered_magic(SmallFile.PRESENT, epochs, log_start)

    def _leader_epochs(self) -> tuple[SmallFile, tuple[LeaderEpochEntry, ...]]:
        try:
            epochs = read_leader_epochs(self.directory)
        except FormatError as error:
            self.epoch_error = error
            return (SmallFile.NEGATIVE if self._has_negative_epoch() else SmallFile.MALFORMED), ()
        except ReadFailedError as error:
            if self._is_directory(LEADER_EPOCHS):
                self.epoch_error = BadValueError("a directory in the place of a file", file=LEADER_EPOCHS)
                return SmallFile.MALFORMED, ()
            self.errors[LEADER_EPOCHS] = error
            return SmallFile.UNREADABLE, ()
        if epochs is None:
            return SmallFile.ABSENT, ()
        return (SmallFile.PRESENT, _as_loaded(epochs)) if epochs else (SmallFile.EMPTY, ())

    def _has_negative_epoch(self) -> bool:
        data = self.directory.file(LEADER_EPOCHS).read_small(limits.TEXT_FILE_BYTES_MAX)
        return data is not None and has_negative_leader_epoch(data)

    def _is_directory(self, name: str) -> bool:
        """A broker gets an IOException from it, as from a file that does not parse; what else cannot be read may be readable for it."""
        return self.directory.store.is_local and os.path.isdir(self.directory.file_path(name))

    def _topic_id(self) -> tuple[TopicIdFile, bytes | None]:
        directory = self.directory
        if not directory.has_partition_metadata:
            return TopicIdFile.ABSENT, None
        file = directory.file(TOPIC_ID)
        try:
            data = file.read_small(limits.TEXT_FILE_BYTES_MAX)
        except ReadFailedError as error:
            if self._is_directory(TOPIC_ID):
                self.topic_id_error = BadValueError("a directory in the place of a file", file=TOPIC_ID)
                return TopicIdFile.MALFORMED, None
            self.errors[TOPIC_ID] = error
            return TopicIdFile.UNREADABLE, None
        return (TopicIdFile.ABSENT, None) if data is None else self._topic_id_in(data, file.path)

    def _topic_id_in(self, data: bytes, path: str) -> tuple[TopicIdFile, bytes | None]:
        try:
            found = read_partition_metadata(data, file=path)
        except FormatError as error:
            self.topic_id_error = error
            fault = partition_metadata_fault(data)
            return TopicIdFile.PRESENT if fault is None else _TOPIC_ID_FILES[fault], None
        return (TopicIdFile.NEWER_VERSION if found.version else TopicIdFile.PRESENT), found.topic_id

    def _end(self) -> SegmentEnd | None:
        try:
            return read_segment_end(self.directory)
        except ReadFailedError as error:
            self.errors[LAST_SEGMENT] = error
            return None

    def _uncovered_magic(self, state: SmallFile, epochs: tuple[LeaderEpochEntry, ...], log_start: int | None) -> int | None:
        """Message format of the newest segment that begins below the first leader epoch."""
        if state in (SmallFile.MALFORMED, SmallFile.NEGATIVE, SmallFile.UNREADABLE):
            return None
        try:
            segment = self._uncovered_segment(epochs, log_start)
            return None if segment is None else first_magic(self.directory, segment)
        except ReadFailedError as error:
            self.errors[LAST_SEGMENT] = error
            return None

    def _uncovered_segment(self, epochs: tuple[LeaderEpochEntry, ...], log_start: int | None) -> SegmentFiles | None:
        segments = self.directory.segments
        if not segments:
            return None
        if not epochs:
            return next((segment for segment in reversed(segments) if segment.size_bytes), None)
        first = epochs[0].start_offset
        if first <= max(segments[0].base_offset, log_start or 0):
            is_remote_cut = log_start is not None and log_start < first and self.shutdown is Shutdown.CLEAN
            if is_remote_cut and segments[0].size_bytes:
                return segments[0]
            return None
        newest = next((each for each in reversed(segments) if each.base_offset < first and each.size_bytes), None)
        if newest is None or self.shutdown is Shutdown.CLEAN:
            return newest
        if self.shutdown is Shutdown.UNCLEAN and self._begins_an_epoch(newest, epochs[0]):
            return newest
        return None

    def _begins_an_epoch(self, segment: SegmentFiles, first: LeaderEpochEntry) -> bool:
        """Whether the batch below the first line of the checkpoint has a lower leader epoch, so that lines before it are gone.

        Where both have the same epoch, the broker itself cut the lines to a log start in the middle of it. It writes that log start into
        its own file once a minute, and a broker that was killed does not.
        """
        before = leader_epoch_below(self.directory, segment, first.start_offset)
        return before is not None and 0 <= before < first.epoch

    def _transaction_index_faults(self) -> tuple[tuple[int, TransactionIndexFault], ...]:
        """Faults that ``TransactionIndex.sanityCheck`` finds.

        Entry by entry, the first fault counts, and what is less than an entry is ignored.
        """
        found = []
        for segment in self.directory.segments:
            if not segment.transaction_index or segment.transaction_index < ENTRY_BYTES:
                continue
            path = self.directory.transaction_index_path(segment.base_offset)
            try:
                data = self.directory.store.read_small(path, limits.INDEX_BYTES_MAX)
            except ReadFailedError as error:
                self.errors[path.rpartition("/")[2]] = error
                continue
            faults = [] if data is None else _transaction_index_faults(data, segment.base_offset)
            found += [(segment.base_offset, fault) for fault in faults]
        return tuple(found)


def _as_loaded(epochs: Iterable[LeaderEpochEntry]) -> tuple[LeaderEpochEntry, ...]:
    """The epochs that a broker keeps, ascending in both numbers: a line takes the place of those before it that do not fit.

    Source: ``LeaderEpochFileCache.assign`` and ``maybeTruncateNonMonotonicEntries``.
    """
    kept: list[LeaderEpochEntry] = []
    for entry in epochs:
        if kept and kept[-1].epoch == entry.epoch and kept[-1].start_offset <= entry.start_offset:
            continue
        while kept and (kept[-1].epoch >= entry.epoch or kept[-1].start_offset >= entry.start_offset):
            kept.pop()
        kept.append(entry)
    return tuple(kept)


def _transaction_index_faults(data: bytes, base_offset: int) -> list[TransactionIndexFault]:
    """The first fault by the rules up to 4.3, and that of 4.4 where it is another one."""
    entries = np.frombuffer(data, _TRANSACTION, len(data) // ENTRY_BYTES)
    is_below = entries["last_offset"] < base_offset
    fault = _first_fault(entries["version"] > 0, is_below)
    newer = _first_fault(entries["version_of_two_bytes"] != 0, is_below)
    faults = [] if fault is None else [fault]
    if newer is TransactionIndexFault.VERSION and fault is not TransactionIndexFault.VERSION:
        faults.append(TransactionIndexFault.VERSION_OF_TWO_BYTES)
    return faults


def _first_fault(is_newer: NDArray[np.bool_], is_below: NDArray[np.bool_]) -> TransactionIndexFault | None:
    faulty = is_newer | is_below
    if not faulty.any():
        return None
    if is_newer[int(faulty.argmax())]:
        return TransactionIndexFault.VERSION
    return TransactionIndexFault.BELOW_BASE


def _unloadable(directory: PartitionDir) -> tuple[str, ...]:
    """Names that end like those of a segment's files, without an offset before the first dot."""
    found = []
    for name in directory.misnamed:
        known = parse_file_name(name)
        if known is None or known.offset is None or known.kind is FileKind.MISNAMED_SEGMENT_FILE:
            found.append(name)
    return tuple(found)


def _unreadable(directory: PartitionDir) -> tuple[str, ...]:
    if not directory.segments:
        return ()
    broker = directory.segments[-1].log.ownership
    files = [segment.log for segment in directory.segments] + [file for _, file in directory.snapshots]
    return tuple(file.name for file in files if not may_read(broker, file.ownership))


def may_read(broker: Ownership, file: Ownership) -> bool:
    """Whether the owner of the newest segment may read a file. Further groups of that user are not known."""
    if file is broker or broker.uid == 0:
        return True
    if file.uid == broker.uid:
        return bool(file.mode & stat.S_IRUSR)
    if file.gid == broker.gid:
        return bool(file.mode & stat.S_IRGRP)
    return bool(file.mode & stat.S_IROTH)
