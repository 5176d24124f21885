"""``.index``: from offsets of a segment to positions in its log file.

An entry says that the records appended at ``position`` end with offset base offset + ``relative_offset``. That is the last offset
of the batch that begins there, or of a later one if several batches or messages were appended at once.
The index is sparse (``index.interval.bytes``) and strictly ascending. We never trust it: it only shortens searches.

Source: ``OffsetIndex``, ``AbstractIndex``.
"""

from __future__ import annotations

import msgspec
import numpy as np
from construct import Struct
from numpy.typing import NDArray

from formats import limits
from formats.partition.index_entries import Fault, Index, IndexGrammar
from formats.primitives import INT32

__all__ = [
    "OFFSET_INDEX_ENTRY",
    "OffsetIndexEntry",
    "positions_hint",
    "read_offset_index",
    "split_positions",
]

OFFSET_INDEX_ENTRY = Struct("relative_offset" / INT32, "position" / INT32)
"""8 bytes."""


class OffsetIndexEntry(msgspec.Struct, frozen=True):
    """One entry of an offset index.

    Attributes:
        relative_offset: int32, last offset of a batch at or after ``position``, minus the base offset of the segment.
        position: int32, where a batch begins in the log file, in bytes.
    """

    relative_offset: int
    position: int


def _fault_of(previous: OffsetIndexEntry | None, entry: OffsetIndexEntry) -> Fault | None:
    if previous is None:
        if entry.relative_offset < 0:
            return Fault("relative offset", "0 or higher", entry.relative_offset)
        return Fault("position", "0 or higher", entry.position) if entry.position < 0 else None
    if entry.relative_offset <= previous.relative_offset:
        return Fault("relative offset", f"more than {previous.relative_offset}", entry.relative_offset)
    if entry.position <= previous.position:
        return Fault("position", f"more than {previous.position}", entry.position)
    return None


def _faulty(columns: NDArray[np.void]) -> NDArray[np.bool_]:
    faulty = np.zeros(len(columns), np.bool_)
    for field in ("relative_offset", "position"):
        column = columns[field]
        faulty[:1] |= column[:1] < 0
        faulty[1:] |= column[1:] <= column[:-1]
    return faulty


_GRAMMAR = IndexGrammar("offset index", OFFSET_INDEX_ENTRY, OffsetIndexEntry, _fault_of, _faulty, preallocated=True)


def read_offset_index(data: bytes | memoryview, *, file: str | None = None) -> Index[OffsetIndexEntry]:
    """Reads an offset index.

    Args:
        data: the whole file.
        file: name of the file, for messages.

    Returns:
        The entries before the zeros of preallocation, with columns ``relative_offset`` and ``position``.

    Raises:
        TruncatedError: the size is no multiple of 8 (``OffsetIndex.sanityCheck``).
        BadValueError: an entry whose offset or position does not increase; the position is that of the entry.
        LimitExceededError: the file is larger than ``formats.limits`` allows.
    """
    return _GRAMMAR.read(data, file)


def positions_hint(data: bytes | memoryview, segment_bytes: int) -> NDArray[np.int64]:
    """Positions at which batches may begin, from an index that may be damaged, stale or of another file.

    Args:
        data: bytes of the index; a rest that is no whole entry is ignored.
        segment_bytes: size of the log file.

    Returns:
        Strictly increasing positions in (0, segment_bytes), native int64, shape (n,). A hint only: a batch need not begin there.
        Never raises.
    """
    columns = _GRAMMAR.view(memoryview(data).cast("B"), len(data))
    positions = columns["position"].astype(np.int64)
    positions = positions[(positions > 0) & (positions < segment_bytes)]
    if len(positions):
        greatest_before = np.maximum.accumulate(positions[:-1])
        positions = np.concatenate((positions[:1], positions[1:][positions[1:] > greatest_before]))
    return positions


def split_positions(hint: NDArray[np.int64] | None, size_bytes: int, target_bytes: int) -> tuple[int, ...]:
    """Where to split a segment into ranges of about ``target_bytes``, which can be read at the same time.

    Args:
        hint: of ``positions_hint``, or None without an index. Positions outside of the segment are not used.
        size_bytes: of the segment.
        target_bytes: of a range, at least 1. Where entries of the index are further apart, ranges are longer.

    Returns:
        Where the second range begins, the third and so on: strictly increasing positions in (0, size_bytes), taken from the hint;
        none for one range. At most ``limits.RANGES_MAX`` ranges.
    """
    ranges = min(-(-size_bytes // target_bytes), limits.RANGES_MAX)
    if hint is None or not len(hint) or ranges < 2:
        return ()
    ideal = np.arange(1, ranges, dtype=np.int64) * (size_bytes // ranges)
    chosen = hint[np.minimum(np.searchsorted(hint, ideal), len(hint) - 1)]
    return tuple(np.unique(chosen[(chosen > 0) & (chosen < size_bytes)]).tolist())
