"""The entries of an index beside the log that they point into, in one walk over its headers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from formats.batch_headers import HeaderBlock, HeaderReader, TailKind
from formats.control_record import ControlRecordType
from formats.dumped_kind import DumpedKind
from snaprebuild.storage.store import OpenBytes, Store

__all__ = ["IndexCheck", "check_offset_index", "check_time_index", "check_transaction_index", "log_beside"]

_ENDINGS = {
    DumpedKind.OFFSET_INDEX: ".index",
    DumpedKind.TIME_INDEX: ".timeindex",
    DumpedKind.TRANSACTION_INDEX: ".txnindex",
}


def log_beside(index_path: str, kind: DumpedKind, store: Store) -> str | None:
    """The log of an index: the same name with the ending ``.log`` and the same marks; None where there is none."""
    directory, name = os.path.split(index_path)
    bare, ending, marks = name.rpartition(_ENDINGS[kind])
    log_name = f"{bare}.log{marks}"
    path = os.path.join(directory, log_name)
    is_there = os.path.isfile(path) if store.is_local else bool(ending and store.present(directory, [log_name]))
    return path if ending and is_there else None


@dataclass(slots=True)
class IndexCheck:
    """What the log says to each entry of an index; all arrays have shape (entries,).

    Attributes:
        found: int64, what the log has where the entry points.
        is_there: bool, whether it has a batch there at all.
        agrees: bool, the entry leads a broker to the right place.
        is_compared: bool; False behind the place where the log ends early or in disorder.
        unchecked_reason: why some are not compared, or None.
    """

    found: np.ndarray
    is_there: np.ndarray
    agrees: np.ndarray
    is_compared: np.ndarray
    unchecked_reason: str | None = None

    @classmethod
    def of(cls, count: int) -> IndexCheck:
        """Nothing found yet."""
        nowhere = np.zeros(count, dtype=bool)
        return cls(np.zeros(count, dtype=np.int64), nowhere, nowhere.copy(), ~nowhere)


class _Walk:
    """The blocks of a log up to its end, or to the first batch that does not lie behind the one before it."""

    def __init__(self, log: OpenBytes, columns: tuple[str, ...], *, read_markers: bool = False) -> None:
        wanted = ("base_offset", "last_offset_delta", *columns)
        self._reader = HeaderReader(log, columns=wanted, read_markers=read_markers)
        self.fault: str | None = None
        self.end_offset = 0
        """The offset behind the last batch that was seen."""
        self.end_position = 0

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


def check_offset_index(log: OpenBytes, offset: np.ndarray, position: np.ndarray) -> IndexCheck:
    """Whether a batch begins at the position of each entry, and one at or behind it ends with its offset.

    The batch at the position itself need not end with it: an older broker that appends several batches at once, as a follower does,
    names the first position and the last offset.

    Args:
        log: the segment.
        offset: int64 (n,), absolute, ascending.
        position: int64 (n,), ascending.
    """
    check = IndexCheck.of(len(offset))
    ends = np.zeros(len(offset), dtype=bool)
    begins = np.zeros(len(offset), dtype=bool)
    walk = _Walk(log, ())
    for block, _, last in walk:
        start, stop = np.searchsorted(position, (block.position_bytes[0], block.position_bytes[-1] + 1))
        rows = np.searchsorted(block.position_bytes, position[start:stop])
        check.found[start:stop] = last[rows]
        begins[start:stop] = block.position_bytes[rows] == position[start:stop]
        start, stop = np.searchsorted(offset, (last[0], last[-1] + 1))
        rows = np.searchsorted(last, offset[start:stop])
        ends[start:stop] = (last[rows] == offset[start:stop]) & (block.position_bytes[rows] >= position[start:stop])
    check.is_there = begins
    check.agrees = begins & ends
    if walk.fault is not None:
        check.is_compared = (position < walk.end_position) & (offset < walk.end_offset)
        check.unchecked_reason = None if check.is_compared.all() else walk.fault
    return check


def check_time_index(log: OpenBytes, offset: np.ndarray, timestamp: np.ndarray) -> IndexCheck:
    """Whether the batch that holds the offset of each entry has its timestamp as its greatest.

    Args:
        log: the segment.
        offset: int64 (n,), absolute, not descending.
        timestamp: int64 (n,), ms.
    """
    check = IndexCheck.of(len(offset))
    walk = _Walk(log, ("max_timestamp", "magic"))
    below = 0
    for block, base, last in walk:
        stop = int(np.searchsorted(offset, last[-1], side="right"))
        rows = np.searchsorted(last, offset[below:stop])
        check.found[below:stop] = block.column("max_timestamp")[rows]
        # The base offset of a wrapper message is inside of it.
        check.is_there[below:stop] = (base[rows] <= offset[below:stop]) | (block.column("magic")[rows] < 2)
        below = stop
    check.agrees = check.is_there & (check.found == timestamp)
    if walk.fault is not None:
        check.is_compared = offset < walk.end_offset
        check.unchecked_reason = None if check.is_compared.all() else walk.fault
    return check


def check_transaction_index(log: OpenBytes, last_offset: np.ndarray, producer_id: np.ndarray) -> IndexCheck:
    """Whether an abort marker of the producer stands at the last offset of each entry.

    Args:
        log: the segment.
        last_offset: int64 (n,), ascending.
        producer_id: int64 (n,).
    """
    check = IndexCheck.of(len(last_offset))
    walk = _Walk(log, ("producer_id",), read_markers=True)
    for block, base, last in walk:
        aborts = block.control[block.marker_type == ControlRecordType.ABORT]
        start, stop = np.searchsorted(last_offset, (base[0], last[-1] + 1))
        if not len(aborts) or start == stop:
            continue
        rows = aborts[np.minimum(np.searchsorted(last[aborts], last_offset[start:stop]), len(aborts) - 1)]
        check.found[start:stop] = block.column("producer_id")[rows]
        check.is_there[start:stop] = last[rows] == last_offset[start:stop]
    check.agrees = check.is_there & (check.found == producer_id)
    if walk.fault is not None:
        check.is_compared = last_offset < walk.end_offset
        check.unchecked_reason = None if check.is_compared.all() else walk.fault
    return check
