"""A huge segment in ranges of bytes, read side by side, and the proof that what they hold is what the whole segment holds.

A range begins at a position of the offset index, which may lie, and tells what its batches hold without what lies before it. That is no
fact before ``join_ranges`` has put the ranges of the segment together: each must end where the next one begins.

Of a segment with cuts (``summarise_pieces``) each range is cut at all that its batches reach. Of the ranges that reach a cut, the first
one has its place: where offsets ascend, those behind it begin behind the cut, and where they do not, the segment is read whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from formats import limits
from formats.log.batch_headers import SegmentBytes, Tail, TailKind
from snaprebuild.replay.batch_contents import BatchContents, joined_contents
from snaprebuild.replay.index_hits import IndexEntries
from snaprebuild.replay.segment_summary import Piece, SegmentSummary, read_pieces, summaries_of

__all__ = ["RangeSummary", "WhyWhole", "join_ranges", "summarise_range"]


@dataclass(frozen=True, slots=True)
class RangeSummary:
    """What a range of bytes of a segment holds, if its positions are those of batches, which only ``join_ranges`` can tell.

    Attributes:
        base_offset: of the segment.
        start_bytes: where it begins; ``end_bytes``: where it ends, excluded.
        source_bytes: size of the segment when it was opened.
        contents: of the batches that were found.
        tail: where they end; see ``HeaderReader.tail``.
        bytes_read: of the segment; ``bytes_kept``: likewise not read (``SegmentSummary``).
        cut_offset: where the range was cut off, because its next batch reaches this offset; ``end_bytes`` is where that begins. None where
            it ends by itself.
        cut_batch_offset: as of a ``Piece``.
    """

    base_offset: int
    start_bytes: int
    end_bytes: int
    source_bytes: int
    contents: BatchContents
    tail: Tail
    bytes_read: int
    cut_offset: int | None = None
    cut_batch_offset: int | None = None
    bytes_kept: int = 0


class WhyWhole(Enum):
    """Why ranges do not make a summary of their segment, so that it must be read whole."""

    CROSSED = "crossed"
    """A batch lies across the end of a range: the index that gave the positions is of another file, or the segment is damaged."""
    DISORDER = "disorder"
    """Offsets do not ascend: what such a segment does to the producers depends on which of its batches are looked at together."""


def summarise_range(
    source: SegmentBytes,
    base_offset: int,
    start_bytes: int,
    end_bytes: int | None,
    *,
    check_crc: bool = True,
    hint: np.ndarray | None = None,
    block_bytes: int = limits.HEADER_BLOCK_BYTES,
    with_statistics: bool = False,
    traced_producer: int | None = None,
    cuts: Sequence[int] = (),
    indexes: IndexEntries | None = None,
) -> tuple[RangeSummary, ...]:
    """Reads a range of a segment, in any order with the others, or beside them.

    Args:
        source: the bytes of the whole segment.
        base_offset: from its name.
        start_bytes: 0, or one of ``formats.partition.offset_index.split_positions``.
        end_bytes: the next one of these, or None for the last range.
        check_crc: as for ``summarise_pieces``; so are the others, which must be the same for all ranges.
        hint: see there.
        block_bytes: see there.
        with_statistics: see there.
        traced_producer: see there.
        cuts: all those of the segment.
        indexes: of the segment, whose hits are wanted, too.

    Returns:
        The range, or what lies between the cuts that its batches reach, the first of which may have no batch.

    Raises:
        TruncatedError: the segment does not reach to the range, or became shorter while it was read.
        SnaprebuildError: as above.
    """
    pieces, end_tail = read_pieces(
        source,
        base_offset,
        cuts,
        check_crc=check_crc,
        hint=hint,
        block_bytes=block_bytes,
        with_statistics=with_statistics,
        traced_producer=traced_producer,
        indexes=indexes,
        start_bytes=start_bytes,
        end_bytes=end_bytes,
    )
    size = source.size_bytes
    end = size if end_bytes is None else end_bytes
    found = []
    for piece in pieces:
        is_cut = piece.cut_offset is not None
        until, tail = (piece.end_bytes, Tail(TailKind.CLEAN, piece.end_bytes)) if is_cut else (end, end_tail)
        cut = piece.cut_offset, piece.cut_batch_offset
        found.append(RangeSummary(base_offset, start_bytes, until, size, piece.contents, tail, piece.bytes_read, *cut))
        start_bytes = until
    return tuple(found)


def join_ranges(
    parts: Sequence[RangeSummary], cuts: Sequence[int] = (), *, is_last: bool = True
) -> tuple[SegmentSummary, ...] | WhyWhole:
    """The summaries of a segment out of those of its ranges: what ``summarise_pieces`` says of it, field by field.

    The first range begins with a batch; where the batches of a range end at its end, the next one begins with a batch, too. So all
    positions are proven up to the first range that ends otherwise. If that is by damage, one who reads the whole segment stops there, and
    the ranges behind it, whose positions nothing proves, are left out.

    Args:
        parts: of one segment, all in order, read with the same options; none is needed behind damage.
        cuts: that they were read with.
        is_last: as for ``summarise_pieces``.

    Returns:
        The summaries, or why there are none. ``bytes_read`` is that of all parts: a little more or less than of the segment read whole, as
        the blocks lie differently, and behind damage much more.

    Raises:
        ValueError: the parts are not those of one segment, or some are missing.
    """
    pieces: list[Piece] = []
    proven: list[BatchContents] = []
    end_bytes = bytes_read = 0
    for part in parts:
        if (part.start_bytes, part.base_offset) != (end_bytes, parts[0].base_offset):
            found = f"a range of segment {part.base_offset} from {part.start_bytes} on"
            raise ValueError(f"expected a range of segment {parts[0].base_offset} from {end_bytes} on, found {found}")
        end_bytes = part.end_bytes
        proven.append(part.contents)
        bytes_read += part.bytes_read
        if part.cut_offset is not None and part.cut_offset == next(iter(cuts[len(pieces) :]), None):
            cut = part.cut_offset, part.cut_batch_offset
            pieces.append(Piece(joined_contents(proven), end_bytes, bytes_read, *cut))
            proven, bytes_read = [], 0
        if part.tail.kind is not TailKind.CLEAN:
            break
        if part.tail.position_bytes != end_bytes:
            return WhyWhole.CROSSED
    else:
        if not parts or end_bytes != parts[-1].source_bytes:
            raise ValueError(f"expected ranges up to the end of the segment, found none from {end_bytes} on")
    behind = sum(each.bytes_read for each in parts) - bytes_read - sum(piece.bytes_read for piece in pieces)
    pieces.append(Piece(joined_contents(proven), end_bytes, bytes_read + behind))
    summaries = summaries_of(pieces, part.base_offset, cuts, tail=part.tail, size_bytes=part.source_bytes, is_last=is_last)
    if any(each.facts.disorder_offset is not None for each in summaries):
        return WhyWhole.DISORDER
    # Of a segment that is cut nothing is kept.
    *before, last = summaries
    return (*before, replace(last, bytes_kept=sum(each.bytes_kept for each in parts)))
