"""The end offset of a small segment that has nothing unusual in it.

A segment of a few batches takes less time batch by batch than any array operation has as its fixed cost.
"""

from __future__ import annotations

from struct import Struct

from formats.limits import BATCH_HEADER_BYTES_MAX
from formats.log.record_batch import ATTRIBUTE_CONTROL, LENGTH_MIN, LOG_OVERHEAD_BYTES

__all__ = ["plain_log_end"]

_HEADER = Struct(">qi4xb4xhi").unpack_from
"""Unpacks fields of ``RECORD_BATCH_HEADER``: base offset, length, magic, attributes, last offset delta."""


def plain_log_end(data: bytes | bytearray) -> tuple[int, int] | None:
    """The offset after the last batch of a segment, by the lengths.

    Args:
        data: the whole segment.

    Returns:
        That offset, and where the last batch begins in the segment. None unless all bytes belong to whole batches of magic 2 that are
        no control batches: then ``batch_headers.HeaderReader`` shows what there is.
    """
    at = last = end = 0
    size = len(data)
    while size - at >= BATCH_HEADER_BYTES_MAX:
        base_offset, length, magic, attributes, delta = _HEADER(data, at)
        if magic != 2 or length < LENGTH_MIN[2] or attributes & ATTRIBUTE_CONTROL:
            return None
        last = at
        end = base_offset + delta + 1
        at += LOG_OVERHEAD_BYTES + length
    return (end, last) if at == size and size else None
