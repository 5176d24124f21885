"""Records of ``__transaction_state``: the coordinator's state of each transactional id.

Key and value each are a version (int16) and a message of ``formats/schemas/transaction-state.json``.

Source: ``TransactionLog.readTxnRecordKey`` and ``readTxnRecordValue``, ``TransactionMetadata.isDistributedTwoPhaseCommitTxn`` of 4.3.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from formats.errors import TruncatedError
from formats.message import Message, read_message
from formats.message_schema import load_schemas

__all__ = ["NEVER_EXPIRES_MS", "TRANSACTION_STATE_TOPIC", "TransactionState", "read_transaction_state"]

TRANSACTION_STATE_TOPIC = "__transaction_state"

NEVER_EXPIRES_MS = 2**31 - 1
"""Timeout of a transaction under two-phase commit (KIP-939)."""


@dataclass(frozen=True, slots=True)
class TransactionState:
    """The value of a record.

    Attributes:
        transactional_id: of the producer.
        producer_ids: int64, the present one first; then others that a change of the producer id names.
        producer_epoch: int16, of the present one.
        timeout_ms: int32.
    """

    transactional_id: str
    producer_ids: tuple[int, ...]
    producer_epoch: int
    timeout_ms: int

    @property
    def is_two_phase(self) -> bool:
        """Whether it never expires: something outside of Kafka decides about its commit."""
        return self.timeout_ms == NEVER_EXPIRES_MS


def read_transaction_state(key: bytes, value: bytes) -> TransactionState:
    """Reads a record that is no tombstone.

    Raises:
        FormatError: it does not follow its schema, or is of a version that is not known.
    """
    known, fields = _read("TransactionLogKey", key), _read("TransactionLogValue", value)
    ids = (fields["producerId"], fields.get("previousProducerId", -1), fields.get("nextProducerId", -1))
    return TransactionState(
        known["transactionalId"],
        tuple(dict.fromkeys(each for each in ids if each >= 0)),
        fields["producerEpoch"],
        fields["transactionTimeoutMs"],
    )


def _read(name: str, data: bytes) -> Message:
    if len(data) < 2:
        raise TruncatedError(name, expected="at least 2 bytes", found=f"{len(data)} bytes")
    message, _ = read_message(
        load_schemas("transaction-state")[name], data, int.from_bytes(data[:2], "big", signed=True), position=2
    )
    return message
