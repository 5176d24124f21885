"""Which task does what: how many tasks there are, items of known size packed into them, each task in its own Spark partition."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "RANGES_PER_TASK",
    "RATED_TASKS",
    "TASKS_MAX",
    "TASK_BYTES_MAX",
    "TASK_BYTES_MIN",
    "TASK_ITEMS",
    "in_turns",
    "pack",
    "packed_for_source",
    "release_of",
    "sent_to_tasks",
    "slots",
    "source_part_bytes",
    "task_bytes",
    "tasks_for",
]

TASK_BYTES_MIN = 256 << 20
TASK_BYTES_MAX = 4 << 30
"""Bytes that a task reads: enough that its start (some ten milliseconds) does not matter, few enough for a retry."""

TASKS_OF_MIN = 64
TASK_BYTES_USUAL = 1 << 30
"""Beyond so many tasks of ``TASK_BYTES_MIN`` they get more bytes, up to this. On this machine as many tasks as it has cores are enough.
A task takes about 20 ms of a processor, in Java and in Python. With batches of 16 KiB it reads 256 MiB of the page cache in 65 ms."""

TASK_ITEMS = 128
TASK_ITEMS_USUAL = 1024
"""Segments that a task opens, or partitions that it lists, whose bytes do not matter: each takes a millisecond or more. A task has up to
``TASK_ITEMS_USUAL`` where all cores are known to have one."""

RANGES_PER_TASK = 2
"""At least, if segments can be split: the fullest task then has at most half as much again as the mean."""

TASKS_MAX = 4096
"""Beyond this number tasks get more bytes, up to ``TASK_BYTES_MAX``, or more items: each costs the driver memory and time."""

SOURCE_TASK_BYTES_MIN = 64 << 20
"""Bytes that a task of a data source reads, half of those of Spark's own sources: the rows that it makes cost more than its bytes."""

SOURCE_TASKS_MAX = 2048
"""Tasks of a data source, beyond which they get more bytes: a source does not know the number of cores."""

SOURCE_PART_BYTES_MIN = 8 << 20
"""A file is split into no smaller parts, whatever number of tasks is requested."""

RATED_TASKS = 8
"""Tasks that read under a rate, each with its part of it, where it is not known how many can run at once."""

SLOT = "slot"
"""The column with the number of the task."""

BY_NUMBER = (4, 1)
"""The first release of Spark with ``repartitionById``."""

Item = TypeVar("Item")


def tasks_for(size_bytes: int, items: int, tasks: int | None = None, *, opened: int = 0, cores: int | None = None) -> int:
    """How many tasks do some work. On a cluster it follows from the work alone: one with dynamic allocation grows with the tasks that wait.

    Args:
        size_bytes: that are read.
        items: of which each is done by one task.
        tasks: the setting of the user; None to follow the work.
        opened: segments of the items, where an item has several.
        cores: of this machine, if all tasks run here; None on a cluster.
    """
    if tasks is None:
        opened = max(items, opened)
        of_task = TASK_ITEMS if cores is None else min(max(-(-opened // cores), TASK_ITEMS), TASK_ITEMS_USUAL)
        tasks = max(-(-size_bytes // task_bytes(size_bytes, cores=cores)), min(-(-opened // of_task), TASKS_MAX))
    return max(min(tasks, items), 1)


def task_bytes(size_bytes: int, tasks: int | None = None, *, cores: int | None = None) -> int:
    """How much of this a task reads; the arguments are those of ``tasks_for``."""
    if tasks is not None:
        return max(-(-size_bytes // tasks), 1)
    usual = min(max(-(-size_bytes // (cores or TASKS_OF_MIN)), TASK_BYTES_MIN), TASK_BYTES_USUAL)
    return min(max(-(-size_bytes // TASKS_MAX), usual), TASK_BYTES_MAX)


def source_part_bytes(size_bytes: int, tasks: int | None) -> int:
    """How large the parts are into which a data source splits what is larger.

    Args:
        size_bytes: that the query reads.
        tasks: the option of the query; None to follow the work.
    """
    if tasks is not None:
        return max(-(-size_bytes // tasks), SOURCE_PART_BYTES_MIN)
    return min(max(size_bytes // SOURCE_TASKS_MAX, SOURCE_TASK_BYTES_MIN), TASK_BYTES_MAX)


def packed_for_source(items: Sequence[Item], sizes: Sequence[int], tasks: int | None) -> list[list[Item]]:
    """The items of each task of a data source, nearly equal in bytes: at least one task, also without items.

    Args:
        items: that are read, each by one task.
        sizes: of the items in bytes, with what it costs to open them.
        tasks: the option of the query; None to follow the work.
    """
    if tasks is None:
        tasks = -(-sum(sizes) // source_part_bytes(sum(sizes), None))
    tasks = max(1, min(tasks, len(items)))
    of_task: list[list[Item]] = [[] for _ in range(tasks)]
    for item, task in zip(items, pack(sizes, tasks), strict=True):
        of_task[task].append(item)
    return of_task


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


def in_turns(items: Iterable[Item], most: int, size_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    """The items in their order, as many at once as have this size together; one that is larger is alone.

    Args:
        items: of known size.
        most: the size of a turn, in the unit of the sizes.
        size_of: the size of an item.
    """
    turn: list[Item] = []
    turn_size = 0
    for item in items:
        size = size_of(item)
        if turn and turn_size + size > most:
            yield turn
            turn = []
            turn_size = 0
        turn.append(item)
        turn_size += size
    if turn:
        yield turn


def sent_to_tasks(frame: DataFrame, tasks: int) -> DataFrame:
    """Sends each row to the task whose number is in the column ``slot``."""
    if release_of(frame.sparkSession.version) >= BY_NUMBER:
        return frame.repartitionById(tasks, SLOT)
    # 3.5 and 4.0 only place a row at the hash of a key. This branch, `slots` and `_spark_hash` go when 4.1 is the oldest release.
    keys = ", ".join(f"{key}L" for key in slots(tasks))
    return frame.selectExpr("*", f"element_at(array({keys}), {SLOT} + 1) AS key").repartition(tasks, "key").drop("key")


def release_of(version: str) -> tuple[int, int]:
    """The first two numbers of a version of Spark."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


def slots(tasks: int) -> list[int]:
    """A key for each task, such that ``repartition(tasks, key)`` puts each into a partition of its own.

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
