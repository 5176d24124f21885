"""Which task does what: items of known size packed into tasks of nearly equal size, each task in its own Spark partition."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

__all__ = ["TASK_BYTES_MAX", "TASK_BYTES_MIN", "pack", "packed_slots", "slots"]

TASK_BYTES_MIN = 64 << 20
TASK_BYTES_MAX = 4 << 30
"""Bytes that a task reads: enough that its start (some ten milliseconds) does not matter, few enough for a retry."""


def pack(sizes: Sequence[int], tasks: int) -> list[int]:
    """The task of each item: the largest first, each to the task that has the least so far.

    Args:
        sizes: of the items, in any unit.
        tasks: the most; fewer if there are fewer items.
    """
    placed = [0] * len(sizes)
    loads = [(0, 0, task) for task in range(min(tasks, len(sizes)))]
    for item in sorted(range(len(sizes)), key=lambda each: -sizes[each]):
        load, count, task = loads[0]
        placed[item] = task
        heapq.heapreplace(loads, (load + sizes[item], count + 1, task))
    return placed


def slots(tasks: int) -> list[int]:
    """A number for each task, such that ``repartition(tasks, slot)`` puts each into a partition of its own.

    Spark places a row at the hash of its key modulo the count of partitions. If a later release changes the hash, tasks share
    partitions: slower, but still correct.
    """
    key_of_task: dict[int, int] = {}
    start = 0
    while len(key_of_task) < tasks:
        keys = np.arange(start, start + 4 * tasks + 64, dtype=np.int64)
        for key, place in zip(keys.tolist(), np.mod(_spark_hash(keys), tasks).tolist(), strict=True):
            key_of_task.setdefault(place, key)
        start += len(keys)
    return [key_of_task[task] for task in range(tasks)]


def packed_slots(sizes: Sequence[int], tasks: int) -> list[int]:
    """The slot of each item, packed by size into at most ``tasks`` tasks."""
    slot_of = slots(tasks)
    return [slot_of[task] for task in pack(sizes, tasks)]


def _spark_hash(keys: np.ndarray) -> np.ndarray:
    """Murmur3 (x86, 32 bits) of int64 values with seed 42, as int64 (n,): Spark's ``hash`` (``Murmur3HashFunction``)."""
    mask = np.uint64(0xFFFFFFFF)
    bits = keys.astype(np.int64).view(np.uint64)
    state = np.full(len(keys), 42, dtype=np.uint64)
    for word in (bits & mask, bits >> np.uint64(32)):
        mixed = _rotated(word * np.uint64(0xCC9E2D51) & mask, 15) * np.uint64(0x1B873593) & mask
        state = (_rotated(state ^ mixed, 13) * np.uint64(5) + np.uint64(0xE6546B64)) & mask
    state ^= np.uint64(8)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor) & mask
    state ^= state >> np.uint64(16)
    return state.astype(np.uint32).view(np.int32).astype(np.int64)


def _rotated(words: np.ndarray, count: int) -> np.ndarray:
    return (words << np.uint64(count) | words >> np.uint64(32 - count)) & np.uint64(0xFFFFFFFF)
