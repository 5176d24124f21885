"""Checks the entries of indexes against the log that they point into, in one walk over its headers.

The indexes of a copy in remote storage are compared with its batches while these are read anyway. A broker that fetches from a copy loads
them (``RemoteIndexCache``) and follows their entries.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from formats.errors import BadValueError, FormatError
from formats.limits import INDEX_BYTES_MAX
from formats.log.batch_headers import HeaderBlock, HeaderReader, TailKind
from formats.log.control_record import ControlRecordType
from formats.partition.checkpoint_file import LeaderEpochEntry, read_leader_epoch_checkpoint
from formats.partition.file_names import DumpedKind
from formats.partition.index_entries import Index
from formats.partition.offset_index import read_offset_index
from formats.partition.time_index import read_time_index
from formats.remote.object_names import LocalTierFile
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import Finding, FindingCause, Severity, finding_of_error
from snaprebuild.replay.segment_summary import HIT_COLUMNS, IndexEntries, SegmentSummary, other_epochs
from snaprebuild.storage.partition_dir import PartitionDir, SegmentFiles
from snaprebuild.storage.store import OpenBytes
from snaprebuild.storage.store_path import ReadPath, StorePath

__all__ = [
    "IndexCheck",
    "IndexTally",
    "LogWalk",
    "OffsetIndexCheck",
    "TimeIndexCheck",
    "TransactionIndexCheck",
    "check_offset_index",
    "check_time_index",
    "check_transaction_index",
    "index_fault",
    "log_of_index",
    "read_index_entries",
]

_ENDINGS = {
    DumpedKind.OFFSET_INDEX: ".index",
    DumpedKind.TIME_INDEX: ".timeindex",
    DumpedKind.TRANSACTION_INDEX: ".txnindex",
}


def log_of_index(index: StorePath, kind: DumpedKind) -> StorePath | None:
    """The log of an index: the same name with the ending ``.log`` and the same marks; None where there is none."""
    directory, name = os.path.split(index.path)
    bare, ending, marks = name.rpartition(_ENDINGS[kind])
    log_name = f"{bare}.log{marks}"
    log = index.at(os.path.join(directory, log_name))
    is_there = os.path.isfile(log.path) if log.is_local else bool(ending and log.at(directory).present([log_name]))
    if ending and is_there:
        return log
    return None


@dataclass(slots=True)
class IndexCheck:
    """The comparison of each entry of an index with the log; all arrays have shape (entries,).

    Attributes:
        actual: int64, the value in the log at the place that the entry names.
        is_there: bool, whether it has a batch there at all.
        agrees: bool, the entry leads a broker to the right place.
        is_compared: bool; False after the place where the log ends early or in disorder.
        unchecked_reason: why some are not compared, or None.
    """

    actual: np.ndarray
    is_there: np.ndarray
    agrees: np.ndarray
    is_compared: np.ndarray
    unchecked_reason: str | None = None

    @classmethod
    def of(cls, count: int) -> IndexCheck:
        """Nothing found yet."""
        nowhere = np.zeros(count, dtype=bool)
        return cls(np.zeros(count, dtype=np.int64), nowhere, nowhere.copy(), ~nowhere)


class LogWalk:
    """The blocks of a log up to its end, or to the first batch that is not above the one before it."""

    def __init__(
        self,
        log: OpenBytes,
        columns: tuple[str, ...],
        *,
        read_markers: bool = False,
        check_crc: bool = False,
        hint: np.ndarray | None = None,
    ) -> None:
        """Takes what is walked.

        Args:
            log: the segment.
            columns: that are wanted besides the offsets.
            read_markers: read the records of control batches.
            check_crc: compute the checksum of every batch.
            hint: positions at which batches probably begin.
        """
        names = dict.fromkeys(("base_offset", "last_offset_delta", *columns))
        self._reader = HeaderReader(log, columns=tuple(names), read_markers=read_markers, check_crc=check_crc, hint=hint)
        self.fault: str | None = None
        self.end_offset = 0
        """The offset after the last batch that was seen."""
        self.end_position = 0

    @property
    def tail(self) -> TailKind | None:
        """How the log ends; None where that was not reached."""
        return None if self._reader.tail is None else self._reader.tail.kind

    def __iter__(self) -> Iterator[tuple[HeaderBlock, np.ndarray, np.ndarray]]:
        """Blocks with base and last offsets."""
        for block in self._reader:
            base = block.column("base_offset")
            last = base + block.column("last_offset_delta")
            before = np.concatenate((np.array([self.end_offset - 1]), last[:-1]))
            wrong = np.flatnonzero((base <= before) | (last < base))
            if len(wrong):
                end = int(wrong[0])
                self.end_position = int(block.position_bytes[end])
                self.fault = f"disorder at byte {self.end_position} of the log"
            else:
                end = len(block)
            if end:
                self.end_offset = int(last[end - 1]) + 1
                yield block.part(0, end), base[:end], last[:end]
            if self.fault is not None:
                return
        assert self._reader.tail is not None
        self.end_position = self._reader.tail.position_bytes
        if self._reader.tail.kind is TailKind.CORRUPT:
            self.fault = f"damage at byte {self.end_position} of the log"


class OffsetIndexCheck:
    """Whether a batch begins at the position of each entry, and one at or after it ends with its offset.

    The batch at the position itself need not end with it. An older broker that appends several batches at once, as a follower does,
    names the first position and the last offset.
    """

    columns: tuple[str, ...] = ()
    """Columns of the log that are compared."""

    def __init__(self, offset: np.ndarray, position: np.ndarray) -> None:
        """Takes the entries.

        Args:
            offset: int64 (n,), absolute, ascending.
            position: int64 (n,), ascending.
        """
        self._offset = offset
        self._position = position
        self._check = IndexCheck.of(len(offset))
        self._ends = np.zeros(len(offset), dtype=bool)
        self._begins = np.zeros(len(offset), dtype=bool)

    def add(self, block: HeaderBlock, base: np.ndarray, last: np.ndarray) -> None:
        """Takes the next block of the log."""
        position = self._position
        offset = self._offset
        start, stop = np.searchsorted(position, (block.position_bytes[0], block.position_bytes[-1] + 1))
        rows = np.searchsorted(block.position_bytes, position[start:stop])
        self._check.actual[start:stop] = last[rows]
        self._begins[start:stop] = block.position_bytes[rows] == position[start:stop]
        start, stop = np.searchsorted(offset, (last[0], last[-1] + 1))
        rows = np.searchsorted(last, offset[start:stop])
        self._ends[start:stop] = (last[rows] == offset[start:stop]) & (block.position_bytes[rows] >= position[start:stop])

    def result(self, walk: LogWalk) -> IndexCheck:
        """The comparison, after the log was walked."""
        check = self._check
        check.is_there = self._begins
        check.agrees = self._begins & self._ends
        return _compared(check, walk, (self._position < walk.end_position) & (self._offset < walk.end_offset))


class TimeIndexCheck:
    """Whether the batch that holds the offset of each entry has its timestamp as its greatest."""

    columns = ("max_timestamp", "magic")

    def __init__(self, offset: np.ndarray, timestamp: np.ndarray) -> None:
        """Takes the entries.

        Args:
            offset: int64 (n,), absolute, not descending.
            timestamp: int64 (n,), ms.
        """
        self._offset = offset
        self._timestamp = timestamp
        self._check = IndexCheck.of(len(offset))
        self._below = 0

    def add(self, block: HeaderBlock, base: np.ndarray, last: np.ndarray) -> None:
        """Takes the next block of the log."""
        check = self._check
        below = self._below
        stop = int(np.searchsorted(self._offset, last[-1], side="right"))
        rows = np.searchsorted(last, self._offset[below:stop])
        check.actual[below:stop] = block.column("max_timestamp")[rows]
        # The base offset of a wrapper message is inside of it.
        check.is_there[below:stop] = (base[rows] <= self._offset[below:stop]) | (block.column("magic")[rows] < 2)
        self._below = stop

    def result(self, walk: LogWalk) -> IndexCheck:
        """The comparison, after the log was walked."""
        check = self._check
        check.agrees = check.is_there & (check.actual == self._timestamp)
        return _compared(check, walk, self._offset < walk.end_offset)


class TransactionIndexCheck:
    """Whether an abort marker of the producer is at the last offset of each entry. The walk must read markers."""

    columns = ("producer_id",)

    def __init__(self, last_offset: np.ndarray, producer_id: np.ndarray) -> None:
        """Takes the entries.

        Args:
            last_offset: int64 (n,), ascending.
            producer_id: int64 (n,).
        """
        self._last_offset = last_offset
        self._producer_id = producer_id
        self._check = IndexCheck.of(len(last_offset))

    def add(self, block: HeaderBlock, base: np.ndarray, last: np.ndarray) -> None:
        """Takes the next block of the log."""
        aborts = block.control[block.marker_type == ControlRecordType.ABORT]
        start, stop = np.searchsorted(self._last_offset, (base[0], last[-1] + 1))
        if not len(aborts) or start == stop:
            return
        rows = aborts[np.minimum(np.searchsorted(last[aborts], self._last_offset[start:stop]), len(aborts) - 1)]
        self._check.actual[start:stop] = block.column("producer_id")[rows]
        self._check.is_there[start:stop] = last[rows] == self._last_offset[start:stop]

    def result(self, walk: LogWalk) -> IndexCheck:
        """The comparison, after the log was walked."""
        check = self._check
        check.agrees = check.is_there & (check.actual == self._producer_id)
        return _compared(check, walk, self._last_offset < walk.end_offset)


def _compared(check: IndexCheck, walk: LogWalk, reached: np.ndarray) -> IndexCheck:
    """Entries after a fault of the log are not judged."""
    if walk.fault is not None:
        check.is_compared = reached
        check.unchecked_reason = None if reached.all() else walk.fault
    return check


def _alone(check: OffsetIndexCheck | TimeIndexCheck | TransactionIndexCheck, log: OpenBytes) -> IndexCheck:
    walk = LogWalk(log, check.columns, read_markers=isinstance(check, TransactionIndexCheck))
    for block, base, last in walk:
        check.add(block, base, last)
    return check.result(walk)


def check_offset_index(log: OpenBytes, offset: np.ndarray, position: np.ndarray) -> IndexCheck:
    """An offset index checked against its log; see ``OffsetIndexCheck``."""
    return _alone(OffsetIndexCheck(offset, position), log)


def check_time_index(log: OpenBytes, offset: np.ndarray, timestamp: np.ndarray) -> IndexCheck:
    """A time index checked against its log; see ``TimeIndexCheck``."""
    return _alone(TimeIndexCheck(offset, timestamp), log)


def check_transaction_index(log: OpenBytes, last_offset: np.ndarray, producer_id: np.ndarray) -> IndexCheck:
    """A transaction index checked against its log; see ``TransactionIndexCheck``."""
    return _alone(TransactionIndexCheck(last_offset, producer_id), log)


T = TypeVar("T")


# -------------------------------------------------------------------------------------------------------- indexes of a copy


def read_index_entries(log: ReadPath, base_offset: int) -> IndexEntries:
    """The entries of a copy's indexes. An index that cannot be read counts as empty, so that its hits are too few."""

    def read_or(read: Callable[[ReadPath], T], default: T) -> T:
        try:
            return read(log)
        except (FormatError, ReadFailedError):
            return default

    offsets = read_or(_offset_index, read_offset_index(b""))
    times = read_or(_time_index, read_time_index(b""))
    no_epochs: tuple[LeaderEpochEntry, ...] = ()
    return _entries(offsets, times, read_or(_leader_epochs, no_epochs), base_offset)


def index_fault(log: ReadPath, segment: SegmentFiles) -> str | None:
    """The fault of the offset index, the time index or the leader epoch checkpoint of a copy. Its segment is read again.

    Args:
        log: the segment.
        segment: as it was listed.

    Returns:
        The reason; None where nothing is wrong, or where the segment itself is damaged, so that it proves nothing.

    Raises:
        ReadFailedError: an object cannot be read.
        RefusedError: it changed, or a limit of the run is used up.
    """
    base = segment.base_offset
    try:
        entries = _entries(_offset_index(log), _time_index(log), _leader_epochs(log), base)
    except FormatError as error:
        return error.message
    offsets = OffsetIndexCheck(entries.offset, entries.position)
    times = TimeIndexCheck(entries.time_offset, entries.timestamp)
    epoch_fault = None
    with log.open(segment.log.identity) as source:
        walk = LogWalk(source, HIT_COLUMNS, hint=entries.position)
        for block, first, last in walk:
            offsets.add(block, first, last)
            times.add(block, first, last)
            rows = np.flatnonzero(other_epochs(entries.epoch, entries.epoch_start, block))
            if len(rows) and not len(entries.epoch):
                epoch_fault = "its leader epoch checkpoint is empty"
            elif len(rows) and epoch_fault is None:
                batch = int(first[rows[0]])
                epoch = int(block.column("partition_leader_epoch")[rows[0]])
                expected_epoch = int(entries.epoch[np.searchsorted(entries.epoch_start, batch, side="right") - 1])
                epoch_fault = (
                    f"the batch at offset {batch} is of leader epoch {epoch}, and its checkpoint has epoch {expected_epoch} there"
                )
    if walk.fault is not None or walk.tail is not TailKind.CLEAN:
        return None
    wrong = np.flatnonzero(~offsets.result(walk).agrees)
    if len(wrong):
        number = int(wrong[0])
        points = f"offset {entries.offset[number]} at byte {entries.position[number]}"
        return f"entry {number} of its offset index has {points}, where no batch of the segment goes with it"
    wrong = np.flatnonzero(~times.result(walk).agrees)
    if len(wrong):
        number = int(wrong[0])
        points = f"timestamp {entries.timestamp[number]} at offset {entries.time_offset[number]}"
        return f"entry {number} of its time index has {points}, where no batch of the segment goes with it"
    return epoch_fault


class IndexTally:
    """Adds up the hits of each copy, and looks for the reason where they are too few."""

    def __init__(self, directory: PartitionDir) -> None:
        """Starts with no hits.

        Args:
            directory: the copies of one partition, as the listing of their segments.
        """
        self._directory = directory
        self._hits = 0

    def take(self, index: int, summary: SegmentSummary) -> list[Finding]:
        """Adds a summary; the finding about the indexes of the segment with the summary that ends it.

        Args:
            index: of the segment in the directory.
            summary: of the segment, or of its part up to the next cut.
        """
        segment = self._directory.segments[index]
        self._hits += summary.facts.index_hits
        if summary.cut_offset is not None:
            return []
        hits = self._hits
        self._hits = 0
        if hits == segment.index_hits or summary.tail.kind is not TailKind.CLEAN:
            return []
        log = self._directory.file(segment.log.name)
        path = log.path
        try:
            fault = index_fault(log, segment)
        except ReadFailedError as error:
            return [finding_of_error(error, path)]
        if fault is None:
            return []
        return [Finding("tier-bad-copy", Severity.DAMAGED, path, fault, segment.base_offset, cause=FindingCause.BAD_COPY)]


def _entries(offsets: Index[Any], times: Index[Any], epochs: tuple[LeaderEpochEntry, ...], base: int) -> IndexEntries:
    return IndexEntries(
        offsets.column("relative_offset") + base,
        offsets.column("position"),
        times.column("relative_offset") + base,
        times.column("timestamp"),
        np.array([entry.epoch for entry in epochs], dtype=np.int64),
        np.array([entry.start_offset for entry in epochs], dtype=np.int64),
    )


def _offset_index(log: ReadPath) -> Index[Any]:
    return _trimmed(read_offset_index(_file(log, LocalTierFile.OFFSET_INDEX)))


def _time_index(log: ReadPath) -> Index[Any]:
    return _trimmed(read_time_index(_file(log, LocalTierFile.TIME_INDEX)))


def _leader_epochs(log: ReadPath) -> tuple[LeaderEpochEntry, ...]:
    entries = read_leader_epoch_checkpoint(_file(log, LocalTierFile.LEADER_EPOCHS))
    for before, entry in pairwise(entries):
        if entry.epoch <= before.epoch or entry.start_offset < before.start_offset:
            expected = f"more than epoch {before.epoch} at offset {before.start_offset}"
            raise BadValueError("leader epoch checkpoint", expected=expected, found=f"{entry.epoch} at {entry.start_offset}")
    return entries


def _file(log: ReadPath, kind: LocalTierFile) -> bytes:
    return log.at(log.path.removesuffix(LocalTierFile.LOG) + kind).read_small(INDEX_BYTES_MAX) or b""


def _trimmed(index: Index[Any]) -> Index[Any]:
    """The index itself: a broker trims its indexes when it rolls the segment, before it uploads them.

    Raises:
        BadValueError: zeros follow its last entry.
    """
    if index.preallocated_bytes:
        what = index.grammar.what
        found = f"{index.preallocated_bytes} bytes of zeros"
        raise BadValueError(what, expected="nothing after its last entry", found=found)
    return index
