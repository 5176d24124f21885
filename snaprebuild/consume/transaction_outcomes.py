"""How each transaction of a log ended, by a replay of its batches and markers; pure functions of headers.

A transactional batch belongs to the transaction that the next marker of its producer ends. So a batch is aborted if that marker is an abort
marker, also where the transaction began below the log, and is open if there is no such marker. The epochs of the producer do not matter.

Kafka's consumer gets the aborted transactions from ``.txnindex`` files, which a broker wrote when it appended the markers. Where such a
file is missing, a consumer gets aborted records as if they were committed. This replay does not.

Source: ``ProducerStateManager.completeTxn``, ``TransactionIndex.collectAbortedTxns``, ``CompletedFetch.nextFetchedRecord``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from enum import IntEnum

import msgspec
import numpy as np

from formats.limits import INT64_MAX
from formats.log.batch_headers import HeaderBlock
from formats.log.control_record import ControlRecordType
from formats.log.record_batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL

__all__ = ["OUTCOME_COLUMNS", "OpenTransaction", "Outcome", "OutcomeReplay", "TransactionOutcomes"]

OUTCOME_COLUMNS = ("base_offset", "last_offset_delta", "attributes", "producer_id", "record_count")
"""The columns of a ``HeaderBlock`` that a replay takes; the block has markers, too."""

MERGED_PRODUCERS_MAX = 1 << 16
"""Producers whose aborted transactions are merged as long as none is committed between them."""


class Outcome(IntEnum):
    """How the transaction of a batch ended."""

    NONE = 0
    """The batch is of no transaction."""
    COMMITTED = 1
    ABORTED = 2
    OPEN = 3
    """No marker ends it, or damage may hide the one that does."""


class OpenTransaction(msgspec.Struct, frozen=True, order=True):
    """A transaction without a marker.

    Attributes:
        first_offset: of its first batch.
        producer_id: whose it is.
    """

    first_offset: int
    producer_id: int


class TransactionOutcomes(msgspec.Struct, frozen=True):
    """The outcomes of all transactions of a log up to an offset.

    Attributes:
        aborted: int64 (n, 3), a row for each run of aborted transactions of a producer, by producer id and then by offset. It has the
            producer id, the offset of the first batch of the run, and the offset of its last abort marker.
        undecided: int64 (m, 3), in the same order, a row for each part of a transaction whose marker may be in damaged batches after it.
            It has the producer id, the first and the last offset.
        first_open: the first offset of each open transaction, by producer id.
        open_at_end: the open transactions, the oldest first.
        unstable: those that were open at the high watermark, the oldest first.
    """

    aborted: np.ndarray
    undecided: np.ndarray
    first_open: dict[int, int]
    open_at_end: tuple[OpenTransaction, ...]
    unstable: tuple[OpenTransaction, ...]

    def of_batches(self, base_offset: np.ndarray, producer_id: np.ndarray, attributes: np.ndarray) -> np.ndarray:
        """The outcome of the transaction of each data batch, int8 (n,), values of ``Outcome``; NONE for control batches."""
        is_of_transaction = (attributes & ATTRIBUTE_TRANSACTIONAL != 0) & (attributes & ATTRIBUTE_CONTROL == 0)
        outcomes = np.where(is_of_transaction, np.int8(Outcome.COMMITTED), np.int8(Outcome.NONE))
        rows = is_of_transaction.nonzero()[0]
        if not len(rows):
            return outcomes
        for producer in np.unique(producer_id[rows]).tolist():
            own = rows[producer_id[rows] == producer]
            offsets = base_offset[own]
            outcomes[own[_is_in(self.undecided, producer, offsets)]] = Outcome.OPEN
            outcomes[own[_is_in(self.aborted, producer, offsets)]] = Outcome.ABORTED
            first = self.first_open.get(producer)
            if first is not None:
                outcomes[own[offsets >= first]] = Outcome.OPEN
        return outcomes

    def within(self, begin: int, end: int) -> TransactionOutcomes:
        """The part that batches from ``begin`` up to ``end`` need, for the task that reads them."""
        aborted, undecided = (rows[(rows[:, 2] >= begin) & (rows[:, 1] < end)] for rows in (self.aborted, self.undecided))
        return TransactionOutcomes(aborted, undecided, self.first_open, self.open_at_end, self.unstable)


class AbortedTransactionInLog(msgspec.Struct, frozen=True):
    """A transaction with records that an abort marker of the log ends.

    Attributes:
        producer_id: whose it is.
        first_offset: of its first batch.
        marker_offset: of the marker.
    """

    producer_id: int
    first_offset: int
    marker_offset: int


class OutcomeReplay:
    """Takes the headers of a log in their order.

    Attributes:
        aborted: transactions with an abort marker in the last block that was taken, the entries that a ``.txnindex`` should have. Each
            has a batch in the log, or is known to have been open before it.
    """

    def __init__(self, high_watermark: int, open_before: Iterable[OpenTransaction] = ()) -> None:
        """Begins before the first batch.

        Args:
            high_watermark: transactions without a marker below it are unstable.
            open_before: transactions that were open at the first batch, as the producer state there shows.
        """
        self.aborted: list[AbortedTransactionInLog] = []
        self._high_watermark = high_watermark
        self._open = {each.producer_id: each.first_offset for each in open_before}
        self._unstable: dict[int, int] | None = None
        self._aborted = array("q")
        self._last_run: dict[int, int] = {}
        self._undecided: dict[tuple[int, int], int] = {}

    def take(self, block: HeaderBlock) -> None:
        """Takes the next headers, which have ``OUTCOME_COLUMNS`` and markers."""
        self.aborted = []
        if not len(block):
            return
        cut = int(np.searchsorted(block.column("base_offset"), self._high_watermark))
        if self._unstable is None and cut < len(block):
            self._take(block.part(0, cut))
            self._unstable = dict(self._open)
            block = block.part(cut, len(block))
        self._take(block)

    def pass_damage(self, offset: int) -> None:
        """Batches that cannot be read follow those below an offset: they may have markers."""
        for producer, first in self._open.items():
            if first < offset:
                self._undecided[producer, first] = offset - 1

    def _take(self, block: HeaderBlock) -> None:
        if not len(block):
            return
        attributes = block.column("attributes")
        flags = attributes & (ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL)
        data = (flags == ATTRIBUTE_TRANSACTIONAL).nonzero()[0]
        is_marker = np.isin(block.marker_type, (ControlRecordType.ABORT, ControlRecordType.COMMIT))
        rows = np.concatenate((data, block.control[is_marker]))
        kinds = np.concatenate((np.full(len(data), _DATA), block.marker_type[is_marker].astype(np.int64)))
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        kinds = kinds[order]
        producers = block.column("producer_id")[rows]
        offsets = block.column("base_offset")[rows]
        # Of the batches of one producer in a row only the first may begin a transaction.
        changes = np.ones(len(rows), dtype=bool)
        changes[1:] = (producers[1:] != producers[:-1]) | (kinds[1:] != kinds[:-1]) | (kinds[1:] != _DATA)
        chosen = changes.nonzero()[0]
        for producer, offset, kind in zip(
            producers[chosen].tolist(), offsets[chosen].tolist(), kinds[chosen].tolist(), strict=True
        ):
            if kind == _DATA:
                self._open.setdefault(producer, offset)
            else:
                self._end(producer, offset, is_aborted=kind == ControlRecordType.ABORT)

    def _end(self, producer: int, marker: int, *, is_aborted: bool) -> None:
        first = self._open.pop(producer, None)
        if not is_aborted:
            self._last_run.pop(producer, None)
            return
        if first is None:
            return
        self.aborted.append(AbortedTransactionInLog(producer, first, marker))
        run = self._last_run.get(producer)
        if run is not None:
            self._aborted[run + 2] = marker
            return
        if len(self._last_run) >= MERGED_PRODUCERS_MAX:
            self._last_run.clear()
        self._last_run[producer] = len(self._aborted)
        self._aborted.extend((producer, first, marker))

    def outcomes(self) -> TransactionOutcomes:
        """The outcomes, once all headers were taken."""
        aborted = _ordered(np.array(self._aborted, dtype=np.int64))
        undecided = _ordered(np.array([(*key, last) for key, last in self._undecided.items()], dtype=np.int64))
        unstable = self._open if self._unstable is None else self._unstable
        return TransactionOutcomes(aborted, undecided, dict(self._open), _sorted(self._open), _sorted(unstable))


_DATA = -1
"""In place of the type of a marker."""


def _ordered(rows: np.ndarray) -> np.ndarray:
    """Rows of a producer id and two offsets, by producer id and then by offset."""
    rows = rows.reshape(-1, 3)
    ordered: np.ndarray = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    return ordered


def _is_in(rows: np.ndarray, producer: int, offsets: np.ndarray) -> np.ndarray:
    """Which offsets are in a range of a producer; the ranges are ordered, and do not overlap."""
    first, last = np.searchsorted(rows[:, 0], (producer, producer + 1)) if producer < INT64_MAX else (0, 0)
    own = rows[first:last]
    if not len(own):
        return np.zeros(len(offsets), dtype=bool)
    place = np.searchsorted(own[:, 2], offsets)  # the first range that ends at the offset or above it
    is_inside: np.ndarray = place < len(own)
    place = np.minimum(place, len(own) - 1)
    is_inside &= offsets >= own[place, 1]
    return is_inside


def _sorted(transactions: dict[int, int]) -> tuple[OpenTransaction, ...]:
    return tuple(sorted(OpenTransaction(first, producer) for producer, first in transactions.items()))
