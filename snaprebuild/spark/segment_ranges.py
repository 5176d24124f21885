"""A large segment in ranges of bytes that are read in parallel, and the proof that their results equal that of the whole segment.

A range begins at a position of the offset index, which may be wrong, and is summarised without the batches before it. It proves
nothing until ``join_ranges`` has joined all ranges of the segment: each must end where the next one begins.

If the segment has cuts (``summarise_pieces``), each range is cut at all that its batches reach. Among the ranges that reach a cut,
the first one counts: if offsets ascend, the others begin after the cut. If they do not ascend, the segment is read whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Unpack

from formats.log.batch_headers import SegmentBytes, Tail, TailKind
from snaprebuild.replay.segment_summary import (
    BatchContents,
    BatchRun,
    Piece,
    SegmentSummary,
    SummaryOptions,
    joined_contents,
    read_pieces,
    summaries_of,
)

__all__ = ["CachedRange", "RangeSummary", "WhyWhole", "join_ranges", "summarise_range"]


class RangeSummary(BatchRun, frozen=True, kw_only=True):
    """The contents of a range of bytes of a segment, if batches begin at its positions, which only ``join_ranges`` proves.

    Attributes:
        base_offset: of the segment.
        end_bytes: where the range ends, excluded.
        source_bytes: size of the segment when it was opened.
        tail: where its batches end; see ``HeaderReader.tail``.
    """

    base_offset: int
    start_bytes: int
    end_bytes: int
    source_bytes: int
    tail: Tail


class CachedRange(RangeSummary, frozen=True):
    """The summary of a range that was not read, because an earlier run kept its effect: see ``partition_task.CachedSummary``."""

    bytes_cached: int = 0


class WhyWhole(Enum):
    """Why ranges give no summary of their segment, so that it must be read whole."""

    CROSSED = "crossed"
    """A batch crosses the end of a range: the index that gave the positions is of another file, or the segment is damaged."""
    DISORDER = "disorder"
    """Offsets do not ascend: the effect of such a segment depends on which of its batches are read together."""


def summarise_range(
    source: SegmentBytes,
    base_offset: int,
    start_bytes: int,
    end_bytes: int | None,
    *,
    cuts: Sequence[int] = (),
    **options: Unpack[SummaryOptions],
) -> tuple[RangeSummary, ...]:
    """Reads a range of a segment, in any order with the others, or in parallel.

    Args:
        source: the bytes of the whole segment.
        base_offset: from its name.
        start_bytes: 0, or one of ``formats.partition.offset_index.split_positions``.
        end_bytes: the next one of these, or None for the last range.
        cuts: all those of the segment.
        options: how the segment is read; the same for all ranges.

    Returns:
        The range, or its parts between the cuts that its batches reach. The first part may have no batch.

    Raises:
        TruncatedError: the segment does not reach to the range, or became shorter while it was read.
        SnaprebuildError: any error of ``source`` if it cannot be read.
    """
    pieces, end_tail = read_pieces(source, base_offset, cuts, start_bytes=start_bytes, end_bytes=end_bytes, **options)
    size = source.size_bytes
    end = size if end_bytes is None else end_bytes
    summaries = []
    for piece in pieces:
        is_cut = piece.cut_offset is not None
        until, tail = (piece.end_bytes, Tail(TailKind.CLEAN, piece.end_bytes)) if is_cut else (end, end_tail)
        summaries.append(
            RangeSummary(
                base_offset=base_offset,
                start_bytes=start_bytes,
                end_bytes=until,
                source_bytes=size,
                contents=piece.contents,
                tail=tail,
                read_bytes=piece.read_bytes,
                cut_offset=piece.cut_offset,
                cut_batch_offset=piece.cut_batch_offset,
            )
        )
        start_bytes = until
    return tuple(summaries)


def join_ranges(
    parts: Sequence[RangeSummary], cuts: Sequence[int] = (), *, is_last: bool = True
) -> tuple[SegmentSummary, ...] | WhyWhole:
    """The summaries of a segment from those of its ranges, equal to those of ``summarise_pieces``.

    The first range begins with a batch. If the batches of a range end at its end, the next range begins with a batch, too. So all positions
    are proven up to the first range that ends otherwise. If that is because of damage, a reader of the whole segment stops there, and the
    ranges after it, whose positions nothing proves, are left out.

    Args:
        parts: all of one segment in order, read with the same options; those after damage may be missing.
        cuts: with which they were read.
        is_last: of its partition, so that a torn end is usual.

    Returns:
        The summaries, or why there are none. ``read_bytes`` is that of all parts: a little more or less than that of the whole segment,
        because the blocks differ, and much more after damage.

    Raises:
        ValueError: the parts are not those of one segment, or some are missing.
    """
    pieces: list[Piece] = []
    proven: list[BatchContents] = []
    end_bytes = read_bytes = 0
    for part in parts:
        if (part.start_bytes, part.base_offset) != (end_bytes, parts[0].base_offset):
            other = f"a range of segment {part.base_offset} from {part.start_bytes} on"
            raise ValueError(f"expected a range of segment {parts[0].base_offset} from {end_bytes} on, found {other}")
        end_bytes = part.end_bytes
        proven.append(part.contents)
        read_bytes += part.read_bytes
        if part.cut_offset is not None and part.cut_offset == next(iter(cuts[len(pieces) :]), None):
            pieces.append(
                Piece(
                    contents=joined_contents(proven),
                    end_bytes=end_bytes,
                    read_bytes=read_bytes,
                    cut_offset=part.cut_offset,
                    cut_batch_offset=part.cut_batch_offset,
                )
            )
            proven = []
            read_bytes = 0
        if part.tail.kind is not TailKind.CLEAN:
            break
        if part.tail.position_bytes != end_bytes:
            return WhyWhole.CROSSED
    else:
        if not parts or end_bytes != parts[-1].source_bytes:
            raise ValueError(f"expected ranges up to the end of the segment, found none from {end_bytes} on")
    read_bytes = sum(each.read_bytes for each in parts) - sum(piece.read_bytes for piece in pieces)
    pieces.append(Piece(contents=joined_contents(proven), end_bytes=end_bytes, read_bytes=read_bytes))
    summaries = summaries_of(pieces, part.base_offset, cuts, tail=part.tail, size_bytes=part.source_bytes, is_last=is_last)
    if any(each.facts.disorder_offset is not None for each in summaries):
        return WhyWhole.DISORDER
    return summaries
