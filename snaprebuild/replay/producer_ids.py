"""Producer ids as sorted columns: grouping, numbering and search, in time proportional to their count wherever numpy allows it."""

from __future__ import annotations

import numpy as np

__all__ = ["dense_ids", "lookup", "run_starts", "stable_order", "unique_sorted"]

DIRECT_IDS_PER_BATCH = 4
"""Producer ids are used as indices of tables when their range is at most this many times the count of batches: brokers hand them out
one after the other. A sort instead costs about 20 ns a batch."""


def dense_ids(producer_id: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Producer ids as small numbers in the same order.

    Returns:
        The producer id of each number (some may have no batch), and the number of each batch (int64).
    """
    low, high = int(producer_id.min()), int(producer_id.max())
    if high - low < DIRECT_IDS_PER_BATCH * len(producer_id):
        return low + np.arange(high - low + 1), producer_id - low  # high + 1 may be no int64
    order = stable_order(producer_id)
    starts = run_starts(producer_id[order])
    dense = np.empty(len(producer_id), dtype=np.int64)
    dense[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(order))))
    return producer_id[order[starts]], dense


def lookup(sorted_ids: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each wanted id the row that holds it (any row where none does), and whether one does."""
    if not len(sorted_ids):
        return np.zeros(len(wanted), dtype=np.int64), np.zeros(len(wanted), dtype=bool)
    row = np.minimum(np.searchsorted(sorted_ids, wanted), len(sorted_ids) - 1)
    found: np.ndarray = sorted_ids[row] == wanted
    return row, found


def stable_order(producer_id: np.ndarray) -> np.ndarray:
    """A stable argsort, by 16 bits at a time as far as their range allows it: numpy sorts those by radix, several times faster."""
    low, high = int(producer_id.min()), int(producer_id.max())
    if high - low >= 1 << 32:
        return np.argsort(producer_id, kind="stable")
    relative = (producer_id - low).astype(np.uint32)
    order = np.argsort(relative.astype(np.uint16), kind="stable")
    if high - low >= 1 << 16:
        order = order[np.argsort((relative >> 16).astype(np.uint16)[order], kind="stable")]
    return order


def unique_sorted(values: np.ndarray) -> np.ndarray:
    """Sorted values, each once."""
    unique: np.ndarray = values[run_starts(values)]
    return unique


def run_starts(values: np.ndarray) -> np.ndarray:
    """Indices at which a run of equal values begins."""
    first = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return np.flatnonzero(first)
