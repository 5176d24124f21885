"""The requests and responses of the simulated cluster as Kafka's own messages, in the versions that each mode needs.

KIP-903 adds the broker epoch of each proposed replica to AlterPartition (version 3) and that of the follower to Fetch (version 15).
A follower without epochs sends Fetch version 14, a leader without them AlterPartition version 2.

A FetchResponse has one batch for each record. The diverging epoch of a response has the offset at which this follower cuts its log.

Source: the message tables of KIP-903; ``AlterPartitionManager``, ``RemoteLeaderEndPoint.buildFetch``; 4.3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from formats.log.record_batch import BatchHeader, Record, build_record_batch
from formats.message import Message
from formats.metadata.message_json import message_to_json
from formats.metadata.replication_messages import (
    EPOCH_NOT_GIVEN,
    FIRST_WITH_EPOCHS,
    FIRST_WITH_REPLICA_STATE,
    AlterPartitionRequest,
    AlterPartitionResponse,
    ReplicaState,
    ReplicationMessage,
    fetch_with_replica,
    message_of_request,
    message_of_response,
    schema_of,
)
from snaprebuild.published import Natural, Part
from snaprebuild.simulations.isr import Mode
from snaprebuild.simulations.isr.controller import PARTITION, TOPIC_ID

if TYPE_CHECKING:
    from snaprebuild.simulations.isr.replica import FetchRequest, FetchResponse, LogEntry

__all__ = ["CONTROLLER", "MessageLog", "SentMessage", "SimulatedMessage"]

CONTROLLER = "controller"
"""How the active controller is named as a sender or receiver."""

START_MS = 1_700_000_000_000
"""Timestamp of each record."""

FETCH_WAIT_MS = 500
FETCH_MIN_BYTES = 1
FETCH_MAX_BYTES = 1 << 20
RESPONSE_MAX_BYTES = 10 << 20
"""Defaults of ``replica.fetch.wait.max.ms``, ``replica.fetch.min.bytes``, ``replica.fetch.max.bytes`` and
``replica.fetch.response.max.bytes``."""

FETCH_ERRORS = {None: 0, "NOT_LEADER_OR_FOLLOWER": 6, "FENCED_LEADER_EPOCH": 74, "UNKNOWN_LEADER_EPOCH": 76}
"""Codes of ``org.apache.kafka.common.protocol.Errors`` by the name of the error with which a leader answers a Fetch."""


class SimulatedMessage(Part, frozen=True):
    """A request or response that was sent in the step."""

    name: ReplicationMessage
    """Kafka's name of the message."""
    version: Natural
    """Version of the message."""
    sender: str
    """`broker 1`, or `controller`."""
    receiver: str
    """`broker 1`, or `controller`."""
    body: dict[str, Any]
    """The message as Kafka prints it in JSON."""


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A request or response that was sent.

    Attributes:
        name: Kafka's name of the message.
        version: of the message.
        sender: such as ``broker 1``, or ``CONTROLLER``.
        receiver: such as ``broker 1``, or ``CONTROLLER``.
        message: the fields, as ``formats.message`` has them.
    """

    name: ReplicationMessage
    version: int
    sender: str
    receiver: str
    message: Message

    def to_json(self) -> dict[str, Any]:
        """The message as Kafka's ``JsonConverter`` classes print it: of records their size."""
        return message_to_json(schema_of(self.name), self.message, self.version, with_record_sizes=True)

    def published(self) -> SimulatedMessage:
        """The message with its body in JSON."""
        return SimulatedMessage(self.name, self.version, self.sender, self.receiver, self.to_json())


class MessageLog:
    """Collects what is sent in a step.

    Attributes:
        sent: in the order in which it is sent.
    """

    def __init__(self, mode: Mode) -> None:
        """The mode decides the version of AlterPartition."""
        has_epochs = mode in (Mode.KIP_903, Mode.EPOCHS_FROM_METADATA)
        self._alter_version = FIRST_WITH_EPOCHS if has_epochs else FIRST_WITH_EPOCHS - 1
        self.sent: list[SentMessage] = []

    def alter_request(self, request: AlterPartitionRequest) -> None:
        """A leader sends an AlterPartition."""
        version = self._alter_version
        message = message_of_request(request, version)
        sender = _broker(request.broker_id)
        self.sent.append(SentMessage(ReplicationMessage.ALTER_PARTITION_REQUEST, version, sender, CONTROLLER, message))

    def alter_response(self, broker_id: int, response: AlterPartitionResponse) -> None:
        """The controller answers the AlterPartition of a broker."""
        message = message_of_response(response)
        kind = ReplicationMessage.ALTER_PARTITION_RESPONSE
        self.sent.append(SentMessage(kind, self._alter_version, CONTROLLER, _broker(broker_id), message))

    def fetch_request(self, fetch: FetchRequest) -> None:
        """A follower sends a Fetch."""
        version = _fetch_version(fetch)
        partition = {
            "partition": PARTITION,
            "currentLeaderEpoch": fetch.leader_epoch,
            "fetchOffset": fetch.offset,
            "lastFetchedEpoch": fetch.last_epoch,
            "logStartOffset": 0,
            "partitionMaxBytes": FETCH_MAX_BYTES,
        }
        request: Message = {
            "maxWaitMs": FETCH_WAIT_MS,
            "minBytes": FETCH_MIN_BYTES,
            "maxBytes": RESPONSE_MAX_BYTES,
            "topics": [{"topicId": TOPIC_ID, "partitions": [partition]}],
        }
        message = fetch_with_replica(request, version, ReplicaState(fetch.sender, fetch.broker_epoch))
        kind = ReplicationMessage.FETCH_REQUEST
        self.sent.append(SentMessage(kind, version, _broker(fetch.sender), _broker(fetch.to), message))

    def fetch_response(
        self, fetch: FetchRequest, error: str | None, fetched: FetchResponse | None, log: Sequence[LogEntry]
    ) -> None:
        """A leader answers a Fetch.

        Args:
            fetch: the request.
            error: name of the error, or None.
            fetched: the answer; None with an error.
            log: of the leader.
        """
        partition: Message = {"partitionIndex": PARTITION, "errorCode": FETCH_ERRORS[error], "highWatermark": -1}
        if fetched is not None:
            partition["highWatermark"] = fetched.high_watermark
            partition["lastStableOffset"] = fetched.high_watermark
            partition["logStartOffset"] = 0
            partition["records"] = b"".join(_batch(fetch.offset + at, entry) for at, entry in enumerate(fetched.entries))
            if fetched.truncate_to is not None:
                epoch = log[fetched.truncate_to - 1].leader_epoch if fetched.truncate_to else -1
                partition["divergingEpoch"] = {"epoch": epoch, "endOffset": fetched.truncate_to}
        message = {"responses": [{"topicId": TOPIC_ID, "partitions": [partition]}]}
        kind = ReplicationMessage.FETCH_RESPONSE
        self.sent.append(SentMessage(kind, _fetch_version(fetch), _broker(fetch.to), _broker(fetch.sender), message))


def _broker(broker_id: int) -> str:
    return f"broker {broker_id}"


def _fetch_version(fetch: FetchRequest) -> int:
    has_epoch = fetch.broker_epoch != EPOCH_NOT_GIVEN
    return FIRST_WITH_REPLICA_STATE if has_epoch else FIRST_WITH_REPLICA_STATE - 1


def _batch(offset: int, entry: LogEntry) -> bytes:
    """The batch of one record; its value is the number of the record."""
    header = BatchHeader(
        base_offset=offset,
        length=0,
        partition_leader_epoch=entry.leader_epoch,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=START_MS,
        max_timestamp=START_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=1,
    )
    return build_record_batch(header, [Record(0, 0, None, str(entry.number).encode())])
