"""Checks the entries of indexes against the log that they point into, in one walk over its headers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from formats.log.batch_headers import HeaderBlock, HeaderReader, TailKind
from formats.log.control_record import ControlRecordType
from formats.partition.file_names import DumpedKind
from snaprebuild.storage.store import OpenBytes
from snaprebuild.storage.store_path import StorePath

__all__ = [
    "IndexCheck",
    "LogWalk",
    "OffsetIndexCheck",
    "TimeIndexCheck",
    "TransactionIndexCheck",
    "check_offset_index",
    "check_time_index",
    "check_transaction_index",
    "log_of_index",
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
    return log if ending and is_there else None


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
