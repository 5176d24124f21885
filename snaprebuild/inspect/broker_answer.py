"""The answer of a broker to a data batch of a producer, from its state in memory.

A leader checks a data batch in this order. Is it a duplicate of one of the last five batches? Is its epoch too old? Does its
sequence follow? Is it part of the open transaction?
Versions differ in the names of errors and in what they accept from a producer without state or batch.

Source: ``UnifiedLog.analyzeAndValidateProducerState``, ``ProducerStateEntry.findDuplicateBatch``, ``ProducerAppendInfo`` of 2.4 to 4.3;
``DefaultRecordBatch.incrementSequence``.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.published import Part
from snaprebuild.replay.difference import next_sequence

__all__ = [
    "BATCHES_IN_MEMORY",
    "VERSIONS",
    "AnswerKind",
    "Attempt",
    "BatchInMemory",
    "BrokerAnswer",
    "ProducerMemory",
    "answer_to",
    "last_sequence_of",
]

BATCHES_IN_MEMORY = 5
"""``ProducerStateEntry.NUM_BATCHES_TO_RETAIN``; a snapshot has only the newest one."""

Version = tuple[int, int]

VERSIONS = (*((2, minor) for minor in range(4, 9)), *((3, minor) for minor in range(10)), *((4, minor) for minor in range(5)))
"""The versions whose answers are known, ascending."""

_ACCEPTS_UNKNOWN: Version = (2, 5)
"""KIP-360: before it a producer without state had to begin with sequence 0."""
_INVALID_PRODUCER_EPOCH: Version = (2, 7)
"""KIP-588: before it the exception for an older epoch was fatal to the client."""
_EPOCH_BUMP: Version = (4, 1)
"""Since this version a transactional producer of version 2 (KIP-890) without state must begin with sequence 0."""

_SEQUENCE_MAX = 2**31 - 1


class AnswerKind(StrEnum):
    """The answer to a batch."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """Not written again, and acknowledged with the offsets of the first time."""
    OUT_OF_ORDER_SEQUENCE = "OutOfOrderSequenceException"
    INVALID_PRODUCER_EPOCH = "InvalidProducerEpochException"
    PRODUCER_FENCED = "ProducerFencedException"
    UNKNOWN_PRODUCER_ID = "UnknownProducerIdException"
    INVALID_TXN_STATE = "InvalidTxnStateException"


class BatchInMemory(Part, frozen=True):
    """A batch that a running broker holds in memory (``BatchMetadata``). Sequences are -1 for none."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    """Negative only if a snapshot has an entry with an offset delta above its last offset."""


class ProducerMemory(msgspec.Struct, frozen=True):
    """The state of a producer in the memory of a broker.

    Attributes:
        epoch: -1 for none.
        batches: its newest data batches in this epoch, oldest first, at most ``BATCHES_IN_MEMORY``.
        txn_first_offset: of its open transaction, or None.
    """

    epoch: int
    batches: tuple[BatchInMemory, ...] = ()
    txn_first_offset: int | None = None

    @classmethod
    def loaded(cls, entry: ProducerEntry) -> ProducerMemory:
        """The state after the entry was loaded from a snapshot: at most one batch (``loadProducerEntry``)."""
        batches: tuple[BatchInMemory, ...] = ()
        if entry.last_offset >= 0:
            last = entry.last_sequence
            first = -1 if last == -1 else (last - entry.offset_delta) % 2**31
            batches = (BatchInMemory(first, last, entry.last_offset - entry.offset_delta),)
        txn_first_offset = entry.current_txn_first_offset if entry.current_txn_first_offset >= 0 else None
        return cls(entry.epoch, batches, txn_first_offset)


class Attempt(msgspec.Struct, frozen=True):
    """A data batch that a client sends.

    Attributes:
        base_sequence: of its first record; -1 for batches of a group coordinator, whose sequence is not checked.
        records: count.
        is_transactional: in a transaction, which its coordinator confirms.
        transaction_version_2: from a transactional producer of version 2 (KIP-890).
    """

    epoch: int
    base_sequence: int
    records: int = 1
    is_transactional: bool = False
    transaction_version_2: bool = False


class BrokerAnswer(Part, frozen=True):
    """The answer of a broker."""

    answer: AnswerKind
    """accepted, duplicate (acknowledged and not written again), or the exception that the broker throws."""
    reason: str
    """For the user; not stable."""
    first_offset: int | None = None
    """Offset with which a duplicate is acknowledged; else null. Negative in the same case as that of a batch in memory."""


def last_sequence_of(base_sequence: int, last_offset_delta: int) -> int:
    """Sequence of the last record of a batch: -1 stays -1, and 0 follows 2^31 - 1."""
    if base_sequence == -1:
        return -1
    last = base_sequence + last_offset_delta
    return last - 2**31 if last > _SEQUENCE_MAX else last


def answer_to(memory: ProducerMemory | None, attempt: Attempt, version: Version) -> BrokerAnswer:
    """The answer of a leader of a version.

    Args:
        memory: None if it does not have the producer.
        attempt: the batch.
        version: major and minor, one of ``VERSIONS``.
    """
    if memory is None:
        memory = ProducerMemory(-1)
    sequences = (attempt.base_sequence, last_sequence_of(attempt.base_sequence, attempt.records - 1))
    has_sequence = attempt.base_sequence != -1
    if has_sequence and attempt.epoch == memory.epoch:
        for batch in memory.batches:
            if (batch.first_sequence, batch.last_sequence) == sequences:
                reason = f"has this batch in memory: acknowledged with offset {batch.first_offset}, not written again"
                return BrokerAnswer(AnswerKind.DUPLICATE, reason, batch.first_offset)
    if attempt.epoch < memory.epoch:
        if version >= _INVALID_PRODUCER_EPOCH:
            fenced = AnswerKind.INVALID_PRODUCER_EPOCH
        else:
            fenced = AnswerKind.PRODUCER_FENCED
        return BrokerAnswer(fenced, f"epoch {attempt.epoch} is older than {memory.epoch}")
    fault = _sequence_fault(memory, attempt, version) if has_sequence else None
    if fault is not None:
        return fault
    if memory.txn_first_offset is not None and not attempt.is_transactional:
        return BrokerAnswer(AnswerKind.INVALID_TXN_STATE, f"its transaction is open from {memory.txn_first_offset}")
    return BrokerAnswer(AnswerKind.ACCEPTED, _why_accepted(memory, attempt))


def _sequence_fault(memory: ProducerMemory, attempt: Attempt, version: Version) -> BrokerAnswer | None:
    """``ProducerAppendInfo.checkSequence``."""
    sequence = attempt.base_sequence
    is_first = sequence == 0
    if attempt.transaction_version_2 and version >= _EPOCH_BUMP and not memory.batches and not is_first:
        return BrokerAnswer(AnswerKind.OUT_OF_ORDER_SEQUENCE, "has no batch of it: a producer of version 2 must begin with 0")
    if attempt.epoch != memory.epoch:
        if is_first or (memory.epoch == -1 and version >= _ACCEPTS_UNKNOWN):
            return None
        if memory.epoch == -1:
            return BrokerAnswer(AnswerKind.UNKNOWN_PRODUCER_ID, "does not know the producer, which has to begin with 0")
        return BrokerAnswer(AnswerKind.OUT_OF_ORDER_SEQUENCE, "a new epoch has to begin with 0")
    last = memory.batches[-1].last_sequence if memory.batches else -1
    if sequence == last + 1 or (is_first and last == _SEQUENCE_MAX) or (memory.epoch == -1 and version >= _ACCEPTS_UNKNOWN):
        return None
    if last == -1 and version < _ACCEPTS_UNKNOWN:
        return BrokerAnswer(AnswerKind.UNKNOWN_PRODUCER_ID, "has its epoch and no batch: it must begin with 0")
    expected = next_sequence(last)
    return BrokerAnswer(AnswerKind.OUT_OF_ORDER_SEQUENCE, f"expects {expected}")


def _why_accepted(memory: ProducerMemory, attempt: Attempt) -> str:
    if attempt.base_sequence == -1:
        return "without a sequence, as a group coordinator writes: only the epoch counts"
    if memory.epoch == -1:
        return "does not know the producer: a retry is written again, and no older epoch is fenced"
    return "a new epoch begins with 0" if attempt.epoch != memory.epoch else "the next in sequence"
