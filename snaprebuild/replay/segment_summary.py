"""What replay needs from one segment: its effect on producer states, and the facts that decide the class of the result.

A summary is small (one row for each producer of the segment), can be sent between processes, and never changes for a rolled segment. If the
state inside a segment is needed, at an offset that is no boundary, the segment is cut there and has a summary for each piece.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypedDict, Unpack

import msgspec
import numpy as np
from msgspec.structs import replace

from formats import limits
from formats.log.batch_headers import HeaderBlock, HeaderReader, SegmentBytes, Tail, TailKind
from snaprebuild.replay.block_effect import EFFECT_COLUMNS, effect_of_block
from snaprebuild.replay.first_events import FirstEvents, first_events_of_block, joined_events
from snaprebuild.replay.running_effect import Levels, joined, stacked
from snaprebuild.replay.segment_effect import IDENTITY, SegmentEffect
from snaprebuild.replay.segment_facts import FACT_COLUMNS, HIT_COLUMNS, NO_FACTS, IndexEntries, SegmentFacts
from snaprebuild.replay.transactions import index_relevant

__all__ = [
    "BLOCK_ROWS",
    "SUMMARY_COLUMNS",
    "Analysis",
    "AnalysisPart",
    "BatchContents",
    "BatchRun",
    "Joiner",
    "Piece",
    "ReadOptions",
    "SegmentSummary",
    "joined_contents",
    "read_pieces",
    "summaries_of",
    "summarise_pieces",
]

BLOCK_ROWS = 65_536
"""Batches that are summarised together: composing their effects for each producer should be the smaller part of the work."""

SUMMARY_COLUMNS = tuple(sorted({*EFFECT_COLUMNS, *FACT_COLUMNS}))


class Joiner(Protocol):
    """Joins what an analysis found in runs of batches that follow each other."""

    def add(self, part: Any) -> None:
        """Adds what it found in the next run."""

    def total(self) -> Any:
        """What it found in all runs."""


class AnalysisPart(Protocol):
    """What an analysis found in a run of batches."""

    def joiner(self) -> Joiner:
        """Joins it with the parts after it."""


class Analysis(Protocol):
    """Something else that a reader wants of the batches of a segment. A value that is sent to the process that reads the segment."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the headers that it needs, in addition to ``SUMMARY_COLUMNS``."""

    def of_block(self, block: HeaderBlock, base_offset: int) -> AnalysisPart:
        """What it finds in a block, which is not empty, of the segment with this base offset."""


class BatchContents(msgspec.Struct, frozen=True):
    """What consecutive batches contain. It does not depend on what is before them.

    Attributes:
        facts: counts, extremes and the order of offsets.
        effect: on any producer state; of its closed transactions those that ``index_relevant`` leaves.
        commits_omitted: committed transactions that are not among those of the effect.
        first_events: of each producer; None if not requested, or without batches.
        extras: what the analyses of ``ReadOptions`` found, in their order; empty without batches.
    """

    facts: SegmentFacts = NO_FACTS
    effect: SegmentEffect = IDENTITY
    commits_omitted: int = 0
    first_events: FirstEvents | None = None
    extras: tuple[Any, ...] = ()

    def after(self, offset: int) -> BatchContents:
        """The same batches after a batch that ends at ``offset`` - 1 (``SegmentFacts.after``)."""
        return replace(self, facts=self.facts.after(offset))


class _JoinedContents:
    """Joins the contents of runs of batches that follow each other."""

    def __init__(self) -> None:
        self._facts = NO_FACTS
        self._levels: Levels = ()
        self._commits_omitted = 0
        self._first_events: list[FirstEvents] = []
        self._extras: list[Joiner] = []

    def add(self, contents: BatchContents) -> None:
        """Adds the contents of the next run."""
        self._facts = self._facts.then(contents.facts)
        *before, last = stacked(self._levels, contents.effect)
        self._levels = (*before, self._with_relevant_closes(last))
        self._commits_omitted += contents.commits_omitted
        if contents.first_events is not None:
            self._first_events.append(contents.first_events)
        self._extras = self._extras or [part.joiner() for part in contents.extras]
        for joiner, part in zip(self._extras, contents.extras, strict=False):  # a run without batches has no parts
            joiner.add(part)

    def total(self) -> BatchContents:
        """The contents of all runs."""
        effect = self._with_relevant_closes(joined(self._levels))
        first_events = joined_events(self._first_events) if self._first_events else None
        extras = tuple(joiner.total() for joiner in self._extras)
        return BatchContents(self._facts, effect, self._commits_omitted, first_events, extras)

    def _with_relevant_closes(self, effect: SegmentEffect) -> SegmentEffect:
        relevant = index_relevant(effect.closes)
        self._commits_omitted += len(effect.closes) - len(relevant)
        return effect.with_closes(relevant)


def joined_contents(contents: Iterable[BatchContents]) -> BatchContents:
    """The contents of runs of batches that follow each other."""
    total = _JoinedContents()
    for each in contents:
        total.add(each)
    return total.total()


class BatchRun(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive batches of a segment, up to a cut, or to where reading ends.

    Attributes:
        contents: of its batches.
        bytes_read: of the segment.
        cut_offset: the run was cut off here, and another follows; None for no cut.
        cut_batch_offset: base offset of the batch around the cut, which is in the next run; None if the cut is between two batches, or the
            batch cannot be trusted.
    """

    contents: BatchContents
    bytes_read: int
    cut_offset: int | None = None
    cut_batch_offset: int | None = None


class SegmentSummary(BatchRun, frozen=True, kw_only=True):
    """What a segment contains, or one piece of it. The facts of its ``contents`` include the gap before them.

    Attributes:
        base_offset: of the segment, from its name.
        size_bytes: of the segment or piece.
        tail: where its batches end, and why; clean at a cut.
    """

    base_offset: int
    size_bytes: int
    tail: Tail

    @property
    def facts(self) -> SegmentFacts:
        """Facts of its batches. Without any, ``next_offset`` is that of the piece before, or the base offset."""
        return self.contents.facts

    @property
    def effect(self) -> SegmentEffect:
        """Effect on any producer state."""
        return self.contents.effect

    def with_effect(self, effect: SegmentEffect) -> SegmentSummary:
        """The same with another effect."""
        return replace(self, contents=replace(self.contents, effect=effect))

    @classmethod
    def unread(cls, base_offset: int, size_bytes: int) -> SegmentSummary:
        """A placeholder for a segment that was not read."""
        contents = BatchContents().after(base_offset)
        return cls(base_offset=base_offset, size_bytes=size_bytes, contents=contents, tail=Tail(TailKind.CLEAN, 0), bytes_read=0)


class ReadOptions(TypedDict, total=False):
    """How a segment is read.

    Attributes:
        check_crc: compute the checksum of every batch (default).
        hint: positions from the offset index, see ``HeaderReader``.
        block_bytes: bytes that are held at a time.
        with_first_events: also find the first events of each producer.
        indexes: of the segment, to be compared with its batches; None for no comparison.
        extras: other analyses of its batches.
    """

    check_crc: bool
    hint: np.ndarray | None
    block_bytes: int
    with_first_events: bool
    indexes: IndexEntries | None
    extras: Sequence[Analysis]


def summarise_pieces(
    source: SegmentBytes, base_offset: int, cuts: Sequence[int], *, is_last: bool, **options: Unpack[ReadOptions]
) -> tuple[SegmentSummary, ...]:
    """Reads a segment once, block by block, and cuts it in pieces.

    A cut is before the first batch that does not end below its offset. That is where a broker stops when it brings its state to that offset
    (``UnifiedLog.rebuildProducerState``).

    Args:
        source: its bytes.
        base_offset: from its name.
        cuts: distinct offsets above the base offset and below that of the next segment, ascending.
        is_last: of the log: the state at its end is that of the last piece, so no cut is made there or above.
        options: see ``ReadOptions``.

    Returns:
        The piece before each cut, and the rest, which may have no batch. No piece for cuts after an end that is not clean.

    Raises:
        TruncatedError: the segment became shorter while it was read.
        SnaprebuildError: any error of ``source`` if it cannot be read.
    """
    pieces, tail = read_pieces(source, base_offset, cuts, **options)
    return summaries_of(pieces, base_offset, cuts, tail=tail, size_bytes=source.size_bytes, is_last=is_last)


class Piece(BatchRun, frozen=True, kw_only=True):
    """A run as it was read, which does not know what is before it.

    Attributes:
        end_bytes: where the batch after the cut begins; without a cut, where reading ends.
    """

    end_bytes: int


def read_pieces(
    source: SegmentBytes,
    base_offset: int,
    cuts: Sequence[int],
    *,
    start_bytes: int = 0,
    end_bytes: int | None = None,
    check_crc: bool = True,
    hint: np.ndarray | None = None,
    block_bytes: int = limits.HEADER_BLOCK_BYTES,
    with_first_events: bool = False,
    indexes: IndexEntries | None = None,
    extras: Sequence[Analysis] = (),
) -> tuple[list[Piece], Tail]:
    """The piece before each cut that a batch reaches, the rest after the last of them, and where the batches end.

    Args:
        source: see ``summarise_pieces``.
        base_offset: see ``summarise_pieces``.
        cuts: see ``summarise_pieces``.
        start_bytes: of a range (``summarise_range``).
        end_bytes: of a range; None for the end of the segment.
        check_crc: see ``ReadOptions``, as for the arguments after it.
        hint: see ``ReadOptions``.
        block_bytes: see ``ReadOptions``.
        with_first_events: see ``ReadOptions``.
        indexes: see ``ReadOptions``.
        extras: see ``ReadOptions``.
    """
    columns = {*SUMMARY_COLUMNS, *(() if indexes is None else HIT_COLUMNS)}
    columns.update(*(analysis.columns for analysis in extras))
    reader = HeaderReader(
        source,
        check_crc=check_crc,
        hint=hint,
        start_bytes=start_bytes,
        end_bytes=end_bytes,
        block_bytes=block_bytes,
        block_rows=BLOCK_ROWS,
        columns=tuple(columns),
    )

    def add(block: HeaderBlock) -> None:
        if len(block):
            facts = SegmentFacts.of_block(block, indexes)
            first_events = first_events_of_block(block) if with_first_events else None
            parts = tuple(analysis.of_block(block, base_offset) for analysis in extras)
            collected.add(BatchContents(facts, effect_of_block(block), 0, first_events, parts))

    done: list[Piece] = []
    waiting = deque(cuts)
    collected, bytes_read = _JoinedContents(), 0
    for block in reader:
        start = 0
        if waiting:
            # The first batch that does not end below an offset, in log order, even if offsets do not ascend.
            reached = np.maximum.accumulate(block.column("base_offset") + block.column("last_offset_delta"))
            while waiting and waiting[0] <= reached[-1]:
                cut = waiting.popleft()
                row = int(np.searchsorted(reached, cut))
                add(block.part(start, row))
                start, position = row, int(block.position_bytes[row])
                around = _batch_around(cut, block, row)
                done.append(
                    Piece(
                        contents=collected.total(),
                        end_bytes=position,
                        bytes_read=reader.bytes_read - bytes_read,
                        cut_offset=cut,
                        cut_batch_offset=around,
                    )
                )
                collected, bytes_read = _JoinedContents(), reader.bytes_read
        add(block.part(start, len(block)) if start else block)
    assert reader.tail is not None
    end = reader.tail.position_bytes
    done.append(Piece(contents=collected.total(), end_bytes=end, bytes_read=reader.bytes_read - bytes_read))
    return done, reader.tail


def _batch_around(offset: int, block: HeaderBlock, row: int) -> int | None:
    """Base offset of the batch in this row if ``offset`` is inside it and the batch can be trusted."""
    base_offset = int(block.column("base_offset")[row])
    is_sound = block.column("magic")[row] == 2 and row not in block.bad_crc
    return base_offset if is_sound and base_offset < offset else None


def summaries_of(
    pieces: Sequence[Piece], base_offset: int, cuts: Sequence[int], *, tail: Tail, size_bytes: int, is_last: bool
) -> tuple[SegmentSummary, ...]:
    """The summaries of a segment.

    Args:
        pieces: all of the segment, as ``read_pieces`` returns them.
        base_offset: as for ``summarise_pieces``.
        cuts: as for ``summarise_pieces``.
        tail: of the segment.
        size_bytes: of the segment.
        is_last: as for ``summarise_pieces``.
    """
    done: list[SegmentSummary] = []
    start_bytes, start_offset = 0, base_offset

    def add(piece: Piece, tail: Tail, end_bytes: int) -> None:
        nonlocal start_bytes, start_offset
        contents, around = piece.contents.after(start_offset), piece.cut_batch_offset
        next_offset = contents.facts.next_offset
        if around is not None and around < next_offset:
            around = None
        done.append(
            SegmentSummary(
                base_offset=base_offset,
                cut_offset=piece.cut_offset,
                cut_batch_offset=around,
                size_bytes=end_bytes - start_bytes,
                contents=contents,
                tail=tail,
                bytes_read=piece.bytes_read,
            )
        )
        # The next piece begins where the batches of this one ended: the gap around the cut counts as part of it.
        start_bytes, start_offset = end_bytes, next_offset

    *before, rest = pieces
    for piece in before:
        add(piece, Tail(TailKind.CLEAN, piece.end_bytes), piece.end_bytes)
    is_log_end = is_last and tail.kind is not TailKind.CORRUPT
    end_offset = rest.contents.facts.next_offset if rest.contents.facts.batches else start_offset
    # After a clean end no batch follows below the next segment; after another one, none below the end itself.
    for cut in cuts[len(before) :]:
        if is_log_end or (tail.kind is not TailKind.CLEAN and cut > end_offset):
            break
        add(replace(rest, cut_offset=cut), Tail(TailKind.CLEAN, tail.position_bytes), tail.position_bytes)
        rest = Piece(contents=BatchContents(), end_bytes=tail.position_bytes, bytes_read=0)
    add(rest, tail, size_bytes)
    return tuple(done)
