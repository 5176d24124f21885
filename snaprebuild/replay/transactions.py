"""The entries of a segment's ``.txnindex``: its aborted transactions, with the last stable offset at each abort.

A log may close millions of transactions, of which few are aborted. ``index_relevant`` are those on which the indexes depend.

Source: ``LogSegment.updateProducerState``, ``LogSegment.updateTxnIndex``, ``ProducerStateManager.lastStableOffset``.
"""

from __future__ import annotations

import heapq

import numpy as np

from formats.partition.transaction_index import AbortedTransaction
from snaprebuild.replay.segment_effect import ClosedTransactions

__all__ = ["aborted_in", "index_relevant"]


def index_relevant(closes: ClosedTransactions) -> ClosedTransactions:
    """The closed transactions that ``aborted_in`` needs: at most one for each producer, and two for each aborted transaction.

    A transaction that was open before the run is kept, because its first offset is unknown here. An aborted one is in the index,
    together with the least first offset of those that were still open. Among those that are closed after it, the one that began
    first is enough.

    Args:
        closes: in log order, of an effect that is not yet composed on what is before the segment.
    """
    needed = closes.is_incoming | closes.is_aborted
    aborted = np.flatnonzero(closes.is_aborted[:-1])
    if len(aborted):
        first = np.where(closes.is_incoming, np.iinfo(np.int64).max, closes.first_offset)
        least_later = np.minimum.accumulate(first[:0:-1])[::-1][aborted]
        was_open = least_later < closes.marker_offset[aborted]
        needed |= np.isin(first, least_later[was_open])
    return closes if needed.all() else closes.chosen(needed)


def aborted_in(completed: ClosedTransactions, open_first_offset: np.ndarray) -> list[AbortedTransaction]:
    """The entries of a segment's ``.txnindex``, with the last stable offset at each abort.

    A transaction opened at ``first`` and closed at ``marker`` is open for every marker in between. Each one that was open in the segment
    was closed in it, or is open at its end.

    Args:
        completed: the closed transactions of the segment, in log order, resolved by the state before it, without those that closed
            nothing. All of them, or those that ``index_relevant`` leaves.
        open_first_offset: int64 (n,), first offsets of the transactions that are open at the end of the segment.
    """
    producers, firsts = completed.producer_id.tolist(), completed.first_offset.tolist()
    markers, aborted = completed.marker_offset.tolist(), completed.is_aborted.tolist()
    if not any(aborted):
        return []
    waiting = sorted({*firsts, *open_first_offset.tolist()})
    heap: list[int] = []
    closed: set[int] = set()
    entries: list[AbortedTransaction] = []
    index = 0
    for producer_id, first, marker, is_aborted in zip(producers, firsts, markers, aborted, strict=True):
        while index < len(waiting) and waiting[index] < marker:
            heapq.heappush(heap, waiting[index])
            index += 1
        while heap and heap[0] in closed:
            heapq.heappop(heap)
        if is_aborted:
            entries.append(AbortedTransaction(0, producer_id, first, marker, _least_other(heap, closed, first, marker)))
        closed.add(first)
    return entries


def _least_other(heap: list[int], closed: set[int], own: int, marker: int) -> int:
    """The least first offset of an open transaction other than ``own``; without one the offset after the marker."""
    if heap and heap[0] != own:
        return heap[0]
    # The own transaction is the oldest and closes now. The next oldest is among the rest, of which the closed ones are dropped.
    if heap:
        heapq.heappop(heap)
    while heap and heap[0] in closed:
        heapq.heappop(heap)
    return heap[0] if heap else marker + 1
