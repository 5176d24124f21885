"""Everything that replay needs to know of one segment: its effect on producer states, and the facts by which the result is judged.

A summary is small (one row for each producer of the segment), can be sent between processes, and of a closed segment never changes. Where
the state is wanted inside a segment, at an offset that is no boundary, the segment is cut there and has a summary for each piece.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from formats import limits
from formats.log.batch_headers import HeaderBlock, SegmentBytes, Tail, TailKind
from snaprebuild.replay.batch_contents import NOTHING, BatchContents, CollectedContents, contents_reader
from snaprebuild.replay.index_hits import IndexEntries
from snaprebuild.replay.segment_effect import SegmentEffect
from snaprebuild.replay.segment_facts import SegmentFacts

__all__ = ["Piece", "SegmentSummary", "read_pieces", "summaries_of", "summarise_pieces", "summarise_segment"]


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """What one segment holds, or one piece of it.

    Attributes:
        base_offset: of the segment, int64, from its name.
        cut_offset: the piece was cut off here, and another follows; None for the one that goes to the end of the segment.
        cut_batch_offset: base offset of the batch inside which the cut lies, which the next piece holds; None where it lies between two,
            or where the batch is not to be trusted.
        size_bytes: of the segment or piece.
        contents: of its batches: their facts with the gap before them, their effect on any producer state with the closed transactions
            that ``needed_closes`` leaves, and what was asked for.
        tail: where its batches end, and why; clean at a cut.
        bytes_read: of the segment.
        bytes_kept: of the segment, which were not read this time, because what they gave was kept by an earlier run.
    """

    base_offset: int
    cut_offset: int | None
    cut_batch_offset: int | None
    size_bytes: int
    contents: BatchContents
    tail: Tail
    bytes_read: int
    bytes_kept: int = 0

    @property
    def facts(self) -> SegmentFacts:
        """Of its batches. Without any, ``next_offset`` is that of the piece before, or the base offset."""
        return self.contents.facts

    @property
    def effect(self) -> SegmentEffect:
        """On any producer state."""
        return self.contents.effect

    def with_effect(self, effect: SegmentEffect) -> SegmentSummary:
        """The same with another effect."""
        return replace(self, contents=replace(self.contents, effect=effect))

    @classmethod
    def unread(cls, base_offset: int, size_bytes: int) -> SegmentSummary:
        """A stand-in for a segment that was not read."""
        tail = Tail(TailKind.CLEAN, 0)
        return cls(base_offset, None, None, size_bytes, NOTHING.behind(base_offset), tail, bytes_read=0)


def summarise_segment(
    source: SegmentBytes,
    base_offset: int,
    *,
    check_crc: bool = True,
    hint: np.ndarray | None = None,
    block_bytes: int = limits.HEADER_BLOCK_BYTES,
) -> SegmentSummary:
    """Reads a segment once, block by block.

    Args:
        source: its bytes.
        base_offset: from its name.
        check_crc: compute the checksum of every batch.
        hint: positions from the offset index, see ``HeaderReader``.
        block_bytes: bytes held at a time.

    Raises:
        TruncatedError: the segment became shorter while it was read.
        SnaprebuildError: whatever ``source`` raises when it cannot be read.
    """
    (whole,) = summarise_pieces(source, base_offset, (), is_last=True, check_crc=check_crc, hint=hint, block_bytes=block_bytes)
    return whole


def summarise_pieces(
    source: SegmentBytes,
    base_offset: int,
    cuts: Sequence[int],
    *,
    is_last: bool,
    check_crc: bool = True,
    hint: np.ndarray | None = None,
    block_bytes: int = limits.HEADER_BLOCK_BYTES,
    with_statistics: bool = False,
    traced_producer: int | None = None,
    indexes: IndexEntries | None = None,
) -> tuple[SegmentSummary, ...]:
    """The same in pieces.

    A cut lies before the first batch that does not end below its offset: there a broker stops that brings its state to that offset
    (``UnifiedLog.rebuildProducerState``).

    Args:
        source: its bytes.
        base_offset: from its name.
        cuts: offsets above the base offset and below that of the next segment, ascending, none twice.
        is_last: of the log: the state at its end is that of the rest, so that no cut is made there or above.
        check_crc: as above; so are ``hint`` and ``block_bytes``.
        hint: see there.
        block_bytes: see there.
        with_statistics: count the batches by kind and by producer, too.
        traced_producer: id of the producer whose batches are wanted, too.
        indexes: of the segment, whose hits are wanted, too.

    Returns:
        The piece before each cut, and the rest, which may have no batch. No piece for cuts behind an end that is not clean.

    Raises:
        TruncatedError: as above.
        SnaprebuildError: as above.
    """
    pieces, tail = read_pieces(
        source,
        base_offset,
        cuts,
        check_crc=check_crc,
        hint=hint,
        block_bytes=block_bytes,
        with_statistics=with_statistics,
        traced_producer=traced_producer,
        indexes=indexes,
    )
    return summaries_of(pieces, base_offset, cuts, tail=tail, size_bytes=source.size_bytes, is_last=is_last)


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive batches of a segment, up to a cut, or to where the reading ends.

    Attributes:
        contents: of them.
        end_bytes: where the batch begins that lies behind the cut; without a cut, where the reading ends.
        cut_offset: at its end; None for no cut.
        cut_batch_offset: base offset of the batch that lies around the cut, if that is to be trusted; else None.
        bytes_read: of the segment.
    """

    contents: BatchContents
    end_bytes: int
    bytes_read: int
    cut_offset: int | None = None
    cut_batch_offset: int | None = None


def read_pieces(
    source: SegmentBytes,
    base_offset: int,
    cuts: Sequence[int],
    *,
    check_crc: bool,
    hint: np.ndarray | None,
    block_bytes: int,
    with_statistics: bool,
    traced_producer: int | None,
    indexes: IndexEntries | None,
    start_bytes: int = 0,
    end_bytes: int | None = None,
) -> tuple[list[Piece], Tail]:
    """The piece before each of the cuts that a batch reaches, the rest after the last of them, and where the batches end.

    Args:
        source: as for ``summarise_pieces``; so are the others.
        base_offset: see there.
        cuts: see there.
        check_crc: see there.
        hint: see there.
        block_bytes: see there.
        with_statistics: see there.
        traced_producer: see there.
        indexes: see there.
        start_bytes: of a range (``summarise_range``).
        end_bytes: of a range; None for the end of the segment.
    """
    reader = contents_reader(
        source,
        check_crc=check_crc,
        hint=hint,
        block_bytes=block_bytes,
        with_statistics=with_statistics,
        start_bytes=start_bytes,
        end_bytes=end_bytes,
        with_indexes=indexes is not None,
    )
    done: list[Piece] = []
    waiting = deque(cuts)
    bytes_read = 0

    def begin() -> CollectedContents:
        return CollectedContents(base_offset, with_statistics=with_statistics, traced_producer=traced_producer, indexes=indexes)

    collected = begin()
    for block in reader:
        start = 0
        if waiting:
            # The first batch that does not end below an offset, in log order, even where offsets do not ascend.
            reached = np.maximum.accumulate(block.column("base_offset") + block.column("last_offset_delta"))
            while waiting and waiting[0] <= reached[-1]:
                cut = waiting.popleft()
                row = int(np.searchsorted(reached, cut))
                collected.add(block.part(start, row))
                start, position = row, int(block.position_bytes[row])
                around = _batch_around(cut, block, row)
                done.append(Piece(collected.contents(), position, reader.bytes_read - bytes_read, cut, around))
                bytes_read, collected = reader.bytes_read, begin()
        collected.add(block.part(start, len(block)) if start else block)
    assert reader.tail is not None
    done.append(Piece(collected.contents(), reader.tail.position_bytes, reader.bytes_read - bytes_read))
    return done, reader.tail


def _batch_around(offset: int, block: HeaderBlock, row: int) -> int | None:
    """Base offset of the batch in this row if ``offset`` lies inside it, for all that the batch itself tells."""
    base_offset = int(block.column("base_offset")[row])
    is_sound = block.column("magic")[row] == 2 and row not in block.bad_crc
    return base_offset if is_sound and base_offset < offset else None


def summaries_of(
    pieces: Sequence[Piece], base_offset: int, cuts: Sequence[int], *, tail: Tail, size_bytes: int, is_last: bool
) -> tuple[SegmentSummary, ...]:
    """Of all pieces of a segment.

    Args:
        pieces: of ``read_pieces``, or as it would give them.
        base_offset: as for ``summarise_pieces``; so are ``cuts`` and ``is_last``.
        cuts: see there.
        tail: of the segment; ``size_bytes``: its size.
        size_bytes: see there.
        is_last: see there.
    """
    done: list[SegmentSummary] = []
    start_bytes, start_offset = 0, base_offset

    def add(piece: Piece, tail: Tail, end_bytes: int) -> None:
        nonlocal start_bytes, start_offset
        contents, around = piece.contents.behind(start_offset), piece.cut_batch_offset
        next_offset = contents.facts.next_offset
        if around is not None and around < next_offset:
            around = None
        size = end_bytes - start_bytes
        summary = SegmentSummary(base_offset, piece.cut_offset, around, size, contents, tail, piece.bytes_read)
        done.append(summary)
        # The next piece begins where the batches of this one ended: it counts the gap in which the cut lies.
        start_bytes, start_offset = end_bytes, next_offset

    *before, rest = pieces
    for piece in before:
        add(piece, Tail(TailKind.CLEAN, piece.end_bytes), piece.end_bytes)
    is_log_end = is_last and tail.kind is not TailKind.CORRUPT
    end_offset = rest.contents.facts.next_offset if rest.contents.facts.batches else start_offset
    # Behind a clean end nothing more comes below the next segment; behind another one, only below the end itself.
    for cut in cuts[len(before) :]:
        if is_log_end or (tail.kind is not TailKind.CLEAN and cut > end_offset):
            break
        add(replace(rest, cut_offset=cut), Tail(TailKind.CLEAN, tail.position_bytes), tail.position_bytes)
        with_statistics = rest.contents.statistics is not None
        nothing = CollectedContents(base_offset, with_statistics=with_statistics, traced_producer=None).contents()
        rest = Piece(nothing, tail.position_bytes, 0)
    add(rest, tail, size_bytes)
    return tuple(done)
