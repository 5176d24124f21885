"""When an entry of the snapshot at the first offset of a log counts (the *base*), and what that makes of each boundary.

A log that begins above offset 0 may have a snapshot at its first offset. Nothing on disk replays it, so it is judged entry by entry, in
groups of fields. They are the sequence (with its epoch), the batch (last offset and delta), the timestamp, the coordinator epoch, and the
open transaction. Each is *confirmed*, *refuted* or *open*:

====  ==============================================================================================================
C1    a later snapshot has the group unchanged, and no batch of the producer between the two writes it
C2    the first data batch has the epoch of the entry and the next sequence: the sequence is confirmed
C3    the first batch is outside of transactions, and an id is transactional for life: no coordinator epoch, no open transaction.
      Or the first marker aborts a transaction, and the transaction index names its first offset
B1    the first event has a lower epoch
B2    the first data batch has a higher epoch and does not begin at sequence 0
B3    the first data batch has the same epoch and not the next sequence
B4    the entry is transactional and the first data batch is not; or the transaction index names an open transaction that the base lacks
B5    the first marker has a lower coordinator epoch
B6    a later snapshot differs in what nothing between the two wrote: one of the two is wrong
B7    Kafka throws at a batch if it starts from the base, and does not if it starts from nothing
====  ==============================================================================================================

A broker may have forgotten an expired producer in between, and then it takes what B1 to B3 and B5 exclude. Brokers up to 2.4 with clients
of 1.0 to 2.4 begin again at sequence 0. So these refute nothing where the log leaves room for that. Everything else is open. In particular
a marker that closes nothing is legal: an empty transaction leaves one.

A producer may be silent above the base. A later snapshot that lacks it shows no more than that it had expired by then. So only some
boundaries show that the base lacks no producer. They are at that snapshot or above, or shortly below it, or above the moment at which all
that was silent since the base has expired.

Source: ``ProducerAppendInfo`` of Kafka 2.3 to 4.3; docs/concepts/confidence.md has the limits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from formats.partition.transaction_index import AbortedTransaction
from snaprebuild.replay.base_verdict import BaseRule, BaseVerdict, Origins, Refutation, aligned_rows, as_loaded
from snaprebuild.replay.block_effect import are_first_ever
from snaprebuild.replay.first_events import FirstEvents
from snaprebuild.replay.segment_effect import NONE, SegmentEffect, lookup
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS

__all__ = ["BaseJudge", "LaterSnapshot", "SegmentBoundary"]

LAST_SEQUENCE = 2**31 - 1

CLOCKS_DIFFER = 24
"""A producer counts as forgotten this part of the expiration early: clients' clocks, which the timestamps come from, differ a little."""

NEVER = 2**63 - 1
"""Above every offset."""

REFUTATIONS_LISTED_MAX = 100
"""Refutations that a verdict lists; all are counted."""


class LaterSnapshot(msgspec.Struct, frozen=True, eq=False):
    """A snapshot above the base that does not contradict the log between the two.

    Attributes:
        offset: of the snapshot.
        entries: of it, of ``ENTRY_DTYPE``, any order.
        prefix: effect of everything from the base to it.
        written_ms: not earlier than it was written, if clients' clocks are right: the largest timestamp of all batches from the base to the
            one after it, ms.
    """

    offset: int
    entries: np.ndarray
    prefix: SegmentEffect
    written_ms: int


class SegmentBoundary(NamedTuple):
    """The end of a segment.

    Attributes:
        newest_ms: the largest timestamp of all batches from the base to it, ms.
    """

    offset: int
    newest_ms: int


class BaseJudge:
    """Collects the evidence about a base, then gives the verdict."""

    def __init__(self, offset: int, entries: np.ndarray, expiration_ms: int) -> None:
        """Takes the base.

        Args:
            offset: of the base, the first base offset of the log.
            entries: of it, of ``ENTRY_DTYPE``, any order; the last entry of a producer counts, as when a broker loads them.
            expiration_ms: ``producer.id.expiration.ms``. A producer may be forgotten after this or after a day, whichever is less.
        """
        self.offset = offset
        self._entries = as_loaded(entries)
        least = min(expiration_ms, DEFAULT_EXPIRATION_MS)
        self._clocks_differ_ms = least // CLOCKS_DIFFER
        self._forgotten_after_ms = least - self._clocks_differ_ms
        self._surely_forgotten_after_ms = expiration_ms + self._clocks_differ_ms
        self._refutations: list[Refutation] = []
        self._refutation_count = 0
        self._appearing: list[np.ndarray] = []
        count = len(self._entries)
        names = ("sequence", "batch", "timestamp", "cleared", "coordinator", "transaction")
        self._confirmed = {name: np.zeros(count, dtype=bool) for name in names}

    def verdict(
        self,
        events: FirstEvents,
        snapshots: Iterable[LaterSnapshot],
        aborted: Iterable[tuple[str, AbortedTransaction]] = (),
        thrown_at: int | None = None,
        boundaries: Sequence[SegmentBoundary] = (),
    ) -> BaseVerdict:
        """The verdict.

        Args:
            events: first events of each producer from the base on, as far as the log is whole.
            snapshots: the later snapshots in that part, ascending. Each is looked at once, and not kept.
            aborted: entries of transaction indexes in that part, each with the name of its file.
            thrown_at: offset of a batch at which Kafka throws if it starts from the base, and does not if it starts from nothing.
            boundaries: in that part, ascending.
        """
        self._by_events(events)
        self._by_indexes(events, list(aborted))
        if thrown_at is not None and not self._refutation_count:
            self._refute_thrown(events, thrown_at)
        lacking = _Lacking(self._absent(events))
        count = 0
        lacks_none_from = self._all_expired_from(boundaries)
        for snapshot in snapshots:
            later = as_loaded(snapshot.entries)
            self._by_snapshot(events, snapshot, later)
            lacking.take(snapshot.offset, later)
            shortly_before = _first_boundary(boundaries, snapshot.written_ms - self._clocks_differ_ms)
            lacks_none_from = min(lacks_none_from, snapshot.offset, shortly_before)
            count += 1
        open_absent = np.unique(np.concatenate((self._open_absent(lacking), *self._appearing)))
        # What begins with the first data ever does not show that a producer wrote before.
        is_lost = not len(self._entries) and bool((~np.isin(open_absent, events.producer_id[_are_fresh(events)])).any())
        complete_from = None
        if count > 0 and not is_lost and not self._refutation_count:
            complete_from = self._complete_from(events, open_absent, lacks_none_from)
        return BaseVerdict(
            offset=self.offset,
            entries=self._entries,
            refutations=tuple(self._refutations),
            refutation_count=self._refutation_count,
            evidence_count=count,
            is_lost=is_lost,
            open_absent=open_absent,
            lacks_none_from=lacks_none_from,
            complete_from=complete_from,
            **self._confirmed,
        )

    # ------------------------------------------------------------------------------------------------------------ first events

    def _by_events(self, events: FirstEvents) -> None:
        """C2, C3 and B1 to B5, as far as the first events show them."""
        row, is_present = lookup(events.producer_id, self._entries["producer_id"])
        at = is_present.nonzero()[0]
        # An entry without an epoch is that of a marker whose record is gone: Kafka takes anything after it.
        at = at[self._entries["epoch"][at] != NONE]
        base = self._entries[at]
        first = events.chosen(row[at])
        has_data = first.data_offset != NONE
        has_marker = first.marker_offset != NONE
        has_expired = self._may_have_expired(base, first.largest_timestamp)
        # A marker may have closed the transaction, and the producer may have expired after that.
        had_expired_at_data = self._is_old(base, first.data_largest_timestamp) & (
            first.is_marker | (base["current_txn_first_offset"] < 0)
        )

        self._refute(
            BaseRule.LOWER_EPOCH, at, (first.epoch < base["epoch"]) & ~has_expired & ~(first.data_sequence == 0),
            "epoch", first.epoch, first.offset,
        )  # fmt: skip
        sequence = first.data_sequence
        is_numbered = has_data & (sequence > 0)  # 0 may be a client that begins again, -1 is no sequence
        is_first = first.data_offset == first.offset
        self._refute(
            BaseRule.SEQUENCE_OF_NEW_EPOCH, at, is_first & is_numbered & (first.data_epoch > base["epoch"]) & ~has_expired,
            "last_sequence", sequence, first.data_offset,
        )  # fmt: skip
        # Markers of the same epoch keep the sequence. Those of one higher epoch clear it, and the next batch begins at 0.
        same_epoch = first.epoch == base["epoch"]
        is_raised = first.is_marker & (first.epoch > base["epoch"])
        follows = has_data & ~first.changes_epoch & (same_epoch | is_raised)
        last = np.where(is_raised, NONE, base["last_sequence"]).astype(np.int64)
        is_next = sequence == np.where(last == LAST_SEQUENCE, 0, last + 1)
        self._refute(
            BaseRule.SEQUENCE, at, follows & is_numbered & ~is_next & ~had_expired_at_data,
            "last_sequence", sequence, first.data_offset,
        )  # fmt: skip
        is_confirmed = follows & is_next & (last != LAST_SEQUENCE)
        self._confirmed["sequence"][at] |= is_confirmed & same_epoch
        self._confirmed["cleared"][at] |= is_confirmed & is_raised

        is_plain = is_first & ~first.data_is_transactional
        opened = base["current_txn_first_offset"]
        coordinator = base["coordinator_epoch"]
        nothing = np.full(len(at), NONE)
        self._refute(BaseRule.TRANSACTION, at, is_plain & (opened >= 0), "current_txn_first_offset", nothing, first.offset)
        is_marked = is_plain & (opened < 0) & (coordinator >= 0)
        self._refute(BaseRule.TRANSACTION, at, is_marked, "coordinator_epoch", nothing, first.offset)
        self._confirmed["transaction"][at] |= is_plain & (opened < 0)
        self._confirmed["coordinator"][at] |= is_plain & (coordinator < 0)
        is_older = has_marker & (first.marker_coordinator_epoch < coordinator) & ~has_expired
        self._refute(
            BaseRule.COORDINATOR_EPOCH, at, is_older, "coordinator_epoch", first.marker_coordinator_epoch, first.marker_offset
        )

    def _may_have_expired(self, entries: np.ndarray, largest_timestamp: np.ndarray) -> np.ndarray:
        """Whether the broker may have forgotten these producers before a batch; open transactions never expire."""
        mask: np.ndarray = self._is_old(entries, largest_timestamp) & (entries["current_txn_first_offset"] < 0)
        return mask

    def _is_old(self, entries: np.ndarray, largest_timestamp: np.ndarray) -> np.ndarray:
        timestamp = entries["timestamp"].astype(np.int64)
        mask: np.ndarray = (timestamp < 0) | (largest_timestamp - timestamp >= self._forgotten_after_ms)
        return mask

    def _by_indexes(self, events: FirstEvents, aborted: Sequence[tuple[str, AbortedTransaction]]) -> None:
        """C3 and B4 by the transaction indexes: only the first marker of a producer can end what was open at the base."""
        opened = {int(each): row for row, each in enumerate(self._entries["current_txn_first_offset"].tolist()) if each >= 0}
        for name, entry in aborted:
            row, is_present = lookup(events.producer_id, np.array([entry.producer_id]))
            if not is_present[0] or not events.marker_is_abort[row[0]] or events.marker_offset[row[0]] != entry.last_offset:
                continue
            if entry.last_stable_offset < self.offset and entry.last_stable_offset not in opened:
                self._refute_one(
                    BaseRule.TRANSACTION, entry.producer_id, "current_txn_first_offset", None, entry.last_stable_offset,
                    f"the last stable offset in {name}",
                )  # fmt: skip
            if entry.first_offset >= self.offset:
                continue
            place, has_entry = lookup(self._entries["producer_id"], np.array([entry.producer_id]))
            claimed = int(self._entries["current_txn_first_offset"][place[0]]) if has_entry[0] else None
            if claimed == entry.first_offset:
                self._confirmed["transaction"][place[0]] = True
            else:
                self._refute_one(
                    BaseRule.TRANSACTION, entry.producer_id, "current_txn_first_offset", claimed, entry.first_offset, name
                )  # fmt: skip

    # ------------------------------------------------------------------------------------------------------------ later snapshots

    def _by_snapshot(self, events: FirstEvents, snapshot: LaterSnapshot, later: np.ndarray) -> None:
        """C1 and B6; ``later`` has the entries of the snapshot as a broker loads them."""
        place, is_there = lookup(later["producer_id"], self._entries["producer_id"])
        rows = aligned_rows(snapshot.prefix, self._entries["producer_id"])
        source = f"the snapshot at {snapshot.offset}"
        if len(self._entries):
            is_silent = ~rows.assigned
            at_end = np.full(len(self._entries), snapshot.written_ms)
            lost = ~is_there & is_silent & ~self._may_have_expired(self._entries, at_end)
            for index in self._listed(lost):
                last = int(self._entries["last_offset"][index])
                self._refute_one(
                    BaseRule.LATER_SNAPSHOT, int(self._entries["producer_id"][index]), "last_offset", last, None, source
                )
            at = is_there.nonzero()[0]
            self._compare(events, at, rows.chosen(at), later[place[at]], source)
        self._look_for_lacking(snapshot, later, source)

    def _compare(self, events: FirstEvents, at: np.ndarray, rows: SegmentEffect, later: np.ndarray, source: str) -> None:
        """Entries of the base (at these indices) with those of a later snapshot, row by row."""
        base = self._entries[at]
        comes = Origins.of(base, rows)
        # A broker that forgot the producer has neither its batch nor its coordinator epoch from before.
        row, is_present = lookup(events.producer_id, base["producer_id"])
        if len(events):
            largest = np.where(is_present, events.largest_timestamp[row], NONE)
        else:
            largest = np.full(len(at), NONE)
        sequence = np.where(is_present, events.data_sequence[row], NONE) if len(events) else np.full(len(at), NONE)
        forgotten = rows.assigned & (
            self._may_have_expired(base, largest) | ((sequence == 0) & (base["current_txn_first_offset"] < 0))
        )

        for name in ("epoch", "timestamp"):
            self._refute_values(at, comes.identity & (base[name] != later[name]), name, later[name], source)
        self._confirmed["timestamp"][at] |= comes.identity & (base["timestamp"] == later["timestamp"])
        # Between two markers that close nothing it may have forgotten the producer, too.
        is_old_at_last = rows.assigned & rows.txn_is_set & self._is_old(base, np.maximum(largest, rows.timestamp))
        lost_batch = (forgotten | is_old_at_last) & (later["last_offset"] < 0)
        for name in ("last_sequence", "last_offset", "offset_delta"):
            differs = comes.batch & (base[name] != later[name])
            self._refute_values(at, differs & ~lost_batch, name, later[name], source)
        same_batch = (base["last_offset"] == later["last_offset"]) & (base["offset_delta"] == later["offset_delta"])
        same_sequence = (base["last_sequence"] == later["last_sequence"]) & (~comes.identity | (base["epoch"] == later["epoch"]))
        self._confirmed["sequence"][at] |= comes.batch & same_sequence
        self._confirmed["batch"][at] |= comes.batch & same_batch
        self._refute_values(at, comes.clearing & (later["last_offset"] >= 0), "last_offset", later["last_offset"], source)
        self._confirmed["cleared"][at] |= comes.clearing & (later["last_offset"] < 0)

        coordinator = base["coordinator_epoch"]
        differs = comes.coordinator & (coordinator != later["coordinator_epoch"])
        lost_coordinator = forgotten & (later["coordinator_epoch"] < 0)
        self._refute_values(at, differs & ~lost_coordinator, "coordinator_epoch", later["coordinator_epoch"], source)
        self._confirmed["coordinator"][at] |= comes.coordinator & ~differs
        opened = np.where(base["current_txn_first_offset"] >= 0, base["current_txn_first_offset"], rows.txn_first_offset)
        differs = comes.transaction & (opened != later["current_txn_first_offset"])
        self._refute_values(at, differs, "current_txn_first_offset", later["current_txn_first_offset"], source)
        # The first transactional batch opens a transaction only where none is open: then the later value is that of the log.
        is_unchanged = (base["current_txn_first_offset"] >= 0) | (rows.txn_first_offset == NONE)
        self._confirmed["transaction"][at] |= comes.transaction & ~differs & is_unchanged

    def _look_for_lacking(self, snapshot: LaterSnapshot, later: np.ndarray, source: str) -> None:
        """Producers of a later snapshot that were there at the base and are not in it."""
        rows = aligned_rows(snapshot.prefix, later["producer_id"])
        has_batch = (later["last_offset"] >= 0) & (later["last_offset"] < self.offset)
        has_transaction = (later["current_txn_first_offset"] >= 0) & (later["current_txn_first_offset"] < self.offset)
        # Markers leave entries with neither.
        has_marker = ~rows.marked & (later["coordinator_epoch"] >= 0)
        was_there = ~rows.assigned | has_batch | has_transaction | has_marker
        _, in_base = lookup(self._entries["producer_id"], later["producer_id"])
        is_lacking = was_there & ~in_base
        is_live = ~self._may_have_expired(later, np.full(len(later), snapshot.written_ms))
        # It may have expired since, but no broker that has it later had dropped it before.
        self._appearing.append(later["producer_id"][is_lacking & ~is_live])
        for index in self._listed(is_lacking & is_live):
            name = "coordinator_epoch"
            if has_transaction[index]:
                name = "current_txn_first_offset"
            elif has_batch[index]:
                name = "last_offset"
            producer = int(later["producer_id"][index])
            value = int(later[name][index])
            self._refute_one(BaseRule.LATER_SNAPSHOT, producer, name, None, value, source)

    # ------------------------------------------------------------------------------------------------------------ absent producers

    def _absent(self, events: FirstEvents) -> FirstEvents:
        """First events of the producers that the base lacks and whose absence the log alone does not confirm."""
        _, is_present = lookup(self._entries["producer_id"], events.producer_id)
        # An empty transaction before it may have left a coordinator epoch.
        fresh = _are_fresh(events) & ~events.data_is_transactional
        return events.chosen(~is_present & ~fresh)

    def _open_absent(self, lacking: _Lacking) -> np.ndarray:
        events = lacking.events
        begins_epoch = ~events.is_marker & (events.data_sequence == 0)
        is_absent = (begins_epoch & lacking.is_lacking) | (_are_fresh(events) & lacking.is_unmarked)
        open_ids: np.ndarray = events.producer_id[~is_absent]
        return open_ids

    def _all_expired_from(self, boundaries: Sequence[SegmentBoundary]) -> int:
        """The boundary from which on a broker has forgotten every producer that was silent since the base."""
        if not boundaries:
            return NEVER
        newest_below = max(boundaries[0].newest_ms, int(self._entries["timestamp"].max(initial=NONE)))
        return _first_boundary(boundaries, newest_below + self._surely_forgotten_after_ms)

    def _complete_from(self, events: FirstEvents, open_absent: np.ndarray, lacks_none_from: int) -> int | None:
        """The offset above which nothing is left of what is not confirmed; None if something stays."""
        offsets = events.offset, _or_never(events.data_offset), _or_never(events.marker_offset)
        first, data, marker = (_of_producers(events.producer_id, each, self._entries["producer_id"]) for each in offsets)
        has = self._confirmed
        ends = [
            first[~(has["sequence"] & has["batch"] & has["timestamp"])],
            data[~(has["sequence"] & has["batch"])],
            marker[~(has["coordinator"] & has["transaction"])],
        ]
        row, is_present = lookup(events.producer_id, open_absent)
        if not is_present.all():
            return None
        absent = events.chosen(row)
        is_plain = ~absent.is_marker & ~absent.data_is_transactional
        ends += [_or_never(absent.data_offset), _or_never(absent.marker_offset)[~is_plain]]
        last = max((int(each.max()) for each in ends if len(each)), default=NONE)
        last = max(last, lacks_none_from - 1)
        return None if last >= NEVER - 1 else last

    # ------------------------------------------------------------------------------------------------------------ refutations

    def _listed(self, mask: np.ndarray) -> list[int]:
        """Rows of refutations that are still listed; the others are counted here."""
        rows = mask.nonzero()[0]
        room = REFUTATIONS_LISTED_MAX - len(self._refutations)
        self._refutation_count += max(len(rows) - room, 0)
        listed: list[int] = rows[:room].tolist()
        return listed

    def _refute_thrown(self, events: FirstEvents, offset: int) -> None:
        rows = (events.data_offset == offset).nonzero()[0]
        producer = int(events.producer_id[rows[0]]) if len(rows) else NONE
        name = "current_txn_first_offset"
        source = f"the batch at {offset}, at which Kafka throws"
        place, is_present = lookup(self._entries["producer_id"], np.array([producer]))
        value = int(self._entries[name][place[0]]) if is_present[0] else None
        self._refute_one(BaseRule.KAFKA_THROWS, producer, name, value, NONE, source)

    def _refute(self, rule: BaseRule, at: np.ndarray, mask: np.ndarray, name: str, values: np.ndarray, offsets: np.ndarray) -> None:
        for index in self._listed(mask):
            entry = self._entries[at[index]]
            source = f"the batch at {int(offsets[index])}"
            self._refute_one(rule, int(entry["producer_id"]), name, int(entry[name]), int(values[index]), source)

    def _refute_values(self, at: np.ndarray, mask: np.ndarray, name: str, values: np.ndarray, source: str) -> None:
        for index in self._listed(mask):
            entry = self._entries[at[index]]
            producer = int(entry["producer_id"])
            self._refute_one(BaseRule.LATER_SNAPSHOT, producer, name, int(entry[name]), int(values[index]), source)

    def _refute_one(
        self, rule: BaseRule, producer_id: int, name: str, base_value: int | None, other_value: int | None, source: str
    ) -> None:
        self._refutation_count += 1
        if len(self._refutations) < REFUTATIONS_LISTED_MAX:
            self._refutations.append(Refutation(rule, producer_id, name, base_value, other_value, source))


def _are_fresh(events: FirstEvents) -> np.ndarray:
    """Which producers begin with the first data batch that they ever wrote."""
    fresh: np.ndarray = ~events.is_marker & are_first_ever(events.data_epoch, events.data_sequence, events.data_offset)
    return fresh


def _first_boundary(boundaries: Sequence[SegmentBoundary], newest_ms: int) -> int:
    """The first boundary with a batch below it that is as young; ``NEVER`` if there is none."""
    index = bisect_left(boundaries, newest_ms, key=lambda each: each.newest_ms)
    return boundaries[index].offset if index < len(boundaries) else NEVER


def _or_never(offsets: np.ndarray) -> np.ndarray:
    return np.where(offsets == NONE, NEVER, offsets)


def _of_producers(ids: np.ndarray, values: np.ndarray, producer_ids: np.ndarray) -> np.ndarray:
    """The value of each wanted producer, ``NEVER`` for one without any."""
    row, is_present = lookup(ids, producer_ids)
    if len(ids):
        return np.where(is_present, values[row], NEVER)
    return np.full(len(producer_ids), NEVER)


class _Lacking:
    """Which producers some snapshot lacks, at or below their first event; or has without a coordinator epoch, before their first marker."""

    def __init__(self, events: FirstEvents) -> None:
        self.events = events
        self.is_lacking = np.zeros(len(events), dtype=bool)
        self.is_unmarked = np.zeros(len(events), dtype=bool)

    def take(self, offset: int, later: np.ndarray) -> None:
        """Takes the next later snapshot: its entries, sorted by producer id."""
        events = self.events
        row, is_present = lookup(later["producer_id"], events.producer_id)
        self.is_lacking |= ~is_present & (events.offset >= offset)
        at = (is_present & (events.offset < offset) & (_or_never(events.marker_offset) >= offset)).nonzero()[0]
        self.is_unmarked[at] |= later["coordinator_epoch"][row[at]] == NONE
