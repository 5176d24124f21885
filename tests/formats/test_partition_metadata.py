"""``partition.metadata`` and Kafka's text form of a UUID."""

from pathlib import Path

import pytest
from fixture_files import each_broker_file

from formats.errors import BadValueError, BadVersionError, FormatError, TruncatedError
from formats.partition.partition_metadata import (
    ZERO_UUID,
    PartitionMetadata,
    PartitionMetadataFault,
    partition_metadata_fault,
    read_partition_metadata,
    uuid_from_text,
    uuid_to_text,
    write_partition_metadata,
)


@each_broker_file("partition.metadata")
def test_files_of_brokers_round_trip(path: Path) -> None:
    data = path.read_bytes()
    metadata = read_partition_metadata(data, file=path.name)
    assert metadata.version == 0
    assert data.endswith(uuid_to_text(metadata.topic_id).encode())
    assert write_partition_metadata(metadata) == data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("AAAAAAAAAAAAAAAAAAAAAA", ZERO_UUID),
        ("_____________________w", b"\xff" * 16),
        ("-_-_AAAAAAAAAAAAAAAAAA", bytes.fromhex("fbffbf") + bytes(13)),
        ("AAECAwQFBgcICQoLDA0ODw", bytes(range(16))),
        ("AAECAwQFBgcICQoLDA0ODw==", bytes(range(16))),
    ],
)
def test_uuid_vectors(text: str, expected: bytes) -> None:
    assert uuid_from_text(text) == expected
    assert uuid_to_text(expected) == text.rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        "AAECAwQFBgcICQoLDA0OD",
        "AAECAwQFBgcICQoLDA0ODwA",
        "AAECAwQFBgcICQoLDA0ODw=",
        "AAECAwQFBgcICQoLDA0OD+",
        "AAECAwQFBgcICQoLDA0ODw\n",
        "A" * 100_000,
    ],
)
def test_what_is_no_uuid(text: str) -> None:
    with pytest.raises(BadValueError):
        uuid_from_text(text)


ID = b"hVLXsV0ZSTSJwjeZBRZyLg"


@pytest.mark.parametrize(
    "data",
    [b"version: 0\ntopic_id: " + ID, b"version: 0\r\ntopic_id:\t" + ID + b"\r\n", b"version:   1\ntopic_id: " + ID + b"\nmore\n"],
)
def test_what_kafka_reads_too(data: bytes) -> None:
    assert read_partition_metadata(data).topic_id == bytes.fromhex("8552d7b15d19493489c23799051672 2e")


@pytest.mark.parametrize(
    ("data", "error", "line"),
    [
        (b"", TruncatedError, 1),
        (b"version: 0", TruncatedError, 2),
        (b"version: -1\ntopic_id: " + ID, BadVersionError, 1),
        (b"version: 0 \ntopic_id: " + ID, BadVersionError, 1),
        (b"version:0\ntopic_id: " + ID, BadValueError, 1),
        (b"version: 0\ntopic id: " + ID, BadValueError, 2),
        (b"version: 0\ntopic_id: " + ID + b" ", BadValueError, 2),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", BadValueError, 2),
        (b"version: 0\ntopic_id: \xff", BadValueError, 2),
    ],
)
def test_faults(data: bytes, error: type[FormatError], line: int) -> None:
    with pytest.raises(error) as caught:
        read_partition_metadata(data, file="partition.metadata")
    assert type(caught.value) is error
    assert (caught.value.file, caught.value.position, caught.value.unit) == ("partition.metadata", line, "line")


@pytest.mark.parametrize(
    "metadata", [PartitionMetadata(-1, bytes(range(16))), PartitionMetadata(0, ZERO_UUID), PartitionMetadata(0, b"short")]
)
def test_what_could_not_be_read_back(metadata: PartitionMetadata) -> None:
    with pytest.raises(BadValueError):
        write_partition_metadata(metadata)


def test_a_file_that_is_no_utf8_has_a_fault() -> None:
    """``Files.newBufferedReader`` throws a MalformedInputException, which is an IOException."""
    assert partition_metadata_fault(b"\0garbage \xff\n" * 7) is PartitionMetadataFault.MALFORMED
