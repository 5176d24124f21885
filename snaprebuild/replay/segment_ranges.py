"""A huge segment in ranges of bytes, read side by side, and the proof that what they hold is what the whole segment holds.

A range begins at a position of the offset index, which may lie, and tells what its batches hold without what lies before it. That is no
fact before ``join_ranges`` has put the ranges of the segment together: each must end where the next one begins.

A segment with cuts (``summarise_pieces``) is not split: where an offset is reached depends on all batches before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from formats import limits
from formats.batch_headers import SegmentBytes, Tail, TailKind
from snaprebuild.replay.batch_contents import BatchContents, CollectedContents, contents_reader, joined_contents
from snaprebuild.replay.segment_summary import SegmentSummary

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
    """

    base_offset: int
    start_bytes: int
    end_bytes: int
    source_bytes: int
    contents: BatchContents
    tail: Tail
    bytes_read: int
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
) -> RangeSummary:
    """Reads a range of a segment, in any order with the others, or beside them.

    Args:
        source: the bytes of the whole segment.
        base_offset: from its name.
        start_bytes: 0, or one of ``formats.offset_index.split_positions``.
        end_bytes: the next one of these, or None for the last range.
        check_crc: as for ``summarise_pieces``; so are the others, which must be the same for all ranges.
        hint: see there.
        block_bytes: see there.
        with_statistics: see there.
        traced_producer: see there.

    Raises:
        TruncatedError: the segment does not reach to the range, or became shorter while it was read.
        SnaprebuildError: as above.
    """
    reader = contents_reader(
        source,
        check_crc=check_crc,
        hint=hint,
        block_bytes=block_bytes,
        with_statistics=with_statistics,
        start_bytes=start_bytes,
        end_bytes=end_bytes,
    )
    collected = CollectedContents(base_offset, with_statistics=with_statistics, traced_producer=traced_producer)
    for block in reader:
        collected.add(block)
    assert reader.tail is not None
    size = source.size_bytes
    end = size if end_bytes is None else end_bytes
    return RangeSummary(base_offset, start_bytes, end, size, collected.contents(), reader.tail, reader.bytes_read)


def join_ranges(parts: Sequence[RangeSummary]) -> SegmentSummary | WhyWhole:
    """The summary of a segment out of those of its ranges: what ``summarise_segment`` says of it, field by field.

    The first range begins with a batch; where the batches of a range end at its end, the next one begins with a batch, too. So all
    positions are proven up to the first range that ends otherwise. If that is by damage, one who reads the whole segment stops there, and
    the ranges behind it, whose positions nothing proves, are left out.

    Args:
        parts: of one segment, all in order, read with the same options; none is needed behind damage.

    Returns:
        The summary, or why there is none. ``bytes_read`` is that of all parts: a little more or less than of the segment read whole, as
        the blocks lie differently, and behind damage much more.

    Raises:
        ValueError: the parts are not those of one segment, or some are missing.
    """
    proven: list[BatchContents] = []
    end_bytes = 0
    for part in parts:
        if (part.start_bytes, part.base_offset) != (end_bytes, parts[0].base_offset):
            found = f"a range of segment {part.base_offset} from {part.start_bytes} on"
            raise ValueError(f"expected a range of segment {parts[0].base_offset} from {end_bytes} on, found {found}")
        end_bytes = part.end_bytes
        proven.append(part.contents)
        if part.tail.kind is not TailKind.CLEAN:
            break
        if part.tail.position_bytes != end_bytes:
            return WhyWhole.CROSSED
    else:
        if not parts or end_bytes != parts[-1].source_bytes:
            raise ValueError(f"expected ranges up to the end of the segment, found none from {end_bytes} on")
    contents = joined_contents(proven)
    bytes_read, bytes_kept = (sum(getattr(each, name) for each in parts) for name in ("bytes_read", "bytes_kept"))
    base_offset, size_bytes, tail = part.base_offset, part.source_bytes, part.tail
    whole = SegmentSummary.of(
        contents,
        base_offset,
        start_offset=base_offset,
        size_bytes=size_bytes,
        tail=tail,
        bytes_read=bytes_read,
        bytes_kept=bytes_kept,
    )
    return whole if whole.disorder_offset is None else WhyWhole.DISORDER
