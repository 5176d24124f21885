"""The replay window: where replay may begin when producers older than ``producer.id.expiration.ms`` do not matter, and what proves it.

Any broker that loads the state drops a producer whose newest batch is older than the expiration, unless its transaction is open. So
replay may begin at the earliest segment with a younger timestamp, IF nothing below it still matters. What may matter is a
transaction that was opened there, a batch that a marker keeps, or a coordinator epoch.
A snapshot that a live broker wrote after the window began (the *witness*) settles most of that. The rest is settled by going back,
segment by segment.

The proof also uses two facts about legal logs. A producer id is transactional or not for its whole life (``InitProducerId`` decides it), so
a producer that writes outside of transactions never had a marker. And a data batch of epoch 0 and sequence 0 below offset 2147483648 is the
first one of its producer, or the first since the leader forgot it. The second happens only with clients of 1.0 to 2.4: they begin again at
sequence 0 after UNKNOWN_PRODUCER_ID if their last batch is below the log start (``TransactionManager.canRetry``).
A broker that then loads the log from its log start finds no batch before it either. Above that offset the sequence may have wrapped.

The window alone cannot show the following, because no batch in it contradicts the witness:

* a transaction that begins too late in the witness, at the producer's first batch in the window. The witness was then derived from
  a false empty snapshot at or below the window;
* a transaction that begins too early in the witness, anywhere below the window;
* a coordinator epoch, if no marker of the producer is between the window and the witness, unless the witness has none at all.

A broker that once started without its state writes such a witness, and all its later snapshots agree. To find the first three, the
headers below the window are read (``open_below_fault``). The last needs no reading: such a broker has no coordinator epoch until
the next marker.
A surviving empty snapshot below the witness is the trace that such a start usually leaves. Then the witness is not trusted.

Source: KIP-854 for the expiration; the proof is this project's own (docs/concepts/confidence.md) and is tested against full replays.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from formats.partition.producer_snapshot import ENTRY_DTYPE, ProducerEntry
from snaprebuild.replay.segment_effect import CLEAR, IF, NONE, SET, SegmentEffect, entries_of, lookup, sorted_entries

__all__ = [
    "DEFAULT_EXPIRATION_MS",
    "Clock",
    "Gap",
    "WindowState",
    "expired_mask",
    "is_certainly_young",
    "is_expired",
    "open_below_fault",
    "same_when_loaded",
    "settle",
    "shows_transactions",
    "window_start",
    "witness_fault",
]


class Clock(msgspec.Struct, frozen=True):
    """The moment for which expiry is judged, ms since 1970, and the expiration, ms.

    The expiration comes from an option, else from ``server.properties`` (``snapshots.source.broker_properties.expiration_of``), else it is
    ``DEFAULT_EXPIRATION_MS``.
    """

    as_of_ms: int
    expiration_ms: int


GAPS_LISTED_MAX = 100
"""Gaps of one kind that a state lists; all are counted."""


DEFAULT_EXPIRATION_MS = 86_400_000
"""``producer.id.expiration.ms``, one day (KIP-854). Brokers before 3.4 use ``transactional.id.expiration.ms``, seven days."""


def window_start(largest_timestamps: Sequence[int | None], as_of_ms: int, expiration_ms: int) -> int:
    """Index of the first segment that replay must read.

    That is the EARLIEST segment whose largest timestamp is within the expiration. Timestamps are not ordered, so it would be wrong to go
    back until the first old segment, or to skip an old one in between.

    Args:
        largest_timestamps: of each segment in order, ms; None if unknown, which counts as young.
        as_of_ms: the moment of the load, or a lower bound of it.
        expiration_ms: ``producer.id.expiration.ms``.

    Returns:
        An index; the count of segments if all are old.
    """
    for index, largest in enumerate(largest_timestamps):
        if largest is None or as_of_ms - largest < expiration_ms:
            return index
    return len(largest_timestamps)


def is_expired(entry: ProducerEntry, now_ms: int, expiration_ms: int) -> bool:
    """Whether a broker drops the entry when it loads it at ``now_ms``; equality expires, open transactions never.

    Source: ``ProducerStateManager.isProducerExpired``.
    """
    return entry.current_txn_first_offset < 0 and now_ms - entry.timestamp >= expiration_ms


def expired_mask(entries: np.ndarray, as_of_ms: int, expiration_ms: int) -> np.ndarray:
    """``is_expired`` of each entry (of ``ENTRY_DTYPE``) at ``as_of_ms``."""
    age = as_of_ms - entries["timestamp"].astype(np.int64)
    mask: np.ndarray = (entries["current_txn_first_offset"] < 0) & (age >= expiration_ms)
    return mask


def same_when_loaded(one: np.ndarray, other: np.ndarray, as_of_ms: int, expiration_ms: int) -> bool:
    """Whether a broker that loads either set of entries at ``as_of_ms`` has the same state: equal as maps after one expiry filter."""

    def loaded(entries: np.ndarray) -> bytes:
        live = sorted_entries(entries[~expired_mask(entries, as_of_ms, expiration_ms)])
        return bytes(live.astype(ENTRY_DTYPE).tobytes())

    return loaded(one) == loaded(other)


class Gap(msgspec.Struct, frozen=True):
    """Something below the window that the window does not settle.

    Attributes:
        name: ``G1`` to ``G5``, as in the page about the classes.
        reason: what is unknown.
    """

    name: str
    producer_id: int
    reason: str


class WindowState(msgspec.Struct, frozen=True):
    """The state at a boundary of the window.

    Attributes:
        entries: of ``ENTRY_DTYPE``, sorted by producer id. Entries with an unknown field that have certainly expired are left out.
        gaps: what is not settled, at most ``GAPS_LISTED_MAX`` of a kind; empty if the state is proven.
        gap_count: count of all gaps.
    """

    entries: np.ndarray
    gaps: tuple[Gap, ...]
    gap_count: int


# ---------------------------------------------------------------------------------------------------------------- the witness


def witness_fault(
    total: SegmentEffect,
    witness: SegmentEffect,
    *,
    window_offset: int,
    first_offset: int,
    as_of_ms: int,
    expiration_ms: int,
) -> str | None:
    """Why a surviving snapshot is no evidence for what is below the window.

    It is evidence under three conditions. It has every producer with a batch between the window and the snapshot exactly as the
    replay gives it. Its other entries are possible. At least one live producer could be compared.

    A correct snapshot may be rejected: that of a producer that expired, came back and so lost its batch or coordinator epoch. The only cost
    is reading further back.

    Args:
        total: effect of everything from the window to the snapshot's offset.
        witness: the snapshot, from ``effect_of_entries``.
        window_offset: base offset of the first segment of the window.
        first_offset: base offset of the first segment on disk.
        as_of_ms: entries that a load at this moment drops may be absent from the snapshot.
        expiration_ms: ``producer.id.expiration.ms``.

    Returns:
        None if it is evidence; else the reason why not.
    """
    replayed = total.chosen(np.flatnonzero(total.assigned))
    live = ~expired_mask(entries_of(replayed), as_of_ms, expiration_ms)
    if not live.any():
        return "no live producer in the window could confirm the snapshot after it"
    row, is_present = lookup(witness.producer_id, replayed.producer_id)
    missing = live & ~is_present
    if missing.any():
        return f"the snapshot after the window lacks producer {int(replayed.producer_id[missing][0])}"
    same = replayed.chosen(np.flatnonzero(is_present))
    wrong = _contradicts(same, witness.chosen(row[is_present]), window_offset)
    if wrong.any():
        return f"the snapshot after the window contradicts the replay for producer {int(same.producer_id[wrong][0])}"
    silent = _absent_from(witness, total)
    opened = silent.txn_first_offset
    inside = (silent.last_offset >= window_offset) | (opened >= window_offset)
    if inside.any():
        producer = int(silent.producer_id[inside][0])
        return f"the snapshot after the window names an offset inside it at which producer {producer} has no batch"
    # Below the window everything is old: a young producer without a batch in it can only come from data that was deleted.
    young = ~expired_mask(entries_of(silent), as_of_ms, expiration_ms) & (opened == NONE)
    young &= (silent.last_offset >= first_offset) | (first_offset == 0)
    if young.any():
        return f"producer {int(silent.producer_id[young][0])} of the snapshot after the window is young and has no batch in it"
    return None


def shows_transactions(effect: SegmentEffect) -> bool:
    """Whether any producer of a window or a snapshot was ever in a transaction."""
    return bool((effect.txn_first_offset != NONE).any() or (effect.coordinator_epoch != NONE).any())


def open_below_fault(
    below: SegmentEffect, total: SegmentEffect, witness: SegmentEffect, *, window_offset: int, first_offset: int
) -> str | None:
    """How the witness contradicts the headers below the window about transactions that were opened there and are still open.

    For the others there is a marker in the window (``settle``).

    Args:
        below: effect of everything from the first segment on disk to the window.
        total: effect of everything from the window to the witness.
        witness: the snapshot.
        window_offset: base offset of the first segment of the window.
        first_offset: base offset of the first segment on disk; only the witness has what a transaction did below it.

    Returns:
        None if they agree; else what it lacks or invents.
    """
    for effect, other, text in (
        (below, witness, "lacks the transaction that producer {} opened at {}: its broker once started without its state"),
        (witness, below, "names a transaction of producer {} from {} on, which the headers below the window do not show"),
    ):
        first = effect.txn_first_offset
        claimed = _column(other, "txn_first_offset", effect.producer_id)
        wrong = (first != NONE) & (first < window_offset) & (claimed != first) & ~_column(total, "txn_is_set", effect.producer_id)
        # It began in data that was deleted: the headers on disk show at most its later batches.
        earlier = np.where(effect is below, claimed, first)
        wrong &= ~((earlier != NONE) & (earlier < first_offset) & ~_column(below, "txn_is_set", effect.producer_id))
        if wrong.any():
            return "the snapshot after the window " + text.format(int(effect.producer_id[wrong][0]), int(first[wrong][0]))
    return None


def _contradicts(replayed: SegmentEffect, witness: SegmentEffect, window_offset: int) -> np.ndarray:
    """Which producers (the same in both, row by row) contradict the witness, whatever was before the window."""
    differs: np.ndarray = (replayed.epoch != witness.epoch) | (replayed.timestamp != witness.timestamp)
    differs |= replayed.marked & (replayed.coordinator_epoch != witness.coordinator_epoch)
    differs |= ~replayed.marked & _met_no_marker(replayed) & (witness.coordinator_epoch != NONE)
    for name in ("last_sequence", "last_offset", "offset_delta"):
        differs |= (replayed.batch == SET) & (getattr(replayed, name) != getattr(witness, name))
    differs |= (replayed.batch == CLEAR) & (witness.last_offset != NONE)
    differs |= (replayed.batch == IF) & (witness.last_offset >= window_offset)
    opened = replayed.txn_first_offset
    claimed = witness.txn_first_offset
    # Without a marker the transaction may have begun below the window; inside the window only at its first batch there.
    began_below = ~replayed.txn_is_set & ~_began_closed(replayed) & (claimed != NONE) & (claimed < window_offset)
    differs |= (opened != claimed) & ~began_below
    return differs


def _met_no_marker(effect: SegmentEffect) -> np.ndarray:
    """Producers that had no marker before their first batch here: they write outside of transactions, so they never have one.

    A first batch of epoch 0 and sequence 0 is no proof: the marker of an empty transaction may be before it.
    """
    never: np.ndarray = effect.assigned & (effect.fail_open != NONE)
    return never


def _began_closed(effect: SegmentEffect) -> np.ndarray:
    """Producers without an open transaction before their first batch here: else Kafka would throw at it, or they had no batch before."""
    closed: np.ndarray = effect.assigned & (effect.starts_fresh | (effect.fail_open != NONE))
    return closed


# ---------------------------------------------------------------------------------------------------------------- the state


def settle(
    prefix: SegmentEffect, total: SegmentEffect, witness: SegmentEffect, *, as_of_ms: int, expiration_ms: int
) -> WindowState:
    """The state at a boundary inside the window, with what the witness adds, and what is not settled.

    Args:
        prefix: effect of everything from the window to the boundary.
        total: effect of everything from the window to the witness.
        witness: a snapshot at or after the boundary for which ``witness_fault`` found nothing; the identity for none.
        as_of_ms: an unknown field of an entry that a load at this moment drops is no gap.
        expiration_ms: ``producer.id.expiration.ms``.
    """
    entries = entries_of(prefix)
    producers = prefix.producer_id
    unmarked = prefix.assigned & ~prefix.marked & ~_met_no_marker(prefix)
    # -1 may also mean that the producer expired below the window, came back, and lost it, so that the log has more than the witness.
    claimed = _column(witness, "coordinator_epoch", producers)
    from_witness = unmarked & ~_column(total, "marked", producers) & (claimed != NONE)
    entries["coordinator_epoch"][from_witness] = claimed[from_witness]

    uncertain = prefix.assigned & ~prefix.txn_is_set & ~_began_closed(prefix)
    first = _column(witness, "txn_first_offset", producers)
    never_closed = uncertain & ~_column(total, "txn_is_set", producers) & (first != NONE)
    entries["current_txn_first_offset"][never_closed] = first[never_closed]

    # Any load drops these, whatever batch they had. (An entry with an unknown coordinator epoch has an open transaction and never expires.)
    gone = expired_mask(entries, as_of_ms, expiration_ms) & (prefix.batch == IF)
    later = _absent_from(total, prefix)
    crossing = _may_cross(later, witness)
    older = ~later.starts_fresh & later.assigned & ~crossing
    silent = _absent_from(witness, total)
    forgotten = (silent.txn_first_offset != NONE) & (silent.coordinator_epoch == NONE)
    found = (
        ("G1", producers[~prefix.assigned], "only empty control batches in the window"),
        (
            "G1",
            producers[(prefix.batch == IF) & ~gone],
            "a marker is its first batch in the window: the batch before it may still count",
        ),
        ("G2", producers[uncertain & ~never_closed], "its transaction may have begun below the window"),
        ("G4", producers[unmarked & ~from_witness], "no marker before the boundary: its coordinator epoch is not known"),
        ("G3", later.producer_id[crossing], "a transaction may have been open across the boundary"),
        # Only the time indexes show that its older batches have expired, and those may be cut or stale.
        ("G5", later.producer_id[older], "it had batches below the window, and only a time index shows how old they are"),
        ("G4", silent.producer_id[forgotten], "its coordinator epoch was not known to the snapshot after the window either"),
    )
    gaps = tuple(Gap(name, each, reason) for name, ids, reason in found for each in ids[:GAPS_LISTED_MAX].tolist())
    both = sorted_entries(np.concatenate((entries[~gone], entries_of(silent))))
    return WindowState(both.astype(ENTRY_DTYPE), gaps, sum(len(ids) for _, ids, _ in found))


def _may_cross(later: SegmentEffect, witness: SegmentEffect) -> np.ndarray:
    """Which producers with batches only after the boundary may have had a transaction open at it."""
    # Certainly opened after the boundary: it is still open, and in the witness it begins at the first batch that was read.
    opened = later.txn_first_offset
    opened_later = ~later.txn_is_set & (opened != NONE) & (_column(witness, "txn_first_offset", later.producer_id) == opened)
    crossing: np.ndarray = ~(_began_closed(later) | opened_later)
    return crossing


# ---------------------------------------------------------------------------------------------------------------- rows


def _absent_from(effect: SegmentEffect, other: SegmentEffect) -> SegmentEffect:
    """The rows of ``effect`` whose producers ``other`` does not touch."""
    _, is_present = lookup(other.producer_id, effect.producer_id)
    return effect.chosen(np.flatnonzero(~is_present))


def _column(effect: SegmentEffect, name: str, producers: np.ndarray) -> np.ndarray:
    """A column of ``effect`` for each of ``producers``; -1 or False for one that it does not touch."""
    column: np.ndarray = getattr(effect, name)
    row, is_present = lookup(effect.producer_id, producers)
    values = np.full(len(producers), False if column.dtype == np.bool_ else NONE, dtype=column.dtype)
    values[is_present] = column[row[is_present]]
    return values


def is_certainly_young(timestamp: int, time_ms: int | None, expiration_ms: int) -> bool:
    """Whether an entry without an open transaction had certainly not expired when a snapshot was written.

    Args:
        timestamp: of the entry, ms.
        time_ms: largest timestamp below the snapshot; None if unknown.
        expiration_ms: of the run.
    """
    return time_ms is not None and timestamp >= 0 and time_ms - timestamp < min(expiration_ms, DEFAULT_EXPIRATION_MS)
