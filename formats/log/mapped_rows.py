"""Headers of large batches, taken from a mapping of the segment instead of a copy of all its bytes.

Of a batch of 16 KiB 61 bytes are wanted. Where the bytes are in memory already, a mapping costs a tenth of reading them.

Mapped bytes can change between two looks. So headers are copied once, and whatever follows uses that copy: the proof that each batch
ends where the next one begins, and the columns. What is not proven is read in the usual way.

Checksums need all bytes, and then a copy is as fast: a page fault for every page costs as much as copying it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeGuard

import numpy as np

from formats.log.batch_rows import Rows, are_current, gather, native
from formats.log.batch_walk import SAMPLED_BATCHES, chain_end, seeds_from_hints, walk_by_length, walk_from_seeds

__all__ = ["MAPPED_BATCH_BYTES_MIN", "WINDOW_BYTES", "MappedBytes", "gives_windows", "mapped_rows"]

WINDOW_BYTES = 64 << 20
"""How much of a segment is mapped at a time, at most."""

MAPPED_BATCH_BYTES_MIN = 6 << 10
"""Mean size from which on a mapping is faster: a page fault costs as much as copying about this much."""


class MappedBytes(Protocol):
    """A segment whose bytes may be looked at in place."""

    def window(self, position_bytes: int, count: int) -> memoryview | None:
        """Mapped bytes from a position on, ``count`` or fewer; None if they have to be read.

        They may change while they are looked at. If they vanish, the process ends.
        """


def gives_windows(source: object) -> TypeGuard[MappedBytes]:
    """Whether a segment is one of these: `isinstance` takes tens of microseconds for a protocol."""
    return hasattr(source, "window")


def mapped_rows(
    source: MappedBytes, position: int, end: int, dtype: np.dtype[np.void], hint: np.ndarray | None
) -> Iterator[tuple[Rows, int]]:
    """The rows of whole batches from ``position`` on, window by window, as long as all is usual and in memory.

    Args:
        source: the segment.
        position: where a batch begins.
        end: of the part that is read.
        dtype: of a row (``row_dtype``).
        hint: as for ``HeaderReader``.

    Yields:
        The rows of a window, and where the next batch begins. What follows the last of these has to be read.
    """
    while end - position > MAPPED_BATCH_BYTES_MIN:
        window = source.window(position, min(WINDOW_BYTES, end - position))
        found = None if window is None else _proven_rows(window, position, dtype, hint)
        if window is None or found is None:
            break
        rows, offsets, stop = found
        del window, found  # unmapped before the caller uses the rows
        yield Rows(offsets + position, rows, np.zeros(0, dtype=np.int64)), position + stop
        position += stop


def _proven_rows(
    window: memoryview, position: int, dtype: np.dtype[np.void], hint: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, int] | None:
    """Rows, offsets in the window, and the end of the last one; None if batches are small, or not those of a usual segment."""
    buffer = np.frombuffer(window, dtype=np.uint8)
    filled = len(buffer) - dtype.itemsize  # a row can be taken wherever a batch begins below it
    length_position = dtype.fields["length"][1]  # type: ignore[index]
    sample, end, _ = walk_by_length(window, filled, length_position, most=SAMPLED_BATCHES)
    if end < len(sample) * MAPPED_BATCH_BYTES_MIN or not len(sample):
        return None
    seeds = None if hint is None else seeds_from_hints(hint, position, filled)
    offsets = None if seeds is None else walk_from_seeds(buffer, filled, seeds, length_position)
    if offsets is None:
        offsets, _, _ = walk_by_length(window, filled, length_position)
        if not len(offsets):  # the first length has changed since
            return None
    rows = gather(buffer, offsets, dtype)
    proven = chain_end(offsets, native(rows["length"]), filled)
    if proven is None or proven[0] == 0:
        return None
    count, end = proven
    rows = rows[:count]
    return (rows, offsets[:count], end) if are_current(rows) else None
