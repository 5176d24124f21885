"""Messages by their schemas: Kafka's own bytes, every message in every version, and whatever bytes may come."""

from io import BytesIO
from typing import Any

import pytest
from budgets import TIER, scaled
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import INT16, INT32, INT64

from formats import limits
from formats.errors import BadLengthError, BadValueError, BadVersionError, FormatError, LimitExceededError, TruncatedError
from formats.message import UNKNOWN_TAGGED_FIELDS, Message, message_grammar, read_message, write_message
from formats.message_reader import GIVES_UP, message_reader
from formats.message_schema import FieldSchema, MessageSchema, StructSchema, Versions, load_schemas
from formats.metadata.framed_message import by_api_key, read_framed_message, write_framed_message
from formats.partition.partition_metadata import uuid_from_text

TOPIC_ID = uuid_from_text("lZ6vvmajTWKDBUTV6SQAtQ")
DIRECTORY = uuid_from_text("adh9f8BMS4anaUnD8KWfWg")
CLUSTER = load_schemas("cluster-metadata")
EVERY_MESSAGE = [
    pytest.param(schema, version, id=f"{schema.name}-{version}")
    for name in ("cluster-metadata", "remote-log-metadata", "control-records", "share-coordinator", "consumer-protocol")
    for schema in load_schemas(name).values()
    for version in range(schema.versions.lowest, schema.versions.highest + 1)
]
NEWEST = [each for each in EVERY_MESSAGE if each.values[1] == each.values[0].versions.highest]
EXAMPLES_OF_EACH = 8 if TIER == "quick" else scaled(75)
"""Examples of each of a hundred messages and versions: half of what other properties get."""

# Written by the classes of Kafka 4.3.1.
KAFKA_BYTES = {
    "topic": ("0102000274959eafbe66a34d62830544d5e92400b500", "TopicRecord", 0, {"name": "t", "topicId": TOPIC_ID}),
    "partition": (
        "01030100000000959eafbe66a34d62830544d5e92400b5030000000100000002020000000101010000000100000003000000040369d87d7fc04c4b86a76949c3f0a59f5a"
        "69d87d7fc04c4b86a76949c3f0a59f5a00",
        "PartitionRecord",
        1,
        {
            "partitionId": 0,
            "topicId": TOPIC_ID,
            "replicas": [1, 2],
            "isr": [1],
            "leader": 1,
            "leaderEpoch": 3,
            "partitionEpoch": 4,
            "directories": [DIRECTORY, DIRECTORY],
        },
    ),
    "partition change": (
        "01050000000000959eafbe66a34d62830544d5e92400b5020009030000000100000002010400000002",
        "PartitionChangeRecord",
        0,
        {"partitionId": 0, "topicId": TOPIC_ID, "isr": [1, 2], "leader": 2},
    ),
    "register broker": (
        "010003000000010069d87d7fc04c4b86a76949c3f0a59f5a000000000000000501010101000100110269d87d7fc04c4b86a76949c3f0a59f5a",
        "RegisterBrokerRecord",
        3,
        {"brokerId": 1, "incarnationId": DIRECTORY, "brokerEpoch": 5, "rack": "", "fenced": True, "logDirs": [DIRECTORY]},
    ),
    "unfence": (
        "011100000000010000000000000005010001ff",
        "BrokerRegistrationChangeRecord",
        0,
        {"brokerId": 1, "brokerEpoch": 5, "fenced": -1},
    ),
    "feature level": (
        "010c00116d657461646174612e76657273696f6e001900",
        "FeatureLevelRecord",
        0,
        {"name": "metadata.version", "featureLevel": 25},
    ),
}


@pytest.mark.parametrize("case", KAFKA_BYTES)
def test_bytes_of_kafka(case: str) -> None:
    data, name, version, fields = KAFKA_BYTES[case]
    expected = {**CLUSTER[name].body.defaults(), **fields}
    assert read_framed_message(by_api_key(CLUSTER), bytes.fromhex(data)) == (CLUSTER[name], version, expected)
    assert write_framed_message(CLUSTER[name], fields, version).hex() == data


# ---------------------------------------------------------------------------------------------------------------- every message

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-128, 127),
    "int16": INT16,
    "uint16": st.integers(0, 2**16 - 1),
    "int32": INT32,
    "uint32": st.integers(0, 2**32 - 1),
    "int64": INT64,
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": st.text(max_size=20),
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
}


def values_of(field: FieldSchema, version: int) -> st.SearchStrategy[Any]:
    values = messages_of(field.fields, version) if field.fields is not None else SCALARS[field.type]
    if field.is_array:
        values = st.lists(values, max_size=3)
    return st.none() | values if version in field.nullable else values


@st.composite
def messages_of(draw: st.DrawFn, schema: StructSchema, version: int) -> Message:
    message = schema.defaults()
    for field in schema.fields:
        if version in field.versions and draw(st.booleans()):
            message[field.name] = draw(values_of(field, version))
    if version in schema.flexible and draw(st.integers(0, 3)) == 3:
        unknown = draw(st.dictionaries(st.integers(100, 2**32 - 1), st.binary(max_size=10), min_size=1, max_size=3))
        message[UNKNOWN_TAGGED_FIELDS] = sorted(unknown.items())
    return message


@pytest.mark.parametrize(("schema", "version"), EVERY_MESSAGE)
@settings(max_examples=EXAMPLES_OF_EACH)
@given(data=st.data())
def test_what_is_written_is_read(schema: MessageSchema, version: int, data: st.DataObject) -> None:
    message = data.draw(messages_of(schema.body, version))
    written = write_message(schema, message, version)
    before = data.draw(st.binary(max_size=5))
    found, end = read_message(schema, before + written + b"\x00\xff", version, position=len(before))
    assert (found, end) == (message, len(before) + len(written))
    assert message_grammar(schema, version).parse(written) == message, "the fast reader and the grammar give the same"
    assert list(found) == [
        *(field.name for field in schema.body.fields),
        *([UNKNOWN_TAGGED_FIELDS] * (UNKNOWN_TAGGED_FIELDS in message)),
    ]


@pytest.mark.parametrize(("schema", "version"), NEWEST)
@settings(max_examples=EXAMPLES_OF_EACH)
@given(data=st.data())
def test_a_cut_message_is_reported(schema: MessageSchema, version: int, data: st.DataObject) -> None:
    written = write_message(schema, data.draw(messages_of(schema.body, version)), version)
    if written:
        size = data.draw(st.integers(0, len(written) - 1))
        # Only a tagged field that is cut inside shows something else than that bytes are missing.
        with pytest.raises(TruncatedError) as caught:
            read_message(schema, written[:size], version)
        assert caught.value.position is not None
        assert 0 <= caught.value.position <= size
        changed = bytearray(written)
        changed[size] = data.draw(st.integers(0, 255))
        check_fast_reader(schema, version, bytes(changed))


def check_fast_reader(schema: MessageSchema, version: int, odd: bytes) -> None:
    """Checks that the fast reader gives the grammar's result for any bytes, or gives up."""
    try:
        found, end = message_reader(schema, version)(odd, 0)
    except GIVES_UP:
        return
    stream = BytesIO(odd)
    expected = message_grammar(schema, version).parse_stream(stream)
    assert repr((found, end)) == repr((expected, stream.tell()))


# ---------------------------------------------------------------------------------------------------------------- bad bytes

CHANGE = CLUSTER["PartitionChangeRecord"]
CHANGE_HEAD = bytes(4) + TOPIC_ID


def test_a_count_beyond_the_bytes_is_refused_before_anything_is_made() -> None:
    assert CHANGE.body.fields[2].name == "isr"
    with pytest.raises(BadLengthError, match="tagged field isr") as caught:
        read_message(CHANGE, CHANGE_HEAD + bytes.fromhex("01 00 05 ffffffff0f"), 0)
    assert caught.value.position == len(CHANGE_HEAD) + 8
    with pytest.raises(TruncatedError, match="replicas"):
        read_message(CLUSTER["PartitionRecord"], bytes(4) + TOPIC_ID + bytes.fromhex("ffffffff0f") + bytes(100), 1)


@pytest.mark.parametrize(
    ("tagged", "expected", "found"), [("01 01 05 00000002 00", 4, 5), ("01 01 03 000000", "more", 3), ("01 01 00", "more", 0)]
)
def test_a_tagged_field_must_be_as_long_as_it_says(tagged: str, expected: object, found: int) -> None:
    with pytest.raises(BadLengthError, match="length of the tagged field leader") as caught:
        read_message(CHANGE, CHANGE_HEAD + bytes.fromhex(tagged), 0)
    assert (caught.value.expected, caught.value.found) == (expected, found)


def test_too_many_tagged_fields() -> None:
    count = limits.TAGGED_FIELDS_MAX + 1
    with pytest.raises(LimitExceededError, match="count of tagged fields"):
        read_message(CHANGE, CHANGE_HEAD + bytes((count & 0x7F | 0x80, count >> 7)) + bytes.fromhex("6400") * count, 0)


TOPIC = CLUSTER["TopicRecord"]


@pytest.mark.parametrize(
    ("data", "version", "error", "message"),
    [
        (b"\x00" + TOPIC_ID + b"\x00", 0, BadLengthError, "expected 0 or more, found -1"),
        (b"\x02\xff" + TOPIC_ID + b"\x00", 0, BadValueError, "TopicRecord"),
        (b"", 1, BadVersionError, r"version of TopicRecord: expected 0\.\.0, found 1"),
    ],
    ids=["null", "no UTF-8", "unknown version"],
)
def test_bad_messages(data: bytes, version: int, error: type[FormatError], message: str) -> None:
    with pytest.raises(error, match=message):
        read_message(TOPIC, data, version)


@pytest.mark.parametrize(
    ("name", "data", "version", "error", "message"),
    [
        ("TopicRecord", "", 0, TruncatedError, "TopicRecord -> name: expected more bytes, found 0"),
        ("TopicRecord", "0274", 0, TruncatedError, "TopicRecord -> topicId: expected more bytes, found 0"),
        ("TopicRecord", "00", 0, BadLengthError, "TopicRecord -> name: length of a string: expected 0 or more, found -1"),
        ("TopicRecord", "02ff", 0, BadValueError, "TopicRecord -> name, found .utf-8. codec"),
        ("TopicRecord", "ffffffffff01", 0, BadLengthError, "TopicRecord -> name: varint: "),
        ("RegisterBrokerRecord", "00000001" + 24 * "00" + "02 0274", 1, TruncatedError, "-> endPoints -> host"),
    ],
)
def test_an_error_names_its_field(name: str, data: str, version: int, error: type[FormatError], message: str) -> None:
    with pytest.raises(error, match=message):
        read_message(CLUSTER[name], bytes.fromhex(data), version)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "frame of a message: expected three varints, found 0 bytes"),
        ("0102", "frame of a message"),
        ("ffffffffff0100", "varint"),
    ],
)
def test_bad_frames(value: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read_framed_message(by_api_key(CLUSTER), bytes.fromhex(value))


@pytest.mark.parametrize(
    ("fields", "version", "message"),
    [
        ({"partitionId": 2**31}, 0, "PartitionChangeRecord"),
        ({"partitionId": "1"}, 0, "PartitionChangeRecord"),
        ({"topicId": b"short"}, 0, "uuid: expected 16 bytes"),
        ({"isr": 3}, 0, "PartitionChangeRecord -> isr: expected a list"),
        ({"partition": 1}, 0, "expected fields of PartitionChangeRecord"),
        ({"directories": [TOPIC_ID]}, 0, "directories: expected its default in this version"),
        ({UNKNOWN_TAGGED_FIELDS: [(1, b"")]}, 0, "expected a tag that the schema does not know, found 1"),
    ],
)
def test_what_cannot_be_written(fields: Message, version: int, message: str) -> None:
    with pytest.raises(BadValueError, match=message):
        write_message(CHANGE, fields, version)


def test_versions() -> None:
    assert [Versions.of(text) for text in ("none", "3", "0-3", "2+")] == [
        Versions(0, -1),
        Versions(3, 3),
        Versions(0, 3),
        Versions(2, 0x7FFF),
    ]
    assert 0 not in Versions.of("none")


def test_null_in_a_tagged_structure_is_a_varint_of_zero() -> None:
    """Everywhere else it is a byte of -1. The bytes were written by Kafka 4.3.1."""
    schema = load_schemas("group-coordinator")["ConsumerGroupMemberMetadataValue"]
    data = bytes.fromhex("010101010102027401ffffffff01" + "01000100")
    message, end = read_message(schema, data[1:], 0)
    assert end == len(data) - 1
    assert message["classicMemberMetadata"] is None
    assert write_message(schema, message, 0) == data[1:]
    there = {**message, "classicMemberMetadata": {"sessionTimeoutMs": 7, "supportedProtocols": []}}
    again = write_message(schema, there, 0)
    assert read_message(schema, again, 0)[0]["classicMemberMetadata"]["sessionTimeoutMs"] == 7
    assert message_grammar(schema, 0).parse(again)["classicMemberMetadata"]["sessionTimeoutMs"] == 7
