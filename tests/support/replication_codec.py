"""Bodies of AlterPartition and Fetch as values and back: the product makes only their JSON."""

from __future__ import annotations

from collections.abc import Iterator

from formats.errors import BadLengthError, LimitExceededError
from formats.message import Message, read_message, write_message
from formats.message_schema import Versions
from formats.metadata.replication_messages import (
    FIRST_WITH_EPOCHS,
    FIRST_WITH_REPLICA_STATE,
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrMember,
    ProposedPartition,
    ReplicaState,
    ReplicationMessage,
    message_of_request,
    message_of_response,
    schema_of,
)

REPLICATION_MESSAGE_BYTES_MAX = 100 << 20
"""``socket.request.max.bytes`` of a broker."""


def read_replication_message(kind: ReplicationMessage, data: bytes, version: int) -> Message:
    """Reads a body.

    Args:
        kind: of message.
        data: the body, whole.
        version: of the message, from the header of the request.

    Raises:
        LimitExceededError: a larger one than brokers read.
        BadLengthError: bytes after the message.
        FormatError: as ``formats.message.read_message``.
    """
    if len(data) > REPLICATION_MESSAGE_BYTES_MAX:
        raise LimitExceededError(f"size of {kind}", expected=f"at most {REPLICATION_MESSAGE_BYTES_MAX} bytes", found=len(data))
    message, end = read_message(schema_of(kind), data, version)
    if end != len(data):
        raise BadLengthError(kind.value, position=end, expected="its end", found=f"{len(data) - end} bytes more")
    return message


def write_replication_message(kind: ReplicationMessage, message: Message, version: int) -> bytes:
    """Writes a body; errors are those of ``formats.message.write_message``."""
    return write_message(schema_of(kind), message, version)


def versions_of(kind: ReplicationMessage) -> Versions:
    """Versions that can be read and written."""
    return schema_of(kind).versions


def replica_of_fetch(request: Message, version: int) -> ReplicaState:
    """The replica that sends a FetchRequest; before version 15 the request does not contain its epoch."""
    if version < FIRST_WITH_REPLICA_STATE:
        return ReplicaState(request["replicaId"])
    state = request["replicaState"]
    return ReplicaState(state["replicaId"], state["replicaEpoch"])


def read_alter_partition_request(data: bytes, version: int) -> AlterPartitionRequest:
    """Reads a body; errors are those of ``read_replication_message``."""
    message = read_replication_message(ReplicationMessage.ALTER_PARTITION_REQUEST, data, version)
    partitions = (
        ProposedPartition(
            topic_id=topic_id,
            partition=fields["partitionIndex"],
            leader_epoch=fields["leaderEpoch"],
            isr=_members(fields, version),
            leader_recovery_state=fields["leaderRecoveryState"],
            partition_epoch=fields["partitionEpoch"],
        )
        for topic_id, fields in _partitions(message)
    )
    return AlterPartitionRequest(message["brokerId"], message["brokerEpoch"], tuple(partitions))


def write_alter_partition_request(request: AlterPartitionRequest, version: int) -> bytes:
    """Writes a body, of ``message_of_request``.

    Raises:
        FormatError: as ``formats.message.write_message``.
    """
    message = message_of_request(request, version)
    return write_replication_message(ReplicationMessage.ALTER_PARTITION_REQUEST, message, version)


def read_alter_partition_response(data: bytes, version: int) -> AlterPartitionResponse:
    """Reads a body; errors are those of ``read_replication_message``."""
    message = read_replication_message(ReplicationMessage.ALTER_PARTITION_RESPONSE, data, version)
    partitions = (
        AlteredPartition(
            topic_id=topic_id,
            partition=fields["partitionIndex"],
            error_code=fields["errorCode"],
            leader=fields["leaderId"],
            leader_epoch=fields["leaderEpoch"],
            isr=tuple(fields["isr"]),
            leader_recovery_state=fields["leaderRecoveryState"],
            partition_epoch=fields["partitionEpoch"],
        )
        for topic_id, fields in _partitions(message)
    )
    return AlterPartitionResponse(message["throttleTimeMs"], message["errorCode"], tuple(partitions))


def write_alter_partition_response(response: AlterPartitionResponse, version: int) -> bytes:
    """Writes a body; errors are those of ``formats.message.write_message``."""
    return write_replication_message(ReplicationMessage.ALTER_PARTITION_RESPONSE, message_of_response(response), version)


def _partitions(message: Message) -> Iterator[tuple[bytes, Message]]:
    return ((topic["topicId"], fields) for topic in message["topics"] for fields in topic["partitions"])


def _members(fields: Message, version: int) -> tuple[IsrMember, ...]:
    if version < FIRST_WITH_EPOCHS:
        return tuple(map(IsrMember, fields["newIsr"]))
    return tuple(IsrMember(each["brokerId"], each["brokerEpoch"]) for each in fields["newIsrWithEpochs"])
