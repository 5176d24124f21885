"""A huge segment read in parts by tasks that cannot ask each other: no batch is lost or read twice, whatever its offset index says.

A part begins at a joint, a position of the index, which may be wrong. Two tasks meet there, and both look at the same bytes before it:
whole batches with right checksums have to lead from an earlier entry of the index to the joint. Where they do not, both know that it is
none: the one before it reads on to the next joint, and the one after it reads nothing. Where they do, the one before it must still end
exactly there, or the query ends. So by induction from the first byte, a query that does not end by an error has read each batch once.
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
"""Read before a joint by both of its tasks, at least. An index that is consistently wrong for so long, into records that hold
batches of their own, ends the query."""

LOOK_BACK_BYTES_MAX = 16 << 20
"""Where the index has no entry for longer than this, there is no joint."""


@dataclass(frozen=True, slots=True)
class Joint:
    """Where one part may end and the next one begin.

    Attributes:
        position_bytes: in the segment.
        anchor_bytes: an earlier position, from which batches have to lead there.
    """

    position_bytes: int
    anchor_bytes: int


def joints_of(hint: np.ndarray | None, size_bytes: int, target_bytes: int) -> tuple[Joint, ...]:
    """Where to split a segment into parts of about ``target_bytes``; the arguments are those of ``split_positions``."""
    found = []
    for position in split_positions(hint, size_bytes, target_bytes):
        assert hint is not None
        before = int(np.searchsorted(hint, position - LOOK_BACK_BYTES, side="right"))
        anchor = int(hint[before - 1]) if before else 0
        if position - anchor <= LOOK_BACK_BYTES_MAX:
            found.append(Joint(position, anchor))
    return tuple(found)


def bounds_of_part(source: SegmentBytes, joints: Sequence[Joint], part: int) -> tuple[int, int | None] | None:
    """Where a part begins and ends; None as its end for the end of the segment, and for both where its neighbour reads it.

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
    """The batches of a part must lead to its end.

    Args:
        tail: of the part.
        end_bytes: as ``bounds_of_part`` gave it.
        path: of the segment, for messages.

    Raises:
        FormatError: the segment is damaged before the end of the part.
        ReadFailedError: the batches lead elsewhere, so that the next part does not begin with one.
    """
    if end_bytes is None or (tail.kind is TailKind.CLEAN and tail.position_bytes == end_bytes):
        return
    if tail.kind is TailKind.CORRUPT and tail.error is not None:
        raise tail.error
    found = f"the batches lead to byte {tail.position_bytes}, and not to byte {end_bytes}, as its offset index has it"
    raise ReadFailedError(f"{found}: read it with the option splitSegments=false", path=path)


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
