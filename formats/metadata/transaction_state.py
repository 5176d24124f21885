"""Records of ``__transaction_state``: the coordinator's state of each transactional id.

Key and value each are a version (int16) and a message of ``formats/schemas/transaction-state.json``.

Source: ``TransactionLog.readTxnRecordKey`` and ``readTxnRecordValue``, ``TransactionState``,
``TransactionMetadata.isDistributedTwoPhaseCommitTxn`` of 4.3.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from formats.errors import BadValueError, TruncatedError
from formats.message import Message, read_message
from formats.message_schema import load_schemas

__all__ = [
    "NEVER_EXPIRES_MS",
    "TRANSACTION_STATE_TOPIC",
    "TransactionState",
    "TransactionStatus",
    "read_transaction_state",
    "read_transactional_id",
]

TRANSACTION_STATE_TOPIC = "__transaction_state"

NEVER_EXPIRES_MS = 2**31 - 1
"""Timeout of a transaction under two-phase commit (KIP-939)."""


class TransactionStatus(IntEnum):
    """``TransactionState.id``. A coordinator keeps ``DEAD`` and ``PREPARE_EPOCH_FENCE`` in memory and writes no record of them."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Decided: the coordinator writes the markers, and tries again until each partition has its marker."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """The leader of every partition has acknowledged its marker."""
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and markers are being written."""
        return self in (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        """Whether every marker was acknowledged."""
        return self in (TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)

    @property
    def is_commit(self) -> bool:
        """Whether the outcome is a commit."""
        return self in (TransactionStatus.PREPARE_COMMIT, TransactionStatus.COMPLETE_COMMIT)


@dataclass(frozen=True, slots=True)
class TransactionState:
    """The value of a record.

    Attributes:
        transactional_id: of the producer.
        producer_ids: int64, the present one first; then others that a change of the producer id names.
        producer_epoch: int16, of the present one.
        timeout_ms: int32.
        status: of the transaction.
        partitions: topic, and numbers of its partitions, that are in the transaction; empty once it is complete.
        updated_ms: when the coordinator wrote the record, ms since 1970.
        started_ms: when the transaction began; -1 for none. The records of one transaction have the same value.
    """

    transactional_id: str
    producer_ids: tuple[int, ...]
    producer_epoch: int
    timeout_ms: int
    status: TransactionStatus
    partitions: tuple[tuple[str, tuple[int, ...]], ...]
    updated_ms: int
    started_ms: int

    @property
    def is_two_phase(self) -> bool:
        """Whether it never expires: something outside of Kafka decides about its commit."""
        return self.timeout_ms == NEVER_EXPIRES_MS

    def has_partition(self, topic: str, partition: int) -> bool:
        """Whether a partition is in the transaction."""
        return any(name == topic and partition in numbers for name, numbers in self.partitions)


def read_transactional_id(key: bytes) -> str:
    """The transactional id that a record is about, a tombstone too.

    Raises:
        FormatError: it does not follow its schema, or is of a version that is not known.
    """
    name: str = _read("TransactionLogKey", key)["transactionalId"]
    return name


def read_transaction_state(key: bytes, value: bytes) -> TransactionState:
    """Reads a record that is no tombstone.

    Raises:
        FormatError: it does not follow its schema, or is of a version that is not known.
    """
    transactional_id = read_transactional_id(key)
    fields = _read("TransactionLogValue", value)
    ids = (fields["producerId"], fields.get("previousProducerId", -1), fields.get("nextProducerId", -1))
    status = fields["transactionStatus"]
    if status not in _STATUSES:
        raise BadValueError("transactionStatus", position=0, expected="0 to 7", found=status)
    partitions = fields["transactionPartitions"] or ()
    return TransactionState(
        transactional_id=transactional_id,
        producer_ids=tuple(dict.fromkeys(each for each in ids if each >= 0)),
        producer_epoch=fields["producerEpoch"],
        timeout_ms=fields["transactionTimeoutMs"],
        status=TransactionStatus(status),
        partitions=tuple((each["topic"], tuple(each["partitionIds"])) for each in partitions),
        updated_ms=fields["transactionLastUpdateTimestampMs"],
        started_ms=fields["transactionStartTimestampMs"],
    )


_STATUSES = frozenset(TransactionStatus)


def _read(name: str, data: bytes) -> Message:
    if len(data) < 2:
        raise TruncatedError(name, expected="at least 2 bytes", found=f"{len(data)} bytes")
    message, _ = read_message(
        load_schemas("transaction-state")[name], data, int.from_bytes(data[:2], "big", signed=True), position=2
    )
    return message
