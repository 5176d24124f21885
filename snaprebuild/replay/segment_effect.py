"""A segment as a function on producer states, and how such functions compose.

What a run of batches does to any incoming state is, for each producer that it touches, a small value (a row here):

=========  ====================================  ==============================================================================
field      values                                meaning for the incoming state
=========  ====================================  ==============================================================================
E, T       constant or KEEP (``assigned``)       epoch and timestamp: assigned, or left
C          constant or KEEP (``marked``)         coordinator epoch: assigned, or left
B          KEEP, IF(e), SET(batch), CLEAR        newest data batch: left; left if the incoming epoch is e, else none; assigned; none
X          KEEP_OR_SET(x), SET(x), x or none     first offset of the open transaction: kept if open, else set; assigned
failure    ``fail_always``, ``fail_open``        offset of the first batch on which Kafka throws: always; if one was open before
=========  ====================================  ==============================================================================

Rows are sorted by producer id, columns are numpy arrays. ``compose`` is associative, so segments (and blocks of one segment) are mapped in
parallel, and one ordered prefix scan gives the state at every boundary. A producer state is itself an effect, one with constants only.
Closed transactions, from which ``.txnindex`` is derived, compose with it. A log may close millions of transactions, of which few are
aborted: ``index_relevant`` are those on which the indexes depend.

A ``RunningEffect`` is composed only on demand. A log of 10,000 segments has as many boundaries, with a million producers at each of them,
and few of the states are needed. So effects are kept as levels, each of some consecutive segments, and joined with others of similar size.
What is needed at every boundary is found without composing: where Kafka throws, what the markers of a segment closed, and which
transactions are open.

Source: derived from ``ProducerAppendInfo``, ``LogSegment.updateProducerState``, ``LogSegment.updateTxnIndex`` and
``ProducerStateManager.lastStableOffset``. Tests compare it with the fold of
``tests/support/reference_producer_state.py`` for each log and split.
"""

from __future__ import annotations

import functools
import heapq

import msgspec
import numpy as np

from formats.partition.producer_snapshot import ENTRY_DTYPE
from formats.partition.transaction_index import AbortedTransaction

__all__ = [
    "CLEAR",
    "COLUMNS",
    "ENDS_CLOSING",
    "ENDS_CLOSING_INCOMING",
    "ENDS_CLOSING_NOTHING",
    "ENDS_WITH_DATA",
    "IDENTITY",
    "IF",
    "KEEP",
    "NONE",
    "NO_CLOSES",
    "SET",
    "ClosedTransactions",
    "Levels",
    "RunningEffect",
    "SegmentEffect",
    "aborted_in",
    "aligned",
    "compose",
    "effect_of_entries",
    "entries_of",
    "identity_rows",
    "index_relevant",
    "joined",
    "lookup",
    "resolve_closes",
    "sorted_entries",
    "stacked",
]

KEEP = np.uint8(0)
IF = np.uint8(1)
SET = np.uint8(2)
CLEAR = np.uint8(3)
"""The effect on the incoming data batch."""

ENDS_WITH_DATA = np.uint8(0)
ENDS_CLOSING = np.uint8(1)
ENDS_CLOSING_NOTHING = np.uint8(2)
ENDS_CLOSING_INCOMING = np.uint8(3)
"""The last batch of a producer: data, or a marker that closed a transaction, that closed none, or that closed the one that was open before
if there was one. 0 also without batches."""

NONE = -1
"""No offset, no epoch: Kafka's own value for them in the file."""


class ClosedTransactions(msgspec.Struct, frozen=True):
    """Transactions closed by the markers of a run of batches, in log order.

    Attributes:
        producer_id: int64 (m,).
        is_incoming: bool (m,), the first offset is that of the transaction that was open before if there is one, else ``first_offset``.
            Only the first marker of a producer can have this.
        first_offset: int64 (m,), -1 for none: with ``is_incoming`` and nothing open before, the marker closes nothing.
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

    def chosen(self, which: np.ndarray | slice) -> ClosedTransactions:
        """The rows that ``which`` (mask, indices or slice) selects."""
        return ClosedTransactions(*[getattr(self, name)[which] for name in self.__struct_fields__])

    def followed_by(self, later: ClosedTransactions) -> ClosedTransactions:
        """These followed by ``later`` ones."""
        if not len(later):
            return self
        return ClosedTransactions(*[np.concatenate((getattr(self, name), getattr(later, name))) for name in self.__struct_fields__])

    def without_orphans(self) -> ClosedTransactions:
        """The transactions that really were closed, if nothing was open before."""
        return self.chosen(self.first_offset != NONE)


class SegmentEffect(msgspec.Struct, frozen=True):
    """The effect of a run of batches on any producer state. All columns have shape (n,), one row for each producer, sorted by id.

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
        txn_is_set: bool, True for SET, False for KEEP_OR_SET.
        txn_first_offset: int64, -1 for none.
        fail_always: int64, offset of the first batch on which Kafka throws whatever was before, -1 for none.
        fail_open: int64, the same if a transaction was open before.
        first_epoch: int16, of the first batch or marker. Evidence only, no part of the function.
        epoch_decreased: bool, an epoch went down, which no legal log shows. Evidence too.
        starts_fresh: bool, begins with the first data batch that the producer ever wrote (``block_effect.are_first_ever``). Evidence too.
        last_batch_kind: uint8, ``ENDS_WITH_DATA`` or one of the three after it. Evidence too.
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
    last_batch_kind: np.ndarray
    closes: ClosedTransactions

    def __len__(self) -> int:
        return len(self.producer_id)

    def without_closes(self) -> SegmentEffect:
        """This effect without the list of closed transactions, for prefix scans that would carry it along."""
        return self.with_closes(NO_CLOSES)

    def with_closes(self, closes: ClosedTransactions) -> SegmentEffect:
        """This effect with another list of closed transactions."""
        if not len(closes) and not len(self.closes):
            return self
        return SegmentEffect(**{name: getattr(self, name) for name in COLUMNS}, closes=closes)

    def chosen(self, which: np.ndarray) -> SegmentEffect:
        """The rows that ``which`` (mask or ascending indices) selects; ``closes`` stay whole."""
        return SegmentEffect(**{name: getattr(self, name)[which] for name in COLUMNS}, closes=self.closes)

    @property
    def failure_offset(self) -> int | None:
        """Offset of the first batch on which Kafka throws when nothing was open before, or None."""
        failing = self.fail_always[self.fail_always != NONE]
        return int(failing.min()) if len(failing) else None


COLUMNS: dict[str, tuple[str, int]] = {
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
    "last_batch_kind": ("u1", 0),
}
"""Type of each column, and its value in the identity, which leaves a producer as it is."""


NO_CLOSES = ClosedTransactions(*(np.zeros(0, dtype=dtype) for dtype in ("i8", "?", "i8", "i8", "?")))
IDENTITY = SegmentEffect(**{name: np.zeros(0, dtype=dtype) for name, (dtype, _) in COLUMNS.items()}, closes=NO_CLOSES)


FEW_ROWS = 1024
_FEW_IDENTITY_ROWS = {name: np.full(FEW_ROWS, value, dtype=dtype) for name, (dtype, value) in COLUMNS.items()}


def identity_rows(producer_id: np.ndarray) -> dict[str, np.ndarray]:
    """All columns of the identity for these producers."""
    count = len(producer_id)
    if count <= FEW_ROWS:  # a copy takes a third of the time of numpy.full
        columns = {name: rows[:count].copy() for name, rows in _FEW_IDENTITY_ROWS.items()}
    else:
        columns = {name: np.full(count, value, dtype=dtype) for name, (dtype, value) in COLUMNS.items()}
    columns["producer_id"] = producer_id
    return columns


def lookup(sorted_ids: np.ndarray, producer_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each wanted id the row that has it (any row if none has), and whether one has it."""
    if not len(sorted_ids):
        return np.zeros(len(producer_ids), dtype=np.int64), np.zeros(len(producer_ids), dtype=bool)
    row = np.minimum(np.searchsorted(sorted_ids, producer_ids), len(sorted_ids) - 1)
    is_present: np.ndarray = sorted_ids[row] == producer_ids
    return row, is_present


# ---------------------------------------------------------------------------------------------------------------- composition


def compose(first: SegmentEffect, then: SegmentEffect) -> SegmentEffect:
    """The effect of ``first`` followed by ``then``. Associative, with ``IDENTITY`` as its unit.

    Only the producers that both have are composed. The rest is copied, or shared with ``first`` if a column stays as it is: columns of
    effects are never written to.
    """
    if not len(first) and not len(first.closes):
        return then
    if not len(then) and not len(then.closes):
        return first
    # The first marker of a producer in ``then`` closes what was open after ``first``, if that is known.
    closes = first.closes.followed_by(resolve_closes(first, then.closes))
    if not len(first) or not len(then):
        return (first if len(first) else then).with_closes(closes)
    place = np.searchsorted(first.producer_id, then.producer_id)
    is_new = first.producer_id[np.minimum(place, len(first) - 1)] != then.producer_id
    both = (~is_new).nonzero()[0]
    if len(both) == len(first) == len(then):
        return SegmentEffect(**_composed_rows(first, then), closes=closes)
    if len(both) == len(then):
        a = first.chosen(place)
        composed = _composed_rows(a, then)
        columns = {name: _overwritten(getattr(first, name), place, getattr(a, name), composed[name]) for name in COLUMNS}
        return SegmentEffect(**columns, closes=closes)
    composed = _composed_rows(first.chosen(place[both]), then.chosen(both))
    new = is_new.nonzero()[0]
    place += np.cumsum(is_new) - is_new
    at_both = place[both]
    at_new = place[new]
    is_first = np.ones(len(first) + len(new), dtype=bool)
    is_first[at_new] = False
    row = np.cumsum(is_first) - 1  # any row for a new producer: it is written over
    columns = {}
    for name in COLUMNS:
        column = getattr(first, name).take(row, mode="clip")
        column[at_both] = composed[name]
        column[at_new] = getattr(then, name)[new]
        columns[name] = column
    return SegmentEffect(**columns, closes=closes)


def _overwritten(column: np.ndarray, rows: np.ndarray, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """The column with ``new`` in place of ``old`` in these rows; the column itself if that is seen to change nothing."""
    if new is old or (len(column) > FEW_ROWS and (old == new).all()):
        return column
    column = column.copy()
    column[rows] = new
    return column


def _where(which: np.ndarray, yes: np.ndarray, no: np.ndarray) -> np.ndarray:
    """``np.where`` of columns, or the one that has the whole answer: mostly one does, and for few rows each call counts."""
    count = np.count_nonzero(which)
    if count == len(which):
        return yes
    return np.where(which, yes, no) if count else no


def _composed_rows(a: SegmentEffect, b: SegmentEffect) -> dict[str, np.ndarray]:
    """The columns of ``a`` followed by ``b``, which have the same producers."""
    assigned = b.assigned
    marked = b.marked
    columns: dict[str, np.ndarray] = {
        "producer_id": a.producer_id,
        "assigned": _where(assigned, assigned, a.assigned),
        "epoch": _where(assigned, b.epoch, a.epoch),
        "timestamp": _where(assigned, b.timestamp, a.timestamp),
        "marked": _where(marked, marked, a.marked),
        "coordinator_epoch": _where(marked, b.coordinator_epoch, a.coordinator_epoch),
    }
    columns |= _composed_batch(a, b)
    columns |= _composed_transaction(a, b)
    columns |= _composed_evidence(a, b)
    return columns


def aligned(effect: SegmentEffect, producer_id: np.ndarray) -> SegmentEffect:
    """The effect with a row for every producer of ``producer_id``, which includes all of its own."""
    if len(effect) == len(producer_id):
        return effect
    columns = identity_rows(producer_id)
    where = np.searchsorted(producer_id, effect.producer_id)
    for name in COLUMNS:
        columns[name][where] = getattr(effect, name)
    return SegmentEffect(**columns, closes=effect.closes)


def _composed_batch(a: SegmentEffect, b: SegmentEffect) -> dict[str, np.ndarray]:
    """KEEP leaves a's answer; SET and CLEAR forget it; IF(e) keeps a's batch only if it was written in epoch e."""
    names = ("batch_epoch", "last_sequence", "last_offset", "offset_delta")
    if not np.count_nonzero(b.batch < SET):  # mostly
        return {name: getattr(b, name) for name in ("batch", *names)}
    conditional = b.batch == IF
    # a's own answer, read through the condition of b.
    lost = conditional & (
        ((a.batch == IF) & (a.batch_epoch != b.batch_epoch)) | ((a.batch == SET) & (a.epoch != b.batch_epoch)) | (a.batch == CLEAR)
    )
    from_a = (b.batch == KEEP) | (conditional & (a.batch != KEEP) & ~lost)
    from_b = ~from_a & ~lost
    batch = np.where(lost, CLEAR, np.where(from_a, a.batch, b.batch)).astype(np.uint8)
    columns = {"batch": batch}
    for name in names:
        neutral = COLUMNS[name][1]
        columns[name] = np.where(from_a, getattr(a, name), np.where(from_b, getattr(b, name), neutral)).astype(COLUMNS[name][0])
    return columns


def _composed_transaction(a: SegmentEffect, b: SegmentEffect) -> dict[str, np.ndarray]:
    """A marker in b forgets the past; without one the oldest first offset stays."""
    a_open = a.txn_first_offset != NONE
    first_offset = _where(a_open, a.txn_first_offset, b.txn_first_offset)
    columns = {
        "txn_is_set": _where(b.txn_is_set, b.txn_is_set, a.txn_is_set),
        "txn_first_offset": _where(b.txn_is_set, b.txn_first_offset, first_offset),
        "fail_always": _first_of(a.fail_always, b.fail_always),
        "fail_open": a.fail_open,
    }
    if np.count_nonzero(b.fail_open != NONE):  # as no legal log has
        now_fails = np.where(a_open, b.fail_open, NONE)
        still_open_fails = np.where(~a_open & ~a.txn_is_set, b.fail_open, NONE)
        columns["fail_always"] = _first_of(columns["fail_always"], now_fails)
        columns["fail_open"] = _first_of(a.fail_open, still_open_fails)
    return columns


def _first_of(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The smaller offset of two, where -1 is none."""
    if not np.count_nonzero(b != NONE):
        return a
    return np.where(a == NONE, b, np.where(b == NONE, a, np.minimum(a, b)))


def _composed_evidence(a: SegmentEffect, b: SegmentEffect) -> dict[str, np.ndarray]:
    between = a.assigned & b.assigned & (b.first_epoch < a.epoch)
    last_of_b = b.last_batch_kind
    waits = last_of_b == ENDS_CLOSING_INCOMING
    if np.count_nonzero(waits):
        closing = np.where(a.txn_is_set, ENDS_CLOSING_NOTHING, ENDS_CLOSING_INCOMING)
        last_of_b = np.where(waits, np.where(a.txn_first_offset != NONE, ENDS_CLOSING, closing), last_of_b)
    decreased = b.epoch_decreased | between
    return {
        "starts_fresh": _where(a.assigned, a.starts_fresh, b.starts_fresh),
        "last_batch_kind": _where(b.assigned, last_of_b, a.last_batch_kind),
        "first_epoch": _where(a.assigned, a.first_epoch, b.first_epoch),
        "epoch_decreased": _where(decreased, decreased, a.epoch_decreased),
    }


def resolve_closes(before: SegmentEffect, closes: ClosedTransactions) -> ClosedTransactions:
    """``closes`` of a run of batches after ``before``, with the first offsets of transactions that were open before, if known.

    Rows that certainly close nothing are dropped.
    """
    if not len(closes) or not len(before):
        return closes
    row, is_present = lookup(before.producer_id, closes.producer_id)
    is_resolved = closes.is_incoming & is_present
    opened = before.txn_first_offset[row]
    was_set = before.txn_is_set[row]
    first_offset = np.where(is_resolved & (opened != NONE), opened, closes.first_offset)
    is_incoming = closes.is_incoming & ~(is_resolved & was_set)
    resolved = ClosedTransactions(closes.producer_id, is_incoming, first_offset, closes.marker_offset, closes.is_aborted)
    return resolved.chosen(is_incoming | (first_offset != NONE))


# ---------------------------------------------------------------------------------------------------------------- states


def effect_of_entries(entries: np.ndarray) -> SegmentEffect:
    """A producer state as an effect: every field a constant.

    Args:
        entries: of ``ENTRY_DTYPE``, any order; the last entry of a producer counts, as when a broker loads them.
    """
    if not len(entries):
        return IDENTITY
    native = entries.astype(entries.dtype.newbyteorder("="))
    _, last = np.unique(native["producer_id"][::-1], return_index=True)
    native = native[::-1][last]
    columns = identity_rows(native["producer_id"].copy())
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
    """The state after ``effect`` if there was none before: entries of ``ENTRY_DTYPE``, sorted by producer id."""
    entries = np.zeros(len(effect), dtype=ENTRY_DTYPE)
    entries["producer_id"] = effect.producer_id
    entries["epoch"] = effect.epoch
    entries["timestamp"] = effect.timestamp
    entries["coordinator_epoch"] = effect.coordinator_epoch
    has_batch = effect.batch == SET
    for name in ("last_sequence", "last_offset", "offset_delta"):
        entries[name] = np.where(has_batch, getattr(effect, name), COLUMNS[name][1])
    entries["current_txn_first_offset"] = effect.txn_first_offset
    return entries


def sorted_entries(entries: np.ndarray) -> np.ndarray:
    """Entries (of ``ENTRY_DTYPE``) in the order of their producer ids."""
    ordered: np.ndarray = entries[np.argsort(entries["producer_id"].astype(np.int64), kind="stable")]
    return ordered


# -------------------------------------------------------------------------------------------------- the entries of a .txnindex


def index_relevant(closes: ClosedTransactions) -> ClosedTransactions:
    """The closed transactions that ``aborted_in`` needs: at most one for each producer, and two for each aborted transaction.

    A transaction that was open before the run is kept, because its first offset is unknown here. An aborted one is in the index,
    together with the least first offset of those that were still open. Among those that are closed after it, the one that began
    first is enough.

    Args:
        closes: in log order, of an effect that is not yet composed on what is before the segment.
    """
    needed = closes.is_incoming | closes.is_aborted
    aborted = np.flatnonzero(closes.is_aborted[:-1])
    if len(aborted):
        first = np.where(closes.is_incoming, np.iinfo(np.int64).max, closes.first_offset)
        least_later = np.minimum.accumulate(first[:0:-1])[::-1][aborted]
        was_open = least_later < closes.marker_offset[aborted]
        needed |= np.isin(first, least_later[was_open])
    return closes if needed.all() else closes.chosen(needed)


def aborted_in(completed: ClosedTransactions, open_first_offset: np.ndarray) -> list[AbortedTransaction]:
    """The entries of a segment's ``.txnindex``, with the last stable offset at each abort.

    A transaction opened at ``first`` and closed at ``marker`` is open for every marker in between. Each one that was open in the segment
    was closed in it, or is open at its end.

    Args:
        completed: the closed transactions of the segment, in log order, resolved by the state before it, without those that closed
            nothing. All of them, or those that ``index_relevant`` leaves.
        open_first_offset: int64 (n,), first offsets of the transactions that are open at the end of the segment.
    """
    producers = completed.producer_id.tolist()
    firsts = completed.first_offset.tolist()
    markers = completed.marker_offset.tolist()
    aborted = completed.is_aborted.tolist()
    if not any(aborted):
        return []
    waiting = sorted({*firsts, *open_first_offset.tolist()})
    heap: list[int] = []
    closed: set[int] = set()
    entries: list[AbortedTransaction] = []
    index = 0
    for producer_id, first, marker, is_aborted in zip(producers, firsts, markers, aborted, strict=True):
        while index < len(waiting) and waiting[index] < marker:
            heapq.heappush(heap, waiting[index])
            index += 1
        while heap and heap[0] in closed:
            heapq.heappop(heap)
        if is_aborted:
            entries.append(AbortedTransaction(0, producer_id, first, marker, _least_other(heap, closed, first, marker)))
        closed.add(first)
    return entries


def _least_other(heap: list[int], closed: set[int], own: int, marker: int) -> int:
    """The least first offset of an open transaction other than ``own``; without one the offset after the marker."""
    if heap and heap[0] != own:
        return heap[0]
    # The own transaction is the oldest and closes now. The next oldest is among the rest, of which the closed ones are dropped.
    if heap:
        heapq.heappop(heap)
    while heap and heap[0] in closed:
        heapq.heappop(heap)
    return heap[0] if heap else marker + 1


# -------------------------------------------------------------------------------------------------- the effect of everything so far

Levels = tuple[SegmentEffect, ...]
"""Consecutive effects, in place of their composition."""

WAITING_MAX = 8
WAITING_ROWS_MAX = 256
"""Effects that wait to be composed, and the rows of each."""


def stacked(levels: Levels, effect: SegmentEffect) -> Levels:
    """``levels`` followed by ``effect``, composed with those that are not much larger: so no row is composed again and again."""
    while levels and len(levels[-1]) <= 2 * len(effect):
        effect = compose(levels[-1], effect)
        levels = levels[:-1]
    return (*levels, effect)


def appended(levels: Levels, effect: SegmentEffect) -> Levels:
    """``levels`` followed by ``effect``; a few small ones wait until they are needed, because most never are."""
    if len(effect) <= WAITING_ROWS_MAX and len(levels) < WAITING_MAX:
        return (*levels, effect)
    return functools.reduce(stacked, (*levels, effect), ())


def joined(levels: Levels) -> SegmentEffect:
    """The composition of all levels."""
    return functools.reduce(lambda after, before: compose(before, after), reversed(levels), IDENTITY)


class RunningEffect:
    """The effect of a run of batches, without its closes. It never changes: ``then`` returns another one, which shares what it can.

    Attributes:
        failure_offset: offset of the first batch on which Kafka throws if nothing was open before, or None.
        open_first_offset: first offsets of the transactions that are open at the end, int64 (n,), by producer id.
    """

    __slots__ = ("_levels", "_open_producer_id", "failure_offset", "open_first_offset")

    def __init__(self, effect: SegmentEffect = IDENTITY) -> None:
        """Begins with ``effect``: the state before the run, or the composed effect of what is before it."""
        self._levels: Levels = (effect.without_closes(),)
        self._open_producer_id, self.open_first_offset = _opened(effect)
        self.failure_offset = effect.failure_offset

    def total(self) -> SegmentEffect:
        """The whole run as one effect. It is composed once, for this value and for those that follow it."""
        self._levels = (joined(self._levels),)
        return self._levels[0]

    def then(self, effect: SegmentEffect) -> RunningEffect:
        """This followed by ``effect``."""
        if not len(effect):
            return self
        result = RunningEffect.__new__(RunningEffect)
        result._levels = appended(self._levels, effect.without_closes())
        # The smaller one is looked up in the larger one: hundreds of thousands may be open.
        row, is_met = lookup(self._open_producer_id, effect.producer_id)
        failing = effect.fail_open[is_met]
        failures = (self.failure_offset, effect.failure_offset, *failing[failing != NONE].tolist())
        result.failure_offset = min((offset for offset in failures if offset is not None), default=None)
        # As ``compose``: a marker forgets what was open, and without one it stays open from where it began.
        closed = row[is_met & effect.txn_is_set]
        staying = self._open_producer_id
        first_offset = self.open_first_offset
        if len(closed):
            staying = np.delete(staying, closed)
            first_offset = np.delete(first_offset, closed)
        opened, opened_first_offset = _opened(effect)
        if len(opened):
            is_new = ~lookup(staying, opened)[1]
            place = np.searchsorted(staying, opened[is_new]) + np.arange(np.count_nonzero(is_new))
            staying = _with_inserted(staying, place, opened[is_new])
            first_offset = _with_inserted(first_offset, place, opened_first_offset[is_new])
        result._open_producer_id = staying
        result.open_first_offset = first_offset
        return result

    def resolved(self, closes: ClosedTransactions) -> ClosedTransactions:
        """``closes`` of the batches after this run, with what they take from the incoming state, if known (``resolve_closes``)."""
        for level in reversed(self._levels):
            closes = resolve_closes(level, closes)
        return closes

    def of_producer(self, producer_id: int) -> SegmentEffect:
        """The row of ``total`` of this producer, as an effect; the identity if there is none."""
        return joined(tuple(level.chosen(np.flatnonzero(level.producer_id == producer_id)) for level in self._levels))


def _with_inserted(values: np.ndarray, place: np.ndarray, new: np.ndarray) -> np.ndarray:
    """``values`` with ``new`` at these indices of the result. ``np.insert`` takes ten times as long for few values."""
    result = np.empty(len(values) + len(new), dtype=values.dtype)
    is_old = np.ones(len(result), dtype=bool)
    is_old[place] = False
    result[is_old] = values
    result[place] = new
    return result


def _opened(effect: SegmentEffect) -> tuple[np.ndarray, np.ndarray]:
    """Producer ids and first offsets of the transactions that are open after ``effect`` if nothing was open before."""
    rows = (effect.txn_first_offset != NONE).nonzero()[0]
    return effect.producer_id[rows], effect.txn_first_offset[rows]
