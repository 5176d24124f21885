"""Whether two snapshots of one log go together, by themselves: no segment is read, so nothing is proven, but much is told.

What a producer wrote below a snapshot stands in it, unless the producer has expired since; and nothing goes backwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from snaprebuild.replay.segment_effect import lookup
from snaprebuild.replay.window import expired_mask
from snaprebuild.snapshots.engine.window_proof import Clock

__all__ = ["Neighbour", "Suspicion", "suspicion"]


@dataclass(frozen=True, slots=True, eq=False)
class Neighbour:
    """A snapshot that parses.

    Attributes:
        offset: its boundary.
        entries: of ``ENTRY_DTYPE``, any order.
        time_ms: when its segment ended, by the greatest timestamp of its records; None where nobody tells.
    """

    offset: int
    entries: np.ndarray
    time_ms: int | None


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What speaks against one of two snapshots.

    Attributes:
        is_earlier: of the two the one that lies before the other.
        why: in words.
    """

    is_earlier: bool
    why: str


def suspicion(earlier: Neighbour, later: Neighbour, clock: Clock) -> Suspicion | None:
    """What speaks against one of two snapshots, if they do not go together.

    Args:
        earlier: a snapshot.
        later: one at a greater offset, or at the same.
        clock: for expiry, where the later one does not tell its time.
    """
    before, after = _sorted(earlier.entries), _sorted(later.entries)
    before_ids, after_ids = before["producer_id"].astype(np.int64), after["producer_id"].astype(np.int64)
    row, found = lookup(before_ids, after_ids)
    known = after[found], before[row[found]]

    # The later one tells of batches below the earlier one.
    below = (after["last_offset"] >= 0) & (after["last_offset"] < earlier.offset)
    unknown = below & ~found
    if unknown.any():
        return Suspicion(True, _lacks(after[unknown], len(before), f"the one at {later.offset} knows a batch of it from before"))
    is_newer = (known[0]["last_offset"] > known[1]["last_offset"]) & (known[0]["last_offset"] < earlier.offset)
    if is_newer.any():
        newer = known[0][is_newer]
        producer, last = int(newer["producer_id"][0]), int(newer["last_offset"][0])
        return Suspicion(
            True, f"the one at {later.offset} has a batch of producer {producer} at {last}, and this one an older state"
        )

    # The earlier one has what the later one must have kept.
    now = clock.as_of_ms if later.time_ms is None else later.time_ms
    _, kept = lookup(after_ids, before_ids)
    lost = ~kept & ~expired_mask(before, now, clock.expiration_ms)
    if lost.any():
        return Suspicion(False, _lacks(before[lost], len(after), f"the one at {earlier.offset} has it, not expired"))
    is_older = (known[0]["last_offset"] >= 0) & (known[0]["last_offset"] < known[1]["last_offset"])
    if is_older.any():
        producer = int(known[0]["producer_id"][is_older][0])
        return Suspicion(False, f"it has an older state of producer {producer} than the one at {earlier.offset}")
    return None


def _sorted(entries: np.ndarray) -> np.ndarray:
    return entries[np.argsort(entries["producer_id"].astype(np.int64), kind="stable")]


def _lacks(entries: np.ndarray, count: int, because: str) -> str:
    producer, more = int(entries["producer_id"][0]), len(entries) - 1
    told = f"producer {producer}" + (f" and {more} more" if more else "")
    what = "it is empty, and lacks" if not count else "it lacks"
    return f"{what} {told}: {because}"
