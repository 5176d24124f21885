"""Records of ``__cluster_metadata``: what the controllers have decided about brokers, topics, partitions and configurations (KRaft).

A value is a message of ``formats/schemas/cluster-metadata.json`` in its frame.
The records of control batches are not such messages (``formats.log.control_record``).

Source: ``MetadataRecordSerde``, ``MetadataRecordType``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache

from formats.message import Message
from formats.message_schema import MessageSchema, load_schemas
from formats.metadata.framed_message import by_api_key, read_framed_message, write_framed_message

__all__ = [
    "ClusterMetadataRecord",
    "MetadataRecordType",
    "read_cluster_metadata_record",
    "write_cluster_metadata_record",
]


class MetadataRecordType(IntEnum):
    """Keys of the records (``MetadataRecordType``; the last one since 4.4)."""

    REGISTER_BROKER = 0
    UNREGISTER_BROKER = 1
    TOPIC = 2
    PARTITION = 3
    CONFIG = 4
    PARTITION_CHANGE = 5
    FENCE_BROKER = 7
    UNFENCE_BROKER = 8
    REMOVE_TOPIC = 9
    DELEGATION_TOKEN = 10
    USER_SCRAM_CREDENTIAL = 11
    FEATURE_LEVEL = 12
    CLIENT_QUOTA = 14
    PRODUCER_IDS = 15
    BROKER_REGISTRATION_CHANGE = 17
    ACCESS_CONTROL_ENTRY = 18
    REMOVE_ACCESS_CONTROL_ENTRY = 19
    NO_OP = 20
    ZK_MIGRATION_STATE = 21
    REMOVE_USER_SCRAM_CREDENTIAL = 22
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25
    REMOVE_DELEGATION_TOKEN = 26
    REGISTER_CONTROLLER = 27
    CLEAR_ELR = 28
    UNREGISTER_CONTROLLER = 29


@dataclass(frozen=True, slots=True)
class ClusterMetadataRecord:
    """A record of the metadata log.

    Attributes:
        api_key: a ``MetadataRecordType``.
        name: of the message, as in Kafka's schema: ``PartitionChangeRecord``.
        version: of the message.
        message: its fields, as ``formats.message`` gives them.
    """

    api_key: int
    name: str
    version: int
    message: Message


NO_OP_VALUE = bytes((1, MetadataRecordType.NO_OP, 0, 0))
NO_OP_RECORD = ClusterMetadataRecord(MetadataRecordType.NO_OP, "NoOpRecord", 0, {})
"""An idle controller writes one twice a second, and most records of most logs are these."""


def read_cluster_metadata_record(value: bytes) -> ClusterMetadataRecord:
    """Reads the value of a record.

    Raises:
        BadVersionError: a message of another version, or the frame of the preview in 2.8.
        BadValueError: an api key that no known release writes.
        FormatError: it is no framed message of a known type (``read_framed_message``).
    """
    if value == NO_OP_VALUE:
        return NO_OP_RECORD
    schema, version, message = read_framed_message(_schemas(), value)
    assert schema.api_key is not None
    return ClusterMetadataRecord(schema.api_key, schema.name, version, message)


def write_cluster_metadata_record(record: ClusterMetadataRecord) -> bytes:
    """Writes the value of a record; fields that the message does not name have their defaults.

    Raises:
        BadVersionError: the message has no such version.
        BadValueError: a value that a field has no room for.
    """
    return write_framed_message(_schemas()[record.api_key], record.message, record.version)


@cache
def _schemas() -> dict[int, MessageSchema]:
    return by_api_key(load_schemas("cluster-metadata"))
