"""The replay window: where replay may begin when producers older than ``producer.id.expiration.ms`` do not matter, and what proves it.

A producer whose newest batch is older than the expiration is dropped by any broker that loads the state, unless its transaction is open.
So replay may begin at the earliest segment that holds a younger timestamp, IF nothing below it still matters: a transaction that was
opened there, a batch that a marker keeps, a coordinator epoch. A snapshot that a live broker wrote behind the window settles most of
that; what it leaves open is settled by going back, segment by segment.

Source: KIP-854 for the expiration; the proof is this project's own (docs/evidence.md) and is tested against full replays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from formats.producer_snapshot import ENTRY_DTYPE
from snaprebuild.replay.segment_effect import IF, NONE, SET, SegmentEffect, entries_of

__all__ = ["Gap", "WindowState", "expired_mask", "same_when_loaded", "settle", "window_start", "witness_fault"]


def window_start(largest_timestamps: Sequence[int | None], as_of_ms: int, expiration_ms: int) -> int:
    """Index of the first segment that replay must take.

    That is the EARLIEST segment whose largest timestamp is within the expiration. Timestamps are not ordered, so it would be wrong to walk
    back until the first old segment, or to skip an old one in between.

    Args:
        largest_timestamps: of each segment in order, ms; None where it is not known, which counts as young.
        as_of_ms: the moment of the load, or a lower bound of it.
        expiration_ms: ``producer.id.expiration.ms``.

    Returns:
        An index; the count of segments where all are old.
    """
    for index, largest in enumerate(largest_timestamps):
        if largest is None or as_of_ms - largest < expiration_ms:
            return index
    return len(largest_timestamps)


def expired_mask(entries: np.ndarray, as_of_ms: int, expiration_ms: int) -> np.ndarray:
    """Which entries (of ``ENTRY_DTYPE``) a broker drops when it loads them at ``as_of_ms``; equality expires, open transactions never."""
    age = as_of_ms - entries["timestamp"].astype(np.int64)
    mask: np.ndarray = (entries["current_txn_first_offset"] < 0) & (age >= expiration_ms)
    return mask


def same_when_loaded(one: np.ndarray, other: np.ndarray, as_of_ms: int, expiration_ms: int) -> bool:
    """Whether a broker that loads either set of entries at ``as_of_ms`` has the same state: equal as maps after one expiry filter."""

    def loaded(entries: np.ndarray) -> bytes:
        kept = entries[~expired_mask(entries, as_of_ms, expiration_ms)]
        order = np.argsort(kept["producer_id"].astype(np.int64), kind="stable")
        return bytes(kept[order].astype(ENTRY_DTYPE).tobytes())

    return loaded(one) == loaded(other)


@dataclass(frozen=True, slots=True)
class Gap:
    """Something below the window that the window does not settle.

    Attributes:
        producer_id: int64.
        reason: what is not known, with the name that docs/evidence.md gives it.
    """

    producer_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class WindowState:
    """The state at a boundary of the window.

    Attributes:
        entries: of ``ENTRY_DTYPE``, sorted by producer id.
        gaps: what is not settled; empty when the state is proven.
    """

    entries: np.ndarray
    gaps: tuple[Gap, ...]


def witness_fault(total: SegmentEffect, witness: SegmentEffect, as_of_ms: int, expiration_ms: int) -> str | None:
    """Whether a surviving snapshot may speak for what lies below the window.

    It may if every producer with a batch between the window and the snapshot stands in it with exactly what the replay gives, and if it is
    not empty for want of anything that it could be checked by.

    Args:
        total: effect of everything from the window to the snapshot's offset.
        witness: the snapshot, from ``effect_of_entries``.
        as_of_ms: entries that a load at this moment drops are not compared.
        expiration_ms: see there.

    Returns:
        None when it may; else what speaks against it.
    """
    replayed = total.chosen(np.flatnonzero(total.assigned))
    live = ~expired_mask(entries_of(replayed), as_of_ms, expiration_ms)
    if not live.any():
        return "no live producer in the window could confirm the snapshot behind it"
    row, found = _lookup(witness.producer_id, replayed.producer_id)
    missing = live & ~found
    if missing.any():
        return f"the snapshot behind the window lacks producer {int(replayed.producer_id[missing][0])}"
    differs = np.zeros(len(replayed), dtype=bool)
    for name in ("epoch", "timestamp"):
        differs |= getattr(replayed, name) != getattr(witness, name)[row]
    differs |= replayed.marked & (replayed.coordinator_epoch != witness.coordinator_epoch[row])
    kept = replayed.batch == SET
    for name in ("last_sequence", "last_offset", "offset_delta"):
        differs |= kept & (getattr(replayed, name) != getattr(witness, name)[row])
    opened, claimed = replayed.txn_first_offset, witness.txn_first_offset[row]
    differs |= replayed.txn_is_set & (opened != claimed)
    # Without a marker the transaction may have been opened below the window, never later than its first batch inside.
    differs |= ~replayed.txn_is_set & (opened != NONE) & ((claimed == NONE) | (claimed > opened))
    wrong = differs & live & found
    if wrong.any():
        return f"the snapshot behind the window contradicts the replay for producer {int(replayed.producer_id[wrong][0])}"
    return None


def settle(prefix: SegmentEffect, total: SegmentEffect, witness: SegmentEffect) -> WindowState:
    """The state at a boundary inside the window, with what the witness adds, and what stays open.

    Args:
        prefix: effect of everything from the window to the boundary.
        total: effect of everything from the window to the witness.
        witness: a snapshot at or behind the boundary for which ``witness_fault`` found nothing.
    """
    entries = entries_of(prefix)
    in_total, _ = _lookup(total.producer_id, prefix.producer_id)
    in_witness, witnessed = _lookup(witness.producer_id, prefix.producer_id)
    fresh = prefix.starts_fresh & prefix.assigned
    gaps: list[Gap] = []

    def gap(mask: np.ndarray, producers: np.ndarray, reason: str) -> None:
        gaps.extend(Gap(int(producer), reason) for producer in producers[mask])

    gap(~prefix.assigned, prefix.producer_id, "only empty control batches in the window (G1)")
    gap(
        prefix.batch == IF,
        prefix.producer_id,
        "a marker is the first batch in the window: the batch before it may still count (G1)",
    )

    # Coordinator epoch: that of the witness, where no marker came since.
    unmarked = prefix.assigned & ~prefix.marked & ~fresh
    from_witness = unmarked & ~total.marked[in_total] & witnessed
    if len(witness):
        entries["coordinator_epoch"][from_witness] = witness.coordinator_epoch[in_witness[from_witness]]
    gap(unmarked & ~from_witness, prefix.producer_id, "no marker before the boundary: the coordinator epoch is not known (G4)")

    # Open transaction: certain behind a marker, a fresh start or data outside of any transaction; else that of the witness.
    uncertain = prefix.assigned & ~prefix.txn_is_set & ~fresh & (prefix.fail_open == NONE)
    never_closed = uncertain & ~total.txn_is_set[in_total] & witnessed
    if len(witness):
        entries["current_txn_first_offset"][never_closed] = witness.txn_first_offset[in_witness[never_closed]]
    gap(uncertain & ~never_closed, prefix.producer_id, "its transaction may have begun below the window (G2)")

    later = _absent_from(total, prefix)
    gap(*_later_gaps(later, witness), "a transaction may have been open across the boundary (G3)")
    untouched = _absent_from(witness, total)
    both = np.concatenate((entries, entries_of(untouched)))
    return WindowState(both[np.argsort(both["producer_id"].astype(np.int64), kind="stable")].astype(ENTRY_DTYPE), tuple(gaps))


def _later_gaps(later: SegmentEffect, witness: SegmentEffect) -> tuple[np.ndarray, np.ndarray]:
    """Producers that appear only behind the boundary, and may have had a transaction open at it all the same."""
    row, witnessed = _lookup(witness.producer_id, later.producer_id)
    # Opened behind the boundary for certain: the witness names a first offset that is one of the batches seen.
    opened_later = np.zeros(len(later), dtype=bool)
    if len(witness):
        opened_later = ~later.txn_is_set & witnessed & (later.txn_first_offset != NONE)
        opened_later &= witness.txn_first_offset[row] == later.txn_first_offset
    certain = later.starts_fresh | (later.fail_open != NONE) | opened_later
    return ~certain, later.producer_id


def _absent_from(effect: SegmentEffect, other: SegmentEffect) -> SegmentEffect:
    """The rows of ``effect`` whose producers ``other`` does not touch."""
    _, found = _lookup(other.producer_id, effect.producer_id)
    return effect.chosen(np.flatnonzero(~found))


def _lookup(sorted_ids: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each wanted id the row that holds it (0 where none does), and whether one does."""
    if not len(sorted_ids):
        return np.zeros(len(wanted), dtype=np.int64), np.zeros(len(wanted), dtype=bool)
    row = np.minimum(np.searchsorted(sorted_ids, wanted), len(sorted_ids) - 1)
    found: np.ndarray = sorted_ids[row] == wanted
    return np.where(found, row, 0), found
