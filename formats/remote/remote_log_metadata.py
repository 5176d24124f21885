"""Records of ``__remote_log_metadata``: which segments are in remote storage, and in which state (KIP-405).

A value is a message of ``formats/schemas/remote-log-metadata.json`` in its frame.

Source: ``RemoteLogMetadataSerde``, ``RemoteLogMetadataTopicPartitioner``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any, TypeVar

from formats.errors import BadValueError, FormatError
from formats.message_schema import MessageSchema, load_schemas
from formats.metadata.framed_message import by_api_key, read_framed_message, write_framed_message
from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.partition_metadata import uuid_to_text

__all__ = [
    "METADATA_PARTITIONS",
    "METADATA_TOPIC",
    "DeleteState",
    "PartitionDeletion",
    "RemoteLogRecord",
    "RemoteSegment",
    "RemoteSegmentId",
    "RemoteSegmentUpdate",
    "SegmentState",
    "TopicIdPartition",
    "metadata_partition",
    "read_remote_log_record",
    "write_remote_log_record",
]

RECORD_VERSION = 0

METADATA_TOPIC = "__remote_log_metadata"
"""The topic that holds the records (``TopicBasedRemoteLogMetadataManagerConfig.REMOTE_LOG_METADATA_TOPIC_NAME``)."""

METADATA_PARTITIONS = 50
"""Partitions of ``__remote_log_metadata`` by default (``remote.log.metadata.topic.num.partitions``)."""

SEGMENT, UPDATE, PARTITION_DELETION, SNAPSHOT = range(4)
"""Keys of the four kinds of records."""


class SegmentState(IntEnum):
    """``RemoteLogSegmentState``."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class DeleteState(IntEnum):
    """``RemotePartitionDeleteState``."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


@dataclass(frozen=True, slots=True, order=True)
class TopicIdPartition:
    """A partition of a topic, with the topic id: the name may have been used by earlier topics.

    Attributes:
        topic: name.
        topic_id: 16 bytes.
        partition: number.
    """

    topic: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        return f"{uuid_to_text(self.topic_id)}:{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class RemoteSegmentId:
    """One attempt at copying a segment.

    Attributes:
        topic_id_partition: whose segment it is.
        id: 16 bytes, random for each attempt.
    """

    topic_id_partition: TopicIdPartition
    id: bytes

    def __str__(self) -> str:
        return uuid_to_text(self.id)


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A segment as it was when its copy began (``RemoteLogSegmentMetadata``), or as a snapshot of the records holds it.

    Attributes:
        id: of this copy; None for a record of a snapshot, which has ``segment_id`` and the partition of the snapshot instead.
        segment_id: 16 bytes.
        start_offset: first.
        end_offset: last, included.
        broker_id: of the broker that copied it.
        max_timestamp_ms: greatest of its records, ms since 1970.
        event_timestamp_ms: when this state began, ms since 1970.
        leader_epochs: with the first offset of each in this segment, ascending.
        size_bytes: of the log segment.
        custom_metadata: what the remote storage manager gave, or None.
        state: of the copy in this record.
        txn_index_empty: it had no aborted transaction (Kafka 3.9 did not record this).
    """

    id: RemoteSegmentId | None
    segment_id: bytes
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    leader_epochs: tuple[LeaderEpochEntry, ...]
    size_bytes: int
    custom_metadata: bytes | None
    state: SegmentState
    txn_index_empty: bool


@dataclass(frozen=True, slots=True)
class RemoteSegmentUpdate:
    """A later state of a segment (``RemoteLogSegmentMetadataUpdate``).

    Attributes:
        id: of the copy.
        broker_id: of the broker that wrote the record.
        event_timestamp_ms: when the state began, ms since 1970.
        custom_metadata: what the remote storage manager gave, or None.
        state: the new one.
    """

    id: RemoteSegmentId
    broker_id: int
    event_timestamp_ms: int
    custom_metadata: bytes | None
    state: SegmentState


@dataclass(frozen=True, slots=True)
class PartitionDeletion:
    """A partition is, or was, being deleted from remote storage (``RemotePartitionDeleteMetadata``).

    Attributes:
        topic_id_partition: which.
        broker_id: of the broker that wrote the record.
        event_timestamp_ms: when the state began, ms since 1970.
        state: how far it is.
    """

    topic_id_partition: TopicIdPartition
    broker_id: int
    event_timestamp_ms: int
    state: DeleteState


State = TypeVar("State", SegmentState, DeleteState)
RemoteLogRecord = RemoteSegment | RemoteSegmentUpdate | PartitionDeletion


def read_remote_log_record(value: bytes, *, file: str | None = None, position: int = 0) -> RemoteLogRecord:
    """Reads the value of a record.

    Args:
        value: of the record; must not be null.
        file: for messages.
        position: where the value begins in its file, in bytes, for messages.

    Raises:
        BadValueError: an unknown state.
        FormatError: it is no framed message of a known type (``read_framed_message``).
    """
    try:
        return _read(value)
    except FormatError as error:
        error = error.shifted_by(position)
        raise error.in_file(file) from None


def _read(value: bytes) -> RemoteLogRecord:
    schema, _, fields = read_framed_message(_schemas(), value)
    assert schema.api_key is not None
    return _value_of(schema.api_key, fields)


@cache
def _schemas() -> dict[int, MessageSchema]:
    return by_api_key(load_schemas("remote-log-metadata"))


def _value_of(key: int, fields: dict[str, Any]) -> RemoteLogRecord:
    if key == PARTITION_DELETION:
        deletion = _state(DeleteState, fields["remotePartitionDeleteState"])
        partition = _topic_id_partition(fields["topicIdPartition"])
        return PartitionDeletion(partition, fields["brokerId"], fields["eventTimestampMs"], deletion)
    state = _state(SegmentState, fields["remoteLogSegmentState"])
    if key == UPDATE:
        segment_id = _segment_id(fields["remoteLogSegmentId"])
        return RemoteSegmentUpdate(segment_id, fields["brokerId"], fields["eventTimestampMs"], fields["customMetadata"], state)
    id_of_copy = _segment_id(fields["remoteLogSegmentId"]) if key == SEGMENT else None
    return RemoteSegment(
        id=id_of_copy,
        segment_id=fields["segmentId"] if id_of_copy is None else id_of_copy.id,
        start_offset=fields["startOffset"],
        end_offset=fields["endOffset"],
        broker_id=fields["brokerId"],
        max_timestamp_ms=fields["maxTimestampMs"],
        event_timestamp_ms=fields["eventTimestampMs"],
        leader_epochs=tuple(LeaderEpochEntry(each["leaderEpoch"], each["offset"]) for each in fields["segmentLeaderEpochs"]),
        size_bytes=fields["segmentSizeInBytes"],
        custom_metadata=fields["customMetadata"],
        state=state,
        txn_index_empty=fields["txnIndexEmpty"],
    )


def _state(kind: type[State], number: int) -> State:
    try:
        return kind(number)
    except ValueError:
        expected = ", ".join(str(int(state)) for state in kind)
        raise BadValueError(f"{kind.__name__} of remote log metadata", expected=f"one of {expected}", found=number) from None


def _topic_id_partition(fields: dict[str, Any]) -> TopicIdPartition:
    return TopicIdPartition(fields["name"], fields["id"], fields["partition"])


def _segment_id(fields: dict[str, Any]) -> RemoteSegmentId:
    return RemoteSegmentId(_topic_id_partition(fields["topicIdPartition"]), fields["id"])


def write_remote_log_record(record: RemoteLogRecord) -> bytes:
    """Writes the value of a record.

    Raises:
        BadValueError: a value that a field has no room for.
    """
    match record:
        case RemoteSegment():
            key = SEGMENT if record.id is not None else SNAPSHOT
            identity = (
                {"remoteLogSegmentId": _fields_of_id(record.id)} if record.id is not None else {"segmentId": record.segment_id}
            )
            epochs = [{"leaderEpoch": entry.epoch, "offset": entry.start_offset} for entry in record.leader_epochs]
            fields = {
                **identity,
                "startOffset": record.start_offset,
                "endOffset": record.end_offset,
                "maxTimestampMs": record.max_timestamp_ms,
                "segmentLeaderEpochs": epochs,
                "segmentSizeInBytes": record.size_bytes,
                "customMetadata": record.custom_metadata,
                "remoteLogSegmentState": int(record.state),
                "txnIndexEmpty": record.txn_index_empty,
            }
        case RemoteSegmentUpdate():
            key = UPDATE
            state = int(record.state)
            custom = record.custom_metadata
            fields = {"remoteLogSegmentId": _fields_of_id(record.id), "customMetadata": custom, "remoteLogSegmentState": state}
        case PartitionDeletion():
            key = PARTITION_DELETION
            fields = {"topicIdPartition": _fields_of(record.topic_id_partition), "remotePartitionDeleteState": int(record.state)}
    fields |= {"brokerId": record.broker_id, "eventTimestampMs": record.event_timestamp_ms}
    return write_framed_message(_schemas()[key], fields, RECORD_VERSION)


def _fields_of(partition: TopicIdPartition) -> dict[str, object]:
    return {"name": partition.topic, "id": partition.topic_id, "partition": partition.partition}


def _fields_of_id(segment_id: RemoteSegmentId) -> dict[str, object]:
    return {"topicIdPartition": _fields_of(segment_id.topic_id_partition), "id": segment_id.id}


# ---------------------------------------------------------------------------------------------------------------- partitions


def metadata_partition(partition: TopicIdPartition, partitions: int = METADATA_PARTITIONS) -> int:
    """The partition of ``__remote_log_metadata`` that holds the records of a partition (``RemoteLogMetadataTopicPartitioner``).

    Args:
        partition: by topic id; its name has no effect.
        partitions: how many there are.
    """
    most, least = (int.from_bytes(half, "big") for half in (partition.topic_id[:8], partition.topic_id[8:]))
    hashed = 1
    for part in (_hash_of_long(least), _hash_of_long(most), partition.partition):
        hashed = (31 * hashed + part) & 0xFFFFFFFF
    return (_murmur2_of_int(hashed) & 0x7FFFFFFF) % partitions


def _hash_of_long(value: int) -> int:
    """``Long.hashCode``."""
    return (value ^ value >> 32) & 0xFFFFFFFF


def _murmur2_of_int(value: int) -> int:
    """``Utils.murmur2`` of the four big-endian bytes of an int32."""
    multiplier = 0x5BD1E995
    mask = 0xFFFFFFFF
    block = int.from_bytes(value.to_bytes(4, "big"), "little") * multiplier & mask
    block = (block ^ block >> 24) * multiplier & mask
    hashed = (0x9747B28C ^ 4) * multiplier & mask ^ block
    hashed = (hashed ^ hashed >> 13) * multiplier & mask
    return hashed ^ hashed >> 15
