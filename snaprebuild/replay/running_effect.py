"""The effect of everything so far, composed only on demand.

A log of 10,000 segments has as many boundaries, with a million producers at each of them, and few of the states are needed. So effects are
kept as levels, each of some consecutive segments, and joined with others of similar size. What is needed at every boundary is found without
composing: where Kafka throws, what the markers of a segment closed, and which transactions are open.
"""

from __future__ import annotations

import functools

import numpy as np

from snaprebuild.replay.segment_effect import IDENTITY, NONE, ClosedTransactions, SegmentEffect, compose, lookup, resolve_closes

__all__ = ["Levels", "RunningEffect", "joined", "stacked"]

Levels = tuple[SegmentEffect, ...]
"""Consecutive effects, in place of their composition."""

WAITING_MAX, WAITING_ROWS_MAX = 8, 256
"""Effects that wait to be composed, and the rows of each."""


def stacked(levels: Levels, effect: SegmentEffect) -> Levels:
    """``levels`` followed by ``effect``, composed with those that are not much larger: so no row is composed again and again."""
    while levels and len(levels[-1]) <= 2 * len(effect):
        effect = compose(levels[-1], effect)
        levels = levels[:-1]
    return (*levels, effect)


def appended(levels: Levels, effect: SegmentEffect) -> Levels:
    """``levels`` followed by ``effect``; a few small ones wait until they are needed, because most never are."""
    if len(effect) <= WAITING_ROWS_MAX and len(levels) < WAITING_MAX:
        return (*levels, effect)
    return functools.reduce(stacked, (*levels, effect), ())


def joined(levels: Levels) -> SegmentEffect:
    """The composition of all levels."""
    return functools.reduce(lambda after, before: compose(before, after), reversed(levels), IDENTITY)


class RunningEffect:
    """The effect of a run of batches, without its closes. It never changes: ``then`` returns another one, which shares what it can.

    Attributes:
        failure_offset: offset of the first batch on which Kafka throws if nothing was open before, or None.
        open_first_offset: first offsets of the transactions that are open at the end, int64 (n,), by producer id.
    """

    __slots__ = ("_levels", "_open_producer_id", "failure_offset", "open_first_offset")

    def __init__(self, effect: SegmentEffect = IDENTITY) -> None:
        """Begins with ``effect``: the state before the run, or the composed effect of what is before it."""
        self._levels: Levels = (effect.without_closes(),)
        self._open_producer_id, self.open_first_offset = _opened(effect)
        self.failure_offset = effect.failure_offset

    def total(self) -> SegmentEffect:
        """The whole run as one effect. It is composed once, for this value and for those that follow it."""
        self._levels = (joined(self._levels),)
        return self._levels[0]

    def then(self, effect: SegmentEffect) -> RunningEffect:
        """This followed by ``effect``."""
        if not len(effect):
            return self
        result = RunningEffect.__new__(RunningEffect)
        result._levels = appended(self._levels, effect.without_closes())
        # The smaller one is looked up in the larger one: hundreds of thousands may be open.
        row, is_met = lookup(self._open_producer_id, effect.producer_id)
        failing = effect.fail_open[is_met]
        failures = (self.failure_offset, effect.failure_offset, *failing[failing != NONE].tolist())
        result.failure_offset = min((offset for offset in failures if offset is not None), default=None)
        # As ``compose``: a marker forgets what was open, and without one it stays open from where it began.
        closed = row[is_met & effect.txn_is_set]
        staying, first_offset = self._open_producer_id, self.open_first_offset
        if len(closed):
            staying, first_offset = np.delete(staying, closed), np.delete(first_offset, closed)
        opened, opened_first_offset = _opened(effect)
        if len(opened):
            is_new = ~lookup(staying, opened)[1]
            place = np.searchsorted(staying, opened[is_new]) + np.arange(np.count_nonzero(is_new))
            staying = _with_inserted(staying, place, opened[is_new])
            first_offset = _with_inserted(first_offset, place, opened_first_offset[is_new])
        result._open_producer_id, result.open_first_offset = staying, first_offset
        return result

    def resolved(self, closes: ClosedTransactions) -> ClosedTransactions:
        """``closes`` of the batches after this run, with what they take from the incoming state, if known (``resolve_closes``)."""
        for level in reversed(self._levels):
            closes = resolve_closes(level, closes)
        return closes

    def of_producer(self, producer_id: int) -> SegmentEffect:
        """The row of ``total`` of this producer, as an effect; the identity if there is none."""
        return joined(tuple(level.chosen(np.flatnonzero(level.producer_id == producer_id)) for level in self._levels))


def _with_inserted(values: np.ndarray, place: np.ndarray, new: np.ndarray) -> np.ndarray:
    """``values`` with ``new`` at these indices of the result. ``np.insert`` takes ten times as long for few values."""
    result = np.empty(len(values) + len(new), dtype=values.dtype)
    is_old = np.ones(len(result), dtype=bool)
    is_old[place] = False
    result[is_old], result[place] = values, new
    return result


def _opened(effect: SegmentEffect) -> tuple[np.ndarray, np.ndarray]:
    """Producer ids and first offsets of the transactions that are open after ``effect`` if nothing was open before."""
    rows = (effect.txn_first_offset != NONE).nonzero()[0]
    return effect.producer_id[rows], effect.txn_first_offset[rows]
