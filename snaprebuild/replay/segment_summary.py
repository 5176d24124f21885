"""The summary of one segment for a replay: its effect on producer states, and the facts that decide the class of the result.

A summary is small (one row for each producer of the segment), can be sent between processes, and never changes for a rolled segment. If the
state inside a segment is needed, at an offset that is no boundary, the segment is cut there and has a summary for each piece.

Facts of a run of batches do not depend on where the batch before it ended: the gap or disorder between two runs is found when they are
joined. So joining is associative, and runs may be consecutive blocks, or ranges of a segment that were read in parallel.

Source of the index entries: ``OffsetIndex``, ``TimeIndex``, ``LeaderEpochFileCache``.
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
from formats.log.control_record import ControlRecordType
from formats.log.record_batch import ATTRIBUTE_CONTROL
from snaprebuild.replay.block_effect import EFFECT_COLUMNS, effect_of_block
from snaprebuild.replay.first_events import FirstEvents, first_events_of_block, joined_events
from snaprebuild.replay.segment_effect import IDENTITY, Levels, SegmentEffect, index_relevant, joined, stacked

__all__ = [
    "BAD_CRC_LISTED_MAX",
    "BLOCK_ROWS",
    "FACT_COLUMNS",
    "HIT_COLUMNS",
    "NO_FACTS",
    "SUMMARY_COLUMNS",
    "Analysis",
    "AnalysisPart",
    "BatchContents",
    "BatchRun",
    "BatchTotals",
    "IndexEntries",
    "Joiner",
    "Piece",
    "SegmentSummary",
    "SummaryOptions",
    "joined_contents",
    "other_epochs",
    "read_pieces",
    "summaries_of",
    "summarise_pieces",
]


BAD_CRC_LISTED_MAX = 100
"""Positions of damaged batches that are named; all are counted."""

FACT_COLUMNS = ("attributes", "base_offset", "last_offset_delta", "magic", "max_timestamp", "record_count")
"""Fields of a header on which the facts depend."""


class BatchTotals(msgspec.Struct, frozen=True):
    """Counts and extremes of consecutive batches.

    Attributes:
        batches: count of whole batches. Without any, all others have their defaults.
        base_offset: of the first batch; of a message of magic 0 or 1 that is its last offset.
        begins_with_magic_2: whether offsets between the end of the batch before and ``base_offset`` are a gap.
        next_offset: last offset of the last batch + 1.
        max_timestamp: greatest timestamp of any header, ms; -1 for none.
        bad_crc_count: batches whose checksum differs.
        bad_crc: (position in bytes, base offset) of the first ``BAD_CRC_LISTED_MAX`` of them.
        missing_offsets: offsets between the batches that no batch covers: compaction removed whole batches.
        partial_batches: batches of magic 2 with fewer records than offsets: compaction removed records.
        empty_control_batches: control batches without their record: compaction removed markers.
        disorder_offset: base offset of the first batch that begins before the end of the one before it, or ends before it begins.
        commit_markers: commit markers with their record.
        abort_markers: abort markers with their record.
        index_hits: index entries that agree with the batches (``IndexEntries.hits``); 0 if they were not compared.
    """

    batches: int = 0
    base_offset: int = 0
    begins_with_magic_2: bool = False
    next_offset: int = 0
    max_timestamp: int = -1
    bad_crc_count: int = 0
    bad_crc: tuple[tuple[int, int], ...] = ()
    missing_offsets: int = 0
    partial_batches: int = 0
    empty_control_batches: int = 0
    disorder_offset: int | None = None
    commit_markers: int = 0
    abort_markers: int = 0
    index_hits: int = 0

    @classmethod
    def of_block(cls, block: HeaderBlock, indexes: IndexEntries | None = None) -> BatchTotals:
        """The facts of a block, which is not empty and has ``FACT_COLUMNS``, and ``HIT_COLUMNS`` if indexes are given."""
        (facts,) = cls.of_parts(block, np.zeros(1, dtype=np.int64))
        return facts if indexes is None else replace(facts, index_hits=indexes.hits(block))

    @classmethod
    def of_parts(cls, block: HeaderBlock, starts: np.ndarray) -> list[BatchTotals]:
        """The facts of each part of a block.

        Args:
            block: not empty, with ``FACT_COLUMNS``.
            starts: int64 (k,), the row with which each part begins, strictly ascending from 0.
        """
        base, delta, count = (block.column(name) for name in ("base_offset", "last_offset_delta", "record_count"))
        is_new = block.column("magic") == 2
        following = base + delta + 1
        is_control = block.column("attributes") & ATTRIBUTE_CONTROL != 0
        ends = np.append(starts[1:], len(block))

        def inside(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[int]]:
            """Where the ascending rows of each part begin and end, and how many each part has."""
            first = np.searchsorted(rows, starts)
            stop = np.searchsorted(rows, ends)
            return first, stop, (stop - first).tolist()

        disorder = base[1:] < following[:-1]
        # The first offset of a wrapper message (magic 0 or 1) is unknown, so no gap is counted before it.
        gap = is_new[1:] & (base[1:] > following[:-1])
        disorder[starts[1:] - 1] = gap[starts[1:] - 1] = False  # between two parts
        is_disordered = following <= base
        is_disordered[1:] |= disorder
        disordered = is_disordered.nonzero()[0]
        first_disordered, _, disorders = inside(disordered)
        gaps = gap.nonzero()[0] + 1
        first_gap, stop_gap, _ = inside(gaps)
        missing = np.append(0, np.cumsum(base[gaps] - following[gaps - 1]))
        empty = (count == 0).nonzero()[0]
        first_bad, stop_bad, bad_counts = inside(block.bad_crc)
        columns = zip(
            starts.tolist(),
            ends.tolist(),
            np.maximum.reduceat(block.column("max_timestamp"), starts).tolist(),
            (missing[stop_gap] - missing[first_gap]).tolist(),
            inside(((count != delta + 1) & is_new).nonzero()[0])[2],
            inside(empty[is_new[empty] & is_control[empty]])[2],
            inside(block.control[block.marker_type == ControlRecordType.COMMIT])[2],
            inside(block.control[block.marker_type == ControlRecordType.ABORT])[2],
            strict=True,
        )
        offsets = []
        for part, (start, end, latest, missing_offsets, partial, empty_control, commits, aborts) in enumerate(columns):
            bad = block.bad_crc[first_bad[part] : stop_bad[part]][:BAD_CRC_LISTED_MAX]
            offsets.append(
                cls(
                    batches=end - start,
                    base_offset=int(base[start]),
                    begins_with_magic_2=bool(is_new[start]),
                    next_offset=int(base[end - 1]) + int(delta[end - 1]) + 1,
                    max_timestamp=max(-1, latest),
                    bad_crc_count=bad_counts[part],
                    bad_crc=tuple(zip(block.position_bytes[bad].tolist(), base[bad].tolist(), strict=True)),
                    missing_offsets=missing_offsets,
                    partial_batches=partial,
                    empty_control_batches=empty_control,
                    disorder_offset=int(base[disordered[first_disordered[part]]]) if disorders[part] else None,
                    commit_markers=commits,
                    abort_markers=aborts,
                )
            )
        return offsets

    def after(self, offset: int) -> BatchTotals:
        """These batches after a batch that ends at ``offset`` - 1: with the gap or the disorder between them.

        Without batches the next offset is ``offset``.
        """
        if not self.batches:
            return replace(self, next_offset=offset)
        gap = self.base_offset - offset
        if gap < 0:
            return replace(self, disorder_offset=self.base_offset)
        if gap and self.begins_with_magic_2:
            return replace(self, missing_offsets=self.missing_offsets + gap)
        return self

    @property
    def first_offset(self) -> int | None:
        """Base offset of the first batch; None without batches, or when that is a message of magic 0 or 1."""
        return self.base_offset if self.begins_with_magic_2 else None

    def then(self, following: BatchTotals) -> BatchTotals:
        """The facts of these batches and the following ones. Associative, with ``NO_FACTS`` as its unit."""
        if not self.batches or not following.batches:
            return self if self.batches else following
        rest = following.after(self.next_offset)
        sums = {name: getattr(self, name) + getattr(rest, name) for name in _SUMS}
        return BatchTotals(
            base_offset=self.base_offset,
            begins_with_magic_2=self.begins_with_magic_2,
            next_offset=rest.next_offset,
            max_timestamp=max(self.max_timestamp, rest.max_timestamp),
            bad_crc=(self.bad_crc + rest.bad_crc)[:BAD_CRC_LISTED_MAX],
            disorder_offset=rest.disorder_offset if self.disorder_offset is None else self.disorder_offset,
            **sums,
        )


_SUMS = (
    "batches",
    "bad_crc_count",
    "missing_offsets",
    "partial_batches",
    "empty_control_batches",
    "commit_markers",
    "abort_markers",
    "index_hits",
)

NO_FACTS = BatchTotals()


# ---------------------------------------------------------------------------------------------------------------- indexes

HIT_COLUMNS = ("base_offset", "last_offset_delta", "magic", "max_timestamp", "partition_leader_epoch")
"""Fields of a header that are compared with index entries."""


class IndexEntries(msgspec.Struct, frozen=True, eq=False):
    """The entries of the indexes of one segment; all arrays are int64.

    Attributes:
        offset: of the offset index, absolute, ascending; ``position``: in bytes, ascending.
        time_offset: of the time index, absolute; ``timestamp``: ms since 1970; both do not descend.
        epoch: of the leader epoch checkpoint; ``epoch_start``: first offset of each, ascending.
    """

    offset: np.ndarray
    position: np.ndarray
    time_offset: np.ndarray
    timestamp: np.ndarray
    epoch: np.ndarray
    epoch_start: np.ndarray

    def hits(self, block: HeaderBlock) -> int:
        """2 for each entry of the offset index and 1 for each of the time index that agree, minus 1 for each batch of another epoch.

        Summed over the whole segment this is ``2 * len(offset) + len(timestamp)`` if everything agrees, and less otherwise. So the sum only
        detects that an index may be damaged; ``snapshots.engine.index_check`` then finds the entry.

        Args:
            block: not empty, with ``HIT_COLUMNS``.
        """
        base = block.column("base_offset")
        positions = block.position_bytes
        last = base + block.column("last_offset_delta")
        begins = np.count_nonzero(np.isin(self.position, positions))
        inside = (self.offset >= last[0]) & (self.offset <= last[-1])
        rows = np.minimum(np.searchsorted(last, self.offset[inside]), len(last) - 1)
        ends = np.count_nonzero((last[rows] == self.offset[inside]) & (positions[rows] >= self.position[inside]))
        inside = (self.time_offset >= base[0]) & (self.time_offset <= last[-1])
        rows = np.minimum(np.searchsorted(last, self.time_offset[inside]), len(last) - 1)
        same = block.column("max_timestamp")[rows] == self.timestamp[inside]
        times = np.count_nonzero(same & (base[rows] <= self.time_offset[inside]))
        return int(begins + ends + times) - int(np.count_nonzero(other_epochs(self.epoch, self.epoch_start, block)))


def other_epochs(epoch: np.ndarray, epoch_start: np.ndarray, block: HeaderBlock) -> np.ndarray:
    """Which batches have another leader epoch than the checkpoint; all of them if the checkpoint is empty.

    Batches of magic 0 and 1 have no epoch. A broker does not add a negative epoch to its checkpoint. DeleteRecords within the segment
    removes the epochs below the log start, so batches below the first entry are not compared.
    """
    epochs = block.column("partition_leader_epoch")
    rows = np.searchsorted(epoch_start, block.column("base_offset"), side="right") - 1
    if not len(epoch):
        return np.ones(len(block), dtype=bool)
    differs: np.ndarray = (rows >= 0) & (epoch[rows] != epochs) & (epochs >= 0) & (block.column("magic") == 2)
    return differs


BLOCK_ROWS = 65_536
"""Batches that are summarised together: composing their effects for each producer should be the smaller part of the work."""

SUMMARY_COLUMNS = tuple(sorted({*EFFECT_COLUMNS, *FACT_COLUMNS}))


class Joiner(Protocol):
    """Joins what an analysis found in runs of batches that follow each other."""

    def add(self, part: Any) -> None:
        """Adds what it found in the next run."""

    def total(self) -> Any:
        """The result of all runs."""


class AnalysisPart(Protocol):
    """The result of an analysis of a run of batches."""

    def joiner(self) -> Joiner:
        """Joins it with the parts after it."""


class Analysis(Protocol):
    """Something else that a reader wants of the batches of a segment. A value that is sent to the process that reads the segment."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the headers that it needs, in addition to ``SUMMARY_COLUMNS``."""

    def of_block(self, block: HeaderBlock, base_offset: int) -> AnalysisPart:
        """The result for a block, which is not empty, of the segment with this base offset."""


class BatchContents(msgspec.Struct, frozen=True):
    """The contents of consecutive batches. They do not depend on what is before them.

    Attributes:
        facts: counts, extremes and the order of offsets.
        effect: on any producer state; of its closed transactions those that ``index_relevant`` leaves.
        commits_omitted: committed transactions that are not among those of the effect.
        first_events: of each producer; None if not requested, or without batches.
        extras: what the analyses of ``SummaryOptions`` found, in their order; empty without batches.
    """

    facts: BatchTotals = NO_FACTS
    effect: SegmentEffect = IDENTITY
    commits_omitted: int = 0
    first_events: FirstEvents | None = None
    extras: tuple[Any, ...] = ()


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
        read_bytes: of the segment.
        cut_offset: the run was cut off here, and another follows; None for no cut.
        cut_batch_offset: base offset of the batch around the cut, which is in the next run; None if the cut is between two batches, or the
            batch cannot be trusted.
    """

    contents: BatchContents
    read_bytes: int
    cut_offset: int | None = None
    cut_batch_offset: int | None = None


class SegmentSummary(BatchRun, frozen=True, kw_only=True):
    """The contents of a segment, or of one piece of it. The facts of its ``contents`` include the gap before them.

    Attributes:
        base_offset: of the segment, from its name.
        size_bytes: of the segment or piece.
        tail: where its batches end, and why; clean at a cut.
    """

    base_offset: int
    size_bytes: int
    tail: Tail

    @property
    def facts(self) -> BatchTotals:
        """Facts of its batches. Without any, ``next_offset`` is that of the piece before, or the base offset."""
        return self.contents.facts

    @property
    def effect(self) -> SegmentEffect:
        """Effect on any producer state."""
        return self.contents.effect

    def with_effect(self, effect: SegmentEffect) -> SegmentSummary:
        """This summary with another effect."""
        return replace(self, contents=replace(self.contents, effect=effect))

    @classmethod
    def unread(cls, base_offset: int, size_bytes: int) -> SegmentSummary:
        """A placeholder for a segment that was not read."""
        contents = BatchContents(NO_FACTS.after(base_offset))
        return cls(base_offset=base_offset, size_bytes=size_bytes, contents=contents, tail=Tail(TailKind.CLEAN, 0), read_bytes=0)


class SummaryOptions(TypedDict, total=False):
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
    source: SegmentBytes, base_offset: int, cuts: Sequence[int], *, is_last: bool, **options: Unpack[SummaryOptions]
) -> tuple[SegmentSummary, ...]:
    """Reads a segment once, block by block, and cuts it in pieces.

    A cut is before the first batch that does not end below its offset. That is where a broker stops when it brings its state to that offset
    (``UnifiedLog.rebuildProducerState``).

    Args:
        source: its bytes.
        base_offset: from its name.
        cuts: distinct offsets above the base offset and below that of the next segment, ascending.
        is_last: of the log: the state at its end is that of the last piece, so no cut is made there or above.
        options: see ``SummaryOptions``.

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
        check_crc: see ``SummaryOptions``, as for the arguments after it.
        hint: see ``SummaryOptions``.
        block_bytes: see ``SummaryOptions``.
        with_first_events: see ``SummaryOptions``.
        indexes: see ``SummaryOptions``.
        extras: see ``SummaryOptions``.
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
            facts = BatchTotals.of_block(block, indexes)
            first_events = first_events_of_block(block) if with_first_events else None
            parts = tuple(analysis.of_block(block, base_offset) for analysis in extras)
            collected.add(BatchContents(facts, effect_of_block(block), 0, first_events, parts))

    done: list[Piece] = []
    waiting = deque(cuts)
    collected = _JoinedContents()
    read_bytes = 0
    for block in reader:
        start = 0
        if waiting:
            # The first batch that does not end below an offset, in log order, even if offsets do not ascend.
            reached = np.maximum.accumulate(block.column("base_offset") + block.column("last_offset_delta"))
            while waiting and waiting[0] <= reached[-1]:
                cut = waiting.popleft()
                row = int(np.searchsorted(reached, cut))
                add(block.part(start, row))
                start = row
                position = int(block.position_bytes[row])
                around = _batch_around(cut, block, row)
                done.append(
                    Piece(
                        contents=collected.total(),
                        end_bytes=position,
                        read_bytes=reader.bytes_read - read_bytes,
                        cut_offset=cut,
                        cut_batch_offset=around,
                    )
                )
                collected = _JoinedContents()
                read_bytes = reader.bytes_read
        add(block.part(start, len(block)) if start else block)
    assert reader.tail is not None
    end = reader.tail.position_bytes
    done.append(Piece(contents=collected.total(), end_bytes=end, read_bytes=reader.bytes_read - read_bytes))
    return done, reader.tail


def _batch_around(offset: int, block: HeaderBlock, row: int) -> int | None:
    """Base offset of the batch in this row if ``offset`` is inside it and the batch can be trusted."""
    base_offset = int(block.column("base_offset")[row])
    is_sound = block.column("magic")[row] == 2 and row not in block.bad_crc
    if is_sound and base_offset < offset:
        return base_offset
    return None


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
    start_bytes = 0
    start_offset = base_offset

    def add(piece: Piece, tail: Tail, end_bytes: int) -> None:
        nonlocal start_bytes, start_offset
        contents = replace(piece.contents, facts=piece.contents.facts.after(start_offset))
        around = piece.cut_batch_offset
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
                read_bytes=piece.read_bytes,
            )
        )
        # The next piece begins where the batches of this one ended: the gap around the cut counts as part of it.
        start_bytes = end_bytes
        start_offset = next_offset

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
        rest = Piece(contents=BatchContents(), end_bytes=tail.position_bytes, read_bytes=0)
    add(rest, tail, size_bytes)
    return tuple(done)
