"""Hints from the indexes of a segment; nothing relies on them."""

from __future__ import annotations

import numpy as np

from formats import limits
from formats.partition.offset_index import positions_hint
from formats.partition.time_index import TIME_INDEX_ENTRY_BYTES, TimeIndexEntry, last_entry_hint
from snaprebuild.errors import ChangedFileError, ReadFailedError
from snaprebuild.storage.store_path import ReadPath

__all__ = ["read_last_entry_hint", "read_last_timestamp_hint", "read_positions_hint"]

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
