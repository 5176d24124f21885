"""A segment as a function on producer states, and how such functions compose.

What a run of batches does to any incoming state is, for each producer that it touches, a small value (a row here):

=========  ====================================  ==============================================================================
field      values                                meaning for the incoming state
=========  ====================================  ==============================================================================
E, T       constant or KEEP (``assigned``)       epoch and timestamp: assigned, or left
C          constant or KEEP (``marked``)         coordinator epoch: assigned, or left
B          KEEP, IF(e), SET(batch), CLEAR        newest data batch: left; left if the incoming epoch is e, else none; assigned; none
X          KOS(x), SET(x), x may be none         first offset of the open transaction: kept if open, else set; assigned
failure    ``fail_always``, ``fail_open``        offset of the first batch on which Kafka throws: always; if a transaction comes in open
=========  ====================================  ==============================================================================

Rows are sorted by producer id, columns are numpy arrays. ``compose`` is associative, so segments (and blocks of one segment) are mapped in
parallel, and one ordered prefix scan gives the state at every boundary. A producer state is itself an effect, one with constants only.
``completed`` transactions, from which ``.txnindex`` is derived, compose beside it.

Source: derived from ``ProducerAppendInfo``; equal to ``producer_state`` for every log and every split, which the tests show.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from formats.batch_headers import HeaderBlock
from formats.control_record import ControlRecordType
from formats.producer_snapshot import ENTRY_DTYPE
from formats.record_batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from snaprebuild.replay.producer_ids import dense_ids, merged_ids, run_starts, stable_order, unique_sorted

__all__ = [
    "CLEAR",
    "EFFECT_COLUMNS",
    "ENDS_CLOSING",
    "ENDS_CLOSING_INCOMING",
    "ENDS_CLOSING_NOTHING",
    "ENDS_WITH_DATA",
    "IDENTITY",
    "IF",
    "KEEP",
    "SET",
    "SegmentEffect",
    "TransactionCloses",
    "compose",
    "effect_of_block",
    "effect_of_entries",
    "entries_of",
    "resolve_closes",
]

KEEP, IF, SET, CLEAR = np.uint8(0), np.uint8(1), np.uint8(2), np.uint8(3)
"""What happens to the incoming data batch."""

ENDS_WITH_DATA, ENDS_CLOSING, ENDS_CLOSING_NOTHING, ENDS_CLOSING_INCOMING = np.uint8(0), np.uint8(1), np.uint8(2), np.uint8(3)
"""How the batches of a producer end; 0 also where there are none."""

NONE = -1
"""No offset, no epoch: Kafka's own value for them in the file."""


@dataclass(frozen=True, slots=True)
class TransactionCloses:
    """Transactions closed by the markers of a run of batches, in log order.

    Attributes:
        producer_id: int64 (m,).
        is_incoming: bool (m,), the first offset is that of the incoming open transaction if there is one, else ``first_offset``. Only the
            first marker of a producer can be so.
        first_offset: int64 (m,), -1 for none: with ``is_incoming`` and nothing open the marker closes nothing.
        marker_offset: int64 (m,).
        is_aborted: bool (m,).
    """

    producer_id: np.ndarray
    is_incoming: np.ndarray
    first_offset: np.ndarray
    marker_offset: np.ndarray
    is_aborted: np.ndarray

    def __len__(self) -> int:
        return len(self.producer_id)

    def chosen(self, which: np.ndarray) -> TransactionCloses:
        """The rows that ``which`` (mask or indices) selects."""
        return TransactionCloses(*(getattr(self, column.name)[which] for column in fields(self)))

    def without_orphans(self) -> TransactionCloses:
        """Those that closed something, given that nothing was open before."""
        return self.chosen(self.first_offset != NONE)


@dataclass(frozen=True, slots=True)
class SegmentEffect:
    """What a run of batches does to any producer state. All columns have shape (n,), one row for each producer, sorted by id.

    Attributes:
        producer_id: int64, ascending, no duplicates.
        assigned: bool; False only where nothing but empty control batches was seen, which create an entry and change nothing.
        epoch: int16, valid where assigned.
        timestamp: int64 ms, valid where assigned.
        marked: bool, a marker was seen.
        coordinator_epoch: int32, valid where marked.
        batch: uint8, KEEP, IF, SET or CLEAR.
        batch_epoch: int16, the e of IF.
        last_sequence: int32, last_offset: int64, offset_delta: int32: the batch of SET.
        txn_is_set: bool, True for SET, False for KOS.
        txn_first_offset: int64, -1 for none.
        fail_always: int64, offset of the first batch on which Kafka throws whatever comes in, -1 for none.
        fail_open: int64, the same if a transaction comes in open.
        first_epoch: int16, of the first batch or marker. Evidence only, no part of the function.
        epoch_decreased: bool, an epoch went down, which no legal log shows. Evidence too.
        starts_fresh: bool, begins with a data batch of epoch 0 and sequence 0: no batch of this producer can lie before it. Evidence too.
        end: uint8, how it ends: with data (``ENDS_WITH_DATA``), or with a marker that closed a transaction, closed none, or closed what
            came in open if anything did. Evidence too.
        closes: transactions closed by the markers.
    """

    producer_id: np.ndarray
    assigned: np.ndarray
    epoch: np.ndarray
    timestamp: np.ndarray
    marked: np.ndarray
    coordinator_epoch: np.ndarray
    batch: np.ndarray
    batch_epoch: np.ndarray
    last_sequence: np.ndarray
    last_offset: np.ndarray
    offset_delta: np.ndarray
    txn_is_set: np.ndarray
    txn_first_offset: np.ndarray
    fail_always: np.ndarray
    fail_open: np.ndarray
    first_epoch: np.ndarray
    epoch_decreased: np.ndarray
    starts_fresh: np.ndarray
    end: np.ndarray
    closes: TransactionCloses

    def __len__(self) -> int:
        return len(self.producer_id)

    def without_closes(self) -> SegmentEffect:
        """The same function without the list of closed transactions, for prefix scans that would carry it along."""
        return self.with_closes(NO_CLOSES)

    def with_closes(self, closes: TransactionCloses) -> SegmentEffect:
        """The same function with another list of closed transactions."""
        return _replaced(self, closes=closes)

    def chosen(self, which: np.ndarray) -> SegmentEffect:
        """The rows that ``which`` (mask or ascending indices) selects; ``closes`` stay whole."""
        return SegmentEffect(**{name: getattr(self, name)[which] for name in _COLUMNS}, closes=self.closes)

    @property
    def failure_offset(self) -> int | None:
        """Offset of the first batch on which Kafka throws when nothing was open before, or None."""
        failing = self.fail_always[self.fail_always != NONE]
        return int(failing.min()) if len(failing) else None


_COLUMNS: dict[str, tuple[str, int]] = {
    "producer_id": ("i8", NONE),
    "assigned": ("?", 0),
    "epoch": ("i2", NONE),
    "timestamp": ("i8", NONE),
    "marked": ("?", 0),
    "coordinator_epoch": ("i4", NONE),
    "batch": ("u1", int(KEEP)),
    "batch_epoch": ("i2", NONE),
    "last_sequence": ("i4", NONE),
    "last_offset": ("i8", NONE),
    "offset_delta": ("i4", 0),
    "txn_is_set": ("?", 0),
    "txn_first_offset": ("i8", NONE),
    "fail_always": ("i8", NONE),
    "fail_open": ("i8", NONE),
    "first_epoch": ("i2", NONE),
    "epoch_decreased": ("?", 0),
    "starts_fresh": ("?", 0),
    "end": ("u1", 0),
}
"""Type of each column, and the value by which a producer that was not touched is left as it is: the identity."""


def _replaced(effect: SegmentEffect, **columns: object) -> SegmentEffect:
    values = {name: getattr(effect, name) for name in (*_COLUMNS, "closes")}
    return SegmentEffect(**{**values, **columns})


def _no_closes() -> TransactionCloses:
    def empty(dtype: str) -> np.ndarray:
        return np.zeros(0, dtype=dtype)

    return TransactionCloses(empty("i8"), empty("?"), empty("i8"), empty("i8"), empty("?"))


NO_CLOSES = _no_closes()
IDENTITY = SegmentEffect(**{name: np.zeros(0, dtype=dtype) for name, (dtype, _) in _COLUMNS.items()}, closes=NO_CLOSES)


def _identity_rows(producer_id: np.ndarray) -> dict[str, np.ndarray]:
    columns = {name: np.full(len(producer_id), value, dtype=dtype) for name, (dtype, value) in _COLUMNS.items()}
    columns["producer_id"] = producer_id
    return columns


# ---------------------------------------------------------------------------------------------------------------- composition


def compose(first: SegmentEffect, then: SegmentEffect) -> SegmentEffect:
    """The effect of ``first`` followed by ``then``. Associative, with ``IDENTITY`` as its unit."""
    if not len(first) and not len(first.closes):
        return then
    if not len(then) and not len(then.closes):
        return first
    producer_id = merged_ids(first.producer_id, then.producer_id)
    a = _aligned(first, producer_id)
    b = _aligned(then, producer_id)
    assigned, marked = b.assigned, b.marked
    columns: dict[str, np.ndarray] = {
        "producer_id": producer_id,
        "assigned": a.assigned | assigned,
        "epoch": np.where(assigned, b.epoch, a.epoch),
        "timestamp": np.where(assigned, b.timestamp, a.timestamp),
        "marked": a.marked | marked,
        "coordinator_epoch": np.where(marked, b.coordinator_epoch, a.coordinator_epoch),
    }
    columns |= _composed_batch(a, b)
    columns |= _composed_transaction(a, b)
    columns |= _composed_evidence(a, b)
    return SegmentEffect(**columns, closes=_composed_closes(first, then))


def _aligned(effect: SegmentEffect, producer_id: np.ndarray) -> SegmentEffect:
    """The effect with a row for every producer of ``producer_id``, which holds all of its own."""
    if len(effect) == len(producer_id):
        return effect
    columns = _identity_rows(producer_id)
    where = np.searchsorted(producer_id, effect.producer_id)
    for name in _COLUMNS:
        columns[name][where] = getattr(effect, name)
    return SegmentEffect(**columns, closes=effect.closes)


def _composed_batch(a: SegmentEffect, b: SegmentEffect) -> dict[str, np.ndarray]:
    """KEEP leaves a's answer; SET and CLEAR forget it; IF(e) keeps a's batch only if it was written in epoch e."""
    conditional = b.batch == IF
    # a's own answer, read through the condition of b.
    lost = conditional & (
        ((a.batch == IF) & (a.batch_epoch != b.batch_epoch)) | ((a.batch == SET) & (a.epoch != b.batch_epoch)) | (a.batch == CLEAR)
    )
    from_a = (b.batch == KEEP) | (conditional & (a.batch != KEEP) & ~lost)
    from_b = ~from_a & ~lost
    batch = np.where(lost, CLEAR, np.where(from_a, a.batch, b.batch)).astype(np.uint8)
    columns = {"batch": batch}
    for name in ("batch_epoch", "last_sequence", "last_offset", "offset_delta"):
        neutral = _COLUMNS[name][1]
        columns[name] = np.where(from_a, getattr(a, name), np.where(from_b, getattr(b, name), neutral)).astype(_COLUMNS[name][0])
    return columns


def _composed_transaction(a: SegmentEffect, b: SegmentEffect) -> dict[str, np.ndarray]:
    """A marker in b forgets the past; without one the oldest first offset stays."""
    a_open = a.txn_first_offset != NONE
    kept = np.where(a_open, a.txn_first_offset, b.txn_first_offset)
    now_fails = np.where(a_open, b.fail_open, NONE)
    still_open_fails = np.where(~a_open & ~a.txn_is_set, b.fail_open, NONE)
    return {
        "txn_is_set": a.txn_is_set | b.txn_is_set,
        "txn_first_offset": np.where(b.txn_is_set, b.txn_first_offset, kept),
        "fail_always": _first_of(a.fail_always, _first_of(b.fail_always, now_fails)),
        "fail_open": _first_of(a.fail_open, still_open_fails),
    }


def _first_of(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The smaller offset of two, where -1 is none."""
    return np.where(a == NONE, b, np.where(b == NONE, a, np.minimum(a, b)))


def _composed_evidence(a: SegmentEffect, b: SegmentEffect) -> dict[str, np.ndarray]:
    between = a.assigned & b.assigned & (b.first_epoch < a.epoch)
    closing = np.where(
        a.txn_first_offset != NONE, ENDS_CLOSING, np.where(a.txn_is_set, ENDS_CLOSING_NOTHING, ENDS_CLOSING_INCOMING)
    )
    end_of_b = np.where(b.end == ENDS_CLOSING_INCOMING, closing, b.end)
    return {
        "starts_fresh": np.where(a.assigned, a.starts_fresh, b.starts_fresh),
        "end": np.where(b.assigned, end_of_b, a.end),
        "first_epoch": np.where(a.assigned, a.first_epoch, b.first_epoch),
        "epoch_decreased": a.epoch_decreased | b.epoch_decreased | between,
    }


def _composed_closes(first: SegmentEffect, then: SegmentEffect) -> TransactionCloses:
    """The first marker of a producer in ``then`` closes what was open after ``first``, where that is known."""
    closes = then.closes
    if not len(closes):
        return first.closes
    if len(first):
        closes = resolve_closes(first, closes)
    pairs = ((getattr(first.closes, column.name), getattr(closes, column.name)) for column in fields(TransactionCloses))
    return TransactionCloses(*(np.concatenate(pair) for pair in pairs))


def resolve_closes(before: SegmentEffect, closes: TransactionCloses) -> TransactionCloses:
    """``closes`` of a run of batches, seen after ``before``: what they take from the incoming state is filled in where it is known.

    Rows that close nothing for certain are dropped.
    """
    if not len(closes) or not len(before):
        return closes
    row = np.minimum(np.searchsorted(before.producer_id, closes.producer_id), len(before) - 1)
    known = closes.is_incoming & (before.producer_id[row] == closes.producer_id)
    opened, was_set = before.txn_first_offset[row], before.txn_is_set[row]
    first_offset = np.where(known & (opened != NONE), opened, closes.first_offset)
    is_incoming = closes.is_incoming & ~(known & was_set)
    resolved = TransactionCloses(closes.producer_id, is_incoming, first_offset, closes.marker_offset, closes.is_aborted)
    return resolved.chosen(is_incoming | (first_offset != NONE))


# ---------------------------------------------------------------------------------------------------------------- construction


EFFECT_COLUMNS = (
    "base_offset",
    "attributes",
    "last_offset_delta",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
)
"""Fields of a header on which an effect depends."""


def effect_of_block(block: HeaderBlock) -> SegmentEffect:
    """The effect of the batches of one block, vectorised.

    Producers that only wrote data outside of transactions, in one epoch, are most of most logs. For them the first and the last batch
    tell everything, which two scatters into tables find. The batches of the others are grouped by a sort (``_Acting``).
    """
    rows = np.flatnonzero(block.column("producer_id") >= 0)
    if not len(rows):
        return IDENTITY
    is_whole = len(rows) == len(block)

    def column(name: str) -> np.ndarray:
        values = block.column(name)
        return values if is_whole else values[rows]

    ids, dense = dense_ids(column("producer_id"))
    index = np.arange(len(rows))
    first, last = np.full(len(ids), NONE), np.full(len(ids), NONE)
    first[dense[::-1]] = index[::-1]  # numpy assigns in order: of equal indices the last one stays
    last[dense] = index
    is_plain = first != NONE
    touched = np.flatnonzero(is_plain)

    # Indices instead of masks, and of a bool: numpy selects by a mask, and looks for what is not 0 in other types, five times as slowly.
    special = np.flatnonzero(column("attributes") & (ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL) != 0)
    is_plain[dense[special]] = False
    epoch = column("producer_epoch")
    if epoch.min() != epoch.max():
        is_plain[dense[np.flatnonzero(epoch != epoch[first][dense])]] = False
    plain = np.flatnonzero(is_plain[touched])
    effect = _plain_effect(block, ids[touched], plain, rows[first[touched]], rows[last[touched]])
    if len(plain) == len(touched):
        return effect
    others = _grouped_effect(block, rows[np.flatnonzero(~is_plain[dense])])
    if not len(plain):
        return others
    where = np.flatnonzero(~is_plain[touched])
    for name in _COLUMNS:
        getattr(effect, name)[where] = getattr(others, name)
    return _replaced(effect, closes=others.closes)


def _plain_effect(
    block: HeaderBlock, producer_id: np.ndarray, plain: np.ndarray, first: np.ndarray, last: np.ndarray
) -> SegmentEffect:
    """Rows for all producers, filled for those at ``plain``, by their first and last batches, which are rows of the block."""
    columns = _identity_rows(producer_id)
    first, last = first[plain], last[plain]
    delta = block.column("last_offset_delta")[last]
    base_sequence = block.column("base_sequence")
    first_offset = block.column("base_offset")[first]
    columns["assigned"][plain] = True
    columns["epoch"][plain] = columns["first_epoch"][plain] = block.column("producer_epoch")[last]
    columns["timestamp"][plain] = block.column("max_timestamp")[last]
    columns["batch"][plain] = SET
    columns["last_sequence"][plain] = last_sequences(base_sequence[last], delta)
    columns["last_offset"][plain] = block.column("base_offset")[last] + delta
    columns["offset_delta"][plain] = delta
    columns["fail_open"][plain] = first_offset
    columns["starts_fresh"][plain] = (base_sequence[first] == 0) & (columns["first_epoch"][plain] == 0)
    columns["end"][plain] = ENDS_WITH_DATA
    return SegmentEffect(**columns, closes=NO_CLOSES)


def _grouped_effect(block: HeaderBlock, rows: np.ndarray) -> SegmentEffect:
    """The effect of some rows of a block, which are all batches of their producers: any kind of them."""
    producer_id = block.column("producer_id")[rows]
    order = stable_order(producer_id)
    rows, producer_id = rows[order], producer_id[order]

    attributes = block.column("attributes")[rows]
    is_control = attributes & ATTRIBUTE_CONTROL != 0
    marker = np.full(len(block), NONE, dtype=np.int64)
    marker[block.control] = np.arange(len(block.control))
    marker = np.where(is_control, marker[rows], NONE)
    acts = ~is_control | (marker != NONE)  # an empty control batch only touches its producer

    if acts.all():
        return _Acting(block, rows, producer_id, marker, attributes).effect()
    touched = unique_sorted(producer_id)
    if not acts.any():
        return SegmentEffect(**_identity_rows(touched), closes=NO_CLOSES)
    chosen = np.flatnonzero(acts)
    acting = _Acting(block, rows[chosen], producer_id[chosen], marker[chosen], attributes[chosen])
    return _aligned(acting.effect(), touched)


class _Acting:
    """Data batches and markers of a block, grouped by producer, in log order inside each group."""

    def __init__(
        self, block: HeaderBlock, rows: np.ndarray, producer_id: np.ndarray, marker: np.ndarray, attributes: np.ndarray
    ) -> None:
        self.rows = rows
        self.producer_id = producer_id
        self.marker = marker
        self.is_marker = marker != NONE
        self.is_data = ~self.is_marker
        self.is_transactional = self.is_data & (attributes & ATTRIBUTE_TRANSACTIONAL != 0)
        self.base_offset = block.column("base_offset")[rows]
        self.epoch = block.column("producer_epoch")[rows]
        self.block = block
        self.index = np.arange(len(rows))
        self.starts = run_starts(producer_id)
        self.ends = np.append(self.starts[1:], len(rows)) - 1
        self.group = np.repeat(np.arange(len(self.starts)), self.ends - self.starts + 1)
        self.group_ids = producer_id[self.starts]
        # Mostly epochs do not change inside a group, and all that asks for their order is left out.
        self.has_epochs = bool((self.epoch != self.epoch[self.starts][self.group]).any())
        # A stretch is what lies between two markers of a producer; the marker that ends it belongs to it.
        begins = np.zeros(len(rows), dtype=bool)
        begins[self.starts] = True
        begins[1:] |= self.is_marker[:-1]
        self.stretch_starts = np.flatnonzero(begins)
        self.stretch = np.cumsum(begins) - 1
        self.stretch_first_txn = np.minimum.reduceat(self._where(self.is_transactional, len(rows)), self.stretch_starts)

    def _where(self, mask: np.ndarray, otherwise: int) -> np.ndarray:
        return np.where(mask, self.index, otherwise)

    def _last_of(self, mask: np.ndarray) -> np.ndarray:
        """For each group the index of its last row in ``mask``, or -1."""
        return np.maximum.reduceat(self._where(mask, -1), self.starts)

    def effect(self) -> SegmentEffect:
        columns = _identity_rows(self.group_ids)
        columns["assigned"][:] = True
        columns["epoch"] = self.epoch[self.ends]
        columns["first_epoch"] = self.epoch[self.starts]
        columns["timestamp"] = self.block.column("max_timestamp")[self.rows[self.ends]]
        closing = np.flatnonzero(self.is_marker[self.ends])
        columns["timestamp"][closing] = self.block.marker_timestamp[self.marker[self.ends[closing]]]
        last_marker = self._last_of(self.is_marker)
        self._coordinator_epoch(columns, last_marker)
        self._batch(columns)
        self._transaction(columns, last_marker)
        self._failures(columns)
        if self.has_epochs:
            decreased = np.zeros(len(self.rows), dtype=bool)
            decreased[1:] = (self.epoch[1:] < self.epoch[:-1]) & (self.group[1:] == self.group[:-1])
            columns["epoch_decreased"] = np.logical_or.reduceat(decreased, self.starts)
        self._ends(columns)
        return SegmentEffect(**columns, closes=self._closes())

    def _coordinator_epoch(self, columns: dict[str, np.ndarray], last_marker: np.ndarray) -> None:
        marked = last_marker != NONE
        columns["marked"] = marked
        columns["coordinator_epoch"][marked] = self.block.marker_coordinator_epoch[self.marker[last_marker[marked]]]

    def _batch(self, columns: dict[str, np.ndarray]) -> None:
        """The last data batch, unless a marker of another epoch follows it; without a data batch, whether the markers agree."""
        last_data = self._last_of(self.is_data)
        has_data = last_data != NONE
        reference = self.epoch[np.where(has_data, last_data, self.starts)]
        lost = np.zeros(len(self.starts), dtype=bool)
        if self.has_epochs:
            changed = (self.index > last_data[self.group]) & (self.epoch != reference[self.group])
            lost = np.logical_or.reduceat(changed, self.starts)
        columns["batch"] = np.where(lost, CLEAR, np.where(has_data, SET, IF)).astype(np.uint8)
        conditional = ~lost & ~has_data
        columns["batch_epoch"][conditional] = reference[conditional]
        kept = ~lost & has_data
        row = last_data[kept]
        delta = self.block.column("last_offset_delta")[self.rows[row]]
        columns["offset_delta"][kept] = delta
        columns["last_offset"][kept] = self.base_offset[row] + delta
        columns["last_sequence"][kept] = last_sequences(self.block.column("base_sequence")[self.rows[row]], delta)

    def _transaction(self, columns: dict[str, np.ndarray], last_marker: np.ndarray) -> None:
        """The first transactional batch behind the last marker: that of the last stretch, unless the group ends with a marker."""
        columns["txn_is_set"] = last_marker != NONE
        first = np.where(self.is_marker[self.ends], len(self.rows), self.stretch_first_txn[self.stretch[self.ends]])
        opened = first < len(self.rows)
        columns["txn_first_offset"][opened] = self.base_offset[first[opened]]

    def _failures(self, columns: dict[str, np.ndarray]) -> None:
        """Data outside of the open transaction: open for certain behind a transactional batch, perhaps in the first stretch."""
        outside = self.is_data & ~self.is_transactional
        if not outside.any():
            return
        is_open = self.stretch_first_txn[self.stretch] < self.index
        in_first_stretch = self.stretch == self.stretch[self.starts][self.group]
        for name, failing in (("fail_always", outside & is_open), ("fail_open", outside & ~is_open & in_first_stretch)):
            first = np.minimum.reduceat(self._where(failing, len(self.rows)), self.starts)
            hit = first < len(self.rows)
            columns[name][hit] = self.base_offset[first[hit]]

    def _ends(self, columns: dict[str, np.ndarray]) -> None:
        first = self.starts
        new = self.is_data[first] & (self.epoch[first] == 0)
        columns["starts_fresh"] = new & (self.block.column("base_sequence")[self.rows[first]] == 0)
        stretch = self.stretch[self.ends]
        closed_own = self.stretch_first_txn[stretch] < len(self.rows)
        in_first = self.stretch_starts[stretch] == self.starts
        closing = np.where(closed_own, ENDS_CLOSING, np.where(in_first, ENDS_CLOSING_INCOMING, ENDS_CLOSING_NOTHING))
        columns["end"] = np.where(self.is_marker[self.ends], closing, ENDS_WITH_DATA).astype(np.uint8)

    def _closes(self) -> TransactionCloses:
        where = np.flatnonzero(self.is_marker)
        if not len(where):
            return NO_CLOSES
        stretch = self.stretch[where]
        first = self.stretch_first_txn[stretch]
        opened = first < len(self.rows)
        first_offset = np.where(opened, self.base_offset[np.where(opened, first, 0)], NONE)
        is_incoming = self.stretch_starts[stretch] == self.starts[self.group[where]]
        aborted = self.block.marker_type[self.marker[where]] == ControlRecordType.ABORT
        closes = TransactionCloses(self.producer_id[where], is_incoming, first_offset, self.base_offset[where], aborted)
        in_log_order = np.argsort(self.rows[where], kind="stable")
        return closes.chosen(in_log_order[(is_incoming | opened)[in_log_order]])


def last_sequences(base_sequence: np.ndarray, last_offset_delta: np.ndarray) -> np.ndarray:
    """``producer_state.last_sequence_of`` for columns: int32 in, int32 out."""
    last = base_sequence.astype(np.int64) + last_offset_delta
    last = np.where(last > 2**31 - 1, last - 2**31, last)
    return np.where(base_sequence == NONE, NONE, last).astype(np.int32)


# ---------------------------------------------------------------------------------------------------------------- states


def effect_of_entries(entries: np.ndarray) -> SegmentEffect:
    """A producer state as an effect: every field a constant.

    Args:
        entries: of ``ENTRY_DTYPE``, any order; of entries of one producer the last counts, as when a broker loads them.
    """
    if not len(entries):
        return IDENTITY
    native = entries.astype(entries.dtype.newbyteorder("="))
    _, last = np.unique(native["producer_id"][::-1], return_index=True)
    native = native[::-1][last]
    columns = _identity_rows(native["producer_id"].copy())
    columns["assigned"][:] = True
    columns["marked"][:] = True
    columns["txn_is_set"][:] = True
    for name in ("epoch", "timestamp", "coordinator_epoch"):
        columns[name] = native[name].copy()
    columns["first_epoch"] = columns["epoch"]
    has_batch = native["last_offset"] >= 0
    columns["batch"] = np.where(has_batch, SET, CLEAR).astype(np.uint8)
    for name in ("last_sequence", "last_offset", "offset_delta"):
        columns[name][has_batch] = native[name][has_batch]
    columns["txn_first_offset"] = np.where(native["current_txn_first_offset"] >= 0, native["current_txn_first_offset"], NONE)
    return SegmentEffect(**columns, closes=NO_CLOSES)


def entries_of(effect: SegmentEffect) -> np.ndarray:
    """The state after ``effect`` when nothing was known before: entries of ``ENTRY_DTYPE``, sorted by producer id."""
    entries = np.zeros(len(effect), dtype=ENTRY_DTYPE)
    entries["producer_id"] = effect.producer_id
    entries["epoch"] = effect.epoch
    entries["timestamp"] = effect.timestamp
    entries["coordinator_epoch"] = effect.coordinator_epoch
    has_batch = effect.batch == SET
    for name in ("last_sequence", "last_offset", "offset_delta"):
        entries[name] = np.where(has_batch, getattr(effect, name), _COLUMNS[name][1])
    entries["current_txn_first_offset"] = effect.txn_first_offset
    return entries
