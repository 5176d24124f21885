"""A huge segment read in parts by tasks that cannot communicate: no batch is lost or read twice, whatever its offset index has.

A part begins at a joint, a position of the index, which may be wrong. The tasks before and after a joint both read the same bytes
before it. Whole batches with right checksums must lead from an earlier entry of the index to the joint.
If they do not, both tasks know that it is no joint: the task before it reads on to the next joint, and the task after it reads
nothing. If they do, the task before it must still end exactly there, or the query ends.
So by induction from the first byte, a query that does not end with an error has read each batch once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from formats.log.batch_headers import HeaderReader, SegmentBytes, Tail, TailKind
from formats.partition.offset_index import split_positions
from snaprebuild.errors import ReadFailedError

__all__ = ["Joint", "bounds_of_part", "check_end_of_part", "joints_of"]

LOOK_BACK_BYTES = 256 << 10
"""Bytes before a joint that both of its tasks read, at least. If an index is consistently wrong for this long, into records that
hold batches of their own, the query ends."""

LOOK_BACK_BYTES_MAX = 16 << 20
"""If the index has no entry for longer than this, there is no joint."""


@dataclass(frozen=True, slots=True)
class Joint:
    """Where one part may end and the next one begin.

    Attributes:
        position_bytes: in the segment.
        anchor_bytes: an earlier position, from which batches must lead there.
    """

    position_bytes: int
    anchor_bytes: int


def joints_of(hint: np.ndarray | None, size_bytes: int, target_bytes: int) -> tuple[Joint, ...]:
    """Where to split a segment into parts of about ``target_bytes``; the arguments are those of ``split_positions``."""
    joints = []
    for position in split_positions(hint, size_bytes, target_bytes):
        assert hint is not None
        before = int(np.searchsorted(hint, position - LOOK_BACK_BYTES, side="right"))
        anchor = int(hint[before - 1]) if before else 0
        if position - anchor <= LOOK_BACK_BYTES_MAX:
            joints.append(Joint(position, anchor))
    return tuple(joints)


def bounds_of_part(source: SegmentBytes, joints: Sequence[Joint], part: int) -> tuple[int, int | None] | None:
    """Where a part begins and ends. The end is None at the end of the segment; the result is None if its neighbour reads the part.

    Args:
        source: the bytes of the whole segment.
        joints: of the segment.
        part: from 0; one more part than joints.

    Raises:
        TruncatedError: the segment became shorter.
        SnaprebuildError: it cannot be read.
    """
    if part and not _holds(source, joints[part - 1]):
        return None
    start = joints[part - 1].position_bytes if part else 0
    return start, next((joint.position_bytes for joint in joints[part:] if _holds(source, joint)), None)


def check_end_of_part(tail: Tail, end_bytes: int | None, path: str) -> None:
    """Checks that the batches of a part lead to its end.

    Args:
        tail: of the part.
        end_bytes: from ``bounds_of_part``.
        path: of the segment, for messages.

    Raises:
        FormatError: the segment is damaged before the end of the part.
        ReadFailedError: the batches lead elsewhere, so that the next part does not begin with one.
    """
    if end_bytes is None or (tail.kind is TailKind.CLEAN and tail.position_bytes == end_bytes):
        return
    if tail.kind is TailKind.CORRUPT and tail.error is not None:
        raise tail.error
    message = f"the batches lead to byte {tail.position_bytes}, and not to byte {end_bytes}, as its offset index has it"
    raise ReadFailedError(f"{message}: read it with the option splitSegments=false", path=path)


def _holds(source: SegmentBytes, joint: Joint) -> bool:
    """Whether whole batches with right checksums lead from the anchor to the joint; both tasks get the same answer."""
    reader = HeaderReader(
        source,
        check_crc=True,
        start_bytes=joint.anchor_bytes,
        end_bytes=joint.position_bytes,
        columns=(),
        read_markers=False,
    )
    if any(len(block.bad_crc) for block in reader):
        return False
    return reader.tail == Tail(TailKind.CLEAN, joint.position_bytes)
