"""Keys and values of records in Kafka's own topics as texts, as the decoders of kafka-dump-log print them.

kafka-dump-log has one decoder for each of these topics. The form of its texts changed with the releases:

* offsets: sentences up to 3.7, JSON since 3.8;
* transaction-log: sentences up to 4.0, JSON since 4.1;
* cluster-metadata: JSON since 3.0;
* remote-log-metadata: what ``toString`` of the class writes, since 3.9;
* share-group-state: JSON since 4.1. (4.0 has other layouts of all records of share groups, which no later release reads.)

A release prints what it knows: it skips record types that are newer, and leaves out newer tagged fields. It reads a newer version of a
value by the layout of the newest one that it knows. Since 4.0 it reports newer versions of the values of coordinators instead.
Where Kafka's tool would end with an exception (up to 3.7 and, for transactions, up to 4.0), the texts are those of the releases after it.

Source: ``kafka.tools.DumpLogSegments`` up to 4.2, ``org.apache.kafka.tools.DumpLogSegments`` since 4.3, ``CoordinatorRecordSerde``,
``GroupMetadataManager.formatRecordKeyAndValue``, ``TransactionLog.formatRecordKeyAndValue``, ``AbstractApiMessageSerde``,
``RemoteLogMetadataSerde``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from msgspec.structs import replace

from formats.broker.kafka_releases import MessageShape, message_shape
from formats.errors import BadValueError, FormatError, LimitExceededError
from formats.message import Message, read_message
from formats.message_schema import FieldSchema, MessageSchema, StructSchema, Versions, load_schemas
from formats.metadata.framed_message import by_api_key
from formats.metadata.message_json import message_to_json
from formats.partition.partition_metadata import uuid_to_text
from formats.primitives import read_unsigned_varint
from snaprebuild.inspect.decoder_names import Decoder, MinorRelease
from snaprebuild.inspect.java_text import hash_order, json_text, signed, string_hash

__all__ = ["DECODED_BYTES_MAX", "DecodedRecord", "DecodedText", "RecordDecoder"]

DECODED_BYTES_MAX = 4 << 20
"""Bytes of a key or value that is decoded. A coordinator writes no more than ``message.max.bytes``, 1 MiB by default."""


JSON_OFFSETS: MinorRelease = (3, 8)
JSON_TRANSACTIONS: MinorRelease = (4, 1)
CHECKS_VERSIONS: MinorRelease = (4, 0)
"""The first release that reports a value of a version that it does not know."""

LEGACY_OFFSETS: MinorRelease = (4, 1)
"""The first release in which the oldest commits of offsets, record type 0, have messages of their own."""

LATER_GROUP_TYPES: MinorRelease = (4, 0)
LAST_CONSUMER_GROUP_TYPE = 8
"""The last record type of ``__consumer_offsets`` that the tool of 3.8 and 3.9 shows."""

SHOWS_TXN_INDEX: MinorRelease = (4, 0)
TOMBSTONE = "<DELETE>"
CONSUMER_PROTOCOL = "consumer"
INT16_MAX = 2**15 - 1


class DecodedText(NamedTuple):
    """A key or a value.

    Attributes:
        text: as kafka-dump-log prints it.
        is_json: it is one JSON value.
    """

    text: str
    is_json: bool = False


class DecodedRecord(NamedTuple):
    """The texts of a record.

    Attributes:
        key: None where kafka-dump-log prints none.
        value: None where kafka-dump-log prints none.
        error: why it could not be decoded, or None.
        unknown_type: number of its record type, if the release does not know the type.
    """

    key: DecodedText | None
    value: DecodedText | None
    error: FormatError | None = None
    unknown_type: int | None = None


class _UnknownTypeError(Exception):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class RecordDecoder:
    """Decodes the records of one topic in the form of one release."""

    def __init__(self, decoder: Decoder, release: MinorRelease | None = None) -> None:
        """Makes a decoder.

        Args:
            decoder: which topic it is; not ``AUTO``.
            release: whose form the texts have; None for the newest.
        """
        self._messages = _Messages(release)
        self._release = release or (9999, 0)
        self._decode = self._decode_of(decoder)
        self._has_keys = decoder not in (Decoder.CLUSTER_METADATA, Decoder.REMOTE_LOG_METADATA)
        self._error_place = "Error at" if decoder is Decoder.CLUSTER_METADATA else "Error at offset"

    def decode(self, offset: int, key: bytes | None, value: bytes | None) -> DecodedRecord:
        """The texts of a record that is no control record. What cannot be decoded is reported in the texts, as Kafka does.

        Raises:
            LimitExceededError: key or value has more than ``DECODED_BYTES_MAX`` bytes.
        """
        for data in (key, value):
            if data is not None and len(data) > DECODED_BYTES_MAX:
                raise LimitExceededError("key or value to decode", expected=f"at most {DECODED_BYTES_MAX} bytes", found=len(data))
        try:
            return self._decode(key, value)
        except _UnknownTypeError as unknown:
            text = DecodedText(f"Unknown record type {unknown.number} at offset {offset}, skipping.")
            return DecodedRecord(text, None, unknown_type=unknown.number)
        except FormatError as error:
            text = DecodedText(f"{self._error_place} {offset}, skipping. {error.message}")
            return DecodedRecord(text, None, error) if self._has_keys else DecodedRecord(None, text, error)

    def _decode_of(self, decoder: Decoder) -> Callable[[bytes | None, bytes | None], DecodedRecord]:
        match decoder:
            case Decoder.OFFSETS:
                return self._offsets if self._release >= JSON_OFFSETS else self._offsets_in_words
            case Decoder.TRANSACTION_LOG:
                if self._release >= JSON_TRANSACTIONS:
                    return self._transactions
                return self._transactions_in_words
            case Decoder.CLUSTER_METADATA:
                return self._cluster_metadata
            case Decoder.REMOTE_LOG_METADATA:
                return self._remote_log_metadata
            case Decoder.SHARE_GROUP_STATE:
                return self._share_groups
            case Decoder.AUTO:
                raise ValueError("the decoder of a topic is needed")

    # --- coordinators, in JSON ---------------------------------------------------------------------------------------------

    def _offsets(self, key: bytes | None, value: bytes | None) -> DecodedRecord:
        return self._coordinator_record("group-coordinator", key, value)

    def _transactions(self, key: bytes | None, value: bytes | None) -> DecodedRecord:
        return self._coordinator_record("transaction-state", key, value)

    def _share_groups(self, key: bytes | None, value: bytes | None) -> DecodedRecord:
        return self._coordinator_record("share-coordinator", key, value)

    def _coordinator_record(self, kind: str, key: bytes | None, value: bytes | None) -> DecodedRecord:
        record_type = _version_before(key, "key")
        key_schema, value_schema = self._schemas_of_type(kind, record_type)
        assert key is not None
        key_fields = _read(key_schema, key, record_type, "key")
        key_json = {"type": str(record_type), "data": message_to_json(key_schema, key_fields, 0)}
        if value is None:
            return DecodedRecord(DecodedText(json_text(key_json), is_json=True), DecodedText(TOMBSTONE))
        version = _version_before(value, "value")
        if self._release >= CHECKS_VERSIONS and version not in value_schema.versions:
            raise _UnreadableRecordError(f"Found an unknown record version {version} for {record_type} type")
        fields = _read(value_schema, value, version, "value")
        data = message_to_json(value_schema, fields, _layout_version(value_schema, version))
        if value_schema.name == "GroupMetadataValue" and fields["protocolType"] == CONSUMER_PROTOCOL:
            self._decode_members(data, fields)
        value_json = {"version": str(version), "data": data}
        return DecodedRecord(DecodedText(json_text(key_json), is_json=True), DecodedText(json_text(value_json), is_json=True))

    def _schemas_of_type(self, kind: str, record_type: int) -> tuple[MessageSchema, MessageSchema]:
        """The messages of key and value of a record type."""
        names = _record_types(kind).get(record_type)
        if names is None or (kind == "group-coordinator" and not self._shows_group_record(record_type)):
            raise _UnknownTypeError(record_type)
        if record_type == 0 and kind == "group-coordinator" and self._release < LEGACY_OFFSETS:
            names = ("OffsetCommitKey", "OffsetCommitValue")
        value_schema = self._messages.schema(kind, names[1])
        if value_schema is None:
            raise _UnknownTypeError(record_type)
        return load_schemas(kind)[names[0]], value_schema

    def _shows_group_record(self, record_type: int) -> bool:
        return self._release >= LATER_GROUP_TYPES or record_type <= LAST_CONSUMER_GROUP_TYPE

    def _decode_members(self, data: dict[str, Any], fields: Message) -> None:
        """Puts subscriptions and assignments of the protocol of consumers in place of their bytes, where they can be read."""
        for member_json, member in zip(data["members"], fields["members"], strict=True):
            for name, message_name in (
                ("subscription", "ConsumerProtocolSubscription"),
                ("assignment", "ConsumerProtocolAssignment"),
            ):
                try:
                    schema, version, message = self._consumer_message(message_name, member[name])
                except FormatError:
                    continue  # as Kafka: the bytes stay
                member_json[name] = message_to_json(schema, message, version)

    def _consumer_message(self, name: str, data: bytes) -> tuple[MessageSchema, int, Message]:
        schema = self._messages.schema("consumer-protocol", name) or load_schemas("consumer-protocol")[name]
        version = _version_before(data, name)
        message, _ = _read_any_version(schema, data, version, position=2)
        return schema, _layout_version(schema, version), message

    # --- coordinators, in words --------------------------------------------------------------------------------------------

    def _offsets_in_words(self, key: bytes | None, value: bytes | None) -> DecodedRecord:
        record_type = _version_before(key, "key")
        assert key is not None
        if record_type in (0, 1):
            key_schema = load_schemas("group-coordinator")["OffsetCommitKey"]
            fields = _read(key_schema, key, record_type, "key")
            key_text = f"offset_commit::group={fields['group']},partition={fields['topic']}-{fields['partition']}"
            return DecodedRecord(DecodedText(key_text), self._committed_offset(value))
        if record_type == 2:
            key_schema = load_schemas("group-coordinator")["GroupMetadataKey"]
            fields = _read(key_schema, key, record_type, "key")
            return DecodedRecord(DecodedText(f"group_metadata::group={fields['group']}"), self._group_metadata(value))
        return DecodedRecord(DecodedText(f"unknown::version={record_type}"), None, unknown_type=record_type)

    def _committed_offset(self, value: bytes | None) -> DecodedText:
        if value is None:
            return DecodedText(TOMBSTONE)
        fields = self._known_value("group-coordinator", "OffsetCommitValue", value)
        metadata = f",metadata={fields['metadata']}" if fields["metadata"] else ""
        return DecodedText(f"offset={fields['offset']}{metadata}")

    def _group_metadata(self, value: bytes | None) -> DecodedText:
        if value is None:
            return DecodedText(TOMBSTONE)
        fields = self._known_value("group-coordinator", "GroupMetadataValue", value)
        members = {member["memberId"]: member for member in fields["members"]}
        is_consumer = fields["protocolType"] == CONSUMER_PROTOCOL
        assignments = []
        for member_id in hash_order([[each] for each in members], string_hash):
            data = members[member_id]["assignment"]
            text = self._assignment_text(data) if is_consumer else _hex_number(data)
            assignments.append(f"{member_id}={text}")
        content = {
            "protocolType": fields["protocolType"],
            "protocol": fields["protocol"],
            "generationId": fields["generation"],
            "assignment": "{" + ",".join(assignments) + "}",
        }
        return DecodedText(json_text(content), is_json=True)

    def _assignment_text(self, data: bytes) -> str:
        _, _, message = self._consumer_message("ConsumerProtocolAssignment", data)
        partitions = [f"{each['topic']}-{partition}" for each in message["assignedPartitions"] for partition in each["partitions"]]
        user_data = _hex_number(message["userData"] or b"")
        return f"[{', '.join(partitions)}]" + (f":{user_data}" if user_data else "")

    def _transactions_in_words(self, key: bytes | None, value: bytes | None) -> DecodedRecord:
        record_type = _version_before(key, "key")
        assert key is not None
        if record_type != 0:
            return DecodedRecord(DecodedText(f"unknown::version={record_type}"), None, unknown_type=record_type)
        key_fields = _read(load_schemas("transaction-state")["TransactionLogKey"], key, record_type, "key")
        key_text = DecodedText(f"transaction_metadata::transactionalId={key_fields['transactionalId']}")
        if value is None:
            return DecodedRecord(key_text, DecodedText(TOMBSTONE))
        fields = self._known_value("transaction-state", "TransactionLogValue", value)
        status = fields["transactionStatus"]
        if status not in _TRANSACTION_STATES:
            raise BadValueError("transactionStatus", expected="0 to 7", found=status)
        partitions = fields["transactionPartitions"] or ()
        groups = [[(each["topic"], number) for number in each["partitionIds"]] for each in partitions]
        ordered = hash_order(groups if status != 0 else [], _topic_partition_hash)
        value_text = (
            f"producerId:{fields['producerId']},producerEpoch:{fields['producerEpoch']},state={_TRANSACTION_STATES[status]},"
            f"partitions=[{','.join(f'{topic}-{number}' for topic, number in ordered)}],"
            f"txnLastUpdateTimestamp={fields['transactionLastUpdateTimestampMs']},txnTimeoutMs={fields['transactionTimeoutMs']}"
        )
        return DecodedRecord(key_text, DecodedText(value_text))

    def _known_value(self, kind: str, name: str, value: bytes) -> Message:
        """The message after a version, which must be one that the release knows."""
        version = _version_before(value, "value")
        schema = self._messages.schema(kind, name) or load_schemas(kind)[name]
        if version not in schema.versions:
            raise BadValueError(f"version of {name}", expected=schema.versions, found=version)
        return _read(schema, value, version, "value")

    # --- framed messages ---------------------------------------------------------------------------------------------------

    def _cluster_metadata(self, key: bytes | None, value: bytes | None) -> DecodedRecord:
        schema, version, message = self._framed("cluster-metadata", value or b"")
        kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", schema.name).upper()
        data = message_to_json(schema, message, _layout_version(schema, version))
        return DecodedRecord(None, DecodedText(json_text({"type": kind, "version": version, "data": data}), is_json=True))

    def _remote_log_metadata(self, key: bytes | None, value: bytes | None) -> DecodedRecord:
        if value is None:
            raise _UnreadableRecordError("the value is null")
        schema, _, message = self._framed("remote-log-metadata", value)
        match schema.name:
            case "RemoteLogSegmentMetadataRecord":
                text = _segment_text(message, shows_txn_index=self._release >= SHOWS_TXN_INDEX)
            case "RemoteLogSegmentMetadataUpdateRecord":
                text = _update_text(message)
            case "RemotePartitionDeleteMetadataRecord":
                text = _deletion_text(message)
            case _:
                text = _snapshot_text(message, shows_txn_index=self._release >= SHOWS_TXN_INDEX)
        return DecodedRecord(None, DecodedText(text))

    def _framed(self, kind: str, value: bytes) -> tuple[MessageSchema, int, Message]:
        frame_version, position = _frame_number(value, 0, "frame version")
        if frame_version == 0:
            raise _UnreadableRecordError(
                "Could not deserialize metadata record with frame version 0. Note that upgrades from the preview release of KRaft "
                "in 2.8 to newer versions are not supported."
            )
        if frame_version != 1:
            raise _UnreadableRecordError(
                f"Could not deserialize metadata record due to unknown frame version {frame_version}"
                "(only frame version 1 is supported)"
            )
        api_key, position = _frame_number(value, position, "type")
        version, position = _frame_number(value, position, "version")
        name = _framed_names(kind).get(api_key)
        schema = None if name is None else self._messages.schema(kind, name)
        if schema is None:
            raise _UnreadableRecordError(
                f"org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {api_key}"
            )
        try:
            message, end = _read_any_version(schema, value, version, position=position)
        except FormatError:
            raise _UnreadableRecordError(f"Failed to deserialize record with type {api_key}") from None
        if end != len(value):
            raise _UnreadableRecordError(f"Found {len(value) - end} byte(s) of garbage after {api_key}")
        return schema, version, message


class _UnreadableRecordError(FormatError):
    """A record that cannot be decoded, with the sentence of Kafka as its message."""


class _Messages:
    """The schemas as far as a release knows them."""

    def __init__(self, release: MinorRelease | None) -> None:
        self._release = None if release is None else ".".join(map(str, release))
        self._schemas: dict[tuple[str, str], MessageSchema | None] = {}

    def schema(self, kind: str, name: str) -> MessageSchema | None:
        """A message with the versions and tagged fields of the release; None if the release does not know it."""
        if (kind, name) not in self._schemas:
            schema = load_schemas(kind)[name]
            if self._release is None:
                self._schemas[kind, name] = schema
            else:
                self._schemas[kind, name] = _as_known(schema, message_shape(self._release, name))
        return self._schemas[kind, name]


def _as_known(schema: MessageSchema, shape: MessageShape | None) -> MessageSchema | None:
    if shape is None:
        return None
    # 3.7 spelled one field in another way.
    tagged = {path.lower(): path for path in shape.tagged_fields}
    return replace(schema, versions=Versions.of(shape.versions), body=_without_unknown_tags(schema.body, tagged, ""))


def _without_unknown_tags(struct: StructSchema, tagged: Mapping[str, str], path: str) -> StructSchema:
    """A structure without the tagged fields that a release does not know.

    Args:
        struct: of the newest release.
        tagged: paths of the tagged fields of the release, by the same in small letters.
        path: of the structure, with a dot at its end.
    """
    fields: list[FieldSchema] = []
    for field in struct.fields:
        name = field.name
        if field.tag is not None:
            known = tagged.get(f"{path}{name}".lower())
            if known is None:
                continue
            last = known.rpartition(".")[2]
            name = last[0].lower() + last[1:]
        inner = None if field.fields is None else _without_unknown_tags(field.fields, tagged, f"{path}{field.name}.")
        fields.append(replace(field, name=name, fields=inner))
    return replace(struct, fields=tuple(fields))


@cache
def _record_types(kind: str) -> Mapping[int, tuple[str, str]]:
    """Names of the messages of key and value, by record type."""
    names = {schema.api_key: name.removesuffix("Key") for name, schema in load_schemas(kind).items() if name.endswith("Key")}
    return {number: (f"{name}Key", f"{name}Value") for number, name in names.items() if number is not None}


@cache
def _framed_names(kind: str) -> Mapping[int, str]:
    return {number: schema.name for number, schema in by_api_key(load_schemas(kind)).items()}


def _version_before(data: bytes | None, name: str) -> int:
    """The int16 that begins a key or a value."""
    if data is None:
        raise _UnreadableRecordError(f"the {name} is null")
    if len(data) < 2:
        raise _UnreadableRecordError(f"Could not read version from {name}'s buffer.")
    return int.from_bytes(data[:2], "big", signed=True)


def _layout_version(schema: MessageSchema, version: int) -> int:
    """The version that Kafka's generated classes read a message by: they compare it only with the versions of single fields."""
    return min(max(version, schema.versions.lowest), schema.versions.highest)


def _read(schema: MessageSchema, data: bytes, version: int, name: str) -> Message:
    """The message after a version. Bytes after the message are ignored, as Kafka does."""
    try:
        message, _ = _read_any_version(schema, data, version, position=2)
    except FormatError as error:
        reason = error.message
        raise _UnreadableRecordError(
            f"Could not read record with version {version} from {name}'s buffer due to: {reason}."
        ) from None
    return message


def _read_any_version(schema: MessageSchema, data: bytes, version: int, *, position: int) -> tuple[Message, int]:
    """A message as Kafka's generated classes read it: a version that is too new fails only where the message has a structure."""
    message, end = read_message(schema, data, _layout_version(schema, version), position=position)
    if version not in schema.versions:
        structure = _first_structure(schema.body, message)
        if structure is not None:
            raise _UnreadableRecordError(f"Can't read version {version} of {structure}")
    return message, end


def _first_structure(struct: StructSchema, message: Message) -> str | None:
    """Name of the first structure in a message; None if there is none."""
    for field in struct.fields:
        if field.fields is not None and message[field.name]:
            return field.fields.name
    return None


def _frame_number(value: bytes, position: int, name: str) -> tuple[int, int]:
    try:
        number, position = read_unsigned_varint(value, position)
    except FormatError:
        raise _UnreadableRecordError(f"Error while reading {name}") from None
    if signed(number) > INT16_MAX:
        raise _UnreadableRecordError(f"Value for {name} was too large.")
    return number, position


def _hex_number(data: bytes) -> str:
    """Bytes as one hexadecimal number: without the zeros in front."""
    return f"{int.from_bytes(data, 'big'):X}" if data else ""


def _topic_partition_hash(topic_partition: tuple[str, int]) -> int:
    """``TopicPartition.hashCode``."""
    topic, partition = topic_partition
    return signed(31 * (31 + partition) + string_hash(topic))


_TRANSACTION_STATES = {
    0: "Empty",
    1: "Ongoing",
    2: "PrepareCommit",
    3: "PrepareAbort",
    4: "CompleteCommit",
    5: "CompleteAbort",
    6: "Dead",
    7: "PrepareEpochFence",
}
_SEGMENT_STATES = ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED")
_DELETE_STATES = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")

# --- the toString of classes of remote log metadata -------------------------------------------------------------------------


def _segment_text(fields: Message, *, shows_txn_index: bool) -> str:
    start, end = fields["startOffset"], fields["endOffset"]
    if start < 0:
        raise _UnreadableRecordError(f"Unexpected start offset = {start}. StartOffset for a remote segment cannot be negative")
    if end < start:
        raise _UnreadableRecordError(
            f"Unexpected end offset = {end}. EndOffset for a remote segment cannot be less than startOffset = {start}"
        )
    epochs = _epochs_text(fields)
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id_text(fields['remoteLogSegmentId'])}, startOffset={start}, "
        f"endOffset={end}, brokerId={fields['brokerId']}, maxTimestampMs={fields['maxTimestampMs']}, "
        f"eventTimestampMs={fields['eventTimestampMs']}, segmentLeaderEpochs={epochs}, "
        f"segmentSizeInBytes={fields['segmentSizeInBytes']}, customMetadata={_custom_text(fields)}, "
        f"state={_segment_state(fields)}{_txn_index_text(fields, is_shown=shows_txn_index)}}}"
    )


def _update_text(fields: Message) -> str:
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id_text(fields['remoteLogSegmentId'])}, "
        f"customMetadata={_custom_text(fields)}, state={_segment_state(fields)}, "
        f"eventTimestampMs={fields['eventTimestampMs']}, brokerId={fields['brokerId']}}}"
    )


def _deletion_text(fields: Message) -> str:
    state = fields["remotePartitionDeleteState"]
    if not 0 <= state < len(_DELETE_STATES):
        raise _UnreadableRecordError("null")
    return (
        f"RemotePartitionDeleteMetadata{{topicPartition={_partition_text(fields['topicIdPartition'])}, "
        f"state={_DELETE_STATES[state]}, eventTimestampMs={fields['eventTimestampMs']}, brokerId={fields['brokerId']}}}"
    )


def _snapshot_text(fields: Message, *, shows_txn_index: bool) -> str:
    state = _segment_state(fields)
    return (
        f"RemoteLogSegmentMetadataSnapshot{{segmentId={uuid_to_text(fields['segmentId'])}, startOffset={fields['startOffset']}, "
        f"endOffset={fields['endOffset']}, maxTimestampMs={fields['maxTimestampMs']}, "
        f"segmentLeaderEpochs={_epochs_text(fields)}, segmentSizeInBytes={fields['segmentSizeInBytes']}, "
        f"customMetadata={_custom_text(fields)}, state={state}{_txn_index_text(fields, is_shown=shows_txn_index)}}}"
    )


def _segment_id_text(fields: Message) -> str:
    return f"RemoteLogSegmentId{{topicIdPartition={_partition_text(fields['topicIdPartition'])}, id={uuid_to_text(fields['id'])}}}"


def _partition_text(fields: Message) -> str:
    return f"{uuid_to_text(fields['id'])}:{fields['name']}-{fields['partition']}"


def _epochs_text(fields: Message) -> str:
    epochs = {each["leaderEpoch"]: each["offset"] for each in fields["segmentLeaderEpochs"]}
    if not epochs:
        raise _UnreadableRecordError("segmentLeaderEpochs can not be null or empty")
    return "{" + ", ".join(f"{epoch}={offset}" for epoch, offset in sorted(epochs.items())) + "}"


def _custom_text(fields: Message) -> str:
    custom = fields["customMetadata"]
    if custom is None:
        return "Optional.empty"
    return f"Optional[CustomMetadata{{{len(custom)} bytes}}]"


def _segment_state(fields: Message) -> str:
    state = fields["remoteLogSegmentState"]
    if not 0 <= state < len(_SEGMENT_STATES):
        raise _UnreadableRecordError("state can not be null")
    return _SEGMENT_STATES[state]


def _txn_index_text(fields: Message, *, is_shown: bool) -> str:
    if not is_shown:
        return ""
    return ", txnIdxEmpty=true" if fields["txnIndexEmpty"] else ", txnIdxEmpty=false"
