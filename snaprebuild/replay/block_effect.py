"""From batch headers to the effect of a run of batches, vectorised.

Source: derived from ``ProducerAppendInfo``. Tests compare it with the fold of ``tests/support/reference_producer_state.py`` for every log.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from formats.log.batch_headers import HeaderBlock
from formats.log.control_record import ControlRecordType
from formats.log.record_batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from snaprebuild.replay.segment_effect import (
    CLEAR,
    COLUMNS,
    ENDS_CLOSING,
    ENDS_CLOSING_INCOMING,
    ENDS_CLOSING_NOTHING,
    ENDS_WITH_DATA,
    IDENTITY,
    IF,
    NO_CLOSES,
    NONE,
    SET,
    ClosedTransactions,
    SegmentEffect,
    aligned,
    identity_rows,
)

__all__ = ["EFFECT_COLUMNS", "dense_ids", "effect_of_block", "effects_of_parts", "run_starts"]

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

SEQUENCES = 1 << 31
"""Count of sequence numbers; 0 follows the last one."""


def effect_of_block(block: HeaderBlock) -> SegmentEffect:
    """The effect of the batches of one block.

    In most logs most producers only write data outside of transactions, in one epoch. Their effect depends on their first and last batch,
    which two scatters into tables find. The batches of the other producers are grouped by a sort (``_Acting``).
    """
    rows = (block.column("producer_id") >= 0).nonzero()[0]
    if not len(rows):
        return IDENTITY
    is_whole = len(rows) == len(block)

    def column(name: str) -> np.ndarray:
        values = block.column(name)
        return values if is_whole else values[rows]

    ids, dense = dense_ids(column("producer_id"))
    index = np.arange(len(rows))
    first = np.full(len(ids), NONE)
    last = np.full(len(ids), NONE)
    first[dense[::-1]] = index[::-1]  # numpy assigns in order: of equal indices the last one stays
    last[dense] = index
    is_plain = first != NONE
    touched = is_plain.nonzero()[0]

    # Indices instead of masks, and nonzero of bools: numpy needs five times as long to select by a mask, or to search other types.
    special = (column("attributes") & (ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL) != 0).nonzero()[0]
    is_plain[dense[special]] = False
    epoch = column("producer_epoch")
    if epoch.min() != epoch.max():
        is_plain[dense[(epoch != epoch[first][dense]).nonzero()[0]]] = False
    plain = is_plain[touched].nonzero()[0]
    effect = _plain_effect(block, ids[touched], plain, rows[first[touched]], rows[last[touched]])
    if len(plain) == len(touched):
        return effect
    others = _grouped_effect(block, rows[(~is_plain[dense]).nonzero()[0]])
    if not len(plain):
        return others
    where = (~is_plain[touched]).nonzero()[0]
    for name in COLUMNS:
        getattr(effect, name)[where] = getattr(others, name)
    return effect.with_closes(others.closes)


def effects_of_parts(block: HeaderBlock, starts: np.ndarray) -> list[SegmentEffect]:
    """The effect of each part of a block, all in one computation: an array operation on a few rows costs as much as one on hundreds.

    A producer counts as another one in each part. So the effect of the block has the rows of the first part first, and then those of
    the next.

    Args:
        block: not empty, with ``EFFECT_COLUMNS``.
        starts: int64 (k,), the row with which each part begins, strictly ascending from 0.
    """
    producer_id = block.column("producer_id")
    rows = (producer_id >= 0).nonzero()[0]
    if len(starts) == 1 or not len(rows):
        return [effect_of_block(block)] * len(starts)
    ids, dense = dense_ids(producer_id[rows])
    part = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(block))))
    distinct = np.full(len(block), NONE)
    distinct[rows] = part[rows] * len(ids) + dense
    whole = effect_of_block(replace(block, columns=block.columns | {"producer_id": distinct}))
    bounds = np.arange(len(starts) + 1) * len(ids)
    row = np.searchsorted(whole.producer_id, bounds).tolist()
    closed = np.searchsorted(whole.closes.producer_id // len(ids), np.arange(len(starts) + 1)).tolist()
    whole = replace(
        whole,
        producer_id=ids[whole.producer_id % len(ids)],
        closes=replace(whole.closes, producer_id=ids[whole.closes.producer_id % len(ids)]),
    )
    columns = {name: getattr(whole, name) for name in COLUMNS}
    parts = []
    for at in range(len(starts)):
        values = {name: column[row[at] : row[at + 1]] for name, column in columns.items()}
        parts.append(SegmentEffect(**values, closes=whole.closes.chosen(slice(closed[at], closed[at + 1]))))
    return parts


def _plain_effect(
    block: HeaderBlock, producer_id: np.ndarray, plain: np.ndarray, first: np.ndarray, last: np.ndarray
) -> SegmentEffect:
    """Rows for all producers, filled for those at ``plain`` from their first and last batches, which are rows of the block."""
    columns = identity_rows(producer_id)
    first = first[plain]
    last = last[plain]
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
    columns["starts_fresh"][plain] = are_first_ever(columns["first_epoch"][plain], base_sequence[first], first_offset)
    columns["last_batch_kind"][plain] = ENDS_WITH_DATA
    return SegmentEffect(**columns, closes=NO_CLOSES)


def _grouped_effect(block: HeaderBlock, rows: np.ndarray) -> SegmentEffect:
    """The effect of some rows of a block: all batches, of any kind, of their producers."""
    producer_id = block.column("producer_id")[rows]
    order = stable_order(producer_id)
    rows = rows[order]
    producer_id = producer_id[order]

    attributes = block.column("attributes")[rows]
    is_control = attributes & ATTRIBUTE_CONTROL != 0
    marker = np.full(len(block), NONE, dtype=np.int64)
    marker[block.control] = np.arange(len(block.control))
    marker = np.where(is_control, marker[rows], NONE)
    acts = ~is_control | (marker != NONE)  # an empty control batch only touches its producer

    if acts.all():
        return _Acting(block, rows, producer_id, marker, attributes).effect()
    touched = producer_id[run_starts(producer_id)]
    if not acts.any():
        return SegmentEffect(**identity_rows(touched), closes=NO_CLOSES)
    chosen = acts.nonzero()[0]
    acting = _Acting(block, rows[chosen], producer_id[chosen], marker[chosen], attributes[chosen])
    return aligned(acting.effect(), touched)


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
        # Mostly epochs do not change inside a group. Then everything that depends on their order is left out.
        self.has_epochs = bool((self.epoch != self.epoch[self.starts][self.group]).any())
        # A stretch is the batches of a producer between two markers, with the marker that ends it.
        begins = np.zeros(len(rows), dtype=bool)
        begins[self.starts] = True
        begins[1:] |= self.is_marker[:-1]
        self.stretch_starts = begins.nonzero()[0]
        self.stretch = np.cumsum(begins) - 1
        self.stretch_first_txn = np.minimum.reduceat(self._where(self.is_transactional, len(rows)), self.stretch_starts)

    def _where(self, mask: np.ndarray, otherwise: int) -> np.ndarray:
        return np.where(mask, self.index, otherwise)

    def _last_of(self, mask: np.ndarray) -> np.ndarray:
        """The index of the last row in ``mask`` of each group, or -1."""
        return np.maximum.reduceat(self._where(mask, -1), self.starts)

    def effect(self) -> SegmentEffect:
        columns = identity_rows(self.group_ids)
        columns["assigned"][:] = True
        columns["epoch"] = self.epoch[self.ends]
        columns["first_epoch"] = self.epoch[self.starts]
        columns["timestamp"] = self.block.column("max_timestamp")[self.rows[self.ends]]
        closing = self.is_marker[self.ends].nonzero()[0]
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
        """The last data batch, unless a marker of another epoch follows it; without one, whether all markers have one epoch."""
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
        counts = ~lost & has_data
        row = last_data[counts]
        delta = self.block.column("last_offset_delta")[self.rows[row]]
        columns["offset_delta"][counts] = delta
        columns["last_offset"][counts] = self.base_offset[row] + delta
        columns["last_sequence"][counts] = last_sequences(self.block.column("base_sequence")[self.rows[row]], delta)

    def _transaction(self, columns: dict[str, np.ndarray], last_marker: np.ndarray) -> None:
        """The first transactional batch after the last marker: that of the last stretch, unless the group ends with a marker."""
        columns["txn_is_set"] = last_marker != NONE
        first = np.where(self.is_marker[self.ends], len(self.rows), self.stretch_first_txn[self.stretch[self.ends]])
        opened = first < len(self.rows)
        columns["txn_first_offset"][opened] = self.base_offset[first[opened]]

    def _failures(self, columns: dict[str, np.ndarray]) -> None:
        """Data outside of the open transaction: certainly open after a transactional batch, perhaps open in the first stretch."""
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
        sequence = self.block.column("base_sequence")[self.rows[first]]
        columns["starts_fresh"] = self.is_data[first] & are_first_ever(self.epoch[first], sequence, self.base_offset[first])
        stretch = self.stretch[self.ends]
        closed_own = self.stretch_first_txn[stretch] < len(self.rows)
        in_first = self.stretch_starts[stretch] == self.starts
        closing = np.where(closed_own, ENDS_CLOSING, np.where(in_first, ENDS_CLOSING_INCOMING, ENDS_CLOSING_NOTHING))
        columns["last_batch_kind"] = np.where(self.is_marker[self.ends], closing, ENDS_WITH_DATA).astype(np.uint8)

    def _closes(self) -> ClosedTransactions:
        where = self.is_marker.nonzero()[0]
        if not len(where):
            return NO_CLOSES
        stretch = self.stretch[where]
        first = self.stretch_first_txn[stretch]
        opened = first < len(self.rows)
        first_offset = np.where(opened, self.base_offset[np.where(opened, first, 0)], NONE)
        is_incoming = self.stretch_starts[stretch] == self.starts[self.group[where]]
        aborted = self.block.marker_type[self.marker[where]] == ControlRecordType.ABORT
        closes = ClosedTransactions(self.producer_id[where], is_incoming, first_offset, self.base_offset[where], aborted)
        in_log_order = np.argsort(self.rows[where], kind="stable")
        return closes.chosen(in_log_order[(is_incoming | opened)[in_log_order]])


def are_first_ever(epoch: np.ndarray, base_sequence: np.ndarray, base_offset: np.ndarray) -> np.ndarray:
    """Which data batches have no batch of their producer before them: epoch 0, sequence 0, and no wrap of sequence numbers.

    0 follows 2147483647 in the same epoch (``DefaultRecordBatch.incrementSequence``). Each of the 2^31 records before it has an offset, so
    no batch below offset 2147483648 follows a wrap.
    """
    first: np.ndarray = (epoch == 0) & (base_sequence == 0) & (base_offset < SEQUENCES)
    return first


def last_sequences(base_sequence: np.ndarray, last_offset_delta: np.ndarray) -> np.ndarray:
    """``DefaultRecordBatch.incrementSequence`` for int32 columns."""
    last = base_sequence.astype(np.int64) + last_offset_delta
    last = np.where(last >= SEQUENCES, last - SEQUENCES, last)
    return np.where(base_sequence == NONE, NONE, last).astype(np.int32)


# ---------------------------------------------------------------------------------------------------------------- grouping

DIRECT_IDS_PER_BATCH = 4
"""Producer ids are used as indices of tables if their range is at most this many times the count of batches: brokers assign them one after
the other. A sort costs about 20 ns a batch instead."""


def dense_ids(producer_id: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Producer ids as small numbers in the same order.

    Returns:
        The producer id of each number (some may have no batch), and the number of each batch (int64).
    """
    low = int(producer_id.min())
    high = int(producer_id.max())
    if high - low < DIRECT_IDS_PER_BATCH * len(producer_id):
        return low + np.arange(high - low + 1), producer_id - low  # high + 1 may be no int64
    order = stable_order(producer_id)
    starts = run_starts(producer_id[order])
    dense = np.empty(len(producer_id), dtype=np.int64)
    dense[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(order))))
    return producer_id[order[starts]], dense


def stable_order(producer_id: np.ndarray) -> np.ndarray:
    """A stable argsort, by 16 bits at a time if the range of ids allows it: numpy sorts those by radix, several times faster."""
    low = int(producer_id.min())
    high = int(producer_id.max())
    if high - low >= 1 << 32:
        return np.argsort(producer_id, kind="stable")
    relative = (producer_id - low).astype(np.uint32)
    order = np.argsort(relative.astype(np.uint16), kind="stable")
    if high - low >= 1 << 16:
        order = order[np.argsort((relative >> 16).astype(np.uint16)[order], kind="stable")]
    return order


def run_starts(values: np.ndarray) -> np.ndarray:
    """Indices at which a run of equal values begins."""
    first = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return first.nonzero()[0]
