"""``.txnindex``: the aborted transactions whose markers are in a segment.

The file does not exist while there are none, and is never allocated ahead. 4.4 generates the same bytes from a message schema.

Source: ``TransactionIndex``, ``AbortedTxn``.
"""

from __future__ import annotations

import msgspec
import numpy as np
from construct import Struct
from numpy.typing import NDArray

from formats.errors import BadVersionError
from formats.partition.index_entries import Fault, Index, IndexGrammar
from formats.primitives import INT16, INT64

__all__ = [
    "ABORTED_TRANSACTION",
    "AbortedTransaction",
    "read_transaction_index",
]

ABORTED_TRANSACTION = Struct(
    "version" / INT16,
    "producer_id" / INT64,
    "first_offset" / INT64,
    "last_offset" / INT64,
    "last_stable_offset" / INT64,
)
"""34 bytes."""

ABORTED_TRANSACTION_VERSION = 0


class AbortedTransaction(msgspec.Struct, frozen=True):
    """One aborted transaction.

    Attributes:
        version: int16, 0.
        producer_id: int64.
        first_offset: int64, first offset of the transaction, perhaps in an earlier segment.
        last_offset: int64, offset of the abort marker.
        last_stable_offset: int64, last stable offset when the marker was appended.
    """

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def _fault_of(previous: AbortedTransaction | None, entry: AbortedTransaction) -> Fault | None:
    if entry.version != ABORTED_TRANSACTION_VERSION:
        return Fault("version", f"{ABORTED_TRANSACTION_VERSION}", entry.version, BadVersionError)
    if entry.first_offset < 0:
        return Fault("first offset", "0 or higher", entry.first_offset)
    if entry.last_offset < entry.first_offset:
        return Fault("last offset", f"{entry.first_offset} or higher", entry.last_offset)
    if previous is not None and entry.last_offset <= previous.last_offset:
        return Fault("last offset", f"more than {previous.last_offset}", entry.last_offset)
    return None


def _faulty(columns: NDArray[np.void]) -> NDArray[np.bool_]:
    first = columns["first_offset"]
    last = columns["last_offset"]
    faulty = (columns["version"] != ABORTED_TRANSACTION_VERSION) | (first < 0) | (last < first)
    faulty[1:] |= last[1:] <= last[:-1]
    return np.asarray(faulty, np.bool_)


_GRAMMAR = IndexGrammar("transaction index", ABORTED_TRANSACTION, AbortedTransaction, _fault_of, _faulty, preallocated=False)


def read_transaction_index(data: bytes | memoryview, *, file: str | None = None) -> Index[AbortedTransaction]:
    """Reads a transaction index.

    Args:
        data: the whole file.
        file: name of the file, for messages.

    Returns:
        The aborted transactions in the order of their markers, with the fields of the grammar as columns.

    Raises:
        TruncatedError: the size is no multiple of 34.
        BadVersionError: the version of an entry is not 0.
        BadValueError: offsets that are negative, or markers that do not ascend (``TransactionIndex.append`` refuses them); the
            position is that of the entry.
        LimitExceededError: the file is larger than ``formats.limits`` allows.
    """
    return _GRAMMAR.read(data, file)
