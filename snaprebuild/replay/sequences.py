"""Sequence numbers of a producer's batches.

Source: ``DefaultRecordBatch.incrementSequence``.
"""

from __future__ import annotations

__all__ = ["last_sequence_of"]


def last_sequence_of(base_sequence: int, last_offset_delta: int) -> int:
    """Sequence of the last record: -1 stays -1, and sequences wrap to 0 after 2^31 - 1."""
    if base_sequence == -1:
        return -1
    last = base_sequence + last_offset_delta
    return last - 2**31 if last > 2**31 - 1 else last
