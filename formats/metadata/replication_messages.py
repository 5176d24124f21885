"""Requests and responses by which replicas keep up and in-sync replicas change: Fetch and AlterPartition, as KIP-903 left them.

Messages are dicts, as ``formats.message`` has them, by ``formats/schemas/replication-messages.json``; AlterPartition has value
classes of its own. They are the bodies, without the header of a request.

Until version 2, AlterPartition named the wanted in-sync replicas by broker id alone; version 3 adds the broker epoch of each. Since
version 15 Fetch has the broker epoch of the follower, in a tagged field that also replaced the replica id.

Source: ``AlterPartitionRequest.json``, ``AlterPartitionResponse.json``, ``FetchRequest.json``, ``FetchResponse.json``, KIP-903.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from formats.message import Message
from formats.message_schema import MessageSchema, load_schemas

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
    "schema_of",
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
    """The request of a leader to the controller.

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


# ---------------------------------------------------------------------------------------------------------------- Fetch


def fetch_with_replica(request: Message, version: int, replica: ReplicaState) -> Message:
    """A FetchRequest as a replica sends it, as ``FetchRequest.Builder`` of a version writes it."""
    if version < FIRST_WITH_REPLICA_STATE:
        return {**request, "replicaId": replica.replica_id}
    return {**request, "replicaState": {"replicaId": replica.replica_id, "replicaEpoch": replica.replica_epoch}}


# ---------------------------------------------------------------------------------------------------------------- AlterPartition


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


def _by_topic(partitions: Iterable[tuple[bytes, Message]]) -> list[Message]:
    return [
        {"topicId": topic_id, "partitions": [fields for _, fields in group]}
        for topic_id, group in groupby(partitions, key=lambda pair: pair[0])
    ]


def _fields_of_members(isr: tuple[IsrMember, ...], version: int) -> Message:
    if version < FIRST_WITH_EPOCHS:
        return {"newIsr": [member.broker_id for member in isr]}
    return {"newIsrWithEpochs": [{"brokerId": each.broker_id, "brokerEpoch": each.broker_epoch} for each in isr]}
