"""What consecutive batches hold, out of their headers: a value that does not depend on what lies before them, and how such values join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np

from formats.log.batch_headers import HeaderBlock, HeaderReader, SegmentBytes
from snaprebuild.replay.block_effect import EFFECT_COLUMNS, effect_of_block
from snaprebuild.replay.index_hits import HIT_COLUMNS, IndexEntries
from snaprebuild.replay.producer_trace import ROW_DTYPE, batches_of_producer, deciding
from snaprebuild.replay.running_effect import Levels, joined, stacked
from snaprebuild.replay.segment_effect import IDENTITY, SegmentEffect
from snaprebuild.replay.segment_facts import FACT_COLUMNS, NO_FACTS, SegmentFacts
from snaprebuild.replay.segment_statistics import STATISTICS_COLUMNS, SegmentStatistics, StatisticsOfBlocks
from snaprebuild.replay.transactions import needed_closes

__all__ = [
    "BLOCK_ROWS",
    "NOTHING",
    "NO_ROWS",
    "SUMMARY_COLUMNS",
    "BatchContents",
    "CollectedContents",
    "contents_reader",
    "joined_contents",
]

BLOCK_ROWS = 65_536
"""Batches that are summarised together: their effects are composed for each producer, which should be the lesser part."""

NO_ROWS = np.zeros(0, dtype=ROW_DTYPE)
"""No batch of the producer that was asked for, or none asked for."""

SUMMARY_COLUMNS = tuple(sorted({*EFFECT_COLUMNS, *FACT_COLUMNS}))


@dataclass(frozen=True, slots=True)
class BatchContents:
    """What consecutive batches hold, whatever lies before them.

    Attributes:
        facts: counts, extremes and the order of offsets.
        effect: on any producer state.
        commits_left_out: committed transactions that are not among those of the effect.
        traced: of the producer that was asked for, those of its batches that decide its entry (``ROW_DTYPE``, in log order).
        statistics: the batches by kind and by producer, where they were asked for.
    """

    facts: SegmentFacts = NO_FACTS
    effect: SegmentEffect = IDENTITY
    commits_left_out: int = 0
    traced: np.ndarray = field(default_factory=lambda: NO_ROWS)
    statistics: SegmentStatistics | None = None

    def behind(self, offset: int) -> BatchContents:
        """The same batches where the one before them ends below ``offset`` (``SegmentFacts.behind``)."""
        return replace(self, facts=self.facts.behind(offset))


NOTHING = BatchContents()
"""Of no batch."""


def joined_contents(contents: Sequence[BatchContents]) -> BatchContents:
    """Of batches that follow each other; at least one part."""
    effects = _Effects()
    for each in contents:
        effects.take(each.effect)
    effect = effects.total()
    statistics = [each.statistics for each in contents if each.statistics is not None]
    return BatchContents(
        reduce(SegmentFacts.then, (each.facts for each in contents)),
        effect,
        effects.commits_left_out + sum(each.commits_left_out for each in contents),
        deciding(np.concatenate([each.traced for each in contents])),
        reduce(SegmentStatistics.plus, statistics) if statistics else None,
    )


def contents_reader(
    source: SegmentBytes,
    *,
    check_crc: bool,
    hint: np.ndarray | None,
    block_bytes: int,
    with_statistics: bool,
    start_bytes: int = 0,
    end_bytes: int | None = None,
    with_indexes: bool = False,
) -> HeaderReader:
    """A reader of what ``CollectedContents`` takes; see there for the arguments, and ``HeaderReader``."""
    more = (*(STATISTICS_COLUMNS if with_statistics else ()), *(HIT_COLUMNS if with_indexes else ()))
    columns = tuple({*SUMMARY_COLUMNS, *more}) if more else SUMMARY_COLUMNS
    return HeaderReader(
        source,
        check_crc=check_crc,
        hint=hint,
        start_bytes=start_bytes,
        end_bytes=end_bytes,
        block_bytes=block_bytes,
        block_rows=BLOCK_ROWS,
        columns=columns,
    )


class CollectedContents:
    """Collects what blocks hold, one after the other.

    Args:
        base_offset: of the segment.
        with_statistics: count the batches by kind and by producer, too.
        traced_producer: id of the producer whose batches are wanted, too.
        indexes: of the segment, whose hits are wanted, too.
    """

    def __init__(
        self,
        base_offset: int,
        *,
        with_statistics: bool,
        traced_producer: int | None,
        indexes: IndexEntries | None = None,
    ) -> None:
        self._base_offset = base_offset
        self._indexes = indexes
        self._traced_producer = traced_producer
        self._effects = _Effects()
        self._statistics = StatisticsOfBlocks() if with_statistics else None
        self._traced = NO_ROWS
        self.facts = NO_FACTS

    def add(self, block: HeaderBlock) -> None:
        """Adds a block of a ``contents_reader``, or a part of one, which may be empty."""
        if not len(block):
            return
        facts = SegmentFacts.of_block(block)
        if self._indexes is not None:
            facts = replace(facts, index_hits=self._indexes.hits(block))
        self.facts = self.facts.then(facts)
        self._effects.take(effect_of_block(block))
        if self._statistics is not None:
            self._statistics.take(block)
        if self._traced_producer is not None:
            rows = batches_of_producer(block, self._traced_producer, self._base_offset)
            self._traced = deciding(np.concatenate((self._traced, rows)))

    def contents(self) -> BatchContents:
        """Of all that were added; asked for once."""
        effect = self._effects.total()
        statistics = None if self._statistics is None else self._statistics.total()
        return BatchContents(self.facts, effect, self._effects.commits_left_out, self._traced, statistics)


class _Effects:
    """Composes the effects of blocks in order."""

    def __init__(self) -> None:
        self._levels: Levels = ()
        self.commits_left_out = 0

    def take(self, effect: SegmentEffect) -> None:
        *before, last = stacked(self._levels, effect)
        self._levels = (*before, self._with_needed_closes(last))

    def total(self) -> SegmentEffect:
        return self._with_needed_closes(joined(self._levels))

    def _with_needed_closes(self, effect: SegmentEffect) -> SegmentEffect:
        needed = needed_closes(effect.closes)
        self.commits_left_out += len(effect.closes) - len(needed)
        return effect.with_closes(needed)
