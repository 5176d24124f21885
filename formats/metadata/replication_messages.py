"""Requests and responses by which replicas keep up and in-sync replicas change: Fetch and AlterPartition, as KIP-903 left them.

Messages are dicts, as ``formats.message`` has them, by ``formats/schemas/replication-messages.json``; AlterPartition has value
classes of its own. They are the bodies, without the header of a request.

Until version 2, AlterPartition named the wanted in-sync replicas by broker id alone; version 3 adds the broker epoch of each. Since
version 15 Fetch has the broker epoch of the follower, in a tagged field that also replaced the replica id.

Source: ``AlterPartitionRequest.json``, ``AlterPartitionResponse.json``, ``FetchRequest.json``, ``FetchResponse.json``, KIP-903.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from formats import limits
from formats.errors import BadLengthError, LimitExceededError
from formats.message import Message, read_message, write_message
from formats.message_schema import MessageSchema, Versions, load_schemas

__all__ = [
    "EPOCH_NOT_GIVEN",
    "FIRST_WITH_EPOCHS",
    "FIRST_WITH_REPLICA_STATE",
    "AlterPartitionRequest",
    "AlterPartitionResponse",
    "AlteredPartition",
    "IsrMember",
    "ProposedPartition",
    "ReplicaState",
    "ReplicationMessage",
    "fetch_with_replica",
    "message_of_request",
    "message_of_response",
    "read_alter_partition_request",
    "read_alter_partition_response",
    "read_replication_message",
    "replica_of_fetch",
    "schema_of",
    "versions_of",
    "write_alter_partition_request",
    "write_alter_partition_response",
    "write_replication_message",
]

EPOCH_NOT_GIVEN = -1
"""Broker epoch of a member whose epoch the leader does not know or cannot send: the controller then does not check it."""

FIRST_WITH_EPOCHS = 3
"""Version of AlterPartition."""

FIRST_WITH_REPLICA_STATE = 15
"""Version of Fetch."""


class ReplicationMessage(StrEnum):
    """The messages of this module, by Kafka's names."""

    ALTER_PARTITION_REQUEST = "AlterPartitionRequest"
    ALTER_PARTITION_RESPONSE = "AlterPartitionResponse"
    FETCH_REQUEST = "FetchRequest"
    FETCH_RESPONSE = "FetchResponse"


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The replica that fetches.

    Attributes:
        replica_id: broker id of the follower; -1 for a consumer.
        replica_epoch: its broker epoch; -1 where it is not given.
    """

    replica_id: int = -1
    replica_epoch: int = EPOCH_NOT_GIVEN


@dataclass(frozen=True, slots=True)
class IsrMember:
    """A replica that the leader proposes as in sync (``AlterPartitionRequestData.BrokerState``).

    Attributes:
        broker_id: of the replica.
        broker_epoch: of the broker when it fetched last; -1 where it is not given.
    """

    broker_id: int
    broker_epoch: int = EPOCH_NOT_GIVEN


@dataclass(frozen=True, slots=True)
class ProposedPartition:
    """The change that a leader proposes for one partition.

    Attributes:
        topic_id: 16 bytes.
        partition: number.
        leader_epoch: as the leader knows it.
        isr: the wanted in-sync replicas.
        leader_recovery_state: 0 recovered, 1 recovering from an unclean election.
        partition_epoch: as the leader knows it.
    """

    topic_id: bytes
    partition: int
    leader_epoch: int
    isr: tuple[IsrMember, ...]
    leader_recovery_state: int
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class AlterPartitionRequest:
    """What a leader sends to the controller.

    Attributes:
        broker_id: of the leader.
        broker_epoch: of the leader.
        partitions: those of one topic are next to each other.
    """

    broker_id: int
    broker_epoch: int
    partitions: tuple[ProposedPartition, ...]


@dataclass(frozen=True, slots=True)
class AlteredPartition:
    """The controller's response for one partition.

    Attributes:
        topic_id: 16 bytes.
        partition: number.
        error_code: 0 for none; with an error the fields below have no meaning.
        leader: broker id.
        leader_epoch: as the controller knows it.
        isr: the in-sync replicas from now on.
        leader_recovery_state: 0 recovered, 1 recovering.
        partition_epoch: from now on.
    """

    topic_id: bytes
    partition: int
    error_code: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class AlterPartitionResponse:
    """The controller's response.

    Attributes:
        throttle_time_ms: how long the leader should wait, in ms.
        error_code: of the whole request; 0 for none.
        partitions: those of one topic are next to each other.
    """

    throttle_time_ms: int
    error_code: int
    partitions: tuple[AlteredPartition, ...]


def schema_of(kind: ReplicationMessage) -> MessageSchema:
    """The schema of a message."""
    return load_schemas("replication-messages")[kind.value]


def versions_of(kind: ReplicationMessage) -> Versions:
    """Versions that can be read and written."""
    return schema_of(kind).versions


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
    if len(data) > limits.REPLICATION_MESSAGE_BYTES_MAX:
        raise LimitExceededError(
            f"size of {kind}", expected=f"at most {limits.REPLICATION_MESSAGE_BYTES_MAX} bytes", found=len(data)
        )
    message, end = read_message(schema_of(kind), data, version)
    if end != len(data):
        raise BadLengthError(kind.value, position=end, expected="its end", found=f"{len(data) - end} bytes more")
    return message


def write_replication_message(kind: ReplicationMessage, message: Message, version: int) -> bytes:
    """Writes a body; errors are those of ``formats.message.write_message``."""
    return write_message(schema_of(kind), message, version)


# ---------------------------------------------------------------------------------------------------------------- Fetch


def replica_of_fetch(request: Message, version: int) -> ReplicaState:
    """The replica that sends a FetchRequest; before version 15 the request does not contain its epoch."""
    if version < FIRST_WITH_REPLICA_STATE:
        return ReplicaState(request["replicaId"])
    state = request["replicaState"]
    return ReplicaState(state["replicaId"], state["replicaEpoch"])


def fetch_with_replica(request: Message, version: int, replica: ReplicaState) -> Message:
    """A FetchRequest as a replica sends it, as ``FetchRequest.Builder`` of a version writes it."""
    if version < FIRST_WITH_REPLICA_STATE:
        return {**request, "replicaId": replica.replica_id}
    return {**request, "replicaState": {"replicaId": replica.replica_id, "replicaEpoch": replica.replica_epoch}}


# ---------------------------------------------------------------------------------------------------------------- AlterPartition


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


def message_of_request(request: AlterPartitionRequest, version: int) -> Message:
    """The fields of a request. Before version 3 broker epochs are left out, as ``AlterPartitionRequest.Builder`` does."""
    fields = (
        (
            each.topic_id,
            {
                "partitionIndex": each.partition,
                "leaderEpoch": each.leader_epoch,
                **_fields_of_members(each.isr, version),
                "leaderRecoveryState": each.leader_recovery_state,
                "partitionEpoch": each.partition_epoch,
            },
        )
        for each in request.partitions
    )
    return {"brokerId": request.broker_id, "brokerEpoch": request.broker_epoch, "topics": _by_topic(fields)}


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


def message_of_response(response: AlterPartitionResponse) -> Message:
    """The fields of a response, in each version."""
    fields = (
        (
            each.topic_id,
            {
                "partitionIndex": each.partition,
                "errorCode": each.error_code,
                "leaderId": each.leader,
                "leaderEpoch": each.leader_epoch,
                "isr": list(each.isr),
                "leaderRecoveryState": each.leader_recovery_state,
                "partitionEpoch": each.partition_epoch,
            },
        )
        for each in response.partitions
    )
    return {
        "throttleTimeMs": response.throttle_time_ms,
        "errorCode": response.error_code,
        "topics": _by_topic(fields),
    }


def write_alter_partition_response(response: AlterPartitionResponse, version: int) -> bytes:
    """Writes a body; errors are those of ``formats.message.write_message``."""
    return write_replication_message(ReplicationMessage.ALTER_PARTITION_RESPONSE, message_of_response(response), version)


def _partitions(message: Message) -> Iterator[tuple[bytes, Message]]:
    return ((topic["topicId"], fields) for topic in message["topics"] for fields in topic["partitions"])


def _by_topic(partitions: Iterable[tuple[bytes, Message]]) -> list[Message]:
    return [
        {"topicId": topic_id, "partitions": [fields for _, fields in group]}
        for topic_id, group in groupby(partitions, key=lambda pair: pair[0])
    ]


def _members(fields: Message, version: int) -> tuple[IsrMember, ...]:
    if version < FIRST_WITH_EPOCHS:
        return tuple(map(IsrMember, fields["newIsr"]))
    return tuple(IsrMember(each["brokerId"], each["brokerEpoch"]) for each in fields["newIsrWithEpochs"])


def _fields_of_members(isr: tuple[IsrMember, ...], version: int) -> Message:
    if version < FIRST_WITH_EPOCHS:
        return {"newIsr": [member.broker_id for member in isr]}
    return {"newIsrWithEpochs": [{"brokerId": each.broker_id, "brokerEpoch": each.broker_epoch} for each in isr]}
