"""``.timeindex``: from timestamps to offsets of a segment.

An entry contains the greatest timestamp of the segment up to one batch, and an offset of that batch (base offset +
``relative_offset``, mostly its last). No earlier batch has a greater timestamp.
When a segment is rolled its greatest timestamp is appended, even to a full index.

Source: ``TimeIndex``, ``AbstractIndex``.
"""

from __future__ import annotations

import msgspec
import numpy as np
from construct import Struct
from numpy.typing import NDArray

from formats.partition.index_entries import Fault, Index, IndexGrammar, used_bytes
from formats.primitives import INT32, INT64

__all__ = [
    "TIME_INDEX_ENTRY",
    "TIME_INDEX_ENTRY_BYTES",
    "TimeIndexEntry",
    "last_entry_hint",
    "last_timestamp_hint",
    "read_time_index",
]

TIME_INDEX_ENTRY = Struct("timestamp" / INT64, "relative_offset" / INT32)
"""12 bytes."""

TIME_INDEX_ENTRY_BYTES = TIME_INDEX_ENTRY.sizeof()


class TimeIndexEntry(msgspec.Struct, frozen=True):
    """One entry of a time index.

    Attributes:
        timestamp: int64, milliseconds since the epoch.
        relative_offset: int32, offset minus the base offset of the segment.
    """

    timestamp: int
    relative_offset: int


def _fault_of(previous: TimeIndexEntry | None, entry: TimeIndexEntry) -> Fault | None:
    # Kafka appends only what is newer than NO_TIMESTAMP (-1), so nothing is negative. A lookup requires only that nothing
    # decreases, and so do we.
    timestamp_min = 0 if previous is None else previous.timestamp
    offset_min = 0 if previous is None else previous.relative_offset
    if entry.timestamp < timestamp_min:
        return Fault("timestamp", f"{timestamp_min} or higher", entry.timestamp)
    if entry.relative_offset < offset_min:
        return Fault("relative offset", f"{offset_min} or higher", entry.relative_offset)
    return None


def _faulty(columns: NDArray[np.void]) -> NDArray[np.bool_]:
    faulty = np.zeros(len(columns), np.bool_)
    for field in ("timestamp", "relative_offset"):
        column = columns[field]
        faulty[:1] |= column[:1] < 0
        faulty[1:] |= column[1:] < column[:-1]
    return faulty


_GRAMMAR = IndexGrammar("time index", TIME_INDEX_ENTRY, TimeIndexEntry, _fault_of, _faulty, preallocated=True)


def read_time_index(data: bytes | memoryview, *, file: str | None = None) -> Index[TimeIndexEntry]:
    """Reads a time index.

    Args:
        data: the whole file.
        file: name of the file, for messages.

    Returns:
        The entries before the zeros of preallocation, with columns ``timestamp`` and ``relative_offset``. An entry of timestamp 0
        at relative offset 0 looks like those zeros, and is counted with them when nothing follows it.

    Raises:
        TruncatedError: the size is no multiple of 12 (``TimeIndex.sanityCheck``).
        BadValueError: an entry that decreases; the position is that of the entry.
        LimitExceededError: the file is larger than ``formats.limits`` allows.
    """
    return _GRAMMAR.read(data, file)


def last_entry_hint(data: bytes | memoryview) -> TimeIndexEntry | None:
    """The last entry before the first fault of an index that may be damaged, stale or of another file.

    Args:
        data: bytes of the index; a rest that is no whole entry is ignored.

    Returns:
        The entry, or None when there is no usable one. A hint only. Never raises.
    """
    view = memoryview(data).cast("B")
    whole = len(view) - len(view) % _GRAMMAR.entry_bytes
    columns = _GRAMMAR.view(view, used_bytes(view[:whole], _GRAMMAR.entry_bytes))
    at_fault = np.flatnonzero(_faulty(columns))
    usable = int(at_fault[0]) if len(at_fault) else len(columns)
    if not usable:
        return None
    last = columns[usable - 1]
    return TimeIndexEntry(int(last["timestamp"]), int(last["relative_offset"]))


def last_timestamp_hint(data: bytes | memoryview) -> int | None:
    """The greatest timestamp of such an index, in milliseconds since the epoch: that of ``last_entry_hint``."""
    entry = last_entry_hint(data)
    return None if entry is None else entry.timestamp
