"""Whether two metadata logs are of one history: where they first differ, and whether Raft can have made that difference.

Followers append the bytes that their leader wrote, so equal batches are equal byte for byte. Raft promises that two logs with the same
epoch at the same offset are equal up to there. A tail that was never committed may differ: its node cuts it off when it follows a leader
of a later epoch.

Source: KIP-595, ``KafkaRaftClient.handleFetchResponse`` and ``ReplicatedLog.truncateToEndOffset`` of 4.3.1.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

__all__ = ["BatchColumns", "Difference", "first_difference"]


@dataclass(slots=True)
class BatchColumns:
    """The batches of a log, one element each: base offset, leader epoch and checksum; ascending by offset."""

    base_offset: array[int] = field(default_factory=lambda: array("q"))
    epoch: array[int] = field(default_factory=lambda: array("q"))
    crc: array[int] = field(default_factory=lambda: array("q"))

    def append(self, base_offset: int, epoch: int, crc: int) -> None:
        """Adds the next batch."""
        self.base_offset.append(base_offset)
        self.epoch.append(epoch)
        self.crc.append(crc)

    def rows(self, begin: int, end: int, without: Iterable[tuple[int, int]]) -> np.ndarray:
        """Batches that begin in a range of offsets, shape (n, 3); those that begin in one of the gaps are left out."""
        columns = (self.base_offset, self.epoch, self.crc)
        part = slice(bisect_left(self.base_offset, begin), bisect_left(self.base_offset, end))
        rows = np.stack([np.array(each[part], dtype=np.int64) for each in columns], axis=1)
        for gap_begin, gap_end in without:
            rows = rows[(rows[:, 0] < gap_begin) | (rows[:, 0] >= gap_end)]
        return rows


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two logs part.

    Attributes:
        offset: of the first batch that differs.
        epochs: leader epochs there, of the one and of the other.
        is_impossible: Raft cannot have made it: both have an epoch of one leader there or above.
    """

    offset: int
    epochs: tuple[int, int]
    is_impossible: bool


def first_difference(
    one: BatchColumns, other: BatchColumns, begin: int, end: int, gaps: tuple[Iterable[tuple[int, int]], Iterable[tuple[int, int]]]
) -> Difference | None:
    """The first difference of two logs within the offsets that both hold.

    Args:
        one: batches.
        other: batches.
        begin: where both logs hold something.
        end: behind the last offset that both hold.
        gaps: offsets that are missing inside the one and the other.
    """
    rows, others = one.rows(begin, end, gaps[1]), other.rows(begin, end, gaps[0])
    shared = min(len(rows), len(others))
    unequal = np.flatnonzero((rows[:shared] != others[:shared]).any(axis=1))
    if not len(unequal) and len(rows) == len(others):
        return None
    at = int(unequal[0]) if len(unequal) else shared
    here, there = (each[min(at, len(each) - 1)] if len(each) else None for each in (rows, others))
    offset = min(int(each[at, 0]) for each in (rows, others) if at < len(each))
    epochs = tuple(-1 if each is None else int(each[1]) for each in (here, there))
    later = np.intersect1d(rows[at:, 1], others[at:, 1])
    return Difference(offset, (epochs[0], epochs[1]), bool(len(later)) or epochs[0] == epochs[1])
