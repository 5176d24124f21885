"""The verdict on the snapshot at the first offset of a log, and the state that it leads to at each boundary (``replay.base_judge``)."""

from __future__ import annotations

from enum import Enum

import msgspec
import numpy as np

from formats.partition.producer_snapshot import ENTRY_DTYPE
from snaprebuild.replay.segment_effect import (
    IDENTITY,
    IF,
    KEEP,
    NONE,
    SegmentEffect,
    aligned,
    effect_of_entries,
    entries_of,
    lookup,
)

__all__ = ["BaseRule", "BaseState", "BaseVerdict", "Origins", "Refutation", "aligned_rows", "as_loaded", "named_ids"]

PRODUCERS_NAMED_MAX = 10
"""Open producers that a reason names."""


class BaseRule(Enum):
    """Why an entry of the base is refuted. The value is the reason of the finding."""

    LOWER_EPOCH = "lower-epoch"
    SEQUENCE_OF_NEW_EPOCH = "sequence-of-new-epoch"
    SEQUENCE = "sequence"
    TRANSACTION = "transaction"
    COORDINATOR_EPOCH = "coordinator-epoch"
    LATER_SNAPSHOT = "later-snapshot"
    KAFKA_THROWS = "kafka-throws"

    @property
    def is_of_the_log(self) -> bool:
        """The log alone shows it: the base is wrong, and no other file can be."""
        return self not in (BaseRule.LATER_SNAPSHOT, BaseRule.KAFKA_THROWS)


class Refutation(msgspec.Struct, frozen=True):
    """A contradiction between an entry of the base and something else.

    Attributes:
        field: of the entry, as in ``ENTRY_DTYPE``.
        base_value: of the entry; None if the base has none.
        other_value: by the source; None if the source has none.
        source: of the other value: a batch, a snapshot, a transaction index.
    """

    rule: BaseRule
    producer_id: int
    field: str
    base_value: int | None
    other_value: int | None
    source: str

    def text(self, base_offset: int) -> str:
        """One sentence, without the name of the rule."""
        has = "no entry" if self.base_value is None else f"{self.field} {self.base_value}"
        other = "no entry" if self.other_value is None else str(self.other_value)
        return f"producer {self.producer_id} has {has} in the snapshot at {base_offset}, and {other} by {self.source}"


class BaseState(msgspec.Struct, frozen=True, eq=False):
    """The part of the base that a boundary has.

    Attributes:
        base_entries: entries of the base that count here, of ``ENTRY_DTYPE``.
        open_ids: producers with a group that comes from the base, or from its lack of an entry, and is not confirmed; int64, ascending.
        claims: those of them for which the base claims an open transaction that is not confirmed. Then all entries of the base count.
    """

    base_entries: np.ndarray
    open_ids: np.ndarray
    claims: np.ndarray


class BaseVerdict(msgspec.Struct, frozen=True, eq=False):
    """The judgement of the base.

    Attributes:
        offset: of the base.
        entries: of it, of ``ENTRY_DTYPE``, sorted by producer id, one for each producer.
        refutations: the first ones; empty if nothing contradicts it.
        refutation_count: count of all.
        evidence_count: later snapshots that could be compared.
        is_lost: it has no entry, and a batch shows a producer that wrote before: its broker had lost its state, or all had expired.
        sequence: bool, of each entry: the sequence is confirmed; as the masks after it.
        batch: last offset and delta.
        timestamp: of the entry.
        cleared: that the first marker, of another epoch, clears the batch.
        coordinator: the coordinator epoch.
        transaction: the open transaction, or that there is none.
        open_absent: int64, ascending: producers that the base lacks, and whose absence is not confirmed.
        lacks_none_from: at boundaries from this offset on no producer is missing that only the base could show. Below, one may have expired
            before the first later snapshot was written.
        complete_from: at boundaries above this offset nothing is open, and no producer is missing; None if that is not known of any.
    """

    offset: int
    entries: np.ndarray
    refutations: tuple[Refutation, ...]
    refutation_count: int
    evidence_count: int
    is_lost: bool
    sequence: np.ndarray
    batch: np.ndarray
    timestamp: np.ndarray
    cleared: np.ndarray
    coordinator: np.ndarray
    transaction: np.ndarray
    open_absent: np.ndarray
    lacks_none_from: int
    complete_from: int | None = None

    @property
    def is_refuted(self) -> bool:
        """Something contradicts it: it is not used."""
        return self.refutation_count > 0

    @property
    def may_be_complete(self) -> bool:
        """Whether a boundary at which nothing is open has everything that a broker would have."""
        return self.evidence_count > 0 and not self.is_refuted and not self.is_lost

    def at(self, prefix: SegmentEffect) -> BaseState:
        """The part of the base that a boundary has, if nothing refutes it.

        Args:
            prefix: effect of everything from the base to the boundary.
        """
        used = aligned_rows(prefix, self.entries["producer_id"])
        comes = Origins.of(self.entries, used)
        is_open = comes.identity & ~(self.sequence & self.batch & self.timestamp)
        is_open |= comes.batch & ~(self.sequence & self.batch)
        is_open |= comes.clearing & ~(self.sequence | self.cleared)
        is_open |= comes.coordinator & ~self.coordinator
        is_open |= comes.transaction & ~self.transaction
        claims_open = comes.transaction & (self.entries["current_txn_first_offset"] >= 0)
        # An open transaction that is confirmed stays, whatever else is not known of its producer.
        dropped = is_open & ~claims_open
        claims = self.entries["producer_id"][is_open & claims_open & ~self.transaction]
        if len(claims):
            dropped = np.zeros(len(self.entries), dtype=bool)
        base = self.entries[~dropped]
        ids = np.concatenate((self.entries["producer_id"][is_open], self._open_of_absent(prefix)))
        return BaseState(base, np.sort(ids), claims)

    def without_open(self) -> BaseState:
        """The state at a boundary where everything that is left of the base is confirmed."""
        return BaseState(self.entries, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))

    def _open_of_absent(self, prefix: SegmentEffect) -> np.ndarray:
        rows = aligned_rows(prefix, self.open_absent)
        is_settled = rows.assigned & _writes_batch(rows)
        has_transactions_settled = (rows.fail_open != NONE) | (rows.marked & rows.txn_is_set)
        open_ids: np.ndarray = self.open_absent[~(is_settled & has_transactions_settled)]
        return open_ids


def named_ids(ids: np.ndarray) -> str:
    """The first producer ids, for a reason."""
    named = ", ".join(str(each) for each in ids[:PRODUCERS_NAMED_MAX].tolist())
    return f"{named}, ..." if len(ids) > PRODUCERS_NAMED_MAX else named


def as_loaded(entries: np.ndarray) -> np.ndarray:
    """Entries as a broker loads them, in native byte order, sorted by producer id; the last one of a producer counts."""
    return entries_of(effect_of_entries(entries)).astype(ENTRY_DTYPE.newbyteorder("="))


def aligned_rows(effect: SegmentEffect, producer_id: np.ndarray) -> SegmentEffect:
    """The rows of these producers, which ascend; the identity for those that the effect does not have."""
    if not len(producer_id):
        return IDENTITY
    row, is_present = lookup(effect.producer_id, producer_id)
    return aligned(effect.chosen(row[is_present]).without_closes(), producer_id)


def _writes_batch(rows: SegmentEffect) -> np.ndarray:
    """Whether the log alone fixes the newest batch."""
    mask: np.ndarray = (rows.batch != KEEP) & (rows.batch != IF)
    return mask


class Origins(msgspec.Struct, frozen=True):
    """Which groups of the entries of the base are still in the state, bool (n,) each.

    Attributes:
        identity: epoch and timestamp: no event yet.
        batch: sequence, last offset and delta.
        clearing: the batch is cleared by markers, but only if the epoch of the base is right.
        coordinator: the coordinator epoch.
        transaction: the open transaction, or that there is none.
    """

    identity: np.ndarray
    batch: np.ndarray
    clearing: np.ndarray
    coordinator: np.ndarray
    transaction: np.ndarray

    @classmethod
    def of(cls, entries: np.ndarray, rows: SegmentEffect) -> Origins:
        """The origins in ``rows``, which are the effect since the base, row by row with ``entries``."""
        if not len(entries):
            nothing = np.zeros(0, dtype=bool)
            return cls(nothing, nothing, nothing, nothing, nothing)
        same_epoch = rows.batch_epoch == entries["epoch"]
        is_conditional = rows.batch == IF
        return cls(
            identity=~rows.assigned,
            batch=(rows.batch == KEEP) | (is_conditional & same_epoch),
            clearing=is_conditional & ~same_epoch,
            coordinator=~rows.marked,
            transaction=~rows.txn_is_set,
        )
